"""All 22 TPC-H queries: what DuckDB makes of the fetched rows is what it makes of the whole tables."""

from pathlib import Path

import duckdb
import pytest
from sql_tables import Loaded, catalog_of, evaluate, finished
from tpch_tables import generate, tpch_tables

from scumble.sql import AggregateQuery, prepare

QUERIES = sorted((Path(__file__).parent / "tpch").glob("q*.sql"))
Tpch = tuple[dict[str, Loaded], duckdb.DuckDBPyConnection]


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> Tpch:
    folder = tmp_path_factory.mktemp("tpch")
    generate(folder)
    tables = tpch_tables(folder)
    connection = duckdb.connect()
    for path in folder.glob("*.parquet"):
        connection.execute(f"CREATE TABLE {path.stem} AS FROM '{path}'")
    return tables, connection


def test_there_are_22() -> None:
    assert len(QUERIES) == 22


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_the_rows_fetched_give_the_same_answer(path: Path, tpch: Tpch) -> None:
    tables, connection = tpch
    sql = path.read_text()
    bound = prepare(sql, catalog_of(*tables.values()), evaluate).bind()
    expected = connection.execute(sql).fetchall()
    assert isinstance(bound.query, AggregateQuery) is (path.stem in ("q01", "q06"))
    assert finished(connection, bound, tables).fetchall() == expected


def test_q1_and_q6_run_in_the_enclave(tpch: Tpch) -> None:
    tables, _ = tpch
    catalog = catalog_of(*tables.values())
    q1, q6 = (prepare(QUERIES[n].read_text(), catalog, evaluate) for n in (0, 5))
    assert isinstance(q1.query, AggregateQuery)
    assert isinstance(q6.query, AggregateQuery)
    assert q6.query.direct == (0,)
    assert len(q1.query.aggregates.group_by) == 2
    (access,) = q6.bind().accesses
    assert access.attributes == ("l_shipdate",)
    assert access.pages < sum(run.pages for run in access.paths.paths[0].runs) / 3
