"""Figure 9 of the database: what changes cost, and what is left of them after compaction.

Batches that were loaded one by one are asked before and after they are merged, beside one load of the same rows; rows
are deleted and updated beside a full oblivious scan of the same condition; rows are inserted beside SQLite, which waits
for the same disk; a stream of batches is inserted with the automatic merges behind it; heartbeats, as a stream sends
them, are flushed and compacted; and lookups go on while another process merges. All databases lie on disk.
"""

import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import scumble
from benchmarks.database.clock import shown
from benchmarks.figure import Figure, Size, say, seconds
from scumble.owner.inserting import UNIT_ROWS

__all__ = ["measure"]

SIZES: dict[Size, dict[str, int]] = {
    "full": {"rows": 10**6, "batches": 50, "repeats": 7, "inserts": 40, "stream": 100, "heartbeats": 1000, "alone": 5},
    "quick": {"rows": 10**6, "batches": 50, "repeats": 3, "inserts": 20, "stream": 30, "heartbeats": 200, "alone": 2},
    "tiny": {"rows": 2_000, "batches": 2, "repeats": 1, "inserts": 2, "stream": 2, "heartbeats": 3, "alone": 0},
}
KEYS = 1 << 16
BATCH_ROWS = 2_000
STREAM_ROWS = 10_000
INDEX = f"id int:0:{KEYS - 1} epsilon=1"
SECOND = "k int:0:999 epsilon=1"
ASKED = "SELECT count(*), sum(a) FROM t WHERE id BETWEEN ? AND ?"
LOOKUPS = 100
MOST_MERGED, MOST_AUTOMATIC = 1.3, 3.0
MOST_CHANGE = 4.0
MOST_INSERT = {1: 5.0, 1000: 3.0}
LEAST_ROWS_PER_SECOND = 200_000
FLUSHED_BEATS = 100
MOST_AFTER_A_DAY = 2.0
MERGED_RUNS = 8
MOST_BESIDE = 2.0


def measure(size: Size) -> Figure:
    """Merges, changes, inserts and a stream."""
    terms, figure = SIZES[size], Figure("database.changes")
    _merges(figure, terms)
    _rewrites(figure, terms)
    _inserts(figure, terms)
    _stream(figure, terms)
    _heartbeats(figure, terms)
    _beside_compaction(figure, terms)
    return figure


@contextmanager
def _database() -> Iterator[scumble.Database]:
    with (
        tempfile.TemporaryDirectory(prefix="scumble-bench-") as folder,
        scumble.create(Path(folder) / "db", limit=100) as database,
    ):
        yield database


def _rows(random: np.random.Generator, count: int) -> Any:
    import pyarrow as pa

    columns = {"id": KEYS, "k": 1000, "a": 1000, "b": 1000}
    schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in columns])
    return pa.table([random.integers(0, most, count) for most in columns.values()], schema=schema)


def _merges(figure: Figure, terms: dict[str, int]) -> None:
    """Batches with an index each, then merged, beside one load."""
    import pyarrow as pa

    say("database.changes: batches, and their merge")
    random = np.random.default_rng(1)
    batches = [_rows(random, BATCH_ROWS) for _ in range(terms["batches"])]
    loading: dict[str, Any] = {"indexes": [INDEX], "new_rows": True, "capacity": BATCH_ROWS}
    with _database() as plain, _database() as automatic, _database() as one:
        plain.automatic = False
        for batch in batches:
            plain.load("t", batch, **loading)
            automatic.load("t", batch, **loading)
        one.load("t", pa.concat_tables(batches), indexes=[INDEX], capacity=BATCH_ROWS * len(batches))
        base = _asked(one, terms)
        found = {"as they are": _asked(plain, terms), "merged automatically": _asked(automatic, terms)}
        spent = plain.ledger.spent()
        merging = seconds(lambda: plain.compact("t"), 1)
        found["compacted"] = _asked(plain, terms)
        assert plain.ledger.spent() == spent, "a merge has spent epsilon"
        asked = f"{terms['batches']} batches of {BATCH_ROWS:,}"
        figure.values["batches"] = {"one load": base, **found, "merging": merging}
        for name, most in (("as they are", None), ("merged automatically", MOST_AUTOMATIC), ("compacted", MOST_MERGED)):
            ratio = found[name] / base
            text = f"{shown(found[name])} / {shown(base)} = {ratio:.2f}"
            claim = f"aggregate over {asked}, {name} / one load"
            figure.add(claim, text, "" if most is None else f"≤ {most}", None if most is None else ratio <= most)


