"""End to end: what a lookup costs if each index's position ranges are read from a database's sealed pages.

A point and a range of the accuracy table's, answered by fetching, opening and testing pages of 1,024 rows
(`scumble.lab.scans`). Pages are what to compare; times are kept in the JSON file, for a machine that does nothing else.
"""

from dataclasses import asdict
from fractions import Fraction
from typing import Any

from benchmarks.figure import Size
from benchmarks.paper.lab import Lab, Table
from benchmarks.paper.lookups import BETA, contenders
from benchmarks.paper.style import INDEX_STYLES, log_axis, short
from scumble.lab.comparators.curves import truncation_delta
from scumble.lab.compare import KINDS, Case, Contender, Lookups
from scumble.lab.scans import PAGE_ROWS, scan_costs

__all__ = ["run"]

DATASETS: dict[Size, tuple[str, ...]] = {
    "full": ("lognormal 1M", "trans 1M", "flights delay"),
    "quick": ("lognormal 10K", "flights delay"),
    "tiny": ("lognormal 1K",),
}
LOOKUPS: dict[Size, int] = {"full": 200, "quick": 50, "tiny": 10}


def run(lab: Lab) -> None:
    """The table, and a figure of pages for each index."""
    number = LOOKUPS[lab.size]
    table = Table(
        "scans",
        f"Pages of {PAGE_ROWS:,} rows that a lookup reads from sealed storage, epsilon 1, beta 1e-6",
        [
            "data set",
            "index",
            "lookup",
            "pages of the table",
            "pages read, mean",
            "kB read, mean",
            "right answers",
        ],
    )
    means: dict[tuple[str, str, str], float] = {}
    names = list(lab.available(DATASETS[lab.size]))
    for name in names:
        for contender in contenders(lab):
            for scan in _scans(lab, name, contender, number):
                if scan["note"] is not None:
                    texts = [name, contender.name, scan["lookup"], *["refused"] * 4]
                    table.add(texts, dataset=name, **scan)
                    continue
                means[name, contender.name, scan["lookup"]] = scan["pages_mean"]
                table.add(
                    [
                        name,
                        contender.name,
                        scan["lookup"],
                        f"{scan['table_pages']:,}",
                        short(scan["pages_mean"]),
                        short(scan["bytes_mean"] / 1000),
                        f"{scan['right_share']:.0%}",
                    ],
                    dataset=name,
                    **scan,
                )
    table.notes += [
        f"{number} lookups of each kind, as in the accuracy table; two columns of 8 bytes. A B+ tree whose leaves hold "
        "more than 16 million rows is not written.",
        "The exact index is what the pages themselves cost: nothing reads less and answers right.",
    ]
    lab.write(table)
    with lab.figure("scans", 8.6, 0.5 * len(names) + 2.2) as figure:
        for ax, kind in zip(figure.subplots(1, 2, sharey=True), KINDS, strict=True):
            for index, look in INDEX_STYLES.items():
                shown = [name for name in names if (name, index, kind) in means]
                if shown:
                    pages = [max(means[name, index, kind], 0.1) for name in shown]
                    ax.plot(pages, shown, label=index, **look.points(7))
            ax.set_xscale("log")
            log_axis(ax.xaxis)
            ax.margins(y=0.3)
            ax.set_title(f"{kind} lookups")
            ax.set_xlabel(f"pages of {PAGE_ROWS:,} rows read, mean")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)


def _scans(lab: Lab, dataset: str, contender: Contender, number: int) -> list[dict[str, Any]]:
    def make() -> list[dict[str, Any]]:
        data = lab.dataset(dataset)
        case = Case(data.counts, data.domain, Fraction(1), BETA, truncation_delta(Fraction(1), BETA))
        return [asdict(scan) for scan in scan_costs([contender], case, Lookups.sample(data.counts, number))]

    found: list[dict[str, Any]] = lab.cell("scans", dataset, contender.name, terms={"lookups": number}, make=make)
    return found
