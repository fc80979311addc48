"""Arrow schemas and columns that become ours, or are refused by row and without a value; and types as text."""

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from scumble.errors import BadRows, InvalidParameter, NotFound
from scumble.types import (
    CategoryDomain,
    Column,
    ColumnType,
    arrow_schema,
    convert,
    encode,
    parse_domain,
    parse_type,
    schema_of,
)

MARKER = "MARKER_7319"


def test_values_of_words() -> None:
    def through(declared: str, value: object) -> object:
        return parse_type(declared).value_of(parse_type(declared).words_of(value))

    assert through("decimal(12,2)", Decimal("1.50")) == Decimal("1.5")
    assert through("decimal(12,2)", 7) == 7
    assert through("double", np.float32(0.5)) == 0.5
    assert through("bigint", np.int64(7)) == 7
    assert str(through("timestamptz", datetime(2020, 1, 1))) == "2020-01-01 00:00:00+00:00"


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("tinyint", 128),
        ("integer", 2.5),
        ("integer", True),
        ("decimal(4,2)", Decimal("0.001")),
        ("decimal(4,2)", 100),
        ("decimal(4,2)", Decimal("NaN")),
        ("float", 0.1),
        ("double", 2**53 + 1),
        ("double", Decimal("1e400")),
        ("date", datetime(2020, 1, 1, 1)),
        ("timestamp_s", datetime(2020, 1, 1, 0, 0, 0, 1)),
        ("text(3)", "abcd"),
        ("text(3)", "\ud800"),
        ('category(["a"])', MARKER),
        ("boolean", 1),
        ("date", None),
        ("date", np.datetime64("NaT")),
    ],
)
def test_words_of_refuses_what_a_type_does_not_hold(declared: str, value: object) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        parse_type(declared).words_of(value)
    assert MARKER not in str(refusal.value)


def column_of(declared: str, nullable: bool = False) -> Column:
    return Column("c", parse_type(declared), nullable)


@pytest.mark.parametrize(
    ("declared", "array", "trouble"),
    [
        ("bigint", pa.array([1, None]), "there is no value"),
        ("ubigint", pa.array([1, 2**63], pa.uint64()), "2^63 or more"),
        ("tinyint", pa.array([1, 128]), "cannot be made tinyint exactly"),
        ("integer", pa.array([1.0, 1.5]), "cannot be made integer exactly"),
        ("integer", pa.array(["1", MARKER]), "cannot be made integer exactly"),
        ("float", pa.array([0.5, 0.1]), "cannot be made float exactly"),
        ("double", pa.array([1, 2**53 + 1]), "cannot be made double exactly"),
        ("decimal(12,2)", pa.array([0.05, 0.055]), "the float is not"),
        ("decimal(12,2)", pa.array([0.05, 1e15]), "the float is not"),
        ("decimal(12,2)", pa.array([0.05, math.nan]), "the float is not"),
        ("decimal(12,2)", pa.array([Decimal("1.00"), Decimal("1.005")]), "cannot be made decimal(12,2) exactly"),
        ("decimal(4,2)", pa.array([Decimal("1.00"), Decimal("100.00")]), "cannot be made decimal(4,2) exactly"),
        ("date", pa.array([datetime(2020, 1, 1), datetime(2020, 1, 1, 1)]), "cannot be made date exactly"),
        ("time", pa.array([0, 1], pa.time64("ns")), "cannot be made time exactly"),
        ("time", pa.array([0, 86_400 * 10**6 + 1], pa.int64()).view(pa.time64("us")), "not of one day"),
        ("timestamp", pa.array([0, 1], pa.timestamp("ns")), "cannot be made timestamp exactly"),
        ("text(3)", pa.array(["abc", MARKER]), "longer than 3 bytes"),
        ("text(3)", pa.array(["abc", "éé"]), "longer than 3 bytes"),
        ('category(["a"])', pa.array(["a", MARKER]), "not in the list of its categories"),
        ('category(["a"])', pa.array(["a", MARKER]).dictionary_encode(), "not in the list of its categories"),
        ("text(9)", pa.array([b"a", b"\xff"], pa.binary()).view(pa.string()), "not valid UTF-8"),
    ],
)
def test_refusals_name_the_column_and_the_row(declared: str, array: Any, trouble: str) -> None:
    with pytest.raises(BadRows) as refusal:
        encode(column_of(declared), convert(column_of(declared), array, 41), 41)
    assert str(refusal.value).startswith("column 'c', row 42: ")
    assert (refusal.value.row, refusal.value.column) == (42, "c")
    assert trouble in str(refusal.value)
    assert MARKER not in str(refusal.value)
    assert refusal.value.__context__ is None or MARKER not in str(refusal.value.__context__)


