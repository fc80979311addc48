"""Blobs: bytes of any value, stored as texts are: zero-padded, and then their length. There is no key domain for them.

The greatest length is part of the type, public, and never taken from the data.
"""

import re
from typing import Any

from scumble.types.arrow import refused
from scumble.types.column import ColumnType, Interval, SqlType, ValueWords
from scumble.types.schema import Column
from scumble.types.text import MAX_BYTES, TextType, unpacked

_TEXT = re.compile(r"(?:[ -\[\]-~]|\\x[0-9A-Fa-f]{2})*", re.ASCII)
_ESCAPED = re.compile(r"\\x([0-9A-Fa-f]{2})", re.ASCII)


class BlobType(TextType):
    """`blob(max_bytes)`: at most so many bytes."""

    kind = "blob"
    names = dict.fromkeys(("blob", "bytea", "binary", "varbinary"), "blob")
    families = ("binary", "large_binary", "binary_view")
    examples = ("blob(32)",)
    sql_types = (SqlType("BLOB", -3, MAX_BYTES),)
    arrow_name = "binary"
    sources = frozenset([*families, "string"])
    is_text = False
    sql_name = "blob"

    @property
    def label(self) -> str:
        return f"blob({self.max_bytes})"

    def _encoded(self, value: object) -> bytes | None:
        return value if isinstance(value, bytes) else None

    def value_of(self, words: ValueWords) -> Any:
        return unpacked(words)[: words[-1]]

    def prefix_interval(self, prefix: str) -> Interval | None:
        return None

    def like_intervals(
        self, pattern: str, escape: str | None, *, case_insensitive: bool
    ) -> tuple[Interval, ...] | None:
        return None

    def comparable_with(self, other: ColumnType) -> bool:
        """Words compare if there are as many."""
        return isinstance(other, BlobType) and self.words == other.words

    @property
    def cell_type(self) -> Any:
        import pyarrow as pa

        return pa.string()

    def convert(self, column: Column, array: Any, source: str, first_row: int) -> Any:
        """Return bytes; texts are read as DuckDB reads them: ASCII, in which `\\xAB` stands for a byte."""
        import pyarrow as pa

        if source != "string":
            return array.cast(pa.binary())
        return pa.array(
            [_read(column, text, first_row + row) for row, text in enumerate(array.to_pylist())], pa.binary()
        )

    def _check(self, column: Column, array: Any, first_row: int) -> None:
        """Take any bytes."""


def _read(column: Column, text: str | None, row: int) -> bytes | None:
    if text is None:
        return None
    if _TEXT.fullmatch(text) is None:
        raise refused(column, row, "the text is no blob", "write bytes that are not ASCII, and backslashes, as \\xAB")
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text).encode("latin-1")
