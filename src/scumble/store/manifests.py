"""Manifests: what their public part states, and the files that keep them: HEAD, and one for every version.

The provider reads them for the sizes of runs. Nothing in them is secret, and nothing is proven: only the enclave can
tell whether a manifest is genuine. One that does not agree with its own name is Tampered.
"""

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from scumble.durable import remove
from scumble.errors import Busy, InvalidParameter, NewerVersion, NotFound, Tampered
from scumble.store.protocol import TAG_BYTES, Shape, is_count, is_name
from scumble.store.runs import RunFiles, is_there, read_whole, reading, replace
from scumble.wire.storage import public_part

__all__ = [
    "MOST_DATABASE_BYTES",
    "MOST_MANIFEST_BYTES",
    "ManifestFiles",
    "database_file",
    "database_of",
    "manifest_name",
    "shapes_to_commit",
    "stated_shapes",
    "version_of",
]

FORMAT = 1
MOST_DATABASE_BYTES = 1000
MOST_MANIFEST_BYTES = 1 << 30
_MANIFEST = re.compile(r"([0-9]{8,15})-[0-9a-f]{16}\.manifest")


# --- what they state -------------------------------------------------------------------------------


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
        based = sizes[: len(run["tag_hashes"])]  # a column that was added since lies in layers
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


# --- their files -----------------------------------------------------------------------------------


class ManifestFiles:
    """HEAD and the manifests of a database. `runs` learns the shapes that each of them states."""

    def __init__(self, database: Path, runs: RunFiles) -> None:
        self.folder = database / "manifests"
        self._head_path = database / "HEAD"
        self._runs = runs
        self._head: tuple[str, Mapping[str, Shape]] = ("", {})
        self._earlier: dict[int, list[str]] = {}

    def version(self) -> int:
        """The head's version; 0 if nothing has been committed yet."""
        name = self._head_name()
        return 0 if name is None else _version(name)

    def head(self) -> bytes:
        name = self._head_name()
        if name is None:
            raise NotFound("the database has no version yet", hint="make it with `scumble init`")
        return self._read_head(name)[0]

    def head_shapes(self) -> Mapping[str, Shape]:
        """The runs of the head, and their shapes."""
        name = self._head_name()
        return {} if name is None else self._read_head(name)[1]

    def manifest(self, version: int) -> bytes:
        return self._read_version(version)[0]

    def look_for(self, run: str) -> None:
        """Read manifests until one states the run: the head, or, for a slow reader, an earlier one."""
        if run in self.head_shapes():
            return
        head = self.version()
        for version in sorted((v for v in self.listed() if v < head), reverse=True):
            if run in self._read_version(version)[1]:
                return

    def publish(self, version: int, manifest: bytes) -> None:
        """Make `manifest` the head: its own file first, then HEAD, both durably."""
        name = manifest_name(version, manifest)
        self.withdraw(version)
        replace(self.folder / name, f"manifests/{name}", manifest)
        replace(self._head_path, "HEAD", f"{name}\n".encode())

    def withdraw(self, version: int) -> None:
        """Delete what was written of a version that never became the head."""
        for name in self.listed().get(version, []):
            remove(self.folder / name)

    def listed(self) -> dict[int, list[str]]:
        """The names of the files that are there, by version."""
        names: dict[int, list[str]] = {}
        with reading("manifests"):
            for path in self.folder.iterdir():
                if (version := version_of(path.name)) is not None:
                    names.setdefault(version, []).append(path.name)
        return names

    def named_earlier(self, runs: set[str]) -> set[str]:
        """Those of these runs that a version before the head names; all of them if one of those cannot be read."""
        found: set[str] = set()
        head, listed = self.version(), self.listed()
        for version in sorted((v for v in listed if v < head), reverse=True):
            if found == runs:
                break
            for name in listed[version]:
                try:
                    found |= runs & self._read(name)[1].keys()
                except Tampered:
                    return runs
        return found

    def _head_name(self) -> str | None:
        if not is_there(self._head_path, "HEAD"):
            if max(self.listed(), default=0) > 1:  # a first commit that was cut short leaves version 1 at most
                raise Tampered
            return None
        content = read_whole(self._head_path, "HEAD", 100)
        name = content[:-1].decode("latin-1")
        if content[-1:] != b"\n" or version_of(name) is None:
            raise Tampered
        return name

    def _read_head(self, name: str) -> tuple[bytes, Mapping[str, Shape]]:
        known, shapes = self._head
        if name == known:
            return self._content(name), shapes
        content, shapes = self._read(name)
        self._runs.learn(shapes, newest=True)
        self._head = name, shapes
        return content, shapes

    def _read_version(self, version: int) -> tuple[bytes, Mapping[str, Shape]]:
        head = self._head_name()
        if head is not None and version == _version(head):
            return self._read_head(head)
        if version not in self._earlier:
            # What is not committed may still be replaced by a file of another name.
            self._earlier = {v: names for v, names in self.listed().items() if head and v < _version(head)}
        names = self._earlier.get(version, [])
        if not names:
            raise NotFound("there is no such version of the database", hint="`scumble check` shows what there is")
        if len(names) > 1:
            raise Tampered
        content, shapes = self._read(names[0])
        self._runs.learn(shapes, newest=False)
        return content, shapes

    def _read(self, name: str) -> tuple[bytes, Mapping[str, Shape]]:
        content = self._content(name)
        version, shapes = stated_shapes(content)
        if version != _version(name):
            raise Tampered
        return content, shapes

    def _content(self, name: str) -> bytes:
        content = read_whole(self.folder / name, f"manifests/{name}", MOST_MANIFEST_BYTES)
        if manifest_name(_version(name), content) != name:
            raise Tampered
        return content


def _version(name: str) -> int:
    return int(name.partition("-")[0])
