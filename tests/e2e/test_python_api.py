"""The database from Python: forms of results, parameters, sources, threads, several processes, and little memory."""
# ruff: noqa: S608  the SQL is the test's own

import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from databases import events
from e2e_answers import Plain, difference, unlike

import scumble
from scumble import opening
from scumble.errors import Busy
from scumble.owner.database import Database

ROWS = 500
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int32()),
        "price": pa.array([Decimal(n % 97) / 4 for n in range(ROWS)], pa.decimal128(9, 2)),
        "day": pa.array([date(2024, 1, 1 + n % 28) for n in range(ROWS)]),
        "wood": pa.array([None if n % 11 == 0 else ("ash", "elm", "oak")[n % 3] for n in range(ROWS)]),
        "x": pa.array([n / 8 for n in range(ROWS)]),
    }
)
INDEXES = ["id int:0:511 epsilon=1 beta=1e-9", "day date:2024-01-01:2024-01-31 epsilon=1 beta=1e-9"]
TYPES = {"wood": 'category(["ash","elm","oak"])'}


def create(folder: Path) -> Database:
    return opening.create(folder / "db", limit=1000, delta_limit="0.01")


def load(db: Database, source: object = TABLE, name: str = "t", **options: Any) -> None:
    db.load(name, source, indexes=INDEXES, types=TYPES, page_rows=16, **options)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """For tests that only ask."""
    with create(tmp_path_factory.mktemp("shared")) as made:
        load(made, capacity=600)
        yield made


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Database]:
    """For a test that writes."""
    with create(tmp_path) as made:
        load(made, capacity=600)
        yield made


PLAIN = Plain({"t": TABLE})
RANGE = "SELECT id, price, day, wood, x FROM t WHERE id BETWEEN 100 AND 110 ORDER BY id"
GROUPS = "SELECT wood, count(*) AS n, sum(price) AS s FROM t GROUP BY wood ORDER BY wood"
DIRECT = "SELECT count(*), sum(price), max(day), avg(x) FROM t WHERE id < 77"


# --- results -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", [RANGE, GROUPS, DIRECT], ids=["rows", "groups", "direct"])
def test_all_forms_of_a_result_agree(db: Database, sql: str) -> None:
    expected = PLAIN.answer(sql)
    rows = [tuple(row.values()) for row in expected.to_pylist()]
    assert unlike(db.sql(sql).arrow(), expected, ordered=True) is None
    pd.testing.assert_frame_equal(db.sql(sql).df(), expected.to_pandas())
    frame = pl.from_arrow(expected)
    assert isinstance(frame, pl.DataFrame)
    assert db.sql(sql).pl().equals(frame)
    assert db.sql(sql).fetchall() == rows
    assert list(db.sql(sql)) == rows
    assert db.sql(sql).columns == expected.column_names
    result = db.sql(sql)
    assert len(result) == len(rows)
    assert result.fetchone() == rows[0]
    assert result.fetchmany(2) == rows[1:3]
    assert result.fetchall() == rows[3:]
    assert result.fetchone() is None
    assert result.fetchall() == []
    assert len(result.arrow()) == len(rows)


def test_python_values_are_duckdbs(db: Database) -> None:
    for sql in (
        RANGE,
        GROUPS,
        DIRECT,
        "SELECT sum(id), sum(id) * 2, count(*) FROM t",
        "SELECT id + 0.5 FROM t LIMIT 0",
    ):
        found, expected = db.sql(sql).fetchall(), PLAIN.connection.sql(sql).fetchall()
        assert found == expected
        assert [list(map(type, row)) for row in found] == [list(map(type, row)) for row in expected]


# --- parameters and prepared statements ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "params"),
    [
        ("id BETWEEN ? AND ?", [7, 30]),
        ("id BETWEEN ? AND ?", (7, 30)),
        ("id BETWEEN $1 AND $2 OR id = $1 + 400", [7, 30]),
        ("id BETWEEN $low AND $high OR id = $high * 2", {"low": 7, "high": 30}),
        ("day = ? AND price > ?", [date(2024, 1, 5), Decimal("3.25")]),
        ("wood = $w OR wood IS NULL AND id < $n", {"w": "elm", "n": 100}),
        ("x < ? + 1", [7.5]),
        ("id = ?", [None]),
        ("id = ?", [3.5]),
        ("id < ?", [Decimal("3.5")]),
        ("wood LIKE ?", ["e%"]),
        ("id IN (?, ?, ?)", [1, 2, 1000]),
        ("id < $n AND wood <> ''", {"n": 50}),
        ("wood IN ('', 'elm') AND id < $n", {"n": 50}),
        ("id = ?", [2**40]),
        ("id = ?", [True]),
        ("id = ?", [np.int64(5)]),
        ("day >= ?", [np.datetime64("2024-01-20")]),
    ],
)
def test_parameters(db: Database, condition: str, params: Any) -> None:
    for what in ("id", "count(*) AS n", "id + 1 AS next, wood"):
        assert difference(db, PLAIN, f"SELECT {what} FROM t WHERE {condition}", params) is None


