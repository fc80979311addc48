"""What every column type promises: words that come back the same, sort and compare as DuckDB does, and its JSON.

`WORDS` has a line for each type; a new type needs one, and a vector in `JSON`.
"""

import json
import math
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Context, Decimal
from typing import Any, get_args
from uuid import UUID

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scumble.types import (
    Column,
    ColumnType,
    Interval,
    Operator,
    Schema,
    arrow_schema,
    convert,
    encode,
    parse_type,
    schema_of,
)
from scumble.types.column import TYPES
from scumble.types.float import float_of, float_word

FEW = settings(max_examples=20)  # of each kind for each type; `make verify` takes many
OPERATORS = get_args(Operator)
CATEGORIES = '["", "A", "a", "a\\u0000", "ab", "abc", "b", "z", "\\u00e9", "\\uffff", "\\ud83d\\ude00"]'
DAYS = st.one_of(
    st.integers(-5, 5), st.integers(10_000, 20_000), st.sampled_from([-719_162, 2_932_896, -(2**31) + 1, 2**31 - 1])
)
MOMENTS = {
    "timestamp_s": st.integers(-(10**10), 10**10),
    "timestamp_ms": st.integers(-(10**13), 10**13),
    "timestamp": st.integers(-(10**16), 10**16),
    "timestamp_ns": st.integers(-(2**63) + 1, 2**63 - 1),
    "timestamp with time zone": st.integers(-(10**16), 10**16),
}
FLOATS = st.one_of(st.floats(), st.integers(-10, 10).map(float), st.sampled_from([0.1, 0.25, -0.0, 2.5]))
SINGLES = st.one_of(st.floats(width=32), st.integers(-9, 9).map(float), st.sampled_from([0.1, 0.3]))
LETTERS = st.text(st.sampled_from("a\0bz\xe9\uffff\U0001f600"), max_size=6)
DECIMALS = {
    "decimal(12,2)": 10**12 - 1,
    "decimal(4,4)": 9999,
    "decimal(18,18)": 10**18 - 1,
    "decimal(18,0)": 10**18 - 1,
    "decimal(18,9)": 10**18 - 1,
}
INTEGERS = {
    "tinyint": (-128, 127),
    "smallint": (-(2**15), 2**15 - 1),
    "integer": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1),
    "utinyint": (0, 255),
    "usmallint": (0, 2**16 - 1),
    "uinteger": (0, 2**32 - 1),
    "ubigint": (0, 2**63 - 1),
}


def near(low: int, high: int) -> st.SearchStrategy[int]:
    """Small integers, extreme ones, and any."""
    edges = [low, low + 1, high - 1, high]
    return st.one_of(st.integers(max(low, -6), min(high, 6)), st.sampled_from(edges), st.integers(low, high))


WORDS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.integers(0, 1),
    **{name: near(*bounds) for name, bounds in INTEGERS.items()},
    **{name: near(-most, most) for name, most in DECIMALS.items()},
    "double": FLOATS.map(float_word),
    "float": SINGLES.map(lambda number: float_word(float(np.float32(number)))),
    "date": DAYS.filter(lambda day: abs(day) < 2**31 - 1),
    "time": st.integers(0, 86_400 * 10**6 - 1),
    **MOMENTS,
    f"category({CATEGORIES})": st.integers(0, 10),
    "text(1)": st.sampled_from(["", "a", "z", "\0"]),
    "text(8)": LETTERS.filter(lambda text: len(text.encode()) <= 8),
    "text(10)": LETTERS.filter(lambda text: len(text.encode()) <= 10),
    "uuid": st.uuids() | st.sampled_from([UUID(int=0), UUID(int=2**127), UUID(int=2**127 - 1), UUID(int=2**128 - 1)]),
    "blob(9)": st.binary(max_size=9),
    "decimal(38,4)": near(1 - 10**38, 10**38 - 1).map(lambda units: Decimal(units).scaleb(-4, Context(prec=60))),
    "decimal(19,0)": near(1 - 10**19, 10**19 - 1).map(Decimal),
    "interval": st.builds(
        lambda *parts: pa.MonthDayNano([*parts[:2], parts[2] * 1000]),
        near(-(2**31), 2**31 - 1),
        near(-(2**31), 2**31 - 1),
        near(-(2**63) // 1000 + 1, 2**63 // 1000),
    ),
}
JSON = {
    "boolean": '{"kind": "boolean", "sql": "boolean"}',
    "utinyint": '{"kind": "integer", "sql": "utinyint"}',
    "double": '{"kind": "float", "sql": "double"}',
    "decimal(12,2)": '{"kind": "decimal", "sql": "decimal(12,2)", "scale": 2, "digits": 12}',
    "decimal(5)": '{"kind": "decimal", "sql": "decimal(5,0)", "digits": 5}',
    "date": '{"kind": "date", "sql": "date"}',
    "time": '{"kind": "time", "sql": "time"}',
    "timestamp_ms": '{"kind": "timestamp", "sql": "timestamp_ms"}',
    "timestamptz": '{"kind": "timestamp", "sql": "timestamp with time zone", "zone": "UTC"}',
    "uuid": '{"kind": "uuid", "sql": "uuid"}',
    "blob(7)": '{"kind": "blob", "sql": "blob", "max_bytes": 7}',
    "interval": '{"kind": "interval", "sql": "interval"}',
    "text(25)": '{"kind": "text", "sql": "varchar", "max_bytes": 25}',
    'category(["b","a"])': '{"kind": "category", "sql": "varchar", "categories": ["a", "b"]}',
}
"""Each type as release 0.1 wrote it, or would have."""

