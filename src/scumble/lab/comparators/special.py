"""SPECIAL (Wang et al.): the cumulative curve comes in, one curve that never lies above it and one never below go out.

The curve is secret, the two noisy ones are public. Their noise is shifted so far that it has the right sign all but
certainly, and truncated where it has not: no lookup ever loses a row, at the price of a delta and of twice
Crypt-epsilon's noise.
"""

from fractions import Fraction

import numpy as np

from scumble.errors import InvalidParameter
from scumble.index.contract import Terms
from scumble.index.histogram import Histogram
from scumble.index.slack import lossless_delta, shift
from scumble.lab.comparators.refusals import check_memory, check_scale
from scumble.lab.comparators.two_curves import TwoCurves, TwoCurvesIndex
from scumble.privacy.amounts import show
from scumble.privacy.noise import add_discrete_laplace

__all__ = ["SpecialIndex"]


class SpecialIndex(TwoCurvesIndex):
    """Two noisy curves, below and above the true one. Loses no row; (epsilon, delta)-DP.

    `beta` is the chance that any of the 2N noises has to be truncated; the budget must bring the delta which that
    costs, (1 + e^epsilon) beta. Without a capacity, lookups end where the upper curve does: never before the last row.
    """

    name = "SPECIAL"

    def _check(self, terms: Terms) -> None:
        needed = lossless_delta(terms.epsilon, terms.beta)
        if terms.delta < needed:
            raise InvalidParameter(
                f"SPECIAL needs a delta of {show(needed)} for one row",
                hint="give it to ledger.spend(..., delta=...), or take a smaller beta",
            )
        check_scale(_scale(terms))
        check_memory(24 * terms.domain.size)

    def _build(self, histogram: Histogram, terms: Terms) -> TwoCurves:
        """Release the curve twice, each time with noise on all N points, shifted to one side and truncated there.

        Sensitivity: N in L1 for each of the two, which get half of epsilon each; neighbours: one row added or removed;
        cost: epsilon, and a delta of `lossless_delta` for the truncation; the paper's section 2 and appendix A.1;
        docs/privacy.md 8.2.
        """
        scale, moved = _scale(terms), shift_rows(terms)
        curve = np.cumsum(histogram.counts)
        lower, upper = curve.copy(), curve.copy()
        add_discrete_laplace(lower, scale)
        add_discrete_laplace(upper, scale)
        lower -= moved
        upper += moved
        np.minimum(lower, curve, out=lower)
        np.maximum(upper, curve, out=upper)
        capacity = int(upper[-1]) if terms.capacity is None else terms.capacity
        return TwoCurves(terms.domain, lower, upper, capacity)


def shift_rows(terms: Terms) -> int:
    """The paper's mu: the least shift for which all 2N noises keep their sign with probability 1 - beta."""
    return shift(1 / _scale(terms), terms.beta / (2 * terms.domain.size))


def _scale(terms: Terms) -> Fraction:
    """N over half of epsilon: the two curves share it."""
    return 2 * terms.domain.size / terms.epsilon
