"""The single-record game: guess from an index whether one row is in the table.

The attacker knows every other row and the key of the one in question, and sees the whole index; a transcript is a
function of the index, so seeing queries too would add nothing. No test can have an advantage (right "yes" less wrong
"yes") above (e^epsilon - 1) / (e^epsilon + 1), against which the measured one is held.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import tanh

import numpy as np
from numpy.typing import NDArray

from scumble.index.dp_plr import DPPLRIndex
from scumble.index.file import IndexModel
from scumble.index.plan import SLACK_SHARE
from scumble.index.slack import shift
from scumble.lab.attack.report import Finding, Report
from scumble.lab.audit.bound import limits
from scumble.lab.comparators import ExactIndex
from scumble.privacy.budget import Exact, exact, show, unsafe_budget
from scumble.types import IntegerDomain

__all__ = ["Advantage", "advantage_bound", "attack", "best_advantage", "exact_game", "one_key_game", "shadow_game"]

ROWS, GAMES = 10_000, 600
KEYS = 64  # of the column in the game with trained attackers
BETA = Fraction(1, 10**6)
CONFIDENCE = 1 - 1e-7
PLANTED = 3  # more epsilon than is claimed
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


def advantage_bound(epsilon: float) -> float:
    """The most that any test can have against an epsilon-DP release: (e^epsilon - 1) / (e^epsilon + 1)."""
    return tanh(epsilon / 2)


@dataclass(frozen=True)
class Advantage:
    """What was measured over some games, half of them with the row and half without."""

    yes_with: int
    yes_without: int
    games: int

    @property
    def value(self) -> float:
        """The share of right "yes" less that of wrong "yes"."""
        return (self.yes_with - self.yes_without) / self.games

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Both shares lie in their Clopper-Pearson intervals with this probability; so the difference in this."""
        one, two = (limits(yes, self.games, (1 - confidence) / 4) for yes in (self.yes_with, self.yes_without))
        return max(-1.0, one[0] - two[1]), min(1.0, one[1] - two[0])


# --- a column of one key: the likelihood ratio itself ----------------------------------------------


def one_key_game(epsilon: Exact, rows: int = ROWS, games: int = GAMES, *, built_with: Exact | None = None) -> Advantage:
    """Play on a column of one key, where the likelihood ratio of all that is released is known: no test is better.

    `built_with` is the epsilon that the noise is really made for, if a defect is planted.
    """
    real = exact(epsilon if built_with is None else built_with, "epsilon")

    def says_yes(model: IndexModel) -> bool:
        # Who guesses right half the time on a tie has no advantage from it, and neither has "no".
        return _one_key_ratio(model.segments.at(0), model.slack_rows, rows, real) > 0

    yes = [sum(says_yes(_index([rows + more], real)) for _ in range(games)) for more in (1, 0)]
    return Advantage(yes[0], yes[1], games)


def _one_key_ratio(place: int, slack: int, rows: int, epsilon: Fraction) -> float:
    """The logarithm of P(index | with the row) / P(index | without).

    The index is the noisy count, and the deviation of that from the true count with noise and a shift of its own.
    """
    curve, slack_epsilon = float(epsilon * (1 - SLACK_SHARE)), epsilon * SLACK_SHARE
    without, with_it = abs(place - rows), abs(place - rows - 1)
    ratio = curve * (without - with_it)
    return ratio + _slack_ratio(slack, without, with_it, slack_epsilon)


def _slack_ratio(slack: int, without: int, with_it: int, epsilon: Fraction) -> float:
    """The part of the ratio that the slack has, given the deviations of the public segments from either table."""
    noise = slack - _shift(epsilon)
    return float(epsilon) * (abs(noise - without) - abs(noise - with_it))


@cache
def _shift(epsilon: Fraction) -> int:
    return shift(epsilon, BETA)


def best_advantage(epsilon: float) -> float:
    """What the likelihood ratio's advantage is on a column of one key: that is to be measured.

    The curve has the larger part of epsilon, so whatever the slack says, the ratio's sign is the curve's: the advantage
    is that of its noise alone, which attains the bound for its own part.
    """
    return advantage_bound(float(1 - SLACK_SHARE) * epsilon)


# --- a column of many keys: attackers who have practised -------------------------------------------


