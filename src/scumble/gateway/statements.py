"""Prepared statements: SQL and sets of parameters come in, the Arrow table of all their answers goes out.

They are the owner's, and stay in the gateway.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from scumble.errors import BadQuery, InvalidParameter
from scumble.gateway.databases import Databases
from scumble.gateway.describing import Described

__all__ = ["Prepared", "answer", "prepared"]

MOST_SETS = 10_000
OVERHEAD_BYTES = 1024  # of a statement, at least

Parameters = tuple[Any, ...] | dict[str, Any]


@dataclass(frozen=True)
class Prepared:
    """A statement, the database that it is for, and the parameters that are bound to it."""

    database: str
    sql: str = field(repr=False)
    described: Described
    bound: tuple[Parameters, ...] | None = field(default=None, repr=False)
    bound_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        return OVERHEAD_BYTES + len(self.sql) + self.bound_bytes

    def with_parameters(self, rows: pa.Table) -> "Prepared":
        """The statement with parameters, one set in each row."""
        if len(rows) > MOST_SETS:
            raise InvalidParameter("these are too many sets of parameters", hint=f"bind at most {MOST_SETS:,} at once")
        return replace(self, bound=tuple(self._sets(rows)), bound_bytes=rows.nbytes)

    def _sets(self, rows: pa.Table) -> list[Parameters]:
        sets: list[Parameters] = list(zip(*map(_values, rows.columns), strict=True)) if rows.num_columns else []
        if not self.described.named:
            return sets
        names = self.described.parameters.names
        given = [name.lstrip("$:") for name in rows.column_names]
        if set(given) != set(names):  # not by name, then in the order of the text
            given = names
        if len(given) != rows.num_columns:
            raise BadQuery("the parameters do not fit the query", hint=f"it names these: {', '.join(names)}")
        return [dict(zip(given, one, strict=True)) for one in sets]


def prepared(databases: Databases, sql: str, named: str | None) -> Prepared:
    """Check and describe a statement, and run nothing."""
    name, text = databases.route(sql, named)
    return Prepared(name, text, databases.describer.describe(text, databases[name].tables))


def answer(databases: Databases, statement: Prepared) -> pa.Table:
    """Run a statement with every set of its parameters; the answers one after the other."""
    database = databases[statement.database]
    if statement.bound is None:
        return database.sql(statement.sql).arrow()
    tables = [database.sql(statement.sql, one).arrow() for one in statement.bound]
    if len(tables) == 1:
        return tables[0]
    return _joined(tables, statement.described.schema)


def _joined(tables: Sequence[pa.Table], schema: pa.Schema | None) -> pa.Table:
    if not tables and schema is not None:
        return schema.empty_table()
    if not tables or any(table.schema != tables[0].schema for table in tables):
        raise BadQuery("the sets of parameters have answers of different columns", hint="cast the parameters")
    return pa.concat_tables(tables)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Python's values of parameters; instants of nanoseconds, which it has none for, as numpy's."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns" and column.type.tz is None:
        return [None if not value.is_valid else np.datetime64(value.value, "ns") for value in column]
    values: list[Any] = column.to_pylist()
    return values
