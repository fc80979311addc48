"""The versions of a database: how they are sealed, chained to each other, opened and committed.

The catalog is public; the number of real rows in each run, the owner's public key and the grants are SECRET. A manifest
is sealed under the data key with the catalog as associated data, so nobody else can make one; each names the hash of
the one before it. Who remembers one hash, as owners and the `Vault` do, can therefore tell a later version from a
forged or an earlier one.
"""

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass, field

from cryptography.exceptions import InvalidTag

from scumble.enclave.grants import AccessList, visible
from scumble.enclave.pages import NONCE_BYTES, DataKeys, RunReader
from scumble.errors import InvalidParameter, Locked, NotFound, Refused, Stale, Tampered
from scumble.wire.catalog import Catalog, Run, Table
from scumble.wire.grants import Grant
from scumble.wire.requests import Open, Opened
from scumble.wire.storage import LENGTH, Storage, pack, unpack

__all__ = [
    "History",
    "Manifest",
    "OpenVersion",
    "Unlocked",
    "Vault",
    "check_chain",
    "check_descent",
    "manifest_hash",
    "open_head",
    "open_manifest",
    "seal_manifest",
]


ROW_COUNT_BYTES = 24  # a run's name, and how many of its rows are real


@dataclass(frozen=True, eq=False)
class Manifest:
    """A version: its public catalog, its hash, and SECRET, how many rows of each run are real, and who may do what."""

    catalog: Catalog
    hash: str
    real_rows: dict[str, int]
    access: AccessList

    def __repr__(self) -> str:
        return f"Manifest(version={self.catalog.version}, real_rows=<secret>, access=<secret>)"


def manifest_hash(manifest: bytes) -> str:
    """What the next manifest, and the owner, remember of this one."""
    return hashlib.sha256(manifest).hexdigest()


def seal_manifest(keys: DataKeys, catalog: Catalog, real_rows: dict[str, int], access: AccessList) -> bytes:
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
    return Manifest(catalog, manifest_hash(manifest), rows, AccessList.from_bytes(block))


def open_head(storage: Storage, keys: DataKeys, database: str) -> Manifest:
    """The current version, if these keys open it and it is of this database; else Tampered."""
    try:
        head = open_manifest(keys, storage.head())
    except NotFound:
        raise Tampered from None
    if head.catalog.database != database:
        raise Tampered
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

    By hashes alone: what a hash vouches for needs no key, not even one that was replaced since.
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


# --- what an enclave remembers ------------------------------------------------------------------------


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
        """Let nobody else open or commit a version of this database: they would see a head without its key."""
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
        if known is not None and astuple(known) == astuple(fresh):
            return known
        self._put(database, fresh)
        return fresh

    def _put(self, database: str, unlocked: Unlocked) -> None:
        with self._turn:
            self.changes += 1
            self._unlocked[database] = unlocked

    def export(self, database: str | None = None) -> bytes:
        """What is unlocked, or one database of it, for another enclave. SECRET: the caller seals it."""
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


# --- what a session has open -------------------------------------------------------------------------


