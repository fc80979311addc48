"""How good lookups are: the rows that an index misses on a data set, and those that it reads in vain.

Accuracy and overhead are two views of the same builds, so both tables read these cells.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from benchmarks.figure import Size
from benchmarks.paper.lab import Lab
from scumble.errors import ScumbleError
from scumble.lab.comparators.curves import truncation_delta
from scumble.lab.compare import KINDS, Case, Contender, Lookups, every_index, measure

__all__ = ["BETA", "QUERIES", "contenders", "datasets", "looked_up"]

BETA = Fraction(1, 10**6)
QUERIES = 10_000
QUICK_WITHOUT = ("bureau 1M", "tpch price", "census weight")  # large domains, or the network
BUILDS: dict[Size, int] = {"full": 5, "quick": 2, "tiny": 1}
TRAINED_BUILDS: dict[Size, int] = {"full": 2, "quick": 1, "tiny": 1}
TINY = ("uniform 1K", "lognormal 1K")


def datasets(lab: Lab) -> Sequence[str]:
    """Those of the size, and the user's; a quick run does without the largest, and without the network."""
    names = TINY if lab.size == "tiny" else [n for n in lab.sources if lab.size == "full" or n not in QUICK_WITHOUT]
    return list(lab.available([*names, *(name for name in lab.digests if name not in names)]))


def contenders(lab: Lab) -> list[Contender]:
    """All indexes; the trained ones are slower, so the tests do without them."""
    return [contender for contender in every_index() if lab.size != "tiny" or not contender.trained]


def looked_up(lab: Lab, dataset: str, contender: Contender, epsilon: Fraction = Fraction(1)) -> dict[str, Any] | None:
    """Means over some builds, and the largest of them all, for point and range; None if the index refuses."""
    builds = (TRAINED_BUILDS if contender.trained else BUILDS)[lab.size]
    terms = {"epsilon": str(epsilon), "beta": str(BETA), "queries": QUERIES, "builds": builds}

    def make() -> dict[str, Any]:
        data = lab.dataset(dataset)
        lookups = Lookups.sample(data.counts, QUERIES)
        case = Case(data.counts, data.domain, epsilon, BETA, truncation_delta(epsilon, BETA))
        try:
            runs = [measure(contender, case, lookups) for _ in range(builds)]
        except (ScumbleError, MemoryError) as refusal:
            return {"refused": str(refusal)}
        return {kind: _together([run[place] for run in runs]) for place, kind in enumerate(KINDS)}

    value: dict[str, Any] = lab.cell(
        "lookups", dataset, f"{contender.name} epsilon {float(epsilon):g}", terms=terms, make=make
    )
    return None if "refused" in value else value


def _together(runs: Sequence[Any]) -> dict[str, float]:
    def mean(name: str) -> float:
        return float(sum(getattr(run, name) for run in runs) / len(runs))

    return {
        "missing_mean": mean("missing_mean"),
        "missing_max": float(max(run.missing_max for run in runs)),
        "answer_rows_mean": mean("answer_rows_mean"),
        "extra_rows_mean": mean("extra_rows_mean"),
        "extra_rows_max": float(max(run.extra_rows_max for run in runs)),
        "index_bytes": mean("index_bytes"),
        "dummy_rows": mean("dummy_rows"),
        "build_seconds": min(run.build_seconds for run in runs),
    }
