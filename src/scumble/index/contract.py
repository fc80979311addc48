"""The contract of every index, private or not: fit it to keys for a budget, then look up position ranges.

The keys are secret, the fitted index is public. What all of them share is here: refusals, which cost nothing; drawing
the budget before any noise; lookups; and, for the owner of the data, how lookups compare with the truth.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scumble.errors import BudgetError, BudgetUsed, InvalidParameter, NotFitted
from scumble.index.curve import MAX_ROWS, Histogram
from scumble.privacy.budget import Budget, Exact, exact
from scumble.privacy.noise import Noise
from scumble.types import Domain

if TYPE_CHECKING:
    from scumble.index.blocks import Blocks

__all__ = [
    "POINT",
    "Index",
    "Outcome",
    "PositionRange",
    "Positions",
    "RunIndex",
    "Terms",
    "check_beta",
    "check_count",
    "check_domain",
    "check_request",
    "check_row_epsilon",
]


IntArray = NDArray[np.int64]


class _Point:
    """The type of POINT: a lookup of one key rather than of a range."""

    def __repr__(self) -> str:
        return "POINT"


POINT = _Point()


class PositionRange(NamedTuple):
    """Positions start, start + 1, ..., stop - 1 of the rows sorted by key, or laid out in blocks."""

    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start


class Positions(ABC):
    """PUBLIC: what answers lookups once an index is fitted."""

    domain: Domain
    capacity: int

    @abstractmethod
    def starts_after(self, ranks: IntArray) -> IntArray:
        """Where lookups start whose first rank follows each of these, in a new array; clipped by the caller."""

    @abstractmethod
    def stops_at(self, ranks: IntArray) -> IntArray:
        """Where lookups stop whose last rank is each of these, in a new array; clipped by the caller."""

    def unsafe_rows_below(self, counts: IntArray, places: IntArray) -> IntArray:
        """SECRET: how many rows lie before each of these positions, if each rank has so many of them."""
        below: IntArray = np.minimum(places, counts.sum())
        return below

    def start_after(self, rank: int) -> int:
        return int(self.starts_after(np.array([rank]))[0])

    def stop_at(self, rank: int) -> int:
        return int(self.stops_at(np.array([rank]))[0])

    def lookup(self, low: object, high: object = POINT) -> PositionRange:
        """The positions that hold every row with low <= key <= high, or key == low if no high is given."""
        first, last = self.domain.span(low, low if high is POINT else high)
        if last < first:
            return PositionRange(0, 0)
        stop = min(max(0, self.stop_at(last)), self.capacity)
        start = self.start_after(first - 1) if first else 0
        return PositionRange(min(max(0, start), stop), stop)

    def lookup_many(self, lows: ArrayLike, highs: ArrayLike | None = None) -> tuple[IntArray, IntArray]:
        """The same for many ranges at once, or many points if no highs are given: starts and stops."""
        return self.of_ranks(*self.domain.spans(lows, lows if highs is None else highs))

    def of_ranks(self, firsts: IntArray, lasts: IntArray) -> tuple[IntArray, IntArray]:
        """The same for ranges of ranks; one whose last lies before its first is empty."""
        stops = self.stops_at(np.maximum(lasts, 0))
        np.clip(stops, 0, self.capacity, out=stops)
        stops *= lasts >= firsts
        # Before the first rank lie no rows: evaluated at rank 0 all the same, then masked, to keep one pass for all.
        starts = self.starts_after(np.maximum(firsts - 1, 0))
        starts *= firsts > 0
        np.clip(starts, 0, stops, out=starts)
        return starts, stops


class RunIndex(Positions):
    """PUBLIC: what a run's catalog entry holds: what answers lookups, what it cost, and what it promises.

    `beta` bounds the chance that any lookup at all loses a row: 1 if nothing is promised, 0 if none ever does. In
    `blocks`, positions are those of rows that are laid out so, and not of the sorted rows.
    """

    epsilon: Fraction
    delta: Fraction
    beta: Fraction
    mechanism: str
    blocks: "Blocks | None"

    @property
    @abstractmethod
    def usual_slack(self) -> int:
        """What each end of a lookup is widened by, on average."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Its file, from which `index/kinds.py` reads it back."""

    def extra_rows(self, ranks: Sequence[tuple[int, int]], lookups: int) -> int:
        """About how many rows beyond their answers so many lookups read, those of these ranges of ranks among them."""
        return 2 * self.usual_slack * lookups


