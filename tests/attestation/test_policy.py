"""Policies: each term by itself, what a verdict shows of them, and what a new policy lowers."""

from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from amd_pki import CHIP, DAY, NOW, REPORT_DATA, TCB, Maker, report

from scumble.attestation import Policy, Tcb, Verdict, snp
from scumble.attestation.policy import HIDING, Facts
from scumble.errors import AttestationRefused, InvalidParameter

MILAN, GENOA, TURIN = Maker("Milan"), Maker("Genoa"), Maker("Turin")
HIDDEN = {0x40: b"\x10"}


def judged(policy: Policy, maker: Maker = MILAN, *, tcb: Tcb = TCB, changes: dict[int, bytes] | None = None) -> Verdict:
    evidence = maker.evidence(report(maker.product, tcb=tcb, changes=changes), maker.vcek(tcb))
    return snp.verify(evidence, report_data=REPORT_DATA, policy=policy, now=NOW, roots=maker.roots)


# --- each term ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [each.name for each in fields(Tcb)])
def test_each_security_version_is_compared_by_itself(part: str) -> None:
    """One below the floor in one component, and far above it in all the others."""
    floor = Tcb(bootloader=3, tee=3, snp=3, microcode=3, fmc=3)
    high = Tcb(bootloader=9, tee=9, snp=9, microcode=9, fmc=9)
    assert floor.reaches(floor)
    assert high.reaches(floor)
    assert replace(high, **{part: 3}).reaches(floor)
    assert not replace(high, **{part: 2}).reaches(floor)
    maker = TURIN
    for policy in (Policy(minimum_tcb=floor), Policy(floors=(("Turin", floor),))):
        assert judged(policy, maker, tcb=replace(high, **{part: 3}))
        with pytest.raises(AttestationRefused, match="older than the policy allows"):
            judged(policy, maker, tcb=replace(high, **{part: 2}))


def test_a_floor_is_for_its_product_and_a_product_without_one_is_refused() -> None:
    policy = Policy(floors=(("Milan", TCB), ("Turin", Tcb())))
    assert judged(policy)
    assert judged(policy, TURIN, tcb=Tcb())
    with pytest.raises(AttestationRefused, match="older than the policy allows"):
        judged(policy, tcb=replace(TCB, snp=TCB.snp - 1))
    with pytest.raises(AttestationRefused, match="no floor for the firmware of Genoa"):
        judged(policy, GENOA)


def test_ciphertext_hiding_is_asked_for_where_there_is_such_a_thing() -> None:
    none, available, always = (Policy(ciphertext_hiding=each) for each in HIDING)
    for maker in (MILAN, GENOA):
        assert judged(none, maker)
        assert judged(available, maker)
        with pytest.raises(AttestationRefused, match="read the ciphertext"):
            judged(always, maker)
    assert judged(none, TURIN)
    for policy in (available, always):
        assert judged(policy, TURIN, changes=HIDDEN)
        with pytest.raises(AttestationRefused, match="read the ciphertext"):
            judged(policy, TURIN)
    with pytest.raises(InvalidParameter, match="ciphertext_hiding"):
        Policy(ciphertext_hiding="perhaps")


def found(kind: str = "sev-snp", **facts: Any) -> Verdict:
    """A verdict with these facts."""
    return Verdict(kind, "ab" * 48, b"", {}, Facts(**facts))


def having(**terms: Any) -> Policy:
    """A policy with these terms."""
    return Policy(**terms)


@pytest.mark.parametrize(
    ("policy", "good", "bad"),
    [
        (Policy(), {}, {"vmpl": 1}),
        (Policy(maximum_vmpl=2), {"vmpl": 2}, {"vmpl": 3}),
        (Policy(), {}, {"may_migrate": True}),
        (Policy(allow_migration_agent=True), {"may_migrate": True}, {"may_migrate": True, "vmpl": 1}),
        (Policy(chips=frozenset({"ab", "cd"})), {"chip": "cd"}, {"chip": "ef"}),
        (Policy(chips=frozenset({"ab"})), {"chip": "ab"}, {"chip": ""}),
        (Policy(require_crl=True), {"issued": NOW - 900 * DAY}, {}),
        (Policy(maximum_age_days=0), {"issued": NOW}, {"issued": NOW - timedelta(seconds=1)}),
        (Policy(minimum_tcb=TCB), {"tcbs": (TCB, TCB)}, {"tcbs": (TCB, Tcb())}),
        (Policy(minimum_tcb=TCB), {"tcbs": (TCB, TCB)}, {"tcbs": (Tcb(), TCB)}),
        (Policy(floors=(("Milan", Tcb()),)), {"product": "Milan"}, {"product": ""}),
        (Policy(ciphertext_hiding=HIDING[1]), {"product": "Milan"}, {"product": "Turin"}),
        (Policy(ciphertext_hiding=HIDING[2]), {"hides_ciphertext": True}, {}),
    ],
)
def test_a_term_accepts_what_is_just_enough_and_nothing_less(
    policy: Policy, good: dict[str, Any], bad: dict[str, Any]
) -> None:
    policy.check(found(**good), NOW)
    with pytest.raises(AttestationRefused):
        policy.check(found(**bad), NOW)


