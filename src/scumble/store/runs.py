"""Run files: sealed pages and their tags come in once, and go out as often as anybody asks.

The provider may see all of it: the pages are ciphertext. `read` is what a query spends its time in: descriptors
stay open, offsets are known, and nothing is locked. A descriptor is closed when the last one who uses it lets go, so a
thread that reads is never given somebody else's file.
"""

import errno
import json
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from scumble.errors import Exists, InvalidParameter, ScumbleError, Tampered
from scumble.store.disk import open_to_read, reading, remove, replace, writing
from scumble.types import Schema
from scumble.wire.catalog import TAG_BYTES, Table
from scumble.wire.manifest import public_part
from scumble.wire.storage import RunShape

__all__ = ["RunFiles", "Shape", "is_name", "stated_shapes"]


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


MOST_OPEN = 64
PAGES, TAGS = ".pages", ".tags"


class _OpenRun:
    """A run's pages file. Closed by the reference count, not by whoever evicts it."""

    __slots__ = ("columns", "finished", "handle", "shape")

    def __init__(self, handle: int, shape: Shape, *, finished: bool) -> None:
        self.handle = handle
        self.shape = shape
        self.columns = shape.columns
        self.finished = finished

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        with suppress(OSError):
            close(self.handle)


class RunFiles:
    """The runs in a folder. `shape_of` gives the shape of a run that is not known yet, or raises."""

    def __init__(self, folder: Path, shape_of: Callable[[str], Shape], missing: Callable[[str], ScumbleError]) -> None:
        self.folder = folder
        self._shape_of = shape_of
        self._missing = missing
        self._open: OrderedDict[str, _OpenRun] = OrderedDict()
        self._opening = threading.Lock()
        self._new: dict[str, _OpenRun] = {}

    def read(self, run: str, column: int, first_page: int, pages: int, into: memoryview) -> None:
        """Fill `into` with sealed pages; Tampered if they are not there."""
        opened = self._open.get(run)
        if opened is None:
            opened = self._reopen(run)
        else:
            try:  # noqa: SIM105 (suppress() would take as long as the read)
                self._open.move_to_end(run)
            except KeyError:  # evicted this moment: it stays open as long as we hold it
                pass
        columns = opened.columns
        if not 0 <= column < len(columns):
            raise Tampered
        start, slot_bytes, count = columns[column]
        length = into.nbytes
        if first_page < 0 or pages < 0 or first_page + pages > count or length != pages * slot_bytes:
            raise Tampered
        offset = start + first_page * slot_bytes
        try:
            done = os.preadv(opened.handle, (into,), offset)
        except OSError:
            done = 0  # once more, and in our words
        if done != length:
            _read_on(opened.handle, into.cast("B"), done, offset, run)

    def tags(self, run: str, column: int) -> bytes:
        """The tags of a column; Tampered if they are not there."""
        shape = self._shape(run)
        if not 0 <= column < len(shape.columns):
            raise Tampered
        handle = self._open_whole(run, TAGS, shape.tags_bytes)
        try:
            offset, length = shape.tags_at(column)
            tags = bytearray(length)
            _read_on(handle, memoryview(tags), 0, offset, run)
        finally:
            os.close(handle)
        return bytes(tags)

    def create(self, run: str, shape: RunShape) -> None:
        """Make room for a run, and refuse at once if the disk has none."""
        if not is_name(run):
            raise _bad_name()
        laid_out = Shape.of(shape)
        with writing(_name(run)):
            try:
                handle = os.open(self._path(run, PAGES), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except FileExistsError:
                raise Exists("there is already a run of this name", hint="runs are never changed") from None
            self._new[run] = _OpenRun(handle, laid_out, finished=False)
            if laid_out.pages_bytes:
                _reserve(handle, laid_out.pages_bytes)

    def write(self, run: str, column: int, first_page: int, pages: bytes | memoryview) -> None:
        """Write sealed pages of a run that is being made."""
        opened = self._being_made(run)
        content = memoryview(pages).cast("B")
        if not 0 <= column < len(opened.columns):
            raise InvalidParameter("the run has no such column", hint="write what its shape has room for")
        start, slot_bytes, count = opened.columns[column]
        if first_page < 0 or len(content) % slot_bytes or first_page + len(content) // slot_bytes > count:
            raise InvalidParameter("the run has no room for these pages", hint="write what its shape has room for")
        offset = start + first_page * slot_bytes
        with writing(_name(run)):
            while content:
                written = os.pwrite(opened.handle, content, offset)
                content, offset = content[written:], offset + written

    def finish(self, run: str, tags: Sequence[bytes]) -> None:
        """Write the tags, and make the run durable; it is read from now on as any other."""
        opened = self._being_made(run)
        wanted = [opened.shape.tags_at(column)[1] for column in range(len(opened.columns))]
        if [len(column) for column in tags] != wanted:
            raise InvalidParameter("the tags do not fit the run", hint="16 bytes for every page of every column")
        with writing(_name(run)):
            os.fsync(opened.handle)
        replace(self._path(run, TAGS), _name(run, TAGS), b"".join(tags))
        opened.finished = True

    def finished(self) -> dict[str, Shape]:
        """The runs that this process has finished since it became the writer, and their shapes."""
        return {run: opened.shape for run, opened in self._new.items() if opened.finished}

    def being_made(self) -> set[str]:
        """The runs that this process has made, or begun, since it became the writer."""
        return set(self._new)

    def stored(self) -> set[str]:
        """The runs that have a file here, whoever made them."""
        with reading("runs"):
            paths = [path for path in self.folder.iterdir() if path.suffix in (PAGES, TAGS)]
        return {path.stem for path in paths if is_name(path.stem)}

    def abandon(self, committed: Collection[str] | None) -> None:
        """Delete what was made and is not committed; nothing at all if that is not known."""
        for run in list(self._new):
            del self._new[run]
            if committed is not None and run not in committed:
                self.delete(run)

    def delete(self, run: str) -> None:
        """Delete a run's files; who has them open goes on reading."""
        self.forget(run)
        remove(self._path(run, PAGES))
        remove(self._path(run, TAGS))

    def forget(self, run: str) -> None:
        """Open a run anew the next time."""
        self._open.pop(run, None)

    def close(self) -> None:
        """Let go of every file."""
        self._open.clear()
        self._new.clear()

    def _shape(self, run: str) -> Shape:
        new = self._new.get(run)
        if new is not None:
            return new.shape
        if not is_name(run):
            raise _bad_name()
        return self._shape_of(run)

    def _reopen(self, run: str) -> _OpenRun:
        new = self._new.get(run)
        if new is not None:
            return new
        shape = self._shape(run)
        with self._opening:
            opened = self._open.get(run)
            if opened is None:
                opened = _OpenRun(self._open_whole(run, PAGES, shape.pages_bytes), shape, finished=True)
                self._open[run] = opened
                while len(self._open) > MOST_OPEN:
                    self._open.popitem(last=False)
        return opened

    def _open_whole(self, run: str, suffix: str, size_bytes: int) -> int:
        try:
            handle = open_to_read(self._path(run, suffix), _name(run, suffix))
        except Tampered:
            raise self._missing(run) from None
        if os.fstat(handle).st_size != size_bytes:
            os.close(handle)
            raise Tampered
        return handle

    def _being_made(self, run: str) -> _OpenRun:
        opened = self._new.get(run)
        if opened is None or opened.finished:
            raise InvalidParameter("no such run is being made", hint="create it first; a finished run is never changed")
        return opened

    def _path(self, run: str, suffix: str) -> Path:
        return self.folder / (run + suffix)


def _read_on(handle: int, into: memoryview, done: int, offset: int, run: str) -> None:
    with reading(_name(run)):
        while done < len(into):
            count = os.preadv(handle, (into[done:],), offset + done)
            if not count:
                raise Tampered
            done += count


def _reserve(handle: int, size_bytes: int) -> None:
    try:
        os.posix_fallocate(handle, 0, size_bytes)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        os.ftruncate(handle, size_bytes)


def _name(run: str, suffix: str = PAGES) -> str:
    return f"runs/{run}{suffix}"


def _bad_name() -> InvalidParameter:
    return InvalidParameter("this is no name of a run", hint="lower-case letters, digits and hyphens")
