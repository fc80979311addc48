"""Crypt-epsilon as the paper's experiments had it: one noisy histogram, summed up. LOSES ROWS.

The counts are secret; the noisy bins are public. It differs from `CryptEpsilonIndex`, which is what the paper
describes, in two ways: noise is added to bins rather than to points of the curve, so the error of a point is of the
order of sqrt(N)/epsilon; and a key is looked up by its place among the keys, as if every bin held one.
"""

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter
from scumble.index.contract import Terms
from scumble.index.curve import Histogram
from scumble.lab.comparators.curves import TwoCurves, TwoCurvesIndex
from scumble.lab.comparators.limits import check_memory, check_scale
from scumble.privacy.noise import Noise, add_discrete_laplace
from scumble.types import Domain, ExplicitKeys

__all__ = ["CryptEpsilonPublishedIndex", "bins_of"]


class CryptEpsilonPublishedIndex(TwoCurvesIndex):
    """Crypt-epsilon as published: noise of scale 1/epsilon on each bin, summed. LOSES ROWS; `beta` promises nothing.

    There are as many bins as keys, of width ceil(range / keys), and the i-th key is looked up in the i-th bin. Where
    the keys have gaps, that is another key's bin, and a lookup finds nothing of its own: give the keys that occur as
    `ExplicitKeys`, as the paper does, to see it. Without gaps only the noise loses rows.
    """

    name, kind = "Crypt-epsilon, as published", "crypt-epsilon-published"

    def _check(self, terms: Terms) -> None:
        if isinstance(terms.domain, ExplicitKeys) and terms.domain.integers is None:
            raise InvalidParameter(
                "texts have no range that could be cut into bins", hint="list whole numbers, or take CryptEpsilonIndex"
            )
        check_scale(1 / terms.epsilon)
        check_memory(24 * terms.domain.size)

    def _build(self, histogram: Histogram, terms: Terms, noise: Noise) -> TwoCurves:
        """Release the histogram over the bins, and sum it up.

        Sensitivity: 1 in L1, since a row counts in one bin, and which one follows from the public domain; neighbours:
        one row added or removed; cost: epsilon; docs/privacy.md 8.1.
        """
        bins, scale = bins_of(terms.domain), 1 / terms.epsilon
        noisy = np.zeros(terms.domain.size, dtype=np.int64)
        np.add.at(noisy, bins, histogram.counts)
        add_discrete_laplace(noisy, scale, noise.stream(self.kind, scale, bins))
        curve = np.cumsum(noisy)
        capacity = max(0, int(curve.max())) if terms.capacity is None else terms.capacity
        return TwoCurves(terms.domain, curve, curve, capacity)


def bins_of(domain: Domain) -> NDArray[np.int64]:
    """The bin of every rank; public. Of a domain without a list, each rank has its own."""
    if not isinstance(domain, ExplicitKeys) or domain.integers is None:
        return np.arange(domain.size)
    # Unsigned, because the range of signed keys may exceed 63 bits.
    offsets = domain.integers.astype(np.uint64) - np.uint64(int(domain.keys[0]) % 2**64)
    width = max(1, -(-int(offsets[-1]) // domain.size))
    # The last bin takes in its upper end.
    bins: NDArray[np.int64] = np.minimum(offsets // np.uint64(width), np.uint64(domain.size - 1)).astype(np.int64)
    return bins
