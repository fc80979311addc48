"""Loads and the ledger: a batch that is done costs no more than the dearest; one that failed is paid for again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import scumble
from scumble.errors import LedgerBusy, ScumbleError
from scumble.owner.database import Database
from scumble.owner.ledger import RecordedBudget
from scumble.owner.session import Session
from scumble.wire.requests import Request

INDEX = "k int:0:127 epsilon=1"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """A database with one batch in it, with an index for epsilon 1 and a capacity for a tenth of that."""
    with scumble.create(tmp_path / "db", limit=100, delta_limit="1e-3") as made:
        load(made)
        yield made


def load(db: Database, **more: object) -> None:
    rows = pa.table({"k": pa.array(range(40), pa.int32())})
    db.load("t", rows, indexes=[INDEX], page_rows=16, **more)  # type: ignore[arg-type]


def fail_at(task: str, db: Database) -> None:
    """Load, with a provider that is gone when it is asked for this."""
    do = Session.ask

    def fails(self: Session, request: Request[Any]) -> object:
        if request.task == task:
            raise ScumbleError("the provider is gone", hint="try again")
        return do(self, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "ask", fails)
        with pytest.raises(ScumbleError, match="gone"):
            load(db)


def test_batches_that_are_done_cost_the_dearest(db: Database) -> None:
    before = db.ledger.spent()
    load(db)
    load(db, capacity=64)
    assert db.ledger.spent() == before
    assert db.ledger.unsettled() == ()


def test_a_batch_that_failed_after_its_noise_is_paid_for_again(db: Database) -> None:
    before, delta = db.ledger.spent(), db.ledger.spent_delta()
    fail_at("build", db)
    assert [entry.label for entry in db.ledger.unsettled()] == ["t k", "t capacity"]
    assert (db.ledger.spent(), db.ledger.spent_delta()) == (before, delta)
    load(db)
    assert (db.ledger.spent(), db.ledger.spent_delta()) == (2 * before, 2 * delta)
    load(db)
    assert (db.ledger.spent(), db.ledger.spent_delta()) == (2 * before, 2 * delta)


def test_a_batch_that_failed_after_its_capacity_was_drawn_pays_for_that_alone(db: Database) -> None:
    before = db.ledger.spent()
    fail_at("reserve", db)
    (lost,) = db.ledger.unsettled()
    assert lost.label == "t capacity"
    load(db)
    assert db.ledger.spent() == before + lost.epsilon


def test_a_batch_that_failed_before_any_noise_costs_nothing(db: Database) -> None:
    before = db.ledger.spent()
    fail_at("load", db)
    assert db.ledger.unsettled() == ()
    load(db)
    assert db.ledger.spent() == before


def test_a_ledger_that_is_busy_at_the_end_does_not_make_a_load_fail(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(self: RecordedBudget) -> None:
        raise LedgerBusy("the ledger is locked by another process", hint="try again")

    with monkeypatch.context() as patch:
        patch.setattr(RecordedBudget, "settle", busy)
        load(db)
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(80,)]
    assert len(db.ledger.unsettled()) == 2
