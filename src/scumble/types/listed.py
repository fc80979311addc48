"""Domains that are public lists, where a key's rank is its place; among them the paper's dom(A), `keys:[1,5,9]`.

The list is public, keys and ranks are secret; the search is for the owner's side.
"""

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from scumble.types.domain import EMPTY, MAX_SIZE, Domain, DomainPartError, Ranks, is_nan, unlisted
from scumble.types.keys import KEY, KEYS, KeyColumn, Objects, Place, Texts, Ticks, integers, read_column, read_key

Listed = int | str


class ListDomain(Domain):
    """A domain that searches a public sorted list."""

    is_list: ClassVar[bool] = True

    def _exact(self, key: object, place: Place) -> Any:
        """Return the key as a plain string, or refuse its type."""
        plain = read_key(key, place)
        if isinstance(plain, str):
            return str(plain)
        if isinstance(plain, float) and math.isnan(plain):
            raise is_nan(place)
        raise self._wrong_type(place, type(plain).__name__)

    def _column_ranks(self, column: KeyColumn) -> Ranks | None:
        """Rank a column of strings, each distinct one once."""
        if not isinstance(column, Texts):
            return None
        if column.codes is not None:
            first_rows = _first_rows(column.codes, len(column.values))
            table = [self._rank_of(text, KEY.at(row)) for text, row in zip(column.values, first_rows, strict=True)]
            ranks: Ranks = np.array(table, np.int64)[column.codes]
            return ranks
        known: dict[str, int] = {}
        for row, text in enumerate(column.values):
            if text not in known:
                known[text] = self._rank_of(text, KEY.at(row))
        return np.array([known[text] for text in column.values], np.int64)


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
        words = None if texts else integers(listed)
        if words is None and not texts:
            raise DomainPartError("list", "the keys do not fit in 64 bits, with or without sign", hint="use strings")
        self._set(keys=listed, _sorted=words, _places={key: rank for rank, key in enumerate(listed)} if texts else {})

    @property
    def cell_type(self) -> str:
        if self._sorted is None:
            return "text"
        return "bigint" if int(self.keys[-1]) < 2**63 else "ubigint"

    @property
    def integers(self) -> NDArray[Any] | None:
        """The list as an array of 64-bit integers; None if it has strings."""
        return self._sorted

    @property
    def size(self) -> int:
        return len(self.keys)

    @property
    def text(self) -> str:
        return f"keys:{list_text(self.keys)}"

    def key(self, rank: int) -> Listed:
        return self.keys[self._checked_rank(rank)]

    def _column_ranks(self, column: KeyColumn) -> Ranks | None:
        if self._sorted is None:
            return super()._column_ranks(column)
        if isinstance(column, Ticks) and column.kind == "integer":
            return self._integer_ranks(column.values)
        if len(column) and not isinstance(column, Objects):
            raise self._wrong_type(KEYS, column.type_name)
        return None

    def _integer_ranks(self, values: NDArray[Any]) -> Ranks:
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

    def _column_spans(self, low: KeyColumn | None, high: KeyColumn | None) -> tuple[Ranks, Ranks] | None:
        listed = self._sorted
        integers = [column for column in (low, high) if isinstance(column, Ticks) and column.kind == "integer"]
        if listed is None or len(integers) < 2 or any(column.values.dtype != listed.dtype for column in integers):
            return None
        lows, highs = integers
        firsts = np.searchsorted(listed, lows.values, side="left")
        lasts = np.searchsorted(listed, highs.values, side="right") - 1
        answered = firsts <= lasts
        return (firsts * answered).astype(np.int64), ((lasts + 1) * answered - 1).astype(np.int64)

    def _exact(self, key: object, place: Place) -> Any:
        if self._sorted is None:
            return super()._exact(key, place)
        plain = read_key(key, place)
        if isinstance(plain, float) and math.isnan(plain):
            raise is_nan(place)
        if not isinstance(plain, int) or isinstance(plain, bool):
            raise self._wrong_type(place, type(plain).__name__)
        return plain

    def _rank_of(self, exact: Any, place: Place) -> int:
        if self._sorted is None:
            place_in_list = self._places.get(exact, -1)
        else:
            place_in_list = bisect_left(self.keys, exact)
            if place_in_list == len(self.keys) or self.keys[place_in_list] != exact:
                place_in_list = -1
        if place_in_list < 0:
            raise unlisted(place, self.label)
        return place_in_list

    def _span_of(self, low: Any, high: Any) -> tuple[int, int]:
        return search_span(self.keys, low, high)
