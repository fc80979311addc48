"""Rows through the gateway: how fast ADBC's Flight SQL driver gets a large result, against a bare Flight server.

The yardstick is the same Arrow table, in memory, served by a pyarrow.flight server that does nothing else, and fetched
by the same driver in the same run. The gateway is timed twice: for fetching the rows alone, and for the whole
query, in which the enclave reads, opens and tests every page of the table.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import scumble
from benchmarks.database.tables import COLUMNS, INDEX, SPARE_ROWS, reader
from benchmarks.figure import Figure, Size, say

__all__ = ["measure"]

SIZES: dict[Size, dict[str, Any]] = {
    "full": {"rows": 4 * 10**6, "rounds": 5},
    "quick": {"rows": 10**6, "rounds": 3},
    "tiny": {"rows": 2_000, "rounds": 1},
}
QUERY = "SELECT * FROM t"
LEAST_MB_PER_SECOND = 200
SERVER = """
import sys
from pyarrow import flight
from benchmarks.database.tables import integers
from scumble.gateway.messages import new, packed

class Bare(flight.FlightServerBase):
    def get_flight_info(self, context, descriptor):
        if b"CommandGetSqlInfo" in descriptor.command:
            raise flight.FlightServerError("it knows nothing of itself")
        endpoint = flight.FlightEndpoint(packed(new("TicketStatementQuery", statement_handle=b"all")), [])
        return flight.FlightInfo(table.schema, descriptor, [endpoint])

    def do_get(self, context, ticket):
        return flight.RecordBatchStream(table)

table = integers(int(sys.argv[1]))
server = Bare("grpc://127.0.0.1:0")
print(f"listening at grpc://127.0.0.1:{server.port} for t", flush=True)
server.serve()
"""


def measure(size: Size) -> Figure:
    """Time the gateway and the bare server in turns; the best round of each counts."""
    rows, rounds = SIZES[size]["rows"], SIZES[size]["rounds"]
    size_bytes = 8 * COLUMNS * rows
    figure = Figure("gateway")
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="scumble-bench-") as folder:
        say(f"gateway: {rows:,} rows, {size_bytes / 1e6:,.0f} MB")
        config, token = _prepared(Path(folder), rows)
        bare = [sys.executable, "-c", SERVER, str(rows)]
        with _server(bare) as yardstick, _server([sys.executable, "-m", "scumble.cli", "gateway", config]) as address:
            for _ in range(rounds):
                turns = {"bare": _fetched(yardstick, "", rows), "gateway": _fetched(address, token, rows)}
                for name, times in turns.items():
                    for part, seconds in times.items():
                        key = f"{name} {part}"
                        best[key] = min(best.get(key, seconds), seconds)
    rates = {name: size_bytes / 1e6 / seconds for name, seconds in best.items()}
    figure.values |= {"rows": rows, "bytes": size_bytes, "seconds": best, "mb_per_second": rates}
    rate, yard = rates["gateway fetch"], rates["bare fetch"]
    claim = f"gateway: rows fetched through ADBC, {size_bytes / 1e6:,.0f} MB"
    figure.add(claim, f"{rate:,.0f} MB/s", f"≥ {LEAST_MB_PER_SECOND} MB/s", rate >= LEAST_MB_PER_SECOND)
    figure.add("    against a bare Flight server", f"{rate:,.0f} / {yard:,.0f} MB/s = {rate / yard:.2f}")
    whole = rates["gateway query"]
    claim = "    the whole query, with the enclave's scan of all pages"
    figure.add(claim, f"{whole:,.0f} MB/s", f"≥ {LEAST_MB_PER_SECOND} MB/s", whole >= LEAST_MB_PER_SECOND)
    return figure


def _prepared(folder: Path, rows: int) -> tuple[str, str]:
    """A database and a configuration in a folder; the configuration's path, and a token."""
    with scumble.create(folder / "db", limit=10) as database:
        database.load("t", reader(rows), indexes=[INDEX], capacity=rows + SPARE_ROWS)
    made = subprocess.run(
        [sys.executable, "-m", "scumble.cli", "gateway", "--new-token", "bench", "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    token = json.loads(made.stdout)
    config = folder / "gateway.toml"
    config.write_text(
        f'listen = "127.0.0.1:0"\n[tokens]\n{token["line"]}\n[databases.db]\ntarget = "db"\n'
        f"[limits]\nresult_bytes = {1 << 32}\n"
    )
    return str(config), token["token"]


@contextmanager
def _server(command: list[str]) -> Iterator[str]:
    """A server in a process of its own; its address."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=_paths()
    ) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split()[2]
        finally:
            server.terminate()


def _paths() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _fetched(address: str, token: str, rows: int) -> dict[str, float]:
    """Seconds of the rows' way through the driver, and of the query with it."""
    from adbc_driver_flightsql import DatabaseOptions, dbapi

    options = {DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {token}"}
    with dbapi.connect(address, db_kwargs=options, autocommit=True) as connection, connection.cursor() as cursor:
        begun = perf_counter()
        partitions, _ = cursor.adbc_execute_partitions(QUERY)
        executed = perf_counter()
        cursor.adbc_read_partition(partitions[0])
        found = sum(len(batch) for batch in cursor.fetch_record_batch())
        ended = perf_counter()
    assert found == rows, "rows were lost on the way"
    return {"fetch": ended - executed, "query": ended - begun}
