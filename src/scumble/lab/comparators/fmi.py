"""FMI, the flat mixture of experts of the paper's section 3.1, trained with noisy gradients.

The curve is secret; parameters, largest error and lookups are public. A root model weighs M linear experts; all of them
are trained together by noisy gradient descent, and the noisy largest error widens every lookup, so that no row is
lost.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Self, Unpack

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter
from scumble.index.contract import Terms, check_count
from scumble.lab.accounting import noise_multiplier
from scumble.lab.comparators.saved import State
from scumble.lab.comparators.trained import Parts, Settings, TrainedIndex
from scumble.lab.comparators.training import Curve, Response, bits, descend
from scumble.privacy.noise import Fact, Noise

__all__ = ["FMIIndex", "Mixture"]

MOST_EXPERTS = 256
FloatArray = NDArray[np.float64]
SHARPNESS = 3.0  # how clearly the root prefers an expert in the middle of its part of the domain


class FMIIndex(TrainedIndex):
    """A mixture of linear experts, trained with differentially private gradient descent. (epsilon, delta)-DP.

    With probability 1 - beta no lookup loses a row. `clip` is the paper's C, in fractions of all rows; what
    `sensitivity` chooses is said in `TrainedIndex`.
    """

    name, kind = "FMI", "fmi"

    def __init__(self, experts: int = 32, *, steps: int = 128, **settings: Unpack[Settings]) -> None:
        check_count(experts, "experts")
        if experts > MOST_EXPERTS:
            raise InvalidParameter(f"experts must be at most {MOST_EXPERTS}", hint="32 are usual")
        super().__init__(steps=steps, **settings)
        self.experts = experts

    def _multipliers(self, epsilon: Fraction, delta: Fraction) -> list[Fraction]:
        return [noise_multiplier(epsilon, delta, self.steps)]

    @property
    def _most_parameters(self) -> int:
        return 4 * self.experts

    def _train(self, curve: Curve, terms: Terms, parts: Parts, noise: Noise) -> "Mixture":
        """All parameters at once, one unified gradient a step: the cost is that of `steps` Gaussian releases."""
        (multiplier,) = self._multipliers(parts.training, terms.delta)

        def watch(step: int, parameters: FloatArray) -> None:
            self._record(curve, Mixture(parameters), parts.spent(multiplier, step, terms.delta))

        recipe = self._recipe(multiplier, curve, self.experts, noise_share=1)
        words = recipe.streams(noise, self.kind)
        return Mixture(descend(start(self.experts), respond, curve, recipe, words, watch))

    def _model_state(self) -> State:
        assert isinstance(self.model.model, Mixture)  # noqa: S101  _train makes nothing else
        return State({"experts": self.experts}, {"parameters": self.model.model.parameters})

    @classmethod
    def _model_restored(cls, state: State, steps: int) -> tuple[Self, "Mixture"]:
        experts = state.number("experts", 1, MOST_EXPERTS)
        return cls(experts, steps=steps), Mixture(state.real("parameters", 4 * experts))


@dataclass(frozen=True, eq=False)
class Mixture:
    """PUBLIC: the trained model."""

    parameters: FloatArray

    @property
    def numbers(self) -> int:
        return len(self.parameters)

    def facts(self) -> Fact:
        return bits(self.parameters)

    def predict(self, inputs: FloatArray) -> FloatArray:
        """Positions as fractions of all, for ranks as fractions of the domain."""
        return predict(self.parameters, inputs)


def predict(parameters: FloatArray, inputs: FloatArray) -> FloatArray:
    """y_hat(x) = sum_k w_k(x) f_k(x), with w = softmax of lines and f_k lines."""
    weights, values, _ = _mixture(parameters, inputs)
    return np.asarray((weights * values).sum(axis=0))


def respond(parameters: FloatArray, inputs: FloatArray) -> Response:
    """Predictions, and for each example the slope of its prediction by every parameter."""
    weights, values, local = _mixture(parameters, inputs)
    predicted = (weights * values).sum(axis=0)
    pull = weights * (values - predicted)  # of the root: towards the experts that lie above the prediction
    slopes = np.concatenate([pull * (inputs - 0.5), pull, weights * local, weights]).T
    return Response(predicted, slopes, np.zeros(len(inputs), dtype=np.int64))


def _mixture(parameters: FloatArray, inputs: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weights, values and local inputs, one row for each expert."""
    tilts, levels, steepness, heights = parameters.reshape(4, -1, 1)
    count = len(heights)
    logits = tilts * (inputs - 0.5) + levels
    weights = np.exp(logits - logits.max(axis=0))
    weights /= weights.sum(axis=0)
    local = (inputs - _centres(count)[:, None]) * _zoom(count)
    return weights, heights + steepness * local, local


def start(count: int) -> FloatArray:
    """Where training starts, public: experts on the line y = x, each with an equal part of the domain."""
    centres, sharpness = _centres(count), SHARPNESS * count**2
    tilts, levels = 2 * sharpness * centres, sharpness * centres * (1 - centres)
    return np.concatenate([tilts, levels, np.full(count, 1 / _zoom(count)), centres])


def _centres(count: int) -> FloatArray:
    return (np.arange(count) + 0.5) / count


def _zoom(count: int) -> float:
    """Stretches an expert's part of the domain to unit variance, so that height and steepness learn equally fast."""
    return float(np.sqrt(12.0)) * count
