"""Lower bounds on epsilon from counts: the limits against exact binomial tails, and bounds of scores of known law."""

from fractions import Fraction
from math import comb, exp, inf, log

import numpy as np
import pytest
from scipy import stats

from scumble.lab.audit.bound import (
    Features,
    bound_of_features,
    bound_of_gaussian_scores,
    bound_of_scores,
    epsilon_above,
    limits,
    separation_above,
)

# By another tool, privacy-estimates 0.1.0.post1: compute_eps_lo(AttackResults, delta, alpha, "beta").
VECTORS: list[tuple[int, int, int, float, float, float]] = [
    # often, rarely, runs, delta, doubt, bound
    (38_700, 14_250, 100_000, 0.0, 1e-6, 0.9417886622784482),
    (950, 120, 1000, 0.0, 1e-6, 2.1934753304493015),
    (500, 3, 1000, 0.01, 1e-3, 3.4525047973098393),
    (800, 0, 800, 0.0, 1e-6, 4.00078455545958),
    (520, 500, 1000, 0.0, 1e-3, 0.0),
    (4000, 1500, 10_000, 0.05, 1e-6, 0.6629457295506862),
]


def tail(count: int, runs: int, p: Fraction) -> Fraction:
    """P(Binomial(runs, p) >= count), exactly."""
    return sum((comb(runs, k) * p**k * (1 - p) ** (runs - k) for k in range(count, runs + 1)), Fraction(0))


@pytest.mark.parametrize(("count", "runs"), [(0, 30), (1, 30), (7, 30), (29, 30), (30, 30), (40, 200)])
@pytest.mark.parametrize("doubt", [1e-6, 1e-3, 0.05])
def test_limits_against_exact_binomial_tails(count: int, runs: int, doubt: float) -> None:
    """A second implementation: at the limit, the tail that speaks against it is as rare as the doubt."""
    low, high = limits(count, runs, doubt)
    assert low <= count / runs <= high
    if count:
        assert float(tail(count, runs, Fraction(low))) == pytest.approx(doubt, rel=1e-6)
    else:
        assert low == 0
    if count < runs:
        assert float(1 - tail(count + 1, runs, Fraction(high))) == pytest.approx(doubt, rel=1e-6)
    else:
        assert high == 1


@pytest.mark.parametrize(("count", "runs", "doubt"), [(3, 10**5, 5e-7), (38_700, 10**5, 5e-7), (99_999, 10**5, 1e-9)])
def test_limits_against_scipys_binomial_test(count: int, runs: int, doubt: float) -> None:
    found = stats.binomtest(count, runs).proportion_ci(1 - 2 * doubt, "exact")
    assert limits(count, runs, doubt) == pytest.approx((found.low, found.high), rel=1e-6)


@pytest.mark.parametrize(("often", "rarely", "runs", "delta", "doubt", "bound"), VECTORS)
def test_bounds_against_another_tool(
    often: int, rarely: int, runs: int, delta: float, doubt: float, bound: float
) -> None:
    assert epsilon_above(often, rarely, runs, delta, doubt) == pytest.approx(bound, rel=1e-6, abs=1e-9)


def test_a_bound_is_seldom_wrong() -> None:
    """At a doubt of 5 %, of 2,000 bounds at most 5 % exceed the true epsilon, and 4 sigma: false alarm 3e-5 if exact.

    It is far from exact: both limits are cautious, so it never happens.
    """
    rng = np.random.default_rng(1)
    p = exp(-1)
    wrong = 0
    for _ in range(2000):
        noise = rng.geometric(1 - p, (2, 400)) - rng.geometric(1 - p, (2, 400))
        wrong += bound_of_scores(noise[0], noise[1] + 1, 0.0, 0.05).epsilon > 1
    assert wrong < 2000 * 0.05 + 4 * (2000 * 0.05 * 0.95) ** 0.5


def test_choosing_the_event_on_all_runs_would_be_noticed() -> None:
    """Planted: the largest of the bounds of all events on the same runs is wrong far more often than its doubt."""
    rng = np.random.default_rng(2)
    wrong = 0
    for _ in range(150):
        scores = rng.normal(size=(2, 100))  # of the same law: epsilon is 0
        counts = [(side[:, None] >= np.concatenate(scores)).sum(axis=0).tolist() for side in scores]
        wrong += any(epsilon_above(one, zero, 100, 0.0, 0.4) > 0 for zero, one in zip(*counts, strict=True))
    assert wrong > 150 * 0.4 + 4 * (150 * 0.4 * 0.6) ** 0.5


def test_bounds_come_close() -> None:
    rng = np.random.default_rng(3)
    p = exp(-1)
    noise = rng.geometric(1 - p, (2, 10**5)) - rng.geometric(1 - p, (2, 10**5))
    assert 0.9 < bound_of_scores(noise[0], noise[1] + 1, 0.0, 1e-6).epsilon < 1
    assert 0.9 < bound_of_scores(-noise[0], -noise[1] - 1, 0.0, 1e-6).epsilon < 1  # the other table's tail
    features = [[(int(x), "same") for x in side] for side in (noise[0], noise[1] + 1)]
    assert 0.85 < bound_of_features(features[0], features[1], 0.0, 1e-6).epsilon < 1