def _asked(database: scumble.Database, terms: dict[str, int]) -> float:
    """The seconds of a lookup."""
    query = database.prepare(ASKED)
    keys = np.random.default_rng(5).integers(0, KEYS, LOOKUPS).tolist()
    return seconds(lambda: [query.execute([key, key + 20]) for key in keys], terms["repeats"]) / LOOKUPS


def _rewrites(figure: Figure, terms: dict[str, int]) -> None:
    """A DELETE and an UPDATE by an unindexed column and by an indexed one, beside a scan of the condition's column."""
    say("database.changes: DELETE and UPDATE")
    with _database() as database:
        rows = terms["rows"]
        database.load("t", _rows(np.random.default_rng(2), rows), indexes=[INDEX, SECOND], capacity=rows)
        scan = seconds(lambda: database.sql("SELECT count(*) FROM t WHERE a = 5").fetchall(), 2 * terms["repeats"])
        changes = {
            "DELETE by an unindexed column": "DELETE FROM t WHERE a = 3",
            "UPDATE by an unindexed column": "UPDATE t SET b = 7 WHERE a = 5",
            "DELETE by an indexed column": "DELETE FROM t WHERE id = 77",
            "UPDATE by an indexed column": "UPDATE t SET b = 7 WHERE id = 78",
        }
        for name, statement in changes.items():
            with database.transaction():  # without what a commit waits for the disk
                taken = seconds(_executing(database, statement), terms["repeats"])
            durable = seconds(_executing(database, statement), terms["repeats"])
            figure.values[name] = {"seconds": taken, "durable": durable, "scan": scan}
            text = f"{shown(taken)} / {shown(scan)} = {taken / scan:.1f}; committed {shown(durable)}"
            claim = f"{name}, {rows:,} rows, two indexes / full scan of the column"
            figure.add(claim, text, f"≤ {MOST_CHANGE:g}", taken / scan <= MOST_CHANGE)
        floor = "each of two copies: one column decided by; for an UPDATE, one read and one sealed, too"
        figure.add("    columns that pass through the cipher: DELETE at least 2, UPDATE at least 6", floor)


def _executing(database: scumble.Database, statement: str) -> Callable[[], object]:
    return lambda: database.execute(statement)


def _heartbeats(figure: Figure, terms: dict[str, int]) -> None:
    """Units that are half full at best, as a stream sends them; then flushed and compacted, beside one load."""
    import pyarrow as pa

    say("database.changes: heartbeats")
    random, count = np.random.default_rng(6), terms["heartbeats"]
    beats = [_rows(random, int(rows)) for rows in random.integers(0, UNIT_ROWS, count)]
    with _database() as database, _database() as one:
        whole = pa.concat_tables(beats)
        database.load("t", beats[0].slice(0, 1), indexes=[INDEX], capacity=1)
        for number, beat in enumerate(beats, 1):
            database.insert("t", beat, capacity=UNIT_ROWS)
            if number % FLUSHED_BEATS == 0 or number == count:
                database.flush("t", new_rows=True)
        database.compact("t")
        one.load("t", whole, indexes=[INDEX], capacity=whole.num_rows)
        stored = [_stored(each) for each in (database, one)]
        read = [sum(t.bytes_read for t in db.explain(ASKED, [5000, 5020]).tables) for db in (database, one)]
        times = [_asked(db, terms) for db in (database, one)]
        database.execute("REINDEX t WITH (epsilon = 1, capacity_epsilon = 0.1)")
        paid = _stored(database)
    figure.values["heartbeats"] = {"stored": stored, "read": read, "seconds": times, "reindexed": paid}
    what = f"after {count:,} heartbeats of {UNIT_ROWS} rows, half of them dummies, compacted / one load"
    for name, (ours, theirs) in (("bytes stored", stored), ("bytes read by a lookup", read)):
        text = f"{ours:,} / {theirs:,} = {ours / theirs:.2f}"
        figure.add(f"{name} {what}", text, f"≤ {MOST_AFTER_A_DAY:g}", ours / theirs <= MOST_AFTER_A_DAY)
    text = f"{paid:,} / {stored[1]:,} = {paid / stored[1]:.2f}"
    figure.add("    the bytes stored after a REINDEX with a capacity of its own", text)


