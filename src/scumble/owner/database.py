"""The database as its owner, or an analyst, uses it: load tables, ask SQL, get exact answers.

It runs on the machine of the key's holder and may see everything that the key opens: all for the owner, what was
granted for an analyst. What leaves for the provider is sealed; what comes back is opened and checked.
"""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from scumble.errors import Busy, InvalidParameter, ScumbleError, Stale, Unavailable, Unfinished, Unwitnessed
from scumble.owner import key_file
from scumble.owner.anchor import anchor_text
from scumble.owner.indexes import IndexSpec
from scumble.owner.key_file import Passphrase
from scumble.owner.keys import Key, OwnerKey
from scumble.owner.ledger import Ledger
from scumble.owner.payments import allotment, spend_of, used_up
from scumble.owner.policies import Policies, next_policy
from scumble.owner.reconciling import batches_of
from scumble.owner.versions import Versions, begin
from scumble.owner.witnesses import Listed, check_place, compare, witness_in
from scumble.privacy.budget import Exact, exact, show
from scumble.wire.catalog import Table
from scumble.wire.charges import Charge
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
    SetPolicy,
    Upgrade,
)
from scumble.wire.storage import Service
from scumble.witness.cosignatures import Cosignature

if TYPE_CHECKING:
    from scumble.attestation.policy import Policy
    from scumble.attestation.policy_document import SignedPolicy
    from scumble.owner.answers import Result
    from scumble.owner.loading import Attempt, LoadOptions, LoadReport, Progress
    from scumble.owner.queries import LocalSQL, Parameters, Runner
    from scumble.sql import Statement
    from scumble.sql.explain import Explanation

__all__ = ["Database", "Prepared"]

KEPT_STATEMENTS = 256
CHECKED_PAGES = 256  # at a time
LOAD_TRIES = 3


def _silent(what: str, done: int, total: int | None) -> None:
    """Report no progress."""


