"""Running statements: `Runner.run` binds one, asks the enclave, and lets DuckDB do the rest at the owner's side.

What is asked of the enclave, and so what the provider sees, is fixed when the statement is bound. For the owner alone.
"""

import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from scumble.errors import BadQuery, Overflow, QueryError, TooManyPlans
from scumble.owner.answers import GroupReader, Result, Row, matching_rows
from scumble.owner.local_plans import LocalRows
from scumble.owner.session import Session
from scumble.sql import GROUPS, AggregateQuery, Bound, Fetch, RowQuery, Statement, TableAccess
from scumble.types import arrow_schema, uuids_of
from scumble.wire.catalog import Table
from scumble.wire.plan import Plan
from scumble.wire.requests import ForgetPlans, Scan

__all__ = ["Description", "LocalSQL", "Runner"]


SETTINGS = (
    "temp_directory = ''",
    "threads = 1",
    "TimeZone = 'UTC'",
    "enable_external_access = false",
    "lock_configuration = true",
)


class Description(NamedTuple):
    """What DuckDB calls the columns of a result, its own types for them, and Arrow's."""

    names: list[str]
    types: list[str]
    arrow: list[pa.DataType]


class LocalSQL:
    """A DuckDB in memory, with one thread, in UTC. It is started by the first statement that needs it, in 15 ms.

    It writes no file: rows that do not fit into memory would lie in the clear in the folder where the program runs.

    Its statements take at most `memory_bytes`, and their results `result_bytes`, if these are given.
    """

    def __init__(self, memory_bytes: int | None = None, result_bytes: int | None = None) -> None:
        self._turn = threading.RLock()
        self._memory_bytes, self._result_bytes = memory_bytes, result_bytes
        self._stopped = False

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(":memory:")
        memory = () if self._memory_bytes is None else (f"memory_limit = '{max(1, self._memory_bytes >> 20)}MiB'",)
        for setting in (*memory, *SETTINGS):
            connection.execute(f"SET {setting}")
        weakref.finalize(self, connection.close)  # DuckDB complains at length about one that is left open
        return connection

    def run(self, sql: str, tables: Mapping[str, pa.Table], parameters: Mapping[str, Any]) -> pa.Table:
        with self._with(tables):
            self.check()
            result = self._connection.sql(sql, params=dict(parameters) or None)
            table = result.to_arrow_table() if self._result_bytes is None else self._collected(result)
            return _with_uuids(table, result)

    def _collected(self, result: duckdb.DuckDBPyRelation) -> pa.Table:
        """A result piece by piece: DuckDB counts the memory of its own work, and not that of what it hands out."""
        pieces, size_bytes = [], 0
        with result.to_arrow_reader(RESULT_ROWS) as reader:
            try:
                for piece in reader:
                    size_bytes += piece.nbytes
                    if size_bytes > (self._result_bytes or 0):
                        raise QueryError(
                            "the result is larger than it may be", hint="ask for fewer rows, or aggregate them"
                        )
                    pieces.append(piece)
            except (pa.ArrowException, OSError) as error:  # DuckDB's own, whose text may quote a row
                self.check()
                raise _refused(duckdb.OutOfMemoryException() if "Memory" in str(error) else duckdb.Error()) from None
            return pa.Table.from_batches(pieces, reader.schema)

    def begin(self) -> None:
        """Begin a statement: what came to stop an earlier one has nothing to do with it."""
        self._stopped = False

    def check(self) -> None:
        if self._stopped:
            raise _stopped()

    def stop(self) -> None:
        """End the statement that is under way, from another thread."""
        self._stopped = True
        if "_connection" in self.__dict__:
            self._connection.interrupt()

    def describe(self, sql: str, tables: Iterable[Table], parameters: Mapping[str, Any]) -> Description:
        """What the result of a query over some tables would be."""
        with self._with({table.name: arrow_schema(table.schema).empty_table() for table in tables}):
            result = self._connection.sql(sql, params=dict(parameters) or None)
            empty = _with_uuids(
                result.limit(0).to_arrow_table(), result
            )  # tables without rows are no bound: SQL can make rows of its own
            return Description(result.columns, list(map(str, result.types)), list(empty.schema.types))

    def evaluate(self, expression: str) -> Any:
        """The value of a constant expression, exactly; any exception means that Python has no such value."""
        with self._turn:
            result = self._connection.sql(f"SELECT {expression}")
            value = _with_uuids(result.to_arrow_table(), result).column(0)[0]
        if value.is_valid and pa.types.is_timestamp(value.type) and value.type.unit == "ns":
            return np.datetime64(value.value, "ns")
        return value.as_py()

    def close(self) -> None:
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


