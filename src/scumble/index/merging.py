"""Merging: one index for the rows of several runs, from what was released of each of them. It costs no epsilon.

Tallies, public, go in; an index like any other comes out, with the tally to merge it again. No row is looked at and no
noise is drawn: node counts over a common grid add up, with noise that grows as the root of their number, and what has
none adds its curve and its slack. docs/privacy.md sections 4.7 and 5.5.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import ceil, floor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter
from scumble.index.blocks import LEAST_BYTES, LEAST_RANKS, OTHER_BYTES, Blocks
from scumble.index.curve import MAX_ROWS, MonotoneCurve
from scumble.index.evidence import Counted, Stretch, counted_stretch, reach, whole_stretch
from scumble.index.file import IndexModel, block_bytes, fixed_bytes, most_segments
from scumble.index.segments import Segments, fit_all, fit_within, join
from scumble.index.slack import MOST_BLOCKS
from scumble.index.tally import NodeCounts, Tally

__all__ = ["Merged", "index_of_tally", "merged"]

IntArray = NDArray[np.int64]

MOST_DUMMIES = Fraction(1, 20)  # of the rows: more than in a single run, since blocks matter more
FIT = 8  # parts of the noise that the fit may err by: unlike a measured slack, a computed one has all of it on top
ROUNDING = 1e-9  # of the rows: more than floating point loses in adding them up


@dataclass(frozen=True, eq=False)
class Merged:
    """PUBLIC: the index of a merged run, and the tally that is stored beside it."""

    index: IndexModel
    tally: Tally


class _Plan(NamedTuple):
    """PUBLIC: the first ranks of all halves, or of the one stretch if rows are sorted; what is known of each."""

    bounds: IntArray
    stretches: list[Stretch]
    reaches: list[int]

    @property
    def blocks(self) -> int:
        return len(self.stretches) // 2

    @property
    def slack(self) -> float:
        """What the slacks of all blocks add up to, if the segments follow their targets."""
        pairs = zip(self.stretches[::2], self.stretches[1::2], self.reaches, strict=True)
        return sum(most + max(_width(up.up), _width(down.down)) / 2 for up, down, most in pairs)


def merged(tallies: Sequence[Tally], *, max_bytes: int | None = 4096) -> Merged:
    """The index of all rows of some runs together. Costs nothing: docs/privacy.md section 4.7."""
    tally = Tally.added(tallies)
    return Merged(index_of_tally(tally, max_bytes=max_bytes), tally)


def index_of_tally(tally: Tally, *, max_bytes: int | None = 4096) -> IndexModel:
    """The index that a tally gives: post-processing, also for a single batch."""
    main = tally.main
    others = [index_of_tally(Tally(tally.domain, (one,))) for one in tally.counted if one is not main]
    whole = [*others, *(each.model for each in tally.whole)]
    plan = _planned(tally, main, whole, max_bytes)
    parts = _fit(tally, plan, max_bytes)
    if plan.blocks == 0:
        (stretch,), (segments,), (most,) = plan.stretches, parts, plan.reaches
        slack = _rows(most + _away(segments.at_many(np.arange(segments.size)), stretch.up), tally)
        return _model(tally, segments, slack, tally.capacity, None, main, whole)
    slacks = np.array([_block_slack(plan, block, parts, tally) for block in range(plan.blocks)], dtype=np.int64)
    segments = join(parts)
    blocks = Blocks.of(plan.bounds, segments.totals, slacks)
    return _model(tally, segments, int(slacks.max()), blocks.rows, blocks, main, whole)


# --- where the blocks lie --------------------------------------------------------------------------


def _planned(tally: Tally, main: NodeCounts | None, whole: Sequence[IndexModel], max_bytes: int | None) -> _Plan:
    """As many blocks as do not add more than MOST_DUMMIES to the rows; else rows lie as they are sorted."""
    counted = None if main is None else Counted.of(main)
    most = min(MOST_BLOCKS, tally.domain.size // LEAST_RANKS)
    if max_bytes is not None:
        most = min(most, (max_bytes - OTHER_BYTES) // LEAST_BYTES)
    # Without node counts more blocks than there were bring little: a slack is the same all over a block.
    before = max((len(model.blocks) for model in whole if model.blocks is not None), default=1)
    blocks = 1 << (before.bit_length() - 1) if main is None else main.grid.parts // 2
    while blocks > 1:
        if blocks <= most and (halves := _halves(tally, counted, whole, 2 * blocks)) is not None:
            plan = _Plan(*halves, list(_reaches(halves[1], main)))
            if plan.slack <= MOST_DUMMIES * sum(stretch.total[0] for stretch in plan.stretches):
                return plan
        blocks //= 2
    bounds = np.array([0, tally.domain.size])
    stretch = _stretch(counted, whole, bounds, 0, 0 if counted is None else counted.counts.grid.parts)
    noise = 0 if main is None else reach(main, stretch.weights_up, main.batches.beta)
    return _Plan(bounds, [stretch], [noise])


def _halves(
    tally: Tally, counted: Counted | None, whole: Sequence[IndexModel], halves: int
) -> tuple[IntArray, list[Stretch]] | None:
    """The bounds of so many halves, and what is known of each; None if there are not as many."""
    if counted is not None:
        grid = counted.counts.grid
        step = grid.parts // halves
        bounds = grid.edges[grid.cuts[::step]]
        return bounds, [
            _stretch(counted, whole, bounds[half : half + 2], half * step, (half + 1) * step) for half in range(halves)
        ]
    ranks = np.arange(tally.domain.size)
    curve = np.sum([np.maximum.accumulate(np.maximum(model.rows_up_to(ranks), 0)) for model in whole], axis=0)
    cuts = np.searchsorted(curve, int(curve[-1]) * np.arange(1, halves) // halves)
    bounds = np.concatenate([[0], cuts, [tally.domain.size]])
    if np.any(np.diff(bounds) <= 0):
        return None
    return bounds, [_stretch(None, whole, bounds[half : half + 2], 0, 0) for half in range(halves)]


def _stretch(counted: Counted | None, whole: Sequence[IndexModel], bounds: IntArray, first: int, stop: int) -> Stretch:
    """What is known of the ranks between two bounds, which are those of some parts if there are node counts."""
    known = [] if counted is None else [counted_stretch(counted, first, stop)]
    known += [whole_stretch(model, int(bounds[0]), int(bounds[1])) for model in whole]
    return reduce(Stretch.plus, known)


def _reaches(stretches: Sequence[Stretch], main: NodeCounts | None) -> Iterator[int]:
    """For each block, how far noise moves any number that its slack is to bound; the blocks share beta."""
    for up, down in zip(stretches[::2], stretches[1::2], strict=True):
        if main is None:
            yield 0
            continue
        all_of_it = [up.weights_up[-1] + down.weights_up[-1]]
        weights = np.concatenate([up.weights_up, down.weights_down, all_of_it])
        yield reach(main, weights, main.batches.beta * 2 / len(stretches))


# --- segments and slacks ---------------------------------------------------------------------------


def _fit(tally: Tally, plan: _Plan, max_bytes: int | None) -> list[Segments]:
    """As many segments as there is room for; never so many that they would only follow the noise."""
    most_rows = min(tally.capacity, MAX_ROWS)
    curves = [
        MonotoneCurve(np.rint(np.clip(stretch.target, 0, most_rows)).astype(np.int64)) for stretch in plan.stretches
    ]
    noise = max(1, ceil(max(stretch.rms for stretch in plan.stretches) / FIT))
    if max_bytes is None:
        fit = fit_all(curves, noise)
        assert fit is not None  # noqa: S101  without a limit there is always a fit
        return fit
    size, rows = tally.domain.size, sum(int(curve.rows[-1]) for curve in curves)
    room = max_bytes - fixed_bytes(tally.domain, tally.epsilon, tally.delta, tally.beta)
    room -= block_bytes(plan.blocks, size) if plan.blocks else 0
    if most_segments(room, size, MAX_ROWS, MAX_ROWS, len(curves)) < len(curves):
        raise InvalidParameter("max_bytes has no room for a merged index", hint="4096 is usual")
    return fit_within(curves, noise, lambda error: most_segments(room, size, rows, error, len(curves)))


def _block_slack(plan: _Plan, block: int, parts: Sequence[Segments], tally: Tally) -> int:
    """By how much a block's curves may be wrong, counted from either of its ends, or in their sum."""
    (first, second), (up, down) = parts[2 * block : 2 * block + 2], plan.stretches[2 * block : 2 * block + 2]
    rows = first.at_many(np.arange(first.size))
    after = second.at_many(np.arange(second.size))
    total = int(rows[-1] + after[-1])
    after = np.append(after[-1], after[-1] - after)
    away = max(
        _away(rows, up.up),
        _away(after, down.down),
        total - up.total[0] - down.total[0],
        up.total[1] + down.total[1] - total,
    )
    return _rows(plan.reaches[block] + away, tally)


