"""Manifests: the catalog of a version and the secrets that go with it, sealed; and the chain of the versions.

The catalog is public; the number of real rows in each run, the owner's public key and the grants are SECRET. A
manifest is sealed under the data key with the catalog as associated data, so nobody else can make one; each names the
hash of the one before it. An owner who remembers one hash can therefore tell a later version from a forged or an
earlier one.
"""

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag

from scumble.enclave.grants import Access
from scumble.enclave.pages import NONCE_BYTES, DataKeys
from scumble.errors import NotFound, Tampered
from scumble.wire.catalog import Catalog
from scumble.wire.manifest import LENGTH, pack, unpack
from scumble.wire.storage import Storage

__all__ = [
    "Manifest",
    "Unlocked",
    "Vault",
    "check_chain",
    "check_descent",
    "manifest_hash",
    "open_head",
    "open_manifest",
    "seal_manifest",
]


@dataclass(frozen=True, slots=True, eq=False)
class Unlocked:
    """SECRET: a database's data key, who brought it, and the newest version that this enclave knows, with its hash.

    `restores` is how often the owner has taken an older version for the newest: it goes before the version.
    """

    data_key: bytes = field(repr=False)
    owner: bytes
    version: int
    hash: str
    restores: int = 0


class Vault:
    """SECRET: what is unlocked, by database. Threads may share it."""

    def __init__(self) -> None:
        self._unlocked: dict[str, Unlocked] = {}
        self._turns: dict[str, threading.RLock] = {}
        self._turn = threading.Lock()
        self.changes = 0
        """Goes up whenever there is something new to hand to another enclave."""

    def holding(self, database: str) -> AbstractContextManager[bool]:
        """Be the only one who opens or commits a version of this database: nobody sees a head without its key."""
        with self._turn:
            return self._turns.setdefault(database, threading.RLock())

    def get(self, database: str) -> Unlocked | None:
        """What is known of a database: the same object until there is something newer. None: it is locked."""
        return self._unlocked.get(database)

    def remember(
        self, database: str, data_key: bytes, owner: bytes, version: int, manifest_hash: str, *, restored: bool = False
    ) -> Unlocked:
        """Remember a version that was opened or committed; the caller holds the database, and has checked descent.

        `owner` has signed for the key, and is what the version says. `restored`: an older version is the newest now.
        """
        known = self._unlocked.get(database)
        restores = 0 if known is None else known.restores + (restored and version < known.version)
        fresh = Unlocked(data_key, owner, version, manifest_hash, restores)
        if known is not None and _facts(known) == _facts(fresh):
            return known
        self._put(database, fresh)
        return fresh

    def _put(self, database: str, unlocked: Unlocked) -> None:
        with self._turn:
            self.changes += 1
            self._unlocked[database] = unlocked

    def export(self, database: str | None = None) -> bytes:
        """What is unlocked, or one database of it, for another enclave. SECRET: whoever calls this seals it."""
        with self._turn:
            given = {
                name: [known.data_key.hex(), known.owner.hex(), known.version, known.hash, known.restores]
                for name, known in self._unlocked.items()
                if database in (None, name)
            }
        return json.dumps(given).encode()

    def adopt(self, exported: bytes) -> None:
        """Take over what another enclave has exported; where this one knows a newer version, that stays."""
        try:
            given = {
                str(name): Unlocked(
                    bytes.fromhex(data_key), bytes.fromhex(owner), int(version), str(digest), int(restores)
                )
                for name, (data_key, owner, version, digest, restores) in json.loads(exported).items()
            }
        except (ValueError, TypeError, AttributeError):
            raise Tampered from None
        for name, other in given.items():
            with self.holding(name):
                known = self._unlocked.get(name)
                if known is None or (other.restores, other.version) > (known.restores, known.version):
                    self._put(name, other)

    def __repr__(self) -> str:
        return f"<Vault: {len(self._unlocked)} unlocked>"


