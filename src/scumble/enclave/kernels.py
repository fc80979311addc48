"""The oblivious kernels over numpy arrays: masks, aggregates, groups, 128-bit expressions, sort, compaction, curve.

Columns, masks, bounds and keys, all secret, come in; masks, aggregates and rows, secret too, go out; only the enclave
may see either. Public are shapes, which arrays are given, and the keyword flags. No kernel's branches or addresses
depend on a secret (native/*.c, proven by tests/test_oblivious.py).

A column is an int64 array of shape [n], or [n, k] for k words a row, which compare first word first. A mask or validity
is a uint8 array of n zeros and ones; no validity means that no row is null. All arrays are C-contiguous. Floats are
int64 words in the same order as the floats (`float_words`). A wide column is int64 [n, 2]: 128-bit values, least word
first.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble._native import ffi, lib

__all__ = [
    "COUNT",
    "DOUBLES",
    "DOUBLE_SQUARES",
    "EQ",
    "EXTREMES",
    "LE",
    "LT",
    "SQUARES",
    "SUM",
    "WIDE_SUM",
    "aggregate",
    "compact",
    "count",
    "cumulative_counts",
    "float_words",
    "group_count",
    "group_min_max",
    "group_sum",
    "group_sum_floats",
    "group_sum_squares",
    "group_sum_squares_floats",
    "group_wide_sum",
    "integers",
    "mask_compare",
    "mask_intervals",
    "mask_rows",
    "merge_rows",
    "min_max",
    "no_extremes",
    "sort_rows",
    "sum_floats",
    "sum_squares",
    "sum_squares_floats",
    "sum_words",
    "wide_add",
    "wide_fill",
    "wide_load",
    "wide_multiply",
    "wide_ordered",
    "wide_subtract",
    "wide_sum",
    "wide_unordered",
    "word_floats",
]

Words = NDArray[np.int64]
Mask = NDArray[np.uint8]
Floats = NDArray[np.float64]

EQ: int = lib.SCUMBLE_EQ
LT: int = lib.SCUMBLE_LT
LE: int = lib.SCUMBLE_LE
COUNT: int = lib.SCUMBLE_COUNT
SUM: int = lib.SCUMBLE_SUM
SQUARES: int = lib.SCUMBLE_SQUARES
EXTREMES: int = lib.SCUMBLE_EXTREMES
DOUBLES: int = lib.SCUMBLE_DOUBLES
DOUBLE_SQUARES: int = lib.SCUMBLE_DOUBLE_SQUARES
WIDE_SUM: int = lib.SCUMBLE_WIDE_SUM

# By aggregate: the words that it reads of a row (0: any), and those that it writes (0: twice those it reads).
_SHAPES = {
    COUNT: (0, 1),
    SUM: (1, 2),
    SQUARES: (1, 3),
    EXTREMES: (0, 0),
    DOUBLES: (1, 2),
    DOUBLE_SQUARES: (1, 2),
    WIDE_SUM: (2, 3),
}

# One call costs about a microsecond, of which these pointers are half: what can be looked up once is.
_from_buffer = ffi.from_buffer
_NULL = ffi.NULL
_INT64 = np.dtype(np.int64)
_UINT8 = np.dtype(np.uint8)
_FLOAT64 = np.dtype(np.float64)
_WORDS = ffi.typeof("int64_t[]")
_BYTES = ffi.typeof("uint8_t[]")
_SIGN = np.int64(-(1 << 63))
_MAGNITUDE = np.int64((1 << 63) - 1)


def _words(array: Words, size: int) -> Any:
    # from_buffer itself refuses what is not contiguous.
    if array.dtype is not _INT64 and array.dtype != _INT64:
        raise TypeError("a column of int64 words is needed")
    if array.size != size:
        raise ValueError("arrays of one call must have the same number of rows and words")
    return _from_buffer(_WORDS, array)


def _written(array: Words, size: int) -> Any:
    if not array.flags.writeable:
        raise ValueError("this array is written to, but it is read-only")
    return _words(array, size)


def _bytes(array: Mask | None, size: int) -> Any:
    if array is None:
        return _NULL
    if array.dtype is not _UINT8 and array.dtype != _UINT8:
        raise TypeError("a mask of uint8 is needed")
    if array.size != size:
        raise ValueError("a mask must have as many bytes as the column has rows")
    return _from_buffer(_BYTES, array)


def _floats(array: Floats, size: int) -> Any:
    if array.dtype != _FLOAT64 or array.size != size:
        raise TypeError("two float64 are needed for each sum")
    return _from_buffer(array, require_writable=True)


def _width(x: Words) -> int:
    return 1 if x.ndim == 1 else x.shape[1]


def float_words(x: Floats) -> Words:
    """Floats as words in the same order: negative zero becomes zero, every NaN the greatest."""
    # x + 0.0 turns -0.0 into 0.0; a NaN's sign and payload are replaced by arithmetic on its bits, not by a choice.
    with np.errstate(invalid="ignore"):  # a signalling NaN must not warn
        bits: Words = np.ascontiguousarray(x + 0.0).view(np.int64)
    nan = -np.isnan(x).astype(np.int64)
    bits = (bits & ~nan) | (np.int64(0x7FF8 << 48) & nan)
    words: Words = bits ^ ((bits >> 63) & _MAGNITUDE)
    return words


def word_floats(words: Words) -> Floats:
    """The floats that `float_words` made into words."""
    return (words ^ ((words >> 63) & _MAGNITUDE)).view(np.float64)


def integers(words: Words) -> list[int]:
    """The Python integers of an array of shape [m, words], least word first."""
    step = words.shape[1] * 8
    data = words.tobytes()
    return [int.from_bytes(data[at : at + step], "little", signed=True) for at in range(0, len(data), step)]


# Masks


def mask_rows(start: int, n: int, real_rows: int) -> Mask:
    """1 for those of the rows start, start + 1, ..., n of them, that are real; `real_rows` is secret."""
    out = np.empty(n, _UINT8)
    lib.scumble_mask_rows(start, n, real_rows, _from_buffer(_BYTES, out))
    return out


def mask_intervals(
    x: Words, bounds: Words, valid: Mask | None = None, *, negated: bool = False, null_matches: bool = False
) -> Mask:
    """1 where x lies in any of the intervals, or in none if negated; null rows match as `null_matches` says.

    `bounds`, secret, has the shape [m, 2], or [m, 2, k] for columns of k words: least and greatest of m intervals.
    """
    n, k, m = len(x), _width(x), len(bounds)
    out = np.empty(n, _UINT8)
    lib.scumble_mask_intervals(
        _words(x, n * k),
        k,
        n,
        _bytes(valid, n),
        _words(bounds, 2 * m * k),
        m,
        negated,
        null_matches,
        _from_buffer(_BYTES, out),
    )
    return out


def mask_compare(
    a: Words, b: Words, op: int, valid_a: Mask | None = None, valid_b: Mask | None = None, *, negated: bool = False
) -> Mask:
    """1 where `a op b` holds, or does not if negated; op is EQ, LT or LE. A null on either side gives 0."""
    if op not in (EQ, LT, LE):
        raise ValueError("the comparison must be EQ, LT or LE")
    n, k = len(a), _width(a)
    out = np.empty(n, _UINT8)
    lib.scumble_mask_compare(
        _words(a, n * k),
        _words(b, n * k),
        k,
        n,
        _bytes(valid_a, n),
        _bytes(valid_b, n),
        op,
        negated,
        _from_buffer(_BYTES, out),
    )
    return out


# Aggregates of the rows under a mask


def count(mask: Mask, valid: Mask | None = None) -> int:
    """How many rows are under the mask and not null."""
    n = len(mask)
    out = ffi.new("int64_t[1]")
    lib.scumble_aggregate(lib.SCUMBLE_COUNT, _NULL, 0, _bytes(mask, n), _bytes(valid, n), n, out)
    return int(out[0])


def sum_words(x: Words, mask: Mask, valid: Mask | None = None) -> int:
    """The exact sum."""
    n = len(mask)
    out = bytearray(16)
    lib.scumble_aggregate(lib.SCUMBLE_SUM, _words(x, n), 1, _bytes(mask, n), _bytes(valid, n), n, _from_buffer(out))
    return int.from_bytes(out, "little", signed=True)


def sum_squares(x: Words, mask: Mask, valid: Mask | None = None) -> int:
    """The exact sum of squares."""
    n = len(mask)
    out = bytearray(24)
    lib.scumble_aggregate(lib.SCUMBLE_SQUARES, _words(x, n), 1, _bytes(mask, n), _bytes(valid, n), n, _from_buffer(out))
    return int.from_bytes(out, "little", signed=True)


def no_extremes(k: int = 1, groups: int | None = None) -> Words:
    """What `min_max` starts from, [2, k], or [groups, 2, k]: a least above all values and a greatest below them."""
    out = np.empty((1 if groups is None else groups, 2, k), _INT64)
    out[:, 0], out[:, 1] = _MAGNITUDE, _SIGN
    return out[0] if groups is None else out


def min_max(x: Words, mask: Mask, extremes: Words, valid: Mask | None = None) -> None:
    """Update the least and the greatest row, `extremes` of shape [2, k]; they mean nothing if `count` is zero."""
    n, k = len(mask), _width(x)
    lib.scumble_aggregate(
        lib.SCUMBLE_EXTREMES,
        _words(x, n * k),
        k,
        _bytes(mask, n),
        _bytes(valid, n),
        n,
        _written(extremes, 2 * k),
    )


def sum_floats(x: Words, mask: Mask, total: Floats, valid: Mask | None = None) -> None:
    """Add to `total`, two float64 whose sum is the result: what addition gives and what it rounds away.

    Infinities and NaN spread as in plain addition. Otherwise the error, before the two are added, is at most
    (n/64 + 100)^2 2^-105 times the sum of the magnitudes: that many additions each lose a 2^-53 of a 2^-53.
    """
    n = len(mask)
    lib.scumble_aggregate(lib.SCUMBLE_DOUBLES, _words(x, n), 1, _bytes(mask, n), _bytes(valid, n), n, _floats(total, 2))


def sum_squares_floats(x: Words, mask: Mask, total: Floats, valid: Mask | None = None) -> None:
    """Add the sum of squares to `total`, as `sum_floats` does; a square that underflows adds 2^-1074 to the error."""
    n = len(mask)
    lib.scumble_aggregate(
        lib.SCUMBLE_DOUBLE_SQUARES, _words(x, n), 1, _bytes(mask, n), _bytes(valid, n), n, _floats(total, 2)
    )


def aggregate(
    what: int, x: Words | None, mask: Mask, valid: Mask | None, codes: Words | None, out: NDArray[Any]
) -> None:
    """Add to `out` what `what` (COUNT, SUM, ...) says of the rows under the mask; with codes, to out[group] of each.

    `out` is contiguous, and has for each group as many words as native.h says; without codes there is one group.
    """
    n, k = len(mask), 0 if x is None else _width(x)
    width, words = _SHAPES[what]
    if (width and k != width) or (x is None and what != COUNT):
        raise ValueError("the column has not the words that this aggregate reads")
    if out.nbytes != 8 * (words or 2 * k) * (1 if codes is None else len(out)):
        raise ValueError("the results have not the words that this aggregate writes")
    column = _NULL if x is None else _words(x, n * k)
    target = _from_buffer(out, require_writable=True)
    if codes is None:
        lib.scumble_aggregate(what, column, k, _bytes(mask, n), _bytes(valid, n), n, target)
    else:
        rows = _bytes(mask, n), _bytes(valid, n), n
        lib.scumble_aggregate_groups(what, column, k, _words(codes, n), len(out), *rows, target)


# The same for each group: rows of group g (codes 0, 1, ...; other codes are of no group) are added to out[g]


def _groups(what: int, column: Any, k: int, rows: tuple[Words, Mask, Mask | None], out: Any, *, groups: int) -> None:
    codes, mask, valid = rows
    n = len(mask)
    lib.scumble_aggregate_groups(what, column, k, _words(codes, n), groups, _bytes(mask, n), _bytes(valid, n), n, out)


def group_count(codes: Words, mask: Mask, out: Words, valid: Mask | None = None) -> None:
    """Add the number of rows to out [groups]."""
    m = len(out)
    _groups(lib.SCUMBLE_COUNT, _NULL, 0, (codes, mask, valid), _written(out, m), groups=m)


def group_sum(x: Words, codes: Words, mask: Mask, out: Words, valid: Mask | None = None) -> None:
    """Add the sum to out [groups, 2], of which `integers` makes Python integers."""
    m = len(out)
    _groups(lib.SCUMBLE_SUM, _words(x, len(mask)), 1, (codes, mask, valid), _written(out, 2 * m), groups=m)


def group_sum_squares(x: Words, codes: Words, mask: Mask, out: Words, valid: Mask | None = None) -> None:
    """Add the sum of squares to out [groups, 3], of which `integers` makes Python integers."""
    m = len(out)
    _groups(lib.SCUMBLE_SQUARES, _words(x, len(mask)), 1, (codes, mask, valid), _written(out, 3 * m), groups=m)


def group_min_max(x: Words, codes: Words, mask: Mask, extremes: Words, valid: Mask | None = None) -> None:
    """Update the least and the greatest row of each group, `extremes` of shape [groups, 2, k]."""
    m, k = len(extremes), _width(x)
    _groups(
        lib.SCUMBLE_EXTREMES, _words(x, k * len(mask)), k, (codes, mask, valid), _written(extremes, 2 * k * m), groups=m
    )


def group_sum_floats(x: Words, codes: Words, mask: Mask, total: Floats, valid: Mask | None = None) -> None:
    """Add to total [groups, 2] as `sum_floats` does."""
    m = len(total)
    _groups(lib.SCUMBLE_DOUBLES, _words(x, len(mask)), 1, (codes, mask, valid), _floats(total, 2 * m), groups=m)


def group_sum_squares_floats(x: Words, codes: Words, mask: Mask, total: Floats, valid: Mask | None = None) -> None:
    """Add to total [groups, 2] as `sum_squares_floats` does."""
    m = len(total)
    _groups(lib.SCUMBLE_DOUBLE_SQUARES, _words(x, len(mask)), 1, (codes, mask, valid), _floats(total, 2 * m), groups=m)


def group_wide_sum(a: Words, codes: Words, mask: Mask, out: Words, valid: Mask | None = None) -> None:
    """Add the sum of a wide column to out [groups, 3], of which `integers` makes Python integers."""
    m = len(out)
    _groups(lib.SCUMBLE_WIDE_SUM, _words(a, 2 * len(mask)), 2, (codes, mask, valid), _written(out, 3 * m), groups=m)


# Wide columns. `overflow`, a uint8 array of one, is set to 1 if a result under the mask leaves 128 bits


def wide_load(x: Words) -> Words:
    """A column as a wide one."""
    n = len(x)
    out = np.empty((n, 2), _INT64)
    lib.scumble_wide_load(_words(x, n), n, _from_buffer(_WORDS, out))
    return out


def wide_fill(value: int, n: int) -> Words:
    """A wide column of n times the same value."""
    out = np.empty((n, 2), _INT64)
    low = (value & ((1 << 64) - 1)) ^ (1 << 63)
    lib.scumble_wide_fill(low - (1 << 63), value >> 64, n, _from_buffer(_WORDS, out))
    return out


def wide_add(a: Words, b: Words, mask: Mask, overflow: Mask) -> Words:
    """The sum a + b of each row."""
    return _wide(lib.scumble_wide_add, a, b, mask, overflow)


def wide_subtract(a: Words, b: Words, mask: Mask, overflow: Mask) -> Words:
    """The difference a - b of each row."""
    return _wide(lib.scumble_wide_subtract, a, b, mask, overflow)


def wide_multiply(a: Words, b: Words, mask: Mask, overflow: Mask) -> Words:
    """The product a * b of each row."""
    return _wide(lib.scumble_wide_multiply, a, b, mask, overflow)


def _wide(kernel: Any, a: Words, b: Words, mask: Mask, overflow: Mask) -> Words:
    n = len(mask)
    out = np.empty((n, 2), _INT64)
    kernel(_words(a, 2 * n), _words(b, 2 * n), _bytes(mask, n), n, _from_buffer(_WORDS, out), _bytes(overflow, 1))
    return out


def wide_sum(a: Words, mask: Mask, valid: Mask | None = None) -> int:
    """The exact sum of a wide column; it may leave 128 bits."""
    n = len(mask)
    out = bytearray(24)
    lib.scumble_aggregate(
        lib.SCUMBLE_WIDE_SUM, _words(a, 2 * n), 2, _bytes(mask, n), _bytes(valid, n), n, _from_buffer(out)
    )
    return int.from_bytes(out, "little", signed=True)


def wide_ordered(a: Words) -> Words:
    """A wide column as words that compare first word first, for the masks and `min_max`.

    The words change places, and the lower one's sign bit is flipped, since it compares as an unsigned number.
    """
    out = np.empty_like(a)
    out[..., 0] = a[..., 1]
    out[..., 1] = a[..., 0] ^ _SIGN
    return out


def wide_unordered(ordered: Words) -> Words:
    """The wide column that `wide_ordered` made into `ordered`."""
    out = np.empty_like(ordered)
    out[..., 0] = ordered[..., 1] ^ _SIGN
    out[..., 1] = ordered[..., 0]
    return out


# Rows


def sort_rows(rows: Words, key_word: int = 0) -> None:
    """Sort rows [n, words] in place by one of their words. Equal keys come out in no particular order."""
    n, words = _shape(rows, key_word)
    lib.scumble_sort_rows(_written(rows, n * words), n, words, key_word)


def merge_rows(rows: Words, first: int, key_word: int = 0) -> None:
    """Sort rows [n, words] in place whose first `first` are sorted, and whose others are."""
    n, words = _shape(rows, key_word)
    if not 0 <= first <= n:
        raise ValueError("the first part cannot have more rows than there are")
    lib.scumble_merge_rows(_written(rows, n * words), first, n, words, key_word)


def _shape(rows: Words, key_word: int = 0) -> tuple[int, int]:
    n, words = rows.shape if rows.ndim == 2 else (len(rows), 1)
    if not 0 <= key_word < words:
        raise ValueError("the key must be one of the row's words")
    return n, words


def compact(rows: Words, flags: Mask) -> None:
    """Move the rows whose flag is 1 to the front, in their order and with their flags, in place."""
    n, words = _shape(rows)
    lib.scumble_compact(_written(rows, n * words), _bytes(flags, n), n, words)


def cumulative_counts(sorted_keys: Words, ranks: int) -> Words:
    """For each rank 0, 1, ..., ranks - 1: how many keys are at or below it. Keys beyond count nowhere.

    Takes 9 bytes of scratch for every key and rank.
    """
    n = len(sorted_keys)
    out = np.empty(ranks, _INT64)
    scratch = np.empty((9 * (n + ranks) + 7) // 8, _INT64)
    lib.scumble_curve(_words(sorted_keys, n), n, ranks, _from_buffer(_WORDS, scratch), _from_buffer(_WORDS, out))
    return out
