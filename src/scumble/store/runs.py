"""Run files: sealed pages and their tags, written once and read as often as anybody asks.

Everything here is ciphertext, or public. `RunFiles.read` is where a query spends its time: descriptors stay open,
offsets are known, and nothing is locked. A descriptor is closed when its last user is done with it, so a thread that
reads never finds another run's file under the same number.

Files are named by what they are in the folder, never by their path: an error must not name the machine's folders. What
cannot be there by accident alone is Tampered; a disk or permissions that fail are FileError.
"""

import errno
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from scumble import durable
from scumble.durable import remove
from scumble.errors import Exists, FileError, InvalidParameter, ScumbleError, Tampered
from scumble.store.protocol import Shape, check_name, is_name
from scumble.wire.storage import RunShape

__all__ = [
    "PAGES",
    "TAGS",
    "HeldRuns",
    "RunFiles",
    "is_there",
    "open_to_read",
    "read_whole",
    "reading",
    "replace",
    "writing",
]

PAGES, TAGS = ".pages", ".tags"
CHUNK_BYTES = 1 << 20
MOST_OPEN = 64
SPARE_FILES = 200  # for all else that this process may have open


class _OpenRun:
    """A run's pages file, and if it is new its tags file, closed when nothing refers to it any more.

    Eviction alone does not close it.
    """

    __slots__ = ("finished", "handle", "shape", "tags", "written")

    def __init__(self, handle: int, shape: Shape, *, finished: bool) -> None:
        self.handle = handle
        self.tags = -1
        self.shape = shape
        self.finished = self.written = finished

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        for handle in (self.handle, self.tags):
            with suppress(OSError):
                close(handle)


