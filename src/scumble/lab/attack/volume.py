"""The volume attack: guess how many rows matched a query from the sizes of its requests and answers.

A query's rows go back padded to the public range that was read. The attacker knows the range and, for half of the
queries, the true count; from these it learns how sizes tell counts, and guesses the counts of the other half.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scumble.enclave.lines import TrustedEnclave
from scumble.lab.attack.laboratory import VALUES, Seen, fractions, laboratory, made_up_counts, second_column
from scumble.lab.attack.planted import UnsafeUnpaddedEnclave
from scumble.lab.attack.report import Finding, Report
from scumble.privacy.budget import Exact, exact, show
from scumble.wire.storage import Enclave, Storage

__all__ = ["Guesses", "attack", "guess_counts", "watch_queries"]

ROWS, QUERIES = 5_000, 600
SIZE, PAGE_ROWS = 250, 64
RANGES = ((20, 60), (60, 100), (100, 160), (30, 230))
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


class Guesses(NamedTuple):
    """How good the guesses were: the explained share of the counts' variance, and the share that was exactly right."""

    explained: float
    exact: float
    sizes: int


def watch_queries(
    epsilon: Exact, rows: int, queries: int, enclave: Callable[[Storage], Enclave] = TrustedEnclave
) -> tuple[list[Seen], IntArray]:
    """Ask queries over some ranges, each with many conditions on a column without index: seen, and true counts."""
    counts = made_up_counts(rows, SIZE)
    keys, values = np.repeat(np.arange(SIZE), counts), second_column(int(counts.sum()))
    limits = (fractions("limits", queries) * (VALUES + 1)).astype(np.int64).tolist()
    asked = [(*RANGES[i % len(RANGES)], limit) for i, limit in enumerate(limits)]
    with laboratory(counts, epsilon, page_rows=PAGE_ROWS, enclave=enclave) as lab:
        seen = lab.watch("SELECT v FROM t WHERE k BETWEEN ? AND ? AND v < ?", asked)
    true = [int(((keys >= low) & (keys <= high) & (values < limit)).sum()) for low, high, limit in asked]
    return seen, np.array(true)


def guess_counts(seen: list[Seen], true: IntArray) -> Guesses:
    """For each range separately: fit counts to sizes on every other query, and guess the rest.

    The guess is a straight line in the two sizes: counts that cost bytes lie on one, whatever the row's width.
    """
    guessed, wanted, plain = [], [], []
    by_range: dict[tuple[int, int], list[int]] = {}
    for place, one in enumerate(seen):
        by_range.setdefault((one.first_page, one.pages), []).append(place)
    for places in by_range.values():
        sizes = np.array([[1, seen[i].request_bytes, seen[i].answer_bytes] for i in places], dtype=np.float64)
        counts = true[places].astype(np.float64)
        sizes[:, 1:] -= sizes[:, 1:].mean(axis=0)
        line = np.linalg.lstsq(sizes[::2], counts[::2], rcond=None)[0]
        guessed.append(sizes[1::2] @ line)
        wanted.append(counts[1::2])
        plain.append(np.full(len(counts[1::2]), counts[::2].mean()))
    guesses, truth, means = (np.concatenate(parts) for parts in (guessed, wanted, plain))
    left, before = float(((guesses - truth) ** 2).sum()), float(((means - truth) ** 2).sum())
    sizes_seen = max(len({(seen[i].request_bytes, seen[i].answer_bytes) for i in p}) for p in by_range.values())
    return Guesses(1 - left / max(before, 1e-9), float((np.rint(guesses) == truth).mean()), sizes_seen)


def attack(epsilon: Exact = 1, rows: int = ROWS, queries: int = QUERIES) -> Report:
    """Guess the counts of queries to our database, and to one whose enclave does not pad."""
    cost = exact(epsilon, "epsilon")
    findings, points = [], {}
    for name, enclave, leaky in (
        ("planted: answers not padded", UnsafeUnpaddedEnclave, True),
        (f"database, epsilon {show(cost)}", TrustedEnclave, False),
    ):
        seen, true = watch_queries(cost, rows, queries, enclave)
        found = guess_counts(seen, true)
        points[name] = (true, np.array([one.answer_bytes for one in seen]), [one[:2] for one in seen])
        alike = "1 size" if found.sizes == 1 else f"{found.sizes:,} sizes"
        findings.append(
            Finding(
                name,
                leaky,
                f"{max(0.0, found.explained):.1%} of the counts' variance explained, {found.exact:.1%} guessed exactly;"
                f" {alike} for one range",
                found.explained > 0.05 or found.sizes > 1,
                {"explained": found.explained, "guessed_exactly": found.exact, "sizes_for_one_range": found.sizes},
            )
        )
    return Report(
        "volume",
        "The attacker sees how long requests and answers are, and guesses how many rows matched: it knows the true"
        " counts of half of the queries to learn from.",
        f"{queries:,} queries over {len(RANGES)} ranges, each with another condition on a column without index;"
        f" {rows:,} rows",
        tuple(findings),
        {"points": points},
    )
