"""Answers through the gateway, with the real ADBC driver, are DuckDB's over the same table, in value and in type."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from gateway_setup import ALICE, BOB, ROWS, TABLE, connect, cursor

from scumble.gateway.server import Gateway

QUERIES = [
    "SELECT * FROM visits ORDER BY id",
    "SELECT * FROM visits WHERE id BETWEEN 100 AND 120 ORDER BY id",
    "SELECT count(*), count(small), sum(small), sum(large), sum(price), avg(x), min(day), max(seen) FROM visits",
    "SELECT wood, count(*) AS n, sum(price) AS total FROM visits GROUP BY wood ORDER BY wood",
    "SELECT flag, wood, max(clock), min(name) FROM visits WHERE id > 50 GROUP BY ALL ORDER BY ALL",
    "SELECT price * 2 AS double_price, x / 3 AS third, upper(name) AS loud FROM visits WHERE id < 30 ORDER BY id",
    "SELECT min(token), max(token), min(photo), max(wide), sum(wide), sum(port), sum(ratio), max(wait) FROM visits",
    "SELECT token, photo, wait, wide, ratio, port FROM visits WHERE wide > 0 AND port < 65500 ORDER BY id",
    "SELECT day, clock, seen FROM visits WHERE day = DATE '2024-01-05' ORDER BY seen",
    "SELECT id, row_number() OVER (PARTITION BY wood ORDER BY id) AS place FROM visits WHERE id < 40 ORDER BY id",
    "SELECT a.id, b.name FROM visits a JOIN visits b ON a.id = b.id + 1 WHERE a.id < 20 ORDER BY a.id",
    "SELECT id FROM visits WHERE id > 100000",
    "SELECT name FROM visits WHERE name LIKE '%3' ORDER BY id",
    "SELECT NOT flag AS unset, flag AND id > 3 FROM visits WHERE id < 9 ORDER BY id",
    "WITH few AS (SELECT * FROM visits WHERE id < 5) SELECT count(*), sum(id) FROM few",
    "SELECT 1 AS one, NULL AS nothing, 'text' AS word",
    "SELECT id FROM visits WHERE id < 3 UNION ALL SELECT 7 ORDER BY 1",
]
PARAMETERS = [
    ("SELECT id, name FROM visits WHERE id BETWEEN ? AND ? ORDER BY id", [10, 14]),
    ("SELECT id FROM visits WHERE price > ? ORDER BY id", [Decimal("1.50")]),
    ("SELECT id FROM visits WHERE x < ? ORDER BY id", [-10.5]),
    ("SELECT count(*) FROM visits WHERE day >= ?", [date(2024, 2, 1)]),
    ("SELECT count(*) FROM visits WHERE seen < ?", [datetime(2024, 1, 2, 3, 4, 5)]),
    ("SELECT count(*) FROM visits WHERE clock < ?", [time(12, 30)]),
    ("SELECT id FROM visits WHERE name = ? ORDER BY id", ["näme 3"]),
    ("SELECT count(*) FROM visits WHERE wood IN (?, ?)", ["ash", "elm"]),
    ("SELECT count(*) FROM visits WHERE flag = ?", [True]),
    ("SELECT count(*) FROM visits WHERE id = ?", [None]),
    ("SELECT id FROM visits WHERE photo = ? ORDER BY id", [b"\x07\x07\x07"]),
    ("SELECT id FROM visits WHERE token = ?", [str(UUID(int=5 << 100 | 5))]),
    ("SELECT count(*) FROM visits WHERE wide > ?", [Decimal("99999999999999999999999999.5")]),
    ("SELECT count(*) FROM visits WHERE port >= ? AND ratio < ?", [65_300, 12.25]),
    ("SELECT id + ? AS more FROM visits WHERE id < ? ORDER BY id", [1000, 3]),
]


@pytest.fixture(scope="module")
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.register("visits", TABLE)
        yield connection


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """In names, types and values; a UUID comes as one, while DuckDB makes text of it."""
    assert found.schema.names == expected.schema.names
    for place, kind in enumerate(found.schema.types):
        if kind == pa.uuid():
            texts = [None if value is None else str(value) for value in found[place].to_pylist()]
            found = found.set_column(place, found.schema.names[place], pa.array(texts, pa.string()))
    assert [str(kind) for kind in found.schema.types] == [str(kind) for kind in expected.schema.types]
    assert found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("query", QUERIES)
def test_an_answer_is_duckdbs(gateway: Gateway, plain: duckdb.DuckDBPyConnection, query: str) -> None:
    with cursor(gateway) as asked:
        found = asked.execute(query).fetch_arrow_table()
    assert_same(found, plain.sql(query).to_arrow_table())


@pytest.mark.parametrize(("query", "values"), PARAMETERS)
def test_an_answer_with_parameters_is_duckdbs(
    gateway: Gateway, plain: duckdb.DuckDBPyConnection, query: str, values: list[Any]
) -> None:
    with cursor(gateway) as asked:
        found = asked.execute(query, values).fetchall()
    assert found == plain.sql(query, params=values).fetchall()


def test_a_prepared_statement_runs_again_with_other_parameters(gateway: Gateway) -> None:
    with cursor(gateway) as asked:
        query = "SELECT id FROM visits WHERE id BETWEEN ? AND ? ORDER BY id"
        expected = asked.adbc_prepare(query)
        assert expected.types == [pa.int32(), pa.int32()]
        for low in (3, 50, 399):
            assert asked.execute(query, (low, low + 1)).fetchall() == [(n,) for n in range(low, min(low + 2, ROWS))]


def test_every_row_of_a_bound_batch_is_a_set_of_parameters(gateway: Gateway) -> None:
    with cursor(gateway) as asked:
        sets = pa.record_batch({"which": [7, 3, 1000, 3]})
        found = asked.execute("SELECT id FROM visits WHERE id = ?", sets).fetchall()
        assert found == [(7,), (3,), (3,)]


def test_parameters_may_have_names(gateway: Gateway) -> None:
    query = "SELECT id FROM visits WHERE id BETWEEN $low AND $high ORDER BY id"
    with cursor(gateway) as asked:
        by_name = pa.record_batch({"high": [6], "low": [4]})
        assert asked.execute(query, by_name).fetchall() == [(4,), (5,), (6,)]
        assert asked.execute(query, (4, 5)).fetchall() == [(4,), (5,)]


def test_the_schema_is_known_before_anything_runs(gateway: Gateway) -> None:
    with cursor(gateway) as asked:
        found = asked.adbc_execute_schema("SELECT id, price, sum(x) OVER () AS all_x FROM visits WHERE name = ?")
    assert found == pa.schema({"id": pa.int32(), "price": pa.decimal128(12, 2), "all_x": pa.float64()})


def test_pandas_and_polars_read_through_it(gateway: Gateway) -> None:
    query = "SELECT id, price, day, name, flag FROM visits WHERE id < 50 ORDER BY id"
    with connect(gateway) as connection:
        assert_frame = pd.read_sql(query, connection)
        frame = pl.read_database(query, connection)
    expected = TABLE.select(["id", "price", "day", "name", "flag"]).slice(0, 50)
    assert frame.rows() == [tuple(row.values()) for row in expected.to_pylist()]
    assert assert_frame["id"].tolist() == list(range(50))
    assert assert_frame["price"].dropna().tolist() == expected["price"].drop_null().to_pylist()


def test_a_result_is_read_by_partition_once_and_by_another_connection(gateway: Gateway) -> None:
    with cursor(gateway) as asked:
        partitions, schema = asked.adbc_execute_partitions("SELECT id FROM visits WHERE id < 3 ORDER BY id")
    assert schema == pa.schema({"id": pa.int32()})
    with cursor(gateway) as reading:
        reading.adbc_read_partition(partitions[0])
        assert reading.fetchall() == [(0,), (1,), (2,)]
    with cursor(gateway) as again, pytest.raises(Exception, match="no such result"):
        again.adbc_read_partition(partitions[0])


def test_a_large_result_comes_whole_in_batches_that_the_driver_takes(gateway: Gateway) -> None:
    """Some rows are much larger than the others: 300 texts of 100 kB among 64,000 short ones, 30 MB in all."""
    query = """
        SELECT a.id * 160 + b.id AS n, CASE WHEN b.id = 0 AND a.id < 300 THEN repeat('x', 100000) ELSE 'y' END AS text
        FROM visits a CROSS JOIN visits b WHERE b.id < 160 ORDER BY n
    """
    with cursor(gateway) as asked:
        found = asked.execute(query).fetch_arrow_table()
    assert found["n"].to_pylist() == list(range(ROWS * 160))
    assert sum(map(len, found["text"].to_pylist())) == 300 * 100_000 + ROWS * 160 - 300


def test_clients_ask_at_the_same_time_and_each_gets_its_own_answer(gateway: Gateway) -> None:
    def ask(number: int) -> list[Any]:
        with cursor(gateway, (ALICE, BOB)[number % 2]) as asked:
            return [
                asked.execute("SELECT id, name FROM visits WHERE id = ?", (number + turn,)).fetchall()
                for turn in range(5)
            ]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(24)))
    names = TABLE["name"].to_pylist()
    assert answers == [[[(n + turn, names[n + turn])] for turn in range(5)] for n in range(24)]


@pytest.mark.parametrize("statement", ["INSERT INTO visits (id) VALUES (1)", "DELETE FROM visits", "DROP TABLE visits"])
def test_a_client_that_is_no_writer_changes_nothing(gateway: Gateway, statement: str) -> None:
    with cursor(gateway) as asked:
        with pytest.raises(Exception, match="only reads for this client"):
            asked.execute(statement)
        with pytest.raises(Exception, match="only reads for this client"):
            asked.executescript(statement)
        with pytest.raises(Exception, match="only reads for this client"):
            asked.executemany("DELETE FROM visits WHERE id = ?", [(1,), (2,)])
        with pytest.raises(Exception, match="only reads for this client"):
            asked.adbc_ingest("visits", TABLE.slice(0, 1), mode="append")
    with cursor(gateway) as asked:
        assert asked.execute("SELECT count(*) FROM visits").fetchone() == (ROWS,)


def test_wrong_parameters_are_refused_with_a_hint(gateway: Gateway) -> None:
    with cursor(gateway) as asked:
        with pytest.raises(Exception, match="it takes 1 in a list"):
            asked.execute("SELECT id FROM visits WHERE id = ?", (1, 2))
        with pytest.raises(Exception, match="do not fit the query"):
            asked.execute("SELECT id FROM visits WHERE id = ?")
