"""Predicates: SQL conditions on one table, translated into trees that the enclave evaluates.

`Translator.exact` translates a condition exactly or not at all: the tree says yes to a row if and only if SQL says
TRUE. `Translator.implied` keeps what follows from a condition for one table; DuckDB then tests the rest. `lay_out`
gives the tests of a finished tree their bounds. A tree's shape is public; the constants stay in the bounds.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal as TypingLiteral
from typing import TypeAlias

from sqlglot import exp

from scumble.sql.constants import Bounds, Constants, Entry, Fixed, Literal, Param, Points, Range, Replan, known
from scumble.types import ColumnType, Interval, Operator, Schema
from scumble.wire.plan import And, Compare, Constant, In, Or, Predicate, Tree

__all__ = ["Draft", "Leaf", "Translator", "all_of", "conjuncts", "lay_out", "matches_nulls", "on_column"]


@dataclass(frozen=True)
class Leaf:
    """A test of one column whose bounds have no offset yet."""

    column: int
    entry: Entry
    negated: bool = False
    null_matches: bool = False

    @property
    def columns(self) -> tuple[int, ...]:
        return (self.column,)


Draft: TypeAlias = Tree[Leaf]


def _matching_intervals(
    type_: ColumnType, node: exp.Expr, pattern: object, escape: str | None
) -> tuple[Interval, ...] | None:
    """The intervals of the values that match, exactly; None if there are no such."""
    if not isinstance(pattern, str):
        return None
    if isinstance(node, exp.StartsWith):
        pair = type_.prefix_interval(pattern)
        return None if pair is None else (pair,)
    return type_.like_intervals(pattern, escape, case_insensitive=isinstance(node, exp.ILike))


Comparison = Operator | TypingLiteral["<>"]

MIRRORED: dict[Comparison, Comparison] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
COMPARISONS: dict[type[exp.Expr], Comparison] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="
}  # fmt: skip

UNDERSTOOD = {"this", "expression", "expressions", "low", "high", "negate", "table", "db"}
"""The parts of a condition that are looked at here; one with any other is left to DuckDB."""


@dataclass(eq=False)
class Translator:
    """Translates conditions on one occurrence of a table; `column` says which of its columns a reference means."""

    schema: Schema
    column: Callable[[exp.Column], int | None]
    constants: Constants

    def exact(self, node: exp.Expr) -> Draft | None:
        """The same condition, or None."""
        return self._translate(node, False, False)

    def implied(self, node: exp.Expr) -> Draft | None:
        """A condition on this table alone that holds wherever the given one does, or None."""
        return self._translate(node, False, True)

    def _translate(self, node: exp.Expr, negated: bool, weaken: bool) -> Draft | None:  # noqa: PLR0911, PLR0912
        """Translate with NOT pushed into the leaves, as Kleene's logic allows; drop conjuncts if weakening is fine."""
        while isinstance(node, exp.Paren):
            node = node.this
        if any(value for key, value in node.args.items() if key not in UNDERSTOOD):
            return None
        match node:
            case exp.Not():
                return self._translate(node.this, not negated, weaken)
            case exp.And() | exp.Or():
                parts = [self._translate(part, negated, weaken) for part in node.flatten()]
                if isinstance(node, exp.And) is negated:
                    return any_of(parts)
                return all_of(part for part in parts if part) if weaken and any(parts) else _whole(parts)
            case exp.Boolean():
                return Constant(bool(node.this) is not negated)
            case exp.Null():
                return Constant(False)
            case exp.Column():
                return self._bare(node, negated)
            case exp.Is():
                return self._is(node, negated, weaken)
            case exp.Between():
                return self._between(node, negated)
            case exp.In():
                return self._in_list(node, negated)
            case exp.Like() | exp.ILike() | exp.Escape() | exp.StartsWith():
                return self._like(node, negated)
            case exp.NullSafeEQ() | exp.NullSafeNEQ():
                return self._distinct(node, isinstance(node, exp.NullSafeNEQ) is not negated)
        op = COMPARISONS.get(type(node))
        return None if op is None else self._comparison(node.this, op, node.expression, negated)

    def _place(self, node: exp.Expr | None) -> int | None:
        while isinstance(node, exp.Paren):
            node = node.this
        return self.column(node) if isinstance(node, exp.Column) else None

    def _type(self, place: int) -> ColumnType:
        return self.schema.columns[place].type

    def _bare(self, node: exp.Column, negated: bool) -> Draft | None:
        place = self.column(node)
        if place is None or not self._type(place).is_condition:
            return None
        return self._range(place, [("=", Literal(True))], negated)

    def _comparison(self, left: exp.Expr, op: Comparison, right: exp.Expr, negated: bool) -> Draft | None:
        here, there = self._place(left), self._place(right)
        if here is not None and there is not None:
            return self._two_columns(here, op, there, negated)
        if here is None:
            here, op, right = there, MIRRORED[op], left
        constant = self.constants.of(right)
        if here is None or constant is None:
            return None
        if op == "<>":
            op, negated = "=", not negated
        return self._range(here, [(op, constant)], negated)

    def _two_columns(self, left: int, op: Comparison, right: int, negated: bool) -> Draft | None:
        if not self._type(left).comparable_with(self._type(right)):
            return None
        match op:
            case "=" | "<" | "<=":
                return Compare(left, right, op, negated)
            case "<>":
                return Compare(left, right, "=", not negated)
        return Compare(right, left, "<" if op == ">" else "<=", negated)

    def _between(self, node: exp.Between, negated: bool) -> Draft | None:
        place = self._place(node.this)
        low, high = self.constants.of(node.args["low"]), self.constants.of(node.args["high"])
        if place is None or low is None or high is None:
            return self._between_columns(place, self._place(node.args["low"]), self._place(node.args["high"]), negated)
        return self._range(place, [(">=", low), ("<=", high)], negated, between=True)

    def _between_columns(self, place: int | None, low: int | None, high: int | None, negated: bool) -> Draft | None:
        if place is None or low is None or high is None:
            return None
        parts = [self._two_columns(place, ">=", low, negated), self._two_columns(place, "<=", high, negated)]
        return any_of(parts) if negated else _whole(parts)

    def _range(
        self, place: int, comparisons: list[tuple[Operator, Literal | Param]], negated: bool, between: bool = False
    ) -> Draft | None:
        if not all(self._may_compare(place, constant) for _, constant in comparisons):
            return None
        return self._checked(Leaf(place, Range(self._type(place), tuple(comparisons), negated, between), negated))

    def _in_list(self, node: exp.In, negated: bool) -> Draft | None:
        place = self._place(node.this)
        if place is None or not node.expressions:
            return None
        constants = [self.constants.of(item) for item in node.expressions]
        known = tuple(constant for constant in constants if constant is not None)
        if len(known) < len(constants) or not all(self._may_compare(place, constant) for constant in known):
            return None
        return self._checked(Leaf(place, Points(self._type(place), known, negated), negated))

    def _is(self, node: exp.Is, negated: bool, weaken: bool) -> Draft | None:
        place, what = self._place(node.this), node.expression
        negated = negated is not bool(node.args.get("negate"))
        if isinstance(what, exp.Null):
            return None if place is None else Leaf(place, Fixed(self._type(place), ()), negated, not negated)
        if not isinstance(what, exp.Boolean):
            return None
        if not negated:  # IS TRUE asks what a condition asks; IS FALSE, whether its negation is true
            return self._translate(node.this, not what.this, weaken)
        if place is None or not self._type(place).is_condition:
            return None
        leaf = self._range(place, [("=", Literal(bool(what.this)))], True)
        return replace(leaf, null_matches=True) if isinstance(leaf, Leaf) else None

    def _distinct(self, node: exp.Binary, distinct: bool) -> Draft | None:
        left, right = node.this, node.expression
        place = self._place(left)
        if place is None:
            place, right = self._place(right), left
        constant = self.constants.of(right)
        if place is None or not isinstance(constant, Literal) or not self._may_compare(place, constant):
            self.constants.open_expressions |= isinstance(constant, Param)
            return None
        if constant.value is None:
            return Leaf(place, Fixed(self._type(place), ()), distinct, not distinct)
        return self._checked(Leaf(place, Range(self._type(place), (("=", constant),), distinct), distinct, distinct))

    def _like(self, node: exp.Expr, negated: bool) -> Draft | None:
        escape = None
        if isinstance(node, exp.Escape):
            found = self.constants.of(node.expression)
            if not isinstance(found, Literal) or not isinstance(found.value, str):
                return None
            escape, node = found.value, node.this
            if not isinstance(node, exp.Like | exp.ILike):
                return None
        negated = negated is not bool(node.args.get("negate"))
        place, pattern = self._place(node.this), self.constants.of(node.expression)
        if place is None or not isinstance(pattern, Literal):
            self.constants.open_expressions |= isinstance(pattern, Param)
            return None
        if pattern.value is None:
            return Constant(False)
        type_ = self._type(place)
        intervals = _matching_intervals(type_, node, pattern.value, escape)
        return None if intervals is None else Leaf(place, Fixed(type_, intervals), negated)

    def _may_compare(self, place: int, constant: Literal | Param) -> bool:
        """Whether the constant's type is one that DuckDB would compare as it stands."""
        text = self._type(place).is_text
        return text or not (isinstance(constant, Literal) and constant.typed and isinstance(constant.value, str))

    def _checked(self, leaf: Leaf) -> Draft | None:
        """The leaf; False if a null makes it so; None if its constants are known and no exact intervals are."""
        entry = leaf.entry
        constants = entry.values if isinstance(entry, Points) else ()
        if isinstance(entry, Range):
            constants = tuple(constant for _, constant in entry.comparisons)
        if any(isinstance(constant, Param) for constant in constants):
            return leaf
        nulls = [isinstance(constant, Literal) and constant.value is None for constant in constants]
        # Never true: x = NULL, x BETWEEN 1 AND NULL, x NOT IN (1, NULL). Not so the opposites of the last two.
        if all(nulls) or (any(nulls) and isinstance(entry, Points) is leaf.negated):
            return Constant(False)
        try:
            entry.resolve(None)
        except Replan:
            return None
        return leaf


