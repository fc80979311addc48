"""Bounds: the constants of a predicate, as the words that the enclave compares with.

Entries come in, one for each leaf of a predicate, with values or parameters in them; given the parameters, an array of
words goes out. The words are the query's secrets: they leave the owner sealed only.
"""

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

from scumble.schema import ColumnType, Kind
from scumble.schema.scalars import Interval, Operator, Words, empty_interval, full_interval, interval
from scumble.sql.constants import Literal, Param, ParamValues, Replan

__all__ = ["Bounds", "Entry", "Fixed", "Interval", "Points", "Range", "Words"]

Value = Literal | Param


@dataclass(frozen=True)
class Fixed:
    """Intervals that are known."""

    type: ColumnType
    intervals: tuple[Interval, ...]

    def resolve(self, _: ParamValues | None) -> list[Interval]:
        """The intervals."""
        return list(self.intervals)

    @property
    def count(self) -> int:
        """How many intervals there are, whatever the parameters."""
        return len(self.intervals)


@dataclass(frozen=True)
class Range:
    """One interval: what satisfies all of some comparisons with constants.

    A null constant makes a comparison unknown: nothing matches; and under NOT it makes no difference.
    """

    type: ColumnType
    comparisons: tuple[tuple[Operator, Value], ...]
    negated: bool = False
    between: bool = False
    """Whether DuckDB makes all constants one type before it compares, as it does for BETWEEN."""
    count = 1

    @cached_property
    def widest(self) -> Interval:
        """Every value of the type."""
        return full_interval(self.type)

    def resolve(self, params: ParamValues | None) -> list[Interval]:
        """The interval, with the parameters in place; Replan if it is not certain to be exact."""
        values = [_value(constant, params) for _, constant in self.comparisons]
        if self.type.kind is Kind.INTEGER and all(type(value) is int for value in values):
            return [self._of_integers(values)]
        low, high = self.widest
        if self.between:
            _check_types(self.type, values)
        for (op, _), value in zip(self.comparisons, values, strict=True):
            if value is None:
                if self.negated:
                    continue
                return [empty_interval(self.type)]
            pair = interval(self.type, op, value)
            if pair is None:
                raise Replan
            low, high = max(low, pair[0]), min(high, pair[1])
        return [(low, high)]

    def _of_integers(self, values: list[Any]) -> Interval:
        """What `interval` gives for integers, without its detours: this is what prepared statements mostly ask."""
        (low,), (high,) = self.widest
        for (op, _), value in zip(self.comparisons, values, strict=True):
            if op not in ("<=", "<"):
                low = max(low, value + (op == ">"))
            if op not in (">=", ">"):
                high = min(high, value - (op == "<"))
        return ((low,), (high,)) if low <= high else empty_interval(self.type)


@dataclass(frozen=True)
class Points:
    """As many intervals as values: an IN list. With a null in it, NOT IN is never true."""

    type: ColumnType
    values: tuple[Value, ...]
    negated: bool = False

    @property
    def count(self) -> int:
        """How many intervals there are, whatever the parameters."""
        return len(self.values)

    def resolve(self, params: ParamValues | None) -> list[Interval]:
        """The intervals, with the parameters in place; Replan if they are not certain to be exact."""
        intervals: list[Interval] = []
        values = [_value(constant, params) for constant in self.values]
        _check_types(self.type, values)
        for value in values:
            if value is None:
                pair: Interval | None = (full_interval if self.negated else empty_interval)(self.type)
            else:
                pair = interval(self.type, "=", value)
            if pair is None:
                raise Replan
            intervals.append(pair)
        return intervals


Entry = Fixed | Range | Points


class Bounds:
    """All entries of a predicate, in the order of their offsets."""

    __slots__ = ("_known", "entries", "open")

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self.entries = entries
        self.open = not all(isinstance(entry, Fixed) for entry in entries)
        self._known = None if self.open else self._resolved(None)

    def words(self, params: ParamValues | None) -> list[int]:
        """The words, as Python integers; Replan if these parameters need another shape."""
        return self._resolved(params) if self._known is None else self._known

    def _resolved(self, params: ParamValues | None) -> list[int]:
        words: list[int] = []
        for entry in self.entries:
            for low, high in entry.resolve(params):
                words += low
                words += high
        return words


def _check_types(type_: ColumnType, values: list[object]) -> None:
    """Replan if DuckDB might compare with a constant of another type than its own: 1 as a double, next to 2e0."""
    types = {type(value) for value in values if value is not None}
    if len(types) < 2 or types == {int, Decimal}:
        return
    if type_.sql == "double" and types <= {int, float, Decimal}:
        return
    if types <= {str, date, datetime} and not any(isinstance(v, datetime) and v.tzinfo for v in values):
        return
    raise Replan


def _value(constant: Value, params: ParamValues | None) -> object:
    if isinstance(constant, Literal):
        return constant.value
    if params is None:
        raise Replan
    return params[constant.key]  # type: ignore[index]
