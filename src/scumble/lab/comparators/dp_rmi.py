"""A recursive model index, trained stage by stage with DP-SGD (the paper's appendix).

The curve is secret; every stage is public once it is trained. A root line sends each key to one of M lines of the next
stage, and so on; each stage is trained by noisy gradient descent on the points that the stage before, public by then,
sends to each of its lines. The noisy largest error widens every lookup, so that no row is lost.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
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

__all__ = ["DPRMIIndex", "Stages"]

MOST_MODELS, MOST_STAGES = 256, 8
STAGE_ARRAYS = ("heights", "steepness", "centres", "zooms")  # in the order of Stage
PROBES = 1 << 12  # public inputs by which a stage's lines are started
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class DPRMIIndex(TrainedIndex):
    """A recursive model index, trained stage by stage with private gradient descent. (epsilon, delta)-DP.

    One line in the first stage, `models` in each later one; `steps` for each stage, all with the same noise, so that
    the stages share the budget equally. With probability 1 - beta no lookup loses a row. What `sensitivity` chooses is
    said in `TrainedIndex`.
    """

    name, kind = "DP-RMI", "dp-rmi"

    def __init__(self, models: int = 32, *, stages: int = 2, steps: int = 64, **settings: Unpack[Settings]) -> None:
        for name, count, most in (("models", models, MOST_MODELS), ("stages", stages, MOST_STAGES)):
            check_count(count, name)
            if count > most:
                raise InvalidParameter(f"{name} must be at most {most}", hint="32 models in 2 stages are usual")
        super().__init__(steps=steps, **settings)
        self.models, self.stages = models, stages

    def _multipliers(self, epsilon: Fraction, delta: Fraction) -> list[Fraction]:
        """All stages together are stages * steps Gaussian releases: cheaper than a share of epsilon for each."""
        return [noise_multiplier(epsilon, delta, self.steps * self.stages)] * self.stages

    @property
    def _most_parameters(self) -> int:
        return 2 * self.models

    def _train(self, curve: Curve, terms: Terms, parts: Parts, noise: Noise) -> "Stages":
        """Stage after stage, each on what the public stages before it make of the keys."""
        fitted = Stages(())
        for _ in range(self.stages):
            fitted = self._train_stage(fitted, curve, terms, parts, noise)
        return fitted

    def _model_state(self) -> State:
        assert isinstance(self.model.model, Stages)  # noqa: S101  _train makes nothing else
        arrays = {
            f"{name} {place}": getattr(stage, name)
            for place, stage in enumerate(self.model.model.stages)
            for name in STAGE_ARRAYS
        }
        return State({"models": self.models, "stages": self.stages}, arrays)

    @classmethod
    def _model_restored(cls, state: State, steps: int) -> tuple[Self, "Stages"]:
        models, stages = state.number("models", 1, MOST_MODELS), state.number("stages", 1, MOST_STAGES)
        kept = (
            Stage(*(state.real(f"{name} {place}", models if place else 1) for name in STAGE_ARRAYS))
            for place in range(stages)
        )
        return cls(models, stages=stages, steps=steps), Stages(tuple(kept))

    def _train_stage(self, before: "Stages", curve: Curve, terms: Terms, parts: Parts, noise: Noise) -> "Stages":
        """All lines of a stage at once.

        They do NOT compose in parallel: their points are disjoint, but one row moves the points of all later lines. So
        their gradients are one vector, of which each line is a group; see `clipped_sum`.
        """
        stage = len(before.stages)
        models = self.models if stage else 1
        draft = next_stage(before, models)
        multiplier = self._multipliers(parts.training, terms.delta)[stage]

        def respond(parameters: FloatArray, inputs: FloatArray) -> Response:
            return draft.respond(parameters, inputs, before.route(inputs, models))

        def watch(step: int, parameters: FloatArray) -> None:
            if step or not stage:
                spent = parts.spent(multiplier, stage * self.steps + step, terms.delta)
                self._record(curve, before.then(draft.with_parameters(parameters)), spent)

        recipe = self._recipe(multiplier, curve, models, noise_share=1 / sqrt(models))
        words = recipe.streams(noise, self.kind, before.facts(), draft.facts())
        parameters = descend(draft.parameters, respond, curve, recipe, words, watch)
        return before.then(draft.with_parameters(parameters))


@dataclass(frozen=True, eq=False)
class Stage:
    """PUBLIC: the lines of one stage, heights[k] + steepness[k] * zooms[k] * (x - centres[k])."""

    heights: FloatArray
    steepness: FloatArray
    centres: FloatArray
    zooms: FloatArray

    @property
    def parameters(self) -> FloatArray:
        """What is trained: steepness, then heights."""
        return np.concatenate([self.steepness, self.heights])

    def facts(self) -> Fact:
        return tuple(bits(getattr(self, name)) for name in STAGE_ARRAYS)

    def with_parameters(self, parameters: FloatArray) -> "Stage":
        steepness, heights = parameters.reshape(2, -1)
        return Stage(heights, steepness, self.centres, self.zooms)

    def predict(self, inputs: FloatArray, chosen: IntArray) -> FloatArray:
        local = (inputs - self.centres[chosen]) * self.zooms[chosen]
        return self.heights[chosen] + self.steepness[chosen] * local

    def respond(self, parameters: FloatArray, inputs: FloatArray, chosen: IntArray) -> Response:
        """Predictions, and the slope of each by every parameter: of the chosen line, 0 for those of the others."""
        local = (inputs - self.centres[chosen]) * self.zooms[chosen]
        mine = (chosen[:, None] == np.arange(len(self.centres))).astype(np.float64)
        predicted = self.with_parameters(parameters).predict(inputs, chosen)
        return Response(predicted, np.concatenate([mine * local[:, None], mine], axis=1), chosen)


@dataclass(frozen=True, eq=False)
class Stages:
    """PUBLIC: the trained model."""

    stages: tuple[Stage, ...]

    def then(self, stage: Stage) -> "Stages":
        return Stages((*self.stages, stage))

    def route(self, inputs: FloatArray, models: int) -> IntArray:
        """Which of `models` lines of the next stage gets each input."""
        return _route(self.predict(inputs), models)

    def predict(self, inputs: FloatArray) -> FloatArray:
        """Positions as fractions of all, for ranks as fractions of the domain; without a stage, y = x."""
        predicted = inputs
        for stage in self.stages:
            predicted = stage.predict(inputs, _route(predicted, len(stage.centres)))
        return predicted

    @property
    def numbers(self) -> int:
        """How many numbers it keeps: two for each line, once its height is moved to x = 0."""
        return sum(2 * len(stage.centres) for stage in self.stages)

    def facts(self) -> Fact:
        return tuple(stage.facts() for stage in self.stages)


def _route(predicted: FloatArray, models: int) -> IntArray:
    """The paper's floor(M f(x) / N), within 0..M-1.

    Made of products and sums of single numbers only, so that every machine routes alike, to the last bit.
    """
    return np.clip(np.floor(predicted * models), 0, models - 1).astype(np.int64)


def next_stage(before: Stages, models: int) -> Stage:
    """Where a stage's training starts, public: each line on what the stages before predict for its inputs."""
    probes = (np.arange(PROBES) + 0.5) / PROBES
    predicted, chosen = before.predict(probes), before.route(probes, models)
    centres = (np.arange(models) + 0.5) / models
    heights = centres.copy()
    steepness, zooms = np.zeros(models), np.full(models, sqrt(12) * models)
    for k in np.unique(chosen).tolist():
        mine, values = probes[chosen == k], predicted[chosen == k]
        centres[k], heights[k] = mine.mean(), values.mean()
        zooms[k] = 1 / max(float(mine.std()), 1 / PROBES)
        local = (mine - centres[k]) * zooms[k]
        steepness[k] = (local * values).mean() / max(float(np.square(local).mean()), 1e-12)
    return Stage(heights, steepness, centres, zooms)
