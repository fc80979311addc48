"""The transcript's files: lines come in, and go out again, the last one first. The provider's own, and nothing secret.

Several processes may append at once. A log that has reached its size is renamed, and replaces the one before it. What
cannot be written, since the folder is read-only or the disk is full, is left out: a query does not fail for it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from scumble.errors import Tampered
from scumble.provider.files import read_whole

__all__ = ["TranscriptLog", "read_lines"]

NAME, OLDER = "transcript.log", "transcript.log.1"
ROTATE_BYTES = 16 << 20


class TranscriptLog:
    """The log in a folder. Nothing stays open between two writes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._older = folder / OLDER

    def append(self, lines: bytes) -> None:
        """Append lines, if that is possible."""
        with suppress(OSError):
            while lines and not self._append(lines):
                pass  # the file that was opened is now the older one: once more

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


def read_lines(folder: Path) -> Iterator[bytes]:
    """The lines of both files, the last one first."""
    for name in (NAME, OLDER):
        try:
            content = read_whole(folder / name, name, 2 * ROTATE_BYTES)
        except Tampered:  # not there, or nothing that we wrote
            continue
        yield from reversed(content.splitlines())
