"""FMI with the experts of the paper's experiments: perceptrons, 50 epochs, DP-SGD with a rate that rises and falls.

The curve is secret; parameters, largest error and lookups are public. With the noise that privacy needs these networks
learn nothing; the paper's numbers come from noise without the factor |B| (docs/paper-notes.md, slip 12), which
`benchmarks/paper/tradeoff.py` adds as a variant that is marked as not private.
"""

from fractions import Fraction
from math import cos, isqrt, pi
from typing import Self, Unpack

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter
from scumble.index.contract import Terms, check_count
from scumble.lab.accounting import noise_multiplier
from scumble.lab.comparators.perceptrons import UNITS, Experts, Shape, clipped_network_sum, start
from scumble.lab.comparators.saved import State
from scumble.lab.comparators.trained import Parts, Settings, TrainedIndex
from scumble.lab.comparators.training import MOST_BATCH, MOST_MOVE, Curve, batch_ranks, bits
from scumble.privacy.noise import Noise, discrete_gaussian

__all__ = ["FMIPerceptronsIndex"]

MOST_EXPERTS, MOST_WIDTH = 8, 1024
RATE = 0.003  # at its height, reached after three tenths of the steps
RISE = 0.3
MOMENTUM, MEMORY, LEAST = 0.9, 0.999, 1e-8  # of Adam (Kingma and Ba 2015)
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class FMIPerceptronsIndex(TrainedIndex):
    """A mixture of perceptrons, trained with differentially private gradient descent. (epsilon, delta)-DP.

    `hidden` are the widths of the three hidden layers; two experts of 96, 64 and 32 are the paper's for ten thousand
    lognormal rows. An epoch is `steps_per_epoch` steps. With probability 1 - beta no lookup loses a row.
    """

    name, kind = "FMI, perceptrons", "fmi-perceptrons"

    def __init__(
        self,
        experts: int = 2,
        *,
        hidden: tuple[int, ...] = (96, 64, 32),
        epochs: int = 50,
        steps_per_epoch: int = 1,
        **settings: Unpack[Settings],
    ) -> None:
        for name, count, most in (
            ("experts", experts, MOST_EXPERTS),
            *(("hidden", width, MOST_WIDTH) for width in hidden),
            ("epochs", epochs, MOST_BATCH),
            ("steps_per_epoch", steps_per_epoch, MOST_BATCH),
        ):
            check_count(count, name)
            if count > most:
                raise InvalidParameter(f"{name} must be at most {most}", hint="the defaults are the paper's")
        if not hidden:
            raise InvalidParameter("hidden must have a layer at least", hint="hidden=(96, 64, 32), for example")
        settings.setdefault("clip", 1.0)
        super().__init__(steps=epochs * steps_per_epoch, **settings)
        if self.sensitivity != "clip":
            raise InvalidParameter("perceptrons are trained with clipped gradients only", hint="sensitivity='clip'")
        self.shape, self.epochs, self.steps_per_epoch = Shape(experts, tuple(hidden)), epochs, steps_per_epoch

    def _multipliers(self, epsilon: Fraction, delta: Fraction) -> list[Fraction]:
        return [noise_multiplier(epsilon, delta, self.steps)]

    @property
    def _most_parameters(self) -> int:
        return self.shape.numbers

    def _reach(self, size: int) -> int:
        return 2 * UNITS * self.batch + isqrt(self.shape.numbers) + 1

    def _train(self, curve: Curve, terms: Terms, parts: Parts, noise: Noise) -> Experts:
        """Adam on noisy gradients, which is all of the curve that it sees: the cost is that of `steps` releases."""
        (multiplier,) = self._multipliers(parts.training, terms.delta)
        first = parameters = start(self.shape)
        mean, square = np.zeros_like(first), np.zeros_like(first)
        self._record(curve, Experts(self.shape, parameters), Fraction(0))
        for step in range(self.steps):
            gradient = self._noisy_gradient(curve, parameters, step, multiplier, noise)
            mean = MOMENTUM * mean + (1 - MOMENTUM) * gradient
            square = MEMORY * square + (1 - MEMORY) * np.square(gradient)
            length = np.sqrt(square / (1 - MEMORY ** (step + 1))) + LEAST
            move = self._rate(step) * mean / (1 - MOMENTUM ** (step + 1)) / length
            parameters = np.clip(parameters - move, first - MOST_MOVE, first + MOST_MOVE)
            if (step + 1) % self.steps_per_epoch == 0:
                self._record(curve, Experts(self.shape, parameters), self._spent(parts, step + 1, terms.delta))
        return Experts(self.shape, parameters)

    def _model_state(self) -> State:
        assert isinstance(self.model.model, Experts)  # noqa: S101  _train makes nothing else
        numbers = {"experts": self.shape.experts, "epochs": self.epochs}
        return State(numbers, {"hidden": np.array(self.shape.hidden), "parameters": self.model.model.parameters})

    @classmethod
    def _model_restored(cls, state: State, steps: int) -> tuple[Self, Experts]:
        epochs = state.number("epochs", 1, steps)
        if steps % epochs:
            raise ValueError("epochs of different lengths")
        hidden = tuple(state.whole("hidden", len(state.arrays["hidden"])).tolist())
        index = cls(state.number("experts"), hidden=hidden, epochs=epochs, steps_per_epoch=steps // epochs)
        return index, Experts(index.shape, state.real("parameters", index.shape.numbers))

    def _noisy_gradient(
        self, curve: Curve, parameters: FloatArray, step: int, multiplier: Fraction, noise: Noise
    ) -> FloatArray:
        """Release the mean gradient over a mini-batch; sensitivity and cost as in `clipped_network_sum`."""
        examples = curve.examples(repeated_ranks(len(curve.rows), self.batch, step))
        gradient = clipped_network_sum(self.shape, parameters, examples, curve.scale_rows, self.clip)
        variance = multiplier**2 * gradient.squared_sensitivity
        facts = (step, variance, self.batch, bits(np.array([self.clip])), bits(parameters))
        words = noise.stream(self.kind, "step", *facts)
        noisy = gradient.total + discrete_gaussian(variance, len(gradient.total), words)
        return noisy.astype(np.float64) * (gradient.unit / self.batch)

    def _spent(self, parts: Parts, steps: int, delta: Fraction) -> Fraction:
        """What so many steps have cost."""
        (multiplier,) = self._multipliers(parts.training, delta)
        return parts.spent(multiplier, steps, delta)

    def _rate(self, step: int) -> float:
        """One cycle: up in a line, down in half a cosine."""
        top, done = self.learning_rate or RATE, (step + 1) / (self.steps + 1)
        return top * (done / RISE if done < RISE else (1 + cos(pi * (done - RISE) / (1 - RISE))) / 2)

    def __repr__(self) -> str:
        state = "not fitted" if self._positions is None else f"{self.model.model.numbers} parameters"
        return f"FMIPerceptronsIndex({self.shape.experts}, hidden={self.shape.hidden}, steps={self.steps}) <{state}>"


def repeated_ranks(size: int, batch: int, step: int) -> IntArray:
    """The mini-batch of a step, public; of a domain smaller than that, every rank several times."""
    if batch <= size:
        return batch_ranks(size, batch, step)
    return (np.arange(batch, dtype=np.int64) * size) // batch
