"""The embedded database: owner, provider and enclave as objects in one process, in a folder and a key file beside it.

This is the default and needs no set-up. The three have the same narrow interfaces as between machines, and nothing but
this module knows all of them. An enclave in the owner's own process protects nothing from that process, of course: what
it shows is exactly what a provider who keeps the folder would see.
"""

import uuid
from os import PathLike
from pathlib import Path

from scumble.enclave.session import TrustedEnclave
from scumble.errors import Exists, InvalidParameter, KeyRefused
from scumble.owner import key_file
from scumble.owner.database import Database
from scumble.owner.dbapi import Connection
from scumble.owner.key_file import Passphrase
from scumble.privacy.amounts import Exact
from scumble.privacy.ledger import Ledger
from scumble.provider.front import Provider
from scumble.provider.store import FileStore

__all__ = ["connect", "create", "open"]


def create(
    folder: str | PathLike[str],
    *,
    key: str | PathLike[str] | None = None,
    passphrase: Passphrase = None,
    limit: Exact = 4,
    delta_limit: Exact = "1e-6",
) -> Database:
    """Create an empty database in a new folder, its key file and its ledger beside it, and open it.

    Whoever has the key file, and its passphrase if there is one, can read everything; without it nobody can. `limit`
    and `delta_limit` are the most epsilon and delta that all indexes together may ever cost.
    """
    home, keys = _places(folder, key)
    if (home / "database.json").exists():
        raise Exists(f"there is a database in {home} already", hint="open it, or name another folder")
    if home.resolve() in keys.resolve().parents:
        raise InvalidParameter("the key file must not lie in the database's folder", hint="the provider keeps that")
    with Ledger.open(key_file.ledger_path(keys), limit, delta_limit=delta_limit):
        pass
    owner_key = key_file.create(keys, uuid.uuid4().hex, key_file.given_passphrase(passphrase))
    provider = Provider(FileStore.create(home, owner_key.database), TrustedEnclave)
    return Database.begin(provider, owner_key, keys)


def open(  # noqa: A001  as in scumble.open(path)
    folder: str | PathLike[str],
    *,
    key: str | PathLike[str] | None = None,
    passphrase: Passphrase = None,
    accept_restored: bool = False,
) -> Database:
    """Open the database in a folder with its key file: the one beside it, or SCUMBLE_KEY, or as given.

    After a restore of the folder from a backup, `accept_restored` takes the version that is there for the newest from
    now on, although a later one was seen. A provider who puts back an old version looks just the same: be sure who did.
    """
    home, keys = _places(folder, key)
    store = FileStore(home)
    owner_key = key_file.open_key(keys, passphrase)
    if owner_key.database != store.database:
        store.close()
        raise KeyRefused(f"{keys} is the key of another database", hint="name the right one with --key or SCUMBLE_KEY")
    return Database(Provider(store, TrustedEnclave), owner_key, keys, accept_restored=accept_restored)


def connect(
    folder: str | PathLike[str], *, key: str | PathLike[str] | None = None, passphrase: Passphrase = None
) -> Connection:
    """Open a database as a PEP 249 connection, for pandas.read_sql and the like."""
    return Connection(open(folder, key=key, passphrase=passphrase))


def _places(folder: str | PathLike[str], key: str | PathLike[str] | None) -> tuple[Path, Path]:
    home = Path(folder)
    return home, key_file.key_path(home, None if key is None else Path(key))
