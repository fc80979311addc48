"""The database as its owner, or an analyst, uses it: load tables, ask SQL, get exact answers.

It runs on the machine of the key's holder and may see everything that the key opens: all for the owner, what was
granted for an analyst. What leaves for the provider is sealed; what comes back is opened and checked.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from scumble.errors import Busy, InvalidParameter, ScumbleError, Unavailable, Unfinished, UnsupportedQuery, Unwitnessed
from scumble.owner.custody import amounts
from scumble.owner.indexes import IndexSpec
from scumble.owner.keys import OwnerKey
from scumble.owner.policies import Policies
from scumble.owner.streaming import Streaming
from scumble.owner.versions import begin
from scumble.wire.catalog import LIVE, TALLY, Run, Streamed, Table
from scumble.wire.requests import CheckChain, CheckPages, DropTable, Vacuum
from scumble.wire.storage import Service

if TYPE_CHECKING:
    from scumble.owner.answers import Result
    from scumble.owner.changing import ChangeReport, Changes
    from scumble.owner.loading import Attempt, LoadOptions, LoadReport, Progress
    from scumble.owner.queries import LocalSQL, Parameters, Runner
    from scumble.sql import Statement
    from scumble.sql.definitions import Definition
    from scumble.sql.explain import Explanation
    from scumble.sql.parse import Parsed

__all__ = ["Database", "Prepared"]

T = TypeVar("T")

KEPT_STATEMENTS = 256
CHECKED_PAGES = 256  # at a time
LOAD_TRIES = 3


def _silent(what: str, done: int, total: int | None) -> None:
    """Report no progress."""


class Database(Streaming):
    """An encrypted database, in a folder or at a service. `scumble.open` and `scumble.create` return one.

    >>> with scumble.open("clinic") as db:
    ...     db.load("visits", "visits.parquet", indexes=["amount decimal:0:100000:0.01 epsilon=0.5"])
    ...     db.sql("SELECT count(*), avg(amount) FROM visits WHERE amount > ?", [100]).df()

    It always shows the newest version: what another process has loaded is there in the next query. Threads may share
    it. Every error is a `ScumbleError`; an operation that fails leaves the database as it was. An analyst, who opens it
    with an identity of its own, can do what the owner granted and gets `Refused` for the rest.
    """

    automatic = True
    """Whether runs are merged by size as rows are added: when that is done is public, and it costs no epsilon."""
    _transaction: ExitStack | None = None
    """What is given back when the transaction that is under way ends."""
    _half_done = False
    """Whether a statement of the transaction has failed after it had changed something."""
    _defines = False
    """Whether it has made or dropped anything but rows."""

    @classmethod
    def begin(
        cls, service: Service, key: OwnerKey, key_path: Path, policy: bytes = b"", policies: Policies | None = None
    ) -> Self:
        """Make the first, empty version of a database, and open it."""
        begin(service, key, key_path, policy)
        return cls(service, key, key_path, policies=policies)

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
        from scumble.owner.changing import ChangeReport
        from scumble.owner.reindexing import Indexing, needs_rows

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
                attempt = self._new_attempt()
                work = Indexing(self._versions, lambda: self._runner, self._statement, attempt)
                report = self._tried(lambda: self._held_load(lambda: work.run(definition, self.ledger)), attempt)
                return ChangeReport(work.kind, report.table, report.rows)
            return self._changed_by(lambda changes: self._define(changes, definition, params, capacity))

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
            return self._tidied(table, changes.insert(table, rows, capacity, batch, streamed))

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
        report = changes.run(parsed, params, capacity)
        return self._tidied(report.table, report) if report.statement == "INSERT" else report

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

    # --- tables ------------------------------------------------------------------------------------

    def load(
        self,
        table: str,
        source: object,
        *,
        indexes: Sequence[IndexSpec | str] = (),
        options: "LoadOptions | None" = None,
        progress: "Progress" = _silent,
        **more: Any,
    ) -> "LoadReport":
        """Load rows into a table, which is created if there is none of that name.

        The source is a file (CSV, Parquet, Arrow), a data frame or anything else with an Arrow stream, or a DuckDB or
        PostgreSQL database with `query=`. Types are public: `types=` or `schema=` declares them where the source has
        none of its own, as CSV files and most pandas frames have not (`scumble.suggest` proposes some). Each index,
        like "amount decimal:0:100000:0.01 epsilon=0.5", costs epsilon, and so does the capacity unless it is given; the
        ledger is charged before anything is sent. The fields of `LoadOptions` may be given by name. The costs of a
        table's loads add up, unless `new_rows=True` states that no row is in the table yet; rows that were loaded
        before are refused without `again=True`.

        A load that is refused costs nothing. One whose session is lost is done once or not at all; if it fails after it
        has spent, or nobody can tell what became of it, `Unfinished` says so. To load the same again is safe then: it
        is recognised, and costs nothing more.
        """
        from scumble.owner.loading import LoadOptions, can_reopen, load

        if options is not None and more:
            raise InvalidParameter("options are given twice", hint="as LoadOptions, or by name")
        specs = [IndexSpec.parse(index) if isinstance(index, str) else index for index in indexes]
        chosen, attempt = options or LoadOptions(**more), self._new_attempt()
        specs += () if chosen.schema_file is None else chosen.schema_file.indexes

        def work() -> "LoadReport":
            return load(self._versions, self.ledger, table, source, specs, chosen, progress, attempt)

        report = self._tried(lambda: self._held_load(work), attempt, LOAD_TRIES if can_reopen(source) else 1)
        self._tidy(table)
        return report

    @staticmethod
    def _new_attempt() -> "Attempt":
        from scumble.owner.loading import Attempt

        return Attempt(secrets.token_hex(16))

    def _tried(self, work: "Callable[[], LoadReport]", attempt: "Attempt", tries: int = LOAD_TRIES) -> "LoadReport":
        """Load, again if the session was lost."""
        for left in range(tries - 1, -1, -1):
            try:
                return work()
            except ScumbleError as error:
                if isinstance(error, Unwitnessed) and error.stored:
                    raise  # all of it is done
                if not left or not isinstance(error, Unavailable):
                    raise self._with_spent(error, attempt) from error
        raise AssertionError  # the last try has returned or raised

    def _held_load(self, work: "Callable[[], LoadReport]") -> "LoadReport":
        """Try once, with the database held for writing and the ledger up to date."""
        with self._changing():
            self._reconcile(held=True)
            return work()

    def _with_spent(self, error: ScumbleError, attempt: "Attempt") -> ScumbleError:
        """The error that a load ends with: if anything was spent on its rows, it says how much."""
        loads = self.ledger.loads() if attempt.batches else ()
        drawn = [each for each in loads if each.batch in attempt.batches and each.state == "drawn"]
        if not drawn and not attempt.pending:
            return error
        where = "nobody can tell whether the rows are" if attempt.pending else "the rows are not"
        epsilon = sum((each.epsilon for each in drawn), Fraction(0))
        delta = sum((each.delta for each in drawn), Fraction(0))
        paid = f"; {amounts(epsilon, delta)} stays spent on them"
        return Unfinished(
            f"{error.message}; {where} in the table{paid if drawn else ''}",
            hint="load the same rows on the same terms again: that is recognised, and costs nothing more",
        )

    def flush(
        self, table: str, *, indexes: Sequence[IndexSpec | str] = (), new_rows: bool = False
    ) -> "LoadReport | None":
        """Make a batch with indexes of what was inserted into a table: its tail. None if there is nothing.

        It costs what a load of these rows would. The costs of batches add up, unless `new_rows=True` states that no
        row of the tail was in the table before.
        """
        from scumble.owner.compacting import flush
        from scumble.owner.loading import Attempt

        specs = [IndexSpec.parse(index) if isinstance(index, str) else index for index in indexes]
        attempt = Attempt(secrets.token_hex(16))
        with self._changing():
            self._reconcile(held=True)
            try:
                return flush(self._versions, self.ledger, table, specs, attempt, new_rows=new_rows)
            except ScumbleError as error:
                raise self._with_spent(error, attempt) from error

    def compact(self, table: str, *, all_runs: bool = True) -> int:
        """Make one run of each copy of a table's rows, and one of its tail; how many runs are gone. It costs nothing.

        Lookups then read about as much as after a single load. Without `all_runs`, only what is due by size.
        """
        from scumble.owner.compacting import merge_all, merge_tiers

        with self.transaction():
            gone = (merge_all if all_runs else merge_tiers)(self._versions, table)
        self._drop_unreferenced()
        return gone

    def _tidied(self, table: str, result: T) -> T:
        """Merge what is due by size within the transaction that has added rows, and pass on its result."""
        from scumble.owner.compacting import merge_tiers

        if self.automatic:
            merge_tiers(self._versions, table)
        return result

    def _tidy(self, table: str) -> None:
        """Merge what is due by size, after a load: the rows are there whatever becomes of it."""
        from scumble.owner.compacting import is_due

        with suppress(ScumbleError):
            if self.automatic and is_due(self._versions.catalog.table(table)):
                self.compact(table, all_runs=False)

    def vacuum(self, table: str | None = None) -> None:
        """Overwrite what was deleted, in a table or in all, and drop the pages before: only the owner can.

        Afterwards the provider holds no page with a deleted value, if it keeps none that it was told to delete; backups
        have theirs. A run whose rows were erased is not merged any more.
        """
        self._versions.key.as_owner()
        with self.transaction():
            for each in [table] if table else [there.name for there in self._versions.catalog.tables]:
                if any(run.layers for run in self._versions.catalog.table(each).runs):
                    self._versions.work(Vacuum(each))
        self._drop_unreferenced()

    def _drop_unreferenced(self) -> None:
        with self._changing(), suppress(Unavailable, Busy):  # then the next writer does it
            self._versions.service.drop_unreferenced()

    def drop(self, table: str) -> None:
        """Drop a table and delete its pages. What its indexes have cost stays spent. Only the owner can."""
        self._versions.key.as_owner()
        with self._changing():
            self._versions.change(DropTable(table))
            self._delete_dropped()

    def _delete_dropped(self) -> None:
        with suppress(Unavailable, Busy):  # then the next writer does it
            self._versions.service.drop_unreferenced()

    @property
    def views(self) -> dict[str, str]:
        """The owner's views: for each name in lower case, what it stands for, as it would stand after WITH."""
        with self._turn:
            self._versions.refresh()
            return dict(self._versions.views)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The public facts of every table, in the order of their names: columns, capacity, indexes."""
        with self._turn:
            self._versions.refresh()
            return tuple(sorted(self._versions.catalog.tables, key=lambda table: table.name))

    def table(self, name: str) -> Table:
        """The public facts of one table: columns, capacity, indexes. NotFound if there is none of that name."""
        with self._turn:
            self._versions.refresh()
            return self._versions.catalog.table(name)

    @property
    def version(self) -> int:
        """How many times the database has been changed, its creation included."""
        return self._versions.catalog.version

    @property
    def accepted_restored(self) -> bool:
        """Whether opening it has made a version that takes an older one for the newest, as `accept_restored` allows."""
        return self._versions.accepted_restored

    def check(self, progress: "Progress" = _silent) -> int:
        """Open every page of every table and verify the chain of versions; how many pages, or `Tampered`."""
        with self._turn:
            self._versions.open_newest()
            if self._versions.grant is None:
                self._versions.session.ask(CheckChain())
            runs = [(table, run) for table in self._versions.catalog.tables for run in table.runs]
            columns = [(run, column) for table, run in runs for column in (*table.held(run), *_hidden(run))]
            pages = sum(1 if column == TALLY else run.pages for run, column in columns)
            done = 0
            for run, column in columns:
                of_column = 1 if column == TALLY else run.pages
                for first in range(0, of_column, CHECKED_PAGES):
                    count = min(CHECKED_PAGES, of_column - first)
                    self._versions.session.ask(CheckPages(run.id, column, first, count))
                    done += count
                    progress("checking", done, pages)
            return pages

    def close(self) -> None:
        """End the session and close every file. A `with` block does it at its end."""
        if self._transaction is not None:
            with self._transaction:
                self._end_transaction(settled=False)
        if "_local" in self.__dict__:
            self._local.close()
        super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(table.name for table in self._versions.catalog.tables)
        return f"<Database version {self.version}: {names or 'empty'}>"

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


def _hidden(run: Run) -> tuple[int, ...]:
    """What a run has beside the table's columns."""
    return (*((LIVE,) if run.has_dead else ()), *(() if run.tally is None else (TALLY,)))


class Prepared:
    """A query that was parsed and planned. When the database changes it is planned again."""

    def __init__(self, database: Database, query: str) -> None:
        self._database, self.query = database, query

    def execute(self, params: "Parameters" = ()) -> "Result":
        return self._database.sql(self.query, params)

    def __repr__(self) -> str:
        return f"<Prepared: {self.query}>"
