"""The versions of a database: how they are sealed, signed, chained to each other, opened and committed.

The catalog and the signatures are public; the number of real rows in each run, the grants and the payments are SECRET.
A manifest is sealed under the data key with the catalog as associated data, and signed by its maker: the owner, whom
the chain of titles leads to from the database's id, or somebody whom the owner has certified. Each names the hash of
the one before it. Who remembers one version, as clients and the `Vault` do, can tell a later one from a forged or an
earlier one.
"""

import json
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from cryptography.exceptions import InvalidTag

from scumble.enclave.grants import AccessList, visible
from scumble.enclave.pages import NONCE_BYTES, DataKeys, RunReader
from scumble.errors import Exists, InvalidParameter, Locked, NotFound, Refused, Stale, Tampered
from scumble.wire.catalog import Catalog, Run, Table
from scumble.wire.grants import Grant
from scumble.wire.lineage import (
    Draft,
    Link,
    Seen,
    Title,
    check_link,
    check_titles,
    data_key_hash,
    is_derived,
    origin,
    title_at,
)
from scumble.wire.requests import Create, Open, Opened, Restore, Upgrade
from scumble.wire.storage import LENGTH, Envelope, Storage, pack, unpack

__all__ = [
    "History",
    "Manifest",
    "OpenVersion",
    "Pending",
    "Seen",
    "Unlocked",
    "Vault",
    "check_chain",
    "links_since",
    "open_head",
    "open_manifest",
    "seal_manifest",
]


ROW_COUNT_BYTES = 24  # a run's name, and how many of its rows are real


@dataclass(frozen=True, eq=False)
class Manifest:
    """A version: its public catalog, its hash and its signature, and SECRET, the real rows of each run, and the rights.

    A version of release 0.1 has no signature.
    """

    catalog: Catalog
    hash: str
    real_rows: dict[str, int]
    access: AccessList
    link: Link | None = None

    @property
    def seen(self) -> Seen:
        return self.catalog.restores, self.catalog.version, self.hash

    def __repr__(self) -> str:
        return f"Manifest(version={self.catalog.version}, real_rows=<secret>, access=<secret>)"


def seal_manifest(
    keys: DataKeys, catalog: Catalog, real_rows: dict[str, int], access: AccessList
) -> tuple[bytes, bytes]:
    """The public and the sealed part. How long the latter is depends on the number of runs, grants and payments."""
    public = json.dumps(catalog.to_json(), separators=(",", ":")).encode()
    rows = b"".join(bytes.fromhex(run) + rows.to_bytes(8, "little") for run, rows in sorted(real_rows.items()))
    secret = LENGTH.pack(len(rows)) + rows + access.to_bytes()
    nonce = os.urandom(NONCE_BYTES)
    return public, nonce + keys.manifest.encrypt(nonce, secret, public)


def open_manifest(keys: DataKeys, manifest: bytes) -> Manifest:
    """The inverse, if whoever had the right to has signed it, or Tampered."""
    envelope = unpack(manifest)
    public, sealed = envelope.public, envelope.sealed
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
    catalog, link = _signed_catalog(envelope)
    access = AccessList.from_bytes(block)
    if link is not None:
        title = title_at(catalog.titles, catalog.version)
        if title.owner != access.owner or title.data_key_hash != data_key_hash(catalog.database, keys.data_key):
            raise Tampered
    return Manifest(catalog, envelope.hash, rows, access, link)


def _signed_catalog(envelope: Envelope) -> tuple[Catalog, Link | None]:
    """A manifest's catalog and signature, which needs no key; Tampered unless the owner, or its like, has signed it."""
    try:
        catalog = Catalog.from_json(json.loads(envelope.public))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidParameter):
        raise Tampered from None
    if not envelope.signed:
        if catalog.titles or is_derived(catalog.database):
            raise Tampered
        return catalog, None
    check_titles(catalog.database, catalog.titles)
    link = Link.from_bytes(envelope.signed)
    if link.draft != Draft(catalog.restores, catalog.version, catalog.previous, envelope.hash):
        raise Tampered
    if catalog.titles[-1].version > catalog.version:  # or a key that was replaced could sign below the last title
        raise Tampered
    check_link(catalog.database, catalog.titles, link)
    return catalog, link


