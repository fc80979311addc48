"""The averaging attack: ask the same query again and again, and average what it reads.

Noise that was drawn anew for every query would average out. Ours is drawn once, when the index is built: the same
query reads the same rows for ever, and its millionth observation is its first.
"""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from scumble.index.dp_plr import DPPLRIndex
from scumble.lab.attack.laboratory import laboratory, made_up_counts
from scumble.lab.attack.report import Finding, Report, rows_text
from scumble.privacy.budget import Exact, exact, show, unsafe_budget
from scumble.privacy.noise import discrete_laplace
from scumble.types import IntegerDomain

__all__ = ["attack", "fresh_places", "running_errors", "stored_places"]

SIZE, PAGE_ROWS = 1000, 64
ROWS, QUERIES = 20_000, 1_000_000
DATABASE_QUERIES = 3_000  # at most
CHUNK = 1 << 16
LOW, HIGH = 400, 599
FRESH_SCALE = 10  # over epsilon: about what the index's own noise has
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


def stored_places(counts: IntArray, epsilon: Exact, queries: int) -> FloatArray:
    """Where the answer to one query ends according to a private index, asked so many times: the slack taken off."""
    budget = unsafe_budget(epsilon)  # the rows are made up
    model = DPPLRIndex().fit_counts(counts, domain=IntegerDomain(0, len(counts) - 1), budget=budget).model
    stops = [
        model.lookup_many(np.full(number, LOW), np.full(number, HIGH))[1]
        for number in (min(CHUNK, queries - begin) for begin in range(0, queries, CHUNK))
    ]
    return np.concatenate(stops).astype(np.float64) - model.slack_rows


def fresh_places(counts: IntArray, epsilon: Exact, queries: int) -> FloatArray:
    """PLANTED, LEAKS: the same from an index that draws noise of scale 10/epsilon anew for every query."""
    true = int(counts[: HIGH + 1].sum())
    return true + discrete_laplace(FRESH_SCALE / exact(epsilon, "epsilon"), queries).astype(np.float64)


def running_errors(places: FloatArray, true: int, numbers: list[int]) -> list[float]:
    """How far the mean of the first n observations lies from the truth."""
    sums = np.cumsum(places - true)
    return [abs(float(sums[number - 1])) / number for number in numbers]


def attack(epsilon: Exact = 1, rows: int = ROWS, queries: int = QUERIES) -> Report:
    """Ask one query very often: an index with fresh noise, ours, and our database."""
    cost = exact(epsilon, "epsilon")
    counts = made_up_counts(rows, SIZE)
    true = int(counts[: HIGH + 1].sum())
    numbers = [10**power for power in range(12) if 10**power < queries] + [queries]
    findings, errors = [], {}
    for name, places, leaky in (
        (f"planted: fresh noise of scale {show(FRESH_SCALE / cost)}", fresh_places(counts, cost, queries), True),
        (f"DP-PLR, epsilon {show(cost)}", stored_places(counts, cost, queries), False),
    ):
        errors[name] = running_errors(places, true, numbers)
        findings.append(_finding(name, leaky, len(np.unique(places)), errors[name], numbers, cost))
    findings.append(_database(counts, cost, min(queries, DATABASE_QUERIES)))
    return Report(
        "averaging",
        "The attacker has the same query asked again and again, and takes the mean of what it reads. Noise that is"
        " drawn once does not average out.",
        f"one range, asked {queries:,} times; where its rows end, by the mean of all; {rows:,} rows",
        tuple(findings),
        {"queries": numbers, "errors": errors},
    )


def _finding(
    name: str, leaky: bool, different: int, errors: list[float], numbers: list[int], epsilon: Fraction
) -> Finding:
    """To win is to see anything new; where noise is fresh, its mean has to come as near as six standard errors too."""
    near = 6 * 2**0.5 * float(FRESH_SCALE / epsilon) / numbers[-1] ** 0.5
    return Finding(
        name,
        leaky,
        f"{_observations(different)}; error {rows_text(errors[0])} after 1,"
        f" {rows_text(errors[-1])} after {numbers[-1]:,}",
        different > 1 and (not leaky or errors[-1] <= near),
        {"different": different, "errors_rows": errors, "queries": [float(number) for number in numbers]},
    )


def _observations(different: int) -> str:
    return "the same observation every time" if different == 1 else f"{different:,} different observations"


def _database(counts: IntArray, epsilon: Fraction, queries: int) -> Finding:
    with laboratory(counts, epsilon, page_rows=PAGE_ROWS) as lab:
        seen = lab.watch("SELECT count(*) FROM t WHERE k BETWEEN ? AND ?", [(LOW, HIGH)] * queries)
    different = len(set(seen))
    return Finding(
        f"database, epsilon {show(epsilon)}, by its transcript",
        False,
        f"{_observations(different)} in {len(seen):,} queries: pages, bytes in, bytes out",
        different > 1 or len(seen) < queries,
        {"different": different, "queries": len(seen)},
    )
