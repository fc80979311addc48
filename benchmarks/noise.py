"""Figure 4: exact discrete Laplace samples a second on one core, and how many OpenDP draws in the same run.

OpenDP adds its noise to a list of Python integers and returns one; both conversions are a small part of its time.
"""

from fractions import Fraction

import numpy as np
import opendp.prelude as opendp

from benchmarks.figure import Figure, Size, one_core, say, seconds
from scumble.privacy.noise import discrete_laplace

__all__ = ["measure"]

SCALES = (Fraction(5), Fraction(50, 7), Fraction(21))
TARGET = 30e6
SIZES: dict[Size, tuple[int, int]] = {"full": (10**7, 10**5), "quick": (2 * 10**6, 3 * 10**4), "tiny": (10**5, 10**3)}


def measure(size: Size) -> Figure:
    """Our sampler and OpenDP's at the same scales."""
    ours_count, theirs_count = SIZES[size]
    figure = Figure("noise")
    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l1_distance(T="i64")
    zeros = np.zeros(theirs_count, dtype=np.int64).tolist()
    with one_core():
        for scale in SCALES:
            say(f"noise: scale {scale}")
            rate = ours_count / seconds(lambda scale=scale: discrete_laplace(scale, ours_count))  # type: ignore[misc]
            mechanism = opendp.m.make_laplace(*space, scale=float(scale))
            peer = theirs_count / seconds(lambda mechanism=mechanism: mechanism(zeros))  # type: ignore[misc]
            figure.add(
                f"exact noise at scale {scale}",
                f"{rate / 1e6:,.1f} million/s ({rate / peer:,.0f} times OpenDP's {peer / 1e6:.2f})",
                "≥ 30 million/s",
                rate >= TARGET,
            )
            figure.values[f"scale {scale}"] = {"samples_per_second": rate, "opendp_samples_per_second": peer}
    return figure
