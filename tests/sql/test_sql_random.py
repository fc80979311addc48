# ruff: noqa: S608 - SQL is what is tested here
"""Random queries, three ways: DuckDB on the whole table, the reference on what is fetched, and covers as supersets."""

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from sql_random import aggregations, conditions, joins
from sql_tables import catalog_of, duck, evaluate, fetched, finished, matches, renamed, small_table

from scumble.sql import AggregateQuery, RowQuery, prepare
from scumble.sql.aggregates.sum import SUM
from scumble.sql.plan import cover
from scumble.wire.plan import Expression

KINDS = {
    "price": "decimal:-10:10:0.01",
    "moment": "timestamp:2020-01-01T00:00:00:2020-01-31T00:00:00:1h",
    "wood": 'category:["ash","birch","cedar","oak"]',
    "m": f"keys:{list(range(100))}",
}
TABLES = {batches: small_table(batches=batches) for batches in (1, 3)}
TABLES[2] = small_table(batches=2, indexes=KINDS)
FEW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
SOME, MANY = settings(FEW, max_examples=150), settings(FEW, max_examples=300)
U = renamed(small_table(60, indexes={}), "u")
BATCHES = st.sampled_from([1, 2, 3])
CATALOG = {batches: catalog_of(table, U) for batches, table in TABLES.items()}


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return duck(TABLES[1], U)


def answer(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]] | None:
    """DuckDB's answer as a sorted list; None if it refuses the query."""
    try:
        rows = connection.execute(sql).fetchall()
    except duckdb.Error:
        event("DuckDB refuses")
        return None
    return sorted(rows, key=repr)


@FEW
@given(condition=conditions(), batches=BATCHES)
def test_conditions(connection: duckdb.DuckDBPyConnection, condition: str, batches: int) -> None:
    check_condition(connection, condition, batches)


@pytest.mark.slow
@MANY
@given(condition=conditions(), batches=BATCHES)
def test_many_conditions(connection: duckdb.DuckDBPyConnection, condition: str, batches: int) -> None:
    check_condition(connection, condition, batches)


def check_condition(connection: duckdb.DuckDBPyConnection, condition: str, batches: int) -> None:
    expected = answer(connection, f"SELECT id FROM t WHERE {condition}")
    if expected is None:
        return
    wanted = [row[0] for row in expected]
    loaded = TABLES[batches]
    counted = prepare(f"SELECT count(*) FROM t WHERE {condition}", CATALOG[batches], evaluate).bind()
    event(f"exact: {isinstance(counted.query, AggregateQuery)}")
    event(f"scans: {len(counted.accesses[0].attributes)}")
    if isinstance(counted.query, AggregateQuery):
        found = fetched(counted.accesses[0], loaded)
        assert sorted(found) == sorted(wanted)
    bound = prepare(f"SELECT id FROM t WHERE {condition}", CATALOG[batches], evaluate).bind()
    assert isinstance(bound.query, RowQuery)
    (access,), (fetch,) = bound.accesses, bound.query.fetches
    found = fetched(access, loaded)
    assert len(found) == len(set(found))
    assert set(found) >= set(wanted)
    predicate, words = fetch.paths.predicate, fetch.paths.bounds.words(None)
    for place in (0, 1, 2, 5, 6, 7, 8):
        type_ = loaded.table.schema.columns[place].type
        keys = cover(predicate, place, type_, words)
        for row in loaded.rows:
            if matches(predicate, loaded.table.schema, row, words):
                own = None if row[place] is None else type_.words_of(row[place])
                assert keys.nulls if own is None else any(low <= own <= high for low, high in keys.intervals)


DISJUNCTS = st.one_of(
    st.integers(0, 99).map(lambda n: f"n = {n}"),
    st.integers(0, 199).map(lambda n: f"id BETWEEN {n} AND {n + 3}"),
    st.integers(1, 28).map(lambda n: f"day = '2020-01-{n:02}'"),
    st.sampled_from(["n IS NULL", "day IS NULL", "name = 'b'", "name LIKE 'z%'", "(n < 3 AND ok)", "n IN (1, 50, 51)"]),
)


@SOME
@given(
    parts=st.lists(DISJUNCTS, min_size=2, max_size=4, unique=True),
    extra=st.sampled_from(["", " AND ok", " AND n IS NOT NULL", " AND m < 50", " AND day IS NULL"]),
    batches=st.sampled_from([1, 3]),
)
def test_unions(connection: duckdb.DuckDBPyConnection, parts: list[str], extra: str, batches: int) -> None:
    where = f"({' OR '.join(parts)}){extra}"
    bound = prepare(f"SELECT count(*) FROM t WHERE {where}", CATALOG[batches], evaluate).bind()
    assert isinstance(bound.query, AggregateQuery)
    (access,) = bound.accesses
    event(f"indexes: {len(access.attributes)}")
    found = fetched(access, TABLES[batches])
    expected = connection.execute(f"SELECT id FROM t WHERE {where}").fetchall()
    assert sorted(found) == sorted(row[0] for row in expected)


