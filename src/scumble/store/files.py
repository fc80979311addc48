"""The file store: what the enclave has sealed comes in, and goes out again; the provider may see every byte of it.

    database.json      {"format": 1, "database": its id}
    HEAD               the file name of the current manifest; replaced atomically, last of all
    manifests/         <version>-<16 hex digits of the SHA-256>.manifest, one for each version
    runs/              <run>.pages: the sealed pages of column 0, then those of column 1, ...
                       <run>.tags: 16 bytes for each page, in the same order
    scratch/           for the time of a load
    lock               held by the one who writes

Nothing that is committed is ever changed, so a reader needs no lock, and a writer who dies leaves the old version
whole. What is read back is untrusted: the checks here find accidents, and keep the provider from stumbling; those that
count are the enclave's.
"""

import json
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from scumble.durable import clear_drafts, remove, sync_folder
from scumble.errors import Busy, Exists, InvalidParameter, NewerVersion, NotFound, ScumbleError, Stale, Tampered
from scumble.store.disk import is_there, locked, read_whole, reading, replace, writing
from scumble.store.manifests import ManifestFiles
from scumble.store.runs import RunFiles, Shape, is_name, stated_shapes
from scumble.wire.storage import RunShape

__all__ = ["FileStore"]

FORMAT = 1
MOST_SCRATCH_BYTES = 1 << 40


