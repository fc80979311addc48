# ruff: noqa: S608 - SQL is what is tested here
"""All 22 TPC-H queries: what DuckDB makes of the fetched rows is what it makes of the whole tables."""

from pathlib import Path

import duckdb
import pytest
from sql_tables import Loaded, catalog_of, evaluate, fetched
from tpch_tables import generate, tpch_tables

from scumble.sql import AggregateQuery, RowQuery, prepare

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
    if isinstance(bound.query, AggregateQuery):
        assert path.stem in ("q01", "q06")
        (access,) = bound.accesses
        loaded = tables[bound.query.table.name]
        kept = fetched(access, loaded)
        assert len(set(kept)) == len(kept)
        fill_kept(connection, "kept", loaded, kept)
        # DuckDB aggregates what the enclave would, then runs the final SQL over the groups.
        groups = bound.query.groups_sql.replace("FROM lineitem", "FROM kept")
        connection.execute(f"CREATE OR REPLACE TABLE __groups AS {groups}")
        assert connection.execute(bound.query.final_sql).fetchall() == expected
        return
    assert isinstance(bound.query, RowQuery)
    assert path.stem not in ("q01", "q06")
    for fetch, access in zip(bound.query.fetches, bound.accesses, strict=True):
        loaded = tables[fetch.table.name]
        kept = fetched(access, loaded)
        assert len(set(kept)) == len(kept)
        fill_kept(connection, fetch.name, loaded, kept, fetch.columns)
    assert connection.execute(bound.query.final_sql).fetchall() == expected


def fill_kept(
    connection: duckdb.DuckDBPyConnection, name: str, loaded: Loaded, kept: list[int], columns: tuple[int, ...] = ()
) -> None:
    """Only the rows and the columns that were asked for."""
    schema = loaded.table.schema
    columns = columns or tuple(range(len(schema)))
    names = ", ".join(schema.columns[place].name for place in columns)
    table = loaded.table.name
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE numbered AS SELECT row_number() OVER () - 1 AS n__, * FROM {table}"
    )
    connection.execute("CREATE OR REPLACE TEMP TABLE picked (k__ BIGINT)")
    connection.execute("INSERT INTO picked SELECT unnest($1::BIGINT[])", [kept])
    connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT {names} FROM numbered, picked WHERE n__ = k__")


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
