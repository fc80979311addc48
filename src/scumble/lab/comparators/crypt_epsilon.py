"""Crypt-epsilon (Roy Chowdhury et al.): the whole cumulative curve comes in, and goes out with independent noise.

The curve is secret, the noisy curve public. One row moves every later point of the curve, so the noise has to grow with
the domain; and nothing makes up for it, so lookups lose rows. That is what the paper shows of it, and what this file is
for.
"""

from fractions import Fraction

import numpy as np

from scumble.index.contract import Terms
from scumble.index.histogram import Histogram
from scumble.lab.comparators.refusals import check_memory, check_scale
from scumble.lab.comparators.two_curves import TwoCurves, TwoCurvesIndex
from scumble.privacy.noise import add_discrete_laplace

__all__ = ["CryptEpsilonIndex"]


class CryptEpsilonIndex(TwoCurvesIndex):
    """A noisy cumulative curve, looked up as if it were the true one. Loses rows; `beta` promises nothing here.

    Without a capacity, lookups end at the largest value of the noisy curve: public, but no bound on the rows.
    """

    name = "Crypt-epsilon"

    def _check(self, terms: Terms) -> None:
        check_scale(_scale(terms))
        check_memory(8 * terms.domain.size)

    def _build(self, histogram: Histogram, terms: Terms) -> TwoCurves:
        """Release the curve with noise on each of its N points.

        Sensitivity: N in L1, since a row of the first rank moves every point by 1; neighbours: one row added or
        removed; cost: epsilon; the paper's section 2 and appendix A.1; docs/privacy.md 8.1.
        """
        curve = np.cumsum(histogram.counts)
        add_discrete_laplace(curve, _scale(terms))
        capacity = max(0, int(curve.max())) if terms.capacity is None else terms.capacity
        return TwoCurves(terms.domain, curve, curve, capacity)


def _scale(terms: Terms) -> Fraction:
    return terms.domain.size / terms.epsilon
