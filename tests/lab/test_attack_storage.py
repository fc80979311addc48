"""Storage that lies: every attempt is refused or found; without tags, or without a memory of versions, it deceives."""

import pytest

from scumble.enclave.sessions import TrustedEnclave
from scumble.lab.attack.planted import UnsafeUncheckedEnclave
from scumble.lab.attack.storage import ATTEMPTS, Attempt, attack, attempts


def test_every_attempt_fails() -> None:
    outcomes = list(attempts(ATTEMPTS))
    assert [outcome.name for outcome in outcomes] == [attempt.name for attempt in ATTEMPTS]
    for outcome in outcomes:
        assert outcome.queries in ("Tampered", "right"), outcome
        assert outcome.found_by_check, outcome
    assert sum(outcome.queries == "right" for outcome in outcomes) == 1  # the version that nobody needed


@pytest.mark.parametrize("enclave", [TrustedEnclave, UnsafeUncheckedEnclave])
def test_nothing_spoiled_is_right_and_not_found(enclave: type[TrustedEnclave]) -> None:
    (outcome,) = attempts((Attempt("nothing", lambda at: None),), enclave)
    assert outcome[1:] == ("right", False)


@pytest.mark.parametrize("attempt", ATTEMPTS[:2], ids=lambda attempt: attempt.name)
def test_an_enclave_that_checks_no_tags_gives_wrong_answers(attempt: Attempt) -> None:
    (outcome,) = attempts((attempt,), UnsafeUncheckedEnclave)
    assert outcome[1:] == ("WRONG", False)


def test_an_owner_who_accepts_any_version_gets_old_answers() -> None:
    (outcome,) = attempts(ATTEMPTS[-1:], accept_restored=True)
    assert outcome.queries == "WRONG"


def test_the_whole_attack_ends_as_it_should() -> None:
    report = attack(ATTEMPTS[:3])
    assert report.as_expected, report.lines()
