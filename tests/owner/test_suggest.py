"""What is suggested loads, is readable as a schema file, says which rows force it, and shows none of their values."""

import csv
import string
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scumble import parse_domain, suggest
from scumble.errors import BadRows, InvalidParameter
from scumble.owner.encoding import encode_rows
from scumble.owner.load_target import open_rows
from scumble.owner.loading import LoadOptions
from scumble.owner.schema_file import SchemaFile
from scumble.owner.suggest.bounds import propose_domain, round_up
from scumble.wire.catalog import Catalog
from scumble.wire.requests import RowLayout

EMPTY = Catalog("00" * 16, 1, "", ())


def types_of(source: Any, **more: Any) -> dict[str, str]:
    return suggest(source, **more).file.types


def written(path: Path, **columns: list[Any]) -> Path:
    with path.open("w", newline="") as file:
        out = csv.writer(file, quoting=csv.QUOTE_MINIMAL)
        out.writerow(columns)
        out.writerows(zip(*columns.values(), strict=True))
    return path


@pytest.mark.parametrize(
    ("cells", "type_", "says"),
    [
        (["1", "-20", ""], "bigint", "no row holds anything but bigint"),
        (["1", "-20", "x"], "text(8)", "row 3 cannot be bigint, all others can; no text is longer than 8 bytes"),
        (["1", "2", "2.5"], "decimal(18,1)", "row 3 cannot be bigint, all others can; row 3 with 1 decimals"),
        (["1.5", "1e300", "2"], "double", "row 2 cannot be decimal, all others can"),
        (["1e999", "1.5", "2"], "double", ""),
        (["02139", "12345"], "text(8)", ""),
        (["9" * 19, "1", "2"], "double", "row 1 cannot be bigint"),
        (["true", "FALSE", ""], "boolean", "boolean"),
        (["2020-01-01", "2020-02-29"], "date", "no row holds anything but date"),
        (["2020-01-01", "2020-02-30", "2020-01-02"], "text(16)", "row 2 cannot be date"),
        (["2020-01-01", "2020-01-02T10:00", "2020-01-02"], "timestamp", "row 2 cannot be date"),
        (["2020-01-01 10:00:00.123456", ""], "timestamp", ""),
        (["2020-01-01 10:00:00.123456789", ""], "text(32)", ""),
        (["2020-01-01T10:00:00Z", "2020-01-01 10:00:00+01:00"], "timestamp with time zone", ""),
        (["2020-01-01T10:00:00Z", "2020-01-01 10:00:00"], "text(32)", ""),
        (["10:00", "23:59:59.5"], "time", ""),
        (["", ""], "text(64)", "no row has a value"),
        (["é" * 9, "a"], "text(32)", "row 1 longer than 16 bytes, none than 32"),
        (["a", "b"] * 40 + ["c"], 'category(["a", "b", "c"])', "the rarest is in 1 row"),
        ([f"n{n}" for n in range(50)], "text(8)", "no text is longer than 8 bytes"),
    ],
)
def test_what_cells_are_taken_for(tmp_path: Path, cells: list[str], type_: str, says: str) -> None:
    found = suggest(written(tmp_path / "t.csv", x=cells, y=["."] * len(cells))).columns[0]
    assert found.column.declaration == type_
    assert says in found.gives_away
    assert found.from_rows
    assert found.always_there == ("" not in cells)


CELLS = st.one_of(
    st.just(""),
    st.integers().map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    st.floats(allow_nan=False).map(repr),
    st.dates().map(str),
    st.datetimes().map(str),
    st.times().map(str),
    st.booleans().map(str),
    st.text(string.ascii_letters + '0123456789-:. +#,"é', max_size=20),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6), st.sampled_from([1, 40]))
def test_what_is_suggested_loads(tmp_path: Path, rows: list[tuple[str, str]], times: int) -> None:
    """Whatever the cells are, the schema file can be read, and all rows fit it."""
    path = written(
        tmp_path / "t.csv", a=[a for a, _ in rows] * times, b=[b for _, b in rows] * times, c=["."] * len(rows) * times
    )
    found = suggest(path)
    file = SchemaFile.parse(str(found))
    assert file == found.file
    source, table = open_rows(EMPTY, "t", path, [], LoadOptions(schema=file))
    layout = RowLayout(table.schema, ())
    assert sum(len(encode_rows(batch, layout, [])) for batch in source) == len(rows) * times
    for each in found.columns:  # and the indexes can be had
        if each.index is not None:
            parse_domain(each.index)


