"""Evidence: what an enclave's platform says about it, as bytes that anybody may see; and what binds it to a connection.

It arrives from an untrusted provider, so reading it is strict: one encoding for each value, every length limited,
nothing left over. Reading proves nothing; `scumble.attestation.verify` does.

    magic "SCUMBLE-EVIDENCE-1\\n"
    kind, report        each a little-endian u32 length and as many bytes
    u8                  how many extras follow
    name, value ...     each as above, names in strictly ascending order
"""

import hashlib
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from scumble.errors import AttestationRefused, InvalidParameter

__all__ = ["KINDS", "MAXIMUM_BYTES", "NONCE_BYTES", "REPORT_DATA_BYTES", "Evidence", "report_data"]

KINDS = ("sev-snp", "tdx", "sgx", "simulated")
MAXIMUM_REPORT_BYTES = 1 << 16
MAXIMUM_EXTRA_BYTES = 1 << 18
MAXIMUM_EXTRAS = 16
MAXIMUM_BYTES = 1 << 20
"""No encoding of evidence is longer."""

MAGIC = b"SCUMBLE-EVIDENCE-1\n"
LENGTH = struct.Struct("<I")
NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")

NONCE_BYTES = 32
REPORT_DATA_BYTES = 64
BINDING_DOMAIN = b"scumble attestation: enclave key and client nonce, 1"
BINDING_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Evidence:
    """A report or quote that hardware signed, and the certificates or collateral to check it with."""

    kind: str
    report: bytes = field(repr=False)
    extras: Mapping[str, bytes] = field(repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "extras", dict(self.extras))
        if self.kind not in KINDS:
            raise AttestationRefused(
                "the evidence is of a kind that this version of Scumble does not know",
                hint="it knows " + ", ".join(KINDS) + "; a later version may know more",
            )
        too_large = (
            len(self.report) > MAXIMUM_REPORT_BYTES
            or len(self.extras) > MAXIMUM_EXTRAS
            or any(len(value) > MAXIMUM_EXTRA_BYTES for value in self.extras.values())
            or sum(map(len, self.extras.values())) > MAXIMUM_BYTES - 2 * MAXIMUM_REPORT_BYTES
        )
        if too_large:
            raise AttestationRefused(
                "the evidence is too large", hint="at most 64 KiB of report and 16 extras of 256 KiB, 896 KiB together"
            )
        if not all(NAME.fullmatch(name) for name in self.extras):
            raise malformed()

    def to_bytes(self) -> bytes:
        """The encoding that the module describes."""
        parts = [MAGIC, prefixed(self.kind.encode()), prefixed(self.report), bytes([len(self.extras)])]
        for name, value in sorted(self.extras.items()):
            parts += [prefixed(name.encode()), prefixed(value)]
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The evidence that `data` encodes; AttestationRefused if it is not exactly such an encoding."""
        if len(data) > MAXIMUM_BYTES or not data.startswith(MAGIC):
            raise malformed()
        kind, rest = taken(data[len(MAGIC) :])
        report, rest = taken(rest)
        if not rest:
            raise malformed()
        count, rest = rest[0], rest[1:]
        extras: dict[str, bytes] = {}
        previous = b""
        for _ in range(count):
            name, rest = taken(rest)
            value, rest = taken(rest)
            if name <= previous:
                raise malformed()
            extras[text(name)] = value
            previous = name
        if rest:
            raise malformed()
        return cls(text(kind), report, extras)


def prefixed(value: bytes) -> bytes:
    """A value after its length."""
    return LENGTH.pack(len(value)) + value


def taken(data: bytes) -> tuple[bytes, bytes]:
    """The value at the start of `data`, and what follows it."""
    if len(data) < LENGTH.size:
        raise malformed()
    (length,) = LENGTH.unpack_from(data)
    end = LENGTH.size + length
    if end > len(data):
        raise malformed()
    return data[LENGTH.size : end], data[end:]


def text(value: bytes) -> str:
    """A name; AttestationRefused if it is not ASCII."""
    try:
        return value.decode("ascii")
    except UnicodeDecodeError:
        raise malformed() from None


def malformed() -> AttestationRefused:
    """The refusal of bytes that are no evidence."""
    return AttestationRefused(
        "the evidence is truncated, altered, or none at all",
        hint="the provider answered with something else: check the address, and that a Scumble service answers there",
    )


def report_data(public_key: bytes, nonce: bytes) -> bytes:
    """Hash an enclave's key and a client's nonce into the 64 bytes that the evidence must state.

    SHA-512 over a label, the key and the nonce, each after its length.
    """
    if len(nonce) != NONCE_BYTES:
        raise InvalidParameter(f"a nonce has {NONCE_BYTES} bytes", hint="draw a fresh one for each connection")
    if not public_key:
        raise InvalidParameter("there is no public key to bind", hint="make the enclave's key pair first")
    return hashlib.sha512(b"".join(framed(part) for part in (BINDING_DOMAIN, public_key, nonce))).digest()


def framed(part: bytes) -> bytes:
    """Prefix a part with its length, so that no two lists of parts hash alike."""
    return BINDING_LENGTH.pack(len(part)) + part