DATES = st.dates(date(1700, 1, 1), date(2250, 1, 1))
TIMES = st.datetimes(datetime(1700, 1, 1), datetime(2250, 1, 1))
PLACES = st.integers(-3, 3).map(lambda hours: timezone(timedelta(hours=hours)))
CONSTANTS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    near(-(2**63), 2**63 - 1),
    st.integers(-(2**100), 2**100),
    st.sampled_from([2**53 - 1, 2**53 + 1, 128, 255, 256, 10**10, -(10**10), 9999, 2**24 + 1]),
    st.decimals(-1000, 1000, places=3),
    st.decimals(-(10**12), 10**12, places=6),
    st.decimals(allow_nan=False, allow_infinity=False).filter(lambda number: abs(number.adjusted()) < 30),
    FLOATS,
    SINGLES,
    st.integers(-200, 200).map(lambda units: units / 100),
    st.sampled_from([0.055, 99999.99, 1e-4, 2.0**52, 2.0**53, 1e30, -1e30, 9.5e9]),
    st.sampled_from(["", "a", "true", "false", "1", "-7", "2.5", "0.07", "127", "128", "0.1", "1e3", " 1", "nan"]),
    LETTERS,
    DATES,
    TIMES,
    TIMES.map(lambda moment: moment.replace(microsecond=0)),
    st.datetimes(datetime(1700, 1, 1), datetime(2250, 1, 1), timezones=PLACES),
    st.times(),
    DATES.map(str),
    TIMES.map(str),
    TIMES.map(lambda moment: moment.isoformat(timespec="seconds")),
    TIMES.map(lambda moment: moment.isoformat(timespec="milliseconds") + "+02:00"),
    st.times().map(str),
    st.uuids(),
    st.uuids().map(str),
    st.binary(max_size=12),
)


