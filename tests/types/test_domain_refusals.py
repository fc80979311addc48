"""What domains refuse: keys, without showing them, and texts, with the wrong part underlined."""

import math
import subprocess
import sys
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from raising import raised

from scumble.errors import DomainError, InvalidKeys, OutOfDomain
from scumble.types import (
    MAX_SIZE,
    CategoryDomain,
    DateDomain,
    DecimalDomain,
    Domain,
    ExplicitKeys,
    FloatDomain,
    IntegerDomain,
    StringDomain,
    TimestampDomain,
    parse_domain,
)

INTEGERS = IntegerDomain(0, 100)
DECIMALS = DecimalDomain(0, 100, "0.5")
DATES = DateDomain("2020-01-01", "2020-12-31")
TIMES = TimestampDomain("2020-01-01", "2020-12-31", "1h")
FLOATS = FloatDomain(0, 100, "0.5")
CATEGORIES = CategoryDomain(["a", "b"])
LISTED = ExplicitKeys([1, 5, 9])
LISTED_TEXT = ExplicitKeys(["a", "b"])
STRINGS = StringDomain(["m"])

HELD: list[tuple[Domain, Any]] = [
    (INTEGERS, 7),
    (DECIMALS, Decimal("7.5")),
    (DATES, "2020-06-01"),
    (TIMES, datetime(2020, 6, 1)),
    (FLOATS, 7.25),
    (CATEGORIES, "a"),
    (LISTED, 5),
    (LISTED_TEXT, "b"),
    (STRINGS, "x"),
]

STRAYS: list[tuple[Domain, Any, str]] = [
    (INTEGERS, 987654321, "is outside"),
    (INTEGERS, -987654321, "is outside"),
    (INTEGERS, 98765432109876543210987, "is outside"),
    (IntegerDomain(0, 987654322, 2), 987654321, "lies between"),
    (DECIMALS, Decimal("98765.4321"), "is outside"),
    (DecimalDomain(0, 10**9, "0.5"), Decimal("98765.4321"), "lies between"),
    (DecimalDomain(0, 10**9, "0.5"), 98765.4321, "lies between"),
    (DecimalDomain(0, 10**9, "0.5"), "98765.4321", "lies between"),
    (DECIMALS, math.inf, "is outside"),
    (DATES, "9876-05-04", "is outside"),
    (DATES, np.datetime64("2020-03-04T05:06:07"), "lies between"),
    (TIMES, datetime(1987, 6, 5), "is outside"),
    (FLOATS, 98765.4321, "is outside"),
    (FLOATS, -math.inf, "is outside"),
    (CATEGORIES, "98765", "is not in the list"),
    (LISTED, 98765, "is not in the list"),
    (LISTED, 6, "is not in the list"),
    (LISTED_TEXT, "98765", "is not in the list"),
]


@pytest.mark.parametrize(("domain", "key", "trouble"), STRAYS)
def test_a_stray_key_is_refused_by_row_and_never_shown(domain: Domain, key: Any, trouble: str) -> None:
    good = domain.key(0)
    column: Any = [good] * 17 + [key] + [good]
    arrays: list[Any] = [column]
    if not isinstance(key, int) or abs(key) < 2**63:
        kind = object if isinstance(key, Decimal) or not isinstance(key, type(good)) else None
        arrays.append(np.array(column, kind))
    for rows in arrays:
        message = raised(OutOfDomain, lambda rows=rows: domain.ranks(rows))
        assert f"the key in row 17 {trouble}" in message
        assert domain.text in message
        assert str(key) not in message
        assert "9876" not in message.replace(domain.text, "")
    message = raised(OutOfDomain, lambda: domain.rank(key))
    assert f"the key {trouble}" in message
    assert str(key) not in message.replace(domain.text, "")


@pytest.mark.parametrize(("domain", "key"), HELD)
def test_a_null_is_refused_by_row(domain: Domain, key: Any) -> None:
    arrow = pa.array([key, key, None])
    masked = np.ma.MaskedArray(np.array([key] * 3, object), [False, False, True])
    columns = [[key, key, None], np.array([key, key, None], object), arrow, masked]
    columns += [pa.chunked_array([arrow[:1], arrow[1:]]), pa.array([key, key, None]).dictionary_encode()]
    for column in columns:
        assert "the key in row 2 is null" in raised(InvalidKeys, lambda column=column: domain.ranks(column))
        assert "the lower bound in row 2 is null" in raised(
            InvalidKeys, lambda column=column: domain.spans(column, [key] * 3)
        )
        assert "the upper bound in row 2 is null" in raised(
            InvalidKeys, lambda column=column: domain.spans([key] * 3, column)
        )
    for null in (None, pa.scalar(None), pa.scalar(None, pa.int64()), np.ma.masked):
        assert "the key is null" in raised(InvalidKeys, lambda null=null: domain.rank(null))
    assert "the upper bound is null" in raised(InvalidKeys, lambda: domain.span(None, pa.scalar(None)))


