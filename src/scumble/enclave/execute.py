"""Execution: a plan, pages to read and the bounds come in; an answer goes out whose length only those decide.

Rows, bounds and answers are SECRET; plans and page numbers are public. `execute` is the whole of it: every row of every
page is held against the whole predicate, then aggregated, or blanked where it does not match. If that fails, which may
depend on a row, all pages are read nevertheless, and only then the error is raised.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble.boundary.catalog import Table
from scumble.boundary.plan import Aggregates, Plan, RowColumns
from scumble.boundary.predicate import And, Compare, In, Or, Predicate, columns_of
from scumble.boundary.requests import Execution, PageRange
from scumble.enclave.aggregate import Accumulation
from scumble.enclave.batch import Batch
from scumble.enclave.pages import RunReader
from scumble.enclave.predicates import compiled
from scumble.errors import InvalidParameter
from scumble.schema import Schema

__all__ = ["Prepared", "answer_bytes", "execute"]

BATCH_BYTES = 1 << 19  # of a column at a time: so many that calls cost little, so few that they stay in the cache

Reader = Callable[[str], tuple[RunReader, int]]
"""A run's reader, and its secret number of real rows."""


class Prepared:
    """PUBLIC: a plan and the table it is for, with all that does not depend on bounds worked out."""

    def __init__(self, plan: Plan, table: Table) -> None:
        self.output, self.table = plan.output, table
        self.predicates = [compiled(predicate, table.schema) for predicate in plan.predicates]
        read = frozenset().union(*map(columns_of, plan.predicates), plan.output.reads)
        self.widest_bytes = max((table.schema.columns[place].page_row_bytes for place in read), default=1)
        self.accumulation = None if isinstance(plan.output, RowColumns) else Accumulation(plan.output, table.schema)
        outputs = _output_columns(plan.output, table.schema)
        self.columns = [tuple(dict.fromkeys([*_columns(part), *outputs])) for part in plan.predicates]


def execute(prepared: Prepared, execution: Execution, reader: Reader) -> bytes:
    """Answer one execution of a plan."""
    for scan in execution.scans:
        _check_pages(scan.pages, prepared.table.runs[scan.run].pages)
    batches = _batches(prepared, execution, reader)
    try:
        if prepared.accumulation is None:
            return _blanked_rows(prepared, execution, batches)
        answer = prepared.accumulation.begin()
        for batch in batches:
            batch.match(execution.bounds)
            prepared.accumulation.add(batch, answer)
        return prepared.accumulation.finish(answer)
    except Exception:
        for _ in batches:  # what was to be read is read, whatever went wrong with a row
            pass
        raise


def answer_bytes(prepared: Prepared, execution: Execution) -> int:
    """How long the answer will be, from public facts."""
    if prepared.accumulation is not None:
        return prepared.accumulation.answer_bytes
    assert isinstance(prepared.output, RowColumns)  # noqa: S101  there is nothing else
    rows = 0
    for scan in execution.scans:
        run = prepared.table.runs[scan.run]
        _check_pages(scan.pages, run.pages)
        rows += run.page_rows * sum(count for _, count in scan.pages)
    return rows * (1 + sum(prepared.table.schema.columns[place].page_row_bytes for place in prepared.output.columns))


def _batches(prepared: Prepared, execution: Execution, reader: Reader) -> Iterator[Batch]:
    for run_place, predicate_place, pages in execution.scans:
        run = prepared.table.runs[run_place]
        pages_of_run, real_rows = reader(run.id)
        predicate, columns = prepared.predicates[predicate_place], prepared.columns[predicate_place]
        for first, count in _pieces(pages, max(1, BATCH_BYTES // (run.page_rows * prepared.widest_bytes))):
            yield Batch(pages_of_run, first, count, columns, real_rows, predicate)


def _columns(predicate: Predicate) -> list[int]:
    """The columns that a predicate reads, in the order in which it does."""
    match predicate:
        case In(column=column):
            return [column]
        case Compare(left=left, right=right):
            return [left, right]
        case And(parts) | Or(parts):
            return [column for part in parts for column in _columns(part)]
    return []


def _output_columns(output: Aggregates | RowColumns, schema: Schema) -> list[int]:
    """The columns that an output reads: to count what cannot be null, none is read."""
    if isinstance(output, RowColumns):
        return list(output.columns)
    read = list(output.group_by)
    for aggregate in output.aggregates:
        only_counted = aggregate.function == "count"
        read += [place for place in sorted(aggregate.columns) if not only_counted or schema.columns[place].nullable]
    return read


def _check_pages(pages: Sequence[PageRange], most: int) -> None:
    end = 0
    for first, count in pages:
        if not end <= first <= first + count <= most:
            raise InvalidParameter("page ranges must ascend within the run", hint="a row would be counted twice")
        end = first + count


def _pieces(pages: Sequence[PageRange], most: int) -> Iterator[PageRange]:
    for first, count in pages:
        for at in range(first, first + count, most):
            yield at, min(most, first + count - at)


def _blanked_rows(prepared: Prepared, execution: Execution, batches: Iterator[Batch]) -> bytes:
    """The rows as RowColumns lays them out; what does not match is all zeros: the owner holds nothing unasked."""
    wanted, table = prepared.output, prepared.table
    assert isinstance(wanted, RowColumns)  # noqa: S101  the caller has looked
    rows = sum(count * table.runs[scan.run].page_rows for scan in execution.scans for _, count in scan.pages)
    columns = [table.schema.columns[place] for place in wanted.columns]
    answer = np.zeros(rows * (1 + sum(column.page_row_bytes for column in columns)), np.uint8)
    parts, at = [], rows
    for column in columns:
        width = column.type.width_bytes
        values = answer[at : at + rows * width].reshape(rows, width)
        valid = answer[at + rows * width : at + rows * (width + 1)] if column.nullable else None
        parts.append((values, valid))
        at += rows * column.page_row_bytes
    row = 0
    for batch in batches:
        end = row + batch.rows
        batch.match(execution.bounds)
        answer[row:end] = batch.mask
        for place, (values, valid) in zip(wanted.columns, parts, strict=True):
            fetched = batch.column(place)
            values[row:end] = _blanked(fetched.values, batch.mask).view(np.uint8).reshape(batch.rows, -1)
            if valid is not None and fetched.valid is not None:
                valid[row:end] = fetched.valid & batch.mask
        row = end
    return answer.tobytes()


def _blanked(values: NDArray[Any], mask: NDArray[np.uint8]) -> NDArray[Any]:
    all_or_nothing = -mask.astype(values.dtype)
    blanked: NDArray[Any] = values & (all_or_nothing if values.ndim == 1 else all_or_nothing[:, None])
    return np.ascontiguousarray(blanked)
