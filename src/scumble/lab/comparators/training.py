"""Training under differential privacy: public parameters of a model, learned from a secret curve.

What the two trained indexes of the paper share: mini-batches, gradients brought to integers, noise, and descent. Every
step's noisy gradient is public, and so is whatever follows from it; the curve is secret, and touched in
`Curve.examples` and `Curve.largest_error` only. docs/privacy.md section 9 has the proofs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from scumble.index.curve import MAX_ROWS
from scumble.privacy.noise import Fact, Noise, Words, discrete_gaussian

__all__ = [
    "Curve",
    "Examples",
    "IntegerSum",
    "Model",
    "Recipe",
    "Response",
    "SensitivityName",
    "batch_ranks",
    "bits",
    "clip_to_grid",
    "descend",
    "noisy_gradient",
]

CLIP_GRID = 2**12  # a clipped gradient is a vector of integers of norm at most this
SLOPE_GRID, MOST_SLOPE = 2**10, 2**13  # the model's slopes, by parameter, are whole numbers of 1/2^10, up to 8
MOST_BATCH = 2**12  # so that no sum of integer gradients leaves 64 bits
MOST_MOVE = 8.0  # of a parameter: a model that noise has carried away is still within what floats resolve to a row
GOLDEN_RATIO = 11_400_714_819_323_198_485  # of 2^64: its multiples are spread evenly
CHUNK = 1 << 17

SensitivityName = Literal["clip", "row"]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


# --- what is trained on ----------------------------------------------------------------------------


@dataclass(frozen=True, repr=False, eq=False)
class Examples:
    """SECRET: inputs between 0 and 1, which are public, and how many rows lie at or before each, which is not."""

    inputs: FloatArray
    rows: IntArray


@dataclass(frozen=True, repr=False, eq=False)
class Curve:
    """SECRET: the true curve. `scale_rows` is public: predictions are fractions of it."""

    rows: IntArray
    scale_rows: int

    def examples(self, ranks: IntArray) -> Examples:
        return Examples(inputs_of(ranks, len(self.rows)), self.rows[ranks])

    def largest_error(self, positions: Callable[[IntArray], IntArray]) -> IntArray:
        """The largest deviation of public predictions from the curve, an array of one. Sensitivity: 1."""
        worst = np.zeros(1, dtype=np.int64)
        for start in range(0, len(self.rows), CHUNK):
            part = self.rows[start : start + CHUNK]
            predicted = positions(np.arange(start, start + len(part)))
            np.maximum(worst, np.abs(predicted - part).max(), out=worst)
        return worst


def inputs_of(ranks: IntArray, size: int) -> FloatArray:
    """Ranks as fractions of the domain, the last one 1: equal counts then lie on the line y = x."""
    return (ranks + 1) / size


def batch_ranks(size: int, batch: int, step: int) -> IntArray:
    """The mini-batch of a step: evenly spread ranks, shifted from step to step. Public, the same for every table.

    Not a secret sample, so no amplification by subsampling: nor would a secret one help, since one row moves every
    later point of the curve and is in nearly every batch anyway.
    """
    if batch >= size:
        return np.arange(size)
    shift = (step * GOLDEN_RATIO >> 32) % 2**32
    return np.array([((i << 32) + shift) * size // (batch << 32) for i in range(batch)], dtype=np.int64)


# --- one noisy gradient ----------------------------------------------------------------------------


def clip_to_grid(gradients: FloatArray, clip: float) -> IntArray:
    """Clip each row to L2 norm `clip` and cut it to whole multiples of clip / CLIP_GRID.

    The norm of what comes out is at most CLIP_GRID, in integers, whatever the floats did: a row that rounding has
    carried beyond it becomes zero.
    """
    norms = np.sqrt(np.square(gradients).sum(axis=1, keepdims=True))
    vectors = np.trunc(gradients * ((CLIP_GRID - 2**-20) / np.maximum(norms, clip)))
    grid = vectors.astype(np.int64)
    within = np.square(grid).sum(axis=1, keepdims=True) <= CLIP_GRID**2
    return np.asarray(grid * within, dtype=np.int64)


@dataclass(frozen=True)
class Recipe:
    """PUBLIC: how a stage of `models` is trained. `multiplier` is the noise of a step over its L2 sensitivity."""

    models: int
    steps: int
    batch: int
    clip: float
    learning_rate: float
    sensitivity: SensitivityName
    multiplier: Fraction

    def streams(self, noise: Noise, *training: Fact) -> Callable[[int, FloatArray], Words]:
        """For every step the stream of its noise, which depends on all that was public before it."""
        rates = np.array([self.clip, self.learning_rate])
        facts = (self.models, self.batch, bits(rates), self.sensitivity, self.multiplier)
        return lambda step, parameters: noise.stream(*training, "step", step, *facts, bits(parameters))


@dataclass(frozen=True, eq=False)
class Response:
    """PUBLIC: what a model says to a mini-batch: predictions, and the slope of each by every parameter.

    Examples of different groups have no parameter in common.
    """

    predicted: FloatArray
    slopes: FloatArray
    groups: IntArray


@dataclass(frozen=True, eq=False)
class IntegerSum:
    """SECRET: a sum of gradients in whole units. Unit and squared L2 sensitivity, in units, are public."""

    total: IntArray
    squared_sensitivity: int
    unit: float


def noisy_gradient(
    examples: Examples, scale_rows: int, response: Response, recipe: Recipe, words: Words | None = None
) -> FloatArray:
    """Release the mean gradient of the squared error over a mini-batch; errors are fractions of `scale_rows`.

    L2 sensitivity: what `clipped_sum` or `exact_sum` says; neighbours: one row added or removed; cost: one Gaussian
    release of `recipe.multiplier`; the paper's section 3.1; docs/privacy.md 9.2 and 9.3.
    """
    if recipe.sensitivity == "clip":
        gradient = clipped_sum(examples, scale_rows, response, recipe.clip)
    else:
        gradient = exact_sum(examples, scale_rows, response)
    variance = recipe.multiplier**2 * max(gradient.squared_sensitivity, 1)
    noisy = gradient.total + discrete_gaussian(variance, len(gradient.total), words)
    return noisy.astype(np.float64) * (gradient.unit / len(examples.rows))


def clipped_sum(examples: Examples, scale_rows: int, response: Response, clip: float) -> IntegerSum:
    """The paper's sum of clipped gradients.

    One row moves every later y, so each of the gradients may change, by up to twice the clip: 2 |B| CLIP_GRID. Groups
    change different entries, so over several groups it is the root of the sum of the squares.
    """
    errors = response.predicted - examples.rows / scale_rows
    vectors = clip_to_grid(2 * errors[:, None] * response.slopes, clip)
    squared = sum((2 * CLIP_GRID * count) ** 2 for count in np.bincount(response.groups).tolist())
    return IntegerSum(vectors.sum(axis=0), squared, clip / CLIP_GRID)


def exact_sum(examples: Examples, scale_rows: int, response: Response) -> IntegerSum:
    """The sum of gradients of which nothing is clipped but errors larger than the table.

    The slopes are public, and one row moves the error of each later example by at most 1 row: entry j of the sum moves
    by at most sum_i |slope_ij|. Not in the paper, which takes the clip for the only bound there is.
    """
    slopes = np.rint(np.clip(response.slopes * SLOPE_GRID, -MOST_SLOPE, MOST_SLOPE)).astype(np.int64)
    errors = whole_rows(response.predicted, scale_rows, 2 * MAX_ROWS) - examples.rows
    bounded = np.clip(errors, -scale_rows, scale_rows)
    squared = sum(reach**2 for reach in np.abs(slopes).sum(axis=0).tolist())
    return IntegerSum((bounded[:, None] * slopes).sum(axis=0), squared, 2 / (SLOPE_GRID * scale_rows))


def descend(
    start: FloatArray,
    respond: Callable[[FloatArray, FloatArray], Response],
    curve: Curve,
    recipe: Recipe,
    words: Callable[[int, FloatArray], Words],
    watch: Callable[[int, FloatArray], None],
) -> FloatArray:
    """Stochastic gradient descent on the squared error; return the mean of the later half of the iterates.

    Public: it sees the curve through `noisy_gradient` only. `words` gives the stream for the noise of a step, and
    `watch` is called with every step's mean.
    """
    parameters = start
    watch(0, start)
    iterates: list[FloatArray] = []
    for step in range(recipe.steps):
        examples = curve.examples(batch_ranks(len(curve.rows), recipe.batch, step))
        response = respond(parameters, examples.inputs)
        gradient = noisy_gradient(examples, curve.scale_rows, response, recipe, words(step, parameters))
        # A line that gets more than its share of the examples would overshoot.
        gradient /= np.maximum(1, recipe.models * np.square(response.slopes).mean(axis=0))
        parameters = np.clip(parameters - recipe.learning_rate * gradient, start - MOST_MOVE, start + MOST_MOVE)
        iterates.append(parameters)
        watch(step + 1, np.mean(iterates[len(iterates) // 2 :], axis=0))
    return np.asarray(np.mean(iterates[len(iterates) // 2 :], axis=0))


# --- what comes out --------------------------------------------------------------------------------


def whole_rows(predicted: FloatArray, scale_rows: int, most: int) -> IntArray:
    """Predictions as whole rows between 0 and `most`."""
    return np.rint(np.clip(predicted * scale_rows, 0, most)).astype(np.int64)


def bits(numbers: FloatArray) -> IntArray:
    """Floats to the last bit, as whole numbers."""
    return np.ascontiguousarray(numbers, np.float64).view(np.int64)


class Model(Protocol):
    """PUBLIC: a trained model."""

    @property
    def numbers(self) -> int:
        """How many numbers it keeps."""

    def facts(self) -> Fact:
        """All that it keeps, to name what is released of it."""

    def predict(self, inputs: FloatArray) -> FloatArray:
        """Positions as fractions of all, for ranks as fractions of the domain."""
