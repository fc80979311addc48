"""The picture of a fitted index. No enclave imports this module: it is outside of the measured core.

The segments, the band that a lookup reads and the noisy curve are public, and so is a picture of them. The true curve
is secret: it is drawn only if its counts are passed as `unsafe_true_counts`, which is meant for made-up data.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scumble.errors import FileError, InvalidParameter, NotFitted
from scumble.index.curve import Histogram, NoisyCurve
from scumble.index.file import IndexModel
from scumble.types import Domain

if TYPE_CHECKING:
    from scumble.index.dp_plr import DPPLRIndex

__all__ = ["draw"]

Ranks = NDArray[np.int64]

SUFFIXES = (".png", ".svg")
MOST_POINTS = 2000  # more than a page has dots across
CLOSE_UP = 16  # slacks that the curve rises by within the close-up: the band is then an eighth of its height
# Okabe and Ito's colours, which colour-blind readers can tell apart; in print the line styles do it.
SEGMENTS, BAND, NOISY, TRUE, MARK = "#0072B2", "#56B4E9", "#D55E00", "#000000", "#555555"
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MARK,
    "axes.labelcolor": "#222222",
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "xtick.color": MARK,
    "ytick.color": MARK,
    "svg.fonttype": "none",
    "svg.hashsalt": "scumble",  # the same index gives the same file
}


def draw(
    index: "DPPLRIndex",
    path: str | PathLike[str] | None = None,
    *,
    ax: Any = None,
    key_label: str = "key",
    show_noisy: bool = True,
    unsafe_true_counts: ArrayLike | None = None,
) -> Any:
    """Draw an index over all its keys, and beside it a close-up in which the band can be seen; return the figure.

    With a path ending in .png or .svg, write it there. With an `ax` of your own, draw only the first of the two, on
    it, and return it. `unsafe_true_counts`, one count for every rank, adds the true curve, WHICH LEAKS: for demo data
    only.
    """
    target = None if path is None else _checked(Path(path))
    if target is not None and ax is not None:
        raise InvalidParameter("path and ax exclude each other", hint="save the figure that the ax belongs to")
    picture = _Picture(
        index.model,
        key_label,
        _noisy_curve(index) if show_noisy else None,
        None if unsafe_true_counts is None else _true_curve(unsafe_true_counts, index.model),
    )
    with _style():
        if ax is not None:
            picture.overview(ax)
            ax.legend(frameon=False)
            return ax
        figure = picture.figure()
        if target is not None:
            _save(figure, target)
    return figure


@dataclass(frozen=True)
class _Picture:
    """What is drawn: all public but `true`."""

    model: IndexModel
    key_label: str
    noisy: NoisyCurve | None
    true: Ranks | None

    def figure(self) -> Any:
        """Two panels: the whole domain, and a close-up."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 4.6), dpi=160, layout="constrained")
        FigureCanvasAgg(figure)
        whole, close = figure.subplots(1, 2, width_ratios=[1, 1.25])
        self.overview(whole)
        self.close_up(close, whole)
        handles, labels = close.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
        return figure

    def overview(self, ax: Any) -> None:
        self._curves(ax, 0, self.model.domain.size - 1)
        ax.set_title(f"All {self.model.domain.size:,} keys, {len(self.model.segments):,} segments")

    def close_up(self, ax: Any, whole: Any) -> None:
        """The stretch of keys around the middle row, with one lookup in it."""
        first, last = self._stretch()
        self._curves(ax, first, last, close=True)
        self._lookup(ax, (first + last) // 2)
        low, high = ax.get_ylim()
        ax.set_title(f"Close-up: {last - first + 1:,} keys")
        whole.indicate_inset(
            (first, low, last - first, high - low), inset_ax=ax, edgecolor=MARK, linewidth=0.8, alpha=0.6
        )

    def _curves(self, ax: Any, first: int, last: int, *, close: bool = False) -> None:
        model = self.model
        ranks = np.unique(np.linspace(first, last, min(last - first + 1, MOST_POINTS)).astype(np.int64))
        rows = model.curve(ranks)
        low, high = (np.clip(end(ranks), 0, model.capacity) for end in (model.starts_after, model.stops_at))
        ax.fill_between(
            ranks,
            low,
            high,
            color=BAND,
            alpha=0.35,
            linewidth=0,
            label=f"lookup band, {'±' if model.blocks is None else 'up to ±'}{model.slack_rows:,} rows",
        )
        if self.noisy is not None:
            self._noisy(ax, first, last, close=close)
        ax.plot(ranks, rows, color=SEGMENTS, linewidth=2, label="segments", zorder=3)
        if close:
            starts = model.segment_ranks
            starts = starts[(starts >= first) & (starts <= last)]
            rows = model.curve(starts)
            ax.plot(starts, rows, "o", color=SEGMENTS, markersize=5, label="start of a segment", zorder=3)
        if self.true is not None:
            ax.plot(
                ranks,
                self.true[ranks],
                color=TRUE,
                linewidth=1.2,
                linestyle=(0, (4, 2)),
                label="true curve (demo only)",
                zorder=4,
            )
        ax.set_xlim(first, last) if last > first else ax.set_xlim(first - 1, first + 1)
        ax.set_ylim(*_padded(float(low.min()), float(high.max()), self.model.capacity))
        _key_ticks(ax, model.domain, first, last)
        ax.set_xlabel(self.key_label)
        if close:  # clear of the lines that join the two panels
            ax.yaxis.tick_right()
            ax.spines["right"].set_visible(True)
        else:
            ax.set_ylabel("rows at or before the key" if model.blocks is None else "position after the key's last row")
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        ax.grid(visible=True, axis="y", color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)

    def _noisy(self, ax: Any, first: int, last: int, *, close: bool) -> None:
        assert self.noisy is not None  # noqa: S101
        knots, rows = self.noisy.knots, self.noisy.rows
        # By bisection, since a curve over all ranks gives its knots as a range.
        begin, end = bisect_left(knots, first), bisect_right(knots, last)
        near = slice(begin, end, max(1, (end - begin) // MOST_POINTS))
        crowded = end - begin > 120
        ax.plot(
            knots[near],
            rows[near],
            color=NOISY,
            linewidth=0.7 if crowded else 0,
            linestyle=":" if not close else "-",
            marker=None if crowded else "o",
            markersize=4.5,
            markerfacecolor="white",
            markeredgewidth=1.2,
            label="noisy curve",
            zorder=2 if crowded else 5,
        )

    def _stretch(self) -> tuple[int, int]:
        """Ranks around the middle row over which the segments rise by CLOSE_UP slacks."""
        last = self.model.domain.size - 1
        middle = self._row(last) / 2
        reach = CLOSE_UP / 2 * max(1, self.model.slack_rows)
        first = _first_at(self._row, max(0, middle - reach), last)
        end = _first_at(self._row, middle + reach, last)
        least = min(last, 7)
        centre = min(max((first + end) // 2, least), last)
        return max(0, min(first, centre - least)), min(last, max(end, centre + least))

    def _row(self, rank: int) -> int:
        return int(self.model.curve(np.array([rank]))[0])

    def _lookup(self, ax: Any, rank: int) -> None:
        start, stop = self.model.lookup(*(2 * [self.model.domain.key(rank)]))
        ax.annotate(
            "", (rank, stop), (rank, start), arrowprops={"arrowstyle": "<->", "color": MARK, "linewidth": 1.4}, zorder=5
        )
        ax.annotate(
            f"lookup({_short(self.model.domain.key(rank))}) reads\n{stop - start:,} of {self.model.capacity:,} rows",
            (rank, (start + stop) / 2 - self.model.slack_rows * 0.3),
            xytext=(0.97, 0.06),
            textcoords="axes fraction",
            horizontalalignment="right",
            color="#222222",
            fontsize=9,
            arrowprops={"arrowstyle": "-", "color": MARK, "linewidth": 0.6, "shrinkB": 3},
        )


def _first_at(at: Callable[[int], int], rows: float, last: int) -> int:
    """The first rank at which the segments reach so many rows."""
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if at(middle) < rows else (low, middle)
    return low


def _padded(low: float, high: float, capacity: int) -> tuple[float, float]:
    margin = max(0.04 * (high - low), 0.5)
    return (low - margin if low > 0 else 0), (high + margin if high < capacity else max(high * 1.02, 1))


def _key_ticks(ax: Any, domain: Domain, first: int, last: int) -> None:
    """Ticks at round keys where the keys are evenly spaced numbers or times, at round ranks elsewhere."""
    from matplotlib.ticker import MaxNLocator

    dates: Any = import_module("matplotlib.dates")  # untyped

    ends = [domain.key(first), domain.key(last)]
    spaced = not domain.is_list and last > first
    if spaced and all(isinstance(end, int | float | Decimal | Fraction) for end in ends):
        low, high = (float(end) for end in ends)  # type: ignore[arg-type]
        places = np.asarray(MaxNLocator(5).tick_values(low, high))
        labels = [f"{place:,.10g}" for place in places]
    elif spaced and all(isinstance(end, date | np.datetime64) for end in ends):
        low, high = (float(dates.date2num(end)) for end in ends)
        locator = dates.AutoDateLocator(minticks=3, maxticks=6)
        places = np.asarray(locator.tick_values(dates.num2date(low), dates.num2date(high)))
        labels = dates.ConciseDateFormatter(locator).format_ticks(places)
    else:
        low, high = first, max(last, first + 1)
        places = np.unique([round(place) for place in MaxNLocator(4, integer=True).tick_values(low, high)])
        labels = [_short(domain.key(rank)) if first <= rank <= last else "" for rank in places.tolist()]
    inside = [i for i, place in enumerate(places) if low <= place <= high]
    scale = (last - first) / (high - low) if high > low else 1
    ax.set_xticks([first + (places[i] - low) * scale for i in inside], [labels[i] for i in inside])


def _short(key: object) -> str:
    text = f"{key:,}" if isinstance(key, int | Decimal) else str(key)
    return text if len(text) <= 20 else f"{text[:19]}…"


def _noisy_curve(index: "DPPLRIndex") -> NoisyCurve | None:
    try:
        return index.noisy_curve
    except NotFitted:  # a loaded index has none
        return None


def _true_curve(counts: ArrayLike, model: IndexModel) -> Ranks:
    true = Histogram.of_counts(counts, model.domain.size).counts
    curve: Ranks = np.cumsum(true) if model.blocks is None else model.blocks.unsafe_curve(true)
    return curve


def _checked(path: Path) -> Path:
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidParameter("a picture is a .png or .svg file", hint="index.plot('index.png')")
    return path


def _save(figure: Any, path: Path) -> None:
    try:
        # Without a date in it the same index gives the same file.
        figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
    except OSError as error:
        raise FileError(
            f"cannot write the picture: {error.strerror}", hint=f"check the folder of {path}, and its permissions"
        ) from error


@contextmanager
def _style() -> Iterator[None]:
    try:
        from matplotlib import rc_context  # an extra, and slow to import
    except ImportError as error:
        raise InvalidParameter("pictures need matplotlib", hint="pip install 'scumble[plot]'") from error
    with rc_context(STYLE):
        yield
