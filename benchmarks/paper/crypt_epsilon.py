"""Crypt-epsilon's column of the accuracy table: as printed, as the paper describes the index, and as it was measured.

As described, each point of the curve has noise of scale N/epsilon. The paper's experiments did something else
(`CryptEpsilonPublishedIndex`): noise of scale 1 on each bin of a histogram, summed; bins looked up by the order of
keys; ranges of a hundredth of the keys. That reading gives the printed column; the description does not.
"""

from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
from matplotlib.ticker import NullLocator

from benchmarks.figure import Size
from benchmarks.paper.data import Dataset
from benchmarks.paper.lab import Lab, Table
from benchmarks.paper.lookups import BETA, QUERIES, datasets
from benchmarks.paper.style import INK, SHADES
from scumble.lab.comparators import CryptEpsilonIndex, CryptEpsilonPublishedIndex
from scumble.lab.compare import KINDS, Case, Contender, Lookups, build
from scumble.types import ExplicitKeys

__all__ = ["CEILING", "PAPER", "as_described", "as_published", "run"]

CEILING = 0.75
"""No data set, domain or epsilon makes Crypt-epsilon miss more on average: a row at position p of [v0, v1) is found if
the noise of the start is at most p - v0, which is not negative, and that of the stop more than p - v1, which is: each
has a chance of at least a half, and the two are independent."""

PAPER = {  # Crypt-epsilon as printed: point average, point maximum, range average, range maximum
    "uniform 1K": (0.4899, 1.0, 0.1618, 0.3333),
    "uniform 10K": (0.6365, 1.0, 0.0688, 0.2034),
    "uniform 100K": (0.9970, 1.0, 0.1528, 0.3353),
    "uniform 1M": (1.0, 1.0, 1.0, 1.0),
    "lognormal 1K": (0.9406, 1.0, 0.8542, 1.0),
    "lognormal 10K": (1.0, 1.0, 1.0, 1.0),
    "lognormal 100K": (1.0, 1.0, 0.9986, 1.0),
    "lognormal 1M": (1.0, 1.0, 0.9940, 1.0),
    "trans 1M": (1.0, 1.0, 0.9904, 1.0),
    "bureau 250K": (1.0, 1.0, 0.9423, 1.0),
    "bureau 1M": (1.0, 1.0, 0.9264, 1.0),
}
EPSILONS: dict[Size, tuple[str, ...]] = {
    "full": ("0.01", "0.1", "1", "10", "100", "256"),
    "quick": ("0.1", "1", "10", "100"),
    "tiny": ("0.1", "10"),
}
SENSITIVE = ("uniform 1K", "uniform 10K", "uniform 100K", "uniform 1M", "lognormal 1K", "lognormal 1M", "bureau 1M")
BUILDS: dict[Size, int] = {"full": 20, "quick": 5, "tiny": 2}
DESCRIBED = Contender("Crypt-epsilon", CryptEpsilonIndex)
PUBLISHED = Contender("Crypt-epsilon, as published", CryptEpsilonPublishedIndex)
RANGE_SHARE, LEAST_RANGE = 0.01, 2  # of the keys, and in keys: how far a range's last key lies from its first


