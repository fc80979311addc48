"""Queries inside the enclave: `execute` runs a compiled plan over pages and answers in a length that is public.

Every row of every page is held against the whole predicate, then aggregated, or blanked where it does not match. Rows,
bounds and answers are SECRET; plans and page numbers are public. An error may depend on a row: so all pages are read
nevertheless, and only then the error is raised.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from math import prod

import numpy as np

from scumble.enclave import kernels
from scumble.enclave.dummies import Dummies
from scumble.enclave.kernels import Mask, Values, Words
from scumble.enclave.pages import FetchedColumn, Room, RunReader, blanked
from scumble.errors import InvalidParameter
from scumble.types import Schema
from scumble.wire.catalog import Table
from scumble.wire.plan import (
    COUNT,
    EXTREMES,
    MOST_ANSWER_BYTES,
    Aggregate,
    Aggregates,
    And,
    Compare,
    Constant,
    Expression,
    In,
    Or,
    Part,
    Plan,
    Predicate,
    Rewrite,
    RowColumns,
    Slot,
    columns_of,
)
from scumble.wire.requests import Execution, PageRange

__all__ = ["Accumulation", "Batch", "CompiledPlan", "answer_bytes", "check_scans", "compiled", "execute", "pieces"]


Columns = Callable[[int], FetchedColumn]
Evaluate = Callable[[Columns, Words, int], Mask]
"""Given columns, bounds and the number of rows: 1 for every row that matches, in a new array."""

_COUNT = kernels.CODES[COUNT]
_OPERATORS = {"=": kernels.EQ, "<": kernels.LT, "<=": kernels.LE}


def compiled(predicate: Predicate, schema: Schema) -> Evaluate:
    """The function that evaluates a predicate on rows of this schema."""
    match predicate:
        case In():
            return _compiled_in(predicate, schema)
        case Compare(left, right, op, negated):
            operator = _OPERATORS[op]

            def compare(columns: Columns, bounds: Words, rows: int) -> Mask:
                a, b = columns(left), columns(right)
                return kernels.mask_compare(a.ordered, b.ordered, operator, a.valid, b.valid, negated=negated)

            return compare
        case Constant(value):
            return lambda columns, bounds, rows: np.full(rows, value, np.uint8)
        case And(parts):
            every = [compiled(part, schema) for part in parts]
            return lambda *given: reduce(np.bitwise_and, (evaluate(*given) for evaluate in every))
        case Or(parts):
            some = [compiled(part, schema) for part in parts]
            return lambda *given: reduce(np.bitwise_or, (evaluate(*given) for evaluate in some))


def _compiled_in(leaf: In, schema: Schema) -> Evaluate:
    place, negated, null_matches = leaf.column, leaf.negated, leaf.null_matches
    shape = (leaf.intervals, 2, schema.columns[place].type.words)
    these = slice(leaf.offset, leaf.offset + leaf.intervals * 2 * shape[2])

    def contains(columns: Columns, bounds: Words, rows: int) -> Mask:
        fetched = columns(place)
        intervals = bounds[these].reshape(shape)
        return kernels.mask_intervals(
            fetched.scanned, intervals, fetched.valid, negated=negated, null_matches=null_matches
        )

    return contains


class _Rooms(threading.local):
    """SECRET: a thread's rooms for the columns of one batch, of which it has one at a time."""

    def __init__(self) -> None:
        self._rooms: list[Room] = []

    def first(self, count: int) -> list[Room]:
        """So many rooms, or more."""
        self._rooms += [Room() for _ in range(count - len(self._rooms))]
        return self._rooms

    def clear(self) -> None:
        """Forget what was read; keep no more memory than the next statement is likely to need."""
        del self._rooms[MOST_ROOMS:]
        for room in self._rooms:
            room.clear(MOST_ROOM_BYTES)


_ROOMS = _Rooms()


