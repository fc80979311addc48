"""Masks, aggregates, groups and wide expressions against plain Python, which decides by branching."""

import math
import operator
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import kernel_calls as calls
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scumble.enclave import kernels
from scumble.enclave.kernels import CODES
from scumble.wire.plan import PARTS, SUM, WIDE_SUM, Part

LEAST, MOST = -(1 << 63), (1 << 63) - 1
WIDE_LEAST, WIDE_MOST = -(1 << 127), (1 << 127) - 1
WORDS = st.one_of(st.integers(-3, 3), st.sampled_from([LEAST, LEAST + 1, MOST - 1, MOST]), st.integers(LEAST, MOST))
WIDES = st.one_of(
    st.integers(-3, 3),
    st.integers(WIDE_LEAST, WIDE_MOST),
    st.integers(-(1 << 64), 1 << 64),
    st.sampled_from([WIDE_LEAST, WIDE_LEAST + 1, WIDE_MOST, 1 << 63, 1 << 64, -(1 << 63), (1 << 64) - 1]),
)
BITS = st.integers(0, 1)
# Past a block of 1,024 rows, and with a remainder behind every vector.
LONG = 2 * 1024 + 37


def words(values: Any) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def mask(values: Any) -> NDArray[np.uint8]:
    return np.array(values, dtype=np.uint8)


def wide(values: list[int]) -> NDArray[np.int64]:
    data = b"".join(value.to_bytes(16, "little", signed=True) for value in values)
    return np.frombuffer(bytearray(data), dtype=np.int64).reshape(len(values), 2)


@st.composite
def columns(draw: st.DrawFn, width: int = 1) -> tuple[list[Any], list[int], list[int] | None]:
    """Values (tuples if width > 1), a mask, and perhaps a validity; short, or long by repetition."""
    value: st.SearchStrategy[Any] = WORDS
    if width > 1:
        value = st.tuples(*[st.one_of(st.integers(0, 1), WORDS)] * width)
    rows: list[Any] = draw(st.lists(st.tuples(value, BITS, BITS), max_size=70))
    long = draw(st.booleans())
    if long:
        rows = (rows * LONG)[:LONG]
    valid = [row[2] for row in rows] if draw(st.booleans()) else None
    return [row[0] for row in rows], [row[1] for row in rows], valid


def column(values: list[Any], width: int = 1) -> NDArray[np.int64]:
    return words(values) if width == 1 else words(values).reshape(len(values), width)


def live(values: list[Any], keep: list[int], valid: list[int] | None) -> list[Any]:
    return [x for x, m, v in zip(values, keep, valid or [1] * len(values), strict=True) if m and v]


def optional(valid: list[int] | None) -> NDArray[np.uint8] | None:
    return None if valid is None else mask(valid)


@given(st.integers(0, 1 << 40), st.integers(0, 200), st.integers(-5, 205), st.integers(0, 210))
def test_rows_that_are_no_dummies_are_marked(start: int, n: int, more: int, dummies: int) -> None:
    stretch = np.array([start + more, start + more + dummies])
    expected = [int(not more <= i < more + dummies) for i in range(n)]
    assert kernels.mask_rows(start, n, stretch).tolist() == expected


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@given(st.data())
def test_a_row_matches_if_any_interval_holds_it(width: int, data: st.DataObject) -> None:
    values, _, valid = data.draw(columns(width))
    end = WORDS if width == 1 else st.tuples(*[st.one_of(st.integers(0, 1), WORDS)] * width)
    ends = st.one_of(end, st.sampled_from(values)) if values else end
    intervals = data.draw(st.lists(st.tuples(ends, ends), max_size=4))
    negated, null_matches = data.draw(st.booleans()), data.draw(st.booleans())
    bounds = words(intervals).reshape((len(intervals), 2) if width == 1 else (len(intervals), 2, width))
    got = kernels.mask_intervals(
        column(values, width), bounds, optional(valid), negated=negated, null_matches=null_matches
    )
    expected = [
        (any(low <= x <= high for low, high in intervals) != negated) if v else null_matches
        for x, v in zip(values, valid or [1] * len(values), strict=True)
    ]
    assert got.tolist() == [int(match) for match in expected]


COMPARISONS = {kernels.EQ: operator.eq, kernels.LT: operator.lt, kernels.LE: operator.le}


