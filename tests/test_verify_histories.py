"""Long histories (`verify/histories.py`): short ones against DuckDB, and the proof that faults in them are found."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from verify import histories
from verify.history_mirror import REFUSED
from verify.history_orders import FAULTS, carry_out, rooms_of
from verify.history_service import SERVICE_FAULTS, Report, digest_of, serve_history, wrong_sights
from verify.history_statements import MOST_ROWS, WEIGHTS, Entry, History

import scumble

OF_PROCESSES = ("reopen", "backup")  # which a worker does itself


def _followed(entry: Entry, found: Any, history: History) -> None:
    before, expected = history.saved(), entry.follow()
    if entry.order[0] == "all":
        found, made = found
        if entry.order[2] and not made:
            assert REFUSED in found
            history.put_back(before)
    assert expected is None or found == expected, f"{entry.kind} gave something else"


@pytest.mark.parametrize("seed", range(2))
def test_a_history_of_statements_is_that_of_duckdb(tmp_path: Path, seed: int) -> None:
    """After every eighth statement, after all of them, when opened again, and under a new key."""
    history = History(Random(seed))  # noqa: S311
    with scumble.create(tmp_path / "db", limit=10**6, delta_limit="1e-1") as db:
        entries = history.first()
        for number in range(28):
            entry = entries.pop(0) if entries else history.next()
            if entry.kind not in OF_PROCESSES:
                _followed(entry, carry_out(db, entry.order), history)
            for shape in history.tables:
                shape.room = rooms_of(db).get(shape.name, 0)
            if number % 8 == 7:
                assert carry_out(db, ("whole",)) == history.whole()
        spent = db.ledger.spent()
        db.check()
    with scumble.open(tmp_path / "db") as again:
        assert carry_out(again, ("whole",)) == history.whole()
        again.rekey()
        assert carry_out(again, ("whole",)) == history.whole()
        assert again.ledger.spent() == spent


def test_a_writer_that_dies_leaves_whole_statements() -> None:
    tally, broken = histories.run(12, 1, kills=True)
    assert broken is None
    assert tally.statements >= 12
    assert tally.answers > 0


def test_entries_follow_from_the_seed_and_keep_tables_small() -> None:
    made = [History(Random(5)) for _ in range(2)]  # noqa: S311
    kinds = set()
    for _ in range(200):
        first, second = (history.next() for history in made)
        assert first.order == second.order
        kinds.add(first.kind)
        first.follow()
        second.follow()
    assert all(history.rows_of(shape) < 3 * MOST_ROWS for history in made for shape in history.tables)
    assert made[0].whole() == made[1].whole()
    assert {kind for kind, weight in WEIGHTS.items() if weight >= 4} <= kinds


def test_what_was_saved_can_be_put_back() -> None:
    history = History(Random(3))  # noqa: S311
    for _ in range(30):
        history.next().follow()
    before, saved = history.whole(), history.saved()
    for _ in range(30):
        history.next().follow()
    assert history.whole() != before
    history.put_back(saved)
    assert history.whole() == before


OLD, NEW, NEXT = (digest_of([(number,)]) for number in range(3))


@pytest.mark.parametrize(
    ("seen", "wrong"),
    [
        (("w1", 5.0, 6.0, OLD), []),
        (("w1", 5.0, 8.5, NEW), []),  # it was sent by then
        (("w1", 9.5, 9.6, OLD), ["client 0 saw an older state of w1"]),
        (("w1", 5.0, 6.0, NEW), ["client 0 saw an older state of w1"]),
        (("w1", 5.0, 9.6, NEXT), ["client 0 saw no state of w1"]),
    ],
)
def test_what_clients_see_of_each_other_is_held_against_when_it_was_made(
    seen: tuple[str, float, float, str], wrong: list[str]
) -> None:
    other = Report(states=[(OLD, 1.0, 2.0), (NEW, 8.0, 9.0)])
    found = wrong_sights([Report(seen=[seen]), other])
    assert found == [each.replace("an older", "another") for each in wrong]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    broken = histories.planted(fault)
    assert broken is not None
    assert broken.kind in FAULTS[fault].shows


@pytest.mark.slow
def test_clients_at_a_service_with_kills() -> None:
    tally = serve_history(60, 1, kills=True)
    assert tally.wrong == []
    assert tally.statements >= 60


@pytest.mark.slow
@pytest.mark.parametrize("fault", SERVICE_FAULTS)
def test_a_planted_fault_at_a_service_is_found(fault: str) -> None:
    assert serve_history(300, 1, kills=False, fault=fault).wrong
