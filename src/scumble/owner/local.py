"""Local SQL: tables that were fetched, or aggregates, come in; DuckDB runs the rest of a statement over them.

This is the owner's own machine, and may see everything that was asked for. DuckDB gets no access to files or the
network.
"""

import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from scumble.boundary.catalog import Table
from scumble.errors import BadQuery, QueryError
from scumble.schema.arrow import arrow_schema

__all__ = ["Description", "LocalSQL"]

SETTINGS = ("threads = 1", "TimeZone = 'UTC'", "enable_external_access = false", "lock_configuration = true")


class Description(NamedTuple):
    """What DuckDB calls the columns of a result, its own types for them, and Arrow's."""

    names: list[str]
    types: list[str]
    arrow: list[pa.DataType]


class LocalSQL:
    """A DuckDB in memory, one thread of it, in UTC. It begins with the first statement that has to have it: 15 ms."""

    def __init__(self) -> None:
        self._turn = threading.RLock()

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(":memory:")
        for setting in SETTINGS:
            connection.execute(f"SET {setting}")
        weakref.finalize(self, connection.close)  # DuckDB complains at length about one that is left open
        return connection

    def run(self, sql: str, tables: Mapping[str, pa.Table], parameters: Mapping[str, Any]) -> pa.Table:
        """Run a query over some tables."""
        with self._with(tables):
            return self._connection.sql(sql, params=dict(parameters) or None).to_arrow_table()

    def describe(self, sql: str, tables: Iterable[Table], parameters: Mapping[str, Any]) -> Description:
        """What the result of a query over some tables would be."""
        with self._with({table.name: arrow_schema(table.schema).empty_table() for table in tables}):
            result = self._connection.sql(sql, params=dict(parameters) or None)
            return Description(result.columns, list(map(str, result.types)), list(result.to_arrow_table().schema.types))

    def evaluate(self, expression: str) -> Any:
        """The value of a constant expression, exactly; any exception means that Python has no such value."""
        with self._turn:
            value = self._connection.sql(f"SELECT {expression}").to_arrow_table().column(0)[0]
        if value.is_valid and pa.types.is_timestamp(value.type) and value.type.unit == "ns":
            return np.datetime64(value.value, "ns")
        return value.as_py()

    def close(self) -> None:
        """Let go of it."""
        if "_connection" in self.__dict__:
            self._connection.close()

    @contextmanager
    def _with(self, tables: Mapping[str, pa.Table]) -> Iterator[None]:
        with self._turn:
            try:
                for name, table in tables.items():
                    self._connection.register(name, table)
                yield
            except duckdb.Error as error:
                raise _refused(error) from None
            finally:
                for name in tables:
                    self._connection.unregister(name)


def _refused(error: duckdb.Error) -> QueryError:
    """DuckDB's own words where they are about the query; of anything that may quote a row, only what kind it was."""
    about_query = (duckdb.BinderException, duckdb.ParserException, duckdb.CatalogException, duckdb.SyntaxException)
    if isinstance(error, about_query):
        return BadQuery(str(error).split("\n\n")[0].strip(), hint="the dialect is DuckDB's")
    kind = type(error).__name__.removesuffix("Exception")
    return QueryError(
        f"DuckDB could not finish the query: {kind} error", hint="a cast or an operation failed on some row's value"
    )
