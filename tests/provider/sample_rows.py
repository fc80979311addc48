"""Rows for tests of the service, and what DuckDB answers for them."""

import math
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa

import scumble

__all__ = ["OPTIONS", "QUERIES", "answer", "answers_right", "batch", "is_right", "loaded"]

BATCH_ROWS = 150
OPTIONS: dict[str, Any] = {
    "indexes": ["k int:0:99 epsilon=0.01"],
    "types": {"name": "text(8)"},
    "capacity": 160,
    "page_rows": 16,
}
QUERIES = (
    "SELECT count(*), sum(v), min(v), max(v) FROM t WHERE k BETWEEN 10 AND 30",
    "SELECT k, v, name FROM t WHERE k = 17 ORDER BY v, name",
    "SELECT name, count(*), sum(v) FROM t WHERE k < 50 GROUP BY name ORDER BY name",
    "SELECT count(*), avg(v) FROM t",
)


def batch(number: int, rows: int = BATCH_ROWS) -> pa.Table:
    places = range(number * rows, (number + 1) * rows)
    return pa.table(
        {
            "k": pa.array([(37 * i + number) % 100 for i in places], pa.int32()),
            "v": pa.array([None if i % 10 == 0 else i * i for i in places], pa.int64()),
            "name": pa.array([f"name {i % 7}" for i in places]),
        }
    )


def loaded(database: scumble.Database, number: int = 0) -> None:
    database.load("t", batch(number), **OPTIONS)


def answer(query: str, batches: Sequence[int]) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.register("t", pa.concat_tables([batch(number) for number in batches]))
        return connection.execute(query).fetchall()


def is_right(found: Sequence[Sequence[Any]], wanted: Sequence[Sequence[Any]]) -> bool:
    """Whether two answers are the same, but for the last bits of floats."""
    return len(found) == len(wanted) and all(
        len(ours) == len(theirs) and all(map(_same, ours, theirs)) for ours, theirs in zip(found, wanted, strict=True)
    )


def answers_right(
    database: scumble.Database, batches: Sequence[int] = (0,), queries: Sequence[str] = QUERIES[:1]
) -> bool:
    """Whether a database answers as DuckDB does for these batches."""
    found = [database.sql(query).fetchall() for query in queries]
    return all(is_right(each, answer(query, batches)) for each, query in zip(found, queries, strict=True))


def _same(ours: object, theirs: object) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-12)
    return ours == theirs
