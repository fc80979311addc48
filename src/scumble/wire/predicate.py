"""Predicates: which rows a query wants, as a tree that the enclave evaluates on every row it fetches.

A tree's shape (columns, operators, number of intervals) shows in the time it takes, and counts as public; the constants
are in a separate array of words, the *bounds*, sealed on its way and used by the kernels without a branch. SQL's third
truth value needs no second mask: NOT has been pushed into the leaves, and there a null is simply not a match unless the
leaf says so.
"""

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["ALWAYS", "And", "Compare", "Constant", "In", "Or", "Predicate", "columns_of", "from_json", "to_json"]


@dataclass(frozen=True)
class In:
    """Whether a column's value lies in any of `intervals` pairs of bounds, both included.

    The bounds stand at `offset` in the array of words: lo, hi, lo, hi, ..., each as long as a value of the column. With
    `negated`, whether it lies in none. A null matches if and only if `null_matches`. An interval whose lo is greater
    than its hi is empty.
    """

    column: int
    offset: int
    intervals: int
    negated: bool = False
    null_matches: bool = False


@dataclass(frozen=True)
class Compare:
    """Whether left op right, or with `negated` its opposite, holds between columns of one type; a null is no match."""

    left: int
    right: int
    op: Literal["=", "<", "<="]
    negated: bool = False


@dataclass(frozen=True)
class Constant:
    """True for every row, or for none."""

    value: bool


@dataclass(frozen=True)
class And:
    """All of them."""

    parts: "tuple[Predicate, ...]"


@dataclass(frozen=True)
class Or:
    """Any of them."""

    parts: "tuple[Predicate, ...]"


Predicate = In | Compare | Constant | And | Or
ALWAYS = Constant(True)


def columns_of(predicate: Predicate) -> frozenset[int]:
    """The columns that a predicate reads."""
    match predicate:
        case In(column=column):
            return frozenset([column])
        case Compare(left=left, right=right):
            return frozenset([left, right])
        case And(parts) | Or(parts):
            return frozenset().union(*map(columns_of, parts))
    return frozenset()


def to_json(predicate: Predicate) -> list[Any]:
    """A predicate as nested lists."""
    match predicate:
        case In(column, offset, intervals, negated, null_matches):
            return ["in", column, offset, intervals, negated, null_matches]
        case Compare(left, right, op, negated):
            return ["compare", left, right, op, negated]
        case Constant(value):
            return ["constant", value]
        case And(parts):
            return ["and", *map(to_json, parts)]
        case Or(parts):
            return ["or", *map(to_json, parts)]


def from_json(tree: list[Any]) -> Predicate:
    """The inverse."""
    kind, *rest = tree
    match kind:
        case "in":
            return In(*rest)
        case "compare":
            return Compare(*rest)
        case "constant":
            return Constant(*rest)
        case "and":
            return And(tuple(map(from_json, rest)))
    return Or(tuple(map(from_json, rest)))
