"""The memory store: a database that is gone when its process ends. For tests, and to show what a store has to do.

It keeps the same promises as the file store, under the same tests (tests/store/test_store_contract.py), but has no
disk to make durable and no other process to share with.
"""

import os
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from scumble.errors import Busy, Exists, InvalidParameter, NotFound, Stale, Tampered
from scumble.store.collecting import KEPT, Due, LinkPacks, check_kept
from scumble.store.manifests import shapes_to_commit, stated_shapes
from scumble.store.protocol import Shape, check_name
from scumble.wire.links import link_of, unpack_links
from scumble.wire.storage import RunShape

__all__ = ["MemoryStore"]


class _Run:
    """Pages and, once it is finished, tags."""

    def __init__(self, shape: Shape, pages: bytearray, tags: bytes | None = None) -> None:
        self.shape, self.pages, self.tags = shape, pages, tags
        self.written = False


class MemoryStore:
    """A `Store` in memory. Without an id it is nothing yet, and a backup can be restored into it."""

    def __init__(self, database: str = "") -> None:
        self.database = check_name(database, "a database") if database else ""
        self.log = _Lines()
        self.keep_versions = KEPT
        self._manifests: list[bytes] = []  # of version 1, 2, ...; empty if it was collected
        self._packs: dict[int, bytes] = {}
        self._links = LinkPacks(self._packs)
        self._collecting = Due()
        self._runs: dict[str, _Run] = {}
        self._named: set[str] = set()  # every run that any version has named
        self._head_runs: frozenset[str] = frozenset()
        self._new: set[str] = set()
        self._scratch: dict[str, bytes] = {}
        self._turn = threading.Lock()
        self._writer = 0

    # --- reading ---------------------------------------------------------------------------------------

    def is_empty(self) -> bool:
        return not self._manifests

    def head(self) -> bytes:
        return self.manifest(len(self._manifests))

    def manifest(self, version: int) -> bytes:
        if not 1 <= version <= len(self._manifests) or not self._manifests[version - 1]:
            raise NotFound("there is no such version of the database", hint="`scumble check` shows what there is")
        return self._manifests[version - 1]

    def links(self, version: int) -> bytes:
        return self._links.holding(version)

    def stamp(self) -> str:
        return str(len(self._manifests))

    def tags(self, run: str, column: int) -> bytes:
        found = self._run(run)
        offset, length = found.shape.tags_at(column)
        return (found.tags or b"")[offset : offset + length]

    def read(self, run: str, column: int, first_page: int, pages: int, into: memoryview) -> None:
        found = self._run(run)
        at = found.shape.pages_at(column, first_page, pages, into.nbytes)
        into.cast("B")[:] = memoryview(found.pages)[at : at + into.nbytes]

    def read_scratch(self, name: str) -> bytes:
        if check_name(name, "a scratch file") not in self._scratch:
            raise Tampered
        return self._scratch[name]

    @contextmanager
    def snapshot(self) -> Iterator["_Snapshot"]:
        """The newest version. A run that is dropped stays in memory as long as this refers to it."""
        head = self.head()
        yield _Snapshot(head, {run: self._run(run) for run in stated_shapes(head)[1]})

    # --- writing ---------------------------------------------------------------------------------------

    @contextmanager
    def writer(self, busy_seconds: float = 5) -> Iterator[None]:
        if not self._turn.acquire(timeout=max(0.0, busy_seconds)):
            raise Busy("another load is writing to the database", hint="try again when it is done; queries can go on")
        self._writer = os.getpid()
        try:
            yield
        finally:
            if self._writer == os.getpid():  # and not a child that was forked meanwhile
                self._writer = 0
                for run in self._new - self._head_runs:
                    del self._runs[run]
                self._new.clear()
                self._scratch.clear()
                self._turn.release()

    def create_run(self, run: str, shape: RunShape) -> None:
        self._needs_writer()
        if check_name(run, "a run") in self._runs and (run not in self._new or self._runs[run].written):
            raise Exists("there is already a run of this name", hint="runs are never changed")
        laid_out = Shape.of(shape)
        self._runs[run] = _Run(laid_out, bytearray(laid_out.pages_bytes))
        self._new.add(run)

    def write(self, run: str, column: int, first_page: int, pages: bytes | memoryview) -> None:
        content = memoryview(pages).cast("B")
        made = self._being_made(run)
        at = made.shape.room_at(column, first_page, len(content))
        made.pages[at : at + len(content)] = content
        made.written = True

    def finish_run(self, run: str, tags: Sequence[bytes]) -> None:
        made = self._being_made(run)
        made.shape.check_tags(list(map(len, tags)))
        made.tags = b"".join(tags)

    def commit(self, version: int, manifest: bytes) -> None:
        self._needs_writer()
        finished = {run for run in self._new if self._runs[run].tags is not None}
        there = {run: self._runs[run].shape for run in self._head_runs | finished}
        shapes = shapes_to_commit(len(self._manifests), version, manifest, there)
        self._publish(manifest, shapes)
        keep = check_kept(self.keep_versions)
        if self._collecting.is_due(lambda: list(filter(None, self._manifests)), keep):
            self._collecting.done(self.collect_versions(), keep)

    def write_scratch(self, name: str, sealed: bytes | memoryview) -> None:
        self._needs_writer()
        self._scratch[check_name(name, "a scratch file")] = bytes(sealed)

    def drop_scratch(self) -> None:
        self._needs_writer()
        self._scratch.clear()

    def drop_unreferenced(self, keep: Collection[str] = ()) -> int:
        self._needs_writer()
        unwanted = self._runs.keys() - self._head_runs - self._new - set(keep)
        for run in unwanted:
            del self._runs[run]
        return len(unwanted)

    def collect_versions(self, keep: int | None = None) -> int:
        self._needs_writer()
        keep = self.keep_versions if keep is None else check_kept(keep)
        old = enumerate(self._manifests[: max(0, len(self._manifests) - keep)], 1)
        collected = self._links.add([link for version, whole in old if (link := link_of(version, whole))])
        for version in collected:
            self._manifests[version - 1] = b""
        return len(collected)

    @contextmanager
    def restoring(self) -> Iterator["_RestoringMemory"]:
        """Fill this store from a backup: all of it or nothing. Exists if it has an id already."""
        if self.database:
            raise Exists("this store holds a database already", hint="restore into a new one")
        restored = _RestoringMemory()
        yield restored
        self.database = restored.database
        self._manifests = restored.manifests[:-1]
        self._packs.update(restored.packs)
        shapes = stated_shapes(restored.manifests[-1])[1]
        for run, shape in shapes.items():
            self._runs[run] = _Run(shape, restored.pages[run], bytes(restored.tags[run]))
        self._publish(restored.manifests[-1], shapes)

    def close(self) -> None:
        """Nothing is open: the database lives as long as this object."""

    def _publish(self, manifest: bytes, runs: Iterable[str]) -> None:
        self._head_runs = frozenset(runs)
        self._named |= self._head_runs
        self._manifests.append(manifest)

    def _needs_writer(self) -> None:
        if self._writer != os.getpid():
            raise Busy("the database is not held for writing", hint="write inside `with store.writer():`")

    def _being_made(self, run: str) -> _Run:
        self._needs_writer()
        made = self._runs.get(run) if run in self._new else None
        if made is None or made.tags is not None:
            raise InvalidParameter("no such run is being made", hint="create it first; a finished run is never changed")
        return made

    def _run(self, run: str) -> _Run:
        found = self._runs.get(run)
        if found is not None:
            return found
        if run in self._named:
            raise Stale("the table was dropped or sealed anew meanwhile", hint="repeat the query")
        check_name(run, "a run")
        raise Tampered


