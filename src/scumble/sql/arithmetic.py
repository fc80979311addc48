"""Arithmetic: an SQL expression over integer and decimal columns comes in, one over words goes out, with its scale.

The scale follows DuckDB's rules for decimals: the greater one for + and -, the sum for *. Shapes and constants of
aggregates are public, as the query's SELECT list is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from sqlglot import exp

from scumble.boundary.plan import Expression
from scumble.schema import Kind, Schema
from scumble.sql.constants import Constants, Literal

__all__ = ["Scaled", "arithmetic"]

MAX_SCALE = 38
MAX_CONSTANT = 2**63


@dataclass(frozen=True)
class Scaled:
    """An expression whose value, divided by 10^scale, is the SQL one's."""

    expression: Expression
    scale: int


def arithmetic(node: exp.Expr, schema: Schema, column: Callable[[exp.Column], int | None]) -> Scaled | None:
    """Translate exactly, or not at all: then the rows go to DuckDB."""
    while isinstance(node, exp.Paren):
        node = node.this
    match node:
        case exp.Column():
            return _column(column(node), schema)
        case exp.Neg() if not isinstance(node.this, exp.Literal):
            inner = arithmetic(node.this, schema, column)
            return inner and Scaled(("-", ("constant", 0), inner.expression), inner.scale)
        case exp.Literal() | exp.Neg():
            return _constant(node)
        case exp.Add() | exp.Sub() | exp.Mul():
            left, right = (arithmetic(side, schema, column) for side in (node.this, node.expression))
            if left is not None and right is not None:
                return _product(left, right) if isinstance(node, exp.Mul) else _sum(node, left, right)
    return None


def _column(place: int | None, schema: Schema) -> Scaled | None:
    if place is None or schema.columns[place].type.kind not in (Kind.INTEGER, Kind.DECIMAL):
        return None
    return Scaled(("column", place), schema.columns[place].type.scale)


def _constant(node: exp.Expr) -> Scaled | None:
    literal = Constants().of(node)
    if not isinstance(literal, Literal) or not isinstance(literal.value, int | Decimal):
        return None
    scale = 0 if isinstance(literal.value, int) else -int(literal.value.as_tuple().exponent)
    unscaled = int(literal.value * 10**scale)
    return Scaled(("constant", unscaled), scale) if abs(unscaled) < MAX_CONSTANT else None


def _product(left: Scaled, right: Scaled) -> Scaled | None:
    scale = left.scale + right.scale
    return Scaled(("*", left.expression, right.expression), scale) if scale <= MAX_SCALE else None


def _sum(node: exp.Expr, left: Scaled, right: Scaled) -> Scaled | None:
    scale = max(left.scale, right.scale)
    sides = [_rescaled(side, scale) for side in (left, right)]
    if None in sides:
        return None
    return Scaled(("+" if isinstance(node, exp.Add) else "-", *sides), scale)


def _rescaled(side: Scaled, scale: int) -> Expression | None:
    if side.scale == scale:
        return side.expression
    factor = 10 ** (scale - side.scale)
    match side.expression:
        case ("constant", int(value)) if abs(value * factor) < MAX_CONSTANT:
            return ("constant", value * factor)
    return ("*", side.expression, ("constant", factor)) if factor < MAX_CONSTANT else None
