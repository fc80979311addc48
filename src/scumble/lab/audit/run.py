"""The audit itself: what it is of, a subject, and the bounds on a subject's epsilon that many runs give.

A subject is a mechanism, what it claims, and how to run it on either of two neighbouring tables. An observation of a
run has one entry for each statistic: a score, large where the row seems to be there, or features from which a score is
learned; and the exact loss of its noisy values, if they can be replayed. All of it is public, since the tables are made
up.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scumble.lab.audit.bound import (
    Bound,
    Features,
    GaussianScore,
    bound_of_features,
    bound_of_gaussian_scores,
    bound_of_scores,
)
from scumble.lab.audit.laws import Loss
from scumble.lab.audit.tap import Build, Tap

__all__ = [
    "DOUBT",
    "GRADIENTS",
    "INDEX",
    "LIKELIHOOD",
    "Finding",
    "Observation",
    "Subject",
    "audit",
    "shown",
    "tapped",
]

DOUBT = 1e-6  # of one audit: that it finds fault with a sound mechanism
TRIED = 20  # runs, before the others, that only tell how long a run takes
REPORT_EVERY = 64
MOST_DIGITS = 30
DIGITS = Context(prec=MOST_DIGITS, rounding=ROUND_DOWN)
Progress = Callable[[str, int, int | None], None]
LIKELIHOOD = "likelihood of the noisy values"
GRADIENTS = "likelihood of the gradients"
INDEX = "the index alone"
IntArray = NDArray[np.int64]
Scores = Mapping[str, float | Features]
Tables = tuple[IntArray, IntArray]


class Observation(NamedTuple):
    """PUBLIC: what is seen of a run. `loss` is what its noisy values lose together; None if no number bounds it."""

    scores: Scores
    loss: Loss | None = None


Observe = Callable[[int], Observation]


@dataclass(frozen=True)
class Subject:
    """PUBLIC: a mechanism that claims (epsilon, delta) for one row. `opened` yields what runs it on table 0 or 1."""

    name: str
    about: str
    epsilon: Fraction
    delta: Fraction
    opened: Callable[[], AbstractContextManager[Observe]]
    least_runs: int = 1000


def tapped(
    name: str,
    about: str,
    epsilon: Fraction,
    tables: Tables,
    build: Build,
    features: Callable[[Any], float | Features] | None = None,
    *,
    seen: str = INDEX,
    delta: Fraction = Fraction(0),
    fixed: bool = False,
    gaussian: bool = False,
    setting: Callable[[], AbstractContextManager[None]] = nullcontext,
    again: Build | None = None,
    least_runs: int = 1000,
) -> Subject:
    """A mechanism whose noisy values are listened to; and, given `features`, also judged by its output alone.

    `seen` names what the features are of, `fixed` says that no release depends on an earlier one, `gaussian` that some
    are gradients with Gaussian noise, and `again` is what to do instead of the build to learn how likely a release is.
    """

    @contextmanager
    def opened() -> Iterator[Observe]:
        with Tap(fixed=fixed).installed() as tap, setting():

            def observe(which: int) -> Observation:
                compared = tap.compare(build, tables, which, again)
                scores: dict[str, float | Features] = {LIKELIHOOD: compared.ratio}
                if gaussian:
                    scores[GRADIENTS] = GaussianScore(compared.gaussian)
                if features is not None:
                    scores[seen] = features(compared.output)
                return Observation(scores, compared.loss)

            yield observe

    return Subject(name, about, epsilon, delta, opened, least_runs)


@dataclass(frozen=True)
class Finding:
    """PUBLIC: what came out. Every bound holds at once, but for `DOUBT`.

    `loss` is the largest exact loss of a run, and no matter of chance; None if the mechanism has none that is bounded.
    `cut` is how many runs it leaves out, in which something was cut off at the truth: a delta pays for them.
    """

    subject: Subject
    runs: int
    bounds: dict[str, Bound]
    seconds: float
    loss: Loss | None
    cut: int

    @property
    def statistic(self) -> str:
        return max(self.bounds, key=lambda name: self.bounds[name].epsilon)

    @property
    def bound(self) -> Bound:
        return self.bounds[self.statistic]

    @property
    def ratio(self) -> float:
        """How much of the claimed epsilon was shown to be lost by counting; more than 1 refutes the claim."""
        return self.bound.epsilon / float(self.subject.epsilon)

    @property
    def exact_ratio(self) -> Loss | None:
        """How much of the claimed epsilon a single run has lost; more than 1 refutes the claim."""
        return None if self.loss is None else self.loss / self.subject.epsilon

    @property
    def refuted(self) -> bool:
        return self.ratio > 1 or (self.exact_ratio is not None and self.exact_ratio > 1)

    def to_json(self) -> dict[str, Any]:
        return {
            "mechanism": self.subject.name,
            "about": self.subject.about,
            "epsilon": str(self.subject.epsilon),
            "delta": float(self.subject.delta),
            "runs": self.runs,
            "seconds": round(self.seconds, 2),
            "refuted": self.refuted,
            "largest_loss": None if self.loss is None else shown(self.loss),
            "largest_loss_of_claim": None if self.exact_ratio is None else shown(self.exact_ratio),
            "cut_off_runs": self.cut,
            "bounds": [
                {
                    "statistic": name,
                    "epsilon": bound.epsilon,
                    "confidence": 1 - bound.doubt,
                    "event": bound.event,
                    "runs": bound.runs,
                    "often": bound.often,
                    "rarely": bound.rarely,
                }
                for name, bound in self.bounds.items()
            ],
        }


def shown(loss: Loss) -> str:
    """A loss as text: the fraction if it is a short one, else its first digits, never rounded up."""
    if not isinstance(loss, Fraction):
        return "infinite"
    text = str(loss)
    return text if len(text) <= MOST_DIGITS else str(DIGITS.divide(Decimal(loss.numerator), Decimal(loss.denominator)))


def _silent(what: str, done: int, total: int | None) -> None:
    """Report no progress."""


def audit(
    subject: Subject,
    *,
    runs: int | None = None,
    seconds: float = 5.0,
    doubt: float = DOUBT,
    progress: Progress = _silent,
) -> Finding:
    """Run a mechanism on both tables, `runs` times each or as often as takes some seconds, and bound its epsilon.

    The number of runs is settled before the first that counts, so that no outcome has a part in it.
    """
    begun = time.perf_counter()
    seen: tuple[list[Observation], list[Observation]] = ([], [])
    with subject.opened() as observe:
        count = runs or max(subject.least_runs, int(seconds / _duration(observe)))
        for run in range(count):
            for which in (run % 2, 1 - run % 2):  # neither table always comes first
                seen[which].append(observe(which))
            if run % REPORT_EVERY == 0:
                progress(subject.name, run, count)
    names = list(seen[0][0].scores)
    bounds = {name: _bound(name, seen, float(subject.delta), doubt / len(names)) for name in names}
    losses = [observation.loss for side in seen for observation in side if observation.loss is not None]
    cut = 2 * count - len(losses) if losses else 0
    return Finding(subject, count, bounds, time.perf_counter() - begun, max(losses, default=None), cut)


def _duration(observe: Observe) -> float:
    """Of a run on each table, on average; the first, which fills caches, is left out."""
    observe(0)
    begun = time.perf_counter()
    for run in range(TRIED):
        observe(run % 2)
    return 2 * (time.perf_counter() - begun) / TRIED


def _bound(name: str, seen: tuple[list[Observation], list[Observation]], delta: float, doubt: float) -> Bound:
    sides: Any = [[observation.scores[name] for observation in side] for side in seen]
    if isinstance(sides[0][0], tuple):
        return bound_of_features(sides[0], sides[1], delta, doubt)
    if isinstance(sides[0][0], GaussianScore):
        return bound_of_gaussian_scores(sides[0], sides[1], delta, doubt)
    return bound_of_scores(sides[0], sides[1], delta, doubt)
