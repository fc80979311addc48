"""What a client asks of the enclave, and what the enclave answers. All of it travels sealed: the provider sees lengths.

Each request is a dataclass that names its answer's type and says who may ask. They travel as JSON, `{"task": ...}`; but
executions of a plan and the rows of a load, which are sent often, as flat words: quick to read, and never turned into
Python numbers where they are secret.
"""

import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter
from scumble.index.slack import SlackName
from scumble.types import Domain, Schema, parse_domain
from scumble.wire.catalog import Catalog, Streamed
from scumble.wire.channel import SMALL_BYTES, padded
from scumble.wire.charges import Charge
from scumble.wire.grants import Grant
from scumble.wire.lineage import Draft, Link, Seen, Title
from scumble.wire.messages import Message, codec, register, to_fields
from scumble.wire.plan import Plan

JSON, EXECUTE, ROWS = b"J", b"X", b"R"
"""The first byte of a request: what follows."""

PLAN_BYTES = 256 << 10
LOAD_BYTES = 16 << 20
"""The first request of a load states the schema and the domains, with every category and key that they list."""

A = TypeVar("A")

register(Domain, lambda domain: domain.text, parse_domain)


class Request(Message, Generic[A]):
    """Asks for an `A`, or with `Request[None]` for nothing but that something is done.

    Only the owner may ask, unless `by_analyst`; and only with a version open, unless `needs_version` is False. A
    request has at most `most_bytes`: the enclave looks at its name, the asker's rights and its length, then reads it.
    """

    kinds: ClassVar[dict[str, "type[Request[Any]]"]] = {}
    by_analyst: ClassVar[bool]
    needs_version: ClassVar[bool]
    most_bytes: ClassVar[int]
    answer: ClassVar[Any]

    def __init_subclass__(
        cls, *, task: str, by_analyst: bool = False, needs_version: bool = True, most_bytes: int = SMALL_BYTES
    ) -> None:
        super().__init_subclass__()
        cls.task, cls.by_analyst, cls.needs_version, cls.most_bytes = task, by_analyst, needs_version, most_bytes
        (cls.answer,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]
        Request.kinds[task] = cls


# --- answers -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opened:
    """The version that is open now: what its signer may see of it, and its grant, or to the owner, all `grants`.

    `links` lead to it from the version that the client remembers; without one there is only its own. None in a database
    that release 0.1 has made and nobody has signed since. `policy` is the owner's signed document about enclaves, empty
    if there is none: the client checks it by itself.
    """

    catalog: Catalog
    hash: str
    owner: bytes
    grant: Grant | None
    grants: tuple[Grant, ...]
    links: tuple[Link, ...]
    charges: tuple[Charge, ...]
    policy: bytes = b""
    views: tuple[tuple[str, str], ...] = ()
    """The owner's views: a name, and what it stands for, as it stands in a WITH."""

    @property
    def version(self) -> int:
        return self.catalog.version

    @property
    def seen(self) -> Seen:
        """How the version is remembered."""
        return self.catalog.restores, self.catalog.version, self.hash


@dataclass(frozen=True)
class PlanNumber:
    """By which number executions name a plan."""

    plan: int


@dataclass(frozen=True)
class LoadBegun:
    """`done`: the batch is there already, and needs no rows."""

    done: bool


@dataclass(frozen=True)
class Flushing:
    """`capacity`: for how many rows there is room in what is flushed."""

    capacity: int


@dataclass(frozen=True)
class GrantList:
    """Every grant there is."""

    grants: tuple[Grant, ...]


# --- versions ----------------------------------------------------------------------------------------


class Create(Request[Draft], task="create", needs_version=False):
    """Draft the first version of an empty database, which belongs to the signer of the greeting, under its policy."""

    title: Title
    policy: bytes = b""


class Upgrade(Request[Draft], task="upgrade"):
    """Draft the first signed version of a database of release 0.1. `grants` are those there are, signed."""

    title: Title
    grants: tuple[Grant, ...]
    restores: int


class Open(Request[Opened], task="open", by_analyst=True, needs_version=False):
    """Take the newest version. It has to descend from the `anchor`, the version that the client remembers.

    That is how often an older version was taken for the newest, its number, and its hash. An analyst may name the
    `owner` that it expects.
    """

    anchor: tuple[int, int, str] | None
    owner: bytes | None = None


