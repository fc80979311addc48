"""The manifest's envelope: one file for a version's public catalog and its sealed secrets.

Anyone who holds the file may read the public part; whether it is the one that was stored, only the sealed rest can
tell, to the enclave alone. Neither part is looked into here.
"""

import struct

from scumble.errors import InvalidParameter, Tampered

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
