"""Range trees: a histogram and a budget come in, noisy node counts and the curve they imply go out.

The histogram is secret; the noisy nodes and all that follows are public. Two mechanisms release the same kind of
curve: `paper`, the binary mechanism of the paper's algorithm 1, and `scumble`, a wide tree with the least-squares
estimate. Both add discrete Laplace noise to sums over nested blocks of ranks. docs/privacy.md section 4 has the proofs.

A level is one partition of the ranks into blocks, so a row counts in one node of it: adding or removing a row changes
the level by 1 in L1 norm, and releasing it with noise of scale 1/e costs e. A tree costs the sum over its levels.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from scumble.index.curve import Knots, NoisyCurve
from scumble.index.histogram import Histogram
from scumble.privacy.noise import add_discrete_laplace

__all__ = [
    "BinaryTree",
    "WideTree",
    "binary_tree",
    "estimate",
    "release_binary",
    "release_wide",
    "variance",
    "wide_tree",
]

FAN_OUT = 18


def variance(scale: Fraction) -> float:
    """The variance of discrete Laplace noise."""
    p = exp(-1 / scale)
    return 2 * p / (1 - p) ** 2


# --- paper: algorithm 1 ----------------------------------------------------------------------------


@dataclass(frozen=True)
class BinaryTree:
    """The public shape of algorithm 1's tree: floor(log2 N) + 1 levels, each with an equal share of epsilon."""

    leaves: int
    epsilon: Fraction

    @property
    def levels(self) -> int:
        """The paper says log2 N; but the lowest level costs too, and N = 1 has one level."""
        return self.leaves.bit_length()

    @property
    def scale(self) -> Fraction:
        """Sensitivity over epsilon: a row counts in one node of each level."""
        return self.levels / self.epsilon

    @property
    def noise_rms(self) -> float:
        """A prefix adds up half the levels' nodes on average."""
        return sqrt(max(1, self.levels / 2) * variance(self.scale))

    def nodes(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """SECRET: the p-sum made at each step t: the rows of the last 2^i ranks, 2^i being t's lowest set bit."""
        sums = np.zeros(self.leaves + 1, dtype=np.int64)
        np.cumsum(counts, out=sums[1:])
        for level in range(self.levels):
            ends, before = self._neighbours(sums, level)
            ends -= before
        return sums[1:]

    def prefixes(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add up, for each step t, the p-sums at t's set bits."""
        sums = np.concatenate([[0], nodes])
        for level in reversed(range(self.levels)):
            ends, before = self._neighbours(sums, level)
            ends += before
        return sums[1:]

    def _neighbours(self, sums: NDArray[np.int64], level: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Views of the steps whose lowest set bit is 2^level, and of the steps that lie 2^level before them."""
        block = 1 << level
        ends = sums[block :: 2 * block]
        return ends, sums[:: 2 * block][: len(ends)]


def binary_tree(leaves: int, epsilon: Fraction) -> BinaryTree:
    """Algorithm 1's tree over `leaves` ranks."""
    return BinaryTree(leaves, epsilon)


def release_binary(histogram: Histogram, tree: BinaryTree) -> NoisyCurve:
    """Algorithm 1: the binary mechanism with recycled partial sums.

    Sensitivity: 1 a level in L1; neighbours: one row added or removed; cost: tree.epsilon; docs/privacy.md 4.1.
    """
    noisy = tree.nodes(histogram.counts)
    add_discrete_laplace(noisy, tree.scale)
    rows = tree.prefixes(noisy).astype(np.float64)
    return NoisyCurve(tree.leaves, range(tree.leaves), rows, tree.levels, tree.noise_rms)


# --- scumble: wide tree, least squares -------------------------------------------------------------


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
        """How many levels are released."""
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
        """How many nodes a level has."""
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

    def nodes(self, counts: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """SECRET: the rows in each node, level by level."""
        sums = [np.add.reduceat(counts, np.arange(0, self.leaves, block)) for block in self.blocks[:-1]]
        return [*sums, counts.copy()]


def wide_tree(leaves: int, epsilon: Fraction) -> WideTree:
    """round(log_18 leaves) levels of near-equal fan-out, each with an equal share of epsilon."""
    levels = max(1, round(log(leaves) / log(FAN_OUT))) if leaves > 1 else 1
    fan_out = ceil(round(leaves ** (1 / levels), 9))
    blocks = tuple(fan_out**level for level in reversed(range(levels)))
    return WideTree(leaves, blocks, (epsilon / levels,) * levels)


def estimate(counts: NDArray[np.int64], tree: WideTree) -> NDArray[np.float64]:
    """Release every node with noise, and return the least-squares estimate of the leaves.

    Sensitivity: 1 a level in L1; neighbours: one row added or removed; cost: tree.epsilon; docs/privacy.md 4.2.
    """
    noisy = tree.nodes(counts)
    for nodes, scale in zip(noisy, tree.scales, strict=True):
        add_discrete_laplace(nodes, scale)
    return _least_squares([nodes.astype(np.float64) for nodes in noisy], tree)


def release_wide(counts: NDArray[np.int64], tree: WideTree, knots: Knots, size: int) -> NoisyCurve:
    """Release the curve over leaves that end at the given ranks."""
    rows = np.cumsum(estimate(counts, tree))
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
