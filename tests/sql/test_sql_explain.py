# ruff: noqa: S608 - SQL is what is tested here
"""EXPLAIN, prepared statements and parameters."""

import json
import time
from decimal import Decimal

import numpy as np
from sql_tables import catalog_of, evaluate, fetched, small_table

from scumble.sql import AggregateQuery, Explanation, RowQuery, explain, prepare

TABLE = small_table()
CATALOG = catalog_of(TABLE)


def explained(sql: str) -> Explanation:
    return explain(prepare(sql, CATALOG, evaluate).bind())


def test_an_index_is_explained() -> None:
    found = explained("SELECT sum(m) FROM t WHERE n BETWEEN 3 AND 9")
    (table,) = found.tables
    assert table.indexes == ["n"]
    assert table.scans[0].ranks == [(3, 9)]
    assert 0 < table.pages_read < table.pages_of_full_scan
    assert table.columns_read == ["n", "m"]
    assert table.expected_overhead_rows == 12
    assert table.beta == 1e-6
    assert found.epsilon_charged == 0
    assert found.owner_sql is None
    assert json.loads(json.dumps(found.to_json()))["tables"][0]["answer_bytes"] == 8 * (1 + 1 + 1 + 3)
    assert "by its index on n" in str(found)


def test_a_full_scan_says_so() -> None:
    found = explained("SELECT id FROM t WHERE ok AND length(name) > 3")
    (table,) = found.tables
    assert table.indexes == []
    assert table.pages_read == table.pages_of_full_scan
    assert table.beta == 0
    assert table.enclave_conditions == ["ok"]
    assert table.owner_conditions == ["LENGTH(name) > 3"]
    assert "full oblivious scan" in str(found)


def test_a_union_reads_each_index() -> None:
    (table,) = explained("SELECT count(*) FROM t WHERE n = 3 OR day = '2020-01-05'").tables
    assert table.indexes == ["n", "day"]
    assert len(table.scans) == 2


def test_html_is_escaped() -> None:
    assert "&lt;" in explained("SELECT id FROM t WHERE n < 3")._repr_html_()


def test_no_table() -> None:
    assert "DuckDB alone" in str(explained("SELECT 1"))


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
