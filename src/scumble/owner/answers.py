"""Answers: the enclave's bytes become rows of an Arrow table or values of aggregates, and these a `Result`.

Rows that did not match came back blank, and are dropped here. For the owner alone.
"""

import html
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scumble.errors import Overflow
from scumble.types import Column, Schema
from scumble.wire.plan import Aggregates

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from scumble.sql import Output

__all__ = ["GroupReader", "Result", "Row", "matching_rows"]

SHOWN_ROWS = 20

Row = tuple[Any, ...]


class Result:
    """The answer to a query. `rows` are known at once for bare aggregates; the table is made when it is asked for."""

    def __init__(self, table: "Callable[[], pa.Table]", rows: list[Row] | None = None) -> None:
        self._make, self._rows = table, rows
        self._next = 0

    @cached_property
    def _table(self) -> "pa.Table":
        return self._make()

    def arrow(self) -> "pa.Table":
        """An Arrow table."""
        return self._table

    def df(self) -> "pd.DataFrame":
        """A pandas data frame."""
        return self._table.to_pandas()

    def pl(self) -> "pl.DataFrame":
        """A polars data frame."""
        import polars

        frame = polars.from_arrow(self._table)
        assert isinstance(frame, polars.DataFrame)  # noqa: S101  a table never makes a series
        return frame

    def fetchall(self) -> list[Row]:
        """All rows that have not been fetched yet, as tuples."""
        rows = self._plain[self._next :]
        self._next = len(self._plain)
        return rows

    def fetchmany(self, size: int) -> list[Row]:
        """The next rows, at most so many."""
        rows = self._plain[self._next : self._next + size]
        self._next += len(rows)
        return rows

    def fetchone(self) -> Row | None:
        return next(iter(self.fetchmany(1)), None)

    @cached_property
    def _plain(self) -> list[Row]:
        if self._rows is not None:
            return self._rows
        return list(zip(*(_values(column) for column in self._table.columns), strict=True))

    @property
    def columns(self) -> list[str]:
        return list(self._table.column_names)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.fetchall())

    def __len__(self) -> int:
        return len(self._table) if self._rows is None else len(self._rows)

    def __str__(self) -> str:
        cells = [self.columns, *([_shown(value) for value in row] for row in self._plain[:SHOWN_ROWS])]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        head, *rows = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
        more = len(self) - SHOWN_ROWS
        tail = [f"... {more} more rows"] if more > 0 else []
        return "\n".join([head, "  ".join("-" * width for width in widths), *rows, *tail])

    def __repr__(self) -> str:
        return f"<Result: {len(self)} rows of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        rows = [
            "<tr>" + "".join(f"<td>{html.escape(_shown(value))}</td>" for value in row) + "</tr>"
            for row in self._plain[:SHOWN_ROWS]
        ]
        more = len(self) - SHOWN_ROWS
        caption = f"<caption>{more} more rows</caption>" if more > 0 else ""
        return f"<table>{caption}<tr>{head}</tr>{''.join(rows)}</table>"


def _values(column: Any) -> list[Any]:
    """Python values as DuckDB gives them.

    A HUGEINT, which Arrow has as a decimal without places, is an int; an interval a timedelta, in months of 30 days.
    """
    import pyarrow as pa

    values: list[Any] = column.to_pylist()
    if pa.types.is_decimal(column.type) and column.type.scale == 0 and column.type.precision == 38:
        return [None if value is None else int(value) for value in values]
    if pa.types.is_interval(column.type):
        return [None if value is None else _timedelta(value) for value in values]
    return values


def _timedelta(value: "pa.MonthDayNano") -> "timedelta | pa.MonthDayNano":
    months, days, nanoseconds = value
    try:
        return timedelta(days=30 * months + days, microseconds=nanoseconds // 1000)
    except OverflowError:  # as Arrow has it, where Python has no such timedelta
        return value


def _shown(value: object) -> str:
    return "NULL" if value is None else str(value)


def matching_rows(answer: memoryview, schema: Schema, columns: Sequence[int]) -> "pa.Table":
    """The rows that match, from an answer as `RowColumns` lays it out."""
    import pyarrow as pa

    kinds = [schema.columns[place] for place in columns]
    raw = np.frombuffer(answer, np.uint8)
    rows = len(raw) // (1 + sum(column.answer_row_bytes for column in kinds))
    matched = _numbers(raw[:rows])
    arrays, at = [], rows
    for column in kinds:
        width = column.type.width_bytes
        values = column.type.from_page(raw[at : at + rows * width])
        at += rows * width
        valid = None
        if column.nullable:
            valid = np.array(raw[at : at + rows][matched])
            at += rows
        chosen = np.array(values[matched])
        arrays.append(column.type.decode(chosen, valid))
    return pa.table(arrays, names=[column.name for column in kinds])


def _numbers(mask: NDArray[np.uint8]) -> slice | NDArray[np.intp]:
    """The rows where the mask is set: a slice, which copies faster, if they are one piece, as in an index range."""
    numbers = np.flatnonzero(mask)
    if len(numbers) and numbers[-1] - numbers[0] + 1 == len(numbers):
        return slice(int(numbers[0]), int(numbers[-1]) + 1)
    return numbers


class GroupReader:
    """Reads answers as `Aggregates` lays them out; made once for a query, for the owner's `outputs`."""

    def __init__(self, wanted: Aggregates, schema: Schema, outputs: "Sequence[Output]") -> None:
        slots = wanted.layout(schema)[0]
        self._groups = prod(wanted.group_sizes(schema))
        self._grouped = bool(wanted.group_by)
        self._keys = list(product(*(_codes(schema.columns[place]) for place in wanted.group_by)))
        self._outputs = [(slots[output.state], output.function.finisher(output.argument)) for output in outputs]

    def rows(self, answer: memoryview) -> list[Row]:
        """For every group that has a row: the group columns' values, then the outputs.

        Without GROUP BY there is one row, whether anything matches or not.
        """
        words = answer.cast("q").tolist()
        if words[0]:
            raise Overflow("a product or sum in this query leaves 128 bits", hint="cast to DOUBLE to compute in floats")
        if not self._grouped:
            return [tuple(self._values(words, 0))]
        present = [group for group in range(self._groups) if words[1 + group]]
        return [(*self._keys[group], *self._values(words, group)) for group in present]

    def _values(self, words: list[int], group: int) -> list[Any]:
        return [
            finish([words[at + group * size : at + (group + 1) * size] for _, at, size in slots])
            for slots, finish in self._outputs
        ]


def _codes(column: Column) -> list[Any]:
    """The values of a group column in the order of their codes."""
    return [*column.type.group_values, *([None] if column.nullable else [])]
