"""Every comparison that becomes an interval of words matches exactly the rows that DuckDB matches."""

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, get_args

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scumble.types import Column, Kind
from scumble.types.arrow import decode, encode
from scumble.types.scalars import Interval, Operator, full_interval, interval, parse_type, value_of
from scumble.types.words import NAN_WORD, float_of, float_word, text_words

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
SHORT = LETTERS.filter(lambda text: len(text.encode()) <= 10)
DECIMALS = {"decimal(12,2)": 10**12 - 1, "decimal(4,4)": 9999, "decimal(18,0)": 10**18 - 1, "decimal(18,9)": 10**18 - 1}
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
    "text(10)": SHORT,
}

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
    raise TypeError


def inside(words: Any, bounds: Interval) -> bool:
    row = tuple(words) if np.ndim(words) else (int(words),)
    return bounds[0] <= row <= bounds[1]


def check(db: duckdb.DuckDBPyConnection, declared: str, stored: list[Any], op: Operator, value: object) -> bool:
    """Compare with DuckDB, constant as a literal and as a parameter; return whether there was something to compare."""
    column = Column("c", parse_type(declared), True)
    if declared.startswith("text"):
        words = np.array([text_words(column.type, text.encode()) for text in stored], np.int64)
    else:
        words = np.array(stored, np.int64)
    bounds = interval(column.type, op, value)
    if bounds is None:
        return False
    values = decode(column, words, np.ones(len(words), np.uint8))
    table = pa.table({"n": range(len(words)), "c": values})
    matched = [n for n, row in enumerate(words) if inside(row, bounds)]
    assert len(bounds[0]) == len(bounds[1]) == column.type.words
    db.register("t", table)
    said = literal(value)
    if said is not None:
        assert matched == _rows(db.execute(f"SELECT n FROM t WHERE c {op} {said} ORDER BY n"))  # noqa: S608
    assert matched == _rows(db.execute(f"SELECT n FROM t WHERE c {op} ? ORDER BY n", [value]))  # noqa: S608
    return True


def _rows(answer: duckdb.DuckDBPyConnection) -> list[int]:
    return [row[0] for row in answer.fetchall()]


@pytest.mark.parametrize("declared", WORDS)
@settings(max_examples=120)
@given(data=st.data())
def test_interval_matches_what_duckdb_matches(
    db: duckdb.DuckDBPyConnection, declared: str, data: st.DataObject
) -> None:
    stored = data.draw(st.lists(WORDS[declared], min_size=1, max_size=8))
    check(db, declared, stored, data.draw(st.sampled_from(OPERATORS)), data.draw(CONSTANTS))


def beside(declared: str, word: Any) -> list[Any]:  # noqa: PLR0911  (one for each type)
    """Constants at a stored value and just beside it, in every form that can stand for it."""
    type_ = parse_type(declared)
    words = text_words(type_, word.encode()) if type_.kind is Kind.TEXT else (word,)
    value = value_of(type_, words)
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
        case np.datetime64():
            moment = datetime(1970, 1, 1) + timedelta(microseconds=int(word) // 1000)
            return [moment, str(moment), moment.date(), str(value).replace("T", " ")]
    raise TypeError


FAR = {"date": 700_000, "timestamp_s": 6 * 10**10, "timestamp_ms": 6 * 10**13}
"""From here on Python has no such date."""


@pytest.mark.parametrize("declared", WORDS)
@settings(max_examples=60)
@given(data=st.data())
def test_constants_at_and_beside_stored_values(
    db: duckdb.DuckDBPyConnection, declared: str, data: st.DataObject
) -> None:
    """Every operator, for values next to each other and the constants between them."""
    type_ = parse_type(declared)
    word = data.draw(WORDS[declared].filter(lambda word: isinstance(word, str) or abs(word) < FAR.get(declared, 2**64)))
    stored = [word]
    if not isinstance(word, str):
        (least,), (most,) = full_interval(type_)
        steps = (-1, 0, 1) if type_.kind is not Kind.FLOAT or declared == "double" else (0,)
        stored = [word + step for step in steps if least <= word + step <= most]
        if type_.kind is Kind.FLOAT:  # neither -0.0 nor a NaN of another kind is ever stored
            stored = [each for each in stored if float_word(float_of(each)) == each]
    value = data.draw(st.sampled_from(beside(declared, word)))
    for op in OPERATORS:
        check(db, declared, stored, op, value)


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("declared", DECIMALS)
@settings(max_examples=60)
@given(data=st.data())
def test_decimals_near_floats(db: duckdb.DuckDBPyConnection, declared: str, op: Operator, data: st.DataObject) -> None:
    """A float that is a decimal's double, or a bit to its side."""
    scale = parse_type(declared).scale
    unscaled = data.draw(st.integers(-DECIMALS[declared], DECIMALS[declared]) | st.integers(-1000, 1000))
    value = math.nextafter(unscaled / 10**scale, data.draw(st.sampled_from([-math.inf, math.inf])))
    value = data.draw(st.sampled_from([value, unscaled / 10**scale]))
    most = DECIMALS[declared]
    stored = [min(max(unscaled + step, -most), most) for step in (-2, -1, 0, 1, 2)]
    compared = check(db, declared, stored, op, value)
    assert compared or abs(unscaled) >= 2**50


@pytest.mark.parametrize("op", OPERATORS)
@settings(max_examples=100)
@given(unscaled=st.integers(-(2**24), 2**24), places=st.integers(0, 10), step=st.integers(-1, 1))
def test_singles_near_decimals(
    db: duckdb.DuckDBPyConnection, op: Operator, unscaled: int, places: int, step: int
) -> None:
    """DuckDB rounds the decimal to a float when the column holds floats."""
    value = Decimal(unscaled).scaleb(-places)
    single = np.float32(float(value))
    stored = [float_word(float(np.nextafter(single, np.float32(side * np.inf)))) for side in (-1, 1)]
    stored.append(float_word(float(single)))
    assert check(db, "float", stored, op, value)


def test_constants_between_values_round_to_the_exact_interval() -> None:
    cents, whole = parse_type("decimal(12,2)"), parse_type("integer")
    least = -(10**12) + 1
    assert interval(cents, "<", Decimal("0.055")) == ((least,), (5,))
    assert interval(cents, "<", Decimal("0.05")) == ((least,), (4,))
    assert interval(whole, ">=", Decimal("2.5")) == ((3,), (2**31 - 1,))
    assert interval(whole, "=", 2.5) == ((1,), (0,))
    assert interval(whole, "<", 10**15) == ((-(2**31),), (2**31 - 1,))
    assert interval(whole, ">", 10**15) == ((1,), (0,))
    assert interval(parse_type("double"), ">", math.inf) == ((float_word(math.inf) + 1,), (NAN_WORD,))


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
    assert interval(parse_type(declared), "<", value) is None


@pytest.mark.parametrize("declared", WORDS)
@settings(max_examples=100)
@given(data=st.data())
def test_words_sort_as_duckdb_sorts(db: duckdb.DuckDBPyConnection, declared: str, data: st.DataObject) -> None:
    column = Column("c", parse_type(declared), False)
    stored = data.draw(st.lists(WORDS[declared], max_size=8))
    if declared.startswith("text"):
        array = pa.array(stored, pa.string())
    else:
        array = decode(column, np.array(stored, np.int64), None)
    words, _ = encode(column, array)
    db.register("t", pa.table({"n": pa.array(range(len(array)), pa.int64()), "c": array}))
    order = _rows(db.execute("SELECT n FROM t ORDER BY c, n"))
    assert order == sorted(range(len(words)), key=lambda row: (words[row].tolist(), row))
