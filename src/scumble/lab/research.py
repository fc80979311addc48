"""Comparators in tables: a program for research builds and reads them, and no other does.

    from scumble.lab import research

    research.enable()    # in all of this process, its embedded enclaves included
    with scumble.create("lab", limit=20, delta_limit="1e-4") as db:
        db.load("t", frame, indexes=["day date:2013-01-01:2013-12-31 epsilon=1 delta=1e-6 beta=1e-8 mechanism=special"])

`scumble --research` does it for a command, and `scumble --research serve` starts enclaves that do it: another program,
`scumble.lab.enclave`, with another measurement. Comparators are more code to trust, of which nobody has shown that no
branch depends on a secret, and their Gaussian noise is not drawn in constant time; some of them lose rows. They are for
comparisons, on data that would not be missed. What they release is PUBLIC, but for the exact index, which LEAKS.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter
from scumble.index import kinds
from scumble.index.contract import Index, RunIndex, Terms
from scumble.lab.comparators import COMPARATORS
from scumble.lab.comparators.saved import MAGIC, SavedIndex, decode, encode

__all__ = ["ComparatorRun", "enable", "enabled", "is_enabled"]

IntArray = NDArray[np.int64]
PLAIN = kinds.Asked(4096, "measured", None, 1, None, None)
"""What an order asks for that says nothing."""
MOST_NUMBERS = 1 << 19  # of eight bytes, in a file: it is part of the catalog, which every client gets
MOST_DUMMIES = 1 << 23  # in the leaves of a tree
MOST_BLOCKS = 1 << 12  # of a tree: every row is compared with each
KEPT = 64  # of their files, which are large


class ComparatorRun(RunIndex):
    """PUBLIC, but for the exact index: a comparator as the index of a run."""

    def __init__(self, index: SavedIndex) -> None:
        terms, positions = index._terms, index.positions
        if terms is None:
            raise ValueError("a comparator without terms")
        self.index, self.positions = index, positions
        self.domain, self.capacity, self.mechanism = positions.domain, positions.capacity, index.kind
        self.epsilon, self.delta = terms.charged_epsilon, terms.charged_delta
        self.beta = index.chance_of_loss(terms.beta)
        self.blocks = index.leaves

    @property
    def usual_slack(self) -> int:
        return self.index.usual_slack

    def extra_rows(self, ranks: Sequence[tuple[int, int]], lookups: int) -> int:
        return self.index.extra_rows(ranks, lookups)

    def to_bytes(self) -> bytes:
        return encode(self.index)

    def start_after(self, rank: int) -> int:
        return self.positions.start_after(rank)

    def stop_at(self, rank: int) -> int:
        return self.positions.stop_at(rank)

    def starts_after(self, ranks: IntArray) -> IntArray:
        return self.positions.starts_after(ranks)

    def stops_at(self, ranks: IntArray) -> IntArray:
        return self.positions.stops_at(ranks)


class _Comparator(kinds.Kind):
    def __init__(self, kind: type[SavedIndex]) -> None:
        self.kind, self.states_delta = kind, kind.needs_delta

    def make(self, asked: kinds.Asked) -> SavedIndex:
        """The comparator with the settings of `scumble.lab.compare`; an order states its price and domain alone."""
        if asked not in (PLAIN, PLAIN._replace(max_bytes=None)):
            raise InvalidParameter(
                "a comparator has neither max_bytes nor slack, alpha_s, blocks, hint or plan", hint="leave them out"
            )
        return self.kind()

    def check(self, asked: kinds.Asked, terms: Terms) -> None:
        """Refuse what a table has no room for, besides what the comparator does."""
        index = self.make(asked)
        index.check(terms)
        dummies = index.most_dummies(terms)
        if index.numbers_per_rank * terms.domain.size > MOST_NUMBERS:
            raise InvalidParameter(
                f"a table's {index.name} may keep {MOST_NUMBERS:,} numbers, and would keep more for this domain",
                hint="take one with a coarser step",
            )
        if dummies and terms.domain.size > 2 * MOST_BLOCKS:
            raise InvalidParameter(
                f"a table's {index.name} may have {2 * MOST_BLOCKS:,} leaves, one for each key of the domain",
                hint="take one with a coarser step",
            )
        if dummies > MOST_DUMMIES:
            raise InvalidParameter(
                f"the leaves of its {index.name} would hold {dummies:,} dummies, more than a table has room for",
                hint="take a domain with a coarser step, or a larger epsilon",
            )

    def released(self, index: Index) -> ComparatorRun:
        assert isinstance(index, SavedIndex)  # noqa: S101  `make` makes nothing else
        return ComparatorRun(index)


KINDS = {name: _Comparator(kind) for name, kind in COMPARATORS.items()}


@lru_cache(KEPT)
def _read(data: bytes) -> ComparatorRun:
    return ComparatorRun(decode(data, COMPARATORS))


def enable() -> None:
    """Let this process build and read comparators, as long as it runs."""
    kinds.learn(KINDS, MAGIC, _read)


@contextmanager
def enabled() -> Iterator[None]:
    """The same until the end of the block."""
    was = is_enabled()
    enable()
    try:
        yield
    finally:
        if not was:
            kinds.forget(KINDS, MAGIC)


def is_enabled() -> bool:
    """Whether this process builds and reads comparators."""
    return kinds.is_known(MAGIC)
