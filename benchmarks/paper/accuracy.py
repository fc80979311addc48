"""The accuracy table (the paper's last): the share of its rows that a lookup misses, on average and at most.

Missing is one minus what is found (docs/paper-notes.md, slip 8). The paper states no epsilon for this table; ours is 1,
and Crypt-epsilon, the only one that loses rows, is measured at many. Its numbers in the paper exceed what its noise can
do: `variants` looks for what else could have been measured.
"""

from fractions import Fraction
from typing import Any

import numpy as np
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from benchmarks.figure import Size
from benchmarks.paper.lab import Lab, Table
from benchmarks.paper.lookups import BETA, QUERIES, contenders, datasets, looked_up
from benchmarks.paper.style import INK, SHADES
from scumble.lab.comparators import CryptEpsilonIndex
from scumble.lab.compare import KINDS, Case, Contender, Lookups, build, every_index

__all__ = ["CEILING", "PAPER", "run"]

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
    "full": ("0.01", "0.1", "1", "10", "100", "1000"),
    "quick": ("0.1", "1", "10", "100"),
    "tiny": ("0.1", "10"),
}
SENSITIVE = ("uniform 1K", "uniform 10K", "uniform 100K", "uniform 1M", "lognormal 1K", "lognormal 1M", "bureau 1M")
VARIANTS = {
    "as described": "each end has its own noise; positions are clipped to the table",
    "made monotone": "isotonic regression over the noisy curve, as DP-PLR has it",
    "strict": "a lookup whose noisy ends cross or lie outside the table finds nothing",
}


def run(lab: Lab) -> None:
    """The table of all indexes, Crypt-epsilon against the paper, and what epsilon and reading change about it."""
    _all_indexes(lab)
    _crypt_epsilon(lab)


def _all_indexes(lab: Lab) -> None:
    table = Table(
        "accuracy",
        "Missing-data rate of point and range lookups, epsilon 1, beta 1e-6",
        ["data set", "index", "point, mean", "point, max", "range, mean", "range, max"],
    )
    for dataset in datasets(lab):
        for contender in contenders(lab):
            found = looked_up(lab, dataset, contender)
            if found is None:
                table.add([dataset, contender.name, *4 * ["refused"]], dataset=dataset, index=contender.name)
                continue
            rates = [found[kind][f"missing_{what}"] for kind in KINDS for what in ("mean", "max")]
            table.add(
                [dataset, contender.name, *(f"{rate:.4f}" for rate in rates)],
                dataset=dataset,
                index=contender.name,
                **{f"{kind}_{what}": found[kind][f"missing_{what}"] for kind in KINDS for what in ("mean", "max")},
            )
    table.notes.append(
        f"Points: keys that hold rows, all of them or {QUERIES:,} spread evenly among them. Ranges: {QUERIES:,}, from "
        "one such key to another, both ends spread evenly. Capacity: the number of rows, as in the paper."
    )
    lab.write(table)


# --- Crypt-epsilon ---------------------------------------------------------------------------------


def _crypt_epsilon(lab: Lab) -> None:
    names = [name for name in datasets(lab) if name in PAPER and (lab.size == "full" or name != "bureau 1M")]
    (crypt,) = (contender for contender in every_index() if contender.make is CryptEpsilonIndex)
    epsilons = EPSILONS[lab.size]
    read = {(name, epsilon): variants(lab, name, crypt, Fraction(epsilon)) for name in names for epsilon in epsilons}
    table = Table(
        "accuracy-crypt-epsilon",
        "Crypt-epsilon: mean missing-data rate as printed, and as measured for three readings of a lookup",
        ["data set", "N", "epsilon", "lookup", "paper", *VARIANTS],
    )
    for (name, epsilon), found in read.items():
        for place, kind in enumerate(KINDS):
            rates = [found[variant][kind] for variant in VARIANTS]
            table.add(
                [name, f"{found['N']:,}", epsilon, kind, f"{PAPER[name][2 * place]:.4f}", *(f"{r:.4f}" for r in rates)],
                dataset=name,
                epsilon=float(epsilon),
                lookup=kind,
                paper=PAPER[name][2 * place],
                **{variant: found[variant][kind] for variant in VARIANTS},
            )
    table.notes += [f"*{name}*: {meaning}." for name, meaning in VARIANTS.items()]
    table.notes.append(
        "As described, no epsilon and no data set give a mean above 3/4: either end of a lookup errs on the harmful "
        "side with probability at most a half, independently of the other."
    )
    lab.write(table)
    _figure_paper(lab, names, read)
    _figure_epsilon(lab, [name for name in names if name in SENSITIVE], read)


