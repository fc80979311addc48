"""Reconstruction: rebuild the key column from the position ranges that queries read.

The attacker does not know what was asked, only that every range was asked once (dense), or that ranges come evenly
distributed, as in Kellaris et al. 2016 and Lacharite et al. 2018. It is stronger than theirs, which see how many rows
answer: it sees where they lie among the sorted rows too, so it need not guess which end of the column is which.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scumble.index.contract import Positions
from scumble.index.dp_plr import DPPLRIndex
from scumble.index.file import IndexModel, decoded
from scumble.lab.attack.laboratory import laboratory, made_up_counts, uniform_ranges
from scumble.lab.attack.report import Finding, Report, rows_text
from scumble.lab.comparators import ExactIndex
from scumble.privacy.budget import Exact, exact, show, unsafe_budget
from scumble.types import IntegerDomain

__all__ = [
    "Public",
    "Quality",
    "Target",
    "all_ranges",
    "attack",
    "exact_target",
    "private_target",
    "quality",
    "rows_below",
]

SIZE = 1000
ROWS, QUERIES = 20_000, 1_000_000
PAGE_ROWS = 16
DATABASE_QUERIES = 10_000  # at most
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Public:
    """PUBLIC: what the catalog says of an index: how many keys there are, and by how much lookups are widened."""

    size: int
    capacity: int
    slack_rows: int = 0
    page_rows: int = 1

    def reconstruct(self, starts: IntArray | FloatArray, stops: IntArray | FloatArray) -> FloatArray:
        """Estimate how many rows lie at or before each rank from the ranges that were read, asked evenly.

        Of all ranges a known share starts after a rank, and a known share stops at it; so the quantile of the starts,
        or of the stops, at that share is where the curve stands. Whichever of the two is seen more often is taken. Once
        as many different places have been seen as there are keys, they are the curve itself.
        """
        inner = (self.page_rows - 1) / 2  # a page's edge is up to a page away from the row that was wanted
        wide = self.slack_rows + inner
        lows, highs = starts.astype(np.float64) + wide, stops.astype(np.float64) - wide
        seen = np.unique(np.concatenate([lows[starts > 0], highs[(stops < self.capacity) | (self.slack_rows == 0)]]))
        if len(seen) == self.size and self.page_rows == 1:
            return seen
        ranks = np.arange(self.size)
        total, left = self.size * (self.size + 1), self.size - 1 - ranks
        # The middle of the queries that start right after a rank, or stop at it, twice over to stay with whole numbers.
        after = total - left * (left + 1) + left
        until = ranks * (ranks + 1) + (ranks + 1)
        low = _quantiles(lows, after, total)
        high = _quantiles(highs, until, total)
        clipped = low <= wide  # reads that start at the first row tell nothing of where they might
        curve = np.where((ranks < self.size // 2) & ~clipped, low, high)
        return np.clip(np.maximum.accumulate(curve), 0, self.capacity)


def _quantiles(values: FloatArray, shares: IntArray, whole: int) -> FloatArray:
    """The values at some shares, of `whole`, of all of them in order."""
    places = shares * len(values) // whole
    return np.sort(values)[np.minimum(places, len(values) - 1)]


class Quality(NamedTuple):
    """SECRET: how good a reconstruction is: errors of the curve in rows, and the share of rows given the right key."""

    mean_error_rows: float
    largest_error_rows: float
    placed: float


def quality(curve: FloatArray, counts: IntArray) -> Quality:
    """Hold a reconstruction against the truth."""
    true = np.cumsum(counts)
    error = np.abs(curve - true)
    before, true_before = np.append(0, curve[:-1]), true - counts
    right = np.maximum(0, np.minimum(curve, true) - np.maximum(before, true_before))
    return Quality(float(error.mean()), float(error.max()), float(right.sum() / max(1, true[-1])))


class Target(NamedTuple):
    """An index under attack: what answers lookups, what is public of it, and its own error as `quality` measures it."""

    name: str
    positions: Positions
    public: Public
    own: Quality


def exact_target(counts: IntArray) -> Target:
    """The exact index, which leaks."""
    positions = ExactIndex().fit_counts(counts, domain=IntegerDomain(0, len(counts) - 1)).positions
    return Target("exact index (leaks)", positions, Public(len(counts), positions.capacity), Quality(0, 0, 1))


def private_target(counts: IntArray, epsilon: Exact) -> Target:
    """A private index. Its own error is that of a reader of the index file, which the provider has."""
    cost = exact(epsilon, "epsilon")
    budget = unsafe_budget(cost)  # the rows are made up
    model = DPPLRIndex().fit_counts(counts, domain=IntegerDomain(0, len(counts) - 1), budget=budget).model
    own = quality(model.curve(np.arange(len(counts))).astype(np.float64), counts)
    return Target(f"DP-PLR, epsilon {show(cost)}", model, Public(len(counts), model.capacity, model.slack_rows), own)


def all_ranges(size: int) -> tuple[IntArray, IntArray]:
    """Every range of ranks, once."""
    firsts, lasts = np.triu_indices(size)
    return firsts.astype(np.int64), lasts.astype(np.int64)


# --- the attack ------------------------------------------------------------------------------------


def attack(epsilon: Exact = 1, rows: int = ROWS, queries: int = QUERIES) -> Report:
    """Reconstruct a column from all ranges, from evenly distributed ones, and from a real database's transcript."""
    cost = exact(epsilon, "epsilon")
    counts = made_up_counts(rows, SIZE)
    epsilons = sorted({min(10 * cost, Fraction(10)), cost, cost / 10}, reverse=True)
    targets = [exact_target(counts), *(private_target(counts, each) for each in epsilons)]
    dense = [_dense(target) for target in targets]
    numbers = _numbers(queries)
    asked = uniform_ranges("asked", queries, SIZE)
    errors = [list(_errors(target, asked, numbers, counts)) for target in targets]
    findings = [_finding(*found, counts) for found in zip(targets, dense, errors, strict=True)]
    findings.append(_transcript(counts, cost, min(queries, DATABASE_QUERIES)))
    return Report(
        "reconstruction",
        "The attacker sees which rows every query reads, not what was asked, and rebuilds how many rows each key has.",
        f"{len(all_ranges(SIZE)[0]):,} queries, every range of {SIZE:,} keys once; then {queries:,} random ranges;"
        f" {rows:,} rows",
        tuple(findings),
        {
            "truth": counts,
            "queries": numbers,
            "errors": {t.name: [q.mean_error_rows for q in e] for t, e in zip(targets, errors, strict=True)},
            "own": {t.name: t.own.mean_error_rows for t in targets},
            "curves": {t.name: curve for t, curve in zip(targets, dense, strict=True)},
        },
    )


