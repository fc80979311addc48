"""Streams: rows are acknowledged at once, and reach their table in batches that hide when they came and how many.

In come rows from any number of threads; each write is durable in the log (`owner/stream_log.py`) before it returns. One
thread sends them, when and in what sizes the policy says (`owner/stream_policies.py`). The rows, and how many wait, are
SECRET and stay with the key's holder; the provider sees the batches' times and capacities.

What is about to be sent is recorded first, under a name and with its rows. After a crash, and when nobody knows what
became of a batch, the same rows are sent again under the same name, and the table takes them once.
"""

import math
import secrets
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, Self

import pyarrow as pa

from scumble.errors import (
    Busy,
    InvalidParameter,
    LedgerBusy,
    Locked,
    ScumbleError,
    Stale,
    Unavailable,
    Unwitnessed,
)
from scumble.owner.stream_changes import LogChange
from scumble.owner.stream_log import StreamLog
from scumble.owner.stream_policies import Beat, Collected, Heartbeat, Policy
from scumble.owner.stream_segments import LogState, Pending
from scumble.wire.catalog import Streamed

__all__ = ["Behind", "Clock", "Destination", "Stream", "StreamBehind", "StreamStatus", "SystemClock"]

MOST_SECONDS = 366 * 86400.0
LATER = (Unavailable, Busy, Stale, Locked, LedgerBusy, Unwitnessed)
"""What may be otherwise at the next tick: the batch is then sent again, under the same name."""


class Clock(Protocol):
    """The time, in seconds since 1970; tests have their own."""

    def now(self) -> float: ...

    def wait(self, seconds: float, stop: threading.Event) -> bool:
        """Wait for so long, or until `stop` is set; whether it is."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.time()

    def wait(self, seconds: float, stop: threading.Event) -> bool:
        return stop.wait(seconds)


class Destination(Protocol):
    """The table that a stream writes to, and who pays for what its times and sizes tell."""

    @property
    def noise_key(self) -> bytes:
        """SECRET: what noise is derived from."""

    def checked(self, rows: object) -> pa.Table:
        """The rows with the table's columns and types; BadRows if the table could not take one of them."""

    def empty(self) -> pa.Table:
        """No rows."""

    def pay(self, stream: str, policy: Policy) -> None:
        """Have the ledger charged for all batches of a stream on these terms, unless it was; Overdraft if it refuses.

        Called before each draw: after a restore, what was released may be released again, and costs again.
        """

    def held(self) -> AbstractContextManager[object]:
        """Hold the database for writing, so that no statement changes what waits; at the end, store what was done."""

    def is_made(self, change: LogChange) -> bool:
        """While it is held: whether a change of what waits counts."""

    def insert(self, rows: pa.Table, capacity: int, batch: str, streamed: Streamed) -> None:
        """While it is held, put a batch into the table, with room for `capacity` rows; `streamed` says when.

        Nothing if one of this name is there.
        """


class StreamBehind(UserWarning):
    """More rows wait in a stream's log than its next batch has room for."""


@dataclass(frozen=True)
class Behind:
    """SECRET: how many rows wait for batches of how many."""

    table: str
    waiting: int
    rows: int

    def __str__(self) -> str:
        """Without the number that waits: it is for the owner's eyes, and warnings end up in logs."""
        return (
            f"more rows wait to be streamed into {self.table!r} than a batch of {self.rows:,} takes; "
            "larger or more frequent ones are a public change: stream.change(rows=..., every=...)"
        )


@dataclass(frozen=True)
class StreamStatus:
    """How a stream stands. SECRET: the provider knows neither how many rows wait nor whether any do.

    `behind` says that more rows wait than a batch of a heartbeat has room for. `late` is how many ticks could not send
    what was due, and `trouble` why the last of them could not; if it has `stopped`, nothing is sent any more. Of a
    stream that is not open in this process, `batches`, `late` and `trouble` are not known, and `last_sent` is when rows
    were sent last, dummies left out.
    """

    table: str
    settings: dict[str, Any]
    waiting: int
    behind: bool
    batches: int
    last_sent: datetime | None
    late: int
    trouble: str | None
    stopped: bool

    @classmethod
    def of_log(cls, table: str, state: LogState, waiting: int) -> Self:
        """How a stream stands that another process has open, or nobody: as far as its log tells."""
        rows = state.settings.get("rows") if state.settings.get("policy") == Heartbeat.name else None
        behind, last = rows is not None and waiting > rows, _moment(state.last_time)
        return cls(table, state.settings, waiting, behind, 0, last, 0, None, False)

    def to_json(self) -> dict[str, Any]:
        last = None if self.last_sent is None else self.last_sent.isoformat()
        return {**self.__dict__, "last_sent": last}