class Batch:
    """SECRET: the rows of some pages, and which of them match. It is good until the thread's next batch."""

    mask: Mask

    def __init__(
        self,
        reader: RunReader,
        first_page: int,
        pages: int,
        columns: Sequence[int],
        dummies: Dummies,
        predicate: Evaluate | None = None,
    ) -> None:
        if pages <= FEW_PAGES:
            self._columns = {place: reader.fetch(place, first_page, pages) for place in columns}
        else:
            rooms = _ROOMS.first(len(columns))
            self._columns = {
                place: reader.fetch(place, first_page, pages, room) for place, room in zip(columns, rooms, strict=False)
            }
        self._live = reader.live(first_page, pages)
        self._wide: dict[Expression, Words] = {}
        self._dummies, self._predicate = dummies, predicate
        self._first_row = first_page * reader.run.page_rows
        self.rows = pages * reader.run.page_rows

    def real(self) -> Mask:
        """1 for every row that is no dummy, in a new array."""
        return self._dummies.mask(self._first_row, self.rows)

    def alive(self) -> Mask:
        """1 for every row that is neither a dummy nor deleted, in a new array."""
        mask = self.real()
        if self._live is not None:
            mask &= self._live
        return mask

    def match(self, bounds: Words) -> None:
        self.mask = self.alive()
        if self._predicate is not None:
            self.mask &= self._predicate(self.column, bounds, self.rows)

    def column(self, place: int) -> FetchedColumn:
        return self._columns[place]

    def valid(self, columns: frozenset[int]) -> Mask | None:
        """1 where none of the columns is null; None if none of them is nullable."""
        given = [valid for place in sorted(columns) if (valid := self.column(place).valid) is not None]
        if not given:
            return None
        first, *others = given
        for other in others:
            first = first & other
        return first

    def codes(self, columns: tuple[int, ...], sizes: tuple[int, ...]) -> Values:
        """The group of every row: the columns' codes as digits, of which null is the greatest."""
        first = self.column(columns[0])
        if len(columns) == 1 and first.valid is None:
            return first.scanned
        combined = np.zeros(self.rows, np.int32)
        for place, size in zip(columns, sizes, strict=True):
            fetched = self.column(place)
            kernels.append_codes(combined, fetched.scanned, fetched.valid, size)
        return combined

    def wide(self, expression: Expression, overflow: Mask) -> Words:
        """An expression's value for every row, in 128 bits; rows that match and overflow set `overflow`, one byte."""
        known = self._wide.get(expression)
        if known is None:
            known = self._wide[expression] = self._evaluate(expression, overflow)
        return known

    def _evaluate(self, expression: Expression, overflow: Mask) -> Words:
        match expression:
            case ("column", place):
                return kernels.wide_load(self.column(place).scanned)
            case ("constant", value):
                return kernels.wide_fill(value, self.rows)
        operator, left, right = expression
        kernel = {"+": kernels.wide_add, "-": kernels.wide_subtract, "*": kernels.wide_multiply}[operator]
        return kernel(self.wide(left, overflow), self.wide(right, overflow), self.mask, overflow)


