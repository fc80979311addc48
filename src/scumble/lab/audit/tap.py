"""A tap on the noise: how likely are the releases of a build on one table, compared with another table?

SECRET: a reading holds a true value beside the noisy one, so a tap is only for tables that are made up, as the audit's
are. Every vector that gets noise is seen on its way, whatever code asked for it. To learn how likely the same outputs
are with the other table, the build is run on that table once more with these outputs forced upon it: so releases that
depend on earlier ones (cells after a scout, the slack after the segments) are judged by what they really depend on.

The law of a release is not what its code says of it: it is read off the thresholds that the sampler's kernel got. Noise
that is made of the same random words twice, as when a build is repeated, is one release if it hides the same values
with either table, and gives the table away if it does not.

The tap replaces functions for the length of a block. `privacy/noise.py` offers no hook for it on purpose: one that can
see true values and force outputs would be a hole in the code that an enclave is measured by.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scumble._native import ffi, lib
from scumble.index import slack
from scumble.lab.audit.laws import BoundLaw, GaussianLaw, Impossible, LaplaceLaw, Law, Loss, rate_of
from scumble.lab.comparators import trained, training
from scumble.owner import loading, stream_policies
from scumble.privacy import noise

__all__ = ["Comparison", "Reading", "Tap", "replaced"]

CERTAIN = 1000.0  # a log-likelihood ratio where one of the tables cannot have led to the output at all
STREAM_WORDS = 64  # of random words, by which a stream is known again
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Build = Callable[[IntArray], object]


@dataclass(frozen=True, eq=False)
class Reading:
    """SECRET: one release as it happened. `stream` tells the random words apart that its noise was made of."""

    law: Law
    secret: IntArray
    released: IntArray
    stream: bytes = b""


class Comparison(NamedTuple):
    """Of one build: log P(released | second table) - log P(released | first); Gaussian releases alone; its output.

    `loss` is the absolute value of the first, exactly; None if something was cut off, or is Gaussian: no value bounds
    that, and a delta pays for it. The tables are made up, so none of it is secret.
    """

    ratio: float
    gaussian: float
    output: object
    loss: Loss | None


class Tap:
    """Listens to every release while it is installed. One at a time, and in one thread.

    With `fixed`, no release depends on an earlier one: then one replay is enough for all runs.
    """

    def __init__(self, *, fixed: bool = False) -> None:
        self._fixed, self._known = fixed, dict[int, list[Reading]]()
        self._readings: list[Reading] = []
        self._forced: list[IntArray] | None = None
        self._within = False
        self._asked: Fraction | None = None  # the scale of the last noise within a release
        self._stream = b""
        self._thresholds: tuple[int, ...] | None = None
        self._rates: dict[object, Fraction | None] = {}

    @contextmanager
    def installed(self) -> Iterator["Tap"]:
        """Listen, until the end of the block, to the noise as it is now: planted defects included."""
        vector, gradient = noise._add_from_stream, training.noisy_gradient
        with ExitStack() as stack:
            enter = stack.enter_context
            enter(replaced(noise, "lib", _Kernels(lib, self._drew)))
            enter(replaced(noise, "_add_from_stream", lambda *given: self._vector(vector, *given)))
            enter(replaced(training, "noisy_gradient", lambda *given: self._gradient(gradient, *given)))
            for module in (slack, trained, loading, stream_policies):
                enter(replaced(module, "release_bound", self._listening(module.release_bound, vector)))
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
            return Comparison(sign * CERTAIN, sign * CERTAIN, output, inf)
        parts = _parts(here, there)
        whole, gaussian = _sum(parts), _sum([part for part in parts if part.gaussian])
        bounded = not any(part.gaussian or part.cut for part in parts)
        loss = max(whole, -whole) if bounded else None
        return Comparison(sign * _within(whole), sign * _within(gaussian), output, loss)

    def _replayed(self, build: Build, table: IntArray, which: int, here: list[Reading]) -> list[Reading]:
        """What is read with the other table. If it is fixed, one replay is enough."""
        if which in self._known:
            return self._known[which]
        there, _ = self._run(build, table, [reading.released for reading in here])
        if self._fixed:
            self._known[which] = there
        return there

    def _run(self, build: Build, table: IntArray, forced: list[IntArray] | None) -> tuple[list[Reading], object]:
        self._readings, self._forced = [], forced
        output = build(table)
        return self._readings, output

    def _take(self, law: Callable[[], Law], secret: IntArray, draw: Callable[[], IntArray]) -> IntArray:
        """Draw a release, or repeat the one that is forced, and keep a reading of it."""
        place, stream = len(self._readings), b""
        shaped = self._forced is not None and place < len(self._forced) and len(self._forced[place]) == len(secret)
        if shaped:
            assert self._forced is not None  # noqa: S101  for the type checker
            released = self._forced[place]
        else:
            released, stream = self._alone(draw), self._stream
        # The other table would have released something of another shape.
        its = law() if shaped or self._forced is None else Impossible()
        self._readings.append(Reading(its, secret, released, stream))
        return released

    def _alone(self, draw: Callable[[], IntArray]) -> IntArray:
        """Draw, and note what is asked of the sampler, but not as releases of their own."""
        self._within, self._asked, self._stream = True, None, b""
        try:
            return draw()
        finally:
            self._within = False

    def _vector(self, original: Any, values: IntArray, scale: Fraction, words: Any) -> None:
        def noted(count: int) -> Any:
            given = words(count)
            self._stream = self._stream or hashlib.sha256(given[:STREAM_WORDS].tobytes()).digest()
            return given

        if self._within:
            self._asked = scale
            original(values, scale, noted)
            return
        secret = values.copy()

        def draw() -> IntArray:
            original(values, scale, noted)
            return values.copy()

        values[:] = self._take(lambda: LaplaceLaw(self._rate(original, scale)), secret, draw)

    def _rate(self, original: Any, scale: Fraction) -> Fraction | None:
        """The rate of the noise that the sampler really draws when it is asked for a scale; None if it draws none."""
        if scale not in self._rates:
            self._thresholds = None
            original(np.zeros(1, np.int64), scale, _random_words)
            self._rates[scale] = None if self._thresholds is None else rate_of(scale, self._thresholds)
        return self._rates[scale]

    def _drew(self, thresholds: tuple[int, ...]) -> None:
        self._thresholds = thresholds

    def _listening(self, original: Any, sampler: Any) -> Any:
        def bound(deviation: IntArray, epsilon: Fraction, beta: Fraction, *, lossless: bool, **more: Any) -> int:
            secret, terms = deviation.copy(), (epsilon, beta, lossless)

            def draw() -> IntArray:
                released = original(deviation, epsilon, beta, lossless=lossless, **more)
                self._rates[terms] = self._asked and self._rate(sampler, self._asked)
                return np.array([released])

            def law() -> Law:
                if terms not in self._rates:
                    self._alone(draw)
                return BoundLaw(self._rates[terms], _shift(epsilon, beta), lossless)

            return int(self._take(law, secret, draw)[0])

        return bound

    def _gradient(
        self, original: Any, examples: Any, scale_rows: int, response: Any, recipe: Any, words: Any = None
    ) -> Any:
        if recipe.sensitivity == "clip":
            gradient = training.clipped_sum(examples, scale_rows, response, recipe.clip)
        else:
            gradient = training.exact_sum(examples, scale_rows, response)
        unit = gradient.unit / len(examples.rows)
        law = GaussianLaw(recipe.multiplier**2 * max(gradient.squared_sensitivity, 1))

        def draw() -> IntArray:
            noisy: FloatArray = original(examples, scale_rows, response, recipe, words)
            return np.rint(noisy / unit).astype(np.int64)

        return self._take(lambda: law, gradient.total, draw).astype(np.float64) * unit


class _Kernels:
    """The kernels as they are, but the thresholds that the sampler's gets are passed on."""

    def __init__(self, lib: Any, drew: Callable[[tuple[int, ...]], None]) -> None:
        self._lib, self._drew = lib, drew

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lib, name)

    def scumble_discrete_laplace(self, words: Any, thresholds: Any, bits: int, count: int, out: Any) -> int:
        self._drew(tuple(ffi.unpack(thresholds, bits)))
        return int(self._lib.scumble_discrete_laplace(words, thresholds, bits, count, out))


