"""Trained indexes: the settings, budget and lookups that FMI and DP-RMI share.

The histogram is secret; the trained model and its noisy largest error are public. The training itself is in
`training.py`; docs/privacy.md section 9 has the proofs.
"""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt, sqrt
from typing import Self, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter, NotFitted
from scumble.index.contract import Positions, Terms, check_count
from scumble.index.curve import MAX_ROWS, Histogram
from scumble.index.slack import release_bound
from scumble.lab.accounting import epsilon_spent
from scumble.lab.comparators.limits import check_memory
from scumble.lab.comparators.saved import SavedIndex, State
from scumble.lab.comparators.training import (
    CHUNK,
    CLIP_GRID,
    MOST_BATCH,
    MOST_SLOPE,
    Curve,
    Model,
    Recipe,
    SensitivityName,
    inputs_of,
    whole_rows,
)
from scumble.privacy.budget import Exact, exact
from scumble.privacy.noise import MAX_SCALE, Noise, Words, discrete_laplace
from scumble.types import Domain

__all__ = ["Parts", "Settings", "TrainedIndex", "TrainedPositions", "release_count"]

COUNT_SHARE = Fraction(1, 20)  # of epsilon, for the row count, when no capacity is given
MOST_WIDENED = 2**42  # rows: a slack has noise of its own on top
ROUNDING_ROWS = 1  # predictions are rounded to whole rows, and another machine's exp may differ in its last bit

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TrainedPositions(Positions):
    """PUBLIC: a trained model, and how far its predictions may be off. Predictions need not be monotone."""

    domain: Domain
    model: Model
    scale_rows: int
    slack_rows: int
    capacity: int

    def at(self, ranks: IntArray) -> IntArray:
        inputs = inputs_of(ranks, self.domain.size)
        parts = [self.model.predict(inputs[i : i + CHUNK]) for i in range(0, len(inputs), CHUNK)]
        return whole_rows(np.concatenate([*parts, np.empty(0)]), self.scale_rows, MAX_ROWS)

    def starts_after(self, ranks: IntArray) -> IntArray:
        return self.at(ranks) - self.slack_rows

    def stops_at(self, ranks: IntArray) -> IntArray:
        return self.at(ranks) + self.slack_rows

    @property
    def size_bytes(self) -> int:
        """Eight bytes for each parameter, for scale, slack and capacity."""
        return 8 * (self.model.numbers + 3)


class Settings(TypedDict, total=False):
    """How to train, as `TrainedIndex` says; `steps` has a default of its own in each index."""

    clip: float
    learning_rate: float | None
    batch: int
    error_share: Exact
    sensitivity: SensitivityName
    unsafe_trace: bool


