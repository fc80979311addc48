"""When a stream sends, and how much: by fixed sizes at fixed times, or by noisy ones that the ledger has paid for.

In comes how many rows wait, which is SECRET; out comes nothing, or how many of them go into a batch and its capacity,
which the provider sees. A policy is asked at public times alone. One that spends epsilon sends everything that waits:
so a row counts in one batch, and the batches together cost what one does. docs/privacy.md section 11 has the proofs.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from scumble.errors import InvalidParameter
from scumble.index.slack import release_bound
from scumble.owner.indexes import capacity_cost
from scumble.privacy.budget import Exact, exact, show
from scumble.privacy.noise import Fact, Noise, discrete_laplace
from scumble.wire.catalog import UNIT_ROWS

__all__ = ["POLICIES", "Beat", "Collected", "Heartbeat", "Policy", "Threshold", "Timer", "policy_named"]

BETA = Fraction(1, 10**12)
MOST_ROWS = 1 << 30
SIZE_SHARE = Fraction(1, 2)  # of a threshold stream's epsilon; the tests have the rest
NO_ROWS = hashlib.sha256().digest()


class Beat(NamedTuple):
    """A batch to be sent: how many of the rows that wait, which is SECRET, and its public capacity."""

    rows: int
    capacity: int


@dataclass(frozen=True)
class Collected:
    """SECRET: the rows that wait for the batch of this name, and the secret from which noise is derived."""

    batch: str
    rows: int
    digest: Callable[[], bytes]
    noise_key: bytes

    def noise(self, purpose: str, terms: Fact, digest: bytes | None = None) -> Noise:
        """Noise for these rows; for no other rows on these terms, nor for these on other terms, is it ever drawn."""
        found = self.digest() if digest is None else digest
        return Noise.derived(self.noise_key, purpose, batch=self.batch, terms=terms, digest=found)


class Policy(ABC):
    """PUBLIC: when to send, and how much."""

    name: ClassVar[str]
    sends_always: ClassVar[bool] = True
    """Whether there is a batch at every tick."""
    rows_per_user: int = 1

    @cached_property
    def cost(self) -> tuple[Fraction, Fraction]:
        """The epsilon and delta of one user, for all batches of a stream together; zeros if it releases nothing."""
        return Fraction(0), Fraction(0)

    @property
    def terms(self) -> Fact:
        """What its noise depends on besides the rows. A stream on other terms is paid for anew."""
        return None

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """For people, and to be remembered."""

    @abstractmethod
    def due(self, collected: Collected, tick: int) -> Beat | None:
        """What to send at a public time of this number, if anything."""

    @abstractmethod
    def sized(self, collected: Collected) -> Beat:
        """What to send if the owner asks for a batch."""

    def with_rows(self, rows: int) -> "Policy":
        """The same with other `rows`: a public change."""
        raise InvalidParameter(
            f"the size of a {self.name} stream's batches is not given", hint="only a heartbeat's can be changed"
        )


@dataclass(frozen=True)
class Heartbeat(Policy):
    """At every tick a batch for `rows` rows, full or not: what waits beyond that waits for the next one.

    Nothing is released: times and sizes are public constants; docs/privacy.md section 11.1.
    """

    name = "heartbeat"
    rows: int

    @property
    def settings(self) -> dict[str, Any]:
        return {"policy": self.name, "rows": self.rows}

    def due(self, collected: Collected, tick: int) -> Beat:
        return self.sized(collected)

    def sized(self, collected: Collected) -> Beat:
        return Beat(min(collected.rows, self.rows), self.rows)

    def with_rows(self, rows: int) -> "Heartbeat":
        return Heartbeat(_whole_units(rows))


@dataclass(frozen=True)
class Timer(Policy):
    """At every tick everything that waits, in a batch of a noisy size that is never too small.

    Sensitivity: 1, in the one tick that a row is in; neighbours: one row added or removed; cost: epsilon, and the delta
    of noise that is cut off where rows would have no room; docs/privacy.md section 11.2.
    """

    name = "timer"
    epsilon: Fraction
    rows_per_user: int = 1

    @cached_property
    def cost(self) -> tuple[Fraction, Fraction]:
        return capacity_cost(self.epsilon, BETA, self.rows_per_user)

    @property
    def terms(self) -> Fact:
        return (self.name, self.epsilon, BETA, self.rows_per_user)

    @property
    def settings(self) -> dict[str, Any]:
        return {"policy": self.name, "epsilon": show(self.epsilon), "rows_per_user": self.rows_per_user}

    @property
    def size_epsilon(self) -> Fraction:
        """What the size of a batch costs one row."""
        return self.epsilon / self.rows_per_user

    def due(self, collected: Collected, tick: int) -> Beat | None:
        return self.sized(collected)

    def sized(self, collected: Collected) -> Beat:
        words = collected.noise("stream size", self.terms).stream("rows")
        released = release_bound(np.array([collected.rows]), self.size_epsilon, BETA, lossless=True, words=words)
        return Beat(collected.rows, _padded(released))


@dataclass(frozen=True)
class Threshold(Timer):
    """At the first tick where about `rows` rows wait, everything that waits, in a batch of a noisy size.

    The sparse vector technique, begun anew with every batch: the threshold gets noise once for each batch, the number
    that waits at every tick. Sensitivity: 1, in the ticks up to the batch that a row is in; neighbours: one row added
    or removed; cost: half of epsilon for the tests, which a row passes in one direction, and half, with its delta, for
    the size; docs/privacy.md section 11.3.
    """

    name = "threshold"
    sends_always = False
    rows: int = UNIT_ROWS

    @cached_property
    def cost(self) -> tuple[Fraction, Fraction]:
        return capacity_cost(self.epsilon, BETA, self.rows_per_user, SIZE_SHARE)

    @property
    def terms(self) -> Fact:
        return (self.name, self.epsilon, BETA, self.rows_per_user, self.rows)

    @property
    def settings(self) -> dict[str, Any]:
        return {**super().settings, "rows": self.rows}

    @property
    def size_epsilon(self) -> Fraction:
        return self.epsilon * SIZE_SHARE / self.rows_per_user

    @property
    def test_epsilon(self) -> Fraction:
        """What all tests up to a batch cost one row."""
        return self.epsilon * (1 - SIZE_SHARE) / self.rows_per_user

    def due(self, collected: Collected, tick: int) -> Beat | None:
        return self.sized(collected) if self._is_above(collected, tick) else None

    def _is_above(self, collected: Collected, tick: int) -> bool:
        scale = 1 / self.test_epsilon
        # The threshold's noise is the batch's, whatever rows it will have: it stays as it is over restarts, too.
        threshold = collected.noise("stream threshold", self.terms, NO_ROWS).stream("threshold")
        test = collected.noise("stream test", self.terms).stream("test", tick)
        moved = self.rows + int(discrete_laplace(scale, 1, threshold)[0])
        return collected.rows + int(discrete_laplace(scale, 1, test)[0]) >= moved


POLICIES: dict[str, type[Policy]] = {kind.name: kind for kind in (Heartbeat, Timer, Threshold)}


def policy_named(name: str, *, rows: int, epsilon: Exact | None, rows_per_user: int) -> Policy:
    """The policy that a stream was asked for; InvalidParameter if its terms make no sense."""
    if name not in POLICIES:
        raise InvalidParameter(f"there is no policy {name!r}", hint=f"choose one of {', '.join(POLICIES)}")
    if name == Heartbeat.name:
        if epsilon is not None:
            raise InvalidParameter("a heartbeat releases nothing, and costs no epsilon", hint="leave epsilon out")
        return Heartbeat(_whole_units(rows))
    if epsilon is None:
        raise InvalidParameter(f"a {name} stream needs an epsilon", hint="epsilon=0.1, or --epsilon 0.1")
    amount = exact(epsilon, "epsilon")
    if rows_per_user < 1:
        raise InvalidParameter("a user has at least one row", hint="rows_per_user=1")
    found = (
        Timer(amount, rows_per_user) if name == Timer.name else Threshold(amount, rows_per_user, _checked_rows(rows))
    )
    _ = found.cost  # refuses an epsilon that no noise can be drawn for
    return found


def _checked_rows(rows: int) -> int:
    if not 1 <= rows <= MOST_ROWS:
        raise InvalidParameter(f"rows must lie between 1 and {MOST_ROWS:,}", hint=f"{UNIT_ROWS} is usual")
    return rows


def _whole_units(rows: int) -> int:
    return _padded(_checked_rows(rows))


def _padded(rows: int) -> int:
    """A capacity: rounded up to whole units, and at least one."""
    return max(1, -(-rows // UNIT_ROWS)) * UNIT_ROWS
