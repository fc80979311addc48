"""Shelves: results and prepared statements wait here under a random handle, for the one client that they belong to.

How many there are, how many bytes and how long is limited: a client that goes away leaves nothing for ever. A handle of
another client, a wrong one and one whose time is over are refused in the same words.
"""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from scumble.errors import Busy, InvalidParameter, NotFound

__all__ = ["Shelf"]

HANDLE_BYTES = 16
T = TypeVar("T")


@dataclass
class _Place(Generic[T]):
    client: str
    thing: T
    size_bytes: int
    until: float


class Shelf(Generic[T]):
    """Things of one kind. Threads may share it."""

    def __init__(
        self, what: str, most: int, most_bytes: int, seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._what, self._most, self._most_bytes, self._seconds, self._now = what, most, most_bytes, seconds, now
        self._places: dict[bytes, _Place[T]] = {}
        self._turn = threading.Lock()

    def put(self, client: str, thing: T, size_bytes: int) -> bytes:
        """Keep a thing for a client; its handle."""
        if size_bytes > self._most_bytes:
            raise InvalidParameter(
                f"this {self._what} is larger than the gateway keeps", hint="ask for less at a time, or raise its limit"
            )
        handle = secrets.token_bytes(HANDLE_BYTES)
        with self._turn:
            self._sweep()
            if len(self._places) >= self._most or self.bytes_kept + size_bytes > self._most_bytes:
                raise Busy(
                    f"the gateway keeps no further {self._what} now: too many wait for their clients",
                    hint="try again later, close what you do not need, or raise the gateway's limits",
                )
            self._places[handle] = _Place(client, thing, size_bytes, self._now() + self._seconds)
        return handle

    def get(self, client: str, handle: bytes) -> T:
        """A client's thing, which then stays as long again."""
        with self._turn:
            place = self._find(client, handle)
            place.until = self._now() + self._seconds
            return place.thing

    def take(self, client: str, handle: bytes) -> T:
        """A client's thing, which is kept no longer."""
        with self._turn:
            thing = self._find(client, handle).thing
            del self._places[handle]
            return thing

    def replace(self, client: str, handle: bytes, thing: T, size_bytes: int) -> None:
        """Put another thing in the place of one."""
        with self._turn:
            place = self._find(client, handle)
            if self.bytes_kept - place.size_bytes + size_bytes > self._most_bytes:
                raise Busy(f"the gateway has no room for this {self._what}", hint="send less, or try again later")
            place.thing, place.size_bytes = thing, size_bytes

    def drop(self, client: str, handle: bytes) -> bool:
        """Keep a thing no longer; whether there was one."""
        try:
            self.take(client, handle)
        except NotFound:
            return False
        return True

    def sweep(self) -> None:
        """Let go of what nobody has asked for in time."""
        with self._turn:
            self._sweep()

    def clear(self) -> None:
        """Let go of everything."""
        with self._turn:
            self._places.clear()

    def __len__(self) -> int:
        return len(self._places)

    @property
    def bytes_kept(self) -> int:
        """How many bytes wait."""
        return sum(place.size_bytes for place in self._places.values())

    def _find(self, client: str, handle: bytes) -> _Place[T]:
        self._sweep()
        place = self._places.get(handle)
        if place is None or place.client != client:
            raise NotFound(
                f"there is no such {self._what}, or no longer",
                hint="each is kept for a limited time, a result until it is fetched once: ask again",
            )
        return place

    def _sweep(self) -> None:
        now = self._now()
        for handle in [handle for handle, place in self._places.items() if place.until <= now]:
            del self._places[handle]
