"""The trade-off figure: FMI's largest error against the epsilon spent while it trains, and DP-PLR's at the same.

The largest error is that of predictions before any widening, against the true curve, over the whole domain. FMI comes
with three noises: the paper's section 3.1 has a factor |B|, since one row moves every later y; its appendix has none,
which is not private (docs/paper-notes.md, slip 12); `row` is noise for what one row can do to the gradients, which is
ours. A line y = x, which knows nothing of the data but their number, is what training starts from. The paper's own
experts, perceptrons, are in `perceptrons.py`.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.figure import Size
from benchmarks.paper import perceptrons
from benchmarks.paper.data import Dataset
from benchmarks.paper.lab import Lab, Table
from benchmarks.paper.lookups import BETA
from benchmarks.paper.perceptrons import UnsafeAppendixFMI
from benchmarks.paper.style import GREY, INDEX_STYLES, INK, SHADES, IndexStyle, log_axis, short
from scumble.index.dp_plr import DPPLRIndex
from scumble.lab.comparators.fmi import FMIIndex
from scumble.lab.compare import Case, Contender, build

__all__ = ["run"]

DELTA = Fraction(1, 10**6)
DATASETS: dict[Size, tuple[str, ...]] = {
    "full": ("uniform 100K", "uniform 1M", "lognormal 10K", "lognormal 1M", "trans 1M", "flights delay", "tpch date"),
    "quick": ("uniform 10K", "lognormal 10K", "lognormal 1M", "flights delay"),
    "tiny": ("lognormal 1K",),
}
SHOWN = ("uniform 1M", "lognormal 1M", "trans 1M", "tpch date", "lognormal 10K", "flights delay", "lognormal 1K")
TOTAL = Fraction(10)  # what an index may spend, 4/5 of it on training: a trace passes every smaller epsilon on the way
MOST_TRACED = 2**18  # ranks: a trace predicts all of them after every step
EPSILONS: dict[Size, tuple[str, ...]] = {
    "full": ("0.1", "1", "10", "100"),
    "quick": ("0.1", "1", "10"),
    "tiny": ("1",),
}
RATES: dict[Size, tuple[float | None, ...]] = {
    "full": (None, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10),
    "quick": (None, 1e-3, 1e-1),
    "tiny": (None,),
}
RATE_EPSILONS: dict[Size, tuple[str, ...]] = {"full": ("1", "10"), "quick": ("10",), "tiny": ("1",)}
STEPS: dict[Size, int] = {"full": 128, "quick": 128, "tiny": 6}  # of training
CLOSE_UP: dict[Size, str] = {"full": "lognormal 1M", "quick": "lognormal 1M", "tiny": "lognormal 1K"}
METHODS: dict[str, dict[str, Any]] = {
    "FMI": {"sensitivity": "clip"},
    "FMI, row": {"sensitivity": "row"},
    "FMI, appendix": {"sensitivity": "clip"},
    "DP-PLR, published": {"mechanism": "paper", "slack": "paper"},
    "DP-PLR, ours": {},
}
LABELS = {
    "FMI": "FMI, noise with |B|",
    "FMI, row": "FMI, noise for one row",
    "FMI, appendix": "FMI, noise without |B|: not private",
}
Traces = dict[tuple[str, str], dict[str, Any]]
Errors = dict[tuple[str, str], dict[str, float]]


def run(lab: Lab) -> None:
    """Traces for every data set, and all methods side by side at the same epsilon."""
    names = list(lab.available(DATASETS[lab.size]))
    traced = [name for name in names if lab.dataset(name).domain.size <= MOST_TRACED]
    traces = {(name, method): _trace(lab, name, method) for name in traced for method in LABELS}
    for name in traced:  # what the appendix believes to have spent is what the same steps cost with the factor
        believed = [epsilon for _, epsilon, _ in traces[name, "FMI"]["steps"]]
        steps = traces[name, "FMI, appendix"]["steps"]
        steps[:] = [(step, epsilon, error) for (step, _, error), epsilon in zip(steps, believed, strict=True)]
    errors = {(name, epsilon): _errors(lab, name, epsilon) for name in names for epsilon in EPSILONS[lab.size]}
    _tables(lab, traces, errors)
    _rates(lab)
    published = perceptrons.run(lab)
    _figure(lab, [name for name in SHOWN if name in traced], traces, published, errors)


def _trace(lab: Lab, name: str, method: str) -> dict[str, Any]:
    def make() -> dict[str, Any]:
        data = lab.dataset(name)
        index = _fmi(method, STEPS[lab.size], unsafe_trace=True)
        build(Contender(method, lambda: index, needs_delta=True, trained=True), _case(data, TOTAL))
        steps = [(step, float(spent), error) for step, (spent, error) in enumerate(index.unsafe_history)]
        return {"rows": data.rows, "steps": steps}

    result: dict[str, Any] = lab.cell("tradeoff", name, f"trace {method}", terms={"total": str(TOTAL)}, make=make)
    return result


def _errors(lab: Lab, name: str, epsilon: str) -> dict[str, float]:
    builds = 2 if lab.size == "full" else 1

    def make() -> dict[str, float]:
        data = lab.dataset(name)
        line = _error(data, lambda ranks: np.rint((ranks + 1) / len(ranks) * data.rows))
        errors = {
            method: float(np.mean([_largest(data, method, Fraction(epsilon), STEPS[lab.size]) for _ in range(builds)]))
            for method in METHODS
        }
        return {"rows": data.rows, "N": data.domain.size, "line": line, **errors}

    terms = {"builds": builds, "delta": str(DELTA), "methods": list(METHODS)}
    result: dict[str, float] = lab.cell("tradeoff", name, f"epsilon {epsilon}", terms=terms, make=make)
    return result


def _largest(data: Dataset, method: str, epsilon: Fraction, steps: int) -> float:
    if method in LABELS:
        return _largest_of_fmi(data, _fmi(method, steps), epsilon)
    fitted: Any = build(Contender(method, lambda: DPPLRIndex(**METHODS[method])), _case(data, epsilon))
    return _error(data, fitted.model.segments.at_many)


def _largest_of_fmi(data: Dataset, index: FMIIndex, epsilon: Fraction) -> float:
    fitted: Any = build(Contender("FMI", lambda: index, needs_delta=True, trained=True), _case(data, epsilon))
    return _error(data, fitted.model.at)


def _error(data: Dataset, predict: Callable[[Any], Any]) -> float:
    curve = np.cumsum(data.counts)
    return float(np.abs(predict(np.arange(len(curve))) - curve).max())


def _fmi(method: str, steps: int, *, unsafe_trace: bool = False) -> FMIIndex:
    kind = UnsafeAppendixFMI if method == "FMI, appendix" else FMIIndex
    return kind(steps=steps, unsafe_trace=unsafe_trace, **METHODS[method])


def _case(data: Dataset, epsilon: Fraction) -> Case:
    return Case(data.counts, data.domain, epsilon, BETA, DELTA)


def _tables(lab: Lab, traces: Traces, errors: Errors) -> None:
    table = Table(
        "tradeoff",
        f"Largest error, in rows, at the same epsilon; for FMI, delta {float(DELTA):g} and 4/5 of epsilon for training",
        ["data set", "rows", "N", "epsilon", "line y = x", *METHODS],
    )
    for (name, epsilon), found in errors.items():
        numbers = [found["line"], *(found[method] for method in METHODS)]
        table.add(
            [name, f"{found['rows']:,.0f}", f"{found['N']:,.0f}", epsilon, *map(short, numbers)],
            dataset=name,
            epsilon=float(epsilon),
            **found,
        )
    table.notes += [
        "The line y = x costs nothing: rows spread evenly over the domain, their number being public here.",
        "*FMI*: noise with the factor |B|, as in section 3.1. *FMI, row*: noise for what one row can do; ours. *FMI, "
        "appendix*: without the factor, as in the appendix; NOT PRIVATE at the epsilon that it is listed under.",
    ]
    lab.write(table)
    traced = Table(
        "tradeoff-trace",
        f"FMI while training: largest error in rows after spending epsilon, of {float(TOTAL):g} in all",
        ["data set", "method", "step", "epsilon so far", "largest error, rows", "share of all rows"],
    )
    for (name, method), trace in traces.items():
        last = trace["steps"][-1][0]
        for step, epsilon, error in trace["steps"]:
            if step in (0, 1, 2, 4, 8, 16, 32, 64, last):
                traced.add(
                    [name, method, f"{step}", f"{epsilon:.2f}", f"{error:,}", f"{error / trace['rows']:.3f}"],
                    dataset=name,
                    method=method,
                    step=step,
                    epsilon=epsilon,
                    error=error,
                )
    lab.write(traced)


def _rates(lab: Lab) -> None:
    """Whether another learning rate would have let the paper's FMI learn."""
    name = CLOSE_UP[lab.size]

    def make() -> list[tuple[str, float | None, float]]:
        data, steps = lab.dataset(name), STEPS[lab.size]
        return [
            (epsilon, rate, _largest_of_fmi(data, FMIIndex(steps=steps, learning_rate=rate), Fraction(epsilon)))
            for epsilon in RATE_EPSILONS[lab.size]
            for rate in RATES[lab.size]
        ]

    terms = {"epsilons": RATE_EPSILONS[lab.size], "rates": RATES[lab.size]}
    table = Table(
        "tradeoff-rates", f"FMI, {name}: largest error in rows", ["epsilon", "learning rate", "largest error"]
    )
    for epsilon, rate, error in lab.cell("tradeoff", name, "rates", terms=terms, make=make):
        shown = "chosen from the noise" if rate is None else f"{rate:g}"
        table.add([epsilon, shown, short(error)], epsilon=float(epsilon), rate=rate, error=error)
    lab.write(table)


