"""Tallies: what the index of a run, or of several merged ones, is made of, kept so that it can be added to others.

All of it is public: the noisy node counts of batches over a common grid, added up, as they were released; and whole
indexes of batches that have none. A tally is stored beside its run; docs/format.md describes every byte. The checksum
finds accidents, not adversaries.
"""

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import sha256
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from scumble.errors import Corrupt, DomainError, InvalidParameter, NewerVersion
from scumble.index.file import IndexModel, decode, encode, packed_domain, unpacked_domain
from scumble.index.grid import Grid
from scumble.index.packing import pack, packed_bytes, unpack
from scumble.privacy.budget import from_ratio, ratio
from scumble.types import Domain, parse_domain

__all__ = ["Batches", "NodeCounts", "Tally", "WholeIndex"]

IntArray = NDArray[np.int64]

MAGIC = b"SCUMTALY"
VERSION = 1
CHECKSUM_BYTES = 8
HEADER = struct.Struct("<BBHI")  # version, whether the domain's list is packed, node counts, and whole indexes
LENGTH = struct.Struct("<I")
NUMBER = struct.Struct("<Q")
MOST_BATCHES = 1 << 32
MOST_ROWS = 1 << 40


class Batches(NamedTuple):
    """PUBLIC: of some batches, how many there are, the largest epsilon and delta, beta and capacity in all."""

    number: int
    epsilon: Fraction
    delta: Fraction
    beta: Fraction
    capacity: int

    @classmethod
    def together(cls, all_of: "Sequence[Batches]") -> Self:
        """Of all of them, if no row is in two: it has paid once. If any index fails, their sum may."""
        number, capacity = sum(each.number for each in all_of), sum(each.capacity for each in all_of)
        if number > MOST_BATCHES or capacity > MOST_ROWS:
            raise InvalidParameter("these are too many rows for one index", hint="leave some runs as they are")
        epsilon, delta = max(each.epsilon for each in all_of), max(each.delta for each in all_of)
        return cls(number, epsilon, delta, min(Fraction(1), sum((each.beta for each in all_of), Fraction(0))), capacity)


@dataclass(frozen=True, eq=False)
class NodeCounts:
    """PUBLIC: the noisy nodes of a grid's trees, added up over batches, and what each batch's trees have spent."""

    grid: Grid
    nodes: IntArray
    spent: tuple[tuple[Fraction, int], ...]
    batches: Batches

    def plus(self, other: "NodeCounts") -> "NodeCounts":
        """Both together; InvalidParameter if their grids differ, for then there is nothing in common to be added."""
        if self.grid.digest != other.grid.digest:
            raise InvalidParameter(
                "node counts over different grids cannot be added", hint="merge them as whole indexes: Tally.added"
            )
        spent = Counter(dict(self.spent))
        spent.update(dict(other.spent))
        batches = Batches.together([self.batches, other.batches])
        return replace(self, nodes=self.nodes + other.nodes, spent=tuple(sorted(spent.items())), batches=batches)


class WholeIndex(NamedTuple):
    """PUBLIC: the index of a batch whose node counts were not kept."""

    model: IndexModel
    batches: Batches


