"""Segments: the fewest straight pieces that follow a monotone curve within `max_error`.

Both are public. Segments answer "how many rows lie at or before this rank?".
The fit is optimal (O'Rourke's method, C kernel): no other segments within the tolerance are fewer. Measuring the
segments against a Histogram gives a secret, which only `index/slack.py` may turn into something public.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from scumble._native import ffi, lib
from scumble.index.curve import Histogram, MonotoneCurve
from scumble.privacy.noise import Fact

__all__ = ["Segments", "fit_segments", "fit_within"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Segments:
    """PUBLIC: a function from ranks to whole rows, straight on each piece, never falling.

    Piece j starts at rank starts[j] with the value first[j] and ends, before the next one starts, with last[j]; where
    it would lie below an earlier piece (by no more than twice max_error) the earlier piece's value holds.
    """

    size: int
    starts: IntArray
    first: IntArray
    last: IntArray
    max_error: int

    def __len__(self) -> int:
        return len(self.starts)

    def facts(self) -> tuple[Fact, ...]:
        """All of it, to name a question about these segments and no others."""
        return self.size, self.max_error, self.starts, self.first, self.last

    @cached_property
    def _bounds(self) -> IntArray:
        return np.append(self.starts, self.size)

    @cached_property
    def _floor(self) -> IntArray:
        """The greatest value before each piece."""
        return np.concatenate([[0], np.maximum.accumulate(np.maximum(self.last[:-1], 0))])

    @cached_property
    def _lists(self) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
        """The same as Python integers, which a single lookup handles faster than arrays of one."""
        run = np.maximum(np.diff(self._bounds) - 1, 1)
        rise = self.last - self.first
        return (self.starts.tolist(), self.first.tolist(), rise.tolist(), run.tolist(), self._floor.tolist())

    def at(self, rank: int) -> int:
        """The rows at or before one rank."""
        starts, first, rise, run, floor = self._lists
        j = bisect_right(starts, rank) - 1
        value = first[j] + rise[j] * (rank - starts[j]) // run[j]
        return value if value > floor[j] else floor[j]

    def at_many(self, ranks: IntArray) -> IntArray:
        ranks = np.ascontiguousarray(ranks, dtype=np.int64)
        out = np.empty(len(ranks), dtype=np.int64)
        lib.scumble_evaluate(*self._arguments(), _pointer(ranks), len(ranks), _pointer(out))
        return out

    def deviation(self, histogram: Histogram) -> IntArray:
        """SECRET: the largest difference between the segments and the true curve over all ranks, in an array of one."""
        over, under = np.empty(1, dtype=np.int64), np.empty(1, dtype=np.int64)
        lib.scumble_deviation(*self._arguments(), _pointer(histogram.counts), _pointer(over), _pointer(under))
        return np.maximum(over, under)

    def _arguments(self) -> tuple[object, ...]:
        arrays = (self._bounds, self.first, self.last, self._floor)
        return (*(_pointer(array) for array in arrays), len(self))


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
            _pointer(curve.rows),
            size,
            tolerance(max_error),
            quantum(max_error),
            limit,
            _pointer(starts),
            _pointer(first),
            _pointer(last),
        )
        if count < 0:
            raise MemoryError("no memory for the convex hulls of the segment fit")
        if count <= limit:
            return Segments(size, starts[:count].copy(), first[:count].copy(), last[:count].copy(), max_error)
    return None


def fit_within(curve: MonotoneCurve, least_error: int, most: Callable[[int], int]) -> Segments:
    """Fit with the smallest max_error, from `least_error` on, that needs no more than `most(max_error)` segments.

    Exact to a 32nd of max_error. Post-processing: however many fits are tried, no privacy is spent.
    """
    low, high = least_error - 1, least_error
    while (found := fit_segments(curve, high, most(high))) is None:
        low, high = high, 2 * high
    while high - low > max(1, high // 32):
        middle = (low + high) // 2
        fit = fit_segments(curve, middle, most(middle))
        if fit is None:
            low = middle
        else:
            found, high = fit, middle
    return found


def _pointer(array: IntArray) -> object:
    return ffi.from_buffer("int64_t[]", array)
