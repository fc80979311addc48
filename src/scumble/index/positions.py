"""Lookups: key ranges come in, position ranges go out, the same way for every index.

All of it is public. A fitted index says where a lookup starts after a rank and where it stops at a rank, each on its
own; here these ends are put together, clipped to the table, and empty where the query is.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scumble.domain import Domain

__all__ = ["POINT", "PositionRange", "Positions"]

IntArray = NDArray[np.int64]


class _Point:
    """The type of POINT: a lookup of one key rather than of a range."""

    def __repr__(self) -> str:
        return "POINT"


POINT = _Point()


class PositionRange(NamedTuple):
    """Positions start, start + 1, ..., stop - 1 of the rows sorted by key."""

    start: int
    stop: int

    @property
    def rows(self) -> int:
        """How many positions there are."""
        return self.stop - self.start


class Positions(ABC):
    """PUBLIC: what answers lookups once an index is fitted."""

    domain: Domain
    capacity: int

    @abstractmethod
    def starts_after(self, ranks: IntArray) -> IntArray:
        """Where lookups start whose first rank follows each of these, in a new array; clipped by the caller."""

    @abstractmethod
    def stops_at(self, ranks: IntArray) -> IntArray:
        """Where lookups stop whose last rank is each of these, in a new array; clipped by the caller."""

    def start_after(self, rank: int) -> int:
        """The same for one rank."""
        return int(self.starts_after(np.array([rank]))[0])

    def stop_at(self, rank: int) -> int:
        """The same for one rank."""
        return int(self.stops_at(np.array([rank]))[0])

    def lookup(self, low: object, high: object = POINT) -> PositionRange:
        """The positions that hold every row with low <= key <= high, or key == low if no high is given."""
        first, last = self.domain.span(low, low if high is POINT else high)
        if last < first:
            return PositionRange(0, 0)
        stop = min(max(0, self.stop_at(last)), self.capacity)
        start = self.start_after(first - 1) if first else 0
        return PositionRange(min(max(0, start), stop), stop)

    def lookup_many(self, lows: ArrayLike, highs: ArrayLike | None = None) -> tuple[IntArray, IntArray]:
        """The same for many ranges at once, or many points if no highs are given: starts and stops."""
        return self.of_ranks(*self.domain.spans(lows, lows if highs is None else highs))

    def of_ranks(self, firsts: IntArray, lasts: IntArray) -> tuple[IntArray, IntArray]:
        """The same for ranges of ranks; one whose last lies before its first is empty."""
        stops = self.stops_at(np.maximum(lasts, 0))
        np.clip(stops, 0, self.capacity, out=stops)
        stops *= lasts >= firsts
        # Before the first rank lie no rows: evaluated at rank 0 all the same, then masked, to keep one pass for all.
        starts = self.starts_after(np.maximum(firsts - 1, 0))
        starts *= firsts > 0
        np.clip(starts, 0, stops, out=starts)
        return starts, stops
