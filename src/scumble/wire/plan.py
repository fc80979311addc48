"""Plans: which rows of a table a query wants, and what the enclave is to do with them.

The owner makes a plan once for a statement; the enclave executes it many times, with other bounds and other pages. A
plan's shape (columns, operators, number of intervals) shows in the time it takes and counts as public. It holds no
constant of the WHERE clause: these are a separate array of words, the *bounds*, which travels sealed.

Columns are named by their *place*: where they stand in the table's schema, from 0.
"""

from collections.abc import Iterable
from dataclasses import astuple, dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Generic, Literal, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from scumble.errors import InvalidParameter
from scumble.types import Schema
from scumble.wire.catalog import LIVE

# --- predicates: which rows -------------------------------------------------------------------------
#
# SQL's third truth value needs no second mask: NOT has been pushed down to the tests, and in a test a null is simply
# not a match unless the test says so.


class Test(Protocol):
    """What stands at the leaves of a tree: a question about some columns of a row."""

    @property
    def columns(self) -> tuple[int, ...]:
        """The places of the columns that are read."""
        ...


T = TypeVar("T", bound=Test)


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

    @property
    def columns(self) -> tuple[int, ...]:
        return (self.column,)


@dataclass(frozen=True)
class Compare:
    """Whether left op right, or with `negated` its opposite, holds between columns of one type; a null is no match."""

    left: int
    right: int
    op: Literal["=", "<", "<="]
    negated: bool = False

    @property
    def columns(self) -> tuple[int, ...]:
        return self.left, self.right


@dataclass(frozen=True)
class Constant:
    """True for every row, or for none."""

    value: bool


@dataclass(frozen=True)
class And(Generic[T]):
    """True where all parts are."""

    parts: "tuple[Tree[T], ...]"


@dataclass(frozen=True)
class Or(Generic[T]):
    """True where any part is."""

    parts: "tuple[Tree[T], ...]"


Tree: TypeAlias = T | Compare | Constant | And[T] | Or[T]
Predicate: TypeAlias = Tree[In]
"""What the enclave evaluates. The planner builds the same trees of tests whose bounds have no offset yet."""


def columns_of(tree: Tree[T]) -> list[int]:
    """The places of the columns that a tree reads, in the order in which it does."""
    match tree:
        case And(parts) | Or(parts):
            return [column for part in parts for column in columns_of(part)]
        case Constant():
            return []
    return list(tree.columns)


def _counted(tree: Tree[T]) -> tuple[int, int]:
    """How many nodes and how many intervals a tree has."""
    match tree:
        case And(parts) | Or(parts):
            below = [_counted(part) for part in parts]
            return 1 + sum(nodes for nodes, _ in below), sum(intervals for _, intervals in below)
        case In(intervals=intervals):
            return 1, intervals
    return 1, 0


_TREES: dict[str, Any] = {"in": In, "compare": Compare, "constant": Constant, "and": And, "or": Or}


def _predicate_to_json(predicate: Predicate) -> list[Any]:
    kind = next(kind for kind, tree in _TREES.items() if isinstance(predicate, tree))
    if isinstance(predicate, And | Or):
        return [kind, *map(_predicate_to_json, predicate.parts)]
    return [kind, *astuple(predicate)]


def _predicate_from_json(tree: list[Any], depth: int = 1) -> Predicate:
    if depth > MOST_DEPTH:
        raise _too_large()
    kind, *rest = tree
    if kind in ("and", "or"):
        rest = [tuple(_predicate_from_json(part, depth + 1) for part in rest)]
    made: Predicate = _TREES[kind](*rest)
    return made


# --- outputs: what to do with them ------------------------------------------------------------------

MAX_GROUPS = 4096
MOST_NODES = 4096
"""Tests, connectives, aggregates and arithmetic of one plan, together."""
MOST_DEPTH = 256
MOST_INTERVALS_TESTED = 1 << 16
"""In one plan: every row that is read is held against each of them."""
MOST_BOUNDS = 1 << 24
"""Words, of one execution."""
MOST_CONSTANT = 1 << 127
MOST_ANSWER_BYTES = 64 << 20
"""Of one execution, unless a single page takes more."""

Expression = tuple[Any, ...]
"""Arithmetic on words, exact in 128 bits: ("column", place), ("constant", unscaled), ("+" | "-" | "*", left, right).

Both sides of + and - have the same scale: the planner has multiplied by powers of ten where they had not.
"""


class Part(NamedTuple):
    """Something that a kernel accumulates, named as in native.h: the words it reads of a row and writes for a group.

    0 words read: any number; 0 words written: twice as many as a row has. Integers have their least word first. Of
    doubles there are two, whose sum is the result. The enclave checks these numbers against the compiled kernels.
    """

    name: str
    reads: int
    writes: int

    def words(self, row_words: int) -> int:
        """The words of one group, for rows of so many words."""
        return self.writes or 2 * row_words


