"""The scout: where in a large domain the rows are, roughly, so that the tree's leaves are cells of about equal scatter.

A histogram, secret, goes in with an epsilon; public cells come out. First some 4,096 coarse blocks are released, and
then the single ranks of those that look as if they held heavy ones. docs/privacy.md section 4.3.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import log, sqrt
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from scumble.index.mechanisms import variance
from scumble.index.mechanisms.wide_tree import WideTree, estimate
from scumble.privacy.noise import Noise

__all__ = ["Cells", "find_cells", "scout_tree", "worthwhile"]

Value = TypeVar("Value", bound=np.generic)

# The optima are flat: a quarter more or less moves the overhead by some 4 %. The exception is a weaker look at the
# coarse blocks, which overlooks heavy ranks that are few: that can double the overhead of a small table.
LEVEL_SHARES = (Fraction(1, 4), Fraction(3, 4))  # of the scout's: coarse blocks, and ranks
COARSE_BLOCKS = 1 << 12  # in twice as many, clumps of keys would be lost in the noise
FINE_PER_COARSE = 16
GROUPS = 16  # of coarse blocks, each judged by itself: 256 blocks tell scatter from noise, and keys differ by region
CELLS_IN_BLOCK = 2  # at most, on account of roughness: that is seen between blocks, and only guessed inside them
LONGEST_CELL = 8  # in coarse blocks: where the scout sees nothing, it may have been unlucky
FALSE_HEAVY = 300  # ranks that are taken for heavy by mistake, on average, in the whole domain: each costs two cells
EDGE = 8  # noise scales between neighbouring coarse blocks: a step that no cell should straddle; chance makes seven
SPIKE = 4  # noise scales beyond the largest likely step: a search; chance makes one in every eight builds
ROUGH = 4  # standard errors of excess scatter that are no accident: heavy ranks may be behind it, so a search
WIDESPREAD = Fraction(1, 8)  # of the groups: if more have reason for a search, heavy ranks will be in the others too
SURE = 2  # standard errors taken off excess scatter before cells follow it: in mere noise they would be far too many
BEND_ERROR = 2.63  # of a mean square of second differences of Laplace variables: sqrt((126 + 2 * (56 + 5)) / 36)


def worthwhile(size: int) -> bool:
    """Whether a domain is so large that a scout pays: from 2^14 ranks on, except for heavy ranks all over the place."""
    return size >= 4 * COARSE_BLOCKS


@dataclass(frozen=True, eq=False)
class Cells:
    """PUBLIC: the first rank of every cell, and which cells' rows paid for a search among their ranks as well."""

    starts: NDArray[np.int64]
    searched: NDArray[np.bool_]

    def cost(self, scout: WideTree, first: int = 0, stop: int | None = None) -> Fraction:
        """What the scout has cost a row in any of some cells: trees over disjoint cells may have all that is left."""
        return scout.epsilon if self.searched[first:stop].any() else scout.epsilons[0]


