"""Figure 5 of the database: how fast a table is loaded on one core, and that memory stays within its setting.

For memory the rows come as a stream of batches, made up as they are asked for, and what counts is the peak of
a process of its own, less what the process had needed before the load.
"""

import json
import resource
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path
from typing import Any

import scumble
from benchmarks.database.tables import COLUMNS, INDEX, SPARE_ROWS, integers, reader
from benchmarks.figure import Figure, Size, one_core, say, seconds

__all__ = ["main", "measure"]

SIZES: dict[Size, dict[str, Any]] = {
    "full": {"rows": 10**6, "repeats": 5, "large": 10**7},
    "quick": {"rows": 10**6, "repeats": 2, "large": 2 * 10**6},
    "tiny": {"rows": 10**4, "repeats": 1, "large": 2 * 10**4},
}
MEMORY_BYTES = 256 << 20
LEAST_ROWS_A_SECOND = 300_000
ROW_BYTES = 8 * (COLUMNS + 1)  # with the rank that it is sorted by


def measure(size: Size) -> Figure:
    """Rows a second, then bytes."""
    terms = SIZES[size]
    figure = Figure("database.load")
    say(f"database.load: {terms['rows']:,} rows, {terms['repeats']} times")
    table = integers(terms["rows"])
    with one_core():
        spent = seconds(lambda: _load(table, terms["rows"]), terms["repeats"])
    rate = terms["rows"] / spent
    figure.values["speed"] = {"rows": terms["rows"], "seconds": spent, "rows_per_second": rate}
    claim = f"load of {terms['rows']:,} rows of {COLUMNS} bigint columns, one index, one core"
    target = f"≥ {LEAST_ROWS_A_SECOND:,}"
    figure.add(claim, f"{rate:,.0f} rows/s ({spent:.1f} s)", target, rate >= LEAST_ROWS_A_SECOND)
    say(f"database.load: peak memory of a load of {terms['large']:,} rows")
    command = [sys.executable, "-m", "benchmarks.database.load", str(terms["large"])]
    peak = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    figure.values["memory"] = peak
    data = terms["large"] * ROW_BYTES
    own = peak["peak_bytes"] - peak["before_bytes"]
    figure.add(
        f"memory of a load of {terms['large']:,} rows ({data / 2**20:,.0f} MiB), memory_bytes = 256 MiB",
        f"{own / 2**20:,.0f} MiB over the process's {peak['before_bytes'] / 2**20:,.0f}",
        "≤ 1.5 x 256 MiB",
        own <= 1.5 * MEMORY_BYTES,
    )
    figure.add(f"that load of {terms['large']:,} rows", f"{terms['large'] / peak['seconds']:,.0f} rows/s")
    return figure


def _load(source: Any, rows: int, memory_bytes: int = 2 << 30) -> None:
    options = scumble.LoadOptions(capacity=rows + SPARE_ROWS, memory_bytes=memory_bytes)
    with (
        tempfile.TemporaryDirectory(prefix="scumble-bench-") as folder,
        scumble.create(Path(folder) / "db", limit=1) as database,
    ):
        database.load("t", source, indexes=[INDEX], options=options)


def main() -> None:
    """The process of its own."""
    rows = int(sys.argv[1])
    _load(reader(1000), 1000, MEMORY_BYTES)  # so that everything is imported
    deque(reader(200_000), maxlen=1)
    before = _peak_bytes()
    spent = seconds(lambda: _load(reader(rows), rows, MEMORY_BYTES), repeats=1)
    print(json.dumps({"rows": rows, "before_bytes": before, "peak_bytes": _peak_bytes(), "seconds": spent}))


def _peak_bytes() -> int:
    # On Linux `getrusage` would count what the parent process had when it started this one.
    status = Path("/proc/self/status")
    if status.exists():
        (peak,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


if __name__ == "__main__":
    main()