class TrainedIndex(SavedIndex):
    """What the two trained indexes share: their settings, budget, and all that is released besides the parameters.

    `sensitivity="clip"` is the paper's: noise for gradients that may all turn round, 2 C |B|. With "row", the noise is
    made for what one row can really do to the same sum of gradients, which is a hundred times less or better. Without a
    `learning_rate`, one is chosen from public values: smaller, the more noise there is.
    """

    needs_delta = True

    def __init__(
        self,
        *,
        steps: int,
        clip: float = 0.1,
        learning_rate: float | None = None,
        batch: int = 256,
        error_share: Exact = Fraction(1, 5),
        sensitivity: SensitivityName = "clip",
        unsafe_trace: bool = False,
    ) -> None:
        for name, count in {"steps": steps, "batch": batch}.items():
            check_count(count, name)
            if count > MOST_BATCH:
                raise InvalidParameter(f"{name} must be at most {MOST_BATCH}", hint="64 steps of 256 are usual")
        for name, value in {"clip": clip, "learning_rate": learning_rate}.items():
            if value is not None and not 2**-20 <= exact(value, name) <= 2**20:
                raise InvalidParameter(f"{name} must lie between 2^-20 and 2^20", hint=f"{name}=0.1, for example")
        share = exact(error_share, "error_share")
        if not 0 < share < 1 - COUNT_SHARE:
            raise InvalidParameter("error_share must lie between 0 and 0.95", hint="0.2, for example")
        if sensitivity not in get_args(SensitivityName):
            raise InvalidParameter("there is no such sensitivity", hint="'clip' or 'row'")
        super().__init__()
        self.steps, self.batch, self.clip, self.learning_rate = steps, batch, float(clip), learning_rate
        self.error_share, self.sensitivity = share, sensitivity
        self._trace: list[tuple[Fraction, int]] | None = [] if unsafe_trace else None

    # --- fit ---------------------------------------------------------------------------------------

    def _check(self, terms: Terms) -> None:
        if terms.delta == 0:
            raise InvalidParameter(
                f"{self.name} needs a delta: its noise is Gaussian", hint="state one: delta=1e-6, for example"
            )
        check_memory(16 * terms.domain.size)
        parts = self._parts(terms)
        if max(self._multipliers(parts.training, terms.delta)) * self._reach(terms.domain.size) >= MAX_SCALE:
            raise InvalidParameter(
                "this index would need noise of a scale beyond 2^40", hint="take a larger epsilon or a smaller batch"
            )

    def _reach(self, size: int) -> int:
        """The most that a step's sum of gradients moves between neighbours, in whole units."""
        unit = 2 * CLIP_GRID if self.sensitivity == "clip" else MOST_SLOPE * (isqrt(self._most_parameters) + 1)
        return min(self.batch, size) * unit

    def _build(self, histogram: Histogram, terms: Terms, noise: Noise) -> TrainedPositions:
        """Row count, training, noisy largest error: the paper's section 3.1 and its appendix.

        Sensitivity and cost are those of the parts: docs/privacy.md section 9. Neighbours: one row added or removed.
        """
        parts = self._parts(terms)
        if self._trace is not None:
            self._trace = []
        rows = np.cumsum(histogram.counts)
        scale = terms.capacity or release_count(rows[-1:], parts.count, noise.stream(self.kind, "count", parts.count))
        curve = Curve(rows, scale)
        model = self._train(curve, terms, parts, noise)
        draft = TrainedPositions(terms.domain, model, scale, 0, MAX_ROWS)
        error = curve.largest_error(draft.at)
        question = (self.kind, "error", parts.error, terms.beta, scale, model.facts())
        words = noise.stream(*question)
        slack = release_bound(error, parts.error, terms.beta, lossless=False, words=words) + ROUNDING_ROWS
        # No lookup loses a row unless the last one does: so this bounds the rows, at no cost.
        last = int(draft.at(np.array([terms.domain.size - 1]))[0])
        return TrainedPositions(terms.domain, model, scale, slack, terms.capacity or last + slack)

    def _parts(self, terms: Terms) -> "Parts":
        count = Fraction(0) if terms.capacity else terms.epsilon * COUNT_SHARE
        error = terms.epsilon * self.error_share
        return Parts(count, terms.epsilon - count - error, error)

    @abstractmethod
    def _multipliers(self, epsilon: Fraction, delta: Fraction) -> list[Fraction]:
        """The noise multiplier of each stage."""

    @property
    @abstractmethod
    def _most_parameters(self) -> int:
        """How many parameters a stage has at most."""

    @abstractmethod
    def _train(self, curve: Curve, terms: Terms, parts: "Parts", noise: Noise) -> Model:
        """Train the model, and spend no more than parts.training and terms.delta on it."""

    def _recipe(self, multiplier: Fraction, curve: Curve, models: int, noise_share: float) -> Recipe:
        rate = self.learning_rate
        if rate is None and self.sensitivity == "clip":
            rate = careful_clipped_rate(float(multiplier), self.steps, self.clip, models, noise_share)
        elif rate is None:
            rate = careful_exact_rate(float(multiplier), self.steps, models, curve.scale_rows)
        return Recipe(models, self.steps, self.batch, self.clip, float(rate), self.sensitivity, multiplier)

    # --- file --------------------------------------------------------------------------------------

    def _state(self) -> State:
        """The model and what lookups need; of how it was trained, only the number of steps."""
        positions, model = self.model, self._model_state()
        numbers = {"steps": self.steps, "scale": positions.scale_rows, "slack": positions.slack_rows}
        return State({**numbers, "capacity": positions.capacity, **model.numbers}, model.arrays)

    @classmethod
    def _restored(cls, domain: Domain, state: State, terms: Terms | None) -> tuple[Self, TrainedPositions]:
        index, model = cls._model_restored(state, state.number("steps", 1, MOST_BATCH))
        numbers = (state.number("scale", 1), state.number("slack", most=MOST_WIDENED))
        return index, TrainedPositions(domain, model, *numbers, state.number("capacity", most=MOST_WIDENED))

    @abstractmethod
    def _model_state(self) -> State:
        """What to keep of the trained model."""

    @classmethod
    @abstractmethod
    def _model_restored(cls, state: State, steps: int) -> tuple[Self, Model]:
        """An index of the same settings, and the model; ValueError if there is none like it."""

    # --- what was fitted ---------------------------------------------------------------------------

    @property
    def model(self) -> TrainedPositions:
        positions = self.positions
        assert isinstance(positions, TrainedPositions)  # noqa: S101  _build puts nothing else there
        return positions

    @property
    def size_bytes(self) -> int:
        return self.model.size_bytes

    def chance_of_loss(self, beta: Fraction) -> Fraction:
        return beta

    @property
    def usual_slack(self) -> int:
        return self.model.slack_rows

    @property
    def unsafe_history(self) -> list[tuple[Fraction, int]]:
        """SECRET: after each step, the epsilon spent so far and the true largest error, in rows.

        Only for those who own the data: it is kept if the index was made with `unsafe_trace=True`.
        """
        if self._trace is None or self._positions is None:
            raise NotFitted("there is no history", hint="make the index with unsafe_trace=True, then fit it")
        return list(self._trace)

    def _record(self, curve: Curve, model: Model, spent: Fraction) -> None:
        """Note the true largest error for `unsafe_history`, if the owner asked for that."""
        if self._trace is not None:
            size = len(curve.rows)

            def positions(ranks: IntArray) -> IntArray:
                return whole_rows(model.predict(inputs_of(ranks, size)), curve.scale_rows, MAX_ROWS)

            self._trace.append((spent, int(curve.largest_error(positions)[0])))

    def __repr__(self) -> str:
        state = "not fitted" if self._positions is None else f"{self.model.model.numbers} parameters"
        return f"{type(self).__name__}(steps={self.steps}, sensitivity={self.sensitivity!r}) <{state}>"


