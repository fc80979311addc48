"""Plans on rows that are here: what the enclave does with those of a table, the owner's side does with those that wait.

In come rows of a table as Arrow has them, and a plan with its bounds, the very same that the enclave gets: so a row is
treated alike wherever it is. Everything is worked out on words, as `wire/plan.py` describes. SECRET, all of it; nothing
here is oblivious, since nobody but the rows' owner can watch.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scumble.errors import BadRows
from scumble.types import Schema, convert, encode
from scumble.types.float import float_of
from scumble.types.wide import wide_words
from scumble.wire.plan import (
    COUNT,
    DOUBLE_SQUARES,
    DOUBLES,
    EXTREMES,
    SQUARES,
    Aggregates,
    And,
    Assignment,
    Compare,
    Constant,
    Expression,
    In,
    Or,
    Part,
    Plan,
    Predicate,
    Rewrite,
)

__all__ = ["LocalRows", "Rewritten"]

Words = NDArray[np.int64]
Mask = NDArray[np.bool_]
Rewritten = tuple[list[int], pa.Table, Mask]
"""How many rows have matched each predicate, the rows as they become, and which of them are left."""

_LOW = (1 << 64) - 1
_MOST = 1 << 127


class LocalRows:
    """SECRET: rows with all columns of a schema."""

    def __init__(self, rows: pa.Table, schema: Schema) -> None:
        self._rows, self._schema, self._count = rows, schema, len(rows)
        self._encoded: dict[int, tuple[Words, Mask]] = {}

    def _column(self, place: int) -> tuple[Words, Mask]:
        """A column's words, [rows, words], and which rows are not null there."""
        if place not in self._encoded:
            column = self._schema.columns[place]
            words, valid = encode(column, convert(column, self._rows.column(place).combine_chunks()))
            given = np.ones(self._count, np.bool_) if valid is None else valid.astype(np.bool_)
            self._encoded[place] = words.reshape(self._count, -1), given
        return self._encoded[place]

    # --- which rows --------------------------------------------------------------------------------

    def matching(self, plan: Plan, bounds: Words) -> Mask:
        """Which rows match any predicate of a plan."""
        found = np.zeros(self._count, np.bool_)
        for predicate in plan.predicates:
            found |= self._matching(predicate, bounds)
        return found

    def _matching(self, predicate: Predicate, bounds: Words) -> Mask:
        match predicate:
            case In():
                return self._contained(predicate, bounds)
            case Compare(left, right, op, negated):
                (_, there), (_, here) = self._column(left), self._column(right)
                a, b = (self._ordered(place) for place in (left, right))
                holds: Mask = (a == b).all(axis=1) if op == "=" else _precedes(a, b, equal=op == "<=")
                return (holds ^ np.bool_(negated)) & there & here
            case Constant(value):
                return np.full(self._count, value, np.bool_)
            case And(parts):
                return reduce(np.logical_and, (self._matching(part, bounds) for part in parts))
            case Or(parts):
                return reduce(np.logical_or, (self._matching(part, bounds) for part in parts))

    def _contained(self, leaf: In, bounds: Words) -> Mask:
        words, valid = self._column(leaf.column)
        size = words.shape[1] if self._count else self._schema.columns[leaf.column].type.words
        ends = bounds[leaf.offset : leaf.offset + 2 * size * leaf.intervals].reshape(leaf.intervals, 2, 1, size)
        inside = np.zeros(self._count, np.bool_)
        for low, high in ends:
            inside |= _precedes(low, words, equal=True) & _precedes(words, high, equal=True)
        found: Mask = np.where(valid, inside ^ leaf.negated, leaf.null_matches)
        return found

    def _ordered(self, place: int) -> Words:
        type_, (words, _) = self._schema.columns[place].type, self._column(place)
        values = type_.ordered(type_.to_page(words[:, 0] if type_.words == 1 else words))
        return np.asarray(values).reshape(self._count, -1)

    # --- what they become --------------------------------------------------------------------------

    def rewritten(self, plan: Plan, bounds: Words) -> Rewritten:
        """Carry out a change. BadRows if in some row a value does not fit its column: then nothing is changed."""
        output = plan.output
        assert isinstance(output, Rewrite)  # noqa: S101  it is the plan of a change
        left, counts, after = np.ones(self._count, np.bool_), [], dict[int, tuple[Words, Mask]]()
        for predicate, assignments in zip(plan.predicates, output.assignments, strict=True):
            found = self._matching(predicate, bounds) & left
            left &= ~found
            counts.append(int(found.sum()))
            for each in assignments:
                before = after.setdefault(each.column, self._column(each.column))
                after[each.column] = self._assigned(each, bounds, found, before)
        if output.deletes:
            return counts, self._rows, left
        rows = self._rows
        for place, (words, valid) in after.items():
            column = self._schema.columns[place]
            values = column.type.decode(words[:, 0] if column.type.words == 1 else words, valid.astype(np.uint8))
            rows = rows.set_column(place, rows.schema.field(place), values.cast(rows.schema.field(place).type))
        return counts, rows, np.ones(self._count, np.bool_)

    def _assigned(self, one: Assignment, bounds: Words, found: Mask, before: tuple[Words, Mask]) -> tuple[Words, Mask]:
        column = self._schema.columns[one.column]
        size = column.type.words
        match one.expression:
            case None:
                words = np.broadcast_to(bounds[one.offset : one.offset + size], (self._count, size))
                valid = np.full(self._count, bool(bounds[one.offset + size]))
            case ("column", int(place)):
                words, valid = self._column(place)
            case _:
                valid = self._valid(one.columns)
                try:
                    numbers = self._values(one.expression, found & valid)
                except OverflowError:
                    raise _unfit(column.name) from None
                ranges = [(low, high) for (low,), (high,) in column.type.word_intervals]
                if not all(any(low <= number <= high for low, high in ranges) for number in numbers.values()):
                    raise _unfit(column.name)
                words = np.zeros((self._count, 1), np.int64)
                words[list(numbers), 0] = list(numbers.values())
        if not column.nullable and not bool(valid[found].all()):
            raise _unfit(column.name)
        return np.where(found[:, None], words, before[0]), np.where(found, valid, before[1])

    def _valid(self, places: frozenset[int]) -> Mask:
        """The rows where none of some columns is null."""
        valid = np.ones(self._count, np.bool_)
        for place in places:
            valid &= self._column(place)[1]
        return valid

    def _values(self, expression: Expression, chosen: Mask) -> dict[int, int]:
        """Arithmetic for some rows, by their places; OverflowError beyond 128 bits, as in the enclave."""
        return {int(row): self._value(expression, int(row)) for row in np.flatnonzero(chosen)}

    def _value(self, expression: Expression, row: int) -> int:
        match expression:
            case ("column", int(place)):
                return int(self._column(place)[0][row, 0])
            case ("constant", int(value)):
                return value
        operator, left, right = expression
        a, b = self._value(left, row), self._value(right, row)
        number = a + b if operator == "+" else a - b if operator == "-" else a * b
        if not -_MOST <= number < _MOST:
            raise OverflowError
        return number

    # --- aggregates --------------------------------------------------------------------------------

    def added_to(self, answer: memoryview, plan: Plan, bounds: Words) -> memoryview:
        """An answer to aggregates, with what these rows add to it."""
        wanted, schema = plan.output, self._schema
        assert isinstance(wanted, Aggregates)  # noqa: S101  it is the plan of an aggregate query
        words = np.frombuffer(answer, np.int64).copy()
        matching = self.matching(plan, bounds)
        codes, slots = self._codes(wanted), wanted.layout(schema)[0]
        for group in np.unique(codes[matching]).tolist():
            rows = matching & (codes == group)
            words[1 + group] += int(rows.sum())
            for aggregate, (count, *others) in zip(wanted.aggregates, slots, strict=True):
                counted = rows & self._valid(aggregate.columns)
                words[count.offset + group] += int(counted.sum())
                if not others or not counted.any():
                    continue
                try:
                    values = self._arguments(aggregate.argument, aggregate.column, counted)
                except OverflowError:
                    words[0] = 1
                    continue
                for part, at, size in others:
                    here = slice(at + group * size, at + (group + 1) * size)
                    words[here] = _accumulated(part, words[here].tolist(), values, is_float=self._is_float(aggregate))
        return memoryview(words.tobytes())

    def _codes(self, wanted: Aggregates) -> NDArray[np.int64]:
        """The group of every row: the columns' codes as digits, of which null is the greatest."""
        sizes = wanted.group_sizes(self._schema)
        codes = np.zeros(self._count, np.int64)
        for place, size in zip(wanted.group_by, sizes, strict=True):
            words, valid = self._column(place)
            codes = codes * size + np.where(valid, words[:, 0], size - 1)
        assert not self._count or codes.max() < prod(sizes)  # noqa: S101  categories are checked when rows are written
        return codes

    def _is_float(self, aggregate: Any) -> bool:
        return aggregate.column is not None and self._schema.columns[aggregate.column].type.is_float

    def _arguments(self, argument: Expression | None, place: int | None, chosen: Mask) -> list[tuple[int, ...]]:
        """What an aggregate is over, in the rows that count: the words of a column, or of a number of 128 bits."""
        if place is not None:
            return [tuple(row) for row in self._column(place)[0][chosen].tolist()]
        assert argument is not None  # noqa: S101  only a count has none
        return [wide_words(number) for number in self._values(argument, chosen).values()]


