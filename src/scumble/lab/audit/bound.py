"""A lower bound on epsilon, from the scores of many runs on two neighbouring tables.

Scores are public as far as the mechanism's outputs are. (epsilon, delta)-DP says P1 <= e^epsilon P0 + delta for every
event; so an event that is frequent with one table and rare with the other proves that epsilon is at least
log((P1 - delta) / P0). The event is chosen on a fifth of the runs. The others, which had no part in the choice, then
count it once, and exact binomial limits (Clopper and Pearson) for both counts make the bound: it is wrong with a
probability of at most `doubt`, whatever the mechanism and the score are.

What Gaussian noise loses at a usual delta lies in events too rare to be counted. If noise is known to be Gaussian, how
well an ordinary event tells the tables apart says how large it is, and so what it loses there (Nasr et al. 2023).
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from scumble.lab.accounting import gaussian_epsilon

__all__ = [
    "Bound",
    "Features",
    "GaussianScore",
    "bound_of_features",
    "bound_of_gaussian_scores",
    "bound_of_scores",
    "epsilon_above",
    "limits",
    "separation_above",
]

CANDIDATES = 400  # thresholds that are tried
CHOOSING_DOUBT = 1e-4  # so strict that luck hardly wins, and not so strict that twenty runs could choose nothing
CHOOSING = 5  # one run in so many helps to choose the event, and has no part in the bound
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Features = tuple[Hashable, ...]


class GaussianScore(float):
    """A score that is the likelihood ratio of Gaussian releases alone."""


@dataclass(frozen=True)
class Bound:
    """PUBLIC: epsilon is at least `epsilon`, but for `doubt`; and how often the event came with either table."""

    epsilon: float
    doubt: float
    runs: int
    often: int
    rarely: int
    event: str


def limits(count: int, runs: int, doubt: float) -> tuple[float, float]:
    """Clopper and Pearson's limits of a probability: each is wrong with a probability of at most `doubt`."""
    low, high = _limits(np.array([count]), runs, doubt)
    return float(low[0]), float(high[0])


def _limits(counts: IntArray, runs: int, doubt: float) -> tuple[FloatArray, FloatArray]:
    from scipy.special import betaincinv  # slow to import

    low = np.where(counts > 0, betaincinv(np.maximum(counts, 1), runs - counts + 1, doubt), 0.0)
    high = np.where(counts < runs, 1 - betaincinv(np.maximum(runs - counts, 1), counts + 1, doubt), 1.0)
    return low, high


def epsilon_above(often: int, rarely: int, runs: int, delta: float, doubt: float) -> float:
    """The least epsilon that an event allows which came `often` in `runs` of one table, and `rarely` of the other."""
    return float(_epsilons(np.array([often]), np.array([rarely]), runs, delta, doubt)[0])


def _epsilons(often: IntArray, rarely: IntArray, runs: int, delta: float, doubt: float) -> FloatArray:
    """From the event or from its opposite, whichever shows more: the same two limits serve for both."""
    low, _ = _limits(often, runs, doubt / 2)
    _, high = _limits(rarely, runs, doubt / 2)
    event = np.maximum(low - delta, 0) / high
    opposite = np.maximum(1 - high - delta, 0) / (1 - low)
    return np.log(np.maximum(np.maximum(event, opposite), 1.0))


def separation_above(often: int, rarely: int, runs: int, doubt: float) -> float:
    """The least distance of two normal distributions, in deviations, if an event came `often` of one in `runs`."""
    from scipy.special import ndtri

    (low, _), (_, high) = limits(often, runs, doubt / 2), limits(rarely, runs, doubt / 2)
    return max(float(ndtri(low) - ndtri(high)), 0.0)


