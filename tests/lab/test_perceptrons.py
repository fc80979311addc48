"""The paper's perceptrons: gradients, what one row can do to their sum, what training costs, and what it learns."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from scumble import Budget, IntegerDomain
from scumble.errors import InvalidParameter
from scumble.lab.comparators import FMIPerceptronsIndex, fmi_perceptrons, perceptrons
from scumble.lab.comparators.fmi_perceptrons import repeated_ranks
from scumble.lab.comparators.perceptrons import ROOT, Experts, Shape, clipped_network_sum, start
from scumble.lab.comparators.training import Examples, IntegerSum, inputs_of
from scumble.privacy.budget import unsafe_budget
from scumble.privacy.noise import Words, discrete_gaussian

dp_accounting: Any = pytest.importorskip("dp_accounting")
rdp: Any = pytest.importorskip("dp_accounting.rdp")

SHAPES = [Shape(1, (5,)), Shape(1, (7, 5, 3)), Shape(2, (6, 4, 3)), Shape(3, (4, 4, 4))]
IntArray = NDArray[np.int64]


def spend(epsilon: int | str = 1) -> Budget:
    return unsafe_budget(epsilon, delta="1e-6", label="test")


def moved(shape: Shape, seed: int) -> NDArray[np.float64]:
    return start(shape) + np.random.default_rng(seed).normal(0, 0.2, shape.numbers)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_gradients_against_finite_differences(monkeypatch: pytest.MonkeyPatch, shape: Shape, seed: int) -> None:
    """Far below the clip, and in fine units, the sum is the gradient itself."""
    monkeypatch.setattr(perceptrons, "UNITS", 2**40)
    parameters, size = moved(shape, seed), 9
    examples = Examples(inputs_of(np.arange(size), size), np.array([0, 1, 1, 4, 9, 10, 10, 30, 31]))
    found = clipped_network_sum(shape, parameters, examples, 31, 2.0**12)

    def loss(at: NDArray[np.float64]) -> float:
        errors = Experts(shape, at).predict(examples.inputs) - examples.rows / 31
        return float(np.square(errors * ROOT).sum())

    step = 1e-6
    for place in range(shape.numbers):
        nudge = step * (np.arange(shape.numbers) == place)
        slope = (loss(parameters + nudge) - loss(parameters - nudge)) / (2 * step)
        assert found.total[place] * found.unit == pytest.approx(slope, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("clip", [1e-4, 0.1, 1.0])
def test_no_neighbour_changes_a_gradient_by_more_than_is_claimed(shape: Shape, clip: float) -> None:
    """Brute force over small tables, every neighbour; at the smallest clip errors turn round, and the claim is used."""
    rng, size, worst = np.random.default_rng(7), 40, 0.0
    parameters = moved(shape, 1)
    inputs = inputs_of(np.arange(size), size)
    predicted = Experts(shape, parameters).predict(inputs)
    for scale in (1, 3, 50):
        # Tables that lie just below the predictions: one row more and every error has the other sign.
        for table in (np.floor(predicted * scale).astype(np.int64), np.cumsum(rng.integers(0, 3, size))):
            sums = [
                clipped_network_sum(shape, parameters, Examples(inputs, table + (np.arange(size) >= rank)), scale, clip)
                for rank in range(size + 1)
            ]
            for other in sums[:-1]:
                change = int(np.square(other.total - sums[-1].total).sum())
                worst = max(worst, change / other.squared_sensitivity)
    assert worst <= 1
    assert worst > 0.05 or clip > 1e-4


def test_without_the_factor_of_the_batch_it_would() -> None:
    """Planted: the published noise, for one gradient that changes rather than all."""
    shape, size = SHAPES[2], 40
    parameters, inputs = moved(shape, 1), inputs_of(np.arange(size), size)
    table = np.floor(Experts(shape, parameters).predict(inputs)).astype(np.int64)
    one, other = (clipped_network_sum(shape, parameters, Examples(inputs, table + more), 1, 1e-4) for more in (0, 1))
    assert int(np.square(one.total - other.total).sum()) > 4 * one.squared_sensitivity // size**2


def test_a_gradient_that_is_no_number_is_nothing() -> None:
    shape = SHAPES[1]
    examples = Examples(inputs_of(np.arange(5), 5), np.arange(5))
    with np.errstate(all="ignore"):
        found = clipped_network_sum(shape, np.full(shape.numbers, 1e200), examples, 5, 1.0)
    assert int(np.square(found.total).sum()) <= found.squared_sensitivity


def test_every_step_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another set of orders adds the drawn noise up to epsilon's share for training, and the budget comes first."""
    budget, multipliers, squared = spend(), [], [0]

    def sums(*arguments: Any) -> IntegerSum:
        found = clipped_network_sum(*arguments)
        squared[0] = found.squared_sensitivity
        return found

    def listen(variance: Fraction, count: int, words: Words | None = None) -> IntArray:
        assert budget.state == "drawn"
        multipliers.append(float(variance / squared[0]) ** 0.5)
        return discrete_gaussian(variance, count, words)

    monkeypatch.setattr(fmi_perceptrons, "clipped_network_sum", sums)
    monkeypatch.setattr(fmi_perceptrons, "discrete_gaussian", listen)
    index = FMIPerceptronsIndex(2, hidden=(4, 3, 2), epochs=3, steps_per_epoch=2, batch=16, error_share="0.2")
    counts = np.full(30, 5, dtype=np.int64)
    index.fit_counts(counts, domain=IntegerDomain(0, 29), budget=budget, capacity=150)
    accountant = rdp.RdpAccountant(list(np.linspace(1.5, 2000, 8000)))
    for multiplier in multipliers:
        accountant.compose(dp_accounting.GaussianDpEvent(multiplier))
    assert len(multipliers) == 6
    assert 0.76 < accountant.get_epsilon(1e-6) < 0.801


