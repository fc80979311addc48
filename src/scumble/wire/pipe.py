"""The pipe between the provider's front and an enclave process: what each asks of the other, and how it is sent.

The front asks for jobs, and the process meanwhile calls for storage: one dataclass for each, used at both ends. A frame
has a kind, a small header of JSON, and a body of opaque bytes. The front sends a JOB; until it is done, the enclave may
CALL for storage, and the front gives the RESULT; then comes the ANSWER. Either may be a FAILURE instead. A pipe does
one job at a time: an enclave process has several. The provider sees everything in a frame.
"""

import json
import socket
import struct
from types import NoneType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, get_args

from scumble.errors import Unavailable
from scumble.wire.channel import opened_answer, refusal
from scumble.wire.messages import Message

F = TypeVar("F")


# --- jobs -------------------------------------------------------------------------------------------


class Job(Message, Generic[F]):
    """A job whose answer states an `F` besides its body.

    One that is `short` must not wait for a load to end: short jobs have a pipe to themselves.
    """

    kinds: ClassVar[dict[str, "type[Job[Any]]"]] = {}
    short: ClassVar[bool]
    states: ClassVar[Any]

    def __init_subclass__(cls, *, task: str, short: bool = False) -> None:
        super().__init_subclass__()
        cls.task, cls.short = task, short
        (cls.states,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]
        Job.kinds[task] = cls


def pack_answer(fact: int | bool | None, changes: int) -> list[Any]:
    """The header of an answer: what it states, if anything, and how often there was something new to share."""
    return [changes] if fact is None else [fact, changes]


def unpack_answer(job: Job[F], header: list[Any]) -> tuple[F, int]:
    """The inverse; Unavailable if it states anything else."""
    if list(map(type, header)) != ([int] if job.states is NoneType else [job.states, int]):
        raise Unavailable("the enclave process does not keep to the protocol", hint="try again")
    fact: Any = header[0] if len(header) > 1 else None
    return fact, header[-1]


class Relay(Job[int], task="request"):
    """Answer a session's sealed request, and state how many bytes the next one may have."""

    session: int


class Greet(Job[int], task="greet"):
    """Open a session for a sealed greeting, and state its number."""


class Leave(Job[None], task="leave", short=True):
    """Forget a session."""

    session: int


class Rank(Job[int], task="rank", short=True):
    """State of what use the right to write is to a session: 0 of none, 1 to load, 2 if it is the owner's."""

    session: int


class Attest(Job[None], task="attest", short=True):
    """Show evidence for a nonce."""


class Challenge(Job[None], task="challenge", short=True):
    """Give a nonce for another enclave's evidence."""


class Share(Job[None], task="share", short=True):
    """Seal all that is unlocked for an enclave that shows evidence."""


class Take(Job[None], task="take", short=True):
    """Take over what another enclave has shared."""


# --- storage calls ----------------------------------------------------------------------------------


class Call(Message):
    """A call of `Storage`: for what it takes and gives, see there. One that `writes` needs the writer's lock."""

    kinds: ClassVar[dict[str, "type[Call]"]] = {}
    writes: ClassVar[bool]

    def __init_subclass__(cls, *, task: str, writes: bool = False) -> None:
        super().__init_subclass__()
        cls.task, cls.writes = task, writes
        Call.kinds[task] = cls


class Head(Call, task="head"):
    """The current manifest."""


class ReadManifest(Call, task="manifest"):
    """An earlier manifest."""

    version: int


class ReadLinks(Call, task="links"):
    """The links of versions that were collected."""

    version: int


class ReadTags(Call, task="tags"):
    """The tags of a column's pages."""

    run: str
    column: int


class ReadPages(Call, task="read"):
    """Sealed pages, `size_bytes` altogether."""

    run: str
    column: int
    first_page: int
    pages: int
    size_bytes: int


class CreateRun(Call, task="create_run", writes=True):
    """Room for a new run: for each column, its pages and the bytes of one of them, sealed."""

    run: str
    shape: tuple[tuple[int, int], ...]


