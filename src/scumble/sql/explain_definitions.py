"""EXPLAIN of a definition: what the provider will see of it, and what it will cost. Nothing is carried out.

In come what a statement asks for and the catalog; out goes a `DefinitionExplanation`. All of it follows from public
facts: names, types, capacities and declared terms.
"""

from dataclasses import dataclass
from fractions import Fraction

from scumble.sql import definitions
from scumble.sql.definitions import Definition
from scumble.sql.explain import Explanation
from scumble.wire.catalog import Catalog, Table

__all__ = ["DefinitionExplanation", "explain_definition"]


@dataclass(frozen=True, kw_only=True)
class DefinitionExplanation(Explanation):
    """What a definition will show: `kind` says which it is. `tables` are those that CREATE TABLE AS reads."""

    seen: str

    def _lines(self) -> list[tuple[int, str]]:
        lines = [(0, self.kind), (1, f"the provider sees: {self.seen}"), (1, "and never how many rows there are")]
        if self.tables:
            lines += [(0, "its rows come from a query:"), *((depth + 1, text) for depth, text in self._query_lines())]
        return [*lines, (0, f"epsilon charged: {self.epsilon_charged}")]


def explain_definition(
    definition: Definition, catalog: Catalog, epsilon: Fraction, query: Explanation | None = None
) -> DefinitionExplanation:
    """What a definition will do that costs so much; `query` is what a table is made of."""
    kind, seen = _kind_and_seen(definition, catalog, indexes=bool(epsilon))
    return DefinitionExplanation(
        kind=kind,
        tables=[] if query is None else query.tables,
        owner_sql=None if query is None else query.owner_sql,
        beta=0 if query is None else query.beta,
        epsilon_charged=int(epsilon) if epsilon.denominator == 1 else float(epsilon),
        seen=seen,
    )


def _kind_and_seen(definition: Definition, catalog: Catalog, *, indexes: bool) -> tuple[str, str]:
    match definition:
        case definitions.NewIndex() | definitions.Reindexing() | definitions.DroppedIndex():
            return _indexed(definition, indexes=indexes)
        case definitions.NewView() | definitions.DroppedView():
            made = isinstance(definition, definitions.NewView)
            return f"{'CREATE' if made else 'DROP'} VIEW", "that something changed, and how long all that is sealed is"
        case definitions.NewTable(table, query=query):
            what = "and the indexes that are declared" if query is None else "and room for the rows of the query"
            return "CREATE TABLE", f"the table {table}, its columns, their types, {what}"
        case definitions.DroppedTable(name) | definitions.TruncatedTable(name):
            dropped = isinstance(definition, definitions.DroppedTable)
            return "DROP TABLE" if dropped else "TRUNCATE", f"that all pages of {name} are gone"
    return "ALTER TABLE", _altered(definition, catalog.table(definition.table))


def _indexed(
    definition: definitions.NewIndex | definitions.Reindexing | definitions.DroppedIndex, *, indexes: bool
) -> tuple[str, str]:
    if isinstance(definition, definitions.DroppedIndex):
        return "DROP INDEX", f"that the index on {definition.column} is gone, with its copies of the rows"
    kind = "CREATE INDEX" if isinstance(definition, definitions.NewIndex) else "REINDEX"
    if not indexes:
        return kind, f"that an index on {definition.column} is declared, for batches to come"
    return (
        kind,
        f"all pages of a copy of {definition.table} read, as many rows sent as it has room for, and an index",
    )


def _altered(definition: Definition, table: Table) -> str:
    match definition:
        case definitions.AddedColumn(_, column):
            pages = sum(run.pages for run in table.runs if run.columns is None)
            return f"the column {column.name}, its type, and {pages:,} pages of it sealed, all alike"
        case definitions.DroppedColumn(_, column):
            return f"every page of {table.name} read and sealed anew, but for the column {column}"
        case definitions.RenamedColumn(_, column, name):
            return f"that the column {column} is called {name}"
    return f"the new name of {table.name}"
