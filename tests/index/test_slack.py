"""Coverage: bounds against exact tails and simulated noise, and no row lost more often than beta allows."""

from decimal import ROUND_CEILING, Context
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from scipy import stats

from scumble import DPPLRIndex, IntegerDomain
from scumble.index import dp_plr
from scumble.index import slack as coverage
from scumble.index.curve import Histogram, MonotoneCurve, NoisyCurve, make_monotone
from scumble.index.mechanisms import Tree, chernoff_bound, cumulant, rates_below, variance
from scumble.index.mechanisms.paper import ROUNDING, BinaryTree, _moved
from scumble.index.mechanisms.wide_tree import WideTree, _exceeded_at_most, wide_tree
from scumble.index.segments import Segments
from scumble.index.slack import _largest_fit_error, _tail, lossless_delta, published_bound, release_bound, shift
from scumble.privacy.budget import unsafe_budget
from scumble.privacy.noise import discrete_laplace

FALSE_ALARM = 1e-7
MILLIONTH = Fraction(1, 10**6)
HUNDRED = np.array([100], dtype=np.int64)


def tail(epsilon: Fraction, rows: int) -> mpmath.mpf:
    """P(X < -rows) for noise of scale 1/epsilon."""
    p = mpmath.exp(-mpmath.mpf(epsilon.numerator) / epsilon.denominator)
    return p ** (rows + 1) / (1 + p)


@pytest.mark.parametrize("epsilon", [Fraction(3, 10), Fraction(1), Fraction(1, 1000), Fraction(20)], ids=str)
@pytest.mark.parametrize("beta", [MILLIONTH, Fraction(1, 20), Fraction(1, 10**30), Fraction(99, 100)], ids=str)
def test_shift_is_the_least_that_is_enough(epsilon: Fraction, beta: Fraction) -> None:
    with mpmath.workprec(400):
        limit = mpmath.mpf(beta.numerator) / beta.denominator
        rows = shift(epsilon, beta)
        assert tail(epsilon, rows) <= limit
        assert rows == 0 or tail(epsilon, rows - 1) > limit


@pytest.mark.parametrize("epsilon", [Fraction(3, 10), Fraction(1, 7)], ids=str)
def test_a_shift_that_just_meets_beta_is_enough(epsilon: Fraction) -> None:
    """Where floats alone would be off by one, as often as not."""
    for rows in range(1, 100):
        beta = Fraction(_tail(epsilon, rows))
        assert (shift(epsilon, beta), shift(epsilon, beta * (1 - Fraction(1, 10**40)))) == (rows - 1, rows)


def test_lossless_never_falls_short_and_says_its_delta() -> None:
    released = [release_bound(HUNDRED, Fraction(1), Fraction(1, 2), lossless=True) for _ in range(3000)]
    assert min(released) == 100
    unclamped = [release_bound(HUNDRED, Fraction(1), Fraction(1, 2), lossless=False) for _ in range(3000)]
    assert min(unclamped) < 100


@pytest.mark.parametrize("epsilon", ["0.05", "0.3", "1", "3", "15"])
@pytest.mark.parametrize("beta", ["0.2", "0.01", "1e-6"])
def test_the_delta_of_a_cut_is_the_mass_by_which_a_law_exceeds_its_neighbours(epsilon: str, beta: str) -> None:
    """Exactly, for deviations of 0 and 1: neither more nor less than what the ledger is charged."""
    rate, chance = Fraction(epsilon), Fraction(beta)
    with mpmath.workdps(60):
        laws = [cut_law(deviation, rate, shift(rate, chance)) for deviation in (0, 1)]
        growth = mpmath.exp(mpmath.mpf(rate.numerator) / rate.denominator)
        excesses = [
            mpmath.fsum(max(0, mass - growth * other.get(at, 0)) for at, mass in one.items())
            for one, other in (laws, laws[::-1])
        ]
        needed = lossless_delta(rate, chance)
        claimed = mpmath.mpf(needed.numerator) / needed.denominator
        assert max(excesses) <= claimed <= max(excesses) * (1 + mpmath.mpf(10) ** -10)
        assert claimed <= (1 + growth) * mpmath.mpf(beta)  # as any rare event