def _dense(target: Target) -> FloatArray:
    return target.public.reconstruct(*target.positions.of_ranks(*all_ranges(target.public.size)))


def _numbers(queries: int) -> list[int]:
    """100, 178, 316, ..., and as many as were asked."""
    steps = [round(100 * 10 ** (step / 4)) for step in range(40)]
    return [*(number for number in steps if number < queries), queries]


def _errors(
    target: Target, asked: tuple[IntArray, IntArray], numbers: Sequence[int], counts: IntArray
) -> Iterator[Quality]:
    starts, stops = target.positions.of_ranks(*asked)
    for number in numbers:
        yield quality(target.public.reconstruct(starts[:number], stops[:number]), counts)


def _is_news(found: Quality, own: Quality, public: Public, counts: IntArray) -> bool:
    """Whether a reconstruction is much nearer to the truth than what the provider has anyway.

    That is the index, or without any, a straight line up to the capacity.
    """
    line = quality(np.linspace(0, public.capacity, public.size + 1)[1:], counts)
    return (
        found.mean_error_rows < min(own.mean_error_rows, line.mean_error_rows) / 4
    )  # some is luck: 0.6 in 1,500 builds


def _finding(target: Target, dense: FloatArray, errors: list[Quality], counts: IntArray) -> Finding:
    found, own, last = quality(dense, counts), target.own, errors[-1]
    leaky = target.public.slack_rows == 0
    won = found.placed == 1 or any(_is_news(one, own, target.public, counts) for one in (found, last))
    learned = (
        f"mean error of the curve {rows_text(found.mean_error_rows)}; {found.placed:.1%} of rows given their key;"
        f" random ranges: {rows_text(last.mean_error_rows)}"
    )
    return Finding(
        target.name,
        leaky,
        learned,
        won,
        {
            "dense_mean_error_rows": found.mean_error_rows,
            "dense_largest_error_rows": found.largest_error_rows,
            "dense_placed": found.placed,
            "uniform_mean_error_rows": last.mean_error_rows,
            "uniform_placed": last.placed,
            "index_mean_error_rows": own.mean_error_rows,
            "slack_rows": target.public.slack_rows,
        },
    )


def rows_below(index: IndexModel, places: IntArray) -> FloatArray:
    """About how many rows lie before each position: as all that is public says, dummies of blocks left out."""
    if index.blocks is None:
        return places.astype(np.float64)
    blocks, ends = index.blocks, index.segments.totals
    first, second = ends[::2], ends[1::2]
    rows = np.concatenate([[0], np.cumsum(first + second)])
    knots = np.stack([blocks.places[:-1], blocks.places[:-1] + first, blocks.places[1:] - second], axis=1)
    values = np.stack([rows[:-1], rows[:-1] + first, rows[:-1] + first], axis=1)
    found: FloatArray = np.interp(places, np.append(knots, blocks.rows), np.append(values, rows[-1]))
    return found


# --- with the database -----------------------------------------------------------------------------


def _transcript(counts: IntArray, epsilon: Fraction, queries: int) -> Finding:
    """The same with a real database: pages from its transcript, and the index from its catalog."""
    firsts, lasts = uniform_ranges("asked", queries, len(counts))
    with laboratory(counts, epsilon, page_rows=PAGE_ROWS) as lab:
        asked = list(zip(firsts.tolist(), lasts.tolist(), strict=True))
        seen = lab.watch("SELECT count(*) FROM t WHERE k BETWEEN ? AND ?", asked)
        run = lab.db.table("t").runs[0]
        assert run.index is not None  # noqa: S101  the table was loaded with one
        index = decoded(run.index)
        public = Public(len(counts), run.pages * run.page_rows, index.usual_slack, run.page_rows)
        own = quality(rows_below(index, index.curve(np.arange(len(counts)))), counts)
    starts = np.array([one.first_page for one in seen]) * PAGE_ROWS
    stops = starts + np.array([one.pages for one in seen]) * PAGE_ROWS
    starts, stops = (rows_below(index, ends) for ends in (starts, stops))
    found = quality(public.reconstruct(starts, stops), counts)
    return Finding(
        f"database, epsilon {show(epsilon)}, by its transcript",
        False,
        f"mean error of the curve {rows_text(found.mean_error_rows)} after {len(seen):,} queries;"
        f" {found.placed:.1%} of rows given their key",
        found.placed == 1 or _is_news(found, own, public, counts),
        {
            "mean_error_rows": found.mean_error_rows,
            "placed": found.placed,
            "index_mean_error_rows": own.mean_error_rows,
            "queries": len(seen),
        },
    )
