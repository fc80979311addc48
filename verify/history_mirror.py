"""DuckDB with the same tables as the database that a history goes to, and the tables' public shapes."""

# ruff: noqa: S608  statements are made of parts here

from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

__all__ = ["INDEXES", "REFUSED", "Mirror", "Row", "TableShape"]

Row = tuple[Any, ...]
REFUSED = "refused"
KINDS = {
    "id": ("bigint not null", "BIGINT"),
    "day": ("date", "DATE"),
    "amount": ("decimal(9,2)", "DECIMAL(9,2)"),
    "kind": ('category(["a","b","c"])', "VARCHAR"),
    "note": ("text(12)", "VARCHAR"),
    "flag": ("boolean", "BOOLEAN"),
    "more": ("integer", "INTEGER"),
}
DECLARED = {"kind": "enum('a', 'b', 'c')"}  # as CREATE TABLE spells it, where that is not as a load does
FIRST = ("id", "day", "amount", "kind", "note", "flag")
INDEXES = {
    "id": ("int:0:511", "epsilon=1 slack=lossless"),
    "day": ("date:2020-01-01:2020-03-31", "epsilon=1 beta=1e-12"),
    "more": ("int:0:15", "epsilon=1 beta=1e-12"),
}


@dataclass
class TableShape:
    """PUBLIC: a table's name, its columns as they are called now, in their order, and those with an index."""

    name: str
    names: dict[str, str] = field(default_factory=lambda: {column: column for column in FIRST})
    indexed: list[str] = field(default_factory=lambda: ["id", "day"])
    room: int = 0

    def __getitem__(self, column: str) -> str:
        return self.names[column]

    def terms(self) -> list[str]:
        """Its indexes, as a load takes them."""
        return [f"{self[column]} {' '.join(INDEXES[column])}" for column in self.indexed]

    def definition(self) -> str:
        """The statement that makes it."""
        columns = ", ".join(f"{self[each]} {DECLARED.get(each, KINDS[each][0])}" for each in self.names)
        terms = ", ".join(f"index = '{term}'" for term in self.terms())
        return f"CREATE TABLE {self.name} ({columns})" + (f" WITH ({terms})" if terms else "")

    def types(self) -> dict[str, str]:
        return {self[column]: KINDS[column][0] for column in self.names}


class Mirror:
    """DuckDB with the same tables."""

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET threads = 1")

    def make(self, shape: TableShape) -> None:
        columns = ", ".join(f"{shape[each]} {KINDS[each][1]}" for each in shape.names)
        self._connection.execute(f"CREATE TABLE {shape.name} ({columns})")

    def change(self, *statements: str, params: Row = ()) -> int | str:
        """Carry statements out; how many rows the last one has changed, or REFUSED, with nothing done."""
        try:
            for statement in statements[:-1]:
                self._connection.execute(statement)
            found = self._connection.execute(statements[-1], list(params)).fetchall()
        except (duckdb.ConversionException, duckdb.OutOfRangeException):
            return REFUSED
        return int(found[0][0]) if found else 0

    def add(self, shape: TableShape, rows: list[Row]) -> int:
        marks = ", ".join("(" + ", ".join("?" for _ in shape.names) + ")" for _ in rows)
        values = tuple(value for row in rows for value in row)
        count = self.change(f"INSERT INTO {shape.name} VALUES {marks}", params=values)
        assert isinstance(count, int)
        return count

    def upsert(self, shape: TableShape, pairs: list[tuple[int, str]], *, update: bool) -> int:
        """Change all rows with these keys, which need not be unique, and add the others."""
        name, key, note = shape.name, shape["id"], shape["note"]
        values = ", ".join(f"({number}, '{text}')" for number, text in pairs)
        new = f"INSERT INTO {name} ({key}, {note}) SELECT a, b FROM (VALUES {values}) v(a, b) WHERE a NOT IN"
        there = f"SELECT {key} FROM {name}"
        changed = f"UPDATE {name} SET {note} = v.b FROM (VALUES {values}) v(a, b) WHERE {name}.{key} = v.a"
        counts = [self.change(changed) if update else 0, self.change(f"{new} ({there})")]
        return sum(int(count) for count in counts)

    def ask(self, query: str) -> list[Row]:
        return sorted(self._connection.execute(query).fetchall(), key=repr)

    def arrow(self, query: str) -> pa.Table:
        return self._connection.sql(query).to_arrow_table()

    def put_back(self, name: str, rows: pa.Table) -> None:
        """Make a table hold these rows, and have their columns."""
        self._connection.register("kept", rows)
        self._connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM kept")
        self._connection.unregister("kept")

    def drop(self, name: str) -> None:
        self._connection.execute(f"DROP TABLE {name}")
