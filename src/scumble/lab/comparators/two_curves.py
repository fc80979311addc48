"""Positions from two public curves: key ranges come in, position ranges go out.

A lookup starts where the lower curve stands before its first rank, and stops where the upper curve stands at its last.
Both are public: what was secret in them has been noised, or, in an exact index, given away.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scumble.index.contract import Index, Positions
from scumble.types import Domain

__all__ = ["TwoCurves", "TwoCurvesIndex"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TwoCurves(Positions):
    """PUBLIC: how many rows lie at or before each rank, estimated from below and from above.

    The curves are kept as released, neither monotone nor within bounds; a lookup is clipped to the capacity. They may
    be one and the same array.
    """

    domain: Domain
    lower: IntArray
    upper: IntArray
    capacity: int

    def start_after(self, rank: int) -> int:
        """The lower curve there."""
        return int(self.lower[rank])

    def stop_at(self, rank: int) -> int:
        """The upper curve there."""
        return int(self.upper[rank])

    def starts_after(self, ranks: IntArray) -> IntArray:
        """The lower curve at many ranks."""
        return self.lower[ranks]

    def stops_at(self, ranks: IntArray) -> IntArray:
        """The upper curve at many ranks."""
        return self.upper[ranks]

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

    def __repr__(self) -> str:
        state = "not fitted" if self._positions is None else f"{len(self.curves.lower)} ranks"
        return f"{type(self).__name__}() <{state}>"
