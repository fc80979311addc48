"""Sort, merge, compaction and the true curve against numpy, for every small size and some large ones."""

import kernel_calls as calls
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scumble.enclave import kernels

LEAST, MOST = -(1 << 63), (1 << 63) - 1
SMALL = range(71)
LARGE = [127, 128, 129, 1000, 4096, 5000, 65_537]
WIDTHS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 33]


def table(n: int, words: int, key_word: int, seed: int, distinct: int = 0) -> NDArray[np.int64]:
    """Random rows; the key is distinct, or one of a few, or extreme."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(LEAST, MOST, (n, words), endpoint=True)
    if distinct:
        rows[:, key_word] = rng.choice(np.array([LEAST, -1, 0, 1, MOST])[:distinct], n)
    return rows


def in_any_order(rows: NDArray[np.int64]) -> list[list[int]]:
    return sorted(rows.tolist())


def check_sorted(got: NDArray[np.int64], given_rows: NDArray[np.int64], key_word: int) -> None:
    keys = got[:, key_word]
    assert (keys[:-1] <= keys[1:]).all()
    assert in_any_order(got) == in_any_order(given_rows)


@pytest.mark.parametrize("words", WIDTHS)
def test_every_small_number_of_rows_is_sorted(words: int) -> None:
    for n in SMALL:
        for distinct in (0, 2, 5):
            rows = table(n, words, words // 2, n, distinct)
            got = rows.copy()
            kernels.sort_rows(got, words // 2)
            check_sorted(got, rows, words // 2)


@pytest.mark.parametrize("n", LARGE)
@pytest.mark.parametrize("words", [1, 3, 9])
def test_many_rows_are_sorted(n: int, words: int) -> None:
    rows = table(n, words, 0, n)
    got = rows.copy()
    kernels.sort_rows(got)
    check_sorted(got, rows, 0)


def test_wide_rows_are_sorted() -> None:
    rows = table(300, 513, 512, 5)
    got = rows.copy()
    kernels.sort_rows(got, 512)
    check_sorted(got, rows, 512)


@pytest.mark.parametrize("n", [2, 3, 5, 6, 7, 11, 12, 13])
def test_zeros_and_ones_in_every_order_are_sorted(n: int) -> None:
    # A network that sorts all of these sorts everything (Knuth's 0-1 principle).
    for pattern in range(1 << n):
        keys = np.array([pattern >> i & 1 for i in range(n)], dtype=np.int64)
        kernels.sort_rows(keys)
        assert (np.diff(keys) >= 0).all()


@given(st.lists(st.integers(LEAST, MOST), max_size=200))
def test_keys_alone_are_sorted(values: list[int]) -> None:
    keys = np.array(values, dtype=np.int64)
    kernels.sort_rows(keys)
    assert keys.tolist() == sorted(values)


@pytest.mark.parametrize("words", [1, 2, 9, 12])
def test_two_sorted_parts_of_any_length_are_merged(words: int) -> None:
    for n in SMALL:
        for first in range(n + 1):
            rows = table(n, words, 0, 71 * n + first, 5 * (first % 2))
            got = np.concatenate([part[np.argsort(part[:, 0])] for part in (rows[:first], rows[first:])])
            kernels.merge_rows(got, first)
            check_sorted(got, rows, 0)


@pytest.mark.parametrize("first", [0, 1, 1000, 4096, 9_999, 10_000])
def test_long_parts_are_merged(first: int) -> None:
    rows = table(10_000, 9, 0, first)
    got = np.concatenate([part[np.argsort(part[:, 0])] for part in (rows[:first], rows[first:])])
    kernels.merge_rows(got, first)
    check_sorted(got, rows, 0)


def check_compacted(rows: NDArray[np.int64], flags: NDArray[np.uint8]) -> None:
    got, moved = rows.copy(), flags.copy()
    calls.compact(got, moved)
    kept = int(flags.sum())
    np.testing.assert_array_equal(got[:kept], rows[flags == 1])
    np.testing.assert_array_equal(moved, np.arange(len(rows)) < kept)
    assert in_any_order(got) == in_any_order(rows)


@pytest.mark.parametrize("words", [1, 2, 9, 12])
def test_flagged_rows_keep_their_order_at_the_front(words: int) -> None:
    for n in SMALL:
        rng = np.random.default_rng(n)
        for share in (0.0, 0.1, 0.5, 0.9, 1.0):
            check_compacted(table(n, words, 0, n), (rng.random(n) < share).astype(np.uint8))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 9, 11])
def test_every_pattern_of_flags_is_compacted(n: int) -> None:
    for pattern in range(1 << n):
        flags = np.array([pattern >> i & 1 for i in range(n)], dtype=np.uint8)
        check_compacted(np.arange(n, dtype=np.int64)[:, None], flags)


@pytest.mark.parametrize("n", LARGE)
@pytest.mark.parametrize("words", [1, 9])
def test_many_rows_are_compacted(n: int, words: int) -> None:
    rng = np.random.default_rng(n)
    for share in (0.01, 0.5, 0.99):
        check_compacted(table(n, words, 0, n), (rng.random(n) < share).astype(np.uint8))


def check_curve(keys: NDArray[np.int64], ranks: int) -> None:
    keys = np.sort(keys)
    expected = np.searchsorted(keys[keys < ranks], np.arange(ranks), side="right")
    np.testing.assert_array_equal(kernels.cumulative_counts(keys, ranks), expected)


@pytest.mark.parametrize("n", SMALL)
def test_every_small_curve(n: int) -> None:
    rng = np.random.default_rng(n)
    for ranks in SMALL:
        check_curve(rng.integers(0, ranks + 3, n), ranks)


@given(st.lists(st.one_of(st.integers(-2, 20), st.sampled_from([LEAST, MOST])), max_size=60), st.integers(0, 20))
def test_keys_beyond_the_ranks_count_nowhere(values: list[int], ranks: int) -> None:
    check_curve(np.array(values, dtype=np.int64), ranks)


@pytest.mark.parametrize(("n", "ranks"), [(1000, 5000), (5000, 1000), (4096, 4096), (100_000, 77_777), (0, 10_000)])
def test_large_curves(n: int, ranks: int) -> None:
    rng = np.random.default_rng(n)
    check_curve(np.minimum(rng.geometric(0.001, n), ranks + 5), ranks)
