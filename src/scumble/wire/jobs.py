"""What the front asks of an enclave process, its jobs, and what the process meanwhile asks of the front: storage calls.

One dataclass for each, used at both ends of the pipe. Each has a body of opaque bytes besides; the provider sees all.
"""

from dataclasses import dataclass
from types import NoneType
from typing import Any, ClassVar, Generic, TypeVar, get_args

from scumble.errors import Unavailable
from scumble.wire.messages import Named

F = TypeVar("F")


class Job(Named, Generic[F]):
    """A job whose answer states an `F` besides its body.

    One that is `short` must not wait for a load to end: short jobs have a pipe to themselves.
    """

    kinds: ClassVar[dict[str, "type[Job[Any]]"]] = {}
    short: ClassVar[bool]
    states: ClassVar[Any]

    def __init_subclass__(cls, *, name: str, short: bool = False) -> None:
        cls.name, cls.short = name, short
        (cls.states,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]
        Job.kinds[name] = cls


def pack_answer(fact: int | bool | None, changes: int) -> list[Any]:
    """The header of an answer: what it states, if anything, and how often there was something new to share."""
    return [changes] if fact is None else [fact, changes]


def unpack_answer(job: Job[F], header: list[Any]) -> tuple[F, int]:
    """The inverse; Unavailable if it states anything else."""
    if list(map(type, header)) != ([int] if job.states is NoneType else [job.states, int]):
        raise Unavailable("the enclave process does not keep to the protocol", hint="try again")
    fact: Any = header[0] if len(header) > 1 else None
    return fact, header[-1]


@dataclass(frozen=True)
class Relay(Job[None], name="request"):
    """Answer a session's sealed request."""

    session: int


@dataclass(frozen=True)
class Greet(Job[int], name="greet"):
    """Open a session for a sealed greeting, and state its number."""


@dataclass(frozen=True)
class Leave(Job[None], name="leave", short=True):
    """Forget a session."""

    session: int


@dataclass(frozen=True)
class MayWrite(Job[bool], name="may_write", short=True):
    """State whether a session may hold the database for writing."""

    session: int


@dataclass(frozen=True)
class Attest(Job[None], name="attest", short=True):
    """Show evidence for a nonce."""


@dataclass(frozen=True)
class Challenge(Job[None], name="challenge", short=True):
    """Give a nonce for another enclave's evidence."""


@dataclass(frozen=True)
class Share(Job[None], name="share", short=True):
    """Seal all that is unlocked for an enclave that shows evidence."""


@dataclass(frozen=True)
class Take(Job[None], name="take", short=True):
    """Take over what another enclave has shared."""


class Call(Named):
    """A call of `Storage`: for what it takes and gives, see there. One that `writes` needs the writer's lock."""

    kinds: ClassVar[dict[str, "type[Call]"]] = {}
    writes: ClassVar[bool]

    def __init_subclass__(cls, *, name: str, writes: bool = False) -> None:
        cls.name, cls.writes = name, writes
        Call.kinds[name] = cls


@dataclass(frozen=True)
class Head(Call, name="head"):
    """The current manifest."""


@dataclass(frozen=True)
class ReadManifest(Call, name="manifest"):
    """An earlier manifest."""

    version: int


@dataclass(frozen=True)
class ReadTags(Call, name="tags"):
    """The tags of a column's pages."""

    run: str
    column: int


@dataclass(frozen=True)
class ReadPages(Call, name="read"):
    """Sealed pages, `size_bytes` altogether."""

    run: str
    column: int
    first_page: int
    pages: int
    size_bytes: int


@dataclass(frozen=True)
class CreateRun(Call, name="create_run", writes=True):
    """Room for a new run: for each column, its pages and the bytes of one of them, sealed."""

    run: str
    shape: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class WritePages(Call, name="write", writes=True):
    """Sealed pages of a new run, in the body."""

    run: str
    column: int
    first_page: int


@dataclass(frozen=True)
class FinishRun(Call, name="finish_run", writes=True):
    """The tags of a new run, in the body, one column after the other: so many bytes of each."""

    run: str
    tag_bytes: tuple[int, ...]


@dataclass(frozen=True)
class Commit(Call, name="commit", writes=True):
    """A new manifest, in the body."""

    version: int


@dataclass(frozen=True)
class WriteScratch(Call, name="write_scratch", writes=True):
    """A sealed piece of a load, in the body."""

    piece: str


@dataclass(frozen=True)
class ReadScratch(Call, name="read_scratch"):
    """A sealed piece of a load."""

    piece: str


@dataclass(frozen=True)
class DropScratch(Call, name="drop_scratch", writes=True):
    """The end of a load: nothing of it is needed."""
