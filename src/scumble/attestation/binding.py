"""What ties evidence to one enclave and one connection: 64 bytes for the report, and the measurement of the code.

The enclave's public key and the client's nonce come in; their hash goes into the report. All of it is public.
"""

import hashlib
import struct
from pathlib import Path

from scumble.errors import InvalidParameter

__all__ = ["NONCE_BYTES", "code_measurement", "report_data"]

NONCE_BYTES = 32
DOMAIN = b"scumble attestation: enclave key and client nonce, 1"
CODE_DOMAIN = b"scumble attestation: code of the enclave, 1"
LENGTH = struct.Struct("<Q")

PACKAGE = Path(__file__).parent.parent
CODE = ("__init__.py", "attestation", "enclave", "errors.py", "index", "privacy", "types", "wire")
NOT_CODE = ("index/plot.py", "index/summary.py")  # pictures and figures for people: no enclave imports them
SUFFIXES = (".py", ".so")


def report_data(public_key: bytes, nonce: bytes) -> bytes:
    """64 bytes that only this key and this nonce give: SHA-512 over a label, the key and the nonce, each with its
    length before it.
    """
    if len(nonce) != NONCE_BYTES:
        raise InvalidParameter(f"a nonce has {NONCE_BYTES} bytes", hint="draw a fresh one for each connection")
    if not public_key:
        raise InvalidParameter("there is no public key to bind", hint="make the enclave's key pair first")
    return hashlib.sha512(b"".join(framed(part) for part in (DOMAIN, public_key, nonce))).digest()


def code_measurement() -> str:
    """SHA-256, in hex, over the enclave's part of this installation: its modules and the compiled kernels.

    What simulated evidence states. It says nothing of Python, the operating system and the packages underneath; the
    measurement in real evidence is made by the hardware and covers those.
    """
    digest = hashlib.sha256(framed(CODE_DOMAIN))
    for path in code_files(PACKAGE):
        digest.update(framed(path.relative_to(PACKAGE).as_posix().encode()))
        digest.update(framed(path.read_bytes()))
    return digest.hexdigest()


def code_files(package: Path) -> list[Path]:
    """The files that `code_measurement` covers, in the order of their names."""
    found = list(package.glob("_native*.so"))
    for name in CODE:
        part = package / name
        found += [part] if part.is_file() else [path for path in part.rglob("*") if path.suffix in SUFFIXES]
    named = {path.relative_to(package).as_posix(): path for path in found}
    return [path for name, path in sorted(named.items()) if name not in NOT_CODE]


def framed(part: bytes) -> bytes:
    """A part after its length, so that no two lists of parts hash alike."""
    return LENGTH.pack(len(part)) + part
