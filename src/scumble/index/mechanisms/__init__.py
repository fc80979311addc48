"""Mechanisms release the curve of a histogram: their interface, and the variance and tails of the noise that they add.

A new mechanism is a file beside this and a line in `index/file.py`, which knows all of them by name and by code.
Nothing here touches a row. A tree's shape, its noise scales and the bounds computed from them are public.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import exp, expm1, log
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scumble.index.curve import Histogram, NoisyCurve
from scumble.index.plan import Plan
from scumble.privacy.noise import Noise

__all__ = ["Halves", "Mechanism", "Tree", "chernoff_bound", "cumulant", "rates_below", "variance"]

FloatArray = NDArray[np.float64]


class Tree(Protocol):
    """PUBLIC: the shape of a tree over all ranks of a domain, and the noise of each of its levels."""

    @property
    def epsilon(self) -> Fraction:
        """What a release costs."""

    @property
    def levels(self) -> int:
        """How many levels of nodes are released. A row counts in one node of each."""

    def release(self, histogram: Histogram, noise: Noise | None = None) -> NoisyCurve:
        """Release the curve of a histogram. Neighbours: one row added or removed. Costs `epsilon`.

        The noise is fresh unless it is given.
        """

    def bound(self, beta: Fraction) -> int:
        """How far the noise moves any prefix, except with probability beta. Needs no data: docs/privacy.md 5.3."""


@dataclass(frozen=True, eq=False)
class Halves:
    """PUBLIC: curves side by side, two for each block: half j has the ranks from bounds[j] to before bounds[j + 1]."""

    bounds: NDArray[np.int64]
    curves: tuple[NoisyCurve, ...]
    levels: int


@dataclass(frozen=True)
class Mechanism:
    """A way to release the curve of a histogram for an epsilon.

    `release` makes the best curve it can, and may adapt to the data; the error of that curve is unknown until it is
    measured. `release_halves` does so for each half of so many blocks, if the mechanism can. `tree` gives the shape of
    a release whose error follows from the shape alone, as the paper's slack needs. `code` stands for it in index files:
    once released, it never changes its meaning.
    """

    name: str
    code: int
    tree: Callable[[int, Fraction], Tree]
    release: Callable[[Histogram, Fraction, Noise | None, Plan], NoisyCurve]
    release_halves: Callable[[Histogram, int, Fraction, Noise, Plan], Halves] | None = None


def variance(scale: Fraction) -> float:
    """The variance of discrete Laplace noise."""
    p = exp(-1 / scale)
    return 2 * p / (1 - p) ** 2


def cumulant(rates: FloatArray, scale: Fraction) -> FloatArray:
    """log E exp(rate X) of discrete Laplace noise: 2 log(1 - p) - log(1 - p e^rate) - log(1 - p e^-rate)."""
    a = 1 / float(scale)
    return 2 * log(-expm1(-a)) - np.log(-np.expm1(rates - a)) - np.log(-np.expm1(-rates - a))


def rates_below(scale: Fraction) -> FloatArray:
    """The rates at which a Chernoff bound is evaluated: the cumulant is finite below 1/scale."""
    return np.linspace(0, 1 / float(scale), 2002)[1:-1]


def chernoff_bound(rates: FloatArray, prefixes: list[tuple[int, FloatArray]], beta: Fraction) -> int:
    """The least z whose Chernoff bound, added up over every prefix and both signs, stays below beta.

    `prefixes` lists how many prefixes have an error with the given cumulants at the rates.
    """

    def chance(z: float) -> float:
        return sum(2.0 * count * exp(float(np.min(cumulants - rates * z))) for count, cumulants in prefixes)

    low, high = 0, 1
    while chance(high) > beta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if chance(middle) > beta else (low, middle)
    return high
