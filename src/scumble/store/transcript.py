"""The transcript: everything that the provider sees, in the order in which it happened.

`RecordingStore` notes what the enclave asks of storage, `provider/front.py` what owners ask of the enclave. An event is
a number, a kind, and public facts: names of runs, page numbers, sizes. No byte of a request, an answer or a page is
ever in it. Time is kept apart, so that two transcripts can be compared without it. The latest events are in memory; all
of them go to the store's log, one JSON object to a line, if it can be written to.
"""

import fcntl
import itertools
import json
import os
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from scumble.errors import Tampered
from scumble.store.protocol import Log
from scumble.store.runs import read_whole
from scumble.wire.storage import RunShape, Storage

__all__ = ["Event", "Exchange", "LogFiles", "RecordingStore", "Transcript", "comparable", "exchanges", "size_bytes"]

FACTS = {
    "greet": ("bytes",),
    "session": ("session", "bytes"),
    "request": ("session", "bytes"),
    "answer": ("session", "bytes"),
    "failure": ("session",),
    "leave": ("session",),
    "head": ("bytes",),
    "manifest": ("version", "bytes"),
    "links": ("version", "bytes"),
    "tags": ("run", "column", "bytes"),
    "read": ("run", "column", "first_page", "pages", "bytes"),
    "create_run": ("run", "columns", "bytes"),
    "write": ("run", "column", "first_page", "bytes"),
    "finish_run": ("run", "bytes"),
    "commit": ("version", "bytes"),
    "write_scratch": ("scratch", "bytes"),
    "read_scratch": ("scratch", "bytes"),
    "drop_scratch": (),
}
"""For every kind of event, its facts. Greet and request open an exchange; session, answer and failure close it."""

MOST_IN_MEMORY = 1 << 16
EVENTS_TO_A_WRITE = 400  # of at most 160 bytes each: some 64 KiB

_TEXT = {"run", "scratch"}
_LINES = {
    kind: '{"number":%d,"time_ns":%d,"opening":"%s","exchange":%d,"kind":"'
    + kind
    + '"'
    + "".join(f',"{name}":"%s"' if name in _TEXT else f',"{name}":%d' for name in names)
    + "}\n"
    for kind, names in FACTS.items()
}

Fact = int | str
_Record = tuple[int, int, int, str, tuple[Fact, ...]]  # number, time, exchange, kind, facts


@dataclass(frozen=True, slots=True)
class Event:
    """PUBLIC: one thing that the provider saw. `exchange` is the number of the greeting or request it was part of."""

    number: int
    kind: str
    exchange: int
    facts: tuple[tuple[str, Fact], ...]
    time_ns: int = field(compare=False)
    opening: str = field(compare=False)

    def public(self) -> tuple[int, str, int, tuple[tuple[str, Fact], ...]]:
        """All but the time, and the random name that tells one opening of the database from another."""
        return self.number, self.kind, self.exchange, self.facts

    def __getitem__(self, name: str) -> Fact:
        return dict(self.facts)[name]

    def to_json(self) -> dict[str, Any]:
        start = {"number": self.number, "time_ns": self.time_ns, "opening": self.opening, "exchange": self.exchange}
        return {**start, "kind": self.kind, **dict(self.facts)}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        kind = fields["kind"]
        facts = tuple((name, fields[name]) for name in FACTS[kind])
        event = cls(fields["number"], kind, fields["exchange"], facts, fields["time_ns"], fields["opening"])
        numbers = [event.number, event.exchange, event.time_ns, *(v for name, v in facts if name not in _TEXT)]
        texts = [event.opening, *(v for name, v in facts if name in _TEXT)]
        if not all(type(n) is int for n in numbers) or not all(type(t) is str for t in texts):
            raise ValueError("no event")
        return event


@dataclass(frozen=True, slots=True)
class Exchange:
    """PUBLIC: a greeting or a request, its answer (None if it was refused or is not there yet), and all in between."""

    opened: Event
    inside: tuple[Event, ...]
    closed: Event | None


class _Exchanging(threading.local):
    number = 0


class Transcript:
    """What the provider has seen since it opened a database. Without a `log`, only the latest events are kept."""

    def __init__(self, log: Log | None = None) -> None:
        self._opening = secrets.token_hex(4)
        self._next = itertools.count(1).__next__
        self._latest: deque[_Record] = deque(maxlen=MOST_IN_MEMORY)
        self._unwritten: deque[_Record] = deque()
        self._exchanging = _Exchanging()
        self._write: partial[None] | None = None
        if log is not None:
            self._write = partial(_write, log, self._unwritten, self._opening, os.getpid())
            weakref.finalize(self, self._write)

    def record(self, kind: str, *facts: Fact) -> int:
        """Note an event, as part of this thread's exchange if there is one; its number."""
        number = self._next()
        record = (number, time.time_ns(), self._exchanging.number, kind, facts)
        self._latest.append(record)
        if self._write is not None:
            self._unwritten.append(record)
            if len(self._unwritten) >= EVENTS_TO_A_WRITE:
                self._write()
        return number

    def open_exchange(self, kind: str, *facts: Fact) -> None:
        """A greeting or request arrived: what this thread does next belongs to it."""
        self._exchanging.number = 0
        self._exchanging.number = self.record(kind, *facts)

    def close_exchange(self, kind: str, *facts: Fact) -> None:
        """The answer was sent: what this thread does next belongs to no exchange."""
        self.record(kind, *facts)
        self._exchanging.number = 0

    def events(self) -> Iterator[Event]:
        """The latest events, oldest first."""
        for record in sorted(self._latest.copy()):
            yield self._event(record)

    def exchanges(self) -> Iterator[Exchange]:
        """The latest greetings and requests, with what happened inside each."""
        return exchanges(self.events())

    def flush(self) -> None:
        if self._write is not None:
            self._write()

    close = flush

    @staticmethod
    def read(log: Log, last: int | None = None) -> list[Event]:
        """The last events of a log, from any process; lines that hold none are passed over."""
        events: list[Event] = []
        for line in log.latest_first():
            if last is not None and len(events) >= last:
                break
            try:
                events.append(Event.from_json(json.loads(line)))
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
        return events[::-1]

    def _event(self, record: _Record) -> Event:
        number, time_ns, exchange, kind, facts = record
        return Event(number, kind, exchange, tuple(zip(FACTS[kind], facts, strict=True)), time_ns, self._opening)