def test_copies_of_a_feature_count_once() -> None:
    """A weak feature that is there thirty times, under other names, must not drown a strong one."""
    rng = np.random.default_rng(8)
    once: list[list[Features]] = []
    for strong, weak in ((0.3, 0.45), (0.7, 0.55)):
        once.append([tuple(map(bool, draw)) for draw in (rng.random((2, 1000)) < [[strong], [weak]]).T])
    often = [[(first, *(f"{copy}{second}" for copy in range(30))) for first, second in side] for side in once]
    assert bound_of_features(often[0], often[1], 0.0, 1e-6) == bound_of_features(once[0], once[1], 0.0, 1e-6)


def test_delta_is_taken_off() -> None:
    """An event that only one table knows, of probability 1/2, is worth nothing at a delta of 1/2 or more."""
    zero, one = [0.0] * 1000, [0.0, 1.0] * 500
    assert bound_of_scores(zero, one, 0.0, 1e-6).epsilon > 2
    assert bound_of_scores(zero, one, 0.5, 1e-6).epsilon == 0


def test_nothing_is_concluded_from_nothing() -> None:
    assert bound_of_scores([], [], 0.0, 1e-6).epsilon == 0
    assert bound_of_scores([1.0], [2.0], 0.0, 1e-6).epsilon == 0
    assert bound_of_features([], [], 0.0, 1e-6).epsilon == 0
    assert bound_of_scores([5.0] * 50, [5.0] * 50, 0.0, 1e-6).epsilon == 0
    assert bound_of_scores([-inf] * 900, [inf] * 900, 0.0, 1e-6).epsilon == pytest.approx(
        log(limits(720, 720, 5e-7)[0] / limits(0, 720, 5e-7)[1])
    )


# --- Gaussian noise --------------------------------------------------------------------------------


def gaussian_delta(epsilon: float, separation: float) -> float:
    """Balle and Wang's formula: the delta of one Gaussian release at an epsilon."""
    half, middle = separation / 2, epsilon / separation
    return float(stats.norm.cdf(half - middle) - exp(epsilon) * stats.norm.cdf(-half - middle))


def ratios(rng: np.random.Generator, separation: float, runs: int) -> tuple[list[float], list[float]]:
    """Log-likelihood ratios of N(mu, 1) against N(0, 1), of draws from either."""
    draws = rng.normal(size=runs), rng.normal(separation, size=runs)
    without, with_row = ((separation * (side - separation / 2)).tolist() for side in draws)
    return without, with_row


@pytest.mark.parametrize(("often", "rarely", "runs"), [(700, 300, 1000), (6000, 5000, 10_000), (999, 2, 1000)])
def test_separations_against_the_normal_distribution(often: int, rarely: int, runs: int) -> None:
    (low, _), (_, high) = limits(often, runs, 5e-4), limits(rarely, runs, 5e-4)
    found = separation_above(often, rarely, runs, 1e-3)
    assert stats.norm.sf(stats.norm.isf(low) + found) == pytest.approx(high)


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-2])
def test_gaussian_epsilons_are_exact(delta: float) -> None:
    bound = bound_of_gaussian_scores(*ratios(np.random.default_rng(4), 1.0, 4000), delta, 1e-6)
    separation = separation_above(bound.often, bound.rarely, bound.runs, 1e-6)
    assert gaussian_delta(bound.epsilon, separation) == pytest.approx(delta, rel=1e-6)


def test_a_gaussian_bound_is_seldom_wrong() -> None:
    """As above, and again both limits are cautious: of 2,000 bounds at a doubt of 5 %, few exceed the truth."""
    rng = np.random.default_rng(5)
    claimed = gaussian_delta(2.0, 0.6)
    wrong = sum(bound_of_gaussian_scores(*ratios(rng, 0.6, 300), claimed, 0.05).epsilon > 2 for _ in range(2000))
    assert wrong < 2000 * 0.05 + 4 * (2000 * 0.05 * 0.95) ** 0.5


def test_a_gaussian_bound_comes_close_and_finds_half_the_noise() -> None:
    rng = np.random.default_rng(6)
    claimed = gaussian_delta(4.0, 0.8)
    assert 3.6 < bound_of_gaussian_scores(*ratios(rng, 0.8, 50_000), claimed, 1e-6).epsilon < 4
    assert bound_of_gaussian_scores(*ratios(rng, 1.6, 2500), claimed, 1e-6).epsilon > 5


def test_an_ordinary_event_shows_little_of_what_gaussian_noise_loses() -> None:
    """Why the family is assumed at all: at a small delta, without it, most of the claim stays out of sight."""
    sides = ratios(np.random.default_rng(7), 0.8, 50_000)
    claimed = gaussian_delta(4.0, 0.8)
    assert (
        bound_of_scores(*sides, claimed, 1e-6).epsilon < 0.6 * bound_of_gaussian_scores(*sides, claimed, 1e-6).epsilon
    )


def test_nothing_gaussian_is_concluded_from_nothing() -> None:
    assert bound_of_gaussian_scores([], [], 1e-6, 1e-6).epsilon == 0
    assert bound_of_gaussian_scores([0.0] * 100, [0.0] * 100, 1e-6, 1e-6).epsilon == 0