class _Snapshot:
    def __init__(self, head: bytes, runs: dict[str, _Run]) -> None:
        self.head, self._runs = head, runs

    def pages(self, run: str) -> Iterator[bytes]:
        yield bytes(self._runs[run].pages)

    def tags(self, run: str) -> Iterator[bytes]:
        yield self._runs[run].tags or b""


class _RestoringMemory:
    def __init__(self) -> None:
        self.database = ""
        self.manifests: list[bytes] = []
        self.packs: dict[int, bytes] = {}
        self.pages: dict[str, bytearray] = {}
        self.tags: dict[str, bytearray] = {}

    def put_database(self, database: str) -> None:
        self.database = database

    def put_manifest(self, version: int, manifest: bytes) -> None:
        self.manifests.append(manifest)

    def put_links(self, first: int, links: bytes) -> None:
        self.packs[first] = links
        self.manifests += [b""] * len(unpack_links(links))

    def put_pages(self, run: str, pages: Iterable[bytes]) -> None:
        self.pages[run] = bytearray().join(pages)

    def put_tags(self, run: str, tags: Iterable[bytes]) -> None:
        self.tags[run] = bytearray().join(tags)


class _Lines:
    """A `Log` in memory."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []

    def append(self, lines: bytes) -> None:
        self._lines += lines.splitlines()

    def latest_first(self) -> Iterator[bytes]:
        return reversed(self._lines)
