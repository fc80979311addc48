"""An ECDSA signature has two forms, (r, s) and (r, n - s): evidence with the other one says the same, and no more.

Chips emit both, so neither can be refused. What matters is that nothing takes the bytes of evidence for its name:
it is fresh by its nonce, and a nonce is answered once.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from amd_pki import NOW, REPORT_DATA, Maker, report
from attestation_vectors import DCAP_NOW, DCAP_REPORT_DATA, NEEDED, PRESENT, SNP_NOW, SNP_REPORT_DATA, dcap_evidence
from attestation_vectors import snp_evidence as real_snp
from intel_pki import evidence as intel_evidence
from intel_pki import root

from scumble.attestation import Evidence, Policy, Verdict, dcap, snp, verify
from scumble.errors import AttestationRefused

P256 = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
P384 = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973
"""The orders of the two curves."""

MILAN = Maker("Milan")
Judge = Callable[[Evidence, bytes], Verdict]


def snp_malleated(evidence: Evidence) -> Evidence:
    """The report with the other form of its signature: s is little-endian, at 0x2E8."""
    made = evidence.report
    s = int.from_bytes(made[0x2E8:0x318], "little")
    return replace(evidence, report=made[:0x2E8] + (P384 - s).to_bytes(48, "little") + made[0x318:])


def dcap_malleated(evidence: Evidence, kind: str) -> Evidence:
    """The quote with the other form of its signature, which follows body and length: s is its second half."""
    made = evidence.report
    at = 48 + (584 if kind == "tdx" else 384) + 4 + 32
    s = int.from_bytes(made[at : at + 32], "big")
    return replace(evidence, report=made[:at] + (P256 - s).to_bytes(32, "big") + made[at + 32 :])


def expect_the_same(evidence: Evidence, other: Evidence, data: bytes, judge: Judge) -> None:
    """Both forms give one verdict, and neither is good for another nonce or key."""
    assert evidence.report != other.report
    assert judge(evidence, data) == judge(other, data)
    for each in (evidence, other):
        with pytest.raises(AttestationRefused, match="another key or another nonce"):
            judge(each, bytes(63) + b"\x01")


def test_both_forms_of_a_reports_signature_say_the_same() -> None:
    evidence = MILAN.evidence(report(), MILAN.vcek())

    def judge(given: Evidence, data: bytes) -> Verdict:
        return snp.verify(given, report_data=data, policy=Policy(), now=NOW, roots=MILAN.roots)

    expect_the_same(evidence, snp_malleated(evidence), REPORT_DATA, judge)


@pytest.mark.parametrize("kind", ["tdx", "sgx"])
def test_both_forms_of_a_quotes_signature_say_the_same(kind: str) -> None:
    evidence = intel_evidence(kind)

    def judge(given: Evidence, data: bytes) -> Verdict:
        return dcap.verify(given, report_data=data, policy=Policy(), now=NOW, root=root())

    expect_the_same(evidence, dcap_malleated(evidence, kind), REPORT_DATA, judge)


def test_no_number_outside_of_the_curves_order_is_a_signature() -> None:
    """Else there would be more forms: s + n and r + n, where they fit."""
    evidence = MILAN.evidence(report(), MILAN.vcek())
    for at in (0x2A0, 0x2E8):
        for value in (0, P384, (1 << 384) - 1):
            made = evidence.report[:at] + value.to_bytes(48, "little") + evidence.report[at + 48 :]
            with pytest.raises(AttestationRefused, match="signature"):
                snp.verify(
                    replace(evidence, report=made),
                    report_data=REPORT_DATA,
                    policy=Policy(),
                    now=NOW,
                    roots=MILAN.roots,
                )


@PRESENT
@pytest.mark.parametrize("leaf", ["vcek", "vlek"])
def test_real_chips_sign_in_either_form(leaf: str) -> None:
    """Both real reports have the larger s: to demand the smaller one would refuse them."""
    evidence = real_snp(leaf)
    assert int.from_bytes(evidence.report[0x2E8:0x318], "little") > P384 // 2

    def judge(given: Evidence, data: bytes) -> Verdict:
        return verify(given, report_data=data, policy=NEEDED[leaf], now=SNP_NOW)

    expect_the_same(evidence, snp_malleated(evidence), evidence.report[SNP_REPORT_DATA], judge)


@PRESENT
@pytest.mark.parametrize("kind", ["tdx", "sgx"])
def test_real_quotes_verify_in_either_form(kind: str) -> None:
    evidence = dcap_evidence(kind)

    def judge(given: Evidence, data: bytes) -> Verdict:
        return verify(given, report_data=data, policy=NEEDED[kind], now=DCAP_NOW)

    expect_the_same(evidence, dcap_malleated(evidence, kind), evidence.report[DCAP_REPORT_DATA[kind]], judge)
