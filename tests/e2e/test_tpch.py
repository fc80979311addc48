"""TPC-H at scale factor 0.01: the answers to all 22 queries are DuckDB's, and queries 1 and 6 fetch no row."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from databases import events
from e2e_answers import Plain, unlike

from scumble import opening
from scumble.owner.database import Database
from scumble.sql import AggregateQuery, RowQuery

QUERIES = sorted((Path(__file__).parents[1] / "sql" / "tpch").glob("q*.sql"))
IN_THE_ENCLAVE = ("q01", "q06")
DAYS = "date:1992-01-01:1998-12-31"
INDEXES = {
    "lineitem": [f"l_shipdate {DAYS}", f"l_receiptdate {DAYS}", "l_orderkey int:0:65535"],
    "orders": [f"o_orderdate {DAYS}", "o_orderkey int:0:65535"],
    "customer": ["c_custkey int:0:2047", "c_acctbal decimal:-1000:10000:0.01"],
    "part": ["p_size int:0:63", "p_partkey int:0:2047"],
    "partsupp": ["ps_partkey int:0:2047"],
    "supplier": ["s_suppkey int:0:127"],
}
CATEGORIES = {
    "l_returnflag", "l_linestatus", "l_shipmode", "l_shipinstruct", "o_orderpriority", "o_orderstatus", "c_mktsegment",
    "p_brand", "p_container", "p_mfgr", "p_type", "n_name", "r_name",
}  # fmt: skip
TEXT_BYTES = {
    "l_comment": 44, "o_comment": 79, "o_clerk": 15, "c_comment": 117, "c_name": 25, "c_address": 40, "c_phone": 15,
    "p_comment": 23, "p_name": 55, "ps_comment": 199, "s_comment": 101, "s_name": 25, "s_address": 40, "s_phone": 15,
    "n_comment": 152, "r_comment": 152,
}  # fmt: skip

Tpch = tuple[Database, Plain]


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tpch]:
    folder = tmp_path_factory.mktemp("tpch")
    program = Path(sys.executable).parent / "tpchgen-cli"
    subprocess.run([program, "parquet", "-s", "0.01", f"--output-dir={folder}"], check=True, capture_output=True)
    tables = {path.stem: pq.read_table(path) for path in sorted(folder.glob("*.parquet"))}
    with opening.create(folder / "db", limit=1000, delta_limit="0.01") as db:
        for name, table in tables.items():
            types = {column: f"text({size})" for column, size in TEXT_BYTES.items() if column in table.column_names}
            for column in CATEGORIES.intersection(table.column_names):
                listed = sorted(set(table[column].to_pylist()))
                types[column] = "category([" + ",".join(f'"{each}"' for each in listed) + "])"
            indexes = [f"{index} epsilon=1 beta=1e-9" for index in INDEXES.get(name, [])]
            report = db.load(name, folder / f"{name}.parquet", indexes=indexes, types=types, page_rows=256)
            assert report.rows == len(table) <= report.capacity
        yield db, Plain(tables)


def test_there_are_22() -> None:
    assert len(QUERIES) == 22


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_the_answer_is_right(path: Path, tpch: Tpch) -> None:
    db, plain = tpch
    sql = path.read_text()
    expected = plain.answer(sql)
    assert unlike(db.sql(sql).arrow(), expected, ordered="order by" in sql.lower()) is None
    if path.stem != "q17":  # an average over nothing at this scale
        assert len(expected) > 0


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_what_runs_where(path: Path, tpch: Tpch) -> None:
    db, _ = tpch
    explanation, query = db.explain(path.read_text()), db._statement(path.read_text()).query
    assert isinstance(query, AggregateQuery if path.stem in IN_THE_ENCLAVE else RowQuery)
    assert explanation.kind.startswith("aggregates" if path.stem in IN_THE_ENCLAVE else "rows")


@pytest.mark.parametrize("name", IN_THE_ENCLAVE)
def test_no_row_leaves_the_enclave(name: str, tpch: Tpch) -> None:
    """What comes back is as large as the states of the groups: far less than one byte for each row of the table."""
    db, _ = tpch
    sql = next(path for path in QUERIES if path.stem == name).read_text()
    db.sql(sql).arrow()
    before = events(db)[-1].number
    db.sql(sql).arrow()
    seen = [event for event in events(db) if event.number > before]
    (answer,) = [event for event in seen if event.kind == "answer"]
    assert int(answer["bytes"]) < 4096
    assert {event.kind for event in seen} == {"request", "read", "answer"}


def test_query_6_reads_a_part_of_the_table(tpch: Tpch) -> None:
    db, _ = tpch
    query = db._statement(QUERIES[5].read_text()).query
    assert isinstance(query, AggregateQuery)
    assert query.direct == (0,)
    (table,) = db.explain(QUERIES[5].read_text()).tables
    assert table.indexes == ["l_shipdate"]
    assert table.pages_read < table.pages_of_full_scan / 3