def _away(rows: IntArray, bounds: tuple[NDArray[np.float64], NDArray[np.float64]]) -> float:
    """How far some rows are from bounds, at worst; less than nothing if these contradict each other, `reach` aside."""
    low, high = bounds
    return max(float((rows - low).max()), float((high - rows).max()))


def _width(bounds: tuple[NDArray[np.float64], NDArray[np.float64]]) -> float:
    low, high = bounds
    return float((high - low).max())


def _rows(away: float, tally: Tally) -> int:
    """Whole rows: those of a table are, and so are a curve's, so that what is less than a row does not matter."""
    return max(0, floor(away + ROUNDING * (tally.capacity + 1)))


def _model(
    tally: Tally,
    segments: Segments,
    slack: int,
    capacity: int,
    blocks: Blocks | None,
    main: NodeCounts | None,
    whole: Sequence[IndexModel],
) -> IndexModel:
    totals = tally.totals
    return IndexModel(
        domain=tally.domain,
        segments=segments,
        slack_rows=slack,
        capacity=capacity,
        epsilon=totals.epsilon,
        delta=totals.delta,
        beta=totals.beta,
        levels=max([*([] if main is None else [main.grid.levels]), *(model.levels for model in whole)]),
        mechanism="scumble",
        slack="paper",
        blocks=blocks,
    )