def _accumulated(part: Part, state: list[int], values: Sequence[tuple[int, ...]], *, is_float: bool) -> list[int]:
    """The words of one part of one group, with some values added to them."""
    if part is EXTREMES:
        half = len(state) // 2
        return [*min(tuple(state[:half]), *values), *max(tuple(state[half:]), *values)]
    if is_float:
        numbers = [float_of(word) for (word,) in values]
        return _doubles(state, [number * number for number in numbers] if part is DOUBLE_SQUARES else numbers)
    assert part not in (COUNT, DOUBLES)  # noqa: S101  a count comes first, and is added up there
    exact = [words[0] if len(words) == 1 else (words[0] << 64) + words[1] + (1 << 63) for words in values]
    total = sum(number * number for number in exact) if part is SQUARES else sum(exact)
    return _integer(_number(state) + total, len(state))


def _number(words: Sequence[int]) -> int:
    """A signed integer of several words, the least first."""
    return sum((word & _LOW) << (64 * at) for at, word in enumerate(words[:-1])) + (words[-1] << 64 * (len(words) - 1))


def _integer(number: int, size: int) -> list[int]:
    """The inverse."""
    words = [(number >> (64 * at)) & _LOW for at in range(size)]
    return [word - (1 << 64) if word >> 63 else word for word in words]


