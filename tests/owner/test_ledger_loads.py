"""Loads and the ledger: batches add up unless their rows are new; a load that failed is finished, not paid again."""

import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import scumble
from scumble.cli import main
from scumble.errors import Exists, InvalidParameter, LedgerBusy, Overdraft, ScumbleError, Unfinished
from scumble.owner.database import Database
from scumble.owner.ledger import RecordedBudget
from scumble.owner.loading import LoadReport
from scumble.owner.session import Session
from scumble.privacy.budget import show
from scumble.wire.requests import Request

INDEX = "k int:0:127 epsilon=1"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    """A database with one batch in it, with an index for epsilon 1 and a capacity for a tenth of that."""
    with scumble.create(tmp_path / "db", limit=100, delta_limit="1e-3") as made:
        load(made)
        yield made


def load(db: Database, first: int = 0, **more: Any) -> LoadReport:
    return db.load("t", rows(first), **{"indexes": [INDEX], "page_rows": 16, **more})


def rows(first: int = 0) -> pa.Table:
    return pa.table({"k": pa.array(range(first, first + 40), pa.int32())})


def count(db: Database) -> int:
    return int(db.sql("SELECT count(*) FROM t").fetchall()[0][0])


def failing(do: Any, task: str) -> Any:
    def fails(self: Session, request: Request[Any]) -> object:
        if request.task == task:
            raise ScumbleError("the provider is gone", hint="try again")
        return do(self, request)

    return fails


