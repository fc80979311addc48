"""The audit itself: a subject and a number of runs come in, a bound on its epsilon for each statistic goes out.

All of it is public: the tables are made up. How many runs there will be is settled before the first that counts, so
that no outcome has a part in it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scumble.lab.audit.bound import Bound, GaussianScore, bound_of_features, bound_of_gaussian_scores, bound_of_scores
from scumble.lab.audit.subject import Observation, Observe, Subject

__all__ = ["DOUBT", "Finding", "audit"]

DOUBT = 1e-6  # of one audit: that it finds fault with a sound mechanism
TRIED = 20  # runs, before the others, that only tell how long a run takes
REPORT_EVERY = 64
Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Finding:
    """PUBLIC: what came out. Every bound holds at once, but for `DOUBT`."""

    subject: Subject
    runs: int
    bounds: dict[str, Bound]
    seconds: float

    @property
    def statistic(self) -> str:
        """The one that shows most."""
        return max(self.bounds, key=lambda name: self.bounds[name].epsilon)

    @property
    def bound(self) -> Bound:
        """The largest."""
        return self.bounds[self.statistic]

    @property
    def ratio(self) -> float:
        """How much of the claimed epsilon was shown to be lost; more than 1 refutes the claim."""
        return self.bound.epsilon / float(self.subject.epsilon)

    @property
    def refuted(self) -> bool:
        """Whether the mechanism loses more than it claims."""
        return self.ratio > 1

    def to_json(self) -> dict[str, Any]:
        """Plain numbers."""
        return {
            "mechanism": self.subject.name,
            "about": self.subject.about,
            "epsilon": str(self.subject.epsilon),
            "delta": float(self.subject.delta),
            "runs": self.runs,
            "seconds": round(self.seconds, 2),
            "refuted": self.refuted,
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
    """Run a mechanism on both tables, `runs` times each or as often as takes some seconds, and bound its epsilon."""
    begun = time.perf_counter()
    seen: tuple[list[Observation], list[Observation]] = ([], [])
    with subject.opened() as observe:
        count = runs or max(subject.least_runs, int(seconds / _duration(observe)))
        for run in range(count):
            for which in (run % 2, 1 - run % 2):  # neither table always comes first
                seen[which].append(observe(which))
            if run % REPORT_EVERY == 0:
                progress(subject.name, run, count)
    names = list(seen[0][0])
    bounds = {name: _bound(name, seen, float(subject.delta), doubt / len(names)) for name in names}
    return Finding(subject, count, bounds, time.perf_counter() - begun)


def _duration(observe: Observe) -> float:
    """Of a run on each table, on average; the first, which fills caches, is left out."""
    observe(0)
    begun = time.perf_counter()
    for run in range(TRIED):
        observe(run % 2)
    return 2 * (time.perf_counter() - begun) / TRIED


def _bound(name: str, seen: tuple[list[Observation], list[Observation]], delta: float, doubt: float) -> Bound:
    sides: Any = [[observation[name] for observation in side] for side in seen]
    if isinstance(sides[0][0], tuple):
        return bound_of_features(sides[0], sides[1], delta, doubt)
    if isinstance(sides[0][0], GaussianScore):
        return bound_of_gaussian_scores(sides[0], sides[1], delta, doubt)
    return bound_of_scores(sides[0], sides[1], delta, doubt)
