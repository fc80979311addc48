"""The timing row: when a difference counts as one, and what the clock is put around. No speed is asserted."""

import math
import random
from itertools import pairwise
from statistics import stdev
from typing import Any

import pytest
from verify import timing
from verify.timing import Found, found_in, judged

from scumble.owner.database import Database

NOTHING, SMALL, MORE, LESS = Found(1.0, 0.02), Found(40.0, 0.003), Found(9.0, 0.01), Found(-9.0, -0.01)


class Looks:
    """A measurement with given results, which remembers how it was called."""

    def __init__(self, *given: Found) -> None:
        self.given, self.asked = list(given), list[tuple[int, int]]()

    def __call__(self, which: int, longer: int) -> Found:
        self.asked.append((which, longer))
        return self.given.pop(0)


@pytest.mark.parametrize("first", [NOTHING, SMALL])
def test_what_does_not_look_like_a_difference_is_not_measured_again(first: Found) -> None:
    looks = Looks(first)
    assert not judged(looks).leaks
    assert looks.asked == [(0, 1)]


def test_a_second_look_is_longer_and_at_other_databases() -> None:
    looks = Looks(MORE, NOTHING)
    judged(looks)
    assert looks.asked == [(0, 1), (1, timing.LONGER)]
    assert timing.LONGER > 1


@pytest.mark.parametrize("again", [NOTHING, SMALL, LESS])
def test_a_difference_that_does_not_come_again_does_not_decide(again: Found) -> None:
    assert not judged(Looks(MORE, again)).leaks


@pytest.mark.parametrize("found", [MORE, LESS, Found(math.inf, math.inf), Found(-math.inf, -math.inf)])
def test_a_difference_that_comes_again_with_its_sign_decides(found: Found) -> None:
    assert judged(Looks(found, found)).leaks


def test_both_looks_are_printed() -> None:
    assert str(judged(Looks(MORE, LESS))) == "t = +9.0 (+1.00%), again t = -9.0 (-1.00%)"


def times(seed: int, factors: tuple[float, ...], rounds: int = 3000) -> list[list[float]]:
    """Times of about 100 and often much more, times a factor for each database."""
    rng = random.Random(seed)  # noqa: S311  no secret
    return [
        [factor * (rng.gauss(100, 2) + (rng.random() < 0.4) * rng.expovariate(0.01)) for _ in range(rounds)]
        for factor in factors
    ]


def test_equal_times_are_no_difference_however_often_the_machine_is_busy() -> None:
    found = found_in(times(1, (1, 1, 1, 1)))
    assert not found.seen
    assert found.control < timing.SMALLEST


@pytest.mark.parametrize("factor", [1.02, 0.98, 1.5, 0.2])
def test_a_difference_between_the_kinds_is_seen_with_its_sign_and_its_size(factor: float) -> None:
    found = found_in(times(2, tuple({"varied": 1, "alike": factor}[kind] for kind in timing.KINDS)))
    assert found.seen
    assert found.share == pytest.approx(factor - 1, abs=0.004)


def test_databases_of_one_kind_that_differ_show_as_the_control_and_cancel() -> None:
    found = found_in(times(4, (1.02, 1.02, 1, 1)))  # of each kind the one that was made first
    assert found.control > timing.SMALLEST
    assert not found.seen


def test_t_of_equal_times_varies_as_a_t_does() -> None:
    """Of 300 none is beyond 5, and their spread is about 1. The seeds are fixed: luck has no part in it."""
    found = [timing.yuen(*times(seed, (1, 1), rounds=200))[0] for seed in range(300)]
    assert max(map(abs, found)) < timing.THRESHOLD
    assert 0.8 < stdev(found) < 1.25


def test_databases_agree_in_what_is_public_and_requests_go_past_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "ROWS", 300)
    monkeypatch.setattr(timing, "CAPACITY", 1024)
    with timing._sets() as databases:
        made = databases(0)
        assert len(made) == len(timing.KINDS)
        assert all(_public(one) == _public(other) for one, other in pairwise(made))
        asks = [timing._planned(database, timing.QUERIES["groups"]) for database in made]
        monkeypatch.setattr(Database, "sql", None)
        for ask in asks:
            ask()
        for place, name, plant in timing.PLANTED.values():
            with monkeypatch.context() as planted:
                planted.setattr(place, name, plant(getattr(place, name)))
                for ask in asks:
                    ask()


def _public(database: Database) -> list[dict[str, Any]]:
    """What the catalog says of the runs, but for names and hashes."""
    runs = [run.to_json() for table in database.tables for run in table.runs]
    return [{name: run[name] for name in ("attribute", "capacity", "page_rows", "index")} for run in runs]
