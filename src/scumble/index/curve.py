"""The noisy cumulative-frequency curve: what the tree mechanisms release, and the monotone curve made of it.

A NoisyCurve is public: it comes out of a differentially private mechanism and everything after it is post-processing.
A MonotoneCurve holds whole rows for every rank, never falling; the segments are fitted to it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scumble.index.histogram import MAX_ROWS

__all__ = ["Knots", "MonotoneCurve", "NoisyCurve", "make_monotone"]

CHUNK = 1 << 20

Knots = NDArray[np.int64] | range  # a range where every rank is one: an array would cost as much as the curve


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