COUNT = Part("count", 0, 1)
SUM = Part("sum", 1, 2)
SQUARES = Part("squares", 1, 3)
EXTREMES = Part("extremes", 0, 0)
DOUBLES = Part("doubles", 1, 2)
DOUBLE_SQUARES = Part("double_squares", 1, 2)
WIDE_SUM = Part("wide_sum", 2, 3)
PARTS = (COUNT, SUM, SQUARES, EXTREMES, DOUBLES, DOUBLE_SQUARES, WIDE_SUM)


class Slot(NamedTuple):
    """Where in the answer a part stands: the first word of the first group, and how many words each group has."""

    part: Part
    offset: int
    words: int


Function = Literal["count", "sum", "squares", "min", "max"]
"""What is accumulated for an aggregate. Several aggregates of SQL may be made of the same: AVG is of a sum, too."""


@dataclass(frozen=True)
class Aggregate:
    """One function over a column or an expression; None counts rows. A row where a column read is null is left out."""

    function: Function
    argument: Expression | None

    @cached_property
    def columns(self) -> frozenset[int]:
        return _columns(self.argument)

    @cached_property
    def column(self) -> int | None:
        """The place of the argument's column, if it is one alone."""
        match self.argument:
            case ("column", int(place)):
                return place
        return None

    def parts(self, schema: Schema) -> tuple[Part, ...]:
        """What is accumulated. The number of rows that count comes first."""
        type_ = None if self.column is None else schema.columns[self.column].type
        floats = type_ is not None and type_.is_float
        total = WIDE_SUM if type_ is None else DOUBLES if floats else SUM
        match self.function:
            case "count":
                return (COUNT,)
            case "sum":
                return COUNT, total
            case "squares":
                return COUNT, total, DOUBLE_SQUARES if floats else SQUARES
        return COUNT, EXTREMES

    def row_words(self, schema: Schema) -> int:
        """The words of the argument in a row: an expression has 128 bits."""
        return 2 if self.column is None else schema.columns[self.column].type.words


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

    def reads(self, schema: Schema) -> list[int]:
        """The places of the columns that are read for it: to count what cannot be null, none is."""
        read = list(self.group_by)
        for aggregate in self.aggregates:
            only_counted = aggregate.parts(schema) == (COUNT,)
            read += [place for place in sorted(aggregate.columns) if not only_counted or schema.columns[place].nullable]
        return read

    @property
    def nodes(self) -> int:
        """How many aggregates, group columns, and nodes of arithmetic there are."""
        return len(self.group_by) + sum(_size(aggregate.argument) for aggregate in self.aggregates)

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

    def layout(self, schema: Schema) -> tuple[list[tuple[Slot, ...]], int]:
        """Where the parts of each aggregate stand, and how many words the answer has."""
        groups = prod(self.group_sizes(schema))
        slots, at = [], 1 + groups
        for aggregate in self.aggregates:
            own = []
            for part in aggregate.parts(schema):
                own.append(Slot(part, at, part.words(aggregate.row_words(schema))))
                at += groups * own[-1].words
            slots.append(tuple(own))
        if 8 * at > MOST_ANSWER_BYTES:
            raise InvalidParameter("the answer is too large", hint="ask for fewer groups or aggregates at a time")
        return slots, at


@dataclass(frozen=True)
class RowColumns:
    """Answer with these columns of every row fetched, blanked where the predicate does not match.

    The answer is a byte for each row that says whether it matches, then for each column its values, as wide as in
    pages, and if it is nullable a byte for each row that is 1 where there is a value.
    """

    columns: tuple[int, ...]

    def reads(self, schema: Schema) -> list[int]:
        """The places of the columns that are read for it."""
        return list(self.columns)

    @property
    def nodes(self) -> int:
        return len(self.columns)


@dataclass(frozen=True)
class Assignment:
    """What a column becomes in the rows that match: None stands for a value among the bounds.

    That is the words at `offset`, and one more that is 1, or 0 for null: whether it is null is no part of the shape.
    Otherwise it is an expression: another column of the same type, or arithmetic on numbers.
    """

    column: int
    offset: int
    expression: Expression | None = None

    @cached_property
    def columns(self) -> frozenset[int]:
        return _columns(self.expression)


@dataclass(frozen=True)
class Rewrite:
    """Change the rows that match, and answer with how many they are: a word for each scan and predicate.

    `assignments` has what rows become that match each predicate; a row that matches several follows the first. Without
    assignments, rows are deleted. A change that `copies` leaves the rows as they are, and adds to the tail a run for
    each scan, with the changed rows and as many rows as were read. Every scan names predicate 0, and stands for all.
    """

    assignments: tuple[tuple[Assignment, ...], ...]
    copies: bool = False

    @property
    def deletes(self) -> bool:
        return not any(self.assignments)

    @property
    def written(self) -> tuple[int, ...]:
        """The places of the columns that are rewritten."""
        return (LIVE,) if self.deletes else tuple(sorted({one.column for each in self.assignments for one in each}))

    def reads(self, schema: Schema) -> list[int]:
        """The places of the columns that are read for it."""
        if self.copies:
            return list(range(len(schema)))
        read = [place for each in self.assignments for one in each for place in (one.column, *sorted(one.columns))]
        return list(dict.fromkeys(read))

    @property
    def nodes(self) -> int:
        return len(self.assignments) + sum(_size(one.expression) for each in self.assignments for one in each)