def test_the_delta_of_a_cut_is_charged_in_twelve_digits_rounded_up() -> None:
    for epsilon, beta in product((Fraction(3, 10), Fraction(1), Fraction(1, 7)), (MILLIONTH, Fraction(1, 20))):
        with mpmath.workdps(60):
            exact = mpmath.nstr(tail(epsilon, shift(epsilon, beta) - 1), 40)
        assert lossless_delta(epsilon, beta) == Fraction(Context(prec=12, rounding=ROUND_CEILING).create_decimal(exact))


def cut_law(deviation: int, epsilon: Fraction, moved: int) -> dict[int, mpmath.mpf]:
    """P(released) of a lossless bound, as far as it is in reach: all that is not cut off, and the rest at its end."""
    p = mpmath.exp(-mpmath.mpf(epsilon.numerator) / epsilon.denominator)
    reach = moved + int(40 / epsilon) + 2
    law = {deviation + moved + x: (1 - p) / (1 + p) * p ** abs(x) for x in range(1 - moved, reach)}
    law[deviation] = law.get(deviation, 0) + p**moved / (1 + p)
    return law


def test_a_bound_is_never_negative() -> None:
    assert (
        min(release_bound(HUNDRED - 100, Fraction(1, 10), Fraction(99, 100), lossless=False) for _ in range(200)) == 0
    )


