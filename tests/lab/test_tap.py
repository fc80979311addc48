"""The tap: its laws against mpmath and sums over everything, its readings against what a build really released."""

from fractions import Fraction
from math import exp, inf
from typing import cast

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from scumble.index.curve import Histogram
from scumble.index.mechanisms.paper import BinaryTree
from scumble.index.mechanisms.scumble import release_adaptive_curve
from scumble.index.slack import lossless_delta, shift
from scumble.lab.audit.mechanisms import ERROR_SHARE, neighbours, subject
from scumble.lab.audit.run import GRADIENTS, LIKELIHOOD
from scumble.lab.audit.tap import BoundLaw, GaussianLaw, LaplaceLaw, Tap
from scumble.privacy import noise

IntArray = NDArray[np.int64]


def value(*numbers: int) -> IntArray:
    return np.array(numbers, dtype=np.int64)


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(2), Fraction(100, 7)])
def test_laplace_law_against_mpmath(scale: Fraction) -> None:
    p = mpmath.exp(-mpmath.mpf(scale.denominator) / scale.numerator)
    for x, y in ((0, 3), (-4, 1)):
        expected = sum(mpmath.log((1 - p) / (1 + p) * p ** abs(d)) for d in (x - 5, y - 6))
        assert LaplaceLaw(scale).log_chance(value(5, 6), value(x, y)) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("deviation", [0, 1, 4])
def test_bound_law_adds_up_to_one_and_is_private(deviation: int, lossless: bool) -> None:
    epsilon, beta = Fraction(1, 2), Fraction(1, 50)
    law, reach = BoundLaw(epsilon, beta, lossless), range(200)
    chances = [exp(law.log_chance(value(deviation), value(released))) for released in reach]
    assert sum(chances) == pytest.approx(1, rel=1e-9)
    others = [exp(law.log_chance(value(deviation + 1), value(released))) for released in reach]
    delta = sum(max(0.0, one - exp(epsilon) * other) for one, other in zip(chances, others, strict=True))
    assert delta <= (float(lossless_delta(epsilon, beta)) if lossless else 1e-12)
    if lossless:
        assert law.log_chance(value(deviation + 1), value(deviation)) == -inf
        assert shift(epsilon, beta) > 0


def test_gaussian_law_up_to_its_constant() -> None:
    law = GaussianLaw(Fraction(9, 2))
    assert law.log_chance(value(0, 0), value(3, 0)) - law.log_chance(value(0, 0), value(0, 0)) == pytest.approx(-1)


def test_ratios_are_those_of_the_released_nodes() -> None:
    """Against a likelihood ratio worked out by hand from the curve: F(0) and F(1) of the tree are its two nodes."""
    tree, tables = BinaryTree(2, Fraction(1)), neighbours(2)
    with Tap().installed() as tap:
        for which in (0, 1) * 50:
            ratio, _, curve = tap.compare(lambda counts: tree.release(Histogram(counts)), tables, which)
            rows = curve.rows  # type: ignore[attr-defined]
            distance = [sum(abs(rows[x] - np.cumsum(table)[x]) for x in (0, 1)) for table in tables]
            assert ratio == pytest.approx((distance[0] - distance[1]) / 2)


def test_ratios_never_exceed_epsilon() -> None:
    """Also where the second release depends on the first: the scout's cells are the same in the replay."""
    tables = neighbours(2**17, rows=3)
    with Tap().installed() as tap:
        for which in (0, 1, 0, 1):
            ratio, _, _ = tap.compare(
                lambda counts: release_adaptive_curve(Histogram(counts), Fraction(1)), tables, which
            )
            assert abs(ratio) <= 1 + 1e-9


def test_gaussian_releases_are_told_apart() -> None:
    """An index with gradients and a slack: the gradients' part, and the slack's, which is at most its epsilon."""
    build, tables = subject("fmi", Fraction(4)), neighbours(1)
    with build.opened() as observe:
        for which in (0, 1) * 10:
            observation = observe(which)
            whole, gradients = (cast(float, observation[name]) for name in (LIKELIHOOD, GRADIENTS))
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
            ratio, _, _ = tap.compare(
                lambda counts: noise.discrete_laplace(Fraction(1), int(counts.sum())), neighbours(1), which
            )
            assert ratio == (1000 if which else -1000)


def test_the_tap_is_taken_out_again() -> None:
    before = noise._add_from_stream
    with pytest.raises(KeyError), Tap().installed():
        raise KeyError
    assert noise._add_from_stream is before
