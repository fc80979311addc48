"""Segments: the fewest straight pieces that follow monotone curves within `max_error`.

Both are public. Segments answer "how many rows lie at or before this rank?"; where several curves stand side by side,
each over its own ranks, "how many rows of its curve?".
The fit is optimal (O'Rourke's method, C kernel): no other segments within the tolerance are fewer. Measuring the
segments against a Histogram gives a secret, which only `index/slack.py` may turn into something public.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from scumble._native import ffi, lib
from scumble.index.curve import Histogram, MonotoneCurve
from scumble.privacy.noise import Fact

__all__ = ["Segments", "fit_all", "fit_segments", "fit_within", "join", "pointer"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Segments:
    """PUBLIC: a function from ranks to whole rows, straight on each piece, never falling.

    Piece j starts at rank starts[j] with the value first[j] and ends, before the next one starts, with last[j]; where
    it would lie below an earlier piece of its curve (by no more than twice max_error) the earlier piece's value holds.
    `curves` are the pieces that a curve begins with, which counts from zero.
    """

    size: int
    starts: IntArray
    first: IntArray
    last: IntArray
    max_error: int
    curves: tuple[int, ...] = (0,)

    def __len__(self) -> int:
        return len(self.starts)

    def facts(self) -> tuple[Fact, ...]:
        """All of it, to name a question about these segments and no others."""
        return self.size, self.max_error, self.starts, self.first, self.last

    @cached_property
    def _bounds(self) -> IntArray:
        return np.append(self.starts, self.size)

    @property
    def totals(self) -> IntArray:
        """The rows that each of its curves ends with."""
        ends = (*self.curves[1:], len(self))
        return self.at_many(self._bounds[list(ends)] - 1)

    @cached_property
    def _floor(self) -> IntArray:
        """The greatest value of its curve before each piece."""
        floor = np.zeros(len(self), dtype=np.int64)
        for begin, end in zip(self.curves, (*self.curves[1:], len(self)), strict=True):
            floor[begin + 1 : end] = np.maximum.accumulate(np.maximum(self.last[begin : end - 1], 0))
        return floor

    @cached_property
    def _lists(self) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
        """The same as Python integers, which a single lookup handles faster than arrays of one."""
        run = np.maximum(np.diff(self._bounds) - 1, 1)
        rise = self.last - self.first
        return (self.starts.tolist(), self.first.tolist(), rise.tolist(), run.tolist(), self._floor.tolist())

    def at(self, rank: int) -> int:
        """The rows of its curve at or before one rank."""
        starts, first, rise, run, floor = self._lists
        j = bisect_right(starts, rank) - 1
        value = first[j] + rise[j] * (rank - starts[j]) // run[j]
        return value if value > floor[j] else floor[j]

    def at_many(self, ranks: IntArray) -> IntArray:
        ranks = np.ascontiguousarray(ranks, dtype=np.int64)
        out = np.empty(len(ranks), dtype=np.int64)
        lib.scumble_evaluate(*self._arguments(), pointer(ranks), len(ranks), pointer(out))
        return out

    def deviation(self, histogram: Histogram, marks: IntArray | None = None) -> IntArray:
        """SECRET: the largest difference between the segments and the true curve over all ranks, in an array of one.

        Where the segments are over a hint's marks, `marks` are those of the ranks.
        """
        return np.maximum(*self._differences(histogram, marks))

    def deviation_from_end(self, histogram: Histogram, marks: IntArray | None = None) -> IntArray:
        """SECRET: the same if rows are counted from the last rank down."""
        (over, under), surplus = self._differences(histogram, marks), self.surplus(histogram)
        deviation: IntArray = np.maximum(over - surplus, under + surplus)
        return deviation

    def surplus(self, histogram: Histogram) -> IntArray:
        """SECRET: how many rows more there are than the segments end with, in an array of one."""
        rows: IntArray = np.add.reduce(histogram.counts, keepdims=True)
        return rows - self.at(self.size - 1)

    def _differences(self, histogram: Histogram, marks: IntArray | None) -> tuple[IntArray, IntArray]:
        """SECRET: by how much the true curve is above the segments, and below, at most; neither is below zero."""
        if marks is not None:
            above = np.cumsum(histogram.counts) - self.at_many(marks)
            return _greatest(above), _greatest(-above)
        over, under = np.empty(1, dtype=np.int64), np.empty(1, dtype=np.int64)
        lib.scumble_deviation(*self._arguments(), pointer(histogram.counts), pointer(over), pointer(under))
        return over, under

    def _arguments(self) -> tuple[object, ...]:
        arrays = (self._bounds, self.first, self.last, self._floor)
        return (*(pointer(array) for array in arrays), len(self))


def quantum(max_error: int) -> int:
    """The step to which values are rounded for storage: a power of two, at most a sixteenth of max_error."""
    return 1 << max(0, (max_error // 16).bit_length() - 1)


def tolerance(max_error: int) -> int:
    """What the fit may err by, so that rounding both ends to the quantum stays within max_error."""
    return max_error - max(1, quantum(max_error) // 2)


def fit_segments(curve: MonotoneCurve, max_error: int, most: int | None = None) -> Segments | None:
    """Fit the fewest segments within max_error (the paper's tau); None if that takes more than `most`."""
    size = len(curve.rows)
    # Most curves need a few hundred segments, whatever their size: room for all of them only in a second try.
    for room in (1 << 16, size) if most is None else (most,):
        limit = min(room, size)
        starts, first, last = (np.empty(limit, dtype=np.int64) for _ in range(3))
        count = lib.scumble_segments(
            pointer(curve.rows),
            size,
            tolerance(max_error),
            quantum(max_error),
            limit,
            pointer(starts),
            pointer(first),
            pointer(last),
        )
        if count < 0:
            raise MemoryError("no memory for the convex hulls of the segment fit")
        if count <= limit:
            return Segments(size, starts[:count].copy(), first[:count].copy(), last[:count].copy(), max_error)
    return None


def fit_all(curves: Sequence[MonotoneCurve], max_error: int, most: int | None = None) -> list[Segments] | None:
    """Fit each curve by itself; None if that takes more than `most` segments in all."""
    fits: list[Segments] = []
    for curve in curves:
        fit = fit_segments(curve, max_error, None if most is None else most - sum(map(len, fits)))
        if fit is None:
            return None
        fits.append(fit)
    return fits


def fit_within(curves: Sequence[MonotoneCurve], least_error: int, most: Callable[[int], int]) -> list[Segments]:
    """Fit with the smallest max_error, from `least_error` on, that needs no more than `most(max_error)` segments.

    Exact to a 32nd of max_error. Post-processing: however many fits are tried, no privacy is spent.
    """
    low, high = least_error - 1, least_error
    while (found := fit_all(curves, high, most(high))) is None:
        low, high = high, 2 * high
    while high - low > max(1, high // 32):
        middle = (low + high) // 2
        fit = fit_all(curves, middle, most(middle))
        if fit is None:
            low = middle
        else:
            found, high = fit, middle
    return found


def join(parts: Sequence[Segments]) -> Segments:
    """Put curves side by side, each over the ranks that follow those of the one before; all have one max_error."""
    ranks = np.concatenate([[0], np.cumsum([part.size for part in parts])])
    pieces = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return Segments(
        int(ranks[-1]),
        np.concatenate([part.starts + rank for part, rank in zip(parts, ranks[:-1], strict=True)]),
        np.concatenate([part.first for part in parts]),
        np.concatenate([part.last for part in parts]),
        parts[0].max_error,
        tuple(pieces[:-1].tolist()),
    )


def _greatest(values: IntArray) -> IntArray:
    """SECRET: the greatest of some values, or 0 if all are less, in an array of one."""
    greatest: IntArray = np.maximum.reduce(values, initial=0, keepdims=True)
    return greatest


def pointer(array: IntArray) -> object:
    """An array as the kernels take it."""
    return ffi.from_buffer("int64_t[]", array)