@pytest.fixture(scope="module")
def db() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def literal(value: object) -> str | None:  # noqa: PLR0911  (one for each type)
    """The value as SQL; None if it has no literal that is the same in Python and in DuckDB."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value)
        case int():
            return str(value)
        case Decimal():
            text = format(value, "f")
            return text if "." in text else f"{text}."
        case float():
            return f"{value!r}e0" if math.isfinite(value) and "e" not in repr(value) else f"'{value!r}'::DOUBLE"
        case str():
            return None if "\0" in value else "'" + value.replace("'", "''") + "'"
        case datetime():
            return f"{'TIMESTAMP' if value.tzinfo is None else 'TIMESTAMPTZ'} '{value}'"
        case date():
            return f"DATE '{value}'"
        case time():
            return f"TIME '{value}'"
        case UUID():
            return f"UUID '{value}'"
        case bytes():
            return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
        case timedelta():
            return f"INTERVAL {value.days} DAYS"
    raise TypeError


def words_in(type_: ColumnType, stored: list[Any]) -> Any:
    """The array of words that a page would hold; `stored` are words, or values of more than one."""
    listed = [each if isinstance(each, int) else type_.words_of(each) for each in stored]
    return np.array(listed, np.int64).reshape((-1,) if type_.words == 1 else (-1, type_.words))


def same(left: Any, right: Any) -> bool:
    """Equal, with NaN equal to NaN, and -0.0 not to 0.0."""
    if not pa.types.is_floating(left.type):
        return bool(left.equals(right))
    pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return all(repr(a) == repr(b) for a, b in pairs)


@pytest.mark.parametrize("declared", WORDS)
@FEW
@given(data=st.data())
def test_words_come_back_the_same(declared: str, data: st.DataObject) -> None:
    check_round_trip(declared, data)


def check_round_trip(declared: str, data: st.DataObject) -> None:
    """Through values and through Arrow: with nulls or nothing at all; whole, sliced, in chunks, and in narrow words."""
    type_ = parse_type(declared)
    stored = words_in(type_, data.draw(st.lists(WORDS[declared], max_size=12)))
    valid = np.array(data.draw(st.lists(st.integers(0, 1), min_size=len(stored), max_size=len(stored))), np.uint8)
    for row in stored:
        one = tuple(np.atleast_1d(row).tolist())
        assert type_.words_of(type_.value_of(one)) == one
        assert type_.full_interval[0] <= one <= type_.full_interval[1]
    array, column = type_.decode(stored, valid), Column("c", type_, True)
    array.validate(full=True)
    assert array.type == type_.arrow_type
    first, last = sorted(data.draw(st.tuples(st.integers(0, len(array)), st.integers(0, len(array)))))
    part = array.slice(first, last - first)
    chunked = pa.chunked_array([array.slice(0, first), part, array.slice(last)], type=array.type)
    for given_, rows in ((array, slice(None)), (part, slice(first, last)), (chunked, slice(None))):
        words, present = encode(column, convert(column, given_))
        assert words.dtype == np.int64
        assert present is not None
        assert np.array_equal(present, valid[rows])
        assert np.array_equal(words, (stored.T * valid).T[rows])
        stored_as = type_.to_page(words)
        assert stored_as.nbytes == len(words) * type_.width_bytes
        assert np.array_equal(type_.widened(type_.from_page(stored_as.reshape(-1).view(np.uint8))), words)
        assert same(type_.decode(stored_as, present), array[rows])
    if valid.all():
        words, present = encode(Column("c", type_, False), array)
        assert present is None
        assert np.array_equal(words, stored)


@pytest.mark.parametrize("declared", JSON)
def test_json_is_that_of_release_0_1(declared: str) -> None:
    """But for the statement that pages have narrow values, which texts and some other types had not then."""
    type_ = parse_type(declared)
    older = replace(type_, narrow=False)
    assert json.dumps(older.to_json()) == JSON[declared]
    assert ColumnType.from_json(json.loads(JSON[declared])) == older
    assert ColumnType.from_json(json.loads(json.dumps(type_.to_json()))) == type_
    assert parse_type(type_.declaration) == type_


def test_every_type_is_tested() -> None:
    assert {parse_type(declared).kind for declared in WORDS} == {parse_type(text).kind for text in JSON} == set(TYPES)


def test_types_are_recognised_in_arrow() -> None:
    """All but the parameters that Arrow does not know: a length in bytes and a category's list."""
    types = [type_ for type_ in map(parse_type, WORDS) if not type_.is_text and not type_.max_bytes]
    schema = Schema(tuple(Column(f"c{n}", type_, n % 2 == 0) for n, type_ in enumerate(types)))
    assert schema_of(arrow_schema(schema)) == schema
    assert Schema.from_json(schema.to_json()) == schema


def inside(words: Any, bounds: Interval) -> bool:
    row = tuple(words) if np.ndim(words) else (int(words),)
    return bounds[0] <= row <= bounds[1]


def check(db: duckdb.DuckDBPyConnection, declared: str, stored: list[Any], value: object) -> bool:
    """Compare with DuckDB, by every operator, constant as a literal and as a parameter.

    Returns whether there was something to compare.
    """
    type_ = parse_type(declared)
    intervals = {op: bounds for op in OPERATORS if (bounds := type_.interval(op, value)) is not None}
    if not intervals:
        return False
    words = words_in(type_, stored)
    values = type_.decode(words, np.ones(len(words), np.uint8))
    matched = [[op, n] for op, bounds in intervals.items() for n, row in enumerate(words) if inside(row, bounds)]
    assert all(len(end) == type_.words for bounds in intervals.values() for end in bounds)
    db.register("t", pa.table({"n": range(len(words)), "c": values}))
    said = literal(value)
    for constant, given_ in [(said, [])] * (said is not None) + [("?", [value])]:
        wanted = " UNION ALL ".join(f"SELECT '{op}', n FROM t WHERE c {op} {constant}" for op in intervals)  # noqa: S608
        found = db.execute(wanted, given_ * len(intervals)).fetchall()
        assert sorted(map(list, found)) == sorted(matched)
    return True


