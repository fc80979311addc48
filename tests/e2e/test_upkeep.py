"""Flushes, merges and vacuums: what they leave of the rows, what they cost, and what a failure leaves of them."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from databases import events

import scumble
from scumble.enclave import flushes, loads
from scumble.enclave.pages import keep_tally
from scumble.enclave.rows import Rows
from scumble.errors import BadRows, InvalidParameter, Unavailable
from scumble.owner import compacting, loading
from scumble.owner.changing import ChangeReport
from scumble.owner.composition import row_costs
from scumble.owner.database import Database

INDEX = "k int:0:999 epsilon=0.5"


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array([10 * key for key in keys], pa.int64())})


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with scumble.create(tmp_path / "db", limit=20) as made:
        made.load("t", rows(*range(100)), indexes=[INDEX], capacity=128, page_rows=32)
        yield made


def keys(db: Database, where: str = "TRUE") -> list[int]:
    return sorted(key for (key,) in db.sql(f"SELECT k FROM t WHERE {where}").fetchall())  # noqa: S608


def test_a_flush_makes_a_batch_of_the_whole_tail(db: Database) -> None:
    db.insert("t", rows(500, 501))
    db.insert("t", rows(502), capacity=1024)
    db.execute("DELETE FROM t WHERE k = 501")
    report = db.flush("t", new_rows=True)
    assert report is not None
    assert report.epsilon == Fraction(1, 2)
    table = db.table("t")
    assert table.tail == ()
    assert {run.attribute for run in table.runs} == {"k"}
    assert keys(db, "k >= 100") == [500, 502]
    assert db.ledger.spent() == Fraction(1, 2)
    assert db.flush("t") is None


def test_the_costs_of_flushes_add_up_unless_rows_are_stated_to_be_new(db: Database) -> None:
    for number in range(2):
        db.insert("t", rows(500 + number))
        db.flush("t")
    assert db.ledger.spent() == Fraction(3, 2)


def test_an_update_of_every_row_that_only_computes(db: Database) -> None:
    """Its plan takes no bounds at all."""
    report = db.execute("UPDATE t SET v = v + 1")
    assert isinstance(report, ChangeReport)
    assert report.rows == 100
    assert db.sql("SELECT min(v), max(v) FROM t").fetchall() == [(1, 991)]


def test_rows_whose_keys_are_there_are_left_out_if_nothing_shall_be_done(db: Database) -> None:
    report = db.execute("INSERT INTO t (k, v) VALUES (7, 1), (500, 2), (501, 3) ON CONFLICT (k) DO NOTHING")
    assert isinstance(report, ChangeReport)
    assert report.rows == 2
    assert db.sql("SELECT k, v FROM t WHERE k IN (7, 500, 501) ORDER BY k").fetchall() == [(7, 70), (500, 2), (501, 3)]


def test_rows_that_moved_are_not_new(db: Database) -> None:
    db.execute("UPDATE t SET k = 700 WHERE k = 7")
    with pytest.raises(InvalidParameter, match="not all are new"):
        db.flush("t", new_rows=True)
    assert db.ledger.spent() == Fraction(1, 2)
    db.flush("t")
    assert db.ledger.spent() == 1
    assert keys(db, "k = 700 OR k = 7") == [700]
    cost = row_costs(db.ledger.loads())["t"]
    assert (cost.presence, cost.change, cost.with_changes(3)) == (Fraction(1, 2), Fraction(1, 2), Fraction(2))


def test_a_row_outside_of_the_domain_keeps_the_tail_as_it_is_and_costs_nothing(db: Database) -> None:
    with pytest.raises(BadRows):
        db.insert("t", rows(1000))
    db.execute("UPDATE t SET k = k + 990 WHERE k IN (5, 50)")  # 995 has a rank, 1,040 has none
    with pytest.raises(BadRows, match="domain"):
        db.flush("t")
    assert db.ledger.spent() == Fraction(1, 2)
    assert keys(db, "k > 900") == [995, 1040]
    db.execute("DELETE FROM t WHERE k = 1040")
    db.flush("t")
    assert keys(db, "k > 900") == [995]


def test_a_flush_that_was_lost_is_finished_and_not_paid_twice(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.insert("t", rows(500))
    built = loading.build

    def lost(*given: Any) -> None:
        raise Unavailable("the service is gone", hint="wait")

    monkeypatch.setattr(compacting, "build", lost)
    with pytest.raises(scumble.errors.ScumbleError):
        db.flush("t", new_rows=True)
    monkeypatch.setattr(compacting, "build", built)
    spent = db.ledger.spent()
    report = db.flush("t", new_rows=True)
    assert report is not None
    assert report.retried
    assert db.ledger.spent() == spent
    assert keys(db, "k >= 100") == [500]


def test_merged_batches_answer_as_before_and_cost_nothing(db: Database) -> None:
    db.automatic = False
    for number in range(1, 4):
        db.load("t", rows(*range(100 * number, 100 * number + 60)), indexes=[INDEX], capacity=64, page_rows=32)
    db.execute("DELETE FROM t WHERE k BETWEEN 90 AND 110")
    db.insert("t", rows(999))
    db.insert("t", rows(998))
    before, spent = keys(db), db.ledger.spent()
    assert db.compact("t") > 1
    table = db.table("t")
    assert [len(table.settled), len(table.tail)] == [1, 1]
    assert keys(db) == before
    for low, high in ((0, 5), (85, 115), (200, 230), (990, 999)):
        assert keys(db, f"k BETWEEN {low} AND {high}") == [key for key in before if low <= key <= high]
    assert db.ledger.spent() == spent
    db.load("t", rows(600), indexes=[INDEX], capacity=32, page_rows=32)
    db.compact("t")
    assert keys(db) == sorted([*before, 600])


def test_the_ledger_still_knows_batches_that_were_merged(db: Database, tmp_path: Path) -> None:
    """Or they would look as if a restore had taken them away, and the next one would pay on top of them."""
    for number in range(1, 3):
        db.load("t", rows(100 * number), indexes=[INDEX], capacity=32, page_rows=32, new_rows=True)
    db.compact("t")
    spent = db.ledger.spent()
    db.load("t", rows(300), indexes=[INDEX], capacity=32, page_rows=32, new_rows=True)
    assert db.ledger.spent() == spent == Fraction(1, 2)
    db.close()
    with scumble.open(tmp_path / "db") as again:
        assert again.ledger.spent() == Fraction(1, 2)
        assert not again.ledger.unsettled()


def test_a_batch_is_inserted_once_also_after_its_unit_was_merged(db: Database) -> None:
    name = "ab" * 16
    assert db.insert("t", rows(500), batch=name) == 1
    db.insert("t", rows(501))
    db.compact("t")
    assert db.insert("t", rows(500), batch=name) == 0
    assert keys(db, "k >= 100") == [500, 501]


def test_runs_are_merged_as_they_come_and_only_sizes_decide(db: Database) -> None:
    sizes = []
    for number in range(20):
        db.insert("t", rows(*range(500, 500 + number % 3)))
        sizes.append([run.capacity for run in db.table("t").tail])
    assert max(map(len, sizes)) <= compacting.FEW_OF_TAIL + 1
    assert sum(sizes[-1]) >= 20 * 256
    with scumble.create(db._versions.key_path.parent / "other", limit=20) as other:
        other.load("t", rows(*range(100)), indexes=[INDEX], capacity=128, page_rows=32)
        for number in range(20):
            other.insert("t", rows(*range(number % 2)))
            assert [run.capacity for run in other.table("t").tail] == sizes[number]


def test_a_vacuum_leaves_no_layer_and_no_run_of_before(db: Database, tmp_path: Path) -> None:
    before = {path.stem for path in (tmp_path / "db" / "runs").iterdir()}
    db.execute("DELETE FROM t WHERE k < 10")
    db.execute("UPDATE t SET v = 1 WHERE k < 20")
    db.vacuum()
    table = db.table("t")
    assert all(layer.columns == (-1,) for run in table.runs for layer in run.layers)
    there = {path.stem for path in (tmp_path / "db" / "runs").iterdir()}
    assert not there & before
    assert keys(db) == list(range(10, 100))
    db.load("t", rows(500), indexes=[INDEX], capacity=32, page_rows=32)
    db.load("t", rows(501), indexes=[INDEX], capacity=32, page_rows=32)
    db.compact("t")  # what can be: the batch with erased rows stays by itself
    assert len(db.table("t").settled) == 2
    assert keys(db, "k >= 99") == [99, 500, 501]


def _fail_within_a_transaction(db: Database) -> None:
    with db.transaction():
        db.execute("DELETE FROM t")
        db.insert("t", rows(500))
        assert keys(db) == [500]
        raise ZeroDivisionError


def test_a_transaction_that_fails_leaves_no_file_behind(db: Database, tmp_path: Path) -> None:
    before = {path.name for path in (tmp_path / "db" / "runs").iterdir()}
    with pytest.raises(ZeroDivisionError):
        _fail_within_a_transaction(db)
    assert keys(db) == list(range(100))
    assert {path.name for path in (tmp_path / "db" / "runs").iterdir()} == before


# --- what the provider sees -----------------------------------------------------------------------------


def _lived(folder: Path, inserted: list[list[int]]) -> list[tuple[Any, ...]]:
    """What the provider sees of inserts, changes and a flush, but for the indexes, which are released."""
    with scumble.create(folder, limit=20) as db:
        db.load("t", rows(*range(100)), indexes=[INDEX], capacity=128, page_rows=32)
        for some in inserted:
            db.insert("t", rows(*some), capacity=2048)
            db.execute("UPDATE t SET v = 5 WHERE v > 20")
        db.execute("DELETE FROM t WHERE v = 5000")
        db.flush("t")
        db.insert("t", rows(*inserted[-1]), capacity=2048)
        return [_seen(event) for event in events(db) if event.kind not in ("commit", "head", "manifest", "request")]


def _seen(event: Any) -> tuple[Any, ...]:
    """An event without the names that chance has chosen."""
    named = ("column", "first_page", "pages", "bytes")
    return event.kind, *((name, fact) for name, fact in event.facts if name in named)


NEIGHBOURS: list[list[list[int]]] = [[[500, 501], [502]], [[500], [502]], [[], []], [[500] * 1500, [7] * 1500]]


@pytest.fixture
def same_tallies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tallies are as long as what was released in them."""
    monkeypatch.setattr(loads, "keep_tally", lambda storage, keys, _: keep_tally(storage, keys, bytes(64)))


