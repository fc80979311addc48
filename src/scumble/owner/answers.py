"""Answers: what the enclave sends back comes in, opened; rows as an Arrow table, or values of aggregates, go out.

For the owner alone. Rows that did not match came back blank, and are dropped here.
"""

import html
import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scumble.errors import Overflow
from scumble.sql import Output
from scumble.types import Column, ColumnType, Schema
from scumble.wire.plan import Aggregate, Aggregates

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

__all__ = ["GroupReader", "Result", "matching_rows"]


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
        """The next row, or None."""
        return next(iter(self.fetchmany(1)), None)

    @cached_property
    def _plain(self) -> list[Row]:
        if self._rows is not None:
            return self._rows
        return list(zip(*(_values(column) for column in self._table.columns), strict=True))

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
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
    """Python values as DuckDB gives them: a HUGEINT, which Arrow has as a decimal without places, is an int."""
    import pyarrow as pa

    values: list[Any] = column.to_pylist()
    if pa.types.is_decimal(column.type) and column.type.scale == 0 and column.type.precision == 38:
        return [None if value is None else int(value) for value in values]
    return values


def _shown(value: object) -> str:
    return "NULL" if value is None else str(value)


_EXACT = Context(prec=60)
_WORD = (1 << 64) - 1

State = list[list[int]]
"""The words of each part of an aggregate's state, for one group."""


def matching_rows(answer: memoryview, schema: Schema, columns: Sequence[int]) -> pa.Table:
    """The rows that match, from an answer as `RowColumns` lays it out."""
    kinds = [schema.columns[place] for place in columns]
    raw = np.frombuffer(answer, np.uint8)
    rows = len(raw) // (1 + sum(column.page_row_bytes for column in kinds))
    matched = _places(raw[:rows])
    arrays, at = [], rows
    for column in kinds:
        width, words = column.type.width_bytes, column.type.words
        values: NDArray[Any] = raw[at : at + rows * width].view(np.int64 if width >= 8 else f"<i{width}")
        at += rows * width
        valid = None
        if column.nullable:
            valid = np.array(raw[at : at + rows][matched])
            at += rows
        chosen = np.array((values if words == 1 else values.reshape(rows, words))[matched])
        arrays.append(column.type.decode(chosen, valid))
    return pa.table(arrays, names=[column.name for column in kinds])


def _places(mask: NDArray[np.uint8]) -> slice | NDArray[np.intp]:
    """Where the mask is set: as a slice if that is one piece, as in a range of the index, since it is copied faster."""
    places = np.flatnonzero(mask)
    if len(places) and places[-1] - places[0] + 1 == len(places):
        return slice(int(places[0]), int(places[-1]) + 1)
    return places


class GroupReader:
    """Reads answers as `Aggregates` lays them out; made once for a query, for the owner's `outputs`."""

    def __init__(self, wanted: Aggregates, schema: Schema, outputs: Sequence[Output]) -> None:
        parts = wanted.layout(schema)[0]
        self._groups = prod(wanted.group_sizes(schema))
        self._grouped = bool(wanted.group_by)
        self._keys = list(product(*(_codes(schema.columns[place]) for place in wanted.group_by)))
        self._outputs = [
            (parts[output.state], _finisher(output, wanted.aggregates[output.state], schema)) for output in outputs
        ]

    def rows(self, answer: memoryview) -> list[tuple[Any, ...]]:
        """For every group that has a row: the group columns' values, then the outputs.

        Without GROUP BY there is one row, whether anything matches or not.
        """
        words = answer.cast("q").tolist()
        if words[0]:
            raise Overflow("a product or sum in this query leaves 128 bits", hint="cast to DOUBLE to compute in floats")
        if not self._grouped:
            return [
                tuple(
                    [finish([words[p.offset : p.offset + p.words] for p in parts]) for parts, finish in self._outputs]
                )
            ]
        present = [group for group in range(self._groups) if words[1 + group]]
        return [self._keys[group] + tuple(self._values(words, group)) for group in present]

    def _values(self, words: list[int], group: int) -> Iterator[Any]:
        for parts, finish in self._outputs:
            yield finish([words[p.offset + group * p.words : p.offset + (group + 1) * p.words] for p in parts])


def _codes(column: Column) -> list[Any]:
    """The values of a group column in the order of their codes."""
    return [*column.type.group_values, *([None] if column.nullable else [])]


def _finisher(output: Output, aggregate: Aggregate, schema: Schema) -> Callable[[State], Any]:
    """What makes SQL's value of a state."""
    function, scale = output.function, output.scale
    kind = None if aggregate.column is None else schema.columns[aggregate.column].type
    if function == "count":
        return lambda state: state[0][0]
    if function in ("min", "max"):
        return lambda state: _extreme(state[1], kind, scale, least=function == "min") if state[0][0] else None
    floats = kind is not None and kind.is_float
    number = _doubles if floats else _integer
    if function == "sum" and floats:
        return lambda state: float(_doubles(state[1])) if state[0][0] else None
    if function == "sum":
        return lambda state: _sum(_integer(state[1]), kind, scale) if state[0][0] else None
    if function == "avg":
        return lambda state: _average(state[0][0], number(state[1]), scale) if state[0][0] else None
    return lambda state: _spread(function, state[0][0], number(state[1]), number(state[2]), scale)


def _average(count: int, total: int | Fraction | float, scale: int) -> float:
    return total / count if isinstance(total, float) else float(Fraction(total) / (count * 10**scale))


def _extreme(words: list[int], kind: ColumnType | None, scale: int, *, least: bool) -> Any:
    half = len(words) // 2
    chosen = words[:half] if least else words[half:]
    if kind is not None:
        return kind.value_of(tuple(chosen))
    high, low = chosen
    return _decimal(_integer([low ^ -(1 << 63), high]), scale)


def _sum(total: int, kind: ColumnType | None, scale: int) -> int | Decimal:
    if not abs(total) < 10**38:
        raise Overflow("a sum in this query leaves 128 bits", hint="cast to DOUBLE to compute in floats")
    return _decimal(total, scale) if scale or (kind is not None and kind.digits > 0) else total


def _spread(
    function: str, count: int, total: int | Fraction | float, squares: int | Fraction | float, scale: int
) -> float | None:
    """VARIANCE or STDDEV, of the sample or the population, rounded only once at the end."""
    freedom = count - 1 if function.endswith("samp") else count
    if freedom <= 0:
        return None
    if isinstance(total, float) or isinstance(squares, float):
        return math.nan
    variance = (count * Fraction(squares) - Fraction(total) ** 2) / (count * freedom) / 10 ** (2 * scale)
    variance = max(variance, Fraction(0))
    return math.sqrt(variance) if function.startswith("stddev") else float(variance)


def _integer(words: list[int]) -> int:
    if len(words) == 2:
        return (words[1] << 64) + (words[0] & _WORD)
    return sum((word & _WORD) << (64 * place) for place, word in enumerate(words[:-1])) + (
        words[-1] << (64 * (len(words) - 1))
    )


def _doubles(words: list[int]) -> Fraction | float:
    """The exact sum of two doubles; a float only if it is not finite."""
    high, low = np.array(words, np.int64).view(np.float64).tolist()
    if not math.isfinite(high):
        return float(high)
    return Fraction(high) + Fraction(low)


def _decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal(unscaled).scaleb(-scale, _EXACT)
