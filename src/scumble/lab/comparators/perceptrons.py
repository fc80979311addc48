"""Experts as the paper's experiments had them: perceptrons with three hidden layers under a gate of the same shape.

Inputs and parameters are public, the curve is secret and enters through the errors only. Forward and backward passes
are matrix products; the norm of each example's gradient comes out of them without the gradient itself, so that clipping
costs no memory. What is private about a step is in `clipped_network_sum`; docs/privacy.md 9.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from scumble.lab.comparators.training import Examples, IntegerSum, bits
from scumble.privacy.noise import Fact, Noise

__all__ = ["Experts", "Shape", "clipped_network_sum", "start"]

UNITS = 4  # to a clip: what the rounding of the sum adds to its sensitivity is small against 2 |B| clips
MARGIN = 1 - 2**-20  # of a clip: far more than rounding in the norms
ROOT = sqrt(12.0)  # stretches a unit interval to unit variance
FloatArray = NDArray[np.float64]
Layer = tuple[FloatArray, FloatArray]
Reach = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class Shape:
    """PUBLIC: so many experts with hidden layers of these widths, and a gate if there are several."""

    experts: int
    hidden: tuple[int, ...]

    @property
    def nets(self) -> list[list[tuple[int, int]]]:
        """Of each net, how many inputs and outputs its layers have: the experts', then the gate's."""
        outputs = [1] * self.experts + ([self.experts] if self.experts > 1 else [])
        return [list(zip((1, *self.hidden), (*self.hidden, last), strict=True)) for last in outputs]

    @property
    def numbers(self) -> int:
        return sum((inputs + 1) * outputs for net in self.nets for inputs, outputs in net)

    def layers(self, parameters: FloatArray) -> list[list[Layer]]:
        """Weights and offsets of every layer of every net: views of the parameters."""
        found, at = [], 0
        for net in self.nets:
            layers = []
            for inputs, outputs in net:
                weights = parameters[at : at + inputs * outputs].reshape(inputs, outputs)
                at += inputs * outputs
                layers.append((weights, parameters[at : at + outputs]))
                at += outputs
            found.append(layers)
        return found


def start(shape: Shape) -> FloatArray:
    """Where training starts: random weights (He et al.), kinks over the whole domain, by a public key."""
    words = Noise(bytes(32)).stream("perceptrons")

    def evenly(count: int) -> FloatArray:
        return (words(count).astype(np.float64) + 0.5) / 2.0**64

    parts: list[FloatArray] = []
    for net in shape.nets:
        for inputs, outputs in net:
            parts.append(sqrt(2 / inputs) * ndtri(evenly(inputs * outputs)))
            parts.append(sqrt(6) * (2 * evenly(outputs) - 1) if inputs == 1 else np.zeros(outputs))
    return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class Experts:
    """PUBLIC: the trained networks."""

    shape: Shape
    parameters: FloatArray

    @property
    def numbers(self) -> int:
        return len(self.parameters)

    def facts(self) -> Fact:
        return self.shape.experts, self.shape.hidden, bits(self.parameters)

    def predict(self, inputs: FloatArray) -> FloatArray:
        """Positions as fractions of all, for ranks as fractions of the domain."""
        return _Pass(self.shape, self.parameters, inputs).predicted


class _Pass:
    """One forward pass: what every layer got, the experts' values, the gate's weights, the predictions."""

    def __init__(self, shape: Shape, parameters: FloatArray, inputs: FloatArray) -> None:
        self.nets = shape.layers(parameters)
        self.inputs = [_forward(net, (inputs[:, None] - 0.5) * ROOT) for net in self.nets]
        self.values = np.concatenate([reached[-1] for reached in self.inputs[: shape.experts]], axis=1)
        if shape.experts > 1:
            logits = self.inputs[-1][-1]
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            self.weights = weights / weights.sum(axis=1, keepdims=True)
        else:
            self.weights = np.ones_like(self.values)
        self.mixed = (self.weights * self.values).sum(axis=1)
        self.predicted: FloatArray = self.mixed / ROOT + 0.5

    def backward(self, pull: FloatArray) -> list[Reach]:
        """Of every layer its inputs and, for a pull on each prediction, the pull on each of its outputs."""
        pulls = list((pull[:, None] * self.weights).T[:, :, None])
        if len(self.nets) > len(pulls):
            pulls.append(pull[:, None] * self.weights * (self.values - self.mixed[:, None]))
        return [
            reach
            for net, inputs, pulled in zip(self.nets, self.inputs, pulls, strict=True)
            for reach in _backward(net, inputs, pulled)
        ]


def _forward(net: Sequence[Layer], inputs: FloatArray) -> list[FloatArray]:
    reached = [inputs]
    for place, (weights, offsets) in enumerate(net):
        sums = reached[-1] @ weights + offsets
        reached.append(np.maximum(sums, 0) if place < len(net) - 1 else sums)
    return reached


def _backward(net: Sequence[Layer], inputs: Sequence[FloatArray], pull: FloatArray) -> list[Reach]:
    reaches = []
    for place in reversed(range(len(net))):
        reaches.append((inputs[place], pull))
        if place:
            pull = (pull @ net[place][0].T) * (inputs[place] > 0)
    return reaches[::-1]


def clipped_network_sum(
    shape: Shape, parameters: FloatArray, examples: Examples, scale_rows: int, clip: float
) -> IntegerSum:
    """The sum of the examples' gradients, each clipped, in whole units of clip / UNITS.

    L2 sensitivity: one row moves every later y, so every gradient may turn round, 2 |B| clips; and the sum is rounded
    here, not each gradient, by up to half a unit in each entry of either sum: sqrt(d) units more. Neighbours: one row
    added or removed. docs/privacy.md 9.2.
    """
    forward = _Pass(shape, parameters, examples.inputs)
    errors = forward.mixed - (examples.rows / scale_rows - 0.5) * ROOT
    reaches = forward.backward(2 * errors)
    # A layer's gradient is the product of its inputs, with a 1 for the offsets, and the pull: so is its norm.
    squares = sum((np.square(inputs).sum(axis=1) + 1) * np.square(pull).sum(axis=1) for inputs, pull in reaches)
    shares = MARGIN * clip / np.maximum(np.sqrt(squares), clip)
    total = np.concatenate(
        [
            part
            for inputs, pull in reaches
            for part in ((inputs.T @ (pull * shares[:, None])).ravel(), (pull * shares[:, None]).sum(axis=0))
        ]
    )
    # Pulls that overflowed are none: their norm is no number, and neither is their share.
    units = np.rint(np.nan_to_num(total * (UNITS / clip), nan=0, posinf=0, neginf=0)).astype(np.int64)
    reach = 2 * UNITS * len(examples.rows) + isqrt(shape.numbers) + 1
    return IntegerSum(units, reach**2, clip / UNITS)
