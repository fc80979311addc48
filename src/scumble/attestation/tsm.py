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
        with self.entry() as entry, usable():
            provider = (entry / "provider").read_bytes().decode("ascii", "replace").strip()
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
        with usable():
            entry.mkdir()
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
    try:
        with usable():
            before = int((entry / "generation").read_bytes())
            with (entry / "inblob").open("wb", buffering=0) as file:  # in one piece, as configfs wants it
                file.write(report_data)
            report = (entry / "outblob").read_bytes()
            certificates = (entry / "auxblob").read_bytes() if (entry / "auxblob").exists() else b""
            after = int((entry / "generation").read_bytes())
    except BlockingIOError:
        return None
    return (report, certificates) if after == before + 1 else None


@contextmanager
def usable() -> Iterator[None]:
    """Refuse an interface that does not work; BlockingIOError, which says that somebody else uses it, stays."""
    try:
        yield
    except BlockingIOError:
        raise
    except (OSError, ValueError) as error:
        code = errno.errorcode.get(error.errno or 0) if isinstance(error, OSError) else None
        raise AttestationRefused(
            "the platform's attestation interface cannot be used" + (f" ({code})" if code else ""),
            hint="it needs Linux 6.7 in a confidential machine, configfs mounted, and the right to write there",
        ) from error
