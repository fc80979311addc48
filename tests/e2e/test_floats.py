"""Floats as they are: NaN, infinities and -0.0 go in and come out, and compare as in DuckDB, indexed or not."""
# ruff: noqa: S608  the SQL is the test's own

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from scumble import opening
from scumble.errors import BadRows
from scumble.owner.database import Database

FINITE = [0.0, -0.0, 1.5, -1.5, 2.0**-149, -(2.0**-149), 0.25, -0.0, 9.75, 0.0]
WILD = [-0.0, 0.0, math.nan, math.inf, -math.inf, -0.0, 1.0, math.nan, -1.0, 2.0**-149]
OTHERS = [0.0, 0.0, math.nan, 1.0, -math.inf, -0.0, 1.0, 3.4028234663852886e38, -2.0, -0.0]
TABLE = pa.table(
    {
        "id": range(len(FINITE)),
        "k": pa.array(FINITE, pa.float64()),
        "s": pa.array(FINITE, pa.float32()),
        "x": pa.array([*WILD[:-1], None], pa.float64()),
        "x32": pa.array([*WILD[:-1], None], pa.float32()),
        "y": pa.array(OTHERS, pa.float64()),
        "y32": pa.array(OTHERS, pa.float32()),
    }
)
INDEXES = ["k float:-10:10:0.25 epsilon=5", "s float:-10:10:0.25 epsilon=5"]  # an edge of a bin is 0
COLUMNS = ("k", "s", "x", "x32", "y", "y32")
CONDITIONS = [
    *(
        f"{column} {op} {value}"
        for column in COLUMNS
        for op in ("=", "<", "<=", ">", ">=", "<>")
        for value in ("0e0", "'-0.0'::DOUBLE", "'nan'::DOUBLE", "'inf'::DOUBLE", "1.5e0")
    ),
    *(f"{a} {op} {b}" for a, b in (("x", "y"), ("x32", "y32"), ("k", "x")) for op in ("=", "<", "<=", ">", "<>")),
    *(f"{column} BETWEEN -0.25 AND 0" for column in COLUMNS),
    *(f"{column} IN (0, 1.5)" for column in COLUMNS),
]


@pytest.fixture(scope="module", params=[(), INDEXES], ids=["no index", "indexed"])
def db(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with opening.create(tmp_path_factory.mktemp("floats") / "db", limit=100) as made:
        made.load("t", TABLE, indexes=request.param, capacity=64, page_rows=16)
        yield made


@pytest.fixture(scope="module")
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB over the same rows."""
    with duckdb.connect() as made:
        made.register("t", TABLE)
        yield made


def _shown(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """With floats as texts, so that -0.0 is not 0.0 and NaN is NaN."""
    return [tuple(repr(value) if isinstance(value, float) else value for value in row) for row in rows]


@pytest.mark.parametrize("condition", ["TRUE", *CONDITIONS])
def test_rows_are_those_of_duckdb_to_the_bit(db: Database, plain: duckdb.DuckDBPyConnection, condition: str) -> None:
    sql = f"SELECT * FROM t WHERE {condition} ORDER BY id"
    assert _shown(db.sql(sql).fetchall()) == _shown(plain.execute(sql).fetchall())
    count = f"SELECT count(*), sum(id) FROM t WHERE {condition}"
    assert db.sql(count).fetchall() == plain.execute(count).fetchall()


@pytest.mark.parametrize("column", COLUMNS)
def test_extremes_and_sums(db: Database, plain: duckdb.DuckDBPyConnection, column: str) -> None:
    sql = f"SELECT min({column}), max({column}), sum({column}), count({column}) FROM t WHERE id < 8"
    (ours,), (theirs,) = db.sql(sql).fetchall(), plain.execute(sql).fetchall()
    assert all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(ours, theirs, strict=True))


def test_a_float_takes_four_bytes(db: Database) -> None:
    widths = {column.name: column.page_row_bits for column in db.table("t").schema}
    assert {name: widths[name] for name in ("s", "x32", "k", "x")} == {"s": 33, "x32": 33, "k": 65, "x": 65}


@pytest.mark.parametrize("type_", [pa.float64(), pa.float32()])
def test_nan_is_refused_only_as_a_key(tmp_path: Path, type_: pa.DataType) -> None:
    table = pa.table({"k": pa.array([0.5, math.nan], type_)})
    with opening.create(tmp_path / "db", limit=100) as db:
        with pytest.raises(BadRows) as refused:
            db.load("indexed", table, indexes=["k float:0:1:0.1 epsilon=1"], capacity=64)
        assert "NaN" in str(refused.value)
        assert refused.value.hint
        db.load("plain", table, capacity=64)
        assert db.sql("SELECT count(*) FROM plain WHERE k = 'nan'::DOUBLE").fetchall() == [(1,)]