def release_count(rows: IntArray, epsilon: Fraction, words: Words | None = None) -> int:
    """Release the number of rows, an array of one: by what predictions are scaled, so it need not be an upper bound.

    Sensitivity: 1; neighbours: one row added or removed; cost: epsilon; docs/privacy.md 9.1.
    """
    noisy = rows + discrete_laplace(1 / epsilon, 1, words)
    return int(np.clip(noisy, 1, MAX_ROWS)[0])


@dataclass(frozen=True)
class Parts:
    """PUBLIC: the shares of epsilon."""

    count: Fraction
    training: Fraction
    error: Fraction

    def spent(self, multiplier: Fraction, steps: int, delta: Fraction) -> Fraction:
        """What the row count and some steps of training have cost."""
        return self.count + epsilon_spent(multiplier, steps, delta)


# --- learning rates, from public values alone ------------------------------------------------------


def careful_clipped_rate(multiplier: float, steps: int, clip: float, models: int, noise_share: float) -> float:
    """The rate at which each of `models` could cross the whole range, shrunk by what the noise would do on the way.

    Noise moves a parameter `ratio` times as far as the largest possible gradient does, however many steps there are.
    For the mean squared error of one parameter 1 / (1 + ratio^2) of the way would be best (Wiener's filter); the
    largest error over a domain is made by the worst of many of them, hence the four, and the cube.
    """
    ratio = 2 * multiplier * models * noise_share / sqrt(steps)
    return models / (steps * clip) / (1 + (4 * ratio) ** 3)


def careful_exact_rate(multiplier: float, steps: int, models: int, scale_rows: int) -> float:
    """A rate at which the squared error of `models` lines falls steadily, shrunk where few rows meet much noise."""
    rate = models / 4
    noise = rate * 2 * multiplier * sqrt(2 / models) * sqrt(steps) / scale_rows
    return rate / (1 + noise**2)
