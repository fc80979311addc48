"""Storage: bytes of each index against the number of keys, measured, and by the formula of the paper's table 1."""

from collections.abc import Callable
from typing import Any

from matplotlib.ticker import FixedLocator

from benchmarks.paper.lab import Lab, Table
from benchmarks.paper.scaling import CAPPED, SIZES, contenders, grown
from benchmarks.paper.style import GREY, INDEX_STYLES, log_axis, short

__all__ = ["FORMULAS", "run"]

FORMULAS: dict[str, tuple[str, Callable[[int, int], float]]] = {  # bits, from N and M
    "DP B+ tree": ("64 (2N - 1)", lambda n, _: 64 * (2 * n - 1)),
    "Crypt-epsilon": ("64 N", lambda n, _: 64 * n),
    "SPECIAL": ("128 N", lambda n, _: 128 * n),
    "DP-PLR, published": ("128 M", lambda _, m: 128 * m),
    "DP-PLR, ours": ("128 M", lambda _, m: 128 * m),
    CAPPED: ("128 M", lambda _, m: 128 * m),
}

LABELLED = {  # the formulas that are drawn: the B+ tree's lies on SPECIAL's
    "Crypt-epsilon": "64 N",
    "SPECIAL": "128 N; tree 64 (2N - 1)",
    "DP-PLR, published": "128 M, published",
    "DP-PLR, ours": "128 M, ours",
}


def run(lab: Lab) -> None:
    """The table and the figure."""
    table = Table(
        "storage",
        "Bytes of each index against N, epsilon 1, ten rows a key, lognormal keys",
        [
            "N",
            "index",
            "bytes",
            "segments M",
            "formula, bits",
            "formula, bytes",
            "measured / formula",
            "extra rows, point",
        ],
    )
    series: dict[str, list[tuple[int, float, float | None]]] = {}
    for size in SIZES[lab.size]:
        for contender in contenders(lab, size):
            found = grown(lab, size, contender)
            if found is None:
                continue
            text, formula = FORMULAS.get(contender.name, ("", None))
            by_formula = None if formula is None else formula(size, found["segments"] or 0) / 8
            ratio = None if by_formula is None else found["bytes"] / by_formula
            segments = "" if found["segments"] is None else f"{found['segments']:,}"
            table.add(
                [
                    f"{size:,}",
                    contender.name,
                    f"{found['bytes']:,}",
                    segments,
                    text,
                    "" if by_formula is None else f"{by_formula:,.0f}",
                    "" if ratio is None else short(ratio),
                    short(found["extra_rows_mean"]),
                ],
                N=size,
                index=contender.name,
                formula_bytes=by_formula,
                **found,
            )
            series.setdefault(contender.name, []).append((size, found["bytes"], by_formula))
    table.notes += [
        "DP-PLR's bytes are those of its whole file: header, domain, checksum and segments.",
        "By default the segments follow the curve as closely as its noise makes sense of, so M grows with the rows "
        "that there are to follow; held to a size, M is constant and lookups read more.",
    ]
    lab.write(table)
    _figure(lab, series)


def _figure(lab: Lab, series: dict[str, list[tuple[int, float, float | None]]]) -> None:
    with lab.figure("storage", 8.2, 4.8) as figure:
        ax: Any = figure.subplots()
        for name, look in INDEX_STYLES.items():
            if name not in series:
                continue
            sizes, measured, formula = zip(*series[name], strict=True)
            if name in LABELLED:
                ax.plot(sizes, formula, color=look.color, linewidth=0.9, linestyle=(0, (1, 1)), zorder=1)
                where = {"textcoords": "offset points", "fontsize": 8.5, "color": look.color, "va": "center"}
                ax.annotate(LABELLED[name], (sizes[-1], formula[-1]), (9, 0), **where)
            ax.plot(sizes, measured, label=name, **look.lines(9 if name == "DP B+ tree" else 5))
        ax.plot([], [], color=GREY, linewidth=0.9, linestyle=(0, (1, 1)), label="formula of the paper, in bits")
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_locator(FixedLocator(sizes))
        ax.set_xlim(right=sizes[-1] * 14)
        ax.set_yscale("log")
        log_axis(ax.yaxis)
        ax.set_xlabel("keys in the domain, N")
        ax.set_ylabel("index, bytes")
        ax.set_title("Room that an index takes")
        figure.legend(*ax.get_legend_handles_labels(), loc="outside right center")