def scout_tree(size: int, epsilon: Fraction) -> WideTree:
    """The scout's shape, and what it costs at most: some 4,096 coarse blocks, and every rank."""
    fine = size // (COARSE_BLOCKS * FINE_PER_COARSE)
    coarse = fine * FINE_PER_COARSE or max(1, size // COARSE_BLOCKS)
    return WideTree(size, (coarse, 1), tuple(epsilon * share for share in LEVEL_SHARES))


def find_cells(counts: NDArray[np.int64], scout: WideTree, rows_per_cell: float, noise: Noise | None = None) -> Cells:
    """Release the coarse blocks, then the ranks of those groups of them that look as if they held heavy ranks.

    Cells have about `rows_per_cell` rows. Smooth keys pay for the coarse blocks alone. Which groups are
    searched follows from the first release, so the two compose one after the other, and groups in parallel.
    Sensitivity: 1 a level in L1; neighbours: one row added or removed; cost: scout.epsilon, or less: `Cells.cost`.
    """
    noise, edges = noise or Noise.fresh(), np.arange(0, scout.leaves, scout.blocks[0])
    shape = WideTree(len(edges), (1,), scout.epsilons[:1])
    light = estimate(np.add.reduceat(counts, edges), shape, noise, "scout's blocks", scout.leaves, scout.blocks)
    searched = _suspicious(light, scout)
    heavy, shares, spread = _search(counts, light, searched, scout, noise)
    starts = _cut(light, spread, shares, heavy, scout, rows_per_cell)
    blocks = np.concatenate([[0], np.cumsum(searched)])
    first, last = starts // scout.blocks[0], (np.append(starts[1:], scout.leaves) - 1) // scout.blocks[0]
    return Cells(starts, blocks[last + 1] > blocks[first])


def _suspicious(light: NDArray[np.float64], scout: WideTree) -> NDArray[np.bool_]:
    """The blocks to search, by groups: those with a step, or with more scatter, than noise and chance explain."""
    expected = _expected(light, np.full(len(light), variance(scout.scales[0])))
    excess, doubt = _roughness(light, expected, 1)
    spikes = _steps(light, expected) > log(len(light)) + SPIKE
    groups = (excess > ROUGH * doubt) | (_group_means(spikes.astype(np.float64)) > 0)
    return _spread_out(groups | (groups.mean() > WIDESPREAD), len(light))


def _search(
    counts: NDArray[np.int64], light: NDArray[np.float64], searched: NDArray[np.bool_], scout: WideTree, noise: Noise
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Release the ranks of some blocks, and take the heavy ones out of their blocks' estimates, in place.

    Returns the heavy ranks, the share of each fine block in its coarse block's rows, equal where it is not known, and
    the variance of the noise in each coarse block.
    """
    width, blocks, spread = scout.blocks[0], np.flatnonzero(searched), np.full(len(light), variance(scout.scales[0]))
    parts = _parts(width)
    shares = np.full((len(light), parts), 1 / parts)
    if not len(blocks):
        return blocks, shares, spread
    ranks = counts[np.repeat(searched, width)[: scout.leaves]]
    shape = WideTree(len(ranks), (1,), scout.epsilons[1:])
    noisy = estimate(ranks, shape, noise, "scout's ranks", scout.leaves, scout.blocks, blocks)
    rows = np.append(noisy, np.zeros(len(blocks) * width - len(noisy))).reshape(-1, width)
    heavy = _heavy_ranks(rows, scout)
    light[blocks] -= np.sum(rows, axis=1, where=heavy)
    spread[blocks] += np.count_nonzero(heavy, axis=1) * variance(scout.scales[1])
    rows[heavy] = 0
    fine = np.maximum(rows.reshape(len(blocks), parts, -1).sum(axis=2), 1)
    shares[blocks] = fine / fine.sum(axis=1, keepdims=True)
    block, place = np.nonzero(heavy)
    found = blocks[block] * width + place
    return found[found < scout.leaves], shares, spread


def _heavy_ranks(rows: NDArray[np.float64], scout: WideTree) -> NDArray[np.bool_]:
    """Ranks that stand out from their coarse block, a line of `rows`; the noise does so but FALSE_HEAVY times.

    The block's own density is a mean of values cut off there, so that a few heavy ranks do not raise it.
    """
    outstanding = float(scout.scales[1]) * log(max(2.0, scout.leaves / 2 / FALSE_HEAVY))
    heavy: NDArray[np.bool_] = rows > np.minimum(rows, outstanding).mean(axis=1, keepdims=True) + outstanding
    return heavy


def _cut(
    light: NDArray[np.float64],
    spread: NDArray[np.float64],
    shares: NDArray[np.float64],
    heavy: NDArray[np.int64],
    scout: WideTree,
    rows_per_cell: float,
) -> NDArray[np.int64]:
    """Post-processing: cells of equal scatter, but for heavy ranks, which are cells, and steps, which part cells.

    Rows that come independently scatter as many rows squared; clumped keys scatter more, by the excess. Inside a coarse
    block cells are equally wide, unless it is so dense that its fine blocks are known.
    """
    expected = _expected(light, spread)
    edges = np.flatnonzero(_steps(light, expected) > EDGE) * scout.blocks[0]
    seen = (_roughness(light, expected, reach) for reach in (1, LONGEST_CELL))
    excess = np.max([np.maximum(excess - SURE * doubt, 0) for excess, doubt in seen], axis=0)
    rough = _spread_out(np.maximum(excess, np.median(excess)), len(light))
    scatter = np.minimum(light + rough, CELLS_IN_BLOCK * rows_per_cell)
    scatter = np.maximum(np.maximum(light, scatter), rows_per_cell / LONGEST_CELL)
    dense = light > rows_per_cell * shares.shape[1]
    fine = np.where(dense[:, None], shares, 1 / shares.shape[1]) * scatter[:, None]
    width = scout.blocks[0] // shares.shape[1]
    filled = np.concatenate([[0.0], np.cumsum(np.minimum(fine, width * rows_per_cell))])  # a cell for each rank at most
    ends = np.arange(len(filled)) * width
    full = np.interp(np.arange(rows_per_cell, filled[-1], rows_per_cell), filled, ends)
    starts = np.unique(np.concatenate([[0], edges, full.astype(np.int64), heavy, heavy + 1]))
    return starts[starts < scout.leaves]


def _expected(light: NDArray[np.float64], spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each group, the variance of a coarse block's estimate if rows come independently: its noise, and its rows."""
    return _group_means(spread) + np.maximum(_group_means(light), 0)


def _steps(light: NDArray[np.float64], expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far each coarse block is from the one before: in noise scales if there are no rows, in less if there are."""
    steps: NDArray[np.float64] = np.abs(np.diff(light, prepend=light[:1]))
    steps /= _spread_out(np.sqrt(expected / 2), len(light))
    return steps


def _roughness(
    light: NDArray[np.float64], expected: NDArray[np.float64], reach: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How much more a coarse block of each group varies than expected, and the standard error of that.

    By the mean square of second differences between sums of `reach` neighbours, so that a slope does not count.
    """
    square = np.zeros(len(light))
    if 3 * reach <= len(light):
        sums = np.convolve(light, np.ones(reach), "valid")
        bends = sums[2 * reach :] - 2 * sums[reach:-reach] + sums[: -2 * reach]
        square[: len(bends)] = bends * bends / (6 * reach)
    return _group_means(square) - expected, BEND_ERROR * expected * sqrt(reach * GROUPS / len(light))


def _group_means(blocks: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean over each group of neighbouring blocks."""
    starts = np.arange(0, len(blocks), -(-len(blocks) // GROUPS))
    means: NDArray[np.float64] = np.add.reduceat(blocks, starts) / np.diff(np.append(starts, len(blocks)))
    return means


def _spread_out(groups: NDArray[Value], blocks: int) -> NDArray[Value]:
    """A group's value for each of its blocks: the inverse of `_group_means`."""
    return np.repeat(groups, -(-blocks // GROUPS))[:blocks]


def _parts(width: int) -> int:
    """How many fine blocks a coarse one has: as many as it has ranks, where the domain is small."""
    return FINE_PER_COARSE if width % FINE_PER_COARSE == 0 else width