def test_a_proposed_domain_holds_every_key(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.csv",
        i=["-17", "1999", ""],
        d=["2009-12-31", "2031-01-01", ""],
        m=["-0.25", "12.5", "3"],
        f=["1e-7", "0.25", ""],
        t=["2009-12-31 23:59:59", "2010-01-01", ""],
    )
    found = {each.column.name: each for each in suggest(path).columns}
    assert {name: each.index for name, each in found.items()} == {
        "i": "int:-20:2000",
        "d": "date:2000-01-01:2039-12-31",
        "m": "decimal:-0.5:20:0.01",
        "f": "float:0:0.5:0.0001",
        "t": "timestamp:2000-01-01T00:00:00:2019-12-31T23:59:59:1h",
    }
    assert found["i"].index_gives_away == "row 1 below -10; row 2 above 1000"
    assert found["d"].index_gives_away == "row 1 before 2010; row 2 in 2030 or later"


def test_no_domain_is_proposed_that_could_not_be_written(tmp_path: Path) -> None:
    found = suggest(written(tmp_path / "t.csv", a=["-1.5", "1e-170"], b=["1e-80", "0"], c=["1e80", "0.5"])).columns
    assert [(each.column.declaration, each.index) for each in found] == [("double", None)] * 3


def test_pandas_frames_are_seen_through() -> None:
    frame = pd.DataFrame(
        {
            "missing": [1, None, 3],
            "half": [1.5, None, 3],
            "day": pd.to_datetime(["2020-01-01", None, "2020-01-03"]),
            "at": pd.to_datetime(["2020-01-01 00:00", None, "2020-01-03 10:00"]),
            "word": ["a", None, "b"],
            "day text": ["2020-01-01", None, "2020-01-02"],
            "category": pd.Categorical(["a", None, "b"]),
            "decimal": [Decimal("1.25"), None, Decimal("3")],
            "date": [date(2020, 1, 1), None, date(2020, 1, 2)],
            "own": pd.array([1, None, 3], dtype="Int16"),
            "yes": [True, False, True],
            "nothing": [None, None, None],
        }
    )
    found = suggest(frame)
    assert found.file.types == {
        "missing": "bigint",
        "half": "double",
        "day": "date",
        "at": "timestamp",
        "word": "text(8)",
        "day text": "date",
        "category": "text(8)",
        "decimal": "decimal(18,2)",
        "date": "date",
        "own": "smallint",
        "yes": "boolean",
        "nothing": "text(64)",
    }
    assert {each.column.name for each in found.columns if not each.from_rows} == {"own"}
    assert "row 1 cannot be bigint" not in str(found)  # half of the rows have a fraction: none of them stands out
    source, table = open_rows(EMPTY, "t", frame, [], LoadOptions(schema=found.file))
    assert sum(len(encode_rows(batch, RowLayout(table.schema, ()), [])) for batch in source) == 3


def test_types_of_its_own_are_left_alone() -> None:
    table = pa.table(
        {
            "i": pa.array([1], pa.int8()),
            "d": pa.array([Decimal("1.50")], pa.decimal128(38, 2)),
            "p": pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
            "f": pa.array([float("nan")], pa.float32()),
            "z": pa.array([datetime(2020, 1, 1)], pa.timestamp("ns", "Europe/Paris")),
            "t": ["abc"],
        },
    )
    found = suggest(table, types={"t": "text(20) not null"})
    assert found.file.types == {
        "i": "tinyint",
        "d": "decimal(38,2)",
        "p": "decimal(9,2)",
        "f": "float",
        "z": "timestamp with time zone",
        "t": "text(20) not null",
    }
    assert [each.from_rows for each in found.columns] == [False, False, False, False, False, False]


def test_no_value_is_shown(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", n=["73190017", "1", "2"], s=["MARKER_7319", "a", "b"], d=["7319.7319", "1", "2"])
    found = suggest(path)
    for text in (str(found), found.warning, repr(found)):
        assert "7319" not in text


def test_what_cannot_be_looked_at(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="only once"):
        suggest(pa.table({"x": [1]}).to_reader())
    with pytest.raises(BadRows, match="several types"):
        suggest(pd.DataFrame({"x": [1, "a"]}))
    (tmp_path / "t.csv").write_text("a,b\n1,2\n1,2,MARKER_7319\n")
    with pytest.raises(BadRows, match="line 3") as refusal:
        suggest(tmp_path / "t.csv")
    assert "7319" not in str(refusal.value)


@given(st.decimals(min_value="1e-9", max_value="1e18"))
def test_bounds_are_round(value: Decimal) -> None:
    bound = round_up(value)
    assert value <= bound < value * Decimal("2.6")
    assert str(bound.normalize().as_tuple().digits) in ("(1,)", "(2,)", "(5,)")


def test_domains_that_would_be_too_large() -> None:
    assert propose_domain("bigint", 0, 10**9, 0) is None
    assert propose_domain("date", 1, 5, 0) is None
    assert propose_domain("boolean", 0, 1, 0) is None
    assert propose_domain("bigint", None, None, 0) is None
