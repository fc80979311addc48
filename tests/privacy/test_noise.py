"""The sampler against its exact distribution, its own thresholds, a slow reference and OpenDP.

Statistical tests here raise a false alarm with probability 1e-7; each is shown to fail on a defect.
"""

from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from itertools import count

import mpmath
import numpy as np
import pytest
from distributions import FALSE_ALARM, chi_squared, same_origin, slightly_moved
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scumble.errors import InvalidParameter
from scumble.privacy import noise

SCALES = [Fraction(5), Fraction(21), Fraction(50, 7), Fraction(1, 3), Fraction(1), Fraction(1000, 3)]
Sampler = Callable[[Fraction, int], NDArray[np.int64]]


def exact_probabilities(scale: Fraction, radius: int) -> NDArray[np.float64]:
    """P(X = x) for x in -radius..radius."""
    p = np.exp(-1 / float(scale))
    chances: NDArray[np.float64] = (1 - p) / (1 + p) * p ** np.abs(np.arange(-radius, radius + 1))
    return chances


def misfit(sample: NDArray[np.int64], scale: Fraction) -> float:
    """The p-value of a chi-squared test of a sample against discrete Laplace noise of a scale."""
    radius = int(8 * scale) + 2
    expected = exact_probabilities(scale, radius) * len(sample)
    clipped = np.clip(sample, -radius, radius) + radius
    observed = np.bincount(clipped, minlength=2 * radius + 1)
    expected[[0, -1]] = (len(sample) - expected[1:-1].sum()) / 2
    return chi_squared(observed, expected)


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_distribution(scale: Fraction) -> None:
    assert misfit(noise.discrete_laplace(scale, 2 * 10**7), scale) > FALSE_ALARM


@pytest.mark.parametrize(("drawn", "claimed"), [("1.005", "1"), ("5", "5.02"), ("21", "20.9")])
def test_distribution_test_notices_a_scale_that_is_slightly_off(drawn: str, claimed: str) -> None:
    assert misfit(noise.discrete_laplace(Fraction(drawn), 2 * 10**7), Fraction(claimed)) < FALSE_ALARM


def test_agrees_with_opendp() -> None:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    theirs = np.array(dp.m.make_laplace(*space, scale=5.0)([0] * 200_000))
    ours = noise.discrete_laplace(Fraction(5), 200_000)
    assert same_origin(theirs, ours, radius=25) > FALSE_ALARM
    assert same_origin(theirs, slightly_moved(ours), radius=25) < FALSE_ALARM


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_thresholds_against_multi_precision(scale: Fraction) -> None:
    with mpmath.workprec(600):
        for bit in range(noise._low_bits(scale) + 1):
            x = mpmath.mpf(2**bit) * scale.denominator / scale.numerator
            for probability, value in (
                (noise._digit_probability, mpmath.exp(x) / (1 + mpmath.exp(x)) ** 2),
                (noise._bit_probability, 1 / (1 + mpmath.exp(x))),
                (noise._tail_probability, mpmath.exp(-x)),
            ):
                whole = int(mpmath.floor(value * 2**256))
                words = noise._expansion(probability, scale, bit, 4)
                assert sum(word << (64 * (3 - i)) for i, word in enumerate(words)) == whole


HALF, ODD = Fraction(1, 2), Fraction(2**63 + 1, 2**64)  # the second has more decimal digits than are computed first


@pytest.mark.parametrize(
    ("probability", "word"),
    [
        (HALF - Fraction(1, 10**55), 2**63 - 1),
        (HALF + Fraction(1, 10**55), 2**63),
        (ODD + Fraction(1, 10**62), 2**63 + 1),
        (ODD - Fraction(1, 10**62), 2**63),
    ],
)
def test_a_word_that_the_first_digits_cannot_decide_takes_more(probability: Fraction, word: int) -> None:
    def rounded(_scale: Fraction, _bit: int, context: Context) -> Decimal:
        return context.divide(Decimal(probability.numerator), Decimal(probability.denominator))

    assert noise._expansion(rounded, Fraction(1), 0, 1) == (word,)


@pytest.mark.parametrize("scale", [*SCALES, Fraction(25, 1099), Fraction(1, 2**16)], ids=str)
def test_as_many_bits_are_drawn_as_may_be_one(scale: Fraction) -> None:
    """For the last but one, the leading word of the only one is 1; for the last there is none."""
    bits = noise._low_bits(scale)
    *drawn, beyond = [noise._leading_word(noise._bit_probability, scale, bit) for bit in range(bits + 1)]
    assert beyond == 0
    assert all(drawn)
    if scale < Fraction(1, 40):
        assert drawn == ([1] if scale == Fraction(25, 1099) else [])


def implied_distribution(scale: Fraction, words: int) -> dict[int, Fraction]:
    """The distribution that the thresholds themselves imply, to 64 * words bits."""

    def value(probability: noise.Probability, bit: int) -> Fraction:
        expansion = noise._expansion(probability, scale, bit, words)
        return sum((Fraction(word, 2 ** (64 * (i + 1))) for i, word in enumerate(expansion)), Fraction(0))

    bits = noise._low_bits(scale)
    total = {0: Fraction(1)}
    digits = [(bit, {1: value(noise._digit_probability, bit)}) for bit in range(bits)]
    once, again = value(noise._bit_probability, bits), value(noise._tail_probability, bits)
    digits.append((bits, {times: once * again ** (times - 1) * (1 - again) for times in (1, 2, 3)}))
    for bit, chances in digits:
        step = {0: 1 - 2 * sum(chances.values(), Fraction(0))}
        for times, chance in chances.items():
            step[times] = step[-times] = chance
        spread: dict[int, Fraction] = {}
        for x, p in total.items():
            for times, chance in step.items():
                spread[x + (times << bit)] = spread.get(x + (times << bit), Fraction(0)) + p * chance
        total = spread
    return total


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(5, 2), Fraction(1, 3)], ids=str)
def test_adjacent_integers_differ_by_exactly_one_over_scale(scale: Fraction) -> None:
    """Pure differential privacy, read off the thresholds: P(X = x) / P(X = x + 1) = exp(1 / scale)."""
    distribution = implied_distribution(scale, words=5)
    with mpmath.workprec(700):
        ratio = mpmath.exp(mpmath.mpf(scale.denominator) / scale.numerator)
        for x in range(int(10 * scale) + 3):
            upper, lower = distribution[x], distribution[x + 1]
            found = mpmath.mpf(upper.numerator * lower.denominator) / (upper.denominator * lower.numerator)
            assert abs(found / ratio - 1) < mpmath.mpf(2) ** -120
            assert distribution[x] == distribution[-x]


