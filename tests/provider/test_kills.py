"""Enclaves, clients and the front are killed under load: nothing acknowledged is lost, nothing counts twice.

Some dozens of kills are in `make test`, hundreds in `make verify`, which plants faults too (`verify/service.py`). Here
is also the proof that the checker finds what it is there to find.
"""

import json
from pathlib import Path

import pytest
from verify import service
from verify.service_checker import Events, Verdict, checked, read_journals, rows_of

ACKNOWLEDGED = (1001, 1002, 2001, 2002)
PENDING = 3001  # sent, and its client was killed


def history() -> Events:
    """Four batches, loaded one after the other; one more that nobody knows of; and right answers in between."""
    events = Events()
    for number, batch in enumerate(ACKNOWLEDGED):
        events.sent.append((batch, 10.0 * number))
        events.acknowledged.append((batch, 10.0 * number + 5))
        events.answers.append(answer("groups", number, groups(ACKNOWLEDGED[: number + 1])))
        events.answers.append(answer("range", number, [total(ACKNOWLEDGED[: number + 1])]))
        events.answers.append(answer("pair", number, [[7, 7]]))
    events.sent.append((PENDING, 32.0))
    return events


def answer(kind: str, number: int, content: list[list[int]]) -> dict[str, object]:
    times = {"began": 10.0 * number + 6, "ended": 10.0 * number + 8}
    return {"kind": kind, "low": 0, "high": 127, **times, "answer": content}


def groups(batches: tuple[int, ...]) -> list[list[int]]:
    return [[b, len(rows_of(b)), sum(row[3] for row in rows_of(b))] for b in batches]


def total(batches: tuple[int, ...]) -> list[int]:
    values = [row[3] for b in batches for row in rows_of(b)]
    return [len(values), sum(values)]


def verdict(events: Events, *batches: int, asked_at: float = 100.0) -> Verdict:
    return checked(events, [row for batch in batches or ACKNOWLEDGED for row in rows_of(batch)], asked_at)


def test_right_history_is_found_right_whether_or_not_the_pending_batch_is_there() -> None:
    assert verdict(history()) == Verdict({}, 4, 4, 12)
    assert verdict(history(), *ACKNOWLEDGED, PENDING) == Verdict({}, 5, 4, 12)


def test_table_is_held_against_what_was_known_when_it_was_asked_for() -> None:
    assert verdict(history(), *ACKNOWLEDGED[:2], asked_at=20.0).findings == {}
    assert "acknowledged, and not there" in verdict(history(), *ACKNOWLEDGED[:2]).findings


def test_batch_that_is_lost_doubled_torn_altered_or_made_up_is_found() -> None:
    every = [row for batch in ACKNOWLEDGED for row in rows_of(batch)]
    assert "acknowledged, and not there" in verdict(history(), *ACKNOWLEDGED[1:]).findings
    assert "there more than once" in checked(history(), every + rows_of(2001), 100.0).findings
    assert "there in part" in checked(history(), every + rows_of(PENDING)[:1], 100.0).findings
    altered = [(batch, row, k, v + (v == 100101)) for batch, row, k, v in every]
    assert altered != every
    assert "rows are altered" in checked(history(), altered, 100.0).findings
    assert "there, and never sent" in verdict(history(), *ACKNOWLEDGED, 9001).findings


@pytest.mark.parametrize(
    ("number", "content", "finding"),
    [
        (2, groups(ACKNOWLEDGED[:2]), "an answer lacks what was known"),
        (1, groups(ACKNOWLEDGED), "an answer has what was not sent"),
        (3, groups((*ACKNOWLEDGED, PENDING)), "an answer has what is not there"),
        (3, [[b, n - (b == 2001), v] for b, n, v in groups(ACKNOWLEDGED)], "an answer has part of a batch"),
        (2, groups((1001, 1002, 2002)), "answers are no chain of versions"),
    ],
)
def test_answer_that_was_never_right_is_found(number: int, content: list[list[int]], finding: str) -> None:
    events = history()
    events.answers.append(answer("groups", number, content))
    assert finding in verdict(events).findings


def test_aggregate_or_join_that_was_never_right_is_found() -> None:
    for kind, content, finding in (
        ("range", total(ACKNOWLEDGED[:1]), "an aggregate fits no version"),
        ("range", [0, 0], "an aggregate fits no version"),
        ("pair", [7, 8], "two parts of one statement disagree"),
    ):
        events = history()
        events.answers.append(answer(kind, 3, [content]))
        assert set(verdict(events).findings) == {finding}


def test_journal_that_a_kill_has_cut_is_read_up_to_there(tmp_path: Path) -> None:
    lines = [{"event": "sent", "batch": 1, "at": 1.0}, {"event": "failed", "error": "Tampered"}, {"event": "refused"}]
    text = "\n".join(map(json.dumps, lines)) + '\n{"event": "acknowl'
    (tmp_path / "1.journal").write_text(text)
    events = read_journals(tmp_path)
    assert (events.sent, events.acknowledged, events.failed, events.refused) == ([(1, 1.0)], [], ["Tampered"], 1)
    assert verdict(events, 1).findings == {"a client failed": 1}


@pytest.mark.slow
def test_hundreds_of_kills_under_load_lose_nothing() -> None:
    tally = service.storm(200, seed=4)
    assert not tally.findings, str(tally)
    assert not tally.undecided
    assert tally.kills.total() > 100
    assert min(tally.kills[victim] for victim in ("enclave", "client", "front")) > 0
    assert tally.acknowledged > 50
    assert tally.answers > 0


@pytest.mark.slow
def test_planted_fault_is_found() -> None:  # `make verify` plants the others too
    fault = "a load repeated under another name"
    tally = service.planted(fault)
    assert tally.findings.keys() & set(service.CAUGHT_AS[fault]), str(tally)
