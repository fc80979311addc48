"""What tallies tell of a stretch of ranks: between which numbers the rows up to each rank lie, but for unlikely noise.

All of it is public, and computed from what was released. Node counts give an estimate at the ends of their cells, whose
noise `reach` bounds, and nothing but that it never falls inside of them; a whole index gives its curve and its slack.
docs/privacy.md section 5.5 has the proofs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from scumble.index.file import IndexModel
from scumble.index.mechanisms import chernoff_bound, cumulant, rates_below, variance
from scumble.index.mechanisms.wide_tree import WideTree, least_squares
from scumble.index.tally import NodeCounts

__all__ = ["Counted", "Stretch", "counted_stretch", "reach", "rows_between", "squared_weights", "whole_stretch"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

STEPS = 32  # to which the uncertainty of a prefix is rounded up, so that few bounds are computed
OUTWARD = 1 + 1e-9  # more than floating point can lose
MOST_BETA = Fraction(1, 2)


@dataclass(frozen=True, eq=False)
class Stretch:
    """PUBLIC: of some ranks, between which numbers the rows lie, `reach` aside.

    `up` are bounds of the rows up to each rank, `down` of those after the rank before the first, and after each rank;
    `total` of all. `target` is the curve to be followed, and `rms` the root mean square of its noise. Of node counts,
    `weights_up` and `weights_down` say how uncertain each of their estimates is, in variances of a single node.
    """

    up: tuple[FloatArray, FloatArray]
    down: tuple[FloatArray, FloatArray]
    total: tuple[float, float]
    target: FloatArray
    rms: float
    weights_up: FloatArray
    weights_down: FloatArray

    def plus(self, other: "Stretch") -> "Stretch":
        """Of both's rows together. At most one of them is of node counts."""
        return Stretch(
            (self.up[0] + other.up[0], self.up[1] + other.up[1]),
            (self.down[0] + other.down[0], self.down[1] + other.down[1]),
            (self.total[0] + other.total[0], self.total[1] + other.total[1]),
            self.target + other.target,
            float(np.hypot(self.rms, other.rms)),
            np.concatenate([self.weights_up, other.weights_up]),
            np.concatenate([self.weights_down, other.weights_down]),
        )


# --- node counts -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Counted:
    """PUBLIC: the estimates that node counts give: of each part, the rows up to the end of each of its cells."""

    counts: NodeCounts
    prefixes: tuple[FloatArray, ...]
    trees: tuple[WideTree, ...]

    @classmethod
    def of(cls, counts: NodeCounts) -> "Counted":
        """Least squares, as for a single batch: all levels have equal noise, so that any epsilon gives the weights."""
        trees = tuple(counts.grid.trees(Fraction(1)))
        return cls(counts, tuple(np.cumsum(leaves) for leaves in _leaves(counts.nodes, trees)), trees)

    @property
    def node_variance(self) -> float:
        """Of one node, all batches' noise together."""
        levels = self.counts.grid.levels
        return sum(number * variance(levels / epsilon) for epsilon, number in self.counts.spent)


def _leaves(nodes: IntArray, trees: Sequence[WideTree]) -> Iterator[FloatArray]:
    at = 0
    for tree in trees:
        widths = [tree.widths(level) for level in range(tree.levels)]
        levels = np.split(nodes[at : at + sum(widths)].astype(np.float64), np.cumsum(widths)[:-1])
        at += sum(widths)
        yield least_squares(levels, tree)


def squared_weights(counted: Counted, first: int, stop: int) -> tuple[FloatArray, FloatArray]:
    """Of neighbouring parts, how uncertain the rows up to the end of each cell are, and those after it, or after none.

    Known from the shape of their trees alone. Parts are independent, so what they add to either is added up.
    """
    whole = [float(_weights(tree)[0][-1]) for tree in counted.trees[first:stop]]
    up, down = [], [np.array([sum(whole)])]
    for part, tree in enumerate(counted.trees[first:stop]):
        ups, downs = _weights(tree)
        up.append(sum(whole[:part]) + ups)
        down.append(sum(whole[part + 1 :]) + downs)
    return np.concatenate(up), np.maximum(np.concatenate(down), 0)


def counted_stretch(counted: Counted, first: int, stop: int) -> Stretch:
    """Of the ranks of some neighbouring parts."""
    grid, (weights_up, weights_down) = counted.counts.grid, squared_weights(counted, first, stop)
    before = np.cumsum([0.0, *(float(prefix[-1]) for prefix in counted.prefixes[first:stop])])
    cells = np.concatenate([rows + each for rows, each in zip(before, counted.prefixes[first:stop], strict=False)])
    low, high = int(grid.cuts[first]), int(grid.cuts[stop])
    widths = np.diff(grid.edges[low : high + 1])
    # The truth never falls: what any earlier estimate says is a bound from below, and any later one from above.
    cells = np.concatenate([[0.0], cells])
    least, most = np.maximum.accumulate(cells), np.minimum.accumulate(cells[::-1])[::-1]
    least_after, most_after = np.maximum(cells[-1] - most, 0), np.maximum(cells[-1] - least, 0)
    of_rank = np.repeat(np.arange(len(widths)), widths)
    ended = of_rank.copy()
    ended[np.cumsum(widths) - 1] += 1
    up_bounds = least[ended], np.maximum(most[of_rank + 1], 0)
    return Stretch(
        up_bounds,
        (np.append(least_after[0], least_after[of_rank + 1]), np.append(most_after[0], most_after[ended])),
        (float(cells[-1]), float(cells[-1])),
        np.interp(np.arange(len(of_rank)), np.append(-1, np.cumsum(widths) - 1), np.maximum((least + most) / 2, 0)),
        float(np.sqrt(np.mean(weights_up) * counted.node_variance)),
        weights_up,
        weights_down,
    )


