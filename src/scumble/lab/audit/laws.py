"""The laws of noise, exactly: how likely a released value is beside a secret one, and what a release has lost.

SECRET values come in beside released ones, so a law is only for tables that are made up, as the audit's are. What goes
out is a logarithm of a probability as a sum of symbols: a rational part, and logarithms that nearly always cancel when
two tables are compared. So the loss of a release is a fraction, and "no more than epsilon" is decided without rounding.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import inf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["BoundLaw", "Chance", "GaussianLaw", "Impossible", "LaplaceLaw", "Law", "Loss", "rate_of"]

DIGITS = Context(prec=60)
WORD = 2**64
CLOSE = Decimal("1e-9")  # of a rate that is read off thresholds of 64 bits
IntArray = NDArray[np.int64]
Loss = Fraction | float
"""A difference of logarithms of probabilities: a fraction, or infinite."""
Symbol = tuple[str, Fraction, int]


@dataclass(frozen=True)
class Chance:
    """The logarithm of a probability: `rational`, and so many times the logarithm of each symbol.

    What lies at the edge of what the truth allows is `cut`: such events are what a delta pays for.
    """

    rational: Fraction = Fraction(0)
    symbols: Mapping[Symbol, int] = field(default_factory=dict)
    possible: bool = True
    cut: bool = False

    def minus(self, other: "Chance") -> Loss:
        """How much likelier this is: exactly wherever the symbols cancel, to 60 digits elsewhere; infinitely, if one of
        the two is impossible."""
        if not (self.possible and other.possible):
            return inf
        left = Counter(self.symbols)
        left.subtract(other.symbols)
        rest = sum((Fraction(_logarithm(symbol)) * times for symbol, times in left.items() if times), Fraction(0))
        return self.rational - other.rational + rest


@lru_cache(maxsize=4096)
def _logarithm(symbol: Symbol) -> Decimal:
    """Of 1 - p, of 1 + p, or of P(X <= n) = 1 - p^(n+1) / (1 + p), p being exp(-rate)."""
    kind, rate, count = symbol
    p, one = _power(rate, 1), Decimal(1)
    match kind:
        case "less":
            return DIGITS.ln(DIGITS.subtract(one, p))
        case "more":
            return DIGITS.ln(DIGITS.add(one, p))
        case _:
            beyond = DIGITS.divide(_power(rate, count + 1), DIGITS.add(one, p))
            return DIGITS.ln(DIGITS.subtract(one, beyond))


def _power(rate: Fraction, count: int) -> Decimal:
    return DIGITS.exp(DIGITS.divide(Decimal(-rate.numerator * count), Decimal(rate.denominator)))


class Law(Protocol):
    """How a released value is distributed around a secret one."""

    def chance(self, secret: IntArray, released: IntArray) -> Chance:
        """The logarithm of the probability of a release."""


@dataclass(frozen=True)
class LaplaceLaw:
    """Independent discrete Laplace noise on every entry: docs/privacy.md section 3. A rate of None is no noise."""

    rate: Fraction | None

    def chance(self, secret: IntArray, released: IntArray) -> Chance:
        """P(x) = (1 - p) / (1 + p) p^|x|, for each."""
        distance, count = int(np.abs(released - secret).sum()), len(secret)
        if self.rate is None:
            return Chance(possible=distance == 0)
        return Chance(-self.rate * distance, {("less", self.rate, 0): count, ("more", self.rate, 0): -count})


@dataclass(frozen=True)
class BoundLaw:
    """An upper bound, `slack.release_bound`: noise plus a shift, cut off at zero and, if lossless, at the truth."""

    rate: Fraction | None
    moved: int
    lossless: bool

    def chance(self, secret: IntArray, released: IntArray) -> Chance:
        """That of the noise, or of all noise that is cut off to the same value."""
        value, drawn = int(released[0]), int(released[0]) - self.moved - int(secret[0])
        if self.rate is None:
            return Chance(possible=drawn == 0)
        cut = self.lossless and drawn <= -self.moved
        if cut and drawn < -self.moved:
            return Chance(possible=False, cut=True)
        if value == 0 or cut:
            return self._tail(drawn, self.rate, cut=cut)
        return LaplaceLaw(self.rate).chance(np.zeros(1, np.int64), np.array([drawn]))

    def _tail(self, most: int, rate: Fraction, *, cut: bool) -> Chance:
        """P(X <= most)."""
        if most <= 0:
            return Chance(rate * most, {("more", rate, 0): -1}, cut=cut)
        return Chance(Fraction(0), {("up to", rate, most): 1}, cut=cut)


@dataclass(frozen=True)
class GaussianLaw:
    """Independent discrete Gaussian noise, whose constant is left out: it is the same for both tables."""

    variance: Fraction

    def chance(self, secret: IntArray, released: IntArray) -> Chance:
        """-x^2 / (2 sigma^2), for each."""
        squares = sum(int(distance) ** 2 for distance in released - secret)
        return Chance(-squares / (2 * self.variance))


class Impossible:
    """No release at all could have this shape."""

    def chance(self, secret: IntArray, released: IntArray) -> Chance:
        return Chance(possible=False)


def rate_of(scale: Fraction, thresholds: tuple[int, ...]) -> Fraction | None:
    """The rate of the noise that a sampler with these thresholds draws, for which it was asked at this scale.

    Threshold j is the leading word of the probability that digit j is 1. If all of them are those of the scale, the
    rate is 1/scale, exactly. If they are those of another one, the sampler does not do what it was asked for, and the
    rate is read off them. None if they fit no rate: what is drawn then is not discrete Laplace noise.
    """
    asked = 1 / scale
    if thresholds == _thresholds(asked, len(thresholds)):
        return asked
    bit = min(range(len(thresholds)), key=lambda bit: abs(thresholds[bit] - WORD // 10), default=None)
    if bit is None or not 0 < 4 * thresholds[bit] < WORD:
        return None
    root = DIGITS.sqrt(DIGITS.divide(Decimal(WORD - 4 * thresholds[bit]), Decimal(WORD)))
    rate = DIGITS.ln(DIGITS.divide(1 + root, 1 - root)) / 2**bit
    for word, other in zip(thresholds, _thresholds(Fraction(rate), len(thresholds)), strict=True):
        if abs(word - other) > CLOSE * (word + 1) + 1:
            return None
    return Fraction(rate)


def _thresholds(rate: Fraction, count: int) -> tuple[int, ...]:
    """By a formula of their own: q (1 - q) of q = 1 / (1 + e^(2^j rate))."""
    powers = [_power(rate, 2**bit) for bit in range(count)]
    return tuple(int(DIGITS.divide(power, DIGITS.power(1 + power, 2)) * WORD) for power in powers)
