"""The database as its owner, or an analyst, uses it: load tables, ask SQL, get exact answers.

It runs on the machine of the key's holder and may see everything that the key opens: all for the owner, what was
granted for an analyst. What leaves for the provider is sealed; what comes back is opened and checked.
"""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from scumble.errors import InvalidParameter, Stale, Unavailable
from scumble.owner import key_file
from scumble.owner.anchor import anchor_text
from scumble.owner.indexes import IndexSpec
from scumble.owner.key_file import Passphrase
from scumble.owner.keys import Key, OwnerKey
from scumble.owner.ledger import Ledger
from scumble.owner.versions import Versions, begin
from scumble.privacy.budget import Exact, exact
from scumble.wire.catalog import Table
from scumble.wire.grants import Grant, Right, parse_public_key, public_text
from scumble.wire.lineage import next_title
from scumble.wire.requests import (
    AddGrant,
    CheckChain,
    CheckPages,
    DropTable,
    ListGrants,
    Reseal,
    RevokeGrant,
    Upgrade,
)
from scumble.wire.storage import Service

if TYPE_CHECKING:
    from scumble.owner.answers import Result
    from scumble.owner.loading import LoadOptions, LoadReport, Progress
    from scumble.owner.queries import LocalSQL, Parameters, Runner
    from scumble.sql import Statement
    from scumble.sql.explain import Explanation

__all__ = ["Database", "Prepared"]

KEPT_STATEMENTS = 256
CHECKED_PAGES = 256  # at a time
LOAD_TRIES = 3


def _silent(what: str, done: int, total: int | None) -> None:
    """Report no progress."""


