"""Segments: as few as an independent optimum allows, never falling, within max_error at every rank."""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from scumble.index.curve import Histogram, MonotoneCurve, NoisyCurve, _isotonic, make_monotone
from scumble.index.segments import Segments, fit_segments, fit_within, quantum, tolerance

steps = st.lists(
    st.one_of(st.integers(0, 3), st.integers(0, 40), st.sampled_from([0, 0, 500])), min_size=1, max_size=40
)


def curve_of(increments: list[int]) -> MonotoneCurve:
    return MonotoneCurve(np.cumsum(np.array(increments, dtype=np.int64)))


def least_width(points: list[int]) -> Fraction:
    """The least height of a strip around some line that holds every point: exact, over all slopes that can matter.

    The height is convex and piecewise linear in the slope, and its corners lie at slopes between two points.
    """
    if len(points) < 3:
        return Fraction(0)
    slopes = {Fraction(points[j] - points[i], j - i) for i in range(len(points)) for j in range(i + 1, len(points))}
    heights = ([y - slope * x for x, y in enumerate(points)] for slope in slopes)
    return min(max(height) - min(height) for height in heights)


def optimum(points: list[int], allowed: int) -> int:
    """The fewest pieces, by trying every way to cut."""

    @cache
    def fewest(end: int) -> int:
        if end == 0:
            return 0
        best = end
        for start in range(end - 1, -1, -1):
            if least_width(points[start:end]) > 2 * allowed:
                break
            best = min(best, fewest(start) + 1)
        return best

    return fewest(len(points))


def fitted(curve: MonotoneCurve, max_error: int) -> Segments:
    segments = fit_segments(curve, max_error)
    assert segments is not None
    return segments


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=18), st.integers(1, 25))
def test_fewest_possible(increments: list[int], max_error: int) -> None:
    curve = curve_of(increments)
    assert len(fitted(curve, max_error)) == optimum(curve.rows.tolist(), tolerance(max_error))


@given(steps, st.integers(1, 200))
def test_within_max_error_and_never_falling(increments: list[int], max_error: int) -> None:
    curve = curve_of(increments)
    segments = fitted(curve, max_error)
    values = segments.at_many(np.arange(len(increments)))
    assert np.abs(values - curve.rows).max() <= max_error
    assert np.all(np.diff(values) >= 0)
    assert values.min() >= 0
    assert [segments.at(rank) for rank in range(len(increments))] == values.tolist()


def test_no_piece_lies_below_zero_or_below_an_earlier_piece_of_its_curve() -> None:
    """The second begins below the first, the third below zero; the other curve counts from zero again."""
    starts, first, last = np.array([0, 2, 4, 6, 8]), np.array([0, -4, 0, -3, -9]), np.array([-2, 0, 7, 5, 1])
    segments = Segments(10, starts, first, last, 5, (0, 3))
    values = segments.at_many(np.arange(10)).tolist()
    assert values == [segments.at(rank) for rank in range(10)] == [0, 0, 0, 0, 0, 7, 0, 5, 5, 5]


@pytest.mark.parametrize("max_error", [1, 2, 15, 16, 17, 100, 5000])
def test_large_random_curves(max_error: int) -> None:
    rng = np.random.default_rng(max_error)
    for increments in (rng.poisson(1, 50_000), rng.zipf(1.5, 20_000) % 10_000, np.zeros(1000), np.full(999, 2**26)):
        curve = MonotoneCurve(np.cumsum(increments.astype(np.int64)))
        segments = fitted(curve, max_error)
        values = segments.at_many(np.arange(len(curve.rows)))
        assert np.abs(values - curve.rows).max() <= max_error
        assert np.all(np.diff(values) >= 0)


