"""What every store knows of a database: its names, its small files, and the shapes of its runs.

A manifest goes in, and out come the version that it states and the size of every run. Nothing here is secret, and
nothing is proven: only the enclave can tell whether a manifest is genuine.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Self

from scumble.errors import InvalidParameter, NewerVersion, Tampered
from scumble.wire.storage import RunShape, public_part

__all__ = [
    "FORMAT",
    "MOST_DATABASE_BYTES",
    "MOST_MANIFEST_BYTES",
    "PAGES",
    "TAGS",
    "Shape",
    "check_name",
    "database_file",
    "database_of",
    "is_name",
    "manifest_name",
    "stated_shapes",
    "version_of",
]

FORMAT = 1
PAGES, TAGS = ".pages", ".tags"
TAG_BYTES = 16
MOST_DATABASE_BYTES = 1000
MOST_MANIFEST_BYTES = 1 << 30
MOST_BYTES = 1 << 62  # offsets in a file are signed 64-bit numbers
_NAME = re.compile(r"[0-9a-z][0-9a-z-]{0,99}")
_MANIFEST = re.compile(r"([0-9]{8,15})-[0-9a-f]{16}\.manifest")


# --- names and small files -------------------------------------------------------------------------


def is_name(name: object) -> bool:
    """Whether `name` can name a run, a database or a scratch file: lower-case letters, digits and hyphens."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(name: str, what: str) -> str:
    """The name, or InvalidParameter: it could lead out of its folder."""
    if not is_name(name):
        raise InvalidParameter(f"this cannot name {what}", hint="lower-case letters, digits and hyphens")
    return name


def database_file(database: str) -> bytes:
    """The content of database.json."""
    return (json.dumps({"format": FORMAT, "database": database}) + "\n").encode()


def database_of(content: bytes) -> str:
    """The id in a database.json; NewerVersion if a later Scumble wrote it, Tampered if none did."""
    try:
        fields = json.loads(content.decode())
        version, database = fields["format"], fields["database"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Tampered from None
    if type(version) is not int or version < 1:
        raise Tampered
    if version > FORMAT:
        raise NewerVersion(
            f"the database has format {version}; this Scumble reads up to {FORMAT}", hint="upgrade Scumble"
        )
    if not is_name(database):
        raise Tampered
    return str(database)


def manifest_name(version: int, manifest: bytes) -> str:
    """The file name of a manifest."""
    return f"{version:08d}-{sha256(manifest).hexdigest()[:16]}.manifest"


def version_of(name: str) -> int | None:
    """The version in a manifest's file name; None if it is no such name."""
    match = _MANIFEST.fullmatch(name)
    return None if match is None else int(match[1])


# --- shapes ----------------------------------------------------------------------------------------


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

    def pages_at(self, column: int, first_page: int, pages: int, size_bytes: int) -> int:
        """Where pages begin that are to be read; Tampered if the run does not have them, or not in this size."""
        if not 0 <= column < len(self.columns):
            raise Tampered
        start, slot_bytes, count = self.columns[column]
        if first_page < 0 or pages < 0 or first_page + pages > count or size_bytes != pages * slot_bytes:
            raise Tampered
        return start + first_page * slot_bytes

    def room_at(self, column: int, first_page: int, size_bytes: int) -> int:
        """Where pages of this size are to be written; InvalidParameter if the run has no room for them."""
        if not 0 <= column < len(self.columns):
            raise InvalidParameter("the run has no such column", hint="write what its shape has room for")
        start, slot_bytes, count = self.columns[column]
        if first_page < 0 or size_bytes % slot_bytes or first_page + size_bytes // slot_bytes > count:
            raise InvalidParameter("the run has no room for these pages", hint="write what its shape has room for")
        return start + first_page * slot_bytes

    def tags_at(self, column: int) -> tuple[int, int]:
        """Where the tags of a column stand: offset and length; Tampered if there is no such column."""
        if not 0 <= column < len(self.columns):
            raise Tampered
        before = sum(pages for _, _, pages in self.columns[:column])
        return TAG_BYTES * before, TAG_BYTES * self.columns[column][2]

    def check_tags(self, tags: list[int]) -> None:
        """InvalidParameter unless these are the bytes of tags that the columns have."""
        if tags != [TAG_BYTES * pages for _, _, pages in self.columns]:
            raise InvalidParameter("the tags do not fit the run", hint="16 bytes for every page of every column")


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
    row_bytes = fields["row_bytes"] if "row_bytes" in fields else list(map(_row_bytes_0_1, fields["schema"]))
    if not row_bytes or not all(_is_count(size) and size > 0 for size in row_bytes):
        raise ValueError
    shapes = []
    for run in fields["runs"]:
        capacity, page_rows = run["capacity"], run["page_rows"]
        if not (_is_count(capacity) and _is_count(page_rows)):
            raise ValueError
        pages = -(-capacity // page_rows)
        shapes.append((run["id"], Shape.of([(pages, page_rows * size + TAG_BYTES) for size in row_bytes])))
    return shapes


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < MOST_BYTES


# Manifests of release 0.1 do not state how many bytes a row takes. What follows describes the pages that it wrote: a
# format that is on disks already, so it never changes, even if the column types do.

_WIDTHS_0_1 = {"boolean": 1, "date": 4, "time": 8, "timestamp": 8, "float": 8}
_INTEGER_WIDTHS_0_1 = {
    "tinyint": 1,
    "smallint": 2,
    "integer": 4,
    "bigint": 8,
    "utinyint": 2,
    "usmallint": 4,
    "uinteger": 8,
    "ubigint": 8,
}
_DECIMAL_WIDTHS_0_1 = {2: 1, 4: 2, 9: 4, 18: 8}  # by the most digits


def _row_bytes_0_1(column: dict[str, Any]) -> int:
    """The bytes of a row in a page of a column: its value, and a byte more if it may be null."""
    kind, nullable = column["type"]["kind"], column["nullable"]
    match kind:
        case "integer":
            width = _INTEGER_WIDTHS_0_1[column["type"]["sql"]]
        case "decimal":
            digits = column["type"].get("digits", 0)
            width = next(size for most, size in _DECIMAL_WIDTHS_0_1.items() if digits <= most)
        case "category":
            last = len(column["type"].get("categories", ())) - 1
            width = next(size for size in (1, 2, 4) if last < 1 << (8 * size - 1))
        case "text":
            width = 8 * (-(-column["type"].get("max_bytes", 0) // 8) + 1)
        case _:
            width = _WIDTHS_0_1[kind]
    if type(nullable) is not bool:
        raise ValueError
    return int(width) + nullable
