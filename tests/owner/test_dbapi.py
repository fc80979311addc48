"""PEP 249, with the tools that come in through it."""

import warnings
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import scumble
from scumble import dbapi, errors
from scumble.errors import ScumbleError


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[dbapi.Connection]:
    rows = pa.table({"a": [1, 2, 3], "b": ["x", "<y>", None]})
    with scumble.create(tmp_path / "db") as db:
        db.load("t", rows, indexes=["a int:0:9 epsilon=1"], capacity=16)
    with dbapi.connect(tmp_path / "db") as connection:
        yield connection


def test_the_module_says_what_it_is() -> None:
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 2, "qmark")
    assert all(hasattr(dbapi, name) for name in dbapi.__all__)


def test_errors_form_the_tree_of_pep_249() -> None:
    under = [
        "DataError",
        "OperationalError",
        "IntegrityError",
        "InternalError",
        "ProgrammingError",
        "NotSupportedError",
    ]
    for name in under:
        assert getattr(dbapi, name).__bases__ == (dbapi.DatabaseError,)
    assert dbapi.DatabaseError.__bases__ == dbapi.InterfaceError.__bases__ == (dbapi.Error,)
    assert issubclass(dbapi.Error, Exception)
    assert issubclass(dbapi.Warning, Exception)
    assert not issubclass(dbapi.Warning, dbapi.Error)
    for name in (*under, "DatabaseError", "InterfaceError", "Error", "Warning"):
        assert getattr(dbapi.Connection, name) is getattr(dbapi, name)
        assert getattr(errors, name, getattr(dbapi, name)) is getattr(dbapi, name)  # one name, one class
    everything = [getattr(errors, name) for name in errors.__all__]
    assert all(issubclass(error, dbapi.Error) for error in everything)
    leaves = [getattr(dbapi, name) for name in under]
    for error in everything:  # nothing is of two kinds
        assert sum(issubclass(error, kind) for kind in leaves) <= 1


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("SELECT nothing FROM t", dbapi.ProgrammingError),
        ("SELECT a FROM nothing", dbapi.ProgrammingError),
        ("SELECT FROM WHERE", dbapi.ProgrammingError),
        ("SELECT ? FROM t", dbapi.ProgrammingError),
        ("ATTACH 'other.db'", dbapi.NotSupportedError),
        ("SELECT sum(a * 4611686018427387904 * 4611686018427387904 * 32) FROM t", dbapi.DataError),
    ],
)
def test_each_refusal_is_of_its_kind(connection: dbapi.Connection, query: str, kind: type[ScumbleError]) -> None:
    with pytest.raises(kind):
        connection.cursor().execute(query)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((kind, pd.errors.DatabaseError)) as refused:  # pandas before 3 wraps it
            pd.read_sql(query, connection)
    assert isinstance(refused.value, kind) or isinstance(refused.value.__cause__, kind)


def test_what_keeps_a_connection_from_opening(tmp_path: Path) -> None:
    with pytest.raises(dbapi.ProgrammingError):
        dbapi.connect(tmp_path / "none")
    with pytest.raises(dbapi.OperationalError):
        dbapi.connect("scumble://127.0.0.1:1/clinic", connect_seconds=0.1)
    scumble.create(tmp_path / "db").close()
    (tmp_path / "db.key").chmod(0o644)
    with pytest.raises(dbapi.OperationalError):
        dbapi.connect(tmp_path / "db")
    with pytest.raises(dbapi.InterfaceError):
        dbapi.connect(tmp_path / "db", measurement="0a")


