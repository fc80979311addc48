"""Constants: the values in a query's conditions, as the words that the enclave compares with.

Each test of a predicate has an entry here, of known values or of parameters that are bound later; `Bounds.words` makes
all entries one array of words. These are the query's secrets: they leave the owner sealed only.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property
from typing import Any

from sqlglot import exp

from scumble.sql.forbidden import reads_clock
from scumble.types import ColumnType, Interval, Operator

__all__ = [
    "Bounds",
    "Constants",
    "Entry",
    "Evaluate",
    "Fixed",
    "Literal",
    "Param",
    "ParamValues",
    "Points",
    "Range",
    "Replan",
    "known",
    "merged",
]

Evaluate = Callable[[str], Any]
"""Runs a constant SQL expression in DuckDB and returns its value; any exception means that it has none."""

ParamValues = Sequence[Any] | Mapping[str, Any]

FOLDED = (
    exp.Literal, exp.Boolean, exp.Null, exp.Neg, exp.Paren, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam,
    exp.Interval, exp.Var, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Placeholder,
)  # fmt: skip
MAX_DIGITS = 38


class Replan(Exception):
    """These parameters do not fit the shape that the statement was planned with: plan again with their values."""


@dataclass(frozen=True)
class Literal:
    """A known value; `typed` if it is not a bare literal or parameter, whose type DuckDB would still adapt."""

    value: Any
    typed: bool = False


@dataclass(frozen=True)
class Param:
    """A value that is bound later."""

    key: int | str


@dataclass(eq=False)
class Constants:
    """Folds constant expressions. With `values`, parameters are known; without, they stay open."""

    keys: Mapping[str, int | str] = field(default_factory=dict)
    evaluate: Evaluate | None = None
    values: ParamValues | None = None
    open_expressions: bool = False
    """Set when an expression could not be folded because a parameter in it is open."""

    def of(self, node: exp.Expr) -> Literal | Param | None:
        """The value of an expression; None if it is not constant, or not known."""
        while isinstance(node, exp.Paren):
            node = node.this
        match node:
            case exp.Literal() | exp.Boolean() | exp.Null():
                return _literal(node)
            case exp.Neg(this=exp.Literal(is_string=False) as inner):
                literal = _literal(inner)
                return literal and Literal(-literal.value)
            case exp.Placeholder():
                key = self.keys[node.name]
                return Param(key) if self.values is None else Literal(_value(self.values, key))
        if not all(isinstance(part, FOLDED) for part in node.walk()) or reads_clock(node):
            return None
        return self._evaluated(node)

    def _evaluated(self, node: exp.Expr) -> Literal | None:
        if self.evaluate is None:
            return None
        node = node.copy()
        for placeholder in list(node.find_all(exp.Placeholder)):
            if self.values is None:
                self.open_expressions = True
                return None
            text = _sql_literal(_value(self.values, self.keys[placeholder.name]))
            if text is None:
                return None
            placeholder.replace(exp.Var(this=text))
        try:
            return Literal(self.evaluate(node.sql("duckdb")), typed=True)
        except Exception:
            # DuckDB reports the error when it runs the condition itself.
            return None


def _sql_literal(value: Any) -> str | None:  # noqa: PLR0911 - one for each type
    """A value as SQL of the type that DuckDB gives to it when it is bound; None if there is no exact one."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case int() | Decimal():
            return f"({value})" if isinstance(value, int) or value.is_finite() else None
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            kind = "TIMESTAMP" if value.tzinfo is None else "TIMESTAMPTZ"
            return f"CAST('{value.isoformat(sep=' ')}' AS {kind})"
        case date():
            return f"CAST('{value.isoformat()}' AS DATE)"
        case time():
            return f"CAST('{value.isoformat()}' AS TIME)"
    return None


def _literal(node: exp.Expr) -> Literal | None:
    if isinstance(node, exp.Null | exp.Boolean):
        return Literal(None if isinstance(node, exp.Null) else bool(node.this))
    text = str(node.this)
    if node.args.get("is_string"):
        return Literal(text)
    try:
        if "e" in text.lower():
            return Literal(float(text))
        number = Decimal(text) if "." in text else int(text)
    except (ValueError, ArithmeticError):
        return None
    return Literal(number) if sum(map(str.isdigit, text)) <= MAX_DIGITS else None


def _value(values: ParamValues, key: int | str) -> Any:
    return values[key]  # type: ignore[index]


Value = Literal | Param


@dataclass(frozen=True)
class Fixed:
    """Intervals that are known. If `kept`, they stay as they are, so that nobody sees which are empty, or touch."""

    type: ColumnType
    intervals: tuple[Interval, ...]
    kept: bool = False

    def resolve(self, _: ParamValues | None) -> list[Interval]:
        return list(self.intervals)

    @property
    def count(self) -> int:
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
        return self.type.full_interval

    def resolve(self, params: ParamValues | None) -> list[Interval]:
        """The interval, with the parameters in place; Replan if it is not certain to be exact."""
        values = [_given(constant, params) for _, constant in self.comparisons]
        if self.type.is_integer and all(type(value) is int for value in values):
            return [self._of_integers(values)]
        low, high = self.widest
        if self.between:
            _check_types(self.type, values)
        for (op, _), value in zip(self.comparisons, values, strict=True):
            if value is None:
                if self.negated:
                    continue
                return [self.type.empty_interval]
            pair = self.type.interval(op, value)
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
        return ((low,), (high,)) if low <= high else self.type.empty_interval


@dataclass(frozen=True)
class Points:
    """As many intervals as values: an IN list. With a null in it, NOT IN is never true."""

    type: ColumnType
    values: tuple[Value, ...]
    negated: bool = False

    @property
    def count(self) -> int:
        return len(self.values)

    def resolve(self, params: ParamValues | None) -> list[Interval]:
        intervals: list[Interval] = []
        values = [_given(constant, params) for constant in self.values]
        _check_types(self.type, values)
        for value in values:
            if value is None:
                pair: Interval | None = self.type.full_interval if self.negated else self.type.empty_interval
            else:
                pair = self.type.interval("=", value)
            if pair is None:
                raise Replan
            intervals.append(pair)
        return intervals


Entry = Fixed | Range | Points


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The same words in as few intervals as possible: empty ones left out, those that touch made one."""
    found: list[Interval] = []
    for low, high in sorted(pair for pair in intervals if pair[0] <= pair[1]):
        if found and (low <= found[-1][1] or (len(low) == 1 and low[0] == found[-1][1][0] + 1)):
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found


def known(entry: Entry) -> Entry:
    """The entry with its intervals worked out and merged; as it is if a parameter is open, or it is to stay so."""
    if isinstance(entry, Fixed) and entry.kept:
        return entry
    try:
        return Fixed(entry.type, tuple(merged(entry.resolve(None))))
    except Replan:
        return entry


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


def _given(constant: Value, params: ParamValues | None) -> object:
    if isinstance(constant, Literal):
        return constant.value
    if params is None:
        raise Replan
    return params[constant.key]  # type: ignore[index]