def test_parameters_outside_of_conditions(db: Database) -> None:
    for sql, params in [
        ("SELECT id + ? AS a FROM t WHERE id < ?", [100, 5]),
        ("SELECT sum(price) * ? AS s FROM t WHERE id < ?", [3, 50]),
        ("SELECT wood, count(*) + ? AS n FROM t WHERE id < ? GROUP BY wood HAVING count(*) > ?", [1, 100, 2]),
        ("SELECT id FROM t ORDER BY id LIMIT ?", [4]),
        ("SELECT id + ? FROM t WHERE id < ?", [100, 5]),
        ("SELECT sum(id) + ? FROM t", [1]),
    ]:
        assert difference(db, PLAIN, sql, params) is None, sql


def test_prepared_statements_follow_new_versions(own: Database) -> None:
    counted = own.prepare("SELECT count(*) FROM t WHERE id BETWEEN ? AND ?")
    assert counted.execute([10, 19]).fetchall() == [(10,)]
    assert counted.execute([10, 10]).fetchall() == [(1,)]
    load(own, TABLE.slice(0, 50), capacity=64)
    assert counted.execute([10, 19]).fetchall() == [(20,)]
    assert counted.execute([499, 600]).fetchall() == [(1,)]


def test_constant_expressions_do_not_disturb_later_queries(db: Database) -> None:
    for condition in ("id < 3 + 4", "day > DATE '2024-01-05' + INTERVAL 3 DAY", "id < CAST('9' AS INTEGER)"):
        assert difference(db, PLAIN, f"SELECT count(*) FROM t WHERE {condition}") is None
        assert difference(db, PLAIN, RANGE, ordered=True) is None


def compared(folder: Path, table: pa.Table, queries: Iterable[str]) -> list[tuple[str, str | None]]:
    """The queries whose answers on this table differ from DuckDB's, and how."""
    plain = Plain({"t": table})
    with create(folder) as db:
        db.load("t", table, capacity=16, page_rows=16)
        found = [(sql, difference(db, plain, sql)) for sql in queries]
    return [(sql, what) for sql, what in found if what is not None]


