"""UPDATE and DELETE: which rows match becomes a predicate, what they become assignments, and both a plan to rewrite.

In come a parsed statement, its parameters and the catalog; out goes a `Change`, which says which pages of which runs
are read and sealed anew. That follows from the statement, the catalog and the indexes: no row has a say in it. In the
copies of the rows whose index narrows the condition down, these are the pages of a range; in all others, all pages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from scumble.errors import InvalidParameter, UnsupportedQuery
from scumble.sql.aggregate import arithmetic, rescaled
from scumble.sql.constants import Constants, Evaluate, Fixed, Literal, ParamValues
from scumble.sql.names import suggestion, table_named
from scumble.sql.parse import Parsed
from scumble.sql.plan import Path, RunScan, cover
from scumble.sql.predicate import Draft, Leaf, Translator, all_of, lay_out
from scumble.sql.spans import Span, bad, unsupported
from scumble.types import Column
from scumble.wire.catalog import Catalog, Table
from scumble.wire.plan import Assignment, Expression, Or, Plan, Predicate, Rewrite, columns_of
from scumble.wire.requests import Scan

__all__ = ["Assigned", "Change", "Step", "change_of", "keyed_change", "value_words"]

TypeName = Callable[[Column], str]
"""DuckDB's name for the type of a column."""


@dataclass(frozen=True, eq=False)
class Step:
    """One execution: a plan, and the pages that it reads and rewrites, of each run in one scan."""

    plan: Plan
    scans: tuple[RunScan, ...]

    @property
    def output(self) -> Rewrite:
        assert isinstance(self.plan.output, Rewrite)  # noqa: S101  it is made with one
        return self.plan.output

    def requests(self, table: Table) -> list[Scan]:
        """The scans as the enclave takes them."""
        numbers = {run.id: number for number, run in enumerate(table.runs)}
        return [Scan(numbers[scan.run.id], 0, scan.pages) for scan in self.scans]


@dataclass(frozen=True, eq=False)
class Change:
    """Rows to be changed, in one step or two.

    Columns without an index are rewritten where they are. If a column with an index is, the rows as they become are
    first copied to the tail, and then deleted where they were. `bounds` are the words of all steps.
    """

    kind: str
    table: Table
    steps: tuple[Step, ...]
    bounds: NDArray[np.int64]
    attributes: tuple[str, ...]
    """Those whose indexes narrow down what is read."""
    written: tuple[str, ...]
    condition: str | None = None

    def rows(self, answer: memoryview) -> list[int]:
        """How many rows have matched each predicate, by the first step's answer. SECRET, for whoever has asked."""
        first = self.steps[0]
        counts = np.frombuffer(answer, np.int64).reshape(len(first.scans), -1)
        once = {run.id for run in self.table.runs_by(self.table.attributes[0])} if self.table.runs else set()
        counted = [first.output.copies or scan.run.id in once for scan in first.scans]
        return [int(n) for n in counts[counted].sum(axis=0)]


# --- statements --------------------------------------------------------------------------------------


def change_of(parsed: Parsed, catalog: Catalog, params: ParamValues, evaluate: Evaluate, type_name: TypeName) -> Change:
    """Plan an UPDATE or a DELETE with its parameters."""
    tree = parsed.tree
    if not isinstance(tree, exp.Update | exp.Delete):  # an INSERT comes another way
        first = Span(parsed.tokens[0].start, parsed.tokens[0].end + 1)
        hint = "docs/sql.md lists those that are; flush, compact and vacuum are commands of their own"
        raise unsupported(parsed.text, "this statement is not supported", first, hint=hint)
    is_update = isinstance(tree, exp.Update)
    allowed = {"this", "where", "expressions"} if is_update else {"this", "where"}
    for key, value in tree.args.items():
        if value and key not in allowed:
            raise unsupported(
                parsed.text,
                f"{tree.key.upper()} with {key.strip('_').upper()} is not one that the enclave can do obliviously",
                value[0] if isinstance(value, list) else value,
                hint="UPDATE ... FROM (VALUES ...) by a key changes many rows at once; otherwise select the keys first",
            )
    table = table_named(parsed.text, tree.this, catalog)
    resolve = _resolver(parsed, tree.this, table)
    constants = Constants(parsed.keys, evaluate, params)
    where = tree.args.get("where")
    condition = where.this if where else exp.true()
    _refuse_unknown(resolve, tree)
    draft = Translator(table.schema, resolve, constants).exact(condition)
    if draft is None:
        raise unsupported(
            parsed.text,
            "this condition cannot be tested obliviously, row by row, in the enclave",
            condition,
            hint="compare columns with constants or with each other; select the keys first, and name them",
        )
    sets = _Setter(parsed, table, resolve, constants, type_name).assigned(tree.expressions) if is_update else []
    return _change(tree.key.upper(), table, [(draft, sets)], condition.sql("duckdb") if where else None)


