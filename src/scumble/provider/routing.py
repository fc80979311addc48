"""Routing: each session of a database lives in one enclave process, and its requests go there.

Clients know a session by a number of the front's. Its bytes pass unopened, both ways. The calls for storage that a
process makes on the way are served here.
"""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO

from scumble.errors import Busy, InvalidParameter, Unavailable
from scumble.provider.fleet import ID_BYTES, EnclaveProcess, Fleet, Serve
from scumble.provider.leases import OWNER, Leases
from scumble.wire.channel import SMALL_BYTES
from scumble.wire.messages import from_list
from scumble.wire.pipe import (
    RESULT,
    Bytes,
    Call,
    Commit,
    CreateRun,
    DropScratch,
    FinishRun,
    Frame,
    Greet,
    Head,
    Leave,
    Pipe,
    Rank,
    ReadLinks,
    ReadManifest,
    ReadPages,
    ReadScratch,
    ReadTags,
    Relay,
    WritePages,
    WriteScratch,
)
from scumble.wire.storage import Storage

__all__ = ["Routing", "serve_call"]


MOST_READ_BYTES = 1 << 32


def serve_call(
    pipe: Pipe,
    frame: Frame,
    storage: Storage,
    *,
    writing: bool,
    commit: Callable[[int, bytes], None] | None = None,
    gone: Callable[[], bool] = lambda: False,
    built: Callable[[], None] = lambda: None,
) -> tuple[int, int]:
    """Serve one call; how many pages and bytes of pages it read. `commit` stores a version, if not `storage`.

    `built` is called when a run is complete.

    A query whose client has `gone` ends at the next pages that it wants to read. Who may write goes on to the end:
    there may be a commit, and the client will want to know what became of it.
    """
    try:
        call = from_list(Call.kinds, frame.header)
        if not writing and isinstance(call, ReadPages) and gone():
            raise Unavailable("the client has gone", hint="ask again")
        if isinstance(call, Commit) and commit is not None:
            commit(call.version, bytes(frame.body))
            pipe.send(RESULT, [], b"")
            return 0, 0
        if call.writes and not writing:
            raise Busy("the database is not held for writing", hint="another load may have taken its place: try again")
        result = _served(storage, call, frame.body)
        if isinstance(call, FinishRun):
            built()
    except Exception as error:
        pipe.send_failure(error)
        return 0, 0
    pipe.send(RESULT, [], result)
    return (call.pages, len(result)) if isinstance(call, ReadPages) else (0, 0)


def _served(storage: Storage, call: Call, body: Bytes) -> Bytes:
    match call:
        case ReadPages(run, column, first_page, pages, size_bytes):
            if not 0 <= size_bytes <= MOST_READ_BYTES:
                raise InvalidParameter("too much is read at once", hint="read fewer pages")
            into = bytearray(size_bytes)
            storage.read(run, column, first_page, pages, memoryview(into))
            return into
        case ReadTags(run, column):
            return storage.tags(run, column)
        case Head() | ReadManifest() | ReadLinks():
            return _served_version(storage, call)
        case ReadScratch(piece):
            return storage.read_scratch(piece)
        case CreateRun(run, shape):
            storage.create_run(run, shape)
        case WritePages(run, column, first_page):
            storage.write(run, column, first_page, memoryview(body))
        case FinishRun(run, tag_bytes):
            content = BytesIO(body)
            storage.finish_run(run, [content.read(size) for size in tag_bytes])
        case Commit(version):
            storage.commit(version, bytes(body))
        case WriteScratch(piece):
            storage.write_scratch(piece, memoryview(body))
        case DropScratch():
            storage.drop_scratch()
    return b""


def _served_version(storage: Storage, call: Head | ReadManifest | ReadLinks) -> bytes:
    match call:
        case Head():
            return storage.head()
        case ReadManifest(version):
            return storage.manifest(version)
        case ReadLinks(version):
            return storage.links(version)


SESSION_BITS = 62
MOST_SESSIONS = 10_000
MOST_STRANGERS = 1_000
"""Sessions of one database that have shown no right to anything; with one more, the oldest of them goes."""
IDLE_SECONDS = 3600.0
STRANGER_SECONDS = 60.0

