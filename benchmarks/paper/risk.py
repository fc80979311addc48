"""The lower bound on what DP-SGD risks, which the paper quotes, evaluated: beside what the same training measures.

The paper has Omega(p / (N (epsilon/|B|)^2)) for the excess empirical risk of strongly convex losses (Bassily, Smith,
Thakurta 2014), with epsilon over |B| because one row moves every example of a batch; and N p / epsilon^2 for |B| = N.
The risk is a sum over the N points of the curve, each with a loss of at most 1: squared errors in shares of all rows.
So no model risks more than N, which the bound without its minimum does not say. Constants are taken as 1.
"""

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from benchmarks.figure import Size
from benchmarks.paper.data import Dataset
from benchmarks.paper.lab import Lab, Table
from benchmarks.paper.lookups import BETA
from benchmarks.paper.style import GREY, INDEX_STYLES, INK, log_axis, short
from scumble.index.dp_plr import DPPLRIndex
from scumble.lab.comparators import CryptEpsilonIndex, FMIIndex
from scumble.lab.compare import Case, Contender, build

__all__ = ["bound", "capped", "run"]

DELTA = Fraction(1, 10**6)
EXPERTS, BATCH = 32, 256
PARAMETERS = 4 * EXPERTS
DATASETS: dict[Size, tuple[str, ...]] = {
    "full": ("uniform 100K", "lognormal 10K", "lognormal 1M"),
    "quick": ("lognormal 10K",),
    "tiny": ("lognormal 1K",),
}
EPSILONS: dict[Size, tuple[str, ...]] = {"full": ("0.1", "1", "10"), "quick": ("1", "10"), "tiny": ("1",)}
METHODS = {
    "FMI": "FMI, noise with |B|",
    "FMI, row": "FMI, noise for one row",
    "Crypt-epsilon": "Crypt-epsilon",
    "DP-PLR, published": "DP-PLR, published",
}


def bound(parameters: int, points: int, batch: int, epsilon: float) -> float:
    """The printed bound with the constant 1: p |B|^2 / (N epsilon^2)."""
    return parameters * min(batch, points) ** 2 / (points * epsilon**2)


def capped(parameters: int, points: int, batch: int, epsilon: float) -> float:
    """The same with the minimum that belongs to it: no risk exceeds the number of points."""
    return min(float(points), bound(parameters, points, batch, epsilon))


def run(lab: Lab) -> None:
    """The table, and a figure of the root mean squared error that each risk stands for."""
    table = Table(
        "risk",
        f"Excess risk, a sum of squared errors in shares of all rows: bound and measured, p = {PARAMETERS}",
        [
            "data set",
            "N",
            "epsilon",
            f"bound, B = {BATCH}",
            "bound, B = N",
            "most there can be",
            "line y = x",
            *METHODS.values(),
        ],
    )
    found: dict[tuple[str, str], dict[str, float]] = {}
    for name in lab.available(DATASETS[lab.size]):
        for text in EPSILONS[lab.size]:
            risks = found[name, text] = _risks(lab, name, text)
            points, epsilon = int(risks["N"]), float(text)
            bounds = [bound(PARAMETERS, points, batch, epsilon) for batch in (BATCH, points)]
            shown = [*bounds, float(points), risks["line"], *(risks[method] for method in METHODS)]
            table.add(
                [name, f"{points:,}", text, *map(short, shown)],
                dataset=name,
                epsilon=epsilon,
                bound_batch=bounds[0],
                bound_all=bounds[1],
                capped=capped(PARAMETERS, points, BATCH, epsilon),
                **risks,
            )
    table.notes += [
        "The best model of each kind risks next to nothing, so the risk is the excess risk. One build each; delta 1e-6 "
        "for FMI.",
        "Where the bound exceeds N it says only that nothing may have been learned: a guess risks less.",
    ]
    lab.write(table)
    _figure(lab, found)


def _risks(lab: Lab, name: str, epsilon: str) -> dict[str, float]:
    def make() -> dict[str, float]:
        data = lab.dataset(name)
        case = Case(data.counts, data.domain, Fraction(epsilon), BETA, DELTA)
        ranks = np.arange(data.domain.size)
        fmi = {"FMI": FMIIndex(EXPERTS, batch=BATCH), "FMI, row": FMIIndex(EXPERTS, batch=BATCH, sensitivity="row")}
        for index in fmi.values():
            build(Contender("FMI", partial(_same, index), needs_delta=True, trained=True), case)
        crypt: Any = build(Contender("Crypt-epsilon", CryptEpsilonIndex), case)
        plr: Any = build(Contender("PLR", lambda: DPPLRIndex(mechanism="paper", slack="paper")), case)
        return {
            "N": data.domain.size,
            "rows": data.rows,
            "line": risk(data, (ranks + 1) / len(ranks) * data.rows),
            **{method: risk(data, index.model.at(ranks)) for method, index in fmi.items()},
            "Crypt-epsilon": risk(data, np.clip(crypt.curves.lower, 0, data.rows)),
            "DP-PLR, published": risk(data, plr.model.segments.at_many(ranks)),
        }

    terms = {"delta": str(DELTA), "experts": EXPERTS, "batch": BATCH}
    result: dict[str, float] = lab.cell("risk", name, f"epsilon {epsilon}", terms=terms, make=make)
    return result


def _same(index: FMIIndex) -> FMIIndex:
    return index


def risk(data: Dataset, predicted: Any) -> float:
    """The sum over all points of the squared error, in shares of all rows and at most 1."""
    shares = (predicted - np.cumsum(data.counts)) / data.rows
    return float(np.minimum(1, np.square(shares)).sum())


def _figure(lab: Lab, found: dict[tuple[str, str], dict[str, float]]) -> None:
    names = list(dict.fromkeys(name for name, _ in found))
    looks = {**INDEX_STYLES, "FMI, row": INDEX_STYLES["DP-RMI"]}
    with lab.figure("risk", 3.5 * len(names) + 2.4, 3.7) as figure:
        for ax, name in zip(np.atleast_1d(figure.subplots(1, len(names))), names, strict=True):
            texts = [text for dataset, text in found if dataset == name]
            epsilons, points = [float(text) for text in texts], int(found[name, texts[0]]["N"])
            rows = found[name, texts[0]]["rows"]

            def in_rows(risks: list[float], rows: float = rows, points: int = points) -> list[float]:
                return [max(1e-3, rows * (value / points) ** 0.5) for value in risks]

            printed = in_rows([bound(PARAMETERS, points, BATCH, epsilon) for epsilon in epsilons])
            ax.plot(epsilons, printed, color=INK, linewidth=1.8, marker="_", label=f"bound as printed, |B| = {BATCH}")
            ax.axhline(rows, color=INK, linewidth=1, linestyle=(0, (4, 3)), label="all rows: the most there can be")
            line = in_rows([found[name, texts[0]]["line"]])[0]
            ax.axhline(line, color=GREY, linewidth=1, label="line y = x, costs nothing")
            for method, label in METHODS.items():
                ax.plot(
                    epsilons, in_rows([found[name, t][method] for t in texts]), label=label, **looks[method].lines()
                )
            ax.set_xscale("log")
            ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            ax.set_yscale("log")
            log_axis(ax.yaxis)
            ax.set_xlabel("epsilon")
            ax.set_title(name)
        figure.axes[0].set_ylabel("root mean squared error, rows")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
