"""The database as its owner uses it, or an analyst: tables go in, SQL goes in, exact answers come out.

Everything here is the owner's own, and may see everything; an analyst's sees what was granted. What leaves for the
provider is sealed, and what comes back is opened and checked.
"""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from scumble.boundary.catalog import Catalog, Table
from scumble.boundary.grants import Grant, Right, parse_public_key, public_text
from scumble.boundary.session import succession
from scumble.boundary.storage import Service
from scumble.errors import BadQuery, Busy, InvalidParameter, Refused, Stale, Tampered, Unavailable
from scumble.owner import identity, key_file
from scumble.owner.anchor import Anchor
from scumble.owner.identity import AnalystKey, Key
from scumble.owner.indexes import IndexSpec
from scumble.owner.key_file import OwnerKey, Passphrase
from scumble.owner.results import Result
from scumble.owner.session import Session
from scumble.privacy.amounts import Exact, exact
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
        self._service, self._key, self._key_path = service, key, key_path
        self._expected = None if owner is None else parse_public_key(owner).hex()
        self._grant: Grant | None = None
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
        signing_key = key_file.signing_key(key.root, key.database)
        session = Session(service, key.database, signing_key, key_file.data_key(key.root, key.database))
        with service.writer():
            opened = session.task("create")
        session.close()
        _anchor_of(opened).save(key_file.anchor_path(key_path), key_file.anchor_key(key.root, key.database))
        return cls(service, key, key_path)

    # --- queries -----------------------------------------------------------------------------------

    def sql(self, query: str, params: "Parameters" = ()) -> Result:
        """Answer a SELECT in DuckDB's dialect, exactly; `?` takes params from a list, `$name` from a dict."""
        with self._turn:
            return self._persisting(lambda: self._runner.run(self._statement(query), params))

    def prepare(self, query: str) -> "Prepared":
        """Parse and plan a statement once, to run it many times with other parameters."""
        with self._turn:
            self._persisting(lambda: self._statement(query))
        return Prepared(self, query)

    def explain(self, query: str, params: "Parameters" = ()) -> "Explanation":
        """Say what a query would read and what the provider would see of it, and run nothing."""
        from scumble.sql.explain import explain

        with self._turn:
            return self._persisting(lambda: explain(self._statement(query).bind(params)))

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
        from scumble.owner.loading import LoadOptions, can_reopen, load

        if options is not None and more:
            raise InvalidParameter("options are given twice", hint="as LoadOptions, or by name")
        specs = [IndexSpec.parse(index) if isinstance(index, str) else index for index in indexes]
        chosen, batch = options or LoadOptions(**more), secrets.token_hex(16)

        def once() -> "LoadReport":
            with self._turn, self._writing() as held:
                report, opened = load(
                    self._session,
                    self._catalog,
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
                    self._take(opened)
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
                self._enter()
                if self._has(batch):
                    return
                with self._service.writer(CONFIRMED_SECONDS):
                    self._open_newest()
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
        return any(run.batch == batch for table in self._catalog.tables for run in table.runs)

    def drop(self, table: str) -> None:
        """Drop a table and delete its pages. What its indexes have cost stays spent."""
        self._needs_owner()
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
        """The budget: what was spent on what, and what remains. An analyst's is what the grant allots."""
        return identity.ledger_of(self._key, self._key_path, self._grant)

    @property
    def service(self) -> Service:
        """The provider."""
        return self._service

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
        self._needs_owner()
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
        with self._turn, self._writing():
            self._session.task("grant", grant=wanted.to_json(), rehearsed=True)
            if wanted.epsilon:
                self.ledger.spend(wanted.epsilon, f"granted to {name}", delta=wanted.delta).draw()
            self._take(self._session.task("grant", grant=wanted.to_json(), rehearsed=False))
        return wanted

    def revoke(self, name: str) -> None:
        """Take somebody's grant back: at once in this enclave, in others when it opens the database again."""
        self._needs_owner()
        with self._turn, self._writing():
            self._take(self._session.task("revoke", name=name))

    def grants(self) -> tuple[Grant, ...]:
        """Who was granted what, and how much of an allotment is used."""
        self._needs_owner()
        with self._turn:
            self._refresh()
            return tuple(map(Grant.from_json, self._session.task("grants")["grants"]))

    @property
    def granted(self) -> Grant | None:
        """What an analyst may do here; None for the owner, who may do everything."""
        return self._grant

    @property
    def owner(self) -> str:
        """The owner's public key as text: for analysts, to be sure whose database this is."""
        return public_text(bytes.fromhex(self._owner))

    def _needs_owner(self) -> None:
        if isinstance(self._key, AnalystKey):
            raise Refused

    @property
    def _owner_key(self) -> OwnerKey:
        if isinstance(self._key, AnalystKey):
            raise Refused
        return self._key

    # --- keys and checks ---------------------------------------------------------------------------

    def check(self, progress: "Progress" = _silent) -> int:
        """Open every page of every table, and walk the chain of versions; how many pages there are, or Tampered."""
        with self._turn:
            self._open_newest()
            if self._grant is None:
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
        self._needs_owner()
        protection = key_file.given_passphrase(passphrase) if key_file.is_protected(self._key_path) else None
        with self._turn, self._writing():
            held = key_file.open_key(self._key_path, protection)  # a wrong passphrase: before anything changes
            if self._key.root not in (held.root, held.next_root):
                raise Stale("the key was changed meanwhile", hint="open the database again")
            old, new = self._key.root, secrets.token_bytes(len(self._key.root))
            self._put_key(OwnerKey(held.database, old, new), protection)
            owner = key_file.signing_key(new, held.database).public_key().public_bytes_raw()
            opened = self._session.task(
                "reseal",
                data_key=key_file.data_key(new, held.database).hex(),
                owner=owner.hex(),
                succession=succession(held.database, key_file.signing_key(old, held.database), owner).hex(),
            )
            self._key = OwnerKey(held.database, new, old)  # the anchor is under the old one still
            self._take(opened)
            self._put_key(OwnerKey(held.database, new), protection)
            self._service.drop_unreferenced()

    def settle_key(self, passphrase: Passphrase = None) -> None:
        """Finish a rekey that was cut short: put the key that is not in force out of the file."""
        protection = key_file.given_passphrase(passphrase) if key_file.is_protected(self._key_path) else None
        with self._turn, self._writing():
            self._put_key(replace(self._owner_key, next_root=None), protection)

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
    def _writing(self) -> Iterator[ExitStack]:
        """Be the one who writes, on top of the newest version; whoever closes what it gives lets go before the end."""
        self._refresh()
        self._open_newest()  # before a writer clears leftovers: to the provider a rollback looks like a crash
        with ExitStack() as held:
            held.enter_context(self._service.writer())
            self._open_newest()
            self._service.drop_unreferenced()  # what a drop or a rekey that was cut short has left
            anchor = identity.anchor_path(self._key, self._key_path)
            for path in (self._key_path, key_file.ledger_path(self._key_path), anchor):
                key_file.clear_drafts(path)
            yield held

    def _persisting(self, work: Callable[[], T]) -> T:
        """Do something on the newest version: again if that changed meanwhile, and once if the session was lost.

        Only with its answer does a service say that another client has made a newer version before it was asked.
        """
        changed, lost, before = False, False, self._catalog
        for left in range(TRIES - 1, -1, -1):
            try:
                if changed:
                    self._open_newest()
                else:
                    self._refresh()
                result = work()
                if not self._service.lags or self._catalog is not before or self._service.stamp() == self._stamp:
                    return result
                changed = True
            except Stale:
                changed = True
                if not left:
                    raise
            except BadQuery:  # it may name what another client has just made
                version = self._catalog.version
                self._open_newest()
                if not left or self._catalog.version == version:
                    raise
            except Unavailable:
                if lost or not left:
                    raise
                lost, changed = True, False
        raise AssertionError  # the last try has returned or raised

    def _enter(self, *, accept_restored: bool = False) -> dict[str, Any]:
        """Open a session with the key that fits, and the newest version: a rekey that was cut short leaves two keys."""
        before: Session | None = getattr(self, "_session", None)
        if before is not None:
            before.close()
        key = self._key
        roots = tuple(root for root in (key.root, key.next_root) if root is not None)
        failures: list[Tampered | Refused] = []
        for root in roots:
            signing_key, data_key = identity.signing_key(key, root), identity.data_key(key, root)
            session = Session(self._service, key.database, signing_key, data_key)
            stamp = self._service.stamp()
            try:
                opened = session.task("open", **self._opening(accept_restored=accept_restored))
            except (Tampered, Refused) as error:
                failures.append(error)
                session.close()
                continue
            self._session, self._stamp = session, stamp
            if isinstance(key, OwnerKey):  # the other root may be the anchor's still
                self._key = replace(key, root=root, next_root=next((other for other in roots if other != root), None))
            self._take(opened, anew=accept_restored)
            return opened
        raise next((error for error in failures if isinstance(error, Tampered)), failures[0])

    def _opening(self, *, accept_restored: bool = False) -> dict[str, Any]:
        """What is asked of the newest version."""
        anchor = None if accept_restored else self._remembered()
        if isinstance(self._key, OwnerKey):
            return {"anchor": anchor, "restored": accept_restored}
        return {"anchor": anchor, "owner": self._expected or identity.known_owner(self._key, self._key_path)}

    def _remembered(self) -> tuple[int, str] | None:
        path = identity.anchor_path(self._key, self._key_path)
        for root in filter(None, (self._key.root, self._key.next_root)):
            try:
                anchor = Anchor.load(path, identity.anchor_key(self._key, root))
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
            opened = self._session.task("open", **self._opening())
        except (Tampered, Refused) as error:
            self._enter_again(error)
            return
        self._take(opened)
        self._stamp = stamp

    def _enter_again(self, error: Tampered | Refused) -> None:
        """It may be no more than a changed key: by a rekey elsewhere, or by one here that failed half-way."""
        if isinstance(self._key, AnalystKey):
            raise error
        if key_file.fingerprint(self._key_path) != self._key_print:
            if key_file.is_protected(self._key_path):
                raise Stale("the key was changed meanwhile", hint="open the database again")
            self._key_print = key_file.fingerprint(self._key_path)
            self._key = key_file.open_key(self._key_path)
        elif self._key.next_root is None:
            raise error
        self._enter()

    def _take(self, opened: dict[str, Any], *, anew: bool = False) -> None:
        """Go on with a version, and remember it: `anew`, whatever was remembered before."""
        anchor = _anchor_of(opened)
        self._catalog, self._owner = Catalog.from_json(opened["catalog"]), opened["owner"]
        self._take_grant(opened["grant"])
        self._statements: OrderedDict[str, Statement] = OrderedDict()
        self.__dict__.pop("_runner", None)
        remembered = None if anew else self._remembered()
        if remembered is None or anchor.version > remembered[0]:  # another process may have seen a later one
            key = identity.anchor_key(self._key, self._key.root)
            anchor.save(identity.anchor_path(self._key, self._key_path), key)

    def _take_grant(self, fields: dict[str, Any] | None) -> None:
        grant = None if fields is None else Grant.from_json(fields)
        if grant is not None and self._grant is not None and grant.id != self._grant.id and "ledger" in self.__dict__:
            self.ledger.close()
            del self.__dict__["ledger"]
        self._grant = grant
        if isinstance(self._key, AnalystKey) and identity.known_owner(self._key, self._key_path) != self._owner:
            identity.remember_owner(self._key, self._key_path, self._owner)
            self._expected = None

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