def open_head(storage: Storage, keys: DataKeys, database: str) -> Manifest:
    """The current version, if these keys open it and it is of this database; else Tampered."""
    head = open_manifest(keys, _head(storage))
    if head.catalog.database != database:
        raise Tampered
    return head


def _head(storage: Storage) -> bytes:
    try:
        return storage.head()
    except NotFound:
        raise Tampered from None


# --- how versions follow each other ------------------------------------------------------------------


def check_chain(storage: Storage, head: Manifest) -> None:
    """Walk back to the first version, or Tampered."""
    _walk(storage, head, lambda catalog: catalog.version == 1)


def links_since(storage: Storage, head: Manifest, seen: Seen) -> tuple[Link, ...]:
    """The signatures that lead from a version to the head; Tampered unless the head is that version or follows it.

    It also follows one that was seen if the owner has taken an older version for the newest since then.
    """
    restores, version, digest = seen
    if head.seen == seen:
        return ()

    def reached(catalog: Catalog) -> bool:
        if catalog.version == version + 1 and catalog.previous == digest and catalog.restores >= restores:
            return True
        if catalog.version <= 1 or (catalog.version <= version + 1 and catalog.restores <= restores):
            raise Tampered
        return False

    links = _walk(storage, head, reached, restores)
    for first in links[:1]:
        owner = title_at(head.catalog.titles, first.draft.version).owner
        if first.draft.restores > restores and first.signer != owner:
            raise Tampered
    return links


def _walk(
    storage: Storage, head: Manifest, reached: Callable[[Catalog], bool], restores: int | None = None
) -> tuple[Link, ...]:
    """The signatures of versions, from one that is `reached`, or that was restored since, to the head; or Tampered.

    Manifests are taken by their hashes and signatures alone: that needs no key, not even one that was replaced since.
    """
    catalog, link, links = head.catalog, head.link, []
    while True:
        if link is not None:
            links.append(link)
        if reached(catalog):
            break
        try:
            earlier = unpack(storage.manifest(catalog.version - 1))
        except NotFound:
            raise Tampered from None
        before, link_before = _signed_catalog(earlier)
        if earlier.hash != catalog.previous or before.version != catalog.version - 1:
            raise Tampered
        if before.database != catalog.database or before.titles != catalog.titles[: len(before.titles)]:
            raise Tampered
        if link is not None and link_before is not None:
            check_link(catalog.database, head.catalog.titles, link, link_before.draft)
        if restores is not None and catalog.restores > max(before.restores, restores):
            break  # the owner has signed this one, after a restore
        catalog, link = before, link_before
    return tuple(reversed(links))


# --- what an enclave remembers ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Unlocked:
    """SECRET: a database's data key, and the newest version that this enclave knows, with the rights in it.

    The rights are kept so that no restored backup takes a revocation back, or gives what was used.
    """

    data_key: bytes = field(repr=False)
    access: AccessList = field(repr=False)
    restores: int
    version: int
    hash: str

    @property
    def owner(self) -> bytes:
        return self.access.owner

    @property
    def policy(self) -> bytes:
        return self.access.policy

    @property
    def seen(self) -> Seen:
        return self.restores, self.version, self.hash


Admits = Callable[[str, Unlocked], bool]
"""Whether a database, and what is known of it, may be handed to or taken from another enclave."""


def _database_of(name: str) -> str:
    """The id of the database that is remembered by this name, which may go on after a space."""
    return name.split(maxsplit=1)[0]


