"""The exact discrete Gaussian against its distribution, its own thresholds, a slow reference and OpenDP.

Statistical tests here raise a false alarm with probability 1e-7; each is shown to fail on a defect.
"""

from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from distributions import FALSE_ALARM, chi_squared, same_origin, slightly_moved
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from scumble.privacy import noise

VARIANCES = [Fraction(1, 16), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(50, 7), Fraction(900), Fraction(10**5)]


def misfit(sample: NDArray[np.int64], variance: Fraction) -> float:
    """The p-value of a chi-squared test of a sample against the discrete Gaussian of a variance."""
    sigma = float(variance) ** 0.5
    radius = int(12 * sigma) + 2
    x = np.arange(-radius, radius + 1)
    chances = np.exp(-np.square(x) / (2 * float(variance)))
    width = max(1, int(sigma / 20))
    cells = (x + radius) // width
    expected = np.bincount(cells, chances / chances.sum()) * len(sample)
    observed = np.bincount((np.clip(sample, -radius, radius) + radius) // width, minlength=len(expected))
    return chi_squared(observed, expected)


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_distribution(variance: Fraction) -> None:
    assert misfit(noise.discrete_gaussian(variance, 3 * 10**6), variance) > FALSE_ALARM


@pytest.mark.parametrize(("drawn", "claimed"), [("0.25", "0.253"), ("2", "2.04"), ("900", "882"), ("100000", "98000")])
def test_distribution_test_notices_a_variance_that_is_slightly_off(drawn: str, claimed: str) -> None:
    assert misfit(noise.discrete_gaussian(Fraction(drawn), 3 * 10**6), Fraction(claimed)) < FALSE_ALARM


def test_distribution_test_notices_rejection_that_is_left_out() -> None:
    """Planted defect: the candidates themselves, which have the right scale and the wrong shape."""
    assert misfit(noise.discrete_laplace(Fraction(31), 10**6), Fraction(900)) < FALSE_ALARM


def test_large_variances_are_normal() -> None:
    """Beyond what can be counted cell by cell: Kolmogorov and Smirnov."""
    variance = Fraction(2**77) + Fraction(1, 2**40)
    sample = noise.discrete_gaussian(variance, 50_000) / float(variance) ** 0.5
    assert stats.kstest(sample, "norm").pvalue > FALSE_ALARM
    assert stats.kstest(1.1 * sample, "norm").pvalue < FALSE_ALARM


@pytest.mark.slow
def test_agrees_with_opendp() -> None:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    theirs = np.array(dp.m.make_gaussian(*space, scale=5.0)([0] * 400_000))
    ours = noise.discrete_gaussian(Fraction(25), 400_000)
    assert same_origin(theirs, ours, radius=18) > FALSE_ALARM
    assert same_origin(theirs, slightly_moved(ours), radius=18) < FALSE_ALARM


def exact_acceptance(variance: Fraction, size: int) -> mpmath.mpf:
    scale = int(mpmath.floor(mpmath.sqrt(mpmath.mpf(variance.numerator) / variance.denominator))) + 1
    exponent = (size - variance / scale) ** 2 / (2 * variance)
    return mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator)


@pytest.mark.parametrize("variance", [*VARIANCES, Fraction(2**77) + Fraction(1, 2**40), Fraction(10**12, 7)], ids=str)
def test_thresholds_against_multi_precision(variance: Fraction) -> None:
    sigma = float(variance) ** 0.5
    sizes = sorted({int(sigma * k / 7) for k in range(150)} | {0, 1, 2, 3})
    leading = noise._acceptance_words(variance, sizes)
    with mpmath.workprec(1500):
        for size, word in zip(sizes, leading, strict=True):
            value = exact_acceptance(variance, size)
            if value == 1:
                assert word == 2**64 - 1
                continue
            assert word == int(mpmath.floor(value * 2**64))
            words = noise._expansion(noise._acceptance_probability, variance, size, 3)
            assert sum(w << (64 * (2 - i)) for i, w in enumerate(words)) == int(mpmath.floor(value * 2**192))


