"""The paper's mechanism: algorithm 1, a binary tree whose partial sums are recycled, with noise on every node.

A histogram, secret, goes in with an epsilon; a public noisy curve comes out. docs/privacy.md section 4.1.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, expm1, log2, sqrt

import numpy as np
from numpy.typing import NDArray

from scumble.index.curve import Histogram, NoisyCurve
from scumble.index.mechanisms import Mechanism, chernoff_bound, cumulant, rates_below, variance
from scumble.privacy.noise import Noise, add_discrete_laplace

__all__ = ["PAPER", "BinaryTree"]

LEAST_EXACT_BETA = Fraction(1, 10**40)
TABLED_SCALES = 320
"""How far errors are tabulated: what lies beyond is below any beta that is looked for."""
ROUNDING = 1e-9
"""By which part the tabulated tails may be too small: docs/privacy.md 5.3 counts the roundings."""


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

    def release(self, histogram: Histogram, noise: Noise | None = None) -> NoisyCurve:
        """Algorithm 1: the binary mechanism with recycled partial sums.

        Sensitivity: 1 a level in L1; neighbours: one row added or removed; cost: epsilon; docs/privacy.md 4.1.
        """
        noisy = self.nodes(histogram.counts)
        question = "binary tree", self.leaves, self.epsilon
        add_discrete_laplace(noisy, self.scale, (noise or Noise.fresh()).stream(*question))
        rows = self.prefixes(noisy).astype(np.float64)
        return NoisyCurve(self.leaves, range(self.leaves), rows, self.levels, self.noise_rms)

    def bound(self, beta: Fraction) -> int:
        """How far the noise moves any prefix, except with probability beta: from its exact distribution if that works.

        docs/privacy.md section 5.3.
        """
        return _bound(self, beta)

    def chernoff_bound(self, beta: Fraction) -> int:
        """The same from a Chernoff bound: looser, for any beta."""
        rates = rates_below(self.scale)
        terms = np.bincount(np.bitwise_count(np.arange(1, self.leaves + 1, dtype=np.uint32)))
        prefixes = [(count, k * cumulant(rates, self.scale)) for k, count in enumerate(terms.tolist()) if count]
        return chernoff_bound(rates, prefixes, beta)

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


PAPER = Mechanism(
    name="paper",
    code=1,
    tree=BinaryTree,
    release=lambda histogram, epsilon, noise, _: BinaryTree(histogram.size, epsilon).release(histogram, noise),
)


@lru_cache(maxsize=64)
def _bound(tree: BinaryTree, beta: Fraction) -> int:
    """The least z with 2 P(largest prefix error > z) <= beta, from the distribution itself: docs/privacy.md 5.3.

    The largest error over the prefixes of a block of 2^(l+1) ranks is the larger of two independent ones: over its
    first half, and over its second half plus the first half's node. Tails are tabulated in steps of a 64th of the
    scale, noise rounded up to them. Only positive numbers are added and multiplied, so all rounding is relative.
    """
    if beta < LEAST_EXACT_BETA:
        return tree.chernoff_bound(beta)
    step = ceil(tree.scale / 64)
    block = whole = np.zeros(1 << ceil(log2(TABLED_SCALES * tree.scale / step)))  # P(error > step x): no error yet
    for level in range(tree.levels):
        if tree.leaves >> level & 1:
            whole = _either(block, _moved(whole, tree.scale, step))
        block = _either(block, _moved(block, tree.scale, step))
    covered = np.flatnonzero(2 * whole * (1 + ROUNDING) <= float(beta))
    return step * int(covered[0]) if len(covered) else tree.chernoff_bound(beta)


def _moved(tail: NDArray[np.float64], scale: Fraction, step: int) -> NDArray[np.float64]:
    """The tail of an error plus independent noise; an error is never negative, the empty prefix having none.

    Noise that is rounded up to steps is geometric on both sides of zero, so adding it is one pass in each direction.
    """
    from scipy.signal import lfilter  # slow to import, and only this bound needs it

    p, q, rest = exp(-1 / scale), exp(-step / scale), -expm1(-step / scale)
    falling = lfilter([rest / (1 + p)], [1, -q], tail[::-1])[::-1]
    rising = lfilter([0, p * rest / (1 + p)], [1, -q], tail)
    moved: NDArray[np.float64] = falling + rising + p / (1 + p) * q ** np.arange(len(tail), dtype=float)
    return moved


def _either(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """The tail of the larger of two independent errors."""
    larger: NDArray[np.float64] = one + other * (1 - np.minimum(one, 1))
    return larger
