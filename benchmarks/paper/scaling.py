"""How indexes grow with the domain: the bytes and times of each index for a number of keys.

Storage and times read the same cells. Ten rows for every key of the domain, lognormal over it.
"""

from fractions import Fraction
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.data import make_counts
from benchmarks.figure import Size, one_core
from benchmarks.paper.lab import Lab
from scumble import IntegerDomain
from scumble.errors import ScumbleError
from scumble.index.dp_plr import DPPLRIndex
from scumble.lab.comparators.curves import truncation_delta
from scumble.lab.compare import Case, Contender, build, every_index

__all__ = ["CAPPED", "SIZES", "contenders", "grown"]

BETA = Fraction(1, 10**6)
ROWS_PER_KEY = 10
SIZES: dict[Size, tuple[int, ...]] = {
    "full": tuple(2**power for power in range(8, 23, 2)),
    "quick": tuple(2**power for power in (8, 12, 16, 20)),
    "tiny": (2**6, 2**8),
}
MOST_TRAINED: dict[Size, int] = {"full": 2**22, "quick": 2**20, "tiny": 0}
SINGLE, BATCH = 2000, 10**5
CAPPED_BYTES = 512
CAPPED = f"DP-PLR, ours, {CAPPED_BYTES} bytes"


def contenders(lab: Lab, size: int) -> list[Contender]:
    """Those that are measured at a size: the tests do without training."""
    chosen = [contender for contender in every_index() if not contender.trained or size <= MOST_TRAINED[lab.size]]
    return [*chosen, Contender(CAPPED, lambda: DPPLRIndex(max_bytes=CAPPED_BYTES))]


def grown(lab: Lab, size: int, contender: Contender) -> dict[str, Any] | None:
    """Bytes, seconds of a build, microseconds of a lookup alone and in a batch; None if the index refuses."""
    repeats = 1 if contender.trained or lab.size == "tiny" else 3

    def make() -> dict[str, Any]:
        counts, domain = make_counts("lognormal", size, ROWS_PER_KEY * size), IntegerDomain(0, size - 1)
        case = Case(counts, domain, Fraction(1), BETA, truncation_delta(Fraction(1), BETA))
        spent = []
        try:
            with one_core():
                for _ in range(repeats):
                    begun = perf_counter()
                    index = build(contender, case)
                    spent.append(perf_counter() - begun)
                rng = np.random.default_rng(1)
                keys = rng.integers(0, size, BATCH)
                alone = min(_alone(index, keys[:SINGLE].tolist()) for _ in range(3))
                batch = min(_batch(index, keys) for _ in range(3))
        except (ScumbleError, MemoryError) as refusal:
            return {"refused": str(refusal)}
        ranks = np.flatnonzero(counts)
        outcome = index.unsafe_outcome(counts, ranks, ranks)
        segments = len(index.model.segments) if isinstance(index, DPPLRIndex) else None
        return {
            "bytes": index.size_bytes,
            "segments": segments,
            "extra_rows_mean": float(outcome.extra.mean()),
            "build_seconds": min(spent),
            "lookup_microseconds": alone,
            "batch_lookup_microseconds": batch,
        }

    terms = {"rows_per_key": ROWS_PER_KEY, "repeats": repeats, "beta": str(BETA)}
    value: dict[str, Any] = lab.cell("scaling", f"N {size}", contender.name, terms=terms, make=make)
    return None if "refused" in value else value


def _alone(index: Any, keys: list[int]) -> float:
    begun = perf_counter()
    for key in keys:
        index.lookup(key)
    return 1e6 * (perf_counter() - begun) / len(keys)


def _batch(index: Any, keys: np.ndarray[Any, Any]) -> float:
    begun = perf_counter()
    index.lookup_many(keys)
    return 1e6 * (perf_counter() - begun) / len(keys)
