"""The contract of every key domain, held against brute force over exact keys."""

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from raising import raised

from scumble import types
from scumble.errors import InvalidKeys, InvalidParameter, OutOfDomain
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
from scumble.types import domain as domains

INT64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def integer_domains(draw: st.DrawFn) -> IntegerDomain:
    low = draw(st.one_of(INT64, st.sampled_from([-(2**63), -3, 0, 2**62 - 5, 2**63 - 20])))
    high = draw(st.integers(low, min(low + draw(st.sampled_from([0, 10, 2**30, 2**64])), 2**64 - 1)))
    return IntegerDomain(low, high, draw(st.integers(1, 7)))


@st.composite
def decimal_domains(draw: st.DrawFn) -> DecimalDomain:
    places = draw(st.integers(0, 4))
    low = draw(st.integers(-1000, 1000))
    high = low + draw(st.sampled_from([0, 7, 400, 10**10]))
    step = draw(st.integers(1, 50))
    return DecimalDomain(*(Decimal(f"{value}E-{places}") for value in (low, high, step)))


@st.composite
def date_domains(draw: st.DrawFn) -> DateDomain:
    low = draw(st.dates())
    return DateDomain(low, draw(st.dates(min_value=low)))


@st.composite
def timestamp_domains(draw: st.DrawFn) -> TimestampDomain:
    low = draw(st.datetimes())
    high = draw(st.datetimes(min_value=low))
    return TimestampDomain(low, high, draw(st.sampled_from(["100ns", "1us", "7ms", "1s", "15min", "1h", "36h", "1d"])))


@st.composite
def float_domains(draw: st.DrawFn) -> FloatDomain:
    places = draw(st.integers(0, 3))
    low = draw(st.integers(-1000, 1000))
    high = low + draw(st.integers(0, 500))
    return FloatDomain(*(Decimal(f"{value}E-{places}") for value in (low, high, draw(st.integers(1, 50)))))


TEXT = st.text(max_size=4)
TEXT_LISTS = st.lists(TEXT, min_size=1, max_size=8, unique=True).map(sorted)
DOMAINS = st.one_of(
    integer_domains(),
    decimal_domains(),
    date_domains(),
    timestamp_domains(),
    float_domains(),
    TEXT_LISTS.map(CategoryDomain),
    TEXT_LISTS.map(ExplicitKeys),
    st.lists(INT64, min_size=1, max_size=8, unique=True).map(sorted).map(ExplicitKeys),
    st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=8, unique=True).map(sorted).map(StringDomain),
)

KINDS: list[Domain] = [
    IntegerDomain(-5, 90, 5),
    DecimalDomain("-1", "3", "0.05"),
    DateDomain("2019-12-30", "2020-03-02"),
    TimestampDomain("2020-01-01T00:00:00.5", "2020-01-01T01:00:00", "100s"),
    FloatDomain("-1", "1", "0.1"),
    CategoryDomain(["", "a", "é", "😀"]),
    ExplicitKeys([-(2**63), 5, 2**63 - 1]),
    ExplicitKeys(["a", "b"]),
    StringDomain(["d", "m", "t"]),
]
each_kind = pytest.mark.parametrize("domain", KINDS, ids=lambda domain: domain.text.partition(":")[0])


def brute_span(ranked: Sequence[tuple[Any, int]], low: Any, high: Any) -> tuple[int, int]:
    """Return the span by looking at every key of the domain."""
    ranks = [rank for key, rank in ranked if (low is None or low <= key) and (high is None or key <= high)]
    return (min(ranks), max(ranks)) if ranks else (0, -1)


@given(DOMAINS)
def test_text_reads_back_to_an_equal_domain(domain: Domain) -> None:
    again = parse_domain(domain.text)
    assert again == domain
    assert hash(again) == hash(domain)
    assert (again.size, again.width, again.text) == (domain.size, domain.width, domain.text)