class Vault:
    """SECRET: what is unlocked, by what a database is remembered by (see `origin`). Threads may share it."""

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

    def get(self, name: str) -> Unlocked | None:
        """What is known of a database: the same object until there is something newer. None: it is locked."""
        return self._unlocked.get(name)

    def remember(self, name: str, data_key: bytes, manifest: Manifest) -> Unlocked:
        """Remember a version that was opened or committed; the caller holds the database, and has checked descent."""
        known, fresh = self._unlocked.get(name), Unlocked(data_key, manifest.access, *manifest.seen)
        if known is not None and (known.data_key, known.access, known.seen) == (data_key, fresh.access, fresh.seen):
            return known
        self._put(name, fresh)
        return fresh

    def _put(self, name: str, unlocked: Unlocked) -> None:
        with self._turn:
            self.changes += 1
            self._unlocked[name] = unlocked

    def export(self, admits: Admits = lambda database, known: True) -> bytes:
        """What is unlocked, of the databases that admit another enclave, for that. SECRET: the caller seals it."""
        with self._turn:
            unlocked = dict(self._unlocked)
        given = {
            name: [known.data_key.hex(), known.access.to_bytes().decode(), *known.seen]
            for name, known in unlocked.items()
            if admits(_database_of(name), known)
        }
        return json.dumps(given).encode()

    def adopt(self, exported: bytes, admits: "Admits" = lambda database, known: True) -> None:
        """Take over what another enclave has exported, of the databases that admit that one.

        Where this one knows a newer version, that stays.
        """
        try:
            given = {
                str(name): Unlocked(
                    bytes.fromhex(data_key),
                    AccessList.from_bytes(access.encode()),
                    int(restores),
                    int(version),
                    str(digest),
                )
                for name, (data_key, access, restores, version, digest) in json.loads(exported).items()
            }
        except (ValueError, TypeError, AttributeError):
            raise Tampered from None
        for name, other in given.items():
            if not admits(_database_of(name), other):
                continue
            with self.holding(_database_of(name)):
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
    links: tuple[Link, ...]
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
        access, grant = self.manifest.access, self.grant
        grants = access.grants if grant is None else ()
        charges = access.charges(grant)
        return Opened(self.catalog, self.manifest.hash, access.owner, grant, grants, self.links, charges, access.policy)

    def opened_by_owner(self) -> Opened:
        """What an owner would get to know: nobody gets more, so that all get as much."""
        return replace(self, grant=None).opened()

    def __repr__(self) -> str:
        return f"<OpenVersion {self.manifest.catalog.version}>"


@dataclass(frozen=True, eq=False)
class Pending:
    """SECRET: a version that waits for its signature, by the key that signs for `history`."""

    history: "History"
    keys: DataKeys
    catalog: Catalog
    public: bytes
    sealed: bytes
    grant: Grant | None
    known: Unlocked | None
    before: OpenVersion | None

    @property
    def draft(self) -> Draft:
        digest = Envelope(self.public, self.sealed, b"unsigned yet").hash
        return Draft(self.catalog.restores, self.catalog.version, self.catalog.previous, digest)

    def __repr__(self) -> str:
        return f"<Pending {self.catalog.version}>"


