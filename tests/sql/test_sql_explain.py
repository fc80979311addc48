"""EXPLAIN says what will be read, and by which index."""

import json

from sql_tables import catalog_of, evaluate, renamed, small_table

from scumble.sql import Explanation, explain, prepare

CATALOG = catalog_of(small_table())


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


def test_the_chance_of_loss_adds_up_over_indexes_and_batches() -> None:
    catalog = catalog_of(small_table(batches=3), renamed(small_table(), "u"))

    def chances(sql: str) -> tuple[list[float], float]:
        found = explain(prepare(sql, catalog, evaluate).bind())
        return [table.beta for table in found.tables], found.beta

    assert chances("SELECT count(*) FROM t WHERE n = 3") == ([3e-6], 3e-6)
    assert chances("SELECT count(*) FROM t WHERE n = 3 OR day = '2020-01-05'") == ([6e-6], 6e-6)
    assert chances("SELECT count(*) FROM t WHERE n IS NULL") == ([3e-6], 3e-6)  # found after the index's last position
    assert chances("SELECT count(*) FROM t") == ([0], 0)
    joined = "SELECT t.id FROM t JOIN u ON t.id = u.id WHERE t.n = 3 AND u.n = 4"
    assert chances(joined) == ([3e-6, 1e-6], 4e-6)
    assert "a row of any table is lost: at most 4e-06" in str(explain(prepare(joined, catalog, evaluate).bind()))
    twice = "SELECT a.id FROM t AS a JOIN t AS b ON a.id = b.m WHERE a.n = 3 AND b.n = 4"
    assert chances(twice) == ([3e-6, 3e-6], 3e-6)


def test_html_is_escaped() -> None:
    assert "&lt;" in explained("SELECT id FROM t WHERE n < 3")._repr_html_()


def test_no_table() -> None:
    assert "DuckDB alone" in str(explained("SELECT 1"))
