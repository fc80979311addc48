"""Figure 6: the time of a lookup, many at once and one at a time, and of `import scumble`."""

import subprocess
import sys
from statistics import median
from typing import Any

import numpy as np

from benchmarks.data import salaries
from benchmarks.figure import Figure, Size, budget, one_core, say, seconds
from scumble import DPPLRIndex, IntegerDomain

__all__ = ["import_seconds", "measure"]

SIZES: dict[Size, dict[str, Any]] = {
    "full": {"size": 2**20, "rows": 10**6, "segments": 500, "batch": 10**6, "single": 20_000, "imports": 5},
    "quick": {"size": 2**20, "rows": 10**6, "segments": 500, "batch": 10**6, "single": 5_000, "imports": 3},
    "tiny": {"size": 2**10, "rows": 10**5, "segments": 20, "batch": 1000, "single": 100, "imports": 1},
}
CLOCK = "from time import perf_counter as t; a = t(); import scumble; print(t() - a)"


def measure(size: Size) -> Figure:
    """Batch, scalar, import."""
    terms = SIZES[size]
    figure = Figure("lookup")
    say("lookup: batch and single")
    index = DPPLRIndex(max_segments=terms["segments"]).fit(
        salaries(terms["rows"], terms["size"]), domain=IntegerDomain(0, terms["size"] - 1), budget=budget()
    )
    keys = np.random.default_rng(1).integers(0, terms["size"], terms["batch"])
    singles = [int(key) for key in keys[: terms["single"]]]
    with one_core():
        points = seconds(lambda: index.lookup_many(keys), 5) / len(keys)
        ranges = seconds(lambda: index.lookup_many(keys, keys + 1000), 5) / len(keys)
        single = seconds(lambda: [index.lookup(key) for key in singles], 5) / len(singles)
    say("lookup: import scumble")
    started = import_seconds(terms["imports"])
    count = len(index.model.segments)
    figure.add(f"batch lookup of points, {count} segments", f"{points * 1e9:.0f} ns/key", "≤ 50 ns", points <= 50e-9)
    figure.add(f"batch lookup of ranges, {count} segments", f"{ranges * 1e9:.0f} ns/range", "≤ 50 ns", ranges <= 50e-9)
    figure.add(f"single lookup, {count} segments", f"{single * 1e6:.2f} microseconds", "≤ 3", single <= 3e-6)
    figure.add("import scumble, fresh interpreter, median", f"{started:.3f} s", "< 0.3 s", started < 0.3)
    figure.values = {
        "segments": count,
        "batch_point_seconds": points,
        "batch_range_seconds": ranges,
        "single_seconds": single,
        "import_seconds": started,
    }
    return figure


def import_seconds(repeats: int) -> float:
    """The median time that `import scumble` takes in a fresh interpreter."""
    runs = [
        subprocess.run([sys.executable, "-c", CLOCK], capture_output=True, text=True, check=True).stdout
        for _ in range(repeats)
    ]
    return median(map(float, runs))
