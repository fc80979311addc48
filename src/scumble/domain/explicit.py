"""The paper's dom(A), `keys:[1,5,9]`: keys come in, places in a public list of integers or strings go out.

The list is public, keys and ranks are secret; the search is for the owner's side.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from scumble.domain.columns import Objects, Ticks, read_column, read_key
from scumble.domain.contract import HIGH, KEY, KEYS, LOW, DomainPartError
from scumble.domain.listed import (
    ListDomain,
    Listed,
    check_list,
    list_text,
    search_span,
    text_ranks,
)
from scumble.domain.refusals import Place, is_nan, uneven, unlisted, wrong_type


@dataclass(frozen=True, init=False, repr=False)
class ExplicitKeys(ListDomain):
    """A public, strictly increasing list of integers or strings; a query for an absent key reads nothing."""

    takes: ClassVar[str] = "keys of the same type as its list: integers or strings"
    keys: tuple[Listed, ...]
    _places: dict[Listed, int] = field(compare=False)
    _sorted: NDArray[Any] | None = field(compare=False)

    def __init__(self, keys: Sequence[int] | Sequence[str] | NDArray[Any]) -> None:
        if isinstance(keys, str):
            raise DomainPartError("list", "the keys are one string, not a list", hint="pass a list")
        given = read_column(keys, KEYS)
        listed: tuple[Any, ...] = tuple(given.keys())
        texts = all(isinstance(key, str) for key in listed)
        for item, key in enumerate(listed):
            if not texts and (not isinstance(key, int | np.integer) or isinstance(key, bool | np.timedelta64)):
                raise DomainPartError(
                    "list",
                    f"item {item} is not an integer",
                    item=item,
                    hint="list integers only, or strings only",
                )
        listed = tuple(str(key) for key in listed) if texts else tuple(int(key) for key in listed)
        check_list(listed, "keys")
        object.__setattr__(self, "keys", listed)
        object.__setattr__(self, "_sorted", None if texts else _as_words(listed))
        object.__setattr__(self, "_places", {key: rank for rank, key in enumerate(listed)} if texts else {})

    @property
    def size(self) -> int:
        """The number of keys in the list."""
        return len(self.keys)

    @property
    def text(self) -> str:
        """The canonical text."""
        return f"keys:{list_text(self.keys)}"

    def key(self, rank: int) -> Listed:
        """Return the key of a rank."""
        return self.keys[self._checked_rank(rank)]

    def rank(self, key: object) -> int:
        """Return the place of one key in the list."""
        return self._rank_of_plain(self._plain(key, KEY), KEY)

    def ranks(self, keys: object) -> NDArray[np.int64]:
        """Return the place of every key in the list."""
        column = read_column(keys, KEYS)
        if self._sorted is None:
            return text_ranks(column, self._rank_of_plain, self._plain)
        if isinstance(column, Ticks) and column.kind == "integer":
            return self._integer_ranks(column.values)
        if len(column) and not isinstance(column, Objects):
            raise wrong_type(KEYS, column.type_name, self.label, self.takes)
        plain = self._each_plain(column, KEY)
        return np.array([self._rank_of_plain(key, KEY.at(row)) for row, key in enumerate(plain)], np.int64)

    def _integer_ranks(self, values: NDArray[Any]) -> NDArray[np.int64]:
        listed, first, last = self._sorted, self.keys[0], self.keys[-1]
        strays = (values < first) | (values > last)
        if strays.any() or listed is None:
            raise unlisted(KEY.at(int(np.argmax(strays))), self.label)
        # All lie between the list's ends now, so the list's type holds them.
        same = values.astype(listed.dtype, copy=False)
        places = np.searchsorted(listed, same)
        strays = listed[places] != same
        if strays.any():
            raise unlisted(KEY.at(int(np.argmax(strays))), self.label)
        return places.astype(np.int64, copy=False)

    def spans(self, lows: object, highs: object) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first and last rank of many queries."""
        both = (read_column(column, place) for column, place in ((lows, LOW), (highs, HIGH)) if column is not None)
        columns = [column for column in both if isinstance(column, Ticks) and column.kind == "integer"]
        listed = self._sorted
        if listed is None or len(columns) < 2 or any(column.values.dtype != listed.dtype for column in columns):
            return super().spans(lows, highs)
        low, high = columns
        if len(low) != len(high):
            raise uneven(len(low), len(high))
        firsts = np.searchsorted(listed, low.values, side="left")
        lasts = np.searchsorted(listed, high.values, side="right") - 1
        answered = firsts <= lasts
        return (firsts * answered).astype(np.int64), ((lasts + 1) * answered - 1).astype(np.int64)

    def _plain(self, key: object, place: Place) -> Any:
        if self._sorted is None:
            return self._text(key, place)
        plain = read_key(key, place)
        if isinstance(plain, float) and math.isnan(plain):
            raise is_nan(place)
        if not isinstance(plain, int) or isinstance(plain, bool):
            raise wrong_type(place, type(plain).__name__, self.label, self.takes)
        return plain

    def _rank_of_plain(self, key: Any, place: Place) -> int:
        if self._sorted is None:
            place_in_list = self._places.get(key, -1)
        else:
            place_in_list = bisect_left(self.keys, key)
            if place_in_list == len(self.keys) or self.keys[place_in_list] != key:
                place_in_list = -1
        if place_in_list < 0:
            raise unlisted(place, self.label)
        return place_in_list

    def _span_of_plain(self, low: Any, high: Any) -> tuple[int, int]:
        return search_span(self.keys, low, high)


def _as_words(listed: Sequence[Any]) -> NDArray[Any]:
    for dtype in (np.int64, np.uint64):
        try:
            return np.array(listed, dtype)
        except OverflowError:
            continue
    raise DomainPartError("list", "the keys do not fit in 64 bits, with or without sign", hint="use strings")