class Database:
    """An encrypted database, in a folder or at a service. `scumble.open` and `scumble.create` return one.

    >>> with scumble.open("clinic") as db:
    ...     db.load("visits", "visits.parquet", indexes=["amount decimal:0:100000:0.01 epsilon=0.5"])
    ...     db.sql("SELECT count(*), avg(amount) FROM visits WHERE amount > ?", [100]).df()

    It always shows the newest version: what another process has loaded is there in the next query. Threads may share
    it. Every error is a `ScumbleError`; an operation that fails leaves the database as it was. An analyst, who opens it
    with an identity of its own, can do what the owner granted and gets `Refused` for the rest.
    """

    def __init__(
        self,
        service: Service,
        key: Key,
        key_path: Path,
        *,
        accept_restored: bool = False,
        first_opening: bool = False,
        owner: str | None = None,
        key_print: bytes | None = None,
    ) -> None:
        """Open a database at a service; an analyst may name the public key of the `owner` it expects.

        `key_print` is the key file's fingerprint from before it was read: a rekey meanwhile is then noticed.
        """
        self._turn = threading.RLock()
        self._versions = Versions(
            service,
            key,
            key_path,
            changed=self._changed,
            accept_restored=accept_restored,
            first_opening=first_opening,
            owner=owner,
            key_print=key_print,
        )

    @classmethod
    def begin(cls, service: Service, key: OwnerKey, key_path: Path) -> Self:
        """Make the first, empty version of a database, and open it."""
        begin(service, key, key_path)
        return cls(service, key, key_path)

    # --- queries -----------------------------------------------------------------------------------

    def sql(self, query: str, params: "Parameters" = ()) -> "Result":
        """Answer a SELECT in DuckDB's dialect, exactly.

        `?` takes parameters from a sequence, `$name` from a mapping. The result has `fetchall()`, `df()`, `arrow()` and
        more. SQL that cannot be answered exactly raises a `QueryError` that underlines the part in question.
        """
        with self._turn:
            return self._versions.retrying(lambda: self._runner.run(self._statement(query), params))

    def prepare(self, query: str) -> "Prepared":
        """Parse and plan a query once, to run it many times with other parameters."""
        with self._turn:
            self._versions.retrying(lambda: self._statement(query))
        return Prepared(self, query)

    def explain(self, query: str, params: "Parameters" = ()) -> "Explanation":
        """Say what a query would read and what the provider would see of it, without running it."""
        from scumble.sql.explain import explain

        with self._turn:
            return self._versions.retrying(lambda: explain(self._statement(query).bind(params)))

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

            known = prepare(query, self._versions.catalog, self._local.evaluate)
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
        """Load rows into a table, which is created if there is none of that name.

        The source is a file (CSV, Parquet, Arrow), a data frame or anything else with an Arrow stream, or a DuckDB or
        PostgreSQL database with `query=`. Types are public: `types=` or `schema=` declares them where the source has
        none of its own, as CSV files and most pandas frames have not (`scumble.suggest` proposes some). Each index,
        like "amount decimal:0:100000:0.01 epsilon=0.5", costs epsilon, and so does the capacity unless it is given; the
        ledger is charged before anything is sent. The fields of `LoadOptions` may be given by name. A load that is
        refused costs nothing, and one whose session is lost is done once or not at all.
        """
        from scumble.owner.loading import LoadOptions, can_reopen, load

        if options is not None and more:
            raise InvalidParameter("options are given twice", hint="as LoadOptions, or by name")
        specs = [IndexSpec.parse(index) if isinstance(index, str) else index for index in indexes]
        chosen, batch = options or LoadOptions(**more), secrets.token_hex(16)
        specs += () if chosen.schema_file is None else chosen.schema_file.indexes

        def once() -> "LoadReport":
            with self._turn, self._versions.writing():
                return load(self._versions, self.ledger, table, source, specs, chosen, progress, batch)

        for _ in range(LOAD_TRIES - 1 if can_reopen(source) else 0):
            try:
                return once()
            except Unavailable:
                continue
        return once()

    def drop(self, table: str) -> None:
        """Drop a table and delete its pages. What its indexes have cost stays spent. Only the owner can."""
        self._versions.key.as_owner()
        with self._turn, self._versions.writing():
            self._versions.change(DropTable(table))
            self._versions.service.drop_unreferenced()

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

    @cached_property
    def ledger(self) -> Ledger:
        """The privacy budget: what was spent on what, and what remains. For an analyst, of the grant's allotment."""
        self._paid_from = self._versions.grant_id
        return self._versions.key.ledger(self._versions.key_path, self._versions.grant)

    @property
    def service(self) -> Service:
        """The provider, in this process or over the network."""
        return self._versions.service

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
        """Grant an analyst, by the public key that it sent, the right to read tables. Only the owner can.

        With a mapping of tables to rights, such as {"visits": ["read", "load"]}, it may load as well. Loads cost
        epsilon: the whole allotment of `epsilon` and `delta` is spent from the ledger now, whether it will be used or
        not. A grant is in force at once in this enclave, until it is revoked or its table is dropped.
        """
        key = self._versions.key.as_owner()
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
        with self._turn, self._versions.writing():
            wanted = wanted.signed(key.database, self._versions.key.signing_key())
            self._versions.session.ask(AddGrant(wanted, rehearsed=True))
            if wanted.epsilon:
                self.ledger.spend(wanted.epsilon, f"granted to {name}", delta=wanted.delta).draw()
            self._versions.change(AddGrant(wanted, rehearsed=False))
        return wanted

    def revoke(self, name: str) -> None:
        """Revoke an analyst's grant: at once in this enclave, in others when the database is next opened there."""
        self._versions.key.as_owner()
        with self._turn:
            self._versions.open_newest()
            with self._versions.service.rights_writer():
                self._versions.change(RevokeGrant(name))

    def grants(self) -> tuple[Grant, ...]:
        """Every grant, and how much of its allotment is used. Only the owner can see them."""
        self._versions.key.as_owner()
        with self._turn:
            self._versions.refresh()
            return self._versions.session.ask(ListGrants()).grants

    @property
    def granted(self) -> Grant | None:
        """The grant that this key has; None for the owner, who may do everything."""
        return self._versions.grant

    @property
    def owner(self) -> str:
        """The owner's public key as text, by which analysts can tell whose database this is."""
        return public_text(bytes.fromhex(self._versions.owner))

    def anchor(self) -> str:
        """The newest version seen, signed, as a line of text to carry to another device, or to send to an analyst."""
        with self._turn:
            self._versions.open_newest()
            key = self._versions.key
            return anchor_text(self._versions.anchor, key.database, key.signing_key())

    # --- keys and checks ---------------------------------------------------------------------------

    def check(self, progress: "Progress" = _silent) -> int:
        """Open every page of every table and verify the chain of versions; how many pages, or `Tampered`."""
        with self._turn:
            self._versions.open_newest()
            if self._versions.grant is None:
                self._versions.session.ask(CheckChain())
            runs = [(table, run) for table in self._versions.catalog.tables for run in table.runs]
            total, done = sum(run.pages * len(table.schema) for table, run in runs), 0
            for table, run in runs:
                for column in range(len(table.schema)):
                    for first in range(0, run.pages, CHECKED_PAGES):
                        count = min(CHECKED_PAGES, run.pages - first)
                        self._versions.session.ask(CheckPages(run.id, column, first, count))
                        done += count
                        progress("checking", done, total)
            return total

    def rekey(self, passphrase: Passphrase = None) -> None:
        """Seal everything again under a fresh key and replace the key file, so that old copies open nothing new.

        A key file with a passphrase needs it again here. A crash on the way loses nothing: the file holds both keys
        until the new one is in force. Only the owner can.
        """
        self._versions.key.as_owner()
        protection = self._protection(passphrase)
        with self._turn, self._versions.writing():
            held = OwnerKey.open(self._versions.key_path, protection)  # a wrong passphrase: before anything changes
            old = self._versions.key.as_owner()
            if old.root not in (held.root, held.next_root):
                raise Stale("the key was changed meanwhile", hint="open the database again")
            new = OwnerKey(old.database, secrets.token_bytes(len(old.root)))
            self._versions.put_key(OwnerKey(old.database, old.root, new.root), protection)
            version = self._versions.catalog.version + 1
            title = next_title(old.database, version, old.signing_key(), new.signing_key(), new.data_key())
            self._versions.change(Reseal(new.data_key(), title, self._signed_grants(new)), new)
            self._versions.put_key(new, protection)
            self._versions.service.drop_unreferenced()

    def finish_rekey(self, passphrase: Passphrase = None) -> None:
        """Finish a rekey that was cut short: remove the key that is not in force from the key file."""
        protection = self._protection(passphrase)
        with self._turn, self._versions.writing(busy_seconds=0):  # perhaps it is not cut short, but under way
            key = self._versions.key.as_owner()
            self._versions.put_key(OwnerKey(key.database, key.root), protection)

    def _signed_grants(self, key: OwnerKey) -> tuple[Grant, ...]:
        """Every grant, signed by a key that the database is about to belong to."""
        grants = self._versions.session.ask(ListGrants()).grants
        return tuple(grant.signed(key.database, key.signing_key()) for grant in grants)

    def upgrade(self) -> bool:
        """Sign a database that release 0.1 has made, so that it can be changed again; False if it is signed already.

        From then on clients check who made each version. Whoever has a copy of the key and of the anchor keeps them.
        """
        key = self._versions.key.as_owner()
        if self._versions.catalog.titles:
            return False
        with self._turn, self._versions.writing():
            title = key.title(self._versions.catalog.version + 1)
            return self._versions.change(Upgrade(title, self._signed_grants(key), self._versions.catalog.restores))

    def _protection(self, passphrase: Passphrase) -> str | None:
        """The passphrase to write the key file with: none if it has none now."""
        return key_file.given_passphrase(passphrase) if key_file.is_protected(self._versions.key_path) else None

    def close(self) -> None:
        """End the session and close every file. A `with` block does it at its end."""
        if "_local" in self.__dict__:
            self._local.close()
        if "ledger" in self.__dict__:
            self.ledger.close()
        self._versions.close()

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
        if "ledger" in self.__dict__ and self._paid_from != self._versions.grant_id:
            self.ledger.close()
            del self.__dict__["ledger"]

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

    def __init__(self, database: Database, query: str) -> None:
        self._database, self.query = database, query

    def execute(self, params: "Parameters" = ()) -> "Result":
        return self._database.sql(self.query, params)

    def __repr__(self) -> str:
        return f"<Prepared: {self.query}>"
