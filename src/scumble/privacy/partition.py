"""Adaptive cells: a histogram and a small budget come in, a public partition of the ranks goes out.

A tree over a million ranks pays for a million leaves even where the curve is straight. So a scout, a sparse tree with a
seventh of the budget, looks first: which ranks are heavy, and how dense the rest is. Heavy ranks become cells of
their own, the others are cut into cells of about equally many rows, and the wide tree is then released over the few
thousand cells. The histogram is secret; the scout's release, and so the cells, are public: docs/privacy.md section 4.3.
"""

from fractions import Fraction
from math import log

import numpy as np
from numpy.typing import NDArray

from scumble.privacy.tree import WideTree, estimate

__all__ = ["SCOUT_SHARE", "cell_starts", "scout_tree", "worthwhile"]

# The two shares are a compromise: a stronger scout finds more of the heavy ranks (shuffled zipf), a weaker one leaves
# more for the tree (smooth keys). The other constants hardly matter (`python -m benchmarks.overhead --sweep`).
SCOUT_SHARE = Fraction(1, 5)  # of the curve's epsilon
LEVEL_SHARES = (Fraction(1, 15), Fraction(1, 15), Fraction(13, 15))  # of the scout's: coarse, fine blocks, ranks
COARSE_BLOCKS = 1 << 12
FINE_PER_COARSE = 16
ROWS_PER_CELL = 240  # over epsilon: the scatter of so many rows about a straight line stays below the noise
FALSE_HEAVY = 600  # ranks that are taken for heavy by mistake, on average: each costs no more than two cells
EDGE = 3  # noise scales, between neighbouring coarse blocks: a step in density that no cell should straddle
LONGEST_CELL = 4  # in coarse blocks: where the scout sees nothing, it may have been unlucky


def worthwhile(size: int) -> bool:
    """Whether a domain is so large that a scout pays: the wide tree over all ranks would need a fifth level."""
    return size >= COARSE_BLOCKS * FINE_PER_COARSE * 2


def scout_tree(size: int, epsilon: Fraction) -> WideTree:
    """The scout's shape: some 4,096 coarse blocks, each of sixteen fine ones, and every rank."""
    fine = size // (COARSE_BLOCKS * FINE_PER_COARSE)
    blocks = (fine * FINE_PER_COARSE, fine, 1)
    return WideTree(size, blocks, tuple(epsilon * share for share in LEVEL_SHARES))


def cell_starts(counts: NDArray[np.int64], scout: WideTree, curve_epsilon: Fraction) -> NDArray[np.int64]:
    """Release the scout, and return the first rank of every cell.

    Sensitivity: 1 a level in L1; neighbours: one row added or removed; cost: scout.epsilon.
    """
    return _cut(estimate(counts, scout), scout, ROWS_PER_CELL / float(curve_epsilon))


def _cut(rows: NDArray[np.float64], scout: WideTree, rows_per_cell: float) -> NDArray[np.int64]:
    """Post-processing: cells from the scout's estimate of each rank's rows, which is used up."""
    heavy = _heavy_ranks(rows, scout)
    rows[heavy] = 0
    edges = np.arange(0, scout.leaves, scout.blocks[1])
    light = _light_rows(np.add.reduceat(rows, edges), rows_per_cell)
    steps = edges[1:][np.abs(np.diff(light)) > EDGE * float(scout.scales[0]) / FINE_PER_COARSE]
    filled = np.concatenate([[0.0], np.cumsum(light)])
    full = np.interp(np.arange(rows_per_cell, filled[-1], rows_per_cell), filled, np.append(edges, scout.leaves))
    starts = np.unique(np.concatenate([[0], steps, full.astype(np.int64), heavy, heavy + 1]))
    return starts[starts < scout.leaves]


def _heavy_ranks(rows: NDArray[np.float64], scout: WideTree) -> NDArray[np.int64]:
    """Ranks that stand out from their coarse block by more than the noise does but FALSE_HEAVY times.

    The block's own density is a mean of values cut off there, so that a few heavy ranks do not raise it.
    """
    outstanding = float(scout.scales[-1]) * log(scout.leaves / 2 / FALSE_HEAVY)
    blocks = np.arange(0, scout.leaves, scout.blocks[0])
    density = np.add.reduceat(np.minimum(rows, outstanding), blocks) / np.diff(np.append(blocks, scout.leaves))
    return np.flatnonzero(rows > np.repeat(density + outstanding, scout.blocks[0])[: scout.leaves])


def _light_rows(fine: NDArray[np.float64], rows_per_cell: float) -> NDArray[np.float64]:
    """The light rows of each fine block: its own estimate where rows are so dense that it is known, else its share.

    Its share of the coarse block's, that is; and never so few that a cell would exceed LONGEST_CELL coarse blocks.
    """
    least = rows_per_cell / LONGEST_CELL / FINE_PER_COARSE
    coarse = np.add.reduceat(fine, np.arange(0, len(fine), FINE_PER_COARSE)) / FINE_PER_COARSE
    shared = np.repeat(coarse, FINE_PER_COARSE)[: len(fine)]
    dense = shared > rows_per_cell
    return np.maximum(dense * fine + ~dense * shared, least)