class WritePages(Call, task="write", writes=True):
    """Sealed pages of a new run, in the body."""

    run: str
    column: int
    first_page: int


class FinishRun(Call, task="finish_run", writes=True):
    """The tags of a new run, in the body, one column after the other: so many bytes of each."""

    run: str
    tag_bytes: tuple[int, ...]


class Commit(Call, task="commit", writes=True):
    """A new manifest, in the body."""

    version: int


class WriteScratch(Call, task="write_scratch", writes=True):
    """A sealed piece of a load, in the body."""

    piece: str


class ReadScratch(Call, task="read_scratch"):
    """A sealed piece of a load."""

    piece: str


class DropScratch(Call, task="drop_scratch", writes=True):
    """The end of a load: nothing of it is needed."""


# --- frames -----------------------------------------------------------------------------------------

JOB, CALL, RESULT, ANSWER, FAILURE = b"J", b"C", b"R", b"A", b"F"

_START = struct.Struct("<cIQ")  # the kind, bytes of the header, bytes of the body
MOST_HEADER_BYTES = 1 << 24
MOST_BODY_BYTES = 1 << 36

Bytes = bytes | bytearray | memoryview


class Frame(NamedTuple):
    """What came through a pipe. The body was put where it was asked for, if it has the size that was expected."""

    kind: bytes
    header: list[Any]
    body: Bytes


class Pipe:
    """One end of it. Unavailable if the other end is gone."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, kind: bytes, header: list[Any], *body: Bytes) -> None:
        """Send a frame; a body may come in several pieces."""
        text = json.dumps(header, separators=(",", ":")).encode()
        start = _START.pack(kind, len(text), sum(map(_size, body))) + text
        try:
            if sum(map(_size, body)) < 1 << 16:
                self._end.sendall(b"".join((start, *body)))
                return
            self._end.sendall(start)
            for piece in body:
                self._end.sendall(piece)
        except OSError:
            raise _gone() from None

    def send_failure(self, error: Exception) -> None:
        """Send an error in the place of an answer or a result; of an unforeseen one, only the type."""
        self.send(FAILURE, [], refusal(error))

    def receive(self, into: memoryview | None = None) -> Frame:
        """The next frame; its body goes to `into` if it is just as long."""
        kind, header_bytes, body_bytes = _START.unpack(self._bytes(_START.size))
        if header_bytes > MOST_HEADER_BYTES or body_bytes > MOST_BODY_BYTES:
            raise _gone()
        try:
            header = json.loads(self._bytes(header_bytes))
        except ValueError:
            raise _gone() from None
        if not isinstance(header, list):
            raise _gone()
        if into is not None and kind != FAILURE and body_bytes == into.nbytes:
            self._fill(into)
            return Frame(kind, header, into)
        return Frame(kind, header, self._bytes(body_bytes))

    def receive_kind(self, expected: bytes, into: memoryview | None = None) -> Frame:
        """The next frame, which has to be of this kind; if it is a failure, raise the error that it stands for."""
        frame = self.receive(into)
        if frame.kind == FAILURE:
            opened_answer(bytes(frame.body))
        if frame.kind != expected:
            raise _gone()
        return frame

    def close(self) -> None:
        self._end.close()

    def _bytes(self, count: int) -> bytearray:
        data = bytearray(count)
        self._fill(memoryview(data))
        return data

    def _fill(self, into: memoryview) -> None:
        at, total = 0, into.nbytes
        flat = into.cast("B") if total else into
        while at < total:
            try:
                got = self._end.recv_into(flat[at:])
            except OSError:
                raise _gone() from None
            if not got:
                raise _gone()
            at += got


def _size(piece: Bytes) -> int:
    return piece.nbytes if isinstance(piece, memoryview) else len(piece)


def _gone() -> Unavailable:
    return Unavailable("the enclave process has ended", hint="try again: another one takes its place")
