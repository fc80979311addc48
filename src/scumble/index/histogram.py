"""The histogram of a key column: how many rows each rank of the domain holds.

A histogram is secret. Only code that may see the rows (the owner's, or the enclave's) may hold one; it prints nothing
of itself, and nothing downstream branches on it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scumble.errors import InvalidKeys, InvalidParameter

__all__ = ["Histogram"]

MAX_ROWS = 2**36 - 1  # what the segment kernel can multiply exactly with a rank


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
        if array.min() < 0 or array.sum() > MAX_ROWS:
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