@pytest.mark.parametrize("planted", [False, True])
def test_perceptrons_learn_where_noise_allows(monkeypatch: pytest.MonkeyPatch, planted: bool) -> None:
    """Without the factor they leave the start's error far behind; with it they do not. No row is lost either way."""
    if planted:
        monkeypatch.setattr(FMIPerceptronsIndex, "_multipliers", lambda *_: [Fraction(1, 2048)])
    counts = np.zeros(200, dtype=np.int64)
    counts[:60] = 1000
    epochs = 40 if planted else 4
    index = FMIPerceptronsIndex(2, hidden=(16, 12, 8), epochs=epochs, steps_per_epoch=5, batch=128, unsafe_trace=True)
    index.fit_counts(counts, domain=IntegerDomain(0, 199), budget=spend(8), capacity=60_000)
    assert not index.unsafe_outcome(counts, np.arange(200), np.arange(200)).missed.any()
    history = index.unsafe_history
    assert len(history) == epochs + 1
    assert all(a <= b for (a, _), (b, _) in pairwise(history))
    assert (history[-1][1] < 6_000) == planted


@pytest.mark.parametrize("size", [1, 3, 50, 400])
def test_small_domains_are_repeated_evenly(size: int) -> None:
    ranks = repeated_ranks(size, 100, 3)
    assert len(ranks) == 100
    assert (ranks.min() >= 0, ranks.max() < size) == (True, True)
    seen = np.bincount(ranks, minlength=size)
    assert seen.max() - seen.min() <= 1


@pytest.mark.parametrize(
    "options",
    [
        {"experts": 0},
        {"experts": 9},
        {"hidden": ()},
        {"hidden": (0,)},
        {"hidden": (2000,)},
        {"epochs": 0},
        {"steps_per_epoch": 0},
        {"epochs": 4096, "steps_per_epoch": 2},
        {"sensitivity": "row"},
        {"clip": 0},
    ],
)
def test_bad_parameters_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter) as caught:
        FMIPerceptronsIndex(**options)
    assert caught.value.hint
