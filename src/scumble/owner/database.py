"""The database as its owner uses it, or an analyst: tables go in, SQL goes in, exact answers come out.

Everything here is the owner's own, and may see everything; an analyst's sees what was granted. What leaves for the
provider is sealed, and what comes back is opened and checked.
"""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from scumble.errors import Busy, InvalidParameter, Stale, Unavailable
from scumble.owner import identity, key_file
from scumble.owner.answers import Result
from scumble.owner.identity import Key
from scumble.owner.indexes import IndexSpec
from scumble.owner.key_file import OwnerKey, Passphrase
from scumble.owner.ledger import Ledger
from scumble.owner.versions import Versions, begin
from scumble.privacy.amounts import Exact, exact
from scumble.wire.catalog import Table
from scumble.wire.channel import succession
from scumble.wire.grants import Grant, Right, parse_public_key, public_text
from scumble.wire.requests import AddGrant, CheckChain, CheckPages, DropTable, ListGrants, Reseal, RevokeGrant
from scumble.wire.storage import Service

if TYPE_CHECKING:
    from scumble.owner.loading import LoadOptions, LoadReport, Progress
    from scumble.owner.queries import LocalSQL, Parameters, Runner
    from scumble.sql import Statement
    from scumble.sql.explain import Explanation

__all__ = ["Database", "Prepared"]

KEPT_STATEMENTS = 256
CHECKED_PAGES = 256  # at a time
TRIES = 5  # of a statement under which the table changes
LOAD_TRIES = 3
CONFIRMED_SECONDS = 60.0  # for a load that was cut off to come to its end
PAUSES_SECONDS = (0.2, 1.0, 3.0)  # before an enclave that went away is asked again whether a load was done

T = TypeVar("T")


def _silent(what: str, done: int, total: int | None) -> None:
    """Report no progress."""


