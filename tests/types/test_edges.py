"""Constants at the very edges of what a type knows exactly, which chance seldom draws, and grids by brute force."""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from scumble.types import ColumnType, Operator, parse_type
from scumble.types.grid import Grid

Words = tuple[int, int]
NOTHING: Words = (1, 0)


def by_every_operator(type_: ColumnType, value: object) -> dict[Operator, Words] | None:
    """The least and the greatest word that each operator leaves, of a type of one word."""
    operators: tuple[Operator, ...] = ("<", "<=", "=", ">=", ">")
    found = {op: interval for op in operators if (interval := type_.interval(op, value)) is not None}
    return {op: (low[0], high[0]) for op, (low, high) in found.items()} or None


def about(least: int, most: int, above: int, below: int) -> dict[Operator, Words]:
    """What every operator leaves of the words from least to most for a constant between two of them, or at one."""
    ends: dict[Operator, Words] = {
        "<": (least, above - 1),
        "<=": (least, below),
        "=": (above, below),
        ">=": (above, most),
        ">": (below + 1, most),
    }
    cut = {op: (max(low, least), min(high, most)) for op, (low, high) in ends.items()}
    return {op: (low, high) if low <= high else NOTHING for op, (low, high) in cut.items()}


@pytest.mark.parametrize(
    ("value", "word"),
    [("true", 1), ("false", 0), (True, 1), (False, 0), (2**63 - 1, 2**63 - 1), (-(2**63), -(2**63)), (2, 2), (-1, -1)],
)
def test_a_boolean_is_a_number_of_64_bits_to_what_it_is_compared_with(value: object, word: int) -> None:
    assert by_every_operator(parse_type("boolean"), value) == about(0, 1, word, word)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, "True", "t", "1", 1.0])
def test_with_anything_else_duckdb_compares_booleans(value: object) -> None:
    assert by_every_operator(parse_type("boolean"), value) is None


@pytest.mark.parametrize("declared", ["bigint", "tinyint", "decimal(18,0)", "decimal(18,18)", "decimal(4,2)"])
@pytest.mark.parametrize("value", [1e300, 1e20, math.inf, math.nan, -1e300, -1e20, -math.inf])
def test_floats_beyond_every_word_are_greater_or_less_than_all(declared: str, value: float) -> None:
    type_ = parse_type(declared)
    (least,), (most,) = type_.full_interval
    far = -(2**200) if value < 0 else 2**200
    assert by_every_operator(type_, value) == about(least, most, far, far)


@pytest.mark.parametrize(
    ("declared", "value", "above", "below"),
    [
        ("decimal(12,2)", 0.29, 29, 29),  # the product with 100 is just below 29
        ("decimal(12,2)", math.nextafter(0.29, 0), 29, 28),
        ("decimal(12,2)", math.nextafter(0.29, 1), 30, 29),
        ("decimal(12,2)", 0.57, 57, 57),
        ("decimal(12,2)", -0.29, -29, -29),
        ("decimal(12,2)", 1.1, 110, 110),
        ("decimal(12,2)", math.nextafter(1.1, 0), 110, 109),  # the product is 110 when it is rounded
        ("decimal(12,2)", 0.055, 6, 5),
        ("decimal(12,2)", 0.0, 0, 0),
        ("decimal(18,0)", 2.0**51 - 1, 2**51 - 1, 2**51 - 1),
        ("decimal(18,0)", -(2.0**51) + 0.5, -(2**51) + 1, -(2**51)),
        ("decimal(18,1)", 2.0**47, 10 * 2**47, 10 * 2**47),
    ],
)
def test_a_float_lies_among_decimals_where_their_doubles_say(
    declared: str, value: float, above: int, below: int
) -> None:
    type_ = parse_type(declared)
    (least,), (most,) = type_.full_interval
    assert by_every_operator(type_, value) == about(least, most, above, below)


