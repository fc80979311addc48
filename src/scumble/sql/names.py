"""Names: which tables and columns of the database the names in a statement mean.

An unknown table or column is refused, with its name underlined, but only where that is certain: where a subquery, an
alias or a struct might supply the name, DuckDB decides. A column is referred to by its *place* in the table's schema.
"""

from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property

from sqlglot import exp

from scumble.sql.parse import Parsed
from scumble.sql.spans import Span, bad, unsupported
from scumble.wire.catalog import Catalog, Table

__all__ = [
    "Occurrence",
    "Scope",
    "is_cte",
    "only_table",
    "refuse_unknown_columns",
    "renaming",
    "scopes_of",
    "suggestion",
    "table_named",
    "unqualified",
]

SYSTEM_SCHEMAS = {"information_schema", "pg_catalog", "system", "temp"}


@dataclass(frozen=True, eq=False)
class Occurrence:
    """A table of the database at one place in a statement."""

    node: exp.Table
    table: Table
    select: exp.Select | None

    @cached_property
    def alias(self) -> str:
        """The name that columns are qualified with, in lower case."""
        return self.node.alias_or_name.lower()

    @property
    def renamed(self) -> bool:
        """Whether the query gives its columns other names, or turns its rows into columns."""
        alias = self.node.args.get("alias")
        return bool((alias and alias.columns) or self.node.args.get("pivots"))

    @property
    def span(self) -> Span:
        """Where the table's name stands, with what it is qualified by."""
        parts = self.node.parts
        return Span(min(p.meta["start"] for p in parts), max(p.meta["end"] for p in parts) + 1)


@dataclass(eq=False)
class Scope:
    """A SELECT, and the tables of the database in its FROM."""

    select: exp.Select
    others: "dict[int, Scope]"
    occurrences: list[Occurrence] = field(default_factory=list)

    @cached_property
    def merged_names(self) -> set[str]:
        """Names that USING makes one of two columns."""
        joins = self.select.find_all(exp.Join)
        return {name.name.lower() for join in joins for name in join.args.get("using") or []}

    @cached_property
    def has_natural(self) -> bool:
        """Whether names are merged that the query does not show."""
        return any((join.args.get("method") or "").upper() == "NATURAL" for join in self.select.find_all(exp.Join))

    def place(self, column: exp.Column, occurrence: Occurrence) -> int | None:
        """The place of the column that a reference in this SELECT means; None if it is another table's, or in doubt."""
        name, qualifier = column.name.lower(), column.table.lower()
        schema = occurrence.table.schema
        if occurrence.renamed or name not in schema or isinstance(column.this, exp.Star):
            return None
        if qualifier:
            return schema.place(name) if qualifier == occurrence.alias else None
        if self.has_natural or name in self.merged_names:
            return None
        if any(other is not occurrence and (other.renamed or name in other.table.schema) for other in self.occurrences):
            return None
        return schema.place(name)

    def needed(self, occurrence: Occurrence) -> tuple[int, ...]:
        """The columns of an occurrence that the query can read; one of the narrowest if it reads none."""
        columns = occurrence.table.schema.columns
        everything = tuple(range(len(columns)))
        if occurrence.renamed or self.has_natural:
            return everything
        names: set[str] = set(self.merged_names)
        for node in self.select.walk():
            match node:
                case exp.Star() if not isinstance(node.parent, exp.Count) and self._is_ours(node, occurrence):
                    return everything
                case exp.Columns() | exp.Pivot():
                    return everything
                case exp.Column() if not isinstance(node.this, exp.Star):
                    if self._may_mean(node, occurrence):
                        names.add(node.name.lower())
                    if occurrence.alias in (node.name.lower(), node.args.get("db") and node.args["db"].name.lower()):
                        return everything
        found = tuple(place for place, column in enumerate(columns) if column.name.lower() in names)
        return found or (min(everything, key=lambda place: columns[place].page_row_bits),)

    def _is_ours(self, star: exp.Star, occurrence: Occurrence) -> bool:
        parent = star.parent
        if isinstance(parent, exp.Column) and parent.table:
            return parent.table.lower() == occurrence.alias
        return star.find_ancestor(exp.Select) is self.select

    def _may_mean(self, column: exp.Column, occurrence: Occurrence) -> bool:
        if column.table:
            return column.table.lower() == occurrence.alias
        # A name in a subquery means the subquery's own table if that has it.
        select = column.find_ancestor(exp.Select)
        while select is not None and select is not self.select:
            scope = self.others.get(id(select))
            if scope and any(not own.renamed and column.name in own.table.schema for own in scope.occurrences):
                return False
            select = select.find_ancestor(exp.Select)
        return True


