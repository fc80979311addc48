"""Tune an index on public data: simulate it there, with and without a hint, and find the terms that read least.

Public keys come in; a hint, the terms that serve best and what each choice would read come out, public as well. Nothing
is spent: no private row is looked at. One half of the public rows plays the table, the other half gives it the hint.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter
from scumble.index.blocks import suitable_blocks
from scumble.index.dp_plr import DPPLRIndex
from scumble.index.hint import Hint
from scumble.index.mechanisms.scout import worthwhile
from scumble.index.plan import USUAL, Plan
from scumble.privacy.budget import unsafe_budget
from scumble.privacy.noise import Noise
from scumble.types import Domain

__all__ = ["Trial", "chosen", "halved", "trials"]

Counts = NDArray[np.int64]

SIZES = (2048, 4096, 8192)  # of the file, without a hint's bytes
SLACK_SHARES = ("0.3", "0.6")  # besides the usual
SCOUT_SHARES = ("0.15", "0.45")
CELL_ROWS = (100, 400)
CLEARLY = 0.97  # what a plan has to read of what the usual one does: the best of many is partly luck
BUILDS = 3
LEAST_ROWS = 1000
MOST_LOOKUPS = 1 << 17


@dataclass(frozen=True)
class Trial:
    """PUBLIC: what an index with these terms reads beyond the answer of a lookup of one key, on public data.

    `followed` says in which part of the builds the check found that the keys follow the hint; `plan` is empty if
    epsilon is divided as usual.
    """

    max_bytes: int
    blocks: int
    hinted: bool
    extra_rows: float
    bytes: int
    followed: float
    plan: str = ""


def halved(counts: Counts, most: int | None = None) -> tuple[Counts, Counts]:
    """The rows of a public column in two halves at random: for the hint, and to play the table, with `most` at most.

    By a key that everybody knows, so that the same data gives the same halves.
    """
    if counts.sum() < LEAST_ROWS:
        raise InvalidParameter(f"there are fewer than {LEAST_ROWS:,} public rows", hint="take a larger column")
    ranks = np.repeat(np.arange(len(counts)), counts)
    shuffled = ranks[np.argsort(Noise(bytes(32)).stream("halves")(len(ranks)))]
    first, second = shuffled[: len(ranks) // 2], shuffled[len(ranks) // 2 :][:most]
    return np.bincount(first, minlength=len(counts)), np.bincount(second, minlength=len(counts))


def trials(counts: Counts, domain: Domain, epsilon: Fraction, beta: Fraction, rows: int | None) -> Iterator[Trial]:
    """Simulate every choice on public rows, as a table with so many of them, or with all of one half.

    Sizes come first, with and without a hint; then, for the best of these, other plans, one change at a time; and at
    last all changes together that were clearly for the better.
    """
    public, table = halved(counts, rows)
    hints, tried = (None, Hint.of_counts(public)), []
    for max_bytes in SIZES:
        for hint in hints:
            tried.append(_tried(table, domain, epsilon, beta, max_bytes, hint, USUAL))
            yield tried[-1]
    usual = chosen(tried)
    terms = table, domain, epsilon, beta, usual.max_bytes, hints[usual.hinted]
    better: list[str] = []
    for plans in _changes(scouted=usual.followed < 1 and worthwhile(domain.size)):
        found = [_tried(*terms, plan) for plan in plans]
        yield from found
        best = min(found, key=lambda trial: trial.extra_rows)
        better += [best.plan] if best.extra_rows < CLEARLY * usual.extra_rows else []
    if len(better) > 1:
        yield _tried(*terms, Plan.parse(",".join(better)))


def chosen(tried: Sequence[Trial]) -> Trial:
    """The trial that read least; one with a plan of its own only if that is clearly better than all without."""
    usual = min((trial for trial in tried if not trial.plan), key=lambda trial: trial.extra_rows)
    best = min(tried, key=lambda trial: trial.extra_rows)
    return best if best.extra_rows < CLEARLY * usual.extra_rows else usual


def _changes(*, scouted: bool) -> list[list[Plan]]:
    """The plans to try, those with the same change together. Without a scout, its share makes no difference."""
    changes = [[Plan(slack_share=share) for share in SLACK_SHARES], [Plan(cell_rows=rows) for rows in CELL_ROWS]]
    return [*changes, [Plan(scout_share=share) for share in SCOUT_SHARES]] if scouted else changes


def _tried(
    table: Counts, domain: Domain, epsilon: Fraction, beta: Fraction, max_bytes: int, hint: Hint | None, plan: Plan
) -> Trial:
    extra, size, followed, capacity = [], 0, 0, int(table.sum())
    blocks = suitable_blocks(domain.size, capacity, epsilon, beta, max_bytes, plan=plan)
    ranks = np.unique(np.linspace(0, domain.size - 1, min(domain.size, MOST_LOOKUPS)).astype(np.int64))
    for _ in range(BUILDS):
        index = DPPLRIndex(max_bytes=max_bytes, blocks=blocks, hint=hint, plan=plan)
        index.fit_counts(table, domain=domain, budget=unsafe_budget(epsilon), beta=beta, capacity=capacity)
        extra.append(float(index.unsafe_outcome(table, ranks, ranks).extra.mean()))
        size, followed = index.size_bytes, followed + (index.model.hint is not None)
    return Trial(max_bytes, blocks, hint is not None, float(np.mean(extra)), size, followed / BUILDS, plan.text)
