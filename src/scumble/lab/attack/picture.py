"""Pictures of attacks: one figure of several reports, with a panel or more for each.

The data is made up, so the truth may be drawn beside what was reconstructed.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from scumble.errors import InvalidParameter
from scumble.index.plot import MARK, NOISY, SEGMENTS, TRUE, _checked, _save, _style
from scumble.lab.attack.report import Report
from scumble.lab.attack.single_record import advantage_bound, best_advantage

__all__ = ["draw"]

LEAKY = NOISY
PRIVATE = ("#009E73", SEGMENTS, "#CC79A7")  # Okabe and Ito's, as in `index/plot.py`
STYLES = ("-", "-", "--", ":")
SHOWN = 60  # keys in the close-up of counts
Panel = Callable[[Any, Report], None]


def draw(reports: Sequence[Report], path: str | PathLike[str]) -> None:
    """Draw all reports that have something to draw, to a .png or .svg file."""
    target = _checked(Path(path))
    panels = [(panel, report) for report in reports for panel in PANELS.get(report.attack, ())]
    if not panels:
        raise InvalidParameter("there is nothing to draw of this attack", hint="leave the picture out")
    with _style():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        across = min(3, len(panels))
        down = -(-len(panels) // across)
        figure = Figure(figsize=(max(5.2 * across, 6.4), 4.3 * down), dpi=130, layout="constrained")
        FigureCanvasAgg(figure)
        axes = np.ravel(figure.subplots(down, across))
        for ax, (panel, report) in zip(axes, panels, strict=False):
            panel(ax, report)
            ax.grid(visible=True, color="#e4e4e4", linewidth=0.6)
            ax.set_axisbelow(True)
        for ax in axes[len(panels) :]:
            ax.set_axis_off()
        _save(figure, target)


# --- reconstruction --------------------------------------------------------------------------------


def _errors(ax: Any, report: Report) -> None:
    """Error against number of queries. A logarithm has no zero: what is exact lies on the line that says so."""
    numbers, errors = report.curves["queries"], report.curves["errors"]
    least = min([0.5, *(own / 3 for own in report.curves["own"].values() if own)])
    for place, (name, values) in enumerate(errors.items()):
        color = _color(place)
        shown = [max(value, least) for value in values]
        ax.plot(numbers, shown, color=color, marker="o", markersize=3, linewidth=1.6, label=name, clip_on=False)
        if report.curves["own"][name]:
            ax.axhline(report.curves["own"][name], color=color, linewidth=0.9, linestyle=(0, (4, 3)))
    ax.plot([], [], color=MARK, linewidth=0.9, linestyle=(0, (4, 3)), label="error of the index itself")
    ax.text(numbers[0], least * 1.15, "0: every count is known", color=_color(0), fontsize=8)
    ax.axhline(least, color=_color(0), linewidth=0.6)
    _logarithmic(ax, "queries observed, random ranges")
    ax.set_ylim(least, 8 * max(map(max, errors.values())))
    ax.set_ylabel("mean error of the curve, rows")
    ax.set_title("Reconstruction: error and queries")
    ax.legend(frameon=False, fontsize=8, loc="upper right", ncols=2)


def _curves(ax: Any, report: Report) -> None:
    """The whole curve: all of them look alike, since the shape is not hidden."""
    truth = report.curves["truth"]
    ranks = np.arange(len(truth))
    ax.plot(ranks, np.cumsum(truth), color=TRUE, linewidth=3.2, alpha=0.25, label="truth")
    for place, (name, curve) in enumerate(report.curves["curves"].items()):
        ax.plot(ranks, curve, color=_color(place), linewidth=1.1, linestyle=STYLES[place % 4], label=name)
    ax.set_xlabel("key")
    ax.set_ylabel("rows at or before the key")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.set_title("Rebuilt from all ranges: the shape, found by all")
    ax.legend(frameon=False, fontsize=8, loc="upper left")


def _counts(ax: Any, report: Report) -> None:
    """Counts of some keys: this is what is hidden."""
    truth = report.curves["truth"]
    first = int(len(truth) * 0.3) - SHOWN // 2
    ranks = np.arange(max(0, first), min(len(truth), first + SHOWN))
    ax.bar(ranks, truth[ranks], width=1, color="#cccccc", label="truth")
    for place, (name, curve) in enumerate(report.curves["curves"].items()):
        steps = np.diff(curve, prepend=0)[ranks]
        ax.step(ranks, steps, where="mid", color=_color(place), linewidth=1.4, linestyle=STYLES[place % 4], label=name)
    ax.set_ylim(0, max(1.0, float(truth[ranks].max()) * 2))
    ax.set_xlabel("key")
    ax.set_ylabel("rows of the key")
    ax.set_title("The same, key by key: the details")
    ax.legend(frameon=False, fontsize=8, loc="upper right")


# --- the others ------------------------------------------------------------------------------------


def _advantages(ax: Any, report: Report) -> None:
    shown = report.curves["epsilons"]
    line = np.geomspace(shown[0] / 1.5, shown[-1] * 1.5, 60)
    ax.plot(line, [advantage_bound(e) for e in line], color=TRUE, linewidth=1.6, label="bound, no test can pass it")
    best = [best_advantage(e) for e in line]
    ax.plot(line, best, color=SEGMENTS, linewidth=1, linestyle="--", label="best test of this index, computed")
    _with_interval(ax, shown, report.curves["advantages"], report.curves["intervals"], SEGMENTS, "measured, DP-PLR")
    epsilon, value, interval = report.curves["planted"]
    _with_interval(ax, [epsilon], [value], [interval], LEAKY, "planted: too little noise")
    ax.axhline(1, color=LEAKY, linewidth=1.4)
    ax.text(line[0], 1.01, "exact index: 1", color=LEAKY, fontsize=8, verticalalignment="bottom")
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_ylim(-0.05, 1.08)
    ax.set_xlabel("epsilon")
    ax.set_ylabel("advantage: right yes less wrong yes")
    ax.set_title("Single record: is this row in the table?")
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, 0.93))


def _with_interval(
    ax: Any,
    places: Sequence[float],
    values: Sequence[float],
    intervals: Sequence[tuple[float, float]],
    color: str,
    label: str,
) -> None:
    reach = [[v - low for v, (low, _) in zip(values, intervals, strict=True)]]
    reach.append([high - v for v, (_, high) in zip(values, intervals, strict=True)])
    ax.errorbar(places, values, yerr=reach, fmt="o", color=color, markersize=5, capsize=3, label=label)


def _volumes(ax: Any, report: Report) -> None:
    ranges = sorted({one for _, _, seen in report.curves["points"].values() for one in seen}, key=lambda one: one[1])
    for place, (name, (true, sizes, seen)) in enumerate(report.curves["points"].items()):
        color = _color(place and 2)
        ax.scatter(true, sizes, s=9, color=color, alpha=0.6, linewidths=0, label=name)
        if place:
            for one in ranges:
                mine = [i for i, where in enumerate(seen) if where == one]
                if mine:
                    above = {"xytext": (0, 4), "textcoords": "offset points"}
                    ax.annotate(f"{one[1]} pages read", (0, sizes[mine[0]]), color=color, fontsize=8, **above)
    ax.set_xlabel("rows that match, which only the owner knows")
    ax.set_ylabel("bytes of the answer, which the provider sees")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.set_title("Volume: do sizes tell counts?")
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, 0.9))


def _averages(ax: Any, report: Report) -> None:
    numbers = report.curves["queries"]
    for place, (name, values) in enumerate(report.curves["errors"].items()):
        shown = [value or np.nan for value in values]
        ax.plot(numbers, shown, color=_color(place and 2), marker="o", markersize=4, linewidth=1.6, label=name)
        if not place:
            guide = max(value * number**0.5 for value, number in zip(values, numbers, strict=True))
            ax.plot(
                numbers, [guide / n**0.5 for n in numbers], color=MARK, linewidth=0.8, linestyle=":", label="1 / √n"
            )
    _logarithmic(ax, "times that the query was asked")
    ax.set_ylabel("error of the mean, rows")
    ax.set_title("Averaging: the same query again")
    ax.legend(frameon=False, fontsize=8, loc="lower left")


def _color(place: int) -> str:
    return LEAKY if place == 0 else PRIVATE[(place - 1) % len(PRIVATE)]


def _logarithmic(ax: Any, label: str) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    ax.tick_params(axis="x", labelsize=8)
    ax.set_xlabel(label)


PANELS: dict[str, tuple[Panel, ...]] = {
    "reconstruction": (_errors, _curves, _counts),
    "single record": (_advantages,),
    "volume": (_volumes,),
    "averaging": (_averages,),
}