def _amounts(epsilon: Fraction, delta: Fraction) -> str:
    return f"epsilon {show(epsilon)}" + (f" and delta {show(delta)}" if delta else "")


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
        policies: Policies | None = None,
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
            policies=policies,
        )

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
        ledger is charged before anything is sent. The fields of `LoadOptions` may be given by name. The costs of a
        table's loads add up, unless `new_rows=True` states that no row is in the table yet; rows that were loaded
        before are refused without `again=True`.

        A load that is refused costs nothing. One whose session is lost is done once or not at all; if it fails after it
        has spent, or nobody can tell what became of it, `Unfinished` says so. To load the same again is safe then: it
        is recognised, and costs nothing more.
        """
        from scumble.owner.loading import Attempt, LoadOptions, can_reopen

        if options is not None and more:
            raise InvalidParameter("options are given twice", hint="as LoadOptions, or by name")
        specs = [IndexSpec.parse(index) if isinstance(index, str) else index for index in indexes]
        chosen, attempt = options or LoadOptions(**more), Attempt(secrets.token_hex(16))
        specs += () if chosen.schema_file is None else chosen.schema_file.indexes
        for left in range(LOAD_TRIES - 1 if can_reopen(source) else 0, -1, -1):
            try:
                return self._load(table, source, specs, chosen, progress, attempt)
            except ScumbleError as error:
                if isinstance(error, Unwitnessed) and error.stored:
                    raise  # all of it is done
                if not left or not isinstance(error, Unavailable):
                    raise self._with_spent(error, attempt) from error
        raise AssertionError  # the last try has returned or raised

    def _load(
        self,
        table: str,
        source: object,
        specs: Sequence[IndexSpec],
        options: "LoadOptions",
        progress: "Progress",
        attempt: "Attempt",
    ) -> "LoadReport":
        """Try once."""
        from scumble.owner.loading import load

        with self._changing():
            self._reconcile(held=True)
            return load(self._versions, self.ledger, table, source, specs, options, progress, attempt)

    def _with_spent(self, error: ScumbleError, attempt: "Attempt") -> ScumbleError:
        """The error that a load ends with: if anything was spent on its rows, it says how much."""
        loads = self.ledger.loads() if attempt.batches else ()
        drawn = [each for each in loads if each.batch in attempt.batches and each.state == "drawn"]
        if not drawn and not attempt.pending:
            return error
        where = "nobody can tell whether the rows are" if attempt.pending else "the rows are not"
        epsilon = sum((each.epsilon for each in drawn), Fraction(0))
        delta = sum((each.delta for each in drawn), Fraction(0))
        paid = f"; {_amounts(epsilon, delta)} stays spent on them"
        return Unfinished(
            f"{error.message}; {where} in the table{paid if drawn else ''}",
            hint="load the same rows on the same terms again: that is recognised, and costs nothing more",
        )

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold it for writing. What was done stays done if the service is lost before the hold is given up."""
        done = False
        try:
            with self._turn, self._versions.writing():
                yield
                done = True
        except Unavailable:
            if not done:
                raise

    def drop(self, table: str) -> None:
        """Drop a table and delete its pages. What its indexes have cost stays spent. Only the owner can."""
        self._versions.key.as_owner()
        with self._changing():
            self._versions.change(DropTable(table))
            with suppress(Unavailable, Busy):  # then the next writer does it
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

    @property
    def accepted_restored(self) -> bool:
        """Whether opening it has made a version that takes an older one for the newest, as `accept_restored` allows."""
        return self._versions.accepted_restored

    @cached_property
    def ledger(self) -> Ledger:
        """The privacy budget: what was spent on what, and what remains. For an analyst, of the grant's allotment."""
        self._paid_from = self._versions.grant_id
        ledger = self._versions.key.ledger(self._versions.key_path, self._versions.grant)
        ledger.reconcile(self._charges(ledger), batches_of(self._versions.catalog))
        return ledger

    def _reconcile(self, *, held: bool) -> None:
        """Bring the ledger up to the newest version, before anything is spent."""
        self.ledger.reconcile(self._charges(self.ledger), batches_of(self._versions.catalog), held=held)

    def _charges(self, ledger: Ledger) -> Sequence[Charge]:
        """What the newest version says was paid by this key's holder; for the owner, what grants cost too.

        Those that are there cost their allotments, and those that were revoked at least what their loads did.
        """
        versions = self._versions
        paid = [charge for charge in versions.charges if charge.grant == versions.grant_id]
        if versions.grant_id is not None:
            return paid
        spent = {(each.label, each.epsilon) for each in ledger.entries() if each.partition is None}  # by release 0.1
        granted = [grant for grant in versions.grants if (f"granted to {grant.name}", grant.epsilon) not in spent]
        there = {grant.id for grant in versions.grants}
        gone = [charge for charge in versions.charges if charge.grant is not None and charge.grant not in there]
        return [*paid, *(allotment(grant) for grant in granted if grant.epsilon), *used_up(gone)]

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
        with self._changing():
            wanted = wanted.signed(key.database, self._versions.key.signing_key())
            self._versions.session.ask(AddGrant(wanted, rehearsed=True))
            if wanted.epsilon:
                self._reconcile(held=True)
                (paid,) = self.ledger.spend_all([spend_of(allotment(wanted), f"granted to {name}")])
                paid.draw()
                paid.settle()  # nothing will ever take it back
            try:
                self._versions.change(AddGrant(wanted, rehearsed=False))
            except ScumbleError as error:
                if not wanted.epsilon or (isinstance(error, Unwitnessed) and error.stored):
                    raise
                raise Unfinished(
                    f"{error.message}; {_amounts(wanted.epsilon, wanted.delta)} stays spent on the grant",
                    hint="look whether `scumble grants` shows it before you grant it again, which costs as much again",
                ) from error
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
            return self._listed()

    def _listed(self) -> tuple[Grant, ...]:
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

    def witnesses(self) -> tuple[Listed, dict[str, Cosignature | None]]:
        """The witnesses that have to cosign versions for this key's holder, and what each has seen, if it answers.

        Disputed if two of them have seen versions that cannot both be of one history.
        """
        with self._turn:
            self._versions.open_newest()
            key = self._versions.key
            listed = self._versions.witnesses.listed(key)
            return listed, compare(key, self._versions.catalog.titles, listed.places)

    def add_witness(self, place: str, public_key: str | None = None, need: int | None = None) -> Listed:
        """Have a witness at http://HOST:PORT, or in a folder, cosign every version from now on, `need` of all listed.

        Without `need` that stays as it is, or is 1. The public key of one in a folder is read there if none is given. A
        witness that does not answer is not added.
        """
        with self._turn:
            key, witnesses = self._versions.key, self._versions.witnesses
            before, place = witnesses.listed(key), check_place(place)
            places = {**before.places, place: parse_public_key(public_key or witness_in(place))}
            listed = Listed(need or before.need or 1, places)
            with witnesses.trying(Listed(1, {place: places[place]})):
                self._versions.open_newest()
            witnesses.put(key, listed)
            try:
                self._versions.open_newest()
            except BaseException:
                witnesses.put(key, before)
                raise
            return listed

    # --- which enclaves may have the key -----------------------------------------------------------

    @property
    def policy(self) -> "SignedPolicy | None":
        """What the owner asks of enclaves, as far as it is known here: the newest signed policy, None without one."""
        with self._turn:
            self._versions.refresh()
            return self._versions.policies.known(self._versions.key)

    def set_policy(self, terms: "Policy", *, lower: bool = False) -> "SignedPolicy":
        """Sign a policy and put it in force, for clients and for enclaves that hand the key on. Only the owner can.

        One that accepts anything more than the policy before is refused, unless `lower` says that this is meant. The
        enclave of this session has to meet it, too.
        """
        key = self._versions.key.as_owner()
        with self._turn, self._versions.writing():
            signed = next_policy(terms, key, self._versions.policies.known(key), lower=lower)
            self._put_policy(signed)
        return signed

    def reinstate_policy(self) -> None:
        """Put the newest known policy in force again, after an older version was restored. Only the owner can."""
        key = self._versions.key.as_owner()
        known = self._versions.policies.known(key)
        if known is not None and known.to_bytes() != self._versions.policy:
            with self._turn, self._versions.writing():
                self._put_policy(next_policy(known.terms, key, known))

    def _put_policy(self, signed: "SignedPolicy") -> None:
        self._versions.policies.hold(signed)
        self._versions.change(SetPolicy(signed.to_bytes()))

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
        with self._changing():
            kept = OwnerKey.open(self._versions.key_path, protection)  # a wrong passphrase: before anything changes
            old = self._versions.key.as_owner()
            if old.root not in (kept.root, kept.next_root):
                raise Stale("the key was changed meanwhile", hint="open the database again")
            new = OwnerKey(old.database, secrets.token_bytes(len(old.root)))
            self._versions.put_key(OwnerKey(old.database, old.root, new.root), protection)
            version = self._versions.catalog.version + 1
            title = next_title(old.database, version, old.signing_key(), new.signing_key(), new.data_key())
            known = self._versions.policies.known(old)
            policy = b"" if known is None else next_policy(known.terms, new, known).to_bytes()
            self._versions.change(Reseal(new.data_key(), title, self._signed_grants(new), policy), new)
            self._versions.put_key(new, protection)
            with suppress(Unavailable, Busy):  # then the next writer does it
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