def _whole(parts: Iterable[Draft | None]) -> Draft | None:
    known = list(parts)
    return None if any(part is None for part in known) else all_of(part for part in known if part)


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of a conjunction, nested ones too."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        for part in node.flatten():
            yield from conjuncts(part)
    else:
        yield node


# --- trees of tests ----------------------------------------------------------------------------------


def any_of(parts: Iterable[Draft | None]) -> Draft | None:
    """True where any of them is; None if one of them could not be translated."""
    flat: list[Draft] = []
    for part in parts:
        if part is None:
            return None
        flat += part.parts if isinstance(part, Or) else [part]
    if Constant(True) in flat:
        return Constant(True)
    flat = list(dict.fromkeys(part for part in flat if part != Constant(False)))
    return flat[0] if len(flat) == 1 else Or(tuple(flat)) if flat else Constant(False)


def all_of(parts: Iterable[Draft]) -> Draft:
    """True where all of them are; ranges on the same column are made one."""
    flat: list[Draft] = []
    for part in parts:
        flat += part.parts if isinstance(part, And) else [part]
    if Constant(False) in flat:
        return Constant(False)
    kept: list[Draft] = []
    ranges: dict[int, int] = {}  # by column, where its range stands
    for part in dict.fromkeys(part for part in flat if part != Constant(True)):
        if isinstance(part, Leaf) and isinstance(part.entry, Range) and not part.negated and not part.entry.between:
            if part.column in ranges:
                before = kept[ranges[part.column]]
                assert isinstance(before, Leaf)  # noqa: S101 - the only tests in it
                assert isinstance(before.entry, Range)  # noqa: S101
                both = before.entry.comparisons + part.entry.comparisons
                kept[ranges[part.column]] = replace(before, entry=replace(before.entry, comparisons=both))
                continue
            ranges[part.column] = len(kept)
        kept.append(part)
    return kept[0] if len(kept) == 1 else And(tuple(kept)) if kept else Constant(True)


