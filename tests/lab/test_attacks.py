"""Attacks: each wins on what leaks by design or by a planted defect, and fails against ours.

Of the single-record game: intervals miss the truth with a chance of at most 1e-7, and true advantages lie far from the
bound on their side of it, so no test raises a false alarm, or fails to raise one, with a chance of 1e-6.
"""

from collections.abc import Callable

import numpy as np
import pytest

from scumble.enclave.lines import TrustedEnclave
from scumble.lab.attack import averaging, reconstruction, single_record, storage, volume
from scumble.lab.attack.averaging import FRESH_SCALE, HIGH, fresh_places, running_errors, stored_places
from scumble.lab.attack.laboratory import Seen, made_up_counts
from scumble.lab.attack.planted import UnsafeUncheckedEnclave, UnsafeUnpaddedEnclave
from scumble.lab.attack.report import Report
from scumble.lab.attack.single_record import (
    Advantage,
    advantage_bound,
    best_advantage,
    exact_game,
    one_key_game,
    shadow_game,
)
from scumble.lab.attack.storage import ATTEMPTS, Attempt, attempts
from scumble.lab.attack.volume import RANGES, guess_counts, watch_queries


@pytest.mark.parametrize(
    "attack",
    [
        lambda: averaging.attack(1, 5_000, 2_000),
        lambda: storage.attack(ATTEMPTS[:3]),
        lambda: volume.attack(1, 2_000, 120),
        pytest.param(lambda: single_record.attack(1), marks=pytest.mark.slow),
        pytest.param(lambda: reconstruction.attack(1, queries=300_000), marks=pytest.mark.slow),
    ],
    ids=["averaging", "storage", "volume", "single record", "reconstruction"],
)
def test_the_whole_attack_ends_as_it_should(attack: Callable[[], Report]) -> None:
    report = attack()
    assert report.as_expected, report.lines()
    assert {finding.won for finding in report.findings} == {True, False}


# --- averaging: the same query again and again -----------------------------------------------------

COUNTS = made_up_counts(5_000, 1000)
TRUE = int(COUNTS[: HIGH + 1].sum())


def test_a_million_observations_of_ours_are_one() -> None:
    places = stored_places(COUNTS, 1, 1_000_000)
    assert len(places) == 1_000_000
    assert len(np.unique(places)) == 1
    first, last = running_errors(places, TRUE, [1, 1_000_000])
    assert first == last


def test_fresh_noise_averages_out() -> None:
    """The mean of n is within six standard errors but for 1e-8: for n from 10,000 on it is as good as normal."""
    places = fresh_places(COUNTS, 1, 1_000_000)
    numbers = [10_000, 100_000, 1_000_000]
    for number, error in zip(numbers, running_errors(places, TRUE, numbers), strict=True):
        assert error < 6 * 2**0.5 * FRESH_SCALE / number**0.5
    assert len(np.unique(places)) > 100


# --- volume: the sizes of answers ------------------------------------------------------------------

ROWS, QUERIES = 2_000, 120


def test_within_one_range_everything_seen_is_the_same() -> None:
    seen, true = watch_queries(1, ROWS, QUERIES)
    assert len(seen) == len(true) == QUERIES
    assert len(set(true.tolist())) > QUERIES // 4
    for place in range(len(RANGES)):
        assert len(set(seen[place :: len(RANGES)])) == 1
    found = guess_counts(seen, true)
    assert abs(found.explained) < 1e-6
    assert found.sizes == 1


def test_answers_that_are_not_padded_give_the_counts_away() -> None:
    seen, true = watch_queries(1, ROWS, QUERIES, UnsafeUnpaddedEnclave)
    found = guess_counts(seen, true)
    assert found.explained > 0.999
    assert found.exact > 0.99


def test_a_byte_more_for_a_row_is_enough_to_be_found() -> None:
    """Planted in what is seen: the guesser finds a leak of a byte in thousands."""
    seen, true = watch_queries(1, ROWS, QUERIES)
    leaking = [Seen(*one[:3], one.answer_bytes + int(count) // 8) for one, count in zip(seen, true, strict=True)]
    assert guess_counts(leaking, true).explained > 0.9


# --- storage that lies -----------------------------------------------------------------------------


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


# --- single record ---------------------------------------------------------------------------------

GAMES = 600


@pytest.mark.parametrize("epsilon", [0.5, 1, 2])
def test_ours_stays_under_the_bound_and_the_attacker_is_as_good_as_can_be(epsilon: float) -> None:
    low, high = one_key_game(epsilon, games=GAMES).interval()
    assert low <= advantage_bound(epsilon)
    assert low <= best_advantage(epsilon) <= high


def test_an_attacker_with_practice_stays_under_the_bound_on_many_keys() -> None:
    found = shadow_game(1, games=GAMES)
    assert found.interval()[0] <= advantage_bound(1)


@pytest.mark.slow
def test_an_attacker_with_practice_is_no_straw_man() -> None:
    """With noise for epsilon 8 it wins almost always: it has learned where to look."""
    assert shadow_game(8, games=GAMES).interval()[0] > 0.5


@pytest.mark.parametrize("game", [one_key_game, shadow_game])
def test_too_little_noise_is_flagged(game: object) -> None:
    assert callable(game)
    assert game(0.5, games=GAMES, built_with=8).interval()[0] > advantage_bound(0.5)


def test_the_exact_index_gives_the_row_away() -> None:
    found = exact_game(games=GAMES)
    assert found.value == 1
    assert found.interval()[0] > advantage_bound(2)


def test_intervals_are_wide_enough() -> None:
    """From the definition: at the end of an interval, the observed number is as rare as the confidence says."""
    low, high = Advantage(0, 0, 100).interval(0.95)
    assert low == -high
    assert (1 - high) ** 100 == pytest.approx(0.0125)  # a quarter of 5 % at each of four ends
    low, high = Advantage(100, 0, 100).interval(0.95)
    assert low == pytest.approx(2 * 0.0125**0.01 - 1)
    assert high == 1
