"""Columns that are not there: a statement's names come in, an error that underlines the first unknown one goes out.

Only what is certain is refused here; where a subquery, an alias or a struct might supply the name, DuckDB decides.
"""

from sqlglot import exp

from scumble.sql.names import Occurrence, Scope, suggestion
from scumble.sql.parse import Parsed
from scumble.sql.source import bad

__all__ = ["refuse_unknown_columns"]

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