def matches_nulls(draft: Draft) -> bool:
    """Whether a row in which every column is null matches."""
    match draft:
        case Leaf(null_matches=null_matches):
            return null_matches
        case Constant(value):
            return value
        case And(parts):
            return all(map(matches_nulls, parts))
        case Or(parts):
            return any(map(matches_nulls, parts))
    return False


def on_column(draft: Draft, column: int) -> Draft:
    """The same question about another column; the draft reads one column alone."""
    match draft:
        case Leaf():
            return replace(draft, column=column)
        case And(parts):
            return And(tuple(on_column(part, column) for part in parts))
        case Or(parts):
            return Or(tuple(on_column(part, column) for part in parts))
    return draft


def lay_out(draft: Draft, offset: int = 0) -> tuple[Predicate, Bounds]:
    """The predicate that the enclave gets, its tests with offsets into the bounds, and these bounds.

    The bounds begin at `offset` of the words that travel.
    """
    entries: list[Entry] = []

    def placed(part: Draft) -> Predicate:
        nonlocal offset
        match part:
            case Leaf(column, entry, negated, null_matches):
                entries.append(entry := known(entry))
                test = In(column, offset, entry.count, negated, null_matches)
                offset += 2 * entry.count * entry.type.words
                return test
            case And(parts):
                return And(tuple(map(placed, parts)))
            case Or(parts):
                return Or(tuple(map(placed, parts)))
        return part

    return placed(draft), Bounds(tuple(entries))
