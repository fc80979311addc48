"""Indexes that keep a number for every rank: Crypt-epsilon, SPECIAL and, for comparison, the exact curve.

A lookup starts where a lower curve stands before its first rank, and stops where an upper curve stands at its last. The
true curve is secret; what these indexes keep is public, noised by the first two and GIVEN AWAY by the exact index.
"""

from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scumble.errors import InvalidParameter
from scumble.index.contract import MOST_EPSILON, Positions, Terms, check_domain, check_request
from scumble.index.curve import Histogram
from scumble.index.slack import shift
from scumble.lab.comparators.limits import check_memory, check_scale
from scumble.lab.comparators.saved import MOST_POSITIONS, SavedIndex, State
from scumble.privacy.budget import Budget, Exact, show
from scumble.privacy.noise import Noise, add_discrete_laplace
from scumble.types import Domain

__all__ = ["CryptEpsilonIndex", "ExactIndex", "SpecialIndex", "TwoCurves", "TwoCurvesIndex"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TwoCurves(Positions):
    """PUBLIC: how many rows lie at or before each rank, estimated from below and from above.

    The curves are kept as released, neither monotone nor within bounds; a lookup is clipped to the capacity. They may
    be one and the same array.
    """

    domain: Domain
    lower: IntArray
    upper: IntArray
    capacity: int

    def start_after(self, rank: int) -> int:
        return int(self.lower[rank])

    def stop_at(self, rank: int) -> int:
        return int(self.upper[rank])

    def starts_after(self, ranks: IntArray) -> IntArray:
        return self.lower[ranks]

    def stops_at(self, ranks: IntArray) -> IntArray:
        return self.upper[ranks]

    @property
    def size_bytes(self) -> int:
        """The bytes of the curves, counted once if they are one."""
        return self.lower.nbytes + (0 if self.upper is self.lower else self.upper.nbytes)


class TwoCurvesIndex(SavedIndex):
    """An index whose lookups are answered by two curves."""

    numbers_per_rank = 2

    @property
    def curves(self) -> TwoCurves:
        positions = self.positions
        assert isinstance(positions, TwoCurves)  # noqa: S101  _build puts nothing else there
        return positions

    @property
    def size_bytes(self) -> int:
        """The bytes of what was released, eight for each number."""
        return self.curves.size_bytes

    @property
    def usual_slack(self) -> int:
        """Half of what lies between the curves."""
        curves = self.curves
        return round(float((curves.upper - curves.lower).mean()) / 2)

    def _state(self) -> State:
        curves = self.curves
        arrays = {"lower": curves.lower}
        if curves.upper is not curves.lower:
            arrays["upper"] = curves.upper
        return State({"capacity": curves.capacity}, arrays)

    @classmethod
    def _restored(cls, domain: Domain, state: State, terms: Terms | None) -> tuple[Self, TwoCurves]:
        lower = state.whole("lower", domain.size)
        upper = state.whole("upper", domain.size) if "upper" in state.arrays else lower
        return cls(), TwoCurves(domain, lower, upper, state.number("capacity", most=MOST_POSITIONS))

    def __repr__(self) -> str:
        state = "not fitted" if self._positions is None else f"{len(self.curves.lower)} ranks"
        return f"{type(self).__name__}() <{state}>"


class CryptEpsilonIndex(TwoCurvesIndex):
    """A noisy cumulative curve, looked up as if it were the true one. Loses rows; `beta` promises nothing here.

    One row moves every later point of the curve, so the noise has to grow with the domain, and nothing makes up for
    it: that is what the paper shows of it (Roy Chowdhury et al.).
    Without a capacity, lookups end at the largest value of the noisy curve: public, but no bound on the rows.
    """

    name, kind = "Crypt-epsilon", "crypt-epsilon"

    def _check(self, terms: Terms) -> None:
        check_scale(terms.domain.size / terms.epsilon)
        check_memory(8 * terms.domain.size)

    def _build(self, histogram: Histogram, terms: Terms, noise: Noise) -> TwoCurves:
        """Release the curve with noise on each of its N points.

        Sensitivity: N in L1, since a row of the first rank moves every point by 1; neighbours: one row added or
        removed; cost: epsilon; the paper's section 2 and appendix A.1; docs/privacy.md 8.1.
        """
        curve = np.cumsum(histogram.counts)
        scale = terms.domain.size / terms.epsilon
        add_discrete_laplace(curve, scale, noise.stream(self.kind, scale, len(curve)))
        capacity = max(0, int(curve.max())) if terms.capacity is None else terms.capacity
        return TwoCurves(terms.domain, curve, curve, capacity)


class SpecialIndex(TwoCurvesIndex):
    """Two noisy curves, below and above the true one (Wang et al.). Loses no row; (epsilon, delta)-DP.

    The noise is shifted so far that it almost certainly has the right sign, and truncated where it has not: twice
    Crypt-epsilon's noise, and a delta. `beta` is the chance that any of the 2N noises has to be truncated; the budget
    must bring the delta which that costs, (1 + e^epsilon) beta. Without a capacity, lookups end where the upper curve
    does: never before the last row.
    """

    name, kind = "SPECIAL", "special"
    needs_delta = True

    def chance_of_loss(self, beta: Fraction) -> Fraction:
        return Fraction(0)

    def _check(self, terms: Terms) -> None:
        needed = truncation_delta(terms.epsilon, terms.beta)
        if terms.delta < needed:
            raise InvalidParameter(
                f"SPECIAL needs a delta of {show(needed)} for one row",
                hint="state it as delta=..., or take a smaller beta",
            )
        check_scale(special_scale(terms))
        check_memory(24 * terms.domain.size)

    def _build(self, histogram: Histogram, terms: Terms, noise: Noise) -> TwoCurves:
        """Release the curve twice, each time with noise on all N points, shifted to one side and truncated there.

        Sensitivity: N in L1 for each of the two, which get half of epsilon each; neighbours: one row added or removed;
        cost: epsilon, and a delta of `truncation_delta`; the paper's section 2 and appendix A.1;
        docs/privacy.md 8.2.
        """
        scale, moved = special_scale(terms), special_shift(terms)
        curve = np.cumsum(histogram.counts)
        lower, upper = curve.copy(), curve.copy()
        for side, bound in (("lower", lower), ("upper", upper)):
            add_discrete_laplace(bound, scale, noise.stream(self.kind, side, scale, moved, len(bound)))
        lower -= moved
        upper += moved
        np.minimum(lower, curve, out=lower)
        np.maximum(upper, curve, out=upper)
        capacity = int(upper[-1]) if terms.capacity is None else terms.capacity
        return TwoCurves(terms.domain, lower, upper, capacity)


def truncation_delta(epsilon: Fraction, beta: Fraction) -> Fraction:
    """(1 + e^epsilon) beta, rounded up to 12 digits: what changing an event of probability beta costs at most."""
    up = Context(prec=50, rounding=ROUND_CEILING)
    growth = up.next_plus(up.exp(up.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator))))
    delta = (1 + Fraction(growth)) * beta
    return Fraction(Context(prec=12, rounding=ROUND_CEILING).divide(delta.numerator, delta.denominator))