@pytest.mark.parametrize("width", [1, 2, 4])
@given(st.data())
def test_columns_compare_row_by_row(width: int, data: st.DataObject) -> None:
    values, others_valid, valid = data.draw(columns(width))
    others = values[1:] + values[:1]
    negated, nullable = data.draw(st.booleans()), data.draw(st.booleans())
    present = valid or [1] * len(values), others_valid if nullable else [1] * len(values)
    both = list(zip(values, others, *present, strict=True))
    for op, holds in COMPARISONS.items():
        got = kernels.mask_compare(
            column(values, width),
            column(others, width),
            op,
            optional(valid),
            mask(others_valid) if nullable else None,
            negated=negated,
        )
        assert got.tolist() == [int(bool(v and w and holds(a, b) != negated)) for a, b, v, w in both]


@given(columns())
def test_count_sum_and_squares_are_exact(rows: tuple[list[int], list[int], list[int] | None]) -> None:
    values, keep, valid = rows
    kept = live(values, keep, valid)
    arguments = (words(values), mask(keep), optional(valid))
    assert calls.count(mask(keep), optional(valid)) == len(kept)
    assert calls.sum_words(*arguments) == sum(kept)
    assert calls.sum_squares(*arguments) == sum(x * x for x in kept)


@pytest.mark.parametrize("value", [LEAST, MOST])
def test_extreme_words_do_not_overflow(value: int) -> None:
    n = 100_000
    x, every = np.full(n, value, dtype=np.int64), np.ones(n, dtype=np.uint8)
    assert calls.count(every) == n
    assert calls.sum_words(x, every) == n * value
    assert calls.sum_squares(x, every) == n * value * value
    assert calls.wide_sum(wide([value << 64] * n), every) == n * value << 64


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@given(st.data())
def test_extremes_over_two_pages(width: int, data: st.DataObject) -> None:
    kept, extremes = [], kernels.no_extremes(width)
    for _ in range(2):
        values, keep, valid = data.draw(columns(width))
        kept += live(values, keep, valid)
        calls.min_max(column(values, width), mask(keep), extremes, optional(valid))
    if kept:
        least, most = (min(kept), max(kept)) if width > 1 else ((min(kept),), (max(kept),))
        assert extremes.tolist() == [list(least), list(most)]
    else:
        assert np.array_equal(extremes, kernels.no_extremes(width))


@given(st.lists(st.floats(), max_size=50))
def test_float_words_keep_the_order(values: list[float]) -> None:
    floats = np.array(values, dtype=np.float64)
    encoded = calls.float_words(floats)
    decoded = calls.word_floats(encoded)
    np.testing.assert_array_equal(decoded, floats)
    assert not np.signbit(decoded[decoded == 0]).any()
    np.testing.assert_array_equal(np.sort(floats), calls.word_floats(np.sort(encoded)))
    assert len(set(encoded[np.isnan(floats)].tolist())) <= 1


def test_every_nan_becomes_the_same_word_in_silence() -> None:
    bits = words([0x7FF0000000000001, 0x7FF8000000000000, 0x7FFFFFFFFFFFFFFF, -1, LEAST + 0x7FF0000000000001])
    assert set(calls.float_words(bits.view(np.float64)).tolist()) == {0x7FF8000000000000}
    assert (calls.float_words(np.array([math.inf])) < 0x7FF8000000000000).all()


# Squares of these neither overflow nor underflow, so that the documented error is all there is.
MODERATE = st.floats(-1e100, 1e100).filter(lambda x: x == 0 or abs(x) > 1e-100)
Total = Callable[[NDArray[np.int64], NDArray[np.uint8], NDArray[np.float64], NDArray[np.uint8] | None], None]
FLOAT_SUMS = [(calls.sum_floats, 1), (calls.sum_squares_floats, 2)]


@pytest.mark.parametrize(("kernel", "power"), FLOAT_SUMS, ids=["sum", "squares"])
@given(st.lists(st.tuples(MODERATE, BITS), max_size=70), st.integers(1, 40), st.booleans())
def test_float_sums_stay_within_the_documented_error(
    kernel: Total, power: int, rows: list[tuple[float, int]], times: int, nullable: bool
) -> None:
    rows = rows * times
    x, keep = np.array([row[0] for row in rows], dtype=np.float64), mask([row[1] for row in rows])
    total = np.zeros(2)
    every = np.ones_like(keep)
    kernel(calls.float_words(x), every if nullable else keep, total, keep if nullable else None)
    exact = [Fraction(value) ** power for value, kept in rows if kept]
    error = abs(Fraction(float(total[0])) + Fraction(float(total[1])) - sum(exact))
    assert error <= (Fraction(len(rows), 64) + 100) ** 2 / 2**105 * sum(abs(value) for value in exact)