def _rows(answer: duckdb.DuckDBPyConnection) -> list[int]:
    return [row[0] for row in answer.fetchall()]


@pytest.mark.parametrize("declared", WORDS)
@FEW
@given(data=st.data())
def test_interval_matches_what_duckdb_matches(
    db: duckdb.DuckDBPyConnection, declared: str, data: st.DataObject
) -> None:
    check_any_constant(db, declared, data)


def check_any_constant(db: duckdb.DuckDBPyConnection, declared: str, data: st.DataObject) -> None:
    stored = data.draw(st.lists(WORDS[declared], min_size=1, max_size=8))
    check(db, declared, stored, data.draw(CONSTANTS))


def beside(declared: str, word: Any) -> list[Any]:  # noqa: PLR0911  (one for each type)
    """Constants at a stored value and just beside it, in every form that can stand for it."""
    type_ = parse_type(declared)
    value = type_.value_of((word,)) if isinstance(word, int) else word
    match value:
        case bool():
            return [value, int(value), int(value) + 1, str(value).lower()]
        case int() | Decimal():
            unit = Decimal(1).scaleb(-type_.scale)
            near = [Decimal(value) + unit * step / 2 for step in (-2, -1, 0, 1, 2)]
            return [
                value,
                *near,
                *(math.nextafter(float(value), side) for side in (-9e99, float(value), 9e99)),
                str(value),
            ]
        case float():
            return [value, math.nextafter(value, math.inf), math.nextafter(value, -math.inf), repr(value)]
        case str():
            return [value, value + "\0", value + "a", value[:-1], value + "z" * 20, value[:-1] + "\uffff"]
        case datetime():
            plain = value.replace(tzinfo=None)
            aware = plain.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=2)))
            second = timedelta(microseconds=1)
            return [
                plain,
                aware,
                plain.date(),
                plain + second,
                plain - second,
                str(plain),
                aware.isoformat(),
                str(plain.date()),
            ]
        case date():
            noon = datetime(value.year, value.month, value.day, 12)
            midnight = datetime(value.year, value.month, value.day)
            return [value, str(value), noon, midnight, midnight.replace(tzinfo=UTC)]
        case time():
            return [value, str(value)]
        case UUID():
            others = [UUID(int=(value.int + step) % 2**128) for step in (-1, 1)]
            return [value, *others, str(value), str(value).upper(), value.hex]
        case bytes():
            return [value, value + b"\0", value + b"a", value[:-1], value + b"z" * 20, value[:-1] + b"\xff"]
        case pa.MonthDayNano():
            return [timedelta(days=value.days % 1000)]
        case np.datetime64():
            moment = datetime(1970, 1, 1) + timedelta(microseconds=int(word) // 1000)
            return [moment, str(moment), moment.date(), str(value).replace("T", " ")]
    raise TypeError


FAR = {"date": 700_000, "timestamp_s": 6 * 10**10, "timestamp_ms": 6 * 10**13}
"""From here on Python has no such date."""


@pytest.mark.parametrize("declared", WORDS)
@FEW
@given(data=st.data())
def test_constants_at_and_beside_stored_values(
    db: duckdb.DuckDBPyConnection, declared: str, data: st.DataObject
) -> None:
    check_near_constant(db, declared, data)


def check_near_constant(db: duckdb.DuckDBPyConnection, declared: str, data: st.DataObject) -> None:
    """Values next to each other and the constants between them."""
    type_ = parse_type(declared)
    word = data.draw(
        WORDS[declared].filter(lambda word: not isinstance(word, int) or abs(word) < FAR.get(declared, 2**64))
    )
    stored = [word]
    if isinstance(word, int):
        (least,), (most,) = type_.full_interval
        steps = (-1, 0, 1) if declared != "float" else (0,)
        stored = [word + step for step in steps if least <= word + step <= most]
        if type_.is_float:  # no NaN of another kind is ever stored
            stored = [each for each in stored if float_word(float_of(each)) == each]
    check(db, declared, stored, data.draw(st.sampled_from(beside(declared, word))))


@pytest.mark.parametrize("declared", DECIMALS)
@settings(max_examples=100)
@given(data=st.data())
def test_decimals_near_floats(db: duckdb.DuckDBPyConnection, declared: str, data: st.DataObject) -> None:
    """A float that is a decimal's double, or a bit to its side."""
    scale = parse_type(declared).scale
    unscaled = data.draw(st.integers(-DECIMALS[declared], DECIMALS[declared]) | st.integers(-1000, 1000))
    value = math.nextafter(unscaled / 10**scale, data.draw(st.sampled_from([-math.inf, math.inf])))
    value = data.draw(st.sampled_from([value, unscaled / 10**scale]))
    most = DECIMALS[declared]
    stored = [min(max(unscaled + step, -most), most) for step in (-2, -1, 0, 1, 2)]
    compared = check(db, declared, stored, value)
    assert compared or abs(unscaled) >= 2**50


@settings(max_examples=200)
@given(unscaled=st.integers(-(2**24), 2**24), places=st.integers(0, 10))
def test_singles_near_decimals(db: duckdb.DuckDBPyConnection, unscaled: int, places: int) -> None:
    """DuckDB rounds the decimal to a float when the column holds floats."""
    value = Decimal(unscaled).scaleb(-places)
    single = np.float32(float(value))
    stored = [float_word(float(np.nextafter(single, np.float32(side * np.inf)))) for side in (-1, 1)]
    stored.append(float_word(float(single)))
    assert check(db, "float", stored, value)


def test_constants_between_values_round_to_the_exact_interval() -> None:
    cents, whole = parse_type("decimal(12,2)"), parse_type("integer")
    least = -(10**12) + 1
    assert cents.interval("<", Decimal("0.055")) == ((least,), (5,))
    assert cents.interval("<", Decimal("0.05")) == ((least,), (4,))
    assert whole.interval(">=", Decimal("2.5")) == ((3,), (2**31 - 1,))
    assert whole.interval("=", 2.5) == ((1,), (0,))
    assert whole.interval("<", 10**15) == ((-(2**31),), (2**31 - 1,))
    assert whole.interval(">", 10**15) == ((1,), (0,))
    assert parse_type("double").interval(">", math.inf) == ((float_word(math.inf) + 1,), (float_word(math.nan),))


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("bigint", 2.0**53),
        ("bigint", "2.5"),
        ("integer", "abc"),
        ("tinyint", "128"),
        ("boolean", 0.5),
        ("decimal(12,2)", "0.055"),
        ("decimal(18,2)", 2.0**50),
        ("date", "2020-01-01 10:00:00"),
        ("date", 5),
        ("timestamp", "2020-01-01 00:00:00+01:00"),
        ("timestamp_s", "2020-01-01 00:00:00.4"),
        ("timestamp_ns", datetime(2020, 1, 1, tzinfo=UTC)),
        ("double", Decimal("0.12345678901234567890123")),
        ("float", np.float32(0.1)),
        ("text(8)", 5),
        ("text(8)", "\ud800"),
    ],
)
def test_what_is_not_certain_is_left_to_duckdb(declared: str, value: object) -> None:
    assert parse_type(declared).interval("<", value) is None