Output: TypeAlias = "Aggregates | RowColumns | Rewrite"


@dataclass(frozen=True)
class Plan:
    """PUBLIC in shape: for one table, predicates, and what to do with what matches.

    Several predicates are there for a union: each scan names the one it uses, and no row matches two of them.
    """

    table: str
    predicates: tuple[Predicate, ...]
    output: Output
    nodes: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        """Refuse a plan that is larger than an enclave takes, at the owner's side as in the enclave."""
        counted = [_counted(predicate) for predicate in self.predicates]
        nodes = sum(nodes for nodes, _ in counted) + self.output.nodes
        object.__setattr__(self, "nodes", nodes)
        if nodes > MOST_NODES or sum(intervals for _, intervals in counted) > MOST_INTERVALS_TESTED:
            raise _too_large()

    def checked(self, schema: Schema) -> int:
        """How many words of bounds it takes; refused if it names a column, or a place in the bounds, that is none.

        Whoever makes a plan may be an analyst with a program of its own.
        """
        places = [place for predicate in self.predicates for place in columns_of(predicate)]
        ends, expressions = [0], []
        match self.output:
            case Rewrite(assignments):
                for one in (one for each in assignments for one in each):
                    expressions.append(one.expression)
                    _check_places([one.column], schema)
                    words = schema.columns[one.column].type.words + 1 if one.expression is None else 0
                    ends.append(_end(one.offset, words))
            case Aggregates(aggregates, group_by):
                places += group_by
                expressions += [aggregate.argument for aggregate in aggregates]
            case RowColumns(columns):
                places += columns
        _check_places(places, schema)
        for expression in expressions:
            if expression is not None:
                _check_expression(expression, schema)
        for leaf in (leaf for predicate in self.predicates for leaf in _leaves(predicate)):
            words = 2 * schema.columns[leaf.column].type.words
            ends.append(_end(leaf.offset, words * _end(leaf.intervals, 0)))
        return max(ends)

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"table": self.table, "predicates": [_predicate_to_json(p) for p in self.predicates]}
        match self.output:
            case RowColumns(columns):
                fields["columns"] = list(columns)
            case Aggregates(aggregates, group_by):
                fields["aggregates"] = [[a.function, a.argument] for a in aggregates]
                fields["group_by"] = list(group_by)
            case Rewrite(assignments, copies):
                fields["copies"] = copies
                fields["rewrite"] = [[[one.column, one.offset, one.expression] for one in each] for each in assignments]
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        output: Output
        if "columns" in fields:
            output = RowColumns(tuple(fields["columns"]))
        elif "rewrite" in fields:
            output = Rewrite(
                tuple(
                    tuple(Assignment(at, to, _tuples(value)) for at, to, value in each) for each in fields["rewrite"]
                ),
                fields["copies"],
            )
        else:
            aggregates = tuple(Aggregate(function, _tuples(argument)) for function, argument in fields["aggregates"])
            output = Aggregates(aggregates, tuple(fields["group_by"]))
        return cls(fields["table"], tuple(map(_predicate_from_json, fields["predicates"])), output)


def _leaves(tree: Predicate) -> list[In]:
    match tree:
        case And(parts) | Or(parts):
            return [leaf for part in parts for leaf in _leaves(part)]
    return [tree] if isinstance(tree, In) else []


def _end(offset: Any, words: int) -> int:
    """Where words end that begin at a place in the bounds."""
    if type(offset) is not int or not 0 <= offset <= MOST_BOUNDS:
        raise InvalidParameter("a place in the bounds is none", hint="upgrade Scumble")
    return offset + words


def _check_places(places: Iterable[Any], schema: Schema) -> None:
    if not all(type(place) is int and 0 <= place < len(schema) for place in places):
        raise InvalidParameter("the table has no such column", hint="prepare the plan again")


def _check_expression(expression: Any, schema: Schema) -> None:
    match expression:
        case ("column", place):
            _check_places([place], schema)
        case ("constant", int(value)) if abs(value) < MOST_CONSTANT:
            return
        case ("+" | "-" | "*", tuple(left), tuple(right)):
            _check_expression(left, schema)
            _check_expression(right, schema)
        case _:
            raise InvalidParameter("this is no arithmetic", hint="upgrade Scumble")


def _columns(expression: Expression | None) -> frozenset[int]:
    match expression:
        case ("column", int(place)):
            return frozenset([place])
        case (_, tuple(left), tuple(right)):
            return _columns(left) | _columns(right)
    return frozenset()


def _size(expression: Any) -> int:
    match expression:
        case (_, tuple(left), tuple(right)):
            return 1 + _size(left) + _size(right)
    return 1


def _tuples(tree: Any, depth: int = 1) -> Any:
    if depth > MOST_DEPTH:
        raise _too_large()
    return tuple(_tuples(part, depth + 1) for part in tree) if isinstance(tree, list) else tree


def _too_large() -> InvalidParameter:
    return InvalidParameter(
        "the statement's conditions and results are more than an enclave takes at once",
        hint="split it up; a long list of values can be loaded as a table, and joined",
    )