def special_shift(terms: Terms) -> int:
    """The paper's mu: the least shift for which all 2N noises keep their sign with probability 1 - beta."""
    return shift(1 / special_scale(terms), terms.beta / (2 * terms.domain.size))


def special_scale(terms: Terms) -> Fraction:
    """N over half of epsilon: the two curves share it."""
    return 2 * terms.domain.size / terms.epsilon


class ExactIndex(TwoCurvesIndex):
    """The cumulative curve as it is. LEAKS every count: for comparison, on data that stays with its owner.

    No epsilon covers it, so it takes no budget: one that is given is refused, and cancelled. An exception is the
    largest epsilon there is, for tables: only a ledger that promises nothing can pay it. `beta` and `capacity` are
    checked as everywhere and change nothing.
    """

    name, kind = "exact (leaks)", "exact"

    def chance_of_loss(self, beta: Fraction) -> Fraction:
        return Fraction(0)

    def fit(
        self,
        keys: object,
        *,
        domain: Domain,
        budget: Budget | None = None,
        beta: Exact = 1e-6,
        capacity: int | None = None,
    ) -> Self:
        """Keep the exact positions of a column of keys. No budget: nothing here is private."""
        if budget is not None:
            return super().fit(keys, domain=domain, budget=budget, beta=beta, capacity=capacity)  # which refuses
        check_domain(domain)
        return self._keep(Histogram.of_ranks(domain.ranks(keys), domain.size), domain, beta, capacity)

    def fit_counts(
        self,
        counts: ArrayLike,
        *,
        domain: Domain,
        budget: Budget | None = None,
        beta: Exact = 1e-6,
        capacity: int | None = None,
    ) -> Self:
        """Keep the exact positions of a ready histogram. No budget: nothing here is private."""
        if budget is not None:
            return super().fit_counts(counts, domain=domain, budget=budget, beta=beta, capacity=capacity)
        check_domain(domain)
        return self._keep(Histogram.of_counts(counts, domain.size), domain, beta, capacity)

    def _keep(self, histogram: Histogram, domain: Domain, beta: Exact, capacity: int | None) -> Self:
        check_request(histogram, beta, capacity)
        check_memory(8 * domain.size)
        self._positions = _curves(histogram, domain, capacity)
        return self

    def _check(self, terms: Terms) -> None:
        if terms.epsilon < MOST_EPSILON:
            raise InvalidParameter(
                "an exact index takes no budget: it leaks, and no epsilon covers it",
                hint=f"leave the budget out; for a table, epsilon={MOST_EPSILON} says that nothing is promised",
            )
        check_memory(8 * terms.domain.size)

    def _build(self, histogram: Histogram, terms: Terms, noise: Noise) -> TwoCurves:
        return _curves(histogram, terms.domain, terms.capacity)

    @property
    def terms(self) -> Terms:
        """There are none: a refusal rather than an epsilon that would not be true."""
        raise InvalidParameter("an exact index has no privacy terms", hint="it leaks; no epsilon covers it")

    def __repr__(self) -> str:
        state = "not fitted" if self._positions is None else f"{len(self.curves.lower)} ranks"
        return f"ExactIndex() <LEAKS: exact positions, no privacy; {state}>"


def _curves(histogram: Histogram, domain: Domain, capacity: int | None) -> TwoCurves:
    curve = np.cumsum(histogram.counts)
    return TwoCurves(domain, curve, curve, int(curve[-1]) if capacity is None else capacity)