def test_not_a_time_is_null() -> None:
    for domain in (DATES, TIMES):
        column = np.array(["2020-01-01", "NaT"], "datetime64[s]")
        assert "row 1 is null" in raised(InvalidKeys, lambda domain=domain, column=column: domain.ranks(column))
        assert "is null" in raised(InvalidKeys, lambda domain=domain, column=column: domain.rank(column[1]))


@pytest.mark.parametrize("domain", [DECIMALS, FLOATS])
def test_not_a_number_is_refused(domain: Domain) -> None:
    for column in ([7.5, math.nan], np.array([7.5, math.nan]), pa.array([7.5, math.nan]), [7.5, Decimal("NaN")]):
        assert "the key in row 1 is NaN" in raised(InvalidKeys, lambda column=column: domain.ranks(column))
        assert "row 1 is NaN" in raised(InvalidKeys, lambda column=column: domain.spans(column, column))
    assert "the lower bound is NaN" in raised(InvalidKeys, lambda: domain.span(math.nan, None))
    assert "the key is NaN" in raised(InvalidKeys, lambda: domain.rank(np.float32("nan")))


WRONG: list[tuple[Domain, list[Any]]] = [
    (INTEGERS, [True, 7.0, "secret", Decimal(7), b"7", np.bool_(True), np.timedelta64(7, "D"), np.datetime64("2020")]),
    (DECIMALS, [True, b"7", datetime(2020, 1, 1), np.timedelta64(7, "D"), 7j]),
    (DATES, [7, 7.0, True, b"2020-01-01"]),
    (TIMES, [7, 7.0, True]),
    (FLOATS, [True, "secret", np.datetime64("2020-01-01"), 7j]),
    (CATEGORIES, [7, b"a", 7.0, True]),
    (LISTED, ["secret", 5.0, True, b"5"]),
    (LISTED_TEXT, [5, b"a"]),
    (STRINGS, [7, b"a"]),
]


@pytest.mark.parametrize(("domain", "key"), [(domain, key) for domain, keys in WRONG for key in keys])
def test_a_key_of_the_wrong_type_is_refused(domain: Domain, key: Any) -> None:
    calls = [
        lambda: domain.rank(key),
        lambda: domain.ranks([key]),
        lambda: domain.ranks(np.array([key])),
        lambda: domain.ranks(np.array([key], object)),
        lambda: domain.ranks([domain.key(0), key]),
        lambda: domain.span(key, None),
        lambda: domain.span(None, key),
        lambda: domain.spans([key], [key]),
        lambda: domain.spans(None, [domain.key(0), key]),
    ]
    for call in calls:
        message = raised(InvalidKeys, call)
        assert "is not what the domain" in message
        assert "secret" not in message


def test_big_integers_never_become_floats_on_the_way() -> None:
    """`np.array` would make float64 of these lists; the domain has to refuse the one float instead."""
    domain = IntegerDomain(0, 2**64 - 1)
    assert "row 1" in raised(InvalidKeys, lambda: domain.ranks([2**63, 1.0]))
    wide = IntegerDomain(-1, 2**64 - 1)
    assert wide.ranks([2**64 - 1, -1]).tolist() == [wide.size - 1, 0]


@pytest.mark.parametrize(("domain", "form"), [(DECIMALS, "a decimal number"), (DATES, "a date"), (TIMES, "a date")])
def test_text_that_does_not_read_is_refused(domain: Domain, form: str) -> None:
    days = ["2020-02-30", "2020-01-01T25:00:00", "2020-01-01T00:00:00+25:00"]
    for text in ("secret", "", "١٢", "nan", "1_0", " 7", *days):
        column = [domain.key(0), text]
        message = raised(InvalidKeys, lambda column=column: domain.ranks(column))
        assert f"the key in row 1 is text that does not read as {form}" in message
        assert "secret" not in message


def test_shapes_that_are_no_column_are_refused() -> None:
    assert "2 dimensions" in raised(InvalidKeys, lambda: INTEGERS.ranks(np.zeros((2, 2), np.int64)))
    assert "dict" in raised(InvalidKeys, lambda: INTEGERS.ranks({1: 2}))
    assert "set" in raised(InvalidKeys, lambda: INTEGERS.ranks({1, 2}))
    assert "one column" in raised(InvalidKeys, lambda: INTEGERS.ranks(pa.table({"x": [1]})))