@dataclass(frozen=True)
class History:
    """SECRET: the versions of one database, for the signer of a greeting; only an owner brings the data key along."""

    storage: Storage
    vault: Vault
    database: str
    signer: bytes
    data_key: bytes | None = field(repr=False)

    def create(self, request: Create) -> Pending:
        """Draft an empty database: the id has to be that of the signer's key, so that nobody takes another's."""
        title = request.title
        if self.data_key is None or title.owner != self.signer or not is_derived(self.database):
            raise Refused
        self._check_title((), title, self.data_key)
        if self.vault.get(self.database) is not None:
            raise Refused
        keys, catalog = DataKeys(self.data_key, self.database), Catalog(self.database, 1, "", (), (title,))
        access = AccessList(self.signer)
        access = access.under(self.database, request.policy) if request.policy else access
        return self._drafted(keys, catalog, {}, access, None, None)

    def upgrade(self, version: OpenVersion, request: Upgrade) -> Pending:
        """Draft the first signed version of a database of release 0.1."""
        manifest, title = version.manifest, request.title
        if manifest.link is not None:
            raise Exists("the database is signed already", hint="it needs no upgrade")
        if title.owner != self.signer or title.version != manifest.catalog.version + 1 or request.restores < 0:
            raise Refused
        self._check_title((), title, version.keys.data_key)
        access = manifest.access.owned_by(self.database, self.signer, request.grants)
        catalog = Catalog(
            self.database, title.version, manifest.hash, manifest.catalog.tables, (title,), request.restores
        )
        return self._drafted(version.keys, catalog, manifest.real_rows, access, version.unlocked, version)

    def open(self, request: Open, before: OpenVersion | None) -> OpenVersion:
        """The newest version, which has to descend from the anchored one and from the newest that was seen here."""
        with self.vault.holding(self.database):
            name, unlocked, keys, manifest = self._newest(before)
            if request.owner is not None and request.owner not in _owners(manifest):
                raise Refused
            grant = self._grant(manifest, unlocked)
            if unlocked is not None:
                links_since(self.storage, manifest, unlocked.seen)
            links: tuple[Link, ...] = () if manifest.link is None else (manifest.link,)
            if request.anchor is not None:
                links = links_since(self.storage, manifest, request.anchor)
            return self._remembered(name, keys, manifest, grant, links, before)

    def restore(self, request: Restore, before: OpenVersion | None) -> Pending:
        """Draft a version after an older one that the owner takes for the newest: the owner on record, if there is one.

        Nobody gets to see the older version itself: the grants in it may have been revoked, or used, since.
        """
        with self.vault.holding(self.database):
            _, unlocked, keys, manifest = self._newest(before)
            if self._grant(manifest, unlocked) is not None or (unlocked is not None and unlocked.owner != self.signer):
                raise Refused
        if manifest.link is None:
            raise unsigned()
        old = manifest.catalog
        known = max(old.restores, request.restores, 0 if unlocked is None else unlocked.restores)
        catalog = Catalog(self.database, old.version + 1, manifest.hash, old.tables, old.titles, known + 1)
        access = manifest.access.brought_up(request.revoked, request.used)
        if unlocked is not None:
            access = access.brought_up_to(unlocked.access)
        return self._drafted(keys, catalog, manifest.real_rows, access, unlocked, None)

    def followed(self, version: OpenVersion | None) -> OpenVersion:
        """The version that is open, if no other has been seen since that may have taken rights away; else Stale."""
        if version is None:
            raise InvalidParameter("no version is open", hint="open the database first")
        newest = self.vault.get(origin(self.database, version.catalog.titles, self.signer))
        if newest is not version.unlocked:
            if version.grant is not None or newest is None or newest.data_key != version.unlocked.data_key:
                raise Stale("the database has changed", hint="ask again")
            version.unlocked = newest
        return version

    def draft(
        self,
        version: OpenVersion,
        tables: tuple[Table, ...],
        real_rows: dict[str, int],
        access: AccessList,
        successor: tuple[DataKeys, Title] | None = None,
    ) -> Pending:
        """Draft the version after this one; `successor` has the keys and the title of a new owner, if there is one."""
        manifest, keys, titles = version.manifest, version.keys, version.manifest.catalog.titles
        if manifest.link is None:
            raise unsigned()
        if version.unlocked.seen != manifest.seen:
            raise Stale("the database has changed", hint="ask again")
        if successor is not None:
            keys, title = successor
            self._check_title(titles, title, keys.data_key)
            titles = (*titles, title)
        old = manifest.catalog
        catalog = Catalog(self.database, old.version + 1, manifest.hash, tables, titles, old.restores)
        return self._drafted(keys, catalog, real_rows, access, version.unlocked, version)

    def _drafted(
        self,
        keys: DataKeys,
        catalog: Catalog,
        real_rows: dict[str, int],
        access: AccessList,
        known: Unlocked | None,
        before: OpenVersion | None,
    ) -> Pending:
        kept = {run.id for table in catalog.tables for run in table.runs}
        public, sealed = seal_manifest(keys, catalog, {run: real_rows[run] for run in kept}, access)
        return Pending(self, keys, catalog, public, sealed, access.grant_of(self.signer), known, before)

    def commit(self, pending: Pending, signature: bytes) -> OpenVersion:
        """Store a drafted version with its signature: on top of the newest, or a front could fork the database."""
        grant = pending.grant
        link = Link(pending.draft, self.signer, signature, None if grant is None else grant.certificate())
        manifest = pack(pending.public, pending.sealed, link.to_bytes())
        opened = open_manifest(pending.keys, manifest)
        name = origin(self.database, opened.catalog.titles, self.signer)
        with self.vault.holding(self.database):
            # Before an upgrade, a database of release 0.1 was remembered for its owner, under the same name.
            if self.vault.get(name) is not pending.known:
                raise Stale("the database has changed", hint="ask again")
            self.storage.commit(opened.catalog.version, manifest)
            return self._remembered(name, pending.keys, opened, grant, (link,), pending.before)

    def _remembered(
        self,
        name: str,
        keys: DataKeys,
        manifest: Manifest,
        grant: Grant | None,
        links: tuple[Link, ...],
        before: OpenVersion | None,
    ) -> OpenVersion:
        unlocked = self.vault.remember(name, keys.data_key, manifest)
        readers = {} if before is None or before.keys is not keys else before.readers
        return OpenVersion(self.storage, keys, unlocked, manifest, grant, links, readers)

    def _check_title(self, titles: tuple[Title, ...], title: Title, data_key: bytes) -> None:
        if title.data_key_hash != data_key_hash(self.database, data_key):
            raise Refused
        try:
            check_titles(self.database, (*titles, title))
        except Tampered:
            raise Refused from None

    def _newest(self, before: OpenVersion | None) -> tuple[str, Unlocked | None, DataKeys, Manifest]:
        """What the database is remembered by, what is remembered, the keys, and the head, which they open."""
        head = _head(self.storage)
        catalog, link = _signed_catalog(unpack(head))
        if catalog.database != self.database:
            raise Tampered
        name = origin(self.database, catalog.titles, self.signer)
        unlocked = self.vault.get(name)
        data_key = self.data_key
        if data_key is None:
            if unlocked is None:
                raise Locked
            data_key = unlocked.data_key
        if before is not None and before.keys.data_key == data_key:
            keys = before.keys
        else:
            keys = DataKeys(data_key, self.database)
        if link is not None and data_key_hash(self.database, data_key) != catalog.titles[-1].data_key_hash:
            # The owner has changed the key: an analyst waits until this enclave is told the new one.
            raise Locked if self.data_key is None else Refused
        try:
            return name, unlocked, keys, open_manifest(keys, head)
        except Tampered:
            if unlocked is not None and unlocked.data_key != data_key:  # the key of somebody else, or an old one
                raise Refused from None
            raise

    def _grant(self, manifest: Manifest, unlocked: Unlocked | None) -> Grant | None:
        """The signer's grant, None for the owner; Refused to everybody else."""
        grant = manifest.access.grant_of(self.signer)
        if grant is None:
            return None
        if self.data_key is not None or manifest.link is None:
            raise Refused
        if unlocked is None or unlocked.owner not in _owners(manifest):
            raise Refused  # the signer of the key says that the database is somebody else's
        if not manifest.access.has_signed(self.database, grant):
            raise Tampered
        return grant


def _owners(manifest: Manifest) -> set[bytes]:
    """Every key that the database has belonged to."""
    return {manifest.access.owner, *(title.owner for title in manifest.catalog.titles)}


def unsigned() -> InvalidParameter:
    """The error for a change to a database of release 0.1, whose versions nobody has signed."""
    return InvalidParameter(
        "the database was made by release 0.1, and its versions are not signed", hint="sign it with `scumble upgrade`"
    )
