"""Leases: the right to write to a database, held by one session at a time.

A lease ends when its session gives it back, or has been silent for a minute, so that a client that vanishes in the
middle of a load does not keep others waiting. While one of its requests is under way, a session is not silent. Nobody
can keep it for ever: an owner takes it from an analyst as soon as no request of the analyst's is under way, and after
its longest life anybody may. An owner's change of rights needs none.

What a load has built waits for its client's signature. A service that is stopping waits for it too, but not for long.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from scumble.errors import Busy
from scumble.store.protocol import Store

__all__ = ["LEASE_SECONDS", "LONGEST_SECONDS", "OWNER", "Leases"]

LEASE_SECONDS = 60.0
LONGEST_SECONDS = 1800.0
OWNER = 2  # the rank of an owner's session; an analyst's who may load is 1
STEP_SECONDS = 0.05


class Leases:
    """Which session may write to one store."""

    def __init__(
        self, store: Store, lease_seconds: float = LEASE_SECONDS, longest_seconds: float = LONGEST_SECONDS
    ) -> None:
        self._store, self._lease_seconds, self._longest_seconds = store, lease_seconds, longest_seconds
        self._turn = threading.Lock()
        self._committing = threading.Lock()
        self._rank = 0
        self._since = 0.0
        self._holder: int | None = None
        self._held: AbstractContextManager[None] | None = None
        self._at_work = 0
        self._leaving = False
        self._seen = 0.0
        self._answered = 0.0  # when the holder's last request was; a lease that is renewed does not change it
        self._unsigned = False  # the holder has built a run that no version has yet
        self._last = False  # the holder has begun its last request

    def take(self, session: int, busy_seconds: float, rank: int = OWNER) -> None:
        """Give a session the lease, or renew it; Busy if another one keeps it for `busy_seconds`."""
        deadline = time.monotonic() + busy_seconds
        while True:
            with self._turn:
                if self._holder == session and not self._leaving:
                    self._seen = time.monotonic()
                    return
                self._end_if_lapsed()
                self._leaving = self._leaving or self._is_due(rank)
                self._end_if_left()
                if self._holder is None and self._hold(session, rank):
                    return
            if time.monotonic() >= deadline:
                raise Busy("another load is writing to the database", hint="try again when it is done; queries go on")
            time.sleep(STEP_SECONDS)

    def give_back(self, session: int) -> None:
        """End a session's lease, if it has it, once no request of it is under way. What is not committed goes."""
        with self._turn:
            if self._holder == session:
                self._leaving = True
                self._end_if_left()

    @contextmanager
    def at_work(self, session: int) -> Iterator[bool]:
        """While a request of a session is under way: whether it may write. A lease does not lapse meanwhile."""
        with self._turn:
            writing = self._holder == session and not self._leaving
            self._at_work += writing
        try:
            yield writing
        finally:
            if writing:
                with self._turn:
                    self._at_work -= 1
                    self._seen = self._answered = time.monotonic()
                    self._end_if_left()

    def built(self, session: int | None) -> None:
        """A session has written a whole run: its client is about to sign a version that has it."""
        with self._turn:
            self._unsigned = self._unsigned or (self._holder == session and not self._last)

    def unfinished(self, seconds: float) -> bool:
        """Whether the holder is at work, or has been answered in the last `seconds` and may sign what it has built."""
        with self._turn:
            return self._holder is not None and (self._at_work > 0 or self._may_sign(seconds))

    def last_request(self, session: int, seconds: float) -> bool:
        """Whether a session may send one more request, its last, to sign what it has built: see `unfinished`."""
        with self._turn:
            if self._holder != session or self._leaving or self._at_work or not self._may_sign(seconds):
                return False
            self._unsigned, self._last = False, True
            return True

    def commit(self, session: int | None, store: Callable[[], None]) -> None:
        """Store a version for a session: the holder of the lease, or an owner who changes rights; Busy for None.

        One at a time: whichever comes second is no longer the next version, and is refused by the store.
        """
        if session is None:
            raise Busy("the database is not held for writing", hint="another load may have taken its place: try again")
        with self._committing:
            with self._turn:
                held = self._holder is None and self._hold(session, OWNER)
                if self._holder is None:
                    raise Busy("another process is writing to the database", hint="try again when it is done")
                self._at_work += 1
            try:
                store()
                with self._turn:
                    self._unsigned = self._unsigned and self._holder != session
            finally:
                with self._turn:
                    self._at_work -= 1
                    self._leaving = self._leaving or held
                    self._end_if_left()

    def end_if_lapsed(self) -> None:
        """End a lease whose session has been silent for too long."""
        with self._turn:
            self._end_if_lapsed()

    def drop_unreferenced(self, session: int) -> int:
        """Delete the runs that no table has any more; Busy if the session may not write."""
        with self._turn:
            if self._holder != session or self._leaving:
                raise Busy("the database is not held for writing", hint="another load may have taken its place")
            return self._store.drop_unreferenced()

    def _is_due(self, rank: int) -> bool:
        """Whether the holder has to make room for a session of this rank."""
        if self._holder is None:
            return False
        return rank > self._rank or time.monotonic() - self._since > self._longest_seconds

    def _hold(self, session: int, rank: int) -> bool:
        """Become the store's writer without waiting: `_turn` is held, and every other request would wait too."""
        held = self._store.writer(0)
        try:
            held.__enter__()
        except Busy:  # another process has it: a backup, or another service
            return False
        self._holder, self._held, self._rank = session, held, rank
        self._seen = self._since = time.monotonic()
        self._unsigned = self._last = False
        return True

    def _may_sign(self, seconds: float) -> bool:
        return self._unsigned and time.monotonic() - self._answered < seconds

    def _end_if_lapsed(self) -> None:
        lapsed = time.monotonic() - self._seen > self._lease_seconds
        if self._holder is not None and lapsed and not self._at_work:
            self._end()

    def _end_if_left(self) -> None:
        if self._leaving and not self._at_work:
            self._end()

    def _end(self) -> None:
        held, self._holder, self._held, self._leaving = self._held, None, None, False
        if held is not None:
            held.__exit__(None, None, None)