def reference(scale: Fraction, stream: list[int], size: int, more: list[int]) -> list[int]:
    """A slow sampler in exact arithmetic on the same key stream: `docs/privacy.md` section 3, bit by bit."""
    bits = noise._low_bits(scale)
    extra = iter(more)

    def below(probability: noise.Probability, bit: int, first: int | None) -> bool:
        for position in count():
            word = first if first is not None and position == 0 else next(extra)
            threshold = noise._expansion(probability, scale, bit, position + 1)[position]
            if word != threshold:
                return word < threshold
        raise AssertionError

    samples = [0] * size
    for sign, flip in ((1, 0), (-1, 2**64 - 1)):
        for bit in range(bits + 1):
            for i in range(size):
                word = stream[bit * size + i] ^ flip
                if bit < bits:
                    samples[i] += sign * below(noise._digit_probability, bit, word) << bit
                elif below(noise._bit_probability, bits, word):
                    times = 1
                    while below(noise._tail_probability, bits, None):
                        times += 1
                    samples[i] += sign * times << bits
    return samples


def feed(*parts: list[int]) -> noise.Words:
    """A key stream that hands out the given words: the first part in one piece, then word by word."""
    queue = [word for part in parts for word in part]

    def words(size: int) -> NDArray[np.uint64]:
        taken = [queue.pop(0) for _ in range(size)]
        return np.array(taken, dtype=np.uint64)

    return words


def test_every_word_that_agrees_draws_one_more() -> None:
    known = noise._expansion(noise._bit_probability, Fraction(5), 2, 4)
    for agreed in range(3):
        for stop in range(agreed, 4):
            for step, below in ((-1, True), (1, False)):
                drawn = feed([*known[agreed:stop], known[stop] + step])
                assert noise._lies_below(noise._bit_probability, Fraction(5), 2, drawn, agreed=agreed) is below


@given(st.data(), st.sampled_from(SCALES))
def test_kernel_and_ties_against_the_reference(data: st.DataObject, scale: Fraction) -> None:
    """Streams full of ties, which real ones have once in 2^59 samples."""
    bits = noise._low_bits(scale)
    leading = [noise._expansion(noise._digit_probability, scale, bit, 2) for bit in range(bits)] + [(0, 0)]
    tail = noise._expansion(noise._bit_probability, scale, bits, 2)[1]
    special = sorted({w for pair in leading for w in pair} | {2**64 - 1 - w for w, _ in leading} | {tail, tail + 1, 0})
    word = st.sampled_from(special) | st.integers(0, 2**64 - 1)
    size = data.draw(st.integers(1, 3))
    stream = data.draw(st.lists(word, min_size=(bits + 1) * size, max_size=(bits + 1) * size))
    more = data.draw(st.lists(word, min_size=20, max_size=20)) + [2**64 - 1] * 400
    values = np.zeros(size, dtype=np.int64)
    noise._add_from_stream(values, scale, feed(stream, more))
    assert values.tolist() == reference(scale, stream, size, more)


def test_support_is_unbounded() -> None:
    """A zero in the last row and small words after it reach beyond the top bit, as often as they come."""
    scale = Fraction(1)
    bits = noise._low_bits(scale)
    middle = [2**63] * bits
    values = np.zeros(1, dtype=np.int64)
    noise._add_from_stream(values, scale, feed([*middle, 0], [0], [0, 0], [0, 0], [2**64 - 1]))
    assert values[0] == 3 << bits


@pytest.mark.parametrize("draw", [noise.discrete_laplace, noise.discrete_gaussian])
def test_streams_are_fresh_and_nothing_is_drawn_for_no_values(draw: Sampler) -> None:
    assert len({tuple(draw(Fraction(10**6), 8)) for _ in range(50)}) == 50
    assert len(draw(Fraction(5), 0)) == 0


LEAST, MOST, A_LITTLE = Fraction(1, 2**16), Fraction(2**40), Fraction(1, 2**90)


@pytest.mark.parametrize(
    ("draw", "allowed", "refused"),
    [
        (noise.discrete_laplace, [LEAST, MOST], [LEAST - A_LITTLE, MOST + A_LITTLE]),
        (noise.discrete_gaussian, [LEAST**2, MOST**2 - A_LITTLE], [LEAST**2 - A_LITTLE, MOST**2]),
    ],
)
def test_scales_and_variances_out_of_range_are_refused(
    draw: Sampler, allowed: list[Fraction], refused: list[Fraction]
) -> None:
    for size in allowed:
        assert len(draw(size, 1)) == 1
    for size in (*refused, Fraction(0), Fraction(-1)):
        with pytest.raises(InvalidParameter) as caught:
            draw(size, 1)
        assert caught.value.hint