@pytest.mark.parametrize("kind", ["tdx", "sgx"])
def test_intels_evidence_is_held_against_intels_terms(kind: str) -> None:
    policy = Policy(minimum_tcb_evaluation=17, allow_statuses=frozenset({"A", "B"}), allow_advisories=frozenset("12"))
    both = frozenset({"UpToDate", "A", "B"})
    policy.check(found(kind, tcb_evaluation=17, statuses=both, advisories=frozenset("12")), NOW)
    policy.check(found(kind, tcb_evaluation=17, statuses=frozenset({"UpToDate"}), advisories=frozenset("3")), NOW)
    for wrong in (
        {"tcb_evaluation": 16},
        {"tcb_evaluation": 17, "statuses": both | {"C"}},
        {"tcb_evaluation": 17, "statuses": both, "advisories": frozenset("23")},
    ):
        with pytest.raises(AttestationRefused):
            policy.check(found(kind, **wrong), NOW)
    Policy().check(found(kind), NOW)


def test_a_simulated_enclave_that_is_allowed_has_no_platform_to_judge() -> None:
    strict = Policy(require_crl=True, ciphertext_hiding=HIDING[2], minimum_tcb_evaluation=1)
    replace(strict, allow_simulated=True).check(found("simulated"), NOW)
    with pytest.raises(AttestationRefused, match="the enclave is simulated"):
        strict.check(found("simulated"), NOW)
    named = Policy(kinds=frozenset({"tdx"}), allow_simulated=True)
    with pytest.raises(AttestationRefused, match="kind simulated"):
        named.check(found("simulated"), NOW)


def test_code_is_accepted_if_its_measurement_is_one_of_those_pinned() -> None:
    Policy(measurements=frozenset({"ab" * 48, "cd" * 48})).check(found(), NOW)
    for others in (frozenset({"cd" * 48}), frozenset[str]()):
        with pytest.raises(AttestationRefused, match="other code than was pinned"):
            Policy(measurements=others).check(found(), NOW)


@pytest.mark.parametrize("wrong", ["AB", "abc", "", "ab\n", "xy"])
def test_measurements_and_chips_are_written_in_whole_bytes_of_lower_case_hex(wrong: str) -> None:
    for term in ("measurements", "chips"):
        with pytest.raises(InvalidParameter, match="lower-case hex"):
            having(**{term: frozenset({"ab", wrong})})


def test_chips_and_kinds_that_are_not_named_are_refused() -> None:
    assert judged(Policy(chips=frozenset({CHIP.hex()}), kinds=frozenset({"sev-snp"})))
    with pytest.raises(AttestationRefused, match="processor that the policy does not name"):
        judged(Policy(chips=frozenset({"ab" * 64})))
    with pytest.raises(AttestationRefused, match="kind sev-snp"):
        judged(Policy(kinds=frozenset({"tdx", "sgx"})))
    with pytest.raises(InvalidParameter, match="kind"):
        Policy(kinds=frozenset({"sev"}))


def test_a_revocation_list_has_an_age() -> None:
    def shown(crl: bytes | None, now: datetime = NOW) -> None:
        extras = {} if crl is None else {"crl": crl}
        evidence = MILAN.evidence(report(), MILAN.vcek(), **extras)
        policy = Policy(maximum_age_days=2)
        snp.verify(evidence, report_data=REPORT_DATA, policy=policy, now=now, roots=MILAN.roots)

    shown(MILAN.crl(start=NOW - 2 * DAY))
    with pytest.raises(AttestationRefused, match="older than the policy allows"):
        shown(MILAN.crl(start=NOW - 2 * DAY - timedelta(seconds=1)))
    with pytest.raises(AttestationRefused, match="no revocation list"):
        shown(None)


# --- what is shown, and what is lowered ------------------------------------------------------------


def test_what_a_verdict_shows_is_what_it_meets_and_nothing_below() -> None:
    verdict = judged(Policy())
    shown = Policy.shown_by(verdict)
    assert judged(shown)
    for part in ("bootloader", "tee", "snp", "microcode"):
        with pytest.raises(AttestationRefused, match="older"):
            judged(shown, tcb=replace(TCB, **{part: getattr(TCB, part) - 1}))
    with pytest.raises(AttestationRefused):
        judged(shown, GENOA)
    hidden = judged(Policy(), TURIN, changes=HIDDEN)
    with pytest.raises(AttestationRefused, match="ciphertext"):
        judged(Policy.shown_by(hidden), TURIN)


