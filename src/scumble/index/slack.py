"""Coverage: how far a lookup is widened, so that with probability 1 - beta no lookup on the whole domain loses a row.

`measured` and `lossless` take the largest deviation between the public segments and the true curve, which is secret,
and release an upper bound of it; `paper` takes nothing but public shapes, and computes how far the noise can reach.
All of them bound every rank at once, not one lookup at a time. docs/privacy.md section 5 has the proofs.
"""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import ceil, exp, expm1, log, log1p, log2

import numpy as np
from numpy.typing import NDArray

from scumble.index.tree import BinaryTree, WideTree, estimate, variance
from scumble.privacy.noise import discrete_laplace

__all__ = ["curve_bound", "lossless_delta", "published_bound", "release_bound", "shift"]

SIMULATED_SAMPLES = 1 << 26  # as many as take about a second; a build, however small, takes as long as 2,000
LEAST_SIMULATED_BETA = Fraction(1, 10**4)
LEAST_EXACT_BETA = Fraction(1, 10**10)  # below, the Fourier transform's rounding would show


# --- measured and lossless -------------------------------------------------------------------------


def release_bound(deviation: NDArray[np.int64], epsilon: Fraction, beta: Fraction, *, lossless: bool) -> int:
    """Release an upper bound of a secret deviation, an array of one: noise, plus the shift that makes it one.

    Sensitivity: 1, since a row moves the true curve by at most 1 and the segments are public already; neighbours: one
    row added or removed; cost: epsilon, and with `lossless` a delta of `lossless_delta`; docs/privacy.md 5.1 and 5.2.
    """
    noise = discrete_laplace(1 / epsilon, 1)
    moved = shift(epsilon, beta)
    if lossless:
        noise = np.maximum(noise, -moved)
    return int(np.maximum(deviation + noise + moved, 0)[0])


def shift(epsilon: Fraction, beta: Fraction) -> int:
    """The least s for which noise of scale 1/epsilon falls below -s with probability at most beta.

    P(X < -s) = p^(s+1) / (1 + p) with p = exp(-epsilon); decided in decimals that are rounded towards caution.
    """
    likely = log(beta.denominator) - log(beta.numerator)  # of any size: a float would underflow
    rows = max(0, ceil((likely - log1p(exp(-epsilon))) / epsilon) - 2)
    up = Context(prec=50, rounding=ROUND_CEILING)
    down = Context(prec=50, rounding=ROUND_FLOOR)
    exponent = up.divide(Decimal(-epsilon.numerator), Decimal(epsilon.denominator))
    p = up.next_plus(up.exp(exponent))
    while True:
        tail = up.divide(up.power(p, rows + 1), down.add(1, up.next_minus(up.next_minus(p))))
        if Fraction(up.next_plus(tail)) <= beta:
            return rows
        rows += 1


def lossless_delta(epsilon: Fraction, beta: Fraction) -> Fraction:
    """(1 + e^epsilon) beta, rounded up to 12 digits: what clamping an event of probability beta costs."""
    up = Context(prec=50, rounding=ROUND_CEILING)
    growth = up.next_plus(up.exp(up.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator))))
    delta = (1 + Fraction(growth)) * beta
    return Fraction(Context(prec=12, rounding=ROUND_CEILING).divide(delta.numerator, delta.denominator))


# --- paper -----------------------------------------------------------------------------------------


def published_bound(size: int, epsilon: Fraction, alpha_s: Fraction) -> int:
    """The paper's Z = alpha_s (log2 N)^(3/2) / epsilon, as printed; about 8 is needed for 99.9 %."""
    reach: float = log2(size) ** 1.5
    return ceil(float(alpha_s / epsilon) * reach)


@lru_cache(maxsize=64)
def curve_bound(tree: BinaryTree | WideTree, beta: Fraction) -> int:
    """How far a tree's noise moves any prefix, with probability 1 - beta: computed, since it is free of the data.

    For the binary tree from the exact distribution of the largest error. For the wide tree, for a beta that can be
    seen, an order statistic of simulated builds; where neither can reach, a Chernoff bound over all prefixes.
    """
    if isinstance(tree, BinaryTree):
        return _exact_bound(tree, beta) if beta >= LEAST_EXACT_BETA else _chernoff_bound(tree, beta)
    if beta >= LEAST_SIMULATED_BETA:
        builds = ceil(40 / beta)
        if builds * max(tree.leaves, 2000) <= SIMULATED_SAMPLES:
            return _simulated_bound(tree, beta, builds)
    return _chernoff_bound(tree, beta)


