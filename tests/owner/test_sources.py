"""Every kind of source gives the same rows in bounded batches; what is broken is refused, by line or row, unseen."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from scumble.errors import BadQuery, BadRows, FileError, InvalidParameter, NotFound, ScumbleError
from scumble.owner.sources import Source, open_source
from scumble.owner.sources import postgres as postgres_source
from scumble.owner.sources.csv_source import _CsvFile
from scumble.owner.sources.files import _chosen
from scumble.owner.sources.guesses import guessed_by_pandas
from scumble.types import parse_domain, schema_of

MARKER = "MARKER_7319"
ROWS = 1000
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "price": pa.array([None if n % 10 == 3 else n / 4 for n in range(ROWS)], pa.float64()),
        "day": pa.array([date(2020, 1, 1) + timedelta(days=n) for n in range(ROWS)], pa.date32()),
        "at": pa.array([datetime(2020, 1, 1, n % 24, n % 60) for n in range(ROWS)], pa.timestamp("us")),
        "name": pa.array([f"name {n}" for n in range(ROWS)], pa.string()),
    }
)


def read(source: Source, most_rows: int = 1 << 30) -> Any:
    batches = list(source)
    assert all(0 < len(batch) <= most_rows for batch in batches)
    assert all(batch.schema == source.schema for batch in batches)
    return pa.Table.from_batches(batches, source.schema)


def assert_same(source: Source, most_rows: int = 100) -> None:
    table = read(source, most_rows)
    assert source.rows in (None, ROWS)
    assert table.cast(TABLE.schema).to_pylist() == TABLE.to_pylist()


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.fixture
def files(tmp_path: Path) -> Path:

    pa.csv.write_csv(TABLE, tmp_path / "t.csv")
    pa.csv.write_csv(TABLE, tmp_path / "t.tsv", pa.csv.WriteOptions(delimiter="\t"))
    pa.parquet.write_table(TABLE, tmp_path / "t.parquet", row_group_size=300)
    with pa.ipc.new_file(tmp_path / "t.arrow", TABLE.schema) as file:
        file.write_table(TABLE, max_chunksize=333)
    with pa.ipc.new_stream(tmp_path / "t.feather", TABLE.schema) as stream:
        stream.write_table(TABLE)
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        connection.register("given", TABLE)
        connection.execute('CREATE TABLE "odd ""name" AS FROM given')
    return tmp_path


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.parquet", "t.arrow", "t.feather"])
def test_files(files: Path, name: str) -> None:
    assert_same(open_source(files / name, batch_rows=100))
    assert_same(open_source(str(files / name), batch_rows=100))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_memory_stays_bounded(tmp_path: Path, suffix: str) -> None:
    """What pyarrow holds at any time is some batches, or blocks of the file, and not the table."""
    table = pa.table({f"c{n}": np.random.default_rng(n).integers(0, 2**62, 1_000_000) for n in range(8)})
    path = tmp_path / f"t.{suffix}"
    if suffix == "csv":
        pa.csv.write_csv(table, path)
    else:
        pa.parquet.write_table(table, path, row_group_size=10_000)
    total = table.nbytes
    del table
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for batch in open_source(path, batch_rows=5_000)]
    assert len(held) >= 100
    assert max(held) < total * (0.75 if suffix == "csv" else 0.25)


def test_known_numbers_of_rows(files: Path) -> None:
    assert [open_source(files / f"t.{kind}").rows for kind in ("parquet", "arrow", "csv")] == [ROWS, ROWS, None]


@pytest.mark.parametrize(
    "make",
    [
        lambda: TABLE,
        lambda: TABLE.combine_chunks().to_batches()[0],
        TABLE.to_reader,
        lambda: pa.chunked_array([TABLE.to_struct_array().combine_chunks()]),
        TABLE.to_pandas,
        lambda: TABLE.to_pandas().set_index("name", drop=False),
        lambda: pl.from_arrow(TABLE),
        lambda: pl.DataFrame(pl.from_arrow(TABLE)).lazy(),
        lambda: duckdb.from_arrow(TABLE),
    ],
    ids=["table", "batch", "reader", "stream", "pandas", "pandas with index", "polars", "lazy polars", "duckdb"],
)
def test_objects(make: Any) -> None:
    assert_same(open_source(make(), batch_rows=100))


def test_duckdb_queries(files: Path) -> None:
    path = files / "t.duckdb"
    assert_same(open_source(f"duckdb://{path}", query='SELECT * FROM "odd ""name" ORDER BY id;', batch_rows=100))
    assert_same(open_source(path, table='odd "name', batch_rows=100))
    assert open_source(path, query="SELECT 1::DECIMAL(12,2) AS x").schema.field("x").type == pa.decimal128(12, 2)
    with pytest.raises(BadQuery, match="DuckDB refuses the query"):
        open_source(path, query="SELEC 1")
    with pytest.raises(ScumbleError, match="query"):
        open_source(path, query="CREATE TABLE t (x INT)")
    with pytest.raises(InvalidParameter, match="either a query or a table"):
        open_source(path)
    with pytest.raises(FileError, match="there is no file"):
        open_source("duckdb://nowhere.duckdb", table="t")
    with pytest.raises(FileError, match="cannot be opened"):
        open_source(write(files / "no.duckdb", "x" * 5000), table="t")
    broken = f"SELECT CASE WHEN i = 5000 THEN '{MARKER}' ELSE '1' END::INT AS x FROM range(9999) t(i)"  # noqa: S608
    with pytest.raises(BadRows) as refusal:
        read(open_source(path, query=broken))
    assert MARKER not in str(refusal.value)


@pytest.mark.parametrize("query", ["SELEC 1", "CREATE TABLE made (x INT)", "-- nothing"])
def test_a_refused_query_has_changed_nothing_and_left_nothing_open(files: Path, query: str) -> None:
    path = files / "t.duckdb"
    with pytest.raises(ScumbleError) as refusal:
        open_source(path, query=query)
    assert refusal.value.__traceback__ is not None  # whose frames would keep a connection
    with duckdb.connect(str(path)) as writing:  # which DuckDB refuses beside one that only reads
        assert writing.execute("SELECT count(*) FROM duckdb_tables()").fetchone() == (1,)


@pytest.mark.parametrize(("columns", "end"), [(2, "'c0', 'c1'"), (1000, ", ...")])
def test_a_column_that_a_file_has_not_is_told_with_some_that_it_has(columns: int, end: str) -> None:
    names = [f"c{number}" for number in range(columns)]
    assert _chosen(Path("f"), None, names) is None
    assert _chosen(Path("f"), "c1", names) == ["c1"]
    for wrong, given in (("no column", "x"), ("more than one column", "c0")):
        with pytest.raises(InvalidParameter, match=wrong) as caught:
            _chosen(Path("f"), given, [*names, "c0"] if given == "c0" else names)
        assert caught.value.hint is not None
        assert caught.value.hint.endswith(end) or given == "c0"


def test_a_column_of_pandas_goes_by_its_field_s_name_or_else_its_own() -> None:
    columns = [
        {"name": "a", "field_name": "b", "numpy_type": "int64"},
        {"name": "c", "field_name": None, "numpy_type": "float64"},
        {"name": "d", "numpy_type": "Int64"},
    ]
    note = {b"pandas": json.dumps({"columns": columns}).encode()}
    schema = pa.schema([(name, pa.int64()) for name in "abcd"])
    assert guessed_by_pandas(schema.with_metadata(note)) == {"b", "c"}
    assert guessed_by_pandas(schema) == frozenset()
    assert guessed_by_pandas(schema.with_metadata({b"pandas": b"["})) == {*"abcd"}


def test_the_numbers_of_postgres_s_types_are_those_that_its_driver_knows() -> None:
    types = pytest.importorskip("psycopg.postgres").types
    names = {"bool": "bool_", "int8": "int64", "int2": "int16", "int4": "int32", "oid": "uint32", "float4": "float32"}
    names |= {"float8": "float64", "date": "date32"}
    names |= dict.fromkeys(["char", "name", "text", "bpchar", "varchar", "uuid"], "string")
    oids = {18 if name == "char" else types[name].oid: arrow for name, arrow in names.items()}
    assert oids == postgres_source._TYPES
    assert (types["numeric"].oid, types["uuid"].oid) == (postgres_source._NUMERIC, postgres_source._UUID)


def test_empty_tables(tmp_path: Path) -> None:
    empty = TABLE.slice(0, 0)
    pa.parquet.write_table(empty, tmp_path / "t.parquet")
    with pa.ipc.new_file(tmp_path / "t.arrow", TABLE.schema) as file:
        file.write_table(empty)
    given: list[Any] = [empty, empty.to_pandas(), pl.from_arrow(empty), tmp_path / "t.parquet", tmp_path / "t.arrow"]
    for source in given:
        assert len(read(open_source(source))) == 0
    for head in ("id,price", "id,price\n", "id,price\r\n\n"):
        source = open_source(write(tmp_path / "t.csv", head), types={"id": "bigint", "price": "decimal(9,2)"})
        assert source.schema == pa.schema([("id", pa.int64()), ("price", pa.decimal128(9, 2))])
        assert list(source) == []
    with pytest.raises(InvalidParameter, match="no type is declared for 'id'"):
        open_source(write(tmp_path / "t.csv", "id\n")).declared({}, {})
    with pytest.raises(FileError, match="is empty"):
        open_source(write(tmp_path / "t.csv", ""))


def test_csv_types(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.csv",
        "i,f,d,t,b,s,zip,price,empty\n"
        '1,1.5,2020-01-01,2020-01-01 10:00:00,true,,02139,12.50,\n2,2,2020-01-02,2020-01-01T10:00:00.5,false,"",1,3,\n',
    )
    types = {"i": "integer", "f": "double", "d": "date", "t": "timestamp", "b": "boolean", "s": "text(9)"}
    types |= {"ZIP": "text(5) not null", "empty": "date"}
    domains = {"price": parse_domain("decimal:0:100:0.01")}
    source = open_source(path, types=types, domains=domains)
    assert [str(field.type) for field in source.schema] == [
        *["int32", "double", "date32[day]", "timestamp[us]", "bool", "string", "string", "decimal128(5, 2)"],
        "date32[day]",
    ]
    assert [column.declaration for column in source.declared(types, domains)] == [
        *["integer", "double", "date", "timestamp", "boolean", "text(9)", "text(5) not null", "decimal(5,2)", "date"]
    ]
    rows = read(source).to_pylist()
    assert [row["s"] for row in rows] == [None, ""]
    assert [row["zip"] for row in rows] == ["02139", "1"]
    assert [row["price"] for row in rows] == [Decimal("12.50"), Decimal("3.00")]
    assert rows[1]["t"] == datetime(2020, 1, 1, 10, 0, 0, 500_000)
    with pytest.raises(NotFound, match="no column 'x'"):
        open_source(path, types={"x": "date"})


MANY = "".join(f"{n},x\n" for n in range(600_000))  # more than one block of the file


@pytest.mark.parametrize(
    ("text", "types", "line", "trouble"),
    [
        (f"a,b\n1,x\n2,{MARKER},3\n", {}, 3, "3 cells where the first line has 2"),
        (f'a,b\n1,"x\ny"\n\n2,{MARKER},3\n', {}, 5, "3 cells where the first line has 2"),
        (f"a,b\n{MANY}{MARKER},y\n", {"a": "bigint"}, 600_002, "column 'a': the cell is no int64"),
        (f'a,b\n1,"x\n\ny"\n{MANY}{MARKER},y\n', {"a": "bigint"}, 600_005, "column 'a': the cell is no int64"),
        (f"a,b\n{MANY}1,2,{MARKER}\n", {}, 600_002, "3 cells where the first line has 2"),
        (f"a,b\n1,x\n{MARKER},x\n", {"a": "integer"}, 3, "column 'a': the cell is no int32"),
        ("a,b\n1,x\n7319.001,x\n", {"a": "decimal(9,2)"}, 3, "column 'a': the cell is no value of the column's type"),
        (b"a,b\n1,x\n2,7319\xff\n", {}, 3, "column 'b': the cell is not valid UTF-8"),
        ("a,b\n2020-12-01,x\n2020-13-01,x\n", {"a": "date"}, 3, "column 'a': the cell is no date32"),
        ("a,b\n1,x\n7319,x\n", {"a": "tinyint"}, 3, "column 'a': the cell is no int8"),
    ],
)
def test_broken_lines(tmp_path: Path, text: str | bytes, types: dict[str, str], line: int, trouble: str) -> None:
    path = write(tmp_path / "t.csv", text)
    with pytest.raises(BadRows) as refusal:
        read(open_source(path, types=types))
    assert f"t.csv, line {line}" in str(refusal.value)
    assert trouble in str(refusal.value)
    assert refusal.value.hint
    assert "7319" not in str(refusal.value)
    assert refusal.value.__context__ is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("CSV parse error: Expected 2 columns, got 3: 7319", "t.csv: 3 cells where the first line has 2"),
        ("CSV parse error: Row #3: Expected 2 columns, got 1: 7319", "t.csv, line 4: 1 cells where"),
        ("CSV parse error: Row #9: Expected 2 columns, got 1: 7319", "t.csv, row 8: 1 cells where"),
        ("In CSV column #0: CSV conversion error to int32: '7319'", "t.csv, column 'a': the cell is no int32"),
        (
            "In CSV column #1: Row #2: CSV conversion error to int32: '7319'",
            "t.csv, line 2, column 'b': the cell is no",
        ),
        ("In CSV column #2: Row #2: CSV conversion error to int32: '7319'", "t.csv, line 2: the cell is no int32"),
        ("In CSV column #1: invalid UTF8 data 7319", "t.csv, column 'b': the cell is not valid UTF-8"),
        ("In CSV column #1: 7319", "t.csv, column 'b': the cell is no value of the column's type"),
        ("straddling object straddles 7319", "t.csv: a row is longer than 4 MiB"),
        ("7319", "t.csv cannot be read as csv"),
    ],
)
def test_pyarrow_s_errors_are_told_without_what_they_quote(tmp_path: Path, text: str, told: str) -> None:
    file = _CsvFile(write(tmp_path / "t.csv", "a,b\n1,2\n\n3,4\n"), ",", None)
    assert file.head() == (["a", "b"], True)
    shown = str(file._explained(pa.ArrowInvalid(text)))
    assert told in shown
    assert "7319" not in shown


def test_quotes_that_are_never_closed(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", f'a,b\n1,"{MARKER}\n2,y\n')
    with pytest.raises(BadRows, match="never closed") as refusal:
        read(open_source(path))
    assert MARKER not in str(refusal.value)
    path = write(tmp_path / "t.csv", 'a,b\n1,"x\n' + "2,yyyyyyyyyy\n" * 1_000_000)
    with pytest.raises(BadRows, match="longer than 4 MiB"):
        read(open_source(path))


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    refusals: list[tuple[type[ScumbleError], str, object, dict[str, Any]]] = [
        (FileError, "No such file", tmp_path / "no.csv", {}),
        (FileError, "directory", tmp_path / "folder.csv", {}),
        (InvalidParameter, "not a kind of file that can be loaded", tmp_path / "t.xlsx", {}),
        (InvalidParameter, "only a database", tmp_path / "t.csv", {"query": "SELECT 1"}),
        (InvalidParameter, "only a database", TABLE, {"table": "t"}),
        (InvalidParameter, "a list cannot be loaded", [1, 2], {}),
        (InvalidParameter, "at least one row", TABLE, {"batch_rows": 0}),
    ]
    for error, text, source, more in refusals:
        with pytest.raises(error, match=text):
            open_source(source, **more)


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "feather"])
def test_broken_files(files: Path, suffix: str) -> None:
    whole = (files / f"t.{suffix}").read_bytes()
    for text in (b"", b"no such file", whole[: len(whole) // 2]):
        with pytest.raises(FileError, match="is not a whole"):
            read(open_source(write(files / f"broken.{suffix}", text)))


def test_frames_of_mixed_objects() -> None:
    for frame in (pd.DataFrame({"a": [1, MARKER]}, dtype=object), pd.DataFrame([[1, 2]], columns=["a", "a"])):
        with pytest.raises(BadRows) as refusal:
            read(open_source(frame))
        assert MARKER not in str(refusal.value)


def test_streams_that_break_off() -> None:
    def batches() -> Iterator[Any]:
        yield TABLE.to_batches()[0]
        raise pa.ArrowInvalid(MARKER)

    source = open_source(pa.RecordBatchReader.from_batches(TABLE.schema, batches()))
    with pytest.raises(BadRows, match="failed half-way") as refusal:
        read(source)
    assert MARKER not in str(refusal.value)


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    real = importlib.import_module

    def without(name: str, package: str | None = None) -> Any:
        if name == "psycopg":
            raise ImportError
        return real(name, package)

    monkeypatch.setattr("scumble.owner.sources.import_module", without)
    with pytest.raises(ScumbleError, match="PostgreSQL needs psycopg") as refusal:
        open_source("postgresql://localhost/x", table="t")
    assert refusal.value.hint == "pip install 'scumble[postgres]'"


# --- PostgreSQL: a real server, on a socket of its own ---


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found or shutil.which("runuser") is None:
        pytest.skip("no PostgreSQL server is installed under /usr/lib/postgresql")
    import os
    import tempfile

    as_user = ["runuser", "-u", "nobody", "--"] if os.geteuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="scumble-pg-", dir="/tmp"))
    if as_user:
        shutil.chown(folder, "nobody")
    binary = found[-1].parent

    def run(*words: str | Path) -> None:
        subprocess.run([*as_user, *map(str, words)], check=True, capture_output=True, cwd="/", timeout=120)

    data, log = folder / "data", folder / "log"
    options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
    run(binary / "initdb", "-D", data, "-U", "scumble", "-A", "trust", "--locale=C.UTF-8", "-E", "UTF8")
    run(binary / "pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "start")
    try:
        yield f"postgresql://scumble:secret-password@/postgres?host={folder}"
    finally:
        run(binary / "pg_ctl", "-D", data, "-m", "immediate", "stop")
        time.sleep(0.1)
        shutil.rmtree(folder, ignore_errors=True)


def test_postgres_rows(postgres: str) -> None:
    query = """SELECT n::int8 AS id, CASE WHEN n % 10 = 3 THEN NULL ELSE n / 4.0::float8 END AS price,
        date '2020-01-01' + n AS day, timestamp '2020-01-01' + make_interval(hours => n % 24, mins => n % 60) AS at,
        'name ' || n AS name FROM generate_series(0, 999) t(n) ORDER BY n"""
    assert_same(open_source(postgres, query=query, batch_rows=100))


def test_postgres_types(postgres: str) -> None:
    query = """SELECT 1::int2 AS a, 2::int4 AS b, true AS c, 1.5::float4 AS d, 12.5::numeric(12,2) AS e,
        'x'::varchar(9) AS f,
        time '10:00:01.5' AS g, timestamptz '2020-01-01 00:00:00+01' AS h, 7.25::numeric AS i, NULL::text AS j,
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid AS k"""
    source = open_source(postgres, query=query, types={"I": "decimal(9,2)"})
    assert [str(kind) for kind in source.schema.types] == [
        *["int16", "int32", "bool", "float", "decimal128(12, 2)", "string", "time64[us]", "timestamp[us, tz=UTC]"],
        *["decimal128(9, 2)", "string", "string"],
    ]
    (row,) = read(source).to_pylist()
    assert row["e"] == Decimal("12.50")
    assert str(row["h"]) == "2019-12-31 23:00:00+00:00"
    assert row["i"] == Decimal("7.25")
    schema_of(source.schema)


def test_postgres_refusals(postgres: str) -> None:
    for query, error in {
        "SELEC 1": BadQuery,
        "SELECT * FROM nowhere": BadQuery,
        "SELECT 1.5::numeric AS x": InvalidParameter,
        "SELECT '{}'::jsonb AS x": InvalidParameter,
        "CREATE TABLE t (x int)": BadQuery,
    }.items():
        with pytest.raises(error):
            open_source(postgres, query=query)
    broken = f"SELECT (CASE WHEN n = 5000 THEN '{MARKER}' ELSE '1' END)::int AS x FROM generate_series(1, 9999) t(n)"  # noqa: S608
    for query, types in {
        broken: {},
        "SELECT n::numeric + 0.7319 AS x FROM generate_series(1, 3) t(n)": {"x": "decimal(9,2)"},
        "SELECT 'infinity'::date AS x": {},
    }.items():
        with pytest.raises(BadRows) as refusal:
            read(open_source(postgres, query=query, types=types, batch_rows=1000))
        assert "7319" not in str(refusal.value)
    with pytest.raises(FileError, match="cannot connect") as unreachable:
        open_source("postgresql://me:secret-password@/postgres?host=/nowhere", table="t")
    assert "secret" not in str(unreachable.value)
    assert len(read(open_source(postgres, query="SELECT 1 AS x WHERE false"))) == 0
