"""Hints: a public curve that keys are expected to follow, from a public column or from indexes released before.

Everything here is public. A hint gives each rank a *mark*: how far along the expected rows those up to the rank end, on
a scale of `span` steps. An index with a hint learns rows over marks rather than over ranks, so that keys which follow
the hint look uniform to it, heavy keys and gaps included. `index/mechanisms/hinted.py` notices hints that are wrong.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import isqrt
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from scumble.errors import Corrupt, DomainError, FileError, InvalidParameter, NewerVersion
from scumble.index.packing import pack, packed_bytes, unpack
from scumble.index.segments import Segments
from scumble.types import Domain, parse_domain

if TYPE_CHECKING:
    from scumble.index.file import IndexModel

__all__ = ["MOST_PIECES", "Hint"]

IntArray = NDArray[np.int64]

MOST_PIECES = 1 << 14  # at most some 45 KB
LEAST_SPAN_BITS, MOST_SPAN_BITS = 16, 24
FLAT = 64  # one part in so many of the expected rows are spread evenly over the ranks, so that marks always advance
PLAIN_ROWS = 1
PLAIN_TENTHS = 12  # a piece is straight if no rank is further from it than 1.2 times the root of its rows, plus a row:
# keys that come independently stray from a straight line by more than that once in eighteen pieces

MAGIC = b"SCUMHINT"
VERSION = 1
HEADER = struct.Struct("<QIB")  # ranks, pieces, and the bits of the span
FILE_HEADER = struct.Struct("<BI")  # version, and the length of the domain's text
CHECKSUM_BYTES = 8


@dataclass(frozen=True, eq=False)
class Hint:
    """PUBLIC: the mark of every rank, 0 to span - 1, in straight pieces; never falling, the last is span - 1."""

    marks: Segments

    @classmethod
    def of_keys(cls, keys: object, domain: Domain) -> Self:
        """The hint that a column of public keys gives."""
        return cls.of_counts(np.bincount(domain.ranks(keys), minlength=domain.size))

    @classmethod
    def of_counts(cls, counts: IntArray) -> Self:
        """The hint that a public column gives, of which each rank has so many rows.

        A piece ends where the column departs from a straight line by more than chance would have it; if that takes too
        many pieces, by more than that.
        """
        curve, tenths = np.cumsum(counts, dtype=np.int64), PLAIN_TENTHS
        while len(starts := _straight(curve, tenths)) > MOST_PIECES:
            tenths += max(2, tenths // 4)
        return cls._through(curve, starts)

    @classmethod
    def of_models(cls, models: "Sequence[IndexModel]") -> Self:
        """The hint that released indexes of one domain give together: curves add."""
        ranks = np.arange(models[0].domain.size)
        curve = np.zeros(len(ranks), dtype=np.int64)
        for model in models:
            curve += np.maximum.accumulate(np.maximum(model.rows_up_to(ranks), 0))
        return cls.of_counts(np.diff(curve, prepend=0))

    @classmethod
    def _through(cls, curve: IntArray, starts: IntArray) -> Self:
        """The hint that passes through a curve at both ends of every piece, on a scale of about its rows."""
        size, rows = len(curve), int(curve[-1])
        bits = min(max(rows.bit_length() + 1, LEAST_SPAN_BITS), MOST_SPAN_BITS)

        def mark(rank: int) -> int:
            expected = (FLAT - 1) * int(curve[rank]) * size + max(rows, 1) * (rank + 1)
            whole = ((FLAT - 1) * rows + max(rows, 1)) * size
            return max(0, (expected << bits) // whole - 1)

        ends = np.append(starts[1:], size) - 1
        first, last = (np.array([mark(rank) for rank in ranks.tolist()], np.int64) for ranks in (starts, ends))
        return cls(Segments(size, starts, first, last, 1))

    @property
    def span(self) -> int:
        """How many marks there are: a power of two."""
        return int(self.marks.last[-1]) + 1

    def at(self, rank: int) -> int:
        return self.marks.at(rank)

    def at_many(self, ranks: IntArray) -> IntArray:
        return self.marks.at_many(ranks)

    def before(self, ranks: IntArray) -> IntArray:
        """The first mark that belongs to none of the ranks before each of these."""
        return np.where(ranks == 0, 0, self.at_many(np.maximum(ranks - 1, 0)) + 1)

    @cached_property
    def packed(self) -> bytes:
        """The hint as orders and index files carry it."""
        count, size, span = len(self.marks), self.marks.size, self.span
        values = np.stack([self.marks.first, self.marks.last], axis=1).ravel()
        header = HEADER.pack(size, count, span.bit_length() - 1)
        return header + pack(self.marks.starts, size - 1) + pack(values, span - 1)

    @classmethod
    def unpacked(cls, data: bytes, size: int) -> Self:
        """The hint of a domain of so many ranks; InvalidParameter if it is none."""
        try:
            return cls._parsed(data, size)
        except (struct.error, ValueError) as error:
            raise InvalidParameter("this is no hint for this domain", hint="`scumble index tune` writes one") from error

    @classmethod
    def _parsed(cls, data: bytes, size: int) -> Self:
        ranks, count, bits = HEADER.unpack_from(data)
        if ranks != size or not 1 <= count <= min(MOST_PIECES, size) or not LEAST_SPAN_BITS <= bits <= MOST_SPAN_BITS:
            raise ValueError("impossible sizes")
        cut = HEADER.size + packed_bytes(count, size - 1)
        starts = unpack(data[HEADER.size : cut], count, size - 1)
        values = unpack(data[cut:], 2 * count, (1 << bits) - 1).reshape(-1, 2)
        if starts[0] != 0 or np.any(np.diff(starts) <= 0) or values[-1, 1] != (1 << bits) - 1:
            raise ValueError("pieces out of order")
        first, last = (np.ascontiguousarray(values[:, column]) for column in (0, 1))
        return cls(Segments(size, starts, first, last, 1))

    def file(self, domain: Domain) -> bytes:
        """The file of the hint, with the domain that it is for."""
        text = domain.text.encode()
        body = MAGIC + FILE_HEADER.pack(VERSION, len(text)) + text + self.packed
        return body + sha256(body).digest()[:CHECKSUM_BYTES]

    def save(self, path: str | PathLike[str], domain: Domain) -> None:
        try:
            Path(path).write_bytes(self.file(domain))
        except OSError as error:
            raise FileError(f"cannot write the hint: {error.strerror}", hint=f"check the path {path}") from error

    @classmethod
    def read(cls, data: bytes, domain: Domain) -> Self:
        """The hint in a file's bytes; refused if it is for another domain."""
        body, checksum = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
        if not cls.is_one(data) or len(data) <= len(MAGIC):
            raise Corrupt("this is not a hint file", hint="`scumble index tune` writes one")
        if data[len(MAGIC)] > VERSION:
            raise NewerVersion("this hint file is of a newer Scumble", hint="upgrade Scumble")
        if sha256(body).digest()[:CHECKSUM_BYTES] != checksum:
            raise Corrupt("this hint file is truncated or altered", hint="`scumble index tune` writes another")
        try:
            _, length = FILE_HEADER.unpack_from(body, len(MAGIC))
            at = len(MAGIC) + FILE_HEADER.size
            public = parse_domain(body[at : at + length].decode())
        except (struct.error, ValueError, DomainError, InvalidParameter) as error:
            raise Corrupt("this hint file's parts do not fit together", hint="write it anew") from error
        if public.text != domain.text:
            raise InvalidParameter("this hint is for another domain", hint=f"it was made for {public.label}")
        return cls.unpacked(body[at + length :], domain.size)

    @staticmethod
    def is_one(data: bytes) -> bool:
        """Whether a file's bytes begin as a hint's do."""
        return data.startswith(MAGIC)


def _straight(curve: IntArray, tenths: int) -> IntArray:
    """Where the pieces of a curve begin that are straight but for chance: cut where it is worst until all are."""
    starts, open_pieces = [], [(0, len(curve) - 1)]
    while open_pieces:
        start, end = open_pieces.pop()
        starts.append(start)
        if end - start < 2:  # which both are ends
            continue
        values = curve[start : end + 1]
        rows = int(values[-1] - values[0])
        chord = values[0] + rows * np.arange(end - start + 1) // (end - start)
        away = np.abs(values - chord)
        worst = int(away.argmax())
        if int(away[worst]) <= tenths * isqrt(rows * 100) // 100 + PLAIN_ROWS:
            continue
        starts.pop()
        # A curve above its chord has just stepped up, and one below is about to.
        cut = start + worst + (1 if values[worst] < chord[worst] else 0)
        cut = min(max(cut, start + 1), end)
        open_pieces += [(start, cut - 1), (cut, end)]
    return np.array(sorted(starts), dtype=np.int64)
