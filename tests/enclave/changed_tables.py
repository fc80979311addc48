"""For tests of what changes rows inside the enclave: a version that is open, over a storage in memory."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from enclave_tables import DATA_KEY, DATABASE, KEYS, OWNER, OWNER_KEY, TITLE, MemoryStorage

from scumble.enclave.dummies import Dummies
from scumble.enclave.grants import AccessList
from scumble.enclave.manifests import Manifest
from scumble.enclave.pages import RunReader, RunWriter
from scumble.enclave.vault import Unlocked
from scumble.enclave.versions import OpenVersion
from scumble.wire.catalog import Catalog, Run, Table
from scumble.wire.grants import Grant
from scumble.wire.lineage import Draft, Link, sign_draft

Value = tuple[int, ...] | None
Row = tuple[Value, ...]
"""The words of each column, or None for null."""


def opened(storage: MemoryStorage, *tables: Table, grant: Grant | None = None, signed: bool = True) -> OpenVersion:
    """A version with these tables, all of whose rows are real."""
    access = AccessList(OWNER_KEY, () if grant is None else (grant,))
    catalog = Catalog(DATABASE, 1, "", tables, (TITLE,))
    dummies = {run.id: Dummies.after(run.capacity) for table in tables for run in table.runs}
    draft = Draft(0, 1, "", "ff" * 32)
    link = Link(draft, OWNER_KEY, sign_draft(DATABASE, draft, OWNER)) if signed else None
    manifest = Manifest(catalog, draft.hash, dummies, access, link)
    return OpenVersion(storage, KEYS, Unlocked(DATA_KEY, access, 0, 1, draft.hash), manifest, grant, ())


def with_run(storage: MemoryStorage, table: Table, run: Run, rows: Sequence[Row]) -> Table:
    """A table with one more run, of just these rows."""
    assert len(rows) == run.capacity
    writer = RunWriter(storage, KEYS, table, run.id, run.pages, run.page_rows, run.columns)
    for at, place in enumerate(table.held(run)):
        column = table.schema.columns[place]
        words = np.array([row[at] or (0,) * column.type.words for row in rows], np.int64)
        valid = np.array([row[at] is not None for row in rows], np.uint8)
        flat = words.reshape(-1) if column.type.words == 1 else words
        writer.write(place, 0, flat, valid if column.nullable else None)
    return replace(table, runs=(*table.runs, replace(run, tag_hashes=writer.finish())))


def stored(storage: MemoryStorage, table: Table, run: Run) -> list[tuple[bool, Row]]:
    """Every place of a run: whether no layer says that its row was deleted, and the row."""
    reader = RunReader(storage, KEYS, table, run)
    live = reader.live(0, run.pages)
    columns: list[list[Value]] = []
    for place in table.held(run):
        fetched = reader.fetch(place, 0, run.pages)
        words = fetched.words.reshape(run.capacity, -1).tolist()
        valid = [True] * run.capacity if fetched.valid is None else fetched.valid.astype(bool).tolist()
        columns.append([tuple(value) if there else None for value, there in zip(words, valid, strict=True)])
    alive = [True] * run.capacity if live is None else live.astype(bool).tolist()
    return list(zip(alive, zip(*columns, strict=True), strict=True))


def alive(version: OpenVersion, table: Table, run: Run) -> list[Row]:
    """The rows of a run that are neither dummies nor deleted."""
    real = version.manifest.dummies[run.id].mask(0, run.capacity).astype(bool).tolist()
    found = stored(version.storage, table, run)  # type: ignore[arg-type]
    return [row for (there, row), is_real in zip(found, real, strict=True) if there and is_real]