def _resolver(parsed: Parsed, node: exp.Table, table: Table) -> "Callable[[exp.Column], int]":
    alias = node.alias_or_name.lower()

    def place(column: exp.Column) -> int:
        if column.name not in table.schema or column.table.lower() not in ("", alias):
            names = [known.name for known in table.schema]
            hint = suggestion(column.name, names, "columns")
            raise bad(parsed.text, f"there is no column {column.sql('duckdb')!r}", column, hint=hint)
        return table.schema.place(column.name)

    return place


def _refuse_unknown(resolve: Callable[[exp.Column], int], tree: exp.Expr) -> None:
    for column in tree.find_all(exp.Column):
        if column.find_ancestor(exp.Select) is None:
            resolve(column)


@dataclass(frozen=True)
class Assigned:
    """What a column becomes: words for the bounds, or an expression that the enclave works out."""

    place: int
    words: tuple[int, ...] = ()
    expression: Expression | None = None


@dataclass(frozen=True, eq=False)
class _Setter:
    """Reads the `column = value` of an UPDATE."""

    parsed: Parsed
    table: Table
    resolve: Callable[[exp.Column], int]
    constants: Constants
    type_name: TypeName

    def assigned(self, items: Sequence[exp.Expr]) -> list[Assigned]:
        found: dict[int, Assigned] = {}
        for item in items:
            if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Column):
                raise bad(self.parsed.text, "SET takes column = value", item)
            place = self.resolve(item.this)
            if place in found:
                raise bad(self.parsed.text, "a column is set twice", item.this)
            found[place] = self._value(place, item.expression)
        return list(found.values())

    def _value(self, place: int, value: exp.Expr) -> Assigned:
        column = self.table.schema.columns[place]
        while isinstance(value, exp.Paren):
            value = value.this
        constant = self.constants.of(value)
        if isinstance(constant, Literal):
            try:
                words = value_words(column, constant.value, self.constants.evaluate, self.type_name(column), value)
            except InvalidParameter:
                what = f"the column {column.name!r} of type {column.type.label} cannot hold this"
                raise bad(self.parsed.text, what, value, hint="give a value of its type") from None
            if not words[-1] and not column.nullable:
                raise bad(self.parsed.text, f"the column {column.name!r} is NOT NULL", value)
            return Assigned(place, words)
        if isinstance(value, exp.Column) and self.table.schema.columns[self.resolve(value)].type == column.type:
            return Assigned(place, expression=("column", self.resolve(value)))
        return Assigned(place, expression=self._arithmetic(column, value))

    def _arithmetic(self, column: Column, value: exp.Expr) -> Expression:
        argument, type_ = arithmetic(value, self.table.schema, self.resolve), column.type
        exact = type_.is_number and not type_.is_float and type_.words == 1
        found = rescaled(argument, type_.scale) if argument and exact and argument.scale <= type_.scale else None
        if found is None:
            raise unsupported(
                self.parsed.text,
                f"the enclave cannot work this out for the column {column.name!r} of type {type_.label}",
                value,
                hint="a constant, a column of the same type, and exact + - * of whole numbers and decimals are fine; "
                "for others, UPDATE ... FROM (VALUES ...) by a key",
            )
        return found


def value_words(
    column: Column, value: Any, evaluate: Evaluate | None, type_name: str, node: exp.Expr | None = None
) -> tuple[int, ...]:
    """The words of a value as DuckDB would cast it to a column's type, then 1; or zeros if it is null."""
    if value is None:
        return (0,) * (column.type.words + 1)
    try:
        return (*column.type.words_of(value), 1)
    except InvalidParameter as error:
        refusal = error
    if node is None or evaluate is None:
        raise refusal
    try:
        cast = evaluate(f"CAST({node.sql('duckdb')} AS {type_name})")
    except Exception:
        raise refusal from None
    return value_words(column, cast, None, type_name)


# --- many rows by their keys -------------------------------------------------------------------------


