"""The kernels one by one, as tests hold them against plain Python; the enclave itself calls `aggregate` only."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble._native import ffi, lib
from scumble.enclave import kernels
from scumble.enclave.kernels import CODES, Mask, Words
from scumble.wire.plan import COUNT, DOUBLE_SQUARES, DOUBLES, EXTREMES, SQUARES, SUM, WIDE_SUM, Part

Floats = NDArray[np.float64]

SIGN, MAGNITUDE = np.int64(-(1 << 63)), np.int64((1 << 63) - 1)


def float_words(x: Floats) -> Words:
    """Floats as words in the same order: negative zero becomes zero, every NaN the greatest."""
    with np.errstate(invalid="ignore"):  # a signalling NaN must not warn
        bits: Words = np.ascontiguousarray(x + 0.0).view(np.int64)
    nan = -np.isnan(x).astype(np.int64)
    bits = (bits & ~nan) | (np.int64(0x7FF8 << 48) & nan)
    words: Words = bits ^ ((bits >> 63) & MAGNITUDE)
    return words


def word_floats(words: Words) -> Floats:
    """The floats that `float_words` made into words."""
    return (words ^ ((words >> 63) & MAGNITUDE)).view(np.float64)


def integers(words: Words) -> list[int]:
    """The Python integers of an array of shape [m, words], least word first."""
    step = words.shape[1] * 8
    data = words.tobytes()
    return [int.from_bytes(data[at : at + step], "little", signed=True) for at in range(0, len(data), step)]


def _one(part: Part) -> Callable[..., int]:
    def call(x: Words | None, mask: Mask, valid: Mask | None = None) -> int:
        out = np.zeros((1, part.writes), np.int64)
        kernels.aggregate(CODES[part], x, mask, valid, None, out)
        return integers(out)[0]

    return call


sum_words, sum_squares, wide_sum = _one(SUM), _one(SQUARES), _one(WIDE_SUM)


def count(mask: Mask, valid: Mask | None = None) -> int:
    return _one(COUNT)(None, mask, valid)


def _into(part: Part) -> Callable[..., None]:
    def call(x: Words, mask: Mask, out: Any, valid: Mask | None = None) -> None:
        kernels.aggregate(CODES[part], x, mask, valid, None, out)

    return call


min_max, sum_floats, sum_squares_floats = _into(EXTREMES), _into(DOUBLES), _into(DOUBLE_SQUARES)


def group_count(codes: Words, mask: Mask, out: Words, valid: Mask | None = None) -> None:
    kernels.aggregate(CODES[COUNT], None, mask, valid, codes, out)


def _grouped(part: Part) -> Any:
    def call(x: Words, codes: Words, mask: Mask, out: Any, valid: Mask | None = None) -> None:
        kernels.aggregate(CODES[part], x, mask, valid, codes, out)

    return call


group_sum = _grouped(SUM)
group_sum_squares = _grouped(SQUARES)
group_min_max = _grouped(EXTREMES)
group_sum_floats = _grouped(DOUBLES)
group_sum_squares_floats = _grouped(DOUBLE_SQUARES)
group_wide_sum = _grouped(WIDE_SUM)


def wide_unordered(ordered: Words) -> Words:
    """The wide column that `wide_ordered` made into `ordered`."""
    out = np.empty_like(ordered)
    out[..., 0] = ordered[..., 1] ^ SIGN
    out[..., 1] = ordered[..., 0]
    return out


def compact(rows: Words, flags: Mask) -> None:
    """Move the rows whose flag is 1 to the front, in their order and with their flags, in place."""
    n, words = rows.shape if rows.ndim == 2 else (len(rows), 1)
    pointers = ffi.from_buffer("int64_t[]", rows), ffi.from_buffer("uint8_t[]", flags)
    lib.scumble_compact(*pointers, n, words)