def fail_at(task: str, db: Database, first: int = 40, **more: Any) -> str:
    """Load, with a provider that is gone when it is asked for this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "ask", failing(Session.ask, task))
        with pytest.raises(ScumbleError, match="gone") as caught:
            load(db, first, **more)
    return str(caught.value)


def test_batches_add_up(db: Database) -> None:
    once = db.ledger.spent()
    load(db, 20)
    assert db.ledger.spent() == 2 * once
    assert db.ledger.unsettled() == ()


def test_a_batch_of_rows_that_are_stated_to_be_new_costs_no_more_than_the_dearest(db: Database) -> None:
    before = db.ledger.spent()
    load(db, 40, new_rows=True)
    assert db.ledger.spent() == before
    assert [entry.new_rows for entry in db.ledger.entries()] == [False, False, True, True]
    assert "new rows" in str(db.ledger)


def test_the_same_rows_are_refused_unless_asked_for_again_and_then_add_up(db: Database, tmp_path: Path) -> None:
    once, version = db.ledger.spent(), db.version
    file = tmp_path / "rows.csv"
    file.write_text("k\n" + "".join(f"{k}\n" for k in range(40)))
    other = "k int:0:999 epsilon=0.5"
    repeats: list[tuple[Any, dict[str, Any]]] = [
        (rows(), {}),
        (rows(), {"new_rows": True}),
        (file, {}),
        (rows(), {"indexes": [other]}),
    ]
    for source, more in repeats:
        with pytest.raises(Exists, match="in the table already; nothing was loaded or spent"):
            db.load("t", source, **{"indexes": [INDEX], "page_rows": 16, **more})
    assert (db.ledger.spent(), db.version, count(db)) == (once, version, 40)
    for number in range(2, 5):
        load(db, again=True)
        assert (db.ledger.spent(), count(db)) == (number * once, 40 * number)
    with pytest.raises(InvalidParameter, match="not new"):
        load(db, again=True, new_rows=True)


def test_rows_without_any_cost_are_known_again_too(db: Database) -> None:
    db.load("free", rows(), capacity=64, page_rows=16)
    with pytest.raises(Exists, match="in the table already"):
        db.load("free", rows(), capacity=64, page_rows=16)


def test_the_limit_holds_for_the_same_rows_however_often_they_come(tmp_path: Path) -> None:
    """Release 0.1 loaded the same file ten times for epsilon 1 in all."""
    with scumble.create(tmp_path / "small", limit=2) as db:
        load(db, capacity=64)
        load(db, capacity=64, again=True)
        with pytest.raises(Overdraft, match="epsilon 0 remains; if no row is in the table yet, say so with --new-rows"):
            load(db, capacity=64, again=True)
        load(db, 40, capacity=64, new_rows=True)
        assert db.ledger.remaining() == 0


def test_a_mixture_of_rows_per_user_is_refused_and_costs_nothing(db: Database) -> None:
    before = db.ledger.spent()
    with pytest.raises(InvalidParameter, match="one rows_per_user, and here are 1, 2"):
        load(db, 40, indexes=[INDEX + " rows_per_user=2"])
    pair = ["k int:0:127 epsilon=1", "j int:0:127 epsilon=1 rows_per_user=3"]
    with pytest.raises(InvalidParameter, match="one rows_per_user"):
        db.load("u", pa.table({"k": [1], "j": [2]}), indexes=pair)
    assert db.ledger.spent() == before


def test_a_load_that_failed_after_its_noise_is_finished_and_not_paid_again(db: Database) -> None:
    once, delta = db.ledger.spent(), db.ledger.spent_delta()
    message = fail_at("build", db)
    assert message == (
        "the provider is gone; the rows are not in the table; epsilon 1.1 and delta "
        f"{show(delta)} stays spent on them\n"
        "hint: load the same rows on the same terms again: that is recognised, and costs nothing more"
    )
    lost = {entry.batch for entry in db.ledger.unsettled()}
    assert [entry.label for entry in db.ledger.unsettled()] == ["t k", "t capacity"]
    assert (db.ledger.spent(), db.ledger.spent_delta()) == (2 * once, 2 * delta)
    report = load(db, 40)
    assert report.retried
    assert {report.batch} == lost == {run.batch for run in report.runs}
    assert (db.ledger.spent(), db.ledger.spent_delta()) == (2 * once, 2 * delta)
    assert db.ledger.unsettled() == ()
    assert count(db) == 80


def test_a_retry_needs_no_budget_that_is_left(tmp_path: Path) -> None:
    with scumble.create(tmp_path / "small", limit=1) as db:
        fail_at("build", db, capacity=64)
        assert db.ledger.remaining() == 0
        with pytest.raises(Overdraft):
            load(db, 0, capacity=64)
        assert load(db, 40, capacity=64).retried
        assert (db.ledger.remaining(), count(db)) == (Fraction(0), 40)


def test_a_lost_load_on_other_terms_has_to_be_asked_for(db: Database) -> None:
    fail_at("build", db)
    spent = db.ledger.spent()
    with pytest.raises(Exists, match="released before on other terms"):
        load(db, 40, indexes=["k int:0:127 epsilon=0.5"])
    assert db.ledger.spent() == spent
    assert not load(db, 40, indexes=["k int:0:127 epsilon=0.5"], again=True).retried
    assert db.ledger.spent() > spent


def test_a_new_table_that_never_came_to_be_is_finished_too(db: Database) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "ask", failing(Session.ask, "build"))
        with pytest.raises(Unfinished):
            db.load("new", rows(), indexes=[INDEX], page_rows=16)
    spent = db.ledger.spent()
    assert db.load("NEW", rows(), indexes=[INDEX], page_rows=16).retried
    assert db.ledger.spent() == spent


def test_a_load_that_failed_after_its_capacity_was_drawn_has_paid_for_that_alone(db: Database) -> None:
    once = db.ledger.spent()
    fail_at("reserve", db)
    (lost,) = db.ledger.unsettled()
    assert lost.label == "t capacity"
    assert db.ledger.spent() == once + lost.epsilon
    assert load(db, 40).batch == lost.batch
    assert db.ledger.spent() == 2 * once


def test_a_batch_that_failed_before_any_noise_costs_nothing(db: Database) -> None:
    before = db.ledger.spent()
    fail_at("load", db)
    assert db.ledger.unsettled() == ()
    assert db.ledger.spent() == before


def test_a_restore_and_the_same_load_again_is_the_same_release_or_adds_up(tmp_path: Path) -> None:
    """Release 0.1 let six releases of the same rows through a ledger with limit 1."""
    folder = tmp_path / "db"
    with scumble.create(folder, limit=4) as db:
        load(db)
        once = db.ledger.spent()
    shutil.copytree(folder, tmp_path / "backup")
    releases = set()
    for _ in range(3):
        with scumble.open(folder, accept_restored=True) as db:
            report = load(db, 40, new_rows=True)
            releases.add((report.batch, report.capacity, *(run.index for run in report.runs)))
            assert db.ledger.spent() == once
        restore(tmp_path / "backup", folder)
    assert len(releases) == 1  # the same bytes, and paid for once
    with scumble.open(folder, accept_restored=True) as db:
        load(db, 60)  # some of the same rows: stated or not, they add up
        assert db.ledger.spent() == 2 * once
    restore(tmp_path / "backup", folder)
    with scumble.open(folder, accept_restored=True) as db:
        load(db, 50, new_rows=True)
        assert db.ledger.spent() == 3 * once


def test_an_interrupted_command_says_how_to_go_on_and_its_repeat_is_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scumble.create(tmp_path / "db", limit=1).close()
    pq.write_table(rows(), tmp_path / "rows.parquet")
    words = ["load", str(tmp_path / "db"), "t", str(tmp_path / "rows.parquet"), "--index", INDEX, "--capacity", "64"]
    ask = Session.ask

    def interrupted(self: Session, request: Request[Any]) -> object:
        if request.task == "build":
            raise KeyboardInterrupt
        return ask(self, request)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "ask", interrupted)
        assert main(words) == 130
    assert "load the same again: it is recognised" in capsys.readouterr().err
    assert main(words) == 0
    assert "for a load of the same rows that was lost; finishing it adds 0" in capsys.readouterr().out


def restore(backup: Path, folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)


def test_a_ledger_that_is_busy_at_the_end_does_not_make_a_load_fail(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(self: RecordedBudget) -> None:
        raise LedgerBusy("the ledger is locked by another process", hint="try again")

    with monkeypatch.context() as patch:
        patch.setattr(RecordedBudget, "settle", busy)
        load(db, 40, new_rows=True)
    assert count(db) == 80
    assert len(db.ledger.unsettled()) == 2
    load(db, 80, new_rows=True)  # what the catalog shows was settled before this was charged
    assert db.ledger.unsettled() == ()
    assert db.ledger.spent() == Fraction(11, 10)
