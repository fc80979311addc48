"""What is public of a table is declared: one row more, or another one, never changes its catalog or its pages.

Every case is a column and the same column with one value changed, given in every kind of source that can hold them.
The load of either may be refused on the owner's side; what is loaded has one catalog.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import scumble
from scumble.errors import BadRows, Exists, InvalidParameter, ScumbleError
from scumble.owner.indexes import IndexSpec
from scumble.owner.load_target import open_rows
from scumble.owner.loading import LoadOptions
from scumble.wire.catalog import Catalog

EMPTY = Catalog("00" * 16, 1, "", ())
DAYS = [date(2020, 1, 1 + n) for n in range(8)]
CASES: dict[str, tuple[list[Any], list[Any], str]] = {
    "n/a among integers": ([*range(8)], [*range(7), "n/a"], "bigint"),
    "a fraction among integers": ([*range(8)], [*range(7), 12.5], "bigint"),
    "a large one among integers": ([*range(8)], [*range(7), 2**63], "bigint"),
    "a null among integers": ([*range(8)], [*range(7), None], "bigint"),
    "a timestamp among dates": (DAYS, [*DAYS[:7], datetime(2020, 1, 8, 10, 30)], "date"),
    "a value among nulls": ([None] * 8, [*[None] * 7, 17], "bigint"),
    "a longer text": (["a"] * 8, [*["a"] * 7, "a" * 200], "text(8)"),
    "a null among texts": (["a"] * 8, [*["a"] * 7, None], "text(8)"),
    "one more category": (["a", "b"] * 4, [*["a", "b"] * 3, "a", "c"], 'category(["a","b"])'),
    "a null among booleans": ([True] * 8, [*[True] * 7, None], "boolean"),
    "a longer decimal": ([Decimal("1.5")] * 8, [*[Decimal("1.5")] * 7, Decimal("1234.567")], "decimal(9,2)"),
    "another zone": (
        [datetime(2020, 1, 1, tzinfo=UTC)] * 8,
        [datetime.fromisoformat("2020-01-01T00:00:00+05:00"), *[datetime(2020, 1, 1, tzinfo=UTC)] * 7],
        "timestamptz",
    ),
}


def write_csv(path: Path, values: list[Any]) -> Path:
    cells = ("" if value is None else f"{value}" for value in values)
    path.write_text("k,x\n" + "".join(f"{k},{cell}\n" for k, cell in enumerate(cells)))
    return path


def frame(values: list[Any]) -> pd.DataFrame:
    return pd.DataFrame({"k": pd.array(range(len(values)), dtype="Int64"), "x": values})


class Subclass(pd.DataFrame):  # type: ignore[misc]
    """As GeoPandas has one: by its type's name it is no frame of pandas'."""


def written(write: Callable[[Path], object], path: Path) -> Path:
    write(path)
    return path


CONNECTION = duckdb.connect()


def relation(path: Path, values: list[Any]) -> Any:
    return CONNECTION.cursor().read_csv(str(write_csv(path / "t.csv", values)))


def through_duckdb(path: Path, values: list[Any], query: str) -> tuple[Any, dict[str, Any]]:
    write_csv(path / "t.csv", values)
    (path / "t.json").write_text("".join(json.dumps({"k": k, "x": str(v)}) + "\n" for k, v in enumerate(values)))
    with duckdb.connect(str(path / "t.duckdb")) as connection:
        connection.execute(f"CREATE VIEW sniffed AS SELECT * FROM read_csv('{path / 't.csv'}')")  # noqa: S608
    return path / "t.duckdb", {"query": query.format(path=path)}


# What each makes of a list of values; some cannot hold some of the cases, which is as good as a refusal.
SOURCES: dict[str, Callable[[Path, list[Any]], Any]] = {
    "csv": lambda path, values: write_csv(path / "t.csv", values),
    "pandas": lambda path, values: frame(values),
    "a subclass of pandas": lambda path, values: Subclass(frame(values)),
    "pandas, categories": lambda path, values: frame(values).astype({"x": "category"}),
    "pandas, read from csv": lambda path, values: pd.read_csv(write_csv(path / "t.csv", values)),
    "pandas, by itself nullable": lambda path, values: frame(values).astype({"x": "Int64"}),
    "parquet by pandas": lambda path, values: written(frame(values).to_parquet, path / "t.parquet"),
    "feather by pandas": lambda path, values: written(frame(values).to_feather, path / "t.feather"),
    "arrow from pandas": lambda path, values: pa.Table.from_pandas(frame(values)),
    "a stream from pandas": lambda path, values: pa.Table.from_pandas(frame(values)).to_reader(),
    "lazy polars over csv": lambda path, values: pl.scan_csv(write_csv(path / "t.csv", values)),
    "a DuckDB relation over csv": relation,
    "a DuckDB relation over pandas": lambda path, values: CONNECTION.cursor().from_df(frame(values)),
    "read_csv": lambda path, values: through_duckdb(path, values, "FROM read_csv('{path}/t.csv')"),
    "read_csv of no rows": lambda path, values: through_duckdb(
        path, values, "SELECT * FROM '{path}/t.csv' WHERE 1 = 0 LIMIT 0"
    ),
    "read_json": lambda path, values: through_duckdb(path, values, "FROM read_json('{path}/t.json')"),
    "a view on read_csv": lambda path, values: through_duckdb(path, values, "FROM sniffed"),
    "a pivot": lambda path, values: through_duckdb(path, values, "PIVOT sniffed ON x USING count(*) GROUP BY k"),
}


READ_ONCE = ("a stream from pandas", "a DuckDB relation over csv", "a DuckDB relation over pandas")


def catalogs_of(path: Path, source: str, values: list[Any], declarations: list[dict[str, str]]) -> Iterator[str | None]:
    """The public schema under each declaration, with the width of every column's pages; None if it is refused."""
    path.mkdir()
    made: Any = None
    for types in declarations:
        try:
            if made is None or source in READ_ONCE:
                made = SOURCES[source](path, values)
        except Exception:  # pandas, pyarrow or polars cannot make a table of such values
            yield None
            continue
        given, more = made if isinstance(made, tuple) else (made, {})
        try:
            _, table = open_rows(EMPTY, "t", given, [], LoadOptions(types=types, **more))
        except ScumbleError:
            yield None
            continue
        shown = table.to_json()
        yield json.dumps([shown["schema"], shown["row_bits"]])