def run(lab: Lab) -> None:
    """The printed column beside both readings, and what epsilon changes about the described one."""
    names = [name for name in datasets(lab) if name in PAPER]
    read = {(name, epsilon): as_described(lab, name, epsilon) for name in names for epsilon in EPSILONS[lab.size]}
    published = {name: as_published(lab, name) for name in names}
    one = "1" if "1" in EPSILONS[lab.size] else EPSILONS[lab.size][0]
    table = Table(
        "accuracy-crypt-epsilon",
        "Crypt-epsilon: missing-data rate as printed, as measured for the published reading, and as described",
        [
            "data set",
            "keys",
            "bin width",
            "lookup",
            "printed, mean",
            "as published, mean",
            "least to most of the builds",
            "printed, max",
            "as published, max",
            f"as described, epsilon {one}, mean",
        ],
    )
    for name, found in published.items():
        for place, kind in enumerate(KINDS):
            rates, printed = found[kind], PAPER[name][2 * place : 2 * place + 2]
            low, high = min(rates["means"]), max(rates["means"])
            mean, described = float(np.mean(rates["means"])), read[name, one][kind]
            table.add(
                [
                    name,
                    f"{found['keys']:,}",
                    f"{found['width']}",
                    kind,
                    f"{printed[0]:.4f}",
                    f"{mean:.4f}",
                    f"{low:.2f} to {high:.2f}",
                    f"{printed[1]:.4f}",
                    f"{max(rates['maxima']):.4f}",
                    f"{described:.4f}",
                ],
                dataset=name,
                keys=found["keys"],
                width=found["width"],
                lookup=kind,
                printed_mean=printed[0],
                printed_max=printed[1],
                mean=mean,
                least=low,
                most=high,
                max=max(rates["maxima"]),
                described=described,
            )
    table.notes += [
        f"*As published*: {BUILDS[lab.size]} builds at epsilon 1; the printed column is one. N is the number of keys "
        "that occur. Ranges run from a key to the one a hundredth of the keys further, two at least.",
        "*As described*, no epsilon and no data set give a mean above 3/4: either end of a lookup errs on the harmful "
        "side with probability at most a half, independently of the other.",
    ]
    lab.write(table)
    _epsilon_table(lab, read)
    _figure_paper(lab, published, {name: read[name, one] for name in names})
    _figure_epsilon(lab, [name for name in names if name in SENSITIVE], read)


def as_described(lab: Lab, dataset: str, epsilon: str) -> dict[str, Any]:
    """Mean missing rates with noise on every point of the curve, over the whole domain."""
    builds = {"full": 5, "quick": 1, "tiny": 1}[lab.size]

    def make() -> dict[str, Any]:
        data = lab.dataset(dataset)
        lookups = Lookups.sample(data.counts, QUERIES)
        case = Case(data.counts, data.domain, Fraction(epsilon), BETA, Fraction(0))
        rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(builds):
            index = build(DESCRIBED, case)
            for kind in KINDS:
                outcome = index.unsafe_outcome(data.counts, *lookups.of(kind))
                rates[kind].append(float((outcome.missed / outcome.rows).mean()))
        return {"N": data.domain.size, **{kind: float(np.mean(rates[kind])) for kind in KINDS}}

    terms = {"epsilon": epsilon, "queries": QUERIES, "builds": builds}
    result: dict[str, Any] = lab.cell("crypt-epsilon", dataset, f"epsilon {epsilon}", terms=terms, make=make)
    return result


def as_published(lab: Lab, dataset: str) -> dict[str, Any]:
    """Missing rates of every build, mean and largest, for points and for ranges of a hundredth of the keys."""
    builds = BUILDS[lab.size]

    def make() -> dict[str, Any]:
        held, counts = present_keys(lab.dataset(dataset))
        keys = len(held)
        further = max(LEAST_RANGE, ceil(RANGE_SHARE * keys))
        points = np.unique(np.linspace(0, keys - 1, QUERIES).astype(np.int64))
        firsts = points[points + further < keys]
        lookups = {"point": (points, points), "range": (firsts, firsts + further)}
        case = Case(counts, ExplicitKeys(held), Fraction(1), BETA, Fraction(0))
        found: dict[str, Any] = {kind: {"means": [], "maxima": []} for kind in KINDS}
        for _ in range(builds):
            index = build(PUBLISHED, case)
            for kind in KINDS:
                outcome = index.unsafe_outcome(counts, *lookups[kind])
                missing = outcome.missed / outcome.rows
                found[kind]["means"].append(float(missing.mean()))
                found[kind]["maxima"].append(float(missing.max()))
        return {"keys": keys, "width": max(1, ceil(int(held[-1] - held[0]) / keys)), **found}

    terms = {"queries": QUERIES, "builds": builds, "range": RANGE_SHARE}
    result: dict[str, Any] = lab.cell("crypt-epsilon", dataset, "as published", terms=terms, make=make)
    return result


