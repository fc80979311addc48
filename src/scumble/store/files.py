"""The file store: a database in a folder, in the format that docs/format.md describes.

    database.json      {"format": 1, "database": its id}
    HEAD               the file name of the current manifest; replaced atomically, last of all
    manifests/         <version>-<16 hex digits of the SHA-256>.manifest, one for each of the newest versions
                       <version>.links: the signatures of older ones, from this version on
    runs/              <run>.pages: the sealed pages of column 0, then those of column 1, ...
                       <run>.tags: 16 bytes for each page, in the same order
    scratch/           sealed intermediate results of a load
    lock               held by the writer
    transcript.log     what the provider saw

Nothing that is committed is ever changed, so a reader needs no lock, and a writer that dies leaves the old version
whole. The checks here find accidents, and keep the provider from stumbling; those that count are the enclave's.
"""

import errno
import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

from scumble.durable import clear_drafts, remove, sync_folder
from scumble.errors import Busy, Exists, FileError, InvalidParameter, NotFound, ScumbleError, Stale, Tampered
from scumble.store.collecting import KEPT, Due, check_kept
from scumble.store.manifest_files import ATTEMPTS, ManifestFiles
from scumble.store.manifests import (
    MOST_DATABASE_BYTES,
    database_file,
    database_of,
    links_name,
    manifest_name,
    shapes_to_commit,
    stated_shapes,
)
from scumble.store.protocol import Location, check_name
from scumble.store.runs import PAGES, TAGS, HeldRuns, RunFiles, is_there, read_whole, reading, replace, writing
from scumble.store.transcript import LogFiles
from scumble.wire.storage import RunShape

__all__ = ["FileStore"]

MOST_SCRATCH_BYTES = 1 << 40
_ALREADY_THERE = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}