AS_READ_CSV = ("read_csv of no rows", "a view on read_csv", "a pivot")
"""What DuckDB reads as `read_csv` does, from the same file: `make test` tries one case of each."""
PAIRS = [
    pytest.param(source, case, marks=[pytest.mark.slow] * (source in AS_READ_CSV and case != "n/a among integers"))
    for source in SOURCES
    for case in CASES
]


@pytest.mark.parametrize(("source", "case"), PAIRS)
def test_one_row_does_not_change_the_catalog(tmp_path: Path, source: str, case: str) -> None:
    one, other, declared = CASES[case]
    declarations: list[dict[str, str]] = [{}, {"k": "bigint"}, {"k": "bigint", "x": declared}]
    befores = catalogs_of(tmp_path / "one", source, one, declarations)
    afters = catalogs_of(tmp_path / "other", source, other, declarations)
    for before, after in zip(befores, afters, strict=True):
        assert None in (before, after) or before == after


@pytest.mark.parametrize("source", [name for name in SOURCES if name != "a pivot"])
def test_what_is_declared_is_loaded(tmp_path: Path, source: str) -> None:
    """The test above would hold as well if everything were refused."""
    types = {"k": "bigint", "x": "text(9)" if source == "read_json" else "integer not null"}
    (found,) = catalogs_of(tmp_path / "t", source, [1, 2, 3], [types])
    assert found is not None
    assert f'"nullable": {"true" if source == "read_json" else "false"}' in found


SAME: dict[str, Callable[[list[Any]], Any]] = {
    "nullable integers": lambda values: pd.DataFrame({"x": pd.array(values, dtype="Int32")}),
    "pandas over Arrow": lambda values: pd.DataFrame({"x": pd.array(values, dtype=pd.ArrowDtype(pa.int32()))}),
    "arrow": lambda values: pa.table({"x": pa.array(values, pa.int32())}),
    "polars": lambda values: pl.DataFrame({"x": pl.Series(values, dtype=pl.Int32)}),
    "lazy polars": lambda values: pl.DataFrame({"x": pl.Series(values, dtype=pl.Int32)}).lazy(),
    "a relation": lambda values: duckdb.connect().from_arrow(pa.table({"x": pa.array(values, pa.int32())})),
}


