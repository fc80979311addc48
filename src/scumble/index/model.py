"""The fitted index: everything that a lookup needs, and nothing that is secret.

Key ranges come in, position ranges go out. The provider may see all of it: the segments and the slack came out of
differentially private releases, the rest the owner chose.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scumble.index.contract import Positions
from scumble.index.segments import Segments
from scumble.types import Domain

__all__ = ["IndexModel", "MechanismName", "SlackName"]

IntArray = NDArray[np.int64]
MechanismName = Literal["scumble", "paper"]
SlackName = Literal["measured", "paper", "lossless"]


@dataclass(frozen=True, eq=False)
class IndexModel(Positions):
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

    def start_after(self, rank: int) -> int:
        """The segments' value there, less the slack."""
        return self.segments.at(rank) - self.slack_rows

    def stop_at(self, rank: int) -> int:
        """The segments' value there, and the slack."""
        return self.segments.at(rank) + self.slack_rows

    def starts_after(self, ranks: IntArray) -> IntArray:
        """The same for many ranks."""
        rows = self.segments.at_many(ranks)
        rows -= self.slack_rows
        return rows

    def stops_at(self, ranks: IntArray) -> IntArray:
        """The same for many ranks."""
        rows = self.segments.at_many(ranks)
        rows += self.slack_rows
        return rows
