"""Answers: what the enclave sends back comes in, opened; rows as an Arrow table, or values of aggregates, go out.

For the owner alone. Rows that did not match came back blank, and are dropped here.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scumble.boundary.plan import Aggregate, Aggregates
from scumble.errors import Overflow
from scumble.schema import Column, ColumnType, Kind, Schema
from scumble.schema.arrow import decode
from scumble.schema.scalars import value_of
from scumble.sql import Output

__all__ = ["GroupReader", "matching_rows"]

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
        arrays.append(decode(column, chosen, valid))
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
    return [*(column.type.categories or (False, True)), *([None] if column.nullable else [])]


def _finisher(output: Output, aggregate: Aggregate, schema: Schema) -> Callable[[State], Any]:
    """What makes SQL's value of a state."""
    function, scale = output.function, output.scale
    kind = None if aggregate.column is None else schema.columns[aggregate.column].type
    if function == "count":
        return lambda state: state[0][0]
    if function in ("min", "max"):
        return lambda state: _extreme(state[1], kind, scale, least=function == "min") if state[0][0] else None
    floats = kind is not None and kind.kind is Kind.FLOAT
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
        return value_of(kind, tuple(chosen))
    high, low = chosen
    return _decimal(_integer([low ^ -(1 << 63), high]), scale)


def _sum(total: int, kind: ColumnType | None, scale: int) -> int | Decimal:
    if not abs(total) < 10**38:
        raise Overflow("a sum in this query leaves 128 bits", hint="cast to DOUBLE to compute in floats")
    return _decimal(total, scale) if scale or (kind is not None and kind.kind is Kind.DECIMAL) else total


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
