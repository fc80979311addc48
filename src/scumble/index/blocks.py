"""Padded blocks: rows laid out so that no position depends on rows of another block, and each block has its own slack.

The ranks are cut into blocks, and each block into two halves. A block's place in the run is public: the rows of its
first half count up from its start, those of its second half down from its end, and dummies fill what lies between.

    | first half -> | dummies | <- second half | first half -> | dummies | <- second half |
    places[0]                                  places[1]                                  places[2]

A row's own key decides its block, so what the blocks release composes in parallel (docs/privacy.md sections 4.4 and
5.4). Everything here is public but the numbers of rows that the `unsafe_` methods and `lay_out` are given.
"""

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scumble._native import lib
from scumble.index.plan import USUAL, Plan
from scumble.index.segments import pointer
from scumble.index.slack import MOST_BLOCKS, shift

__all__ = ["LEAST_RANKS", "Blocks", "Layout", "suitable_blocks"]

IntArray = NDArray[np.int64]

MOST_ROWS = 1 << 40
MOST_DUMMIES = Fraction(1, 100)  # of the rows: so small tables get fewer blocks, or but one
LEAST_RANKS = 8  # of a block
LEAST_BYTES = 64  # for a block's segments, in a file of the size that was asked for
OTHER_BYTES = 512  # for all else in the file


class Layout(NamedTuple):
    """SECRET: of each block, where its dummies lie, from `first` to before `last`, and how many come up to it."""

    first: IntArray
    last: IntArray
    filled: IntArray


