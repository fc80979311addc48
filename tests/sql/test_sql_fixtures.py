"""Fixtures: pairs of a query and the plan that is made of it, in predicates.sql, aggregates.sql and joins.sql.

`python tests/sql/test_sql_fixtures.py` writes the plans anew; read the difference before you keep it.
"""

from pathlib import Path

import pytest
from sql_tables import catalog_of, evaluate, renamed, small_table

from scumble.sql import AggregateQuery, Bound, prepare
from scumble.sql.plan import Paths
from scumble.types import ColumnType, Schema
from scumble.wire.plan import And, Compare, Constant, In, Or, Predicate

FOLDER = Path(__file__).parent
T = small_table()
CATALOG = catalog_of(T, renamed(small_table(60, indexes={}), "u"))


def pairs(path: Path) -> list[tuple[str, str]]:
    blocks = [block.strip() for block in path.read_text().split("\n\n") if block.strip()]
    return [(sql.strip(" ;"), plan.strip()) for sql, _, plan in (block.partition(";\n") for block in blocks)]


CASES = [(path.stem, *pair) for path in sorted(FOLDER.glob("*.sql")) for pair in pairs(path)]


@pytest.mark.parametrize(("name", "sql", "plan"), CASES, ids=[f"{name}-{sql[:60]}" for name, sql, _ in CASES])
def test_plan(name: str, sql: str, plan: str) -> None:
    assert summary(prepare(sql, CATALOG, evaluate).bind()) == plan


def test_there_are_fixtures() -> None:
    assert len(CASES) > 60


def summary(bound: Bound) -> str:
    query = bound.query
    if isinstance(query, AggregateQuery):
        schema = query.table.schema
        states = ", ".join(f"{a.function} {formula(a.argument, schema)}".strip() for a in query.aggregates.aggregates)
        lines = [f"enclave {query.table.name}: {condition(query.paths[0])}"]
        lines.append(f"  by {' + '.join(map(str, bound.accesses[0].attributes))}; {states}")
        then = f"direct {query.direct}" if query.direct else query.final_sql
        return "\n".join([*lines, f"  then {' '.join(then.split())}"])
    lines = []
    for fetch, access in zip(query.fetches, bound.accesses, strict=True):
        schema = fetch.table.schema
        columns = ", ".join(schema.columns[place].name for place in fetch.columns)
        lines.append(f"rows {fetch.name} = {fetch.table.name}({columns}): ")
        lines[-1] += condition(fetch.paths)
        rest = f"; left {' AND '.join(fetch.residual)}" if fetch.residual else ""
        lines.append(f"  by {' + '.join(map(str, access.attributes))}{rest}")
    return "\n".join([*lines, f"  then {' '.join(query.final_sql.split())}"]).strip()


def condition(paths: Paths) -> str:
    return shown(paths.predicate, paths.table.schema, paths.bounds.words(None))


def formula(expression: object, schema: Schema) -> str:
    match expression:
        case ("column", int(place)):
            return schema.columns[place].name
        case ("constant", value):
            return str(value)
        case (str(op), left, right):
            return f"({formula(left, schema)} {op} {formula(right, schema)})"
    return ""


def shown(predicate: Predicate, schema: Schema, words: list[int]) -> str:
    match predicate:
        case Constant(value):
            return str(value).lower()
        case And(parts):
            return "(" + " and ".join(shown(part, schema, words) for part in parts) + ")"
        case Or(parts):
            return "(" + " or ".join(shown(part, schema, words) for part in parts) + ")"
        case Compare(left, right, op, negated):
            text = f"{schema.columns[left].name} {op} {schema.columns[right].name}"
            return f"not({text})" if negated else text
        case In():
            return leaf(predicate, schema, words)


def leaf(node: In, schema: Schema, words: list[int]) -> str:
    column = schema.columns[node.column]
    size = column.type.words
    least, most = column.type.full_interval
    parts = []
    for n in range(node.intervals):
        at = node.offset + 2 * n * size
        low, high = tuple(words[at : at + size]), tuple(words[at + size : at + 2 * size])
        ends = [
            "-" if low <= least else end(column.type, low),
            "-" if high >= most else end(column.type, high),
        ]
        parts.append("..".join(ends) if low != high else ends[0])
    text = f"{column.name} {'not ' if node.negated else ''}in {{{', '.join(parts)}}}"
    return f"({text} or null)" if node.null_matches else text


def end(type_: ColumnType, words: tuple[int, ...]) -> str:
    try:
        return str(type_.value_of(words))
    except UnicodeDecodeError:
        return "..."


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.sql")):
        found = [f"{sql};\n{summary(prepare(sql, CATALOG, evaluate).bind())}\n" for sql, _ in pairs(path)]
        path.write_text("\n".join(found))