class Follow(Request[Opened | None], task="follow", by_analyst=True, needs_version=False):
    """Take the newest version, as with `Open`; None if that is the one which the client remembers and has open."""

    anchor: tuple[int, int, str]
    owner: bytes | None = None


class Restore(Request[Draft], task="restore", needs_version=False):
    """Draft a version after the newest that is there, although the owner has seen a later one: a backup was restored.

    `restores` is the owner's count of that. Grants that were revoked since are revoked again, and no grant has used
    less than the owner has seen: an id, epsilon and delta.
    """

    restores: int
    revoked: tuple[str, ...]
    used: tuple[tuple[str, Fraction, Fraction], ...]


class Commit(Request[Opened], task="commit", by_analyst=True, needs_version=False):
    """Store the version that was drafted last, with its signature, and go on with it."""

    signature: bytes


class CheckChain(Request[None], task="chain"):
    """Walk back to the first version: Tampered if one is missing or is not what its successor says."""


class CheckPages(Request[None], task="check", by_analyst=True):
    """Open some pages and throw them away: Tampered if one is not what was stored."""

    run: str
    column: int
    first_page: int
    pages: int


class DropTable(Request[Draft | None], task="drop"):
    """Draft a version without a table, and without rights to it; `within` a transaction, `Settle` drafts it."""

    table: str
    within: bool = False


class Reseal(Request[Draft], task="reseal"):
    """Draft a version sealed under a new data key, for an owner's new key, which has signed the `grants`.

    If there is a policy, the new key signs it anew.
    """

    data_key: bytes
    title: Title
    grants: tuple[Grant, ...]
    policy: bytes = b""


class AddGrant(Request[Draft | None], task="grant"):
    """Draft a version with one more grant; or, `rehearsed`, only refuse what that would refuse, and answer nothing."""

    grant: Grant
    rehearsed: bool


class RevokeGrant(Request[Draft], task="revoke"):
    """Draft a version without a grant."""

    name: str


class SetPolicy(Request[Draft], task="policy"):
    """Draft a version under another signed policy of the owner's, with a higher serial."""

    policy: bytes


class ListGrants(Request[GrantList], task="grants"):
    """Show every grant."""


# --- queries -----------------------------------------------------------------------------------------


class Prepare(Request[PlanNumber], task="prepare", by_analyst=True, most_bytes=PLAN_BYTES):
    """Keep a plan for executions; its table stays as it is in the version that is open now."""

    plan: Plan


class ForgetPlans(Request[None], task="forget", by_analyst=True):
    """Forget all plans: their numbers begin at 0 again."""


# --- changes -----------------------------------------------------------------------------------------
#
# An execution of a plan that rewrites rows changes the version that the session has open, for itself alone: further
# executions see it, and others once it was settled and committed.


class Look(Request[Opened], task="look", by_analyst=True):
    """Show the version that is open, with the changes that were made to it and not settled yet."""


class Settle(Request[Draft], task="settle", by_analyst=True):
    """Draft a version with the changes that were made, of which there are so many: Stale if some were lost."""

    changes: int


class Rollback(Request[None], task="rollback", by_analyst=True):
    """Forget the changes that were not settled."""


class Merge(Request[None], task="merge", by_analyst=True, most_bytes=PLAN_BYTES):
    """Make one run of several, all of one attribute or all of the tail: a change like that of rows, not settled yet."""

    table: str
    runs: tuple[str, ...]


class Vacuum(Request[None], task="vacuum"):
    """Seal the runs of a table anew, without the values of rows that were deleted: a change, not settled yet."""

    table: str


# --- definitions -------------------------------------------------------------------------------------
#
# Each changes the version that the session has open, for itself alone, as an execution that rewrites rows does.


class CreateTable(Request[None], task="define", most_bytes=LOAD_BYTES):
    """Make a table without rows. `terms` are the indexes that batches of it shall have."""

    table: str
    table_id: str
    schema: Schema
    terms: tuple[str, ...] = ()
    comments: tuple[tuple[str, str], ...] = ()


class Truncate(Request[None], task="truncate"):
    """Take all runs out of a table. Rights to it stay."""

    table: str


class RenameTable(Request[None], task="rename"):
    """Give a table another name, which no grant may mention, nor the old one."""

    table: str
    name: str


