"""Transactions as a user has them: all or nothing, also where a statement fails half-way and somebody carries on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import scumble
from scumble.errors import BadRows, InvalidParameter, QueryError
from scumble.owner.database import Database


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with scumble.create(tmp_path / "db") as made:
        rows = [{"k": k, "v": f"v{k}"} for k in range(20)]
        made.load(
            "t", _frame(rows), indexes=["k int:0:99 epsilon=1"], types={"v": "text(8)"}, capacity=32, page_rows=16
        )
        yield made


def _frame(rows: list[dict[str, object]]) -> object:
    import pyarrow as pa

    return pa.Table.from_pylist(rows)


def _count(db: Database) -> int:
    return int(db.sql("SELECT count(*) FROM t").fetchall()[0][0])


def test_what_fails_half_way_is_not_committed(db: Database) -> None:
    """The upsert has changed a row before it finds that the other one fits no index."""
    upsert = "INSERT INTO t VALUES (1, 'x'), (500, 'y') ON CONFLICT (k) DO UPDATE SET v = excluded.v"
    version = db.version
    db.execute("BEGIN")
    with pytest.raises(BadRows):
        db.execute(upsert)
    with pytest.raises(InvalidParameter, match="failed half-way"):
        db.execute("COMMIT")
    assert not db.in_transaction
    assert db.version == version
    assert db.sql("SELECT v FROM t WHERE k = 1").fetchall() == [("v1",)]


def test_what_fails_before_it_changes_anything_ends_no_transaction(db: Database) -> None:
    db.execute("BEGIN")
    db.execute("DELETE FROM t WHERE k < 5")
    with pytest.raises(QueryError):
        db.execute("DELETE FROM t WHERE nothing = 1")
    db.execute("COMMIT")
    assert _count(db) == 15


def test_a_block_that_fails_leaves_nothing(db: Database) -> None:
    def fail() -> None:
        with db.transaction():
            db.execute("DELETE FROM t")
            assert (_count(db), db.in_transaction) == (0, True)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert _count(db) == 20


def test_closing_rolls_back(tmp_path: Path, db: Database) -> None:
    db.execute("BEGIN")
    db.execute("DELETE FROM t")
    db.close()
    with scumble.open(tmp_path / "db") as again:
        assert _count(again) == 20


def test_others_see_nothing_before_the_end(tmp_path: Path, db: Database) -> None:
    with scumble.open(tmp_path / "db") as other:
        with db.transaction():
            db.execute("UPDATE t SET v = 'new'")
            db.insert("t", [(50, "new")])
            assert other.sql("SELECT count(*) FROM t WHERE v = 'new'").fetchall() == [(0,)]
        assert other.sql("SELECT count(*) FROM t WHERE v = 'new'").fetchall() == [(21,)]
        assert db.version == other.version
