"""TDX and SGX evidence of a maker of our own: every check is reached with signatures that hold."""

import hashlib
from collections.abc import Callable
from types import ModuleType
from unittest.mock import Mock

import pytest
from intel_pki import (
    ADVISORY,
    DAY,
    MRENCLAVE,
    MRTD,
    NOW,
    REPORT_DATA,
    RTMRS,
    certificate,
    evidence,
    pck_chain,
    pem,
    quote,
    root,
)

from scumble.attestation import Evidence, Policy, Verdict, dcap
from scumble.attestation import verify as public_verify
from scumble.errors import AttestationRefused

KINDS = ("tdx", "sgx")
MEASUREMENTS = {"sgx": MRENCLAVE.hex(), "tdx": hashlib.sha384(MRTD + RTMRS).hexdigest()}


def judged(given: Evidence, policy: Policy | None = None) -> Verdict:
    return dcap.verify(given, report_data=REPORT_DATA, policy=policy or Policy(), now=NOW, root=root())


def expect_refused(given: Evidence, because: str, policy: Policy | None = None) -> None:
    with pytest.raises(AttestationRefused, match=because) as caught:
        judged(given, policy)
    assert caught.value.hint


@pytest.mark.parametrize("kind", KINDS)
def test_a_good_quote_is_accepted_and_its_measurement_is_what_the_documents_say(kind: str) -> None:
    verdict = judged(evidence(kind), Policy(measurements=frozenset({MEASUREMENTS[kind]})))
    assert verdict.measurement == MEASUREMENTS[kind]
    assert verdict.report_data == REPORT_DATA
    assert verdict.details["status"] == "UpToDate"


def test_a_quote_of_version_5_is_accepted() -> None:
    verdict = judged(evidence("tdx", quote("tdx", version=5)))
    assert (verdict.measurement, verdict.details["quote version"]) == (MEASUREMENTS["tdx"], "5")


@pytest.mark.parametrize(("kind", "attributes"), [("sgx", 0x07), ("sgx", 0x02), ("tdx", 0x01), ("tdx", 0x81)])
def test_an_enclave_that_can_be_debugged_is_refused(kind: str, attributes: int) -> None:
    expect_refused(evidence(kind, quote(kind, attributes=attributes)), "debugged by its host")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", ["OutOfDate", "SWHardeningNeeded", "ConfigurationNeeded"])
def test_only_what_is_up_to_date_or_allowed_is_accepted(kind: str, status: str) -> None:
    given = evidence(kind, status=status, advisories=[ADVISORY])
    expect_refused(given, f"calls the enclave's platform {status}")
    expect_refused(given, "advisories that are not allowed", Policy(allow_statuses=frozenset({status})))
    expect_refused(given, f"calls the enclave's platform {status}", Policy(allow_advisories=frozenset({ADVISORY})))
    both = Policy(allow_statuses=frozenset({status}), allow_advisories=frozenset({ADVISORY, "another"}))
    verdict = judged(given, both)
    assert (verdict.details["status"], verdict.details["advisories"]) == (status, ADVISORY)


@pytest.mark.parametrize("kind", KINDS)
def test_a_revoked_platform_is_refused_whatever_the_policy_allows(kind: str) -> None:
    expect_refused(evidence(kind, status="Revoked"), "does not verify", Policy(allow_statuses=frozenset({"Revoked"})))


@pytest.mark.parametrize("kind", KINDS)
def test_the_quoting_enclave_must_be_up_to_date_as_well(kind: str) -> None:
    given = evidence(kind, enclave_status="OutOfDate")
    expect_refused(given, "OutOfDate")
    assert judged(given, Policy(allow_statuses=frozenset({"OutOfDate"})))
    worse = evidence(kind, status="ConfigurationNeeded", enclave_status="OutOfDate")
    expect_refused(worse, "calls the enclave's platform", Policy(allow_statuses=frozenset({"ConfigurationNeeded"})))


def test_a_refused_status_is_named_with_its_advisories() -> None:
    with pytest.raises(AttestationRefused, match="OutOfDate") as caught:
        judged(evidence("tdx", status="OutOfDate", advisories=[ADVISORY]))
    assert ADVISORY in str(caught.value.hint)


def test_collateral_of_an_older_evaluation_is_refused_if_asked() -> None:
    assert judged(evidence("sgx"), Policy(minimum_tcb_evaluation=17))
    expect_refused(evidence("sgx"), "older TCB evaluation", Policy(minimum_tcb_evaluation=18))


