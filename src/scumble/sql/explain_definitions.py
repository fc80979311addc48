"""EXPLAIN of a definition: what the provider will see of it, and what it will cost. Nothing is carried out.

In come what a statement asks for and the catalog; out goes a `DefinitionExplanation`. All of it follows from public
facts: names, types, capacities and declared terms.
"""

from dataclasses import dataclass
from fractions import Fraction

from scumble.sql import definitions
from scumble.sql.definitions import Definition
from scumble.sql.explain import Explanation
from scumble.types import Column, parse_type
from scumble.wire.catalog import LIVE, TAG_BYTES, Catalog, Table

__all__ = ["DefinitionExplanation", "explain_definition"]


@dataclass(frozen=True, kw_only=True)
class DefinitionExplanation(Explanation):
    """What a definition will show: `kind` says which it is. `tables` are those that it fetches rows of.

    `pages_read` and `bytes_read` are what else the enclave reads, and `pages_sealed` and `bytes_sealed` what it seals;
    what it seals of rows that were fetched follows from their room, or the new index. `bytes_dropped` are the pages
    that the provider is told to delete.
    """

    seen: str
    pages_read: int = 0
    bytes_read: int = 0
    pages_sealed: int = 0
    bytes_sealed: int = 0
    bytes_dropped: int = 0

    def _lines(self) -> list[tuple[int, str]]:
        lines = [(0, self.kind), (1, f"the provider sees: {self.seen}"), (1, "and never how many rows there are")]
        read = f"reads {self.pages_read:,} pages, {self.bytes_read:,} bytes"
        lines.append((1, f"{read}; seals {self.pages_sealed:,} pages, {self.bytes_sealed:,} bytes"))
        if self.bytes_dropped:
            lines.append((1, f"drops {self.bytes_dropped:,} bytes"))
        if self.tables:
            lines += [(0, "besides, rows are fetched:"), *((depth + 1, text) for depth, text in self._query_lines())]
            lines.append((1, "and they are sealed, with dummies, in as many pages as their room or the index says"))
        return [*lines, (0, f"epsilon charged: {self.epsilon_charged}")]


def explain_definition(
    definition: Definition, catalog: Catalog, epsilon: Fraction, query: Explanation | None = None
) -> DefinitionExplanation:
    """What a definition will do that costs so much; `query` is what a table, or an index, is made of."""
    kind, seen = _kind_and_seen(definition, catalog, indexes=bool(epsilon))
    pages_read, bytes_read, pages_sealed, bytes_sealed, bytes_dropped = _work(definition, catalog)
    return DefinitionExplanation(
        kind=kind,
        tables=[] if query is None else query.tables,
        owner_sql=None if query is None else query.owner_sql,
        beta=0 if query is None else query.beta,
        epsilon_charged=int(epsilon) if epsilon.denominator == 1 else float(epsilon),
        seen=seen,
        pages_read=pages_read,
        bytes_read=bytes_read,
        pages_sealed=pages_sealed,
        bytes_sealed=bytes_sealed,
        bytes_dropped=bytes_dropped,
    )


def _work(definition: Definition, catalog: Catalog) -> tuple[int, int, int, int, int]:
    """The pages and bytes that are read, those that are sealed, and the bytes that are dropped."""
    match definition:
        case definitions.DroppedTable(name) | definitions.TruncatedTable(name) if name in catalog:
            table = catalog.table(name)
            return 0, 0, 0, 0, sum(map(table.run_bytes, table.runs))
        case definitions.AddedColumn(name, column) if column.name not in catalog.table(name).schema:
            added = Column(column.name, parse_type(column.type), column.nullable)
            runs = [run for run in catalog.table(name).runs if run.columns is None]
            size = sum(run.pages * (added.page_bytes(run.page_rows) + TAG_BYTES) for run in runs)
            return 0, 0, sum(run.pages for run in runs), size, 0
        case definitions.DroppedColumn(name, column) if column in catalog.table(name).schema:
            return _without(catalog.table(name), catalog.table(name).schema.place(column))
    return 0, 0, 0, 0, 0


def _without(table: Table, gone: int) -> tuple[int, int, int, int, int]:
    """All other columns of all runs are read and sealed anew; the live bytes too, where rows may have been deleted."""
    pages = size = live_pages = live_bytes = 0
    for run in table.runs:
        held = [place for place in table.held(run) if place != gone]
        pages += run.pages * len(held)
        size += run.pages * sum(table.slot_bytes(place, run.page_rows) for place in held)
        if run.has_dead:
            live_pages += run.pages
            live_bytes += run.pages * table.slot_bytes(LIVE, run.page_rows)
    dropped = sum(map(table.run_bytes, table.runs))
    return pages + live_pages, size + live_bytes, pages + live_pages, size + live_bytes, dropped


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
