"""DP B+ tree (Sahin et al., as the paper models it): a tree of noisy counts over leaves that are padded with dummies.

The counts are secret; the noisy ones are public, and so is the layout of the rows that follows from them. Here alone
positions do not count the sorted rows: each leaf holds the rows of one key, and dummies or too little room, as its
noise has it, and a lookup reads whole leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter, NotFitted
from scumble.index.blocks import Blocks
from scumble.index.contract import Outcome, Terms
from scumble.index.curve import MAX_ROWS, Histogram
from scumble.index.slack import shift
from scumble.lab.comparators.curves import TwoCurves, TwoCurvesIndex
from scumble.lab.comparators.limits import check_memory
from scumble.lab.comparators.saved import State
from scumble.privacy.noise import Noise, add_discrete_laplace
from scumble.types import Domain

__all__ = ["DPBPlusTreeIndex", "RoutingTree"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class RoutingTree:
    """The public shape of the tree: complete, binary, one leaf a rank; each level has an equal share of epsilon.

    Nodes are numbered from 1, the root, and node i has the children 2i and 2i + 1. So the inner nodes are 1..N-1 and
    the leaves N..2N-1; those of the lowest level come first in the order of the ranks.
    """

    leaves: int
    epsilon: Fraction

    @property
    def levels(self) -> int:
        """The root's and the leaves' included: ceil(log2 N) + 1. The paper says log N."""
        return (2 * self.leaves - 1).bit_length()

    @property
    def scale(self) -> Fraction:
        """Sensitivity over epsilon: a row counts in one node of each level that its leaf lies under."""
        return self.levels / self.epsilon

    def nodes(self, counts: IntArray) -> IntArray:
        """SECRET: the rows under each of the 2N - 1 nodes, the root's first."""
        nodes = np.zeros(2 * self.leaves, dtype=np.int64)
        lowest = 1 << (self.levels - 1)
        below = 2 * self.leaves - lowest
        nodes[lowest:], nodes[self.leaves : lowest] = counts[:below], counts[below:]
        for level in reversed(range(self.levels - 1)):
            first, end = 1 << level, min(2 << level, self.leaves)
            nodes[first:end] = nodes[2 * first : 2 * end : 2] + nodes[2 * first + 1 : 2 * end : 2]
        return nodes[1:]

    def leaf_counts(self, nodes: IntArray) -> IntArray:
        """A copy of the leaves' counts among those of all nodes, in the order of the ranks."""
        lowest = (1 << (self.levels - 1)) - 1
        return np.concatenate([nodes[lowest:], nodes[self.leaves - 1 : lowest]])


