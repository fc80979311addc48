"""Streams as mechanisms: their output is when batches are sent, and for how many rows they have room.

A made-up stream is how many rows come before each tick; its neighbour has one row more before the first. It runs as any
stream does, by `owner/streams.py`, with a log in memory and a table that only notes what the provider would see. The
timer's noisy sizes can be replayed with the other stream. What a threshold compares is never released, so that its
losses are bounded by counting alone; `tests/owner/test_stream_policies.py` computes its law.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

import numpy as np

from scumble.index.slack import shift
from scumble.lab.audit.bound import Features
from scumble.lab.audit.run import IntArray, Observation, Observe, Subject, tapped
from scumble.owner.stream_policies import BETA, SIZE_SHARE, Policy, Threshold, Timer
from scumble.owner.stream_segments import LogState
from scumble.owner.streams import Stream
from scumble.wire.catalog import UNIT_ROWS

__all__ = ["BATCHES", "batches_of", "threshold", "timer"]

BATCHES = "the batches' times and sizes"
TICKS = 8  # in which the threshold is tested
ROWS = 300
EVERY = 1.0


class _MemoryLog:
    """A log that holds as many rows as it is told, and none of them."""

    def __init__(self) -> None:
        self.state, self.next_row = LogState("stream", os.urandom(16).hex()), 0

    @property
    def waiting(self) -> int:
        return self.next_row - self.state.sent

    @property
    def alive(self) -> int:
        return self.waiting

    has_changes = False

    def absorb(self, made: object) -> None:
        """Nobody changes what waits."""

    def append(self, rows: Sequence[object]) -> None:
        self.next_row += len(rows)

    def record(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)

    def sent(self, batch: str, time: float) -> None:
        pending = self.state.pending
        assert pending is not None  # noqa: S101  the stream has just sent it
        self.record(sent=pending.stop, last=batch, pending=None)

    def rows(self, first: int, stop: int) -> range:
        return range(first, stop)

    def digest(self, first: int, stop: int) -> bytes:
        return hashlib.sha256(f"{first} {stop}".encode()).digest()


class _SeenTable:
    """What the provider sees of a table: the capacities of the batches that come."""

    def __init__(self) -> None:
        self.noise_key = os.urandom(32)
        self.capacities: list[int] = []

    def checked(self, rows: object) -> object:
        return rows

    def empty(self) -> range:
        return range(0)

    def pay(self, stream: str, policy: Policy) -> None:
        """Pay nothing: the money is not what is audited here."""

    def held(self) -> AbstractContextManager[None]:
        return nullcontext()

    def is_made(self, change: object) -> bool:
        return False

    def insert(self, rows: Sequence[object], capacity: int, batch: str, streamed: object) -> None:
        assert len(rows) <= capacity  # noqa: S101  or rows were lost
        self.capacities.append(capacity)


def batches_of(policy: Policy, arrivals: IntArray) -> list[tuple[int, int]]:
    """PUBLIC, as the provider sees it: the tick and the capacity of each batch of a stream."""
    log, table = _MemoryLog(), _SeenTable()
    stream = Stream("t", cast(Any, log), cast(Any, table), policy, EVERY, told=lambda behind: None)
    seen: list[tuple[int, int]] = []
    for tick, rows in enumerate(arrivals.tolist()):
        stream.write(range(rows))
        stream.beat(tick)
        seen += [(tick, capacity) for capacity in table.capacities[len(seen) :]]
    if stream.status().stopped:
        raise RuntimeError(stream.status().trouble)
    return seen


def _rows_at_a_unit(epsilon: Fraction) -> int:
    """So many rows that, with one more, a batch without noise would have room for a unit more."""
    return 4 * UNIT_ROWS - shift(epsilon, BETA) % UNIT_ROWS


def timer(epsilon: Fraction) -> Subject:
    """Two ticks, the row in the first: the batches compose in parallel, if nothing waits for the next."""
    policy = Timer(epsilon)
    rows = _rows_at_a_unit(policy.size_epsilon)
    one = np.array([rows, rows])
    about = "the noisy sizes of a stream's batches"

    def features(batches: list[tuple[int, int]]) -> Features:
        return tuple(capacity for _, capacity in batches)

    return tapped(
        "stream-timer",
        about,
        epsilon,
        (one, one + np.array([1, 0])),
        lambda arrivals: batches_of(policy, arrivals),
        features,
        seen=BATCHES,
        delta=policy.cost[1],
    )


def threshold(epsilon: Fraction) -> Subject:
    """When the first batch is sent: rows that come at once, a few less than the threshold, which is then tested often.

    All tests up to a batch claim `epsilon`; the batch's size, which costs as much again, is the timer's.
    """
    policy, rows = Threshold(epsilon / (1 - SIZE_SHARE), 1, ROWS), ROWS - round(2 / epsilon)
    one = np.array([rows, *[0] * (TICKS - 1)])

    @contextmanager
    def opened() -> Iterator[Observe]:
        def observe(which: int) -> Observation:
            arrivals = one.copy()
            arrivals[0] += which
            batches = batches_of(policy, arrivals)
            return Observation({BATCHES: float(batches[0][0] if batches else TICKS)})

        yield observe

    return Subject("stream-threshold", "when a stream's batches are sent", epsilon, Fraction(0), opened)
