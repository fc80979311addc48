"""A table for streams to write to, without a database: it takes a batch of a name once, and notes what is seen."""

import threading
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa

from scumble.errors import Overdraft, ScumbleError
from scumble.owner.stream_changes import LogChange
from scumble.owner.stream_log import StreamLog
from scumble.owner.stream_policies import Heartbeat, Policy
from scumble.owner.streams import Stream
from scumble.wire.catalog import Streamed

SCHEMA = pa.schema([pa.field("n", pa.int64())])
KEY, TABLE = bytes(range(32)), "ab" * 16


class HandClock:
    """A clock that a test turns. Whoever waits has waited at once, until `end`."""

    def __init__(self, now: float = 1_000_000.0, end: float = float("inf")) -> None:
        self.time, self.end = now, end

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float, stop: threading.Event) -> bool:
        self.time += seconds
        return self.time > self.end or stop.is_set()


class FakeTable:
    """SECRET rows, by batch; `seen` is what the provider sees: when batches came, and their capacities."""

    noise_key = KEY

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.batches: dict[str, list[int]] = {}
        self.seen: list[tuple[float, int]] = []
        self.events: list[str] = []
        self.trouble: list[tuple[ScumbleError, bool]] = []
        """Errors to come, and whether the batch is stored nevertheless."""
        self.limit = Fraction(10)
        self.paid: dict[object, Fraction] = {}

    @property
    def rows(self) -> list[int]:
        return [row for batch in self.batches.values() for row in batch]

    def checked(self, rows: Any) -> pa.Table:
        return rows if isinstance(rows, pa.Table) else pa.table({"n": pa.array(list(rows), pa.int64())})

    def empty(self) -> pa.Table:
        return SCHEMA.empty_table()

    def pay(self, stream: str, policy: Policy) -> None:
        key = (stream, policy.terms)
        if key in self.paid:
            return
        if sum(self.paid.values(), policy.cost[0]) > self.limit:
            raise Overdraft("the ledger refuses", hint="take a smaller epsilon")
        self.events.append("paid")
        self.paid[key] = policy.cost[0]

    def held(self) -> AbstractContextManager[None]:
        return nullcontext()

    def is_made(self, change: LogChange) -> bool:
        return change.draft is None

    def insert(self, rows: pa.Table, capacity: int, batch: str, streamed: Streamed) -> None:
        self.events.append("sent")
        assert abs(streamed.time - self.clock.now()) <= 1
        assert len(rows) <= capacity
        trouble, stored = self.trouble.pop(0) if self.trouble else (None, True)
        if stored and batch not in self.batches:
            self.batches[batch] = rows.column("n").to_pylist()
            self.seen.append((self.clock.now(), capacity))
        if trouble is not None:
            raise trouble


class Home:
    """A log, a table and a clock, which outlive the streams between them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = HandClock()
        self.table = FakeTable(self.clock)
        self.told: list[Any] = []
        self.log: StreamLog | None = None

    def stream(self, policy: Policy | None = None, every: float = 60) -> Stream:
        self.log = StreamLog(self.folder / "log", (KEY,), TABLE)
        return Stream(
            "t", self.log, self.table, policy or Heartbeat(256), every, told=self.told.append, clock=self.clock
        )

    def crash(self) -> None:
        """Leave the log as it is, as a process that is killed does."""
        assert self.log is not None
        self.log._close_segment()
        self.log._unlock()

    def beat(self, stream: Stream, tick: int) -> None:
        self.clock.time = 1_000_000.0 + 60 * tick
        stream.beat(tick)
