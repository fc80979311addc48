"""Who owns a database and who has made its versions: signed statements that anyone can check. PUBLIC.

A `Title` says to which key the database belongs from some version on, and which data key seals it. The first title
belongs to the database's id, which is a hash of its key; every later one is signed by the key before it and by its own.
A `Link` says who has made a version, and which version it follows: the owner, or an analyst whose key the owner has
certified. Clients and enclaves check both, so that neither rests on the word of the other, or of the provider.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from scumble.errors import InvalidParameter, Tampered
from scumble.wire.channel import is_signed, signed_parts
from scumble.wire.messages import from_fields, to_fields

__all__ = [
    "ID_DIGITS",
    "Certificate",
    "Draft",
    "Link",
    "Seen",
    "Title",
    "check_follows",
    "check_link",
    "check_step",
    "check_titles",
    "data_key_hash",
    "database_id",
    "first_title",
    "is_derived",
    "next_title",
    "origin",
    "sign_draft",
    "title_at",
]

_ID = b"scumble database v1"
_DATA_KEY = b"scumble data key hash v1"
_TITLE = b"scumble title v1"
_WRITER = b"scumble writer v1"
_VERSION = b"scumble version v1"
ID_DIGITS = 40

Seen = tuple[int, int, str]
"""A version as somebody remembers it: how many restores came before it, its number, and its hash."""


def database_id(owner: bytes, nonce: bytes) -> str:
    """The id of the database whose first owner has this public key: nobody else can name it as theirs."""
    return sha256(signed_parts(_ID, owner, nonce)).hexdigest()[:ID_DIGITS]


def _utf8(text: str) -> bytes:
    """The bytes of a text; of one that is no valid Unicode, as JSON can have it, such as nobody has signed."""
    return text.encode(errors="surrogatepass")


def is_derived(database: str) -> bool:
    """Whether an id is such a hash. Release 0.1 drew ids of 32 digits."""
    return len(database) == ID_DIGITS


def data_key_hash(database: str, data_key: bytes) -> bytes:
    """What a title says of a data key, which is random: it tells nothing else of it."""
    return sha256(signed_parts(_DATA_KEY, _utf8(database), data_key)).digest()


# --- titles ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Title:
    """To which key a database belongs from a version on, and the hash of the data key; signed by the old and new key.

    Only the first has a nonce, and a single signature, its own. In a database of release 0.1 it has no nonce, as the id
    is no hash of it: whoever wants to rely on that title has to know the key.
    """

    version: int
    owner: bytes
    data_key_hash: bytes
    nonce: bytes
    signatures: tuple[bytes, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "owner": self.owner.hex(),
            "data_key_hash": self.data_key_hash.hex(),
            "nonce": self.nonce.hex(),
            "signatures": [signature.hex() for signature in self.signatures],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The inverse, or Tampered."""
        try:
            version, signatures = fields["version"], fields["signatures"]
            if type(version) is not int or not isinstance(signatures, list) or len(signatures) > 2:
                raise Tampered
            owner, key_hash, nonce = (bytes.fromhex(fields[name]) for name in ("owner", "data_key_hash", "nonce"))
            return cls(version, owner, key_hash, nonce, tuple(map(bytes.fromhex, signatures)))
        except (ValueError, KeyError, TypeError):
            raise Tampered from None

    def _signed(self, database: str, before: bytes) -> bytes:
        number = str(self.version).encode()
        return signed_parts(_TITLE, _utf8(database), number, before, self.owner, self.data_key_hash, self.nonce)


def first_title(database: str, key: Ed25519PrivateKey, nonce: bytes, data_key: bytes, version: int = 1) -> Title:
    """The title of the first owner; `version` is 1, or in a database of release 0.1 the first that is signed."""
    owner = key.public_key().public_bytes_raw()
    unsigned = Title(version, owner, data_key_hash(database, data_key), nonce, ())
    return Title(version, owner, unsigned.data_key_hash, nonce, (key.sign(unsigned._signed(database, b"")),))


def next_title(
    database: str, version: int, old: Ed25519PrivateKey, new: Ed25519PrivateKey, new_data_key: bytes
) -> Title:
    """The title of a new key from a version on: the old one gives the database away, and the new one takes it."""
    owner, before = new.public_key().public_bytes_raw(), old.public_key().public_bytes_raw()
    unsigned = Title(version, owner, data_key_hash(database, new_data_key), b"", ())
    signed = unsigned._signed(database, before)
    return Title(version, owner, unsigned.data_key_hash, b"", (old.sign(signed), new.sign(signed)))


def check_titles(database: str, titles: Sequence[Title]) -> None:
    """Tampered unless the first title belongs to the id, and each of the others follows from the one before."""
    before: Title | None = None
    for title in titles:
        if before is None:
            rightful = title.version == 1 and database_id(title.owner, title.nonce) == database
            if not (rightful if is_derived(database) else not title.nonce) or title.version < 1:
                raise Tampered
            signers = [title.owner]
        else:
            if title.version <= before.version or title.owner == before.owner or title.nonce:
                raise Tampered
            signers = [before.owner, title.owner]
        signed = title._signed(database, b"" if before is None else before.owner)
        if len(title.signatures) != len(signers) or not all(
            is_signed(signer, signature, signed) for signer, signature in zip(signers, title.signatures, strict=True)
        ):
            raise Tampered
        before = title
    if before is None:
        raise Tampered


