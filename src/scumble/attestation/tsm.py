"""Evidence from the machine that this process runs in, through Linux's configfs-tsm (Documentation/ABI/testing,
configfs-tsm-report; Linux 6.7 and later).

The hardware signs a report that states 64 given bytes; the host hands out certificates with it. Where those are
incomplete, a directory of endorsements supplies them: AMD's certificates, or Intel's collateral.
"""

import errno
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scumble.attestation import dcap, snp
from scumble.attestation.evidence import REPORT_DATA_BYTES, ROOT, Evidence
from scumble.errors import AttestationRefused

__all__ = ["ENDORSEMENTS", "TsmProducer"]

PROVIDERS = {"sev_guest": "sev-snp", "tdx_guest": "tdx"}
ENDORSEMENTS = {
    "certificates.pem": "certificates",
    "vcek.der": "vcek",
    "vlek.der": "vlek",
    "ask.der": "ask",
    "asvk.der": "asvk",
    "ark.der": "ark",
    "crl.der": "crl",
    "collateral.json": "collateral",
}
"""Which files in a directory of endorsements go into the evidence, and under which name."""
ATTEMPTS = 5
NUMBERS = itertools.count()


class TsmProducer:
    """Asks the platform for evidence, each time in an entry of its own under `root`."""

    def __init__(self, root: Path = ROOT, endorsements: Path | None = None) -> None:
        self.root = root
        self.endorsements = endorsements
        with self.entry() as entry:
            provider = read(entry / "provider").decode("ascii", "replace").strip()
        if provider not in PROVIDERS:
            raise AttestationRefused(
                "the platform's attestation provider is none that Scumble knows",
                hint="it knows " + " and ".join(PROVIDERS) + "; `cat` the file `provider` of an entry to see which",
            )
        self.kind = PROVIDERS[provider]

    @property
    def measurement(self) -> str:
        """What the platform says that it measured, unverified, for the enclave's operator to publish."""
        report = self.evidence(bytes(REPORT_DATA_BYTES)).report
        stated = snp.stated_measurement if self.kind == "sev-snp" else dcap.stated_measurement
        return stated(report).hex()

    def evidence(self, report_data: bytes) -> Evidence:
        for _ in range(ATTEMPTS):
            with self.entry() as entry:
                answer = asked(entry, report_data)
            if answer is not None:
                report, certificates = answer
                extras = {"auxblob": certificates} if certificates and self.kind == "sev-snp" else {}
                return Evidence(self.kind, report, extras | self.endorsed())
        raise AttestationRefused(
            "the platform's attestation interface is in use by something else", hint=f"look what writes to {self.root}"
        )

    @contextmanager
    def entry(self) -> Iterator[Path]:
        """A fresh entry, removed afterwards."""
        entry = self.root / f"scumble-{os.getpid()}-{next(NUMBERS)}"
        try:
            entry.mkdir()
        except OSError as error:
            raise unusable(error) from error
        try:
            yield entry
        finally:
            with suppress(OSError):
                entry.rmdir()

    def endorsed(self) -> dict[str, bytes]:
        """What the directory of endorsements holds now: collateral is renewed while an enclave runs."""
        if self.endorsements is None:
            return {}
        try:
            return {
                name: (self.endorsements / file).read_bytes()
                for file, name in ENDORSEMENTS.items()
                if (self.endorsements / file).exists()
            }
        except OSError as error:
            raise AttestationRefused(
                f"the endorsements cannot be read ({error.strerror})", hint=f"look at {self.endorsements}"
            ) from error


def asked(entry: Path, report_data: bytes) -> tuple[bytes, bytes] | None:
    """The report and the host's certificates, or None if something else wrote to the entry meanwhile."""
    before = generation(entry)
    try:
        write(entry / "inblob", report_data)
        report = read(entry / "outblob")
        certificates = read(entry / "auxblob") if (entry / "auxblob").exists() else b""
    except BlockingIOError:
        return None
    return (report, certificates) if generation(entry) == before + 1 else None


def generation(entry: Path) -> int:
    """How often the entry was written to."""
    try:
        return int(read(entry / "generation"))
    except ValueError as error:
        raise unusable(error) from error


def write(path: Path, data: bytes) -> None:
    """Write an attribute in one piece, as configfs wants it."""
    try:
        with path.open("wb", buffering=0) as file:
            file.write(data)
    except BlockingIOError:
        raise
    except OSError as error:
        raise unusable(error) from error


def read(path: Path) -> bytes:
    """All of an attribute."""
    try:
        return path.read_bytes()
    except BlockingIOError:
        raise
    except OSError as error:
        raise unusable(error) from error


def unusable(error: Exception) -> AttestationRefused:
    """The refusal of an interface that does not work."""
    code = errno.errorcode.get(error.errno or 0) if isinstance(error, OSError) else None
    reason = f" ({code})" if code else ""
    return AttestationRefused(
        "the platform's attestation interface cannot be used" + reason,
        hint="it needs Linux 6.7 in a confidential machine, configfs mounted, and the right to write there",
    )