def scopes_of(parsed: Parsed, catalog: Catalog) -> list[Scope]:
    """All SELECTs that read tables of the database; BadQuery for a table that is not there."""
    scopes: dict[int, Scope] = {}
    for node in parsed.tree.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier) or is_cte(node):
            continue
        table = table_named(parsed.text, node, catalog)
        select = node.find_ancestor(exp.Select)
        if select is None:
            raise unsupported(parsed.text, "a table can stand in the FROM of a SELECT only", node)
        scope = scopes.setdefault(id(select), Scope(select, scopes))
        scope.occurrences.append(Occurrence(node, table, select))
    for scope in scopes.values():
        scope.occurrences.sort(key=lambda occurrence: occurrence.span.start)
    return sorted(scopes.values(), key=lambda scope: scope.occurrences[0].span.start)


def only_table(parsed: Parsed, scopes: list[Scope]) -> tuple[exp.Select, Scope, Occurrence] | None:
    """The SELECT, its scope and its table, if a statement is one SELECT over one table, without subqueries."""
    select = parsed.tree
    if not isinstance(select, exp.Select) or len(scopes) != 1 or len(scopes[0].occurrences) != 1:
        return None
    occurrence = scopes[0].occurrences[0]
    node, source = occurrence.node, select.args.get("from_")
    if (
        source is None  # the table is in a WITH that nobody reads
        or source.this is not node
        or occurrence.renamed
        or node.args.get("joins")
        or node.args.get("laterals")
    ):
        return None
    if any(query is not select for query in select.find_all(exp.Query)):
        return None
    return select, scopes[0], occurrence


def renaming(parsed: Parsed, occurrence: Occurrence, name: str) -> tuple[Span, str]:
    """The edit that makes an occurrence read another table under the same alias."""
    if occurrence.node.alias:
        return occurrence.span, name
    own = occurrence.node.this.meta
    return occurrence.span, f"{name} AS {_quoted(parsed.text[own['start'] : own['end'] + 1])}"


def unqualified(parsed: Parsed) -> list[tuple[Span, str]]:
    """The edits that take the schema's name off columns: `main.t.x` becomes `t.x`."""
    edits = []
    for column in parsed.tree.find_all(exp.Column):
        parts = [part for part in (column.args.get("catalog"), column.args.get("db")) if part]
        if parts and parts[-1].name.lower() == "main":
            edits.append((Span(parts[0].meta["start"], column.args["table"].meta["start"]), ""))
    return edits


def _quoted(name: str) -> str:
    return '"' + name[1:-1].replace('"', '""') + '"' if name.startswith("'") else name


def table_named(text: str, node: exp.Table, catalog: Catalog) -> Table:
    """The table that a name in a statement means; BadQuery if there is none."""
    schema = node.db.lower()
    if schema in SYSTEM_SCHEMAS or node.catalog.lower() in SYSTEM_SCHEMAS:
        raise unsupported(text, "system tables cannot be queried", node, hint="`scumble tables` lists what is there")
    if node.name in catalog and schema in ("", "main") and not node.catalog:
        return catalog.table(node.name)
    names = [table.name for table in catalog.tables]
    raise bad(text, f"there is no table {node.name!r}", node, hint=suggestion(node.name, names, "tables"))