def title_at(titles: Sequence[Title], version: int) -> Title:
    """The title in force at a version; Tampered if there is none."""
    for title in reversed(titles):
        if title.version <= version:
            return title
    raise Tampered


def origin(database: str, titles: Sequence[Title], signer: bytes) -> str:
    """What a database is remembered by: its id, if that is a hash of its first key; else its id and that key.

    Before it is signed, a database of release 0.1 is remembered for the signer who opens it, and nobody else.
    """
    if is_derived(database):
        return database
    return f"{database} {(titles[0].owner if titles else signer).hex()}"


# --- versions ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Certificate:
    """The owner's word that a key may make versions, under a grant whose terms it shows as a hash only."""

    grant: str
    public_key: bytes
    terms: bytes
    signature: bytes

    @classmethod
    def signed(cls, database: str, key: Ed25519PrivateKey, grant: str, public_key: bytes, terms: bytes) -> Self:
        unsigned = cls(grant, public_key, terms, b"")
        return cls(grant, public_key, terms, key.sign(unsigned._signed(database)))

    def is_by(self, owner: bytes, database: str) -> bool:
        """Whether this owner has signed it for this database."""
        return is_signed(owner, self.signature, self._signed(database))

    def _signed(self, database: str) -> bytes:
        return signed_parts(_WRITER, _utf8(database), _utf8(self.grant), self.public_key, self.terms)


@dataclass(frozen=True)
class Draft:
    """A version that is ready to be signed: which one it is, which one it follows, and the hash of its manifest.

    `restores` is how often the owner has taken an older version for the newest; it goes before the version.
    """

    restores: int
    version: int
    previous: str
    hash: str

    @property
    def seen(self) -> Seen:
        return self.restores, self.version, self.hash

    def _signed(self, database: str, signer: bytes) -> bytes:
        numbers = f"{self.restores} {self.version}".encode()
        return signed_parts(_VERSION, _utf8(database), numbers, _utf8(self.previous), _utf8(self.hash), signer)


@dataclass(frozen=True)
class Link:
    """A version, and the signature of who made it, with the owner's certificate if that was an analyst."""

    draft: Draft
    signer: bytes
    signature: bytes
    certificate: Certificate | None = None

    def to_bytes(self) -> bytes:
        """What the manifest's file has of it: the hash is that of the rest of the file."""
        return json.dumps(to_fields(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> Self:
        """The inverse; Tampered unless it would be written in just these bytes."""
        try:
            link = from_fields(cls, json.loads(text))
        except (ValueError, RecursionError, InvalidParameter):
            raise Tampered from None
        if link.to_bytes() != text:
            raise Tampered
        return link


def sign_draft(database: str, draft: Draft, key: Ed25519PrivateKey) -> bytes:
    """The signature that makes a version of a draft."""
    return key.sign(draft._signed(database, key.public_key().public_bytes_raw()))


def check_link(database: str, titles: Sequence[Title], link: Link, before: Draft | None = None) -> None:
    """Tampered unless the owner in force has made this version, or somebody that this owner has certified.

    `before` is the version that it is known to follow, if that is known.
    """
    owner, draft, certificate = title_at(titles, link.draft.version).owner, link.draft, link.certificate
    if link.signer == owner:
        certified = certificate is None
    else:
        certified = (
            certificate is not None and certificate.public_key == link.signer and certificate.is_by(owner, database)
        )
    if not certified or not is_signed(link.signer, link.signature, draft._signed(database, link.signer)):
        raise Tampered
    if before is not None:
        check_step(titles, link, before)


def check_step(titles: Sequence[Title], link: Link, before: Draft) -> None:
    """Tampered unless a link whose signature was checked follows this version; only an owner may have gone back."""
    draft = link.draft
    if (draft.version, draft.previous) != (before.version + 1, before.hash) or draft.restores < before.restores:
        raise Tampered
    if draft.restores > before.restores and link.signer != title_at(titles, draft.version).owner:
        raise Tampered


def check_follows(database: str, titles: Sequence[Title], links: Sequence[Link], seen: Seen | None, head: Seen) -> None:
    """Tampered unless the titles lead from the id to an owner, and the links from the version `seen` to the head.

    With nothing seen, any version of the owner's will do. No title may be of a later version than the head: whoever has
    a key that was replaced could otherwise sign an older version as a restored one, under a title that is over.
    """
    check_titles(database, titles)
    if titles[-1].version > head[1]:
        raise Tampered
    if seen == head and not links:
        return
    if not links or links[-1].draft.seen != head:
        raise Tampered
    if seen is not None:
        _check_first(database, titles, links[0], seen)
    before = None
    for link in links:
        check_link(database, titles, link, before)
        before = link.draft


def _check_first(database: str, titles: Sequence[Title], link: Link, seen: Seen) -> None:
    """Tampered unless a version follows the one that was seen, or the owner has restored an older one since."""
    restores, version, digest = seen
    first = link.draft
    if (first.version, first.previous) == (version + 1, digest) and first.restores == restores:
        return
    by_owner = link.signer == title_at(titles, first.version).owner and link.certificate is None
    signed_since = not is_derived(database) and version < first.version == titles[0].version
    if not by_owner or not (first.restores > restores or signed_since):
        raise Tampered
