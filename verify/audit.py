"""Audit the epsilon that every mechanism claims: a row for each, with the largest loss that was measured.

The tables are made up. A mechanism's row also runs its planted defects through the same audit. An audit that measures
little proves little, so a row holds only if a good part of the claimed loss was actually seen: by counting what came
out, and in single runs by replaying them.
"""

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from fractions import Fraction

from scumble.lab.audit import NAMES, Finding, audit, shown, subject
from verify import Row, planted_epsilon
from verify.planted_epsilon import DEFECTS, EPSILONS

__all__ = ["rows"]

EPSILON = Fraction(2)
# Where runs are few, or the noise is Gaussian: the larger epsilon is, the fewer runs show a good part of it.
LARGER = {"fmi": Fraction(4), "dp-rmi": Fraction(4), "database": Fraction(4)}
SHARES = {"database": 8.0, "dp-plr": 3.0, "dp-plr-paper": 3.0, "adaptive-tree": 3.0, "fmi": 3.0, "dp-rmi": 3.0}
SHARES |= {"paper-tree": 2.0, "wide-tree": 2.0, "dp-plr-lossless": 2.0}
LIVES = ("retry", "restore")  # a run takes too long for counting
LEAST_RUNS = {"fmi": 6000, "dp-rmi": 6000, "database": 600} | dict.fromkeys(LIVES, 40)
RUNS = 3000  # at least, of any other: enough to show what has to be shown, with a chance of failure of one in a million
SHOWN = {"database": 0.25} | dict.fromkeys(LIVES, 0.0)  # of the claim, by counting; a half of any other
REPLAYED = dict.fromkeys(LIVES, 0.5)  # of the claim, in a single run; nine tenths of any other
OWN_TIME = 0.7  # of all: the rest is for the planted defects
DEFECT_RUNS = 2500  # at which a doubled epsilon shows as 1.5 at least


def rows(seconds: float) -> Iterator[Row]:
    """One row for each mechanism, in about `seconds` altogether, on all cores."""
    cores = len(os.sched_getaffinity(0))
    unit = cores * OWN_TIME * seconds / sum(SHARES.get(name, 1.0) for name in NAMES)
    with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
        longest_first = sorted(NAMES, key=lambda name: -SHARES.get(name, 1.0))
        begun = {name: pool.submit(_row, name, SHARES.get(name, 1.0) * unit) for name in longest_first}
        for name in NAMES:
            yield begun[name].result()


def _row(name: str, seconds: float) -> Row:
    claimed = subject(name, LARGER.get(name, EPSILON))
    sound = audit(replace(claimed, least_runs=LEAST_RUNS.get(name, RUNS)), seconds=seconds)
    defects = _defects(name)
    caught = []
    for defect in defects:
        with DEFECTS[defect][0]():
            planted = subject(name, EPSILONS.get(name, Fraction(1)))
            finding = audit(planted, runs=planted_epsilon.RUNS.get(name, DEFECT_RUNS))
            if _is_caught(finding, counted=name not in LIVES and defect not in planted_epsilon.REPLAYED):
                caught.append(defect)
    near = sound.ratio >= SHOWN.get(name, 0.5)
    if sound.exact_ratio is not None:
        near = near and sound.exact_ratio >= REPLAYED.get(name, 0.9)
    return Row(_claim(sound), _check(sound), _figure(sound), near and not sound.refuted, defects, tuple(caught))


def _is_caught(finding: Finding, *, counted: bool) -> bool:
    """Both by counting, where there are runs enough, and by replay, where no delta is in the way."""
    shown = finding.ratio > 1 or not counted
    return shown and (finding.exact_ratio is None or finding.exact_ratio > 1)


def _defects(name: str) -> tuple[str, ...]:
    return tuple(defect for defect, (_, names) in DEFECTS.items() if name in names)


def _claim(finding: Finding) -> str:
    subject = finding.subject
    delta = f" and delta {float(subject.delta):.1e}" if subject.delta else ""
    return f"{subject.name} ({subject.about}) loses no more than epsilon {float(subject.epsilon):g}{delta} for a row"


def _check(finding: Finding) -> str:
    return f"{finding.runs:,} runs on each of two neighbouring tables, by {finding.statistic}; false alarm 1e-6"


def _figure(finding: Finding) -> str:
    counted = f"at least {finding.bound.epsilon:.3f}, {100 * finding.ratio:.0f} % of the claim"
    if finding.exact_ratio is None:
        return counted
    return f"{counted}; a single run {shown(finding.exact_ratio)} of it"
