"""The oblivious kernels over numpy arrays: masks, aggregates, groups, 128-bit expressions, sort and curve.

Columns, masks, bounds and keys are SECRET, and so is all that is computed from them: only the enclave calls this.
Shapes, which arrays are given, and the keyword flags are public. No kernel's branches or addresses depend on a secret
(native/*.c, proven by tests/test_oblivious.py).

A column is an int64 array of shape [n], or [n, k] for k words a row, which compare first word first. One of a word a
row may also be narrower, as pages have it: of int8 to int32, uint8 to uint32, or float32. A mask or validity is a uint8
array of n zeros and ones; no validity means that no row is null. All arrays are C-contiguous. Floats of 64 bits are
int64 words in the same order as the floats (types/column.py). A wide column is int64 [n, 2]: 128-bit values, least word
first.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble._native import ffi, lib
from scumble.types import GridRule
from scumble.wire.plan import COUNT, PARTS, Part

__all__ = [
    "CODES",
    "EQ",
    "LE",
    "LT",
    "Mask",
    "Values",
    "Words",
    "aggregate",
    "append_codes",
    "as_count",
    "check_grid",
    "check_single",
    "check_text",
    "cumulative_counts",
    "fold_rows",
    "grid_ranks",
    "is_set",
    "mask_compare",
    "mask_intervals",
    "mask_rows",
    "merge_rows",
    "no_ends",
    "no_extremes",
    "place_rows",
    "rows_agree",
    "sort_rows",
    "split_pages",
    "wide_add",
    "wide_fill",
    "wide_load",
    "wide_multiply",
    "wide_ordered",
    "wide_subtract",
]

Words = NDArray[np.int64]
Mask = NDArray[np.uint8]
Values = NDArray[Any]
"""A column of any width."""

EQ: int = lib.SCUMBLE_EQ
LT: int = lib.SCUMBLE_LT
LE: int = lib.SCUMBLE_LE


def _checked_codes() -> dict[Part, int]:
    """The C number of each part; an ImportError if its words in C are not those that `wire.plan` states."""
    codes: dict[Part, int] = {part: getattr(lib, f"SCUMBLE_{part.name.upper()}", -1) for part in PARTS}
    for part, code in codes.items():
        agrees = code >= 0 and lib.scumble_aggregate_reads(code) == part.reads
        if not agrees or any(lib.scumble_aggregate_writes(code, k) != part.words(k) for k in (1, 2, 5)):
            raise ImportError(f"the compiled kernels and the plans do not agree about {part.name}: build them again")
    return codes


CODES = _checked_codes()
"""What `aggregate` calls each part of an aggregate."""
_SHAPES = {code: (part.reads, part.writes) for part, code in CODES.items()}
_COUNT = CODES[COUNT]

# One call costs about a microsecond, of which these pointers are half: what can be looked up once is.
_from_buffer = ffi.from_buffer
_NULL = ffi.NULL
_INT64 = np.dtype(np.int64)
_UINT8 = np.dtype(np.uint8)
_WORDS = ffi.typeof("int64_t[]")
_BYTES = ffi.typeof("uint8_t[]")
_CODES = ffi.typeof("int32_t[]")
_TYPES: dict[Any, int] = {
    np.dtype(name): getattr(lib, f"SCUMBLE_{name.upper()}")
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float32")
}
_SIGN = np.int64(-(1 << 63))
_MAGNITUDE = np.int64((1 << 63) - 1)


def _words(array: Words, size: int) -> Any:
    # from_buffer itself refuses what is not contiguous.
    if array.dtype is not _INT64 and array.dtype != _INT64:
        raise TypeError("a column of int64 words is needed")
    if array.size != size:
        raise ValueError("arrays of one call must have the same number of rows and words")
    return _from_buffer(_WORDS, array)


def _values(array: Values, size: int) -> tuple[Any, int]:
    """A column of any width, and its type."""
    type_ = _TYPES.get(array.dtype)
    if type_ is None or (array.ndim > 1 and array.dtype != _INT64):
        raise TypeError("a column of integers or of floats of 32 bits is needed, of words if it has several a row")
    if array.size != size:
        raise ValueError("arrays of one call must have the same number of rows and words")
    return _from_buffer(array), type_


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


def _width(x: Values) -> int:
    return 1 if x.ndim == 1 else x.shape[1]


# Masks


def mask_rows(start: int, n: int, dummies: Words) -> Mask:
    """1 for those of the rows start, start + 1, ..., n of them, that are not from dummies[0] to before dummies[1]."""
    out = np.empty(n, _UINT8)
    lib.scumble_mask_rows(start, n, _words(dummies, 2), _from_buffer(_BYTES, out))
    return out


def split_pages(pages: Mask, page_bytes: int, value_bytes: int) -> Mask:
    """Move the values that begin each page together to the front, in place; the bits that end it come back as bytes.

    The first eighth of a page's rows has the lowest bit of each byte, and so on.
    """
    count, eighth = len(pages) // page_bytes, page_bytes - value_bytes
    if eighth < 0:
        raise ValueError("the values have to be within the page")
    valid = np.empty(8 * eighth * count, _UINT8)
    target = _from_buffer(_BYTES, pages, require_writable=True)
    lib.scumble_split_pages(target, count, page_bytes, value_bytes, _from_buffer(_BYTES, valid))
    return valid


def mask_intervals(
    x: Values, bounds: Words, valid: Mask | None = None, *, negated: bool = False, null_matches: bool = False
) -> Mask:
    """1 where x lies in any of the intervals, or in none if negated; null rows match as `null_matches` says.

    `bounds`, secret, has the shape [m, 2], or [m, 2, k] for columns of k words: least and greatest of m intervals.
    """
    n, k, m = len(x), _width(x), len(bounds)
    out = np.empty(n, _UINT8)
    lib.scumble_mask_intervals(
        *_values(x, n * k),
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
    a: Values, b: Values, op: int, valid_a: Mask | None = None, valid_b: Mask | None = None, *, negated: bool = False
) -> Mask:
    """1 where `a op b` holds, or does not if negated; op is EQ, LT or LE. A null on either side gives 0."""
    if op not in (EQ, LT, LE):
        raise ValueError("the comparison must be EQ, LT or LE")
    n, k = len(a), _width(a)
    out = np.empty(n, _UINT8)
    lib.scumble_mask_compare(
        *_values(a, n * k),
        *_values(b, n * k),
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


def append_codes(codes: NDArray[np.int32], x: Values, valid: Mask | None, size: int) -> None:
    """Make codes into codes * size + x, in place; x counts as size - 1 where it is null."""
    n = len(codes)
    column, type_ = _values(x, n)
    target = _from_buffer(_CODES, codes, require_writable=True)
    lib.scumble_append_codes(column, type_, _bytes(valid, n), n, size, target)


def no_extremes(k: int = 1, groups: int | None = None) -> Words:
    """What extremes start from, [2, k], or [groups, 2, k]: a least above all values and a greatest below them."""
    out = np.empty((1 if groups is None else groups, 2, k), _INT64)
    out[:, 0], out[:, 1] = _MAGNITUDE, _SIGN
    return out[0] if groups is None else out


def aggregate(
    what: int, x: Values | None, mask: Mask, valid: Mask | None, codes: Values | None, out: NDArray[Any]
) -> None:
    """Add one part, of CODES, of the rows under the mask to `out`; with codes, of each group's rows to out[group].

    `out` is contiguous, and has for each group as many words as the part; without codes there is one group. Rows of a
    code beyond the groups are of none. Sums of doubles are two, whose sum is the result: what addition gives and
    what it rounds away; infinities and NaN spread as in plain addition, otherwise the error before the two are added
    is at most (n/64 + 100)^2 2^-105 times the sum of the magnitudes (a square that underflows adds 2^-1074).
    """
    n, k = len(mask), 0 if x is None else _width(x)
    width, words = _SHAPES[what]
    if (width and k != width) or (x is None and what != _COUNT):
        raise ValueError("the column has not the words that this aggregate reads")
    if out.nbytes != 8 * (words or 2 * k) * (1 if codes is None else len(out)):
        raise ValueError("the results have not the words that this aggregate writes")
    column = (_NULL, _TYPES[_INT64]) if x is None else _values(x, n * k)
    target = _from_buffer(out, require_writable=True)
    if codes is None:
        lib.scumble_aggregate(what, *column, k, _bytes(mask, n), _bytes(valid, n), n, target)
    else:
        rows = _bytes(mask, n), _bytes(valid, n), n
        lib.scumble_aggregate_groups(what, *column, k, *_values(codes, n), len(out), *rows, target)


# Wide columns. `overflow`, a uint8 array of one, is set to 1 if a result under the mask leaves 128 bits


def wide_load(x: Values) -> Words:
    """A column as a wide one."""
    n = len(x)
    out = np.empty((n, 2), _INT64)
    lib.scumble_wide_load(*_values(x, n), n, _from_buffer(_WORDS, out))
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


def wide_ordered(a: Words) -> Words:
    """A wide column as words that compare first word first, for the masks and the extremes.

    The words change places, and the lower one's sign bit is flipped, since it compares as an unsigned number.
    """
    out = np.empty_like(a)
    out[..., 0] = a[..., 1]
    out[..., 1] = a[..., 0] ^ _SIGN
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


def place_rows(rows: Words, key_word: int, ranks: int, filled: Words, sorted_as: Words, seen: Words) -> None:
    """Replace the rows' keys by words that, sorted, put a dummy into each block that wants one: see native/place.c.

    `filled` and `seen` are secret: how many dummies there are up to the end of each block, and how many came before.
    """
    n, words = _shape(rows, key_word)
    blocks = len(sorted_as)
    arrays = _words(filled, blocks), _words(sorted_as, blocks), blocks, _written(seen, 1)
    lib.scumble_place_rows(_written(rows, n * words), n, words, key_word, ranks, *arrays)


def _shape(rows: Words, key_word: int) -> tuple[int, int]:
    n, words = rows.shape if rows.ndim == 2 else (len(rows), 1)
    if not 0 <= key_word < words:
        raise ValueError("the key must be one of the row's words")
    return n, words


def cumulative_counts(sorted_keys: Words, ranks: int) -> Words:
    """For each rank 0, 1, ..., ranks - 1: how many keys are at or below it. Keys beyond count nowhere.

    Takes 9 bytes of scratch for every key and rank.
    """
    n = len(sorted_keys)
    out = np.empty(ranks, _INT64)
    scratch = np.empty((9 * (n + ranks) + 7) // 8, _INT64)
    lib.scumble_curve(_words(sorted_keys, n), n, ranks, _from_buffer(_WORDS, scratch), _from_buffer(_WORDS, out))
    return out


# Validation of loaded rows


def check_text(x: Words, max_bytes: int, *, utf8: bool = True) -> Mask:
    """1 where the words [n, k] are those of a text: of at most so many bytes, valid UTF-8, and zeros after its end.

    Without `utf8`, any bytes will do.
    """
    n, k = len(x), _width(x)
    out = np.empty(n, _UINT8)
    lib.scumble_check_text(_words(x, n * k), k, n, max_bytes, utf8, _from_buffer(_BYTES, out))
    return out


def check_single(x: Words) -> Mask:
    """1 where the word of a double is that of a float of 32 bits."""
    n = len(x)
    out = np.empty(n, _UINT8)
    lib.scumble_check_single(_words(x, n), n, _from_buffer(_BYTES, out))
    return out


def check_grid(x: Words, ranks: Words, rule: GridRule) -> Mask:
    """1 where a word has the rank that is claimed for it."""
    n = len(x)
    out = np.empty(n, _UINT8)
    grid = rule.origin, rule.scale, rule.rest, rule.stride, rule.inverse, rule.limit, rule.low_bits
    bounds = rule.least, rule.most, rule.size
    lib.scumble_check_grid(
        _words(x, n), _words(ranks, n), n, *bounds, ffi.new("uint64_t[]", grid), _from_buffer(_BYTES, out)
    )
    return out


def grid_ranks(x: Words, rule: GridRule) -> Words:
    """The rank of each word; of a word that has none, a number that `check_grid` refuses."""
    n = len(x)
    out = np.empty(n, _INT64)
    grid = rule.origin, rule.scale, rule.rest, rule.stride
    reciprocal = ((1 << 64) - 1) // rule.stride
    lib.scumble_grid_ranks(_words(x, n), n, ffi.new("uint64_t[]", grid), reciprocal, _from_buffer(_WORDS, out))
    return out


def no_ends() -> Words:
    """What `fold_rows` starts from: no row that cannot be real, and none that cannot be a dummy."""
    out = np.empty(2, _INT64)
    out[0], out[1] = _MAGNITUDE, -1
    return out


def fold_rows(real: Mask, dummy: Mask, start: int, ends: Words) -> None:
    """Take rows into account, the first of number `start`, that are valid as real ones, and as dummies, or are not."""
    n = len(real)
    lib.scumble_fold_rows(_bytes(real, n), _bytes(dummy, n), n, start, _written(ends, 2))


def rows_agree(ends: Words, least: int, most: int) -> bool:
    """Whether all rows can be r real ones and then dummies, for some r from least to most.

    PUBLIC from here on: it says whether a batch is taken or refused, which the answer shows.
    """
    agree: int = lib.scumble_rows_agree(_words(ends, 2), least, most)
    return agree == 1


def as_count(word: Words) -> int:
    """One word as a number, for where dummies begin: SECRET still, and never more than handed on."""
    return int(word[0])


def is_set(flag: Mask) -> bool:
    """Whether one byte is 1. PUBLIC from here on: it says whether a change is made, which the next version shows."""
    return bool(flag[0] == 1)
