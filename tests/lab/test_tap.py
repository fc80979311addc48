"""The tap: its laws against mpmath and sums over everything, its readings against what a build really released."""

from fractions import Fraction
from math import exp, inf
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from scumble.index.curve import Histogram
from scumble.index.mechanisms.paper import BinaryTree
from scumble.index.mechanisms.scumble import release_adaptive_curve
from scumble.index.slack import lossless_delta, shift
from scumble.lab.audit.laws import BoundLaw, Chance, GaussianLaw, LaplaceLaw, rate_of
from scumble.lab.audit.mechanisms import ERROR_SHARE, neighbours, subject
from scumble.lab.audit.run import GRADIENTS, LIKELIHOOD
from scumble.lab.audit.tap import Tap
from scumble.privacy import noise

IntArray = NDArray[np.int64]


def value(*numbers: int) -> IntArray:
    return np.array(numbers, dtype=np.int64)


def log_of(chance: Chance) -> float:
    """The logarithm itself: against a certain event nothing cancels."""
    return float(chance.minus(Chance())) if chance.possible else -inf


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(2), Fraction(100, 7)])
def test_laplace_law_against_mpmath(scale: Fraction) -> None:
    p = mpmath.exp(-mpmath.mpf(scale.denominator) / scale.numerator)
    for x, y in ((0, 3), (-4, 1)):
        expected = sum(mpmath.log((1 - p) / (1 + p) * p ** abs(d)) for d in (x - 5, y - 6))
        found = log_of(LaplaceLaw(1 / scale).chance(value(5, 6), value(x, y)))
        assert found == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("deviation", [0, 1, 4])
def test_bound_law_adds_up_to_one_and_is_private(deviation: int, lossless: bool) -> None:
    epsilon, beta = Fraction(1, 2), Fraction(1, 50)
    law, reach = BoundLaw(epsilon, shift(epsilon, beta), lossless), range(200)
    chances = [exp(log_of(law.chance(value(deviation), value(released)))) for released in reach]
    assert sum(chances) == pytest.approx(1, rel=1e-9)
    others = [exp(log_of(law.chance(value(deviation + 1), value(released)))) for released in reach]
    delta = sum(max(0.0, one - exp(epsilon) * other) for one, other in zip(chances, others, strict=True))
    assert delta <= (float(lossless_delta(epsilon, beta)) if lossless else 1e-12)
    if lossless:
        assert log_of(law.chance(value(deviation + 1), value(deviation))) == -inf
        assert shift(epsilon, beta) > 0


def test_gaussian_law_up_to_its_constant() -> None:
    law = GaussianLaw(Fraction(9, 2))
    assert law.chance(value(0, 0), value(3, 0)).minus(law.chance(value(0, 0), value(0, 0))) == -1


def test_ratios_are_those_of_the_released_nodes() -> None:
    """Against a likelihood ratio worked out by hand from the curve: F(0) and F(1) of the tree are its two nodes."""
    tree, tables = BinaryTree(2, Fraction(1)), neighbours(2)
    with Tap().installed() as tap:
        for which in (0, 1) * 50:
            found = tap.compare(lambda counts: tree.release(Histogram(counts)), tables, which)
            rows = found.output.rows  # type: ignore[attr-defined]
            distance = [sum(abs(int(rows[x] - np.cumsum(table)[x])) for x in (0, 1)) for table in tables]
            assert found.ratio == float(Fraction(distance[0] - distance[1], 2))
            assert found.loss == Fraction(abs(distance[0] - distance[1]), 2)


def test_ratios_never_exceed_epsilon() -> None:
    """Also where the second release depends on the first: the scout's cells are the same in the replay."""
    tables = neighbours(2**17, rows=3)
    with Tap().installed() as tap:
        for which in (0, 1, 0, 1):
            found = tap.compare(lambda counts: release_adaptive_curve(Histogram(counts), Fraction(1)), tables, which)
            assert found.loss is not None
            assert found.loss <= 1


