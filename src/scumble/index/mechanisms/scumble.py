"""Scumble's mechanism: a wide tree with a least-squares estimate, over cells that a scout finds in large domains.

A histogram, secret, goes in with an epsilon; a public noisy curve comes out. The costs of scout and tree add up to the
epsilon given. docs/privacy.md sections 4.2 and 4.3.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import ceil, exp, log, log1p, sqrt

import numpy as np
from numpy.typing import NDArray

from scumble.index.curve import Histogram, Knots, NoisyCurve
from scumble.index.mechanisms import Halves, Mechanism, chernoff_bound, cumulant, rates_below, variance
from scumble.privacy.noise import Fact, Noise, add_discrete_laplace

__all__ = [
    "SCUMBLE",
    "WideTree",
    "cell_starts",
    "estimate",
    "release_adaptive_curve",
    "release_halves",
    "scout_tree",
    "wide_tree",
    "worthwhile",
]

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


def cell_starts(
    counts: NDArray[np.int64], scout: WideTree, curve_epsilon: Fraction, noise: Noise | None = None
) -> NDArray[np.int64]:
    """Release the scout, and return the first rank of every cell.

    Sensitivity: 1 a level in L1; neighbours: one row added or removed; cost: scout.epsilon.
    """
    return _cut(estimate(counts, scout, noise, "scout"), scout, ROWS_PER_CELL / float(curve_epsilon))


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


def release_adaptive_curve(histogram: Histogram, epsilon: Fraction, noise: Noise | None = None) -> NoisyCurve:
    """Release a curve with a wide tree over cells that a scout finds, where the domain is large enough for that.

    Scout and tree see the same rows, one after the other: sequential composition, the cost is epsilon.
    Sensitivity: 1 a level in L1; neighbours: one row added or removed; docs/privacy.md 4.3.
    """
    size, noise = histogram.size, noise or Noise.fresh()
    if not worthwhile(size):
        return wide_tree(size, epsilon).release(histogram, noise)
    scout = scout_tree(size, epsilon * SCOUT_SHARE)
    rest = epsilon - scout.epsilon
    starts = cell_starts(histogram.counts, scout, rest, noise)
    cells = np.add.reduceat(histogram.counts, starts)
    curve = _release_leaves(cells, wide_tree(len(starts), rest), np.append(starts[1:], size) - 1, size, noise)
    return NoisyCurve(size, curve.knots, curve.rows, scout.levels + curve.levels, curve.noise_rms)


def release_halves(histogram: Histogram, blocks: int, epsilon: Fraction, noise: Noise) -> Halves:
    """Release the curves of so many blocks of equally many cells, each block in two halves with a tree of their own.

    Scout and trees see the same rows, one after the other, and add up to epsilon. A row counts in the tree of one half
    alone, and the halves' bounds are public once the scout is: parallel composition, the trees cost as much as one.
    Sensitivity: 1 a level in L1; neighbours: one row added or removed; docs/privacy.md 4.4.
    """
    size, scout = histogram.size, None
    starts = np.arange(size)
    if worthwhile(size):
        scout = scout_tree(size, epsilon * SCOUT_SHARE)
        epsilon -= scout.epsilon
        starts = cell_starts(histogram.counts, scout, epsilon, noise)
    cells, ends = np.add.reduceat(histogram.counts, starts), np.append(starts[1:], size)
    cuts = np.arange(2 * blocks + 1) * len(starts) // (2 * blocks)
    curves = []
    for low, high in pairwise(cuts.tolist()):
        tree = wide_tree(high - low, epsilon, HALF_FAN_OUT)
        rows = np.cumsum(estimate(cells[low:high], tree, noise, "half", starts[low:high], ends[low:high]))
        first, end = int(starts[low]), int(ends[high - 1])
        curves.append(NoisyCurve(end - first, ends[low:high] - 1 - first, rows, tree.levels, tree.noise_rms))
    levels = (scout.levels if scout else 0) + max(curve.levels for curve in curves)
    return Halves(np.append(starts[cuts[:-1]], size), tuple(curves), levels)


SCUMBLE = Mechanism(
    name="scumble", code=0, tree=wide_tree, release=release_adaptive_curve, release_halves=release_halves
)