def present_keys(data: Dataset) -> tuple[Any, Any]:
    """The keys that hold rows, as whole numbers, and how many rows each holds: the paper's dom(A)."""
    held = np.flatnonzero(data.counts)
    return held, data.counts[held]


def _epsilon_table(lab: Lab, read: dict[tuple[str, str], dict[str, Any]]) -> None:
    table = Table(
        "accuracy-epsilon",
        "Crypt-epsilon as described: mean missing-data rate against epsilon",
        ["data set", "N", "epsilon", *KINDS],
    )
    for (name, epsilon), found in read.items():
        rates = {kind: found[kind] for kind in KINDS}
        texts = [name, f"{found['N']:,}", epsilon, *(f"{rate:.4f}" for rate in rates.values())]
        table.add(texts, dataset=name, epsilon=float(epsilon), **rates)
    lab.write(table)


def _figure_paper(lab: Lab, published: dict[str, dict[str, Any]], described: dict[str, dict[str, Any]]) -> None:
    names = list(published)
    with lab.figure("accuracy", 8.6, 0.34 * len(names) + 1.6) as figure:
        for place, (ax, kind) in enumerate(zip(figure.subplots(1, 2, sharey=True), KINDS, strict=True)):
            spans = [published[name][kind]["means"] for name in names]
            lows, highs = [min(span) for span in spans], [max(span) for span in spans]
            ax.hlines(names, lows, highs, color="#0072B2", linewidth=2.2, label="ours, as published: all builds")
            means = [float(np.mean(span)) for span in spans]
            ax.plot(means, names, "o", color="#0072B2", label="their mean", markersize=7)
            rates = [described[name][kind] for name in names]
            ax.plot(
                rates, names, "s", color="#E69F00", label="ours, as described", markersize=6, markerfacecolor="none"
            )
            printed = [PAPER[name][2 * place] for name in names]
            ax.plot(printed, names, "x", color="#000000", label="printed in the paper", markersize=7, zorder=4)
            ax.axvline(CEILING, color=INK, linewidth=1, linestyle=(0, (4, 3)))
            ax.set_xlim(-0.03, 1.05)
            ax.set_title(f"{kind} lookups")
            ax.set_xlabel("missing share of the answer's rows, mean")
            if place == 0:
                text = "dashed: 3/4, the most that\nthe described noise can miss"
                ax.annotate(text, (0.02, len(names) - 1), va="center", fontsize=8.5, color=INK)
        ax.invert_yaxis()
        handles, labels = ax.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        figure.suptitle("Crypt-epsilon, epsilon 1", x=0.01, ha="left", fontsize=11)


def _figure_epsilon(lab: Lab, names: list[str], read: dict[tuple[str, str], dict[str, Any]]) -> None:
    epsilons = EPSILONS[lab.size]
    with lab.figure("accuracy-epsilon", 8.6, 3.6) as figure:
        for ax, kind in zip(figure.subplots(1, 2, sharey=True), KINDS, strict=True):
            for name, (color, marker) in zip(names, SHADES, strict=False):
                rates = [read[name, epsilon][kind] for epsilon in epsilons]
                label = f"{name}, N = {read[name, epsilons[0]]['N']:,}"
                ax.plot([float(e) for e in epsilons], rates, marker=marker, color=color, label=label, markersize=5)
            ax.axhline(CEILING, color=INK, linewidth=1, linestyle=(0, (4, 3)))
            ax.set_xscale("log")
            ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            ax.xaxis.set_minor_locator(NullLocator())
            ax.set_ylim(0, 1)
            ax.set_title(f"{kind} lookups")
            ax.set_xlabel("epsilon")
        figure.axes[0].set_ylabel("missing share of the answer, mean")
        figure.axes[0].annotate("3/4", (float(epsilons[0]), CEILING), (-2, 6), textcoords="offset points", fontsize=8.5)
        handles, labels = ax.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        figure.suptitle("Crypt-epsilon loses rows at any epsilon that is in use", x=0.01, ha="left", fontsize=11)
