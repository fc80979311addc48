"""FMI with the paper's own experts, perceptrons trained for 50 epochs: with the noise that it needs, and as published.

As published is NOT PRIVATE, twice over: the noise has no factor |B| (docs/paper-notes.md, slip 12), and the accounting
takes a step for one that sees few rows, where every row is behind every later point of the curve. The keys are those
that occur, as in the paper. What its training code does is not public: batch, steps and rates are ours.
"""

from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.figure import Size
from benchmarks.paper.crypt_epsilon import present_keys
from benchmarks.paper.lab import Lab, Table
from benchmarks.paper.lookups import BETA
from benchmarks.paper.style import short
from scumble.lab.accounting import dp_accounting
from scumble.lab.comparators import FMIIndex, FMIPerceptronsIndex
from scumble.lab.comparators.trained import Parts, TrainedIndex
from scumble.lab.compare import Case, Contender, build
from scumble.types import ExplicitKeys

__all__ = ["PRINTED", "UnsafeAppendixFMI", "UnsafePublishedPerceptrons", "believed_multiplier", "run"]

PRINTED = {  # epsilon after the last epoch, and the largest error there
    "uniform 100K": (0.403, 76.0),
    "lognormal 10K": (0.540, 19.2),
    "lognormal 1M": (0.473, 479.6),
}
SHAPES = {  # experts and widths: the paper's, but for lognormal 1M, which had 320, 160 and 80
    "uniform 100K": (1, (48, 36, 24)),
    "lognormal 10K": (2, (96, 64, 32)),
    "lognormal 1M": (2, (96, 64, 32)),
}
STEPS = {  # an epoch, and examples in each: more of both come closer, and take longer
    "uniform 100K": (80, 4096),
    "lognormal 10K": (40, 2048),
    "lognormal 1M": (40, 2048),
}
DATASETS: dict[Size, tuple[str, ...]] = {
    "full": tuple(PRINTED),
    "quick": ("lognormal 10K",),
    "tiny": ("lognormal 1K",),
}
EPOCHS: dict[Size, int] = {"full": 50, "quick": 50, "tiny": 2}
FEWER: dict[Size, tuple[int, int]] = {"quick": (4, 512), "tiny": (2, 32)}
HONEST_BATCH = 64  # one step an epoch: with noise that grows with the batch, a larger one gains nothing
DELTA = Fraction(1, 10**6)
ERROR_SHARE = Fraction(1, 100)  # of epsilon: next to nothing, since only the training is looked at
UNITS_A_MULTIPLIER = 2**20


class UnsafeAppendixFMI(FMIIndex):
    """NOT PRIVATE: FMI with the noise of the paper's appendix, sigma C, without the factor 2 |B|."""

    def _multipliers(self, epsilon: Fraction, delta: Fraction) -> list[Fraction]:
        return [multiplier / (2 * self.batch) for multiplier in super()._multipliers(epsilon, delta)]


class UnsafePublishedPerceptrons(FMIPerceptronsIndex):
    """NOT PRIVATE: without the factor 2 |B|, and counted as if a step saw a random few of the rows."""

    def _multipliers(self, epsilon: Fraction, delta: Fraction) -> list[Fraction]:
        return [believed_multiplier(epsilon, delta, self.steps, self.steps_per_epoch) / (2 * self.batch)]

    def _spent(self, parts: Parts, steps: int, delta: Fraction) -> Fraction:
        multiplier = float(believed_multiplier(parts.training, delta, self.steps, self.steps_per_epoch))
        return Fraction(_believed_epsilon(multiplier, steps, self.steps_per_epoch, delta))


@lru_cache(maxsize=64)
def believed_multiplier(epsilon: Fraction, delta: Fraction, steps: int, steps_per_epoch: int) -> Fraction:
    """The noise that DP-SGD's accountant asks for if a step takes each example with chance 1 / steps_per_epoch."""
    low, high = 2.0**-4, 2.0**14
    for _ in range(30):
        middle = (low * high) ** 0.5
        if _believed_epsilon(middle, steps, steps_per_epoch, delta) > epsilon:
            low = middle
        else:
            high = middle
    return Fraction(round(high * UNITS_A_MULTIPLIER), UNITS_A_MULTIPLIER)


