"""Row queries: any statement comes in; what to fetch of each table, and the SQL that DuckDB runs over it, go out.

The SQL for DuckDB is the asker's own text with the tables' names replaced, so that nothing is lost in translation.
"""

from sqlglot import exp

from scumble.sql.constants import Constants
from scumble.sql.drafts import lay_out
from scumble.sql.names import Occurrence, Scope, only_table
from scumble.sql.parse import Parsed
from scumble.sql.plan import Paths
from scumble.sql.predicate import Translator
from scumble.sql.pushdown import Pushed, pushed_down
from scumble.sql.query import Fetch, RowQuery
from scumble.sql.source import Span, edited
from scumble.wire.plan import RowColumns

__all__ = ["row_query", "unqualified"]


def row_query(parsed: Parsed, scopes: list[Scope], constants: Constants) -> RowQuery:
    """Fetch what each occurrence of a table needs; equal needs are fetched once."""
    fetches: dict[object, Fetch] = {}
    edits = [*parsed.parameter_edits, *unqualified(parsed)]
    for scope in scopes:
        pushed = pushed_down(scope, constants)
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


def _fetch(name: str, occurrence: Occurrence, columns: tuple[int, ...], pushed: Pushed) -> Fetch:
    predicate, bounds = lay_out(pushed.draft)
    paths = Paths(occurrence.table, predicate, RowColumns(columns))
    return Fetch(
        name, occurrence.table, columns, predicate, bounds, paths, tuple(pushed.conditions), tuple(pushed.residual)
    )
