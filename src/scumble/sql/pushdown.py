"""Pushdown: a SELECT's conditions come in; for each of its tables, those that its rows must pass anyway go out.

DuckDB tests every condition again, so what is pushed has to be sound, not complete: no row that could take part in the
answer may be held back. Outer joins decide: a condition in WHERE reaches a table that a join may fill with nulls only
if nulls fail it; one in ON reaches only the sides that a join does not preserve.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from sqlglot import exp

from scumble.sql.constants import Constants
from scumble.sql.drafts import Draft, all_of, columns_of, matches_nulls, on_column
from scumble.sql.names import Occurrence, Scope
from scumble.sql.predicate import Translator
from scumble.wire.predicate import Constant

__all__ = ["Pushed", "conjuncts", "pushed_down"]


@dataclass(eq=False)
class Pushed:
    """What is pushed to one occurrence, and the conditions about it alone that DuckDB has to test by itself."""

    parts: list[Draft] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    residual: list[str] = field(default_factory=list)

    @property
    def draft(self) -> Draft:
        """All of it."""
        return all_of(self.parts)


@dataclass(frozen=True, eq=False)
class _Condition:
    """A conjunct, the occurrences it may be pushed to, and those of them where it has to fail on nulls."""

    node: exp.Expr
    reaches: frozenset[Occurrence]
    rejecting: frozenset[Occurrence]
    joins: bool  # whether what passes has passed it: then equalities carry over


def pushed_down(scope: Scope, constants: Constants) -> dict[Occurrence, Pushed]:
    """For every occurrence in a SELECT, what may be asked of its rows."""
    pushed = {occurrence: Pushed() for occurrence in scope.occurrences}
    translators = {
        occurrence: Translator(occurrence.table.schema, partial(scope.place, occurrence=occurrence), constants)
        for occurrence in scope.occurrences
    }
    equal: list[tuple[tuple[Occurrence, int], tuple[Occurrence, int]]] = []
    for condition in _conditions(scope):
        for occurrence in scope.occurrences:
            _push(condition, occurrence, translators[occurrence], pushed[occurrence], scope)
        equal += _equality(condition, scope)
    _carry_over(equal, pushed)
    return pushed


def _push(condition: _Condition, occurrence: Occurrence, translator: Translator, pushed: Pushed, scope: Scope) -> None:
    draft = translator.implied(condition.node) if occurrence in condition.reaches else None
    if draft is not None and occurrence in condition.rejecting and matches_nulls(draft):
        draft = None
    if draft is not None and draft != Constant(True):
        pushed.parts.append(draft)
    if _is_about(condition.node, occurrence, scope):
        exact = draft is not None and translator.exact(condition.node) is not None
        (pushed.conditions if exact else pushed.residual).append(condition.node.sql("duckdb"))


def _is_about(node: exp.Expr, occurrence: Occurrence, scope: Scope) -> bool:
    """Whether a condition reads this occurrence and nothing else."""
    columns = list(node.find_all(exp.Column))
    return bool(columns) and all(scope.place(column, occurrence) is not None for column in columns)


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of a conjunction, nested ones too."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        for part in node.flatten():
            yield from conjuncts(part)
    else:
        yield node


def _conditions(scope: Scope) -> Iterator[_Condition]:
    """All conjuncts of WHERE and ON, and how far each reaches."""
    select = scope.select
    by_node = {id(occurrence.node): occurrence for occurrence in scope.occurrences}
    from_, joins = select.args.get("from_"), select.args.get("joins") or []
    before = {by_node[id(from_.this)]} if from_ and id(from_.this) in by_node else set[Occurrence]()
    nullable: set[Occurrence] = set()
    blocked = {occurrence for occurrence in scope.occurrences if occurrence.node.args.get("joins")}
    for join in joins:
        right = {by_node[id(join.this)]} if id(join.this) in by_node else set[Occurrence]()
        kind, side, method = ((join.args.get(key) or "").upper() for key in ("kind", "side", "method"))
        on = join.args.get("on")
        reaches: set[Occurrence] = set()
        inner = False
        if method == "ASOF":
            blocked |= right  # which row is nearest changes with the rows that there are
        elif kind == "ANTI" or side == "LEFT":
            reaches = right
        elif side == "RIGHT":
            reaches = before - nullable
        elif side == "" and kind in ("", "INNER", "CROSS", "SEMI"):
            reaches, inner = before | right, kind != "SEMI"
        if on is not None:
            for node in conjuncts(on):
                yield _Condition(node, frozenset(reaches - blocked), frozenset(nullable - right), inner)
        if side in ("LEFT", "FULL") and kind not in ("SEMI", "ANTI"):
            nullable |= right
        if side in ("RIGHT", "FULL"):
            nullable |= before
        before |= right
    where = select.args.get("where")
    if where is not None:
        for node in conjuncts(where.this):
            yield _Condition(node, frozenset(before - blocked), frozenset(nullable), True)


def _equality(condition: _Condition, scope: Scope) -> list[tuple[tuple[Occurrence, int], tuple[Occurrence, int]]]:
    """The two columns of the same type that a condition makes equal in every row that passes."""
    node = condition.node
    if not condition.joins or not isinstance(node, exp.EQ):
        return []
    ends = [
        (occurrence, place)
        for side in (node.this, node.expression)
        if isinstance(side, exp.Column)
        for occurrence in condition.reaches - condition.rejecting
        if (place := scope.place(side, occurrence)) is not None
    ]
    if len(ends) != 2 or ends[0][0] is ends[1][0]:
        return []
    types = [occurrence.table.schema.columns[place].type for occurrence, place in ends]
    return [(ends[0], ends[1])] if types[0] == types[1] else []


def _carry_over(
    equal: list[tuple[tuple[Occurrence, int], tuple[Occurrence, int]]], pushed: dict[Occurrence, Pushed]
) -> None:
    """Ask of a column what is asked of those that it is equal to."""
    groups: list[set[tuple[Occurrence, int]]] = []
    for pair in equal:
        touched = [group for group in groups if group & set(pair)]
        groups = [group for group in groups if group not in touched] + [set(pair).union(*touched)]
    for group in groups:
        known = [
            (end, part)
            for end in group
            for part in pushed[end[0]].parts
            if columns_of(part) == {end[1]} and not matches_nulls(part)
        ]
        for other, place in group:
            for end, part in known:
                if end != (other, place) and (copy := on_column(part, place)) not in pushed[other].parts:
                    pushed[other].parts.append(copy)