def _warned(behind: Behind) -> None:
    warnings.warn(str(behind), StreamBehind, stacklevel=4)


class Stream:
    """A stream into one table. As a `with` block it ends its sending, and keeps in the log what was not sent.

    >>> with db.stream("visits", every=60, rows=256) as stream:
    ...     stream.write([{"name": "ann", "amount": 10}])

    Threads may share it. When it is closed is the owner's decision, and public: it does not wait for the log to be
    empty, since how long that takes would tell how much was in it. The next stream into the table goes on with it.
    """

    def __init__(
        self,
        table: str,
        log: StreamLog,
        destination: Destination,
        policy: Policy,
        every: float,
        *,
        told: Callable[[Behind], None] | None = None,
        clock: Clock | None = None,
        closed: Callable[[], object] = lambda: None,
    ) -> None:
        """Open a stream that does nothing by itself until `start`; the ledger is charged now, if anything costs."""
        self.table, self._log, self._destination, self._policy = table, log, destination, policy
        self._every = _checked_seconds(every)
        self._told, self._clock, self._closed = told or _warned, clock or SystemClock(), closed
        self._sending = threading.RLock()
        self._beaten = threading.Condition()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._batches = self._late = 0
        self._last_sent: float | None = None
        self._trouble: str | None = None
        self._stopped: ScumbleError | None = None
        self._is_told = False
        self._pay()
        self._remember()

    def start(self) -> Self:
        """Have a thread send what is due."""
        self._thread = threading.Thread(target=self._run, name=f"stream into {self.table}", daemon=True)
        self._thread.start()
        return self

    def write(self, rows: object) -> int:
        """Write rows: an Arrow table or batch, a data frame, or a list of dictionaries; how many there were.

        They are durable, and will be sent once, when this returns. BadRows if the table could not take one of them:
        then none is written.
        """
        self._check_going()
        table = self._destination.checked(rows)
        self._log.append(table)
        self._tell()
        return len(table)

    def flush(self) -> None:
        """Send a batch now, besides those that are due: of the usual size, or all that waits in one of a noisy size.

        The provider sees when this is asked for. It costs no more epsilon: a row is in one batch still.
        """
        with self._sending:
            self._check_going()
            self._finish()
            self._pay()
            collected, first = self._collected()
            self._send(self._policy.sized(collected), first)

    def drain(self) -> None:
        """Go on until nothing waits. What comes after, such as the stream's end, tells the provider when that was."""
        with self._beaten:
            while self._log.waiting:
                self._check_going()
                self._beaten.wait(self._every)

    def change(self, *, rows: int | None = None, every: float | None = None) -> None:
        """Send batches for another number of rows, or at other times, from now on: the provider sees that."""
        with self._sending:
            policy = self._policy if rows is None else self._policy.with_rows(rows)
            self._every = self._every if every is None else _checked_seconds(every)
            self._policy, self._is_told = policy, False
            self._remember()

    @property
    def log(self) -> StreamLog:
        """SECRET: what waits."""
        return self._log

    def status(self) -> StreamStatus:
        """How it stands: what waits, what was sent when, and what went wrong."""
        return StreamStatus(
            self.table,
            {**self._policy.settings, "every": self._every},
            self._log.alive,
            self._is_behind,
            self._batches,
            _moment(self._last_sent or self._log.state.last_time),
            self._late,
            self._trouble,
            self._stopped is not None,
        )

    def end(self) -> None:
        """Close the stream, and delete its log for good; InvalidParameter if rows wait in it."""
        self._join()
        self._log.end()
        self.close()

    def close(self) -> None:
        """End the sending. What was not sent stays in the log, for the next stream into the table."""
        self._join()
        self._log.close()
        self._closed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Stream into {self.table}: {self._policy.name}, every {self._every:g} s>"

    # --- the sender --------------------------------------------------------------------------------

    def beat(self, tick: int) -> None:
        """Do what is due at a tick; what cannot be done now is done at the next one."""
        with self._sending:
            try:
                if self._stopped is None:
                    self._finish()
                    self._pay()
                    collected, first = self._collected()
                    due = self._policy.due(collected, tick)
                    if due is None:
                        self._take_changes()
                    else:
                        self._send(due, first)
            except LATER as error:
                self._late, self._trouble = self._late + 1, error.message
            except ScumbleError as error:
                self._stopped, self._trouble = error, error.message
            except Exception as error:
                self._stopped = ScumbleError(
                    f"the stream has stopped: {type(error).__name__}", hint="what was written is in its log; report it"
                )
                self._trouble = self._stopped.message
        with self._beaten:
            self._beaten.notify_all()

    def _run(self) -> None:
        while True:
            now, every = self._clock.now(), self._every
            tick = math.floor(now / every) + 1  # the same times before and after a restart
            if self._clock.wait(tick * every - now, self._stop):
                return
            self.beat(tick)

    def _collected(self) -> tuple[Collected, int]:
        """What waits at this moment, and the number of its first row."""
        first, stop = self._log.state.sent, self._log.next_row
        return Collected(
            self._log.state.batch, stop - first, lambda: self._log.digest(first, stop), self._destination.noise_key
        ), first

    def _send(self, beat: Beat, first: int) -> None:
        """Record what is about to be sent, and send it: whether it has a row or not.

        A batch without a row that could not be sent has to come later like any other, or its absence would tell. And
        the next size must be drawn under another name, or two equal ones would tell that no row has come between them.
        """
        pending = Pending(self._log.state.batch, first, first + beat.rows, beat.capacity)
        self._log.record(pending=pending, batch=secrets.token_hex(16))
        self._finish()

    def _take_changes(self) -> None:
        """Take over what statements of other processes have made of the rows that wait."""
        if self._log.has_changes:
            with self._destination.held():
                self._log.absorb(self._destination.is_made)

    def _finish(self) -> None:
        """Send what is recorded as about to be sent, unless a statement has dealt with it."""
        if self._log.state.pending is None:
            return
        pending: Pending | None = None
        try:
            with self._destination.held():
                self._log.absorb(self._destination.is_made)
                pending = self._log.state.pending
                if pending is not None:
                    rows = self._log.rows(pending.first, pending.stop)
                    empty = self._destination.empty()
                    found = empty if rows is None else rows
                    self._destination.insert(found, pending.capacity, pending.batch, self._streamed())
        except Unwitnessed as error:
            if not error.stored:
                raise
            self._trouble = error.message
        else:
            self._trouble = None
        if pending is not None:
            self._batches, self._last_sent = self._batches + 1, self._clock.now()
            self._log.sent(pending.batch, self._clock.now())

    def _streamed(self) -> Streamed:
        """What everybody may know of a batch that is sent now."""
        every_ms = round(self._every * 1000) if self._policy.sends_always else None
        return Streamed(int(self._clock.now()), every_ms)

    def _pay(self) -> None:
        if any(self._policy.cost):
            self._destination.pay(self._log.state.stream, self._policy)

    # --- what the owner is told --------------------------------------------------------------------

    @property
    def _is_behind(self) -> bool:
        rows = self._policy.settings.get("rows")
        return not any(self._policy.cost) and rows is not None and self._log.waiting > rows

    def _tell(self) -> None:
        if not self._is_behind:
            self._is_told = False
        elif not self._is_told:
            self._is_told = True
            self._told(Behind(self.table, self._log.waiting, self._policy.settings["rows"]))

    def _check_going(self) -> None:
        if self._stopped is not None:
            raise self._stopped
        if self._stop.is_set():
            raise InvalidParameter("the stream is closed", hint="open another one with db.stream")

    def _remember(self) -> None:
        settings = {**self._policy.settings, "every": self._every}
        if self._log.state.settings != settings:
            self._log.record(settings=settings)

    def _join(self) -> None:
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _checked_seconds(every: float) -> float:
    if not math.isfinite(every) or not 0.001 <= every <= MOST_SECONDS:
        raise InvalidParameter("a stream sends every millisecond at most and every year at least", hint="every=60")
    return float(every)
