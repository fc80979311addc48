"""Overhead: rows that a lookup reads and that are no part of its answer, absolute and relative, point and range.

Relative is the sum of the extra rows over the sum of the answers' rows, over the same lookups as for accuracy.
"""

from benchmarks.paper.lab import Lab, Table
from benchmarks.paper.lookups import BETA, contenders, datasets, looked_up
from benchmarks.paper.style import INDEX_STYLES, log_axis, short
from scumble.lab.compare import KINDS

__all__ = ["run"]


def run(lab: Lab) -> None:
    """The table, and a figure of the mean for each index and data set."""
    table = Table(
        "overhead",
        "Rows read beyond the answer, epsilon 1, beta 1e-6",
        [
            "data set",
            "index",
            "lookup",
            "answer, mean rows",
            "extra, mean rows",
            "extra, max",
            "extra / answer",
            "dummies",
        ],
    )
    names = list(datasets(lab))
    means: dict[tuple[str, str, str], float] = {}
    for dataset in names:
        for contender in contenders(lab):
            found = looked_up(lab, dataset, contender)
            for kind in KINDS if found else ():
                assert found is not None
                cell = found[kind]
                ratio = cell["extra_rows_mean"] / cell["answer_rows_mean"]
                means[dataset, contender.name, kind] = cell["extra_rows_mean"]
                numbers = [
                    cell["answer_rows_mean"],
                    cell["extra_rows_mean"],
                    cell["extra_rows_max"],
                    ratio,
                    cell["dummy_rows"],
                ]
                table.add(
                    [dataset, contender.name, kind, *map(short, numbers)],
                    dataset=dataset,
                    index=contender.name,
                    lookup=kind,
                    relative=ratio,
                    **cell,
                )
    table.notes.append(
        f"Beta is {float(BETA):g} for all lookups at once where an index can promise that; the B+ tree's dummies are "
        "those that its leaves hold."
    )
    lab.write(table)
    _figure(lab, names, means)


def _figure(lab: Lab, names: list[str], means: dict[tuple[str, str, str], float]) -> None:
    with lab.figure("overhead", 8.8, 0.34 * len(names) + 1.7) as figure:
        for ax, kind in zip(figure.subplots(1, 2, sharey=True), KINDS, strict=True):
            for index, look in INDEX_STYLES.items():
                places = [name for name in names if (name, index, kind) in means]
                if index == "exact, leaks" or not places:
                    continue
                ax.plot([means[name, index, kind] for name in places], places, label=index, **look.points(7))
            ax.set_xscale("log")
            log_axis(ax.xaxis)
            ax.set_title(f"{kind} lookups")
            ax.set_xlabel("extra rows read, mean")
        ax.invert_yaxis()
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        figure.suptitle("Rows read beyond the answer, epsilon 1, beta 1e-6", x=0.01, ha="left", fontsize=11)
