"""INSERT, UPDATE and DELETE: after any history, the table is what DuckDB makes of the same statements."""

# ruff: noqa: S608  statements are made of parts here

from pathlib import Path
from random import Random
from typing import Any

import pytest

import histories
import scumble
from histories import Reference
from scumble.errors import BadRows
from scumble.owner.changing import ChangeReport
from scumble.owner.database import Database
from serving import serving


def _check(db: Database, reference: Reference, rng: Random) -> None:
    for where in ("TRUE", histories.condition(rng), histories.condition(rng)):
        found = sorted(db.sql(f"SELECT * FROM t WHERE {where}").fetchall(), key=repr)
        same = found == reference.rows(where)
        assert same, f"other rows WHERE {where}"
        count = db.sql(f"SELECT count(*), count(note) FROM t WHERE {where}").fetchall()[0]
        assert count == (len(found), sum(row[4] is not None for row in found))


def test_a_history_at_a_service_with_a_reader_beside_it(tmp_path: Path) -> None:
    """Two enclaves, one client that changes rows, and one that reads them: it sees versions as a whole."""
    rng = Random(77)  # noqa: S311
    found = histories.table(histories.rows(rng, 200))
    reference = Reference(found)
    with (
        serving(tmp_path / "service", "--enclaves", "2") as service,
        service.create("db", tmp_path, limit=100) as db,
        service.open("db", tmp_path) as reader,
    ):
        options: dict[str, Any] = {"types": histories.TYPES, "capacity": 256, "page_rows": 64}
        db.load("t", found, indexes=histories.INDEXES, **options)
        for number in range(8):
            made = histories.statement(rng)
            report = db.execute(made.sql, made.params)
            assert isinstance(report, ChangeReport)
            assert report.rows == reference.execute(made), made.sql
            _check(reader, reference, rng)
            if number == 4:
                before = reference.rows()
                with db.transaction():
                    db.execute("DELETE FROM t")
                    assert sorted(reader.sql("SELECT * FROM t").fetchall(), key=repr) == before
                    db.insert("t", found)
                reference.connection.execute("DELETE FROM t")
                reference.connection.execute("INSERT INTO t SELECT * FROM found")
        db.compact("t")
        _check(reader, reference, rng)
        reader.flush("t", indexes=histories.INDEXES)
        _check(db, reference, rng)


def test_rows_in_a_list_change_the_columns_that_they_have(tmp_path: Path) -> None:
    """And leave the others as they are, which a row of VALUES would too."""
    with scumble.create(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (id integer NOT NULL, a integer, b text(8))")
        db.insert("t", [(1, 10, "x"), (2, 20, "y")])
        assert db.update("t", [{"ID": 1, "a": 11}, {"id": 3, "A": 31}], keys=["id"]) == 1
        assert sorted(db.sql("SELECT * FROM t").fetchall()) == [(1, 11, "x"), (2, 20, "y")]
        with pytest.raises(BadRows, match="same columns"):
            db.update("t", [{"id": 1, "a": 12}, {"id": 2, "b": "z"}], keys=["id"])
        assert sorted(db.sql("SELECT * FROM t").fetchall()) == [(1, 11, "x"), (2, 20, "y")]


@pytest.mark.parametrize("row", [(1,), (1, 2, "x", 4), 5])
def test_a_row_of_another_length_is_refused(tmp_path: Path, row: Any) -> None:
    with scumble.create(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (id integer NOT NULL, a integer, b text(8))")
        with pytest.raises(BadRows, match="as many values"):
            db.insert("t", [row])