@pytest.mark.parametrize("kind", SAME)
def test_types_of_a_sources_own_are_taken_at_their_word(kind: str) -> None:
    for values in ([1, 2], [1, None], [None, None], []):
        _, table = open_rows(EMPTY, "t", SAME[kind](values), [], LoadOptions())
        assert [(column.declaration, column.nullable) for column in table.schema] == [("integer", True)]


def test_whether_nulls_may_occur_is_declared_and_not_seen() -> None:
    fields = [pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.int32())]
    table = pa.table({"x": [1], "y": [2]}, schema=pa.schema(fields))
    _, made = open_rows(EMPTY, "t", table, [], LoadOptions())
    assert [column.declaration for column in made.schema] == ["integer not null", "integer"]


@pytest.mark.parametrize(
    "column",
    [pa.array(["a", "b"]).dictionary_encode(), pd.Categorical(["a", "b"]), pl.Series(["a", "b"], dtype=pl.Categorical)],
    ids=["arrow", "pandas", "polars"],
)
def test_a_dictionary_is_no_list_of_categories(column: Any) -> None:
    """Its values are those of the rows; the list of a category comes from the owner."""
    kind = type(column).__module__.partition(".")[0]
    made = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[kind]({"x": column})
    types = {"x": "text(64)"} if kind == "pandas" else {}
    _, table = open_rows(EMPTY, "t", made, [], LoadOptions(types=types))
    assert [column.declaration for column in table.schema] == ["text(64)"]
    _, table = open_rows(EMPTY, "t", made, [IndexSpec.parse('x category:["a","b","c"] epsilon=1')], LoadOptions())
    assert [column.type.group_values for column in table.schema] == [("a", "b", "c")]


def test_an_index_declares_the_type_of_its_column(tmp_path: Path) -> None:
    index = IndexSpec.parse("X decimal:0:100:0.01 epsilon=1")
    for source in (write_csv(tmp_path / "t.csv", [1.5, None]), frame([1.5, None])):
        _, table = open_rows(EMPTY, "t", source, [index], LoadOptions(types={"k": "bigint", "x": "not null"}))
        assert [column.declaration for column in table.schema] == ["bigint", "decimal(5,2) not null"]


def test_the_columns_without_a_type_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"no type is declared for 'x'") as refusal:
        open_rows(EMPTY, "t", write_csv(tmp_path / "t.csv", [1]), [], LoadOptions(types={"K": "bigint"}))
    for way in ("--type", "types=", "scumble suggest FILE", "--schema", "--types-from-data"):
        assert way in str(refusal.value.hint)
    wide = pd.DataFrame({f"c{n}": [n] for n in range(30)})
    with pytest.raises(InvalidParameter, match=r"'c19', \.\.\., and"):
        open_rows(EMPTY, "t", wide, [], LoadOptions())


# --- in a database -------------------------------------------------------------------------------------

TYPES = {"k": "bigint", "x": "text(20)"}


def sizes(home: Path, source: Any, **options: Any) -> tuple[Any, list[int]]:
    """Load into a new database: the public schema, and the sizes of all page files."""
    with scumble.create(home, limit=1) as db:
        db.load("t", source, capacity=64, page_rows=16, **options)
        shown = db.table("t").to_json()
        return (shown["schema"], shown["row_bits"]), sorted(path.stat().st_size for path in home.rglob("*.pages"))


def test_pages_are_as_large_whatever_the_rows_are(tmp_path: Path) -> None:
    numbers, words = write_csv(tmp_path / "1.csv", [1, 2]), write_csv(tmp_path / "2.csv", [1, "n/a"])
    assert sizes(tmp_path / "a", numbers, types=TYPES) == sizes(tmp_path / "b", words, types=TYPES)