@pytest.mark.parametrize("kind", KINDS)
def test_the_public_verifier_knows_no_root_but_intels(kind: str) -> None:
    with pytest.raises(AttestationRefused, match="root certificate is not Intel's"):
        public_verify(evidence(kind), report_data=REPORT_DATA, policy=Policy(), now=NOW)


@pytest.mark.parametrize("kind", KINDS)
def test_other_report_data_and_other_measurements_are_refused(kind: str) -> None:
    with pytest.raises(AttestationRefused, match="another key or another nonce"):
        dcap.verify(evidence(kind), report_data=bytes(64), policy=Policy(), now=NOW, root=root())
    expect_refused(evidence(kind), "other code than was pinned", Policy(measurements=frozenset({"00" * 32})))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("days", [-2, 2])
def test_collateral_outside_its_validity_is_refused(kind: str, days: int) -> None:
    with pytest.raises(AttestationRefused, match="at this time"):
        dcap.verify(evidence(kind), report_data=REPORT_DATA, policy=Policy(), now=NOW + days * DAY, root=root())


def test_a_quote_of_the_other_kind_or_with_the_other_collateral_is_refused() -> None:
    tdx, sgx = evidence("tdx"), evidence("sgx")
    expect_refused(Evidence("tdx", sgx.report, tdx.extras), "another kind")
    expect_refused(Evidence("sgx", tdx.report, sgx.extras), "another kind")
    expect_refused(Evidence("tdx", tdx.report, sgx.extras), "does not verify")
    expect_refused(Evidence("tdx", tdx.report), "no collateral")
    expect_refused(Evidence("tdx", tdx.report, {"collateral": b"\xff"}), "does not verify")
    expect_refused(Evidence("tdx", tdx.report, {"collateral": b"[]"}), "does not verify")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "chain",
    [
        lambda: pck_chain()[: -len(pem(root()))],
        lambda: pck_chain() + pem(root()),
        lambda: pck_chain() + b"\0\0",
        lambda: pck_chain() + b"\n",
        lambda: b"# a comment\n" + pck_chain(),
        lambda: pck_chain().replace(b"\n", b"\r\n"),
        lambda: pem(certificate("PCK", "Platform CA", authority=False), root(), root()),
        lambda: b"",
    ],
)
def test_a_chain_that_is_spelled_otherwise_is_refused(kind: str, chain: Callable[[], bytes]) -> None:
    expect_refused(evidence(kind, quote(kind, chain=chain())), "not laid out|does not verify")


@pytest.mark.parametrize("kind", KINDS)
def test_one_zero_byte_may_end_the_chain_and_zeros_may_follow_the_quote(kind: str) -> None:
    assert judged(evidence(kind, quote(kind, chain=pck_chain() + b"\0")))
    assert judged(evidence(kind, quote(kind) + bytes(70)))
    expect_refused(evidence(kind, quote(kind) + b"\0x"), "not laid out")


def test_without_the_library_the_way_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(dcap, "import_module", absent)
    with pytest.raises(AttestationRefused, match="not installed") as caught:
        judged(evidence("tdx"))
    assert caught.value.hint == "pip install 'scumble[attestation]'"


def test_a_quote_that_the_library_reads_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcap, "stated_data", lambda claims: "00" * 64)
    expect_refused(evidence("tdx"), "read in two ways")


@pytest.mark.parametrize("answer", ["null", "[]", '"UpToDate"', "true"])
def test_claims_that_are_no_object_are_refused(answer: str) -> None:
    given = evidence("tdx")

    class Library(ModuleType):
        QuoteCollateralV3 = QuoteVerifier = QuotePolicy = Mock()

    Library.QuoteVerifier.return_value.verify_with_policy.return_value.to_json.return_value = answer
    with pytest.raises(AttestationRefused, match="the quote does not verify\n"):
        dcap.claims_of(Library("dcap_qvl"), given, NOW, None)


def test_a_library_that_says_too_little_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[dict[str, object]] = [{}, {"report": {}}, {"report": {"TD10": {"report_data": ""}}}, {"report": []}]
    for claims in answers:
        monkeypatch.setattr(dcap, "claims_of", lambda *_, claims=claims: claims)
        expect_refused(evidence("tdx"), "says less than is needed")
