"""Categories: a value's word is its place in a public sorted list of strings. Their key domain is `category:["a","b"]`.

The list is public and comes from the owner; values, keys and ranks are secret, and the search is for the owner's side.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter
from scumble.types.arrow import refused, values_of
from scumble.types.column import Bracket, ColumnType, Interval, ValueWords, bytes_for
from scumble.types.domain import Domain, unlisted
from scumble.types.keys import Place
from scumble.types.listed import ListDomain, list_text, search_span, string_list
from scumble.types.schema import Column
from scumble.types.text import ANY, ONE, pattern_parts, utf8

MAX_CATEGORIES = 1 << 20


@dataclass(frozen=True)
class CategoryType(ColumnType):
    """One of a public list of strings; rows can be grouped by it."""

    kind = "category"
    names = dict.fromkeys(("category", "enum"), "category")
    examples = ('category(["a","b"])',)
    arrow_name = "string"
    sources = frozenset(["string", "integer", "boolean"])
    label = "category"
    is_text = True

    categories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any(before >= after for before, after in pairwise(self.categories)):  # by code point, so by UTF-8 bytes too
            raise InvalidParameter("the categories are not sorted, or not distinct", hint="sort them, each once")

    @classmethod
    def of_list(cls, categories: Sequence[str]) -> Self:
        """Return the type of a public list of strings, in whatever order they come."""
        listed = sorted(set(categories))
        if not listed or len(listed) > MAX_CATEGORIES:
            raise InvalidParameter(f"a category has 1 to {MAX_CATEGORIES} values", hint='write category(["a","b"])')
        if any(utf8(text) is None for text in listed):
            raise InvalidParameter("a category is not valid Unicode", hint="correct its encoding")
        return cls("varchar", tuple(listed))

    @classmethod
    def of_text(cls, name: str, rest: str) -> Self:
        """Read `(["a","b"])` or `:["a","b"]`."""
        body = rest[1:] if rest.startswith(":") else rest[1:-1] if rest.startswith("(") and rest.endswith(")") else None
        if body is None:
            raise InvalidParameter("the list of categories is missing")
        try:
            listed = json.loads(body)
        except (ValueError, RecursionError):
            listed = None
        if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
            raise InvalidParameter("this is no JSON list of strings")
        if len(set(listed)) != len(listed):
            raise InvalidParameter("a category is there twice")
        return cls.of_list(listed)

    @property
    def declaration(self) -> str:
        return f"category({json.dumps(self.categories)})"

    @cached_property
    def width_bytes(self) -> int:
        return bytes_for(len(self.categories) - 1, signed=not self.narrow)

    @property
    def is_unsigned(self) -> bool:  # type: ignore[override]
        return self.narrow

    @property
    def group_values(self) -> tuple[object, ...]:
        return self.categories

    @cached_property
    def full_interval(self) -> Interval:
        return (0,), (len(self.categories) - 1,)

    def _words(self, value: object) -> ValueWords | None:
        if not isinstance(value, str):
            return None
        code = bisect_left(self.categories, value)
        return (code,) if self.categories[code : code + 1] == (value,) else None

    def value_of(self, words: ValueWords) -> str:
        return self.categories[words[0]]

    def _bracket(self, value: object) -> Bracket | None:
        if not isinstance(value, str) or utf8(value) is None:
            return None
        return bisect_left(self.categories, value), bisect_right(self.categories, value) - 1

    def prefix_interval(self, prefix: str) -> Interval | None:
        if utf8(prefix) is None:
            return None
        first = bisect_left(self.categories, prefix)
        last = bisect_left(self.categories, True, first, key=lambda text: not text.startswith(prefix)) - 1
        return ((first,), (last,)) if first <= last else self.empty_interval

    def like_intervals(
        self, pattern: str, escape: str | None, *, case_insensitive: bool
    ) -> tuple[Interval, ...] | None:
        """Return the strings that match, as the fewest intervals of places; None if only DuckDB knows.

        That is so for ILIKE beyond ASCII, where lower case is a matter of tables, and for a broken escape.
        """
        texts = self.categories
        if case_insensitive:
            if escape or not pattern.isascii() or not all(text.isascii() for text in texts):
                return None
            pattern, texts = pattern.lower(), tuple(text.lower() for text in texts)
        parts = pattern_parts(pattern, escape)
        if parts is None:
            return None
        found: list[Interval] = []
        for code, text in enumerate(texts):
            if _matches(text, parts):
                if found and found[-1][1][0] == code - 1:
                    found[-1] = (found[-1][0], (code,))
                else:
                    found.append(((code,), (code,)))
        return tuple(found)

    def comparable_with(self, other: ColumnType) -> bool:
        return isinstance(other, CategoryType) and self.categories == other.categories

    def _span(self, domain: Domain, low: ValueWords, high: ValueWords) -> tuple[int, int]:
        return self._clipped_span(domain, low, high, 0, len(self.categories) - 1)

    def words_are_ranks(self, domain: Domain) -> bool:
        return isinstance(domain, CategoryDomain) and self.categories == domain.values

    def encode(self, column: Column, array: Any, valid: NDArray[np.uint8] | None, first_row: int) -> NDArray[np.int64]:
        import pyarrow as pa
        from pyarrow import compute

        codes = compute.index_in(array, value_set=pa.array(self.categories, pa.string()))
        if codes.null_count > array.null_count:
            stray = compute.and_(codes.is_null(), array.is_valid()).to_numpy(zero_copy_only=False)
            row = first_row + int(np.argmax(stray))
            raise refused(
                column, row, "the value is not in the list of its categories", "add it to the list, or drop it"
            )
        return np.array(values_of(codes, np.int32), np.int64)

    def decode(self, words: NDArray[Any], valid: NDArray[Any] | None) -> Any:
        import pyarrow as pa

        masked = None if valid is None else ~np.asarray(valid, np.bool_)
        codes = pa.array(words.astype(np.int32, copy=False), mask=masked)
        return pa.array(self.categories, pa.string()).take(codes)


def _matches(text: str, parts: list[tuple[bool, str]]) -> bool:
    """Match with one step back to the last `%` at a time: quadratic at worst, never exponential."""
    at = part = 0
    star, resume = -1, 0
    while at < len(text):
        if part < len(parts) and parts[part] == ANY:
            star, resume = part, at
            part += 1
        elif part < len(parts) and parts[part] in (ONE, (False, text[at])):
            at += 1
            part += 1
        elif star >= 0:
            resume += 1
            at, part = resume, star + 1
        else:
            return False
    return all(rest == ANY for rest in parts[part:])


@dataclass(frozen=True, init=False, repr=False)
class CategoryDomain(ListDomain):
    """A public, sorted list of distinct strings."""

    name: ClassVar[str] = "category"
    example: ClassVar[str] = 'category:LIST, for example category:["a","b","c"]'
    cell_type: ClassVar[str] = "text"
    takes: ClassVar[str] = "strings"
    values: tuple[str, ...]
    _places: dict[str, int] = field(compare=False)

    def __init__(self, values: Sequence[str]) -> None:
        listed = string_list(values, "categories")
        self._set(values=listed, _places={value: rank for rank, value in enumerate(listed)})

    @property
    def column_type(self) -> CategoryType:
        return CategoryType.of_list(self.values)

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def text(self) -> str:
        return f"category:{list_text(self.values)}"

    def key(self, rank: int) -> str:
        return self.values[self._checked_rank(rank)]

    def _rank_of(self, exact: Any, place: Place) -> int:
        rank = self._places.get(exact)
        if rank is None:
            raise unlisted(place, self.label)
        return rank

    def _span_of(self, low: Any, high: Any) -> tuple[int, int]:
        return search_span(self.values, low, high)
