"""Statements that define things, carried out: tables, columns, declared indexes and views of the version that is open.

What they say is PUBLIC, but for views and for the rows of a CREATE TABLE AS. Each is a change like those of rows: seen
by this client at once, by others when its transaction has ended. Only the owner may. None of it costs epsilon.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from scumble.errors import BadQuery, Exists, InvalidParameter, NotFound, UnsupportedQuery
from scumble.owner.changing import ChangeReport, Changes
from scumble.owner.indexes import IndexSpec
from scumble.owner.inserting import insert
from scumble.owner.reindexing import checked_term, new_spec, with_term
from scumble.sql import Statement, definitions
from scumble.sql.changes import value_words
from scumble.sql.definitions import Definition, NewColumn
from scumble.sql.names import scopes_of
from scumble.sql.views import view_text
from scumble.types import Column, ColumnType, Schema, parse_type, schema_of
from scumble.wire import requests
from scumble.wire.catalog import Table, column_of_term

if TYPE_CHECKING:
    from scumble.owner.queries import LocalSQL, Parameters
    from scumble.owner.versions import Versions

__all__ = ["Defining"]


class Defining:
    """Carries out definitions for one database, whose transaction is under way."""

    def __init__(self, versions: "Versions", local: "LocalSQL", changes: Changes) -> None:
        self._versions, self._local, self._changes = versions, local, changes

    def run(self, definition: Definition, params: "Parameters", capacity: int | None) -> ChangeReport:
        """Carry out one statement, as a change that is not settled yet."""
        if isinstance(definition, definitions.NewTable) and definition.query is not None:
            return self._create_as(definition, definition.query, params, capacity)
        if params or capacity is not None:
            raise BadQuery("the parameters do not fit the statement", hint="it takes none")
        match definition:
            case definitions.NewTable():
                return self._create(definition)
            case definitions.NewIndex():
                return self._declare(definition)
            case definitions.DroppedIndex():
                return self._drop_index(definition)
            case definitions.NewView():
                return self._create_view(definition)
        return self._drop_or_alter(definition)

    def _drop_or_alter(self, definition: Definition) -> ChangeReport:
        match definition:
            case definitions.DroppedView(name, if_exists):
                if not (if_exists and name.lower() not in self._versions.views):
                    self._versions.work(requests.SetView(name, ""))
                return ChangeReport("DROP VIEW", name, 0)
            case definitions.DroppedTable(name, if_exists):
                if not (if_exists and name not in self._versions.catalog):
                    self._versions.work(requests.DropTable(self._known(name).name, within=True))
                return ChangeReport("DROP TABLE", name, 0)
            case definitions.TruncatedTable(name):
                table = self._known(name)
                left = self._changes.logs.erased(table)
                self._versions.work(requests.Truncate(table.name))
                self._changes.logs.put(table, left)
                return ChangeReport("TRUNCATE", name, 0)
        return self._alter(definition)

    def _known(self, name: str) -> Table:
        if name.lower() in self._versions.views:
            raise NotFound(f"{name!r} is a view, and no table", hint="DROP VIEW drops it")
        return self._versions.catalog.table(name)

    # --- tables ------------------------------------------------------------------------------------

    def _create(self, definition: definitions.NewTable) -> ChangeReport:
        report = ChangeReport("CREATE TABLE", definition.table, 0)
        if definition.if_not_exists and definition.table in self._versions.catalog:
            return report
        schema = Schema(tuple(map(_declared, definition.columns)))
        comments = tuple((column.name, column.comment) for column in definition.columns if column.comment)
        self._make(definition, schema, comments)
        return report

    def _make(
        self, definition: definitions.NewTable, schema: Schema, comments: tuple[tuple[str, str], ...] = ()
    ) -> Table:
        name, table_id = definition.table, secrets.token_hex(16)
        table = Table(table_id, name, schema, ())
        for text in definition.terms:
            term = checked_term(table, IndexSpec.parse(text))
            if column_of_term(term) in map(column_of_term, table.terms):
                raise InvalidParameter("a column is indexed twice", hint="one index for each column is enough")
            table = replace(table, terms=with_term(table, term))
        self._versions.work(requests.CreateTable(name, table_id, schema, table.terms, comments))
        return self._versions.catalog.table(name)

    def _create_as(
        self, definition: definitions.NewTable, query: str, params: "Parameters", capacity: int | None
    ) -> ChangeReport:
        if definition.if_not_exists and definition.table in self._versions.catalog:
            return ChangeReport("CREATE TABLE", definition.table, 0)
        statement = self._changes.asking.prepare(query)
        room = self._changes.most_rows(statement, params) if capacity is None else capacity
        found = self._changes.asking.run(query, params).arrow()
        table = self._make(definition, _schema_of_result(statement, found))
        try:
            rows = self._changes.cast(table, found.rename_columns([column.name for column in table.schema]))
            count = insert(self._versions, table, [*rows.to_batches()], room)
        except BaseException:
            self._versions.work(requests.DropTable(table.name, within=True))
            raise
        return ChangeReport("CREATE TABLE", table.name, count)

    # --- columns -----------------------------------------------------------------------------------

    def _alter(self, definition: Any) -> ChangeReport:
        table = self._known(definition.table)
        match definition:
            case definitions.RenamedTable(_, name):
                self._versions.work(requests.RenameTable(table.name, name))
            case definitions.RenamedColumn(_, column, name):
                known = table.schema[column].name
                if len(name.split()) != 1 and known in (*table.attributes, *map(column_of_term, table.terms)):
                    raise InvalidParameter("a column with an index has a name of one word", hint="drop the index first")
                terms = tuple(_renamed(term, known, name) for term in table.terms)
                self._versions.work(requests.RenameColumn(table.name, known, name, terms))
            case definitions.AddedColumn(_, column, if_not_exists):
                if not (if_not_exists and column.name in table.schema):
                    self._add(table, column)
            case definitions.DroppedColumn(_, column, if_exists):
                if not (if_exists and column not in table.schema):
                    known = table.schema[column].name
                    terms = tuple(_without(term, known, table.schema) for term in table.terms)
                    self._versions.work(requests.DropColumn(table.name, known, terms))
        return ChangeReport("ALTER TABLE", table.name, 0)

    def _add(self, table: Table, wanted: NewColumn) -> None:
        column = _declared(replace(wanted, default=None))
        words = (0,) * (column.type.words + 1)
        if wanted.default is not None:
            words = self._default(column, wanted.default)
        if not words[-1] and not column.nullable:
            raise UnsupportedQuery(
                f"the rows that are there would be null in {column.name!r}, which is NOT NULL",
                hint=f"ALTER TABLE {table.name} ADD COLUMN {column.name} {wanted.type} NOT NULL DEFAULT ...",
            )
        comments = ((column.name, wanted.comment),) if wanted.comment else ()
        self._versions.work(requests.AddColumn(table.name, Schema((column,)), words, comments))

    def _default(self, column: Column, text: str) -> tuple[int, ...]:
        """The words of a DEFAULT: a constant, the same for every row."""
        statement = self._changes.asking.prepare(f"SELECT {text}")
        if statement.query.paths or statement.parsed.parameters:
            raise UnsupportedQuery("a DEFAULT is a constant", hint="UPDATE the column afterwards")
        kind = self._local.describe('SELECT * FROM "t"', [Table("", "t", Schema((column,)), ())], {}).types[0]
        value = self._local.run(f"SELECT CAST(({text}) AS {kind}) AS v", {}, {}).column(0)[0]
        return value_words(column, value.as_py(), None, kind)

    # --- indexes -----------------------------------------------------------------------------------

    def _declare(self, definition: definitions.NewIndex) -> ChangeReport:
        """Declare an index of a table without indexed rows: what comes out of its tail will have it."""
        table = self._known(definition.table)
        column = table.schema[definition.column].name
        if column in (*table.attributes, *map(column_of_term, table.terms)):
            if definition.if_not_exists:
                return ChangeReport("CREATE INDEX", table.name, 0)
            raise Exists(
                f"the table {table.name!r} has an index on {column!r}", hint=f"DROP INDEX {table.name}.{column}"
            )
        if table.settled:
            raise InvalidParameter(
                "an index of rows that are there is no part of a transaction", hint="COMMIT it first: it costs epsilon"
            )
        spec = new_spec(column, definition.options)
        terms = with_term(table, checked_term(table, spec))
        self._changes.check_tail(table, spec.domain, column)
        self._versions.work(requests.SetTerms(table.name, terms))
        return ChangeReport("CREATE INDEX", table.name, 0)

    def _drop_index(self, definition: definitions.DroppedIndex) -> ChangeReport:
        tables = self._versions.catalog.tables if definition.table is None else [self._known(definition.table)]
        column = definition.column.lower()
        found = [
            (table, name)
            for table in tables
            for name in dict.fromkeys((*table.attributes, *map(column_of_term, table.terms)))
            if name is not None and name.lower() == column
        ]
        if not found and definition.if_exists:
            return ChangeReport("DROP INDEX", definition.table or "", 0)
        if not found:
            raise NotFound(
                f"there is no index on {definition.column!r}", hint="an index goes by its column: DROP INDEX visits.day"
            )
        if len(found) > 1:
            names = ", ".join(f"{table.name}.{name}" for table, name in found)
            raise InvalidParameter("several tables have such an index", hint=f"DROP INDEX of one of {names}")
        table, name = found[0]
        self._versions.work(requests.DropIndex(table.name, name))
        return ChangeReport("DROP INDEX", table.name, 0)

    # --- views -------------------------------------------------------------------------------------

    def _create_view(self, definition: definitions.NewView) -> ChangeReport:
        report = ChangeReport("CREATE VIEW", definition.name, 0)
        if definition.if_not_exists and definition.name.lower() in self._versions.views:
            return report
        text = view_text(definition.name, definition.columns, definition.query)
        if self._changes.asking.prepare(definition.query).parsed.parameters:
            raise UnsupportedQuery("a view has no parameters", hint="put them in the query that reads it")
        self._changes.asking.prepare(f'WITH {text} SELECT * FROM "{definition.name}"')  # noqa: S608  a name
        self._versions.work(requests.SetView(definition.name, text))
        return report


def _declared(column: NewColumn) -> Column:
    if column.default is not None and column.default.upper() != "NULL":
        raise UnsupportedQuery(
            f"the column {column.name!r} has a DEFAULT: what an INSERT leaves out is null",
            hint="state the value in the INSERT; ALTER TABLE ... ADD COLUMN takes a DEFAULT, for the rows there are",
        )
    return Column(column.name, parse_type(column.type), column.nullable)


def _renamed(term: str, before: str, after: str) -> str:
    """A term with a column under another name."""
    spec = IndexSpec.parse(term)
    columns = None if spec.columns is None else tuple(after if name == before else name for name in spec.columns)
    spec = replace(spec, column=after if spec.column == before else spec.column, columns=columns)
    return f"{spec.column} {spec.terms}"


def _without(term: str, column: str, schema: Schema) -> str:
    """A term whose copy does not hold a column any more."""
    spec = IndexSpec.parse(term)
    if spec.columns is None:
        return term
    left = tuple(name for name in spec.columns if name != column)
    spec = replace(spec, columns=None if len(left) == len(schema) - 1 else left)
    return f"{spec.column} {spec.terms}"


# --- the types of a result ---------------------------------------------------------------------------


def _schema_of_result(statement: Statement, found: pa.Table) -> Schema:
    """The columns of a query's result: declared as those that they are picked from, or of the types that DuckDB has."""
    picked = _picked(statement, found.num_columns)
    columns = []
    for field, declared in zip(found.schema, picked, strict=True):
        columns.append(Column(field.name, _type_of(field) if declared is None else declared, nullable=True))
    return Schema(tuple(columns))