def variants(lab: Lab, dataset: str, crypt: Contender, epsilon: Fraction) -> dict[str, Any]:
    """Mean missing rates of three readings of a lookup."""
    builds = {"full": 5, "quick": 1, "tiny": 1}[lab.size]

    def make() -> dict[str, Any]:
        data = lab.dataset(dataset)
        lookups = Lookups.sample(data.counts, QUERIES)
        curve = np.concatenate([[0], np.cumsum(data.counts)])
        rates: dict[str, dict[str, list[float]]] = {name: {kind: [] for kind in KINDS} for name in VARIANTS}
        for _ in range(builds):
            index = build(crypt, Case(data.counts, data.domain, epsilon, BETA, Fraction(0)))
            assert isinstance(index, CryptEpsilonIndex)
            noisy = index.curves.lower
            for kind in KINDS:
                firsts, lasts = lookups.of(kind)
                true = curve[firsts], curve[lasts + 1]
                for name in VARIANTS:
                    rates[name][kind].append(_missing(_read(name, noisy, firsts, lasts, data.rows), true))
        means = {name: {kind: float(np.mean(rates[name][kind])) for kind in KINDS} for name in VARIANTS}
        return {"N": data.domain.size, **means}

    terms = {"epsilon": str(epsilon), "queries": QUERIES, "builds": builds}
    result: dict[str, Any] = lab.cell("crypt-epsilon", dataset, f"epsilon {float(epsilon):g}", terms=terms, make=make)
    return result


Ends = tuple[NDArray[Any], NDArray[Any]]


def _read(variant: str, noisy: NDArray[np.int64], firsts: NDArray[Any], lasts: NDArray[Any], rows: int) -> Ends:
    """Starts and stops of lookups in one of the three readings."""
    curve = isotonic_regression(noisy.astype(np.float64)).x if variant == "made monotone" else noisy
    starts = np.where(firsts > 0, curve[np.maximum(firsts - 1, 0)], 0)
    stops = curve[lasts]
    if variant == "strict":
        outside = (starts < 0) | (stops > rows) | (stops < starts)
        stops = np.where(outside, 0, stops)
    return starts, stops


def _missing(found: Ends, true: Ends) -> float:
    kept = np.maximum(0, np.minimum(found[1], true[1]) - np.maximum(found[0], true[0]))
    return float(1 - (kept / (true[1] - true[0])).mean())


def _figure_paper(lab: Lab, names: list[str], read: dict[tuple[str, str], dict[str, Any]]) -> None:
    shown = {
        "printed in the paper": ("#000000", "x"),
        "ours, as described": ("#E69F00", "o"),
        "ours, made monotone": ("#0072B2", "s"),
        "ours, strict": ("#009E73", "^"),
    }
    epsilon = "1" if "1" in EPSILONS[lab.size] else EPSILONS[lab.size][0]
    with lab.figure("accuracy", 8.6, 0.34 * len(names) + 1.6) as figure:
        for place, (ax, kind) in enumerate(zip(figure.subplots(1, 2, sharey=True), KINDS, strict=True)):
            for label, (color, marker) in shown.items():
                variant = label.removeprefix("ours, ")
                rates = [
                    PAPER[name][2 * place] if variant not in VARIANTS else read[name, epsilon][variant][kind]
                    for name in names
                ]
                look = {"markerfacecolor": "none" if marker in "s^" else color, "zorder": 4 if marker == "x" else 3}
                ax.plot(rates, names, marker, color=color, label=label, markersize=7, markeredgewidth=1.5, **look)
            ax.axvline(CEILING, color=INK, linewidth=1, linestyle=(0, (4, 3)))
            ax.set_xlim(-0.03, 1.05)
            ax.set_title(f"{kind} lookups")
            ax.set_xlabel("missing share of the answer's rows, mean")
            if place == 0:
                text = "dashed: 3/4, the most that\nits noise can make it miss"
                ax.annotate(text, (0.02, len(names) - 1), va="center", fontsize=8.5, color=INK)
        ax.invert_yaxis()
        handles, labels = ax.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        figure.suptitle(f"Crypt-epsilon, epsilon {epsilon}", x=0.01, ha="left", fontsize=11)


def _figure_epsilon(lab: Lab, names: list[str], read: dict[tuple[str, str], dict[str, Any]]) -> None:
    epsilons = EPSILONS[lab.size]
    with lab.figure("accuracy-epsilon", 8.6, 3.6) as figure:
        for ax, kind in zip(figure.subplots(1, 2, sharey=True), KINDS, strict=True):
            for name, (color, marker) in zip(names, SHADES, strict=False):
                rates = [read[name, epsilon]["as described"][kind] for epsilon in epsilons]
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