@pytest.mark.parametrize("chunk", [2, 1 << 20])
def test_the_fit_error_is_the_largest_distance_between_the_public_curves(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(coverage, "CHUNK", chunk)
    segments = Segments(5, np.array([0]), np.array([0]), np.array([40]), 5)
    for off, largest in (([0, 0, 0, 0, 0], 0), ([0, 3, -2, 0, 0], 3), ([0, 3, -4, 0, 0], 4), ([0, 0, 0, 0, 9], 9)):
        assert _largest_fit_error(segments, MonotoneCurve(np.array([0, 10, 20, 30, 40]) + np.array(off))) == largest


def test_a_chernoff_bound_covers_the_heaviest_level() -> None:
    """Levels that spend unequally: the bound is no smaller than with the tail of any one of them for all."""
    tree = WideTree(64, (8, 1), (Fraction(5), Fraction(1, 10)))
    rates = rates_below(max(tree.scales))
    alone = [
        chernoff_bound(rates, [(64, tree.worst_variance * cumulant(rates, scale) / variance(scale))], MILLIONTH)
        for scale in tree.scales
    ]
    assert alone[0] < alone[1] <= tree.chernoff_bound(MILLIONTH)
    assert tree.chernoff_bound(MILLIONTH) == WideTree(64, (8, 1), tree.epsilons).bound(MILLIONTH)


def test_the_order_statistic_is_a_confidence_limit() -> None:
    """P(at most j of n exceed) stays below the doubt, and j + 1 would not."""
    for trials, chance, doubt in ((800, 0.045, 0.005), (4000, 0.009, 0.001), (100, 0.5, 1e-6)):
        j = _exceeded_at_most(trials, chance, doubt)
        assert stats.binom.cdf(j, trials, chance) <= doubt < stats.binom.cdf(j + 1, trials, chance)


def largest_error(tree: Tree, size: int) -> float:
    """The largest error over all prefixes of one build on no rows at all."""
    return float(np.abs(tree.release(Histogram(np.zeros(size, dtype=np.int64))).rows).max())


@pytest.mark.parametrize("make", [BinaryTree, wide_tree])
@pytest.mark.parametrize("size", [1, 2, 50, 700])
def test_noise_stays_within_the_curve_bound(make: type, size: int) -> None:
    beta = Fraction(1, 20)
    tree = make(size, Fraction(1))
    assert tree.chernoff_bound(beta) >= tree.bound(beta) - 1
    for bound in (tree.bound(beta), tree.chernoff_bound(beta)):
        exceeded = sum(largest_error(tree, size) > bound for _ in range(1000))
        assert stats.binom.sf(exceeded - 1, 1000, float(beta)) > FALSE_ALARM


@pytest.mark.parametrize("size", [1, 3, 64, 100, 1023])
def test_the_exact_bound_is_no_larger_than_it_has_to_be(size: int) -> None:
    """A bound lower by a fourteenth is exceeded at least as often as beta allows, over 20,000 builds."""
    tree = BinaryTree(size, Fraction(1, 4))
    bound = tree.bound(Fraction(1, 10))
    exceeded = 0
    for _ in range(10):  # two thousand builds share a draw, which costs more than what is done with it
        noises = discrete_laplace(tree.scale, 2000 * size).reshape(2000, size)
        exceeded += sum(np.abs(tree.prefixes(nodes)).max() > bound * 0.93 - 1 for nodes in noises)
    assert stats.binom.cdf(exceeded, 20_000, 0.1) > FALSE_ALARM


@pytest.mark.parametrize(
    ("leaves", "epsilon", "exact", "chernoff", "rms"),
    [
        (1, Fraction(1), [4, 14, 92], [8, 18, 98], 1.357),
        (2, Fraction(1), [11, 29, 186], [17, 37, 197], 2.799),
        (11, Fraction(1, 50), [1700, 3768, 20012], [2432, 4568, 21048], 400.0),
        (5000, Fraction(1, 100), [27468, 43428, 158802], [33952, 49514, 165281], 4687.217),
    ],
)
def test_the_bounds_of_the_paper_s_tree_stay_as_they_are(
    leaves: int, epsilon: Fraction, exact: list[int], chernoff: list[int], rms: float
) -> None:
    """They are slack in indexes that are there: one that is built again has to be the same file."""
    tree, least = BinaryTree(leaves, epsilon), Fraction(1, 10**40)
    betas = [Fraction(1, 100), MILLIONTH, least]
    assert [tree.bound(beta) for beta in betas] == exact
    assert [tree.chernoff_bound(beta) for beta in betas] == chernoff
    assert tree.bound(least - Fraction(1, 10**60)) == chernoff[-1]
    assert round(tree.noise_rms, 3) == rms


def test_what_rounding_may_have_taken_from_a_tail_is_covered() -> None:
    """One draw: 2 P(X > 20) itself is no beta for a bound of 20, and a 10^-8th more is."""
    tree = BinaryTree(1, Fraction(1, 10))
    tail = Fraction(2 * float(_moved(np.zeros(64 * 512), tree.scale, 1)[20]))
    assert tree.bound(tail) == 21
    assert tree.bound(tail * (1 + Fraction(1, 10**8))) == 20
    covered = float(tail) * (1 + ROUNDING)
    assert tree.bound(Fraction(covered)) == 20


def test_a_tail_with_noise_on_top_is_right_in_every_digit_that_counts() -> None:
    """Against sums of all terms at 60 digits: where tails are 1e-40, and where a Fourier transform has lost them."""
    scale, step, cells = Fraction(96), 2, 1 << 13
    first = _moved(np.zeros(cells), scale, step)
    second = _moved(first, scale, step)
    with mpmath.workdps(60):
        p = mpmath.exp(-mpmath.mpf(1) / 96)
        exact = [p ** (2 * x + 1) / (1 + p) for x in range(cells)]  # P(X > 2 x)
        below = [(p ** (2 * x) - p ** (2 * x + 2)) / (1 + p) for x in range(cells)]  # P(X rounded up is -2 x)
        above = [p * each for each in below]  # P(X rounded up is 2 (x + 1))
        for x in (0, 1, 100, 1000, 4500):
            assert abs(first[x] / exact[x] - 1) < 1e-10
            terms = [below[j] * exact[x + j] for j in range(cells - x)] + [
                above[j - 1] * exact[x - j] for j in range(1, x + 1)
            ]
            assert abs(second[x] / (mpmath.fsum(terms) + exact[x]) - 1) < 1e-10
        assert second[4500] < 1e-36
    size = 4 * cells
    noise = np.array([float(each) for each in [*below[::-1], *above[:-1]]])
    sums = np.fft.irfft(np.fft.rfft(first, size) * np.fft.rfft(noise, size), size)[cells - 1 : 2 * cells - 1]
    assert abs(sums[4500] / second[4500] - 1) > 1e10


def test_a_bound_for_half_the_noise_would_be_noticed() -> None:
    tree = BinaryTree(50, Fraction(1))
    bound = BinaryTree(50, Fraction(2)).bound(Fraction(1, 20))
    exceeded = sum(largest_error(tree, 50) > bound for _ in range(1000))
    assert stats.binom.sf(exceeded - 1, 1000, 0.05) < FALSE_ALARM


def test_bounds_for_one_in_a_million() -> None:
    assert BinaryTree(2**20, Fraction(1)).bound(MILLIONTH) in range(940, 980)
    assert BinaryTree(2**20, Fraction(1)).bound(MILLIONTH**2) in range(1300, 1350)
    assert BinaryTree(2**20, Fraction(1)).bound(MILLIONTH**7) == BinaryTree(2**20, Fraction(1)).chernoff_bound(
        MILLIONTH**7
    )
    assert wide_tree(2**20, Fraction(1)).bound(MILLIONTH) in range(250, 400)
    assert published_bound(2**20, Fraction(1), Fraction(8)) == 716


# --- whole builds ---------------------------------------------------------------------------------


def loses_rows(index: DPPLRIndex, counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bool:
    """Whether any lookup, of any key or range, misses a row: the ends of all single keys decide it."""
    curve = np.concatenate([[0], np.cumsum(counts)])
    starts, stops = index.lookup_many(np.arange(len(counts)))
    return bool(np.any(starts > curve[:-1]) or np.any(stops < curve[1:]))


def losses(builds: int, size: int, rows: int, **options: object) -> int:
    """How many of so many builds lose a row somewhere, at beta = 0.05."""
    rng = np.random.default_rng(size)
    delta = Fraction(1, 2) if options.get("slack") == "lossless" else Fraction(0)
    lost = 0
    for _ in range(builds):
        counts = np.bincount(rng.integers(0, size, rows), minlength=size)
        index = DPPLRIndex(max_error=5, **options).fit_counts(  # type: ignore[arg-type]
            counts, domain=IntegerDomain(0, size - 1), budget=unsafe_budget(1, delta=delta), beta=0.05
        )
        lost += loses_rows(index, counts)
    return lost


@pytest.mark.parametrize("mechanism", ["scumble", "paper"])
@pytest.mark.parametrize("slack", ["measured", "paper"])
def test_rows_are_lost_no_more_often_than_beta(mechanism: str, slack: str) -> None:
    builds = 600
    lost = losses(builds, 64, 500, mechanism=mechanism, slack=slack)
    assert stats.binom.sf(lost - 1, builds, 0.05) > FALSE_ALARM


def test_lossless_loses_nothing() -> None:
    assert losses(300, 64, 500, slack="lossless") == 0


def test_slack_against_the_noisy_curve_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted defect: the deviation is taken from the noisy curve that was fitted, not from the true one."""
    fitted: dict[str, Histogram] = {}

    def remember(curve: NoisyCurve, capacity: int | None) -> MonotoneCurve:
        monotone = make_monotone(curve, capacity)
        fitted["histogram"] = Histogram(np.diff(monotone.rows, prepend=0))
        return monotone

    deviation = Segments.deviation
    monkeypatch.setattr(dp_plr, "make_monotone", remember)
    monkeypatch.setattr(Segments, "deviation", lambda self, *_: deviation(self, fitted["histogram"]))
    lost = losses(200, 1000, 5000)
    assert stats.binom.sf(lost - 1, 200, 0.05) < FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("slack", ["measured", "paper"])
def test_ten_thousand_builds_on_a_small_domain(slack: str) -> None:
    lost = losses(10_000, 64, 500, slack=slack)
    assert stats.binom.sf(lost - 1, 10_000, 0.05) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("slack", ["measured", "paper"])
def test_two_hundred_builds_on_a_million_keys(slack: str) -> None:
    lost = losses(200, 2**20, 10**6, slack=slack)
    assert stats.binom.sf(lost - 1, 200, 0.05) > FALSE_ALARM
