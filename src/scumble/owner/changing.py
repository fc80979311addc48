"""Statements that change rows: they are read, planned and carried out, alone or several as one version.

`Changes` belongs to a database, which is held for writing meanwhile. What a statement changes is seen by this client at
once, and by others when the transaction has ended; one that fails leaves everything as it was. How many rows matched is
SECRET: it is told to whoever asked.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from scumble.errors import BadRows, InvalidParameter, UnsupportedQuery
from scumble.owner.encoding import encode_rows
from scumble.owner.inserting import arranged_rows, insert, units
from scumble.owner.parameter_rows import has_one_row, parameter_rows
from scumble.sql import AggregateQuery, Statement
from scumble.sql.changes import Change, change_of, keyed_change
from scumble.sql.explain import explain
from scumble.sql.explain_changes import ChangeExplanation, explain_change
from scumble.sql.names import suggestion, table_named
from scumble.sql.parse import Parsed
from scumble.sql.spans import bad, unsupported
from scumble.types import Column, Domain, Schema, convert, encode
from scumble.wire.catalog import Streamed, Table
from scumble.wire.requests import RowLayout

if TYPE_CHECKING:
    from scumble.owner.answers import Result
    from scumble.owner.log_changes import LogChanges
    from scumble.owner.queries import LocalSQL, Parameters
    from scumble.owner.versions import Versions

__all__ = ["ChangeReport", "Changes"]

KEYED_ROWS = 512
"""So many rows are changed by their keys in one pass; more take several."""


@dataclass(frozen=True)
class ChangeReport:
    """SECRET: what a statement has done: which kind it was, to which table, and how many rows it has changed."""

    statement: str
    table: str
    rows: int


@dataclass(frozen=True, eq=False)
class Asking:
    """How a database answers the query inside of a statement."""

    prepare: "Callable[[str], Statement]"
    run: "Callable[[str, Parameters], Result]"


class Changes:
    """Carries out the statements of one database that change rows."""

    def __init__(self, versions: "Versions", local: "LocalSQL", asking: Asking, logs: "LogChanges") -> None:
        self._versions, self._local, self.asking, self.logs = versions, local, asking, logs

    def run(self, parsed: Parsed, params: "Parameters", capacity: int | None = None) -> ChangeReport:
        """Carry out an INSERT, UPDATE or DELETE, as a change that is not settled yet."""
        tree = parsed.tree
        if isinstance(tree, exp.Insert):
            return self._insert(parsed, tree, params, capacity)
        if isinstance(tree, exp.Update) and tree.args.get("from_"):
            return self._update_from(parsed, tree, params)
        change = self.planned(parsed, params)
        if self.logs.settle_pending(change.table):
            change = self.planned(parsed, params)
        return ChangeReport(change.kind, change.table.name, sum(self.carry_out(change)))

    def run_many(self, parsed: Parsed, sets: "Sequence[Parameters]") -> ChangeReport:
        """Carry out one statement with many sets of parameters; an INSERT of a row, once with all rows."""
        tree = parsed.tree
        if not isinstance(tree, exp.Insert) or not has_one_row(tree) or not sets:
            reports = [self.run(parsed, params) for params in sets]
            return ChangeReport(
                tree.key.upper(), reports[0].table if reports else "", sum(each.rows for each in reports)
            )
        inserting = self._inserting(parsed, tree, sets[0], None)
        return self._added(
            parsed, inserting, self._arranged(parsed, inserting, parameter_rows(self._local, parsed, sets))
        )

    def explained(self, parsed: Parsed, params: "Parameters", capacity: int | None = None) -> ChangeExplanation:
        """Say what a statement would do: rows that it has itself are worked out, and the enclave is asked nothing."""
        tree, catalog = parsed.tree, self._versions.catalog
        if isinstance(tree, exp.Insert):
            return self._explained_insert(parsed, self._inserting(parsed, tree, params, capacity), params)
        if isinstance(tree, exp.Update) and tree.args.get("from_"):
            table, keys, assigned, rows = self._joined(parsed, tree, params)
            passes = [change for change, _ in self._keyed("UPDATE", table, keys, assigned, rows)]
            return explain_change("UPDATE", table, passes, keyed=True)
        if not isinstance(tree, exp.Update | exp.Delete):
            raise unsupported(parsed.text, "EXPLAIN is for queries, INSERT, UPDATE and DELETE", None)
        change = self.planned(parsed, params)
        return explain_change(change.kind, catalog.by_id[change.table.id], [change])

    def _explained_insert(self, parsed: Parsed, inserting: "_Inserting", params: "Parameters") -> ChangeExplanation:
        table, capacity, paths = inserting.table, inserting.capacity, inserting.statement.query.paths
        query = explain(inserting.statement.bind(params)) if paths else None
        rows = None if paths else self._rows(parsed, inserting, params)
        if capacity is None:
            capacity = 0 if rows is None else rows.num_rows
        passes: list[Change] = []
        if inserting.conflict is not None and rows is not None:
            keys, assigned = self._resolved(parsed, inserting)
            passes = [change for change, _ in self._keyed("INSERT", table, keys, assigned, rows)] if assigned else []
        return explain_change("INSERT", table, passes, room=units(capacity), query=query, keyed=True)

    def planned(self, parsed: Parsed, params: "Parameters") -> Change:
        """An UPDATE or a DELETE as the enclave will get it."""
        return change_of(parsed, self._versions.catalog, params, self._local.evaluate, self._type_name)

    def carry_out(self, change: Change) -> list[int]:
        """Have rows rewritten, in the table and in the log of its stream; how many matched each predicate."""
        waiting, left = self.logs.rewritten(change)  # what does not fit there is refused before anything is asked
        session, rows = self._versions.session, [0] * len(change.steps[0].plan.predicates)
        for step in change.steps:
            if not step.scans:
                continue  # the table is empty, or its indexes say that nothing can match
            answer = session.execute(session.prepare(step.plan), step.requests(change.table), change.bounds)
            if step is change.steps[0]:
                rows = change.rows(answer)
            self._versions.work()
        self.logs.put(change.table, left)
        return [sum(counts) for counts in zip(rows, waiting, strict=True)]

    def insert(
        self,
        table: str,
        source: object,
        capacity: int | None = None,
        batch: str | None = None,
        streamed: Streamed | None = None,
    ) -> int:
        """Have rows inserted; how many."""
        there = self._versions.catalog.table(table)
        return insert(self._versions, there, arranged_rows(there, source), capacity, batch, streamed)

    def update(self, table: str, source: object, keys: Sequence[str]) -> int:
        """Change many rows by their keys: the source's other columns are what they become; how many matched."""
        there = self._versions.catalog.table(table)
        rows = arranged_rows(there, source, partly=True)
        whole = pa.Table.from_batches(list(rows), rows.schema)
        names = [name.lower() for name in keys]
        missing = [name for name in names if name not in [column.lower() for column in whole.column_names]]
        if missing or not names or len(names) == len(whole.column_names):
            raise InvalidParameter("the rows need the key's columns, and others to change", hint="keys=['id']")
        assigned = [name for name in whole.column_names if name.lower() not in names]
        return sum(self._by_keys("UPDATE", there, names, assigned, whole))

    # --- INSERT ------------------------------------------------------------------------------------

    def _insert(self, parsed: Parsed, tree: exp.Insert, params: "Parameters", capacity: int | None) -> ChangeReport:
        inserting = self._inserting(parsed, tree, params, capacity)
        return self._added(parsed, inserting, self._rows(parsed, inserting, params))

    def _added(self, parsed: Parsed, inserting: "_Inserting", rows: pa.Table) -> ChangeReport:
        if inserting.conflict is not None:
            return self._upsert(parsed, inserting, rows)
        added = insert(self._versions, inserting.table, [*rows.to_batches()], inserting.capacity)
        return ChangeReport("INSERT", inserting.table.name, added)

    def _inserting(self, parsed: Parsed, tree: exp.Insert, params: "Parameters", capacity: int | None) -> "_Inserting":
        """Read an INSERT: nothing is asked yet."""
        named = tree.this
        node, columns = (named.this, named.expressions) if isinstance(named, exp.Schema) else (named, [])
        for key, value in tree.args.items():
            if value and key not in ("this", "expression", "conflict", "by_name"):
                raise unsupported(parsed.text, f"INSERT with {key.upper()} is not supported", node)
        table = table_named(parsed.text, node, self._versions.catalog)
        names = self._named(parsed, table, columns)
        query, conflict = parsed.text_of(tree.expression), tree.args.get("conflict")
        statement = self.asking.prepare(query)
        if conflict is not None and statement.query.paths:
            raise _shows_how_many(parsed, tree.expression)
        if capacity is None:
            capacity = self.most_rows(statement, params)
        by_name = bool(tree.args.get("by_name"))
        return _Inserting(table, names, query, statement, tree.expression, conflict, capacity, by_name)

    def _rows(self, parsed: Parsed, inserting: "_Inserting", params: "Parameters") -> pa.Table:
        """The rows to insert, with all columns of the table."""
        return self._arranged(parsed, inserting, self.asking.run(inserting.query, params).arrow())

    def _arranged(self, parsed: Parsed, inserting: "_Inserting", found: pa.Table) -> pa.Table:
        names, table = inserting.names, inserting.table
        if inserting.by_name:
            names = self._named(parsed, table, [exp.to_identifier(name) for name in found.column_names])
        if len(names) != found.num_columns:
            raise bad(parsed.text, f"{found.num_columns} values for {len(names)} columns", inserting.node)
        return self.cast(table, found.rename_columns(names))

    def _named(self, parsed: Parsed, table: Table, columns: Sequence[exp.Expr]) -> list[str]:
        """The names of the columns that values are given for, as the table has them."""
        known = [column.name for column in table.schema]
        for column in columns:
            if column.name not in table.schema:
                hint = suggestion(column.name, known, "columns")
                raise bad(parsed.text, f"there is no column {column.name!r}", column, hint=hint)
        names = [table.schema[column.name].name for column in columns] or known
        if len(set(names)) < len(names):
            raise bad(parsed.text, "a column is named twice", columns[0])
        return names

    def most_rows(self, statement: Statement, params: "Parameters") -> int | None:
        """A public bound on the rows that a query gives; None if it reads no table: then the statement has them all."""
        return _most_rows(statement, params, self.logs)

    def check_tail(self, table: Table, domain: Domain, column: str) -> None:
        """Refuse a domain that does not hold all keys of the rows that were inserted: BadRows."""
        if table.runs:
            name, layout = _quoted(table.name), RowLayout(table.schema, (domain.size,))
            rows = self.asking.run(f"SELECT * FROM {name}", ()).arrow()  # noqa: S608  a name
            for piece in rows.to_batches():
                encode_rows(piece, layout, [(table.schema.place(column), domain)])

    def cast(self, table: Table, rows: pa.Table) -> pa.Table:
        """Rows with all columns of a table, of the types that DuckDB has for them; what is not there is null."""
        described = self._local.describe(f"FROM {_quoted(table.name)}", [table], {})
        items = []
        for column, kind in zip(table.schema, described.types, strict=True):
            value = _quoted(column.name) if column.name in rows.column_names else "NULL"
            items.append(f"CAST({value} AS {kind}) AS {_quoted(column.name)}")
        return self._local.run(f"SELECT {', '.join(items)} FROM __rows", {"__rows": rows}, {})  # noqa: S608  names

    def _upsert(self, parsed: Parsed, inserting: "_Inserting", rows: pa.Table) -> ChangeReport:
        table, capacity = inserting.table, inserting.capacity
        keys, assigned = self._resolved(parsed, inserting)
        matched = self._by_keys("INSERT", table, keys, assigned, rows)
        fresh = rows.filter([count == 0 for count in matched])
        room = rows.num_rows if capacity is None else capacity
        insert(self._versions, self._versions.catalog.by_id[table.id], [*fresh.to_batches()], room)
        changed = sum(matched) if assigned else 0
        return ChangeReport("INSERT", table.name, fresh.num_rows + changed)

    def _resolved(self, parsed: Parsed, inserting: "_Inserting") -> tuple[list[str], list[str]]:
        """The columns of the key in an ON CONFLICT, and those that get the values of the row."""
        conflict, table = inserting.conflict, inserting.table
        assert conflict is not None  # noqa: S101  whoever calls has seen it
        keys = self._named(parsed, table, list(conflict.args.get("conflict_keys") or ()))
        if not conflict.args.get("conflict_keys"):
            raise bad(parsed.text, "ON CONFLICT names the columns of the key", conflict, hint="ON CONFLICT (id) DO ...")
        assigned: list[str] = []
        for item in conflict.args.get("expressions") or ():
            value = item.expression
            excluded = isinstance(value, exp.Column) and value.table.lower() == "excluded"
            if not excluded or value.name.lower() != item.this.name.lower():
                raise unsupported(parsed.text, "DO UPDATE takes column = excluded.column", item)
            assigned += self._named(parsed, table, [item.this])
        if conflict.args.get("where") or set(assigned) & set(keys):
            raise unsupported(parsed.text, "DO UPDATE changes columns beside the key, without WHERE", conflict)
        return keys, assigned

    # --- many rows by their keys -------------------------------------------------------------------

    def _update_from(self, parsed: Parsed, tree: exp.Update, params: "Parameters") -> ChangeReport:
        table, keys, assigned, rows = self._joined(parsed, tree, params)
        return ChangeReport("UPDATE", table.name, sum(self._by_keys("UPDATE", table, keys, assigned, rows)))

    def _joined(
        self, parsed: Parsed, tree: exp.Update, params: "Parameters"
    ) -> tuple[Table, list[str], list[str], pa.Table]:
        """Read an UPDATE ... FROM: the columns of the key, those that are set, and the rows that have both."""
        table, source = table_named(parsed.text, tree.this, self._versions.catalog), tree.args["from_"]
        other = source.this.alias_or_name.lower()
        keys: dict[str, str] = {}
        for node in _conjuncts(parsed, tree):
            sides = {side.table.lower() or other: side.name for side in (node.this, node.expression)}
            if sides.keys() != {tree.this.alias_or_name.lower(), other}:
                raise unsupported(parsed.text, "UPDATE ... FROM needs an equality with a column of each side", node)
            keys[sides[tree.this.alias_or_name.lower()]] = sides[other]
        sets: dict[str, exp.Expr] = {item.this.name: item.expression for item in tree.expressions}
        columns = self._named(parsed, table, [exp.to_identifier(name) for name in (*keys, *sets)])
        chosen = [exp.column(name, table=other).sql("duckdb") for name in keys.values()]
        chosen += [value.sql("duckdb") for value in sets.values()]
        query = f"SELECT {', '.join(chosen)} {parsed.text_of(source)}"
        if self.asking.prepare(query).query.paths:
            raise _shows_how_many(parsed, source)
        found = self.asking.run(query, params).arrow().rename_columns(columns)
        return table, columns[: len(keys)], columns[len(keys) :], self.cast(table, found)

    def _by_keys(
        self, kind: str, table: Table, keys: Sequence[str], assigned: Sequence[str], rows: pa.Table
    ) -> list[int]:
        """Give the rows with some keys other values; how many each key has found."""
        if not assigned:
            return self._matching(table, keys, rows)
        self.logs.settle_pending(table)
        counts: list[int] = []
        for change, count in self._keyed(kind, table, keys, assigned, rows):
            counts += self.carry_out(change)[:count]
        return counts

    def _keyed(
        self, kind: str, table: Table, keys: Sequence[str], assigned: Sequence[str], rows: pa.Table
    ) -> Iterator[tuple[Change, int]]:
        """The passes over a table that give rows with some keys other values, each with how many keys it is for.

        Each is planned when the one before it has been carried out.
        """
        places = [table.schema.place(name) for name in (*keys, *assigned)]
        words = list(zip(*(_words(table.schema.columns[place], rows) for place in places), strict=True))
        found = {row[: len(keys)] for row in words}
        if len(found) < len(words):
            raise BadRows("a key comes twice among the rows", hint="which of them should hold, nobody could say")
        for at in range(0, len(words), KEYED_ROWS):
            some, there = words[at : at + KEYED_ROWS], self._versions.catalog.by_id[table.id]
            yield keyed_change(kind, there, places[: len(keys)], places[len(keys) :], some), len(some)

    def _matching(self, table: Table, keys: Sequence[str], rows: pa.Table) -> list[int]:
        """How many rows there are with each key: a query like any, for a power of two of keys; a null is nobody's."""
        if len(keys) != 1:
            raise UnsupportedQuery("ON CONFLICT DO NOTHING takes a key of one column", hint="DO UPDATE takes more")
        values = rows.column(keys[0]).to_pylist()
        asked = values + [None] * ((1 << (max(1, len(values)) - 1).bit_length()) - len(values))
        name, key, marks = _quoted(table.name), _quoted(keys[0]), ", ".join("?" for _ in asked)
        there = self.asking.run(f"SELECT {key} FROM {name} WHERE {key} IN ({marks})", asked)  # noqa: S608  names
        known = {value for (value,) in there.fetchall()}
        return [int(value is not None and value in known) for value in values]

    def _type_name(self, column: Column) -> str:
        """What DuckDB calls a column's type."""
        return self._local.describe('SELECT * FROM "t"', [Table("", "t", Schema((column,)), ())], {}).types[0]