def test_a_table_that_is_there_declares_its_own_types(tmp_path: Path) -> None:
    strict = {"k": "bigint not null", "x": "integer"}
    with scumble.create(tmp_path / "db", limit=1) as db:

        def load(source: Any, **options: Any) -> None:
            db.load("t", source, capacity=16, page_rows=16, **options)

        load(write_csv(tmp_path / "t.csv", [1, None]), types=strict)
        before = db.table("t").schema
        load(write_csv(tmp_path / "t.csv", [2]))
        load(pd.DataFrame({"X": [3.0, None], "K": [1, 2]}))  # in another order, as floats
        load(pa.table({"k": pa.array([1], pa.int8()), "x": ["4"]}))
        load(write_csv(tmp_path / "t.csv", [5]), types={"x": "int"})
        load(write_csv(tmp_path / "t.csv", [6]), types_from_data=True)  # which has nothing to derive
        assert db.sql("SELECT sum(x), count(*), count(x) FROM t").fetchall() == [(21, 8, 6)]
        refusals: list[tuple[Any, dict[str, Any], type[ScumbleError], str, int | None]] = [
            (pd.DataFrame({"k": [1, 2], "x": [1, 2.5]}), {}, BadRows, "column 'x', row 2", 2),
            (
                pd.DataFrame({"k": [1, 2], "x": [1, "n/a"]}),
                {},
                BadRows,
                "column 'x', row 2: the value is no integer",
                2,
            ),
            (pd.DataFrame({"k": [1, None], "x": [1, 2]}), {}, BadRows, "column 'k', row 2: there is no value", 2),
            (write_csv(tmp_path / "n.csv", [1, "n/a"]), {}, BadRows, "n.csv, line 3, column 'x'", None),
            (pa.table({"k": [1], "x": [DAYS[0]]}), {}, BadRows, "column 'x' is declared integer, and date32", None),
            (pa.table({"k": [1], "y": [1]}), {}, Exists, "other columns than the table", None),
            (pa.table({"k": [1]}), {}, Exists, "other columns than the table", None),
            (pa.table({"k": [1], "x": [1]}), {"types": {"x": "bigint"}}, Exists, "declared otherwise", None),
            (pa.table({"k": [1], "x": [1]}), {"types": {"x": "not null"}}, Exists, "declared otherwise", None),
        ]
        for source, options, error, trouble, row in refusals:
            with pytest.raises(error, match=trouble) as refusal:
                load(source, **options)
            assert getattr(refusal.value, "row", None) == row
        assert db.table("t").schema == before
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(8,)]
        assert db.ledger.spent() == 0


def test_types_from_data_says_what_it_publishes(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", [1, 2, "MARKER_7319"])
    told = r"x text\(16\): row 3 cannot be bigint"
    with scumble.create(tmp_path / "db", limit=1) as db:
        with pytest.warns(scumble.PublishedFromData, match=told) as warned:
            db.load("t", path, capacity=16, page_rows=16, types_from_data=True, types={"k": "integer"})
        assert [column.declaration for column in db.table("t").schema] == ["integer", "text(16)"]
    assert "MARKER" not in str(warned[0].message)
    with pytest.raises(InvalidParameter, match="a stream can be read only once"):
        open_rows(EMPTY, "t", pa.table({"x": [1]}).to_reader(), [], LoadOptions(types_from_data=True))


def test_a_schema_file_declares_everything(tmp_path: Path) -> None:
    (tmp_path / "t.schema").write_text("x text(5)\nK bigint\n--index k int:0:99 epsilon=0.5\n")
    path = write_csv(tmp_path / "t.csv", ["a", "b"])
    with scumble.create(tmp_path / "db", limit=2) as db:
        report = db.load("t", path, capacity=16, page_rows=16, schema=tmp_path / "t.schema")
        assert report.indexes == ("K",)
        assert [column.name for column in db.table("t").schema] == ["x", "K"]
        assert db.sql("SELECT * FROM t ORDER BY k").fetchall() == [("a", 0), ("b", 1)]
        again = scumble.SchemaFile.read(tmp_path / "t.schema")
        db.load("t", path, capacity=16, page_rows=16, schema=again, again=True)
        more = pa.table({"k": [1], "x": ["a"], "y": [1]})
        with pytest.raises(InvalidParameter, match="the schema has no line for the column 'y'"):
            db.load("u", more, capacity=16, schema=tmp_path / "t.schema")
        with pytest.raises(InvalidParameter, match="no other types can be given"):
            db.load("u", path, capacity=16, schema=tmp_path / "t.schema", types={"k": "integer"})