class DPBPlusTreeIndex(TwoCurvesIndex):
    """A tree of noisy counts over the keys, and a leaf of rows and dummies for each.

    `overflow_rows` is the paper's B: the dummies that each leaf gets before its noise; by default the fewest with which
    any leaf at all loses a row with a probability of at most beta. Positions run over the stored rows, 0 to
    `stored_rows`, dummies included; the capacity bounds the rows of the table, not those.
    """

    name, kind = "DP B+ tree", "dp-bplus-tree"

    def __init__(self, overflow_rows: int | None = None) -> None:
        if overflow_rows is not None and (
            isinstance(overflow_rows, bool)
            or not isinstance(overflow_rows, int | np.integer)
            or not 0 <= overflow_rows <= MAX_ROWS
        ):
            raise InvalidParameter(
                "overflow_rows must be a whole number from 0 to 2^36 - 1", hint="leave it out to have it computed"
            )
        super().__init__()
        self.overflow_rows = overflow_rows
        self._nodes: IntArray | None = None

    def _check(self, terms: Terms) -> None:
        check_memory(24 * terms.domain.size)  # the noise is always within bounds: 27 levels at most

    def _build(self, histogram: Histogram, terms: Terms, noise: Noise) -> TwoCurves:
        """Release the count of every node, and lay the leaves out as their noisy counts say.

        Sensitivity: 1 a level in L1; neighbours: one row added or removed; cost: epsilon; the paper's section 2 and
        appendix A.1; docs/privacy.md 8.3.
        """
        tree = _tree(terms)
        nodes = tree.nodes(histogram.counts)
        add_discrete_laplace(nodes, tree.scale, noise.stream(self.kind, tree.scale, tree.leaves))
        self._nodes = nodes
        return _laid_out(terms.domain, tree, nodes, self._overflow(terms))

    def _overflow(self, terms: Terms) -> int:
        """B: given, or such that the noise of all N leaves stays above -B with probability 1 - beta."""
        if self.overflow_rows is not None:
            return int(self.overflow_rows)
        return shift(1 / _tree(terms).scale, terms.beta / terms.domain.size)

    @property
    def nodes(self) -> IntArray:
        """The noisy counts of the 2N - 1 nodes, public; `RoutingTree` says which is which."""
        if self._nodes is None:
            raise NotFitted("this index has not been fitted", hint="call fit or fit_counts first")
        return self._nodes

    @property
    def size_bytes(self) -> int:
        """The bytes of the tree; where leaves start and stop follows from it."""
        return self.nodes.nbytes

    @property
    def stored_rows(self) -> int:
        """How many rows the padded leaves hold in all, dummies included; public."""
        return self.curves.capacity

    def chance_of_loss(self, beta: Fraction) -> Fraction:
        return beta if self.overflow_rows is None else Fraction(1)

    @property
    def usual_slack(self) -> int:
        """None: leaves begin and end where they are said to."""
        return 0

    def most_dummies(self, terms: Terms) -> int:
        return self._overflow(terms) * terms.domain.size

    def extra_rows(self, ranks: Sequence[tuple[int, int]], lookups: int) -> int:
        """The dummies of the leaves: about as many as each gets before its noise."""
        return self._overflow(self.terms) * sum(last + 1 - first for first, last in ranks)

    @property
    def leaves(self) -> Blocks:
        """The leaves as padded blocks of two: the rows of the first count up, those of the second down from its end.

        So the dummies of both lie between, where each has its own. Of a block that is one leaf, the other is empty.
        """
        size, ends = len(self.curves.upper), self.curves.upper
        stops = np.append(ends[1::2], ends[-1:]) if size % 2 else ends[1::2]
        places = np.concatenate([[0], stops])
        bounds = np.minimum(np.arange(len(stops) * 2 + 1), size)
        offsets = np.empty(2 * len(stops), dtype=np.int64)
        offsets[::2], offsets[1::2] = places[:-1], stops
        # Of slacks a layout asks only how many dummies there can be: no more than there are places.
        return Blocks(bounds, (np.diff(places) + 1) // 2, places, offsets)

    def unsafe_dummy_rows(self, counts: IntArray) -> int:
        """SECRET: how many dummies the leaves hold, given the true counts. Tells the number of rows."""
        return int(np.maximum(0, self._leaf_sizes() - counts).sum())

    def unsafe_outcome(self, counts: IntArray, firsts: IntArray, lasts: IntArray) -> Outcome:
        """SECRET: what lookups of the given ranks bring: a leaf with less room than rows has lost the rest."""
        curve = np.concatenate([[0], np.cumsum(counts)])
        lost = np.concatenate([[0], np.cumsum(np.maximum(0, counts - self._leaf_sizes()))])
        starts, stops = self.positions.of_ranks(firsts, lasts)
        return Outcome(curve[lasts + 1] - curve[firsts], lost[lasts + 1] - lost[firsts], stops - starts)

    def _leaf_sizes(self) -> IntArray:
        return np.diff(self.curves.upper, prepend=0)

    def _state(self) -> State:
        numbers = {"given": int(self.overflow_rows is not None), "overflow": self._overflow(self.terms)}
        return State(numbers, {"nodes": self.nodes})

    @classmethod
    def _restored(cls, domain: Domain, state: State, terms: Terms | None) -> tuple[Self, TwoCurves]:
        if terms is None:
            raise ValueError("a tree without terms")
        overflow = state.number("overflow")
        index = cls(overflow if state.number("given", most=1) else None)
        index._nodes = state.whole("nodes", 2 * domain.size - 1)
        if index._overflow(terms) != overflow:
            raise ValueError("another tree's overflow")
        return index, _laid_out(domain, _tree(terms), index._nodes, overflow)

    def __repr__(self) -> str:
        state = "not fitted" if self._positions is None else f"{len(self.curves.upper)} leaves"
        return f"DPBPlusTreeIndex(overflow_rows={self.overflow_rows}) <{state}>"


def _laid_out(domain: Domain, tree: RoutingTree, nodes: IntArray, overflow: int) -> TwoCurves:
    """Where each leaf ends, as its noisy count says; public."""
    ends = tree.leaf_counts(nodes)
    ends += overflow
    np.maximum(ends, 0, out=ends)
    np.cumsum(ends, out=ends)
    return TwoCurves(domain, ends, ends, int(ends[-1]))


def _tree(terms: Terms) -> RoutingTree:
    return RoutingTree(terms.domain.size, terms.epsilon)
