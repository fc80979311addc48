"""Durable files: write a file so that a crash or a power cut leaves the old one or the new one, never a part.

Content goes to a draft beside the file's place, is synced, and gets its name by a rename or a link; then the folder is
synced. Stores, key files, ledgers, backups and the command line all write this way. Failures are plain OSErrors, which
each caller words for its own users.
"""

import fcntl
import fnmatch
import glob
import os
import resource
import secrets
import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Self

__all__ = [
    "Draft",
    "allow_open_files",
    "clear_drafts",
    "create",
    "open_folder",
    "remove",
    "replace",
    "sync_folder",
    "write_all",
]


def replace(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file, in the place of the one at `path` if there is one. The umask applies to `mode`."""
    with Draft(path, mode) as draft:
        draft.write(content)
        draft.replace()


def create(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a new file; FileExistsError if anything is at `path`, which then stays as it is."""
    with Draft(path, mode) as draft:
        draft.write(content)
        draft.create()


class Draft:
    """A file beside its place, `.NAME.XXXXXXXX.new`, open for writing until it is published or given up.

    Its writer holds a lock on it, so that `clear_drafts` can tell it from one whose writer has died.
    """

    def __init__(self, path: Path, mode: int = 0o666) -> None:
        self.target = path
        self.path, self.handle = _locked_draft(path, mode)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file, and delete it if it was not published."""
        remove(self.path)
        os.close(self.handle)

    def write(self, content: bytes | memoryview) -> None:
        write_all(self.handle, content)

    def stream(self) -> BinaryIO:
        """The draft as a buffered stream. Close the stream before publishing; the draft itself stays open."""
        return os.fdopen(self.handle, "wb", closefd=False)

    def replace(self, *together: int) -> None:
        """Publish the draft, in the place of the file that is there if there is one.

        First it is made durable, `together` with other files and folders that have to be when it appears.
        """
        sync_together(self.handle, *together)
        self.path.replace(self.target)
        sync_folder(self.target.parent)

    def create(self) -> None:
        """Publish the draft where nothing is; FileExistsError if anything is there."""
        os.fsync(self.handle)
        os.link(self.path, self.target)
        self.path.unlink()  # before the sync: no crash may bring back a second name of what could be a key
        sync_folder(self.target.parent)


def clear_drafts(folder: Path, name: str | None = None) -> None:
    """Delete the drafts that processes which died have left of a file in `folder`, or of any; as far as possible."""
    pattern = f".{'*' if name is None else glob.escape(name)}.*.new*"
    with suppress(OSError):
        for draft in fnmatch.filter(os.listdir(folder), pattern):  # noqa: PTH208  for every change: Paths cost more
            _clear_draft(folder / draft)


def _clear_draft(draft: Path) -> None:
    with suppress(OSError):
        handle = os.open(draft, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            draft.unlink()
        finally:
            os.close(handle)


def remove(path: Path) -> None:
    """Delete a file if it is there and that is possible; nobody depends on its being gone."""
    with suppress(OSError):
        path.unlink()


def sync_folder(folder: Path) -> None:
    """Make durable which files a folder has."""
    handle = open_folder(folder)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_all(handle: int, content: bytes | memoryview) -> None:
    """Write to an open file, however many calls that takes."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]


def sync_together(*handles: int) -> None:
    """Make several open files and folders durable at once, which takes a disk less time than one after the other."""
    failures: list[OSError] = []

    def sync(handle: int) -> None:
        try:
            os.fsync(handle)
        except OSError as error:
            failures.append(error)

    others = [threading.Thread(target=sync, args=(handle,)) for handle in handles[1:]]
    for other in others:
        other.start()
    for handle in handles[:1]:
        sync(handle)
    for other in others:
        other.join()
    if failures:
        raise failures[0]


def open_folder(folder: Path) -> int:
    """A folder, to be synced."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def allow_open_files(wanted: int) -> None:
    """Let this process have so many files open, as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _locked_draft(path: Path, mode: int) -> tuple[Path, int]:
    while True:
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
        handle = -1
        with suppress(FileExistsError, BlockingIOError):  # a name in use, or taken for a dead process's draft
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(handle).st_nlink:
                return draft, handle
        if handle >= 0:
            os.close(handle)
