"""What owner, provider and enclave may ask of each other, the HTTP headers for it, and the envelope of a manifest.

Nothing secret passes through any of these interfaces in the clear, and what comes from the provider is untrusted until
a key has vouched for it.
"""

import struct
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from scumble.errors import InvalidParameter, Tampered

RunShape = Sequence[tuple[int, int]]
"""For every column of a run, (pages, bytes of a sealed page)."""


class Storage(Protocol):
    """The provider as the enclave sees it. Every call is in the transcript."""

    def head(self) -> bytes:
        """The current manifest, whole."""

    def manifest(self, version: int) -> bytes:
        """An earlier one; NotFound if it is not there."""

    def tags(self, run: str, column: int) -> bytes:
        """The tags of a column's pages, 16 bytes each."""

    def read(self, run: str, column: int, first_page: int, pages: int, into: memoryview) -> None:
        """Fill `into` with sealed pages, one after the other; Tampered if the file does not have them."""

    def create_run(self, run: str, shape: RunShape) -> None:
        """Make room for a new run."""

    def write(self, run: str, column: int, first_page: int, pages: bytes | memoryview) -> None:
        """Write sealed pages of a new run."""

    def finish_run(self, run: str, tags: Sequence[bytes]) -> None:
        """Write the tags of every column, and make the run durable."""

    def commit(self, version: int, manifest: bytes) -> None:
        """Make `manifest` the head, atomically; Busy if `version` is not the one after the head's."""

    def write_scratch(self, name: str, sealed: bytes | memoryview) -> None:
        """Keep a sealed piece of a load until the load ends."""

    def read_scratch(self, name: str) -> bytes:
        """Give it back."""

    def drop_scratch(self) -> None:
        """Forget all of it."""


class Enclave(Protocol):
    """The enclave as the provider sees it: a key, and opaque bytes in and out."""

    @property
    def public_key(self) -> bytes:
        """The key that owners seal their greeting to."""

    def greet(self, sealed: bytes) -> tuple[int, bytes]:
        """Open a session: its number, and a sealed answer."""

    def request(self, session: int, sealed: bytes | memoryview) -> bytes:
        """Answer one sealed request with one sealed answer."""

    def leave(self, session: int) -> None:
        """Forget a session and its keys."""


class Service(Enclave, Protocol):
    """The provider as the owner sees it: the way to the enclave, and the lock that one writer at a time holds."""

    def writer(self, busy_seconds: float = 5) -> AbstractContextManager[None]:
        """Hold the database for writing; Busy if another client holds it for longer than that."""

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

OLDEST, PROTOCOL = 1, 1
"""The protocols that are spoken: from the oldest to the newest."""

VERSION = "scumble-protocol"
STAMP = "scumble-stamp"
SESSION = "scumble-session"
ENCLAVE = "scumble-enclave"
DATABASE = "scumble-database"
"""Headers: the client's protocol; what changes with every commit; a new session; an enclave's id; a database's id."""


# --- the manifest's envelope ------------------------------------------------------------------------
#
# One file holds a version's public catalog and its sealed secrets. Anyone who has the file may read the public part;
# only the enclave can tell, from the sealed rest, whether it is the one that was stored.

MAGIC = b"SCUMBLE-MANIFEST-2\n"
LENGTH = struct.Struct("<I")
START = len(MAGIC) + LENGTH.size


def pack(public: bytes, sealed: bytes) -> bytes:
    """The file: magic, length of the public part as a little-endian u32, public part, sealed rest."""
    if len(public) >= 1 << 32:
        raise InvalidParameter("the catalog is larger than 4 GiB", hint="keep the tables in several databases")
    return b"".join((MAGIC, LENGTH.pack(len(public)), public, sealed))


def unpack(manifest: bytes) -> tuple[bytes, bytes]:
    """The public part and the sealed rest; Tampered if `manifest` is no such file."""
    if len(manifest) < START or manifest[: len(MAGIC)] != MAGIC:
        raise Tampered
    (length,) = LENGTH.unpack_from(manifest, len(MAGIC))
    if START + length > len(manifest):
        raise Tampered
    return manifest[START : START + length], manifest[START + length :]


def public_part(manifest: bytes) -> bytes:
    """The public part alone: the catalog as JSON, if nobody has altered it."""
    return unpack(manifest)[0]
