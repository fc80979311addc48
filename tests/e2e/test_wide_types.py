"""UUIDs, blobs, decimals beyond 18 digits and intervals: from Arrow, CSV and pandas, and asked as DuckDB is."""
# ruff: noqa: S608  the SQL is the test's own

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from scumble import opening
from scumble.errors import BadRows, InvalidParameter
from scumble.owner.database import Database

UUIDS = [UUID(int=n) for n in (0, 1, 2**64 - 1, 2**64, 2**127 - 1, 2**127, 2**128 - 1, 0x1234 << 100, 1 << 126, 5)]
A, B = UUIDS[3], UUIDS[7]
DECIMALS = ["0", "0.0001", "-0.0001", f"{10**33}", f"-{10**33}", f"{2**64}", f"{2**63}.5", f"-{2**64}", "5", None]
BLOBS = [b"", b"a", b"\0", b"ab\0", b"ab", b"\xff" * 8, b"\xff" * 9, b"abcdefgh", b"abcdefghi", None]
INTERVALS = [
    *[(0, 0, 0), (1, 0, 0), (0, 30, 0), (-1, 2, 3000), (12, -5, 10**9), (0, 0, -1000), (0, 1, 0)],
    *[(0, 0, 86_400 * 10**9), (2**20, 0, 0), None],
]
TABLE = pa.table(
    {
        "id": range(10),
        "u": pa.array([u.bytes for u in UUIDS], pa.uuid()),
        "v": pa.array([None, *(u.bytes for u in reversed(UUIDS[1:]))], pa.uuid()),
        "d": pa.array([None if d is None else Decimal(d) for d in DECIMALS], pa.decimal128(38, 4)),
        "e": pa.array([Decimal(n - 5) for n in range(10)], pa.decimal128(38, 4)),
        "b": pa.array(BLOBS, pa.binary()),
        "i": pa.array([None if i is None else pa.MonthDayNano(i) for i in INTERVALS], pa.month_day_nano_interval()),
    }
)
CONDITIONS = [
    *(f"u {op} '{A}'" for op in ("=", "<>", "<", "<=", ">", ">=")),
    *(f"u {op} v" for op in ("=", "<", "<=")),
    *(f"d {op} {n}" for op in ("=", "<", ">=") for n in ("0", "5", "5.0001", f"{2**63}.5", f"{2**64}", "1e19", "-1.5")),
    *("d < e", "d = e", "d BETWEEN -1 AND 99999999999999999999", "d IN (5, 0.0001)", "d > '7.5'"),
    *(f"b {op} '{n}'::BLOB" for op in ("=", "<", ">") for n in ("", "ab", r"ab\x00", r"\xFF", "abcdefghij")),
    *(f"i {op} INTERVAL '{n}'" for op in ("=", "<", ">=") for n in ("30 days", "1 day", "-1 hour")),
    *(f"u IN ('{A}', '{B}')", f"u BETWEEN '{A}'::UUID AND '{B}'", "v IS NULL", "i IS NOT NULL AND d IS NOT NULL"),
]
QUERIES = [
    "SELECT * FROM t ORDER BY id",
    "SELECT min(u), max(u), min(d), max(d), min(b), max(b), count(i) FROM t",
    "SELECT sum(d), avg(e), sum(e * 2), stddev(e) FROM t WHERE id > 4",
    "SELECT min(i), max(i) FROM t WHERE id < 8",
    "SELECT v, count(*) FROM t GROUP BY v ORDER BY v",
    "SELECT u::VARCHAR, octet_length(b), i + INTERVAL '1 day' FROM t ORDER BY u DESC",
    "SELECT DISTINCT d FROM t ORDER BY d",
]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with opening.create(tmp_path_factory.mktemp("wide") / "db", limit=100) as made:
        indexes = ["e decimal:-10:10:1 epsilon=5"]
        made.load("t", TABLE, indexes=indexes, types={"b": "blob(9)"}, capacity=64, page_rows=16)
        yield made


