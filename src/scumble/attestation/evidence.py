"""Evidence: what an enclave's platform says about it, what binds it to a connection, and where it comes from.

It arrives from an untrusted provider, so reading it is strict: one encoding for each value, every length limited,
nothing left over. Reading proves nothing; `scumble.attestation.verify` does. All of it is public.

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
from pathlib import Path
from typing import Literal, Protocol, Self

from scumble.errors import AttestationRefused, InvalidParameter

__all__ = [
    "KINDS",
    "MAXIMUM_BYTES",
    "NONCE_BYTES",
    "REPORT_DATA_BYTES",
    "Evidence",
    "Producer",
    "SimulatedProducer",
    "code_measurement",
    "producer",
    "report_data",
]

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


# --- the measurement that simulated evidence states --------------------------------------------------

CODE_DOMAIN = b"scumble attestation: code of the enclave, 1"

PACKAGE = Path(__file__).parent.parent
CODE = ("__init__.py", "attestation", "enclave", "errors.py", "index", "privacy", "types", "wire")
NOT_CODE = ("index/plot.py", "index/summary.py")  # pictures and figures for people: no enclave imports them
SUFFIXES = (".py", ".so")


def code_measurement(more: tuple[str, ...] = ()) -> str:
    """SHA-256, in hex, over the enclave's part of this installation: its modules and the compiled kernels.

    An enclave that runs more of the package than an ordinary one says what, and has another measurement.
    What simulated evidence states. It says nothing of Python, the operating system and the packages underneath; the
    measurement in real evidence is made by the hardware and covers those.
    """
    digest = hashlib.sha256(framed(CODE_DOMAIN))
    for path in code_files(PACKAGE, more):
        digest.update(framed(path.relative_to(PACKAGE).as_posix().encode()))
        digest.update(framed(path.read_bytes()))
    return digest.hexdigest()


def code_files(package: Path, more: tuple[str, ...] = ()) -> list[Path]:
    """The files that `code_measurement` covers, in the order of their names."""
    found = list(package.glob("_native*.so"))
    for name in (*CODE, *more):
        part = package / name
        found += [part] if part.is_file() else [path for path in part.rglob("*") if path.suffix in SUFFIXES]
    named = {path.relative_to(package).as_posix(): path for path in found}
    return [path for name, path in sorted(named.items()) if name not in NOT_CODE]


# --- where evidence comes from -------------------------------------------------------------------------

ROOT = Path("/sys/kernel/config/tsm/report")
STATEMENT = b"SCUMBLE SIMULATED EVIDENCE: PROVES NOTHING\n"
MEASUREMENT_BYTES = 32


class Producer(Protocol):
    """Makes evidence about the machine or process it runs in."""

    @property
    def kind(self) -> str:
        """The kind of the evidence: one of scumble.attestation.evidence.KINDS."""

    @property
    def measurement(self) -> str:
        """The measurement that the evidence will state, in lower-case hex."""

    def evidence(self, report_data: bytes) -> Evidence:
        """Evidence that states these 64 bytes."""


class SimulatedProducer:
    """Makes simulated evidence for the code of this installation."""

    kind = "simulated"

    def __init__(self, more_code: tuple[str, ...] = ()) -> None:
        self.measurement = code_measurement(more_code)

    def evidence(self, report_data: bytes) -> Evidence:
        return Evidence(self.kind, STATEMENT + bytes.fromhex(self.measurement) + report_data)


def producer(
    name: Literal["auto", "tsm", "simulated"] = "auto",
    *,
    root: Path = ROOT,
    endorsements: Path | None = None,
    more_code: tuple[str, ...] = (),
) -> Producer:
    """The producer of that name; "auto" takes the hardware where Linux shows it, and else simulates.

    `root` is where configfs-tsm is, and `endorsements` a directory with what the host does not hand out: the files in
    scumble.attestation.tsm.ENDORSEMENTS. What an enclave runs of the package besides `CODE` is `more_code`: simulated
    evidence has to be told.
    """
    if name not in ("auto", "tsm", "simulated"):
        raise InvalidParameter("there is no such producer of evidence", hint="there are auto, tsm and simulated")
    if name == "simulated" or (name == "auto" and not root.is_dir()):
        return SimulatedProducer(more_code)
    from scumble.attestation.tsm import TsmProducer  # a process without the hardware does without its code

    return TsmProducer(root, endorsements)
