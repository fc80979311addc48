"""The fitted index: everything that a lookup needs, and nothing that is secret.

Key ranges come in, position ranges go out. The provider may see all of it: the segments and the slack came out of
differentially private releases, the rest the owner chose.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scumble.domain import Domain
from scumble.index.segments import Segments

__all__ = ["POINT", "IndexModel", "MechanismName", "PositionRange", "SlackName"]

IntArray = NDArray[np.int64]
MechanismName = Literal["scumble", "paper"]
SlackName = Literal["measured", "paper", "lossless"]


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


@dataclass(frozen=True, eq=False)
class IndexModel:
    """PUBLIC: the index that a file holds."""

    domain: Domain
    segments: Segments
    slack_rows: int
    capacity: int
    epsilon: Fraction
    delta: Fraction
    beta: Fraction
    levels: int
    mechanism: MechanismName
    slack: SlackName

    def lookup(self, low: object, high: object = POINT) -> PositionRange:
        """The positions that hold every row with low <= key <= high, or key == low if no high is given."""
        first, last = self.domain.span(low, low if high is POINT else high)
        if last < first:
            return PositionRange(0, 0)
        start = self.segments.at(first - 1) - self.slack_rows if first else 0
        stop = min(self.capacity, self.segments.at(last) + self.slack_rows)
        return PositionRange(min(max(0, start), stop), stop)

    def lookup_many(self, lows: ArrayLike, highs: ArrayLike | None = None) -> tuple[IntArray, IntArray]:
        """The same for many ranges at once, or many points if no highs are given: starts and stops."""
        return self.ranks_to_positions(*self.domain.spans(lows, lows if highs is None else highs))

    def ranks_to_positions(self, firsts: IntArray, lasts: IntArray) -> tuple[IntArray, IntArray]:
        """The same for ranges of ranks; one whose last lies before its first is empty."""
        stops = self.segments.at_many(np.maximum(lasts, 0))
        stops += self.slack_rows
        np.minimum(stops, self.capacity, out=stops)
        stops *= lasts >= firsts
        # Before the first rank lie no rows: evaluated at rank 0 all the same, then masked, to keep one pass for all.
        starts = self.segments.at_many(np.maximum(firsts - 1, 0))
        starts -= self.slack_rows
        starts *= firsts > 0
        np.clip(starts, 0, stops, out=starts)
        return starts, stops
