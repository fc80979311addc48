"""Changes: rows that match a predicate are deleted, or get other values, in layers over the runs that have them.

Rows and values are SECRET; which pages are read and sealed anew is public, and all of those are that a scan names,
whether a row of them matches or not. Positions stay, so indexes stay as they are, and nothing is released. `rewrite`
is the whole of it. What a value may be is checked as it is for a load: the one bit that this tells is public.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from scumble.enclave import kernels
from scumble.enclave.dummies import Dummies
from scumble.enclave.kernels import Mask, Values, Words
from scumble.enclave.pages import FetchedColumn, LayerWriter, RunReader, RunWriter, blanked, reseal_run
from scumble.enclave.queries import Batch, check_scans, compiled, pieces
from scumble.enclave.validation import ColumnCheck, bounds_of
from scumble.enclave.versions import OpenVersion
from scumble.errors import InvalidParameter
from scumble.types import Column, ColumnType, Schema
from scumble.types.wide import wide_words
from scumble.wire.catalog import LIVE, Run, Table
from scumble.wire.plan import COUNT, Assignment, Expression, Plan, Rewrite, columns_of
from scumble.wire.requests import Execution, PageRange

__all__ = ["Changed", "Rewriting", "is_exact", "rewrite"]

_COUNT = kernels.CODES[COUNT]
REWRITTEN_ROWS = 1 << 16  # at a time
MOST_LAYERS = 32  # over a run: beyond, it is sealed anew as a whole


@dataclass(frozen=True, eq=False)
class Changed:
    """A table with its new layers or runs, whether all values fit, and SECRET, how many rows have matched."""

    table: Table
    dummies: dict[str, Dummies]
    fits: bool
    answer: bytes


Found = tuple[Values, Mask, Mask]
NewValues = Callable[[Batch, Words, Mask], Found]
"""Of a batch, bounds and the rows that match: values as wide as in pages, 1 where they are not null, and one byte that
is 1 if all of them fit their column."""


class Rewriting:
    """PUBLIC: a plan that changes rows, with all that does not depend on bounds worked out."""

    kept_bytes = 0

    def __init__(self, plan: Plan, table: Table) -> None:
        wanted = plan.output
        assert isinstance(wanted, Rewrite)  # noqa: S101  queries.py has the others
        if len(wanted.assignments) != len(plan.predicates) or not plan.predicates:
            raise InvalidParameter("each predicate has its assignments", hint="upgrade Scumble")
        self.bounds_words = plan.checked(table.schema)
        self.table, self.written, self.deletes, self.copies = table, wanted.written, wanted.deletes, wanted.copies
        self.predicates = [compiled(predicate, table.schema) for predicate in plan.predicates]
        self.nullable = {place for place, column in enumerate(table.schema) if column.nullable}
        self.assignments = [
            [(one.column, _new_values(one, table.schema)) for one in each] for each in wanted.assignments
        ]
        read = [place for predicate in plan.predicates for place in columns_of(predicate)]
        self.columns = tuple(dict.fromkeys([*read, *wanted.reads(table.schema)]))

    def answer_bytes(self, execution: Execution) -> int:
        """How long the answer is, from public facts."""
        return 8 * len(execution.scans) * len(self.predicates)


def _new_values(wanted: Assignment, schema: Schema) -> NewValues:
    column = schema.columns[wanted.column]
    match wanted.expression:
        case None:
            return _constant(wanted, column)
        case ("column", int(place)):
            if schema.columns[place].type != column.type:
                raise InvalidParameter("a column takes the values of one of its own type", hint="convert them")
            return partial(_copied, place=place, nullable=column.nullable)
    if not all(is_exact(schema.columns[place].type) for place in (wanted.column, *wanted.columns)):
        raise InvalidParameter("arithmetic is for whole numbers and decimals of 18 digits", hint="assign a value")
    return _computed(wanted.expression, wanted.columns, column, schema)


def is_exact(type_: ColumnType) -> bool:
    """Whether arithmetic on the values of a type is exact, and they have one word."""
    return type_.is_number and not type_.is_float and type_.words == 1


def _constant(wanted: Assignment, column: Column) -> NewValues:
    check, end = ColumnCheck(column.type), wanted.offset + column.type.words

    def constant(batch: Batch, bounds: Words, mask: Mask) -> Found:
        words, given = bounds[wanted.offset : end].reshape(1, -1), bounds[end : end + 1]
        valid = given.astype(np.uint8)
        right = check.fits(words, valid) & kernels.mask_intervals(given, _FLAG)
        right &= _FREE if column.nullable else valid
        one = column.type.to_page(words[:, 0] if column.type.words == 1 else words)
        return _spread(one, batch.rows), _spread(valid, batch.rows), right

    return constant


def _copied(batch: Batch, bounds: Words, mask: Mask, place: int, *, nullable: bool) -> Found:
    fetched = batch.column(place)
    valid = np.full(batch.rows, 1, np.uint8) if fetched.valid is None else fetched.valid
    return fetched.values, valid, _allowed(valid, mask, nullable=nullable)


def _computed(expression: Expression, columns: frozenset[int], column: Column, schema: Schema) -> NewValues:
    fitting = bounds_of([(wide_words(low), wide_words(high)) for (low,), (high,) in column.type.word_intervals])
    nullable = frozenset(place for place in columns if schema.columns[place].nullable)

    def computed(batch: Batch, bounds: Words, mask: Mask) -> Found:
        counted, overflow = batch.valid(nullable), np.zeros(1, np.uint8)
        valid = np.full(batch.rows, 1, np.uint8) if counted is None else counted
        batch.mask = mask & valid
        wide = batch.wide(expression, overflow)
        fits = kernels.mask_intervals(kernels.wide_ordered(wide), fitting) | _not(batch.mask)
        words = blanked(np.ascontiguousarray(wide[:, 0]), batch.mask)
        right = _allowed(valid, mask, nullable=column.nullable) & _every(fits) & _not(overflow)
        return column.type.to_page(words), valid, right

    return computed


_FLAG = bounds_of([((0,), (1,))])
_FREE = np.full(1, 1, np.uint8)
_ONE = np.uint8(1)


def _spread(one: Values, rows: int) -> Values:
    """As many of one value, which lies there once."""
    return np.broadcast_to(one, (rows, *one.shape[1:]))


def _not(mask: Mask) -> Mask:
    """1 where it is 0."""
    negated: Mask = mask ^ _ONE
    return negated


def _every(fits: Mask) -> Mask:
    """One byte: 1 if all of them are."""
    every: Mask = np.bitwise_and.reduce(fits, keepdims=True)
    return every


def _allowed(valid: Mask, mask: Mask, *, nullable: bool) -> Mask:
    """One byte: 1 unless a row that matches would be null where none may be."""
    return _FREE if nullable else _every(valid | _not(mask))


# --- one execution -----------------------------------------------------------------------------------


def rewrite(plan: Rewriting, execution: Execution, version: OpenVersion) -> Changed:
    """Change what matches in the pages that the scans name, all of them in layers of their own.

    Each scan stands for all predicates: the number of one that it names is 0.
    """
    check_scans(plan.table, [plan.columns], execution)
    if not all(scan.pages and all(count > 0 for _, count in scan.pages) for scan in execution.scans):
        raise InvalidParameter("a scan names no page", hint="leave it out")  # a layer has one at least
    work = _Work(plan, version, execution.bounds, len(execution.scans))
    runs, new = list(plan.table.runs), []
    for number, scan in enumerate(execution.scans):
        if plan.copies:
            new.append(work.copied(runs[scan.run], scan.pages, number))
            continue
        for pages in scan.pages:
            runs[scan.run] = work.rewritten(runs[scan.run], pages, number)
    dummies = {run.id: Dummies.after(run.capacity) for run in new}  # which of them are rows, the live bytes tell
    flat = _flattened(version, plan.table, runs, dummies)
    return Changed(replace(plan.table, runs=(*flat, *new)), dummies, work.fits, work.answer)


def _flattened(version: OpenVersion, table: Table, runs: Sequence[Run], dummies: dict[str, Dummies]) -> list[Run]:
    """The same runs; those under too many layers sealed anew, so that each page is in one place."""
    flat = []
    for run in runs:
        made = run
        if len(run.layers) > MOST_LAYERS:
            reader = RunReader(version.storage, version.keys, table, run)
            made = reseal_run(version.storage, table, run, reader, version.keys)
            dummies[made.id] = version.manifest.dummies[run.id]
        flat.append(made)
    return flat


class _Work:
    """SECRET: a change under way: how many rows each predicate has matched, and whether all values fit so far."""

    def __init__(self, plan: Rewriting, version: OpenVersion, bounds: Words, scans: int) -> None:
        self._plan, self._version, self._bounds = plan, version, bounds
        self._counts = np.zeros((scans, len(plan.predicates)), np.int64)
        self._right = np.full(1, 1, np.uint8)

    @property
    def fits(self) -> bool:
        """Whether every value fits its column. PUBLIC from here on: a change is made as a whole, or not."""
        return kernels.is_set(self._right)

    @property
    def answer(self) -> bytes:
        """How many rows matched, for each scan and predicate."""
        return self._counts.tobytes()

    def rewritten(self, run: Run, pages: PageRange, scan: int) -> Run:
        """A run with a layer over some of its pages."""
        version, plan = self._version, self._plan
        reader, dummies = version.reader(run.id)
        layer = LayerWriter(version.storage, version.keys, plan.table, run, plan.written, pages)
        for first, count in pieces([pages], max(1, REWRITTEN_ROWS // run.page_rows)):
            batch = Batch(reader, first, count, plan.columns, dummies)
            if plan.deletes:
                left = batch.alive()
                for matched in self._matched(batch, left, scan):
                    left = left & _not(matched)
                layer.write_pages(LIVE, first, left.reshape(count, -1))
            else:
                self._assign(batch, layer, first, scan, plan.written)
        return run.under(layer.finish())

    def copied(self, run: Run, pages: Sequence[PageRange], scan: int) -> Run:
        """A run of the tail, with the rows of these pages as they become; only those that match are alive."""
        version, table, page_rows = self._version, self._plan.table, run.page_rows
        reader, dummies = version.reader(run.id)
        count, name = sum(each for _, each in pages), os.urandom(16).hex()
        made = Run(name, os.urandom(16).hex(), None, count * page_rows, page_rows, None, (), tail=True, moved=True)
        writer = RunWriter(version.storage, version.keys, table, name, count, page_rows)
        live = LayerWriter(version.storage, version.keys, table, made, (LIVE,), (0, count))
        at = 0
        for first, here in pieces(pages, max(1, REWRITTEN_ROWS // page_rows)):
            batch = Batch(reader, first, here, self._plan.columns, dummies)
            matched = self._assign(batch, writer, at, scan, range(len(table.schema)), only_matching=True)
            live.write_pages(LIVE, at, matched.reshape(here, -1))
            at += here
        return replace(made, tag_hashes=writer.finish(), layers=(live.finish(),))

    def _matched(self, batch: Batch, alive: Mask, scan: int) -> list[Mask]:
        """For each predicate, the rows that match it and none before it."""
        matched, left = [], alive
        for case, predicate in enumerate(self._plan.predicates):
            found = predicate(batch.column, self._bounds, batch.rows) & left
            left = left & _not(found)
            kernels.aggregate(_COUNT, None, found, None, None, self._counts[scan, case : case + 1])
            matched.append(found)
        return matched

    def _assign(
        self,
        batch: Batch,
        writer: LayerWriter | RunWriter,
        first_page: int,
        scan: int,
        written: Sequence[int],
        *,
        only_matching: bool = False,
    ) -> Mask:
        """Write columns as they become, of other rows as they are or zeros; 1 for the rows that match."""
        after = {place: _whole(batch.column(place), batch.rows) for place in written}
        matched, any_case = self._matched(batch, batch.alive(), scan), np.zeros(batch.rows, np.uint8)
        for case, assignments in enumerate(self._plan.assignments):
            any_case |= matched[case]
            for place, new_values in assignments:
                values, valid, right = new_values(batch, self._bounds, matched[case])
                self._right &= right
                before = after[place]
                after[place] = _chosen(matched[case], values, before[0]), _chosen(matched[case], valid, before[1])
        for place in written:
            values, valid = after[place]
            if only_matching:
                values, valid = blanked(values, any_case), valid & any_case
            writer.write_values(place, first_page, values, valid if place in self._plan.nullable else None)
        return any_case


def _whole(column: FetchedColumn, rows: int) -> tuple[Values, Mask]:
    return column.values, np.full(rows, 1, np.uint8) if column.valid is None else column.valid


def _chosen(mask: Mask, new: Values, old: Values) -> Values:
    """The new values where the mask is 1, and the old ones elsewhere."""
    all_or_nothing = -mask.astype(old.dtype)
    chosen: Values = old ^ new
    chosen &= all_or_nothing if old.ndim == 1 else all_or_nothing[:, None]
    chosen ^= old
    return chosen
