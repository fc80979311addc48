"""Packs of links: the signatures of many versions in a row, in about 100 bytes each. PUBLIC.

A link is all that the chain of versions needs of an old one: whoever has it can check who made the version, and which
one it follows. A store therefore keeps the newest manifests whole, and packs the links of those before. Nothing in a
pack is believed: whoever reads one checks every signature in it, as if it came with its manifest.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Self

from scumble.errors import InvalidParameter, Tampered
from scumble.wire.lineage import Certificate, Draft, Link
from scumble.wire.storage import unpack

__all__ = ["MOST_LINKS", "MOST_PACK_BYTES", "in_packs", "last_stated", "link_of", "pack_links", "unpack_links"]

MOST_LINKS = 1024
"""In one pack: enough for few files, and little enough to write it anew whenever some are added."""

MAGIC = b"SCUMBLE-LINKS-1\n"
HASH_BYTES, KEY_BYTES, SIGNATURE_BYTES = 32, 32, 64
_START = struct.Struct(f"<QII{HASH_BYTES}s")  # the first version, links, makers, the hash before the first
_MAKER = struct.Struct(f"<{KEY_BYTES}sB")  # a public key, and the bytes of its grant's id
_CERTIFIED = struct.Struct(f"<{HASH_BYTES}s{SIGNATURE_BYTES}s")  # the terms, and the owner's signature
_LINK = struct.Struct(f"<II{HASH_BYTES}s{SIGNATURE_BYTES}s")  # restores, the maker, the hash, the signature
_HASHED = struct.Struct(f"<{HASH_BYTES}s{SIGNATURE_BYTES}x")  # the end of a link
MOST_GRANT_BYTES = 255
MOST_VERSION = 1 << 63
MOST_PACK_BYTES = (
    len(MAGIC) + _START.size + MOST_LINKS * (_LINK.size + _MAKER.size + MOST_GRANT_BYTES + _CERTIFIED.size) + HASH_BYTES
)
_NOTHING = bytes(HASH_BYTES)
"""In the place of the hash before version 1, which follows nothing."""

_Maker = tuple[bytes, Certificate | None]


def in_packs(links: Iterable[Link], after: bytes = b"") -> Iterator[tuple[int, bytes]]:
    """Links of ascending versions in packs that are full unless the chain is broken, each with its first version.

    `after` is a pack that is to be added to, if it has room and they follow it: then it is the first that comes, with
    more in it. InvalidParameter for a link that would not come back as it is.
    """
    pack, grown = _Pack.parsed(after) if after else None, False
    for link in links:
        if pack is None or not pack.takes(link):
            if pack is not None and grown:
                yield pack.first, pack.to_bytes()
            pack = _Pack.before_link(link)
        pack.add(link)
        grown = True
    if pack is not None and grown:
        yield pack.first, pack.to_bytes()


def pack_links(links: Sequence[Link]) -> bytes:
    """One pack of links; InvalidParameter if they do not fit, or are not of versions in a row."""
    packs = [pack for _, pack in in_packs(links)]
    if len(packs) != 1:
        raise _unfit()
    return packs[0]


def unpack_links(packed: bytes) -> tuple[Link, ...]:
    """The inverse; Tampered unless these are the bytes that would be written."""
    pack = _Pack.parsed(packed)
    previous = "" if pack.first == 1 else pack.before.hex()
    links, used = [], 0
    for version, (restores, place, digest, signature) in enumerate(_LINK.iter_unpack(pack.rows), pack.first):
        if place > used or place >= len(pack.makers):
            raise Tampered
        used += place == used
        signer, certificate = pack.makers[place]
        links.append(Link(Draft(restores, version, previous, digest.hex()), signer, signature, certificate))
        previous = digest.hex()
    if used != len(pack.makers):
        raise Tampered
    return tuple(links)


@dataclass
class _Pack:
    """A pack in its parts; `rows` has the links."""

    first: int
    before: bytes
    makers: list[_Maker]
    rows: bytearray

    @property
    def count(self) -> int:
        return len(self.rows) // _LINK.size

    def takes(self, link: Link) -> bool:
        """Whether there is room for one more, and this one follows the last."""
        last = self.rows[-_HASHED.size :]
        return (
            self.count < MOST_LINKS
            and link.draft.version == self.first + self.count
            and link.draft.previous == _HASHED.unpack(last)[0].hex()
        )

    def add(self, link: Link) -> None:
        maker = (link.signer, link.certificate)
        if maker not in self.makers:
            _packed_maker(*maker)
            self.makers.append(maker)
        if len(link.signature) != SIGNATURE_BYTES or not 0 <= link.draft.restores < 1 << 32:
            raise _unfit()
        place, digest = self.makers.index(maker), _digest(link.draft.hash)
        self.rows += _LINK.pack(link.draft.restores, place, digest, link.signature)

    @classmethod
    def before_link(cls, link: Link) -> Self:
        """An empty one, for this link to be the first."""
        first, previous = link.draft.version, link.draft.previous
        if not 0 < first <= MOST_VERSION or (first == 1) != (previous == ""):
            raise _unfit()
        return cls(first, _NOTHING if first == 1 else _digest(previous), [], bytearray())

    def to_bytes(self) -> bytes:
        start = _START.pack(self.first, self.count, len(self.makers), self.before)
        content = b"".join((MAGIC, start, *(_packed_maker(*maker) for maker in self.makers), self.rows))
        return content + sha256(content).digest()

    @classmethod
    def parsed(cls, packed: bytes) -> Self:
        """The inverse; Tampered if it is none, or was damaged. What the links say is not looked at."""
        content, digest = packed[:-HASH_BYTES], packed[-HASH_BYTES:]
        at = len(MAGIC) + _START.size
        if len(content) < at or not content.startswith(MAGIC) or sha256(content).digest() != digest:
            raise Tampered
        first, count, maker_count, before = _START.unpack_from(content, len(MAGIC))
        if not (0 < count <= MOST_LINKS and 0 < maker_count <= count and 0 < first <= MOST_VERSION):
            raise Tampered
        if first == 1 and before != _NOTHING:
            raise Tampered
        makers: list[_Maker] = []
        for _ in range(maker_count):
            maker, at = _unpacked_maker(content, at)
            makers.append(maker)
        if len(content) - at != count * _LINK.size or len(set(makers)) != maker_count:
            raise Tampered
        return cls(first, before, makers, bytearray(content[at:]))


def last_stated(packed: bytes) -> int:
    """The last version that a pack claims to have, at a glance."""
    if not packed.startswith(MAGIC) or len(packed) < len(MAGIC) + _START.size:
        raise Tampered
    first, count, *_ = _START.unpack_from(packed, len(MAGIC))
    return int(first + count - 1)


def link_of(version: int, manifest: bytes) -> Link | None:
    """The link in a version's manifest, if a pack can stand for it; None for one of release 0.1, or a damaged one."""
    try:
        envelope = unpack(manifest)
        link = Link.from_bytes(envelope.signed)
        pack_links((link,))
    except (Tampered, InvalidParameter):
        return None
    return link if (link.draft.version, link.draft.hash) == (version, envelope.hash) else None


