# ruff: noqa: S608 - SQL is what is tested here
"""TPC-H at a small scale, from tpchgen-cli: the tables as the planner and as DuckDB see them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
from sql_tables import INTEGER, Loaded, category, column, load, text

from scumble.types import ColumnType, Schema, parse_type

CATEGORIES = {
    "l_returnflag", "l_linestatus", "l_shipmode", "l_shipinstruct", "o_orderpriority", "o_orderstatus", "c_mktsegment",
    "p_brand", "p_container", "p_mfgr", "n_name", "r_name",
}  # fmt: skip
INDEXES = {
    "lineitem": {"l_shipdate": "date:1992-01-01:1998-12-31", "l_orderkey": "int:0:65535"},
    "orders": {"o_orderdate": "date:1992-01-01:1998-12-31", "o_orderkey": "int:0:65535"},
    "customer": {"c_custkey": "int:0:65535"},
    "part": {"p_size": "int:0:63"},
}


def generate(folder: Path, scale: str = "0.002") -> None:
    program = Path(sys.executable).parent / "tpchgen-cli"
    subprocess.run([program, "parquet", "-s", scale, f"--output-dir={folder}"], check=True, capture_output=True)


def tpch_tables(folder: Path) -> dict[str, Loaded]:
    connection = duckdb.connect()
    return {path.stem: _loaded(connection, path) for path in sorted(folder.glob("*.parquet"))}


def _loaded(connection: duckdb.DuckDBPyConnection, path: Path) -> Loaded:
    result = connection.execute(f"SELECT * FROM '{path}'")
    names = [(field[0], str(field[1])) for field in result.description or []]
    rows = result.fetchall()
    columns = [
        column(name, _type(name, sql, [row[place] for row in rows]), False) for place, (name, sql) in enumerate(names)
    ]
    return load(path.stem, Schema(tuple(columns)), rows, INDEXES.get(path.stem, {}), page_rows=64)


def _type(name: str, sql: str, values: list[Any]) -> ColumnType:
    if name in CATEGORIES:
        return category(*set(values))
    match sql.partition("(")[0]:
        case "VARCHAR":
            return text(max(len(value.encode()) for value in values))
        case "DATE":
            return parse_type("date")
        case "DECIMAL":
            return parse_type(sql)
        case "INTEGER":
            return INTEGER
    return parse_type("bigint")
