"""Manifests: what the public part of one states, and how its file is called.

The provider reads it for the sizes of runs. Nothing in it is secret, and nothing is proven: only the enclave can tell
whether a manifest is genuine.
"""

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from scumble.errors import Busy, InvalidParameter, NewerVersion, Tampered
from scumble.store.protocol import TAG_BYTES, Shape, is_count, is_name
from scumble.wire.storage import public_part

__all__ = [
    "MOST_DATABASE_BYTES",
    "MOST_MANIFEST_BYTES",
    "database_file",
    "database_of",
    "first_of",
    "links_name",
    "manifest_name",
    "shapes_to_commit",
    "stated_shapes",
    "version_of",
]

FORMAT = 1
MOST_DATABASE_BYTES = 1000
MOST_MANIFEST_BYTES = 1 << 30
_LINKS = re.compile(r"([0-9]{8,15})\.links")
_MANIFEST = re.compile(r"([0-9]{8,15})-[0-9a-f]{16}\.manifest")


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


def links_name(first: int) -> str:
    """The file name of a pack of links, by the first version in it."""
    return f"{first:08d}.links"


def first_of(name: str) -> int | None:
    """The first version in a pack, by its file name; None if it is no such name."""
    match = _LINKS.fullmatch(name)
    return None if match is None or links_name(int(match[1])) != name else int(match[1])


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
        if not is_count(version):
            raise ValueError
    except Exception:  # the bytes may be anything, and so may the error
        raise Tampered from None
    return version, shapes


def shapes_to_commit(head: int, version: int, manifest: bytes, there: Mapping[str, Shape]) -> Mapping[str, Shape]:
    """The runs of a manifest that is to follow version `head`; an error unless it does, and all of them are `there`."""
    if version != head + 1:
        raise Busy("the database has been changed meanwhile", hint="open it again and repeat what you did")
    stated, shapes = stated_shapes(manifest)
    if stated != version:
        raise InvalidParameter("the manifest states another version", hint="commit the version that it states")
    if any(there.get(run) != shape for run, shape in shapes.items()):
        raise InvalidParameter(
            "the manifest names a run that was not made, or not in this shape", hint="finish every run first"
        )
    return shapes


def _table_shapes(fields: dict[str, Any]) -> list[tuple[str, Shape]]:
    if not fields["runs"]:
        return []
    row_bits = _row_bits(fields)
    shapes = []
    for run in fields["runs"]:
        capacity, page_rows = run["capacity"], run["page_rows"]
        if not (is_count(capacity) and is_count(page_rows)):
            raise ValueError
        if any(page_rows * size % 8 for size in row_bits):
            raise ValueError
        pages, held = -(-capacity // page_rows), run.get("columns", range(len(row_bits)))
        sizes = [page_rows * size // 8 + TAG_BYTES for size in row_bits]
        based = sizes[: run.get("based", len(sizes))]  # a column that was added since lies in layers
        shape = [(pages if place in held else 0, size) for place, size in enumerate(based)]
        shapes.append((run["id"], Shape.of(shape)))
        for layer in run.get("layers", ()):
            sizes_there = [sizes[place] if place >= 0 else page_rows + TAG_BYTES for place in layer["columns"]]
            shapes.append((layer["id"], Shape.of([(layer["pages"], size) for size in sizes_there])))
        if "tally" in run:
            shapes.append((run["tally"]["id"], Shape.of([(1, run["tally"]["size_bytes"] + TAG_BYTES)])))
    return shapes


def _row_bits(fields: dict[str, Any]) -> list[int]:
    """What a row takes in each column's pages: in bits, or as earlier versions stated it in bytes or not at all."""
    if "row_bits" in fields:
        sizes, unit = fields["row_bits"], 1
    else:
        sizes = fields["row_bytes"] if "row_bytes" in fields else list(map(_row_bytes_0_1, fields["schema"]))
        unit = 8
    if not sizes or not all(is_count(size) and size > 0 for size in sizes):
        raise ValueError
    return [unit * size for size in sizes]


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