class FileStore:
    """A `Store` in a folder. Any number of threads and processes may read; one at a time is the `writer`."""

    def __init__(self, folder: Location, *, keep_versions: int = KEPT) -> None:
        self.folder = _checked(folder)
        self.keep_versions = check_kept(keep_versions)
        if not self.exists(self.folder):
            raise NotFound("there is no database in this folder", hint="make one with `scumble init`")
        self.database = database_of(read_whole(self.folder / "database.json", "database.json", MOST_DATABASE_BYTES))
        self.log = LogFiles(self.folder)
        self._scratch = self.folder / "scratch"
        self._head_path = str(self.folder / "HEAD")
        self._runs = RunFiles(self.folder / "runs", self._look_for, self._missing)
        self._manifests = ManifestFiles(self.folder, self._runs)
        self._collecting = Due()
        self._turn = threading.Lock()
        self._writer = 0

    @staticmethod
    def exists(folder: Location) -> bool:
        return is_there(_checked(folder) / "database.json", "database.json")

    @classmethod
    def create(cls, folder: Location, database: str) -> Self:
        path = _checked(folder)
        check_name(database, "a database")
        with writing("folder"):
            path.mkdir(exist_ok=True)
            _make_folders(path)
            sync_folder(path)
            sync_folder(path.parent)
        with locked(path / "lock", 5, threading.Lock()):
            if cls.exists(path):
                raise Exists("there is already a database in this folder", hint="open it, or name another folder")
            replace(path / "database.json", "database.json", database_file(database))
        return cls(path)

    @staticmethod
    @contextmanager
    def restoring(folder: Location) -> Iterator["_RestoringFiles"]:
        path = _checked(folder)
        if os.path.lexists(path):
            raise Exists(f"{path} exists already", hint="name a folder that is not there: a restore never replaces one")
        outer = None
        try:
            outer = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".restoring", dir=path.parent))
            draft = outer / "database"
            draft.mkdir()
            _make_folders(draft)
            restored = _RestoringFiles(draft)
            yield restored
            restored.finish()
            try:
                draft.rename(path)
            except OSError as error:
                if error.errno not in _ALREADY_THERE:
                    raise
                raise Exists(f"{path} has been made meanwhile", hint="name another folder") from error
            sync_folder(path.parent)
        except OSError as error:
            raise FileError(
                f"{path} cannot be written: {error.strerror}", hint="check the disk and the permissions"
            ) from error
        finally:
            if outer is not None:
                shutil.rmtree(outer, ignore_errors=True)

    def close(self) -> None:
        self._runs.close()

    def is_empty(self) -> bool:
        return self._manifests.version() == 0

    def head(self) -> bytes:
        return self._manifests.head()

    def stamp(self) -> str:
        """A text that changes with every commit: HEAD is a new file each time."""
        try:
            found = os.stat(self._head_path)  # noqa: PTH116  for every query: a Path costs more than the call
        except OSError:
            return "0-0"  # reading the head will say why
        return f"{found.st_ino}-{found.st_mtime_ns}"

    def manifest(self, version: int) -> bytes:
        return self._manifests.manifest(version)

    def links(self, version: int) -> bytes:
        return self._manifests.links(version)

    def tags(self, run: str, column: int) -> bytes:
        return self._runs.tags(run, column)

    def read(self, run: str, column: int, first_page: int, pages: int, into: memoryview) -> None:
        self._runs.read(run, column, first_page, pages, into)

    def read_scratch(self, name: str) -> bytes:
        return read_whole(self._scratch / check_name(name, "a scratch file"), "scratch", MOST_SCRATCH_BYTES)

    @contextmanager
    def writer(self, busy_seconds: float = 5) -> Iterator[None]:
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
        self._needs_writer()
        self._runs.create(run, shape)

    def write(self, run: str, column: int, first_page: int, pages: bytes | memoryview) -> None:
        self._needs_writer()
        self._runs.write(run, column, first_page, pages)

    def finish_run(self, run: str, tags: Sequence[bytes]) -> None:
        self._needs_writer()
        self._runs.finish(run, tags)

    def commit(self, version: int, manifest: bytes) -> None:
        self._needs_writer()
        there = {**self._manifests.head_shapes(), **self._runs.finished()}
        shapes = shapes_to_commit(self._manifests.version(), version, manifest, there)
        with self._runs.syncing() as handles:
            self._manifests.publish(version, manifest, shapes, handles)
        with suppress(ScumbleError):  # the version is there, and whatever this leaves, a later commit finds
            self._collect_if_due()

    def write_scratch(self, name: str, sealed: bytes | memoryview) -> None:
        self._needs_writer()
        path = self._scratch / check_name(name, "a scratch file")
        with writing("scratch"):
            path.write_bytes(sealed)

    def drop_scratch(self) -> None:
        self._needs_writer()
        self._clear_scratch()

    def drop_unreferenced(self, keep: Collection[str] = ()) -> int:
        self._needs_writer()
        unwanted = self._runs.stored() - self._manifests.head_shapes().keys() - self._runs.being_made() - set(keep)
        for run in unwanted:
            self._runs.delete(run)
        return len(unwanted)

    def collect_versions(self, keep: int | None = None) -> int:
        self._needs_writer()
        keep, collected = self.keep_versions if keep is None else check_kept(keep), 0
        while found := self._manifests.collect(keep):
            collected += found
        self._manifests.sync()
        return collected

    @contextmanager
    def snapshot(self) -> Iterator[HeldRuns]:
        """Hold the newest version: open its runs, once more if the head has moved on before all were open."""
        head = self.head()
        for _ in range(ATTEMPTS):
            with ExitStack() as held:
                try:
                    runs = HeldRuns(self._runs.folder, head, stated_shapes(head)[1], held)
                except Tampered:
                    before, head = head, self.head()
                    if head == before:
                        raise
                    continue
                yield runs
                return
        raise FileError("the database changes faster than its files can be opened", hint="try again")

    def _collect_if_due(self) -> None:
        keep = check_kept(self.keep_versions)
        if self._collecting.is_due(self._manifests.listed, keep):
            self._collecting.done(self._manifests.collect(keep), keep)

    def _needs_writer(self) -> None:
        if self._writer != os.getpid():
            raise Busy("the database is not held for writing", hint="write inside `with store.writer():`")

    def _look_for(self, run: str) -> None:
        self._manifests.look_for(run)

    def _missing(self, run: str) -> ScumbleError:
        if run in self._manifests.head_shapes():
            return Tampered()
        return Stale("the table was dropped or sealed anew meanwhile", hint="repeat the query")

    def _clear_leftovers(self) -> None:
        """Delete what a writer that died had not committed. Nothing that a version which is whole names is touched."""
        version = self._manifests.version()
        newest = max(self._manifests.listed(), default=0)
        if newest > version + 1 or self._manifests.last_collected() >= max(version, 1):
            raise Tampered  # no crash leaves that: the head was put back
        orphans = self._runs.stored() - self._manifests.head_shapes().keys()
        for run in orphans - self._manifests.named_earlier(orphans):
            self._runs.delete(run)
        self._manifests.withdraw(version + 1)
        with reading("folder"):
            for folder in (self.folder, self._manifests.folder, self._runs.folder):
                clear_drafts(folder)
                for name in os.listdir(folder):  # noqa: PTH208  for every change: Paths cost more than the call
                    if name.endswith(".tmp"):  # a draft of release 0.1
                        remove(folder / name)
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
        with writing("scratch"), suppress(FileExistsError):
            self._scratch.mkdir()  # empty folders get lost in copies: git and buckets do not keep them
        with reading("scratch"):
            for name in os.listdir(self._scratch):  # noqa: PTH208  for every change: Paths cost more than the call
                remove(self._scratch / name)


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


class _RestoringFiles:
    """A `Restoring` in a draft of a folder. `FileStore.restoring` words its OSErrors."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._head = ""

    def put_database(self, database: str) -> None:
        self._put("database.json", [database_file(database)])

    def put_manifest(self, version: int, manifest: bytes) -> None:
        self._head = manifest_name(version, manifest)
        self._put(f"manifests/{self._head}", [manifest])

    def put_links(self, first: int, links: bytes) -> None:
        self._put(f"manifests/{links_name(first)}", [links])

    def put_pages(self, run: str, pages: Iterable[bytes]) -> None:
        self._put(f"runs/{run}{PAGES}", pages)

    def put_tags(self, run: str, tags: Iterable[bytes]) -> None:
        self._put(f"runs/{run}{TAGS}", tags)

    def finish(self) -> None:
        self._put("HEAD", [f"{self._head}\n".encode()])
        for part in (self._folder / "manifests", self._folder / "runs", self._folder):
            sync_folder(part)

    def _put(self, name: str, pieces: Iterable[bytes]) -> None:
        with (self._folder / name).open("xb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())


def _make_folders(database: Path) -> None:
    for part in ("manifests", "runs", "scratch"):
        (database / part).mkdir(exist_ok=True)


def _checked(folder: Location) -> Path:
    path = Path(folder)
    if "\0" in str(path):
        raise InvalidParameter("this is no name of a folder", hint="name one without a zero byte")
    return path