def bound_of_scores(without: Sequence[float], with_row: Sequence[float], delta: float, doubt: float) -> Bound:
    """The bound from any scores that may distinguish the tables.

    The threshold, and which table's scores are the larger ones, are settled on the first runs.
    """
    zero, one = np.asarray(without, np.float64), np.asarray(with_row, np.float64)
    runs = min(len(zero), len(one))
    first = runs // CHOOSING
    threshold, larger = _choose(zero[:first], one[:first], delta)
    counts = [int((scores[first:runs] >= threshold).sum()) for scores in (zero, one)]
    epsilon = epsilon_above(counts[larger], counts[1 - larger], runs - first, delta, doubt)
    return Bound(epsilon, doubt, runs - first, counts[larger], counts[1 - larger], f"score >= {threshold:.6g}")


def bound_of_gaussian_scores(without: Sequence[float], with_row: Sequence[float], delta: float, doubt: float) -> Bound:
    """The same from a likelihood ratio of Gaussian releases: no event tells N(0, 1) from N(mu, 1) better than its sign.

    So the counts bound mu, and mu has an exact epsilon at every delta. Nothing follows for noise of another kind, and
    there is no event to be chosen.
    """
    runs = min(len(without), len(with_row))
    rarely, often = (sum(score >= 0 for score in scores[:runs]) for scores in (without, with_row))
    separation = separation_above(often, rarely, runs, doubt)
    epsilon = gaussian_epsilon(separation, delta) if separation > 0 else 0.0
    return Bound(epsilon, doubt, runs, often, rarely, f"score >= 0: mu is at least {separation:.4g}")


def _choose(zero: FloatArray, one: FloatArray, delta: float) -> tuple[float, int]:
    """The threshold, and the table beyond it, with the largest bound that these few runs make certain enough.

    Not the one that would be best if all went on as these did: an event that was missing among them by luck would win.
    """
    values = np.unique(np.concatenate([zero, one]))
    if len(values) == 0:
        return 0.0, 1
    if len(values) > CANDIDATES:
        values = np.unique(values[np.linspace(0, len(values) - 1, CANDIDATES).astype(int)])
    runs = min(len(zero), len(one))
    counts = [runs - np.searchsorted(np.sort(scores[:runs]), values, "left") for scores in (zero, one)]
    found = [_epsilons(counts[larger], counts[1 - larger], runs, delta, CHOOSING_DOUBT) for larger in (0, 1)]
    best = [int(np.argmax(epsilons)) for epsilons in found]
    larger = int(found[1][best[1]] >= found[0][best[0]])
    return float(values[best[larger]]), larger


def bound_of_features(without: Sequence[Features], with_row: Sequence[Features], delta: float, doubt: float) -> Bound:
    """The bound from outputs of unknown law: a fifth of the runs teaches which values speak for the row.

    The score is that of a naive Bayes classifier. It may be a poor one: then the bound is low, but never wrong.
    """
    taught = min(len(without), len(with_row)) // CHOOSING
    weights = _learn(without[:taught], with_row[:taught])
    scores = [[_score(weights, features) for features in runs[taught:]] for runs in (without, with_row)]
    return bound_of_scores(scores[0], scores[1], delta, doubt)


Weights = list[dict[Hashable, float]]


def _learn(without: Sequence[Features], with_row: Sequence[Features]) -> Weights:
    """The weight of each value of each feature; of features that say the same in every run, the first has it all."""
    weights: Weights = []
    known = set[tuple[int, ...]]()
    for values in zip(zip(*without, strict=True), zip(*with_row, strict=True), strict=True):
        numbers = dict[Hashable, int]()
        pattern = tuple(numbers.setdefault(value, len(numbers)) for side in values for value in side)
        zero, one = Counter(values[0]), Counter(values[1])
        said = pattern in known
        weights.append({} if said else {value: log((one[value] + 1) / (zero[value] + 1)) for value in zero | one})
        known.add(pattern)
    return weights


def _score(weights: Weights, features: Features) -> float:
    return sum(known.get(value, 0.0) for known, value in zip(weights, features, strict=True))