Read = Callable[[int, int], None]
"""Called with how many pages were read, and how many bytes that was."""


@dataclass
class _Place:
    process: EnclaveProcess
    number: int
    seen: float
    most_bytes: int = SMALL_BYTES
    gone: Callable[[], bool] = lambda: False

    @property
    def is_stranger(self) -> bool:
        """Whether the enclave has not yet said that the session may ask for more than anybody."""
        return self.most_bytes <= SMALL_BYTES


class Routing:
    """An `Enclave` that is a fleet of processes. A greeting begins with the id of the process it is sealed to."""

    def __init__(self, fleet: Fleet, storage: Storage, leases: Leases, read: Read) -> None:
        self._fleet, self._storage, self._leases, self._read = fleet, storage, leases, read
        self._turn = threading.Lock()
        self._places: dict[int, _Place] = {}

    def fresh_key(self) -> bytes:
        """A process makes a key only with its evidence, which clients ask the front for."""
        raise Unavailable("an enclave's keys come with its evidence", hint="ask for evidence")

    def greet(self, sealed: bytes) -> tuple[int, bytes]:
        process = self._fleet.pick(sealed[:ID_BYTES].hex())
        self._drop_idle()
        number, answer = process.job(Greet(), sealed[ID_BYTES:], self._serve(None, writing=False))
        session = secrets.randbits(SESSION_BITS) | 1 << SESSION_BITS
        with self._turn:
            process.sessions += 1
            self._places[session] = _Place(process, number, time.monotonic())
        return session, bytes(answer)

    def place_of(self, session: int) -> tuple[EnclaveProcess, int]:
        """The process of a session, and how many bytes its next request may have; Unavailable if it is gone."""
        place = self._place(session)
        return place.process, place.most_bytes

    def watch(self, session: int, gone: Callable[[], bool]) -> None:
        """From now on, `gone` says whether the client still waits for what the session asks."""
        self._place(session).gone = gone

    def _place(self, session: int) -> _Place:
        place = self._places.get(session)
        if place is None or not place.process.alive:
            self._forget(session)
            raise Unavailable("the session is gone", hint="connect again")
        return place

    def request(self, session: int, sealed: bytes | memoryview) -> bytes:
        place = self._place(session)
        place.seen = time.monotonic()
        known = place.process.changes
        with self._leases.at_work(session) as writing:
            serve = self._serve(session, writing=writing, gone=place.gone)
            place.most_bytes, answer = place.process.job(Relay(place.number), sealed, serve)
        if place.process.changes != known:
            self._fleet.share()
        return bytes(answer)

    def rank(self, session: int) -> int:
        """Of what use writing is to a session, as its enclave says. Nobody without any may keep writers away."""
        place = self._places.get(session)
        if place is None:
            raise Unavailable("the session is gone", hint="connect again")
        return place.process.job(Rank(place.number))[0]

    def leave(self, session: int) -> None:
        self._leases.give_back(session)
        place = self._forget(session)
        if place is not None and place.process.alive:
            place.process.job(Leave(place.number))

    def _serve(self, session: int | None, *, writing: bool, gone: Callable[[], bool] = lambda: False) -> Serve:
        def commit(version: int, manifest: bytes) -> None:
            holder = session if session is not None and (writing or self.rank(session) == OWNER) else None
            self._leases.commit(holder, lambda: self._storage.commit(version, manifest))

        def built() -> None:
            self._leases.built(session)

        def serve(pipe: Pipe, frame: Frame) -> None:
            pages, size = serve_call(pipe, frame, self._storage, writing=writing, commit=commit, gone=gone, built=built)
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
        """Forget sessions that have been silent for long, and if there are too many, the one that was for longest.

        A stranger's is the first to go: whoever opens many of them may not push out those with rights.
        """
        now = time.monotonic()
        with self._turn:
            strangers = [session for session, place in self._places.items() if place.is_stranger]
            idle = [
                session
                for session, place in self._places.items()
                if now - place.seen > (STRANGER_SECONDS if place.is_stranger else IDLE_SECONDS)
            ]
            if len(self._places) >= MOST_SESSIONS or len(strangers) >= MOST_STRANGERS:
                idle.append(min(strangers or self._places, key=lambda session: self._places[session].seen))
        for session in idle:
            self.leave(session)
