"""Requests that are made often, as flat words: small to seal, quick to read.

An execution names a plan, says which pages each scan is to read, and gives the plan's bounds; a load sends rows.
Everything else is JSON. All of it travels sealed.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter

__all__ = ["EXECUTE", "JSON", "ROWS", "Execution", "PageRange", "Scan", "pack_execution", "unpack_execution"]

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
