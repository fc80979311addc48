"""The embedded database: owner, provider and enclave in one process, with a folder and a key file beside it.

This is the default and needs no set-up. The three talk through the same narrow interfaces as between machines, and
only this module knows all of them. An enclave in the owner's own process hides nothing from that process; what it shows
is exactly what a provider that keeps the folder would see.
"""

from contextlib import suppress
from os import PathLike
from pathlib import Path

from scumble.enclave.sessions import TrustedEnclave
from scumble.errors import Busy, Exists, FileError, InvalidParameter
from scumble.owner import key_file
from scumble.owner.beginning import begin_key
from scumble.owner.database import Database
from scumble.owner.dbapi import Connection
from scumble.owner.identity import open_any
from scumble.owner.key_file import Passphrase
from scumble.privacy.amounts import Exact
from scumble.provider.front import Provider
from scumble.store import create_store, is_store, open_store
from scumble.store.protocol import Location

__all__ = ["connect", "create", "open"]


def create(
    folder: Location,
    *,
    key: str | PathLike[str] | None = None,
    passphrase: Passphrase = None,
    limit: Exact = 4,
    delta_limit: Exact = "1e-6",
) -> Database:
    """Create an empty database in a new folder, its key file and its ledger beside it, and open it.

    Anyone with the key file, and its passphrase if there is one, can read everything; nobody else can. `limit` and
    `delta_limit` are the most epsilon and delta that all indexes together may ever cost.
    """
    home, keys = _places(folder, key)
    begun = key_file.was_begun(keys)  # then the making of a database that was cut short goes on
    there = is_store(folder)
    if there and not (begun and open_store(folder).is_empty()):
        raise Exists(f"there is a database in {home} already", hint="open it, or name another folder")
    if home.resolve() in keys.resolve().parents:
        raise InvalidParameter("the key file must not lie in the database's folder", hint="the provider keeps that")
    owner_key = begin_key(keys, passphrase, limit, delta_limit)
    store = open_store(folder) if there else create_store(folder, owner_key.database)
    if store.database != owner_key.database:
        raise Exists(f"there is a database in {home} already", hint="open it, or name another folder")
    return Database.begin(Provider(store, TrustedEnclave), owner_key, keys)


def open(  # noqa: A001  as in scumble.open(path)
    folder: Location,
    *,
    key: str | PathLike[str] | None = None,
    passphrase: Passphrase = None,
    accept_restored: bool = False,
    owner: str | None = None,
) -> Database:
    """Open the database in a folder with its key file: the one beside it, or SCUMBLE_KEY, or as given.

    After a restore of the folder from a backup, `accept_restored` takes the version that is there for the newest from
    now on, although a later one was seen. A provider who puts back an old version looks just the same: be sure who did.
    """
    _, keys = _places(folder, key)
    store = open_store(folder)
    try:
        opener = open_any(keys, store.database, passphrase)
    except BaseException:
        store.close()
        raise
    database = Database(Provider(store, TrustedEnclave), opener, keys, accept_restored=accept_restored, owner=owner)
    if opener.next_root is not None:
        with suppress(Busy, FileError):  # another process is at it, or the folder is read-only: reading works
            database.settle_key(passphrase)
    return database


def connect(folder: Location, *, key: str | PathLike[str] | None = None, passphrase: Passphrase = None) -> Connection:
    """Open a database as a PEP 249 connection, for pandas.read_sql and the like."""
    return Connection(open(folder, key=key, passphrase=passphrase))


def _places(folder: Location, key: str | PathLike[str] | None) -> tuple[Path, Path]:
    home = Path(folder)
    return home, key_file.key_path(home, None if key is None else Path(key))
