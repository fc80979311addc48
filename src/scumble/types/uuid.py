"""UUIDs: 128 bits, in the order of their text, stored in 16 bytes. There is no key domain for them."""

import re
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from scumble.types.arrow import bitmap, refused, values_of
from scumble.types.column import Bracket, ColumnType, Interval, Operator, SqlType, ValueWords
from scumble.types.schema import Column
from scumble.types.wide import WIDE_BYTES, lower_half, wide_interval, wide_number, wide_words, words_of_halves

_MOST = (1 << 128) - 1
_MIDDLE = 1 << 127  # numbers of words have a sign
_TOP = np.uint64(1 << 63)
_HEX = "[0-9A-Fa-f]"
_TEXT = f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"
_CANONICAL = re.compile(_TEXT, re.ASCII)
_ARROW = "extension<arrow.uuid>"


class UuidType(ColumnType):
    """`uuid`."""

    kind = "uuid"
    names = dict.fromkeys(("uuid", "guid"), "uuid")
    families = (_ARROW,)
    examples = ("uuid",)
    sql_types = (SqlType("UUID", -11, 36, quote="'"),)
    words = 2
    width_bytes = WIDE_BYTES
    full_interval = wide_words(-_MIDDLE), wide_words(_MIDDLE - 1)
    arrow_name = "uuid"
    sources = frozenset([_ARROW, "string", "fixed_size_binary[16]"])

    def _words(self, value: object) -> ValueWords | None:
        return wide_words(value.int - _MIDDLE) if isinstance(value, UUID) else None

    def value_of(self, words: ValueWords) -> UUID:
        return UUID(int=wide_number(words) + _MIDDLE)

    def _bracket(self, value: object) -> Bracket | None:
        if isinstance(value, str) and _CANONICAL.fullmatch(value):
            value = UUID(value)
        return (value.int - _MIDDLE,) * 2 if isinstance(value, UUID) else None

    def _compared(self, op: Operator, value: object) -> Interval | None:
        bracket = self._bracket(value)
        if bracket is None:
            return None
        return wide_interval(op, bracket, -_MIDDLE, _MIDDLE - 1) or self.empty_interval

    @property
    def cell_type(self) -> Any:
        import pyarrow as pa

        return pa.string()

    def convert(self, column: Column, array: Any, source: str, first_row: int) -> Any:
        """Return UUIDs; texts have the form 01234567-89ab-cdef-0123-456789abcdef, in any case."""
        import pyarrow as pa
        from pyarrow import compute

        if source != "string":
            return array.cast(self.arrow_type)
        fits = compute.match_substring_regex(array, f"^{_TEXT}$").fill_null(True)
        if not compute.all(fits, min_count=0).as_py():
            row = first_row + int(np.argmin(fits.to_numpy(zero_copy_only=False)))
            raise refused(column, row, "the text is no UUID", "write it like 01234567-89ab-cdef-0123-456789abcdef")
        return uuids_of(array.cast(pa.string()))

    def encode(self, column: Column, array: Any, valid: NDArray[np.uint8] | None, first_row: int) -> NDArray[np.int64]:
        halves = values_of(array.storage, np.dtype((">u8", 2))).astype(np.uint64)
        return words_of_halves(halves[:, 0] ^ _TOP, np.ascontiguousarray(halves[:, 1]))

    def decode(self, words: NDArray[Any], valid: NDArray[Any] | None) -> Any:
        import pyarrow as pa

        halves = np.empty((len(words), 2), ">u8")
        halves[:, 0] = np.ascontiguousarray(words[:, 0]).view(np.uint64) ^ _TOP
        halves[:, 1] = lower_half(words)
        storage = pa.Array.from_buffers(pa.binary(16), len(words), [bitmap(valid), pa.py_buffer(halves)])
        return pa.ExtensionArray.from_storage(self.arrow_type, storage)


def uuids_of(texts: Any) -> Any:
    """Return the UUIDs of an array of texts, which is how DuckDB hands them out."""
    import pyarrow as pa
    from pyarrow import compute

    filled = compute.replace_substring(texts, "-", "").fill_null("0" * 32)
    raw = bytes.fromhex("".join(filled.to_pylist()))
    valid = texts.is_valid().to_numpy(zero_copy_only=False) if texts.null_count else None
    storage = pa.Array.from_buffers(pa.binary(16), len(texts), [bitmap(valid), pa.py_buffer(raw)])
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)
