"""Row queries: for any statement, the rows to fetch of each table, and the SQL that DuckDB runs over them.

The SQL is the asker's own text with the tables' names replaced, so that nothing is lost in translation. DuckDB tests
every condition again: what is pushed down to a table has to be sound, not complete. No row that could take part in the
answer may be held back. Outer joins decide: a condition in WHERE reaches a table that a join may fill with nulls only
if nulls fail it; one in ON reaches only the sides that a join does not preserve.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from sqlglot import exp

from scumble.sql.constants import Constants
from scumble.sql.names import Occurrence, Scope, only_table, renaming, unqualified
from scumble.sql.parse import Parsed
from scumble.sql.plan import Paths
from scumble.sql.predicate import Draft, Translator, all_of, conjuncts, lay_out, matches_nulls, on_column
from scumble.sql.spans import edited
from scumble.wire.catalog import Table
from scumble.wire.plan import Constant, RowColumns, columns_of

__all__ = ["Fetch", "RowQuery", "row_query"]


@dataclass(frozen=True, eq=False)
class Fetch:
    """Rows of one table to be fetched: `name` is what the final SQL calls them."""

    name: str
    table: Table
    columns: tuple[int, ...]
    paths: Paths
    conditions: tuple[str, ...]
    """Conditions that the enclave tests, exactly."""
    residual: tuple[str, ...]
    """Conditions on this table alone that only DuckDB tests."""


@dataclass(frozen=True, eq=False)
class RowQuery:
    """Anything else: fetch rows, then run `final_sql` over them in DuckDB. Without fetches, it is DuckDB's alone.

    If `direct` is there, the answer is these of the one fetch's columns, under the names and types that DESCRIBE of the
    statement gives, and DuckDB is not needed.
    """

    fetches: tuple[Fetch, ...]
    final_sql: str
    final_parameters: tuple[str, ...]
    direct: tuple[int, ...] | None

    @property
    def paths(self) -> tuple[Paths, ...]:
        return tuple([fetch.paths for fetch in self.fetches])


def row_query(parsed: Parsed, scopes: list[Scope], constants: Constants) -> RowQuery:
    """Fetch what each occurrence of a table needs; equal needs are fetched once."""
    fetches: dict[object, Fetch] = {}
    edits = [*parsed.parameter_edits, *unqualified(parsed)]
    for scope in scopes:
        pushed = _pushed_down(scope, constants)
        for occurrence in scope.occurrences:
            columns, conditions = scope.needed(occurrence), pushed[occurrence]
            key = (occurrence.table.id, columns, conditions.draft)
            if key not in fetches:
                fetches[key] = _fetch(f"__t{len(fetches)}", occurrence, columns, conditions)
            edits.append(renaming(parsed, occurrence, fetches[key].name))
    names = tuple(dict.fromkeys(parameter.name for parameter in parsed.parameters))
    direct = _direct(parsed, scopes, constants)
    return RowQuery(tuple(fetches.values()), edited(parsed.text, edits), names, direct)


def _direct(parsed: Parsed, scopes: list[Scope], constants: Constants) -> tuple[int, ...] | None:
    """Which of the needed columns a SELECT returns, if it only picks columns of one table by exact conditions."""
    found = only_table(parsed, scopes)
    if found is None:
        return None
    select, scope, occurrence = found
    if any(value for key, value in select.args.items() if key not in ("kind", "expressions", "from_", "where")):
        return None
    where = select.args.get("where")
    translator = Translator(occurrence.table.schema, lambda node: scope.place(node, occurrence), constants)
    if where is not None and translator.exact(where.this) is None:
        return None
    needed = scope.needed(occurrence)
    places: list[int | None] = []
    for item in select.expressions:
        match item.unalias():
            case exp.Star() as star if not any(star.args.values()) and not item.alias:
                places += needed
            case exp.Column() as column:
                places.append(scope.place(column, occurrence))
            case _:
                return None
    return None if None in places else tuple(needed.index(place) for place in places if place is not None)


def _fetch(name: str, occurrence: Occurrence, columns: tuple[int, ...], pushed: "_Pushed") -> Fetch:
    paths = Paths(occurrence.table, *lay_out(pushed.draft), RowColumns(columns))
    return Fetch(name, occurrence.table, columns, paths, tuple(pushed.conditions), tuple(pushed.residual))


# --- conditions pushed down to the tables -----------------------------------------------------------


@dataclass(eq=False)
class _Pushed:
    """What is pushed to one occurrence, and the conditions about it alone that are left to DuckDB."""

    parts: list[Draft] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    residual: list[str] = field(default_factory=list)

    @property
    def draft(self) -> Draft:
        return all_of(self.parts)


@dataclass(frozen=True, eq=False)
class _Condition:
    """A conjunct, the occurrences it may be pushed to, and those of them where it has to fail on nulls."""

    node: exp.Expr
    reaches: frozenset[Occurrence]
    rejecting: frozenset[Occurrence]
    joins: bool  # whether what passes has passed it: then equalities carry over


def _pushed_down(scope: Scope, constants: Constants) -> dict[Occurrence, _Pushed]:
    """For every occurrence in a SELECT, what may be asked of its rows."""
    pushed = {occurrence: _Pushed() for occurrence in scope.occurrences}
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


def _push(condition: _Condition, occurrence: Occurrence, translator: Translator, pushed: _Pushed, scope: Scope) -> None:
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
    equal: list[tuple[tuple[Occurrence, int], tuple[Occurrence, int]]], pushed: dict[Occurrence, _Pushed]
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
            if set(columns_of(part)) == {end[1]} and not matches_nulls(part)
        ]
        for other, place in group:
            for end, part in known:
                if end != (other, place) and (copy := on_column(part, place)) not in pushed[other].parts:
                    pushed[other].parts.append(copy)
