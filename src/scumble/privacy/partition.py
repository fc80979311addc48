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

# Shares of the epsilon that curve and scout have together, found by simulation (benchmarks/overhead.py --sweep).
SCOUT_SHARE = Fraction(1, 5)
LEVEL_SHARES = (Fraction(3, 15), Fraction(2, 15), Fraction(10, 15))  # coarse blocks, fine blocks, ranks
COARSE_BLOCKS = 1 << 12
FINE_PER_COARSE = 16
ROWS_PER_CELL = 240  # over epsilon: the scatter of so many rows about a straight line stays below the noise
FALSE_HEAVY = 600  # ranks that are taken for heavy by mistake, on average: each costs no more than two cells
EDGE = 0.25  # of a cell's rows, between neighbouring coarse blocks: a step in density that no cell should straddle
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
    heavy = rows > float(scout.scales[-1]) * log(scout.leaves / 2 / FALSE_HEAVY)
    light = _level(rows, heavy, scout, rows_per_cell)
    cuts = np.empty(scout.leaves, dtype=np.bool_)
    cuts[0] = True
    np.greater(np.abs(np.diff(light)), EDGE * rows_per_cell / scout.blocks[0], out=cuts[1:])
    cell = np.cumsum(light, out=light)
    cell /= rows_per_cell
    np.floor(cell, out=cell)
    cuts[1:] |= cell[1:] > cell[:-1]
    cuts |= heavy
    cuts[1:] |= heavy[:-1]
    return np.flatnonzero(cuts)


def _level(
    rows: NDArray[np.float64], heavy: NDArray[np.bool_], scout: WideTree, rows_per_cell: float
) -> NDArray[np.float64]:
    """Spread the light rows of each block evenly over it: fine blocks where they are dense enough to be known."""
    rows[heavy] = 0
    coarse, fine, _ = (np.arange(0, scout.leaves, block) for block in scout.blocks)
    per_coarse = np.maximum(np.add.reduceat(rows, coarse), rows_per_cell / LONGEST_CELL) / scout.blocks[0]
    density = np.repeat(per_coarse, FINE_PER_COARSE)[: len(fine)]
    dense = density * scout.blocks[1] > rows_per_cell
    per_fine = np.maximum(np.add.reduceat(rows, fine), 0) / scout.blocks[1]
    density[dense] = np.maximum(per_fine[dense], rows_per_cell / LONGEST_CELL / scout.blocks[0])
    result: NDArray[np.float64] = np.repeat(density, scout.blocks[1])[: scout.leaves]
    return result
