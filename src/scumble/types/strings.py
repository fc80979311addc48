"""Strings between public split points, `string:["d","m","t"]`: strings come in, numbers of intervals go out.

The split points are public, keys and ranks are secret; the search is for the owner's side.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from scumble.types.domain import EMPTY, KEY, KEYS, MAX_SIZE, DomainPartError, Place
from scumble.types.keys import read_column
from scumble.types.listed import ListDomain, list_text, string_list, text_ranks


@dataclass(frozen=True, init=False, repr=False)
class StringDomain(ListDomain):
    """All strings, cut at public split points: the rank is the number of splits <= key, by UTF-8 bytes."""

    takes: ClassVar[str] = "strings"
    splits: tuple[str, ...]

    def __init__(self, splits: Sequence[str]) -> None:
        listed = string_list(splits, "split points")
        if listed[0] == "":
            raise DomainPartError(
                "list",
                "the empty string splits nothing off",
                item=0,
                hint="leave it out: rank 0 starts there",
            )
        if len(listed) == MAX_SIZE:
            raise DomainPartError("list", f"there are more than {MAX_SIZE} ranks", hint="use fewer split points")
        object.__setattr__(self, "splits", listed)

    @property
    def size(self) -> int:
        """The number of intervals between split points."""
        return len(self.splits) + 1

    @property
    def text(self) -> str:
        """The canonical text."""
        return f"string:{list_text(self.splits)}"

    def key(self, rank: int) -> str:
        """Return the smallest string of a rank."""
        return self.splits[rank - 1] if self._checked_rank(rank) else ""

    def rank(self, key: object) -> int:
        """Return the number of split points at or before one string."""
        return self._rank_of_plain(self._plain(key, KEY), KEY)

    def ranks(self, keys: object) -> NDArray[np.int64]:
        """Return the number of split points at or before every string."""
        return text_ranks(read_column(keys, KEYS), self._rank_of_plain, self._plain)

    def _rank_of_plain(self, key: Any, place: Place) -> int:
        # Python compares strings by code point, which is the order of their UTF-8 bytes.
        return bisect_right(self.splits, key)

    def _span_of_plain(self, low: Any, high: Any) -> tuple[int, int]:
        if low is not None and high is not None and low > high:
            return EMPTY
        first = 0 if low is None else bisect_right(self.splits, low)
        return first, self.size - 1 if high is None else bisect_right(self.splits, high)