@pytest.mark.parametrize(("domain", "key"), HELD)
def test_bounds_that_do_not_pair_up_are_refused(domain: Domain, key: Any) -> None:
    assert "2 lower bounds" in raised(InvalidKeys, lambda: domain.spans([key, key], [key]))


@pytest.mark.parametrize(
    ("build", "trouble"),
    [
        (lambda: IntegerDomain(0, 1, -1), "not positive"),
        (lambda: IntegerDomain(False, 1), "lower bound is not an integer"),
        (lambda: IntegerDomain(0, True), "upper bound is not an integer"),
        (lambda: IntegerDomain(0, 1.0), "upper bound is not an integer"),  # type: ignore[arg-type]
        (lambda: IntegerDomain(-(2**63) - 1, 0), "64 bits"),
        (lambda: DecimalDomain(1, 0, 1), "below the lower"),
        (lambda: DecimalDomain(0, 1, "-0.1"), "not positive"),
        (lambda: DecimalDomain(0, 1, True), "step is not a decimal"),
        (lambda: DecimalDomain(0, 0.1, 1), "upper bound is not a decimal"),  # type: ignore[arg-type]
        (lambda: DecimalDomain(0, Decimal("Infinity"), 1), "not finite"),
        (lambda: DecimalDomain(0, "1e1000000", 1), "too many digits"),
        (lambda: DecimalDomain(0, 1, "1e-1000000"), "too many digits"),
        (lambda: DateDomain("2020-01-02", "2020-01-01"), "before the first"),
        (lambda: DateDomain("2020-01-01", "2020-01-02T01:00:00"), "time of day"),
        (lambda: TimestampDomain("2020-01-02", "2020-01-01", "1s"), "before the first"),
        (lambda: TimestampDomain("2020-01-01", "2020-01-02", "0s"), "not positive"),
        (lambda: TimestampDomain("2020-01-01", "2020-01-02", "1 s"), "resolution"),
        (lambda: TimestampDomain("0001-01-01T00:00:00+01:00", "2020-01-02", "1s"), "years 1 to 9999"),
        (lambda: TimestampDomain(True, "2020-01-02", "1s"), "cannot be read"),  # type: ignore[arg-type]
        (lambda: FloatDomain(1, 0, 1), "below the lower"),
        (lambda: FloatDomain("1e15", "1000000000000001", "0.001"), "finer than floats"),
        (lambda: CategoryDomain(["a", "a"]), "item 1 repeats"),
        (lambda: CategoryDomain("ab"), "one string"),
        (lambda: CategoryDomain(["a", 5]), "item 1 is not a string"),  # type: ignore[list-item]
        (lambda: CategoryDomain(["\ud800"]), "not valid Unicode"),
        (lambda: ExplicitKeys([]), "empty"),
        (lambda: ExplicitKeys([1, 5, 3]), "item 2 is less"),
        (lambda: ExplicitKeys([1, True]), "item 1 is not an integer"),
        (lambda: ExplicitKeys([-1, 2**63]), "64 bits"),
        (lambda: ExplicitKeys("ab"), "one string"),
        (lambda: StringDomain([]), "empty"),
        (lambda: StringDomain(["", "a"]), "empty string"),
        (lambda: StringDomain(["b", "a"]), "item 1 is less"),
    ],
)
def test_domains_that_cannot_be(build: Any, trouble: str) -> None:
    with pytest.raises(DomainError) as caught:
        build()
    assert trouble in caught.value.message
    assert caught.value.hint


def test_sizes_just_at_the_limit() -> None:
    assert IntegerDomain(0, MAX_SIZE - 1).width == 1
    assert IntegerDomain(0, MAX_SIZE).width == 2
    assert IntegerDomain(0, MAX_SIZE).size == MAX_SIZE // 2 + 1
    assert IntegerDomain(0, MAX_SIZE * 2, 2).width == 2


INT = "write int:LOW:HIGH or int:LOW:HIGH:STEP, for example int:0:1000"
DECIMAL = "write decimal:LOW:HIGH:STEP, for example decimal:0:1000000:0.01"
TIMESTAMP = "write timestamp:FIRST:LAST:RESOLUTION, for example timestamp:2020-01-01T00:00:00:2020-12-31T23:59:59:1s"
CATEGORY = 'write category:LIST, for example category:["a","b","c"]'
KINDS = "the kinds are int, decimal, date, timestamp, float, category, keys, string"