def test_every_fact_is_shown_at_its_worst() -> None:
    """The lower of the firmware of now and of the launch, in each of its parts."""
    now, launch = Tcb(bootloader=1, tee=9, snp=3, microcode=9), Tcb(bootloader=9, tee=2, snp=9, microcode=4)
    shown = Policy.shown_by(found(product="Milan", tcbs=(now, launch), vmpl=2, may_migrate=True, issued=NOW))
    assert shown == Policy(
        kinds=frozenset({"sev-snp"}),
        floors=(("Milan", Tcb(bootloader=1, tee=2, snp=3, microcode=4)),),
        maximum_vmpl=2,
        allow_migration_agent=True,
        require_crl=True,
    )
    statuses, advisories = frozenset({"UpToDate", "SWHardeningNeeded"}), frozenset({"INTEL-SA-00615"})
    intel = found("tdx", issued=NOW, statuses=statuses, advisories=advisories, tcb_evaluation=17)
    assert Policy.shown_by(intel) == Policy(
        kinds=frozenset({"tdx"}),
        allow_statuses=frozenset({"SWHardeningNeeded"}),
        allow_advisories=advisories,
        minimum_tcb_evaluation=17,
    )
    assert Policy.shown_by(found(hides_ciphertext=True)).ciphertext_hiding == HIDING[2]
    simulated = Policy(kinds=frozenset({"simulated"}), allow_simulated=True)
    assert Policy.shown_by(found("simulated")) == simulated
    assert Policy.shown_by(found()) == Policy(kinds=frozenset({"sev-snp"}))


def test_a_policy_that_says_nothing_is_filled_and_one_that_does_is_kept() -> None:
    intel = found("tdx", tcb_evaluation=17)
    assert Policy().filled_from(intel) == Policy(kinds=frozenset({"tdx"}), minimum_tcb_evaluation=17)
    stated = Policy(kinds=frozenset({"tdx", "sgx"}), minimum_tcb_evaluation=16)
    assert stated.filled_from(intel) == stated
    assert Policy(allow_simulated=True).filled_from(intel).allow_simulated
    assert Policy().filled_from(found("simulated")).allow_simulated


def test_what_an_owner_states_goes_before_what_is_shown() -> None:
    verdict = judged(Policy())
    stated = Policy(floors=(("Milan", Tcb(snp=1)),), ciphertext_hiding=HIDING[1])
    filled = stated.filled_from(verdict)
    assert (filled.floors, filled.kinds) == (stated.floors, frozenset({"sev-snp"}))
    assert Policy().filled_from(verdict).floors == (("Milan", TCB),)


STRICT = Policy(
    kinds=frozenset({"sev-snp"}),
    measurements=frozenset({"ab" * 48}),
    chips=frozenset({"cd" * 64}),
    maximum_age_days=30,
    floors=(("Milan", TCB),),
    minimum_tcb=Tcb(snp=3),
    require_crl=True,
    ciphertext_hiding=HIDING[2],
    minimum_tcb_evaluation=17,
)
LOWERED = {
    "kinds": frozenset({"sev-snp", "tdx"}),
    "measurements": None,
    "chips": frozenset({"cd" * 64, "ef" * 64}),
    "allow_simulated": True,
    "maximum_age_days": 31,
    "floors": (("Milan", replace(TCB, tee=0)),),
    "minimum_tcb": Tcb(snp=2),
    "maximum_vmpl": 1,
    "allow_migration_agent": True,
    "require_crl": False,
    "ciphertext_hiding": HIDING[1],
    "allow_statuses": frozenset({"SWHardeningNeeded"}),
    "allow_advisories": frozenset({"INTEL-SA-00615"}),
    "minimum_tcb_evaluation": 16,
}


@pytest.mark.parametrize("term", LOWERED)
def test_every_term_that_is_lowered_is_named(term: str) -> None:
    assert LOWERED.keys() == {each.name for each in fields(Policy)}
    lower = replace(STRICT, **{term: LOWERED[term]})  # type: ignore[arg-type]
    assert [line.partition(":")[0] for line in STRICT.lowered_by(lower)] == [term]
    assert lower.lowered_by(STRICT) == []
    assert STRICT.lowered_by(STRICT) == []
    assert lower.lowered_by(lower) == []


@pytest.mark.parametrize("change", [{"floors": ()}, {"floors": (("Genoa", TCB),)}, {"maximum_age_days": None}])
def test_a_term_that_is_taken_away_is_lowered(change: dict[str, object]) -> None:
    assert len(STRICT.lowered_by(replace(STRICT, **change))) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("term", ["kinds", "measurements", "chips"])
def test_naming_what_was_left_open_lowers_nothing_and_naming_less_neither(term: str) -> None:
    named = having(**{term: frozenset({"tdx", "sgx"} if term == "kinds" else {"ab", "cd"})})
    assert Policy().lowered_by(named) == []
    assert named.lowered_by(having(**{term: frozenset()})) == []


def test_a_floor_that_is_new_and_one_that_is_raised_lower_nothing() -> None:
    raised = (("Milan", replace(TCB, snp=TCB.snp + 1)),)
    assert STRICT.lowered_by(replace(STRICT, floors=raised)) == []
    assert Policy().lowered_by(Policy(floors=raised)) == []
    two = replace(STRICT, floors=(*raised, ("Genoa", TCB)))
    assert [line for line in STRICT.lowered_by(two) if "Genoa" in line and "a new product" in line]
    assert two.lowered_by(replace(two, floors=raised)) == []