def test_constants_that_python_cannot_hold(tmp_path: Path) -> None:
    start = 1_577_836_800 * 10**9
    table = pa.table(
        {
            "ns": pa.array([start + 1001, start + 1002, start + 1003, start + 2000]).cast(pa.timestamp("ns")),
            "day": pa.array([0, 2_932_896, -719_162, 18263], pa.int32()).cast(pa.date32()),
            "us": pa.array([0, 253_402_300_799_999_999, -62_135_596_800_000_000, 6]).cast(pa.timestamp("us")),
            "tz": pa.array([0, start // 1000, start // 1000 + 3_600_000_000, 6]).cast(pa.timestamp("us", tz="UTC")),
        }
    )
    conditions = [
        "ns {} TIMESTAMP_NS '2020-01-01 00:00:00.000001002'",
        "ns {} '2020-01-01 00:00:00.000001002'::TIMESTAMP_NS",
        "ns {} TIMESTAMP '2020-01-01 00:00:00.000002'",
        "day {} DATE 'infinity'",
        "day {} DATE '-infinity'",
        "us {} TIMESTAMP 'infinity'",
        "us {} TIMESTAMP '-infinity'",
        "tz {} TIMESTAMPTZ '2020-01-01 00:00:00+00' + INTERVAL 1 HOUR",
    ]
    asked = product(("count(*)", "*"), conditions, ("=", "<", "<=", ">", ">=", "<>"))
    queries = [f"SELECT {what} FROM t WHERE {condition.format(op)}" for what, condition, op in asked]
    assert compared(tmp_path, table, queries) == []


def test_what_overflows_in_duckdb_is_answered_or_refused_as_a_query(tmp_path: Path) -> None:
    table = pa.table(
        {"u": pa.array([200, 3], pa.uint8()), "i": pa.array([-128, 7], pa.int8()), "b": pa.array([2**62, 2**62])}
    )
    calls = ("max(u + u)", "sum(u + u)", "min(-i)", "max(i * i)", "max(b + b)")
    assert compared(tmp_path, table, [f"SELECT {call} FROM t" for call in calls]) == []


# --- sources and sizes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [None, 1, 100])
def test_an_empty_table(tmp_path: Path, capacity: int | None) -> None:
    empty = TABLE.slice(0, 0)
    plain = Plain({"t": empty})
    with create(tmp_path) as db:
        load(db, empty, capacity=capacity)
        for sql in (
            RANGE,
            GROUPS,
            DIRECT,
            "SELECT * FROM t",
            "SELECT count(*) FROM t a LEFT JOIN t b ON a.id = b.id",
            "SELECT min(wood), max(x), sum(id), stddev(x), count(DISTINCT id) FROM t",
            "SELECT id FROM t WHERE wood IS NULL OR id = 3",
        ):
            assert difference(db, plain, sql) is None, sql
        assert db.sql("SELECT * FROM t").fetchone() is None


def test_rows_after_an_empty_load(tmp_path: Path) -> None:
    with create(tmp_path) as db:
        load(db, TABLE.slice(0, 0))
        load(db, TABLE)
        for sql in (RANGE, GROUPS, DIRECT, "SELECT * FROM t"):
            assert difference(db, PLAIN, sql, ordered=sql == RANGE) is None


def test_little_memory_sorts_outside(tmp_path: Path) -> None:
    """At 1 MiB a chunk has a few thousand rows, so that these need several, and the provider's scratch space."""
    rng = np.random.default_rng(3)
    rows = 40_000
    table = pa.table(
        {
            "a": pa.array(rng.integers(0, 1000, rows)),
            "b": pa.array(rng.integers(-500, 500, rows), mask=rng.random(rows) < 0.1),
            "text": pa.array([f"row {n}" for n in rng.integers(0, 999, rows)]),
        }
    )
    plain = Plain({"t": table})
    with create(tmp_path) as db:
        db.load(
            "t",
            table,
            indexes=["a int:0:999 epsilon=1 beta=1e-9", "b int:-500:499 epsilon=1 beta=1e-9"],
            types={"text": "text(16)"},
            memory_bytes=1 << 20,
            page_rows=64,
        )
        assert any(event.kind == "read_scratch" for event in events(db))
        for sql in (
            "SELECT count(*), sum(a), sum(b), min(text), max(text) FROM t",
            "SELECT * FROM t WHERE a = 500",
            "SELECT count(*) FROM t WHERE a BETWEEN 100 AND 300",
            "SELECT * FROM t WHERE b IS NULL AND a < 100",
            "SELECT b, count(*) FROM t WHERE b BETWEEN -3 AND 3 GROUP BY b",
        ):
            (table_read,) = db.explain(sql).tables
            assert difference(db, plain, sql) is None, sql
            if "WHERE" in sql:
                assert table_read.pages_read < table_read.pages_of_full_scan


# --- threads and processes -----------------------------------------------------------------------------


def test_threads_share_a_database(db: Database) -> None:
    queries = [f"SELECT count(*), sum(price) FROM t WHERE id BETWEEN {n} AND {3 * n}" for n in range(40)]
    queries += [f"SELECT id, wood FROM t WHERE day = DATE '2024-01-01' + INTERVAL {n} DAY" for n in range(28)]
    with ThreadPoolExecutor(8) as pool:
        wrong = list(pool.map(lambda sql: difference(db, PLAIN, sql), queries * 2))
    assert [each for each in wrong if each is not None] == []


def test_threads_ask_while_one_loads(own: Database) -> None:
    counts: list[int] = []
    wrong: list[BaseException] = []
    done = threading.Event()

    def ask() -> None:
        try:
            while not done.is_set():
                counts.append(own.sql("SELECT count(*) FROM t WHERE id < 100").fetchall()[0][0])
                assert len(own.sql("SELECT id FROM t WHERE id < 100")) in (100, 200, 300)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        load(own, TABLE, capacity=600, again=True)
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert counts == sorted(counts) or set(counts) <= {100, 200, 300}
    assert own.sql("SELECT count(*) FROM t WHERE id < 100").fetchall() == [(300,)]


LOADS = """
import sys, pyarrow as pa
from scumble import opening
table = pa.table({"id": pa.array(range(2000), pa.int64())})
with opening.open(sys.argv[1]) as db:
    print("open", flush=True)
    sys.stdin.readline()
    for _ in range(int(sys.argv[2])):
        db.load("n", table, indexes=["id int:0:2047 epsilon=0.5 beta=1e-9"], capacity=2048, page_rows=16, again=True)
    print("loaded", flush=True)
"""


def loader(folder: Path, loads: int) -> subprocess.Popen[str]:
    program = [sys.executable, "-c", LOADS, str(folder / "db"), str(loads)]
    started = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "open\n"
    return started


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=60)
    return output


def test_a_reader_during_another_processes_loads(tmp_path: Path) -> None:
    with create(tmp_path) as db:
        load(db, capacity=600)
        writer = loader(tmp_path, 4)
        go(writer)
        counts = []
        while writer.poll() is None:
            assert difference(db, PLAIN, RANGE, ordered=True) is None
            if any(table.name == "n" for table in db.tables):
                counts.append(db.sql("SELECT count(*) FROM n WHERE id >= 1000").fetchall()[0][0])
        assert finish(writer) == "loaded\n"
        assert set(counts) <= {1000, 2000, 3000, 4000}
        assert counts == sorted(counts)
        assert db.sql("SELECT count(*), sum(id) FROM n").fetchall() == [(8000, 4 * sum(range(2000)))]
        assert db.check() > 0


def test_two_writing_processes_both_succeed(tmp_path: Path) -> None:
    with create(tmp_path) as db:
        load(db, capacity=600)
    writers = [loader(tmp_path, 3) for _ in range(2)]
    for writer in writers:
        go(writer)
    assert [finish(writer) for writer in writers] == ["loaded\n", "loaded\n"]
    with opening.open(tmp_path / "db") as db:
        assert db.sql("SELECT count(*) FROM n WHERE id = 77").fetchall() == [(6,)]
        assert difference(db, PLAIN, RANGE, ordered=True) is None
        assert db.check() > 0


def test_a_writer_that_cannot_wait_is_refused(own: Database, tmp_path: Path) -> None:
    with opening.open(tmp_path / "db") as other, own.service.writer():
        with pytest.raises(Busy), other.service.writer(busy_seconds=0.1):
            pass
        assert difference(other, PLAIN, RANGE, ordered=True) is None


def test_a_second_batch_takes_its_types_from_the_table(tmp_path: Path) -> None:
    """What is not declared stays as it was, and the order in which indexes are named does not matter."""
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("k,name,colour\n1,a,red\n2,,blue\n")
    second.write_text("k,name,colour\n3,ccc,red\n")
    types = {"name": "text(5)", "colour": 'category(["blue","red"])'}
    indexes = ["k int:0:9 epsilon=1", 'colour category:["blue","red"] epsilon=1']
    with scumble.create(tmp_path / "db", limit=10) as db:
        db.load("t", first, indexes=indexes, types=types, capacity=16)
        db.load("t", second, indexes=indexes[::-1], capacity=16)
        frame = pa.table({"k": pa.array([4], pa.int64()), "name": ["d"], "colour": ["blue"]})
        strict = pa.schema([field.with_nullable(False) for field in frame.schema])
        db.load("T", frame.cast(strict), indexes=indexes, capacity=16)
        assert db.sql("SELECT k, name, colour FROM t ORDER BY k").fetchall() == [
            (1, "a", "red"),
            (2, None, "blue"),
            (3, "ccc", "red"),
            (4, "d", "blue"),
        ]
        assert len(db.table("t").runs) == 6


def test_plans_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements of ever new shapes: both ends forget old plans together, and answers stay right."""
    monkeypatch.setattr("scumble.owner.queries.KEPT", 4)
    with scumble.create(tmp_path / "db", limit=10) as db:
        db.load("t", pa.table({"k": list(range(10))}), capacity=16)
        for turn in range(2):
            for length in range(1, 12):
                keys = ", ".join(str(2 * key) for key in range(length))
                expected = min(length, 5)
                assert db.sql(f"SELECT count(*) FROM t WHERE k IN ({keys})").fetchone() == (expected,), (turn, length)
        (line,) = db.service._enclave._lines.values()  # type: ignore[attr-defined]
        assert len(line.session._plans) <= 4
