"""TDX and SGX evidence of a maker of our own: every check is reached with signatures that hold."""

import hashlib
import json
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from types import ModuleType
from typing import Any
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
    collateral,
    evidence,
    pck_chain,
    pem,
    quote,
    root,
)

from scumble.attestation import Evidence, Policy, Verdict, dcap
from scumble.attestation import verify as public_verify
from scumble.attestation.certificates import fingerprint
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


# --- the layout ----------------------------------------------------------------------------------------

CLAIMS: dict[str, Any] = {
    "tcb": {"status": "UpToDate", "advisory_ids": ["A", "B"], "eval_data_number": 17},
    "platform": {"pck": {"ppid": [1, 255], "fmspc": [2, 254]}, "tcb_level": {"tcbStatus": "P"}},
    "qe": {"tcb_level": {"tcbStatus": "Q"}, "tcb_eval_data_number": 16},
    "header": {"version": 4},
}
BODY = bytes(offset % 251 for offset in range(648))


def test_every_field_of_a_machine_is_read_from_its_own_bytes() -> None:
    machine = dcap.Quote(0x81, BODY)
    assert dcap.describe(machine, CLAIMS) == {
        "status": "UpToDate",
        "advisories": "A B",
        "tcb evaluation": "17",
        "chip": "01ff",
        "fmspc": "02fe",
        "quote version": "4",
        "attributes": BODY[120:128].hex(),
        "xfam": BODY[128:136].hex(),
        "mrconfigid": BODY[184:232].hex(),
        "mrtd": BODY[136:184].hex(),
        **{f"rtmr{index}": BODY[328 + 48 * index : 376 + 48 * index].hex() for index in range(4)},
    }
    assert dcap.measurement_of(machine) == hashlib.sha384(BODY[136:184] + BODY[328:520]).digest()


def test_every_field_of_an_enclave_is_read_from_its_own_bytes() -> None:
    enclave = dcap.Quote(0, BODY[:384])
    shown = dcap.describe(enclave, CLAIMS | {"tcb": CLAIMS["tcb"] | {"advisory_ids": []}})
    assert shown["advisories"] == "none"
    assert (shown["attributes"], shown["mrsigner"]) == (BODY[48:64].hex(), BODY[128:160].hex())
    assert dcap.measurement_of(enclave) == BODY[64:96]


def test_the_worst_status_and_the_older_evaluation_count() -> None:
    for mine, theirs in ((17, 16), (16, 17)):
        claims: dict[str, Any] = {
            **CLAIMS,
            "tcb": CLAIMS["tcb"] | {"eval_data_number": mine},
            "qe": CLAIMS["qe"] | {"tcb_eval_data_number": theirs},
        }
        facts = dcap.facts_in(claims, NOW)
        assert (facts.tcb_evaluation, facts.chip, facts.issued) == (16, "01ff", NOW)
        assert (facts.statuses, facts.advisories) == (frozenset({"UpToDate", "P", "Q"}), frozenset("AB"))


def test_collateral_is_as_old_as_its_oldest_part() -> None:
    parts = json.loads(collateral("tdx"))
    assert dcap.issued_at(json.dumps(parts).encode()) == NOW - DAY
    for name in ("tcb_info", "qe_identity"):
        older = json.loads(parts[name]) | {"issueDate": "2025-12-01T00:00:00Z"}
        found = dcap.issued_at(json.dumps(parts | {name: json.dumps(older)}).encode())
        assert found == datetime(2025, 12, 1, tzinfo=UTC)
    newer = {name: json.dumps({"issueDate": "2026-01-01T00:00:00Z"}) for name in ("tcb_info", "qe_identity")}
    assert dcap.issued_at(json.dumps(parts | newer).encode()) == NOW - DAY


def test_report_data_is_read_from_the_first_body_also_where_a_later_one_has_it_inside() -> None:
    assert dcap.stated_data({"report": {"TD10": {"report_data": "ab"}}}) == "ab"
    assert dcap.stated_data({"report": {"TD15": {"base": {"report_data": "ab"}}}}) == "ab"


@pytest.mark.parametrize("attributes", [1 << bit for bit in range(8)])
def test_no_bit_of_the_byte_with_debug_may_be_set_for_a_machine(attributes: int) -> None:
    for offset, refused in ((119, False), (120, True), (121, False)):
        body = bytearray(648)
        body[offset] = attributes
        parsed = dcap.Quote(0x81, bytes(body))
        if refused:
            with pytest.raises(AttestationRefused, match="debugged by its host"):
                dcap.check_debug(parsed)
        else:
            dcap.check_debug(parsed)


@pytest.mark.parametrize(("attributes", "refused"), [(0xFD, False), (0x02, True)])
def test_only_debug_is_refused_of_an_enclaves_attributes(attributes: int, refused: bool) -> None:
    body = bytearray(384)
    body[47:50] = bytes([0x02, attributes, 0x02])
    parsed = dcap.Quote(0, bytes(body))
    if refused:
        with pytest.raises(AttestationRefused, match="debugged by its host"):
            dcap.check_debug(parsed)
    else:
        dcap.check_debug(parsed)


def unread(made: bytes) -> bool:
    """Whether a quote is refused for its layout."""
    try:
        dcap.Quote.parse(made, root=fingerprint(root()))
    except AttestationRefused as error:
        return "not laid out" in str(error)
    return False


@pytest.mark.parametrize(("kind", "version"), [("sgx", 3), ("sgx", 4), ("tdx", 4), ("tdx", 5)])
def test_versions_keys_and_lengths_are_those_that_are_known(kind: str, version: int) -> None:
    made = quote(kind, version=version)
    assert not unread(made)
    headers = [(0, known) for known in (0, 1, 2, 6, 7)] + [(2, known) for known in (0, 1, 3)] + [(4, 0x80), (4, 0x82)]
    typed = [(48, known) for known in (0, 1, 2, 4)] + [(50, 648 % 256 - 1), (50, 648 % 256 + 1)]
    for offset, value in headers + (typed if version == 5 else []):
        assert unread(made[:offset] + bytes([value]) + made[offset + 1 :])
    assert unread(made[:-1])
    assert unread(made[:47])
    assert not unread(made + b"\0")


def test_the_other_lengths_of_version_5_are_read_as_well() -> None:
    made = quote("tdx", version=5)
    shorter = made[:48] + struct.pack("<HI", 2, 584) + made[54 : 54 + 584] + made[54 + 648 :]
    assert not unread(shorter)
    enclave = made[:4] + bytes(4) + made[8:48] + struct.pack("<HI", 1, 384) + made[54 : 54 + 384] + made[54 + 648 :]
    assert not unread(enclave)
    for kind, length in ((1, 584), (2, 648), (3, 584)):
        assert unread(made[:48] + struct.pack("<HI", kind, length) + made[54 : 54 + length] + made[54 + 648 :])


def test_no_more_is_taken_than_there_is() -> None:
    cursor = dcap.Cursor(b"abcd")
    assert (cursor.take(1), cursor.number(2), cursor.take(1), cursor.take(0)) == (b"a", 0x6362, b"d", b"")
    with pytest.raises(AttestationRefused, match="not laid out"):
        cursor.take(1)


def test_a_machine_has_no_quote_of_version_3() -> None:
    assert unread(b"\x03" + quote("tdx")[1:])


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
