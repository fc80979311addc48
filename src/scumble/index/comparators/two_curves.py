"""Positions from two public curves: key ranges come in, position ranges go out.

A lookup starts where the lower curve stands before its first rank, and stops where the upper curve stands at its last.
Both are public: what was secret in them has been noised, or, in an exact index, given away.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scumble.domain import Domain
from scumble.index.contract import Index
from scumble.index.model import POINT, PositionRange

__all__ = ["TwoCurves", "TwoCurvesIndex"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TwoCurves:
    """PUBLIC: how many rows lie at or before each rank, estimated from below and from above.

    The curves are kept as released, neither monotone nor within bounds; a lookup is clipped to the capacity. They may
    be one and the same array.
    """

    domain: Domain
    lower: IntArray
    upper: IntArray
    capacity: int

    def lookup(self, low: object, high: object = POINT) -> PositionRange:
        """The positions of the rows with low <= key <= high, or key == low if no high is given."""
        first, last = self.domain.span(low, low if high is POINT else high)
        if last < first:
            return PositionRange(0, 0)
        start = int(self.lower[first - 1]) if first else 0
        stop = min(max(0, int(self.upper[last])), self.capacity)
        return PositionRange(min(max(0, start), stop), stop)

    def lookup_many(self, lows: ArrayLike, highs: ArrayLike | None = None) -> tuple[IntArray, IntArray]:
        """The same for many ranges at once, or many points if no highs are given: starts and stops."""
        return self.ranks_to_positions(*self.domain.spans(lows, lows if highs is None else highs))

    def ranks_to_positions(self, firsts: IntArray, lasts: IntArray) -> tuple[IntArray, IntArray]:
        """The same for ranges of ranks; one whose last lies before its first is empty."""
        stops = np.clip(self.upper[np.maximum(lasts, 0)], 0, self.capacity)
        stops *= lasts >= firsts
        starts = self.lower[np.maximum(firsts - 1, 0)]
        starts *= firsts > 0
        np.clip(starts, 0, stops, out=starts)
        return starts, stops

    @property
    def size_bytes(self) -> int:
        """The bytes of the curves, counted once if they are one."""
        return self.lower.nbytes + (0 if self.upper is self.lower else self.upper.nbytes)


class TwoCurvesIndex(Index):
    """An index whose lookups are answered by two curves."""

    @property
    def curves(self) -> TwoCurves:
        """The fitted curves, public."""
        positions = self.positions
        assert isinstance(positions, TwoCurves)  # noqa: S101  _build puts nothing else there
        return positions

    @property
    def size_bytes(self) -> int:
        """The bytes of what was released, eight for each number."""
        return self.curves.size_bytes

    def _ranks_to_positions(self, firsts: IntArray, lasts: IntArray) -> tuple[IntArray, IntArray]:
        return self.curves.ranks_to_positions(firsts, lasts)

    def __repr__(self) -> str:
        state = "not fitted" if self._positions is None else f"{len(self.curves.lower)} ranks"
        return f"{type(self).__name__}() <{state}>"
