"""The kernels over narrow columns, of every width and sign, against plain Python over the same numbers.

Three ways to be wrong and pass elsewhere have a test each: a value without a sign compared as one with it, a sum that
wraps in the bits of its column, and a null bit taken from another row at the end of a page.
"""

import math
from typing import Any

import kernel_calls as calls
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scumble._native import lib
from scumble.enclave import kernels
from scumble.enclave.kernels import CODES
from scumble.types import parse_type
from scumble.wire.plan import EXTREMES, PARTS, SUM, WIDE_SUM, Part

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"]
LEAST, MOST = -(1 << 63), (1 << 63) - 1
# Past a block of 1,024 rows, and with a remainder behind every vector.
LONG = 2 * 1024 + 37
FLOATS = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.5, -1.5, 1e-45, -1e-45, 3.4028234663852886e38, 0.1]


def ends_of(dtype: str) -> list[int]:
    """The numbers where a width or a sign shows."""
    info = np.iinfo(dtype)
    middle = [0, 1, 127, 128, 255, 32767, 32768, 65535, 1 << 31, (1 << 31) - 1, (1 << 32) - 1]
    return [n for n in {info.min, info.min + 1, -1, info.max - 1, info.max, *middle} if info.min <= n <= info.max]


@st.composite
def columns(draw: st.DrawFn, dtype: str) -> tuple[NDArray[Any], NDArray[np.uint8], NDArray[np.uint8] | None]:
    """A column with extreme values, a mask, and perhaps a validity; short, or long by repetition."""
    info = np.iinfo(dtype)
    value = st.one_of(st.sampled_from(ends_of(dtype)), st.integers(int(info.min), int(info.max)))
    rows = draw(st.lists(st.tuples(value, st.integers(0, 1), st.integers(0, 1)), max_size=70))
    if draw(st.booleans()):
        rows = (rows * LONG)[:LONG]
    x = np.array([row[0] for row in rows], dtype)
    mask, valid = (np.array([row[place] for row in rows], np.uint8) for place in (1, 2))
    return x, mask, valid if draw(st.booleans()) else None


def shown(x: NDArray[Any], mask: NDArray[np.uint8], valid: NDArray[np.uint8] | None) -> list[int]:
    keep = mask if valid is None else mask & valid
    return [value for value, kept in zip(x.tolist(), keep.tolist(), strict=True) if kept]


@pytest.mark.parametrize("dtype", INTEGERS)
@given(st.data())
def test_intervals_hold_what_their_bounds_say(dtype: str, data: st.DataObject) -> None:
    """Bounds are words, and may lie outside the column's type, or be the wrong way round."""
    x, _, valid = data.draw(columns(dtype))
    info = np.iinfo(dtype)
    beyond = [LEAST, MOST, int(info.min) - 1, int(info.max) + 1, 2 * int(info.max) + 1, 2 * int(info.max) + 2]
    end = st.sampled_from(sorted({max(LEAST, min(MOST, n)) for n in [*beyond, *ends_of(dtype)]}))
    intervals = data.draw(st.lists(st.tuples(end, end), max_size=4))
    negated, null_matches = data.draw(st.booleans()), data.draw(st.booleans())
    bounds = np.array(intervals, np.int64).reshape(len(intervals), 2)
    got = kernels.mask_intervals(x, bounds, valid, negated=negated, null_matches=null_matches)
    present = [1] * len(x) if valid is None else valid.tolist()
    assert got.tolist() == [
        int((any(low <= n <= high for low, high in intervals) != negated) if there else null_matches)
        for n, there in zip(x.tolist(), present, strict=True)
    ]


