"""Evidence: what an enclave's platform says about it, as one sequence of bytes that anybody may see.

It comes from an untrusted provider, so reading it is strict: one encoding for each value, every length limited, nothing
left over. Reading proves nothing; `scumble.attestation.verify` does.

    magic "SCUMBLE-EVIDENCE-1\\n"
    kind, report        each a little-endian u32 length and as many bytes
    u8                  how many extras follow
    name, value ...     each as above, names in strictly ascending order
"""

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from scumble.errors import AttestationRefused

__all__ = ["KINDS", "MAXIMUM_BYTES", "Evidence"]

KINDS = ("sev-snp", "tdx", "sgx", "simulated")
MAXIMUM_REPORT_BYTES = 1 << 16
MAXIMUM_EXTRA_BYTES = 1 << 18
MAXIMUM_EXTRAS = 16
MAXIMUM_BYTES = 1 << 20
"""No encoding of evidence is longer."""

MAGIC = b"SCUMBLE-EVIDENCE-1\n"
LENGTH = struct.Struct("<I")
NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


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
                "the evidence is of a kind that is not known here",
                hint="known are " + ", ".join(KINDS) + "; a later version of Scumble may know more",
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
        hint="the provider answered with something else than evidence: check the address, and that it is a Scumble",
    )