@dataclass(frozen=True, eq=False)
class _Inserting:
    """An INSERT that was read: the query for its rows, which columns they are for, and the public room for them."""

    table: Table
    names: list[str]
    query: str
    statement: Statement
    node: exp.Expr
    conflict: exp.Expr | None
    capacity: int | None
    by_name: bool


def _shows_how_many(parsed: Parsed, node: exp.Expr) -> UnsupportedQuery:
    return unsupported(
        parsed.text,
        "how many rows a table gives would show in what the enclave is asked",
        node,
        hint="select them first, and pass them on as VALUES or as a frame",
    )


def _most_rows(statement: Statement, params: "Parameters", logs: "LogChanges") -> int | None:
    """A public bound on the rows that a query gives; None if it reads no table, so that the statement has them all.

    For a table with a log, on which more rows wait, the pages that are read are none.
    """
    query, tree = statement.query, statement.parsed.tree
    if not query.paths:
        return None
    limit = tree.args.get("limit")
    if limit is not None and isinstance(limit.expression, exp.Literal) and str(limit.expression.this).isdigit():
        return int(str(limit.expression.this))
    bound = statement.bind(params)
    if isinstance(query, AggregateQuery):
        return prod(query.aggregates.group_sizes(query.table.schema))
    if query.direct is not None and not logs.has_log(query.fetches[0].table):
        return bound.accesses[0].rows
    raise unsupported(
        statement.parsed.text,
        "how many rows this gives would show in the room that they take",
        None,
        hint="end it with LIMIT, or give a capacity: both are public",
    )


def _conjuncts(parsed: Parsed, tree: exp.Update) -> list[exp.EQ]:
    where = tree.args.get("where")
    parts = [] if where is None else list(where.this.flatten() if isinstance(where.this, exp.And) else [where.this])
    for part in parts:
        if not isinstance(part, exp.EQ) or not all(isinstance(s, exp.Column) for s in (part.this, part.expression)):
            raise unsupported(parsed.text, "UPDATE ... FROM finds rows by equal columns alone", part)
    if not parts:
        raise bad(parsed.text, "UPDATE ... FROM needs a WHERE that finds its rows", tree.this)
    return parts


def _words(column: Column, rows: pa.Table) -> list[tuple[int, ...]]:
    """A column's words in each row, and 1, or zeros where it is null."""
    array = convert(column, rows.column(column.name).combine_chunks(), 1)
    words, valid = encode(column, array, 1)
    each = words.reshape(len(rows), -1).tolist()
    given: list[Any] = [1] * len(rows) if valid is None else valid.tolist()
    return [(*row, int(there)) for row, there in zip(each, given, strict=True)]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
