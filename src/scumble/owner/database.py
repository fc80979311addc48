"""The database as its owner uses it: tables go in, SQL goes in, exact answers come out.

Everything here is the owner's own, and may see everything. What leaves for the provider is sealed, and what comes back
is opened and checked.
"""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from scumble.boundary.catalog import Catalog, Table
from scumble.boundary.storage import Service
from scumble.errors import InvalidParameter, NotFound, Stale, Tampered
from scumble.owner import key_file
from scumble.owner.anchor import Anchor
from scumble.owner.indexes import IndexSpec
from scumble.owner.key_file import OwnerKey, Passphrase
from scumble.owner.results import Result
from scumble.owner.session import Session
from scumble.privacy.ledger import Ledger

if TYPE_CHECKING:
    from scumble.owner.loading import LoadOptions, LoadReport, Progress
    from scumble.owner.local import LocalSQL
    from scumble.owner.running import Parameters, Runner
    from scumble.sql import Statement
    from scumble.sql.explain import Explanation

__all__ = ["Database", "Prepared"]

KEPT_STATEMENTS = 256
CHECKED_PAGES = 256  # at a time


def _silent(what: str, done: int, total: int | None) -> None:
    """Report no progress."""


class Database:
    """An encrypted database. Get one from `scumble.open` or `scumble.create`; close it, or use it in a `with`.

    Threads may share it. It shows the newest version: what another process has loaded is there in the next query.
    """

    def __init__(self, service: Service, key: OwnerKey, key_path: Path, *, accept_restored: bool = False) -> None:
        self._service, self._key, self._key_path = service, key, key_path
        self._key_print = key_file.fingerprint(key_path)
        self._turn = threading.RLock()
        try:
            self._enter(accept_restored=accept_restored)
        except BaseException:
            service.close()
            raise

    @classmethod
    def begin(cls, service: Service, key: OwnerKey, key_path: Path) -> Self:
        """Make the first, empty version of a database, and open it."""
        session = Session(service, key.database, key_file.data_key(key.root, key.database))
        with service.writer():
            opened = session.task("create")
        session.close()
        _anchor_of(opened).save(key_file.anchor_path(key_path), key_file.anchor_key(key.root, key.database))
        return cls(service, key, key_path)

    # --- queries -----------------------------------------------------------------------------------

    def sql(self, query: str, params: "Parameters" = ()) -> Result:
        """Answer a SELECT in DuckDB's dialect, exactly; `?` takes params from a list, `$name` from a dict."""
        with self._turn:
            self._refresh()
            try:
                return self._runner.run(self._statement(query), params)
            except Stale:  # another process has changed the table since
                self._open_newest()
                return self._runner.run(self._statement(query), params)

    def prepare(self, query: str) -> "Prepared":
        """Parse and plan a statement once, to run it many times with other parameters."""
        with self._turn:
            self._refresh()
            self._statement(query)
        return Prepared(self, query)

    def explain(self, query: str, params: "Parameters" = ()) -> "Explanation":
        """Say what a query would read and what the provider would see of it, and run nothing."""
        from scumble.sql.explain import explain

        with self._turn:
            self._refresh()
            return explain(self._statement(query).bind(params))

    def _statement(self, query: str) -> "Statement":
        known = self._statements.get(query)
        if known is None:
            from scumble.sql import prepare

            known = prepare(query, self._catalog, self._local.evaluate)
            if len(self._statements) >= KEPT_STATEMENTS:
                self._statements.popitem(last=False)
            self._statements[query] = known
        return known

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
        """Load rows into a table, a new one or one that is there: a file, a data frame, Arrow, or a query's result.

        Each index costs epsilon, and so does the capacity unless it is given. For what else there is, see
        `LoadOptions`: its fields may be given here by name. What is refused costs nothing, and leaves the database as
        it was.
        """
        from scumble.owner.loading import LoadOptions, load

        if options is not None and more:
            raise InvalidParameter("options are given twice", hint="as LoadOptions, or by name")
        specs = [IndexSpec.parse(index) if isinstance(index, str) else index for index in indexes]
        chosen = options or LoadOptions(**more)
        with self._turn, self._writing():
            report, opened = load(self._session, self._catalog, self.ledger, table, source, specs, chosen, progress)
            self._take(opened)
        return report

    def drop(self, table: str) -> None:
        """Drop a table and delete its pages. What its indexes have cost stays spent."""
        with self._turn, self._writing():
            self._take(self._session.task("drop", table=table))
            self._service.drop_unreferenced()

    @property
    def tables(self) -> tuple[Table, ...]:
        """What is public of the tables, by name."""
        with self._turn:
            self._refresh()
            return tuple(sorted(self._catalog.tables, key=lambda table: table.name))

    def table(self, name: str) -> Table:
        """What is public of one table."""
        with self._turn:
            self._refresh()
            return self._catalog.table(name)

    @property
    def version(self) -> int:
        """How many times the database has been changed, its creation included."""
        return self._catalog.version

    @cached_property
    def ledger(self) -> Ledger:
        """The budget: what was spent on what, and what remains."""
        path = key_file.ledger_path(self._key_path)
        if not path.exists():
            raise NotFound(
                f"there is no ledger at {path}", hint="it belongs beside the key file; restore it before you load"
            )
        return Ledger.open(path)

    @property
    def service(self) -> Service:
        """The provider."""
        return self._service

    # --- keys and checks ---------------------------------------------------------------------------

    def check(self, progress: "Progress" = _silent) -> int:
        """Open every page of every table, and walk the chain of versions; how many pages there are, or Tampered."""
        with self._turn:
            self._open_newest()
            self._session.task("chain")
            runs = [(table, run) for table in self._catalog.tables for run in table.runs]
            total, done = sum(run.pages * len(table.schema) for table, run in runs), 0
            for table, run in runs:
                for column in range(len(table.schema)):
                    for first in range(0, run.pages, CHECKED_PAGES):
                        count = min(CHECKED_PAGES, run.pages - first)
                        self._session.task("check", run=run.id, column=column, first_page=first, pages=count)
                        done += count
                        progress("checking", done, total)
            return total

    def rekey(self, passphrase: Passphrase = None) -> None:
        """Seal everything anew under a fresh key, and replace the key file; old copies of it open nothing new.

        A key file that has a passphrase needs it again here. A crash on the way loses nothing: the file holds both keys
        until the new one is in force.
        """
        protection = key_file.given_passphrase(passphrase) if key_file.is_protected(self._key_path) else None
        with self._turn, self._writing():
            held = key_file.open_key(self._key_path, protection)  # a wrong passphrase: before anything changes
            if self._key.root not in (held.root, held.next_root):
                raise Stale("the key was changed meanwhile", hint="open the database again")
            old, new = self._key.root, secrets.token_bytes(len(self._key.root))
            self._put_key(OwnerKey(held.database, old, new), protection)
            opened = self._session.task("reseal", data_key=key_file.data_key(new, held.database).hex())
            self._key = OwnerKey(held.database, new, old)  # the anchor is under the old one still
            self._take(opened)
            self._put_key(OwnerKey(held.database, new), protection)
            self._service.drop_unreferenced()

    def settle_key(self, passphrase: Passphrase = None) -> None:
        """Finish a rekey that was cut short: put the key that is not in force out of the file."""
        protection = key_file.given_passphrase(passphrase) if key_file.is_protected(self._key_path) else None
        with self._turn, self._writing():
            self._put_key(replace(self._key, next_root=None), protection)

    def _put_key(self, key: OwnerKey, protection: str | None) -> None:
        key_file.replace(self._key_path, key, protection)
        self._key, self._key_print = key, key_file.fingerprint(self._key_path)

    def close(self) -> None:
        """End the session, and let go of every file."""
        if "_local" in self.__dict__:
            self._local.close()
        if "ledger" in self.__dict__:
            self.ledger.close()
        self._session.close()
        self._service.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<Database version {self._catalog.version}: {', '.join(t.name for t in self._catalog.tables) or 'empty'}>"
        )

    # --- versions ----------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Be the one who writes, on top of the newest version."""
        self._refresh()
        self._open_newest()  # before a writer clears leftovers: to the provider a rollback looks like a crash
        with self._service.writer():
            self._open_newest()
            self._service.drop_unreferenced()  # what a drop or a rekey that was cut short has left
            for path in (self._key_path, key_file.ledger_path(self._key_path), key_file.anchor_path(self._key_path)):
                key_file.clear_drafts(path)
            yield

    def _enter(self, *, accept_restored: bool = False) -> None:
        """Open a session with the key that fits: a rekey that was cut short leaves two."""
        roots = tuple(root for root in (self._key.root, self._key.next_root) if root is not None)
        for root in roots:
            session = Session(self._service, self._key.database, key_file.data_key(root, self._key.database))
            stamp = self._service.stamp()
            try:
                opened = session.task("open", anchor=None if accept_restored else self._remembered())
            except Tampered:
                session.close()
                continue
            self._session, self._stamp = session, stamp
            # The other one may be the anchor's still.
            self._key = replace(self._key, root=root, next_root=next((other for other in roots if other != root), None))
            self._take(opened, anew=accept_restored)
            return
        raise Tampered

    def _remembered(self) -> tuple[int, str] | None:
        path = key_file.anchor_path(self._key_path)
        for root in filter(None, (self._key.root, self._key.next_root)):
            try:
                anchor = Anchor.load(path, key_file.anchor_key(root, self._key.database))
            except Tampered:
                continue
            return None if anchor is None else (anchor.version, anchor.manifest)
        raise Tampered

    def _refresh(self) -> None:
        if self._session.broken:
            self._enter()
        elif self._service.stamp() != self._stamp:
            self._open_newest()

    def _open_newest(self) -> None:
        stamp = self._service.stamp()
        try:
            opened = self._session.task("open", anchor=self._remembered())
        except Tampered:
            self._enter_again()
            return
        self._take(opened)
        self._stamp = stamp

    def _enter_again(self) -> None:
        """Tampered may be no more than a changed key: by a rekey elsewhere, or by one here that failed half-way."""
        if key_file.fingerprint(self._key_path) != self._key_print:
            if key_file.is_protected(self._key_path):
                raise Stale("the key was changed meanwhile", hint="open the database again")
            self._key_print = key_file.fingerprint(self._key_path)
            self._key = key_file.open_key(self._key_path)
        elif self._key.next_root is None:
            raise Tampered
        old = self._session
        self._enter()
        old.close()

    def _take(self, opened: dict[str, Any], *, anew: bool = False) -> None:
        """Go on with a version, and remember it: `anew`, whatever was remembered before."""
        anchor = _anchor_of(opened)
        self._catalog = Catalog.from_json(opened["catalog"])
        self._statements: OrderedDict[str, Statement] = OrderedDict()
        self.__dict__.pop("_runner", None)
        remembered = None if anew else self._remembered()
        if remembered is None or anchor.version > remembered[0]:  # another process may have seen a later one
            key = key_file.anchor_key(self._key.root, self._key.database)
            anchor.save(key_file.anchor_path(self._key_path), key)

    @cached_property
    def _local(self) -> "LocalSQL":
        from scumble.owner.local import LocalSQL

        return LocalSQL()

    @cached_property
    def _runner(self) -> "Runner":
        from scumble.owner.running import Runner

        return Runner(self._session, self._local)


class Prepared:
    """A statement that was parsed and planned; it follows the database to newer versions by itself."""

    def __init__(self, database: Database, query: str) -> None:
        self._database, self.query = database, query

    def execute(self, params: "Parameters" = ()) -> Result:
        """Run it."""
        return self._database.sql(self.query, params)

    def __repr__(self) -> str:
        return f"<Prepared: {self.query}>"


def _anchor_of(opened: Mapping[str, Any]) -> Anchor:
    return Anchor(opened["version"], opened["hash"])