def _random_words(count: int) -> NDArray[np.uint64]:
    return np.frombuffer(os.urandom(8 * count), np.uint64)


@lru_cache(maxsize=256)
def _shift(epsilon: Fraction, beta: Fraction) -> int:
    return slack.shift(epsilon, beta)


# --- two tables compared ----------------------------------------------------------------------------


class _Part(NamedTuple):
    """What one release tells."""

    lost: Loss
    gaussian: bool
    cut: bool


def _parts(here: Sequence[Reading], there: Sequence[Reading]) -> list[_Part]:
    """What each release tells; nothing, if its noise was used before and must have been the same with either table."""
    parts, known = [], dict[bytes, IntArray]()
    for ours, other in zip(here, there, strict=True):
        chances = [reading.law.chance(reading.secret, ours.released) for reading in (ours, other)]
        lost = chances[0].minus(chances[1])
        if ours.stream and len(other.secret) == len(ours.released):
            needed = other.secret - ours.released
            before = known.setdefault(ours.stream, needed)
            if before is not needed:
                lost = Fraction(0) if np.array_equal(before, needed) else inf
        parts.append(_Part(lost, isinstance(ours.law, GaussianLaw), any(chance.cut for chance in chances)))
    return parts


def _sum(parts: Sequence[_Part]) -> Loss:
    return inf if any(part.lost == inf for part in parts) else sum((Fraction(part.lost) for part in parts), Fraction(0))


def _within(ratio: Loss) -> float:
    return float(min(max(ratio, -CERTAIN), CERTAIN))


@contextmanager
def replaced(owner: object, name: str, value: object) -> Iterator[None]:
    """Put something else in an attribute's place until the end of the block."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)
