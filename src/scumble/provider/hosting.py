"""The databases that a service hosts, by tenant and name, and who may create more.

    <folder>/tenants.json              who may make databases: names, and hashes of their tokens
    <folder>/<tenant>/<database>/      one database each, as store/files.py lays it out

All of it is the provider's own, and public to it.
"""

import hashlib
import hmac
import json
import re
import secrets
import threading
from pathlib import Path
from typing import Any

from scumble.errors import Exists, FileError, InvalidParameter, NotFound
from scumble.provider.fleet import Fleet
from scumble.provider.front import Provider
from scumble.provider.leases import Leases
from scumble.provider.routing import Read, Routing
from scumble.store import create_store, is_store, open_store
from scumble.store.collecting import KEPT, check_kept
from scumble.store.protocol import check_name
from scumble.store.runs import read_whole, replace
from scumble.wire.storage import Storage

__all__ = ["DEFAULT_TENANT", "Hosted", "Hosting", "add_tenant"]

DEFAULT_TENANT = "default"
TENANTS = "tenants.json"
MOST_TENANTS_BYTES = 1 << 24
TOKEN_BYTES = 24

_NAME = re.compile("[a-z0-9][a-z0-9_-]{0,63}")


class Hosted:
    """One open database: its store, its leases, and the routes of its sessions to the enclaves."""

    def __init__(self, folder: Path, fleet: Fleet, read: Read, keep_versions: int = KEPT) -> None:
        self.store = open_store(folder)
        self.store.keep_versions = keep_versions
        self.leases = Leases(self.store)
        self._fleet, self._read = fleet, read
        self.provider = Provider(self.store, self._route)

    def _route(self, storage: Storage) -> Routing:
        self.routing = Routing(self._fleet, storage, self.leases, self._read)
        return self.routing

    def close(self) -> None:
        self.provider.close()


class Hosting:
    """All databases below a folder, each opened when it is first asked for."""

    def __init__(
        self, folder: Path, fleet: Fleet, read: Read, *, open_to_all: bool = False, keep_versions: int = KEPT
    ) -> None:
        self._folder, self._fleet, self._read, self._open_to_all = folder, fleet, read, open_to_all
        self._keep_versions = check_kept(keep_versions)
        self._turn = threading.Lock()
        self._hosted: dict[tuple[str, str], Hosted] = {}

    def known(self, tenant: str, name: str) -> Hosted | None:
        return self._hosted.get((tenant, name))

    def get(self, tenant: str, name: str) -> Hosted:
        """A database; NotFound if there is none of the name."""
        folder = self._place(tenant, name)
        with self._turn:
            if (tenant, name) not in self._hosted:
                if not is_store(folder):
                    raise NotFound("there is no such database", hint="make it with `scumble init scumble://...`")
                self._hosted[tenant, name] = Hosted(folder, self._fleet, self._read, self._keep_versions)
            return self._hosted[tenant, name]

    def create(self, tenant: str, name: str, database: str, token: str) -> Hosted:
        """Make an empty database for a tenant who shows its token; one that was begun under the same id goes on."""
        folder = self._place(tenant, name)
        if not self._open_to_all and not _is_token(self._folder, tenant, token):
            raise NotFound(
                "no tenant of this name has this token",
                hint="give the one that the provider's `scumble tenant DIR NAME` prints, with --token",
            )
        check_name(database, "a database")  # before anything is made, or compared
        with self._turn:
            if is_store(folder):
                store = open_store(folder)
                begun = store.is_empty() and hmac.compare_digest(store.database, database)
                store.close()
                if not begun:
                    raise Exists("there is a database of this name already", hint="open it, or choose another name")
            else:
                folder.parent.mkdir(exist_ok=True)
                create_store(folder, database).close()
        return self.get(tenant, name)

    @property
    def opened(self) -> int:
        """How many are open, without waiting for one that is being opened."""
        return len(self._hosted)

    def every(self) -> list[Hosted]:
        with self._turn:
            return list(self._hosted.values())

    def close(self) -> None:
        for hosted in self.every():
            hosted.close()

    def _place(self, tenant: str, name: str) -> Path:
        for part in (tenant, name):
            if not _NAME.fullmatch(part):
                raise NotFound("this is no name of a database", hint="lower-case letters, digits, - and _")
        return self._folder / tenant / name


def add_tenant(folder: Path, tenant: str) -> str:
    """Let a tenant make databases; its token, which is kept nowhere. A second call replaces the first one's."""
    if not _NAME.fullmatch(tenant):
        raise InvalidParameter("this is no name of a tenant", hint="lower-case letters, digits, - and _")
    if not folder.is_dir():
        raise FileError(f"{folder} is not a folder", hint=f"make it first: mkdir -p {folder}")
    token = secrets.token_urlsafe(TOKEN_BYTES)
    tenants = _tenants(folder) | {tenant: _hash(token)}
    replace(folder / TENANTS, TENANTS, (json.dumps(tenants, indent=1) + "\n").encode())
    return token


def _is_token(folder: Path, tenant: str, token: str) -> bool:
    return hmac.compare_digest(_tenants(folder).get(tenant, ""), _hash(token))


def _tenants(folder: Path) -> dict[str, str]:
    path = folder / TENANTS
    if not path.exists():
        return {}
    try:
        tenants: Any = json.loads(read_whole(path, TENANTS, MOST_TENANTS_BYTES))
    except ValueError:
        tenants = None
    if not isinstance(tenants, dict) or not all(isinstance(known, str) for known in tenants.values()):
        raise FileError(f"{path} does not read as a list of tenants", hint="restore it, or add the tenants again")
    return tenants


def _hash(token: str) -> str:
    return hashlib.sha256(b"scumble tenant token v1" + token.encode()).hexdigest()