def _type_of(field: Any) -> ColumnType:
    kinds = pa.types
    plain = field.type.value_type if kinds.is_dictionary(field.type) else field.type
    if any(
        is_one(plain) for is_one in (kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary)
    ):
        raise UnsupportedQuery(
            f"how long the texts of the column {field.name!r} may be is not declared, and no row may tell",
            hint="CAST(... AS varchar(20)), or CREATE TABLE with its columns first and INSERT",
        )
    return schema_of(pa.schema([field])).columns[0].type


def _picked(statement: Statement, width: int) -> Sequence[ColumnType | None]:
    """The declared type of each column of a SELECT that is a column of a table, or a CAST to a type with a length."""
    tree, unknown = statement.parsed.tree, [None] * width
    if not isinstance(tree, exp.Select):
        return unknown
    scopes = [scope for scope in scopes_of(statement.parsed, statement.catalog) if scope.select is tree]
    occurrences = scopes[0].occurrences if scopes else []
    types: list[ColumnType | None] = []
    for item in tree.expressions:
        value = item.unalias()
        if isinstance(value, exp.Star) and len(occurrences) == 1 and not tree.args.get("joins"):
            types += [column.type for column in occurrences[0].table.schema]
        elif isinstance(value, exp.Column) and not isinstance(value.this, exp.Star):
            places = [(each, scopes[0].place(value, each)) for each in occurrences]
            found = [each.table.schema.columns[place].type for each, place in places if place is not None]
            types.append(found[0] if len(found) == 1 else None)
        else:
            types.append(_cast_to(statement, value))
    return types if len(types) == width else unknown


_TEXT_OF = re.compile(r"\bAS\s+((?:text|varchar|char|bpchar|string)\s*\(\s*[0-9]+\s*\))\s*\)\Z", re.IGNORECASE)


def _cast_to(statement: Statement, value: exp.Expr) -> ColumnType | None:
    """The type of a CAST to a text with a length, which only the statement's text has."""
    span = statement.parsed.call_span(value) if isinstance(value, exp.Cast) else None
    found = None if span is None else _TEXT_OF.search(statement.parsed.text[span.start : span.stop])
    return None if found is None else parse_type(found[1])
