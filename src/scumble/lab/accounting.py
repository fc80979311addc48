"""What training costs: how much noise each of a number of steps needs for a target epsilon and delta.

All of it is public: steps, noise multipliers, epsilon and delta. The sums are those of `dp_accounting`'s Rényi
accountant, an extra that is imported on use. The discrete Gaussian has the Rényi divergences of the continuous one or
smaller (Canonne, Kamath, Steinke 2020), so what holds for that holds for ours. docs/privacy.md section 9.
"""

from fractions import Fraction
from functools import lru_cache
from importlib import import_module
from math import ceil, inf, nextafter
from typing import Any

from scumble.errors import InvalidParameter, ScumbleError

__all__ = ["epsilon_spent", "gaussian_epsilon", "noise_multiplier"]

GRID = 2**20  # multipliers are whole numbers of 2^-20
MOST_MULTIPLIER = 2.0**40
CAUTION = 1 - 1e-9  # of epsilon: far more than the accountant's rounding
# Orders of the Rényi divergences tried, up to 2^30: an epsilon below 0.01 needs larger ones than are usual. Any set of
# orders gives a true bound; a finer one gains nothing visible.
ORDERS = tuple(1 + 2 ** (j / 16) for j in range(-64, 481))


@lru_cache(maxsize=256)
def noise_multiplier(epsilon: Fraction, delta: Fraction, steps: int) -> Fraction:
    """The least noise, as a multiple of the L2 sensitivity, with which `steps` Gaussian releases cost (epsilon, delta).

    Rounded up, and checked: `epsilon_spent` of the result is at most epsilon.
    """
    _check(delta, steps)
    target = float(epsilon) * CAUTION
    if not target > 0:
        raise InvalidParameter("epsilon for the training must be greater than 0", hint="0.5, for example")
    low, high = 0.0, 1.0
    while _epsilon(high, steps, delta) > target:
        low, high = high, 2 * high
        if high > MOST_MULTIPLIER:
            raise InvalidParameter("no amount of noise gives so small an epsilon", hint="ask for a larger one")
    while (high - low) * GRID > 0.5:  # once the ends are one tick apart, the upper one is the answer
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if _epsilon(middle, steps, delta) > target else (low, middle)
    multiplier = Fraction(ceil(high * GRID), GRID)
    if epsilon_spent(multiplier, steps, delta) > epsilon:  # pragma: no cover  it falls as the multiplier grows
        raise InvalidParameter("the accountant cannot meet this epsilon", hint="ask for a larger one")
    return multiplier


def epsilon_spent(multiplier: Fraction, steps: int, delta: Fraction) -> Fraction:
    """The epsilon, rounded up, that `steps` Gaussian releases cost at this delta; 0 steps cost nothing."""
    if steps == 0:
        return Fraction(0)
    _check(delta, steps)
    value = _epsilon(float(multiplier), steps, delta) / CAUTION
    if value == inf:
        raise InvalidParameter("so little noise gives no privacy at all", hint="take a larger multiplier")
    return Fraction(value)


def gaussian_epsilon(separation: float, delta: float) -> float:
    """The epsilon that one Gaussian release has at this delta, exactly: what an audit compares with, not what is spent.

    `separation` is the sensitivity over the deviation of the noise.
    """
    return float(dp_accounting().get_epsilon_gaussian(1 / separation, delta))


def _check(delta: Fraction, steps: int) -> None:
    if steps < 1:
        raise InvalidParameter("steps must be at least 1", hint="16, for example")
    if not 0 < delta < 1 or not _below(delta) > 0:
        raise InvalidParameter("delta must lie between 1e-300 and 1", hint="1e-6, for example")


def _epsilon(multiplier: float, steps: int, delta: Fraction) -> float:
    accounting = dp_accounting()
    accountant = accounting.rdp.RdpAccountant(ORDERS)
    # A multiplier that is a float may lie above the fraction it stands for: one step down is below it.
    accountant.compose(accounting.GaussianDpEvent(nextafter(multiplier, 0)), steps)
    return float(accountant.get_epsilon(_below(delta)))


def _below(delta: Fraction) -> float:
    """A float that is no larger than delta."""
    return nextafter(float(delta), 0)


def dp_accounting() -> Any:
    """Return the module, which the trained indexes need."""
    try:
        module = import_module("dp_accounting")
        import_module("dp_accounting.rdp")
    except ImportError as error:
        raise ScumbleError(
            "the trained indexes need dp-accounting, which is not installed", hint="pip install 'scumble[trained]'"
        ) from error
    return module
