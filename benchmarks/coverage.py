"""Figure 2: how often a build loses a row in any lookup over its whole domain, for a beta that can be seen.

A frequency that truly equals beta lies above it in half of all experiments; so what is tested is whether the number of
losses would be a surprise (one in a thousand) if the chance of one were beta. The one-sided limits are printed too.
"""

from fractions import Fraction
from math import exp
from time import perf_counter
from typing import Any

from scipy.stats import beta as beta_distribution
from scipy.stats import binom

from benchmarks.data import make_counts
from benchmarks.figure import Figure, Size, fitted, say
from benchmarks.overhead import lost_rows
from scumble import DPPLRIndex
from scumble.index.plan import SLACK_SHARE
from scumble.index.slack import SLACKS, shift

__all__ = ["expected", "losses", "measure"]

BETA = Fraction(1, 20)
SURPRISE = 0.001
SIZES: dict[Size, list[tuple[int, int, int]]] = {  # ranks, rows, builds
    "full": [(64, 500, 10_000), (2**20, 10**6, 200)],
    "quick": [(64, 500, 2_000), (2**20, 10**6, 30)],
    "tiny": [(64, 500, 100)],
}


def expected() -> float:
    """The chance that the noise of the measured slack falls below minus its shift: no loss without that."""
    epsilon = SLACK_SHARE  # of an epsilon of 1
    p = exp(-epsilon)
    return float(p ** (shift(epsilon, BETA) + 1) / (1 + p))


def losses(size: int, rows: int, builds: int, **options: Any) -> int:
    """In how many of some builds any lookup loses a row."""
    counts = make_counts("lognormal", size, rows)
    delta = SLACKS["lossless"].delta(Fraction(1), BETA) if options.get("slack") == "lossless" else 0
    lost = 0
    for _ in range(builds):
        lost += lost_rows(fitted(DPPLRIndex(**options), counts, 1, delta, beta=BETA).model, counts)
    return lost


def measure(size: Size) -> Figure:
    """Losses for the three kinds of slack and both trees."""
    figure = Figure("coverage")
    kinds: dict[str, dict[str, Any]] = {
        "measured": {"slack": "measured"},
        "lossless": {"slack": "lossless"},
        "published slack, our tree": {"slack": "paper"},
        "published slack and tree": {"slack": "paper", "mechanism": "paper"},
    }
    for ranks, rows, builds in SIZES[size]:
        for name, options in kinds.items():
            say(f"coverage: {builds:,} builds over {ranks:,} keys, {name}")
            begun = perf_counter()
            lost = losses(ranks, rows, builds, **options)
            allowed = 0.0 if name == "lossless" else float(BETA)
            upper = 1.0 if lost == builds else float(beta_distribution.ppf(1 - 0.01, lost + 1, builds - lost))
            met = lost == 0 if name == "lossless" else bool(binom.sf(lost - 1, builds, allowed) >= SURPRISE)
            figure.add(
                f"builds with any loss, N = {ranks:,}, {name}",
                f"{lost:,} of {builds:,} = {lost / builds:.2%} (99 % limit {upper:.2%})",
                f"≤ {allowed:.0%}" + (f" (theory {expected():.1%})" if name == "measured" else ""),
                met,
            )
            figure.values[f"{ranks} ranks, {name}"] = {
                "builds": builds,
                "losses": lost,
                "beta": allowed,
                "upper_limit_99": upper,
                "seconds": perf_counter() - begun,
            }
    return figure