def _believed_epsilon(multiplier: float, steps: int, steps_per_epoch: int, delta: Fraction) -> float:
    accounting = dp_accounting()
    accountant = accounting.rdp.RdpAccountant()
    step = accounting.PoissonSampledDpEvent(1 / steps_per_epoch, accounting.GaussianDpEvent(multiplier))
    accountant.compose(step, steps)
    return float(accountant.get_epsilon(float(delta)))


def run(lab: Lab) -> dict[str, Any]:
    """The table; returns, for the figure, the rows of each data set and the published variant's trace."""
    names = DATASETS[lab.size]
    table = Table(
        "tradeoff-perceptrons",
        "FMI with four numbers an expert and with perceptrons: largest error in rows, over the keys that occur",
        [
            "data set",
            "rows",
            "keys",
            "epsilon for training",
            "printed",
            "perceptrons as published: not private",
            "four numbers, noise without B: not private",
            "perceptrons, noise with B",
            "four numbers, noise with B",
            "line y = x",
        ],
    )
    shown: dict[str, Any] = {}
    for name in names:
        found = _measured(lab, name)
        shown[name] = found
        epsilon, printed = PRINTED.get(name, (0.5, None))
        errors = [found[method] for method in ("published", "appendix", "perceptrons", "four numbers", "line")]
        table.add(
            [name, f"{found['rows']:,}", f"{found['keys']:,}", f"{epsilon}", short(printed), *map(short, errors)],
            dataset=name,
            epsilon=epsilon,
            printed=printed,
            **{key: value for key, value in found.items() if key != "trace"},
        )
    table.notes += [
        "Printed and as published: after the last of 50 epochs, at the epsilon that the published accounting counts "
        "(Poisson sampling, noise for one example).",
        f"As published here: {EPOCHS[lab.size]} epochs of so many steps with so many examples each: "
        + ", ".join(f"{name} {steps} of {batch:,}" for name in names for steps, batch in [_steps(lab, name)])
        + ". Adam, a rate that rises to 0.003 and falls to 0. One build.",
    ]
    lab.write(table)
    return shown


def _steps(lab: Lab, name: str) -> tuple[int, int]:
    return FEWER.get(lab.size) or STEPS[name]


def _measured(lab: Lab, name: str) -> dict[str, Any]:
    epsilon = Fraction(str(PRINTED.get(name, (0.5, 0))[0]))
    experts, hidden = SHAPES.get(name, (2, (8, 6, 4)))
    epochs, share = EPOCHS[lab.size], ERROR_SHARE
    steps_per_epoch, batch = _steps(lab, name)

    def make() -> dict[str, Any]:
        keys, counts = present_keys(lab.dataset(name))
        curve = np.cumsum(counts)
        case = Case(counts, ExplicitKeys(keys), epsilon / (1 - share), BETA, DELTA)

        def largest(index: TrainedIndex) -> float:
            build(Contender(index.name, lambda: index, needs_delta=True, trained=True), case)
            return float(np.abs(index.model.at(np.arange(len(curve))) - curve).max())

        published = UnsafePublishedPerceptrons(
            experts,
            hidden=hidden,
            epochs=epochs,
            steps_per_epoch=steps_per_epoch,
            batch=batch,
            error_share=share,
            unsafe_trace=True,
        )
        honest = FMIPerceptronsIndex(experts, hidden=hidden, epochs=epochs, batch=HONEST_BATCH, error_share=share)
        line = np.rint((np.arange(len(curve)) + 1) / len(curve) * curve[-1])
        return {
            "rows": int(curve[-1]),
            "keys": len(keys),
            "line": float(np.abs(line - curve).max()),
            "published": largest(published),
            "appendix": largest(UnsafeAppendixFMI(error_share=share)),
            "perceptrons": largest(honest),
            "four numbers": largest(FMIIndex(error_share=share)),
            "trace": [(float(spent), error) for spent, error in published.unsafe_history],
        }

    terms = {
        "epsilon": str(epsilon),
        "shape": [experts, *hidden],
        "epochs": epochs,
        "steps_per_epoch": steps_per_epoch,
        "batch": [batch, HONEST_BATCH],
    }
    result: dict[str, Any] = lab.cell("tradeoff", name, "perceptrons", terms=terms, make=make)
    return result