class Accumulation:
    """PUBLIC: which words of the answer each aggregate adds to; made once for a plan."""

    def __init__(self, wanted: Aggregates, schema: Schema) -> None:
        self._group_by, self._sizes = wanted.group_by, wanted.group_sizes(schema)
        self._groups = prod(self._sizes)
        self._rows = slice(1, 1 + self._groups)
        slots, words = wanted.layout(schema)
        self._aggregates = [
            (aggregate, self._words(count), [(slot.part, self._words(slot), slot.words) for slot in others])
            for aggregate, (count, *others) in zip(wanted.aggregates, slots, strict=True)
        ]
        self.answer_bytes = 8 * words
        self._empty = np.zeros(words, np.int64)
        for slot in (slot for own in slots for slot in own if slot.part is EXTREMES):
            self._empty[self._words(slot)] = kernels.no_extremes(slot.words // 2, self._groups).reshape(-1)
        # Where no column read can be null, as many rows count as there are in the group.
        nullable = {place for place, column in enumerate(schema.columns) if column.nullable}
        self._nullable = [aggregate.columns & nullable for aggregate in wanted.aggregates]
        self._all_count = [
            count for (_, count, _), columns in zip(self._aggregates, self._nullable, strict=True) if not columns
        ]

    def begin(self) -> Words:
        return self._empty.copy()

    def add(self, batch: Batch, answer: Words) -> None:
        codes = batch.codes(self._group_by, self._sizes) if self._group_by else None
        mask = batch.mask
        kernels.aggregate(_COUNT, None, mask, None, codes, answer[self._rows])
        for (aggregate, count, parts), nullable in zip(self._aggregates, self._nullable, strict=True):
            valid = batch.valid(nullable) if nullable else None
            if valid is not None:
                kernels.aggregate(_COUNT, None, mask, valid, codes, answer[count])
            for part, words, width in parts:
                out = answer[words] if codes is None else answer[words].reshape(self._groups, width)
                values = _values(batch, aggregate, part, answer)
                kernels.aggregate(kernels.CODES[part], values, mask, valid, codes, out)

    def finish(self, answer: Words) -> bytes:
        for count in self._all_count:
            answer[count] = answer[self._rows]
        return answer.tobytes()

    def _words(self, slot: Slot) -> slice:
        return slice(slot.offset, slot.offset + slot.words * self._groups)


def _values(batch: Batch, aggregate: Aggregate, part: Part, answer: Words) -> Values:
    if aggregate.column is not None:
        return batch.column(aggregate.column).scanned
    assert aggregate.argument is not None  # noqa: S101  only a count has none, and it has no other parts
    wide = batch.wide(aggregate.argument, answer[:1].view(np.uint8)[:1])
    return kernels.wide_ordered(wide) if part is EXTREMES else wide


BATCH_BYTES = 1 << 19  # of a column at a time: so many that calls cost little, so few that they stay in the cache
FEW_PAGES = 4  # whose memory is had faster than a room is kept in order
MOST_ROOM_BYTES = 2 * BATCH_BYTES  # that a thread keeps for a column, and
MOST_ROOMS = 64  # for so many

Reader = Callable[[str], tuple[RunReader, Dummies]]
"""A run's reader, and where its dummies lie."""


class CompiledPlan:
    """PUBLIC: a plan and the table it is for, with all that does not depend on bounds worked out."""

    def __init__(self, plan: Plan, table: Table) -> None:
        assert not isinstance(plan.output, Rewrite)  # noqa: S101  changes.py has these
        self.table, self.bounds_words = table, plan.checked(table.schema)
        self.output = plan.output if isinstance(plan.output, RowColumns) else Accumulation(plan.output, table.schema)
        self.predicates = [compiled(predicate, table.schema) for predicate in plan.predicates]
        outputs = plan.output.reads(table.schema)
        read = set(outputs).union(*map(columns_of, plan.predicates))
        self.widest_bytes = max((table.schema.columns[place].answer_row_bytes for place in read), default=1)
        self.kept_bytes = 0 if isinstance(self.output, RowColumns) else self.output.answer_bytes
        self.columns = [tuple(dict.fromkeys([*columns_of(part), *outputs])) for part in plan.predicates]


def execute(plan: CompiledPlan, execution: Execution, reader: Reader) -> bytes:
    """Answer one execution of a plan."""
    rows = _rows_read(plan, execution)
    batches = _batches(plan, execution, reader)
    try:
        if isinstance(plan.output, RowColumns):
            return _blanked_rows(plan.output.columns, plan.table.schema, rows, batches, execution.bounds)
        answer = plan.output.begin()
        for batch in batches:
            batch.match(execution.bounds)
            plan.output.add(batch, answer)
        return plan.output.finish(answer)
    except Exception:
        for _ in batches:  # what was to be read is read, whatever went wrong with a row
            pass
        raise
    finally:
        _ROOMS.clear()


def answer_bytes(plan: CompiledPlan, execution: Execution) -> int:
    """How long the answer will be, from public facts."""
    if isinstance(plan.output, RowColumns):
        return _rows_read(plan, execution) * _row_bytes(plan.output.columns, plan.table.schema)
    return plan.output.answer_bytes


def _row_bytes(columns: tuple[int, ...], schema: Schema) -> int:
    return 1 + sum(schema.columns[place].answer_row_bytes for place in columns)


def _rows_read(plan: CompiledPlan, execution: Execution) -> int:
    """The rows of all pages of an execution, matching or not; refused if the answer would be larger than any may be."""
    rows, pages = check_scans(plan.table, plan.columns, execution)
    if isinstance(plan.output, RowColumns):
        size_bytes = rows * _row_bytes(plan.output.columns, plan.table.schema)
        if size_bytes > MOST_ANSWER_BYTES and pages > 1:
            raise InvalidParameter("the answer is too large", hint="read fewer pages at a time")
    return rows


def check_scans(table: Table, columns: Sequence[tuple[int, ...]], execution: Execution) -> tuple[int, int]:
    """How many rows and pages an execution names, if each predicate reads these columns.

    Refused if a column or a page is not there, or a page is named twice for one predicate, so that the work has a
    public bound.
    """
    rows = pages = 0
    ends: dict[tuple[int, int], int] = {}
    for scan in execution.scans:
        if not (0 <= scan.run < len(table.runs) and 0 <= scan.predicate < len(columns)):
            raise InvalidParameter("there is no such run or predicate", hint="prepare the plan again")
        if not table.runs[scan.run].holds(columns[scan.predicate]):
            raise InvalidParameter("the run does not hold a column of the plan", hint="read another copy of the rows")
        run, end = table.runs[scan.run], ends.get((scan.run, scan.predicate), 0)
        for first, count in scan.pages:
            if not end <= first <= first + count <= run.pages:
                raise InvalidParameter("page ranges must ascend within the run", hint="a row would be counted twice")
            end = first + count
            rows += count * run.page_rows
            pages += count
        ends[scan.run, scan.predicate] = end
    return rows, pages


def _batches(plan: CompiledPlan, execution: Execution, reader: Reader) -> Iterator[Batch]:
    for run_number, number, pages in execution.scans:
        run = plan.table.runs[run_number]
        pages_of_run, dummies = reader(run.id)
        predicate, columns = plan.predicates[number], plan.columns[number]
        for first, count in pieces(pages, max(1, BATCH_BYTES // (run.page_rows * plan.widest_bytes))):
            yield Batch(pages_of_run, first, count, columns, dummies, predicate)


def pieces(pages: Sequence[PageRange], most: int) -> Iterator[PageRange]:
    """The same pages, at most so many at a time."""
    for first, count in pages:
        for at in range(first, first + count, most):
            yield at, min(most, first + count - at)


def _blanked_rows(places: tuple[int, ...], schema: Schema, rows: int, batches: Iterator[Batch], bounds: Words) -> bytes:
    """The rows as RowColumns lays them out; what does not match is all zeros: the owner holds nothing unasked."""
    columns = [schema.columns[place] for place in places]
    answer = np.zeros(rows * _row_bytes(places, schema), np.uint8)
    parts, at = [], rows
    for column in columns:
        width = column.type.width_bytes
        values = answer[at : at + rows * width].reshape(rows, width)
        valid = answer[at + rows * width : at + rows * (width + 1)] if column.nullable else None
        parts.append((values, valid))
        at += rows * column.answer_row_bytes
    row = 0
    for batch in batches:
        end = row + batch.rows
        batch.match(bounds)
        answer[row:end] = batch.mask
        for place, (values, valid) in zip(places, parts, strict=True):
            fetched = batch.column(place)
            values[row:end] = blanked(fetched.values, batch.mask).view(np.uint8).reshape(batch.rows, -1)
            if valid is not None and fetched.valid is not None:
                valid[row:end] = fetched.valid & batch.mask
        row = end
    return answer.tobytes()
