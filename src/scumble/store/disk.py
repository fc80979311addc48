"""A database's files on disk: reading and replacing them, what their failures mean, the lock, and the log.

Files are named by what they are in the folder, never by their path: an error must not name the machine's folders. What
cannot be there by accident alone is Tampered; a disk or permissions that fail are FileError.
"""

import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scumble import durable
from scumble.errors import Busy, FileError, Tampered

__all__ = [
    "LogFiles",
    "is_there",
    "locked",
    "open_to_read",
    "read_whole",
    "reading",
    "replace",
    "writing",
]


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


FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.001, 0.05


@contextmanager
def locked(path: Path, busy_seconds: float, turn: threading.Lock) -> Iterator[None]:
    """Hold the lock file, and `turn` among the threads of this process; Busy after `busy_seconds` of waiting.

    The lock ends with the process that holds it, however it ends. The file itself stays empty.
    """
    deadline = time.monotonic() + busy_seconds
    if not turn.acquire(timeout=max(0.0, busy_seconds)):
        raise _busy()
    try:
        with writing("lock"):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _wait(handle, deadline)
            yield
        finally:
            os.close(handle)
    finally:
        turn.release()


def _wait(handle: int, deadline: float) -> None:
    wait = FIRST_WAIT_SECONDS
    while not _is_ours(handle):
        if time.monotonic() >= deadline:
            raise _busy()
        time.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT_SECONDS)


def _is_ours(handle: int) -> bool:
    with writing("lock"):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _busy() -> Busy:
    return Busy("another load is writing to the database", hint="try again when it is done; queries can go on")


LOG, OLDER_LOG = "transcript.log", "transcript.log.1"
ROTATE_BYTES = 16 << 20


class LogFiles:
    """A `Log` in a folder: two files, of which the older one makes room. Nothing stays open between two writes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG
        self._older = folder / OLDER_LOG

    def append(self, lines: bytes) -> None:
        with suppress(OSError):
            while lines and not self._append(lines):
                pass  # the file was renamed meanwhile: open it again

    def _append(self, lines: bytes) -> bool:
        """Append, or make room for it and return False."""
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            ours = os.fstat(handle)
            try:
                there = self._path.stat()
            except FileNotFoundError:
                return False  # another process has just renamed it
            if not os.path.samestat(ours, there):
                return False
            if ours.st_size and ours.st_size + len(lines) > ROTATE_BYTES:
                self._path.replace(self._older)
                return False
            rest = memoryview(lines)
            while rest:
                rest = rest[os.write(handle, rest) :]
            return True
        finally:
            os.close(handle)

    def latest_first(self) -> Iterator[bytes]:
        for path in (self._path, self._older):
            try:
                content = read_whole(path, path.name, 2 * ROTATE_BYTES)
            except Tampered:  # not there, or nothing that we wrote
                continue
            yield from reversed(content.splitlines())
