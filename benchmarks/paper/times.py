"""Times: how long a build and a lookup take against the number of keys, on one core."""

from matplotlib.ticker import FixedLocator, NullLocator

from benchmarks.paper.lab import Lab, Table
from benchmarks.paper.scaling import CAPPED, SIZES, contenders, grown
from benchmarks.paper.style import INDEX_STYLES, short

__all__ = ["run"]

PANELS = {
    "build_seconds": ("Build", "seconds"),
    "lookup_microseconds": ("Lookup, one at a time", "microseconds"),
    "batch_lookup_microseconds": ("Lookup, many at once", "microseconds for each"),
}


def run(lab: Lab) -> None:
    """The table and the figure."""
    table = Table(
        "times",
        "Build and lookup time against N, one core, ten rows a key, epsilon 1",
        ["N", "index", "build, s", "lookup, µs", "lookup among 100,000, µs"],
    )
    series: dict[str, list[tuple[int, dict[str, float]]]] = {}
    for size in SIZES[lab.size]:
        for contender in contenders(lab, size):
            found = grown(lab, size, contender)
            if found is None:
                continue
            table.add(
                [f"{size:,}", contender.name, *(short(found[name]) for name in PANELS)],
                N=size,
                index=contender.name,
                **{name: found[name] for name in PANELS},
            )
            series.setdefault(contender.name, []).append((size, found))
    table.notes += [
        "A build starts from the counts, and is the fastest of three; of one, for the trained indexes.",
        "A rank is computed from its key, so an array over the domain is read in one place and not searched: "
        "lookups in it do not take longer as N grows, other than the paper's first observation expects.",
    ]
    lab.write(table)
    with lab.figure("times", 10, 3.6) as figure:
        for ax, (name, (title, unit)) in zip(figure.subplots(1, 3), PANELS.items(), strict=True):
            for index, look in INDEX_STYLES.items():
                if index in series and index != CAPPED:
                    ax.plot(
                        [n for n, _ in series[index]], [f[name] for _, f in series[index]], label=index, **look.lines()
                    )
            ax.set_xscale("log", base=2)
            ax.xaxis.set_major_locator(FixedLocator(SIZES[lab.size][:: 2 if lab.size == "full" else 1]))
            ax.xaxis.set_minor_locator(NullLocator())
            ax.set_yscale("log")
            ax.yaxis.set_minor_locator(NullLocator())
            ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            ax.set_title(title)
            ax.set_ylabel(unit)
            ax.set_xlabel("keys in the domain, N")
        figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=4)
