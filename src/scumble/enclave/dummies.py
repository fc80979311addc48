"""Where the dummies of a run lie: between the halves of its blocks, and after its last row.

Where a block ends is PUBLIC; where its dummies begin and end is SECRET, since it tells how many rows the block has. A
manifest keeps both, sealed.
"""

import struct
from bisect import bisect_right
from typing import Self

import numpy as np

from scumble.enclave import kernels
from scumble.enclave.kernels import Mask, Words
from scumble.errors import Tampered
from scumble.index.blocks import Blocks, Layout

__all__ = ["Dummies"]

FAR = 1 << 62
"""Beyond every position: where a run's last stretch of dummies ends."""
_HEAD = struct.Struct("<Q")
_BLOCKS = 1 << 63
"""Set in the head if it counts blocks; without it, it is the number of real rows, as release 0.1 wrote it."""


class Dummies:
    """A run's dummies: of each block one stretch of positions, and another after the last block."""

    def __init__(self, stops: tuple[int, ...], stretches: Words) -> None:
        self._stops, self._stretches = stops, stretches

    @classmethod
    def after(cls, real_rows: int) -> Self:
        """Dummies that follow all rows."""
        stretches = np.empty((1, 2), np.int64)
        stretches[0, 0], stretches[0, 1] = real_rows, FAR
        return cls((FAR,), stretches)

    @classmethod
    def between(cls, blocks: Blocks, layout: Layout, real_rows: int) -> Self:
        """Dummies between the halves of blocks, and after all rows, those without a key included."""
        stretches = np.empty((len(blocks) + 1, 2), np.int64)
        stretches[:-1, 0], stretches[:-1, 1] = layout.first, layout.last
        stretches[-1, 0], stretches[-1, 1] = layout.filled[-1] + real_rows, FAR
        return cls((*blocks.stops, FAR), stretches)

    def mask(self, start: int, rows: int) -> Mask:
        """1 for those of the rows start, start + 1, ... that are real."""
        block, end = bisect_right(self._stops, start), start + rows
        if end <= self._stops[block]:
            return kernels.mask_rows(start, rows, self._stretches[block])
        parts = []
        while start < end:
            stop = min(end, self._stops[block])
            parts.append(kernels.mask_rows(start, stop - start, self._stretches[block]))
            start, block = stop, block + 1
        return np.concatenate(parts)

    def to_bytes(self) -> bytes:
        """As many bytes as the number of blocks says."""
        count = len(self._stops)
        return _HEAD.pack(_BLOCKS | count) + struct.pack(f"<{count}q", *self._stops) + self._stretches.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, at: int) -> tuple[Self, int]:
        """What `to_bytes` wrote there, or the number of real rows, and where it ends; else Tampered."""
        try:
            (head,) = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            if not head & _BLOCKS:
                return cls.after(head), at
            count = head ^ _BLOCKS
            end = at + 24 * count
            stops = struct.unpack_from(f"<{count}q", data, at)
            stretches = np.frombuffer(data, np.int64, 2 * count, at + 8 * count).reshape(count, 2)
        except (struct.error, ValueError):
            raise Tampered from None
        return cls(stops, stretches), end

    def __repr__(self) -> str:
        return f"Dummies(blocks={len(self._stops) - 1}, stretches=<secret>)"
