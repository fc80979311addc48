"""Texts and their words, whole columns at a time: Arrow's offsets and bytes come in, words go out, and the other way.

SECRET rows; a refusal names the column and the row.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble.errors import BadRows
from scumble.types.column import MAX_TEXT_BYTES, Column
from scumble.types.conversion import first_failure, refused

__all__ = ["decode_text", "encode_text"]

_TOP = np.uint64(1 << 63)
_MASKS = np.array([((1 << 64) - 1) >> (64 - 8 * kept) << (64 - 8 * kept) for kept in range(9)], np.uint64)
"""For every number of bytes that a word keeps, first byte highest."""

_BLOCK_ROWS = 1 << 14  # handled at a time, so that intermediate columns stay in the cache


def encode_text(column: Column, array: Any, first_row: int) -> NDArray[np.int64]:
    """Return the words of an Arrow string array, whatever stands at the nulls."""
    count, letters = len(array), column.type.words - 1
    words = np.zeros((count, letters + 1), np.int64)
    if count == 0:
        return words
    _check_utf8(column, array, first_row)
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + count + 1]
    data = array.buffers()[2]
    start, stop = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(stop - start + 8 * letters, np.uint8)
    if stop > start:
        padded[: stop - start] = np.frombuffer(data, np.uint8)[start:stop]
    # The big-endian word that begins at any byte; the padding lets the last text's words be read whole.
    window = np.ndarray((len(padded) - 7,), ">u8", padded, strides=(1,))
    flat = words.view(np.uint64)
    for first in range(0, count, _BLOCK_ROWS):
        block = offsets[first : first + _BLOCK_ROWS + 1].astype(np.int64)
        begins, lengths = block[:-1] - start, block[1:] - block[:-1]
        if lengths.max() > column.type.max_bytes:
            raise _too_long(column, array, lengths, first, first_row)
        rows = slice(first, first + len(lengths))
        for place in range(letters):
            kept = np.minimum(np.maximum(lengths - 8 * place, 0), 8)
            flat[rows, place] = (window[begins + 8 * place] & _MASKS[kept]) ^ _TOP
        words[rows, letters] = lengths
    return words


def decode_text(words: NDArray[Any], max_bytes: int) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return the offsets and the bytes of texts."""
    count, letters = len(words), words.shape[1] - 1
    lengths = words[:, letters].clip(0, max_bytes)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    parts = []
    for first in range(0, count, _BLOCK_ROWS):
        rows = slice(first, first + _BLOCK_ROWS)
        block = np.ascontiguousarray(words[rows, :letters]).view(np.uint64) ^ _TOP
        padded = block.astype(">u8").view(np.uint8).reshape(-1, 8 * letters)
        parts.append(padded[np.arange(8 * letters) < lengths[rows, None]])
    return offsets.astype(np.int32), np.concatenate(parts) if parts else np.zeros(0, np.uint8)


def _check_utf8(column: Column, array: Any, first_row: int) -> None:
    import pyarrow as pa

    def check(part: Any) -> None:
        part.validate(full=True)

    try:
        check(array)
    except pa.ArrowInvalid:
        row = first_failure(array, check)
    else:
        return
    raise refused(column, first_row + row, "the text is not valid UTF-8", "correct its encoding")


def _too_long(column: Column, array: Any, lengths: NDArray[np.int64], first: int, first_row: int) -> BadRows:
    row = first + int(np.argmax(lengths > column.type.max_bytes))
    return refused(
        column,
        first_row + row,
        f"the text is longer than {column.type.max_bytes} bytes, the most that {column.type.label} holds",
        f"declare the column text(N), N up to {MAX_TEXT_BYTES}: the number is public, so it is not taken from the data",
    )
