"""Running statements: a bound statement comes in; the enclave is asked, DuckDB does the rest, and a result goes out.

For the owner alone. What is asked of the enclave, and so what the provider sees, was fixed when the statement was
bound.
"""

import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from scumble.errors import BadQuery, Overflow, QueryError
from scumble.owner.answers import GroupReader, Result, matching_rows
from scumble.owner.versions import Session
from scumble.sql import GROUPS, Access, AggregateQuery, Bound, Fetch, RowQuery, Statement
from scumble.types import arrow_schema
from scumble.wire.catalog import Table
from scumble.wire.plan import Plan
from scumble.wire.requests import Scan

__all__ = ["Description", "LocalSQL", "Runner"]


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


ANSWER_BYTES = 8 << 20  # of rows in one answer; more come in several
KEPT = 1 << 12  # of whatever is worked out once for a statement
UNTYPED = "__states"

Parameters = Sequence[Any] | Mapping[str, Any]
Values = Callable[[], dict[str, Any]]
"""The parameters by name: asked for only where DuckDB needs them."""


class Runner:
    """Runs the statements of one version of the database over one session."""

    def __init__(self, session: Session, local: LocalSQL) -> None:
        self._session, self._local = session, local
        self._numbers: dict[int, tuple[Plan, int]] = {}
        self._plans: dict[Plan, int] = {}
        self._readers: dict[AggregateQuery, GroupReader] = {}
        self._descriptions: dict[tuple[str, tuple[type, ...]], Description] = {}

    def run(self, statement: Statement, parameters: Parameters) -> Result:
        """Answer a statement."""
        bound = statement.bind(parameters)
        if isinstance(bound.query, RowQuery):
            return self._rows(bound.query, bound, lambda: statement.parameters(parameters), statement.sql)
        return self._aggregates(bound.query, bound, lambda: statement.parameters(parameters), statement.sql)

    # --- rows --------------------------------------------------------------------------------------

    def _rows(self, query: RowQuery, bound: Bound, values: Values, sql: str) -> Result:
        tables = {
            fetch.name: self._fetch(fetch, access) for fetch, access in zip(query.fetches, bound.accesses, strict=True)
        }
        if query.direct is not None:
            (fetch,), described = query.fetches, self._described(sql, [query.fetches[0].table], values)
            picked = tables[fetch.name].select(list(query.direct)).rename_columns(described.names)
            typed = _cast(picked, pa.schema(list(zip(described.names, described.arrow, strict=True))))
            return Result(lambda: typed)
        table = self._local.run(query.final_sql, tables, bound.final_parameters)
        if any(fetch.name in name for fetch in query.fetches for name in table.column_names):
            # DuckDB names an unnamed column after its text, in which our names stand for the tables'.
            table = table.rename_columns(self._described(sql, [fetch.table for fetch in query.fetches], values).names)
        return Result(lambda: table)

    def _fetch(self, fetch: Fetch, access: Access) -> pa.Table:
        schema = fetch.table.schema
        number = self._number(access.plan)
        row_bytes = 1 + sum(schema.columns[place].page_row_bytes for place in fetch.columns)
        parts = [
            matching_rows(self._session.execute(number, scans, access.bounds), schema, fetch.columns)
            for scans in _pieces(access, row_bytes)
        ]
        whole = arrow_schema(schema)
        wanted = pa.schema([whole.field(place) for place in fetch.columns])
        return pa.concat_tables([_cast(part, wanted) for part in parts]) if parts else wanted.empty_table()

    # --- aggregates --------------------------------------------------------------------------------

    def _aggregates(self, query: AggregateQuery, bound: Bound, values: Values, sql: str) -> Result:
        (access,) = bound.accesses
        answer = self._session.execute(self._number(access.plan), _scans(access), access.bounds)
        reader = self._readers.get(query)
        if reader is None:
            _bounded(self._readers)
            reader = self._readers[query] = GroupReader(query.aggregates, query.table.schema, query.outputs)
        rows = reader.rows(answer)
        if query.direct is not None:
            direct = [tuple([rows[0][place] for place in query.direct])]
            return Result(lambda: _table(direct, self._described(sql, [query.table], values)), direct)
        described = self._described(query.groups_sql, [query.table], values)
        table = self._finished(query, _table(rows, described), bound, described)
        named = table.rename_columns(self._described(sql, [query.table], values).names)
        return Result(lambda: named)

    def _finished(self, query: AggregateQuery, groups: pa.Table, bound: Bound, described: Description) -> pa.Table:
        """Let DuckDB do what stands around the aggregates, over the groups with the types that it gives to them."""
        names = [_quoted(name) for name in described.names]
        casts = ", ".join(f"CAST({n} AS {kind}) AS {n}" for n, kind in zip(names, described.types, strict=True))
        sql = f"WITH {GROUPS} AS (SELECT {casts} FROM {UNTYPED}) {query.final_sql}"  # noqa: S608  our own names
        return self._local.run(sql, {UNTYPED: groups}, bound.final_parameters)

    def _described(self, sql: str, tables: Sequence[Table], values: Values) -> Description:
        given = values()
        key = (sql, tuple(map(type, given.values())))
        known = self._descriptions.get(key)
        if known is None:
            _bounded(self._descriptions)
            used = {name: value for name, value in given.items() if re.search(rf"\${re.escape(name)}\b", sql)}
            known = self._descriptions[key] = self._local.describe(sql, tables, used)
        return known

    # --- plans -------------------------------------------------------------------------------------

    def _number(self, plan: Plan) -> int:
        """The enclave's number for a plan; plans of the same shape share one."""
        known = self._numbers.get(id(plan))
        if known is not None:
            return known[1]
        number = self._plans.get(plan)
        if number is None:
            if len(self._plans) >= KEPT:
                self._session.task("forget")
                self._plans.clear()
                self._numbers.clear()
            number = self._plans[plan] = self._session.prepare(plan)
        _bounded(self._numbers)
        self._numbers[id(plan)] = plan, number
        return number


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table if table.schema.equals(schema) else table.cast(schema)


def _bounded(known: dict[Any, Any]) -> None:
    """Forget everything rather than grow without limit."""
    if len(known) >= KEPT:
        known.clear()


def _table(rows: list[tuple[Any, ...]], described: Description) -> pa.Table:
    columns = [[row[place] for row in rows] for place in range(len(described.names))]
    try:
        arrays = [pa.array(values, kind) for values, kind in zip(columns, described.arrow, strict=True)]
    except pa.ArrowException:  # its text has the value
        raise Overflow("a result leaves the type that SQL gives to it", hint="cast to a wider type") from None
    return pa.table(arrays, names=described.names)


def _scans(access: Access) -> list[Scan]:
    runs = access.paths.table.runs
    return [Scan(runs.index(scan.run), scan.predicate, scan.pages) for scan in access.scans]


def _pieces(access: Access, row_bytes: int) -> Iterator[list[Scan]]:
    """The scans of a fetch, cut so that no answer is too large. Where they are cut depends on public sizes only."""
    piece: list[Scan] = []
    room = ANSWER_BYTES
    for run, predicate, pages in _scans(access):
        page_bytes = access.paths.table.runs[run].page_rows * row_bytes
        for first, count in pages:
            at, end = first, first + count
            while at < end:
                take = min(end - at, max(1, room // page_bytes))
                piece.append(Scan(run, predicate, ((at, take),)))
                at, room = at + take, room - take * page_bytes
                if room < page_bytes:
                    yield piece
                    piece, room = [], ANSWER_BYTES
    if piece:
        yield piece


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
