"""What owner, provider and enclave may ask of each other, the HTTP headers for it, and the envelope of a manifest.

Nothing secret passes through any of these interfaces in the clear, and what comes from the provider is untrusted until
a key has vouched for it.
"""

import hashlib
import struct
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from scumble.errors import InvalidParameter, Tampered

RunShape = Sequence[tuple[int, int]]
"""For every column of a run, (pages, bytes of a sealed page)."""


class Storage(Protocol):
    """The provider as the enclave sees it. Every call is in the transcript."""

    def head(self) -> bytes:
        """The current manifest, whole."""

    def manifest(self, version: int) -> bytes:
        """An earlier one; NotFound if it is not there, or has been collected."""

    def links(self, version: int) -> bytes:
        """The pack of links that a collected version's is in (`wire/links.py`); NotFound if there is none."""

    def tags(self, run: str, column: int) -> bytes:
        """The tags of a column's pages, 16 bytes each."""

    def read(self, run: str, column: int, first_page: int, pages: int, into: memoryview) -> None:
        """Fill `into` with sealed pages, one after the other; Tampered if the file does not have them."""

    def create_run(self, run: str, shape: RunShape) -> None:
        """Make room for a new run, or other room for one that nothing has been written to."""

    def write(self, run: str, column: int, first_page: int, pages: bytes | memoryview) -> None:
        """Write sealed pages of a new run."""

    def finish_run(self, run: str, tags: Sequence[bytes]) -> None:
        """Write the tags of every column. The run is durable before a version that names it is."""

    def commit(self, version: int, manifest: bytes) -> None:
        """Make `manifest` the head, atomically; Busy if `version` is not the one after the head's."""

    def write_scratch(self, name: str, sealed: bytes | memoryview) -> None:
        """Keep a sealed piece of a load until the load ends."""

    def read_scratch(self, name: str) -> bytes:
        """Give it back."""

    def drop_scratch(self) -> None:
        """Forget all of it."""


class Enclave(Protocol):
    """The enclave as the provider sees it: keys, and opaque bytes in and out."""

    def fresh_key(self) -> bytes:
        """A key that one client seals one greeting to; nobody can open it afterwards."""

    def greet(self, sealed: bytes) -> tuple[int, bytes]:
        """Open a session for a fresh key and a greeting sealed to it: its number, and a sealed answer."""

    def request(self, session: int, sealed: bytes | memoryview) -> bytes:
        """Answer one sealed request with one sealed answer."""

    def leave(self, session: int) -> None:
        """Forget a session and its keys."""


class Service(Enclave, Protocol):
    """The provider as the owner sees it: the way to the enclave, and the lock that one writer at a time holds."""

    def writer(self, busy_seconds: float = 5) -> AbstractContextManager[None]:
        """Hold the database for writing; Busy if another client holds it for longer than that."""

    def rights_writer(self) -> AbstractContextManager[None]:
        """Be able to change who may do what, whoever else holds the database for writing."""

    @property
    def stamp_lags(self) -> bool:
        """Whether `stamp` is as of the last answer rather than of now."""

    def stamp(self) -> object:
        """Something that changes with every commit: a quick hint that there is a newer version, and no more."""

    def drop_unreferenced(self) -> int:
        """Delete the runs that no table has any more, and say how many they were."""

    def close(self) -> None:
        """Release everything that it holds."""


# --- the service over HTTP --------------------------------------------------------------------------

OLDEST, PROTOCOL = 2, 2
"""The protocols that are spoken: from the oldest to the newest. 1 was that of release 0.1, with one key per enclave."""

VERSION = "scumble-protocol"
STAMP = "scumble-stamp"
SESSION = "scumble-session"
ENCLAVE = "scumble-enclave"
DATABASE = "scumble-database"
"""Headers: the client's protocol; what changes with every commit; a new session; an enclave's id; a database's id."""


# --- the manifest's envelope ------------------------------------------------------------------------
#
# One file holds a version's public catalog, its sealed secrets, and the signature of whoever made it. Anyone who has
# the file may read the public part and check the signature; only the enclave can open the sealed part, which shows
# whether the catalog is the one that was stored.

MAGIC = b"SCUMBLE-MANIFEST-3\n"
UNSIGNED_MAGIC = b"SCUMBLE-MANIFEST-2\n"
"""Of release 0.1: the sealed part goes on to the end, and there is no signature."""
LENGTH = struct.Struct("<I")
START = len(MAGIC) + LENGTH.size


class Envelope(NamedTuple):
    """The parts of a manifest's file; `signed` is empty in a manifest of release 0.1."""

    public: bytes
    sealed: bytes
    signed: bytes

    @property
    def hash(self) -> str:
        """What the signature is over, and what the next version names as the one before: the file but the signature."""
        whole = pack(self.public, self.sealed, b"") if self.signed else pack_unsigned(self.public, self.sealed)
        return hashlib.sha256(whole).hexdigest()


def pack(public: bytes, sealed: bytes, signed: bytes) -> bytes:
    """The file: magic, the public part and the sealed part, each after its length as a little-endian u32, the rest."""
    if max(len(public), len(sealed)) >= 1 << 32:
        raise InvalidParameter("the catalog is larger than 4 GiB", hint="keep the tables in several databases")
    return b"".join((MAGIC, LENGTH.pack(len(public)), public, LENGTH.pack(len(sealed)), sealed, signed))


def pack_unsigned(public: bytes, sealed: bytes) -> bytes:
    """The same as release 0.1 wrote it."""
    return b"".join((UNSIGNED_MAGIC, LENGTH.pack(len(public)), public, sealed))


def unpack(manifest: bytes) -> Envelope:
    """The inverse; Tampered if `manifest` is no such file."""
    magic = manifest[: len(MAGIC)]
    if magic not in (MAGIC, UNSIGNED_MAGIC):
        raise Tampered
    public, at = _part(manifest, len(MAGIC))
    if magic == UNSIGNED_MAGIC:
        return Envelope(public, manifest[at:], b"")
    sealed, at = _part(manifest, at)
    if at == len(manifest):
        raise Tampered
    return Envelope(public, sealed, manifest[at:])


def _part(manifest: bytes, at: int) -> tuple[bytes, int]:
    start = at + LENGTH.size
    if start > len(manifest):
        raise Tampered
    end = start + LENGTH.unpack_from(manifest, at)[0]
    if end > len(manifest):
        raise Tampered
    return manifest[start:end], end


def public_part(manifest: bytes) -> bytes:
    """The public part alone: the catalog as JSON, if nobody has altered it."""
    return unpack(manifest).public
