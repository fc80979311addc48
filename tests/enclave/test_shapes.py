"""Answers and refusals have lengths that depend on public facts: an error that a row causes looks like an answer."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from enclave_visitors import ADA, BOB, Clinic, clinic, text_of

from scumble.enclave import queries
from scumble.enclave.queries import Batch
from scumble.errors import InvalidParameter, NotFound, ScumbleError
from scumble.owner.database import Database
from scumble.store.transcript import comparable
from scumble.wire.channel import PADDED_BYTES, REFUSAL_BYTES, executed, executed_bytes, opened_answer, refusal
from scumble.wire.requests import (
    Abandon,
    CheckChain,
    DropTable,
    Follow,
    ForgetPlans,
    ListGrants,
    Open,
    Request,
    RevokeGrant,
    pack_request,
)

CALM, CURSED = 5, 113
QUERIES = [
    "SELECT count(*) FROM t WHERE v < 50",
    "SELECT count(*), sum(v), min(v), max(v), stddev(v) FROM t WHERE v < 50",
    "SELECT sum(v * v) FROM t",
    "SELECT v, k FROM t WHERE k < 30",
    "SELECT c, count(*), sum(v) FROM t GROUP BY c",
]


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Clinic, Database]]:
    with clinic(tmp_path) as made:
        yield made


def _transcript(home: Path, value: int) -> list[Any]:
    """What the provider sees of queries over a table with one value that may bring a curse on them."""
    home.mkdir()
    with clinic(home) as (made, owner):
        values = [value if place == 20 else place % 4 for place in range(90)]
        rows = {"k": list(range(90)), "v": values, "c": [place % 2 > 0 for place in range(90)]}
        owner.load("t", pa.table(rows), capacity=96, page_rows=16)
        assert owner.tables  # the manifest is read again once: how long it is depends on the noise of another table
        before = max(event.number for event in made.transcript.events())
        failures: list[str] = []
        for query in QUERIES:
            try:
                owner.sql(query).fetchall()
            except ScumbleError as error:
                failures.append(str(error))
        assert len(failures) == (len(QUERIES) if value == CURSED else 0)
        assert all("ValueError" in failure and str(CURSED) not in failure for failure in failures)
        return [event[1:] for event in comparable(e for e in made.transcript.events() if e.number > before)]


def cursed(self: Batch, bounds: Any, match: Callable[[Batch, Any], None] = Batch.match) -> None:
    """Match, and fail if the value that brings the curse is among the rows."""
    match(self, bounds)
    if any(np.any(column.words == CURSED) for column in self._columns.values() if column.words.ndim == 1):
        raise ValueError(f"the value {CURSED}")


def test_an_error_that_a_row_causes_changes_nothing_that_the_provider_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "BATCH_BYTES", 128)  # a page at a time: there is much left to read after the second
    assert _transcript(tmp_path / "calm", CALM)
    monkeypatch.setattr(Batch, "match", cursed)
    one, other = _transcript(tmp_path / "one", CALM), _transcript(tmp_path / "other", CURSED)
    assert one == other
    assert sum(kind == "read" for kind, *_ in one) > 30


def test_the_test_above_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An enclave that stops reading at the error, or whose refusal has a length of its own, is noticed."""
    monkeypatch.setattr(queries, "BATCH_BYTES", 128)
    monkeypatch.setattr(Batch, "match", cursed)
    monkeypatch.setattr("scumble.enclave.sessions.refusal", lambda error, *_: refusal(error))
    assert _transcript(tmp_path / "one", CALM) != _transcript(tmp_path / "other", CURSED)


@pytest.mark.parametrize("size", [0, 1, 33, 252, 253, 254, 255, 256, 257, 1000, 70_000])
def test_a_refusal_of_an_execution_is_as_long_as_its_answer(size: int) -> None:
    answer = bytes(range(256)) * 300
    whole = executed(answer[:size])
    assert bytes(opened_answer(whole)) == answer[:size]
    assert len(whole) == executed_bytes(size) >= PADDED_BYTES
    for error in (ValueError("x" * 2000), InvalidParameter("y" * 2000, hint="z" * 300), NotFound("short")):
        refused = refusal(error, executed_bytes(size))
        assert len(refused) == len(whole)
        with pytest.raises(ScumbleError):
            opened_answer(refused)


def test_other_refusals_have_one_size_and_other_answers_a_multiple_of_one(both: tuple[Clinic, Database]) -> None:
    made, owner = both
    before = max(event.number for event in made.transcript.events())
    session = owner._versions.session
    malformed = b'J{"task": "none"}', b'J{"task": "load"}'
    for refused in (*malformed, pack_request(DropTable("x")), pack_request(RevokeGrant("y" * 60))):
        with pytest.raises(ScumbleError):
            session._exchange(refused)
    asked: list[Request[Any]] = [CheckChain(), ForgetPlans(), ListGrants(), Abandon()]
    for request in asked:
        with made.store.writer():
            session.ask(request)
    sizes = [int(e["bytes"]) - 16 for e in made.transcript.events() if e.kind == "answer" and e.number > before]
    assert set(sizes[:4]) == {REFUSAL_BYTES}
    assert set(sizes[4:]) == {PADDED_BYTES}


def test_what_is_visible_of_a_catalog_does_not_show_in_the_length_of_the_answer(both: tuple[Clinic, Database]) -> None:
    made, owner = both
    owner.grant("ada", text_of(ADA), ["visits"])
    owner.grant("bob", text_of(BOB), ["visits", "staff"])
    owner._versions.open_newest()
    before = max(event.number for event in made.transcript.events())
    seen = owner._versions.anchor.seen
    for session in (made.session(ADA), made.session(BOB), owner._versions.session):  # who all remember the same
        session.ask(Open(seen))
    events = [e for e in made.transcript.events() if e.number > before and e.kind == "answer"]
    assert len({e["bytes"] for e in events}) == 1
    assert len(events) == 3
    for who in (ADA, BOB):
        session = made.session(who)
        session.ask(Open(None))
        assert session.ask(Follow(seen)) is None
    owner._versions.open_newest()
    events = [e for e in made.transcript.events() if e.number > before and e.kind == "answer"]
    assert len({e["bytes"] for e in (events[-1], events[-2], events[-4])}) == 1  # that nothing is new is short for all