class Database:
    """An encrypted database. Get one from `scumble.open` or `scumble.create`; close it, or use it in a `with`.

    Threads may share it. It shows the newest version: what another process has loaded is there in the next query.
    """

    def __init__(
        self,
        service: Service,
        key: Key,
        key_path: Path,
        *,
        accept_restored: bool = False,
        owner: str | None = None,
    ) -> None:
        """Open a database; an analyst may name the public key of the `owner` that it expects."""
        self._turn = threading.RLock()
        self._at = Versions(service, key, key_path, changed=self._changed, accept_restored=accept_restored, owner=owner)

    @classmethod
    def begin(cls, service: Service, key: OwnerKey, key_path: Path) -> Self:
        """Make the first, empty version of a database, and open it."""
        begin(service, key, key_path)
        return cls(service, key, key_path)

    # --- queries -----------------------------------------------------------------------------------

    def sql(self, query: str, params: "Parameters" = ()) -> Result:
        """Answer a SELECT in DuckDB's dialect, exactly; `?` takes params from a list, `$name` from a dict."""
        with self._turn:
            return self._at.persisting(lambda: self._runner.run(self._statement(query), params))

    def prepare(self, query: str) -> "Prepared":
        """Parse and plan a statement once, to run it many times with other parameters."""
        with self._turn:
            self._at.persisting(lambda: self._statement(query))
        return Prepared(self, query)

    def explain(self, query: str, params: "Parameters" = ()) -> "Explanation":
        """Say what a query would read and what the provider would see of it, and run nothing."""
        from scumble.sql.explain import explain

        with self._turn:
            return self._at.persisting(lambda: explain(self._statement(query).bind(params)))

    def _statement(self, query: str) -> "Statement":
        known = self._statements.get(query)
        if known is None:
            from scumble.sql import prepare

            known = prepare(query, self._at.catalog, self._local.evaluate)
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
        from scumble.owner.loading import LoadOptions, can_reopen, load

        if options is not None and more:
            raise InvalidParameter("options are given twice", hint="as LoadOptions, or by name")
        specs = [IndexSpec.parse(index) if isinstance(index, str) else index for index in indexes]
        chosen, batch = options or LoadOptions(**more), secrets.token_hex(16)

        def once() -> "LoadReport":
            with self._turn, self._at.writing() as held:
                report, opened = load(
                    self._at.session,
                    self._at.catalog,
                    self.ledger,
                    table,
                    source,
                    specs,
                    chosen,
                    progress,
                    batch,
                    lambda: self._confirm(batch, held),
                )
                if opened is not None:
                    self._at.take(opened)
            return report

        for _ in range(LOAD_TRIES - 1 if can_reopen(source) else 0):
            try:
                return once()
            except Unavailable:
                continue
        return once()

    def _confirm(self, batch: str, held: ExitStack) -> None:
        """Return if a batch whose load was cut off is there; else Unavailable, which says what is known.

        It may still be in the making: only whoever holds the database for writing can be sure that it is not.
        """
        held.close()
        for pause in PAUSES_SECONDS:
            try:
                self._at.enter()
                if self._has(batch):
                    return
                with self._at.service.writer(CONFIRMED_SECONDS):
                    self._at.open_newest()
            except (Unavailable, Busy):
                time.sleep(pause)
                continue
            if self._has(batch):
                return
            raise Unavailable("the session was lost, and nothing was loaded", hint="load again")
        raise Unavailable(
            "the service was lost while the rows were loaded, and does not say whether they are there",
            hint="look at the table's capacity before you load them again",
        )

    def _has(self, batch: str) -> bool:
        return any(run.batch == batch for table in self._at.catalog.tables for run in table.runs)

    def drop(self, table: str) -> None:
        """Drop a table and delete its pages. What its indexes have cost stays spent."""
        self._at.needs_owner()
        with self._turn, self._at.writing():
            self._at.take(self._at.session.ask(DropTable(table)))
            self._at.service.drop_unreferenced()

    @property
    def tables(self) -> tuple[Table, ...]:
        """What is public of the tables, by name."""
        with self._turn:
            self._at.refresh()
            return tuple(sorted(self._at.catalog.tables, key=lambda table: table.name))

    def table(self, name: str) -> Table:
        """What is public of one table."""
        with self._turn:
            self._at.refresh()
            return self._at.catalog.table(name)

    @property
    def version(self) -> int:
        """How many times the database has been changed, its creation included."""
        return self._at.catalog.version

    @cached_property
    def ledger(self) -> Ledger:
        """The budget: what was spent on what, and what remains. An analyst's is what the grant allots."""
        self._paid_from = self._at.grant_id
        return identity.ledger_of(self._at.key, self._at.key_path, self._at.grant)

    @property
    def service(self) -> Service:
        """The provider."""
        return self._at.service

    # --- grants ------------------------------------------------------------------------------------

    def grant(
        self,
        name: str,
        public_key: str,
        tables: Sequence[str] | Mapping[str, Collection[Right]],
        *,
        epsilon: Exact = 0,
        delta: Exact = 0,
    ) -> Grant:
        """Let somebody, who has sent its public key as text, read tables; or, as a mapping says, load into them.

        Loads cost epsilon: all that this one may ever spend is spent from the ledger now, whether it will be used or
        not. It holds at once for sessions in this enclave, and until it is revoked or a table is dropped.
        """
        self._at.needs_owner()
        reading: frozenset[Right] = frozenset(["read"])
        rights = tables if isinstance(tables, Mapping) else dict.fromkeys(tables, reading)
        wanted = Grant(
            secrets.token_hex(8),
            name,
            parse_public_key(public_key),
            {table: frozenset(each) for table, each in rights.items()},
            exact(epsilon, "epsilon"),
            exact(delta, "delta"),
        )
        if any("load" in each for each in wanted.tables.values()) != bool(wanted.epsilon):
            raise InvalidParameter(
                "a right to load needs an allotment of epsilon, and nothing else does", hint="--load --epsilon 0.5"
            )
        with self._turn, self._at.writing():
            self._at.session.ask(AddGrant(wanted, rehearsed=True))
            if wanted.epsilon:
                self.ledger.spend(wanted.epsilon, f"granted to {name}", delta=wanted.delta).draw()
            opened = self._at.session.ask(AddGrant(wanted, rehearsed=False))
            assert opened is not None  # noqa: S101  only a rehearsal answers nothing
            self._at.take(opened)
        return wanted

    def revoke(self, name: str) -> None:
        """Take somebody's grant back: at once in this enclave, in others when it opens the database again."""
        self._at.needs_owner()
        with self._turn, self._at.writing():
            self._at.take(self._at.session.ask(RevokeGrant(name)))

    def grants(self) -> tuple[Grant, ...]:
        """Who was granted what, and how much of an allotment is used."""
        self._at.needs_owner()
        with self._turn:
            self._at.refresh()
            return self._at.session.ask(ListGrants()).grants

    @property
    def granted(self) -> Grant | None:
        """What an analyst may do here; None for the owner, who may do everything."""
        return self._at.grant

    @property
    def owner(self) -> str:
        """The owner's public key as text: for analysts, to be sure whose database this is."""
        return public_text(bytes.fromhex(self._at.owner))

    # --- keys and checks ---------------------------------------------------------------------------

    def check(self, progress: "Progress" = _silent) -> int:
        """Open every page of every table, and walk the chain of versions; how many pages there are, or Tampered."""
        with self._turn:
            self._at.open_newest()
            if self._at.grant is None:
                self._at.session.ask(CheckChain())
            runs = [(table, run) for table in self._at.catalog.tables for run in table.runs]
            total, done = sum(run.pages * len(table.schema) for table, run in runs), 0
            for table, run in runs:
                for column in range(len(table.schema)):
                    for first in range(0, run.pages, CHECKED_PAGES):
                        count = min(CHECKED_PAGES, run.pages - first)
                        self._at.session.ask(CheckPages(run.id, column, first, count))
                        done += count
                        progress("checking", done, total)
            return total

    def rekey(self, passphrase: Passphrase = None) -> None:
        """Seal everything anew under a fresh key, and replace the key file; old copies of it open nothing new.

        A key file that has a passphrase needs it again here. A crash on the way loses nothing: the file holds both keys
        until the new one is in force.
        """
        self._at.needs_owner()
        protection = key_file.given_passphrase(passphrase) if key_file.is_protected(self._at.key_path) else None
        with self._turn, self._at.writing():
            held = key_file.open_key(self._at.key_path, protection)  # a wrong passphrase: before anything changes
            if self._at.key.root not in (held.root, held.next_root):
                raise Stale("the key was changed meanwhile", hint="open the database again")
            old, new = self._at.key.root, secrets.token_bytes(len(self._at.key.root))
            self._at.put_key(OwnerKey(held.database, old, new), protection)
            owner = key_file.signing_key(new, held.database).public_key().public_bytes_raw()
            opened = self._at.session.ask(
                Reseal(
                    data_key=key_file.data_key(new, held.database),
                    owner=owner,
                    succession=succession(held.database, key_file.signing_key(old, held.database), owner),
                )
            )
            self._at.key = OwnerKey(held.database, new, old)  # the anchor is under the old one still
            self._at.take(opened)
            self._at.put_key(OwnerKey(held.database, new), protection)
            self._at.service.drop_unreferenced()

    def settle_key(self, passphrase: Passphrase = None) -> None:
        """Finish a rekey that was cut short: put the key that is not in force out of the file."""
        protection = key_file.given_passphrase(passphrase) if key_file.is_protected(self._at.key_path) else None
        with self._turn, self._at.writing():
            self._at.put_key(replace(self._at.owner_key, next_root=None), protection)

    def close(self) -> None:
        """End the session, and let go of every file."""
        if "_local" in self.__dict__:
            self._local.close()
        if "ledger" in self.__dict__:
            self.ledger.close()
        self._at.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(table.name for table in self._at.catalog.tables)
        return f"<Database version {self.version}: {names or 'empty'}>"

    # --- what is made on use -----------------------------------------------------------------------

    def _changed(self) -> None:
        """What was worked out for a version is of no use with the next."""
        self._statements: OrderedDict[str, Statement] = OrderedDict()
        self.__dict__.pop("_runner", None)
        if "ledger" in self.__dict__ and self._paid_from != self._at.grant_id:
            self.ledger.close()
            del self.__dict__["ledger"]

    @cached_property
    def _local(self) -> "LocalSQL":
        from scumble.owner.queries import LocalSQL

        return LocalSQL()

    @cached_property
    def _runner(self) -> "Runner":
        from scumble.owner.queries import Runner

        return Runner(self._at.session, self._local)


class Prepared:
    """A statement that was parsed and planned; it follows the database to newer versions by itself."""

    def __init__(self, database: Database, query: str) -> None:
        self._database, self.query = database, query

    def execute(self, params: "Parameters" = ()) -> Result:
        """Run it."""
        return self._database.sql(self.query, params)

    def __repr__(self) -> str:
        return f"<Prepared: {self.query}>"
