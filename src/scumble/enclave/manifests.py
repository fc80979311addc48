"""Manifests: how the versions of a database are sealed, signed and chained to each other.

The catalog and the signatures are public; where the dummies of each run lie, the grants and the payments are SECRET.
A manifest is sealed under the data key with the catalog as associated data, and signed by its maker: the owner, whom
the chain of titles leads to from the database's id, or somebody whom the owner has certified. Each names the hash of
the one before it. Who remembers one version can therefore tell a later one from a forged or an earlier one.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag

from scumble.enclave.dummies import Dummies
from scumble.enclave.grants import AccessList
from scumble.enclave.pages import NONCE_BYTES, DataKeys
from scumble.errors import InvalidParameter, NotFound, Tampered
from scumble.wire.catalog import Catalog
from scumble.wire.lineage import (
    Draft,
    Link,
    Seen,
    check_link,
    check_step,
    check_titles,
    data_key_hash,
    is_derived,
    title_at,
)
from scumble.wire.links import unpack_links
from scumble.wire.storage import LENGTH, Envelope, Storage, unpack

__all__ = [
    "Manifest",
    "check_chain",
    "links_since",
    "open_head",
    "open_manifest",
    "read_head",
    "seal_manifest",
    "signed_catalog",
]

NAME_BYTES = 16  # of a run


@dataclass(frozen=True, eq=False)
class Manifest:
    """A version: its public catalog, its hash and its signature, and SECRET, the dummies of each run, and the rights.

    A version of release 0.1 has no signature.
    """

    catalog: Catalog
    hash: str
    dummies: dict[str, Dummies]
    access: AccessList
    link: Link | None = None

    @property
    def seen(self) -> Seen:
        return self.draft.seen

    @property
    def draft(self) -> Draft:
        """What a signature under it is over."""
        return Draft(self.catalog.restores, self.catalog.version, self.catalog.previous, self.hash)

    def is_in(self, envelope: Envelope) -> bool:
        """Whether a file holds this very manifest, signature and all: then it need not be opened again."""
        return self.link is not None and envelope.signed == self.link.to_bytes() and envelope.hash == self.hash

    def __repr__(self) -> str:
        return f"Manifest(version={self.catalog.version}, dummies=<secret>, access=<secret>)"


def seal_manifest(
    keys: DataKeys, catalog: Catalog, dummies: dict[str, Dummies], access: AccessList
) -> tuple[bytes, bytes]:
    """The public and the sealed part. How long the latter is depends on the number of runs, grants and payments.

    And on the number of each run's blocks, which its index shows.
    """
    public = json.dumps(catalog.to_json(), separators=(",", ":")).encode()
    placed = b"".join(bytes.fromhex(run) + dummies[run].to_bytes() for run in sorted(dummies))
    secret = LENGTH.pack(len(placed)) + placed + access.to_bytes()
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
    placed, block = secret[LENGTH.size : LENGTH.size + length], secret[LENGTH.size + length :]
    dummies, at = {}, 0
    while at < length:
        run = placed[at : at + NAME_BYTES].hex()
        dummies[run], at = Dummies.from_bytes(placed, at + NAME_BYTES)
    catalog, link = signed_catalog(envelope)
    access = AccessList.from_bytes(block)
    if link is not None:
        title = title_at(catalog.titles, catalog.version)
        if title.owner != access.owner or title.data_key_hash != data_key_hash(catalog.database, keys.data_key):
            raise Tampered
    return Manifest(catalog, envelope.hash, dummies, access, link)


def signed_catalog(envelope: Envelope) -> tuple[Catalog, Link | None]:
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
    head = open_manifest(keys, read_head(storage))
    if head.catalog.database != database:
        raise Tampered
    return head


def read_head(storage: Storage) -> bytes:
    """The current manifest's file; Tampered if there is none."""
    try:
        return storage.head()
    except NotFound:
        raise Tampered from None


# --- how versions follow each other ------------------------------------------------------------------


def check_chain(storage: Storage, head: Manifest) -> None:
    """Walk back to the first version, or Tampered."""
    _walk(storage, head, lambda draft: draft.version == 1)


def links_since(storage: Storage, head: Manifest, seen: Seen) -> tuple[Link, ...]:
    """The signatures that lead from a version to the head; Tampered unless the head is that version or follows it.

    It also follows one that was seen if the owner has taken an older version for the newest since then.
    """
    restores, version, digest = seen
    if head.seen == seen:
        return ()

    def reached(draft: Draft) -> bool:
        if draft.version == version + 1 and draft.previous == digest and draft.restores >= restores:
            return True
        if draft.version <= 1 or (draft.version <= version + 1 and draft.restores <= restores):
            raise Tampered
        return False

    links = _walk(storage, head, reached, restores)
    for first in links[:1]:
        owner = title_at(head.catalog.titles, first.draft.version).owner
        if first.draft.restores > restores and first.signer != owner:
            raise Tampered
    return links


def _walk(
    storage: Storage, head: Manifest, reached: Callable[[Draft], bool], restores: int | None = None
) -> tuple[Link, ...]:
    """The signatures of versions, from one that is `reached`, or that was restored since, to the head; or Tampered.

    Versions are taken by their hashes and signatures alone: that needs no key, not even one that was replaced since.
    """
    past = _Past(storage, head)
    draft, link, links = head.draft, head.link, []
    while True:
        if link is not None:
            links.append(link)
        if reached(draft):
            break
        before, link_before = past.before(draft.version, signed=link is not None)
        if before.hash != draft.previous or before.version != draft.version - 1:
            raise Tampered
        if link is not None and link_before is not None:
            check_step(head.catalog.titles, link, link_before.draft)
        if restores is not None and draft.restores > max(before.restores, restores):
            break  # the owner has signed this one, after a restore
        draft, link = before, link_before
    return tuple(reversed(links))


class _Past:
    """The versions before a head, newest first: whole manifests, and where the store has collected them, their links.

    Every link that is handed out has been checked under the titles of the head.
    """

    def __init__(self, storage: Storage, head: Manifest) -> None:
        self._storage, self._catalog = storage, head.catalog
        self._titles = head.catalog.titles
        self._packed: list[Link] = []

    def before(self, version: int, *, signed: bool) -> tuple[Draft, Link | None]:
        """What the version before this one says of itself, and its link; only release 0.1 has made it without."""
        if not self._packed:
            try:
                return self._whole(self._storage.manifest(version - 1))
            except NotFound:
                self._packed = self._links_up_to(version - 1)
        if not signed:  # nothing is signed before the first title
            raise Tampered
        link = self._packed.pop()
        check_link(self._catalog.database, self._catalog.titles, link)
        return link.draft, link

    def _whole(self, manifest: bytes) -> tuple[Draft, Link | None]:
        envelope = unpack(manifest)
        catalog, link = signed_catalog(envelope)
        if catalog.database != self._catalog.database or catalog.titles != self._titles[: len(catalog.titles)]:
            raise Tampered
        self._titles = catalog.titles
        if link is not None:
            check_link(catalog.database, self._catalog.titles, link)
        return Draft(catalog.restores, catalog.version, catalog.previous, envelope.hash), link

    def _links_up_to(self, version: int) -> list[Link]:
        """The links of this version and of those before it that one pack has."""
        try:
            links = [link for link in unpack_links(self._storage.links(version)) if link.draft.version <= version]
        except NotFound:
            raise Tampered from None
        if not links or links[-1].draft.version != version:
            raise Tampered
        return links
