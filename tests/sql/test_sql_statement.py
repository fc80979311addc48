# ruff: noqa: S608 - SQL is what is tested here
"""Prepared statements: bound to parameters many times, to the rows that these ask for."""

import time
from decimal import Decimal

import numpy as np
import pytest
from sql_tables import catalog_of, evaluate, fetched, small_table

from scumble.errors import BadQuery
from scumble.sql import AggregateQuery, RowQuery, prepare

TABLE = small_table()
CATALOG = catalog_of(TABLE)


@pytest.mark.parametrize(
    ("sql", "params"),
    [
        ("SELECT ?", ()),
        ("SELECT ?", (1, 2)),
        ("SELECT 1", (1,)),
        ("SELECT $a", {"b": 1}),
        ("SELECT $a", (1,)),
        ("SELECT ?", {"a": 1}),
        ("SELECT ?", "a"),
    ],
)
def test_parameters_that_do_not_fit(sql: str, params: object) -> None:
    with pytest.raises(BadQuery, match="parameters do not fit"):
        prepare(sql, CATALOG, evaluate).bind(params)  # type: ignore[arg-type]


def test_nothing_is_read_where_nothing_can_match() -> None:
    for condition in ("FALSE", "n = NULL", "n BETWEEN 9 AND 3", "n > 5 AND n < 5", "n = 2.5"):
        bound = prepare(f"SELECT count(*) FROM t WHERE {condition}", CATALOG, evaluate).bind()
        assert bound.accesses[0].scans == ()


def test_a_statement_is_bound_many_times() -> None:
    statement = prepare("SELECT count(*), sum(m) FROM t WHERE n BETWEEN ? AND ?", CATALOG, evaluate)
    plans = set()
    for low in range(0, 90, 7):
        bound = statement.bind((low, low + 10))
        expected = [n for n, row in enumerate(TABLE.rows) if row[1] is not None and low <= row[1] <= low + 10]
        assert sorted(fetched(bound.accesses[0], TABLE)) == expected
        assert bound.accesses[0].bounds.dtype == np.int64
        plans.add(id(bound.accesses[0].plan))
    assert len(plans) == 1


def test_parameters_by_name_reach_duckdb() -> None:
    statement = prepare("SELECT sum(n) * :k FROM t WHERE n > :low HAVING count(*) > $k", CATALOG, evaluate)
    bound = statement.bind({"k": 3, "low": Decimal("2.5")})
    assert isinstance(bound.query, AggregateQuery)
    words = bound.query.final_sql.split()
    assert " ".join(words) == "SELECT _a0 * $k FROM __groups AS t WHERE _a1 > $k"
    assert bound.final_parameters == {"k": 3}
    assert statement.sql == "SELECT sum(n) * $k FROM t WHERE n > $low HAVING count(*) > $k"


def test_a_parameter_inside_an_expression_is_planned_with_its_value() -> None:
    statement = prepare("SELECT count(*) FROM t WHERE n < ? + 1 AND wood LIKE ?", CATALOG, evaluate)
    assert isinstance(statement.query, RowQuery)
    bound = statement.bind((10, "b%"))
    assert isinstance(bound.query, AggregateQuery)
    assert sorted(fetched(bound.accesses[0], TABLE)) == [
        n for n, row in enumerate(TABLE.rows) if row[1] is not None and row[1] < 11 and row[7] == "birch"
    ]


def test_names_that_could_clash_do_not() -> None:
    statement = prepare("SELECT sum(n) AS _a1, count(*) AS _a0 FROM t ORDER BY _a1", CATALOG, evaluate)
    assert isinstance(statement.query, AggregateQuery)
    assert not any(output.name in statement.sql for output in statement.query.outputs)


def test_a_long_chain_of_conditions() -> None:
    began = time.monotonic()
    condition = " OR ".join(f"n = {n}" for n in range(500))
    bound = prepare(f"SELECT count(*) FROM t WHERE {condition}", CATALOG, evaluate).bind()
    assert len(fetched(bound.accesses[0], TABLE)) == sum(row[1] is not None for row in TABLE.rows)
    assert time.monotonic() - began < 60
