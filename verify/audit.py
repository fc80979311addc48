"""Epsilon under attack: seconds come in; a row for each mechanism goes out, with the most that it was caught losing.

Nothing secret is here: the tables are made up. A mechanism's row also runs its planted defects through the same audit.
"""

from collections.abc import Iterator
from fractions import Fraction

from scumble.audit import NAMES, Finding, audit, subject
from verify.planted_epsilon import DEFECTS
from verify.row import Row

__all__ = ["rows"]

EPSILON = Fraction(1)
SHARES = {"paper-tree": 3.0, "dp-plr": 3.0, "dp-plr-paper": 2.0, "wide-tree": 2.0, "database": 4.0}
OWN_TIME = 0.7  # of all: the rest is for the planted defects
# A database takes as long as a hundred builds, and its defect shows at once; a scout's shows late.
PLANTED_RUNS = {"database": 100, "adaptive-tree": 6000}
DEFECT_RUNS = 2500  # at which a doubled epsilon shows as 1.5 at least


def rows(seconds: float) -> Iterator[Row]:
    """One row a mechanism, within about so many seconds in all."""
    unit = OWN_TIME * seconds / sum(SHARES.get(name, 1.0) for name in NAMES)
    for name in NAMES:
        yield _row(name, SHARES.get(name, 1.0) * unit)


def _row(name: str, seconds: float) -> Row:
    sound = audit(subject(name, EPSILON), seconds=seconds)
    defects = _defects(name)
    caught = []
    for defect in defects:
        with DEFECTS[defect][0]():
            if audit(subject(name, EPSILON), runs=PLANTED_RUNS.get(name, DEFECT_RUNS)).refuted:
                caught.append(defect)
    return Row(_claim(sound), _check(sound), _figure(sound), not sound.refuted, defects, tuple(caught))


def _defects(name: str) -> tuple[str, ...]:
    return tuple(defect for defect, (_, names) in DEFECTS.items() if name in names)


def _claim(finding: Finding) -> str:
    subject = finding.subject
    delta = f" and delta {float(subject.delta):.1e}" if subject.delta else ""
    return f"{subject.name} ({subject.about}) loses no more than epsilon {float(subject.epsilon):g}{delta} for a row"


def _check(finding: Finding) -> str:
    return f"{finding.runs:,} runs on each of two neighbouring tables, by {finding.statistic}; false alarm 1e-6"


def _figure(finding: Finding) -> str:
    return f"at least {finding.bound.epsilon:.3f}, {100 * finding.ratio:.0f} % of the claim"