class RenameColumn(Request[None], task="rename_column"):
    """Give a column another name; `terms` are the table's with that name."""

    table: str
    column: str
    name: str
    terms: tuple[str, ...] = ()


class AddColumn(Request[None], task="add_column", most_bytes=LOAD_BYTES):
    """Add a column, the only one of `column`, in which every row has the value of these `words`, the last 0 for null.

    It lies in a layer over each run that has all columns.
    """

    table: str
    column: Schema
    words: tuple[int, ...]
    comments: tuple[tuple[str, str], ...] = ()


class DropColumn(Request[None], task="drop_column"):
    """Seal all runs that have a column anew, without it; `terms` are the table's without it."""

    table: str
    column: str
    terms: tuple[str, ...] = ()


class DropIndex(Request[None], task="drop_index"):
    """Take the copies of the rows out that are sorted by a column; if no others have all columns, only their order."""

    table: str
    column: str


class SetTerms(Request[None], task="terms", most_bytes=LOAD_BYTES):
    """Declare other indexes for the batches to come."""

    table: str
    terms: tuple[str, ...]


class SetView(Request[None], task="view", most_bytes=PLAN_BYTES):
    """Keep the text of a view, sealed; or with an empty one, forget it."""

    name: str
    text: str


# --- loads -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IndexOrder:
    """PUBLIC: one index of a load. The ledger was charged epsilon and delta, for users of up to rows_per_user rows.

    With `alpha_s` the slack is the formula that the paper prints, which promises nothing about lost rows. Rows are
    laid out in so many padded `blocks`, or in as many as suit their number. The copy of the rows that it finds holds
    these `columns`, or all of them. `hint` is a public curve that the keys may follow, packed as index/hint.py has it,
    and `plan` divides its epsilon, as index/plan.py writes it. With a `grid` its run can be merged with others that
    have the same: it is packed as index/grid.py has it; empty, it is the table's.
    The `mechanism` is a kind of index/kinds.py.
    """

    attribute: str
    domain: Domain
    epsilon: Fraction
    delta: Fraction
    beta: Fraction
    rows_per_user: int
    max_bytes: int | None
    slack: SlackName
    mechanism: str = "scumble"
    alpha_s: Fraction | None = None
    blocks: int | None = None
    columns: tuple[str, ...] | None = None
    hint: bytes | None = None
    plan: str | None = None
    grid: bytes | None = None


class BeginLoad(Request[LoadBegun], task="load", by_analyst=True, most_bytes=LOAD_BYTES):
    """Expect rows for a table, a new one or one that is there with the same columns and indexes.

    `batch` is the client's name for the rows: what has been loaded under it is not loaded again. `capacity_cost` is the
    epsilon and delta that were paid for the capacity. Rows for the `tail` have no indexes, whatever the table has.
    What follows is the owner's alone. The new runs take the place of those that `instead` names; if they go `beside`
    the others, they hold the same rows once more, in another order. `terms` are the table's from then on.
    """

    batch: str
    capacity_cost: tuple[Fraction, Fraction]
    table: str
    table_id: str
    schema: Schema
    orders: tuple[IndexOrder, ...]
    page_rows: int
    memory_bytes: int
    tail: bool = False
    instead: tuple[str, ...] = ()
    beside: bool = False
    terms: tuple[str, ...] | None = None


class BeginFlush(Request[Flushing | None], task="flush", by_analyst=True, most_bytes=LOAD_BYTES):
    """Take the rows of a table's tail for a load with these indexes, under the name of a batch; nothing if it is there.

    It is paid for, reserved and built like any load, and the tail is gone with it.
    """

    batch: str
    table: str
    orders: tuple[IndexOrder, ...]
    page_rows: int
    memory_bytes: int


class Reserve(Request[None], task="reserve", by_analyst=True):
    """Make room for the runs of the rows that were sent: as many as `capacity`, dummies included."""

    capacity: int


class Pay(Request[Draft | None], task="pay", by_analyst=True):
    """Draft a version that records what is paid for the rows that were sent, before an index of them is released.

    Nothing if just this was recorded before, for the same rows: then a load that was cut short is repeated.
    """

    batch: str
    charges: tuple[Charge, ...]


class Build(Request[Draft | None], task="build", by_analyst=True):
    """Make the runs, and draft a version that has them; nothing if the one that is open has the batch already.

    Within a transaction no version is drafted yet: `Settle` does that. A batch that a stream sends says when.
    """

    real_rows: int
    batch: str
    within: bool = False
    streamed: Streamed | None = None