def exchanges(events: Iterable[Event]) -> Iterator[Exchange]:
    """Gather events, of any number of openings, into greetings and requests, in the order in which these came."""
    opened: dict[tuple[str, int], tuple[Event, list[Event]]] = {}
    for event in events:
        if event.kind in ("greet", "request"):
            opened[event.opening, event.number] = (event, [])
        elif (event.opening, event.exchange) in opened:
            opened[event.opening, event.exchange][1].append(event)
    for first, inside in opened.values():
        closed = inside[-1] if inside and inside[-1].kind in ("session", "answer", "failure") else None
        yield Exchange(first, tuple(inside[:-1] if closed else inside), closed)


def comparable(events: Iterable[Event]) -> list[tuple[int, str, int, tuple[tuple[str, Fact], ...]]]:
    """Events without time, and with the random names of runs replaced by the order in which they first occur."""
    places: dict[Fact, int] = {}
    return [
        (
            event.number,
            event.kind,
            event.exchange,
            tuple((name, places.setdefault(v, len(places)) if name == "run" else v) for name, v in event.facts),
        )
        for event in events
    ]


def _write(log: Log, unwritten: deque[_Record], opening: str, process: int) -> None:
    if os.getpid() != process:  # a forked child: its parent writes them
        unwritten.clear()
        return
    records = []
    try:
        while True:
            records.append(unwritten.popleft())
    except IndexError:
        pass
    records.sort()
    log.append("".join([_line(opening, record) for record in records]).encode())


def _line(opening: str, record: _Record) -> str:
    """`json.dumps` of the event, three times as fast."""
    number, time_ns, exchange, kind, facts = record
    if facts and isinstance(facts[0], str) and not (facts[0].isascii() and facts[0].isalnum()):
        facts = (json.dumps(facts[0])[1:-1], *facts[1:])
    return _LINES[kind] % (number, time_ns, opening, exchange, *facts)


class RecordingStore:
    """A `Storage` that records every call before it is made, or after it where the answer's size is part of it."""

    def __init__(self, store: Storage, transcript: Transcript) -> None:
        self._store = store
        self._record = transcript.record

    def head(self) -> bytes:
        manifest = self._store.head()
        self._record("head", len(manifest))
        return manifest

    def manifest(self, version: int) -> bytes:
        manifest = self._store.manifest(version)
        self._record("manifest", version, len(manifest))
        return manifest

    def links(self, version: int) -> bytes:
        links = self._store.links(version)
        self._record("links", version, len(links))
        return links

    def tags(self, run: str, column: int) -> bytes:
        tags = self._store.tags(run, column)
        self._record("tags", run, column, len(tags))
        return tags

    def read(self, run: str, column: int, first_page: int, pages: int, into: memoryview) -> None:
        self._record("read", run, column, first_page, pages, into.nbytes)
        self._store.read(run, column, first_page, pages, into)

    def create_run(self, run: str, shape: RunShape) -> None:
        self._record("create_run", run, len(shape), sum(pages * slot_bytes for pages, slot_bytes in shape))
        self._store.create_run(run, shape)

    def write(self, run: str, column: int, first_page: int, pages: bytes | memoryview) -> None:
        self._record("write", run, column, first_page, size_bytes(pages))
        self._store.write(run, column, first_page, pages)

    def finish_run(self, run: str, tags: Sequence[bytes]) -> None:
        self._record("finish_run", run, sum(map(len, tags)))
        self._store.finish_run(run, tags)

    def commit(self, version: int, manifest: bytes) -> None:
        self._record("commit", version, len(manifest))
        self._store.commit(version, manifest)

    def write_scratch(self, name: str, sealed: bytes | memoryview) -> None:
        self._record("write_scratch", name, size_bytes(sealed))
        self._store.write_scratch(name, sealed)

    def read_scratch(self, name: str) -> bytes:
        sealed = self._store.read_scratch(name)
        self._record("read_scratch", name, len(sealed))
        return sealed

    def drop_scratch(self) -> None:
        self._record("drop_scratch")
        self._store.drop_scratch()


def size_bytes(content: bytes | memoryview) -> int:
    """How many bytes there are, also where the items of a view are larger."""
    return content.nbytes if isinstance(content, memoryview) else len(content)


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