def _doubles(state: Sequence[int], numbers: Sequence[float]) -> list[int]:
    """Two doubles whose sum is that of a state and some numbers, as exactly as they can hold it."""
    high, low = np.array(state, np.int64).view(np.float64).tolist()
    if not all(map(math.isfinite, (high, *numbers))):
        pair = (sum(numbers, high), 0.0)
    else:
        total = sum(map(Fraction, numbers), Fraction(high) + Fraction(low))
        try:
            first = float(total)
            pair = (first, float(total - Fraction(first)))
        except OverflowError:
            pair = (math.copysign(math.inf, total), 0.0)
    return [int(word) for word in np.array(pair).view(np.int64)]


def _precedes(a: Any, b: Any, *, equal: bool) -> Any:
    """Whether a comes before b, or with `equal` is the same, word by word; both [rows, words], or one row."""
    size = max(a.shape[-1], b.shape[-1])
    holds = np.full(np.broadcast_shapes(a.shape, b.shape)[0], equal, np.bool_)
    for at in range(size - 1, -1, -1):
        holds = (a[:, at] < b[:, at]) | ((a[:, at] == b[:, at]) & holds)
    return holds


def _unfit(name: str) -> BadRows:
    return BadRows(
        f"a value does not fit the column {name!r} of a row that waits in its stream's log",
        hint="let the condition leave such rows out",
    )