def _facts(unlocked: Unlocked) -> tuple[bytes, bytes, int, str, int]:
    return unlocked.data_key, unlocked.owner, unlocked.version, unlocked.hash, unlocked.restores


ROW_COUNT_BYTES = 24  # a run's name, and how many of its rows are real


@dataclass(frozen=True, eq=False)
class Manifest:
    """A version: its public catalog, its hash, and SECRET, how many rows of each run are real, and who may do what."""

    catalog: Catalog
    hash: str
    real_rows: dict[str, int]
    access: Access

    def __repr__(self) -> str:
        return f"Manifest(version={self.catalog.version}, real_rows=<secret>, access=<secret>)"


def manifest_hash(manifest: bytes) -> str:
    """What the next manifest, and the owner, remember of this one."""
    return hashlib.sha256(manifest).hexdigest()


def seal_manifest(keys: DataKeys, catalog: Catalog, real_rows: dict[str, int], access: Access) -> bytes:
    """The manifest's bytes. How long the secret part is depends on the number of runs, and roughly that of grants."""
    public = json.dumps(catalog.to_json(), separators=(",", ":")).encode()
    rows = b"".join(bytes.fromhex(run) + rows.to_bytes(8, "little") for run, rows in sorted(real_rows.items()))
    secret = LENGTH.pack(len(rows)) + rows + access.to_bytes()
    nonce = os.urandom(NONCE_BYTES)
    return pack(public, nonce + keys.manifest.encrypt(nonce, secret, public))


def open_manifest(keys: DataKeys, manifest: bytes) -> Manifest:
    """The inverse, or Tampered."""
    public, sealed = unpack(manifest)
    try:
        secret = keys.manifest.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], public)
    except (InvalidTag, ValueError):
        raise Tampered from None
    (length,) = LENGTH.unpack_from(secret)
    counts, block = secret[LENGTH.size : LENGTH.size + length], secret[LENGTH.size + length :]
    rows = {
        counts[at : at + 16].hex(): int.from_bytes(counts[at + 16 : at + ROW_COUNT_BYTES], "little")
        for at in range(0, length, ROW_COUNT_BYTES)
    }
    catalog = Catalog.from_json(json.loads(public))
    return Manifest(catalog, manifest_hash(manifest), rows, Access.from_bytes(block))


def open_head(storage: Storage, keys: DataKeys, database: str, anchor: tuple[int, str] | None) -> Manifest:
    """The current version, which has to be the anchored one or a later one that descends from it; else Tampered."""
    try:
        head = open_manifest(keys, storage.head())
        if head.catalog.database != database:
            raise Tampered
        if anchor is not None:
            check_descent(storage, head, anchor)
    except NotFound:
        raise Tampered from None
    return head


def check_chain(storage: Storage, catalog: Catalog) -> None:
    """Walk back to the first version, or Tampered."""
    for _ in _ancestors(storage, catalog, 1):
        pass


def check_descent(storage: Storage, head: Manifest, anchor: tuple[int, str]) -> None:
    """Tampered unless a version is the anchored one, or hashes lead from it back to that."""
    if [(head.catalog.version, head.hash), *_ancestors(storage, head.catalog, anchor[0])][-1] != anchor:
        raise Tampered


def _ancestors(storage: Storage, catalog: Catalog, until: int) -> Iterator[tuple[int, str]]:
    """The versions before a catalog's and their hashes, back to `until`.

    By hashes alone: whoever is vouched for by a hash needs no key, not even one that was replaced since.
    """
    while catalog.version > until:
        try:
            earlier = storage.manifest(catalog.version - 1)
        except NotFound:
            raise Tampered from None
        if manifest_hash(earlier) != catalog.previous:
            raise Tampered
        yield catalog.version - 1, catalog.previous
        catalog = Catalog.from_json(json.loads(unpack(earlier)[0]))
