"""Domains that are public lists, where a key's rank is its place; among them the paper's dom(A), `keys:[1,5,9]`.

The list is public, keys and ranks are secret; the search is for the owner's side.
"""

import json
import math
from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from scumble.types.domain import (
    EMPTY,
    HIGH,
    KEY,
    KEYS,
    LOW,
    MAX_SIZE,
    Domain,
    DomainPartError,
    Place,
    is_nan,
    uneven,
    unlisted,
    wrong_type,
)
from scumble.types.keys import KeyColumn, Objects, Texts, Ticks, read_column, read_key

Listed = int | str


class ListDomain(Domain):
    """A domain that searches a public sorted list."""

    @property
    def is_list(self) -> bool:
        return True

    def span(self, low: object, high: object) -> tuple[int, int]:
        first_key = None if low is None else self._plain(low, LOW)
        last_key = None if high is None else self._plain(high, HIGH)
        return self._span_of_plain(first_key, last_key)

    def spans(self, lows: object, highs: object) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        low = None if lows is None else read_column(lows, LOW)
        high = None if highs is None else read_column(highs, HIGH)
        if low is None and high is None:
            return np.array([0]), np.array([self.size - 1])
        if low is not None and high is not None and len(low) != len(high):
            raise uneven(len(low), len(high))
        count = len(low if low is not None else high or [])
        each_low = [None] * count if low is None else self._each_plain(low, LOW)
        each_high = [None] * count if high is None else self._each_plain(high, HIGH)
        pairs = [self._span_of_plain(*bounds) for bounds in zip(each_low, each_high, strict=True)]
        both = np.array(pairs, np.int64).reshape(-1, 2)
        return both[:, 0].copy(), both[:, 1].copy()

    def _each_plain(self, column: KeyColumn, place: Place) -> Sequence[Any]:
        return [self._plain(key, place.at(row)) for row, key in enumerate(column.keys())]

    def _plain(self, key: object, place: Place) -> Any:
        """Return the key as a plain string, or refuse its type."""
        return self._text(key, place)

    def _text(self, key: object, place: Place) -> str:
        plain = read_key(key, place)
        if isinstance(plain, str):
            return str(plain)
        if isinstance(plain, float) and math.isnan(plain):
            raise is_nan(place)
        raise wrong_type(place, type(plain).__name__, self.label, self.takes)

    @abstractmethod
    def _span_of_plain(self, low: Any, high: Any) -> tuple[int, int]:
        """Return the span of a query whose bounds are plain, or None for open ends."""


def string_list(values: Sequence[str], name: str) -> tuple[str, ...]:
    """Check a public list of strings."""
    if isinstance(values, str):
        raise DomainPartError("list", f"the {name} are one string, not a list of strings", hint="pass a list")
    listed = tuple(values)
    for item, value in enumerate(listed):
        if not isinstance(value, str):
            raise DomainPartError("list", f"item {item} is not a string", item=item, hint="list strings only")
    listed = tuple(str(value) for value in listed)
    check_list(listed, name)
    return listed


def check_list(listed: Sequence[Any], name: str) -> None:
    """Refuse a list that is empty, too long, or not strictly increasing."""
    if not listed:
        raise DomainPartError("list", f"the list of {name} is empty", hint="list at least one")
    if len(listed) > MAX_SIZE:
        raise DomainPartError("list", f"there are more than {MAX_SIZE} {name}", hint="use a domain with bounds")
    for item in range(1, len(listed)):
        if not listed[item - 1] < listed[item]:
            trouble = "repeats the one before" if listed[item - 1] == listed[item] else "is less than the one before"
            raise DomainPartError(
                "list", f"item {item} {trouble}", item=item, hint=f"list the {name} sorted and each once"
            )
    for item, value in enumerate(listed):
        if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
            raise DomainPartError("list", f"item {item} is not valid Unicode", item=item, hint="correct its encoding")


def list_text(listed: Sequence[Listed]) -> str:
    """Write a list as JSON."""
    return json.dumps(listed, ensure_ascii=False, separators=(",", ":"))


def search_span(listed: Sequence[Any], low: Any, high: Any) -> tuple[int, int]:
    """Return the places of the first item >= low and the last <= high."""
    first = 0 if low is None else bisect_left(listed, low)
    last = len(listed) - 1 if high is None else bisect_right(listed, high) - 1
    return EMPTY if first > last else (first, last)


def text_ranks(
    column: KeyColumn, rank: Callable[[Any, Place], int], plain: Callable[[object, Place], Any]
) -> NDArray[np.int64]:
    """Rank a column of strings, each distinct one once."""
    if isinstance(column, Texts) and column.codes is not None:
        first_rows = _first_rows(column.codes, len(column.values))
        table = [rank(text, KEY.at(row)) for text, row in zip(column.values, first_rows, strict=True)]
        ranks: NDArray[np.int64] = np.array(table, np.int64)[column.codes]
        return ranks
    known: dict[object, int] = {}
    if isinstance(column, Texts):
        for row, text in enumerate(column.values):
            if text not in known:
                known[text] = rank(text, KEY.at(row))
        return np.array([known[text] for text in column.values], np.int64)
    listed = [rank(plain(key, KEY.at(row)), KEY.at(row)) for row, key in enumerate(column.keys())]
    return np.array(listed, np.int64)


def _first_rows(codes: NDArray[Any], count: int) -> list[int]:
    """Return the first row of each code, so that an error can name it."""
    rows = np.full(count, len(codes), np.int64)
    rows[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return list(rows.tolist())


@dataclass(frozen=True, init=False, repr=False)
class ExplicitKeys(ListDomain):
    """A public, strictly increasing list of integers or strings; a query for an absent key reads nothing."""

    name: ClassVar[str] = "keys"
    example: ClassVar[str] = "keys:LIST, for example keys:[1,5,9]"
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
                    "list", f"item {item} is not an integer", item=item, hint="list integers only, or strings only"
                )
        listed = tuple(str(key) for key in listed) if texts else tuple(int(key) for key in listed)
        check_list(listed, "keys")
        object.__setattr__(self, "keys", listed)
        object.__setattr__(self, "_sorted", None if texts else _as_words(listed))
        object.__setattr__(self, "_places", {key: rank for rank, key in enumerate(listed)} if texts else {})

    @property
    def cell_type(self) -> str:
        if self._sorted is None:
            return "text"
        return "bigint" if int(self.keys[-1]) < 2**63 else "ubigint"

    @property
    def size(self) -> int:
        return len(self.keys)

    @property
    def text(self) -> str:
        return f"keys:{list_text(self.keys)}"

    def key(self, rank: int) -> Listed:
        return self.keys[self._checked_rank(rank)]

    def rank(self, key: object) -> int:
        return self._rank_of_plain(self._plain(key, KEY), KEY)

    def ranks(self, keys: object) -> NDArray[np.int64]:
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
