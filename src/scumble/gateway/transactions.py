"""Transactions of the gateway's clients: each has a connection and a thread of its own, from its first change on.

Drivers begin one as soon as they connect without autocommit, and may leave it open for hours: so none holds the right
to write before it has changed something, and one that is idle for too long is rolled back. For the owner's side alone.
"""

import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import TypeVar

from scumble.errors import Busy, InvalidParameter, NotFound, ScumbleError
from scumble.gateway.databases import Databases
from scumble.owner.database import Database

__all__ = ["Transaction", "Transactions"]

HANDLE_BYTES = 16
MOST = 256

T = TypeVar("T")


class Transaction:
    """What one client changes together. Its statements run one after the other."""

    def __init__(self, client: str, databases: Databases) -> None:
        self.client, self.until = client, 0.0
        self._databases, self._name = databases, ""
        self._database: Database | None = None
        self._held = ExitStack()
        self._thread = ThreadPoolExecutor(1)  # a database belongs to the thread that has begun a transaction there
        self._turn = threading.Lock()

    @property
    def has_begun(self) -> bool:
        """Whether anything was to be changed in it."""
        return self._database is not None

    def run(self, name: str, work: Callable[[Database], T]) -> T:
        """Do something in it, with one database."""
        with self._turn:
            return self._thread.submit(self._run, name, work).result()

    def end(self, *, committed: bool) -> None:
        """Commit it, or roll it back."""
        with self._turn:
            try:
                if self.has_begun:
                    self._thread.submit(self._end, committed=committed).result()
            finally:
                self._thread.shutdown()

    def _run(self, name: str, work: Callable[[Database], T]) -> T:
        if self._database is None:
            with ExitStack() as held:
                database = held.enter_context(self._databases.connection(name))
                database.execute("BEGIN")
                self._held, self._database, self._name = held.pop_all(), database, name
        if name != self._name:
            raise InvalidParameter("a transaction is for one database", hint="commit it first")
        return work(self._database)

    def _end(self, *, committed: bool) -> None:
        assert self._database is not None  # noqa: S101  whoever calls has looked
        with self._held:
            self._database.execute("COMMIT" if committed else "ROLLBACK")


class Transactions:
    """The transactions that are open. Threads may share them."""

    def __init__(self, databases: Databases, idle_seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._databases, self._idle_seconds, self._now = databases, idle_seconds, now
        self._open: dict[bytes, Transaction] = {}
        self._turn = threading.Lock()

    def begin(self, client: str) -> bytes:
        """Open a transaction, and return its handle."""
        self.sweep()
        made, handle = Transaction(client, self._databases), secrets.token_bytes(HANDLE_BYTES)
        made.until = self._now() + self._idle_seconds
        with self._turn:
            if len(self._open) >= MOST:
                raise Busy("too many transactions are open", hint="end some, or connect with autocommit")
            self._open[handle] = made
        return handle

    def get(self, client: str, handle: bytes) -> Transaction:
        """A client's transaction, whose time begins again."""
        self.sweep()
        with self._turn:
            found = self._find(client, handle)
            found.until = self._now() + self._idle_seconds
            return found

    def end(self, client: str, handle: bytes, *, committed: bool) -> None:
        self.sweep()
        with self._turn:
            found = self._find(client, handle)
            del self._open[handle]
        found.end(committed=committed)

    def sweep(self) -> None:
        """Roll back what was idle for too long."""
        with self._turn:
            over = [handle for handle, each in self._open.items() if each.until <= self._now()]
            dropped = [self._open.pop(handle) for handle in over]
        _roll_back(dropped)

    def clear(self) -> None:
        with self._turn:
            dropped = list(self._open.values())
            self._open.clear()
        _roll_back(dropped)

    def __len__(self) -> int:
        return len(self._open)

    def _find(self, client: str, handle: bytes) -> Transaction:
        found = self._open.get(handle)
        if found is None or found.client != client:
            raise NotFound(
                "there is no such transaction, or it was idle for too long and is rolled back",
                hint="begin another, and do it all again",
            )
        return found


def _roll_back(dropped: list[Transaction]) -> None:
    for each in dropped:
        with suppress(ScumbleError, OSError):
            each.end(committed=False)
