"""EXPLAIN says what will be read, and by which index."""

import json
import sys
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import pytest
from sql_tables import catalog_of, evaluate, renamed, small_table

from scumble.sql import Explanation, explain, prepare
from scumble.sql.explain import _table_lines
from scumble.wire.catalog import Catalog
from scumble.wire.channel import PADDED_BYTES

explain_module = sys.modules["scumble.sql.explain"]  # `scumble.sql.explain` itself is the function

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
    assert "\nchance that a row of any table is lost: at most 4e-06\n" in lines(joined, catalog)
    twice = "SELECT a.id FROM t AS a JOIN t AS b ON a.id = b.m WHERE a.n = 3 AND b.n = 4"
    assert chances(twice) == ([3e-6, 3e-6], 3e-6)


def test_html_is_escaped() -> None:
    assert "&lt;" in explained("SELECT id FROM t WHERE n < 3")._repr_html_()


def test_no_table() -> None:
    assert "DuckDB alone" in str(explained("SELECT 1"))


def lines(sql: str, catalog: Catalog = CATALOG) -> str:
    """The explanation between two ends of lines."""
    return f"\n{explain(prepare(sql, catalog, evaluate).bind())}\n"


def test_every_line_stands_under_what_it_is_about() -> None:
    found = lines("SELECT sum(m) FROM t WHERE n BETWEEN 3 AND 9")
    assert found.startswith(
        "\naggregates in the enclave\nt: by its index on n (the only condition)\n  ranks 3 to 9 of n, "
    )
    assert "\n  run t-n-0: pages " in found
    assert "\n  reads about 12 rows more than the ranges hold, for privacy\n" in found
    assert "\n  chance that a row is lost: at most 1e-06\n" in found
    assert "\n  the enclave tests: n BETWEEN 3 AND 9\n" in found
    assert "\n  the provider sees: " in found
    assert f"\n  and an answer of 48 bytes, padded to {PADDED_BYTES}: 1 aggregate state\n" in found
    assert found.endswith("\nepsilon charged: 0\n")
    for missing in ("only DuckDB", "at the owner", "any table", "the copy"):
        assert missing not in found


def test_what_is_left_to_the_owner_is_named() -> None:
    found = lines("SELECT id FROM t WHERE ok AND length(name) > 3")
    assert found.startswith("\nrows, finished at the owner\nt: by a full oblivious scan (")
    assert "\n  the enclave tests: ok\n  only DuckDB tests: LENGTH(name) > 3\n" in found
    assert "\nat the owner, DuckDB runs\n  SELECT id FROM " in found
    assert "chance" not in found
    assert "ranks" not in found
    (table,) = explained("SELECT id FROM t WHERE ok AND length(name) > 3").tables
    read = [column.answer_row_bytes for column in small_table().table.schema if column.name in ("id", "ok", "name")]
    assert table.answer_bytes == table.rows_read * (1 + sum(read))
    assert table.expected_overhead_rows == 0
    assert table.scans[0].index is None


def test_groups_are_finished_by_duckdb_unless_there_is_nothing_to_do() -> None:
    assert explained("SELECT avg(n) FROM t WHERE n < 9 HAVING avg(n) > 3").owner_sql is not None
    assert explained("SELECT count(*) FROM t WHERE n < 9").owner_sql is None


def test_four_ranges_are_shown_and_the_others_are_counted() -> None:
    four = "1 to 1, 5 to 5, 9 to 9, 13 to 13"
    assert f"\n  ranks {four} of n, " in lines("SELECT count(*) FROM t WHERE n IN (1, 5, 9, 13)")
    assert f"\n  ranks {four} and 1 more of n, " in lines("SELECT count(*) FROM t WHERE n IN (1, 5, 9, 13, 17)")


def test_an_answer_is_padded_if_it_is_shorter_with_the_byte_that_ends_it() -> None:
    (table,) = explained("SELECT count(*) FROM t WHERE n = 3").tables
    for size, padded in ((PADDED_BYTES - 3, True), (PADDED_BYTES - 2, True), (PADDED_BYTES - 1, False)):
        said = [text for _, text in _table_lines(replace(table, answer_bytes=size)) if "and an answer" in text]
        assert [f"padded to {PADDED_BYTES}" in text for text in said] == [padded]


def test_copies_that_hold_some_columns_are_told_apart() -> None:
    table = small_table().table
    names = table.schema.place("n"), table.schema.place("m")
    runs = [replace(run, columns=tuple(sorted(names)) if run.attribute == "n" else None) for run in table.runs]
    catalog = Catalog("db", 1, "", (replace(table, runs=tuple(runs)),))
    assert "\n  run t-n-0 (the copy by n, with n, m): " in lines("SELECT sum(m) FROM t WHERE n = 3", catalog)
    by_day = lines("SELECT sum(price) FROM t WHERE day = '2020-01-05'", catalog)
    assert "\n  run t-day-0 (the copy by day, with all columns): " in by_day
    by_n = lines("SELECT sum(price) FROM t WHERE n = 3", catalog)
    assert "\n  not by its index on n: that copy does not hold price\n" in by_n
    plain = [replace(runs[1], attribute=None, index=None, columns=None, id="plain")]
    loaded = Catalog("db", 1, "", (replace(table, runs=(*plain, *(run for run in runs if run.attribute == "n"))),))
    assert "\n  run plain (the copy in the order of loading, with all columns): " in lines(
        "SELECT sum(price) FROM t WHERE n = 3", loaded
    )


def test_no_chance_is_above_one_and_no_overhead_above_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    unsure = SimpleNamespace(beta=Fraction(3, 5), extra_rows=lambda ranks, ranges: 10**9)
    monkeypatch.setattr(explain_module, "decoded", lambda index: unsure)
    both = explained("SELECT count(*) FROM t WHERE n = 3 OR day = '2020-01-05'")
    assert (both.beta, both.tables[0].beta) == (1, 1)
    (table,) = explained("SELECT count(*) FROM t WHERE n = 3").tables
    assert table.beta == 0.6
    assert table.expected_overhead_rows == table.rows_read