@given(DOMAINS, st.data())
def test_rank_of_the_smallest_key_is_the_rank(domain: Domain, data: st.DataObject) -> None:
    assert 1 <= domain.size <= MAX_SIZE
    rank = data.draw(st.integers(0, domain.size - 1))
    key: Any = domain.key(rank)
    assert domain.rank(key) == rank
    assert domain.span(key, None) == (rank, domain.size - 1)
    assert domain.span(None, key) == (0, rank)
    assert domain.span(None, None) == (0, domain.size - 1)
    if rank:
        before: Any = domain.key(rank - 1)
        assert before < key


@given(DOMAINS, st.data())
def test_columns_agree_with_single_keys(domain: Domain, data: st.DataObject) -> None:
    ranks = data.draw(st.lists(st.integers(0, domain.size - 1), max_size=5))
    others = data.draw(st.permutations(ranks))
    keys, more = [domain.key(rank) for rank in ranks], [domain.key(rank) for rank in others]
    assert domain.ranks(keys).tolist() == ranks
    assert domain.ranks(keys).dtype == np.int64
    firsts, lasts = domain.spans(keys, more)
    assert firsts.dtype == lasts.dtype == np.dtype(np.int64)
    both = list(zip(firsts.tolist(), lasts.tolist(), strict=True))
    assert both == [domain.span(*pair) for pair in zip(keys, more, strict=True)]
    assert [pair for pair in both if pair[1] < pair[0]] == [(0, -1)] * sum(
        low > high for low, high in zip(ranks, others, strict=True)
    )


