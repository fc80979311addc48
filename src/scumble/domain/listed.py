"""What domains over a public sorted list share: the list comes in checked, keys are searched in it.

The list is public, keys and ranks are secret. The search is a binary search or a hash table, so its addresses
depend on the key: it is for the owner's side.
"""

import json
import math
from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from scumble.domain.columns import Column, Texts, read_column, read_key
from scumble.domain.contract import EMPTY, HIGH, KEY, LOW, MAX_SIZE, Domain, DomainPartError
from scumble.domain.refusals import Place, is_nan, uneven, wrong_type

Listed = int | str


class ListDomain(Domain):
    """A domain that searches a public sorted list."""

    takes: ClassVar[str]

    @property
    def is_list(self) -> bool:
        """Whether the domain carries an explicit public list: always."""
        return True

    def span(self, low: object, high: object) -> tuple[int, int]:
        """Return the first and last rank of the query low <= key <= high."""
        first_key = None if low is None else self._plain(low, LOW)
        last_key = None if high is None else self._plain(high, HIGH)
        return self._span_of_plain(first_key, last_key)

    def spans(self, lows: object, highs: object) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first and last rank of many queries."""
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

    def _each_plain(self, column: Column, place: Place) -> Sequence[Any]:
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
    column: Column, rank: Callable[[Any, Place], int], plain: Callable[[object, Place], Any]
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
