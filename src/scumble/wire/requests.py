"""Requests that are made often, as flat words: small to seal, quick to read.

An execution names a plan, says which pages each scan is to read, and gives the plan's bounds; a load sends rows.
Everything else is JSON. All of it travels sealed.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter
from scumble.index.slack import SlackName
from scumble.types import Domain, Schema, parse_domain

__all__ = [
    "EXECUTE",
    "JSON",
    "ROWS",
    "Execution",
    "IndexOrder",
    "PageRange",
    "RowLayout",
    "Scan",
    "pack_execution",
    "unpack_execution",
]


@dataclass(frozen=True)
class IndexOrder:
    """PUBLIC: one index of a load. The ledger was charged epsilon and delta, for users of up to rows_per_user rows."""

    attribute: str
    domain: Domain
    epsilon: Fraction
    delta: Fraction
    beta: Fraction
    rows_per_user: int
    max_bytes: int | None
    slack: SlackName

    def to_json(self) -> dict[str, Any]:
        """The order as JSON; amounts are exact."""
        return {
            "attribute": self.attribute,
            "domain": self.domain.text,
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "beta": str(self.beta),
            "rows_per_user": self.rows_per_user,
            "max_bytes": self.max_bytes,
            "slack": self.slack,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The inverse."""
        amounts = {name: Fraction(fields[name]) for name in ("epsilon", "delta", "beta")}
        return cls(**{**fields, **amounts, "domain": parse_domain(fields["domain"])})


@dataclass(frozen=True)
class RowLayout:
    """PUBLIC: where in a row its parts stand; `index_sizes` are those of the indexed attributes' domains, in order."""

    schema: Schema
    index_sizes: tuple[int, ...]

    @cached_property
    def column_offsets(self) -> tuple[int, ...]:
        """The first word of every column."""
        offsets, at = [], 0
        for column in self.schema:
            offsets.append(at)
            at += column.type.words
        return tuple(offsets)

    @cached_property
    def validity_offset(self) -> int:
        """The first word of validity bits: bit c % 64 of word c // 64 is 1 if column c is not null."""
        return sum(column.type.words for column in self.schema)

    @cached_property
    def key_offset(self) -> int:
        """The rank in the first index; the others follow."""
        nullable = any(column.nullable for column in self.schema)
        return self.validity_offset + nullable * -(-len(self.schema) // 64)

    @cached_property
    def words(self) -> int:
        """How many words a row takes."""
        return self.key_offset + len(self.index_sizes)

    def dummy_keys(self) -> tuple[int, ...]:
        """The key words of a dummy row."""
        return tuple(size + 1 for size in self.index_sizes)


JSON, EXECUTE, ROWS = b"J", b"X", b"R"
"""The first byte of a request: what follows."""

PageRange = tuple[int, int]
"""The first page, and how many."""


class Scan(NamedTuple):
    """Some pages of one of the table's runs, and which of the plan's predicates to hold against their rows."""

    run: int
    predicate: int
    pages: Sequence[PageRange]


class Execution(NamedTuple):
    """One execution of a plan: its number, the scans, and the bounds."""

    plan: int
    scans: list[Scan]
    bounds: NDArray[np.int64]


def pack_execution(plan: int, scans: Sequence[Scan], bounds: NDArray[np.int64]) -> bytes:
    """An execution as bytes."""
    words = [plan, len(scans)]
    for run, predicate, pages in scans:
        words += (run, predicate, len(pages))
        for page_range in pages:
            words += page_range
    return EXECUTE + struct.pack(f"<{len(words)}q", *words) + bounds.tobytes()


def unpack_execution(data: memoryview) -> Execution:
    """The inverse; `data` comes without the first byte."""
    words = data.cast("q")  # of which only the public ones become Python integers: making one branches on its value
    plan, count = words[0], words[1]
    at, scans = 2, []
    for _ in range(count):
        run, predicate, ranges = words[at], words[at + 1], words[at + 2]
        end = at + 3 + 2 * ranges
        if ranges < 0 or end > len(words):
            raise InvalidParameter("the execution is cut short", hint="send all of it")
        pages = words[at + 3 : end].tolist()
        scans.append(Scan(run, predicate, tuple(zip(pages[::2], pages[1::2], strict=True))))
        at = end
    return Execution(plan, scans, np.frombuffer(data, np.int64, offset=8 * at))