def test_float_sum_keeps_what_plain_addition_loses() -> None:
    x = np.array([1e16, 1.0, -1e16, 1.0] * 500)
    total = np.zeros(2)
    calls.sum_floats(calls.float_words(x), np.ones(len(x), dtype=np.uint8), total)
    assert total.sum() == math.fsum(x) == 1000


@pytest.mark.parametrize("kernel", [calls.sum_floats, calls.sum_squares_floats])
@pytest.mark.parametrize("n", [1, 16, 17, 3000])
def test_masked_rows_that_are_no_numbers_do_not_count(kernel: Total, n: int) -> None:
    for value in (math.nan, math.inf, -math.inf, 1e308):
        x = np.full(n, value)
        x[n // 2] = 3.0
        keep = np.zeros(n, dtype=np.uint8)
        keep[n // 2] = 1
        total = np.zeros(2)
        kernel(calls.float_words(x), keep, total, None)
        assert total.tolist() == [3.0 if kernel is calls.sum_floats else 9.0, 0.0]


@pytest.mark.parametrize(
    ("values", "expected", "squares"),
    [
        ([math.inf, 1.0], math.inf, math.inf),
        ([-math.inf, 1e308, 1e308], -math.inf, math.inf),
        ([math.inf, -math.inf], math.nan, math.inf),
        ([math.nan, 1.0], math.nan, math.nan),
        ([math.nan, math.inf], math.nan, math.nan),
        ([1e200], 1e200, math.inf),
        ([-0.0], 0.0, 0.0),
        ([5e-324, 5e-324], 1e-323, 0.0),
    ],
)
@pytest.mark.parametrize("repeat", [1, 700])
def test_infinities_and_nan_spread_as_in_addition(
    values: list[float], expected: float, squares: float, repeat: int
) -> None:
    x = np.zeros(3 * repeat)
    x[: len(values)] = values
    for kernel, result in ((calls.sum_floats, expected), (calls.sum_squares_floats, squares)):
        total = np.zeros(2)
        for _ in range(2):  # a second page, of zeros, changes nothing
            kernel(calls.float_words(x), np.ones(len(x), dtype=np.uint8), total)
            x = np.zeros_like(x)
        np.testing.assert_array_equal(total.sum(), result)
        assert np.isfinite(total[1])
        x[: len(values)] = values


@st.composite
def grouped(draw: st.DrawFn, width: int = 1) -> tuple[Any, ...]:
    values, keep, valid = draw(columns(width))
    groups = draw(st.integers(0, 5))
    some = st.one_of(st.integers(-2, 7), st.sampled_from([LEAST, MOST, 1 << 16, (1 << 16) - 1, -1]))
    codes = draw(st.lists(some, min_size=1, max_size=30))
    return values, keep, valid, (codes * (len(values) + 1))[: len(values)], groups


@given(grouped())
def test_every_group_is_the_aggregate_of_its_rows(case: tuple[Any, ...]) -> None:
    values, keep, valid, codes, groups = case
    x, code, where, nulls = words(values), words(codes), mask(keep), optional(valid)
    rows = [live(values, [m & (c == g) for m, c in zip(keep, codes, strict=True)], valid) for g in range(groups)]
    counts, sums, squares = (np.zeros(shape, dtype=np.int64) for shape in (groups, (groups, 2), (groups, 3)))
    wides = np.zeros((groups, 3), dtype=np.int64)
    calls.group_count(code, where, counts, nulls)
    calls.group_sum(x, code, where, sums, nulls)
    calls.group_sum_squares(x, code, where, squares, nulls)
    calls.group_wide_sum(kernels.wide_load(x), code, where, wides, nulls)
    assert counts.tolist() == [len(group) for group in rows]
    assert calls.integers(sums) == calls.integers(wides) == [sum(group) for group in rows]
    assert calls.integers(squares) == [sum(value * value for value in group) for group in rows]


@given(grouped())
def test_one_call_serves_one_group_and_many(case: tuple[Any, ...]) -> None:
    values, keep, valid, codes, groups = case
    x, code, where, nulls = words(values), words(codes), mask(keep), optional(valid)
    one, many, expected = (np.zeros(shape, dtype=np.int64) for shape in (2, (groups, 2), (groups, 2)))
    kernels.aggregate(CODES[SUM], x, where, nulls, None, one)
    kernels.aggregate(CODES[SUM], x, where, nulls, code, many)
    calls.group_sum(x, code, where, expected, nulls)
    assert calls.integers(one[None]) == [calls.sum_words(x, where, nulls)]
    assert np.array_equal(many, expected)


@pytest.mark.parametrize("width", [1, 3])
@given(st.data())
def test_every_group_has_its_own_extremes(width: int, data: st.DataObject) -> None:
    values, keep, valid, codes, groups = data.draw(grouped(width))
    extremes = kernels.no_extremes(width, groups)
    calls.group_min_max(column(values, width), words(codes), mask(keep), extremes, optional(valid))
    for g in range(groups):
        alone = kernels.no_extremes(width)
        of_group = mask([m & (c == g) for m, c in zip(keep, codes, strict=True)])
        calls.min_max(column(values, width), of_group, alone, optional(valid))
        assert np.array_equal(extremes[g], alone)


@pytest.mark.parametrize(
    ("alone", "of_groups"),
    [
        (calls.sum_floats, calls.group_sum_floats),
        (calls.sum_squares_floats, calls.group_sum_squares_floats),
    ],
)
@given(st.lists(st.tuples(st.floats(), BITS, st.integers(-1, 3)), max_size=60), st.booleans())
def test_every_group_has_its_own_float_sum(
    alone: Total, of_groups: Callable[..., None], rows: list[tuple[float, int, int]], nullable: bool
) -> None:
    x = calls.float_words(np.array([row[0] for row in rows], dtype=np.float64))
    keep, codes, totals = mask([row[1] for row in rows]), words([row[2] for row in rows]), np.zeros((3, 2))
    of_groups(x, codes, keep, totals, keep if nullable else None)
    for g in range(3):
        total = np.zeros(2)
        alone(x, keep & (codes == g).astype(np.uint8), total, None)
        np.testing.assert_array_equal(totals[g], total)


def test_more_groups_than_sixteen_bits_name() -> None:
    groups = 70_000
    codes = words([0, 65_533, 65_534, 65_535, 65_536, 69_999, 70_000, -1, 65_535])
    counts = np.zeros(groups, dtype=np.int64)
    calls.group_count(codes, np.ones(len(codes), dtype=np.uint8), counts)
    named = Counter(code for code in codes.tolist() if 0 <= code < groups)
    assert {int(g): int(counts[g]) for g in np.flatnonzero(counts)} == named


@given(st.lists(WORDS, max_size=70), WIDES, st.integers(0, 70))
def test_wide_columns_hold_words_and_constants(values: list[int], value: int, n: int) -> None:
    assert calls.integers(kernels.wide_load(words(values))) == values
    assert calls.integers(kernels.wide_fill(value, n)) == [value] * n


@pytest.mark.parametrize(
    ("kernel", "exact"),
    [
        (kernels.wide_add, lambda a, b: a + b),
        (kernels.wide_subtract, lambda a, b: a - b),
        (kernels.wide_multiply, lambda a, b: a * b),
    ],
    ids=["add", "subtract", "multiply"],
)
@given(st.lists(st.tuples(WIDES, WIDES, BITS), max_size=30), BITS)
def test_wide_arithmetic_is_exact_or_says_so(
    kernel: Callable[..., NDArray[np.int64]],
    exact: Callable[[int, int], int],
    rows: list[tuple[int, int, int]],
    before: int,
) -> None:
    overflow = mask([before])
    a, b, keep = wide([row[0] for row in rows]), wide([row[1] for row in rows]), mask([row[2] for row in rows])
    got = calls.integers(kernel(a, b, keep, overflow))
    left = before
    for value, (p, q, kept) in zip(got, rows, strict=True):
        result = exact(p, q)
        if WIDE_LEAST <= result <= WIDE_MOST:
            assert value == result
        else:
            left |= kept
    assert overflow[0] == left


@pytest.mark.parametrize(
    ("a", "b", "leaves"),
    [
        (WIDE_LEAST, 1, False),
        (WIDE_LEAST, -1, True),
        (1 << 126, -2, False),
        (1 << 126, 2, True),
        (-(1 << 126), 2, False),
        (1 << 64, 1 << 63, True),
        (-(1 << 64), 1 << 63, False),
        (WIDE_LEAST, 0, False),
        (WIDE_LEAST, WIDE_LEAST, True),
    ],
)
def test_products_at_the_edge_of_128_bits(a: int, b: int, leaves: bool) -> None:
    overflow = mask([0])
    product = kernels.wide_multiply(wide([a]), wide([b]), mask([1]), overflow)
    assert bool(overflow[0]) is leaves
    assert leaves or calls.integers(product) == [a * b]


@given(st.lists(st.tuples(WIDES, BITS, BITS), max_size=70), st.booleans())
def test_wide_sums_take_192_bits(rows: list[tuple[int, int, int]], nullable: bool) -> None:
    values, keep, valid = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
    nulls = valid if nullable else None
    assert calls.wide_sum(wide(values), mask(keep), optional(nulls)) == sum(live(values, keep, nulls))


@given(st.lists(WIDES, min_size=1, max_size=40))
def test_wide_values_compare_once_ordered(values: list[int]) -> None:
    ordered, every = kernels.wide_ordered(wide(values)), np.ones(len(values), dtype=np.uint8)
    extremes = kernels.no_extremes(2)
    calls.min_max(ordered, every, extremes)
    assert calls.integers(calls.wide_unordered(extremes)) == [min(values), max(values)]
    others = kernels.wide_ordered(wide(values[1:] + values[:1]))
    expected = [int(a < b) for a, b in zip(values, values[1:] + values[:1], strict=True)]
    assert kernels.mask_compare(ordered, others, kernels.LT).tolist() == expected


def test_what_does_not_fit_is_refused() -> None:
    x, every = words([1, 2, 3]), mask([1, 1, 1])
    frozen = words([1, 2, 3])
    frozen.flags.writeable = False
    for call, error in (
        (lambda: calls.sum_words(x, every[:2]), ValueError),
        (lambda: calls.sum_words(x.astype(np.float64), every), TypeError),
        (lambda: calls.sum_words(x, every.astype(np.int64)), TypeError),
        (lambda: calls.count(every, every[:2]), ValueError),
        (lambda: calls.sum_words(words([1, 2, 3, 4, 5, 6])[::2], every), ValueError),
        (lambda: kernels.mask_compare(x, x, 3), ValueError),
        (lambda: kernels.mask_intervals(x, words([1, 2, 3])), ValueError),
        (lambda: calls.sum_floats(x, every, np.zeros(3)), ValueError),
        (lambda: kernels.sort_rows(frozen), ValueError),
        (lambda: kernels.sort_rows(x, 1), ValueError),
        (lambda: kernels.merge_rows(x, 4), ValueError),
        (lambda: calls.group_sum(x, x[:2], every, np.zeros((1, 2), dtype=np.int64)), ValueError),
        (lambda: kernels.aggregate(CODES[SUM], x, every, None, None, words([0])), ValueError),
        (lambda: kernels.aggregate(CODES[SUM], None, every, None, None, words([0, 0])), ValueError),
        (lambda: kernels.aggregate(CODES[WIDE_SUM], x, every, None, x, np.zeros((2, 3), dtype=np.int64)), ValueError),
        (lambda: kernels.wide_add(wide([1]), wide([1]), mask([1]), mask([])), ValueError),
    ):
        with pytest.raises(error):
            call()


def test_every_kernel_is_public() -> None:
    public = {name for name, value in vars(kernels).items() if callable(value) and value.__module__ == kernels.__name__}
    assert {name for name in public if not name.startswith("_")} <= set(kernels.__all__)


@pytest.mark.parametrize("wrong", [SUM._replace(writes=3), SUM._replace(reads=2), SUM._replace(name="median")])
def test_kernels_that_write_other_words_than_plans_state_are_not_imported(
    monkeypatch: pytest.MonkeyPatch, wrong: Part
) -> None:
    assert kernels._checked_codes() == CODES
    monkeypatch.setattr(kernels, "PARTS", (wrong, *PARTS[1:]))
    with pytest.raises(ImportError, match=wrong.name):
        kernels._checked_codes()