@dataclass(frozen=True, eq=False)
class Blocks:
    """PUBLIC: blocks of ranks, and where they lie.

    `bounds` are the first ranks of all halves, two for each block, and the number of ranks; `places` the positions at
    which blocks begin, and where the last one ends; `offsets` what is added to the rows of a half's curve to give a
    position.
    """

    bounds: IntArray
    slacks: IntArray
    places: IntArray
    offsets: IntArray

    @classmethod
    def of(cls, bounds: IntArray, totals: IntArray, slacks: IntArray) -> "Blocks":
        """Lay blocks side by side, each as long as its halves' curves, which end with `totals`, and its slack."""
        places = np.concatenate([[0], np.cumsum(totals[::2] + totals[1::2] + slacks)])
        offsets = np.empty(len(totals), dtype=np.int64)
        offsets[::2], offsets[1::2] = places[:-1], places[1:] - totals[1::2]
        return cls(bounds, slacks, places, offsets)

    def __len__(self) -> int:
        return len(self.slacks)

    @property
    def stops(self) -> tuple[int, ...]:
        """The positions at which blocks end."""
        return tuple(self.places[1:].tolist())

    @property
    def rows(self) -> int:
        """The positions of all blocks together."""
        return int(self.places[-1])

    @cached_property
    def _lists(self) -> tuple[list[int], list[int], list[int], list[int]]:
        """The same as Python integers, which a single lookup handles faster than arrays of one."""
        return self.bounds.tolist(), self.offsets.tolist(), self.slacks.tolist(), self.places.tolist()

    def half(self, ranks: IntArray) -> IntArray:
        """The half that each rank lies in."""
        return np.searchsorted(self.bounds, ranks, side="right") - 1

    def start_after(self, rank: int, rows: int) -> int:
        """Where the rows after a rank begin at the earliest; `rows` is the curve's value there."""
        bounds, offsets, slacks, places = self._lists
        half = bisect_right(bounds, rank) - 1
        if half % 2 and rank + 1 == bounds[half + 1]:
            return places[half // 2 + 1]  # where a block ends is known
        return max(places[half // 2], rows + offsets[half] - slacks[half // 2])

    def stop_at(self, rank: int, rows: int) -> int:
        """Where the rows up to a rank end at the latest; `rows` is the curve's value there."""
        bounds, offsets, slacks, places = self._lists
        half = bisect_right(bounds, rank) - 1
        return min(places[half // 2 + 1], rows + offsets[half] + slacks[half // 2])

    def starts_after(self, ranks: IntArray, rows: IntArray) -> IntArray:
        """The same for many at once."""
        half = self.half(ranks)
        block = half // 2
        starts = np.maximum(self.places[block], rows + self.offsets[half] - self.slacks[block])
        ends = ranks + 1 == self.bounds[2 * block + 2]
        return np.where(ends, self.places[block + 1], starts)

    def stops_at(self, ranks: IntArray, rows: IntArray) -> IntArray:
        """The same for many at once."""
        half = self.half(ranks)
        stops: IntArray = np.minimum(self.places[half // 2 + 1], rows + self.offsets[half] + self.slacks[half // 2])
        return stops

    def lay_out(self, counts: IntArray, most: int = MOST_ROWS) -> Layout:
        """SECRET: where the dummies go if each rank has so many rows, and there are at most so many dummies.

        If a block has more rows than places, which is as unlikely as that a lookup loses a row, the blocks after it
        give up dummies until all is in its place again: no row is ever dropped.
        """
        halves = self._half_counts(counts)
        layout = Layout(*(np.empty(len(self), dtype=np.int64) for _ in range(3)))
        stops = np.ascontiguousarray(self.places[1:])
        lib.scumble_block_dummies(pointer(stops), pointer(halves), most, *map(pointer, layout), len(self))
        return layout

    def unsafe_rows_below(self, counts: IntArray, places: IntArray) -> IntArray:
        """SECRET: how many rows lie before each of these positions."""
        below, layout = places.copy(), self.lay_out(counts)
        for first, last in zip(layout.first, layout.last, strict=True):
            below -= np.clip(places - first, 0, last - first)
        np.minimum(below, counts.sum(), out=below)
        return below

    def unsafe_places(self, counts: IntArray) -> IntArray:
        """SECRET: where every row lies, in the order of keys. For owners who lay rows out themselves, or compare."""
        halves = self._half_counts(counts)
        places: IntArray = np.arange(counts.sum()) + np.repeat(self._dummies_before(counts), halves)
        return places

    def unsafe_curve(self, counts: IntArray) -> IntArray:
        """SECRET: where the rows up to each rank end."""
        curve: IntArray = np.cumsum(counts) + np.repeat(self._dummies_before(counts), np.diff(self.bounds))
        return curve

    def _half_counts(self, counts: IntArray) -> IntArray:
        """SECRET: how many rows each half has. The last one may be without a rank, and then has none."""
        halves: IntArray = np.add.reduceat(np.append(counts, 0), self.bounds[:-1])
        return halves

    def _dummies_before(self, counts: IntArray) -> IntArray:
        """SECRET: how many dummies lie before the rows of each half."""
        layout = self.lay_out(counts)
        before = np.empty(2 * len(self), dtype=np.int64)
        before[::2], before[1::2] = np.concatenate([[0], layout.filled[:-1]]), layout.filled
        return before


def suitable_blocks(
    size: int,
    rows: int,
    epsilon: Fraction,
    beta: Fraction,
    max_bytes: int | None,
    *,
    nullable: bool = False,
    plan: Plan = USUAL,
) -> int:
    """How many blocks suit a run of so many rows: as many as do not add more than MOST_DUMMIES to them.

    Public facts alone decide: the domain's size, the run's capacity, the terms, the room for segments, and whether
    there can be rows without a key, for which a run needs twice the room.
    """
    share = epsilon * plan.slack(in_blocks=True)
    padding = (2 * shift(share, beta / MOST_BLOCKS) + 8 / share) * (1 + nullable)
    most = min(MOST_BLOCKS, size // LEAST_RANKS, int(rows * MOST_DUMMIES / padding))
    if max_bytes is not None:
        most = min(most, (max_bytes - OTHER_BYTES) // LEAST_BYTES)
    return max(1, most)
