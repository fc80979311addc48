"""The paper's indexes over a database's pages: what a lookup fetches, opens and scans, and whether its answer is right.

A database for research can have a table for each (`lab/research.py`); this needs no enclave, no owner and no ledger, so
that many indexes of many settings are compared in one go. The rows are sealed into pages as a run's are, each index is
built on the same counts, and its position ranges are read page by page. SECRET as the rows are.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from scumble.enclave.pages import DataKeys, RunReader, RunWriter
from scumble.errors import InvalidParameter, ScumbleError
from scumble.index.contract import Index
from scumble.lab.comparators import DPBPlusTreeIndex
from scumble.lab.compare import KINDS, Case, Contender, Kind, Lookups, build
from scumble.store.memory import MemoryStore
from scumble.types import Column, Schema, parse_type
from scumble.wire.catalog import Run, Table

__all__ = ["PAGE_ROWS", "Scan", "SealedRows", "laid_out", "scan_costs", "sealed_rows"]

PAGE_ROWS = 1024
MOST_POSITIONS = 2**24  # a B+ tree's leaves may hold billions of dummies: such a table is not written
DUMMY = -1  # the rank of a row that is none
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Scan:
    """SECRET: one index and one kind of lookup; means over the lookups. Without numbers if the index refused."""

    index: str
    lookup: Kind
    table_pages: int | None = None
    pages_mean: float | None = None  # of each column
    bytes_mean: float | None = None  # sealed, of both columns
    milliseconds_mean: float | None = None
    right_share: float | None = None  # of the answers
    note: str | None = None


@dataclass(frozen=True, eq=False, repr=False)
class SealedRows:
    """SECRET: a run of two columns, the rank of each row and a number to add up, sealed in the database's pages."""

    reader: RunReader
    pages: int
    page_bytes: int  # of both columns, sealed

    def scan(self, start: int, stop: int, first: int, last: int) -> tuple[int, int]:
        """Read the pages of positions start..stop-1, test every row in them, and add up: pages read, and the sum."""
        if stop <= start:
            return 0, 0
        page = start // PAGE_ROWS
        pages = min(self.pages, -(-stop // PAGE_ROWS)) - page
        if pages <= 0:
            return 0, 0
        ranks, values = (self.reader.fetch(column, page, pages).words for column in range(2))
        return pages, int((values * ((ranks >= first) & (ranks <= last))).sum())


@contextmanager
def sealed_rows(ranks: IntArray, values: IntArray) -> Iterator[SealedRows]:
    """Seal rows in the order that is given; dummies fill the last page. Nothing is committed, so all is forgotten."""
    store, pages = MemoryStore("ab" * 32), max(1, -(-len(ranks) // PAGE_ROWS))
    schema = Schema(tuple(Column(name, parse_type("bigint"), nullable=False) for name in ("k", "v")))
    table, name = Table("cd" * 16, "t", schema, ()), os.urandom(16).hex()
    keys = DataKeys(os.urandom(32), store.database)
    with store.writer():
        writer = RunWriter(store, keys, table, name, pages, PAGE_ROWS)
        for column, (rows, filler) in enumerate(((ranks, DUMMY), (values, 0))):
            padded = np.full(pages * PAGE_ROWS, filler, dtype=np.int64)
            padded[: len(rows)] = rows
            writer.write(column, 0, padded, None)
        run = Run(name, "b", "k", pages * PAGE_ROWS, PAGE_ROWS, None, writer.finish())
        sealed = sum(table.slot_bytes(column, PAGE_ROWS) for column in range(2))
        yield SealedRows(RunReader(store, keys, table, run), pages, sealed)


def scan_costs(contenders: Sequence[Contender], case: Case, lookups: Lookups) -> Iterator[Scan]:
    """Build each index, lay the rows out as it has them, and answer every lookup from sealed pages."""
    ranks = np.repeat(np.arange(len(case.counts)), case.counts)
    values = np.arange(len(ranks)) % 1000  # of which every answer is a sum
    totals = np.concatenate([[0], np.cumsum(values)])
    for contender in contenders:
        try:
            index = build(contender, case)
            places, end = laid_out(index, case.counts)
        except (ScumbleError, MemoryError) as refusal:
            why = refusal.message if isinstance(refusal, ScumbleError) else "there is not enough memory"
            yield from (Scan(contender.name, kind, note=why) for kind in KINDS)
            continue
        kept = places >= 0
        stored = np.full(end, DUMMY), np.zeros(end, dtype=np.int64)
        stored[0][places[kept]], stored[1][places[kept]] = ranks[kept], values[kept]
        with sealed_rows(*stored) as rows:
            for kind in KINDS:
                yield _scanned(contender.name, index, rows, kind, lookups, case.counts, totals)


def laid_out(index: Index, counts: IntArray) -> tuple[IntArray, int]:
    """SECRET: the position of every row in the order of keys, -1 for those that are lost, and how many there are."""
    rows = int(counts.sum())
    if not isinstance(index, DPBPlusTreeIndex):
        return np.arange(rows), rows
    if index.stored_rows > MOST_POSITIONS:
        raise InvalidParameter(f"its leaves would hold {index.stored_rows:,} rows", hint="take a smaller domain")
    ends = index.curves.upper
    starts = np.concatenate([[0], ends[:-1]])
    inside = np.arange(rows) - np.repeat(np.cumsum(counts) - counts, counts)
    places = np.repeat(starts, counts) + inside
    return np.where(places < np.repeat(ends, counts), places, -1), index.stored_rows


def _scanned(
    name: str, index: Index, rows: SealedRows, kind: Kind, lookups: Lookups, counts: IntArray, totals: IntArray
) -> Scan:
    firsts, lasts = lookups.of(kind)
    curve = np.concatenate([[0], np.cumsum(counts)])
    truth = totals[curve[lasts + 1]] - totals[curve[firsts]]
    starts, stops = index.positions.of_ranks(firsts, lasts)
    begun = perf_counter()
    found = [rows.scan(*map(int, ends)) for ends in zip(starts, stops, firsts, lasts, strict=True)]
    spent = perf_counter() - begun
    pages, sums = (np.array(part) for part in zip(*found, strict=True))
    return Scan(
        index=name,
        lookup=kind,
        table_pages=rows.pages,
        pages_mean=float(pages.mean()),
        bytes_mean=float(pages.mean()) * rows.page_bytes,
        milliseconds_mean=1e3 * spent / len(found),
        right_share=float((sums == truth).mean()),
    )