def _stored(database: scumble.Database) -> int:
    table = database.table("t")
    return sum(map(table.run_bytes, table.runs))


def _beside_compaction(figure: Figure, terms: dict[str, int]) -> None:
    """Lookups of one client while another process merges the same table."""
    say("database.changes: lookups while another process merges")
    random = np.random.default_rng(7)
    with tempfile.TemporaryDirectory(prefix="scumble-bench-") as folder:
        place = Path(folder) / "db"
        with scumble.create(place, limit=100) as database:
            database.automatic = False
            for _ in range(MERGED_RUNS):
                rows = terms["rows"] // MERGED_RUNS
                database.load("t", _rows(random, rows), indexes=[INDEX], capacity=rows, new_rows=True)
            query = database.prepare(ASKED)
            until = perf_counter() + terms["alone"]
            alone = _percentile(query, lambda: perf_counter() < until)
            script = f"import scumble; scumble.open({str(place)!r}).compact('t')"
            merging = subprocess.Popen([sys.executable, "-c", script])
            beside = _percentile(query, lambda: merging.poll() is None)
    figure.values["beside a merge"] = {"alone": alone, "beside": beside}
    text = f"{shown(beside)} / {shown(alone)} = {beside / alone:.1f}"
    claim = f"lookup while {MERGED_RUNS} runs of the table are merged, 99th percentile / alone"
    figure.add(claim, text, f"≤ {MOST_BESIDE:g}", beside / alone <= MOST_BESIDE)


def _percentile(query: Any, goes_on: Callable[[], bool]) -> float:
    taken: list[float] = []
    keys = iter(np.random.default_rng(8).integers(0, KEYS, 10**6).tolist())
    while goes_on() or len(taken) < LOOKUPS:
        key, start = next(keys), perf_counter()
        query.execute([key, key + 20])
        taken.append(perf_counter() - start)
    return sorted(taken)[len(taken) * 99 // 100]


def _inserts(figure: Figure, terms: dict[str, int]) -> None:
    """INSERT beside SQLite with synchronous=FULL, on the same disk."""
    say("database.changes: INSERT")
    random = np.random.default_rng(3)
    with _database() as database, tempfile.TemporaryDirectory(prefix="scumble-bench-") as folder:
        database.load("t", _rows(random, 1000), capacity=1000)
        other = sqlite3.connect(Path(folder) / "sqlite.db")
        other.execute("PRAGMA synchronous = FULL")
        other.execute("CREATE TABLE t (id INTEGER, k INTEGER, a INTEGER, b INTEGER)")
        for count, most in MOST_INSERT.items():
            batch = _rows(random, count)
            tuples = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))

            def theirs(rows: list[tuple[Any, ...]] = tuples) -> None:
                other.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
                other.commit()

            def ours(rows: Any = batch) -> None:
                database.insert("t", rows)

            taken, base = _median(ours, terms["inserts"]), _median(theirs, terms["inserts"])
            figure.values[f"insert {count}"] = {"seconds": taken, "sqlite": base}
            text = f"{shown(taken)} / {shown(base)} = {taken / base:.1f}"
            claim = f"INSERT of {count:,} rows, durable, median / SQLite (synchronous=FULL)"
            figure.add(claim, text, f"≤ {most:g}", taken / base <= most)
        other.close()


def _median(work: Callable[[], None], times: int) -> float:
    taken = sorted(seconds(work, 1) for _ in range(times))
    return taken[len(taken) // 2]


def _stream(figure: Figure, terms: dict[str, int]) -> None:
    """Batches inserted one after the other, with the merges that become due on the way."""
    say("database.changes: a stream of inserts")
    random = np.random.default_rng(4)
    batch, count = _rows(random, STREAM_ROWS), terms["stream"]
    with _database() as database:
        database.load("t", _rows(random, 1000), capacity=1000)
        start = perf_counter()
        for _ in range(count):
            database.insert("t", batch)
        rate = count * STREAM_ROWS / (perf_counter() - start)
    figure.values["stream"] = {"rows_per_second": rate}
    claim = f"stream: {count} durable batches of {STREAM_ROWS:,} rows, merged by size"
    figure.add(claim, f"{rate:,.0f} rows a second", f"≥ {LEAST_ROWS_PER_SECOND:,}", rate >= LEAST_ROWS_PER_SECOND)
