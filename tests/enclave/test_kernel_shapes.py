"""What kernels are called with: a few rows that plain Python knows; arrays of any other shape are refused."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kernel_calls import integers
from numpy.typing import NDArray

from scumble._native import lib
from scumble.enclave import kernels
from scumble.enclave.kernels import CODES
from scumble.types import parse_type
from scumble.wire.plan import COUNT, EXTREMES, PARTS, SUM

LEAST, MOST = -(1 << 63), (1 << 63) - 1
WIDE_LEAST, WIDE_MOST = -(1 << 127), (1 << 127) - 1
X, EVERY = np.array([5, -7, 9]), np.ones(3, np.uint8)
PAIRS = np.array([[1, 5], [1, -7], [2, 9]])


def wide(*values: int) -> NDArray[np.int64]:
    data = b"".join(value.to_bytes(16, "little", signed=True) for value in values)
    return np.frombuffer(bytearray(data), np.int64).reshape(-1, 2)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
@pytest.mark.parametrize("words", [1, 2, 5])
def test_a_part_that_c_writes_otherwise_is_not_imported(monkeypatch: pytest.MonkeyPatch, part: Any, words: int) -> None:
    """Even if that is so for columns of one width only."""
    code, real = CODES[part], lib

    class Wrong:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def scumble_aggregate_writes(self, of: int, k: int) -> int:
            return int(real.scumble_aggregate_writes(of, k)) + (of == code and k == words)

    monkeypatch.setattr(kernels, "lib", Wrong())
    with pytest.raises(ImportError, match=part.name):
        kernels._checked_codes()


def test_a_part_that_c_does_not_know_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it reads and writes; and C is not asked about it, which would look beside its table."""
    real = lib

    class Strict:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def scumble_aggregate_reads(self, of: int) -> int:
            assert of in CODES.values()
            return int(real.scumble_aggregate_reads(of))

    monkeypatch.setattr(kernels, "lib", Strict())
    for part in PARTS:
        monkeypatch.setattr(kernels, "PARTS", (part._replace(name="median"),))
        with pytest.raises(ImportError, match="median"):
            kernels._checked_codes()


def test_masks_of_a_few_rows() -> None:
    assert kernels.mask_rows(10, 4, np.array([11, 13])).tolist() == [1, 0, 0, 1]
    bounds = np.array([[5, 6], [9, 20], [100, 0]])
    assert kernels.mask_intervals(X, bounds).tolist() == [1, 0, 1]
    assert kernels.mask_intervals(X, bounds, negated=True).tolist() == [0, 1, 0]
    valid = np.array([0, 1, 1], np.uint8)
    assert kernels.mask_intervals(X, bounds, valid).tolist() == [0, 0, 1]
    assert kernels.mask_intervals(X, bounds, valid, null_matches=True).tolist() == [1, 0, 1]
    assert kernels.mask_intervals(PAIRS, np.array([[[1, -8], [1, 0]]])).tolist() == [0, 1, 0]
    assert kernels.mask_compare(X, X[::-1].copy(), kernels.LT).tolist() == [1, 0, 0]
    assert kernels.mask_compare(X, X[::-1].copy(), kernels.LE, negated=True).tolist() == [0, 0, 1]
    assert kernels.mask_compare(PAIRS, PAIRS[::-1].copy(), kernels.EQ).tolist() == [0, 1, 0]