# Beyond 320 the tables of the paper's bound would have no cell, beyond 745 a variance would underflow to nothing.
LEAST_EPSILON, MOST_EPSILON = Fraction(1, 2**20), Fraction(2**8)
LEAST_BETA = Fraction(1, 10**300)  # below, a Chernoff bound in floats would underflow to certainty


@dataclass(frozen=True)
class Terms:
    """PUBLIC: what a fit was asked for, and what it may spend on one row added or removed."""

    domain: Domain
    epsilon: Fraction
    delta: Fraction
    beta: Fraction
    capacity: int | None
    charged_epsilon: Fraction
    charged_delta: Fraction


@dataclass(frozen=True, eq=False)
class Outcome:
    """SECRET: for each of many lookups, how many rows answer it, are missed, and are read in all."""

    rows: IntArray
    missed: IntArray
    read: IntArray

    @property
    def extra(self) -> IntArray:
        """Rows read that do not answer the query."""
        return self.read - (self.rows - self.missed)


class Index(ABC):
    """A map from keys to positions of the rows sorted by key."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self._terms: Terms | None = None
        self._positions: Positions | None = None

    def fit(
        self, keys: object, *, domain: Domain, budget: Budget, beta: Exact = 1e-6, capacity: int | None = None
    ) -> Self:
        """Learn the index of a column of keys.

        What can be refused is refused before the budget is drawn, and the budget then cancelled.
        """
        with _refusals_cost_nothing(budget):
            check_domain(domain)
            histogram = Histogram.of_ranks(domain.ranks(keys), domain.size)
            terms = self._agree(histogram, domain, budget, beta, capacity)
        return self._fitted(histogram, terms, Noise.fresh())

    def fit_counts(
        self, counts: ArrayLike, *, domain: Domain, budget: Budget, beta: Exact = 1e-6, capacity: int | None = None
    ) -> Self:
        """Learn the index of a ready histogram: one count for every rank of the domain.

        For tables larger than memory.
        """
        return self.unsafe_fit_counts(counts, Noise.fresh(), domain=domain, budget=budget, beta=beta, capacity=capacity)

    def unsafe_fit_counts(
        self,
        counts: ArrayLike,
        noise: Noise,
        *,
        domain: Domain,
        budget: Budget,
        beta: Exact = 1e-6,
        capacity: int | None = None,
    ) -> Self:
        """Do as `fit_counts`, with noise that was derived: from these rows, or the release would not be private.

        For the enclave, which counts obliviously, and must release the same again for the same rows.
        """
        with _refusals_cost_nothing(budget):
            check_domain(domain)
            histogram = Histogram.of_counts(counts, domain.size)
            terms = self._agree(histogram, domain, budget, beta, capacity)
        return self._fitted(histogram, terms, noise)

    def _agree(self, histogram: Histogram, domain: Domain, budget: Budget, beta: Exact, capacity: int | None) -> Terms:
        """Refuse whatever would make the build fail after the budget is drawn; then draw it."""
        chance = check_request(histogram, beta, capacity)
        terms = Terms(domain, budget.row_epsilon, budget.row_delta, chance, capacity, budget.epsilon, budget.delta)
        self.check(terms)
        budget.draw()
        return terms

    def _fitted(self, histogram: Histogram, terms: Terms, noise: Noise) -> Self:
        self._positions = self._build(histogram, terms, noise)
        self._terms = terms
        return self

    def check(self, terms: Terms) -> None:
        """Refuse what a fit on these terms would refuse. Nothing is spent."""
        check_row_epsilon(terms.epsilon)
        self._check(terms)

    @abstractmethod
    def _check(self, terms: Terms) -> None:
        """Refuse what this kind of index cannot do: nothing has been spent yet."""

    @abstractmethod
    def _build(self, histogram: Histogram, terms: Terms, noise: Noise) -> Positions:
        """Release the index. The budget has been drawn: spend no more than terms.epsilon and terms.delta.

        All noise is drawn from streams of `noise`, one for each question.
        """

    @property
    def positions(self) -> Positions:
        if self._positions is None:
            raise NotFitted("this index has not been fitted", hint="call fit or fit_counts first")
        return self._positions

    @property
    def terms(self) -> Terms:
        if self._terms is None:
            raise NotFitted("this index has not been fitted", hint="call fit or fit_counts first")
        return self._terms

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """How much room the index itself takes, measured."""

    def unsafe_dummy_rows(self, counts: IntArray) -> int:
        """SECRET: how many dummy rows the data must hold for this index, given the true counts."""
        return 0

    def lookup(self, low: object, high: object = POINT) -> PositionRange:
        """The positions, among the rows sorted by key, that hold every row with low <= key <= high.

        Without `high`: with key == low. None for either end leaves it open.
        """
        return self.positions.lookup(low, high)

    def lookup_many(self, lows: ArrayLike, highs: ArrayLike | None = None) -> tuple[IntArray, IntArray]:
        """Starts and stops for many ranges at once; without `highs`, for many single keys."""
        return self.positions.lookup_many(lows, highs)

    def unsafe_outcome(self, counts: IntArray, firsts: IntArray, lasts: IntArray) -> Outcome:
        """SECRET: what lookups of the given ranks bring, against the true counts. For owners who compare indexes."""
        curve = np.concatenate([[0], np.cumsum(counts)])
        true_starts, true_stops = curve[firsts], curve[lasts + 1]
        starts, stops = self.positions.of_ranks(firsts, lasts)
        read_from, read_to = (self.positions.unsafe_rows_below(counts, ends) for ends in (starts, stops))
        found = np.maximum(0, np.minimum(read_to, true_stops) - np.maximum(read_from, true_starts))
        rows = true_stops - true_starts
        return Outcome(rows, rows - found, stops - starts)


@contextmanager
def _refusals_cost_nothing(budget: object) -> Iterator[None]:
    """Cancel the budget if what follows refuses: nothing has been drawn from it yet."""
    if not isinstance(budget, Budget):
        raise InvalidParameter("budget must come from a ledger", hint="budget=ledger.spend(1, 'salary')")
    if budget.state != "open":
        raise BudgetUsed("this budget has already been used or cancelled", hint="spend a new one for every fit")
    try:
        yield
    except BaseException:
        with suppress(BudgetError):  # busy, or drawn after all: then it stays spent, which is the safe side
            budget.cancel()
        raise


def check_domain(domain: object) -> None:
    """Refuse what is no domain."""
    if not isinstance(domain, Domain):
        raise InvalidParameter("domain must be a Domain", hint="IntegerDomain(0, 1000), or parse_domain('int:0:1000')")


def check_beta(beta: Exact) -> Fraction:
    """Refuse a beta that is no probability, or too small to compute with; return it."""
    chance = exact(beta, "beta")
    if not LEAST_BETA <= chance < 1:
        raise InvalidParameter("beta must lie between 1e-300 and 1", hint="it is a probability, such as 1e-6")
    return chance


def check_row_epsilon(epsilon: Fraction) -> None:
    """Refuse an epsilon for one row that is beyond what noise can be drawn for, or what it would be good for."""
    if not LEAST_EPSILON <= epsilon <= MOST_EPSILON:
        raise InvalidParameter(
            "epsilon for one row must lie between 2^-20 and 2^8", hint="values from 0.1 to 10 are usual"
        )


def check_request(histogram: Histogram, beta: Exact, capacity: int | None) -> Fraction:
    """Refuse a beta that is no probability and a capacity that does not hold the rows; return beta."""
    chance = check_beta(beta)
    if capacity is not None:
        check_count(capacity, "capacity")
        if capacity > MAX_ROWS or not histogram.fits(capacity):
            raise InvalidParameter("the rows do not fit the capacity", hint="give a larger one, below 2^36")
    return chance


def check_count(value: object, name: str) -> None:
    """Refuse what is not a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InvalidParameter(f"{name} must be a whole number of at least 1", hint=f"{name}=100, for example")
