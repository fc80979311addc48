"""Merges: several runs become one, with one index made of what was released of theirs. They cost no epsilon.

Rows are SECRET; which runs are merged, how large they are and what comes out is public, and follows from the catalog
and the tallies alone. Rows that were deleted keep their places, since they are counted in what was released: an index
could not find the others without them. Runs without an index, as those of the tail, are put one after the other.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from scumble.enclave import kernels
from scumble.enclave.dummies import Dummies
from scumble.enclave.gathering import Gathering
from scumble.enclave.grids import tally_of
from scumble.enclave.kernels import as_count
from scumble.enclave.pages import keep_tally, reseal_run
from scumble.enclave.placing import placed
from scumble.enclave.rows import Rows
from scumble.enclave.sealing import seal_run
from scumble.enclave.validation import rule_of
from scumble.enclave.versions import OpenVersion
from scumble.errors import InvalidParameter, Stale
from scumble.index.merging import merged
from scumble.wire.catalog import Run, Table
from scumble.wire.requests import Merge, RowLayout

__all__ = ["merge", "vacuumed"]

MOST_MERGED = 4096
MEMORY_BYTES = 1 << 30
LARGE_PAGE_ROWS = 1024


def merge(version: OpenVersion, request: Merge) -> OpenVersion:
    """The version with some runs of a table made one: all of one attribute, or all of the tail."""
    version.check_signed()
    table = version.catalog.table(request.table)
    there = {run.id: run for run in table.runs}
    if not there.keys() >= set(request.runs):
        raise Stale("the table has changed", hint="ask again")
    runs = [there[name] for name in dict.fromkeys(request.runs)]
    alike = {(run.attribute, run.columns, run.tail) for run in runs}
    if not 2 <= len(runs) <= MOST_MERGED or len(alike) > 1:
        raise InvalidParameter("runs that are merged are of one attribute, and at least two", hint="upgrade Scumble")
    if any(run.erased and run.index is not None for run in runs):
        raise InvalidParameter(
            "rows that were deleted and vacuumed have lost their keys, which a merged index would need",
            hint="REINDEX the table, which is paid for",
        )
    made, dummies = (_in_order if runs[0].index is None else _by_key)(version, table, runs)
    merged_runs = set(request.runs)
    kept = [run for run in table.runs if run.id not in merged_runs]
    changed = replace(table, runs=(*kept, made))
    return version.having(changed, {made.id: dummies})


def vacuumed(version: OpenVersion, name: str) -> OpenVersion:
    """The version with a table's runs sealed anew, without layers, and zeros where rows were deleted.

    Such a run keeps its place in lookups, but can no longer be merged: nobody knows any more which keys its dead rows
    had.
    """
    version.check_signed()
    table = version.catalog.table(name)
    runs, dummies = [], {}
    for run in table.runs:
        fresh = run
        if run.layers:
            fresh = reseal_run(version.storage, table, run, version.reader(run.id)[0], version.keys, erased=True)
            fresh = replace(fresh, erased=run.erased or run.has_dead)
        runs.append(fresh)
        dummies[fresh.id] = version.manifest.dummies[run.id]
    return version.having(replace(table, runs=tuple(runs)), dummies)


def _named(runs: Sequence[Run], capacity: int, index: bytes | None, page_rows: int) -> Run:
    """The entry of the merged run. The batches of a tail need no names: nothing was paid for them."""
    first = runs[0]
    batches = tuple(dict.fromkeys(batch for run in runs for batch in run.batches))
    named = batches[-MOST_NAMED:] if first.tail else batches
    made = Run(os.urandom(16).hex(), first.batch, first.attribute, capacity, page_rows, index, (), first.columns)
    return replace(made, tail=first.tail, merged=named, moved=any(run.moved for run in runs))


MOST_NAMED = 1024
"""So many batches of a tail are known by name after a merge: who repeats an insert is never that far behind."""


def _in_order(version: OpenVersion, table: Table, runs: Sequence[Run]) -> tuple[Run, Dummies]:
    """Runs one after the other; a byte for each row says which are alive."""
    layout = RowLayout(table.schema, ())
    found = Gathering(version, table, layout, (), live=True)
    capacity = sum(run.capacity for run in runs)
    page_rows = max(run.page_rows for run in runs)
    while page_rows < LARGE_PAGE_ROWS and capacity % (2 * page_rows) == 0:
        page_rows *= 2
    made = _named(runs, -(-capacity // page_rows) * page_rows, None, page_rows)
    rows = _Merged(version, found, layout, page_rows)
    rows.gather(runs)
    rows.fill(made.capacity)
    return rows.sealed(version, table, made), Dummies.after(made.capacity)


def _by_key(version: OpenVersion, table: Table, runs: Sequence[Run]) -> tuple[Run, Dummies]:
    """Rows by their keys, laid out as the merged index says."""
    whole = merged([tally_of(version, run) for run in runs])
    index, tally, attribute = whole.index, whole.tally, runs[0].attribute
    assert attribute is not None  # noqa: S101  an index is on one
    layout = RowLayout(table.schema, (index.domain.size,))
    found = Gathering(version, table, layout, [rule_of(table.schema, attribute, index.domain)], live=True)
    page_rows = max(run.page_rows for run in runs)
    rows = _Merged(version, found, layout, page_rows)
    rows.gather(runs)
    found.check()
    keys = rows.rows.keys(layout.key_offset)
    keys.sort()
    counts = np.zeros(index.domain.size, np.int64)
    for chunk in keys.chunks():
        counts += kernels.cumulative_counts(chunk[:, 0], index.domain.size)
    counts = np.diff(counts, prepend=0)
    nullable = table.schema[attribute].nullable
    where = placed(index, counts, as_count(found.real_rows), tally.capacity, page_rows, nullable=nullable)
    rows.fill(where.capacity)
    seen = np.zeros(1, np.int64)
    rows.rows.sort(layout.key_offset, partial(where.write_keys, key_word=layout.key_offset, seen=seen))
    kept = keep_tally(version.storage, version.keys, tally.to_bytes())
    made = replace(_named(runs, where.capacity, index.to_bytes(), page_rows), tally=kept)
    return rows.sealed(version, table, made), where.dummies


class _Merged:
    """SECRET: the rows of several runs, each with a word that says whether it is alive."""

    def __init__(self, version: OpenVersion, found: Gathering, layout: RowLayout, page_rows: int) -> None:
        chunk_rows = MEMORY_BYTES // (24 * found.words) // page_rows * page_rows
        self.rows = Rows(version.storage, found.words, max(chunk_rows, page_rows))
        self._found, self._layout = found, layout

    def gather(self, runs: Sequence[Run]) -> None:
        for run in runs:
            for piece in self._found.rows_of(run):
                self.rows.append(piece)

    def fill(self, capacity: int) -> None:
        """Add dummies until there are so many rows."""
        more = capacity - len(self.rows)
        if more > 0:
            dummies = np.zeros((more, self._found.words), np.int64)
            dummies[:, self._layout.key_offset : self._layout.words] = self._layout.dummy_keys()
            self.rows.append(dummies)

    def sealed(self, version: OpenVersion, table: Table, made: Run) -> Run:
        """The first rows as a run: no others are real."""
        live = self._layout.words
        return seal_run(version.storage, version.keys, table, self._layout, self.rows, made, live)
