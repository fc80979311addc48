"""SEV-SNP evidence of real chips: it verifies, and not with one byte changed."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from attestation_vectors import NEEDED, PRESENT, SNP_NOW, SNP_REPORT_DATA, contents, snp_evidence
from hypothesis import given
from hypothesis import strategies as st

from scumble.attestation import Evidence, Policy, Tcb, Verdict, verify
from scumble.errors import AttestationRefused

pytestmark = PRESENT
LEAVES = ("vcek", "vlek")


def judged(evidence: Evidence, leaf: str, *, now: datetime = SNP_NOW, policy: Policy | None = None) -> Verdict:
    """The verdict, asking for the report data that the true report states."""
    asked = snp_evidence(leaf).report[SNP_REPORT_DATA]
    return verify(evidence, report_data=asked, policy=policy or NEEDED[leaf], now=now)


def changed(data: bytes) -> Iterator[bytes]:
    """Every change of one byte, by two patterns of bits."""
    for position in range(len(data)):
        for pattern in (0x01, 0x80):
            yield data[:position] + bytes([data[position] ^ pattern]) + data[position + 1 :]


def with_extra(evidence: Evidence, name: str, value: bytes) -> Evidence:
    """The evidence with one of its extras replaced."""
    return replace(evidence, extras={**evidence.extras, name: value})


def test_the_report_signed_by_a_chips_key_verifies() -> None:
    verdict = judged(snp_evidence("vcek"), "vcek")
    assert verdict.kind == "sev-snp"
    assert verdict.measurement == contents("snp/milan-vcek-report.bin")[0x90:0xC0].hex()
    assert verdict.report_data == contents("snp/milan-vcek-report.bin")[SNP_REPORT_DATA]
    assert verdict.details["tcb"] == "bootloader=3 tee=0 snp=8 microcode=115 fmc=0"
    assert verdict.details["report version"] == "2"
    assert (verdict.details["product"], verdict.details["signing key"]) == ("Milan", "VCEK")


def test_the_report_signed_by_a_clouds_key_verifies() -> None:
    verdict = judged(snp_evidence("vlek"), "vlek")
    assert (verdict.details["report version"], verdict.details["signing key"]) == ("3", "VLEK")
    assert verdict.details["cloud"] == "CN=cc-us-east-2.amazonaws.com"
    with pytest.raises(AttestationRefused, match="privilege level 1"):
        judged(snp_evidence("vlek"), "vlek", policy=Policy())


@pytest.mark.parametrize("name", ["invalid-vcek-legacy.der", "invalid-vcek-new.der"])
def test_the_certificates_that_amd_did_not_sign_are_refused(name: str) -> None:
    with pytest.raises(AttestationRefused, match="signature on a certificate"):
        judged(with_extra(snp_evidence("vcek"), "vcek", contents(f"snp/{name}")), "vcek")


@pytest.mark.parametrize("leaf", LEAVES)
def test_no_byte_of_the_report_can_change(leaf: str) -> None:
    evidence = snp_evidence(leaf)
    for report in changed(evidence.report):
        with pytest.raises(AttestationRefused):
            judged(replace(evidence, report=report), leaf)


@pytest.mark.parametrize("leaf", LEAVES)
def test_no_byte_of_the_leaf_certificate_can_change(leaf: str) -> None:
    """Signed or not: the frame and the signature's own encoding are strict as well."""
    evidence = snp_evidence(leaf)
    for certificate in changed(evidence.extras[leaf]):
        with pytest.raises(AttestationRefused):
            judged(with_extra(evidence, leaf, certificate), leaf)


@pytest.mark.parametrize("leaf", LEAVES)
def test_no_truncation_and_no_addition_verifies(leaf: str) -> None:
    evidence = snp_evidence(leaf)
    certificate = evidence.extras[leaf]
    for length in range(len(evidence.report)):
        with pytest.raises(AttestationRefused):
            judged(replace(evidence, report=evidence.report[:length]), leaf)
    for length in range(len(certificate)):
        with pytest.raises(AttestationRefused):
            judged(with_extra(evidence, leaf, certificate[:length]), leaf)
    for more in (b"\0", b"x"):
        with pytest.raises(AttestationRefused):
            judged(replace(evidence, report=evidence.report + more), leaf)
        with pytest.raises(AttestationRefused):
            judged(with_extra(evidence, leaf, certificate + more), leaf)


