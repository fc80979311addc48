"""Constants of a query: expressions without columns come in, Python values or parameters go out.

Literals are read here; anything more is worked out by DuckDB through the owner's `evaluate`, so that a folded constant
is what DuckDB itself would compare with. Constants are the asker's; they reach the enclave sealed, as bounds.
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from sqlglot import exp

from scumble.sql.refusals import reads_clock

__all__ = ["Constants", "Evaluate", "Literal", "Param", "ParamValues", "Replan", "sql_literal"]

Evaluate = Callable[[str], Any]
"""What runs a constant SQL expression in DuckDB and gives its value; any exception means that there is none."""

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
            text = sql_literal(_value(self.values, self.keys[placeholder.name]))
            if text is None:
                return None
            placeholder.replace(exp.Var(this=text))
        try:
            return Literal(self.evaluate(node.sql("duckdb")), typed=True)
        except Exception:
            # Whatever is wrong with it, DuckDB says so when it runs the condition itself.
            return None


def sql_literal(value: Any) -> str | None:  # noqa: PLR0911 - one for each type
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
        case datetime.datetime():
            kind = "TIMESTAMP" if value.tzinfo is None else "TIMESTAMPTZ"
            return f"CAST('{value.isoformat(sep=' ')}' AS {kind})"
        case datetime.date():
            return f"CAST('{value.isoformat()}' AS DATE)"
        case datetime.time():
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
