"""The single-record game: the advantage stays under the bound against ours, and passes it where it should.

Intervals miss the truth with a chance of at most 1e-7, and true advantages lie far from the bound on their side of it:
no test here raises a false alarm, or fails to raise one, with a chance of 1e-6.
"""

import pytest

from scumble.lab.attack.single_record import (
    Advantage,
    advantage_bound,
    attack,
    best_advantage,
    exact_game,
    one_key_game,
    shadow_game,
)

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


@pytest.mark.slow
def test_the_whole_attack_ends_as_it_should() -> None:
    report = attack(1)
    assert report.as_expected, report.lines()