@pytest.mark.parametrize(
    ("declared", "value", "known"),
    [
        ("decimal(18,0)", 2.0**51, False),
        ("decimal(18,0)", -(2.0**51), False),
        ("decimal(18,2)", 2.0**45, False),  # so many cents have more than 51 bits
        ("decimal(18,0)", 2e18, False),
        ("decimal(18,0)", math.nextafter(2e18, math.inf), True),
        ("decimal(18,2)", 1e17, True),
        ("decimal(18,2)", 2e16, False),
    ],
)
def test_a_float_that_is_too_large_for_exact_doubles_is_left_to_duckdb_unless_no_decimal_reaches_it(
    declared: str, value: float, known: bool
) -> None:
    type_ = parse_type(declared)
    (least,), (most,) = type_.full_interval
    assert by_every_operator(type_, value) == (about(least, most, 2**200, 2**200) if known else None)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("00:00:00", 0),
        ("23:59:59", 86_399_000_000),
        ("23:59:59.999999", 86_399_999_999),
        ("01:02:03", 3_723_000_000),
        ("01:02:03.5", 3_723_500_000),
        ("01:02:03.000007", 3_723_000_007),
        ("22:58:58", 82_738_000_000),
    ],
)
def test_texts_that_are_times_of_a_day(text: str, word: int) -> None:
    assert by_every_operator(parse_type("time"), text) == about(0, 86_400 * 10**6 - 1, word, word)


@pytest.mark.parametrize("text", ["24:00:00", "00:60:00", "00:00:60", "noon", "", "12:00", "1:2:3"])
def test_texts_that_may_be_times_or_not(text: str) -> None:
    assert by_every_operator(parse_type("time"), text) is None


@pytest.mark.parametrize("months", [-(2**31), -5, 0, 1, 2**31 - 1])
@pytest.mark.parametrize("days", [-(2**31), -7, -1, 0, 1, 2**31 - 1])
@pytest.mark.parametrize("nanoseconds", [-(2**63), -1000, 0, 2**63 - 1])
def test_an_interval_comes_back_from_its_words(months: int, days: int, nanoseconds: int) -> None:
    type_, value = parse_type("interval"), pa.MonthDayNano([months, days, nanoseconds])
    assert type_.value_of(type_.words_of(value)) == value


def test_blobs_compare_with_blobs_of_as_many_words_alone() -> None:
    blob = parse_type("blob(9)")
    assert blob.comparable_with(parse_type("blob(10)"))
    assert not blob.comparable_with(parse_type("blob(90)"))
    text = next(type_ for n in range(1, 30) if (type_ := parse_type(f"text({n})")).words == blob.words)
    assert not blob.comparable_with(text)
    assert not blob.comparable_with(parse_type("bigint"))


@pytest.mark.parametrize("binned", [False, True])
@pytest.mark.parametrize("tick", [Fraction(1), Fraction(2), Fraction(3), Fraction(5, 2), Fraction(1, 2), Fraction(7)])
@pytest.mark.parametrize(
    ("low", "high", "step"), [(0, 6, 1), (1, 9, 1), (1, 13, 2), (5, 20, 3), (-4, 4, 1), (-3, 12, 5)]
)
def test_a_span_has_just_the_points_between_its_ends(
    low: int, high: int, step: int, tick: Fraction, binned: bool
) -> None:
    """Ends are multiples of a tick, finer or coarser than the grid's unit, inside of the grid and far outside."""
    grid = Grid.build(low, high, step, binned=binned)
    ends = np.arange(-9, 30)
    lows, highs = np.repeat(ends, len(ends)), np.tile(ends, len(ends))
    begin = (low + np.arange(grid.points) * step) * tick.denominator
    end = begin + (step * tick.denominator - 1 if binned else 0)
    for given_lows, given_highs in ((lows, highs), (ends, None), (None, ends)):
        firsts, lasts = grid.spans(given_lows, given_highs, tick)
        for row, found in enumerate(zip(firsts.tolist(), lasts.tolist(), strict=True)):
            least = -math.inf if given_lows is None else given_lows[row] * tick.numerator
            most = math.inf if given_highs is None else given_highs[row] * tick.numerator
            held = np.flatnonzero((end >= least) & (begin <= most)) if least <= most else ends[:0]
            assert found == ((held[0], held[-1]) if len(held) else (0, -1))


@pytest.mark.parametrize("most", [2**64 - 1, 2**64, 2**64 + 1, 10**25])
def test_an_open_end_of_a_grid_whose_points_have_more_than_64_bits(most: int) -> None:
    grid = Grid.build(0, most, 1)
    firsts, lasts = grid.spans(np.array([0, 2**63 - 1]), None, Fraction(1))
    assert firsts.tolist() == [0, (2**63 - 1) >> grid.shift]
    assert lasts.tolist() == [grid.size - 1] * 2