@FEW
@given(sql=joins())
def test_joins(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    check_join(connection, sql)


@pytest.mark.slow
@MANY
@given(sql=joins())
def test_many_joins(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    check_join(connection, sql)


def check_join(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    expected = answer(connection, sql)
    if expected is None:
        return
    bound = prepare(sql, CATALOG[1], evaluate).bind()
    assert isinstance(bound.query, RowQuery)
    event(f"rows: {min(len(expected), 1)}")
    assert sorted(finished(connection, bound, {"t": TABLES[1], "u": U}).fetchall(), key=repr) == expected


@FEW
@given(sql=aggregations())
def test_aggregates(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    check_aggregation(connection, sql)


@pytest.mark.slow
@MANY
@given(sql=aggregations())
def test_many_aggregates(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    check_aggregation(connection, sql)


def check_aggregation(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    expected = answer(connection, sql)
    if expected is None:
        return
    bound = prepare(sql, CATALOG[3], evaluate).bind()
    event(f"in the enclave: {isinstance(bound.query, AggregateQuery)}")
    if not isinstance(bound.query, AggregateQuery):
        return
    got = sorted(finished(connection, bound, {"t": TABLES[3]}).fetchall(), key=repr)
    assert same(got, expected)
    check_expressions(connection, bound.query, fetched(bound.accesses[0], TABLES[3]))


def check_expressions(connection: duckdb.DuckDBPyConnection, query: AggregateQuery, found: list[int]) -> None:
    """The enclave's arithmetic on words, divided by the scale, is DuckDB's sum."""
    described = {row[0]: row[1] for row in connection.execute(f"DESCRIBE {query.groups_sql}").fetchall()}
    for output in query.outputs:
        if output.function is not SUM:
            continue
        expression = query.aggregates.aggregates[output.state].argument
        assert expression is not None
        scale = int(described[output.name].rstrip(")").split(",")[1]) if "," in described[output.name] else 0
        assert scale == output.argument.scale
        values = [worked_out(expression, TABLES[3].rows[n]) for n in found]
        known = [value for value in values if value is not None]
        grouped = connection.execute(f"SELECT sum({output.name}) FROM __groups").fetchone()
        assert grouped is not None
        expected = Decimal(sum(known)).scaleb(-scale) if known else None
        assert (grouped[0] is None and expected is None) or Decimal(grouped[0]) == expected


def worked_out(expression: Expression, row: tuple[Any, ...]) -> int | None:
    match expression:
        case ("column", place):
            return None if row[place] is None else TABLES[3].table.schema.columns[place].type.words_of(row[place])[0]
        case ("constant", value):
            return int(value)
    left, right = (worked_out(side, row) for side in expression[1:])
    if left is None or right is None:
        return None
    return {"+": left + right, "-": left - right, "*": left * right}[expression[0]]


def same(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]]) -> bool:
    return len(left) == len(right) and all(
        a == b
        or (isinstance(a, float) and isinstance(b, float) and (math.isclose(a, b) or (math.isnan(a) and math.isnan(b))))
        for one, two in zip(left, right, strict=True)
        for a, b in zip(one, two, strict=True)
    )


PARAMETERS: list[Any] = [0, 3, 50, -1, Decimal("2.5"), Decimal("0.005"), 2.5, 1e2, None, 10**12, "7", True]
TIMES: list[Any] = [date(2020, 1, 5), datetime(2020, 1, 5), datetime(2020, 1, 5, 7), "2020-01-07", None]
OF_NUMBERS = [
    "n BETWEEN ? AND ?", "n NOT BETWEEN ? AND ?", "NOT (n > ? AND price < ?)", "n IN (?, ?)", "n NOT IN (?, ?)",
    "price >= ? OR id = ?", "n > ? + 1 AND m <> ?", "n IS DISTINCT FROM ? AND f > ?", "n >= ? AND n < ?",
]  # fmt: skip
OF_TIMES = [
    "day BETWEEN ? AND ?", "moment > ? AND day <> ?", "day NOT IN (?, ?)", "moment IN (?, ?)", "day >= ? OR moment < ?",
]  # fmt: skip


@pytest.mark.parametrize(("shapes", "values"), [(OF_NUMBERS, PARAMETERS), (OF_TIMES, [*TIMES, "2020-01-09 03:00:00"])])
@SOME
@given(data=st.data())
def test_parameters(
    connection: duckdb.DuckDBPyConnection, shapes: list[str], values: list[Any], data: st.DataObject
) -> None:
    shape, one = st.sampled_from(shapes), st.sampled_from(values)
    check_parameters(connection, data.draw(shape), [data.draw(one), data.draw(one)])


def check_parameters(connection: duckdb.DuckDBPyConnection, shape: str, values: list[Any]) -> None:
    sql = f"SELECT id FROM t WHERE {shape}"
    try:
        expected = {row[0] for row in connection.execute(sql, values).fetchall()}
    except duckdb.Error:
        return
    bound = prepare(sql, CATALOG[1], evaluate).bind(values)
    found = fetched(bound.accesses[0], TABLES[1])
    assert len(found) == len(set(found))
    assert set(found) >= expected
    counted = prepare(f"SELECT count(*) FROM t WHERE {shape}", CATALOG[1], evaluate).bind(values)
    if isinstance(counted.query, AggregateQuery):
        assert set(fetched(counted.accesses[0], TABLES[1])) == expected
