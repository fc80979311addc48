"""Routing: each session of a database lives in one enclave process, and its requests go there.

Clients know a session by a number of the front's. Its bytes pass unopened, both ways. The calls for storage that a
process makes on the way are served here.
"""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scumble.errors import Busy, InvalidParameter, Unavailable
from scumble.provider.fleet import ID_BYTES, EnclaveProcess, Fleet, Serve
from scumble.provider.leases import Leases
from scumble.wire.pipe import RESULT, Bytes, Frame, Pipe
from scumble.wire.storage import Storage

__all__ = ["Routing", "serve_call"]


MOST_READ_BYTES = 1 << 32

Served = tuple[Bytes, int]
"""What goes back, and how many pages that is."""


def serve_call(pipe: Pipe, call: Frame, storage: Storage, *, writing: bool) -> tuple[int, int]:
    """Serve one call; how many pages and bytes of pages it read."""
    try:
        name, *arguments = call.header
        if name in _WRITES and not writing:
            raise Busy("the database is not held for writing", hint="another load may have taken its place: try again")
        result, pages = _CALLS[name](storage, call.body, *arguments)
    except Exception as error:
        pipe.send_failure(error)
        return 0, 0
    pipe.send(RESULT, [], result)
    return pages, len(result) if pages else 0


def _read(storage: Storage, _: Bytes, run: str, column: int, first_page: int, pages: int, size: int) -> Served:
    if not 0 <= size <= MOST_READ_BYTES:
        raise InvalidParameter("too much is read at once", hint="read fewer pages")
    into = bytearray(size)
    storage.read(run, column, first_page, pages, memoryview(into))
    return into, pages


def _finish(storage: Storage, body: Bytes, run: str, sizes: list[int]) -> Served:
    tags, at, content = [], 0, bytes(body)
    for size in sizes:
        tags.append(content[at : at + size])
        at += size
    storage.finish_run(run, tags)
    return b"", 0


def _nothing(_: None) -> Served:
    return b"", 0


_CALLS: dict[str, Callable[..., Served]] = {
    "head": lambda storage, _: (storage.head(), 0),
    "manifest": lambda storage, _, version: (storage.manifest(version), 0),
    "tags": lambda storage, _, run, column: (storage.tags(run, column), 0),
    "read": _read,
    "create_run": lambda storage, _, run, shape: _nothing(storage.create_run(run, [tuple(c) for c in shape])),
    "write": lambda storage, body, run, column, page: _nothing(storage.write(run, column, page, memoryview(body))),
    "finish_run": _finish,
    "commit": lambda storage, body, version: _nothing(storage.commit(version, bytes(body))),
    "write_scratch": lambda storage, body, name: _nothing(storage.write_scratch(name, memoryview(body))),
    "read_scratch": lambda storage, _, name: (storage.read_scratch(name), 0),
    "drop_scratch": lambda storage, _: _nothing(storage.drop_scratch()),
}
_WRITES: frozenset[Any] = frozenset(["create_run", "write", "finish_run", "commit", "write_scratch", "drop_scratch"])


SESSION_BITS = 62
MOST_SESSIONS = 10_000
IDLE_SECONDS = 3600.0

Read = Callable[[int, int], None]
"""Called with how many pages were read, and how many bytes that was."""


@dataclass
class _Place:
    process: EnclaveProcess
    number: int
    seen: float


class Routing:
    """An `Enclave` that is a fleet of processes. A greeting begins with the id of the process it is sealed to."""

    def __init__(self, fleet: Fleet, storage: Storage, leases: Leases, read: Read) -> None:
        self._fleet, self._storage, self._leases, self._read = fleet, storage, leases, read
        self._turn = threading.Lock()
        self._places: dict[int, _Place] = {}

    @property
    def public_key(self) -> bytes:
        """Every process has its own key, which a client gets with that process's evidence."""
        raise Unavailable("every enclave has its own key", hint="ask for evidence")

    def greet(self, sealed: bytes) -> tuple[int, bytes]:
        """Open a session in the process that the greeting names."""
        process = self._fleet.pick(sealed[:ID_BYTES].hex())
        self._drop_idle()
        (number,), answer = process.job(["greet"], sealed[ID_BYTES:], self._serve(writing=False))
        session = secrets.randbits(SESSION_BITS) | 1 << SESSION_BITS
        with self._turn:
            process.sessions += 1
            self._places[session] = _Place(process, number, time.monotonic())
        return session, bytes(answer)

    def request(self, session: int, sealed: bytes | memoryview) -> bytes:
        """Pass on one request, and the answer to it."""
        place = self._places.get(session)
        if place is None or not place.process.alive:
            self._forget(session)
            raise Unavailable("the session is gone", hint="connect again")
        place.seen = time.monotonic()
        known = place.process.changes
        with self._leases.at_work(session) as writing:
            _, answer = place.process.job(["request", place.number], sealed, self._serve(writing=writing))
        if place.process.changes != known:
            self._fleet.share()
        return bytes(answer)

    def may_write(self, session: int) -> bool:
        """Whether the enclave would let a session write. Nobody else may hold the database, and keep writers away."""
        place = self._places.get(session)
        if place is None:
            raise Unavailable("the session is gone", hint="connect again")
        (allowed,), _ = place.process.job(["may_write", place.number])
        return bool(allowed)

    def leave(self, session: int) -> None:
        """Forget a session."""
        self._leases.give_back(session)
        place = self._forget(session)
        if place is not None and place.process.alive:
            place.process.job(["leave", place.number])

    def _serve(self, *, writing: bool) -> Serve:
        def serve(pipe: Pipe, call: Frame) -> None:
            pages, size = serve_call(pipe, call, self._storage, writing=writing)
            if pages:
                self._read(pages, size)

        return serve

    def _forget(self, session: int) -> _Place | None:
        with self._turn:
            place = self._places.pop(session, None)
            if place is not None:
                place.process.sessions -= 1
        return place

    def _drop_idle(self) -> None:
        """Forget sessions that have been silent for long, and the oldest one if there are too many."""
        oldest = time.monotonic() - IDLE_SECONDS
        with self._turn:
            idle = [session for session, place in self._places.items() if place.seen < oldest]
            if len(self._places) >= MOST_SESSIONS:
                idle.append(min(self._places, key=lambda session: self._places[session].seen))
        for session in idle:
            self.leave(session)
