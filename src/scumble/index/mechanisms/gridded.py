"""Node counts over the cells of a public grid, which those of other batches can be added to; and how a grid is found.

A histogram, secret, goes in with an epsilon; noisy counts come out, which are public and kept as they are. The first
batch of a table may find the grid itself, as a scout does, for a part of its epsilon. docs/privacy.md section 4.7.
"""

from fractions import Fraction
from math import log

import numpy as np
from numpy.typing import NDArray

from scumble.index.curve import Histogram
from scumble.index.grid import ALL_RANKS, Grid, suitable_cells
from scumble.index.mechanisms.wide_tree import WideTree, estimate, release_nodes
from scumble.privacy.noise import Noise

__all__ = ["find_grid", "release_over_grid"]

IntArray = NDArray[np.int64]

COARSE_BLOCKS = 1 << 12
BLOCK_SHARE = Fraction(1, 12)  # of epsilon, for the rows of coarse blocks
RANK_SHARE = Fraction(1, 3)  # of epsilon, for heavy ranks
FALSE_HEAVY = 12  # one cell in so many may be a rank that is taken for heavy by mistake
SURELY = 2  # times what makes a rank heavy
SURE = 4  # standard deviations by which neighbouring coarse blocks have to differ


def find_grid(histogram: Histogram, rows: int, epsilon: Fraction, noise: Noise) -> tuple[Grid, Fraction]:
    """Find a grid that suits batches like this one, of about `rows` rows, and say what is left of epsilon then.

    Where every rank can be a cell, nothing is released. Else coarse blocks of ranks are, and then all ranks: a row
    counts in one of either, so the cost is the sum of both shares.
    Sensitivity: 1 a level in L1; neighbours: one row added or removed; docs/privacy.md 4.7.
    """
    size, cells = histogram.size, suitable_cells(rows)
    if size <= ALL_RANKS * cells:
        return Grid.even(size, rows), epsilon
    width = max(1, size // COARSE_BLOCKS)
    edges = np.arange(0, size, width)
    coarse = WideTree(len(edges), (1,), (epsilon * BLOCK_SHARE,))
    light = estimate(np.add.reduceat(histogram.counts, edges), coarse, noise, "grid's blocks", size)
    fine = WideTree(size, (1,), (epsilon * RANK_SHARE,))
    ranks = estimate(histogram.counts, fine, noise, "grid's ranks", size)
    widths = np.diff(np.append(edges, size))
    usual = np.repeat(np.maximum(light, 0) / widths, widths)
    outstanding = float(fine.scales[0]) * log(max(2.0, size / 2 * FALSE_HEAVY / cells))
    heavy = ranks > np.minimum(usual, outstanding) + outstanding
    # A rank that only noise made heavy had no rows to be taken out of its block's.
    light -= np.add.reduceat(np.where(ranks > usual + SURELY * outstanding, ranks, 0.0), edges)
    density = np.repeat(_smooth(light, float(coarse.scales[0])) / widths, widths)
    density[heavy] += ranks[heavy]
    return Grid.of_curve(np.cumsum(density), rows), epsilon * (1 - BLOCK_SHARE - RANK_SHARE)


def _smooth(light: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """The rows of coarse blocks, averaged as far as neighbours do not differ by more than noise and chance explain.

    Neighbours are compared in pairs, then pairs of pairs, and so on; one that stands out keeps all of these apart.
    """
    sums = [np.append(light, np.zeros((1 << (len(light) - 1).bit_length()) - len(light)))]
    level = [np.ones(len(sums[0]), dtype=np.bool_)]
    while len(sums[-1]) > 1:
        left, right = sums[-1][::2], sums[-1][1::2]
        together = left + right
        usual = np.sqrt(2 * scale**2 * (len(sums[0]) / len(together)) + np.maximum(together, 0))
        level.append(level[-1][::2] & level[-1][1::2] & (np.abs(left - right) <= SURE * usual))
        sums.append(together)
    smooth = sums[0]
    for each, flat in zip(sums[1:], level[1:], strict=True):
        width = len(smooth) // len(each)
        smooth = np.where(np.repeat(flat, width), np.repeat(each / width, width), smooth)
    return np.maximum(smooth[: len(light)], 0)


def release_over_grid(histogram: Histogram, grid: Grid, epsilon: Fraction, noise: Noise) -> IntArray:
    """Release the nodes of every part's tree, level by level, one part after the other.

    The grid is public and fixed before, and a row counts in the tree of one part alone, and there in one node of each
    level: the trees cost as much as one. Sensitivity: 1 a level in L1; neighbours: one row added or removed; cost:
    epsilon; docs/privacy.md 4.7.
    """
    counts = np.add.reduceat(histogram.counts, grid.starts)
    nodes: list[IntArray] = []
    for part, tree in enumerate(grid.trees(epsilon)):
        low, high = grid.cuts[part : part + 2].tolist()
        nodes += release_nodes(counts[low:high], tree, noise, "grid", grid.digest, part)
    return np.concatenate(nodes)
