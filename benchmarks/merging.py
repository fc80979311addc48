"""What merging does: rows that a point lookup reads too many in one index of many equal runs, made at no cost.

The batches of each kind of keys are one draw, dealt out at random; the first finds the grid that all others count over.
A merged index is compared with that of one batch, as it is with a grid and as it is without, and with that of one load
of all rows. Also merged: batches without node counts, whose slacks add up.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import KEYS
from benchmarks.figure import Figure, Size, fitted, say
from benchmarks.overhead import BETA, MAX_BYTES, build, lost_rows, overhead_rows
from scumble import DPPLRIndex
from scumble.index.file import IndexModel
from scumble.index.grid import NEW, Grid
from scumble.index.merging import merged
from scumble.index.tally import Tally

__all__ = ["measure"]

Counts = NDArray[np.int64]
GOALS = {10: 3.5, 40: 7.0}  # times a single run's
PAGE_ROWS = 1024
SIZES: dict[Size, dict[str, Any]] = {
    "full": {"size": 2**20, "rows": (2000, 100_000), "numbers": (10, 40), "builds": 3},
    "quick": {"size": 2**20, "rows": (2000, 100_000), "numbers": (10, 40), "builds": 1},
    "tiny": {"size": 2**12, "rows": (2000,), "numbers": (2, 3), "builds": 1},
}


def batches(name: str, size: int, rows: int, number: int, seed: int) -> list[Counts]:
    """Equally many rows each, of one distribution."""
    rng = np.random.default_rng(seed)
    keys = KEYS[name](rng, size, rows * number)
    rng.shuffle(keys)
    return [np.bincount(keys[at : at + rows], minlength=size) for at in range(0, rows * number, rows)]


def _capacity(counts: Counts) -> int:
    return -(-int(counts.sum()) // PAGE_ROWS) * PAGE_ROWS


def gridded(counts: Counts, grid: Grid | bytes) -> Tally:
    """The tally of a batch, of which its index is made as well."""
    index = fitted(DPPLRIndex(max_bytes=MAX_BYTES, grid=grid), counts, beta=BETA, capacity=_capacity(counts))
    assert index.tally is not None
    return index.tally


def _one_kind(name: str, size: int, rows: int, numbers: tuple[int, ...], seed: int) -> dict[str, float]:
    """Rows read too many: one batch without a grid and with it, so many merged, and one load of as many rows."""
    parts = batches(name, size, rows, max(numbers), seed)
    first = gridded(parts[0], NEW)
    assert first.grid is not None
    tallies = [first, *(gridded(counts, first.grid) for counts in parts[1:])]
    lost = 0

    def extra(model: IndexModel, counts: Counts) -> float:
        nonlocal lost
        lost += lost_rows(model, counts)
        return overhead_rows(model, counts)

    found = {"single": extra(build(parts[1]), parts[1]), "gridded": extra(merged(tallies[1:2]).index, parts[1])}
    for number in numbers:
        counts = np.sum(parts[:number], axis=0)
        found[f"merged {number}"] = extra(merged(tallies[:number]).index, counts)
        found[f"one load {number}"] = extra(build(counts), counts)
    few = numbers[0]
    after = build(parts[0])
    grid = Grid.of_models([after], rows)
    mixed = [Tally.of_index(after, after.capacity), *(gridded(counts, grid) for counts in parts[1:few])]
    found["first without"] = extra(merged(mixed).index, np.sum(parts[:few], axis=0))
    whole = [Tally.of_index(model, model.capacity) for model in (build(each) for each in parts[:few])]
    found["without node counts"] = extra(merged(whole).index, np.sum(parts[:few], axis=0))
    found["tally_bytes"] = float(len(tallies[1].to_bytes()))
    found["builds_with_a_loss"] = float(lost)
    return found


def measure(size: Size) -> Figure:
    """For each kind of keys and each size of a batch."""
    terms, figure = SIZES[size], Figure("merging")
    for rows in terms["rows"]:
        for name in KEYS:
            say(f"merging: {name} keys, batches of {rows:,}")
            seeds = range(terms["builds"])
            every = [_one_kind(name, terms["size"], rows, terms["numbers"], seed) for seed in seeds]
            mean = {what: float(np.mean([each[what] for each in every])) for what in every[0]}
            figure.values[f"{name}, {rows} rows"] = mean
            _add(figure, f"merging, {name} keys, batches of {rows:,} rows", mean, terms["numbers"])
    return figure


def _add(figure: Figure, title: str, mean: dict[str, float], numbers: tuple[int, ...]) -> None:
    single, gridded = mean["single"], mean["gridded"]
    figure.add(f"{title}: one alone", f"{single:,.0f} rows too many; over a grid {gridded:,.0f}")
    for number in numbers:
        rows, goal = mean[f"merged {number}"], GOALS.get(number)
        target, met = ("", None) if goal is None else (f"≤ {goal:g}", rows / gridded <= goal)
        figure.add(f"    {number} merged, to one of them", f"{rows:,.0f} rows = {rows / gridded:.1f}", target, met)
        met = None if goal is None else rows / single <= goal
        figure.add("    to one without a grid", f"{rows / single:.1f}", target, met)
        figure.add("    to one load of all rows", f"{rows / mean[f'one load {number}']:.1f}")
    mixed = mean["first without"]
    figure.add(f"    {numbers[0]}, the first without a grid, to that one", f"{mixed:,.0f} rows = {mixed / single:.1f}")
    whole = mean["without node counts"]
    figure.add(f"    {numbers[0]} without node counts, to one of them", f"{whole:,.0f} rows = {whole / single:.1f}")
