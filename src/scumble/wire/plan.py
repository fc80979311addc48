"""Plans: what the enclave is to do with the rows of a table that match a predicate.

A plan is made once for a statement, and executed many times with other bounds and other pages. Its shape is public, as
that of its predicate is; it holds no constant of the WHERE clause.
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal, NamedTuple, Self

from scumble.errors import InvalidParameter
from scumble.types import Schema
from scumble.wire.predicate import Predicate
from scumble.wire.predicate import from_json as predicate_from_json
from scumble.wire.predicate import to_json as predicate_to_json

__all__ = ["MAX_GROUPS", "Aggregate", "Aggregates", "Expression", "Function", "Part", "PartKind", "Plan", "RowColumns"]

MAX_GROUPS = 4096

Function = Literal["count", "sum", "squares", "min", "max"]
"""What the enclave accumulates. AVG is a sum; VARIANCE and STDDEV are squares."""

PartKind = Literal["count", "sum", "squares", "extremes", "doubles", "double_squares", "wide_sum"]

Expression = tuple[Any, ...]
"""Arithmetic on words, exact in 128 bits: ("column", place), ("constant", unscaled), ("+" | "-" | "*", left, right).

Both sides of + and - have the same scale: the planner has multiplied by powers of ten where they had not.
"""


class Part(NamedTuple):
    """One thing that is accumulated for every group: what it is, where in the answer it begins, words for a group."""

    kind: PartKind
    offset: int
    words: int


@dataclass(frozen=True)
class Aggregate:
    """One function over a column or an expression; None counts rows. A row where a column read is null is left out."""

    function: Function
    argument: Expression | None

    @cached_property
    def columns(self) -> frozenset[int]:
        """The columns that the argument reads."""
        return _columns(self.argument)

    @cached_property
    def column(self) -> int | None:
        """The argument's column, if it is one alone."""
        match self.argument:
            case ("column", int(place)):
                return place
        return None

    def kinds(self, schema: Schema) -> tuple[tuple[PartKind, int], ...]:
        """What is accumulated, and how many words each takes for a group. The number of rows that count comes first.

        Integers have their least word first. Of a sum of doubles there are two, whose sum it is. Extremes are the least
        and the greatest; those of an expression are `wide_ordered`: high word, then low word with the top bit flipped.
        """
        kind = None if self.column is None else schema.columns[self.column].type
        floats = kind is not None and kind.is_float
        total: tuple[PartKind, int] = ("wide_sum", 3) if kind is None else ("doubles", 2) if floats else ("sum", 2)
        match self.function:
            case "count":
                return (("count", 1),)
            case "sum":
                return ("count", 1), total
            case "squares":
                return ("count", 1), total, ("double_squares", 2) if floats else ("squares", 3)
        return ("count", 1), ("extremes", 2 * (2 if kind is None else kind.words))


@dataclass(frozen=True)
class Aggregates:
    """Answer with words of every part of every aggregate, for every combination of the group columns' public values.

    `group_by` are category or boolean columns. A column has one code for each category (2 for booleans) and, if it is
    nullable, one more for null; the first column varies slowest. Without group columns there is one group.

    The answer is an array of words: 1 if anything overflowed, else 0; the number of rows in each group; then for each
    aggregate, for each of its parts, the words of all groups.
    """

    aggregates: tuple[Aggregate, ...]
    group_by: tuple[int, ...] = ()

    @property
    def reads(self) -> frozenset[int]:
        """The columns that are read for it."""
        return frozenset(self.group_by).union(*(aggregate.columns for aggregate in self.aggregates))

    def group_sizes(self, schema: Schema) -> tuple[int, ...]:
        """How many codes each group column has, that of null included; refused if they make more than MAX_GROUPS."""
        columns = [schema.columns[place] for place in self.group_by]
        if not all(column.type.group_values for column in columns):
            raise InvalidParameter(
                "rows can be grouped by categories and booleans only", hint="group by another column"
            )
        sizes = tuple(len(column.type.group_values) + column.nullable for column in columns)
        if prod(sizes) > MAX_GROUPS:
            raise InvalidParameter("there are too many groups", hint=f"at most {MAX_GROUPS}, of all columns together")
        return sizes

    def layout(self, schema: Schema) -> tuple[list[tuple[Part, ...]], int]:
        """The parts of each aggregate, and how many words the answer has."""
        groups = prod(self.group_sizes(schema))
        parts, at = [], 1 + groups
        for aggregate in self.aggregates:
            own = []
            for kind, words in aggregate.kinds(schema):
                own.append(Part(kind, at, words))
                at += groups * words
            parts.append(tuple(own))
        return parts, at


@dataclass(frozen=True)
class RowColumns:
    """Answer with these columns of every row fetched, blanked where the predicate does not match.

    The answer is a byte for each row that says whether it matches, then for each column its values, as wide as in
    pages, and if it is nullable a byte for each row that is 1 where there is a value.
    """

    columns: tuple[int, ...]

    @property
    def reads(self) -> frozenset[int]:
        """The columns that are read for it."""
        return frozenset(self.columns)


@dataclass(frozen=True)
class Plan:
    """PUBLIC in shape: for one table, predicates, and what to do with what matches.

    Several predicates are there for a union: each scan names the one it uses, and no row matches two of them.
    """

    table: str
    predicates: tuple[Predicate, ...]
    output: Aggregates | RowColumns

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON."""
        fields: dict[str, Any] = {"table": self.table, "predicates": [predicate_to_json(p) for p in self.predicates]}
        match self.output:
            case RowColumns(columns):
                fields["columns"] = list(columns)
            case Aggregates(aggregates, group_by):
                fields["aggregates"] = [[a.function, a.argument] for a in aggregates]
                fields["group_by"] = list(group_by)
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The inverse."""
        output: Aggregates | RowColumns
        if "columns" in fields:
            output = RowColumns(tuple(fields["columns"]))
        else:
            aggregates = tuple(Aggregate(function, _tuples(argument)) for function, argument in fields["aggregates"])
            output = Aggregates(aggregates, tuple(fields["group_by"]))
        return cls(fields["table"], tuple(map(predicate_from_json, fields["predicates"])), output)


def _columns(expression: Expression | None) -> frozenset[int]:
    match expression:
        case ("column", int(place)):
            return frozenset([place])
        case (_, tuple(left), tuple(right)):
            return _columns(left) | _columns(right)
    return frozenset()


def _tuples(tree: Any) -> Any:
    return tuple(map(_tuples, tree)) if isinstance(tree, list) else tree
