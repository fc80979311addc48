"""Grids: the public cells that all batches of a table count their rows in, so that what they release can be added.

Everything here is public: a grid is made of curves that were released before, of a hint, of nothing at all, or by the
first batch, which pays for it (`index/mechanisms/gridded.py`). Its cells are much finer than one batch needs, since
batches add up; they are cut into parts, each with a tree of its own.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter
from scumble.index.hint import Hint
from scumble.index.mechanisms.wide_tree import WideTree
from scumble.index.packing import pack, packed_bytes, unpack
from scumble.index.slack import MOST_BLOCKS

if TYPE_CHECKING:
    from scumble.index.file import IndexModel

__all__ = ["NEW", "Grid", "suitable_cells", "suitable_parts"]

IntArray = NDArray[np.int64]

NEW = b""
"""Instead of a packed grid: the batch is to find one, for a part of its epsilon."""
VERSION = 1
HEADER = struct.Struct("<BQIHBB")  # version, ranks, cells, parts, levels, fan-out
LEAST_CELLS, MOST_CELLS = 1 << 8, 1 << 16
MOST_PACKED_CELLS = 1 << 20
CELLS = 7  # for each row of a batch to the power of 2/3: with forty batches, a cell has as many rows as half the noise
ALL_RANKS = 2  # ranks for each cell: if there are no more, every rank is a cell
EVENLY = 0.25  # of the cells are spread over the ranks, in case the curve is wrong
ROUNDS = 20
MOST_LEVELS, MOST_FAN_OUT = 6, 255
ROWS_OF_BLOCK = 250  # of one batch, so that dummies are a few parts in a hundred of some thirty such batches


@dataclass(frozen=True, eq=False)
class Grid:
    """PUBLIC: the first rank of every cell, how many parts of equally many cells there are, and their trees' shape."""

    size: int
    starts: IntArray
    parts: int
    levels: int
    fan_out: int

    @classmethod
    def of_curve(cls, curve: NDArray[np.float64], rows: int) -> Self:
        """Cells of about equally many rows of a public curve, for batches of about so many rows.

        A rank that has most of a cell by itself is one.
        """
        size, cells = len(curve), suitable_cells(rows)
        if size <= ALL_RANKS * cells:
            return cls._shaped(size, np.arange(size), rows)
        rows_of = np.maximum(np.diff(curve, prepend=0.0), 0)
        rows_of = (1 - EVENLY) / max(float(rows_of.sum()), 1.0) * rows_of + EVENLY / size
        cell = 1 / cells
        for _ in range(ROUNDS):  # a rank takes a cell at most, and the others share what it leaves
            cell = float(np.minimum(rows_of, cell).sum()) / cells
        share = np.cumsum(np.minimum(rows_of, cell)) / cell
        full = np.flatnonzero(np.diff(np.floor(share), prepend=0.0) > 0) + 1
        heavy = np.flatnonzero(rows_of > cell / 2)
        starts = np.unique(np.concatenate([[0], full, heavy, heavy + 1]))
        return cls._shaped(size, starts[starts < size], rows)

    @classmethod
    def of_models(cls, models: "Sequence[IndexModel]", rows: int) -> Self:
        """The grid that released indexes of one domain give together."""
        ranks = np.arange(models[0].domain.size)
        curve = np.zeros(len(ranks))
        for model in models:
            curve += np.maximum.accumulate(np.maximum(model.rows_up_to(ranks), 0))
        return cls.of_curve(curve, rows)

    @classmethod
    def of_hint(cls, hint: Hint, rows: int) -> Self:
        """The grid that a public hint gives."""
        return cls.of_curve(hint.at_many(np.arange(hint.marks.size)).astype(np.float64) + 1, rows)

    @classmethod
    def even(cls, size: int, rows: int) -> Self:
        """The grid of equally wide cells."""
        return cls.of_curve(np.arange(1.0, size + 1), rows)

    @classmethod
    def _shaped(cls, size: int, starts: IntArray, rows: int) -> Self:
        parts = min(suitable_parts(rows), 1 << (len(starts).bit_length() - 1))
        return cls(size, starts, parts, *_best_shape(-(-len(starts) // parts)))

    @cached_property
    def cuts(self) -> IntArray:
        """The cells that parts begin with, and how many cells there are."""
        return np.arange(self.parts + 1) * len(self.starts) // self.parts

    @cached_property
    def edges(self) -> IntArray:
        """The first rank of every cell, and the number of ranks."""
        return np.append(self.starts, self.size)

    @cached_property
    def nodes(self) -> int:
        """How many nodes all trees have."""
        return sum(tree.widths(level) for tree in self.trees(Fraction(1)) for level in range(self.levels))

    def trees(self, epsilon: Fraction) -> list[WideTree]:
        """The tree of each part, all of whose levels together may spend so much."""
        return [_tree(int(leaves), self.levels, self.fan_out, epsilon) for leaves in np.diff(self.cuts)]

    @cached_property
    def packed(self) -> bytes:
        """The grid as orders and tallies carry it."""
        header = HEADER.pack(VERSION, self.size, len(self.starts), self.parts, self.levels, self.fan_out)
        return header + pack(self.starts, self.size - 1)

    @cached_property
    def digest(self) -> bytes:
        """What tells it from any other grid."""
        return sha256(self.packed).digest()

    @classmethod
    def unpacked(cls, data: bytes, size: int) -> Self:
        """The grid of a domain of so many ranks; InvalidParameter if it is none."""
        try:
            return cls._parsed(data, size)
        except (struct.error, ValueError) as error:
            raise InvalidParameter(
                "this is no grid for this domain", hint="take that of the table's earlier batches, or a new one"
            ) from error

    @classmethod
    def _parsed(cls, data: bytes, size: int) -> Self:
        version, ranks, cells, parts, levels, fan_out = HEADER.unpack_from(data)
        if version != VERSION or ranks != size or not 1 <= cells <= min(size, MOST_PACKED_CELLS):
            raise ValueError("impossible sizes")
        if not 1 <= parts <= min(2 * MOST_BLOCKS, cells) or parts & (parts - 1):
            raise ValueError("an impossible number of parts")
        if not 1 <= levels <= MOST_LEVELS or fan_out < 2:
            raise ValueError("an impossible tree")
        length = packed_bytes(cells, size - 1)
        starts = unpack(data[HEADER.size : HEADER.size + length], cells, size - 1)
        if len(data) != HEADER.size + length or starts[0] != 0 or np.any(np.diff(starts) <= 0):
            raise ValueError("cells out of order")
        return cls(size, starts, parts, levels, fan_out)


def suitable_cells(rows: int) -> int:
    """How many cells suit batches of so many rows."""
    return min(max(int(CELLS * rows ** (2 / 3)), LEAST_CELLS), MOST_CELLS)


def suitable_parts(rows: int) -> int:
    """How many parts suit batches of so many rows: a power of two, two for each block that many of them would have."""
    blocks = min(max(rows // ROWS_OF_BLOCK, 1), MOST_BLOCKS)
    return 2 << (blocks.bit_length() - 1)


@lru_cache(maxsize=256)
def _tree(leaves: int, levels: int, fan_out: int, epsilon: Fraction) -> WideTree:
    blocks = tuple(fan_out**level for level in reversed(range(levels)))
    return WideTree(leaves, blocks, (epsilon / levels,) * levels)


@lru_cache(maxsize=64)
def _best_shape(leaves: int) -> tuple[int, int]:
    """The number of levels and the fan-out below the topmost that make the worst prefix least uncertain."""
    shapes = [(1, 2)]
    for levels in range(2, MOST_LEVELS + 1):
        shapes += [(levels, fan) for fan in range(2, MOST_FAN_OUT + 1) if fan ** (levels - 1) <= leaves]
    return min(shapes, key=lambda shape: _tree(leaves, *shape, Fraction(1)).worst_variance)