def test_decimals_beyond_their_digits_are_refused() -> None:
    beyond = pa.Array.from_buffers(pa.decimal128(4, 2), 1, [None, pa.py_buffer(np.array([10_000, 0], np.int64))])
    with pytest.raises(BadRows, match="more digits"):
        encode(column_of("decimal(4,2)"), beyond)


def test_types_that_cannot_be_made_another() -> None:
    with pytest.raises(BadRows, match="cannot be made that"):
        convert(column_of("date"), pa.array([1, 2]))


@pytest.mark.parametrize(
    ("declared", "array", "expected"),
    [
        ("integer", pa.array([1, None, 3], pa.uint64()), [1, None, 3]),
        ("decimal(12,2)", pa.array([0.1 + 0.2, None, 1234567.89]), [Decimal("0.30"), None, Decimal("1234567.89")]),
        ("decimal(12,2)", pa.array([1, None]), [Decimal("1.00"), None]),
        ("decimal(18,2)", pa.array([Decimal("1.5")], pa.decimal128(38, 4)), [Decimal("1.50")]),
        ("bigint", pa.array([Decimal(7)], pa.decimal128(38, 0)), [7]),
        ("date", pa.array(["2020-02-29", None]), [date(2020, 2, 29), None]),
        ("date", pa.array([datetime(2020, 1, 1)], pa.timestamp("ns")), [date(2020, 1, 1)]),
        ("date", pa.array([date(2020, 1, 1)], pa.date64()), [date(2020, 1, 1)]),
        ("timestamp", pa.array([date(2020, 1, 1)]), [datetime(2020, 1, 1)]),
        ("text(5)", pa.array(["a", None], pa.string_view()), ["a", None]),
        ("text(5)", pa.array(["a", None], pa.large_string()), ["a", None]),
        ("text(5)", pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        ('category(["a"])', pa.array(["a", None, "a"], pa.large_string()), ["a", None, "a"]),
        ("float", pa.array([1.5, None], pa.float16()), [1.5, None]),
        ("double", pa.array([math.inf, None], pa.float32()), [math.inf, None]),
        ("integer", pa.nulls(2), [None, None]),
    ],
)
def test_conversions_that_are_exact(declared: str, array: Any, expected: list[object]) -> None:
    column = column_of(declared, nullable=True)
    assert column.type.decode(*encode(column, convert(column, array))).to_pylist() == expected


def test_schema_of_arrow_types() -> None:
    arrow = pa.schema(
        [
            pa.field("i8", pa.int8(), nullable=False),
            ("u64", pa.uint64()),
            ("b", pa.bool_()),
            ("f16", pa.float16()),
            ("f64", pa.float64()),
            ("dec", pa.decimal128(18, 2)),
            ("dec32", pa.decimal32(9, 2)),
            ("dec256", pa.decimal256(10, 0)),
            ("d64", pa.date64()),
            ("t32", pa.time32("s")),
            ("ts", pa.timestamp("s")),
            ("tn", pa.timestamp("ns")),
            ("tz", pa.timestamp("ns", "Europe/Paris")),
            ("s", pa.large_string()),
            ("dict", pa.dictionary(pa.int8(), pa.string())),
        ]
    )
    schema = schema_of(arrow)
    assert [column.type.label for column in schema] == [
        *["tinyint", "ubigint", "boolean", "float", "double", "decimal(18,2)", "decimal(9,2)", "decimal(10,0)", "date"],
        *["time", "timestamp_s", "timestamp_ns", "timestamp with time zone", "text(64)", "text(64)"],
    ]
    assert schema["tz"].type.to_json()["zone"] == "Europe/Paris"
    assert [column.nullable for column in schema] == [False] + [True] * 14
    back = arrow_schema(schema)
    assert back.field("tz").type == pa.timestamp("us", "Europe/Paris")
    assert back.field("i8") == pa.field("i8", pa.int8(), nullable=False)
    assert back.field("u64").type == pa.uint64()


def test_declared_types_and_domains() -> None:
    arrow = pa.schema([("A", pa.decimal256(39, 2)), ("b", pa.string()), ("c", pa.string()), ("d", pa.int64())])
    schema = schema_of(
        arrow,
        types={"a": "decimal(18,2)", "b": "text(25) NOT NULL", "d": "not null"},
        domains={"C": CategoryDomain(["x", "y"]), "d": parse_domain("int:0:9")},
    )
    assert [column.type.label for column in schema] == ["decimal(18,2)", "text(25)", "category", "bigint"]
    assert schema["c"].type.group_values == ("x", "y")
    assert [column.nullable for column in schema] == [True, False, True, False]
    with pytest.raises(InvalidParameter, match="38 digits are stored"):
        schema_of(arrow)
    with pytest.raises(NotFound, match="no column 'z'"):
        schema_of(arrow, types={"z": "integer"})
    with pytest.raises(InvalidParameter, match="other categories than its index"):
        schema_of(
            arrow, types={"a": "decimal(18,2)", "c": 'category(["x"])'}, domains={"c": CategoryDomain(["x", "y"])}
        )


@pytest.mark.parametrize(
    "type_", [pa.list_(pa.int8()), pa.binary(4), pa.map_(pa.int8(), pa.int8()), pa.null(), pa.decimal128(5, -2)]
)
def test_arrow_types_that_cannot_be_stored(type_: Any) -> None:
    with pytest.raises(InvalidParameter, match="cannot be stored") as refusal:
        schema_of(pa.schema([("c", type_)]))
    assert refusal.value.hint


def test_names_have_to_be_there() -> None:
    with pytest.raises(InvalidParameter, match="has no name"):
        schema_of(pa.schema([("", pa.int8())]))
    with pytest.raises(InvalidParameter, match="same name"):
        schema_of(pa.schema([("a", pa.int8()), ("A", pa.int8())]))


# --- types as the owner writes them ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("integer", "integer"),
        ("INT", "integer"),
        (" bigint ", "bigint"),
        ("int8", "bigint"),
        ("double  precision", "double"),
        ("timestamptz", "timestamp with time zone"),
        ("Timestamp With Time Zone", "timestamp with time zone"),
        ("decimal(12,2)", "decimal(12,2)"),
        ("numeric ( 12 , 2 )", "decimal(12,2)"),
        ("decimal(5)", "decimal(5,0)"),
        ("decimal", "decimal(18,3)"),
        ("text(25)", "text(25)"),
        ("varchar", "text(64)"),
        ("decimal(38,10)", "decimal(38,10)"),
        ("GUID", "uuid"),
        ("bytea", "blob(64)"),
        ("varbinary(7)", "blob(7)"),
        ("interval", "interval"),
    ],
)
def test_types_are_read(text: str, label: str) -> None:
    assert parse_type(text).label == label


