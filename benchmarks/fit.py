"""Figure 5: `fit` from keys to index on one core, and the memory of the largest domain.

Memory is the peak of a whole process, interpreter, numpy, scipy and the counts themselves included.
"""

import json
import resource
import subprocess
import sys
from typing import Any

import numpy as np

from benchmarks.data import salaries
from benchmarks.figure import Figure, Size, budget, fitted, one_core, say, seconds
from scumble import DPPLRIndex, IntegerDomain

__all__ = ["measure", "peak_memory"]

SIZES: dict[Size, dict[str, Any]] = {
    "full": {"rows": 10**7, "sizes": (2**20, 10**7), "largest": 2**26, "repeats": 3},
    "quick": {"rows": 10**7, "sizes": (2**20, 10**7), "largest": 2**24, "repeats": 1},
    "tiny": {"rows": 10**4, "sizes": (2**12,), "largest": 2**16, "repeats": 1},
}
MOST_SECONDS, MOST_BYTES = 2.5, 48


def measure(size: Size) -> Figure:
    """Seconds for 10^7 keys, bytes a rank for 2^26."""
    terms = SIZES[size]
    figure = Figure("fit")
    with one_core():
        for ranks in terms["sizes"]:
            say(f"fit: {terms['rows']:,} keys over {ranks:,}")
            keys = salaries(terms["rows"], ranks)
            spent = seconds(lambda keys=keys, ranks=ranks: _fit(keys, ranks), terms["repeats"])  # type: ignore[misc]
            figure.add(
                f"fit of {terms['rows']:,} keys, N = {ranks:,}", f"{spent:.2f} s", "< 2.5 s", spent < MOST_SECONDS
            )
            figure.values[f"N = {ranks}"] = {"seconds": spent, "rows": terms["rows"]}
        say(f"fit: peak memory over {terms['largest']:,} keys")
        peak = peak_memory(terms["largest"])
    ratio = peak["peak_bytes"] / terms["largest"]
    # Below some millions of ranks the interpreter itself is what is measured.
    met = ratio < MOST_BYTES if terms["largest"] >= 2**24 else None
    text = f"{ratio:.1f} bytes x N ({peak['peak_bytes'] / 2**30:.2f} GiB, {peak['seconds']:.1f} s)"
    figure.add(f"peak memory of a fit over N = {terms['largest']:,}", text, "< 48 bytes x N", met)
    figure.values["memory"] = {**peak, "N": terms["largest"], "bytes_per_rank": ratio}
    return figure


def _fit(keys: np.ndarray[Any, Any], ranks: int) -> None:
    DPPLRIndex(max_bytes=4096).fit(keys, domain=IntegerDomain(0, ranks - 1), budget=budget())


def peak_memory(ranks: int) -> dict[str, float]:
    """Fit in a fresh process and read its peak resident size, counts included."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fit", str(ranks)], capture_output=True, text=True, check=True
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> None:
    """The fresh process: counts of about a row in every seventh rank, made without much memory."""
    ranks = int(sys.argv[1])
    counts = np.zeros(ranks, dtype=np.int64)
    counts[::7] = 1
    counts[: ranks // 16 : 3] += 2
    spent = seconds(lambda: fitted(DPPLRIndex(max_bytes=4096), counts), repeats=1)
    # Linux counts in KiB, macOS in bytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({"peak_bytes": peak, "seconds": spent, "rows": int(counts.sum())}))


if __name__ == "__main__":
    main()
