"""The statements of an open database: queries are answered, changes carried out, alone or several as one version.

It runs on the machine of the key's holder: text, parameters and answers are SECRET. `Database` (owner/database.py) is
this and what is done with whole tables.
"""

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from scumble.errors import Busy, InvalidParameter, Unavailable, UnsupportedQuery
from scumble.owner.streaming import Streaming
from scumble.wire.catalog import Catalog, Streamed

if TYPE_CHECKING:
    from scumble.owner.answers import Result
    from scumble.owner.changing import ChangeReport, Changes
    from scumble.owner.queries import LocalSQL, Parameters, Runner
    from scumble.sql import Statement
    from scumble.sql.definitions import Definition
    from scumble.sql.explain import Explanation
    from scumble.sql.parse import Parsed

__all__ = ["Prepared", "Statements"]

T = TypeVar("T")

KEPT_STATEMENTS = 256


class Statements(Streaming):
    """A database that statements are sent to."""

    automatic = True
    """Whether runs are merged by size as rows are added: when that is done is public, and it costs no epsilon."""
    _transaction: ExitStack | None = None
    """What is given back when the transaction that is under way ends."""
    _half_done = False
    """Whether a statement of the transaction has failed after it had changed something."""
    _defines = False
    """Whether it has made or dropped anything but rows."""

    # --- queries -----------------------------------------------------------------------------------

    def sql(self, query: str, params: "Parameters" = ()) -> "Result":
        """Answer a SELECT in DuckDB's dialect, exactly.

        `?` takes parameters from a sequence, `$name` from a mapping. The result has `fetchall()`, `df()`, `arrow()` and
        more. SQL that cannot be answered exactly raises a `QueryError` that underlines the part in question.
        """
        with self._turn:
            return self._versions.retrying(lambda: self._runner.run(self._statement(query), params, self._waiting))

    def prepare(self, query: str) -> "Prepared":
        """Parse and plan a query once, to run it many times with other parameters."""
        with self._turn:
            self._versions.retrying(lambda: self._statement(query))
        return Prepared(self, query)

    def explain(self, query: str, params: "Parameters" = (), *, capacity: int | None = None) -> "Explanation":
        """Say what a statement would read, or change, and what the provider would see of it, without running it.

        For a statement that changes rows, it is a `ChangeExplanation`, and for one that defines something a
        `DefinitionExplanation`; `capacity` is as for `execute`.
        """
        from scumble.sql.definitions import definition_of
        from scumble.sql.explain import explain
        from scumble.sql.parse import is_query, parse

        with self._turn:
            if is_query(query):
                return self._versions.retrying(lambda: explain(self._statement(query).bind(params)))
            if (definition := definition_of(query)) is not None:
                return self._versions.retrying(lambda: self._explained(definition, params))
            parsed = parse(query, change=True)
            return self._versions.retrying(lambda: self._changes.explained(parsed, params, capacity))

    def _explained(self, definition: "Definition", params: "Parameters") -> "Explanation":
        from scumble.owner.reindexing import index_epsilon, needs_rows
        from scumble.sql.definitions import NewIndex, NewTable, Reindexing
        from scumble.sql.explain import explain
        from scumble.sql.explain_definitions import explain_definition

        catalog = self._versions.catalog
        query = definition.query if isinstance(definition, NewTable) else None
        read = None if query is None else explain(self._statement(query).bind(params))
        if isinstance(definition, NewIndex | Reindexing) and needs_rows(definition, catalog):
            name = catalog.table(definition.table).name.replace('"', '""')
            all_rows = explain(self._statement(f'SELECT * FROM "{name}"').bind())  # noqa: S608  a name
            read = replace(all_rows, owner_sql=None)
        return explain_definition(definition, catalog, index_epsilon(definition, catalog), read)

    def limit_local(self, memory_bytes: int, result_bytes: int) -> None:
        """From now on, let what DuckDB does here take so much memory, and a result so many bytes."""
        from scumble.owner.queries import LocalSQL

        with self._turn:
            self.__dict__.pop("_runner", None)
            self.__dict__["_local"] = LocalSQL(memory_bytes, result_bytes)

    def stop(self) -> None:
        """Stop the query that is under way in another thread, which then raises a `QueryError`.

        What the enclave is asked at that moment is answered first.
        """
        if "_local" in self.__dict__:
            self._local.stop()

    def _statement(self, query: str) -> "Statement":
        known = self._statements.get(query)
        if known is None:
            from scumble.sql import prepare
            from scumble.sql.views import expanded

            text = expanded(query, self._versions.views)
            known = prepare(text, self._versions.catalog, self._local.evaluate)
            if len(self._statements) >= KEPT_STATEMENTS:
                self._statements.popitem(last=False)
            self._statements[query] = known
        return known

    # --- changes -----------------------------------------------------------------------------------

    def execute(
        self, statement: str, params: "Parameters" = (), *, capacity: int | None = None
    ) -> "Result | ChangeReport":
        """Carry out any statement: a query like `sql`, or one that changes something.

        INSERT, UPDATE, DELETE, CREATE, DROP, ALTER and TRUNCATE make a version of their own, unless they stand between
        BEGIN and COMMIT. None costs epsilon but those that make indexes. The report has how many rows were changed,
        which the provider does not learn. `capacity` is a public bound on the rows of an INSERT from a query.
        """
        from scumble.sql.definitions import definition_of
        from scumble.sql.parse import is_query, parse

        if is_query(statement):
            return self.sql(statement, params)
        if (definition := definition_of(statement)) is not None:
            return self._defined(definition, params, capacity)
        parsed = parse(statement, change=True)
        with self._turn:
            if (report := self._control(parsed)) is not None:
                return report
            return self._changed_by(lambda changes: self._run_change(changes, parsed, params, capacity))

    def _defined(self, definition: "Definition", params: "Parameters", capacity: int | None) -> "ChangeReport":
        """Carry out a statement that defines something."""
        from scumble.owner.reindexing import needs_rows

        self._versions.key.as_owner()
        with self._turn:
            self._versions.refresh()
            if needs_rows(definition, self._versions.catalog):
                if self._transaction is not None:
                    raise InvalidParameter(
                        "an index of rows that are there is no part of a transaction: what it costs is stored in a "
                        "version of its own before anything is drawn, and no ROLLBACK could take that back",
                        hint="COMMIT or ROLLBACK it first, and make the index then",
                    )
                return self._indexed(definition)
            return self._changed_by(lambda changes: self._define(changes, definition, params, capacity))

    @abstractmethod
    def _indexed(self, definition: "Definition") -> "ChangeReport":
        """Make an index of rows that are there, which is paid for."""

    def _define(
        self, changes: "Changes", definition: "Definition", params: "Parameters", capacity: int | None
    ) -> "ChangeReport":
        from scumble.owner.defining import Defining

        self._defines = True
        return Defining(self._versions, self._local, changes).run(definition, params, capacity)

    def execute_many(self, statement: str, sets: "Iterable[Parameters]") -> "ChangeReport":
        """Carry out a statement that changes rows with many sets of parameters, as one change.

        An INSERT of one row of VALUES is done once with all rows, which go to the tail together.
        """
        from scumble.sql.parse import is_control, is_query, parse

        if is_query(statement) or is_control(statement):
            raise UnsupportedQuery("only a change takes many sets of parameters", hint="execute a query for each set")
        parsed, given = parse(statement, change=True), list(sets)
        return self._changed_by(lambda changes: changes.run_many(parsed, given))

    def insert(self, table: str, rows: object, *, capacity: int | None = None, batch: str | None = None) -> int:
        """Insert rows into a table: a frame, a file, or a list of dictionaries or tuples. It costs no epsilon.

        They go to the table's tail, which every query reads whole, in units of 256 rows: `capacity` states how many
        there is room for, if the number of units shall not follow from the rows. Under the name of a `batch`, 32
        hexadecimal digits, rows are inserted once, however often that is tried. Returns how many were inserted.
        """
        return self._inserted(table, rows, capacity, batch, None)

    def _inserted(
        self, table: str, rows: object, capacity: int | None, batch: str | None, streamed: Streamed | None
    ) -> int:
        def work(changes: "Changes") -> int:
            before = self._versions.catalog
            return self._tidied(before, table, changes.insert(table, rows, capacity, batch, streamed))

        return self._changed_by(work)

    def update(self, table: str, rows: object, *, keys: Sequence[str]) -> int:
        """Change many rows in one pass: those with the `keys` of a row get its other columns; how many there were."""
        return self._changed_by(lambda changes: changes.update(table, rows, keys))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make one version of all changes in a `with` block, or none if it fails; readers see the old one until then.

        Other threads wait meanwhile. What was done in it is seen by its own queries.
        """
        with ExitStack() as held:
            self._begin_transaction(held)
            try:
                yield
            except BaseException:
                self._end_transaction(settled=False)
                raise
            self._end_transaction(settled=True)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is under way, by BEGIN or in a `with` block."""
        return self._transaction is not None

    def _begin_transaction(self, held: ExitStack) -> None:
        held.enter_context(self._turn)
        if self._transaction is not None:
            raise InvalidParameter("a transaction is under way", hint="COMMIT or ROLLBACK it first")
        held.enter_context(self._changing())
        if self._logged:
            self._log_changes.begin()
        self._transaction, self._half_done = held, False

    def _end_transaction(self, *, settled: bool) -> None:
        self._transaction = None
        is_settled = False
        try:
            if settled and self._half_done:
                raise InvalidParameter(
                    "a statement of the transaction has failed half-way: all of it is rolled back",
                    hint="begin it again, without that statement",
                )
            if settled:
                self._versions.settle(self._log_changes.offer)
                is_settled = True
                if self._defines:
                    self._delete_dropped()
        finally:
            self._log_changes.end(settled=is_settled)
            self._defines = False
            self._versions.roll_back()

    def _control(self, parsed: "Parsed") -> "ChangeReport | None":
        """Carry out BEGIN, COMMIT or ROLLBACK; None for any other statement."""
        from sqlglot import exp

        from scumble.owner.changing import ChangeReport

        match parsed.tree:
            case exp.Transaction():
                with ExitStack() as held:
                    self._begin_transaction(held)
                    self._transaction = held.pop_all()
                return ChangeReport("BEGIN", "", 0)
            case exp.Commit() | exp.Rollback() as ending:
                if self._transaction is None:
                    raise InvalidParameter("no transaction is under way", hint="BEGIN one first")
                with self._transaction:
                    self._end_transaction(settled=isinstance(ending, exp.Commit))
                return ChangeReport(ending.key.upper(), "", 0)
        return None

    def _run_change(
        self, changes: "Changes", parsed: "Parsed", params: "Parameters", capacity: int | None
    ) -> "ChangeReport":
        before, report = self._versions.catalog, changes.run(parsed, params, capacity)
        return self._tidied(before, report.table, report) if report.statement == "INSERT" else report

    def _changed_by(self, work: "Callable[[Changes], T]") -> T:
        """Make changes, within the transaction that is under way or one of their own."""
        with self._turn:
            if self._transaction is not None:
                before = self._versions.catalog.to_json()
                try:
                    return work(self._changes)
                except BaseException:
                    self._half_done = self._half_done or self._versions.catalog.to_json() != before
                    raise
            with self.transaction():
                return work(self._changes)

    @cached_property
    def _changes(self) -> "Changes":
        from scumble.owner.changing import Asking, Changes

        return Changes(self._versions, self._local, Asking(self._statement, self.sql), self._log_changes)

    def _tidied(self, before: Catalog, table: str, result: T) -> T:
        """Merge what is due by size within the transaction that has added rows to a table, and pass on its result."""
        from scumble.owner.compacting import may_become_due, merge_tiers

        if self.automatic and may_become_due(before.table(table)):
            merge_tiers(self._versions, table)
        return result

    def _delete_dropped(self) -> None:
        with suppress(Unavailable, Busy):  # then the next writer does it
            self._versions.service.drop_unreferenced()

    def close(self) -> None:
        """Roll back what is not committed, end the session and close every file."""
        if self._transaction is not None:
            with self._transaction:
                self._end_transaction(settled=False)
        if "_local" in self.__dict__:
            self._local.close()
        super().close()

    # --- made when needed -------------------------------------------------------------------------

    def _changed(self) -> None:
        self._statements: OrderedDict[str, Statement] = OrderedDict()
        self.__dict__.pop("_runner", None)
        super()._changed()

    @cached_property
    def _local(self) -> "LocalSQL":
        from scumble.owner.queries import LocalSQL

        return LocalSQL()

    @cached_property
    def _runner(self) -> "Runner":
        from scumble.owner.queries import Runner

        return Runner(self._versions.session, self._local)


class Prepared:
    """A query that was parsed and planned. When the database changes it is planned again."""

    def __init__(self, database: Statements, query: str) -> None:
        self._database, self.query = database, query

    def execute(self, params: "Parameters" = ()) -> "Result":
        return self._database.sql(self.query, params)

    def __repr__(self) -> str:
        return f"<Prepared: {self.query}>"
