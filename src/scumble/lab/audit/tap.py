"""A tap on the noise: how likely are the releases of a build on one table, compared with another table?

SECRET: a reading holds a true value beside the noisy one, so a tap is only for tables that are made up, as the audit's
are. Every vector that gets noise is seen on its way, whatever code asked for it. To learn how likely the same outputs
are with the other table, the build is run on that table once more with these outputs forced upon it: so releases that
depend on earlier ones (cells after a scout, the slack after the segments) are judged by what they really depend on.

The tap replaces functions for the length of a block. `privacy/noise.py` offers no hook for it on purpose: one that can
see true values and force outputs would be a hole in the code that an enclave is measured by.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import exp, inf, log1p
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from scumble.index import slack
from scumble.lab.comparators import trained, training
from scumble.owner import loading
from scumble.privacy import noise

__all__ = ["BoundLaw", "Comparison", "GaussianLaw", "LaplaceLaw", "Reading", "Tap", "replaced"]

CERTAIN = 1000.0  # a log-likelihood ratio where one of the tables cannot have led to the output at all
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Build = Callable[[IntArray], object]


class Law(Protocol):
    """How a released value is distributed around a secret one, as the code that released it claims."""

    def log_chance(self, secret: IntArray, released: IntArray) -> float:
        """The logarithm of the probability of a release."""


@dataclass(frozen=True)
class LaplaceLaw:
    """Independent discrete Laplace noise on every entry: docs/privacy.md section 3."""

    scale: Fraction

    def log_chance(self, secret: IntArray, released: IntArray) -> float:
        """P(x) = (1 - p) / (1 + p) p^|x|, for each."""
        rate = 1 / float(self.scale)
        p = exp(-rate)
        return len(secret) * (log1p(-p) - log1p(p)) - rate * float(np.abs(released - secret).sum())


@dataclass(frozen=True)
class BoundLaw:
    """An upper bound, `slack.release_bound`: noise plus a shift, cut off at zero and, if lossless, at the truth."""

    epsilon: Fraction
    beta: Fraction
    lossless: bool

    def log_chance(self, secret: IntArray, released: IntArray) -> float:
        """That of the noise, or of all noise that is cut off to the same value."""
        rate, moved = float(self.epsilon), _shift(self.epsilon, self.beta)
        p, value = exp(-rate), int(released[0])
        drawn = value - moved - int(secret[0])
        if self.lossless and drawn < -moved:
            return -inf
        if value == 0 or (self.lossless and drawn == -moved):
            return _log_tail(drawn, rate)
        return log1p(-p) - log1p(p) - rate * abs(drawn)


@lru_cache(maxsize=256)
def _shift(epsilon: Fraction, beta: Fraction) -> int:
    return slack.shift(epsilon, beta)


def _log_tail(most: int, rate: float) -> float:
    """log P(X <= most)."""
    p = exp(-rate)
    return rate * most - log1p(p) if most <= 0 else log1p(-(p ** (most + 1)) / (1 + p))


@dataclass(frozen=True)
class GaussianLaw:
    """Independent discrete Gaussian noise, whose constant is left out: it is the same for both tables."""

    variance: Fraction

    def log_chance(self, secret: IntArray, released: IntArray) -> float:
        """-x^2 / (2 sigma^2), for each."""
        return -float(np.square((released - secret).astype(np.float64)).sum()) / (2 * float(self.variance))


@dataclass(frozen=True, eq=False)
class Reading:
    """SECRET: one release as it happened."""

    law: Law
    secret: IntArray
    released: IntArray


class Comparison(NamedTuple):
    """Of one build: log P(released | second table) - log P(released | first); Gaussian releases alone; its output.

    The tables are made up, so none of it is secret.
    """

    ratio: float
    gaussian: float
    output: object


class Tap:
    """Listens to every release while it is installed. One at a time, and in one thread.

    With `fixed`, no release depends on an earlier one: then one replay is enough for all runs.
    """

    def __init__(self, *, fixed: bool = False) -> None:
        self._fixed, self._known = fixed, dict[int, list[tuple[Law, IntArray]]]()
        self._readings: list[Reading] = []
        self._forced: list[IntArray] | None = None
        self._within = False

    @contextmanager
    def installed(self) -> Iterator["Tap"]:
        """Listen, until the end of the block, to the noise as it is now: planted defects included."""
        vector, gradient = noise._add_from_stream, training.noisy_gradient
        with ExitStack() as stack:
            enter = stack.enter_context
            enter(replaced(noise, "_add_from_stream", lambda *given: self._vector(vector, *given)))
            enter(replaced(training, "noisy_gradient", lambda *given: self._gradient(gradient, *given)))
            for module in (slack, trained, loading):
                enter(replaced(module, "release_bound", self._listening(module.release_bound)))
            yield self

    def compare(
        self, build: Build, tables: tuple[IntArray, IntArray], which: int, again: Build | None = None
    ) -> Comparison:
        """Run a build on one of two tables, and on the other as if the same had been released.

        `again` is what runs on the other, if not everything that the build does has to do with noise.
        """
        here, output = self._run(build, tables[which], None)
        there = self._replayed(again or build, tables[1 - which], which, here)
        sign = 1 if which else -1
        if len(here) != len(there):
            return Comparison(sign * CERTAIN, sign * CERTAIN, output)
        parts = [
            (reading.law, _difference(reading, law, secret)) for reading, (law, secret) in zip(here, there, strict=True)
        ]
        whole = sum(part for _, part in parts)
        gaussian = sum(part for law, part in parts if isinstance(law, GaussianLaw))
        return Comparison(sign * _within(whole), sign * _within(gaussian), output)

    def _replayed(self, build: Build, table: IntArray, which: int, here: list[Reading]) -> list[tuple[Law, IntArray]]:
        """The laws and true values with the other table. If they are fixed, one replay is enough."""
        if which in self._known:
            return self._known[which]
        there, _ = self._run(build, table, [reading.released for reading in here])
        found = [(reading.law, reading.secret) for reading in there]
        if self._fixed:
            self._known[which] = found
        return found

    def _run(self, build: Build, table: IntArray, forced: list[IntArray] | None) -> tuple[list[Reading], object]:
        self._readings, self._forced = [], forced
        output = build(table)
        return self._readings, output

    def _take(self, law: Law, secret: IntArray, draw: Callable[[], IntArray]) -> IntArray:
        """Draw a release, or repeat the one that is forced, and keep a reading of it."""
        place = len(self._readings)
        if self._forced is not None and place < len(self._forced) and len(self._forced[place]) == len(secret):
            released = self._forced[place]
        else:
            self._within = True
            try:
                released = draw()
            finally:
                self._within = False
            if self._forced is not None:  # the other table would have released something of another shape
                law = _Impossible()
        self._readings.append(Reading(law, secret, released))
        return released

    def _vector(self, original: Any, values: IntArray, scale: Fraction, words: Any) -> None:
        if self._within:
            original(values, scale, words)
            return
        secret = values.copy()

        def draw() -> IntArray:
            original(values, scale, words)
            return values.copy()

        values[:] = self._take(LaplaceLaw(scale), secret, draw)

    def _listening(self, original: Any) -> Any:
        def bound(
            deviation: IntArray, epsilon: Fraction, beta: Fraction, *, lossless: bool, words: noise.Words | None = None
        ) -> int:
            def draw() -> IntArray:
                return np.array([original(deviation, epsilon, beta, lossless=lossless, words=words)])

            released = self._take(BoundLaw(epsilon, beta, lossless), deviation.copy(), draw)
            return int(released[0])

        return bound

    def _gradient(self, original: Any, examples: Any, scale_rows: int, response: Any, recipe: Any) -> Any:
        if recipe.sensitivity == "clip":
            gradient = training.clipped_sum(examples, scale_rows, response, recipe.clip)
        else:
            gradient = training.exact_sum(examples, scale_rows, response)
        unit = gradient.unit / len(examples.rows)
        law = GaussianLaw(recipe.multiplier**2 * max(gradient.squared_sensitivity, 1))

        def draw() -> IntArray:
            noisy: FloatArray = original(examples, scale_rows, response, recipe)
            return np.rint(noisy / unit).astype(np.int64)

        return self._take(law, gradient.total, draw).astype(np.float64) * unit


def _difference(reading: Reading, law: Law, secret: IntArray) -> float:
    return reading.law.log_chance(reading.secret, reading.released) - law.log_chance(secret, reading.released)


def _within(ratio: float) -> float:
    return min(max(ratio, -CERTAIN), CERTAIN)


class _Impossible:
    def log_chance(self, secret: IntArray, released: IntArray) -> float:
        return -inf


@contextmanager
def replaced(owner: object, name: str, value: object) -> Iterator[None]:
    """Put something else in an attribute's place until the end of the block."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)
