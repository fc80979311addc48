"""From a column's histogram to the curve that the segments are fitted to.

A Histogram is SECRET: only code that may see the rows (the owner's, or the enclave's) holds one, it prints nothing of
itself, and nothing downstream branches on it. A mechanism releases a NoisyCurve from it, which is public, as is all
that is made of that; a MonotoneCurve holds whole rows for every rank, never falling.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scumble.errors import InvalidKeys, InvalidParameter

__all__ = ["MAX_ROWS", "Histogram", "Knots", "MonotoneCurve", "NoisyCurve", "make_monotone"]

MAX_ROWS = 2**36 - 1  # what the segment kernel can multiply exactly with a rank
CHUNK = 1 << 20

Knots = NDArray[np.int64] | range  # a range where every rank is one: an array would cost as much as the curve


@dataclass(frozen=True, repr=False, eq=False)
class Histogram:
    """SECRET: how many rows each rank of a domain holds (the paper's H(D, A))."""

    counts: NDArray[np.int64]

    @classmethod
    def of_ranks(cls, ranks: NDArray[np.int64], size: int) -> "Histogram":
        """Count ranks. Touches memory at secret addresses: an enclave counts obliviously and uses `of_counts`."""
        return cls(np.bincount(ranks, minlength=size))

    @classmethod
    def of_counts(cls, counts: ArrayLike, size: int) -> "Histogram":
        """Take counts that were made elsewhere, one for every rank of the domain."""
        array = np.asarray(counts)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise InvalidKeys(
                "the counts must be a one-dimensional array of integers",
                hint="pass one int64 count for every rank of the domain",
            )
        if len(array) != size:
            raise InvalidParameter(
                f"there are {len(array)} counts for a domain of {size} ranks",
                hint="pass one count for every rank of the domain, zeros included",
            )
        array = np.ascontiguousarray(array, dtype=np.int64)
        if array.min() < 0 or array.max() > MAX_ROWS or array.sum() > MAX_ROWS:  # a sum of larger ones could wrap
            raise InvalidKeys("the counts must be non-negative and add up to less than 2^36", hint="check their source")
        return cls(array)

    @property
    def size(self) -> int:
        """The number of ranks, which is public."""
        return len(self.counts)

    def fits(self, capacity: int) -> bool:
        """Whether the rows fit a capacity: one bit, for the owner."""
        return bool(self.counts.sum() <= capacity)

    def __repr__(self) -> str:
        return f"Histogram(size={self.size}, counts=<secret>)"


@dataclass(frozen=True, eq=False)
class NoisyCurve:
    """PUBLIC: noisy numbers of rows at or before some ranks, the knots; the curve is straight between them.

    `levels` is how many levels of nodes were released for it, `noise_rms` the root mean square of its noise over the
    knots, known from the scales alone.
    """

    size: int
    knots: Knots
    rows: NDArray[np.float64]
    levels: int
    noise_rms: float


@dataclass(frozen=True, eq=False)
class MonotoneCurve:
    """PUBLIC: whole rows at or before every rank; never falling, never below zero."""

    rows: NDArray[np.int64]


def make_monotone(curve: NoisyCurve, capacity: int | None) -> MonotoneCurve:
    """Isotonic regression, then a clip to [0, capacity] (the paper's algorithm 2, lines 1 and 2).

    Neither can increase the largest error against a true curve that is itself monotone and within the clip.
    """
    level = np.clip(_isotonic(curve.rows), 0, MAX_ROWS if capacity is None else capacity)
    if len(level) == curve.size:
        return MonotoneCurve(np.rint(level).astype(np.int64))
    knots = np.concatenate([[-1], curve.knots])
    level = np.concatenate([[0.0], level])
    rows = np.empty(curve.size, dtype=np.int64)
    for start in range(0, curve.size, CHUNK):
        ranks = np.arange(start, min(start + CHUNK, curve.size))
        rows[start : start + CHUNK] = np.rint(np.interp(ranks, knots, level))
    return MonotoneCurve(rows)


def _isotonic(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least-squares isotonic regression, chunk by chunk and then over the chunks' level stretches.

    Stretches that a part of the data pools stay pooled in the whole, so the result is the same as in one piece; but
    memory stays near the input's own.
    """
    from scipy.optimize import isotonic_regression  # slow to import, and only a fit needs it

    levels, lengths = [], []
    for start in range(0, len(values), CHUNK):
        fit = isotonic_regression(values[start : start + CHUNK])
        levels.append(fit.x[fit.blocks[:-1]])
        lengths.append(np.diff(fit.blocks))
    level, length = np.concatenate(levels), np.concatenate(lengths)
    if len(levels) > 1:
        level = isotonic_regression(level, weights=length).x
    result: NDArray[np.float64] = np.repeat(level, length)
    return result