@given(integer_domains(), st.data())
def test_integer_columns_agree_with_exact_arithmetic(domain: IntegerDomain, data: st.DataObject) -> None:
    stride = domain.step * domain.width
    near = st.one_of(
        st.integers(domain.low - 20, domain.low + 20),
        st.integers(domain.high - 20, domain.high + 20),
        st.integers(domain.low, domain.high),
        INT64,
    )
    for dtype in (np.int64, np.uint64):
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        inside = near.map(lambda key, least=least, most=most: max(least, min(key, most)))  # type: ignore[misc]
        lows, highs = data.draw(
            st.lists(st.tuples(inside, inside), min_size=1, max_size=9).map(lambda p: tuple(zip(*p, strict=True)))
        )
        firsts, lasts = domain.spans(np.array(lows, dtype), np.array(highs, dtype))
        for row, (low, high) in enumerate(zip(lows, highs, strict=True)):
            first = max(0, -((domain.low - low) // domain.step))
            last = min((domain.high - domain.low) // domain.step, (high - domain.low) // domain.step)
            expected = (0, -1) if first > last else (first // domain.width, last // domain.width)
            assert (
                (firsts[row], lasts[row]) == expected == domain.span(low, high) == domain.span(dtype(low), dtype(high))
            )
            for side, both in ((low, (low, None)), (high, (None, high))):
                one = np.array([side], dtype)
                open_first, open_last = domain.spans(*(None if end is None else one for end in both))
                assert (open_first[0], open_last[0]) == domain.span(*both)
        held = [key for key in lows if domain.low <= key <= domain.high and (key - domain.low) % domain.step == 0]
        expected_ranks = [(key - domain.low) // stride for key in held]
        assert domain.ranks(np.array(held, dtype)).tolist() == expected_ranks == [domain.rank(key) for key in held]
        for key in set(lows) - set(held):
            raised(OutOfDomain, lambda key=key: domain.rank(key))
            raised(OutOfDomain, lambda key=key, dtype=dtype: domain.ranks(np.array([key], dtype)))


def test_spans_of_integers_hold_exactly_the_keys_between() -> None:
    domain = IntegerDomain(-5, 16, 3)
    ranked = [(key, domain.rank(key)) for key in range(-5, 17, 3)]
    ends = [None, *range(-9, 21)]
    for low in ends:
        for high in ends:
            assert domain.span(low, high) == brute_span(ranked, low, high), (low, high)


@pytest.mark.parametrize(
    ("low", "high"),
    [(-(2**63), 2**63 - 1), (0, 2**64 - 1), (-(2**63), 2**64 - 1), (2**62 - 2, 2**62 + 2**27), (2**63 - 3, 2**63 + 3)],
)
def test_extreme_integers_are_exact(low: int, high: int) -> None:
    domain = IntegerDomain(low, high)
    points = high - low + 1
    assert domain.size == -(-points // domain.width) <= MAX_SIZE
    assert domain.width == 1 or -(-points // (domain.width // 2)) > MAX_SIZE
    keys = [low, low + 1, low + domain.width - 1, low + domain.width, high - 1, high]
    for dtype in (np.int64, np.uint64):
        held = [key for key in keys if np.iinfo(dtype).min <= key <= np.iinfo(dtype).max]
        ranks = [(key - low) // domain.width for key in held]
        assert domain.ranks(np.array(held, dtype)).tolist() == ranks
        assert [array.tolist() for array in domain.spans(np.array(held, dtype), np.array(held, dtype))] == [
            ranks,
            ranks,
        ]
    assert domain.ranks(keys).tolist() == [(key - low) // domain.width for key in keys]


def test_neighbours_beyond_float64_get_different_ranks() -> None:
    base = 2**62
    keys = np.arange(base, base + 5)
    assert len(set(keys.astype(np.float64))) == 1, "float64 can't tell these apart"
    assert IntegerDomain(base, base + 4).ranks(keys).tolist() == [0, 1, 2, 3, 4]
    assert ExplicitKeys(keys).ranks(keys).tolist() == [0, 1, 2, 3, 4]
    assert IntegerDomain(base, base + 4).ranks([base + 3, base]).tolist() == [3, 0]


def test_columns_longer_than_a_block_are_ranked_whole() -> None:
    domain = IntegerDomain(0, 10**6)
    keys = np.random.default_rng(1).integers(0, 10**6, 100_001)
    assert np.array_equal(domain.ranks(keys), keys)
    firsts, lasts = domain.spans(keys, keys[::-1])
    empty = keys > keys[::-1]
    assert np.array_equal(firsts, np.where(empty, 0, keys))
    assert np.array_equal(lasts, np.where(empty, -1, keys[::-1]))
    keys[70_001] = -1
    assert "row 70001 " in raised(OutOfDomain, lambda: domain.ranks(keys))
    floats = keys[:70_000] / 4
    assert np.array_equal(FloatDomain(0, 10**6, 1).ranks(floats), keys[:70_000] // 4)


@pytest.mark.parametrize("dtype", ["i1", "u1", "<i2", ">i4", "u4", ">i8", ">u8"])
def test_every_integer_type_is_taken(dtype: str) -> None:
    assert IntegerDomain(-3, 100).ranks(np.array([0, 7, 100], dtype)).tolist() == [3, 10, 103]
    assert IntegerDomain(-3, 100).ranks(np.arange(20, dtype=dtype)[::4]).tolist() == [3, 7, 11, 15, 19]


@pytest.mark.parametrize("low", ["0", "-0.3", "0.1", "1"])
@pytest.mark.parametrize("step", ["0.05", "0.1", "3"])
def test_decimals_on_the_grid(low: str, step: str) -> None:
    domain = DecimalDomain(low, "12.7", step)
    grid = [Decimal(low) + index * Decimal(step) for index in range(domain.size)]
    assert grid[-1] <= Decimal("12.7") < grid[-1] + Decimal(step)
    expected = list(range(domain.size))
    assert domain.ranks(grid).tolist() == expected
    assert domain.ranks([str(key) for key in grid]).tolist() == expected
    assert domain.ranks(np.array([float(key) for key in grid])).tolist() == expected
    assert [domain.rank(float(key)) for key in grid] == expected
    for kind in (pa.decimal128(20, 2), pa.decimal256(40, 4), pa.decimal128(38, 20), pa.decimal128(38, 30)):
        column = pa.array(grid).cast(kind)
        assert domain.ranks(column).tolist() == expected
        assert domain.ranks(pa.chunked_array([column[:2], column[2:2], column[2:]])).tolist() == expected
        assert domain.rank(column[1]) == 1
    ends = [None, *(Decimal(index) / 40 for index in range(-40, 600, 7))]
    ranked = list(zip(grid, expected, strict=True))
    for low_end in ends:
        for high_end in ends:
            assert domain.span(low_end, high_end) == brute_span(ranked, low_end, high_end)
    column = pa.array(ends[1:]).cast(pa.decimal128(38, 25))
    firsts, lasts = domain.spans(column, pa.array(ends[1:][::-1]).cast(pa.decimal128(38, 25)))
    pairs = zip(ends[1:], ends[1:][::-1], strict=True)
    assert list(zip(firsts.tolist(), lasts.tolist(), strict=True)) == [domain.span(*pair) for pair in pairs]


@given(st.floats(-50, 50), st.integers(-4000, 4000), st.integers(-6, 6))
def test_floats_on_a_decimal_grid_agree_with_single_ones(anywhere: float, cents: int, ulps: int) -> None:
    domain = DecimalDomain("-40", "40", "0.01")
    nearby = cents / 100
    for _ in range(abs(ulps)):
        nearby = math.nextafter(nearby, math.copysign(math.inf, ulps))
    for key in (anywhere, nearby):
        nearest = round(Fraction(key) * 100)
        held = abs(nearest) <= 4000 and abs(key - nearest / 100) <= 4 * math.ulp(key)
        assert held or key is anywhere or abs(ulps) > 2 or abs(nearby) > 40
        column = np.array([0.0, key])
        if held:
            assert domain.rank(key) == nearest + 4000
            assert domain.ranks(column).tolist() == [4000, nearest + 4000]
        else:
            raised(OutOfDomain, lambda key=key: domain.rank(key))
            raised(OutOfDomain, lambda column=column: domain.ranks(column))
        firsts, lasts = domain.spans(np.array([key]), np.array([anywhere]))
        assert (firsts[0], lasts[0]) == domain.span(key, anywhere)


def test_a_float_bound_of_a_decimal_query_snaps_to_its_grid_point() -> None:
    domain = DecimalDomain(0, 1, "0.01")
    assert domain.span(0.1, 0.1 + 0.2) == (10, 30)
    assert domain.span(0.101, 0.109) == (0, -1)
    assert domain.span(-math.inf, math.inf) == (0, 100)
    assert domain.span(Decimal("-Infinity"), Decimal("1e999999")) == (0, 100)
    assert domain.span(Decimal("1e-999999"), "0.02") == (1, 2)
    assert domain.spans([0.1, 0.5, math.inf], [0.1 + 0.2, 0.115, 1.0])[0].tolist() == [10, 0, 0]


def test_floats_too_large_for_their_grid_are_refused() -> None:
    domain = DecimalDomain(0, "1e16", "0.01")
    assert "too large" in raised(InvalidKeys, lambda: domain.rank(9e15))
    assert "row 1 " in raised(InvalidKeys, lambda: domain.ranks(np.array([1.0, 9e15])))
    assert domain.rank(Decimal("9e15")) == 9 * 10**17 // domain.width


def test_wide_decimals_keep_all_their_digits() -> None:
    domain = DecimalDomain("0.1234567890123456789012345678901", "9" * 40, "1e-31")
    assert parse_domain(domain.text) == domain
    assert domain.rank("0.1234567890123456789012345678901") == 0
    assert "outside" in raised(OutOfDomain, lambda: domain.rank("0.1234567890123456789012345678900"))
    column = pa.array([Decimal("9" * 40), Decimal(1)], pa.decimal256(75, 31))
    assert domain.ranks(column).tolist() == [domain.size - 1, 0]


DAYS = [date(2019, 12, 30) + timedelta(days=index) for index in range(64)]


@pytest.mark.parametrize(
    "column",
    [
        DAYS,
        [day.isoformat() for day in DAYS],
        [datetime(day.year, day.month, day.day) for day in DAYS],
        np.array(DAYS, "datetime64[D]"),
        np.array(DAYS, "datetime64[ns]"),
        np.array(DAYS, "datetime64[12h]"),
        pa.array(DAYS, pa.date32()),
        pa.chunked_array([pa.array(DAYS[:9], pa.date64()), pa.array(DAYS[9:], pa.date64())]),
        pa.array(DAYS, pa.date32()).cast(pa.timestamp("s")),
    ],
    ids=lambda column: str(getattr(column, "dtype", getattr(column, "type", type(column[0]).__name__))),
)
def test_dates_in_every_form(column: Any) -> None:
    domain = DateDomain("2019-12-30", "2020-03-02")
    assert domain.size == 64
    assert domain.ranks(column).tolist() == list(range(64))
    assert domain.rank(column[5]) == 5
    assert [array.tolist() for array in domain.spans(column, column)] == [list(range(64))] * 2


def test_dates_with_a_time_of_day() -> None:
    domain = DateDomain("2020-01-01", "2020-01-31")
    noon = np.array(["2020-01-02T00", "2020-01-05T12"], "datetime64[h]")
    assert "row 1 lies between" in raised(OutOfDomain, lambda: domain.ranks(noon))
    assert "lies between" in raised(OutOfDomain, lambda: domain.rank(noon[1]))
    assert domain.span(noon[1], noon[1]) == (0, -1)
    assert domain.span(noon[1], "2020-01-07") == (5, 6)
    assert [array.tolist() for array in domain.spans(noon, noon)] == [[1, 0], [1, -1]]
    months = np.array(["2019-12", "2020-01", "2020-02"], "datetime64[M]")
    assert [array.tolist() for array in domain.spans(months, months)] == [[0, 0, 0], [-1, 0, -1]]
    assert [domain.span(month, month) for month in months] == [(0, -1), (0, 0), (0, -1)]
    years = np.array([-(2**62), 50, 2**62]).view("datetime64[Y]")
    assert [array.tolist() for array in domain.spans(years, years)] == [[0, 0, 0], [-1, 0, -1]]
    assert [domain.span(year, None) for year in years] == [(0, 30), (0, 30), (0, -1)]


@given(timestamp_domains(), st.data())
def test_timestamps_agree_with_exact_arithmetic(domain: TimestampDomain, data: st.DataObject) -> None:
    epoch = datetime(1970, 1, 1)

    def exact(moment: datetime) -> int:
        return (moment - epoch) // timedelta(microseconds=1) * 1000

    low, high = exact(datetime.fromisoformat(domain.low)), exact(datetime.fromisoformat(domain.high))
    count, unit = int(domain.resolution.rstrip("numsihd")), domain.resolution.lstrip("0123456789")
    sizes = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
    step = count * sizes[unit]
    points = (high - low) // step + 1
    moments = [
        *data.draw(st.lists(st.datetimes(), min_size=1, max_size=4)),
        datetime.fromisoformat(domain.low),
        datetime.fromisoformat(domain.high),
    ]
    for numpy_unit, size in (("us", 10**3), ("ms", 10**6), ("s", 10**9), ("D", 86400 * 10**9), ("h", 3600 * 10**9)):
        column = np.array(moments, "datetime64[us]").astype(f"datetime64[{numpy_unit}]")
        instants = [int(value) * size for value in column.astype(np.int64)]
        held = [low <= instant < low + points * step for instant in instants]
        expected = [
            (instant - low) // step // domain.width for instant, inside in zip(instants, held, strict=True) if inside
        ]
        assert domain.ranks(column[held]).tolist() == expected
        assert [domain.rank(key) for key in column[held]] == expected
        if not all(held):
            row = held.index(False)
            assert f"row {row} " in raised(OutOfDomain, lambda column=column: domain.ranks(column))
        firsts, lasts = domain.spans(column, column[::-1])
        for row, (one, two) in enumerate(zip(instants, instants[::-1], strict=True)):
            empty = one > two or one >= low + points * step or two < low
            first = max(0, (one - low) // step) // domain.width
            last = min(points - 1, (two - low) // step) // domain.width
            assert (firsts[row], lasts[row]) == ((0, -1) if empty else (first, last))
            assert domain.span(column[row], column[::-1][row]) == (firsts[row], lasts[row])


def test_timestamps_of_100_nanoseconds_are_exact() -> None:
    domain = TimestampDomain("2020-01-01T00:00:00", "2020-01-01T00:00:00.001", "100ns")
    assert (domain.size, domain.width) == (10_001, 1)
    start = np.datetime64("2020-01-01T00:00:00", "ns")
    column = start + np.arange(0, 1_000_001, 100).astype("timedelta64[ns]")
    assert np.array_equal(domain.ranks(column), np.arange(10_001))
    assert np.array_equal(domain.ranks(pa.array(column)), np.arange(10_001))
    assert domain.rank("2020-01-01T00:00:00.000000199") == 1
    assert domain.rank(start + np.timedelta64(299, "ns")) == 2
    assert domain.rank(pa.scalar(start + np.timedelta64(299, "ns"))) == 2
    assert domain.key(3) == start + np.timedelta64(300, "ns")
    assert domain.spans(column, None)[0].tolist() == list(range(10_001))


def test_bounds_of_one_bin_and_of_different_units() -> None:
    domain = TimestampDomain("2020-01-01", "2020-01-01T23:59:59", "1h")
    minutes = np.array(["2020-01-01T05:10", "2020-01-01T05:50"], "datetime64[m]")
    assert [array.tolist() for array in domain.spans(minutes, minutes[::-1])] == [[5, 0], [5, -1]]
    assert domain.span(minutes[1], minutes[0]) == (0, -1)
    hours = np.array(["2020-01-01T05", "2020-01-01T06"], "datetime64[h]")
    assert [array.tolist() for array in domain.spans(minutes, hours)] == [[0, 5], [-1, 6]]
    assert [array.tolist() for array in domain.spans(hours, pa.array(minutes.astype("datetime64[ns]")))] == [
        [5, 0],
        [5, -1],
    ]
    assert [array.tolist() for array in domain.spans(hours, ["2020-01-01T07:00:00", "2020-01-03"])] == [[5, 6], [7, 23]]


def test_timestamps_are_instants_in_utc() -> None:
    domain = TimestampDomain("2020-01-01T00:00:00+01:00", datetime(2020, 1, 1, tzinfo=UTC), "1h")
    assert domain.text == "timestamp:2019-12-31T23:00:00:2020-01-01T00:00:00:1h"
    paris = timezone(timedelta(hours=1))
    assert domain.rank(datetime(2020, 1, 1, 1, 30, tzinfo=paris)) == 1
    assert domain.rank("2020-01-01T01:30:00+01:00") == 1
    assert domain.rank("2020-01-01T00:59:59.999999999Z") == 1, "the last bin is whole"
    assert domain.rank(datetime(2020, 1, 1, 0, 30)) == 1
    column = pa.array([datetime(2020, 1, 1, 1, 30, tzinfo=paris)], pa.timestamp("us", "Europe/Paris"))
    assert domain.ranks(column).tolist() == [1]
    assert domain.rank(column[0]) == 1
    assert TimestampDomain("2020-01-01", "2020-01-02", "60s") == TimestampDomain("2020-01-01", "2020-01-02", "1min")


def test_arrow_timestamps_reach_the_ends_of_int64() -> None:
    domain = TimestampDomain("0001-01-01", "9999-12-31T23:59:59.999999999", "1ns")
    assert domain.width > 1
    ends = pa.array([-(2**63), 2**63 - 1], pa.int64()).cast(pa.timestamp("ns"))
    low = -62135596800 * 10**9
    assert domain.ranks(ends).tolist() == [(end - low) // domain.width for end in (-(2**63), 2**63 - 1)]
    assert "outside" in raised(OutOfDomain, lambda: domain.ranks(ends.cast(pa.int64()).cast(pa.timestamp("us"))))
    assert domain.rank(domain.key(domain.size - 1)) == domain.size - 1


def test_categories_explicit_keys_and_strings_hold_exactly_the_keys_between() -> None:
    words = ["", "A", "a", "ab", "b", "é", "\ufffd", "😀"]
    assert words == sorted(words, key=lambda word: word.encode())
    ends = [None, *words, "0", "aa", "z", "\U0010ffff"]
    for domain in (CategoryDomain(words), ExplicitKeys(words)):
        ranked = list(zip(words, range(8), strict=True))
        assert domain.ranks(words).tolist() == list(range(8))
        assert {(low, high): domain.span(low, high) for low in ends for high in ends} == {
            (low, high): brute_span(ranked, low, high) for low in ends for high in ends
        }
        assert domain.span("aa", "aa") == (0, -1)
    split = StringDomain(words[1:])
    for end in ends[1:]:
        assert end is not None
        expected = sum(word.encode() <= end.encode() for word in words[1:])
        assert split.rank(end) == expected
        assert split.span(end, end) == (expected, expected)
    assert split.span("b", "a") == (0, -1)
    integers = ExplicitKeys([-7, 0, 3, 2**63 - 1])
    ranked_integers = list(zip(integers.keys, range(4), strict=True))
    bounds = [None, -(2**63), -8, -7, -1, 0, 2, 3, 4, 2**63 - 2, 2**63 - 1, 2**64]
    for low in bounds:
        for high in bounds:
            assert integers.span(low, high) == brute_span(ranked_integers, low, high)
    small = [bound for bound in bounds if bound is not None and bound < 2**63]
    firsts, lasts = integers.spans(np.array(small), np.array(small[::-1]))
    pairs = list(zip(small, small[::-1], strict=True))
    assert list(zip(firsts.tolist(), lasts.tolist(), strict=True)) == [integers.span(*pair) for pair in pairs]
    assert integers.spans(np.array([2], np.uint64), np.array([2**63], np.uint64))[1].tolist() == [3]
    assert ExplicitKeys([0, 2**63]).ranks(np.array([2**63, 0], np.uint64)).tolist() == [1, 0]
    assert ExplicitKeys([0, 2**63]).ranks(np.array([0])).tolist() == [0]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_arrow_strings(kind: Any) -> None:
    domain = CategoryDomain(["a", "b", "c"])
    column = pa.array(["c", "a", "c", "b"]).cast(kind)
    assert domain.ranks(column).tolist() == [2, 0, 2, 1]
    chunked = pa.chunked_array([pa.array(["c", "a"]).cast(kind), pa.array(["b", "c"]).cast(kind)])
    assert domain.ranks(chunked).tolist() == [2, 0, 1, 2]
    assert domain.rank(column[0]) == 2
    assert [array.tolist() for array in domain.spans(column, chunked)] == [[2, 0, 0, 1], [2, 0, -1, 2]]
    stray = pa.array(["a", "b", "zebra", "yak", "zebra"]).cast(kind)
    assert "row 2 " in (message := raised(OutOfDomain, lambda: domain.ranks(stray)))
    assert "zebra" not in message


@given(float_domains(), st.data())
def test_floats_in_bins_agree_with_fractions(domain: FloatDomain, data: st.DataObject) -> None:
    low, high = Fraction(domain.low), Fraction(domain.high)
    stride = Fraction(domain.step) * domain.width
    assert domain.size == max(1, math.ceil((high - low) / stride))
    keys = [0.0, -0.0, 5e-324, -5e-324, float(low), float(high)]
    for rank in data.draw(st.lists(st.integers(0, domain.size), max_size=5)):
        edge = float(low + rank * stride)
        keys += [edge, math.nextafter(edge, math.inf), math.nextafter(edge, -math.inf)]
    keys += data.draw(st.lists(st.floats(float(low) - 1, float(high) + 1), max_size=5))
    held = [key for key in keys if float(low) <= key <= float(high)]
    expected = [min(max(math.floor((Fraction(key) - low) / stride), 0), domain.size - 1) for key in held]
    assert domain.ranks(np.array(held)).tolist() == expected
    assert [domain.rank(key) for key in held] == expected
    strays = [key for key in keys if key not in held]
    for key in strays:
        raised(OutOfDomain, lambda key=key: domain.rank(key))
        raised(OutOfDomain, lambda key=key: domain.ranks(np.array([key])))
    lows = [*keys, -math.inf, math.inf]
    highs = data.draw(st.permutations(lows))
    firsts, lasts = domain.spans(np.array(lows), np.array(highs))
    for row, (one, two) in enumerate(zip(lows, highs, strict=True)):
        empty = one > two or one > float(high) or two < float(low)
        inside = [min(max(end, float(low)), float(high)) for end in (one, two)]
        assert (firsts[row], lasts[row]) == ((0, -1) if empty else tuple(map(domain.rank, inside)))
        assert domain.span(one, two) == (firsts[row], lasts[row])


@pytest.mark.parametrize(
    "text", ["float:0:1:0.1", "float:-180:180:0.000001", "float:0:1:1e-15", "float:1e9:2e9:0.3", "float:0:1e70:1e69"]
)
def test_floats_at_every_kind_of_edge(text: str) -> None:
    domain = parse_domain(text)
    assert isinstance(domain, FloatDomain)
    low, stride = Fraction(domain.low), Fraction(domain.step) * domain.width
    picked = np.random.default_rng(2).integers(0, domain.size, 300)
    edges = [float(low + int(rank) * stride) for rank in picked]
    keys = np.array([edges, np.nextafter(edges, np.inf)]).ravel().clip(float(domain.low), float(domain.high))
    expected = [min(max(math.floor((Fraction(key) - low) / stride), 0), domain.size - 1) for key in keys.tolist()]
    assert domain.ranks(keys).tolist() == expected
    assert domain.ranks(keys.tolist()).tolist() == expected == [domain.rank(key) for key in keys]


def test_float_bounds_and_other_numbers() -> None:
    domain = FloatDomain(0, "0.1", "0.01")
    assert Fraction(0.1) > Fraction(1, 10)
    assert domain.rank(0.1) == domain.rank(Decimal("0.1")) == 9
    assert "outside" in raised(OutOfDomain, lambda: domain.rank(math.nextafter(0.1, 1)))
    assert FloatDomain(0, 10, "0.5").ranks(np.array([0, 3, 10])).tolist() == [0, 6, 19]
    assert FloatDomain(0, 10, "0.5").ranks(np.array([0.5, 3.25], np.float32)).tolist() == [1, 6]
    assert FloatDomain(0, 2**60, 2**40).ranks(np.array([2**59 - 1, 2**59])).tolist() == [2**19 - 1, 2**19]
    assert FloatDomain(0, 1, "0.25").ranks(pa.array([Decimal("0.25"), Decimal("0.24")])).tolist() == [1, 0]
    assert FloatDomain(3, 3, 1).ranks([3.0]).tolist() == [0]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("int:7:7", 7),
        ("decimal:7:7:0.5", Decimal(7)),
        ("date:2020-02-29:2020-02-29", date(2020, 2, 29)),
        ("timestamp:2020-01-01:2020-01-01:1d", datetime(2020, 1, 1, 23)),
        ("float:0:1:1", 1.0),
        ('category:["x"]', "x"),
        ("keys:[7]", 7),
    ],
)
def test_domains_of_one_rank(text: str, key: object) -> None:
    domain = parse_domain(text)
    assert domain.size == 1
    assert domain.rank(key) == 0
    assert domain.ranks([key, key]).tolist() == [0, 0]
    assert domain.span(key, key) == domain.span(None, None) == (0, 0)


@each_kind
def test_empty_columns_have_no_ranks(domain: Domain) -> None:
    columns: list[Any] = [[], np.array([]), np.array([], object), pa.array([]), pa.chunked_array([], pa.string())]
    for empty in columns:
        assert domain.ranks(empty).dtype == np.int64
        assert domain.ranks(empty).shape == (0,)
        assert [array.shape for array in domain.spans(empty, empty)] == [(0,), (0,)]


@each_kind
def test_is_list_tells_which_texts_can_be_long(domain: Domain) -> None:
    assert domain.is_list == domain.text.startswith(("category", "keys", "string"))


@each_kind
def test_ranks_outside_have_no_key(domain: Domain) -> None:
    for rank in (-1, domain.size):
        with pytest.raises(InvalidParameter, match=f"0 to {domain.size - 1}"):
            domain.key(rank)


def test_a_scalar_and_an_array_without_dimensions_are_columns_of_one() -> None:
    assert IntegerDomain(0, 9).ranks(4).tolist() == [4]
    assert IntegerDomain(0, 9).ranks(np.int64(4)).tolist() == [4]
    assert IntegerDomain(0, 9).ranks(np.array(4)).tolist() == [4]
    assert CategoryDomain(["a", "ab"]).ranks("ab").tolist() == [1]
    assert IntegerDomain(0, 9).rank(pa.scalar(4)) == IntegerDomain(0, 9).rank(np.array(4)) == 4


def test_every_domain_is_tested() -> None:
    assert {type(domain) for domain in KINDS} == set(domains.DOMAINS.values())
    assert all(hasattr(types, name) for name in types.__all__)