def test_pages_are_split_where_they_are() -> None:
    """Two pages of sixteen rows of a byte; the first eighth of the rows has the lowest bits."""
    pages = np.arange(36, dtype=np.uint8)
    pages[16:18], pages[34:36] = (1, 2), (128, 255)
    valid = kernels.split_pages(pages, 18, 16)
    assert pages[:32].tolist() == [*range(16), *range(18, 34)]
    expected = [
        [(bits >> row // 2) & 1 for row in range(16) for bits in [pair[row % 2]]] for pair in [(1, 2), (128, 255)]
    ]
    assert valid.tolist() == [*expected[0], *expected[1]]
    assert len(kernels.split_pages(np.zeros(32, np.uint8), 16, 16)) == 0


def test_extremes_start_from_what_every_value_changes() -> None:
    assert kernels.no_extremes().tolist() == [[MOST], [LEAST]]
    assert kernels.no_extremes(2).tolist() == [[MOST, MOST], [LEAST, LEAST]]
    assert kernels.no_extremes(1, 3).tolist() == [[[MOST], [LEAST]]] * 3
    assert kernels.no_extremes(2, 1).shape == (1, 2, 2)


def test_aggregates_of_a_few_rows() -> None:
    codes, out = np.array([1, 0, 1]), np.zeros((2, 1), np.int64)
    kernels.aggregate(CODES[COUNT], None, EVERY, None, codes, out)
    assert out.tolist() == [[1], [2]]
    one = np.zeros(2, np.int64)
    kernels.aggregate(CODES[SUM], X, EVERY, None, None, one)
    assert integers(one.reshape(1, 2)) == [7]
    sums = np.zeros((2, 2), np.int64)
    kernels.aggregate(CODES[SUM], X, EVERY, None, codes, sums)
    assert integers(sums) == [-7, 14]
    for x, expected in ((X, [[-7], [9]]), (PAIRS, [[1, -7], [2, 9]])):
        extremes = kernels.no_extremes(1 if x is X else 2)
        kernels.aggregate(CODES[EXTREMES], x, EVERY, None, None, extremes)
        assert extremes.tolist() == expected
    grouped = kernels.no_extremes(2, 2)
    kernels.aggregate(CODES[EXTREMES], PAIRS, EVERY, None, codes, grouped)
    assert grouped.tolist() == [[[1, -7], [1, -7]], [[1, 5], [2, 9]]]


@pytest.mark.parametrize(
    "value", [0, 1, -1, LEAST, MOST, MOST + 1, (1 << 64) - 1, 1 << 64, -(1 << 64), WIDE_LEAST, WIDE_MOST, 1 << 126]
)
def test_wide_columns_of_one_value(value: int) -> None:
    filled = kernels.wide_fill(value, 3)
    assert filled.shape == (3, 2)
    assert integers(filled) == [value] * 3


def test_wide_columns_of_a_few_rows() -> None:
    overflow = np.zeros(1, np.uint8)
    a, b = wide(1, -(1 << 70), 1 << 100), wide(5, 1 << 69, 2)
    assert integers(kernels.wide_add(a, b, EVERY, overflow)) == [6, -(1 << 69), (1 << 100) + 2]
    assert integers(kernels.wide_subtract(a, b, EVERY, overflow)) == [-4, -(3 << 69), (1 << 100) - 2]
    assert integers(kernels.wide_multiply(a[::2].copy(), b[::2].copy(), EVERY[:2], overflow)) == [5, 1 << 101]
    assert overflow.tolist() == [0]
    for type_ in (np.int64, np.int8, np.int32):
        assert integers(kernels.wide_load(X.astype(type_))) == X.tolist()
    assert kernels.wide_ordered(wide(-1, 1 << 64)).tolist() == [[-1, MOST], [1, LEAST]]


def test_rows_of_a_few_words() -> None:
    keys = X.copy()
    kernels.sort_rows(keys)
    assert keys.tolist() == [-7, 5, 9]
    rows = PAIRS.copy()
    kernels.sort_rows(rows, 1)
    assert rows.tolist() == [[1, -7], [1, 5], [2, 9]]
    for first, parts in ((0, [1, 2, 3]), (2, [2, 3, 1]), (3, [1, 2, 3])):
        merged = np.array(parts)
        kernels.merge_rows(merged, first)
        assert merged.tolist() == [1, 2, 3]
    by_second = np.array([[9, 3], [8, 4], [7, 1]])
    kernels.merge_rows(by_second, 2, 1)
    assert by_second.tolist() == [[7, 1], [9, 3], [8, 4]]
    assert kernels.cumulative_counts(np.array([0, 0, 2]), 4).tolist() == [2, 2, 3, 3]


def test_a_curve_takes_nine_bytes_for_every_key_and_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """No fewer, which the kernel would write beyond, and no more than fill the last word."""
    seen: list[int] = []
    fake = SimpleNamespace(scumble_curve=lambda keys, n, ranks, scratch, out: seen.append(len(scratch)))
    monkeypatch.setattr(kernels, "lib", fake)
    for n in range(12):
        for ranks in range(12):
            kernels.cumulative_counts(np.zeros(n, np.int64), ranks)
            assert 8 * (seen[-1] - 1) < 9 * (n + ranks) <= 8 * seen[-1]


def test_loaded_rows_of_a_few_words() -> None:
    text = np.array([parse_type("blob(9)").words_of(value) for value in (b"", b"abc", b"\xff", b"123456789")])
    assert kernels.check_text(text, 9).tolist() == [1, 1, 0, 1]
    assert kernels.check_text(text, 9, utf8=False).tolist() == [1, 1, 1, 1]
    assert kernels.check_text(text, 8).tolist() == [1, 1, 0, 0]
    ends = kernels.no_ends()
    assert ends.tolist() == [MOST, -1]
    kernels.fold_rows(np.array([1, 1], np.uint8), np.array([0, 0], np.uint8), 0, ends)
    kernels.fold_rows(np.array([0, 0], np.uint8), np.array([1, 1], np.uint8), 2, ends)
    assert [kernels.rows_agree(ends, *range_) for range_ in ((2, 2), (0, 4), (3, 4), (0, 1))] == [
        True,
        True,
        False,
        False,
    ]


def test_words_are_words_whatever_numpy_calls_them() -> None:
    """`longlong` equals int64 without being it, and so does what was pickled with a note on it."""
    longs = np.array([3, 1, 2], np.longlong)
    assert longs.dtype is not np.dtype(np.int64)
    kernels.sort_rows(longs)
    assert longs.tolist() == [1, 2, 3]
    noted = np.ones(3, np.dtype(np.uint8, metadata={"of": "rows"}))
    out = np.zeros(1, np.int64)
    kernels.aggregate(CODES[COUNT], None, noted, None, None, out)
    assert out.tolist() == [3]


Call = Callable[[], object]
REFUSED: list[tuple[Call, type[Exception], str]] = [
    (lambda: kernels.sort_rows(X.astype(np.int32)), TypeError, "int64"),
    (lambda: kernels.sort_rows(X.astype(np.uint64)), TypeError, "int64"),
    (lambda: kernels.mask_rows(0, 3, np.array([1])), ValueError, "same number"),
    (lambda: kernels.mask_rows(0, 3, np.array([1, 2, 3])), ValueError, "same number"),
    (lambda: kernels.wide_load(PAIRS.astype(np.int32)), TypeError, "of words if it has several"),
    (lambda: kernels.wide_load(X.astype(np.float64)), TypeError, "integers"),
    (lambda: kernels.wide_load(PAIRS), ValueError, "same number"),
    (lambda: kernels.mask_compare(X, X[:2].copy(), kernels.EQ), ValueError, "same number"),
    (lambda: kernels.mask_compare(PAIRS, X, kernels.EQ), ValueError, "same number"),
    (lambda: kernels.mask_compare(X, X, 3), ValueError, "EQ, LT or LE"),
    (lambda: kernels.mask_intervals(X, np.array([1, 2, 3])), ValueError, "same number"),
    (lambda: kernels.mask_intervals(X, np.array([[1, 2]]), EVERY[:2]), ValueError, "as many bytes"),
    (lambda: kernels.mask_intervals(X, np.array([[1, 2]]), np.ones(3, np.bool_)), TypeError, "uint8"),
    (lambda: kernels.split_pages(np.zeros(8, np.uint8), 4, 5), ValueError, "within the page"),
    (lambda: kernels.split_pages(frozen(np.zeros(8, np.uint8)), 4, 3), ValueError, "read-only"),
    (
        lambda: kernels.append_codes(frozen(np.zeros(3, np.int32)), X, None, 9),
        ValueError,
        "read-only",
    ),
    (lambda: kernels.aggregate(CODES[SUM], PAIRS, EVERY, None, None, np.zeros(2, np.int64)), ValueError, "reads"),
    (lambda: kernels.aggregate(CODES[SUM], None, EVERY, None, None, np.zeros(2, np.int64)), ValueError, "reads"),
    (lambda: kernels.aggregate(CODES[EXTREMES], None, EVERY, None, None, np.zeros((2, 0))), ValueError, "reads"),
    (lambda: kernels.aggregate(CODES[SUM], X, EVERY, None, None, np.zeros(1, np.int64)), ValueError, "writes"),
    (lambda: kernels.aggregate(CODES[SUM], X, EVERY, None, X, np.zeros((2, 3), np.int64)), ValueError, "writes"),
    (
        lambda: kernels.aggregate(CODES[SUM], X, EVERY, None, None, frozen(np.zeros(2, np.int64))),
        ValueError,
        "read-only",
    ),
    (lambda: kernels.wide_add(wide(1, 2), wide(1), EVERY[:2], EVERY[:1]), ValueError, "same number"),
    (lambda: kernels.wide_add(wide(1), wide(1, 2), EVERY[:1], EVERY[:1]), ValueError, "same number"),
    (lambda: kernels.wide_add(wide(1), wide(1), EVERY[:1], EVERY[:2]), ValueError, "as many bytes"),
    (lambda: kernels.sort_rows(frozen(X)), ValueError, "read-only"),
    (lambda: kernels.sort_rows(X, 1), ValueError, "one of the row's words"),
    (lambda: kernels.sort_rows(PAIRS.copy(), 2), ValueError, "one of the row's words"),
    (lambda: kernels.sort_rows(PAIRS.copy(), -1), ValueError, "one of the row's words"),
    (lambda: kernels.merge_rows(X.copy(), 4), ValueError, "more rows than there are"),
    (lambda: kernels.merge_rows(X.copy(), -1), ValueError, "more rows than there are"),
    (lambda: kernels.rows_agree(np.array([1, 2, 3]), 0, 1), ValueError, "same number"),
]


@pytest.mark.parametrize("place", range(len(REFUSED)))
def test_what_has_another_shape_is_refused(place: int) -> None:
    call, error, why = REFUSED[place]
    with pytest.raises(error, match=why):
        call()
