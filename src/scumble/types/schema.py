"""Columns and schemas: names for types, and what a row of them takes in a page. All of it is public.

A catalog states them as JSON; what earlier tables did not state is as it was then.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from scumble.errors import InvalidParameter, NotFound
from scumble.types.column import ColumnType


@dataclass(frozen=True)
class Column:
    """PUBLIC: a name, a type, and whether nulls may occur.

    Pages say in a bit for each row whether it is null; those of earlier tables in a byte, without `null_bits`.
    """

    name: str
    type: ColumnType
    nullable: bool
    null_bits: bool = True

    @cached_property
    def page_row_bits(self) -> int:
        """How many bits a row takes in a page of this column: its value's, and what says whether it is null."""
        return 8 * self.type.width_bytes + (self.nullable and (1 if self.null_bits else 8))

    @cached_property
    def answer_row_bytes(self) -> int:
        """How many bytes a row takes in an answer: its value's, and one that says whether it is null."""
        return self.type.width_bytes + self.nullable

    def page_bytes(self, rows: int) -> int:
        """How many bytes a page of so many rows, a multiple of eight, has before it is sealed."""
        return rows * self.page_row_bits // 8

    @property
    def declaration(self) -> str:
        """The column's type as `schema_of` takes it."""
        return self.type.declaration + ("" if self.nullable else " not null")


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
            raise NotFound(f"there is no column {name!r}", hint=f"the columns are {names}")
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
        """The columns as JSON; where nulls are bytes, as in earlier tables, nothing is said of them."""
        return [
            {"name": c.name, "type": c.type.to_json(), "nullable": c.nullable}
            | ({"null_bits": True} if c.nullable and c.null_bits else {})
            for c in self.columns
        ]

    @classmethod
    def from_json(cls, columns: list[dict[str, Any]]) -> Self:
        return cls(tuple(map(_stored_column, columns)))


def _stored_column(fields: dict[str, Any]) -> Column:
    type_, nullable = ColumnType.from_json(fields["type"]), fields["nullable"]
    null_bits = fields.get("null_bits", not nullable)
    if not isinstance(null_bits, bool):
        raise TypeError
    return Column(fields["name"], type_, nullable, null_bits)