def _exact_bound(tree: BinaryTree, beta: Fraction) -> int:
    """The least z with 2 P(largest prefix error > z) <= beta, from the distribution itself: docs/privacy.md 5.3.

    The largest error over the prefixes of a block of 2^(l+1) ranks is the larger of two independent ones: over its
    first half, and over its second half plus the first half's node. Tails are tabulated in steps of a 64th of the
    scale, noise rounded up to them.
    """
    step = ceil(tree.scale / 64)
    cells = 1 << ceil(log2(160 * tree.scale / step))
    noise = _rounded_up(tree.scale, step, cells)
    block, whole = np.zeros(cells), np.zeros(cells)  # P(error > step x) for x = 0, 1, ...: no prefix yet, no error
    for level in range(tree.levels):
        if tree.leaves >> level & 1:
            whole = _either(block, _moved(whole, noise))
        block = _either(block, _moved(block, noise))
    covered = np.flatnonzero(2 * whole * (1 + 1e-9) + 1e-13 <= float(beta))
    return step * int(covered[0]) if len(covered) else _chernoff_bound(tree, beta)


def _rounded_up(scale: Fraction, step: int, cells: int) -> NDArray[np.float64]:
    """P(X, rounded up to a multiple of the step, is step x) for x = -cells + 1, ..., cells - 1."""
    p = exp(-1 / scale)
    ends = step * np.arange(-cells, cells, dtype=float)
    below = np.where(ends < 0, p ** np.abs(ends) / (1 + p), 1 - p ** (np.abs(ends) + 1) / (1 + p))
    chances: NDArray[np.float64] = np.diff(below)
    return chances


def _moved(tail: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """The tail of an error plus independent noise; an error is never negative, the empty prefix having none."""
    cells = len(tail)
    size = 4 * cells
    sums = np.fft.irfft(np.fft.rfft(tail, size) * np.fft.rfft(noise, size), size)[cells - 1 : 2 * cells - 1]
    beyond = np.cumsum(noise[::-1])[::-1][cells:]
    result: NDArray[np.float64] = np.clip(sums + np.append(beyond, 0.0), 0, 1)
    return result


def _either(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """The tail of the larger of two independent errors."""
    return one + other - one * other


def _simulated_bound(tree: WideTree, beta: Fraction, builds: int) -> int:
    """The order statistic of `builds` largest errors that exceeds the (1 - 0.9 beta)-quantile but for 0.1 beta."""
    worst = sorted((_largest_error(tree) for _ in range(builds)), reverse=True)
    above = _exceeded_at_most(builds, 0.9 * float(beta), 0.1 * float(beta))
    return ceil(worst[above])


def _largest_error(tree: BinaryTree | WideTree) -> float:
    """The largest error over all prefixes of one build on no rows at all."""
    if isinstance(tree, BinaryTree):
        errors: NDArray[np.int64] | NDArray[np.float64] = tree.prefixes(discrete_laplace(tree.scale, tree.leaves))
    else:
        errors = np.cumsum(estimate(np.zeros(tree.leaves, dtype=np.int64), tree))
    return float(np.abs(errors).max())


def _exceeded_at_most(trials: int, chance: float, doubt: float) -> int:
    """The largest j with P(Binomial(trials, chance) <= j) <= doubt: j exceedances or fewer would be a surprise."""
    term = exp(trials * log1p(-chance))
    total, j = term, -1
    while total <= doubt:
        j += 1
        term *= (trials - j) / (j + 1) * chance / (1 - chance)
        total += term
    return max(j, 0)


def _chernoff_bound(tree: BinaryTree | WideTree, beta: Fraction) -> int:
    """The least z whose Chernoff bound, added up over every prefix and both signs, stays below beta."""
    scales = [tree.scale] if isinstance(tree, BinaryTree) else list(tree.scales)
    rates = np.linspace(0, 1 / float(max(scales)), 2002)[1:-1]
    if isinstance(tree, BinaryTree):
        terms = np.bitwise_count(np.arange(1, tree.leaves + 1, dtype=np.uint32))
        prefixes: dict[int, int] = dict(enumerate(np.bincount(terms).tolist()))
        cumulants = {k: k * _cumulant(rates, tree.scale) for k in prefixes}
    else:
        # Every weight is at most 1, and the cumulant over the square grows with the weight: docs/privacy.md 5.3.
        ratio = np.max([_cumulant(rates, scale) / variance(scale) for scale in scales], axis=0)
        prefixes, cumulants = {0: tree.leaves}, {0: tree.worst_variance * ratio}

    def chance(z: float) -> float:
        return sum(2.0 * n * exp(float(np.min(cumulants[k] - rates * z))) for k, n in prefixes.items() if n)

    low, high = 0, 1
    while chance(high) > beta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if chance(middle) > beta else (low, middle)
    return high


def _cumulant(rates: NDArray[np.float64], scale: Fraction) -> NDArray[np.float64]:
    """log E exp(rate X) of discrete Laplace noise: 2 log(1 - p) - log(1 - p e^rate) - log(1 - p e^-rate)."""
    a = 1 / float(scale)
    return 2 * log(-expm1(-a)) - np.log(-np.expm1(rates - a)) - np.log(-np.expm1(-rates - a))