@pytest.mark.parametrize("dtype", INTEGERS)
@given(st.data())
def test_sums_squares_extremes_and_wide_values_are_exact(dtype: str, data: st.DataObject) -> None:
    kept, extremes = [], kernels.no_extremes()
    for _ in range(2):
        x, mask, valid = data.draw(columns(dtype))
        found = shown(x, mask, valid)
        kept += found
        assert calls.sum_words(x, mask, valid) == sum(found)
        assert calls.sum_squares(x, mask, valid) == sum(n * n for n in found)
        calls.min_max(x, mask, extremes, valid)
        assert calls.integers(kernels.wide_load(x)) == x.tolist()
    if kept:
        assert extremes.reshape(-1).tolist() == [min(kept), max(kept)]
    else:
        assert np.array_equal(extremes, kernels.no_extremes())


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("end", ["min", "max"])
def test_sums_of_one_extreme_value_do_not_wrap(dtype: str, end: str) -> None:
    n, value = 100_003, int(getattr(np.iinfo(dtype), end))
    x, every = np.full(n, value, dtype), np.ones(n, np.uint8)
    assert calls.sum_words(x, every) == n * value
    sums = np.zeros((2, 2), np.int64)
    calls.group_sum(x, np.ones(n, np.uint8), every, sums)
    assert calls.integers(sums) == [0, n * value]


