"""The exact index: keys come in, their exact positions go out. IT LEAKS.

The curve that it keeps is the secret itself; whoever sees the index, or one lookup, learns counts exactly. It shows
what an index without privacy reads and holds, so that the price of privacy can be told; nothing else may use it.
"""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from scumble.errors import InvalidParameter
from scumble.index.contract import Terms, check_domain, check_request
from scumble.index.histogram import Histogram
from scumble.lab.comparators.refusals import check_memory
from scumble.lab.comparators.two_curves import TwoCurves, TwoCurvesIndex
from scumble.privacy.amounts import Exact
from scumble.privacy.budget import Budget
from scumble.types import Domain

__all__ = ["ExactIndex"]


class ExactIndex(TwoCurvesIndex):
    """The cumulative curve as it is. LEAKS every count: for comparison, on data that stays with its owner.

    No epsilon covers it, so it takes no budget: one that is given is refused, and cancelled. `beta` and `capacity` are
    checked as everywhere and change nothing.
    """

    name = "exact (leaks)"

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
        raise InvalidParameter(
            "an exact index takes no budget: it leaks, and no epsilon covers it", hint="leave the budget out"
        )

    def _build(self, histogram: Histogram, terms: Terms) -> TwoCurves:
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
