"""Figure 8 of the database: what narrow columns save, in bytes and in time, over the same rows in eight bytes a value.

The rows are made up after flights: nullable smallints, tinyints, and an indexed smallint. Both databases are asked in
turns. AES-256-GCM has a fixed price for a page, whatever its length, so that a narrow scan is also timed with pages of
as many bytes as those of eight-byte values have: of four times as many rows, as tables without an index have them.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import scumble
from benchmarks.database.clock import shown, side_by_side
from benchmarks.database.tables import asking
from benchmarks.figure import Figure, Size, say
from scumble.owner.loading import LONG_PAGE_ROWS, PAGE_ROWS

__all__ = ["measure"]

SIZES: dict[Size, dict[str, int]] = {
    "full": {"rows": 10**6, "rounds": 15},
    "quick": {"rows": 10**6, "rounds": 5},
    "tiny": {"rows": 2_000, "rounds": 1},
}
KEYS = 10_000
INDEX = f"flight int:0:{KEYS - 1} epsilon=1"
SPARE_ROWS = 1 << 10  # of capacity, which is public
TYPES = {
    "flight": "smallint not null",
    **dict.fromkeys(("dep_delay", "arr_delay", "air_time"), "smallint"),
    **dict.fromkeys(("month", "day"), "tinyint not null"),
}
WIDE = {name: declared.replace("smallint", "bigint").replace("tinyint", "bigint") for name, declared in TYPES.items()}
DATABASES: dict[str, tuple[dict[str, str], int]] = {
    "8 bytes": (WIDE, PAGE_ROWS),
    "narrow": (TYPES, PAGE_ROWS),
    "narrow, long pages": (TYPES, LONG_PAGE_ROWS),
}
SUMS = "SELECT count(*), sum(arr_delay), sum(air_time) FROM t WHERE "
SCANS = {
    "three nullable smallints": SUMS + "dep_delay BETWEEN {} AND {}",
    "two tinyints": "SELECT count(*), max(month) FROM t WHERE day BETWEEN {} AND {}",
}
POINTS = {
    "aggregates": SUMS + "flight BETWEEN {} AND {}",
    "whole rows": "SELECT * FROM t WHERE flight BETWEEN {} AND {}",
}
LEEWAY = 0.05
MOST_POINT_RATIO = 1.0
POINT_CALLS = 20


def measure(size: Size) -> Figure:
    """Scans and points of each database, beside those of the one with eight-byte values."""
    terms, figure = SIZES[size], Figure("database.widths")
    with ExitStack() as stack:
        databases = {name: stack.enter_context(_loaded(terms["rows"], *how)) for name, how in DATABASES.items()}
        for what, query in SCANS.items():
            say(f"database.widths: scans of {what}")
            asks = {name: asking(database, query) for name, database in databases.items()}
            assert len({str(ask(3, 9)) for ask in asks.values()}) == 1, "the databases differ"
            seconds = side_by_side(asks, [(3, 9)], terms["rounds"], 3)
            read = {name: db.explain(query.format(3, 9)).tables[0].bytes_read for name, db in databases.items()}
            figure.values[what] = {"seconds": seconds, "bytes": read}
            for name in list(databases)[1:]:
                _add_scan(figure, f"full scan, {what}: {name} / 8 bytes", name, seconds, read)
        keys = [(key, key) for key in np.random.default_rng(3).integers(0, KEYS, 200).tolist()]
        for what, query in POINTS.items():
            say(f"database.widths: points, {what}")
            asks = {name: asking(database, query) for name, database in databases.items()}
            seconds = side_by_side(asks, keys, terms["rounds"], POINT_CALLS)
            figure.values[f"points, {what}"] = {"seconds": seconds}
            for name in list(databases)[1:]:
                ratio = seconds[name] / seconds["8 bytes"]
                text = f"{shown(seconds[name])} / {shown(seconds['8 bytes'])} = {ratio:.2f}"
                claim = f"point by its index, {what}: {name} / 8 bytes"
                figure.add(claim, text, f"≤ {MOST_POINT_RATIO}", ratio <= MOST_POINT_RATIO)
    return figure


def _add_scan(figure: Figure, claim: str, name: str, seconds: dict[str, float], read: dict[str, int]) -> None:
    ratio, saved = seconds[name] / seconds["8 bytes"], read[name] / read["8 bytes"]
    text = f"{shown(seconds[name])} / {shown(seconds['8 bytes'])} = {ratio:.2f} for {saved:.2f} of the bytes"
    figure.add(claim, text, f"≤ {saved + LEEWAY:.2f}", ratio <= saved + LEEWAY)


@contextmanager
def _loaded(rows: int, types: dict[str, str], page_rows: int) -> Iterator[scumble.Database]:
    with (
        tempfile.TemporaryDirectory(prefix="scumble-bench-") as folder,
        scumble.create(Path(folder) / "db", limit=10) as database,
    ):
        terms: dict[str, Any] = {"capacity": rows + SPARE_ROWS, "page_rows": page_rows}
        database.load("t", _rows(rows), indexes=[INDEX], types=types, **terms)
        yield database


def _rows(count: int) -> Any:
    import pyarrow as pa

    random = np.random.default_rng(1)
    ranges = {"flight": (0, KEYS), "month": (1, 13), "day": (1, 32)}
    columns = {}
    for name, declared in TYPES.items():
        absent = None if "not null" in declared else random.random(count) < 0.03
        columns[name] = pa.array(random.integers(*ranges.get(name, (-50, 700)), count), mask=absent)
    return pa.table(columns)