class FileStore:
    """A `Storage` in a folder. Any number of threads and processes may read; one at a time is the `writer`."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = _checked(folder)
        self.database = _database(self.folder)
        self._scratch = self.folder / "scratch"
        self._head_path = str(self.folder / "HEAD")
        self._runs = RunFiles(self.folder / "runs", self._shape_of, self._missing)
        self._manifests = ManifestFiles(self.folder, self._runs.forget)
        self._turn = threading.Lock()
        self._writer = 0

    @classmethod
    def create(cls, folder: str | os.PathLike[str], database: str) -> Self:
        """Make an empty database of this id in a folder; Exists if one is there."""
        path = _checked(folder)
        if not is_name(database):
            raise InvalidParameter("this is no id of a database", hint="it is a hexadecimal number")
        with writing("folder"):
            for part in (path, path / "manifests", path / "runs", path / "scratch"):
                part.mkdir(exist_ok=True)
            sync_folder(path)
            sync_folder(path.parent)
        with locked(path / "lock", 5, threading.Lock()):
            if is_there(path / "database.json", "database.json"):
                raise Exists("there is already a database in this folder", hint="open it, or name another folder")
            content = json.dumps({"format": FORMAT, "database": database}) + "\n"
            replace(path / "database.json", "database.json", content.encode())
        return cls(path)

    def close(self) -> None:
        """Let go of every file."""
        self._runs.close()

    def is_empty(self) -> bool:
        """Whether nothing has ever been committed."""
        return self._manifests.version() == 0

    def head(self) -> bytes:
        """The current manifest; NotFound if nothing has been committed yet."""
        return self._manifests.head()

    def stamp(self) -> tuple[int, int]:
        """Something that changes with every commit: HEAD is a new file each time."""
        try:
            found = os.stat(self._head_path)  # noqa: PTH116  for every query: a Path costs more than the call
        except OSError:
            return 0, 0  # whoever reads the head finds out why
        return found.st_ino, found.st_mtime_ns

    def manifest(self, version: int) -> bytes:
        """The manifest of an earlier version; NotFound if there is none."""
        return self._manifests.manifest(version)

    def tags(self, run: str, column: int) -> bytes:
        """The tags of a column's pages."""
        return self._runs.tags(run, column)

    def read(self, run: str, column: int, first_page: int, pages: int, into: memoryview) -> None:
        """Fill `into` with sealed pages; Tampered if they are not there, Stale if the run has been dropped since."""
        self._runs.read(run, column, first_page, pages, into)

    def read_scratch(self, name: str) -> bytes:
        """What `write_scratch` has kept under a name."""
        return read_whole(self._scratch / _scratch_name(name), "scratch", MOST_SCRATCH_BYTES)

    @contextmanager
    def writer(self, busy_seconds: float = 5) -> Iterator[None]:
        """Be the one who writes, after whatever a dead one has left is cleared; Busy if another does not finish."""
        with locked(self.folder / "lock", busy_seconds, self._turn):
            self._clear_leftovers()
            self._writer = os.getpid()
            try:
                yield
            finally:
                if self._writer == os.getpid():  # and not a child that was forked meanwhile
                    self._writer = 0
                    self._clear_unfinished()

    def create_run(self, run: str, shape: RunShape) -> None:
        """Make room for a new run."""
        self._needs_writer()
        self._runs.create(run, shape)

    def write(self, run: str, column: int, first_page: int, pages: bytes | memoryview) -> None:
        """Write sealed pages of a new run."""
        self._needs_writer()
        self._runs.write(run, column, first_page, pages)

    def finish_run(self, run: str, tags: Sequence[bytes]) -> None:
        """Write the tags of every column, and make the run durable."""
        self._needs_writer()
        self._runs.finish(run, tags)

    def commit(self, version: int, manifest: bytes) -> None:
        """Make `manifest` the head, atomically and durably. The first version is 1."""
        self._needs_writer()
        if version != self._manifests.version() + 1:
            raise Busy("the database has been changed meanwhile", hint="open it again and repeat what you did")
        stated, shapes = stated_shapes(manifest)
        if stated != version:
            raise InvalidParameter("the manifest states another version", hint="commit the version that it states")
        there = self._manifests.head_shapes() | self._runs.finished()
        if any(there.get(run) != shape for run, shape in shapes.items()):
            raise InvalidParameter(
                "the manifest names a run that was not made, or not in this shape", hint="finish every run first"
            )
        self._manifests.publish(version, manifest)

    def write_scratch(self, name: str, sealed: bytes | memoryview) -> None:
        """Keep something for the time of a load."""
        self._needs_writer()
        path = self._scratch / _scratch_name(name)
        with writing("scratch"):
            path.write_bytes(sealed)

    def drop_scratch(self) -> None:
        """Forget all of it."""
        self._needs_writer()
        self._clear_scratch()

    def drop_unreferenced(self, keep: Collection[str] = ()) -> int:
        """Delete the runs that neither the head nor `keep` names, and say how many; who still reads them gets Stale."""
        self._needs_writer()
        unwanted = self._runs.stored() - self._manifests.head_shapes().keys() - self._runs.being_made() - set(keep)
        for run in unwanted:
            self._runs.delete(run)
        return len(unwanted)

    def _needs_writer(self) -> None:
        if self._writer != os.getpid():
            raise Busy("the database is not held for writing", hint="write inside `with store.writer():`")

    def _shape_of(self, run: str) -> Shape:
        return self._manifests.shape_of(run)

    def _missing(self, run: str) -> ScumbleError:
        if run in self._manifests.head_shapes():
            return Tampered()
        return Stale("the table was dropped or sealed anew meanwhile", hint="repeat the query")

    def _clear_leftovers(self) -> None:
        """Delete what a writer who died had not committed. Nothing that any version names is touched."""
        version = self._manifests.version()
        if max(self._manifests.listed(), default=0) > version + 1:  # no crash leaves that: the head was put back
            raise Tampered
        orphans = self._runs.stored() - self._manifests.head_shapes().keys()
        for run in orphans - self._manifests.named_earlier(orphans):
            self._runs.delete(run)
        self._manifests.withdraw(version + 1)
        with reading("folder"):
            for folder in (self.folder, self._manifests.folder, self._runs.folder):
                clear_drafts(folder)
                for path in folder.glob("*.tmp"):  # the drafts of release 0.1
                    remove(path)
        self._clear_scratch()

    def _clear_unfinished(self) -> None:
        """Delete what this writer has made and not committed."""
        try:
            # A commit that failed may have failed after the head was there: what it names stays.
            self._runs.abandon(self._manifests.head_shapes())
        except ScumbleError:
            self._runs.abandon(None)
        with suppress(ScumbleError):
            self._clear_scratch()

    def _clear_scratch(self) -> None:
        with reading("scratch"):
            for path in self._scratch.iterdir():
                remove(path)


def _scratch_name(name: str) -> str:
    if not is_name(name):
        raise InvalidParameter("this is no name of a scratch file", hint="lower-case letters, digits and hyphens")
    return name


def _checked(folder: str | os.PathLike[str]) -> Path:
    path = Path(folder)
    if "\0" in str(path):
        raise InvalidParameter("this is no name of a folder", hint="name one without a zero byte")
    return path


def _database(folder: Path) -> str:
    if not is_there(folder / "database.json", "database.json"):
        raise NotFound("there is no database in this folder", hint="make one with `scumble init`")
    try:
        fields = json.loads(read_whole(folder / "database.json", "database.json", 1000).decode())
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