def plain(sql: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.register("t", TABLE)
        return connection.execute(sql, parameters).fetchall()


@pytest.mark.parametrize("sql", QUERIES)
def test_answers_are_those_of_duckdb(db: Database, sql: str) -> None:
    ours, theirs = db.sql(sql).fetchall(), plain(sql)
    assert [list(map(type, row)) for row in ours] == [list(map(type, row)) for row in theirs]
    assert [tuple(pytest.approx(x) if isinstance(x, float) else x for x in row) for row in theirs] == ours


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_are_those_of_duckdb(db: Database, condition: str) -> None:
    sql = f"SELECT id FROM t WHERE {condition} ORDER BY id"
    assert db.sql(sql).fetchall() == plain(sql)
    assert db.sql(f"SELECT count(*) FROM t WHERE NOT ({condition})").fetchall() == plain(
        f"SELECT count(*) FROM t WHERE NOT ({condition})"
    )


@pytest.mark.parametrize(
    ("condition", "value"),
    [("u = ?", A), ("u < ?", str(A)), ("b = ?", b"ab"), ("d > ?", Decimal("1.5")), ("i = ?", datetime.timedelta(30))],
)
def test_parameters(db: Database, condition: str, value: Any) -> None:
    sql = f"SELECT id FROM t WHERE {condition} ORDER BY id"
    prepared = db.prepare(sql)
    assert prepared.execute([value]).fetchall() == prepared.execute([value]).fetchall() == plain(sql, [value])


def test_equality_and_extremes_are_found_in_the_enclave(db: Database) -> None:
    for condition in (f"u = '{A}'", "b > 'ab'::BLOB", "d >= 5.5", "u < v"):
        assert "aggregates in the enclave" in str(
            db.explain(f"SELECT count(*), max(u), min(d) FROM t WHERE {condition}")
        )
    explained = db.explain("SELECT count(*) FROM t WHERE e BETWEEN 1 AND 2")
    assert explained.tables[0].indexes == ["e"]


def test_widths_and_arrow(db: Database) -> None:
    bits = {column.name: column.page_row_bits for column in db.table("t").schema}
    assert bits == {"id": 65, "u": 129, "v": 129, "d": 129, "e": 129, "b": 81, "i": 129}
    assert db.sql("SELECT * FROM t").arrow().schema.types == TABLE.schema.types
    assert db.sql("SELECT u FROM t ORDER BY id").arrow()["u"].to_pylist() == UUIDS


def test_csv_and_pandas(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"u,b,d\n{A},a\\x00b,{10**30}.5\n{str(B).upper()},,\n,x,-1\n")
    types = {"u": "uuid", "b": "blob(4)", "d": "decimal(38,2)"}
    frame = pd.DataFrame({"i": pd.to_timedelta([1, None, -3], unit="h")})
    with opening.create(tmp_path / "db", limit=10) as db:
        db.load("t", str(tmp_path / "t.csv"), types=types, capacity=16)
        found = db.sql("SELECT * FROM t").fetchall()
        assert [row[0] for row in found] == [A, B, None]
        assert [row[1] for row in found][::2] == [b"a\0b", b"x"]
        assert [row[2] for row in found] == [Decimal(f"{10**30}.50"), None, Decimal("-1.00")]
        db.load("p", frame, types={"i": "interval"}, capacity=16)
        hours = [datetime.timedelta(hours=1), None, datetime.timedelta(hours=-3)]
        assert [row[0] for row in db.sql("SELECT i FROM p").fetchall()] == hours


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("uuid", "7319"),
        ("blob(2)", b"7319"),
        ("blob(9)", "7319\\q"),
        ("decimal(20,0)", Decimal("7319e20")),
        ("interval", pa.scalar(pa.MonthDayNano([0, 0, 7319]))),
    ],
)
def test_what_does_not_fit_is_refused_without_being_shown(tmp_path: Path, type_: str, value: Any) -> None:
    table = pa.table({"x": pa.array([value.as_py() if isinstance(value, pa.Scalar) else value])})
    with opening.create(tmp_path / "db", limit=10) as db:
        with pytest.raises(BadRows) as refused:
            db.load("t", table, types={"x": type_}, capacity=16)
        assert refused.value.hint
        assert "7319" not in str(refused.value)


@pytest.mark.parametrize(("column", "domain"), [("u", 'string:["a"]'), ("b", 'string:["a"]'), ("i", "int:0:9")])
def test_what_has_no_domain_is_not_indexed(tmp_path: Path, column: str, domain: str) -> None:
    with opening.create(tmp_path / "db", limit=10) as db, pytest.raises(InvalidParameter) as refused:
        db.load("t", TABLE, indexes=[f"{column} {domain} epsilon=1"], types={"b": "blob(9)"}, capacity=16)
    assert refused.value.hint