@pytest.mark.parametrize(
    ("leaf", "now"),
    [
        ("vcek", datetime(2023, 1, 24, 17, 58, 25, tzinfo=UTC)),
        ("vcek", datetime(2030, 1, 24, 17, 58, 27, tzinfo=UTC)),
        ("vlek", datetime(2024, 12, 10, 22, 14, 20, tzinfo=UTC)),
        ("vlek", datetime(2025, 12, 10, 22, 14, 22, tzinfo=UTC)),
    ],
)
def test_a_second_before_and_after_its_validity_a_certificate_is_refused(leaf: str, now: datetime) -> None:
    with pytest.raises(AttestationRefused, match="not valid at this time"):
        judged(snp_evidence(leaf), leaf, now=now)


@pytest.mark.parametrize("leaf", LEAVES)
def test_only_the_pinned_measurement_is_accepted(leaf: str) -> None:
    measurement = judged(snp_evidence(leaf), leaf).measurement
    other = "00" * 48
    both = frozenset({measurement, other})
    assert judged(snp_evidence(leaf), leaf, policy=replace(NEEDED[leaf], measurements=both)).measurement == measurement
    for wrong in (frozenset({other}), frozenset({measurement[:-2]}), frozenset[str]()):
        with pytest.raises(AttestationRefused, match="other code than was pinned"):
            judged(snp_evidence(leaf), leaf, policy=replace(NEEDED[leaf], measurements=wrong))


@pytest.mark.parametrize("leaf", LEAVES)
def test_evidence_for_another_key_or_nonce_is_refused(leaf: str) -> None:
    evidence = snp_evidence(leaf)
    asked = bytearray(evidence.report[SNP_REPORT_DATA])
    asked[-1] ^= 1
    with pytest.raises(AttestationRefused, match="another key or another nonce"):
        verify(evidence, report_data=bytes(asked), policy=NEEDED[leaf], now=SNP_NOW)


@pytest.mark.parametrize(
    "minimum", [Tcb(bootloader=4), Tcb(tee=1), Tcb(snp=9), Tcb(microcode=116), Tcb(fmc=1)], ids=str
)
def test_firmware_below_the_minimum_is_refused(minimum: Tcb) -> None:
    reached = Policy(minimum_tcb=Tcb(bootloader=3, tee=0, snp=8, microcode=115))
    assert judged(snp_evidence("vcek"), "vcek", policy=reached)
    with pytest.raises(AttestationRefused, match="older than the policy allows"):
        judged(snp_evidence("vcek"), "vcek", policy=Policy(minimum_tcb=minimum))


def test_each_report_needs_its_own_leaf_and_each_leaf_its_own_issuer() -> None:
    chip, cloud = snp_evidence("vcek"), snp_evidence("vlek")
    for evidence in (
        replace(chip, report=cloud.report),
        replace(cloud, report=chip.report),
        with_extra(chip, "vcek", cloud.extras["vlek"]),
        with_extra(chip, "certificates", contents("snp/genoa_ask_ark_asvk.pem")),
        with_extra(chip, "certificates", contents("snp/turin_ask_ark_asvk.pem")),
        replace(chip, extras={"vcek": chip.extras["vcek"]}),
        replace(chip, extras={"certificates": chip.extras["certificates"]}),
    ):
        with pytest.raises(AttestationRefused):
            judged(evidence, "vcek")


def test_the_chain_may_come_in_pieces_and_with_the_chains_of_other_chips() -> None:
    evidence = snp_evidence("vcek")
    everything = b"".join(contents(f"snp/{name}_ask_ark_asvk.pem") for name in ("genoa", "milan", "turin"))
    assert judged(with_extra(evidence, "certificates", everything), "vcek")
    end = b"-----END CERTIFICATE-----\n"
    ask, ark, _, _ = (part + end for part in contents("snp/milan_ask_ark_asvk.pem").split(end))
    assert judged(replace(evidence, extras={"vcek": evidence.extras["vcek"], "ask": ask, "ark": ark}), "vcek")


@given(st.binary(max_size=1500), st.sampled_from(["vcek", "certificates", "auxblob", "crl", "ask"]))
def test_random_bytes_are_refused_and_nothing_worse(data: bytes, name: str) -> None:
    with pytest.raises(AttestationRefused):
        judged(Evidence("sev-snp", data, {}), "vcek")
    evidence = snp_evidence("vcek")
    empty_table = not data.strip(b"\0") or (len(data) >= 24 and data.startswith(bytes(16)))
    if name != "auxblob" or not empty_table:
        with pytest.raises(AttestationRefused):
            judged(with_extra(evidence, name, data), "vcek")
