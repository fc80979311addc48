"""Figure 6 of the database: Epsolute's setting. Rows of 4 KiB, half a percent of them asked for, and rows come back.

Epsolute (Bogatov et al., CCS 2021) published for a million such rows: 18 times faster than a linear scan, 8.7 times
slower than MySQL. Ours is printed against our own scan, and against PostgreSQL with the same rows in clear.

    python -m benchmarks.database.wide_rows 1000000     so many rows: needs 20 GB of disk and some minutes
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import scumble
from benchmarks.database import postgres
from benchmarks.database.clock import shown, side_by_side
from benchmarks.database.tables import asking
from benchmarks.figure import Figure, Size, say

__all__ = ["main", "measure", "measure_rows"]

SIZES: dict[Size, dict[str, int]] = {
    "full": {"rows": 10**5, "rounds": 9},
    "quick": {"rows": 10**4, "rounds": 3},
    "tiny": {"rows": 500, "rounds": 1},
}
TEXT_BYTES = 4080  # with eight for its length and eight for the key: 4,096
SHARE = 0.005
KEYS = 1 << 20
PAGE_ROWS = 32
BATCH_ROWS = 2_000
QUERY = "SELECT k, v FROM t WHERE k BETWEEN {} AND {}"
FASTER_THAN_SCAN, SLOWER_THAN_MYSQL = 18, 8.7


def measure(size: Size) -> Figure:
    """Ours, our scan, PostgreSQL."""
    return measure_rows(**SIZES[size])


def measure_rows(rows: int, rounds: int) -> Figure:
    """The same at any size."""
    figure = Figure("database.wide_rows")
    ranges = _ranges(rows, rounds)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="scumble-bench-"))
        database = stack.enter_context(scumble.create(Path(folder) / "db", limit=1))
        say(f"database.wide_rows: loading {rows:,} rows")
        start = perf_counter()
        _load(database, rows)
        figure.values["load_seconds"] = perf_counter() - start
        # `same` has no index: every page is read, for the same rows.
        scan = asking(database, QUERY.replace("WHERE k", "WHERE same"))
        asks: dict[str, Any] = {"Scumble": asking(database, QUERY)}
        programs = postgres.find_postgres()
        if programs is not None:
            connection = stack.enter_context(postgres.running(programs, "1GB" if rows <= 10**5 else "8GB"))
            columns = f"k bigint NOT NULL, same bigint NOT NULL, v varchar({TEXT_BYTES}) NOT NULL"
            postgres.fill(connection, "t", _Batches(rows), columns, "k", plain="v")
            cursor = connection.cursor()
            query = QUERY.format("%s::bigint", "%s::bigint")
            asks["PostgreSQL"] = lambda low, high: cursor.execute(query, (low, high), prepare=True).fetchall()
        found = [sorted(ask(*ranges[0])) for ask in (*asks.values(), scan)]
        assert all(one == found[0] for one in found), "the databases differ"
        say("database.wide_rows: queries")
        times = side_by_side(asks, ranges, rounds, 3)
        times |= side_by_side({"scan": scan}, ranges, max(1, rounds // 3), 1)
    figure.values |= {"rows": rows, "answer_rows": len(found[0]), "page_rows": PAGE_ROWS, "seconds": times}
    ours, faster = times["Scumble"], times["scan"] / times["Scumble"]
    claim = f"{len(found[0]):,} of {rows:,} rows of 4 KiB: "
    text = f"{shown(times['scan'])} / {shown(ours)} = {faster:.0f}"
    published = f"≥ {FASTER_THAN_SCAN} (Epsolute)"
    figure.add(claim + "full oblivious scan / Scumble", text, published, faster >= FASTER_THAN_SCAN)
    if "PostgreSQL" in times:
        slower = ours / times["PostgreSQL"]
        text = f"{shown(ours)} / {shown(times['PostgreSQL'])} = {slower:.1f}"
        published = f"≤ {SLOWER_THAN_MYSQL} (Epsolute, to MySQL)"
        figure.add(claim + "Scumble / PostgreSQL", text, published, slower <= SLOWER_THAN_MYSQL)
    else:
        figure.add(claim + "Scumble / PostgreSQL", postgres.HOW_TO_INSTALL)
    return figure


def _load(database: scumble.Database, rows: int) -> None:
    import pyarrow as pa

    batches = _Batches(rows)
    database.load(
        "t",
        pa.RecordBatchReader.from_batches(batches.schema, batches.to_batches()),
        indexes=[f"k int:0:{KEYS - 1} epsilon=1"],
        capacity=rows + PAGE_ROWS,
        page_rows=PAGE_ROWS,
        types={"v": f"text({TEXT_BYTES}) not null"},
    )


class _Batches:
    """The rows, made up batch by batch, the same each time. `same` is the key once more, and has no index."""

    def __init__(self, rows: int) -> None:
        import pyarrow as pa

        self.rows = rows
        kinds = (("k", pa.int64()), ("same", pa.int64()), ("v", pa.string()))
        self.schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds])

    def to_batches(self, max_chunksize: int = 0) -> Iterator[Any]:
        """In batches of a size of its own: a batch is what is in memory."""
        import pyarrow as pa

        letters = np.random.default_rng(5).integers(ord("a"), ord("z") + 1, TEXT_BYTES * 64, np.uint8)
        keys = _keys(self.rows)
        for start in range(0, self.rows, BATCH_ROWS):
            chosen = keys[start : start + BATCH_ROWS]
            texts = [letters[key % 4000 * 60 :][:TEXT_BYTES].tobytes().decode() for key in chosen]
            numbers = pa.array(chosen, pa.int64())
            yield pa.record_batch([numbers, numbers, pa.array(texts, pa.string())], schema=self.schema)


def _keys(rows: int) -> Any:
    return np.random.default_rng(4).integers(0, KEYS, rows)


def _ranges(rows: int, count: int) -> list[tuple[int, int]]:
    keys, wanted = np.sort(_keys(rows)), max(1, int(SHARE * rows))
    starts = np.random.default_rng(6).integers(0, rows - wanted, count)
    return [(int(keys[start]), int(keys[start + wanted - 1])) for start in starts]


def main() -> None:
    """The full size, or another."""
    for line in measure_rows(int(sys.argv[1]), SIZES["full"]["rounds"]).lines:
        print(f"{line.claim:<72} {line.measured:<28} {line.target}")


if __name__ == "__main__":
    main()