def test_forty_digits_that_cannot_decide_are_left_to_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probability within 1e-38 of 1: its leading word is all ones, and nothing was rounded up to 2^64."""
    variance = Fraction(2**60)  # t = 2^30 + 1, and sigma^2/t lies 2^-30 or so from the whole number 2^30 - 1
    assert noise._acceptance_words(variance, [2**30 - 1]) == [2**64 - 1]
    monkeypatch.setattr(noise, "NEARLY", 1)  # nothing is ever clear: every word takes the slow way
    sizes = list(range(40))
    slow = noise._acceptance_words(Fraction(50, 7), sizes)
    monkeypatch.undo()
    assert slow == noise._acceptance_words(Fraction(50, 7), sizes)


def test_a_word_is_settled_by_the_first_digits_only_if_their_error_cannot_change_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With half as many digits, a hundredth of the last bit is in doubt: without a margin, words on both sides."""
    variance, sizes = Fraction(90_000), list(range(900))
    exact = [noise._leading_word(noise._acceptance_probability, variance, size) for size in sizes]
    monkeypatch.setattr(noise, "FAST_DIGITS", 21)
    monkeypatch.setattr(noise, "NEARLY", Decimal(-1))
    wrong = {word - right for word, right in zip(noise._acceptance_words(variance, sizes), exact, strict=True)}
    assert wrong == {-1, 0, 1}
    monkeypatch.setattr(noise, "NEARLY", Decimal("0.1"))
    assert noise._acceptance_words(variance, sizes) == exact


def reference(variance: Fraction, count: int, words: noise.Words) -> list[int]:
    """Rejection, candidate by candidate, in exact arithmetic on the same key stream."""
    scale = noise._proposal_scale(variance)
    samples: list[int] = []
    while len(samples) < count:
        missing = count - len(samples)
        candidates = np.zeros(missing + missing // 2 + 1, dtype=np.int64)
        noise._add_from_stream(candidates, Fraction(scale), words)
        firsts = words(len(candidates)).tolist()
        kept = []
        for candidate, first in zip(candidates.tolist(), firsts, strict=True):
            exponent = noise._acceptance_exponent(variance, abs(candidate))
            if exponent == 0:
                kept.append(candidate)
                continue
            word, position = first, 0
            while word == noise._expansion(noise._acceptance_probability, variance, abs(candidate), position + 1)[-1]:
                position += 1
                word = int(words(1)[0])
            if word < noise._expansion(noise._acceptance_probability, variance, abs(candidate), position + 1)[-1]:
                kept.append(candidate)
        samples += kept[:missing]
    return samples


def looping(queue: list[int]) -> noise.Words:
    """A key stream that hands out the given words over and over."""
    position = 0

    def words(size: int) -> NDArray[np.uint64]:
        nonlocal position
        taken = [queue[(position + i) % len(queue)] for i in range(size)]
        position += size
        return np.array(taken, dtype=np.uint64)

    return words


@given(st.data(), st.sampled_from([Fraction(1, 2), Fraction(2), Fraction(50, 7), Fraction(900)]))
def test_ties_against_the_reference(data: st.DataObject, variance: Fraction) -> None:
    """Streams full of ties, which real ones have once in 2^64 samples; variance 2 has a probability of exactly 1."""
    special = [w for k in range(4) for w in noise._acceptance_words(variance, [k])]
    special += [noise._expansion(noise._acceptance_probability, variance, k, 2)[1] for k in (0, 2, 3)]
    word = st.sampled_from([*special, 2**63]) | st.integers(0, 2**64 - 1)
    # An odd prime length, and enough ordinary words that the loop ends.
    stream = data.draw(st.lists(word, min_size=23, max_size=23)) + [2**63 + k for k in range(30)] + [5 << 60] * 6
    count = data.draw(st.integers(1, 4))
    ours = noise._gaussian_from_stream(variance, count, looping(stream))
    assert ours.tolist() == reference(variance, count, looping(stream))


def test_vectors() -> None:
    """What a fixed key stream gives: a change of the sampler, however small, is noticed."""
    words = looping([(k * 0x9E3779B97F4A7C15) % 2**64 for k in range(1, 10_008)])
    drawn = noise._gaussian_from_stream(Fraction(100), 12, words)
    assert drawn.tolist() == [-4, -1, 7, 15, -4, -9, 15, 7, 15, -4, -9, 15]


def test_a_certain_candidate_is_always_kept() -> None:
    """Variance 2: t = 2, and |Y| = 1 = sigma^2 / t is kept with probability 1, even by the largest word."""
    sizes = np.array([1], dtype=np.int64)
    assert noise._accepted(sizes, Fraction(2), looping([2**64 - 1])).tolist() == [True]
    assert noise._accepted(sizes + 1, Fraction(2), looping([2**64 - 1])).tolist() == [False]


def test_a_word_that_equals_its_threshold_is_decided_by_the_next() -> None:
    first, second = noise._expansion(noise._acceptance_probability, Fraction(2), 2, 2)
    for words, kept in (([first, second - 1], True), ([first, second + 1], False), ([first - 1], True)):
        assert noise._accepted(np.array([2]), Fraction(2), looping(words)).tolist() == [kept]
