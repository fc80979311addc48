"""The database as its owner, or an analyst, uses it: load tables, ask SQL, get exact answers.

It runs on the machine of the key's holder and may see everything that the key opens: all for the owner, what was
granted for an analyst. What leaves for the provider is sealed; what comes back is opened and checked.
"""

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from scumble.errors import Busy, InvalidParameter, ScumbleError, Unavailable, Unfinished, Unwitnessed
from scumble.owner.custody import amounts
from scumble.owner.indexes import IndexSpec
from scumble.owner.keys import OwnerKey
from scumble.owner.policies import Policies
from scumble.owner.statements import Prepared, Statements
from scumble.owner.versions import begin
from scumble.wire.catalog import LIVE, TALLY, Run, Table
from scumble.wire.requests import CheckChain, CheckPages, DropTable, Vacuum
from scumble.wire.storage import Service

if TYPE_CHECKING:
    from scumble.owner.changing import ChangeReport
    from scumble.owner.loading import Attempt, LoadOptions, LoadReport, Progress
    from scumble.sql.definitions import Definition

__all__ = ["Database", "Prepared"]

CHECKED_PAGES = 256  # at a time
LOAD_TRIES = 3


def _silent(what: str, done: int, total: int | None) -> None:
    """Report no progress."""


class Database(Statements):
    """An encrypted database, in a folder or at a service. `scumble.open` and `scumble.create` return one.

    >>> with scumble.open("clinic") as db:
    ...     db.load("visits", "visits.parquet", indexes=["amount decimal:0:100000:0.01 epsilon=0.5"])
    ...     db.sql("SELECT count(*), avg(amount) FROM visits WHERE amount > ?", [100]).df()

    It always shows the newest version: what another process has loaded is there in the next query. Threads may share
    it. Every error is a `ScumbleError`; an operation that fails leaves the database as it was. An analyst, who opens it
    with an identity of its own, can do what the owner granted and gets `Refused` for the rest.
    """

    @classmethod
    def begin(
        cls, service: Service, key: OwnerKey, key_path: Path, policy: bytes = b"", policies: Policies | None = None
    ) -> Self:
        """Make the first, empty version of a database, and open it."""
        begin(service, key, key_path, policy)
        return cls(service, key, key_path, policies=policies)

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

    def _indexed(self, definition: "Definition") -> "ChangeReport":
        from scumble.owner.changing import ChangeReport
        from scumble.owner.reindexing import Indexing

        attempt = self._new_attempt()
        work = Indexing(self._versions, lambda: self._runner, self._statement, attempt)
        report = self._tried(lambda: self._held_load(lambda: work.run(definition, self.ledger)), attempt)
        return ChangeReport(work.kind, report.table, report.rows)

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(table.name for table in self._versions.catalog.tables)
        return f"<Database version {self.version}: {names or 'empty'}>"


def _hidden(run: Run) -> tuple[int, ...]:
    """What a run has beside the table's columns."""
    return (*((LIVE,) if run.has_dead else ()), *(() if run.tally is None else (TALLY,)))
