"""Column types: what a value is to SQL, and how many bytes it takes in a page. All of it is public.

A value is stored as int64 words: one for everything but text, which takes as many as its greatest length needs. Words
compare as their values do, so that one kernel serves every type:

    integers, dates, timestamps, times    the number itself, in the unit of the type
    decimals                              the unscaled number
    booleans, categories                  0 or 1; the place in the public sorted list
    floats                                the bits of the double, mapped so that they sort as signed integers;
                                          -0.0 is stored as 0.0, and NaN sorts greatest, as in DuckDB
    text                                  the UTF-8 bytes, zero-padded, as big-endian words with the top bit flipped,
                                          then the length in bytes
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

from scumble.errors import InvalidParameter, NotFound

__all__ = ["Column", "ColumnType", "Kind", "Schema"]

INTEGER_WIDTHS = {
    "tinyint": 1,
    "smallint": 2,
    "integer": 4,
    "bigint": 8,
    "utinyint": 2,
    "usmallint": 4,
    "uinteger": 8,
    "ubigint": 8,
}
"""The integer types of DuckDB, and the bytes that a signed word for each takes; a ubigint has to stay below 2^63."""

TIMESTAMP_UNITS = {"timestamp_s": "s", "timestamp_ms": "ms", "timestamp": "us", "timestamp_ns": "ns"}
MAX_DECIMAL_DIGITS = 18
MAX_TEXT_BYTES = 1 << 16


class Kind(StrEnum):
    """What a column holds."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    CATEGORY = "category"
    TEXT = "text"


@dataclass(frozen=True)
class ColumnType:
    """PUBLIC: one of the kinds with its parameters; `sql` is the name of the type in DuckDB.

    `sql` is `boolean`, one of INTEGER_WIDTHS, `float`, `double`, `decimal(p,s)`, `date`, `time`, one of
    TIMESTAMP_UNITS, `timestamp with time zone` (microseconds, in UTC), or `varchar` for categories and text.
    """

    kind: Kind
    sql: str
    scale: int = 0
    digits: int = 0
    max_bytes: int = 0
    categories: tuple[str, ...] = ()
    zone: str = ""

    def __post_init__(self) -> None:
        if any(before >= after for before, after in pairwise(self.categories)):  # by code point, so by UTF-8 bytes too
            raise InvalidParameter("the categories are not sorted, or not distinct", hint="sort them, each once")

    @property
    def label(self) -> str:
        """The type for messages, as `parse_type` reads it, without the list of categories."""
        match self.kind:
            case Kind.TEXT:
                return f"text({self.max_bytes})"
            case Kind.CATEGORY:
                return "category"
        return self.sql

    @cached_property
    def words(self) -> int:
        """How many int64 words a value takes."""
        return -(-self.max_bytes // 8) + 1 if self.kind is Kind.TEXT else 1

    @cached_property
    def width_bytes(self) -> int:  # noqa: PLR0911  one for each kind
        """How many bytes a value takes in a page: the words, narrowed as far as the type allows."""
        match self.kind:
            case Kind.TEXT:
                return 8 * self.words
            case Kind.BOOLEAN:
                return 1
            case Kind.DATE:
                return 4
            case Kind.INTEGER:
                return INTEGER_WIDTHS[self.sql]
            case Kind.CATEGORY:
                return _bytes_for(len(self.categories) - 1)
            case Kind.DECIMAL:
                return _bytes_for(10**self.digits - 1)
        return 8

    def to_json(self) -> dict[str, Any]:
        """The type as JSON, without what is at its default."""
        fields: dict[str, Any] = {"kind": self.kind.value, "sql": self.sql}
        for name in ("scale", "digits", "max_bytes", "zone"):
            if value := getattr(self, name):
                fields[name] = value
        if self.categories:
            fields["categories"] = list(self.categories)
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The inverse."""
        return cls(
            **{**fields, "kind": Kind(fields["kind"]), "categories": tuple(fields.get("categories", ()))},
        )


@dataclass(frozen=True)
class Column:
    """PUBLIC: a name, a type, and whether nulls may occur."""

    name: str
    type: ColumnType
    nullable: bool

    @property
    def page_row_bytes(self) -> int:
        """How many bytes a row takes in a page of this column: its value, and a byte that says whether it is null."""
        return self.type.width_bytes + self.nullable


@dataclass(frozen=True)
class Schema:
    """PUBLIC: the columns of a table, in order. Names differ even when case is ignored, as DuckDB ignores it."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise InvalidParameter("a table needs at least one column", hint="give it one")
        if len(self._places) != len(self.columns):
            raise InvalidParameter("two columns have the same name", hint="names that differ in case only are the same")

    @cached_property
    def _places(self) -> dict[str, int]:
        return {column.name.lower(): place for place, column in enumerate(self.columns)}

    def place(self, name: str) -> int:
        """Where a column stands; NotFound if there is none of that name."""
        place = self._places.get(name.lower())
        if place is None:
            names = ", ".join(column.name for column in self.columns)
            raise NotFound(f"there is no column {name!r}", hint=f"there are {names}")
        return place

    def __getitem__(self, name: str) -> Column:
        return self.columns[self.place(name)]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._places

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def to_json(self) -> list[dict[str, Any]]:
        """The columns as JSON."""
        return [{"name": c.name, "type": c.type.to_json(), "nullable": c.nullable} for c in self.columns]

    @classmethod
    def from_json(cls, columns: list[dict[str, Any]]) -> Self:
        """The inverse."""
        return cls(tuple(Column(c["name"], ColumnType.from_json(c["type"]), c["nullable"]) for c in columns))


def _bytes_for(largest: int) -> int:
    return next(size for size in (1, 2, 4, 8) if largest < 1 << (8 * size - 1))
