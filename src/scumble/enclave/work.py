"""The enclave's work for one session: opened requests come in, answers go out, before they are sealed. SECRET.

A session sees one version of the database until it asks for the current one: a load does not disturb a reader. Who has
signed the greeting decides what it may do: the owner everything, an analyst what a grant of the newest version says.
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from scumble.enclave.grants import ANALYST_TASKS, Access, Cost, visible
from scumble.enclave.loads import Load
from scumble.enclave.pages import KEY_BYTES, DataKeys, RunReader
from scumble.enclave.queries import CompiledPlan, answer_bytes, execute
from scumble.enclave.reseal import reseal
from scumble.enclave.versions import (
    Manifest,
    Unlocked,
    Vault,
    check_chain,
    check_descent,
    open_head,
    open_manifest,
    seal_manifest,
)
from scumble.errors import Exists, InvalidParameter, Locked, Refused, Stale, Tampered
from scumble.types import Schema
from scumble.wire.catalog import Catalog, Run, Table
from scumble.wire.channel import Greeting, done, executed, executed_bytes, is_succession, padded, refusal
from scumble.wire.grants import Grant
from scumble.wire.plan import Plan
from scumble.wire.requests import EXECUTE, ROWS, Execution, IndexOrder, unpack_execution
from scumble.wire.storage import Storage

__all__ = ["Work"]

ANALYST_MEMORY_BYTES = 1 << 30
_BATCH = re.compile("[0-9a-f]{32}")

Answer = dict[str, Any]


class Work:
    """SECRET: what a session has open: keys, a version, plans, a load."""

    def __init__(self, storage: Storage, vault: Vault, greeting: Greeting) -> None:
        self._storage, self._vault, self._database = storage, vault, greeting.database
        self._signer, self._brought = greeting.signer, greeting.data_key
        self._unlocked: Unlocked | None = None
        self._manifest: Manifest | None = None
        self._grant: Grant | None = None
        self._runs: dict[str, tuple[Table, Run]] = {}
        self._readers: dict[str, tuple[RunReader, int]] = {}
        self._plans: list[CompiledPlan] = []
        self._load: Load | None = None
        self._tasks: dict[str, Callable[..., Answer]] = {
            "create": self._create,
            "open": self._open,
            "prepare": self._prepare,
            "forget": self._forget,
            "chain": self._chain,
            "check": self._check,
            "load": self._begin_load,
            "reserve": self._reserve,
            "build": self._build,
            "abandon": self._abandon,
            "drop": self._drop,
            "reseal": self._reseal,
            "grant": self._add_grant,
            "revoke": self._revoke,
            "grants": self._grants,
        }

    @property
    def may_write(self) -> bool:
        """Whether it could be of use to this session to hold the database for writing. PUBLIC: the front asks."""
        if self._manifest is None:
            return False
        return self._grant is None or any("load" in rights for rights in self._grant.tables.values())

    def answer(self, request: memoryview) -> bytes:
        """Do what is asked, if whoever asks may have it done."""
        kind, body = bytes(request[:1]), request[1:]
        if kind == EXECUTE:
            self._check_rights()
            return self._executed(body)
        if kind == ROWS:
            self._check_rights()
            self._current_load.append(body)
            return done(b"")
        fields = json.loads(bytes(body))
        name = fields.pop("task")
        if name not in ("create", "open"):
            self._check_rights(name)
        answer = self._tasks[name](**fields)
        return padded(done(json.dumps(answer).encode()), self._opened_bytes if "catalog" in answer else 0)

    def _check_rights(self, task: str = "prepare") -> None:
        """Refuse what the version that is open does not give a right to, or what a newer one may have taken away."""
        unlocked = self._vault.get(self._database)
        if unlocked is not self._unlocked or unlocked is None:
            self._follow(unlocked)
        if self._grant is not None and task not in ANALYST_TASKS:
            raise Refused

    def _follow(self, unlocked: Unlocked | None) -> None:
        """Another session has seen another version: an analyst has to open it first, an owner if the key changed."""
        if self._manifest is None or self._unlocked is None:
            raise InvalidParameter("no version is open", hint="open the database first")
        if self._grant is not None or unlocked is None or unlocked.data_key != self._unlocked.data_key:
            raise Stale("the database has changed", hint="ask again")
        self._unlocked = unlocked

    # --- versions ----------------------------------------------------------------------------------

    def _create(self) -> Answer:
        """Begin an empty database, of which whoever has signed the greeting is the owner."""
        if self._brought is None:
            raise Refused
        with self._vault.holding(self._database):
            if self._vault.get(self._database) is not None:
                raise Refused
            self._keys = DataKeys(self._brought, self._database)
            return self._commit(Catalog(self._database, 1, "", ()), {}, Access(self._signer))

    def _open(self, anchor: list[Any] | None, *, owner: str | None = None, restored: bool = False) -> Answer:
        """Take the current version, which has to descend from the anchored one and from the newest that was seen here.

        An analyst may name the `owner` that it expects. The owner may say that an older version was `restored`.
        """
        with self._vault.holding(self._database):
            unlocked = self._vault.get(self._database)
            data_key = self._brought if self._brought is not None or unlocked is None else unlocked.data_key
            if data_key is None:
                raise Locked
            keys = self._keys_for(data_key)
            manifest = self._head(keys, data_key, unlocked)
            try:
                grant = self._role(manifest.access, owner)
                if grant is not None and (unlocked is None or unlocked.owner != manifest.access.owner):
                    raise Refused  # whoever brought the key says that the database is somebody else's
            except Refused:
                self._shut()
                raise
            anchors = [] if anchor is None else [(int(anchor[0]), str(anchor[1]))]
            if unlocked is not None and not (restored and grant is None):
                anchors.append((unlocked.version, unlocked.hash))
            for remembered in anchors:
                check_descent(self._storage, manifest, remembered)
            self._unlocked = self._vault.remember(
                self._database,
                data_key,
                manifest.access.owner,
                manifest.catalog.version,
                manifest.hash,
                restored=restored and grant is None,
            )
            self._keys = keys
        return self._take(manifest)

    def _keys_for(self, data_key: bytes) -> DataKeys:
        if self._unlocked is not None and self._unlocked.data_key == data_key:
            return self._keys
        return DataKeys(data_key, self._database)

    def _head(self, keys: DataKeys, data_key: bytes, unlocked: Unlocked | None) -> Manifest:
        try:
            return open_head(self._storage, keys, self._database, None)
        except Tampered:
            if unlocked is not None and unlocked.data_key != data_key:  # the key of somebody else, or of another time
                self._shut()
                raise Refused from None
            raise

    def _role(self, access: Access, owner: str | None) -> Grant | None:
        """The signer's grant, None for the owner; Refused for everybody else."""
        if owner is not None and not access.succeeds(self._database, bytes.fromhex(owner)):
            raise Refused
        if self._signer == access.owner:
            return None
        if self._brought is not None:
            raise Refused
        return access.grant_of(self._signer)

    def _shut(self) -> None:
        """Forget all that is open: whoever is there has no right to it any more."""
        self._manifest = self._unlocked = self._grant = self._load = None
        self._runs, self._readers, self._plans = {}, {}, []

    def _chain(self) -> Answer:
        """Walk back to the first version: Tampered if one is missing or is not what its successor says."""
        check_chain(self._storage, self._current.catalog)
        return {}

    def _take(self, manifest: Manifest) -> Answer:
        self._manifest = manifest
        self._grant = self._role(manifest.access, None)
        self._visible = visible(manifest.catalog, self._grant)
        self._plans.clear()
        self._runs = {run.id: (table, run) for table in self._visible.tables for run in table.runs}
        self._readers = {run: reader for run, reader in self._readers.items() if run in self._runs}
        return {
            "catalog": self._visible.to_json(),
            "version": manifest.catalog.version,
            "hash": manifest.hash,
            "owner": manifest.access.owner.hex(),
            "grant": None if self._grant is None else self._grant.to_json(),
        }

    @property
    def _opened_bytes(self) -> int:
        """How long the answer with a catalog is at least: as long whatever part of the catalog is visible."""
        return 1024 + len(json.dumps(self._current.catalog.to_json()))

    def _commit(self, catalog: Catalog, real_rows: dict[str, int], access: Access) -> Answer:
        kept = {run.id for table in catalog.tables for run in table.runs}
        sealed = seal_manifest(self._keys, catalog, {run: real_rows[run] for run in kept}, access)
        data_key = self._brought if self._unlocked is None or self._brought is not None else self._unlocked.data_key
        assert data_key is not None  # noqa: S101  whoever has a version open has a key
        with self._vault.holding(self._database):
            self._check_newest()
            self._storage.commit(catalog.version, sealed)
            manifest = open_manifest(self._keys, sealed)
            self._unlocked = self._vault.remember(
                self._database, data_key, access.owner, catalog.version, manifest.hash
            )
        return self._take(manifest)

    def _check_newest(self) -> None:
        """Refuse to commit on top of anything but the newest version: a front could let two do so, and fork it."""
        newest = self._vault.get(self._database)
        ours = None if self._manifest is None else (self._manifest.catalog.version, self._manifest.hash)
        if ours != (None if newest is None else (newest.version, newest.hash)):
            raise Stale("the database has changed", hint="ask again")

    def _next(self, tables: tuple[Table, ...]) -> Catalog:
        current = self._current
        return Catalog(self._database, current.catalog.version + 1, current.hash, tables)

    @property
    def _current(self) -> Manifest:
        if self._manifest is None:
            raise InvalidParameter("no version is open", hint="open the database first")
        return self._manifest

    # --- grants ------------------------------------------------------------------------------------

    def _add_grant(self, grant: dict[str, Any], *, rehearsed: bool) -> Answer:
        """Make a version with one more grant; or, `rehearsed`, refuse what that would refuse, and no more."""
        wanted = replace(Grant.from_json(grant), used_epsilon=Fraction(0), used_delta=Fraction(0))
        access = self._current.access.granting(wanted, self._current.catalog)
        return {} if rehearsed else self._commit_access(access)

    def _revoke(self, name: str) -> Answer:
        """Make a version without a grant: from now on it counts for nothing."""
        return self._commit_access(self._current.access.revoking(name))

    def _grants(self) -> Answer:
        return {"grants": [grant.to_json() for grant in self._current.access.grants]}

    def _commit_access(self, access: Access) -> Answer:
        current = self._current
        return self._commit(self._next(current.catalog.tables), current.real_rows, access)

    # --- queries -----------------------------------------------------------------------------------

    def _prepare(self, plan: dict[str, Any]) -> Answer:
        """Keep a plan for executions; its table stays as it is in the version that is open now."""
        parsed = Plan.from_json(plan)
        table = None if self._manifest is None else self._visible.by_id.get(parsed.table)
        if table is None:
            raise Stale("the table is no longer there", hint="ask again")
        if self._grant is not None and not self._grant.may("read", table.name):
            raise Refused
        self._plans.append(CompiledPlan(parsed, table))
        return {"plan": len(self._plans) - 1}

    def _forget(self) -> Answer:
        """Forget all plans: numbers begin at 0 again."""
        self._plans.clear()
        return {}

    def _executed(self, body: memoryview) -> bytes:
        """The answer to an execution. An error on the way, which may depend on a row, is as long as the answer."""
        execution = unpack_execution(body)
        try:
            return executed(self._execute(execution))
        except Exception as error:
            return refusal(error, executed_bytes(answer_bytes(self._plans[execution.plan], execution)))

    def _execute(self, execution: Execution) -> bytes:
        return execute(self._plans[execution.plan], execution, self._reader)

    def _reader(self, run: str) -> tuple[RunReader, int]:
        known = self._readers.get(run)
        if known is None:
            if run not in self._runs:
                raise Stale("the table has changed", hint="ask again")
            reader = RunReader(self._storage, self._keys, *self._runs[run])
            known = self._readers[run] = reader, self._current.real_rows[run]
        return known

    def _check(self, run: str, column: int, first_page: int, pages: int) -> Answer:
        """Open some pages and throw them away: Tampered if one is not what was stored."""
        self._reader(run)[0].open_pages(column, first_page, pages)
        return {}

    # --- changes: the client holds the writer's lock, and has opened the current version since -----

    def _begin_load(
        self,
        table: str,
        table_id: str,
        schema: list[dict[str, Any]],
        orders: list[dict[str, Any]],
        page_rows: int,
        memory_bytes: int,
        batch: str,
        capacity_cost: list[str],
    ) -> Answer:
        """Expect rows for a table, a new one or one that is there with the same columns and indexes.

        `batch` is the client's name for the rows: what has been loaded under it is not loaded again.
        """
        if not _BATCH.fullmatch(batch) or page_rows & (page_rows - 1) or not 16 <= page_rows <= 1 << 20:
            raise InvalidParameter("a batch has 32 hexadecimal digits, a page a power of two of rows", hint="upgrade")
        if self._has(batch):
            return {"done": True}
        catalog, columns, wanted = self._visible, Schema.from_json(schema), tuple(map(IndexOrder.from_json, orders))
        cost = Cost.of(wanted, capacity_cost)
        if self._grant is not None:
            name, memory_bytes = catalog.table(table).name, min(memory_bytes, ANALYST_MEMORY_BYTES)
            if not self._grant.may("load", name):
                raise Refused
            self._current.access.charging(self._grant, cost)
        target = catalog.table(table) if table in catalog else Table(table_id, table, columns, ())
        if target.schema != columns or (target.runs and target.attributes != _attributes(wanted)):
            raise Exists(
                f"the table {table!r} is there, with other columns or indexes", hint="load into a table of another name"
            )
        self._load = Load(self._storage, target, wanted, page_rows, memory_bytes, batch)
        self._cost = cost
        return {"done": False}

    def _has(self, batch: str) -> bool:
        return any(run.batch == batch for _, run in self._runs.values())

    @property
    def _current_load(self) -> Load:
        if self._load is None:
            raise InvalidParameter("no load is under way", hint="begin one first")
        return self._load

    def _reserve(self, capacity: int) -> Answer:
        """Make room for the runs of the rows that have come."""
        self._current_load.reserve(self._keys, capacity)
        return {}

    def _build(self, real_rows: int, batch: str) -> Answer:
        """Make the runs, and a version that has them; if the one that is open has them already, that is it."""
        if self._has(batch):
            self._load = None
            return self._take(self._current)
        load, manifest = self._current_load, self._current
        if load.batch != batch:
            raise InvalidParameter("another batch is under way", hint="begin a load for this one")
        access = manifest.access
        if self._grant is not None:
            access = access.charging(self._grant, self._cost)
        self._load = None
        runs = load.build()
        self._storage.drop_scratch()
        table = replace(load.table, runs=(*load.table.runs, *runs))
        others = tuple(other for other in manifest.catalog.tables if other.id != table.id)
        real = manifest.real_rows | {run.id: real_rows for run in runs}
        return self._commit(self._next((*others, table)), real, access)

    def _abandon(self) -> Answer:
        """Forget the rows that have come; those of another session's load are none of this one's business."""
        if self._load is not None:
            self._load = None
            self._storage.drop_scratch()
        return {}

    def _drop(self, table: str) -> Answer:
        """Make a version without a table, and without rights to it."""
        current = self._current
        gone = current.catalog.table(table)
        left = tuple(other for other in current.catalog.tables if other.id != gone.id)
        return self._commit(self._next(left), current.real_rows, current.access.dropping(gone.name))

    def _reseal(self, data_key: str, owner: str, succession: str) -> Answer:
        """Make a version in which everything is sealed under a new data key, with a new owner's key, and go on so."""
        new_key, signer, signature = map(bytes.fromhex, (data_key, owner, succession))
        if len(new_key) != KEY_BYTES or not is_succession(self._database, self._signer, signer, signature):
            raise InvalidParameter("this is no key of 32 bytes, or not signed for", hint="upgrade Scumble")
        old, new = self._current, DataKeys(new_key, self._database)
        tables: list[Table] = []
        real_rows: dict[str, int] = {}
        for table in old.catalog.tables:
            runs = [reseal(self._storage, table, run, self._reader(run.id)[0], new) for run in table.runs]
            real_rows |= {after.id: old.real_rows[before.id] for before, after in zip(table.runs, runs, strict=True)}
            tables.append(replace(table, runs=tuple(runs)))
        before = self._keys, self._readers, self._brought, self._signer
        self._keys, self._readers, self._brought, self._signer = new, {}, new_key, signer
        try:
            return self._commit(self._next(tuple(tables)), real_rows, old.access.owned_by(signer, signature))
        except BaseException:
            self._keys, self._readers, self._brought, self._signer = before
            raise


def _attributes(orders: tuple[IndexOrder, ...]) -> tuple[str | None, ...]:
    return tuple(order.attribute for order in orders) or (None,)