def _digest(text: str) -> bytes:
    """A hash as bytes; InvalidParameter if it would not come back as it is."""
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        raise _unfit() from None
    if len(digest) != HASH_BYTES or digest.hex() != text:
        raise _unfit()
    return digest


def _unfit() -> InvalidParameter:
    return InvalidParameter("these are no links of versions in a row", hint="keep the manifests")


def _packed_maker(signer: bytes, certificate: Certificate | None) -> bytes:
    if len(signer) != KEY_BYTES:
        raise _unfit()
    if certificate is None:
        return _MAKER.pack(signer, 0)
    try:
        grant = certificate.grant.encode()
    except UnicodeEncodeError:
        raise _unfit() from None
    lengths = len(certificate.terms), len(certificate.signature)
    if certificate.public_key != signer or lengths != (HASH_BYTES, SIGNATURE_BYTES):
        raise _unfit()
    if not 0 < len(grant) <= MOST_GRANT_BYTES:
        raise _unfit()
    return _MAKER.pack(signer, len(grant)) + grant + _CERTIFIED.pack(certificate.terms, certificate.signature)


def _unpacked_maker(content: bytes, at: int) -> tuple[_Maker, int]:
    try:
        signer, grant_bytes = _MAKER.unpack_from(content, at)
        at += _MAKER.size
        if not grant_bytes:
            return (signer, None), at
        grant = content[at : at + grant_bytes].decode()
        terms, signature = _CERTIFIED.unpack_from(content, at + grant_bytes)
    except (struct.error, UnicodeDecodeError):
        raise Tampered from None
    return (signer, Certificate(grant, signer, terms, signature)), at + grant_bytes + _CERTIFIED.size
