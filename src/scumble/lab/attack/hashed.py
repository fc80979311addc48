"""Numbers that look random and are the same every time: a label comes in, numbers in [0, 1) made by hashing it go out.

Attacks need made-up rows and made-up queries, and neither is secret. What protects anybody comes from the noise module
and from nowhere else; nothing here may be used for that.
"""

from hashlib import shake_256

import numpy as np
from numpy.typing import NDArray

__all__ = ["fractions", "made_up_counts", "uniform_ranges"]

IntArray = NDArray[np.int64]


def fractions(label: str, count: int) -> NDArray[np.float64]:
    """`count` numbers in [0, 1), evenly spread: 53 bits each of SHAKE-256 of the label, the same ones every time."""
    words = np.frombuffer(shake_256(label.encode()).digest(8 * count), dtype="<u8")
    return (words >> np.uint64(11)).astype(np.float64) / 2**53


def made_up_counts(rows: int, size: int) -> IntArray:
    """How many of `rows` rows have each of `size` keys: two hills and a heavy key, and at least one row everywhere.

    That every key occurs is what the literature calls dense data; some attacks then succeed sooner.
    """
    places = np.arange(size) / size
    hills = np.exp(-(((places - 0.3) / 0.1) ** 2) / 2) + 0.6 * np.exp(-(((places - 0.7) / 0.06) ** 2) / 2) + 0.05
    cumulative = np.cumsum(hills * (0.5 + fractions("made-up weights", size)))
    free = max(0, rows - size)
    heavy = free // 20
    drawn = np.searchsorted(cumulative, fractions("made-up rows", free - heavy) * cumulative[-1], side="right")
    counts = np.bincount(np.minimum(drawn, size - 1), minlength=size) + 1
    counts[size // 2] += heavy
    return counts.astype(np.int64)


def uniform_ranges(label: str, count: int, size: int) -> tuple[IntArray, IntArray]:
    """First and last ranks of `count` ranges, each of the size (size + 1) / 2 ranges equally likely."""
    ends = np.cumsum(np.arange(size, 0, -1))  # how many ranges start at or before each rank
    drawn = (fractions(label, count) * int(ends[-1])).astype(np.int64)
    firsts = np.searchsorted(ends, drawn, side="right")
    lasts = size - 1 - (ends[firsts] - 1 - drawn)
    return firsts.astype(np.int64), lasts.astype(np.int64)
