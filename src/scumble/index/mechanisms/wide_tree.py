"""The wide tree: noisy counts of nodes on a few levels, and the least-squares estimate of the leaves.

Counts, secret, go in with a public shape; a public noisy curve over the leaves comes out. Also how far its noise can
reach, which follows from the shape alone. docs/privacy.md sections 4.2 and 5.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import ceil, exp, log, log1p, sqrt

import numpy as np
from numpy.typing import NDArray

from scumble.index.curve import Histogram, Knots, NoisyCurve
from scumble.index.mechanisms import chernoff_bound, cumulant, rates_below, variance
from scumble.privacy.noise import Fact, Noise, add_discrete_laplace

__all__ = ["WideTree", "estimate", "least_squares", "release_leaves", "release_nodes", "release_parts", "wide_tree"]

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
        return release_leaves(histogram.counts, self, range(self.leaves), self.leaves, noise)

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

    def squared_weights(self, *, from_end: bool = False) -> NDArray[np.float64]:
        """For the rows up to and with each leaf, or of those after it: the squares of all nodes' weights, added up.

        That is the variance of the least-squares estimate in units of one node's, if all levels have equal shares.
        Given a node's estimate, those of its children scatter about their shares of it as a bridge does, and
        independently of it; so the parts of the levels add up: docs/privacy.md section 5.3.
        """
        unit = variance(self.scales[0])
        leaves = np.arange(self.leaves)
        inside = np.full(self.leaves, 0.0 if from_end else 1.0)  # the part of a level's own node that is in the sum
        total = np.zeros(self.leaves)
        for level, (full, last) in reversed(list(enumerate(self.variances()))):
            spread = np.full(self.widths(level), full / unit)
            spread[-1] = last / unit
            up_to = np.concatenate([[0.0], np.cumsum(spread)])
            own = leaves // self.blocks[level]
            above = leaves // self.blocks[level - 1] if level else np.zeros_like(leaves)
            fan = self.fan_out(level - 1)
            first, stop = above * fan, np.minimum((above + 1) * fan, len(spread))
            whole = up_to[stop] - up_to[own + 1] if from_end else up_to[own] - up_to[first]
            total += whole + inside**2 * spread[own]
            if level:
                share, siblings = whole + inside * spread[own], up_to[stop] - up_to[first]
                total -= share**2 / siblings
                inside = share / siblings
        return total

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
    noisy = release_nodes(counts, tree, noise or Noise.fresh(), *question)
    return least_squares([nodes.astype(np.float64) for nodes in noisy], tree)


def release_nodes(counts: NDArray[np.int64], tree: WideTree, noise: Noise, *question: Fact) -> list[NDArray[np.int64]]:
    """Release every node with noise, level by level: `estimate`, before anything is made of it. Cost: the same."""
    noisy = tree.nodes(counts)
    shape = "wide tree", tree.leaves, tree.blocks, tree.epsilons
    for level, (nodes, scale) in enumerate(zip(noisy, tree.scales, strict=True)):
        add_discrete_laplace(nodes, scale, noise.stream(*shape, level, *question))
    return noisy


def release_leaves(
    counts: NDArray[np.int64], tree: WideTree, knots: Knots, size: int, noise: Noise | None
) -> NoisyCurve:
    """Release the curve over leaves that end at the given ranks: `estimate`, added up."""
    rows = np.cumsum(estimate(counts, tree, noise, "leaves", np.asarray(knots, np.int64)))
    return NoisyCurve(size, knots, rows, tree.levels, tree.noise_rms)


def least_squares(levels: list[NDArray[np.float64]], tree: WideTree) -> NDArray[np.float64]:
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