@dataclass
class OpenVersion:
    """SECRET: a version that a session has open, as far as its signer may see it: all of it, if `grant` is None."""

    storage: Storage
    keys: DataKeys
    unlocked: Unlocked
    manifest: Manifest
    grant: Grant | None
    readers: dict[str, tuple[RunReader, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.catalog = visible(self.manifest.catalog, self.grant)
        self.runs: dict[str, tuple[Table, Run]] = {
            run.id: (table, run) for table in self.catalog.tables for run in table.runs
        }
        self.readers = {run: reader for run, reader in self.readers.items() if run in self.runs}

    def reader(self, run: str) -> tuple[RunReader, int]:
        """A run's reader, and its secret number of real rows."""
        known = self.readers.get(run)
        if known is None:
            if run not in self.runs:
                raise Stale("the table has changed", hint="ask again")
            reader = RunReader(self.storage, self.keys, *self.runs[run])
            known = self.readers[run] = reader, self.manifest.real_rows[run]
        return known

    def has_batch(self, batch: str) -> bool:
        return any(run.batch == batch for _, run in self.runs.values())

    def opened(self) -> Opened:
        """What the session's client gets to know of it."""
        manifest = self.manifest
        return Opened(self.catalog, manifest.catalog.version, manifest.hash, manifest.access.owner, self.grant)

    def __repr__(self) -> str:
        return f"<OpenVersion {self.manifest.catalog.version}>"


@dataclass(frozen=True)
class History:
    """SECRET: the versions of one database, for the signer of a greeting; only an owner brings the data key along."""

    storage: Storage
    vault: Vault
    database: str
    signer: bytes
    data_key: bytes | None = field(repr=False)

    def create(self) -> OpenVersion:
        """Begin an empty database, owned by the signer."""
        if self.data_key is None:
            raise Refused
        with self.vault.holding(self.database):
            if self.vault.get(self.database) is not None:
                raise Refused
            keys, access = DataKeys(self.data_key, self.database), AccessList(self.signer)
            return self._commit(keys, Catalog(self.database, 1, "", ()), {}, access, None)

    def open(self, request: Open, before: OpenVersion | None) -> OpenVersion:
        """The newest version, which has to descend from the anchored one and from the newest that was seen here."""
        with self.vault.holding(self.database):
            unlocked = self.vault.get(self.database)
            keys = self._keys(unlocked, before)
            manifest = self._head(keys, unlocked)
            grant = self._grant(manifest.access, request.owner)
            if grant is not None and (unlocked is None or unlocked.owner != manifest.access.owner):
                raise Refused  # the signer of the key says that the database is somebody else's
            restored = request.restored and grant is None
            anchors = [] if request.anchor is None else [request.anchor]
            if unlocked is not None and not restored:
                anchors.append((unlocked.version, unlocked.hash))
            for anchor in anchors:
                check_descent(self.storage, manifest, anchor)
            return self._remembered(keys, manifest, grant, before, restored=restored)

    def followed(self, version: OpenVersion | None) -> OpenVersion:
        """The version that is open, if no other has been seen since that may have taken rights away; else Stale."""
        newest = self.vault.get(self.database)
        if version is None:
            raise InvalidParameter("no version is open", hint="open the database first")
        if newest is not version.unlocked:
            if version.grant is not None or newest is None or newest.data_key != version.unlocked.data_key:
                raise Stale("the database has changed", hint="ask again")
            version.unlocked = newest
        return version

    def commit(
        self,
        version: OpenVersion,
        tables: tuple[Table, ...],
        real_rows: dict[str, int],
        access: AccessList,
        keys: DataKeys | None = None,
    ) -> OpenVersion:
        """Commit the version after this one; `keys` are those of a new data key, if there is one."""
        catalog = Catalog(self.database, version.manifest.catalog.version + 1, version.manifest.hash, tables)
        return self._commit(keys or version.keys, catalog, real_rows, access, version)

    def _commit(
        self,
        keys: DataKeys,
        catalog: Catalog,
        real_rows: dict[str, int],
        access: AccessList,
        before: OpenVersion | None,
    ) -> OpenVersion:
        kept = {run.id for table in catalog.tables for run in table.runs}
        sealed = seal_manifest(keys, catalog, {run: real_rows[run] for run in kept}, access)
        manifest = open_manifest(keys, sealed)
        grant = self._grant(manifest.access, None)
        with self.vault.holding(self.database):
            self._check_newest(before)
            self.storage.commit(catalog.version, sealed)
            return self._remembered(keys, manifest, grant, before)

    def _check_newest(self, before: OpenVersion | None) -> None:
        """Refuse to commit on top of anything but the newest version: a front could let two do so, and fork it."""
        newest = self.vault.get(self.database)
        ours = None if before is None else (before.manifest.catalog.version, before.manifest.hash)
        if ours != (None if newest is None else (newest.version, newest.hash)):
            raise Stale("the database has changed", hint="ask again")

    def _remembered(
        self,
        keys: DataKeys,
        manifest: Manifest,
        grant: Grant | None,
        before: OpenVersion | None,
        *,
        restored: bool = False,
    ) -> OpenVersion:
        unlocked = self.vault.remember(
            self.database,
            keys.data_key,
            manifest.access.owner,
            manifest.catalog.version,
            manifest.hash,
            restored=restored,
        )
        readers = {} if before is None or before.keys is not keys else before.readers
        return OpenVersion(self.storage, keys, unlocked, manifest, grant, readers)

    def _keys(self, unlocked: Unlocked | None, before: OpenVersion | None) -> DataKeys:
        data_key = self.data_key
        if data_key is None:
            if unlocked is None:
                raise Locked
            data_key = unlocked.data_key
        if before is not None and before.keys.data_key == data_key:
            return before.keys
        return DataKeys(data_key, self.database)

    def _head(self, keys: DataKeys, unlocked: Unlocked | None) -> Manifest:
        try:
            return open_head(self.storage, keys, self.database)
        except Tampered:
            if unlocked is not None and unlocked.data_key != keys.data_key:  # the key of somebody else, or an old one
                raise Refused from None
            raise

    def _grant(self, access: AccessList, owner: bytes | None) -> Grant | None:
        """The signer's grant, None for the owner; Refused to everybody else, or if the owner is not who is expected."""
        if owner is not None and not access.succeeds(self.database, owner):
            raise Refused
        grant = access.grant_of(self.signer)
        if grant is not None and self.data_key is not None:
            raise Refused
        return grant
