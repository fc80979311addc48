"""How long the enclave takes, attacked: two tables with the same public parameters and very different rows come in.

In the manner of dudect (Reparaz, Balasch and Verbauwhede, 2017): the same query is put to both in random order many
times, what lies above a percentile is cropped, and Welch's t says whether the times differ. The clock stands where the
provider's does, from a request's arrival to its answer. docs/verification.md says what of time is promised, and what is
not.
"""

import gc
import math
import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, variance
from time import perf_counter, perf_counter_ns
from typing import Any
from unittest import mock

import numpy as np

from scumble import embedded
from scumble.enclave import execute
from scumble.enclave.build import Load
from scumble.enclave.session import TrustedEnclave
from scumble.owner.database import Database
from verify.row import Row

__all__ = ["rows", "welch"]

ROWS = 30_000
CAPACITY = 32_768
PAGE_ROWS = 1024
CROPPED = 0.5  # the slower half: whatever the machine did meanwhile
THRESHOLD = 5.0  # |t| beyond
# A smaller share of the time shows for the same rows in two databases as well, up to 0.3 % with |t| up to 15: it is
# where they lie in memory.
SMALLEST = 0.005
TYPES = {"c": 'category(["blue","green","red"])', "k": "integer not null", "v": "integer", "f": "double"}
QUERIES = {
    "aggregates": "SELECT count(*), sum(v), min(v), max(v), avg(f), stddev(v), sum(v * (100 - k)) FROM t"
    " WHERE v > 5000 AND c <> 'blue'",
    "groups": "SELECT c, count(v), sum(v), max(k), avg(f) FROM t WHERE v BETWEEN 1 AND 9000 GROUP BY c",
    "a range": "SELECT count(*), sum(v) FROM t WHERE k BETWEEN 300 AND 600 AND v > 5000",
    "rows": "SELECT k, v, f FROM t WHERE k BETWEEN 300 AND 330 AND v > 5000",
}
PLANTED = "skipped batches"


def rows(seconds: float) -> Iterator[Row]:
    """A row for all queries; the time is shared among them and the planted defect."""
    memory = Path("/dev/shm")  # noqa: S108
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name,
        ExitStack() as opened,
    ):
        databases = [opened.enter_context(database) for database in _databases(Path(name))]
        share = max(seconds / (len(QUERIES) + 1), 1)
        found = {what: _compared(databases, query, share) for what, query in QUERIES.items()}
        with mock.patch.object(execute, "_batches", _skipping(execute._batches)):
            t, difference = _compared(databases, QUERIES["aggregates"], min(share, 5))
    figures = [f"{what} t = {t:+.1f} ({share:+.2%})" for what, (t, share) in found.items()]
    yield Row(
        "the time of an answer does not tell two tables apart",
        "Welch's t, cropped, interleaved",
        ", ".join(figures),
        not any(map(_seen, found.values())),
        (PLANTED,),
        (PLANTED,) if _seen((t, difference)) else (),
    )


def welch(one: list[float], two: list[float]) -> tuple[float, float]:
    """Welch's t of two samples without their slowest, and the difference of their means as a share."""
    limit = sorted(one + two)[int((1 - CROPPED) * (len(one) + len(two)))]
    one, two = [value for value in one if value < limit], [value for value in two if value < limit]
    if min(len(one), len(two)) < 2:  # all of one lies above nearly all of the other
        return math.inf, math.inf
    difference = fmean(two) - fmean(one)
    spread = math.sqrt(variance(one) / len(one) + variance(two) / len(two))
    return difference / spread if spread else 0.0, difference / fmean(one)


def _seen(found: tuple[float, float]) -> bool:
    return abs(found[0]) > THRESHOLD and abs(found[1]) > SMALLEST


def _compared(databases: list[Database], query: str, seconds: float) -> tuple[float, float]:
    """Put a query to both in random order for so long; how their times differ."""
    times: list[list[float]] = [[], []]
    spent: list[float] = []
    request = TrustedEnclave.request

    def clocked(self: TrustedEnclave, session: int, sealed: bytes | memoryview) -> bytes:
        start = perf_counter_ns()
        answer = request(self, session, sealed)
        spent.append(perf_counter_ns() - start)
        return answer

    with mock.patch.object(TrustedEnclave, "request", clocked):
        for database in databases * 3:
            database.sql(query).fetchall()
        gc.collect()
        gc.disable()
        end = perf_counter() + seconds
        order = [0, 1]
        while perf_counter() < end:
            random.shuffle(order)
            for which in order:
                spent.clear()
                databases[which].sql(query).fetchall()
                times[which].append(sum(spent))
        gc.enable()
    return welch(*times)


def _skipping(batches: Any) -> Any:
    def skipping(*given: Any) -> Iterator[Any]:
        return (batch for batch in batches(*given) if batch.mask.any())

    return skipping


def _databases(folder: Path) -> Iterator[Database]:
    """Two databases whose catalogs agree in all that is public: the second is given the first one's indexes."""
    kept: list[Any] = []
    learn = Load._learn

    def learned(self: Load, order: Any, key_word: int) -> Any:
        model = learn(self, order, key_word)
        kept.append(model)
        return kept[0]

    for number, table in enumerate(_tables()):
        own = folder / str(number)
        own.mkdir()
        database = embedded.create(own / "db", limit=100)
        with mock.patch.object(Load, "_learn", learned):
            options: dict[str, Any] = {"types": TYPES, "page_rows": PAGE_ROWS, "capacity": CAPACITY}
            database.load("t", table, indexes=["k int:0:1023 epsilon=1"], **options)
        yield database


def _tables() -> Iterator[Any]:
    """One with many values, of which half match; one whose few rows are all alike, and none matches."""
    import pyarrow as pa

    rng = np.random.default_rng(5)
    colours = np.array(["red", "green", "blue"])
    yield pa.table(
        {
            "k": pa.array(rng.integers(0, 1024, ROWS), pa.int32()),
            "v": pa.array(rng.integers(0, 10_000, ROWS), pa.int64(), mask=rng.random(ROWS) < 0.1),
            "c": pa.array(colours[rng.integers(0, 3, ROWS)]),
            "f": pa.array(rng.normal(size=ROWS)),
        }
    )
    few = ROWS // 10
    yield pa.table(
        {
            "k": pa.array(np.full(few, 7), pa.int32()),
            "v": pa.array(np.zeros(few, np.int64)),
            "c": pa.array(["blue"] * few),
            "f": pa.array(np.zeros(few)),
        }
    )