@pytest.mark.parametrize(
    ("text", "trouble", "under", "hint"),
    [
        ("int:0:x", "the upper bound is not an integer", "      ^", INT),
        ("int:zero:9", "the lower bound is not an integer", "    ^^^^", INT),
        ("int:0:9:1.5", "the step is not an integer", "        ^^^", INT),
        ("int:0", "the upper bound is missing", "     ^", INT),
        ("int::9", "the lower bound is missing", "    ^", INT),
        ("int:0:9:1:", "there is more than the domain needs", "         ^", INT),
        ("int", "nothing follows the kind", "   ^", INT),
        ("int:9:0", "the upper bound is below the lower bound", "      ^", "swap the bounds"),
        ("int:0:9:0", "the step is not positive", "        ^", "use a step of 1 or more"),
        (
            "int:0:99999999999999999999",
            "the upper bound does not fit in 64 bits",
            "      " + "^" * 20,
            "use decimal:LOW:HIGH:STEP",
        ),
        ("", "there is no such kind of domain", "^", KINDS),
        ("itn:0:9", "there is no such kind of domain", "^^^", f"did you mean int? {KINDS}"),
        ("qqq:0:9", "there is no such kind of domain", "^^^", KINDS),
        ("decimal:0:1", "the step is missing", "           ^", DECIMAL),
        ("decimal:0:NaN:1", "the upper bound is not a decimal number", "          ^^^", DECIMAL),
        (
            "date:2020-01-01:2020-02-30",
            "the last date or time cannot be read",
            "                ^^^^^^^^^^",
            "write it like 2020-12-31 or 2020-12-31T23:59:59",
        ),
        (
            "date:2020-1-1:2020-02-28",
            "the first day is not a date",
            "     ^^^^^^^^",
            "write date:FIRST:LAST, for example date:2000-01-01:2030-12-31",
        ),
        ("timestamp:2020-01-01T00:00:00:1s", "the last time is not a time", " " * 30 + "^^", TIMESTAMP),
        (
            "timestamp:2020-01-01:2020-01-02:5",
            "the resolution is not a number and ns, us, ms, s, min, h or d",
            " " * 32 + "^",
            TIMESTAMP,
        ),
        ("timestamp:2020-01-01:2020-01-02T00:00:00", "the resolution is missing", " " * 40 + "^", TIMESTAMP),
        ("float:0:1:0", "the step is not positive", "          ^", "use a step such as 0.001"),
        ("category:[a]", "the list is not valid JSON", "          ^", CATEGORY),
        ("category:{}", "this is not a list", "         ^^", CATEGORY),
        ("category:[]", "the list of categories is empty", "         ^^", "list at least one"),
        (
            'category:["b", "a" ]',
            "item 1 is less than the one before",
            "               ^^^",
            "list the categories sorted and each once",
        ),
        ("keys:[1,1]", "item 1 repeats the one before", "        ^", "list the keys sorted and each once"),
        ("keys:[1,2.5]", "item 1 is not an integer", "        ^^^", "list integers only, or strings only"),
        ("string:[5]", "item 0 is not a string", "        ^", "list strings only"),
    ],
)
def test_texts_that_do_not_read(text: str, trouble: str, under: str, hint: str) -> None:
    expected = f"cannot read the domain {text!r}: {trouble}\n    {text}\n    {under}\nhint: {hint}"
    assert raised(DomainError, lambda: parse_domain(text)) == expected


def test_a_long_list_is_shown_around_the_mistake() -> None:
    text = f"keys:[{','.join(map(str, range(10, 99)))},50,99]"
    assert raised(DomainError, lambda: parse_domain(text)) == (
        "cannot read the domain 'keys:[10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,...': "
        "item 89 is less than the one before\n"
        "    ...91,92,93,94,95,96,97,98,50,99]\n"
        "                               ^^\n"
        "hint: list the keys sorted and each once"
    )


@pytest.mark.parametrize("text", ["keys:" + "[" * 100_000, "keys:[" + "9" * 10_000 + "]", "int:0:" + "9" * 10_000])
def test_monstrous_texts_are_refused_too(text: str) -> None:
    assert len(raised(DomainError, lambda: parse_domain(text))) < 400


def test_a_text_that_is_no_string_is_refused() -> None:
    assert "not a string" in raised(DomainError, lambda: parse_domain(5))  # type: ignore[arg-type]


def test_a_long_list_is_cut_in_messages() -> None:
    domain = ExplicitKeys(range(10_000))
    assert len(raised(OutOfDomain, lambda: domain.rank(-1))) < 200
    assert len(repr(domain)) < 100


def test_the_package_imports_without_pyarrow() -> None:
    program = "import sys, scumble.types as d; d.parse_domain('int:0:9').ranks([1]); print('pyarrow' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert run.stdout == "False\n"