def suggestion(name: str, names: list[str], what: str) -> str:
    """A hint that lists all names, and proposes the one that is most like the wrong one."""
    if not names:
        return f"there are no {what}"
    by_lower = {known.lower(): known for known in names}
    close = get_close_matches(name.lower(), list(by_lower), 1)
    listed = f"the {what} are {', '.join(names)}"
    return f"did you mean {by_lower[close[0]]!r}? {listed}" if close else listed


def is_cte(node: exp.Table) -> bool:
    """Whether a name means a common table expression that is in sight."""
    if node.db:
        return False
    name = node.name.lower()
    child: exp.Expr = node
    parent = node.parent
    while parent is not None:
        with_ = parent.args.get("with_")
        if isinstance(with_, exp.With) and child is not with_ and _defines(with_, name):
            return True
        if isinstance(parent, exp.With):
            before = None if parent.args.get("recursive") else child
            if _defines(parent, name, before):
                return True
        child, parent = parent, parent.parent
    return False


def _defines(with_: exp.With, name: str, before: exp.Expr | None = None) -> bool:
    for cte in with_.expressions:
        if cte is before:
            return False
        if cte.alias.lower() == name:
            return True
    return False


ELSEWHERE = (exp.Comprehension, exp.PropertyEQ, exp.Kwarg, exp.Slice, exp.Pivot, exp.PivotAlias)


def refuse_unknown_columns(parsed: Parsed, scopes: list[Scope]) -> None:
    """Raise BadQuery for a column that no table in sight has."""
    by_select = {id(scope.select): scope for scope in scopes}
    for column in parsed.tree.find_all(exp.Column):
        if isinstance(column.this, exp.Star) or column.find_ancestor(exp.Lambda, *ELSEWHERE) or column.args.get("db"):
            continue
        chain = _chain(column)
        if not chain:
            continue
        if column.table:
            _refuse_qualified(parsed, column, chain, by_select)
        else:
            _refuse_bare(parsed, column, chain, by_select)


def _chain(column: exp.Column) -> list[exp.Select]:
    """The SELECTs whose tables a column can mean, innermost first."""
    chain = []
    select = column.find_ancestor(exp.Select)
    while select is not None:
        chain.append(select)
        select = select.find_ancestor(exp.Select)
    return chain


def _sources(select: exp.Select) -> list[exp.Expr]:
    from_ = select.args.get("from_")
    joins = [join.this for join in select.args.get("joins") or []]
    return [*([from_.this] if from_ else []), *joins, *(select.args.get("laterals") or [])]


def _refuse_qualified(parsed: Parsed, column: exp.Column, chain: list[exp.Select], by_select: dict[int, Scope]) -> None:
    qualifier = column.table.lower()
    for select in chain:
        if any(source.alias_or_name.lower() == qualifier for source in _sources(select)):
            scope = by_select.get(id(select))
            ours = [own for own in scope.occurrences if own.alias == qualifier] if scope else []
            if len(ours) == 1 and not ours[0].renamed and column.name not in ours[0].table.schema:
                raise _unknown(parsed, column, ours)
            return


def _refuse_bare(parsed: Parsed, column: exp.Column, chain: list[exp.Select], by_select: dict[int, Scope]) -> None:
    name = column.name.lower()
    tables: list[Occurrence] = []
    for select in chain:
        scope = by_select.get(id(select))
        own = scope.occurrences if scope else []
        if len(own) != len(_sources(select)) or any(occurrence.renamed for occurrence in own):
            return
        if any(name in occurrence.table.schema or name == occurrence.alias for occurrence in own):
            return
        if any(item.alias.lower() == name for item in select.expressions):
            return
        tables += own
    if tables:
        raise _unknown(parsed, column, tables)


def _unknown(parsed: Parsed, column: exp.Column, tables: list[Occurrence]) -> Exception:
    names = list(dict.fromkeys(known.name for occurrence in tables for known in occurrence.table.schema))
    hint = suggestion(column.name, names, "columns")
    return bad(parsed.text, f"there is no column {column.name!r}", column, hint=hint)