def keyed_change(
    kind: str, table: Table, keys: Sequence[int], assigned: Sequence[int], rows: Sequence[Sequence[tuple[int, ...]]]
) -> Change:
    """Plan a change of many rows: those with the keys of a row get its values. A null key is nobody's.

    Each row has the words of its keys and then of its values, as `value_words` makes them. Up to the next power of two,
    cases are added that nothing matches, so that the plan's length says little of how many rows there are.
    """
    columns = table.schema.columns
    cases: list[tuple[Draft, Sequence[Assigned]]] = []
    for row in rows:
        tests = [
            Leaf(place, _only(columns[place], words[:-1] if words[-1] else None))
            for place, words in zip(keys, row, strict=False)
        ]
        cases.append((all_of(tests), [Assigned(place, w) for place, w in zip(assigned, row[len(keys) :], strict=True)]))
    while len(cases) & (len(cases) - 1):
        nobody = [Leaf(place, _only(columns[place], None)) for place in keys]
        cases.append((all_of(nobody), cases[0][1]))
    return _change(kind, table, cases, None)


def _only(column: Column, value: tuple[int, ...] | None) -> Fixed:
    """What has one value, or nobody has: as long either way, or the length of what is sent would tell them apart."""
    return Fixed(column.type, (column.type.empty_interval if value is None else (value, value),), kept=True)


# --- the plan ----------------------------------------------------------------------------------------


def _change(
    kind: str, table: Table, cases: "Sequence[tuple[Draft, Sequence[Assigned]]]", condition: str | None
) -> Change:
    """The plan of one change, and the pages that it reads and rewrites in every copy of the rows."""
    words: list[int] = []
    predicates: list[Predicate] = []
    assignments: list[tuple[Assignment, ...]] = []
    for draft, sets in cases:
        predicate, bounds = lay_out(draft, len(words))
        predicates.append(predicate)
        words += bounds.words(None)
        assigned = []
        for each in sets:
            assigned.append(Assignment(each.place, len(words), each.expression))
            words += each.words
        assignments.append(tuple(assigned))
    whole: Predicate = Or(tuple(predicates)) if len(predicates) > 1 else predicates[0]
    rewrite, where = Rewrite(tuple(assignments)), _Where(table, whole, words)
    plans = [Plan(table.id, tuple(predicates), rewrite)]
    indexed = {table.schema.place(attribute) for attribute in table.attributes if attribute is not None}
    if indexed.intersection(rewrite.written):
        nothing = tuple(() for _ in predicates)
        plans = [
            Plan(table.id, tuple(predicates), output) for output in (replace(rewrite, copies=True), Rewrite(nothing))
        ]
    steps = tuple(Step(plan, where.scans(plan)) for plan in plans)
    names = () if rewrite.deletes else tuple(table.schema.columns[place].name for place in rewrite.written)
    return Change(kind, table, steps, np.array(words, dtype=np.int64), where.attributes, names, condition)


class _Where:
    """Where rows that match may lie, in every copy of them."""

    def __init__(self, table: Table, predicate: Predicate, words: list[int]) -> None:
        self._table, self._tested = table, set(columns_of(predicate))
        self._paths = [Path(table, *copy) for copy in table.copies]
        self._keys = [
            None if path.attribute is None else cover(predicate, path.place, path.type, words) for path in self._paths
        ]
        self._keys = [
            None if keys is None or keys.is_everything(path.type) else keys
            for path, keys in zip(self._paths, self._keys, strict=True)
        ]

    @property
    def attributes(self) -> tuple[str, ...]:
        """Those whose indexes narrow it down."""
        found = zip(self._paths, self._keys, strict=True)
        return tuple(path.attribute for path, keys in found if keys is not None and path.attribute is not None)

    def scans(self, plan: Plan) -> tuple[RunScan, ...]:
        """What is read and rewritten: of every run, or to copy rows, of those of one copy, where this is least."""
        output = plan.output
        assert isinstance(output, Rewrite)  # noqa: S101  it is made with one
        read = self._tested.union(output.reads(self._table.schema))
        found: list[list[RunScan]] = []
        for path, keys in zip(self._paths, self._keys, strict=True):
            written = set(output.written)
            if not output.copies and not output.deletes and not written.difference(path.lacks(written)):
                continue  # there is nothing to rewrite in this copy
            missing = path.lacks(read)
            if output.copies and missing:
                continue  # another copy has all columns
            if missing:
                names = ", ".join(self._table.schema.columns[place].name for place in missing)
                raise UnsupportedQuery(
                    f"the copy of {self._table.name!r} by {path.attribute} does not hold {names}: there is no telling "
                    "which of its rows match",
                    hint="let its index hold all columns that changes ask for, or drop the index",
                )
            found.append(path.scans(keys))
        if output.copies:
            found = [min(found, key=lambda scans: sum(scan.page_count * scan.run.page_rows for scan in scans))]
        return tuple({scan.run.id: scan for scans in found for scan in scans}.values())
