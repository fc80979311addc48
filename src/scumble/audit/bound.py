"""A lower bound on epsilon: scores of many runs on two neighbouring tables come in, a number that epsilon exceeds goes out.

Scores are public as far as the mechanism's outputs are. (epsilon, delta)-DP says P1 <= e^epsilon P0 + delta for every
event; so an event that is frequent with one table and rare with the other proves that epsilon is at least
log((P1 - delta) / P0). The event is chosen on one half of the runs. The other half, which had no part in the choice,
then counts it once, and exact binomial limits (Clopper and Pearson) for both counts make the bound: it is wrong with a
probability of at most `doubt`, whatever the mechanism and the score are.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bound", "Features", "bound_of_features", "bound_of_scores", "epsilon_above", "limits"]

CANDIDATES = 400  # thresholds that are tried
FloatArray = NDArray[np.float64]
Features = tuple[Hashable, ...]


@dataclass(frozen=True)
class Bound:
    """PUBLIC: epsilon is at least `epsilon`, but for `doubt`. The counts are those of the half that decided."""

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


def _limits(counts: NDArray[np.int64], runs: int, doubt: float) -> tuple[FloatArray, FloatArray]:
    from scipy.special import betaincinv  # slow to import

    low = np.where(counts > 0, betaincinv(np.maximum(counts, 1), runs - counts + 1, doubt), 0.0)
    high = np.where(counts < runs, 1 - betaincinv(np.maximum(runs - counts, 1), counts + 1, doubt), 1.0)
    return low, high


def epsilon_above(often: int, rarely: int, runs: int, delta: float, doubt: float) -> float:
    """The least epsilon that an event allows which came `often` in `runs` of one table, and `rarely` of the other."""
    return float(_epsilons(np.array([often]), np.array([rarely]), runs, delta, doubt)[0])


def _epsilons(
    often: NDArray[np.int64], rarely: NDArray[np.int64], runs: int, delta: float, doubt: float
) -> FloatArray:
    low, _ = _limits(often, runs, doubt / 2)
    _, high = _limits(rarely, runs, doubt / 2)
    return np.log(np.maximum(np.maximum(low - delta, 0) / high, 1.0))


def bound_of_scores(without: Sequence[float], with_row: Sequence[float], delta: float, doubt: float) -> Bound:
    """The bound from scores, which are large where the row seems to be there.

    The threshold, and which of the two tables is the one whose tail is counted, are chosen on the first half.
    """
    zero, one = np.asarray(without, np.float64), np.asarray(with_row, np.float64)
    half = min(len(zero), len(one)) // 2
    threshold, upwards = _choose(zero[:half], one[:half], delta, doubt)
    zero, one = zero[half : 2 * half], one[half : 2 * half]
    if upwards:
        often, rarely, event = one >= threshold, zero >= threshold, f"score >= {threshold:.6g}"
    else:
        often, rarely, event = zero <= threshold, one <= threshold, f"score <= {threshold:.6g}"
    counts = int(often.sum()), int(rarely.sum())
    return Bound(epsilon_above(*counts, half, delta, doubt), doubt, half, *counts, event)


def _choose(zero: FloatArray, one: FloatArray, delta: float, doubt: float) -> tuple[float, bool]:
    """The threshold and direction that would give the largest bound on these runs."""
    values = np.unique(np.concatenate([zero, one]))
    if len(values) == 0:
        return 0.0, True
    if len(values) > CANDIDATES:
        values = np.unique(values[np.linspace(0, len(values) - 1, CANDIDATES).astype(int)])
    runs, found = len(zero), []
    for upwards in (True, False):
        sign = 1 if upwards else -1
        often, rarely = (one, zero) if upwards else (zero, one)
        counts = [runs - np.searchsorted(np.sort(sign * scores), sign * values, "left") for scores in (often, rarely)]
        epsilons = _epsilons(counts[0], counts[1], runs, delta, doubt)
        best = int(np.argmax(epsilons))
        found.append((float(epsilons[best]), float(values[best]), upwards))
    _, threshold, upwards = max(found)
    return threshold, upwards


def bound_of_features(without: Sequence[Features], with_row: Sequence[Features], delta: float, doubt: float) -> Bound:
    """The bound from outputs of unknown law: a fifth of the runs teaches which values speak for the row.

    The score is that of a naive Bayes classifier. It may be a poor one: then the bound is low, but never wrong.
    """
    taught = min(len(without), len(with_row)) // 5
    weights = _learn(without[:taught], with_row[:taught])
    scores = [[_score(weights, features) for features in runs[taught:]] for runs in (without, with_row)]
    return bound_of_scores(scores[0], scores[1], delta, doubt)


Weights = list[dict[Hashable, float]]


def _learn(without: Sequence[Features], with_row: Sequence[Features]) -> Weights:
    weights: Weights = []
    for values in zip(zip(*without, strict=True), zip(*with_row, strict=True), strict=True):
        zero, one = Counter(values[0]), Counter(values[1])
        weights.append({value: log((one[value] + 1) / (zero[value] + 1)) for value in zero | one})
    return weights


def _score(weights: Weights, features: Features) -> float:
    return sum(known.get(value, 0.0) for known, value in zip(weights, features, strict=True))
