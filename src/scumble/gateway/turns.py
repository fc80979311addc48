"""Statements that run: whose turn it is, on which connection to the database, and when one is stopped.

Every statement has a connection and a DuckDB of its own while it runs, so a long one keeps no other from running.
Clients take turns, each has so many at a time and no more, and what takes too long or whose client has gone is stopped.
For the owner's side alone: connections hold the owner's keys.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from scumble.errors import Busy, QueryError, ScumbleError, Unavailable
from scumble.gateway.config import Limits
from scumble.owner.database import Database

__all__ = ["Connections", "Runs"]

LOOK_SECONDS = 0.1
"""How often it is looked whether a statement has taken too long, or its client has gone."""

IsGone = Callable[[], bool]


class Connections:
    """Connections to one database, opened when all that there are run a statement."""

    def __init__(self, open_one: Callable[[], Database], limits: Limits) -> None:
        self._open_one, self._limits = open_one, limits
        self._idle: list[Database] = []
        self._turn = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[Database]:
        with self._turn:
            database = self._idle.pop() if self._idle else None
        if database is None:
            database = self._open_one()
            database.limit_local(self._limits.statement_bytes, self._limits.result_bytes)
        try:
            yield database
        finally:
            with self._turn:
                self._idle.append(database)

    def close(self) -> None:
        with self._turn:
            idle, self._idle = self._idle, []
        for database in idle:
            with suppress(ScumbleError, OSError):
                database.close()


@dataclass(eq=False)
class _Run:
    """One statement that runs: until when it may, and what ended it if something did."""

    database: Database
    until: float
    is_gone: IsGone
    ended_by: str = ""


class Runs:
    """Which statements may run. Threads wait here for their turn."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._change = threading.Condition()
        self._waiting: dict[str, deque[object]] = {}
        self._running: Counter[str] = Counter()
        self._runs: set[_Run] = set()

    @contextmanager
    def turn(self, client: str, is_gone: IsGone) -> Iterator[None]:
        """Wait for a client's turn; Busy if it has too many waiting already."""
        ticket = object()
        with self._change:
            line = self._waiting.setdefault(client, deque())
            if len(line) >= self._limits.waiting_per_client:
                raise Busy("too many statements of this client are waiting", hint="wait for answers, and ask again")
            line.append(ticket)
            try:
                while self._next() is not ticket:
                    if is_gone():
                        raise Unavailable("the client has gone", hint="ask again")
                    self._change.wait(LOOK_SECONDS)
            finally:
                line.remove(ticket)
                del self._waiting[client]
                if line:
                    self._waiting[client] = line  # whose turn it was is last from now on
            self._running[client] += 1
            self._change.notify_all()
        try:
            yield
        finally:
            with self._change:
                self._running[client] -= 1
                self._change.notify_all()

    def _next(self) -> object | None:
        if self._running.total() >= self._limits.running:
            return None
        for client, line in self._waiting.items():
            if self._running[client] < self._limits.running_per_client:
                return line[0]
        return None

    @contextmanager
    def watched(self, database: Database, is_gone: IsGone) -> Iterator[None]:
        """Stop what the database does inside if it takes too long, or its client goes."""
        run = _Run(database, time.monotonic() + self._limits.run_seconds, is_gone)
        with self._change:
            self._runs.add(run)
        try:
            yield
        except QueryError:
            if run.ended_by:
                raise QueryError(
                    run.ended_by, hint="ask for less, or raise run_seconds in the gateway's limits"
                ) from None
            raise
        finally:
            with self._change:
                self._runs.discard(run)

    def watch(self, over: threading.Event) -> None:
        """Look after the statements that run until it is over; in a thread of its own."""
        while not over.wait(LOOK_SECONDS):
            with self._change:
                for run in self._runs:
                    if run.is_gone():
                        run.ended_by = "the client has gone"
                    elif time.monotonic() > run.until:
                        run.ended_by = f"the statement took longer than {self._limits.run_seconds} s"
                    if run.ended_by:
                        run.database.stop()
