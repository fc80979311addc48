"""The measurement that simulated evidence states: a hash over the files of the enclave's code. It is public."""

import hashlib
from pathlib import Path

from scumble.attestation.evidence import framed

__all__ = ["code_measurement"]

CODE_DOMAIN = b"scumble attestation: code of the enclave, 1"

PACKAGE = Path(__file__).parent.parent
CODE = ("__init__.py", "attestation", "enclave", "errors.py", "index", "privacy", "types", "wire")
NOT_CODE = ("index/plot.py", "index/summary.py")  # pictures and figures for people: no enclave imports them
SUFFIXES = (".py", ".so")


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
