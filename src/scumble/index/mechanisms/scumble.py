"""Scumble's mechanism: a wide tree with a least-squares estimate, over cells that a scout finds in large domains.

A histogram, secret, goes in with an epsilon; a public noisy curve comes out. The costs of scout and tree add up to the
epsilon given. docs/privacy.md sections 4.2 and 4.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import ceil, exp, log, log1p, sqrt
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from scumble.index.curve import Histogram, Knots, NoisyCurve
from scumble.index.mechanisms import Halves, Mechanism, chernoff_bound, cumulant, rates_below, variance
from scumble.privacy.noise import Fact, Noise, add_discrete_laplace

__all__ = [
    "SCUMBLE",
    "Cells",
    "WideTree",
    "estimate",
    "find_cells",
    "release_adaptive_curve",
    "release_halves",
    "release_parts",
    "scout_tree",
    "wide_tree",
    "worthwhile",
]

Value = TypeVar("Value", bound=np.generic)

FAN_OUT = 18
HALF_FAN_OUT = 9  # of a tree over the few cells of half a block
SIMULATED_SAMPLES = 1 << 26  # as many as take about a second; a build, however small, takes as long as 2,000
LEAST_SIMULATED_BETA = Fraction(1, 10**4)


@dataclass(frozen=True)
class WideTree:
    """The public shape of a tree without root: how many leaves a node of each level spans, and what it may spend.

    Coarsest level first; the last level's nodes are the leaves. Each block divides the one above it; the last node of
    a level may be cut short by the end of the leaves.
    """

    leaves: int
    blocks: tuple[int, ...]
    epsilons: tuple[Fraction, ...]

    @property
    def levels(self) -> int:
        return len(self.blocks)

    @property
    def epsilon(self) -> Fraction:
        """What the release costs: a row counts once on every level."""
        return sum(self.epsilons, Fraction(0))

    @property
    def scales(self) -> tuple[Fraction, ...]:
        """The noise of each level: its sensitivity, 1, over what it may spend."""
        return tuple(1 / epsilon for epsilon in self.epsilons)

    def widths(self, level: int) -> int:
        return -(-self.leaves // self.blocks[level])

    def fan_out(self, level: int) -> int:
        """How many children a full node of this level has; for level -1, the whole, how many top nodes there are."""
        return self.blocks[level] // self.blocks[level + 1] if level >= 0 else self.widths(0)

    def variances(self) -> list[tuple[float, float]]:
        """The variance of each level's nodes as estimated from themselves and all below: full ones, and the last."""
        result: list[tuple[float, float]] = []
        for level in reversed(range(self.levels)):
            own = variance(self.scales[level])
            if not result:
                result.append((own, own))
                continue
            full, last = result[0]
            fan, rest = self.fan_out(level), (self.widths(level + 1) - 1) % self.fan_out(level)
            below = (fan * full, rest * full + last)
            result.insert(0, (1 / (1 / own + 1 / below[0]), 1 / (1 / own + 1 / below[1])))
        return result

    @property
    def noise_rms(self) -> float:
        """Over all prefixes: the top level adds up half its nodes, a lower one a bridge, a sixth of its fan-out."""
        spread = [full for full, _ in self.variances()]
        bridges = sum(spread[level + 1] * self.fan_out(level) / 6 for level in range(self.levels - 1))
        return sqrt(spread[0] * (self.widths(0) + 1) / 2 + bridges)

    @property
    def worst_variance(self) -> float:
        """An upper bound on the variance of every prefix: the whole top level, and each bridge at its middle."""
        spread = [max(pair) for pair in self.variances()]
        bridges = sum(spread[level + 1] * self.fan_out(level) / 4 for level in range(self.levels - 1))
        return spread[0] * self.widths(0) + bridges

    def release(self, histogram: Histogram, noise: Noise | None = None) -> NoisyCurve:
        """Release the curve over all ranks; its error is known from the tree alone. Costs epsilon: `estimate`."""
        return _release_leaves(histogram.counts, self, range(self.leaves), self.leaves, noise)

    def bound(self, beta: Fraction) -> int:
        """How far the noise moves any prefix, except with probability beta. Free of the data: docs/privacy.md 5.3.

        An order statistic of simulated builds where beta is large enough to be seen in them, else a Chernoff bound.
        """
        return _bound(self, beta)

    def chernoff_bound(self, beta: Fraction) -> int:
        """The same from a Chernoff bound over all prefixes: looser, for any beta."""
        rates = rates_below(max(self.scales))
        # Every weight is at most 1, and the cumulant over the square grows with the weight: docs/privacy.md 5.3.
        ratio = np.max([cumulant(rates, scale) / variance(scale) for scale in self.scales], axis=0)
        return chernoff_bound(rates, [(self.leaves, self.worst_variance * ratio)], beta)

    def nodes(self, counts: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """SECRET: the rows in each node, level by level."""
        sums = [np.add.reduceat(counts, np.arange(0, self.leaves, block)) for block in self.blocks[:-1]]
        return [*sums, counts.copy()]


def wide_tree(leaves: int, epsilon: Fraction, usual_fan_out: int = FAN_OUT) -> WideTree:
    """Levels of near-equal fan-out, as near to the usual as their number allows, each with an equal share."""
    levels = max(1, round(log(leaves) / log(usual_fan_out))) if leaves > 1 else 1
    fan_out = ceil(round(leaves ** (1 / levels), 9))
    blocks = tuple(fan_out**level for level in reversed(range(levels)))
    return WideTree(leaves, blocks, (epsilon / levels,) * levels)


def estimate(
    counts: NDArray[np.int64], tree: WideTree, noise: Noise | None = None, *question: Fact
) -> NDArray[np.float64]:
    """Release every node with noise, and return the least-squares estimate of the leaves.

    `question` is what the leaves are, if they are not the ranks. Sensitivity: 1 a level in L1; neighbours: one row
    added or removed; cost: tree.epsilon; docs/privacy.md 4.2.
    """
    noisy, noise = tree.nodes(counts), noise or Noise.fresh()
    shape = "wide tree", tree.leaves, tree.blocks, tree.epsilons
    for level, (nodes, scale) in enumerate(zip(noisy, tree.scales, strict=True)):
        add_discrete_laplace(nodes, scale, noise.stream(*shape, level, *question))
    return _least_squares([nodes.astype(np.float64) for nodes in noisy], tree)


def _release_leaves(
    counts: NDArray[np.int64], tree: WideTree, knots: Knots, size: int, noise: Noise | None
) -> NoisyCurve:
    """Release the curve over leaves that end at the given ranks: `estimate`, added up."""
    rows = np.cumsum(estimate(counts, tree, noise, "leaves", np.asarray(knots, np.int64)))
    return NoisyCurve(size, knots, rows, tree.levels, tree.noise_rms)


def _least_squares(levels: list[NDArray[np.float64]], tree: WideTree) -> NDArray[np.float64]:
    """The consistent leaves nearest to all noisy nodes (Hay et al. 2010), each weighted by its precision.

    Upwards every node becomes the best estimate from itself and below; downwards the difference between a node and its
    children's sum is shared out among them. In place: `levels` is used up.
    """
    spread = tree.variances()
    sums: list[NDArray[np.float64]] = []
    for level in reversed(range(tree.levels - 1)):
        children = np.add.reduceat(levels[level + 1], np.arange(0, tree.widths(level + 1), tree.fan_out(level)))
        sums.insert(0, children)
        own = variance(tree.scales[level])
        trust = np.full(len(children), spread[level][0] / own)
        trust[-1] = spread[level][1] / own
        levels[level] *= trust
        levels[level] += (1 - trust) * children
    for level in range(tree.levels - 1):
        fan = tree.fan_out(level)
        missing = levels[level] - sums[level]
        below = levels[level + 1]
        whole = (len(missing) - 1) * fan
        below[:whole].reshape(-1, fan)[:] += (missing[:-1] / fan)[:, None]
        share = np.full(len(below) - whole, spread[level + 1][0])
        share[-1] = spread[level + 1][1]
        below[whole:] += missing[-1] * share / share.sum()
    return levels[-1]


@lru_cache(maxsize=64)
def _bound(tree: WideTree, beta: Fraction) -> int:
    builds = ceil(40 / beta) if beta >= LEAST_SIMULATED_BETA else 0
    if builds and builds * max(tree.leaves, 2000) <= SIMULATED_SAMPLES:
        return _simulated_bound(tree, beta, builds)
    return tree.chernoff_bound(beta)


def _simulated_bound(tree: WideTree, beta: Fraction, builds: int) -> int:
    """The order statistic of `builds` largest errors that exceeds the (1 - 0.9 beta)-quantile but for 0.1 beta.

    There are no rows in it, so its noise is public, and the same every time: a repeated release has the same bound.
    """
    nothing, noise = np.zeros(tree.leaves, dtype=np.int64), Noise(bytes(32))
    errors = (estimate(nothing, tree, noise, "simulated", build) for build in range(builds))
    worst = sorted((float(np.abs(np.cumsum(leaves)).max()) for leaves in errors), reverse=True)
    return ceil(worst[_exceeded_at_most(builds, 0.9 * float(beta), 0.1 * float(beta))])


def _exceeded_at_most(trials: int, chance: float, doubt: float) -> int:
    """The largest j with P(Binomial(trials, chance) <= j) <= doubt: j exceedances or fewer would be a surprise."""
    term = exp(trials * log1p(-chance))
    total, j = term, -1
    while total <= doubt:
        j += 1
        term *= (trials - j) / (j + 1) * chance / (1 - chance)
        total += term
    return max(j, 0)


# --- cells -----------------------------------------------------------------------------------------

# The optima are flat: a quarter more or less moves the overhead by some 4 %. The exception is a weaker look at the
# coarse blocks, which overlooks heavy ranks that are few: that can double the overhead of a small table.
SCOUT_SHARE = Fraction(3, 10)  # of the curve's epsilon where ranks are searched; elsewhere only the coarse blocks' part
LEVEL_SHARES = (Fraction(1, 4), Fraction(3, 4))  # of the scout's: coarse blocks, and ranks
COARSE_BLOCKS = 1 << 12  # in twice as many, clumps of keys would be lost in the noise
FINE_PER_COARSE = 16
GROUPS = 16  # of coarse blocks, each judged by itself: 256 blocks tell scatter from noise, and keys differ by region
ROWS_PER_CELL = 190  # over epsilon: the scatter of so many rows about a straight line stays below the noise
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


def find_cells(
    counts: NDArray[np.int64], scout: WideTree, curve_epsilon: Fraction, noise: Noise | None = None
) -> Cells:
    """Release the coarse blocks, then the ranks of those groups of them that look as if they held heavy ranks.

    `curve_epsilon` is what the tree has at least. Smooth keys pay for the coarse blocks alone. Which groups are
    searched follows from the first release, so the two compose one after the other, and groups in parallel.
    Sensitivity: 1 a level in L1; neighbours: one row added or removed; cost: scout.epsilon, or less: `Cells.cost`.
    """
    noise, edges = noise or Noise.fresh(), np.arange(0, scout.leaves, scout.blocks[0])
    shape = WideTree(len(edges), (1,), scout.epsilons[:1])
    light = estimate(np.add.reduceat(counts, edges), shape, noise, "scout's blocks", scout.leaves, scout.blocks)
    searched = _suspicious(light, scout)
    heavy, shares, spread = _search(counts, light, searched, scout, noise)
    starts = _cut(light, spread, shares, heavy, scout, ROWS_PER_CELL / float(curve_epsilon))
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
    filled = np.concatenate([[0.0], np.cumsum(fine)])
    ends = np.arange(len(filled)) * (scout.blocks[0] // shares.shape[1])
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


def release_adaptive_curve(histogram: Histogram, epsilon: Fraction, noise: Noise | None = None) -> NoisyCurve:
    """Release a curve with a wide tree over cells that a scout finds, where the domain is large enough for that.

    Scout and tree see the same rows, one after the other: sequential composition, the cost is epsilon.
    Sensitivity: 1 a level in L1; neighbours: one row added or removed; docs/privacy.md 4.3.
    """
    size, noise = histogram.size, noise or Noise.fresh()
    if not worthwhile(size):
        return wide_tree(size, epsilon).release(histogram, noise)
    scout = scout_tree(size, epsilon * SCOUT_SHARE)
    cells = find_cells(histogram.counts, scout, epsilon - scout.epsilon, noise)
    tree = wide_tree(len(cells.starts), epsilon - cells.cost(scout))
    knots = np.append(cells.starts[1:], size) - 1
    curve = _release_leaves(np.add.reduceat(histogram.counts, cells.starts), tree, knots, size, noise)
    levels = 1 + bool(cells.searched.any()) + curve.levels
    return NoisyCurve(size, curve.knots, curve.rows, levels, curve.noise_rms)


def release_halves(histogram: Histogram, blocks: int, epsilon: Fraction, noise: Noise) -> Halves:
    """Release the curves of so many blocks of equally many cells, each block in two halves with a tree of their own.

    Scout and trees see the same rows, one after the other, and add up to epsilon: a half's tree has all that the scout
    has left of it for every row there. A row counts in the tree of one half alone, and the halves' bounds are public
    once the scout is: parallel composition, the trees cost as much as one.
    Sensitivity: 1 a level in L1; neighbours: one row added or removed; docs/privacy.md 4.4.
    """
    size, scout = histogram.size, None
    cells = Cells(np.arange(size), np.zeros(size, dtype=np.bool_))
    if worthwhile(size):
        scout = scout_tree(size, epsilon * SCOUT_SHARE)
        cells = find_cells(histogram.counts, scout, epsilon - scout.epsilon, noise)
    counts, edges = np.add.reduceat(histogram.counts, cells.starts), np.append(cells.starts, size)
    cuts = np.arange(2 * blocks + 1) * len(counts) // (2 * blocks)
    left = [epsilon - cells.cost(scout, low, high) if scout else epsilon for low, high in pairwise(cuts.tolist())]
    curves = release_parts(counts, edges, cuts, left, noise, "half")
    scouted = 0 if scout is None else 1 + bool(cells.searched.any())
    return Halves(edges[cuts], curves, scouted + max(curve.levels for curve in curves))


def release_parts(
    counts: NDArray[np.int64],
    edges: NDArray[np.int64],
    cuts: NDArray[np.int64],
    epsilons: Sequence[Fraction],
    noise: Noise,
    *question: Fact,
) -> tuple[NoisyCurve, ...]:
    """Release a curve for each part of the cells, from one of `cuts` to the next, with a tree of its own.

    Cell i, with so many rows, lies between edges[i] and edges[i + 1]; a curve begins at its first cell's edge. A row
    counts in one tree alone: the trees cost a row what that of its part does. Sensitivity: 1 a level in L1;
    neighbours: one row added or removed; docs/privacy.md 4.4.
    """
    curves = []
    for (low, high), epsilon in zip(pairwise(cuts.tolist()), epsilons, strict=True):
        tree = wide_tree(high - low, epsilon, FAN_OUT if len(epsilons) == 1 else HALF_FAN_OUT)
        starts, ends = edges[low:high], edges[low + 1 : high + 1]
        rows = np.cumsum(estimate(counts[low:high], tree, noise, *question, starts, ends))
        size = int(ends[-1] - starts[0])
        curves.append(NoisyCurve(size, ends - 1 - starts[0], rows, tree.levels, tree.noise_rms))
    return tuple(curves)


SCUMBLE = Mechanism(
    name="scumble", code=0, tree=wide_tree, release=release_adaptive_curve, release_halves=release_halves
)
