"""Merging: one index for the rows of several runs, from what was released of each of them. It costs no epsilon.

Tallies, public, go in; an index like any other comes out, with the tally to merge it again. No row is looked at and no
noise is drawn: node counts over a common grid add up, with noise that grows as the root of their number, and what has
none adds its curve and its slack. docs/privacy.md sections 4.7 and 5.5.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from math import ceil, floor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter
from scumble.index.blocks import LEAST_BYTES, LEAST_RANKS, OTHER_BYTES, Blocks
from scumble.index.curve import MAX_ROWS, MonotoneCurve
from scumble.index.evidence import Counted, Stretch, counted_stretch, reach, squared_weights, whole_stretch
from scumble.index.file import IndexModel, block_bytes, fixed_bytes, most_segments
from scumble.index.segments import Segments, fit_all, fit_within, join
from scumble.index.slack import MOST_BLOCKS
from scumble.index.tally import NodeCounts, Tally

__all__ = ["Merged", "index_of_tally", "merged"]

IntArray = NDArray[np.int64]

MOST_DUMMIES = Fraction(1, 20)  # of the rows: more than in a single run, since blocks matter more
FULLER = Fraction(3, 2)  # times the noise: about what slacks are, with the rows of a cell and the error of the fit
WHOLE_SLACKS = 2  # of a whole index, in each half: as many as bound a stretch within one of its blocks
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
    """As many blocks as are likely not to add more than MOST_DUMMIES to the rows; else rows lie as they are sorted.

    What decides is known before any node is: blocks that were chosen by the noise would make it likelier to fail.
    """
    counted = None if main is None else Counted.of(main)
    most = min(MOST_BLOCKS, tally.domain.size // LEAST_RANKS)
    if max_bytes is not None:
        most = min(most, (max_bytes - OTHER_BYTES) // LEAST_BYTES)
    # Without node counts more blocks than there were bring little: a slack is the same all over a block.
    before = max((len(model.blocks) for model in whole if model.blocks is not None), default=1)
    blocks = 1 << (before.bit_length() - 1) if main is None else main.grid.parts // 2
    wider = WHOLE_SLACKS * sum(model.usual_slack for model in whole)
    while blocks > 1:
        reaches = [0] * blocks if counted is None else list(_reaches(counted, blocks))
        if blocks <= most and FULLER * sum(reaches) + blocks * wider <= MOST_DUMMIES * tally.capacity:
            bounds = _even_bounds(tally, whole, 2 * blocks) if counted is None else _bounds(counted, blocks)
            if np.all(np.diff(bounds) > 0):
                return _Plan(bounds, list(_stretches(counted, whole, bounds)), reaches)
        blocks //= 2
    bounds = np.array([0, tally.domain.size])
    (stretch,) = _stretches(counted, whole, bounds)
    return _Plan(bounds, [stretch], [0 if main is None else reach(main, stretch.weights_up, main.batches.beta)])


def _bounds(counted: Counted, blocks: int) -> IntArray:
    """The first ranks of the halves of so many blocks, each of equally many parts, and the number of ranks."""
    grid = counted.counts.grid
    return grid.edges[grid.cuts[:: grid.parts // (2 * blocks)]]


def _even_bounds(tally: Tally, whole: Sequence[IndexModel], halves: int) -> IntArray:
    """The same for halves of about equally many rows, without node counts; two are equal if there are not as many."""
    ranks = np.arange(tally.domain.size)
    curve = np.sum([np.maximum.accumulate(np.maximum(model.rows_up_to(ranks), 0)) for model in whole], axis=0)
    cuts = np.searchsorted(curve, int(curve[-1]) * np.arange(1, halves) // halves)
    return np.concatenate([[0], cuts, [tally.domain.size]])


def _stretches(counted: Counted | None, whole: Sequence[IndexModel], bounds: IntArray) -> Iterator[Stretch]:
    """What is known of the ranks between every two bounds, which are those of parts if there are node counts."""
    for stretch, (start, stop) in enumerate(pairwise(bounds.tolist())):
        known = [whole_stretch(model, start, stop) for model in whole]
        if counted is not None:
            step = counted.counts.grid.parts // (len(bounds) - 1)
            known.insert(0, counted_stretch(counted, stretch * step, (stretch + 1) * step))
        yield reduce(Stretch.plus, known)


def _reaches(counted: Counted, blocks: int) -> Iterator[int]:
    """For each block, how far noise moves any number that its slack is to bound; the blocks share beta."""
    main, step = counted.counts, counted.counts.grid.parts // (2 * blocks)
    for first in range(0, main.grid.parts, 2 * step):
        up, _ = squared_weights(counted, first, first + step)
        of_second, down = squared_weights(counted, first + step, first + 2 * step)
        weights = np.concatenate([up, down, [up[-1] + of_second[-1]]])
        yield reach(main, weights, main.batches.beta / blocks)


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
