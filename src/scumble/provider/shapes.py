"""Where the pages of a run stand in its files: a public catalog comes in, offsets go out.

All of it is public. The catalog is read from the provider's own folder and nobody has vouched for it: whatever it holds
ends in shapes that fit in a file, or in Tampered.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from scumble.boundary.catalog import TAG_BYTES, Table
from scumble.boundary.manifest import public_part
from scumble.boundary.storage import RunShape
from scumble.errors import InvalidParameter, Tampered
from scumble.schema import Schema
from scumble.schema.types import MAX_DECIMAL_DIGITS

__all__ = ["Shape", "is_name", "stated_shapes"]

MOST_BYTES = 1 << 62  # offsets in a file are signed 64-bit numbers
_NAME = re.compile(r"[0-9a-z][0-9a-z-]{0,99}")


def is_name(name: object) -> bool:
    """Whether `name` can be that of a run or of a scratch file: lower-case letters, digits and hyphens."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Shape:
    """PUBLIC: for every column of a run, (where its pages begin, bytes of a sealed page, number of pages)."""

    columns: tuple[tuple[int, int, int], ...]
    pages_bytes: int
    tags_bytes: int

    @classmethod
    def of(cls, shape: RunShape) -> Self:
        """The shape of a run with these (pages, bytes of a sealed page) for its columns, column after column."""
        columns, at = [], 0
        for pages, slot_bytes in shape:
            if not (_is_count(pages) and _is_count(slot_bytes) and slot_bytes > 0):
                raise InvalidParameter("a run's shape has to be counts of pages and bytes", hint="correct the shape")
            columns.append((at, slot_bytes, pages))
            at += pages * slot_bytes
        if at >= MOST_BYTES:
            raise InvalidParameter("the run is too large for a file", hint="give the table a smaller capacity")
        return cls(tuple(columns), at, TAG_BYTES * sum(pages for _, _, pages in columns))

    def tags_at(self, column: int) -> tuple[int, int]:
        """Where the tags of a column stand: offset and length."""
        before = sum(pages for _, _, pages in self.columns[:column])
        return TAG_BYTES * before, TAG_BYTES * self.columns[column][2]


def stated_shapes(manifest: bytes) -> tuple[int, Mapping[str, Shape]]:
    """The version that a manifest states, and its runs' shapes; Tampered if it states no such thing."""
    public = public_part(manifest)
    try:
        fields = json.loads(public.decode())
        version = fields["version"]
        shapes: dict[str, Shape] = {}
        for table in fields["tables"]:
            for run, shape in _table_shapes(table):
                if run in shapes or not is_name(run):
                    raise ValueError
                shapes[run] = shape
        if not _is_count(version):
            raise ValueError
    except Exception:  # the bytes may be anything, and so may the error
        raise Tampered from None
    return version, shapes


def _table_shapes(fields: dict[str, Any]) -> list[tuple[str, Shape]]:
    if not fields["runs"]:
        return []
    if any(column["type"].get("digits", 0) > MAX_DECIMAL_DIGITS for column in fields["schema"]):
        raise ValueError  # a power of ten that nobody would live to see
    table = Table("", "", Schema.from_json(fields["schema"]), ())
    shapes = []
    for run in fields["runs"]:
        capacity, page_rows = run["capacity"], run["page_rows"]
        if not (_is_count(capacity) and _is_count(page_rows)):
            raise ValueError
        pages = -(-capacity // page_rows)
        columns = [(pages, table.slot_bytes(column, page_rows)) for column in range(len(table.schema))]
        shapes.append((run["id"], Shape.of(columns)))
    return shapes


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < MOST_BYTES