def test_at_the_limits_of_exact_arithmetic() -> None:
    """2^26 ranks and 2^36 rows: every product of the kernel just fits."""
    rows = np.linspace(0, 2**36 - 1, 2**26).astype(np.int64)
    assert len(fitted(MonotoneCurve(rows), 2)) == 1
    rows[-1] = 2**36 - 1
    rows[: 2**25] = 0
    segments = fitted(MonotoneCurve(rows), 1000)
    assert abs(segments.at(2**26 - 1) - (2**36 - 1)) <= 1000
    assert len(segments) == 2


def test_a_curve_that_needs_more_segments_than_the_first_try_has_room_for() -> None:
    rng = np.random.default_rng(0)
    curve = MonotoneCurve(np.cumsum(rng.integers(0, 10**6, 200_000)))
    segments = fitted(curve, 1)
    assert len(segments) > 1 << 16
    assert np.abs(segments.at_many(np.arange(200_000)) - curve.rows).max() <= 1


@given(steps, steps, st.integers(1, 50))
def test_deviation_is_the_largest_difference(increments: list[int], counts: list[int], max_error: int) -> None:
    size = min(len(increments), len(counts))
    segments = fitted(curve_of(increments[:size]), max_error)
    histogram = Histogram(np.array(counts[:size], dtype=np.int64))
    expected = np.abs(np.cumsum(histogram.counts) - segments.at_many(np.arange(size))).max()
    assert segments.deviation(histogram) == expected


def test_what_is_measured_stays_in_arrays() -> None:
    """A number of Python's own would take a time that depends on it."""
    segments = Segments(3, np.array([0]), np.array([2]), np.array([6]), 1)
    histogram = Histogram(np.array([9, 0, 1]))
    assert segments.deviation(histogram).tolist() == [7]
    assert segments.surplus(histogram).tolist() == [4]
    assert segments.deviation_from_end(histogram).tolist() == [4]


@given(steps, st.integers(1, 20))
def test_fewer_segments_on_demand(increments: list[int], most: int) -> None:
    curve = curve_of(increments)
    (segments,) = fit_within([curve], 1, lambda _: most)
    assert len(segments) <= most
    if segments.max_error > 33:
        # The search is exact to a 32nd, and where the quantum doubles the tolerance falls by as much again.
        tighter = fit_segments(curve, segments.max_error - segments.max_error // 16 - 1)
        assert tighter is not None
        assert len(tighter) > most


def test_quantum_leaves_room_for_the_fit() -> None:
    for max_error in range(1, 2000):
        assert 0 <= tolerance(max_error) < max_error
        assert quantum(max_error) <= max(1, max_error // 16)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.integers(1, 7))
def test_isotonic_in_chunks_is_isotonic_in_one_piece(values: list[float], chunk: int) -> None:
    from scipy.optimize import isotonic_regression

    import scumble.index.curve as module

    array = np.array(values)
    original, module.CHUNK = module.CHUNK, chunk
    try:
        pieces = _isotonic(array)
    finally:
        module.CHUNK = original
    assert np.allclose(pieces, isotonic_regression(array).x, rtol=1e-9, atol=1e-6)


def largest_error(values: NDArray[np.float64] | NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    return float(np.abs(values - truth).max())


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-50, 50)), min_size=1, max_size=50))
def test_isotonic_never_increases_the_largest_error(pairs: list[tuple[int, int]]) -> None:
    truth = np.cumsum([count for count, _ in pairs])
    noisy = truth + np.array([noise for _, noise in pairs], dtype=float)
    curve = NoisyCurve(len(pairs), np.arange(len(pairs)), noisy, levels=1, noise_rms=1.0)
    monotone = make_monotone(curve, capacity=int(truth[-1]))
    assert np.all(np.diff(monotone.rows) >= 0)
    assert largest_error(monotone.rows, truth) <= largest_error(noisy, truth) + 0.5


def test_straight_between_knots() -> None:
    curve = NoisyCurve(10, np.array([3, 9]), np.array([40.0, 100.0]), levels=1, noise_rms=1.0)
    assert make_monotone(curve, None).rows.tolist() == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