class Abandon(Request[None], task="abandon", by_analyst=True):
    """Forget the rows that this session has sent."""


# --- packing -----------------------------------------------------------------------------------------


def pack_request(request: Request[Any]) -> bytes:
    """A request as bytes, padded: its length hardly tells what is in it."""
    return padded(JSON + json.dumps({"task": request.task, **to_fields(request)}).encode())


_TASK = re.compile(rb'\{"task": ?"([a-z_]{1,32})"')


def announced_kind(body: memoryview) -> type[Request[Any]] | None:
    """The class of a request by its first bytes, before any of it is parsed; None if they name none."""
    found = _TASK.match(bytes(body[:64]))
    return None if found is None else Request.kinds.get(found[1].decode())


def request_kind(body: memoryview) -> tuple[type[Request[Any]] | None, dict[str, Any]]:
    """A request's class, or None if there is none of its name, and its fields, to be checked with `from_fields`."""
    try:
        fields = json.loads(bytes(body))
        return Request.kinds.get(fields.pop("task")), fields
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InvalidParameter("a request is an object that names its task", hint="upgrade Scumble") from None


def pack_answer(answer: object) -> bytes:
    """An answer as JSON: `{}` if it is None."""
    return json.dumps({} if answer is None else to_fields(answer)).encode()


def unpack_answer(request: Request[A], answer: memoryview) -> A:
    """The inverse."""
    fields = json.loads(bytes(answer))
    found: A = codec(request.answer).unpack(fields or None)
    return found


# --- flat forms -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowLayout:
    """PUBLIC: where in a row its parts stand; `index_sizes` are those of the indexed attributes' domains, in order."""

    schema: Schema
    index_sizes: tuple[int, ...]

    @cached_property
    def column_offsets(self) -> tuple[int, ...]:
        """The first word of every column."""
        return tuple(accumulate((column.type.words for column in self.schema), initial=0))[:-1]

    @cached_property
    def validity_offset(self) -> int:
        """The first word of validity bits: bit c % 64 of word c // 64 is 1 if column c is not null."""
        return sum(column.type.words for column in self.schema)

    @cached_property
    def key_offset(self) -> int:
        """The rank in the first index; the others follow."""
        nullable = any(column.nullable for column in self.schema)
        return self.validity_offset + nullable * -(-len(self.schema) // 64)

    @cached_property
    def words(self) -> int:
        return self.key_offset + len(self.index_sizes)

    def dummy_keys(self) -> tuple[int, ...]:
        """The key words of a dummy row."""
        return tuple(size + 1 for size in self.index_sizes)


PageRange = tuple[int, int]
"""The first page, and how many."""


class Scan(NamedTuple):
    """Some pages of one of the table's runs, and which of the plan's predicates to hold against their rows."""

    run: int
    predicate: int
    pages: Sequence[PageRange]


class Execution(NamedTuple):
    """One execution of a plan: its number, the scans, and the bounds."""

    plan: int
    scans: list[Scan]
    bounds: NDArray[np.int64]


def pack_execution(plan: int, scans: Sequence[Scan], bounds: NDArray[np.int64]) -> bytes:
    """An execution as bytes."""
    words = [plan, len(scans)]
    for run, predicate, pages in scans:
        words += (run, predicate, len(pages))
        for page_range in pages:
            words += page_range
    return EXECUTE + struct.pack(f"<{len(words)}q", *words) + bounds.tobytes()


def unpack_execution(data: memoryview) -> Execution:
    """The inverse; `data` comes without the first byte."""
    try:
        words = data.cast("q")  # of which only the public ones become Python integers: making one branches on its value
        plan, count = words[0], words[1]
        at, scans = 2, []
        for _ in range(count):
            run, predicate, ranges = words[at], words[at + 1], words[at + 2]
            end = at + 3 + 2 * ranges
            if ranges < 0 or end > len(words):
                raise IndexError
            pages = words[at + 3 : end].tolist()
            scans.append(Scan(run, predicate, tuple(zip(pages[::2], pages[1::2], strict=True))))
            at = end
    except (IndexError, TypeError):
        raise InvalidParameter("the execution is cut short", hint="send all of it") from None
    return Execution(plan, scans, np.frombuffer(data, np.int64, offset=8 * at))