@pytest.mark.usefixtures("same_tallies")
def test_a_flush_looks_the_same_whatever_the_rows_are(tmp_path: Path) -> None:
    lives = [_lived(tmp_path / str(number), some) for number, some in enumerate(NEIGHBOURS)]
    assert len(lives[0]) > 50
    for other in lives[1:]:
        same = other == lives[0]
        assert same, "the transcripts differ"


@pytest.mark.usefixtures("same_tallies")
@pytest.mark.parametrize("defect", ["real count", "spill-over"])
def test_a_flush_that_looks_at_the_rows_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defect: str
) -> None:
    """Planted: one that has room for as many rows as there are, and one that leaves some of them for the next."""
    gather = flushes.Flush.gather

    def looking(self: Any, version: Any) -> None:
        gather(self, version)
        if defect == "real count":
            self._rows = _first(self._rows, self._real_rows // 1024 * 1024 + 1024)
        elif self._real_rows < 300:
            self.replaces = self.replaces[:1]

    monkeypatch.setattr(flushes.Flush, "gather", looking)
    lives = [_lived(tmp_path / str(number), NEIGHBOURS[at]) for number, at in enumerate((0, 3))]
    assert lives[0] != lives[1]


def _first(given: Any, count: int) -> Any:
    fewer = Rows(given._storage, given._words, given._chunk_rows)
    for chunk in given.chunks():
        fewer.append(chunk[:count])
    return fewer