def _figure(lab: Lab, names: list[str], traces: Traces, published: dict[str, Any], errors: Errors) -> None:
    looks = dict(zip(dict.fromkeys([*names, *published]), SHADES, strict=False))
    with lab.figure("tradeoff", 11.5, 7.4) as figure:
        (first, second), (third, fourth) = figure.subplots(2, 2)
        for ax, method in ((first, "FMI, appendix"), (second, "FMI")):
            for name in names:
                trace = traces[name, method]
                steps = [(epsilon, error / trace["rows"]) for _, epsilon, error in trace["steps"]]
                _draw_trace(ax, name, steps, looks[name])
            counted = "that the appendix counts" if method == "FMI, appendix" else "spent so far"
            ax.set_xlabel(f"epsilon {counted}")
            ax.set_title(f"Four numbers an expert, {LABELS[method].removeprefix('FMI, ')}")
            ax.set_ylim(0, 1.04)
        second.legend(title="data set", loc="center left", bbox_to_anchor=(1.02, 0.5))
        for name, found in published.items():
            _draw_trace(
                third, name, [(epsilon, error / found["rows"]) for epsilon, error in found["trace"]], looks[name]
            )
            epsilon, error = perceptrons.PRINTED.get(name, (None, None))
            if error is not None:
                mark = {"color": looks[name][0], "markersize": 9, "markeredgewidth": 2, "linestyle": ""}
                third.plot([epsilon], [error / found["rows"]], marker="x", **mark)
        third.plot([], [], "x", color=INK, markersize=9, markeredgewidth=2, label="printed in the paper")
        third.set_yscale("log")
        third.set_xlabel("epsilon that the published accounting counts")
        third.set_title("Perceptrons as published: not private")
        third.legend(loc="upper right")
        for ax in (first, second, third):
            ax.set_xlim(left=0)
            ax.set_ylabel("largest error, share of all rows")
        _draw_methods(fourth, CLOSE_UP[lab.size], EPSILONS[lab.size], errors)


def _draw_trace(ax: Any, name: str, steps: list[tuple[float, float]], look: tuple[str, str]) -> None:
    color, marker = look
    spent, shares = zip(*steps, strict=True)
    ax.plot(spent, shares, color=color, marker=marker, markevery=max(1, len(steps) // 8), label=name, markersize=5)


def _draw_methods(ax: Any, name: str, epsilons: tuple[str, ...], errors: Errors) -> None:
    looks = {**INDEX_STYLES, "FMI, row": INDEX_STYLES["DP-RMI"], "FMI, appendix": IndexStyle("#E69F00", "X", ":")}
    for method in METHODS:
        rows = [max(1, errors[name, epsilon][method]) for epsilon in epsilons]
        ax.plot([float(e) for e in epsilons], rows, label=LABELS.get(method, method), **looks[method].lines())
    ax.axhline(errors[name, epsilons[0]]["line"], color=GREY, linewidth=1, label="line y = x, costs nothing")
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_yscale("log")
    log_axis(ax.yaxis)
    ax.set_xlabel("epsilon")
    ax.set_ylabel("largest error, rows")
    ax.set_title(f"All at the same epsilon, {name}")
    ax.legend(title="method", loc="center left", bbox_to_anchor=(1.02, 0.5))