@dataclass(frozen=True, eq=False)
class Tally:
    """PUBLIC: what is known of the rows of some batches: node counts, of each grid once, and whole indexes."""

    domain: Domain
    counted: tuple[NodeCounts, ...]
    whole: tuple[WholeIndex, ...] = ()

    @classmethod
    def of_index(cls, model: IndexModel, capacity: int) -> Self:
        """Of a batch that has an index alone, in a run with room for so many rows."""
        if not isinstance(model, IndexModel):
            raise InvalidParameter("only indexes with segments can be merged", hint="reindex a comparator's table")
        batches = Batches(1, model.epsilon, model.delta, model.beta, capacity)
        return cls(model.domain, (), (WholeIndex(model, batches),))

    @classmethod
    def added(cls, tallies: "Sequence[Tally]") -> Self:
        """All of them together: node counts over the same grid add up, all else stays side by side."""
        if not tallies:
            raise InvalidParameter("there is nothing to be merged", hint="give at least one tally")
        if len({tally.domain.text for tally in tallies}) > 1:
            raise InvalidParameter("indexes of different domains cannot be merged", hint="reindex the table instead")
        counted: dict[bytes, NodeCounts] = {}
        for counts in (counts for tally in tallies for counts in tally.counted):
            before = counted.get(counts.grid.digest)
            counted[counts.grid.digest] = counts if before is None else before.plus(counts)
        added = cls(
            tallies[0].domain, tuple(counted.values()), tuple(each for tally in tallies for each in tally.whole)
        )
        _ = added.totals  # refuses what is too large
        return added

    @property
    def totals(self) -> Batches:
        counted, whole = (counts.batches for counts in self.counted), (each.batches for each in self.whole)
        return Batches.together([*counted, *whole])

    @property
    def batches(self) -> int:
        """How many batches are inside."""
        return self.totals.number

    @property
    def epsilon(self) -> Fraction:
        """What the dearest of its batches has cost."""
        return self.totals.epsilon

    @property
    def delta(self) -> Fraction:
        return self.totals.delta

    @property
    def beta(self) -> Fraction:
        """A bound on the chance that any lookup loses a row: the sum over its batches."""
        return self.totals.beta

    @property
    def capacity(self) -> int:
        """The capacities of its batches added up."""
        return self.totals.capacity

    @property
    def main(self) -> NodeCounts | None:
        """The node counts of most batches, if there are any."""
        return max(self.counted, key=lambda counts: counts.batches.number, default=None)

    @property
    def grid(self) -> Grid | None:
        """What later batches of the table should count over."""
        return None if self.main is None else self.main.grid

    def to_bytes(self) -> bytes:
        text, keys = packed_domain(self.domain)
        body = b"".join(
            [
                MAGIC,
                HEADER.pack(VERSION, bool(keys), len(self.counted), len(self.whole)),
                _sized(text.encode()),
                _sized(keys),
                *(_packed_counts(counts) for counts in self.counted),
                *(_packed_batches(each.batches) + _sized(encode(each.model)) for each in self.whole),
            ]
        )
        return body + sha256(body).digest()[:CHECKSUM_BYTES]

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The tally of stored bytes; Corrupt or NewerVersion if there is none in them."""
        if data[: len(MAGIC)] != MAGIC:
            raise Corrupt("this is no tally of an index", hint="it is stored beside a run")
        if len(data) > len(MAGIC) and data[len(MAGIC)] > VERSION:
            raise NewerVersion("this tally is of a newer Scumble", hint="upgrade Scumble")
        body, checksum = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
        if sha256(body).digest()[:CHECKSUM_BYTES] != checksum:
            raise Corrupt("this tally is truncated or altered", hint="restore it from a copy, or merge without it")
        try:
            tally = cls._parsed(_Reader(body[len(MAGIC) :]))
            if tally.to_bytes() != data:
                raise ValueError("no tally is written so")
            return tally
        except (struct.error, ValueError, IndexError, DomainError, InvalidParameter) as error:
            raise Corrupt("this tally's parts do not fit together", hint="restore it from a copy") from error

    @classmethod
    def _parsed(cls, reader: "_Reader") -> Self:
        _, listed, counted, whole = reader.take(HEADER)
        text, keys = reader.sized().decode(), reader.sized()
        domain = unpacked_domain(text, keys)[0] if listed else parse_domain(text)
        tally = cls(
            domain,
            tuple(_unpacked_counts(reader, domain.size) for _ in range(counted)),
            tuple(_unpacked_whole(reader) for _ in range(whole)),
        )
        if (
            reader.rest()
            or not (counted or whole)
            or any(each.model.domain.text != domain.text for each in tally.whole)
        ):
            raise ValueError("parts of another tally")
        if len({counts.grid.digest for counts in tally.counted}) < counted:
            raise ValueError("a grid twice")
        _ = tally.totals
        return tally


class _Reader:
    """Bytes that are read from the first to the last."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return values

    def part(self, length: int) -> bytes:
        if self._at + length > len(self._data):
            raise ValueError("too short")
        self._at += length
        return self._data[self._at - length : self._at]

    def sized(self) -> bytes:
        return self.part(self.take(LENGTH)[0])

    def rest(self) -> int:
        return len(self._data) - self._at


def _sized(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


def _packed_batches(batches: Batches) -> bytes:
    numbers = NUMBER.pack(batches.number) + NUMBER.pack(batches.capacity)
    return numbers + b"".join(_sized(ratio(each).encode()) for each in (batches.epsilon, batches.delta, batches.beta))


def _unpacked_batches(reader: _Reader) -> Batches:
    (number,), (capacity,) = reader.take(NUMBER), reader.take(NUMBER)
    epsilon, delta, beta = (from_ratio(reader.sized().decode()) for _ in range(3))
    if not 1 <= number <= MOST_BATCHES or capacity > MOST_ROWS or epsilon <= 0 or delta < 0 or not 0 <= beta <= 1:
        raise ValueError("impossible batches")
    return Batches(number, epsilon, delta, beta, capacity)


def _packed_counts(counts: NodeCounts) -> bytes:
    """The nodes as running sums of their distances from zero, which never fall; a sign is a distance's last bit."""
    folded = np.cumsum(np.where(counts.nodes < 0, -2 * counts.nodes - 1, 2 * counts.nodes))
    spent = b"".join(_sized(ratio(epsilon).encode()) + NUMBER.pack(number) for epsilon, number in counts.spent)
    return b"".join(
        [
            _packed_batches(counts.batches),
            _sized(counts.grid.packed),
            LENGTH.pack(len(counts.spent)),
            spent,
            NUMBER.pack(int(folded[-1])),
            pack(folded, int(folded[-1])),
        ]
    )


def _unpacked_counts(reader: _Reader, size: int) -> NodeCounts:
    batches, grid = _unpacked_batches(reader), Grid.unpacked(reader.sized(), size)
    (different,) = reader.take(LENGTH)
    if not 1 <= different <= batches.number:
        raise ValueError("impossible batches")
    spent = tuple((from_ratio(reader.sized().decode()), reader.take(NUMBER)[0]) for _ in range(different))
    if sum(number for _, number in spent) != batches.number or any(epsilon <= 0 or n < 1 for epsilon, n in spent):
        raise ValueError("impossible batches")
    (greatest,) = reader.take(NUMBER)
    if greatest > MOST_ROWS * grid.nodes:
        raise ValueError("impossible counts")
    folded = np.diff(unpack(reader.part(packed_bytes(grid.nodes, greatest)), grid.nodes, greatest), prepend=0)
    return NodeCounts(grid, np.where(folded & 1, -(folded >> 1) - 1, folded >> 1), spent, batches)


def _unpacked_whole(reader: _Reader) -> WholeIndex:
    batches = _unpacked_batches(reader)
    return WholeIndex(decode(reader.sized()), batches)