@pytest.mark.parametrize("declared", ["utinyint", "usmallint", "uinteger", "ubigint"])
def test_values_without_a_sign_are_not_compared_as_if_they_had_one(declared: str) -> None:
    type_ = parse_type(declared)
    most = type_.full_interval[1][0]
    words = np.array([0, most // 2, most // 2 + 1, most - 1, most], np.int64)
    x = type_.scanned(type_.from_page(np.ascontiguousarray(type_.to_page(words)).view(np.uint8)))
    upper = np.array([[most // 2 + 1, most]])
    assert kernels.mask_intervals(x, upper).tolist() == [0, 0, 1, 1, 1]
    extremes = kernels.no_extremes()
    calls.min_max(x, np.ones(5, np.uint8), extremes)
    assert extremes.reshape(-1).tolist() == [0, most]
    assert kernels.mask_compare(x, x[::-1].copy(), kernels.LT).tolist() == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("dtype", INTEGERS)
@given(st.data())
def test_columns_of_two_widths_compare_as_numbers(dtype: str, data: st.DataObject) -> None:
    x, _, valid = data.draw(columns(dtype))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    for other in INTEGERS:
        y = random.choice(np.array(ends_of(other), other), len(x))
        both = list(zip(x.tolist(), y.tolist(), [1] * len(x) if valid is None else valid.tolist(), strict=True))
        assert kernels.mask_compare(x, y, kernels.LT, valid).tolist() == [int(v and a < b) for a, b, v in both]
        assert kernels.mask_compare(x, y, kernels.EQ, None, valid).tolist() == [int(v and a == b) for a, b, v in both]


@pytest.mark.parametrize("dtype", INTEGERS)
@given(st.data())
def test_groups_are_those_of_the_codes(dtype: str, data: st.DataObject) -> None:
    x, mask, valid = data.draw(columns(dtype))
    groups = data.draw(st.sampled_from([1, 2, 7]))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    for code_dtype in ("uint8", "uint16", "int32", "int64"):
        codes = random.integers(0, groups + 2, len(x)).astype(code_dtype)
        sums, counts = np.zeros((groups, 2), np.int64), np.zeros(groups, np.int64)
        extremes = kernels.no_extremes(1, groups)
        calls.group_sum(x, codes, mask, sums, valid)
        calls.group_count(codes, mask, counts, valid)
        calls.group_min_max(x, codes, mask, extremes, valid)
        own = [shown(x, mask & (codes == group), valid) for group in range(groups)]
        assert calls.integers(sums) == [sum(found) for found in own]
        assert counts.tolist() == [len(found) for found in own]
        none = kernels.no_extremes().reshape(-1).tolist()
        assert extremes.reshape(groups, 2).tolist() == [[min(found), max(found)] if found else none for found in own]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 1)), max_size=60), st.booleans())
def test_codes_of_several_columns_are_digits(rows: list[tuple[int, int, int]], long: bool) -> None:
    rows = (rows * LONG)[:LONG] if long else rows
    first, second, there = (np.array([row[place] for row in rows], np.uint8) for place in range(3))
    codes = np.zeros(len(rows), np.int32)
    kernels.append_codes(codes, first, None, 3)
    kernels.append_codes(codes, second.astype(np.int16), there, 6)
    assert codes.tolist() == [a * 6 + (b if v else 5) for a, b, v in rows]


# Floats of 32 bits


def float_words(x: NDArray[np.float32]) -> NDArray[np.int64]:
    type_ = parse_type("float")
    return type_.widened(x.view(np.int32))


@pytest.mark.parametrize("n", [0, 3, LONG])
def test_floats_are_read_as_their_words_say(n: int) -> None:
    x = np.array((FLOATS * LONG)[:n], np.float32)
    words, mask = float_words(x), np.random.default_rng(n).integers(0, 2, n, np.uint8)
    for low in FLOATS:
        for high in FLOATS:
            bounds = float_words(np.array([low, high], np.float32)).reshape(1, 2)
            assert np.array_equal(kernels.mask_intervals(x, bounds), kernels.mask_intervals(words, bounds))
    codes = (np.arange(n) % 3).astype(np.uint8)
    for part in PARTS:
        if part.reads <= 1:
            assert _aggregated(part, x, mask, None) == _aggregated(part, words, mask, None)
            assert _aggregated(part, x, mask, codes) == _aggregated(part, words, mask, codes)


def _aggregated(part: Part, x: NDArray[Any], mask: NDArray[np.uint8], codes: NDArray[Any] | None) -> bytes:
    groups = 1 if codes is None else 3
    out = kernels.no_extremes(1, groups) if part is EXTREMES else np.zeros((groups, part.writes), np.int64)
    kernels.aggregate(CODES[part], x, mask, None, codes, out)
    return out.tobytes()


# Pages


@given(st.integers(1, 9), st.integers(0, 4), st.integers(0, 20), st.integers(0, 2**32))
def test_pages_are_split_into_values_and_validities(eighth: int, count: int, size: int, seed: int) -> None:
    """Each row's own bit, whatever the length of a page: those of the neighbouring pages are others."""
    pages = np.random.default_rng(seed).integers(0, 256, count * (size + eighth), np.uint8)
    before = pages.reshape(count, size + eighth).copy()
    valid = kernels.split_pages(pages, size + eighth, size)
    bits = before[:, size:]
    expected = [bits[page, row % eighth] >> (row // eighth) & 1 for page in range(count) for row in range(8 * eighth)]
    assert valid.tolist() == expected
    assert pages[: count * size].tolist() == before[:, :size].reshape(-1).tolist()


def test_values_beyond_the_page_are_refused() -> None:
    with pytest.raises(ValueError, match="within the page"):
        kernels.split_pages(np.zeros(8, np.uint8), 4, 5)


# What is refused


@pytest.mark.parametrize("dtype", ["float64", "uint64", "bool", ">i4", "complex64"])
def test_other_types_are_refused(dtype: str) -> None:
    with pytest.raises(TypeError, match="integers or of floats of 32 bits"):
        kernels.mask_intervals(np.zeros(3, dtype), np.zeros((1, 2), np.int64))


def test_rows_of_several_narrow_values_are_refused() -> None:
    with pytest.raises(TypeError, match="words if it has several a row"):
        kernels.mask_intervals(np.zeros((3, 2), np.int16), np.zeros((1, 2, 2), np.int64))
    with pytest.raises(TypeError, match="words if it has several a row"):
        kernels.aggregate(CODES[WIDE_SUM], np.zeros((3, 2), np.int32), np.ones(3, np.uint8), None, None, np.zeros(3))


def test_columns_of_other_lengths_are_refused() -> None:
    out = np.zeros(2, np.int64)
    with pytest.raises(ValueError, match="same number of rows"):
        kernels.aggregate(CODES[SUM], np.zeros(3, np.int8), np.ones(4, np.uint8), None, None, out)
    with pytest.raises(ValueError, match="same number of rows"):
        kernels.append_codes(np.zeros(4, np.int32), np.zeros(3, np.int8), None, 2)


def test_every_type_of_the_interface_has_a_test() -> None:
    numbers = {name: getattr(lib, f"SCUMBLE_{name.upper()}") for name in (*INTEGERS, "float32")}
    assert sorted(numbers.values()) == list(range(len(numbers)))
    assert len(kernels._TYPES) == len(numbers)
