"""For tests of attestation: evidence that real hardware signed, kept outside of the repository."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from scumble.attestation import Evidence, Policy

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "vectors" / "attestation"
PRESENT = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="evidence of real hardware is not in ../shared/vectors/attestation"
)

SNP_NOW = datetime(2025, 1, 1, tzinfo=UTC)
DCAP_NOW = datetime(2025, 6, 25, tzinfo=UTC)
SNP_REPORT_DATA = slice(0x50, 0x90)
DCAP_REPORT_DATA = {"sgx": slice(48 + 320, 48 + 384), "tdx": slice(48 + 520, 48 + 584)}
NEEDED = {
    "vcek": Policy(),
    "vlek": Policy(maximum_vmpl=1),
    "tdx": Policy(),
    "sgx": Policy(
        allow_statuses=frozenset({"ConfigurationAndSWHardeningNeeded"}),
        allow_advisories=frozenset({"INTEL-SA-00289", "INTEL-SA-00615"}),
    ),
}
"""The strictest policy that accepts each."""


def contents(name: str) -> bytes:
    """One of the files."""
    return (FOLDER / name).read_bytes()


def snp_evidence(leaf: str) -> Evidence:
    """The report signed by a chip's own key ("vcek") or by a cloud's ("vlek")."""
    report, certificate = {
        "vcek": ("milan-vcek-report.bin", "milan-vcek.der"),
        "vlek": ("vlek-report.bin", "vlek.der"),
    }[leaf]
    chain = contents("snp/milan_ask_ark_asvk.pem")
    return Evidence("sev-snp", contents(f"snp/{report}"), {leaf: contents(f"snp/{certificate}"), "certificates": chain})


def dcap_evidence(kind: str) -> Evidence:
    """The quote of a TDX machine ("tdx") or of an SGX enclave ("sgx")."""
    return Evidence(
        kind, contents(f"dcap/{kind}_quote"), {"collateral": contents(f"dcap/{kind}_quote_collateral.json")}
    )
