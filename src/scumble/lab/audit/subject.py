"""What an audit is of: a mechanism, what it claims, and how to run it on either of two neighbouring tables.

The tables are made up and public; so is all that is observed of them here. An observation has one entry for each
statistic: a score, large where the row seems to be there, or features of which the score is yet to be learned.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from scumble.lab.audit.bound import Features, GaussianScore
from scumble.lab.audit.tap import Build, Tap

__all__ = ["GRADIENTS", "INDEX", "LIKELIHOOD", "Observation", "Observe", "Subject", "tapped", "watched"]

LIKELIHOOD = "likelihood of the noisy values"
GRADIENTS = "likelihood of the gradients"
INDEX = "the index alone"
IntArray = NDArray[np.int64]
Observation = Mapping[str, float | Features]
Observe = Callable[[int], Observation]
Tables = tuple[IntArray, IntArray]


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
    features: Callable[[object], Features] | None = None,
    *,
    seen: str = INDEX,
    delta: Fraction = Fraction(0),
    fixed: bool = False,
    gaussian: bool = False,
    setting: Callable[[], AbstractContextManager[None]] | None = None,
    again: Build | None = None,
    least_runs: int = 1000,
) -> Subject:
    """A mechanism whose noisy values are listened to; and, given `features`, also judged by its output alone.

    `seen` names what the features are of, `fixed` says that no release depends on an earlier one, `gaussian` that some
    are gradients with Gaussian noise, and `again` is what to do instead of the build to learn how likely a release is.
    """

    @contextmanager
    def opened() -> Iterator[Observe]:
        with Tap(fixed=fixed).installed() as tap, setting() if setting else _nothing():

            def observe(which: int) -> Observation:
                told = tap.told(build, tables, which, again)
                observation: dict[str, float | Features] = {LIKELIHOOD: told.ratio}
                if gaussian:
                    observation[GRADIENTS] = GaussianScore(told.gaussian)
                if features is not None:
                    observation[seen] = features(told.output)
                return observation

            yield observe

    return Subject(name, about, epsilon, delta, opened, least_runs)


def watched(
    name: str,
    about: str,
    epsilon: Fraction,
    statistic: str,
    observe: Callable[[int], float | Features],
    *,
    delta: Fraction = Fraction(0),
) -> Subject:
    """A mechanism that is judged by its output alone."""

    @contextmanager
    def opened() -> Iterator[Observe]:
        yield lambda which: {statistic: observe(which)}

    return Subject(name, about, epsilon, delta, opened)


@contextmanager
def _nothing() -> Iterator[None]:
    yield
