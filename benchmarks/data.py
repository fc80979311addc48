"""Made-up keys of several distributions, as counts for every rank: the same for the same seed."""

from collections.abc import Callable
from math import log

import numpy as np
from numpy.typing import NDArray

__all__ = ["KEYS", "gapless_curve", "identifiers", "make_counts", "salaries"]

Counts = NDArray[np.int64]
Draw = Callable[[np.random.Generator, int, int], NDArray[np.int64]]

ZIPF = 1.1


def make_counts(name: str, size: int, rows: int, seed: int = 1) -> Counts:
    """Rows at each of `size` ranks, of one of the distributions in KEYS."""
    return np.bincount(KEYS[name](np.random.default_rng(seed), size, rows), minlength=size).astype(np.int64)


def salaries(rows: int, size: int, seed: int = 1) -> NDArray[np.int64]:
    """Lognormal with its median at two fifths of the domain; the few beyond its end are drawn evenly instead."""
    rng = np.random.default_rng(seed)
    drawn = rng.lognormal(log(0.4 * size), 0.35, rows)
    return np.where(drawn < size, drawn, rng.integers(0, size, rows)).astype(np.int64)


def gapless_curve(size: int, seed: int = 1) -> tuple[Counts, NDArray[np.int64]]:
    """A table in which every key of the domain occurs, one to a few times, more often here than there.

    Returned as the curve of rows before each key, and as the sorted keys of the rows. The first key is a heavy one:
    PGM-index cuts its tolerance off at position 0, which is a harder problem than ours, but for that key alone then.
    """
    rng = np.random.default_rng(seed)
    waves = 1 + np.sin(np.arange(size) * (40 * np.pi / size))
    counts = 1 + rng.poisson(0.5 * waves)
    counts[0] += 100_000
    return np.concatenate([[0], np.cumsum(counts[:-1])]), np.repeat(np.arange(size), counts)


def identifiers(rows: int = 250_000, span: int = 1_841_180, seed: int = 3) -> Counts:
    """Unique identifiers as a bureau hands them out: stretches of all lengths and densities, and gaps between them."""
    rng = np.random.default_rng(seed)
    density, at = np.zeros(span), 0
    while at < span:
        length = int(rng.pareto(1.1) * 300) + 50
        density[at : at + length] = rng.choice([0, 0.02, 0.1, 0.3, 0.9], p=[0.35, 0.2, 0.2, 0.15, 0.1])
        at += length
    taken: Counts = (rng.random(span) < np.minimum(1, density * rows / density.sum())).astype(np.int64)
    return taken


def _uniform(rng: np.random.Generator, size: int, rows: int) -> NDArray[np.int64]:
    return rng.integers(0, size, rows)


def _lognormal(rng: np.random.Generator, size: int, rows: int) -> NDArray[np.int64]:
    """Spread over the domain: the median at an eighth, what lies beyond the end drawn again, evenly."""
    drawn = rng.lognormal(log(size / 8), 0.8, rows)
    return np.where(drawn < size, drawn, rng.integers(0, size, rows)).astype(np.int64)


def _zipf(rng: np.random.Generator, size: int, rows: int) -> NDArray[np.int64]:
    """Zipf over the ranks 1..size, heaviest first."""
    weights = np.cumsum(np.arange(1, size + 1, dtype=np.float64) ** -ZIPF)
    places: NDArray[np.int64] = np.searchsorted(weights, rng.random(rows) * weights[-1])
    return np.minimum(places, size - 1, out=places)


def _shuffled_zipf(rng: np.random.Generator, size: int, rows: int) -> NDArray[np.int64]:
    places: NDArray[np.int64] = rng.permutation(size)[_zipf(rng, size, rows)]
    return places


KEYS: dict[str, Draw] = {
    "uniform": _uniform,
    "lognormal": _lognormal,
    "zipf": _zipf,
    "shuffled zipf": _shuffled_zipf,
}