class RunFiles:
    """The runs in a folder. `look_for` has manifests read until the run's shape is learned from one of them.

    `missing` makes the error for a run without a file.
    """

    def __init__(self, folder: Path, look_for: Callable[[str], None], missing: Callable[[str], ScumbleError]) -> None:
        self.folder = folder
        self._look_for = look_for
        self._missing = missing
        self._shapes: dict[str, Shape] = {}
        self._learning = threading.Lock()
        self._open: OrderedDict[str, _OpenRun] = OrderedDict()
        self._opening = threading.Lock()
        self._new: dict[str, _OpenRun] = {}
        self._unsynced: set[str] = set()

    def read(self, run: str, column: int, first_page: int, pages: int, into: memoryview) -> None:
        opened = self._open.get(run)
        if opened is None:
            opened = self._reopen(run)
        else:
            try:  # noqa: SIM105 (suppress() would take as long as the read)
                self._open.move_to_end(run)
            except KeyError:  # evicted this moment: it stays open as long as we hold it
                pass
        offset = opened.shape.pages_at(column, first_page, pages, into.nbytes)
        try:
            done = os.preadv(opened.handle, (into,), offset)
        except OSError:
            done = 0  # once more, to raise our own error
        if done != into.nbytes:
            _read_on(opened.handle, into.cast("B"), done, offset, run)

    def tags(self, run: str, column: int) -> bytes:
        shape = self._shape(run)
        offset, length = shape.tags_at(column)
        handle = self._open_whole(run, TAGS, shape.tags_bytes)
        try:
            tags = bytearray(length)
            _read_on(handle, memoryview(tags), 0, offset, run)
        finally:
            os.close(handle)
        return bytes(tags)

    def create(self, run: str, shape: RunShape) -> None:
        """Reserve a run's place on the disk, so that a full disk is noticed now; or another, if nothing is there."""
        check_name(run, "a run")
        laid_out = Shape.of(shape)
        with writing(_name(run)):
            if run not in self._new or self._new[run].written:
                try:
                    handle = os.open(self._path(run, PAGES), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                except FileExistsError:
                    raise Exists("there is already a run of this name", hint="runs are never changed") from None
                self._new[run] = _OpenRun(handle, laid_out, finished=False)
            self._new[run].shape = laid_out
            os.ftruncate(self._new[run].handle, laid_out.pages_bytes)
            if laid_out.pages_bytes:
                _reserve(self._new[run].handle, laid_out.pages_bytes)

    def write(self, run: str, column: int, first_page: int, pages: bytes | memoryview) -> None:
        opened = self._being_made(run)
        content = memoryview(pages).cast("B")
        offset = opened.shape.room_at(column, first_page, len(content))
        opened.written = True
        with writing(_name(run)):
            while content:
                written = os.pwrite(opened.handle, content, offset)
                content, offset = content[written:], offset + written

    def finish(self, run: str, tags: Sequence[bytes]) -> None:
        opened = self._being_made(run)
        opened.shape.check_tags(list(map(len, tags)))
        with writing(_name(run, TAGS)):
            if opened.tags < 0:
                opened.tags = os.open(self._path(run, TAGS), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            os.ftruncate(opened.tags, 0)
            os.lseek(opened.tags, 0, os.SEEK_SET)
            durable.write_all(opened.tags, b"".join(tags))
        opened.finished = True
        self._unsynced.add(run)

    @contextmanager
    def syncing(self) -> Iterator[list[int]]:
        """What has to be synced before a version may name the finished runs: their files, and the folder."""
        folder = durable.open_folder(self.folder)
        new = [self._new[run] for run in self._unsynced & self._new.keys()]
        try:
            yield [folder, *(handle for opened in new for handle in (opened.handle, opened.tags))] if new else []
        except FileError:
            for run in self._unsynced & self._new.keys():
                self._new[run].finished = False  # a second sync may not report what the first one lost
            raise
        finally:
            os.close(folder)
            self._unsynced.clear()

    def learn(self, shapes: Mapping[str, Shape], *, newest: bool) -> None:
        """Note the shapes that a manifest states. If two disagree, the newest one's counts."""
        with self._learning:
            if newest:
                for run, shape in shapes.items():
                    if self._shapes.get(run, shape) != shape:
                        self.forget(run)
                self._shapes.update(shapes)
            else:
                for run, shape in shapes.items():
                    self._shapes.setdefault(run, shape)

    def finished(self) -> dict[str, Shape]:
        """The runs that this process has finished since it became the writer, and their shapes."""
        return {run: opened.shape for run, opened in self._new.items() if opened.finished}

    def being_made(self) -> set[str]:
        """The runs that this process has made, or begun, since it became the writer."""
        return set(self._new)

    def stored(self) -> set[str]:
        """The runs that have a file here, no matter who made them."""
        with reading("runs"):
            parts = [name.rpartition(".") for name in os.listdir(self.folder)]  # noqa: PTH208  for every change
        return {stem for stem, dot, suffix in parts if dot + suffix in (PAGES, TAGS) and is_name(stem)}

    def abandon(self, committed: Collection[str] | None) -> None:
        """Delete the new runs that were not committed; none of them if `committed` is unknown."""
        self._unsynced.clear()
        for run in list(self._new):
            del self._new[run]
            if committed is not None and run not in committed:
                self.delete(run)

    def delete(self, run: str) -> None:
        """Delete a run's files. Anyone who has them open can go on reading."""
        self.forget(run)
        remove(self._path(run, PAGES))
        remove(self._path(run, TAGS))

    def forget(self, run: str) -> None:
        """Open the run's file again before the next read."""
        self._open.pop(run, None)

    def close(self) -> None:
        """Close every file, as soon as nobody reads it."""
        self._open.clear()
        self._new.clear()

    def _shape(self, run: str) -> Shape:
        new = self._new.get(run)
        if new is not None:
            return new.shape
        if check_name(run, "a run") not in self._shapes:
            self._look_for(run)
        if run not in self._shapes:
            raise Tampered
        return self._shapes[run]

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


class HeldRuns:
    """A `Snapshot`: the runs of one version, all of them open, so that deleting their files does no harm."""

    def __init__(self, folder: Path, head: bytes, shapes: Mapping[str, Shape], held: ExitStack) -> None:
        self.head = head
        durable.allow_open_files(2 * len(shapes) + SPARE_FILES)
        self._files = {
            name: (_open_held(folder / name, size_bytes, held), size_bytes)
            for run, shape in shapes.items()
            for name, size_bytes in ((run + PAGES, shape.pages_bytes), (run + TAGS, shape.tags_bytes))
        }

    def pages(self, run: str) -> Iterator[bytes]:
        return self._pieces(run + PAGES)

    def tags(self, run: str) -> Iterator[bytes]:
        return self._pieces(run + TAGS)

    def _pieces(self, name: str) -> Iterator[bytes]:
        (handle, size_bytes), at = self._files[name], 0
        while at < size_bytes:
            with reading(f"runs/{name}"):
                piece = os.pread(handle, min(CHUNK_BYTES, size_bytes - at), at)
            if not piece:
                raise Tampered
            at += len(piece)
            yield piece


def _open_held(path: Path, size_bytes: int, held: ExitStack) -> int:
    handle = open_to_read(path, f"runs/{path.name}")
    held.callback(os.close, handle)
    if os.fstat(handle).st_size != size_bytes:
        raise Tampered
    return handle


# --- a database's files, and what their failures mean -----------------------------------------------

_WRONG_KIND = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV}
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in the place of a file must not make us wait


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn an OSError while the file `name` is read into Tampered or FileError."""
    try:
        yield
    except OSError as error:
        if error.errno in _WRONG_KIND:
            raise Tampered from error
        raise FileError(
            f"the database's {name} cannot be read: {error.strerror}", hint="check its permissions and the disk"
        ) from error


@contextmanager
def writing(name: str) -> Iterator[None]:
    """Turn an OSError while `name` is written into FileError."""
    try:
        yield
    except OSError as error:
        raise FileError(
            f"the database's {name} cannot be written: {error.strerror}",
            hint="make room or check the permissions, then try again; nothing is lost: the last version is whole",
        ) from error


def is_there(path: Path, name: str) -> bool:
    """Whether anything is at `path`."""
    with reading(name):
        return path.exists()


def open_to_read(path: Path, name: str) -> int:
    """A descriptor of a regular file; Tampered if there is none."""
    with reading(name):
        handle = os.open(path, _READ)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return handle
    os.close(handle)
    raise Tampered


def read_whole(path: Path, name: str, most_bytes: int) -> bytes:
    """All of a file; Tampered if there is none, or more of it than there can be."""
    handle = open_to_read(path, name)
    try:
        with reading(name), os.fdopen(handle, "rb", closefd=False) as file:
            size_bytes = os.fstat(handle).st_size
            if size_bytes > most_bytes:
                raise Tampered
            return file.read(size_bytes)
    finally:
        os.close(handle)


def replace(path: Path, name: str, content: bytes) -> None:
    """Put `content` in the place of the file `name`, durably, and all of it or nothing."""
    with writing(name):
        durable.replace(path, content)