def shadow_game(epsilon: Exact, rows: int = ROWS, games: int = GAMES, *, built_with: Exact | None = None) -> Advantage:
    """Play on a column of many keys against an attacker who has built as many indexes of both tables to practise on.

    Its score is the slack's likelihood ratio, which is known once the segments are, and the linear discriminant of the
    segments' values; the threshold is the best one of the practice, and the games are others.
    """
    real = exact(epsilon if built_with is None else built_with, "epsilon")
    without = np.full(KEYS, max(1, rows // KEYS))
    with_it = without + (np.arange(KEYS) == KEYS // 2)

    def builds(counts: IntArray) -> tuple[FloatArray, FloatArray]:
        models = [_index(counts, real) for _ in range(games)]
        curves = np.array([model.segments.at_many(np.arange(KEYS)) for model in models])
        far = [np.abs(curves - np.cumsum(table)).max(axis=1) for table in (without, with_it)]
        ratios = [
            _slack_ratio(model.slack_rows, int(far[0][i]), int(far[1][i]), real * SLACK_SHARE)
            for i, model in enumerate(models)
        ]
        return np.diff(curves, prepend=0, axis=1).astype(np.float64) - without, np.array(ratios)

    practice = [builds(counts) for counts in (with_it, without)]
    score = _discriminant(practice[0][0], practice[1][0])
    trained = [score(values) + ratios for values, ratios in practice]
    threshold = _best_threshold(trained[0], trained[1])
    games_played = [score(values) + ratios for values, ratios in (builds(counts) for counts in (with_it, without))]
    yes = [int((scores > threshold).sum()) for scores in games_played]
    return Advantage(yes[0], yes[1], games)


def _discriminant(one: FloatArray, other: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Fisher's: the direction in which two clouds of points differ most for their spread."""
    spread = np.cov(one.T) + np.cov(other.T)
    spread += np.eye(len(spread)) * max(1e-9, float(np.trace(spread)) * 1e-6 / len(spread))
    way = 2 * np.linalg.solve(spread, one.mean(axis=0) - other.mean(axis=0))
    middle = (one.mean(axis=0) + other.mean(axis=0)) / 2
    return lambda values: np.asarray((values - middle) @ way, dtype=np.float64)


def _best_threshold(yes: FloatArray, no: FloatArray) -> float:
    places = np.unique(np.concatenate([yes, no]))
    right = 1 - np.searchsorted(np.sort(yes), places, side="right") / len(yes)
    wrong = 1 - np.searchsorted(np.sort(no), places, side="right") / len(no)
    return float(places[np.argmax(right - wrong)])


def exact_game(rows: int = ROWS, games: int = GAMES) -> Advantage:
    """Play against the exact index: it has the count."""
    domain = IntegerDomain(0, 0)
    yes = [
        sum(ExactIndex().fit_counts([rows + more], domain=domain).lookup(0).rows > rows for _ in range(games))
        for more in (1, 0)
    ]
    return Advantage(yes[0], yes[1], games)


def _index(counts: object, epsilon: Fraction) -> IndexModel:
    """The index that tells most: its segments follow every step of the noisy curve."""
    array = np.asarray(counts)
    budget = unsafe_budget(epsilon)  # the rows are made up
    domain = IntegerDomain(0, len(array) - 1)
    return DPPLRIndex(max_error=1).fit_counts(array, domain=domain, budget=budget, beta=BETA).model


# --- the attack ------------------------------------------------------------------------------------


def attack(epsilon: Exact = 1, rows: int = ROWS, queries: int = GAMES) -> Report:
    """Play the game against the exact index, ours on one key and on many, and ours with too little noise."""
    cost = exact(epsilon, "epsilon")
    shown = sorted({cost / 10, cost / 3, cost, min(3 * cost, Fraction(10))})
    played = {e: one_key_game(e, rows, queries) for e in shown}
    planted = one_key_game(cost, rows, queries, built_with=cost + PLANTED)
    findings = [
        _finding("exact index (leaks)", True, exact_game(rows, queries), cost),
        *(_finding(f"DP-PLR, epsilon {show(e)}, one key", False, found, e) for e, found in played.items()),
        _finding(f"DP-PLR, epsilon {show(cost)}, {KEYS} keys", False, shadow_game(cost, rows, queries), cost),
        _finding(f"planted: epsilon {show(cost)}, noise of {show(cost + PLANTED)}", True, planted, cost),
    ]
    return Report(
        "single record",
        "The attacker knows every row but one, sees the index, and says whether that one is in the table."
        " Epsilon bounds how much better than a coin it can be.",
        f"{2 * queries:,} games against each, with the likelihood ratio; for {KEYS} keys with one learned by practice",
        tuple(findings),
        {
            "epsilons": [float(e) for e in shown],
            "advantages": [found.value for found in played.values()],
            "intervals": [found.interval(0.95) for found in played.values()],
            "planted": (float(cost), planted.value, planted.interval(0.95)),
            "games": queries,
        },
    )


def _finding(target: str, leaky: bool, found: Advantage, epsilon: Fraction) -> Finding:
    """To win is to have an advantage that is above the bound beyond doubt."""
    bound = advantage_bound(float(epsilon))
    low, high = found.interval()
    usual = found.interval(0.95)
    return Finding(
        target,
        leaky,
        f"advantage {found.value:.3f} ({usual[0]:.3f} to {usual[1]:.3f}), bound {bound:.3f}",
        low > bound,
        {
            "advantage": found.value,
            "interval_95": [usual[0], usual[1]],
            "interval": [low, high],
            "bound": bound,
            "games": 2 * found.games,
        },
    )