@lru_cache(maxsize=256)
def _weights(tree: WideTree) -> tuple[FloatArray, FloatArray]:
    return tree.squared_weights(), tree.squared_weights(from_end=True)


def reach(counts: NodeCounts, weights: FloatArray, beta: Fraction) -> int:
    """How far the noise moves any of some sums of rows, except with probability beta: a Chernoff bound over all.

    `weights` are the squares of all nodes' weights in each sum. Weights are at most 1, so that a sum's cumulant is at
    most that of one node times its squares: docs/privacy.md section 5.5.
    """
    steps = np.ceil(weights * OUTWARD / weights.max() * STEPS)
    values, numbers = np.unique(steps, return_counts=True)
    sums = tuple(zip((values * (weights.max() / STEPS)).tolist(), numbers.tolist(), strict=True))
    return _reach(counts.spent, counts.grid.levels, sums, min(beta, MOST_BETA))


@lru_cache(maxsize=256)
def _reach(
    spent: tuple[tuple[Fraction, int], ...], levels: int, sums: tuple[tuple[float, int], ...], beta: Fraction
) -> int:
    rates = rates_below(levels / min(epsilon for epsilon, _ in spent))
    node = np.sum([number * cumulant(rates, levels / epsilon) for epsilon, number in spent], axis=0)
    return chernoff_bound(rates, [(number, OUTWARD * weight * node) for weight, number in sums], beta)


# --- whole indexes ---------------------------------------------------------------------------------


def whole_stretch(model: IndexModel, start: int, stop: int) -> Stretch:
    """Of the ranks from `start` to before `stop`, as far as a released index tells."""
    rows, error = rows_between(model, np.full(stop - start, start), np.arange(start, stop))
    after, doubt = rows_between(model, np.arange(start, stop + 1), np.full(stop - start + 1, stop - 1))
    nothing = np.empty(0)
    return Stretch(
        (rows - error, rows + error),
        (after - doubt, after + doubt),
        (float(after[0] - doubt[0]), float(after[0] + doubt[0])),
        np.maximum.accumulate(np.maximum(rows, 0)),
        0.0,
        nothing,
        nothing,
    )


def rows_between(model: IndexModel, firsts: IntArray, lasts: IntArray) -> tuple[FloatArray, FloatArray]:
    """About how many rows have ranks from a first to a last, and by how many that may be wrong; a last may come before.

    In blocks a slack bounds three numbers: the rows up to a rank of the first half, those after one of the second, and
    all of a block. As many of them as make up the stretch may be wrong in each block that it touches.
    """
    ends = lasts + 1
    rows = _rows_before(model, ends) - _rows_before(model, firsts)
    if model.blocks is None:
        return rows, model.slack_rows * ((firsts > 0).astype(np.float64) + 1) * (ends > firsts)
    bounds, slacks = model.blocks.bounds, model.blocks.slacks
    starts, middles, stops = bounds[:-1:2], bounds[1::2], bounds[2::2]
    b1 = np.searchsorted(starts, firsts, side="right") - 1
    b2 = np.searchsorted(starts, np.maximum(lasts, 0), side="right") - 1
    at_start, early = firsts == starts[b1], firsts < middles[b1]
    at_stop, late = ends == stops[b2], ends > middles[b2]
    tail = np.where(at_start, 1, np.where(early, 2, 1)) * slacks[b1]
    head = np.where(at_stop, 1, np.where(late, 2, 1)) * slacks[b2]
    before = np.concatenate([[0], np.cumsum(slacks)])
    apart = tail + (before[b2] - before[np.minimum(b1 + 1, b2)]) + head
    one = np.where(
        early & ~late,
        np.where(at_start, 1, 2),
        np.where(~early, np.where(at_stop, 1, 2), 1 + ~at_start + ~at_stop),
    )
    error = np.where(b1 == b2, one * slacks[b1], apart)
    return rows, np.where(ends > firsts, error, 0).astype(np.float64)


def _rows_before(model: IndexModel, ranks: IntArray) -> FloatArray:
    rows = model.rows_up_to(np.maximum(ranks - 1, 0)).astype(np.float64)
    return np.where(ranks > 0, rows, 0.0)