@pytest.mark.parametrize("text", ['category(["b","a"])', 'category:["a","b"]', 'enum (["a", "b"])'])
def test_categories_are_sorted(text: str) -> None:
    assert parse_type(text).group_values == ("a", "b")


@pytest.mark.parametrize(
    ("text", "trouble", "carets"),
    [
        ("integr", "there is no such type", "^^^^^^"),
        ("", "this is no type", "^"),
        ("integer(5)", "takes nothing", "       ^^^"),
        ("decimal(39,2)", "1 to 38 digits", "       ^^^^^^"),
        ("decimal(2,3)", "no more of them after the point", "       ^^^^^"),
        ("decimal(x)", "no numbers", "       ^^^"),
        ("decimal(1,2,3)", "two numbers", "       ^^^^^^^"),
        ("text(0)", "bytes at most", "    ^^^"),
        ("text(70000)", "bytes at most", "    ^^^^^^^"),
        ("text(1,2)", "one number", "    ^^^^^"),
        ("category", "list of categories is missing", "        ^"),
        ("category(a)", "no JSON list", "        ^^^"),
        ("category([1])", "no JSON list", "        ^^^^^"),
        ('category(["a","a"])', "there twice", "        ^^^^^^^^^^^"),
        ("category([])", "1 to", "        ^^^^"),
        ('category(["\\ud800"])', "not valid Unicode", "        ^"),
    ],
)
def test_what_is_wrong_is_underlined(text: str, trouble: str, carets: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        parse_type(text)
    assert trouble in refusal.value.message
    assert refusal.value.message.splitlines()[2].startswith("    " + carets)
    assert "decimal(12,2)" in str(refusal.value.hint)


def test_a_close_name_is_guessed() -> None:
    with pytest.raises(InvalidParameter, match="did you mean integer"):
        parse_type("integr")


def test_unsorted_categories_are_no_type() -> None:
    with pytest.raises(InvalidParameter, match="not sorted"):
        ColumnType.from_json({"kind": "category", "sql": "varchar", "categories": ["b", "a"]})


def test_blobs_are_read_from_texts_as_duckdb_reads_them() -> None:
    column = Column("b", parse_type("blob(9)"), nullable=True)
    given = pa.array(["a\\x00\\xFfz", None, "", "\\x5C~ "])
    assert column.type.convert(column, given, "string", 1).to_pylist() == [b"a\0\xffz", None, b"", b"\\~ "]
    assert column.type.convert(column, pa.array([b"\xff\\"], pa.large_binary()), "binary", 1).to_pylist() == [b"\xff\\"]
    for wrong in ("\\", "\\x0", "\\xG0", "\u00fc"):
        with pytest.raises(BadRows) as caught:
            column.type.convert(column, pa.array(["", wrong]), "string", 11)
        assert (caught.value.row, caught.value.column) == (12, "b")
