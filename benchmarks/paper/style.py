"""How the figures look: Okabe and Ito's colours, and a marker and a line style of its own for each index."""

from dataclasses import dataclass
from typing import Any

from matplotlib.ticker import FuncFormatter

__all__ = ["INDEX_STYLES", "SHADES", "IndexStyle", "human", "log_axis", "short", "style"]

INK, GREY, LINE = "#222222", "#666666", "#dddddd"


@dataclass(frozen=True)
class IndexStyle:
    """One index in every figure: never distinguished by colour alone."""

    color: str
    marker: str
    line: Any
    hollow: bool = False

    def points(self, size: float = 6) -> dict[str, Any]:
        return {
            "color": self.color,
            "marker": self.marker,
            "linestyle": "",
            "markersize": size,
            "markerfacecolor": "none" if self.hollow else self.color,
            "markeredgewidth": 1.3,
        }

    def lines(self, size: float = 5) -> dict[str, Any]:
        return {**self.points(size), "linestyle": self.line, "linewidth": 1.6}


INDEX_STYLES = {
    "DP B+ tree": IndexStyle("#009E73", "^", (0, (5, 2))),
    "Crypt-epsilon": IndexStyle("#E69F00", "X", (0, (1, 1.5))),
    "SPECIAL": IndexStyle("#CC79A7", "s", (0, (3, 1.5, 1, 1.5))),
    "DP-RMI": IndexStyle("#999999", "v", (0, (4, 1, 1, 1, 1, 1)), hollow=True),
    "FMI": IndexStyle("#D55E00", "D", (0, (6, 2)), hollow=True),
    "DP-PLR, published": IndexStyle("#56B4E9", "o", (0, (2, 1)), hollow=True),
    "DP-PLR, ours": IndexStyle("#0072B2", "o", "-"),
    "DP-PLR, ours, 512 bytes": IndexStyle("#0072B2", "P", (0, (1, 1)), hollow=True),
    "exact, leaks": IndexStyle("#000000", ".", (0, (1, 3))),
}
# For data sets: colour and marker again.
SHADES = [
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#009E73", "^"),
    ("#CC79A7", "D"),
    ("#E69F00", "v"),
    ("#56B4E9", "P"),
    ("#000000", "X"),
]


def style() -> dict[Any, Any]:
    """The settings of all figures."""
    return {
        "font.family": "sans-serif",
        "font.size": 9.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": GREY,
        "axes.labelcolor": INK,
        "axes.titlesize": 10.5,
        "axes.titlelocation": "left",
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": LINE,
        "grid.linewidth": 0.6,
        "xtick.color": GREY,
        "ytick.color": GREY,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "legend.frameon": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "scumble",
    }


def human(value: float) -> str:
    """1,200 as 1.2 K: a number that a reader can say."""
    for power, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= power * 0.9995:
            return f"{value / power:.3g} {unit}"
    return f"{value:.3g}"


def short(value: float | None, digits: int = 3) -> str:
    """A number in a table: grouped if it is large, a few digits if it is small."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def log_axis(axis: Any) -> None:
    """Decades, labelled as 1, 1 K, 1 M."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.set_major_locator(LogLocator(numticks=8))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: human(value).replace(" ", "\u202f")))
