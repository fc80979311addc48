"""Scans: what the enclave is asked to read. Ranges of ranks come in, ranges of positions and pages go out.

Pages, ranks and positions are what the provider sees or can work out; the bounds that go along are sealed.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scumble.boundary.catalog import Run
from scumble.boundary.plan import Plan

if TYPE_CHECKING:
    from scumble.sql.plan import Paths

__all__ = ["Access", "Ranges", "Scan", "one_range", "pages_of"]

Ranges = tuple[tuple[int, int], ...]


class Scan(NamedTuple):
    """Pages of one run to read: (first page, how many), ascending and apart; and the place of the predicate to use.

    `ranks` (first, last) and `positions` (start, stop) say how the pages came about.
    """

    run: Run
    predicate: int
    pages: Ranges
    ranks: Ranges
    positions: Ranges

    @property
    def page_count(self) -> int:
        """How many pages of each column are read."""
        return sum(count for _, count in self.pages)


class Access(NamedTuple):
    """What the enclave is asked: a plan, sealed bounds, and the scans that find the rows. `reason` is for EXPLAIN."""

    plan: Plan
    bounds: NDArray[np.int64]
    scans: tuple[Scan, ...]
    attributes: tuple[str | None, ...]
    reason: str
    paths: "Paths"

    @property
    def pages(self) -> int:
        """How many pages of each column are read, over all scans."""
        return sum(scan.page_count for scan in self.scans)

    @property
    def rows(self) -> int:
        """How many rows these pages hold, matching or not, dummies included."""
        return sum(count * scan.run.page_rows for scan in self.scans for _, count in scan.pages)

    @property
    def bytes_read(self) -> int:
        """How many sealed bytes are read."""
        if not self.paths.columns:
            return 0
        return sum(self.paths.page_bytes(scan.run) * scan.page_count for scan in self.scans)


def one_range(run: Run, first: int, last: int) -> tuple[int, int]:
    """The positions of one range of ranks."""
    index, capacity = run.index, run.capacity
    assert index is not None  # noqa: S101 - only indexed runs have ranks
    stop = index.stop_at(last)
    stop = 0 if stop < 0 else min(stop, capacity)
    start = index.start_after(first - 1) if first else 0
    start = 0 if start < 0 else min(start, stop)
    return start, stop


def pages_of(positions: list[tuple[int, int]], page_rows: int) -> Ranges:
    """The pages that hold some ranges of positions: ranges of pages, ascending, no page twice."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(positions):
        first, end = start // page_rows, (stop - 1) // page_rows + 1
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return tuple((first, end - first) for first, end in merged)