def test_gaussian_releases_are_told_apart() -> None:
    """An index with gradients and a slack: the gradients' part, and the slack's, which is at most its epsilon."""
    build, tables = subject("fmi", Fraction(4)), neighbours(1)
    with build.opened() as observe:
        for which in (0, 1) * 10:
            scores: Any = observe(which).scores
            whole, gradients = (scores[name] for name in (LIKELIHOOD, GRADIENTS))
            assert abs(whole - gradients) <= 4 * ERROR_SHARE + 1e-9
    with Tap().installed() as tap:
        found = tap.compare(lambda counts: BinaryTree(1, Fraction(1)).release(Histogram(counts)), tables, 0)
        assert found.gaussian == 0 != found.ratio


def test_a_build_may_be_repeated_in_part() -> None:
    """What has nothing to do with noise need not be done on the other table; and more noise would be noticed."""
    tree, done = BinaryTree(1, Fraction(1)), list[int]()

    def build(counts: IntArray) -> object:
        done.append(len(done))
        return release(counts)

    def release(counts: IntArray) -> object:
        return tree.release(Histogram(counts))

    with Tap().installed() as tap:
        for which in (0, 1):
            assert abs(tap.compare(build, neighbours(1), which, release).ratio) <= 1 + 1e-9
            assert tap.compare(
                build, neighbours(1), which, lambda counts: (release(counts), release(counts))
            ).ratio == (1000 if which else -1000)
    assert len(done) == 4


def test_a_release_of_another_shape_gives_the_table_away() -> None:
    """Planted: one node for each row."""
    with Tap().installed() as tap:
        for which in (0, 1):
            found = tap.compare(
                lambda counts: noise.discrete_laplace(Fraction(1), int(counts.sum())), neighbours(1), which
            )
            assert (found.ratio, found.loss) == (1000 if which else -1000, inf)


def test_a_loss_is_exact_where_logarithms_remain() -> None:
    """Cut off at zero with one table, and not with the other: to 60 digits."""
    law = BoundLaw(Fraction(1, 2), 1, lossless=False)
    found = law.chance(value(-3), value(0)).minus(law.chance(value(0), value(0)))
    assert isinstance(found, Fraction)
    with mpmath.workdps(70):
        p = mpmath.exp(-mpmath.mpf(1) / 2)
        expected = mpmath.log(1 - p**3 / (1 + p)) - mpmath.log(p / (1 + p))
        assert abs(mpmath.mpf(found.numerator) / found.denominator - expected) < mpmath.mpf(10) ** -55


def test_noise_that_is_repeated_counts_once_or_gives_the_table_away() -> None:
    """The same words for the same rows are one release, as after a retry; for other rows they show the difference."""
    tree, words = BinaryTree(1, Fraction(1)), np.arange(1, 4096, dtype=np.uint64) * np.uint64(2**51)

    def release(counts: IntArray) -> IntArray:
        released = counts.astype(np.int64).copy()
        noise._add_from_stream(released, tree.scale, lambda count: words[:count].copy())
        return released

    (first, second), nothing = neighbours(1), value(7)
    with Tap().installed() as tap:
        once = tap.compare(release, (first, second), 0)
        twice = tap.compare(lambda counts: (release(counts), release(counts)), (first, second), 0)
        other = tap.compare(lambda counts: (release(counts), release(nothing)), (first, second), 0)
    assert once.loss == twice.loss == 1
    assert other.loss == inf


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(2), Fraction(100, 7), Fraction(10**6)])
def test_rates_are_read_off_thresholds(scale: Fraction) -> None:
    """The sampler's own, exactly; those of another scale nearly; and what is no Laplace noise at all fits no rate."""

    def thresholds(scale: Fraction) -> tuple[int, ...]:
        bits = range(noise._low_bits(scale))
        return tuple(noise._leading_word(noise._digit_probability, scale, bit) for bit in bits)

    assert rate_of(scale, thresholds(scale)) == 1 / scale
    halved = rate_of(scale, thresholds(scale / 2))
    assert halved is not None
    assert abs(halved * scale / 2 - 1) < Fraction(1, 10**8)
    broken = list(thresholds(scale))
    broken[-2 if len(broken) > 1 else 0] //= 2
    assert rate_of(scale, tuple(broken)) is None or len(broken) == 1


def test_the_tap_is_taken_out_again() -> None:
    before = noise._add_from_stream
    with pytest.raises(KeyError), Tap().installed():
        raise KeyError
    assert noise._add_from_stream is before
