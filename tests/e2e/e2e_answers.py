"""Answers held against DuckDB's on the plaintext: names, types and rows, exact but for sums of floats."""

import math
import threading
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from scumble.errors import QueryError
from scumble.owner.database import Database

RELATIVE = 1e-9
Params = Sequence[Any] | Mapping[str, Any]


class Plain:
    """DuckDB over the plaintext, in UTC, one thread: what answers are compared with."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self.connection = duckdb.connect(":memory:")
        self.connection.execute("SET TimeZone = 'UTC'")
        self.connection.execute("SET threads = 1")
        self._turn = threading.Lock()
        for name, table in tables.items():
            self.connection.register(name, table)

    def answer(self, sql: str, params: Params = ()) -> pa.Table:
        with self._turn:
            return self.connection.sql(sql, params=params or None).to_arrow_table()


def difference(db: Database, plain: Plain, sql: str, params: Params = (), *, ordered: bool = False) -> str | None:
    """What is wrong with the answer to a query; None if it is right. What DuckDB refuses may be refused, too."""
    try:
        expected = plain.answer(sql, params)
    except duckdb.Error:
        expected = None
    try:
        found = db.sql(sql, params).arrow()
    except QueryError as error:
        return None if expected is None else f"refused: {type(error).__name__}: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None if expected is None else unlike(found, expected, ordered=ordered)


def unlike(found: pa.Table, expected: pa.Table, *, ordered: bool = False) -> str | None:
    """How a table differs from what it should be; None if it does not."""
    if found.column_names != expected.column_names:
        return f"names: {found.column_names} instead of {expected.column_names}"
    if found.schema.types != expected.schema.types:
        return f"types: {found.schema.types} instead of {expected.schema.types}"
    if len(found) != len(expected):
        return f"rows: {len(found)} instead of {len(expected)}"
    left, right = _rows(found), _rows(expected)
    if not ordered:
        left, right = (sorted(rows, key=lambda row: [*map(_rank, row)]) for rows in (left, right))
    for one, two in zip(left, right, strict=True):
        if not all(map(_same, one, two)):
            return f"row: {one} instead of {two}"
    return None


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    moments = [pa.types.is_timestamp(column.type) for column in table.columns]  # a datetime has no nanoseconds
    columns = [c.cast(pa.int64()) if moment else c for c, moment in zip(table.columns, moments, strict=True)]
    return list(zip(*(column.to_pylist() for column in columns), strict=True)) if columns else [()] * len(table)


def _rank(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (2,)
    if isinstance(value, float):
        if math.isnan(value):
            return (1,)
        return (0, float(f"{value:.6g}") + 0.0)
    return (0, value)


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return (math.isnan(one) and math.isnan(two)) or math.isclose(one, two, rel_tol=RELATIVE, abs_tol=RELATIVE)
    if isinstance(one, Decimal) and isinstance(two, Decimal):
        return one == two
    return type(one) is type(two) and bool(one == two)
