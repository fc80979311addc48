"""The accuracy table (the paper's last): the share of its rows that a lookup misses, on average and at most.

Missing is one minus what is found (docs/paper-notes.md, slip 8). The paper states no epsilon for this table; ours is 1.
Crypt-epsilon, the only one that loses rows, has a module of its own.
"""

from benchmarks.paper import crypt_epsilon
from benchmarks.paper.lab import Lab, Table
from benchmarks.paper.lookups import QUERIES, contenders, datasets, looked_up
from scumble.lab.compare import KINDS

__all__ = ["run"]


def run(lab: Lab) -> None:
    """The table of all indexes, and Crypt-epsilon against what is printed of it."""
    _data_sets(lab)
    _all_indexes(lab)
    crypt_epsilon.run(lab)


def _data_sets(lab: Lab) -> None:
    table = Table("datasets", "Data sets", ["data set", "rows", "keys that occur", "N"])
    for name in datasets(lab):

        def make(name: str = name) -> list[int]:
            data = lab.dataset(name)
            return [data.rows, data.keys, data.domain.size]

        rows, keys, size = lab.cell("datasets", name, terms={}, make=make)
        about = {"rows": rows, "keys": keys, "N": size, "provenance": lab.sources[name].provenance}
        table.add([name, f"{rows:,}", f"{keys:,}", f"{size:,}"], dataset=name, **about)
    lab.write(table)


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
