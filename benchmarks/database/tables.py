"""The benchmarks' tables, of any number of rows, and databases that hold them.

Rows are made up, and the same for the same number. A database is made once in a run and kept until its end: figures
share them, and what they measure does not change them.
"""

import atexit
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import scumble
from scumble.owner.loading import PAGE_ROWS

__all__ = ["COLUMNS", "KEYS", "Loaded", "absent_keys", "asking", "bounds", "integers", "keys_of", "loaded", "reader"]

COLUMNS = 8
KEYS = 1 << 20
"""The key column's domain: 0 to KEYS - 1."""

BATCH_ROWS = 1 << 16
SPARE_ROWS = 1 << 10  # of capacity, which is public
INDEX = f"c0 int:0:{KEYS - 1} epsilon=1"


class Loaded(NamedTuple):
    """A database with one table `t` of so many rows, and how long the load took."""

    database: scumble.Database
    rows: int
    seconds: float


@cache
def loaded(rows: int, page_rows: int = PAGE_ROWS) -> Loaded:
    """A database with a table `t` of eight bigint columns, c0 indexed at epsilon 1."""
    database = _temporary_database()
    start = perf_counter()
    database.load("t", reader(rows), indexes=[INDEX], capacity=rows + SPARE_ROWS, page_rows=page_rows)
    return Loaded(database, rows, perf_counter() - start)


def asking(database: scumble.Database, query: str) -> Callable[..., list[tuple[Any, ...]]]:
    """A prepared query with two bounds, as a function of them."""
    prepared = database.prepare(query.format("?", "?"))
    return lambda low, high: prepared.execute((low, high)).fetchall()


def reader(rows: int) -> Any:
    """The rows as a stream: no more than a batch is in memory."""
    import pyarrow as pa

    schema = pa.schema([pa.field(f"c{place}", pa.int64(), nullable=False) for place in range(COLUMNS)])
    return pa.RecordBatchReader.from_batches(schema, _batches(rows, schema))


def integers(rows: int) -> Any:
    """The same rows as an Arrow table."""
    return reader(rows).read_all()


def keys_of(rows: int) -> Any:
    """The keys of these rows, sorted."""
    return np.sort(np.concatenate([batch.column(0).to_numpy() for batch in reader(rows)]))


def absent_keys(rows: int, count: int) -> list[tuple[int, int]]:
    """Ranges of one key that no row has, as far as there are any: else of the keys that the fewest have."""
    found = np.bincount(keys_of(rows), minlength=KEYS)
    least = np.flatnonzero(found == found.min())
    chosen = np.random.default_rng(2).choice(least, count)
    return [(int(key), int(key)) for key in chosen]


def bounds(rows: int, answer_rows: int, count: int) -> list[tuple[int, int]]:
    """Ranges of keys, anywhere, that about so many of these rows lie in: first and last key."""
    keys = keys_of(rows)
    starts = np.random.default_rng(3).integers(0, rows - max(answer_rows, 1) + 1, count)
    return [(int(keys[start]), int(keys[start + max(answer_rows, 1) - 1])) for start in starts]


def _batches(rows: int, schema: Any) -> Iterator[Any]:
    import pyarrow as pa

    random = np.random.default_rng(1)
    for start in range(0, rows, BATCH_ROWS):
        size = min(BATCH_ROWS, rows - start)
        yield pa.record_batch([pa.array(random.integers(0, KEYS, size)) for _ in range(COLUMNS)], schema=schema)


def _temporary_database() -> scumble.Database:
    folder = tempfile.TemporaryDirectory(prefix="scumble-bench-")
    atexit.register(folder.cleanup)
    database = scumble.create(Path(folder.name) / "db", limit=10)
    atexit.register(database.close)  # last registered, first called
    return database