def _with_uuids(table: pa.Table, result: duckdb.DuckDBPyRelation) -> pa.Table:
    """The table of a result with UUIDs, which DuckDB hands out as texts."""
    for place, type_ in enumerate(map(str, result.types)):
        if type_ == "UUID" and pa.types.is_string(table.schema.types[place]):
            found = pa.chunked_array(map(uuids_of, table.column(place).chunks), pa.uuid())
            table = table.set_column(place, pa.field(table.schema.names[place], pa.uuid()), found)
    return table


def _refused(error: duckdb.Error) -> QueryError:
    """DuckDB's own message where it is about the query; only the kind of any error that may quote a row."""
    about_query = (duckdb.BinderException, duckdb.ParserException, duckdb.CatalogException, duckdb.SyntaxException)
    if isinstance(error, about_query):
        return BadQuery(str(error).split("\n\n")[0].strip(), hint="the dialect is DuckDB's")
    if isinstance(error, duckdb.InterruptException):
        return _stopped()
    if isinstance(error, duckdb.OutOfMemoryException):
        return QueryError("the query needs more memory than it may have", hint="join or sort fewer rows")
    kind = type(error).__name__.removesuffix("Exception")
    return QueryError(
        f"DuckDB could not finish the query: {kind} error", hint="a cast or an operation failed on some row's value"
    )


def _stopped() -> QueryError:
    return QueryError("the query was stopped", hint="ask for less, or allow it more time")


RESULT_ROWS = 1 << 16
ANSWER_BYTES = 8 << 20  # of rows in one answer; more come in several
KEPT = 1 << 12  # entries in each cache of what is worked out once for a statement
UNTYPED = "__states"

Parameters = Sequence[Any] | Mapping[str, Any]
Describe = Callable[..., Description]
"""What DuckDB makes of the statement, or of other SQL over the same tables: asked for only where it is needed."""


Added = Callable[[Table], pa.Table | None]
"""The rows of a table that only its owner has, in all of its columns; None for none."""