@pytest.mark.parametrize("declared", [declared for declared in WORDS if parse_type(declared).is_ordered])
@FEW
@given(data=st.data())
def test_words_sort_as_duckdb_sorts(db: duckdb.DuckDBPyConnection, declared: str, data: st.DataObject) -> None:
    check_order(db, declared, data)


def check_order(db: duckdb.DuckDBPyConnection, declared: str, data: st.DataObject) -> None:
    type_ = parse_type(declared)
    words = words_in(type_, data.draw(st.lists(WORDS[declared], max_size=8)))
    array = type_.decode(words, None)
    words = type_.ordered(type_.to_page(words)).astype(np.int64, copy=False)
    db.register("t", pa.table({"n": pa.array(range(len(array)), pa.int64()), "c": array}))
    order = _rows(db.execute("SELECT n FROM t ORDER BY c, n"))
    assert order == sorted(range(len(words)), key=lambda row: (words[row].tolist(), row))


@pytest.mark.slow
@pytest.mark.parametrize("declared", WORDS)
@settings(max_examples=60)
@given(data=st.data())
def test_every_type_with_many_values(db: duckdb.DuckDBPyConnection, declared: str, data: st.DataObject) -> None:
    check_round_trip(declared, data)
    check_any_constant(db, declared, data)
    check_near_constant(db, declared, data)
    if parse_type(declared).is_ordered:
        check_order(db, declared, data)
