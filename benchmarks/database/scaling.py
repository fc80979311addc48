"""Figure 4 of the database: the same number of rows asked of a small and of a large table takes about the same time.

python -m benchmarks.database.scaling 30000000     up to so many rows: needs 4 GB of disk and some minutes
"""

import sys
from collections.abc import Callable
from typing import Any

from benchmarks.database.aggregates import QUERY
from benchmarks.database.clock import shown, side_by_side
from benchmarks.database.tables import asking, bounds, loaded
from benchmarks.figure import Figure, Size, say

__all__ = ["main", "measure", "measure_sizes"]

SIZES: dict[Size, dict[str, Any]] = {
    "full": {"rows": (10**6, 10**7), "answers": (1, 5_000, 50_000), "rounds": 30},
    "quick": {"rows": (10**5, 10**6), "answers": (1, 5_000), "rounds": 10},
    "tiny": {"rows": (5_000, 20_000), "answers": (1, 500), "rounds": 1},
}
CALLS = 20
MOST = 1.5


def measure(size: Size) -> Figure:
    """The same answers from each of the sizes."""
    terms = SIZES[size]
    return measure_sizes(terms["rows"], terms["answers"], terms["rounds"])


def measure_sizes(sizes: tuple[int, ...], answers: tuple[int, ...], rounds: int) -> Figure:
    """Latencies at each size against those at the first."""
    figure = Figure("database.scaling")
    asks: dict[int, Callable[[int, int], object]] = {}
    for rows in sizes:
        say(f"database.scaling: {rows:,} rows")
        asks[rows] = asking(loaded(rows).database, QUERY)
    for answer in answers:
        ranges = {rows: bounds(rows, answer, CALLS * rounds) for rows in sizes}
        best = dict.fromkeys(sizes, float("inf"))
        for turn in range(rounds):
            for rows in sizes:
                these = ranges[rows][turn * CALLS : (turn + 1) * CALLS]
                best[rows] = min(best[rows], side_by_side({"": asks[rows]}, these, 1, CALLS)[""])
        figure.values[f"{answer} rows"] = {"seconds": {str(rows): best[rows] for rows in sizes}}
        for rows in sizes[1:]:
            ratio = best[rows] / best[sizes[0]]
            claim = f"an aggregate over {answer:,} row{'s' * (answer > 1)}: of {rows:,} / of {sizes[0]:,}"
            text = f"{shown(best[rows])} / {shown(best[sizes[0]])} = {ratio:.2f}"
            figure.add(claim, text, f"≤ {MOST}", ratio <= MOST)
    return figure


def main() -> None:
    """The full sizes, and one more."""
    terms = SIZES["full"]
    for line in measure_sizes((*terms["rows"], int(sys.argv[1])), terms["answers"], terms["rounds"]).lines:
        print(f"{line.claim:<64} {line.measured:<28} {line.target}")


if __name__ == "__main__":
    main()