def test_a_cursor_fetches_in_every_way(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    assert (cursor.description, cursor.rowcount) == (None, -1)
    cursor.execute("SELECT a, b FROM t WHERE a >= ? ORDER BY a", (1,))
    assert [column[0] for column in cursor.description or ()] == ["a", "b"]
    assert cursor.rowcount == 3
    assert cursor.fetchone() == (1, "x")
    assert cursor.fetchmany() == [(2, "<y>")]
    assert cursor.fetchall() == [(3, None)]
    assert (cursor.fetchone(), cursor.fetchall()) == (None, [])
    assert list(connection.execute("SELECT count(*) FROM t WHERE a = $a", {"a": 2})) == [(1,)]
    assert cursor.arrow().num_rows == 3


def test_values_of_every_width_come_and_go(tmp_path: Path) -> None:
    token, huge = UUID(int=7 << 100), Decimal(10**37) / 100
    rows = pa.table(
        {
            "token": pa.array([token.bytes, None], pa.uuid()),
            "photo": pa.array([b"\0a", b""], pa.binary()),
            "wait": pa.array([pa.MonthDayNano([0, 2, 10**9]), None]),
            "huge": pa.array([huge, -huge], pa.decimal128(38, 2)),
            "ratio": pa.array([0.5, None], pa.float32()),
            "port": pa.array([2**16 - 1, 0], pa.uint16()),
        }
    )
    with scumble.create(tmp_path / "db") as db:
        db.load("t", rows, types={"photo": "blob(3)"}, capacity=16)
    with dbapi.connect(tmp_path / "db") as connection:
        cursor = connection.cursor()
        found = cursor.execute("SELECT * FROM t ORDER BY huge DESC").fetchall()
        assert found[0] == (token, b"\0a", timedelta(2, 1), huge, 0.5, 2**16 - 1)
        assert found[1] == (None, b"", None, -huge, None, 0)
        for column, value in zip(rows.schema.names, found[0], strict=True):
            assert cursor.execute(f"SELECT huge FROM t WHERE {column} = ?", (value,)).fetchall() == [(huge,)]  # noqa: S608
        count = "SELECT count(*) FROM t WHERE token = $token AND huge > $huge"
        assert cursor.execute(count, {"token": token, "huge": Decimal("1e20")}).fetchone() == (1,)


def test_changes_are_counted_and_committed_at_once(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    assert cursor.execute("UPDATE t SET b = ? WHERE a > 1", ("z",)).rowcount == 2
    assert cursor.description is None
    with pytest.raises(ScumbleError, match="no result"):
        cursor.fetchall()
    assert cursor.execute("DELETE FROM t WHERE a = 9").rowcount == 0
    assert cursor.execute("INSERT INTO t VALUES (5, 'five')").rowcount == 1
    connection.rollback()  # there is nothing to roll back
    assert connection.execute("SELECT a, b FROM t ORDER BY a").fetchall() == [(1, "x"), (2, "z"), (3, "z"), (5, "five")]


def test_many_rows_are_one_insert(connection: dbapi.Connection) -> None:
    before, version = connection.database.table("t").capacity, connection.database.version
    cursor = connection.executemany("INSERT INTO t VALUES (?, upper(?))", [(n % 10, f"n{n}") for n in range(300)])
    assert cursor.rowcount == 300
    assert connection.database.table("t").capacity == before + 512
    assert connection.database.version == version + 1
    assert connection.execute("SELECT count(*), min(b), max(b) FROM t WHERE b LIKE 'N%'").fetchall() == [
        (300, "N0", "N99")
    ]
    named = connection.executemany("INSERT INTO t (b, a) VALUES ($b, $a)", [{"a": 7, "b": None}, {"a": "8", "b": 1.5}])
    assert named.rowcount == 2
    assert connection.execute("SELECT a, b FROM t WHERE a IN (7, 8) AND (b IS NULL OR b = '1.5')").fetchall() == [
        (7, None),
        (8, "1.5"),
    ]
    upserted = connection.executemany(
        "INSERT INTO t VALUES (?, ?) ON CONFLICT (a) DO UPDATE SET b = excluded.b", [(1, "one"), (2, "two")]
    )
    assert upserted.rowcount >= 2
    assert connection.execute("SELECT DISTINCT b FROM t WHERE a = 1").fetchall() == [("one",)]


def test_many_other_statements_are_one_change(connection: dbapi.Connection) -> None:
    version = connection.database.version
    assert connection.executemany("UPDATE t SET b = ? WHERE a = ?", [("p", 1), ("q", 2), ("r", 9)]).rowcount == 2
    assert connection.database.version == version + 1
    with pytest.raises(dbapi.Error):
        connection.executemany("UPDATE t SET b = ? WHERE a = ?", [("lost", 1), ("far too long" * 9, 2)])
    assert connection.execute("SELECT b FROM t WHERE a < 3 ORDER BY a").fetchall() == [("p",), ("q",)]
    assert connection.executemany("DELETE FROM t WHERE a = ?", []).rowcount == 0


@pytest.mark.parametrize(
    ("sql", "sets", "kind"),
    [
        ("SELECT ?", [(1,)], dbapi.NotSupportedError),
        ("COMMIT", [()], dbapi.NotSupportedError),
        ("INSERT INTO t VALUES (?, ?)", [(1, "a"), (2,)], dbapi.ProgrammingError),
        ("INSERT INTO t VALUES (?, ?)", [{"a": 1}], dbapi.ProgrammingError),
        ("INSERT INTO t VALUES (?, ?)", [(1, "a"), ("no number", "b")], dbapi.Error),
        ("INSERT INTO t VALUES (?, ?)", [(1, "a"), (77, "b")], dbapi.Error),  # no key of the index
        ("INSERT INTO t VALUES (?)", [(1,)], dbapi.ProgrammingError),
    ],
)
def test_bad_sets_of_parameters_change_nothing(
    connection: dbapi.Connection, sql: str, sets: list[Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind) as refused:
        connection.executemany(sql, sets)
    assert "no number" not in str(refused.value)
    assert connection.execute("SELECT count(*) FROM t").fetchall() == [(3,)]


def test_transactions_are_begun_or_implied(connection: dbapi.Connection, tmp_path: Path) -> None:
    assert connection.autocommit
    connection.begin()
    connection.execute("DELETE FROM t WHERE a = 1")
    assert connection.in_transaction
    connection.rollback()
    with connection.transaction():
        connection.execute("DELETE FROM t WHERE a = 1")
    connection.autocommit = False
    connection.execute("SELECT count(*) FROM t")
    before = connection.in_transaction  # a query begins none: it would keep others from writing
    connection.execute("DELETE FROM t WHERE a = 2")
    assert (before, connection.in_transaction) == (False, True)
    with dbapi.connect(tmp_path / "db") as other:
        assert other.execute("SELECT count(*) FROM t").fetchall() == [(2,)]
        connection.commit()
        assert other.execute("SELECT count(*) FROM t").fetchall() == [(1,)]
    connection.execute("DELETE FROM t")
    connection.close()  # rolls back
    with dbapi.connect(tmp_path / "db", autocommit=False) as other:
        other.execute("INSERT INTO t VALUES (6, 'six')")
        other.autocommit = True  # commits
        assert not other.in_transaction
        assert other.execute("SELECT a FROM t ORDER BY a").fetchall() == [(3,), (6,)]


def test_closed_is_closed(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    with pytest.raises(ScumbleError, match="no result"):
        cursor.fetchone()
    cursor.close()
    with pytest.raises(ScumbleError, match="closed"):
        cursor.execute("SELECT 1")
    connection.close()
    connection.close()
    for refused in (connection.cursor, connection.commit, connection.rollback):
        with pytest.raises(ScumbleError, match="closed"):
            refused()


def test_pandas_and_polars_read_through_it(connection: dbapi.Connection) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas knows no driver but SQLAlchemy's
        frame = pd.read_sql("SELECT a, b FROM t WHERE a > ? ORDER BY a", connection, params=(1,))
    assert frame["a"].tolist() == [2, 3]
    assert pl.read_database("SELECT sum(a) AS total FROM t", connection)["total"].to_list() == [6]


def test_what_a_notebook_shows(connection: dbapi.Connection) -> None:
    db = connection.database
    result, table = db.sql("SELECT b FROM t ORDER BY a"), db.table("t")
    assert "&lt;y&gt;" in result._repr_html_()
    assert "NULL" in str(result)
    assert repr(result) == "<Result: 3 rows of b>"
    assert repr(table) == "<Table t: 2 columns, capacity 1,024, indexes on a>"
    assert "int:0:9" in table._repr_html_()
    assert "<table" in db.explain("SELECT a FROM t")._repr_html_()
    assert "<table" in db.ledger._repr_html_()
    assert repr(db) == "<Database version 3: t>"
