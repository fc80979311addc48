"""The enclave's work for one session: opened requests come in, answers go out, before they are sealed. SECRET.

A session sees one version of the database until it asks for the current one: a load does not disturb a reader.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from scumble.boundary.catalog import Catalog, Run, Table
from scumble.boundary.orders import IndexOrder
from scumble.boundary.plan import Plan
from scumble.boundary.requests import EXECUTE, ROWS, unpack_execution
from scumble.boundary.storage import Storage
from scumble.enclave.build import Load
from scumble.enclave.execute import Prepared, execute
from scumble.enclave.keys import DataKeys
from scumble.enclave.manifests import Manifest, check_chain, open_head, open_manifest, seal_manifest
from scumble.enclave.pages import RunReader
from scumble.enclave.reseal import reseal
from scumble.errors import Exists, InvalidParameter, Stale
from scumble.schema import Schema

__all__ = ["Work"]

Answer = dict[str, Any]


class Work:
    """SECRET: what a session has open: keys, a version, plans, a load."""

    def __init__(self, storage: Storage, keys: DataKeys, database: str) -> None:
        self._storage, self._keys, self._database = storage, keys, database
        self._manifest: Manifest | None = None
        self._runs: dict[str, tuple[Table, Run]] = {}
        self._readers: dict[str, tuple[RunReader, int]] = {}
        self._plans: list[Prepared] = []
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
        }

    def answer(self, request: memoryview) -> bytes:
        """Do what is asked."""
        kind, body = bytes(request[:1]), request[1:]
        if kind == EXECUTE:
            return self._execute(body)
        if kind == ROWS:
            self._current_load.append(body)
            return b""
        fields = json.loads(bytes(body))
        task = self._tasks[fields.pop("task")]
        return json.dumps(task(**fields)).encode()

    # --- versions ----------------------------------------------------------------------------------

    def _create(self) -> Answer:
        """Begin an empty database."""
        return self._commit(Catalog(self._database, 1, "", ()), {})

    def _open(self, anchor: list[Any] | None) -> Answer:
        """Take the current version, which has to descend from the anchored one."""
        remembered = None if anchor is None else (int(anchor[0]), str(anchor[1]))
        return self._take(open_head(self._storage, self._keys, self._database, remembered))

    def _chain(self) -> Answer:
        """Walk back to the first version: Tampered if one is missing or is not what its successor says."""
        check_chain(self._storage, self._current.catalog)
        return {}

    def _take(self, manifest: Manifest) -> Answer:
        self._manifest = manifest
        self._plans.clear()
        self._runs = {run.id: (table, run) for table in manifest.catalog.tables for run in table.runs}
        self._readers = {run: reader for run, reader in self._readers.items() if run in self._runs}
        return {"catalog": manifest.catalog.to_json(), "version": manifest.catalog.version, "hash": manifest.hash}

    def _commit(self, catalog: Catalog, real_rows: dict[str, int]) -> Answer:
        kept = {run.id for table in catalog.tables for run in table.runs}
        sealed = seal_manifest(self._keys, catalog, {run: real_rows[run] for run in kept})
        self._storage.commit(catalog.version, sealed)
        return self._take(open_manifest(self._keys, sealed))

    def _next(self, tables: tuple[Table, ...]) -> Catalog:
        current = self._current
        return Catalog(self._database, current.catalog.version + 1, current.hash, tables)

    @property
    def _current(self) -> Manifest:
        if self._manifest is None:
            raise InvalidParameter("no version is open", hint="open the database first")
        return self._manifest

    # --- queries -----------------------------------------------------------------------------------

    def _prepare(self, plan: dict[str, Any]) -> Answer:
        """Keep a plan for executions; its table stays as it is in the version that is open now."""
        parsed = Plan.from_json(plan)
        table = self._current.catalog.by_id.get(parsed.table)
        if table is None:
            raise Stale("the table is no longer there", hint="ask again")
        self._plans.append(Prepared(parsed, table))
        return {"plan": len(self._plans) - 1}

    def _forget(self) -> Answer:
        """Forget all plans: numbers begin at 0 again."""
        self._plans.clear()
        return {}

    def _execute(self, body: memoryview) -> bytes:
        execution = unpack_execution(body)
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

    # --- changes: the owner holds the writer's lock, and has opened the current version since ------

    def _begin_load(
        self,
        table: str,
        table_id: str,
        schema: list[dict[str, Any]],
        orders: list[dict[str, Any]],
        page_rows: int,
        memory_bytes: int,
    ) -> Answer:
        """Expect rows for a table, a new one or one that is there with the same columns and indexes."""
        catalog, columns = self._current.catalog, Schema.from_json(schema)
        target = catalog.table(table) if table in catalog else Table(table_id, table, columns, ())
        wanted = tuple(map(IndexOrder.from_json, orders))
        if target.schema != columns or (target.runs and target.attributes != _attributes(wanted)):
            raise Exists(
                f"the table {table!r} is there, with other columns or indexes", hint="load into a table of another name"
            )
        self._load = Load(self._storage, target, wanted, page_rows, memory_bytes)
        return {}

    @property
    def _current_load(self) -> Load:
        if self._load is None:
            raise InvalidParameter("no load is under way", hint="begin one first")
        return self._load

    def _reserve(self, capacity: int) -> Answer:
        """Make room for the runs of the rows that have come."""
        self._current_load.reserve(self._keys, capacity)
        return {}

    def _build(self, real_rows: int) -> Answer:
        """Make the runs, and a version that has them."""
        load, manifest = self._current_load, self._current
        self._load = None
        runs = load.build()
        self._storage.drop_scratch()
        table = replace(load.table, runs=(*load.table.runs, *runs))
        others = tuple(other for other in manifest.catalog.tables if other.id != table.id)
        return self._commit(self._next((*others, table)), manifest.real_rows | {run.id: real_rows for run in runs})

    def _abandon(self) -> Answer:
        """Forget the rows that have come."""
        self._load = None
        self._storage.drop_scratch()
        return {}

    def _drop(self, table: str) -> Answer:
        """Make a version without a table."""
        gone = self._current.catalog.table(table)
        left = tuple(other for other in self._current.catalog.tables if other.id != gone.id)
        return self._commit(self._next(left), self._current.real_rows)

    def _reseal(self, data_key: str) -> Answer:
        """Make a version in which everything is sealed under a new data key, and go on with that."""
        old, new = self._current, DataKeys(bytes.fromhex(data_key), self._database)
        tables: list[Table] = []
        real_rows: dict[str, int] = {}
        for table in old.catalog.tables:
            runs = [reseal(self._storage, table, run, self._reader(run.id)[0], new) for run in table.runs]
            real_rows |= {after.id: old.real_rows[before.id] for before, after in zip(table.runs, runs, strict=True)}
            tables.append(replace(table, runs=tuple(runs)))
        before = self._keys, self._readers
        self._keys, self._readers = new, {}
        try:
            return self._commit(self._next(tuple(tables)), real_rows)
        except BaseException:
            self._keys, self._readers = before
            raise


def _attributes(orders: tuple[IndexOrder, ...]) -> tuple[str | None, ...]:
    return tuple(order.attribute for order in orders) or (None,)
