"""Changes that need no rows: tables are dropped, rights given and taken, pages sealed under a new key.

A version that a session has open becomes a new one. SECRET in between; only the owner may ask for these.
"""

import os
from dataclasses import replace
from fractions import Fraction

from scumble.enclave.grants import AccessList
from scumble.enclave.pages import KEY_BYTES, DataKeys, RunReader, RunWriter
from scumble.enclave.versions import History, OpenVersion
from scumble.errors import InvalidParameter
from scumble.wire.catalog import Run, Table
from scumble.wire.channel import is_succession
from scumble.wire.grants import Grant
from scumble.wire.requests import Reseal
from scumble.wire.storage import Storage

__all__ = ["access_with", "commit_access", "drop_table", "reseal", "reseal_run"]

RESEALED_PAGES = 64  # at a time


def drop_table(history: History, version: OpenVersion, name: str) -> OpenVersion:
    """Commit a version without a table, and without rights to it."""
    current = version.manifest
    gone = current.catalog.table(name)
    left = tuple(other for other in current.catalog.tables if other.id != gone.id)
    return history.commit(version, left, current.real_rows, current.access.dropping(gone.name))


def access_with(version: OpenVersion, grant: Grant) -> AccessList:
    """The access list with one more grant, of which nothing is used."""
    unused = replace(grant, used_epsilon=Fraction(0), used_delta=Fraction(0))
    return version.manifest.access.granting(unused, version.manifest.catalog)


def commit_access(history: History, version: OpenVersion, access: AccessList) -> OpenVersion:
    """Commit a version in which nothing but the access list is new."""
    return history.commit(version, version.manifest.catalog.tables, version.manifest.real_rows, access)


def reseal(history: History, version: OpenVersion, request: Reseal) -> tuple[History, OpenVersion]:
    """Commit a version in which everything is sealed under a new data key, and go on as the owner of the new key."""
    if len(request.data_key) != KEY_BYTES or not is_succession(
        history.database, history.signer, request.owner, request.succession
    ):
        raise InvalidParameter("this is no key of 32 bytes, or not signed for", hint="upgrade Scumble")
    old, keys = version.manifest, DataKeys(request.data_key, history.database)
    tables: list[Table] = []
    real_rows: dict[str, int] = {}
    for table in old.catalog.tables:
        runs = [reseal_run(version.storage, table, run, version.reader(run.id)[0], keys) for run in table.runs]
        real_rows |= {after.id: old.real_rows[before.id] for before, after in zip(table.runs, runs, strict=True)}
        tables.append(replace(table, runs=tuple(runs)))
    successor = replace(history, signer=request.owner, data_key=request.data_key)
    access = old.access.owned_by(request.owner, request.succession)
    return successor, successor.commit(version, tuple(tables), real_rows, access, keys)


def reseal_run(storage: Storage, table: Table, run: Run, reader: RunReader, keys: DataKeys) -> Run:
    """Open every page of a run and seal it again, under a new name and so a new key."""
    name = os.urandom(16).hex()
    writer = RunWriter(storage, keys, table, name, run.pages, run.page_rows)
    for column in range(len(table.schema)):
        for first in range(0, run.pages, RESEALED_PAGES):
            count = min(RESEALED_PAGES, run.pages - first)
            writer.write_pages(column, first, reader.open_pages(column, first, count).reshape(count, -1))
    return replace(run, id=name, tag_hashes=writer.finish())