class Runner:
    """Runs the statements of one version of the database over one session."""

    def __init__(self, session: Session, local: LocalSQL) -> None:
        self._session, self._local = session, local
        self._numbers: dict[int, tuple[Plan, int]] = {}
        self._plans: dict[Plan, int] = {}
        self._readers: dict[AggregateQuery, GroupReader] = {}
        self._descriptions: dict[tuple[str, tuple[type, ...]], Description] = {}

    def run(self, statement: Statement, parameters: Parameters, added: Added | None = None) -> Result:
        """Run a statement. `added` gives further rows of a table, which are here: the enclave is asked the same."""
        self._local.begin()
        bound = statement.bind(parameters)
        query = bound.query
        describe = partial(self._described, query, statement, parameters)
        if isinstance(query, RowQuery):
            fetched = [self._fetched(*each) for each in zip(query.fetches, bound.accesses, strict=True)]
            more = [None if added is None else added(fetch.table) for fetch in query.fetches]
            tables = {
                fetch.name: rows if extra is None else _with_added(rows, extra)
                for fetch, rows, extra in zip(query.fetches, fetched, more, strict=True)
            }
            if query.direct is None or any(extra is not None for extra in more):
                return self._finished_rows(query, tables, bound, describe)
            return _picked(tables[query.fetches[0].name], query.direct, describe())
        groups = self._groups(query, bound.accesses[0], added)
        if query.direct is None:
            return self._finished_groups(query, groups, bound, describe)
        row = tuple([groups[0][number] for number in query.direct])
        return Result(lambda: _table([row], describe()), [row])

    # --- what the enclave answers ------------------------------------------------------------------

    def all_rows(self, statement: Statement, *, tail: bool) -> pa.Table:
        """All rows of a `SELECT * FROM t`: those of the tail alone, or those that are not in it."""
        bound = statement.bind()
        assert isinstance(bound.query, RowQuery)  # noqa: S101  it picks columns
        access = bound.accesses[0]
        scans = tuple(scan for scan in access.scans if scan.run.tail is tail)
        return self._fetched(bound.query.fetches[0], access._replace(scans=scans))

    def _fetched(self, fetch: Fetch, access: TableAccess) -> pa.Table:
        schema = fetch.table.schema
        number = self._number(access.plan)
        row_bytes = 1 + sum(schema.columns[place].answer_row_bytes for place in fetch.columns)
        parts = [
            matching_rows(self._execute(number, scans, access), schema, fetch.columns)
            for scans in _pieces(access, row_bytes)
        ]
        whole = arrow_schema(schema)
        wanted = pa.schema([whole.field(place) for place in fetch.columns])
        return pa.concat_tables([_cast(part, wanted) for part in parts]) if parts else wanted.empty_table()

    def _groups(self, query: AggregateQuery, access: TableAccess, added: Added | None) -> list[Row]:
        answer = self._execute(self._number(access.plan), _scans(access), access)
        more = None if added is None else added(query.table)
        if more is not None:
            answer = LocalRows(more, query.table.schema).added_to(answer, access.plan, access.bounds)
        reader = self._readers.get(query)
        if reader is None:
            _bounded(self._readers)
            reader = self._readers[query] = GroupReader(query.aggregates, query.table.schema, query.outputs)
        return reader.rows(answer)

    def _execute(self, number: int, scans: Sequence[Scan], access: TableAccess) -> memoryview:
        answer = self._session.execute(number, scans, access.bounds)
        self._local.check()
        return answer

    # --- what DuckDB does with it ------------------------------------------------------------------

    def _finished_rows(self, query: RowQuery, tables: dict[str, pa.Table], bound: Bound, describe: Describe) -> Result:
        table = self._local.run(query.final_sql, tables, bound.final_parameters)
        if any(fetch.name in name for fetch in query.fetches for name in table.column_names):
            # DuckDB names an unnamed column after its text, in which our names stand for the tables'.
            table = table.rename_columns(describe().names)
        return Result(lambda: table)

    def _finished_groups(self, query: AggregateQuery, groups: list[Row], bound: Bound, describe: Describe) -> Result:
        """Run what stands around the aggregates, over the groups with the types that DuckDB gives to them."""
        described = describe(query.groups_sql)
        names = [_quoted(name) for name in described.names]
        casts = ", ".join(f"CAST({n} AS {kind}) AS {n}" for n, kind in zip(names, described.types, strict=True))
        sql = f"WITH {GROUPS} AS (SELECT {casts} FROM {UNTYPED}) {query.final_sql}"  # noqa: S608  our own names
        table = self._local.run(sql, {UNTYPED: _table(groups, described)}, bound.final_parameters)
        named = table.rename_columns(describe().names)
        return Result(lambda: named)

    def _described(
        self, query: AggregateQuery | RowQuery, statement: Statement, parameters: Parameters, sql: str | None = None
    ) -> Description:
        sql = statement.sql if sql is None else sql
        given = statement.parameters(parameters)
        key = (sql, tuple(map(type, given.values())))
        known = self._descriptions.get(key)
        if known is None:
            _bounded(self._descriptions)
            used = {name: value for name, value in given.items() if re.search(rf"\${re.escape(name)}\b", sql)}
            known = self._descriptions[key] = self._local.describe(sql, [paths.table for paths in query.paths], used)
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
                self._forget_plans()
            try:
                number = self._session.prepare(plan)
            except TooManyPlans:  # what else was prepared is prepared again when it is needed
                self._forget_plans()
                number = self._session.prepare(plan)
            self._plans[plan] = number
        _bounded(self._numbers)
        self._numbers[id(plan)] = plan, number
        return number

    def _forget_plans(self) -> None:
        self._session.ask(ForgetPlans())
        self._plans.clear()
        self._numbers.clear()


def _with_added(fetched: pa.Table, more: pa.Table) -> pa.Table:
    """What was fetched, and the further rows, all of them: DuckDB tests every condition again."""
    return pa.concat_tables([fetched, _cast(more.select(fetched.column_names), fetched.schema)])


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table if table.schema.equals(schema) else table.cast(schema)


def _bounded(known: dict[Any, Any]) -> None:
    """Forget everything rather than grow without limit."""
    if len(known) >= KEPT:
        known.clear()


def _picked(table: pa.Table, direct: tuple[int, ...], described: Description) -> Result:
    """The answer of a SELECT that only picks columns, under the names and types that DuckDB would give them."""
    picked = table.select(list(direct)).rename_columns(described.names)
    typed = _cast(picked, pa.schema(list(zip(described.names, described.arrow, strict=True))))
    return Result(lambda: typed)


def _table(rows: list[Row], described: Description) -> pa.Table:
    columns = [[row[number] for row in rows] for number in range(len(described.names))]
    try:
        arrays = [pa.array(values, kind) for values, kind in zip(columns, described.arrow, strict=True)]
    except pa.ArrowException:  # its text has the value
        raise Overflow("a result leaves the type that SQL gives to it", hint="cast to a wider type") from None
    return pa.table(arrays, names=described.names)


def _scans(access: TableAccess) -> list[Scan]:
    runs = access.paths.table.runs
    return [Scan(runs.index(scan.run), scan.predicate, scan.pages) for scan in access.scans]


def _pieces(access: TableAccess, row_bytes: int) -> Iterator[list[Scan]]:
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
