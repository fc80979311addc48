"""TDX and SGX evidence of real processors: it verifies, and not with one byte changed."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from attestation_vectors import DCAP_NOW, DCAP_REPORT_DATA, NEEDED, PRESENT, contents, dcap_evidence
from hypothesis import given
from hypothesis import strategies as st

from scumble.attestation import Evidence, Policy, Verdict, verify
from scumble.errors import AttestationRefused

pytestmark = PRESENT
KINDS = ("tdx", "sgx")
MEASUREMENTS = {
    "sgx": "33d8736db756ed4997e04ba358d27833188f1932ff7b1d156904d3f560452fbb",
    "tdx": "fa13bff786ec94614334ea98d2b49c80d3d029670e86b5615c02afcf50ad9d7a3b02f453567bb20d598b5acf7014d598",
}
VALIDITY = {
    "sgx": (datetime(2025, 6, 19, 10, 56, 11, tzinfo=UTC), datetime(2025, 7, 19, 10, 1, 18, tzinfo=UTC)),
    "tdx": (datetime(2025, 6, 19, 10, 32, 27, tzinfo=UTC), datetime(2025, 7, 19, 10, 0, 34, tzinfo=UTC)),
}
"""The first and the last second at which every part of the collateral is valid."""


def judged(evidence: Evidence, *, now: datetime = DCAP_NOW, policy: Policy | None = None) -> Verdict:
    """The verdict, asking for the report data that the true quote states."""
    asked = dcap_evidence(evidence.kind).report[DCAP_REPORT_DATA[evidence.kind]]
    return verify(evidence, report_data=asked, policy=policy or NEEDED[evidence.kind], now=now)


@pytest.mark.parametrize("kind", KINDS)
def test_the_quote_verifies_inside_its_collaterals_validity(kind: str) -> None:
    for now in VALIDITY[kind]:
        assert judged(dcap_evidence(kind), now=now).measurement == MEASUREMENTS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_before_and_after_it_is_refused(kind: str) -> None:
    first, last = VALIDITY[kind]
    for now in (first - timedelta(seconds=1), last + timedelta(seconds=1), datetime(1969, 1, 1, tzinfo=UTC)):
        with pytest.raises(AttestationRefused, match="at this time"):
            judged(dcap_evidence(kind), now=now)


@pytest.mark.parametrize("kind", KINDS)
def test_the_outdated_quote_is_refused_at_any_time_and_under_any_policy(kind: str) -> None:
    """It is of another platform than the collateral, and of a later time."""
    report = contents("dcap/tdx_quote_outdated")
    evidence = Evidence("tdx", report, dcap_evidence(kind).extras)
    lax = Policy(allow_statuses=frozenset({"OutOfDate"}))
    for now in (DCAP_NOW, datetime(2026, 3, 1, tzinfo=UTC)):
        for policy in (Policy(), lax):
            with pytest.raises(AttestationRefused):
                verify(evidence, report_data=report[54 + 520 : 54 + 584], policy=policy, now=now)


def test_the_sgx_platform_is_refused_unless_its_status_and_advisories_are_allowed() -> None:
    with pytest.raises(AttestationRefused, match="ConfigurationAndSWHardeningNeeded"):
        judged(dcap_evidence("sgx"), policy=Policy())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pattern", [0x01, pytest.param(0x80, marks=pytest.mark.slow)])
def test_no_byte_of_the_quote_can_change(kind: str, pattern: int) -> None:
    """Not even those that no signature covers: lengths, spelling, the copy of the root, the padding."""
    evidence = dcap_evidence(kind)
    for position in range(len(evidence.report)):
        report = bytearray(evidence.report)
        report[position] ^= pattern
        with pytest.raises(AttestationRefused):
            judged(replace(evidence, report=bytes(report)))


@pytest.mark.parametrize(("kind", "padding"), [("sgx", 0), ("tdx", 70)])
def test_only_zeros_after_the_quote_can_be_cut_or_added(kind: str, padding: int) -> None:
    evidence = dcap_evidence(kind)
    size = len(evidence.report)
    assert evidence.report.endswith(bytes(padding))
    for length in range(size - padding):
        with pytest.raises(AttestationRefused):
            judged(replace(evidence, report=evidence.report[:length]))
    assert judged(replace(evidence, report=evidence.report[: size - padding]))
    assert judged(replace(evidence, report=evidence.report + bytes(9)))
    with pytest.raises(AttestationRefused):
        judged(replace(evidence, report=evidence.report + b"x"))


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_measurements_and_wrong_report_data_are_refused(kind: str) -> None:
    pinned = replace(NEEDED[kind], measurements=frozenset({MEASUREMENTS[kind]}))
    assert judged(dcap_evidence(kind), policy=pinned)
    with pytest.raises(AttestationRefused, match="other code than was pinned"):
        judged(dcap_evidence(kind), policy=replace(pinned, measurements=frozenset({"00" * 48})))
    with pytest.raises(AttestationRefused, match="another key or another nonce"):
        verify(dcap_evidence(kind), report_data=bytes(64), policy=NEEDED[kind], now=DCAP_NOW)


@given(kind=st.sampled_from(KINDS), data=st.data())
def test_damaged_collateral_is_refused_or_says_the_same(kind: str, data: st.DataObject) -> None:
    """What it says is signed; how its JSON and PEM are spelled is not."""
    evidence = dcap_evidence(kind)
    collateral = bytearray(evidence.extras["collateral"])
    position = data.draw(st.integers(0, len(collateral) - 1))
    collateral[position : position + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        verdict = judged(replace(evidence, extras={"collateral": bytes(collateral)}))
    except AttestationRefused:
        return
    assert verdict == judged(evidence)


@given(st.sampled_from(KINDS), st.binary(max_size=6000))
def test_random_bytes_are_refused_and_nothing_worse(kind: str, data: bytes) -> None:
    evidence = dcap_evidence(kind)
    with pytest.raises(AttestationRefused):
        judged(replace(evidence, report=data))
    with pytest.raises(AttestationRefused):
        judged(replace(evidence, extras={"collateral": data}))
