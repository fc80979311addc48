"""Whose turn it is: a fair queue for an enclave's places, and quotas on what one name may have at a time. PUBLIC.

Each request comes with a path of names, from its tenant down to its session, and gets a place when it is its turn. At
every step of the path the names take turns, so a tenant with one request waits for one of another tenant that has a
thousand, not for a thousand. Nothing here knows what is asked.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

__all__ = ["Path", "Quota", "Turns"]

K = TypeVar("K", bound=Hashable)

Path = tuple[Hashable, ...]
"""Names from the widest to the narrowest: the first is a tenant's, the last a session's."""


class Quota(Generic[K]):
    """So much for each name, and so much for all of them together."""

    def __init__(self, each: int, together: int) -> None:
        self._each, self._together = each, together
        self._used: Counter[K] = Counter()
        self.total = 0

    def take(self, name: K, amount: int = 1) -> bool:
        """Count an amount for a name, if it fits."""
        if self._used[name] + amount > self._each or self.total + amount > self._together:
            if not self._used[name]:
                del self._used[name]
            return False
        self._used[name] += amount
        self.total += amount
        return True

    def give_back(self, name: K, amount: int = 1) -> None:
        self._used[name] -= amount
        self.total -= amount
        if not self._used[name]:
            del self._used[name]

    def used(self, name: K) -> int:
        return self._used.get(name, 0)


class Waiting:
    """PUBLIC: one request that waits, and whether its turn has come: False if its client has gone instead."""

    __slots__ = ("path", "turn")

    def __init__(self, path: Path, turn: "asyncio.Future[bool]") -> None:
        self.path, self.turn = path, turn

    def end(self, *, come: bool) -> None:
        if not self.turn.done():
            self.turn.set_result(come)


class Turns:
    """Some places, for one event loop. A session has one at most, and no tenant takes the last one that is free.

    So what one tenant has under way, however long that takes, leaves a place for the next one's request.
    """

    def __init__(self, places: int) -> None:
        self._free, self._most_each = places, max(1, places - 1)
        self._held: Counter[Hashable] = Counter()
        self._sessions: set[Path] = set()
        self._queue = _Ring()

    async def take(self, path: Path, watch: Callable[[Callable[[], None]], None] = lambda leave: None) -> bool:
        """Wait for a place; False if the client has gone meanwhile, for which `watch` is given what to call."""
        if self._may(path):
            self._give(path)
            return True
        waiting = Waiting(path, asyncio.get_running_loop().create_future())
        self._queue.add(path, waiting)
        watch(lambda: waiting.end(come=False))
        try:
            come = await waiting.turn
        except asyncio.CancelledError:
            if waiting.turn.done() and not waiting.turn.cancelled() and waiting.turn.result():
                self.give_back(path)
            else:
                self._queue.remove(path, waiting)
            raise
        if not come:
            self._queue.remove(path, waiting)
        return come

    def give_back(self, path: Path) -> None:
        """End a request that had a place, and let the next ones have theirs."""
        self._free += 1
        self._held[path[0]] -= 1
        if not self._held[path[0]]:
            del self._held[path[0]]
        self._sessions.discard(path)
        while self._free:
            following = self._queue.next(self._may, self._has_room)
            if following is None:
                return
            self._give(following.path)
            following.end(come=True)

    def _may(self, path: Path) -> bool:
        return self._free > 0 and self._has_room(path[0]) and path not in self._sessions

    def _has_room(self, tenant: Hashable) -> bool:
        return self._held[tenant] < self._most_each

    def _give(self, path: Path) -> None:
        self._free -= 1
        self._held[path[0]] += 1
        self._sessions.add(path)


class _Ring:
    """Names that take turns, each with its own ring or, at the end of a path, its requests in order."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: dict[Hashable, _Ring | deque[Waiting]] = {}

    def add(self, path: Iterable[Hashable], waiting: Waiting) -> None:
        first, *rest = path
        if rest:
            ring = self._names.setdefault(first, _Ring())
            assert isinstance(ring, _Ring)  # noqa: S101  all paths have one length
            ring.add(rest, waiting)
        else:
            line = self._names.setdefault(first, deque())
            assert isinstance(line, deque)  # noqa: S101
            line.append(waiting)

    def remove(self, path: Iterable[Hashable], waiting: Waiting) -> None:
        """Take out a request wherever it waits."""
        first, *rest = path
        below = self._names.get(first)
        if isinstance(below, _Ring):
            below.remove(rest, waiting)
        elif below is not None and waiting in below:
            below.remove(waiting)
        if below is not None and not below:
            del self._names[first]

    def next(
        self, may: Callable[[Path], bool], looked_at: Callable[[Hashable], bool] = lambda name: True
    ) -> Waiting | None:
        """Take out the next request that may have a place, or None; the name it came under is last from now on."""
        for name, below in list(self._names.items()):
            if not looked_at(name):
                continue
            found = below.next(may) if isinstance(below, _Ring) else _first(below, may)
            if found is not None:
                del self._names[name]
                if below:
                    self._names[name] = below
                return found
        return None

    def __len__(self) -> int:
        return len(self._names)


def _first(line: deque[Waiting], may: Callable[[Path], bool]) -> Waiting | None:
    """The first in a line; one that has left, and will be taken out, is passed over."""
    found = next((waiting for waiting in line if not waiting.turn.done()), None)
    if found is None or not may(found.path):
        return None
    line.remove(found)
    return found
