"""Figure 1: rows that a point lookup reads beyond its answer, ours against the published design at the same file size.

The published design gets its best `max_error`: a search over values whose file fits is made for it, and the mean
overhead on the very same keys decides. Ours is laid out in as many blocks as suit the rows, as a table's is.
`python -m benchmarks.overhead --sweep` shows what our constants do.
"""

import argparse
from collections.abc import Callable
from fractions import Fraction
from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import KEYS, identifiers, make_counts
from benchmarks.figure import Figure, Size, fitted, patched, say
from benchmarks.paper.data import Unavailable, load
from scumble import DPPLRIndex
from scumble.index import plan
from scumble.index.blocks import suitable_blocks
from scumble.index.file import IndexModel
from scumble.index.mechanisms import scout
from scumble.index.mechanisms import scumble as mechanism
from scumble.index.slack import SLACKS

__all__ = ["build", "lost_rows", "measure", "overhead_rows", "sweep"]

Counts = NDArray[np.int64]
MAX_BYTES = 4096
BETA = Fraction(1, 10**6)
PAPER: dict[str, Any] = {"mechanism": "paper", "slack": "paper"}
CACHE = Path("paper-output", "data")  # as for `make paper`
OTHER_KEYS: dict[str, Callable[[Path], Counts]] = {
    "clustered identifiers (made up)": lambda _: identifiers(),
    **{
        name: lambda cache, name=name: load(name, cache).counts  # type: ignore[misc]
        for name in ("flights minute", "flights distance", "tpch order", "tpch price", "tpch date")
    },
}
GOALS = {"shuffled zipf": 7.5}
GOAL = 12
FEW_BLOCKS = "ours in 12 blocks"  # for ranges: every block that one passes costs its dummies
SIZES: dict[Size, dict[str, Any]] = {
    "full": {
        "size": 2**20,
        "rows": 10**6,
        "builds": 40,
        "others": (2**14, 2**17, 2**23),
        "other_builds": 8,
    },
    "quick": {"size": 2**20, "rows": 10**6, "builds": 5, "others": (2**14, 2**17), "other_builds": 3},
    "tiny": {"size": 2**12, "rows": 10**5, "builds": 2, "others": (2**10,), "other_builds": 2},
}


def build(counts: Counts, epsilon: float | Fraction = 1, **options: Any) -> IndexModel:
    """One index over the ranks themselves, in as many blocks as suit them unless it cannot be."""
    options = {"max_bytes": MAX_BYTES, **options} if "max_error" not in options else options
    if not {"paper"} & {options.get("mechanism"), options.get("slack")}:
        terms = len(counts), int(counts.sum()), Fraction(epsilon), BETA, MAX_BYTES
        options = {"blocks": suitable_blocks(*terms), **options}
    lossless = options.get("slack") == "lossless"
    delta = SLACKS["lossless"].delta(Fraction(epsilon), BETA, options["blocks"]) if lossless else 0
    return fitted(DPPLRIndex(**options), counts, epsilon, delta, beta=BETA).model


def overhead_rows(model: IndexModel, counts: Counts) -> float:
    """Rows read beyond the answer: the mean over a point lookup of every key of the domain."""
    starts, stops = model.lookup_many(np.arange(len(counts)))
    return float((stops - starts - counts).mean())


def range_overhead_rows(model: IndexModel, counts: Counts) -> float:
    """The same of ranges of a tenth of the domain, from some thousand first keys on."""
    width = max(1, len(counts) // 10)
    firsts = np.arange(0, len(counts) - width + 1, max(1, len(counts) // 10_000))
    starts, stops = model.of_ranks(firsts, firsts + width - 1)
    curve = np.concatenate([[0], np.cumsum(counts)])
    return float((stops - starts - (curve[firsts + width] - curve[firsts])).mean())


def lost_rows(model: IndexModel, counts: Counts) -> bool:
    """Whether any lookup, point or range, anywhere on the domain, loses a row.

    A range begins where the point lookup of its first key does and ends where that of its last key does.
    """
    curve = np.cumsum(counts)
    starts, stops = (model.unsafe_rows_below(counts, ends) for ends in model.lookup_many(np.arange(len(counts))))
    return bool(np.any(starts > curve - counts) or np.any(stops < curve))


def mean_overhead(make: Callable[[], IndexModel], counts: Counts, builds: int) -> dict[str, float]:
    """Mean overhead over some builds, its standard error, and what the files look like."""
    models = [make() for _ in range(builds)]
    rows = np.array([overhead_rows(model, counts) for model in models])
    return {
        "rows": float(rows.mean()),
        "range_rows": float(np.mean([range_overhead_rows(model, counts) for model in models])),
        "dummies": float(np.mean([_dummies(model, counts) for model in models])),
        "standard_error": float(rows.std(ddof=1) / sqrt(builds)) if builds > 1 else float("nan"),
        "slack_rows": float(np.mean([model.usual_slack for model in models])),
        "max_error": float(np.mean([model.segments.max_error for model in models])),
        "segments": float(np.mean([len(model.segments) for model in models])),
        "bytes": float(max(_bytes(model) for model in models)),
        "builds_with_a_loss": float(sum(lost_rows(model, counts) for model in models)),
    }


def best_published(counts: Counts, builds: int, epsilon: float | Fraction = 1) -> dict[str, float]:
    """The published design with the `max_error` that serves it best among those whose file fits."""
    chosen = build(counts, epsilon, **PAPER)
    tried: dict[int | None, float] = {None: overhead_rows(chosen, counts)}
    for factor in (0.5, 0.7, 0.85, 1.2, 1.5, 2.0):
        max_error = max(2, round(chosen.segments.max_error * factor))
        model = build(counts, epsilon, max_error=max_error, **PAPER)
        if max_error not in tried and _bytes(model) <= MAX_BYTES:
            tried[max_error] = overhead_rows(model, counts)
    best = min(tried, key=lambda max_error: tried[max_error])
    options = {} if best is None else {"max_error": best}
    return mean_overhead(lambda: build(counts, epsilon, **PAPER, **options), counts, builds)


def _text(paper: dict[str, float], ours: dict[str, float]) -> str:
    ratio = paper["rows"] / ours["rows"]
    return f"{paper['rows']:,.0f} / {ours['rows']:,.0f} ± {ours['standard_error']:.0f} rows = {ratio:.1f}"


def measure(size: Size) -> Figure:
    """Ours against the published design, on four kinds of keys; then ablations and scaling."""
    terms = SIZES[size]
    figure = Figure("overhead")
    table: dict[str, dict[str, object]] = {}
    for name in KEYS:
        say(f"overhead: {name} keys, ours and the published design")
        counts = make_counts(name, terms["size"], terms["rows"])
        ours = mean_overhead(lambda counts=counts: build(counts), counts, terms["builds"])  # type: ignore[misc]
        paper = best_published(counts, terms["builds"])
        ratio = paper["rows"] / ours["rows"]
        table[name] = {"ours": ours, "published": paper, "ratio": ratio, "variants": _variants(counts, terms)}
        figure.add(
            f"overhead, {name} keys: published / ours",
            _text(paper, ours),
            f"≥ {GOALS.get(name, GOAL)}",
            ratio >= GOALS.get(name, GOAL),
        )
        figure.add(
            "    a range of a tenth of the domain",
            f"{ours['range_rows']:,.0f} rows",
            "≤ 500",
            ours["range_rows"] <= 500,
        )
        figure.add("    dummies, of all rows", f"{ours['dummies']:.2%}", "< 1 %", ours["dummies"] < 0.01)
        for variant, result in table[name]["variants"].items():  # type: ignore[attr-defined]
            wide = f", {result['range_rows']:,.0f} for a range" if variant == FEW_BLOCKS else ""
            figure.add(f"    {variant}", f"{_rows(result)} rows{wide}")
    floor = 2 * log(1 / float(BETA))
    figure.add("    the lower bound argument (ln(1/beta)/epsilon a side)", f"{floor:.0f} rows")
    others = _other_keys(figure, terms["other_builds"]) if size != "tiny" else {}
    figure.values = {"keys": table, "lower_bound_rows": floor, "other_keys": others, **_scaling(figure, terms)}
    return figure


def _other_keys(figure: Figure, builds: int) -> dict[str, object]:
    """The same on keys that no distribution of ours has made: those that can be had here."""
    found: dict[str, object] = {}
    for name, make in OTHER_KEYS.items():
        say(f"overhead: {name}")
        try:
            counts = make(CACHE)
        except Unavailable as missing:
            figure.add(f"overhead, {name}", str(missing))
            continue
        ours, paper = mean_overhead(lambda c=counts: build(c), counts, builds), best_published(counts, builds)  # type: ignore[misc]
        before = mean_overhead(lambda c=counts: build(c, blocks=1), counts, builds)  # type: ignore[misc]
        found[name] = {"ours": ours, "published": paper, "ours without blocks": before, "rows": int(counts.sum())}
        figure.add(f"overhead, {name}: published / ours", _text(paper, ours))
        figure.add("    ours without blocks", f"{_rows(before)} rows")
    return found


def _variants(counts: Counts, terms: dict[str, Any]) -> dict[str, dict[str, float]]:
    """What each part of the design contributes."""
    makers: dict[str, Callable[[], IndexModel]] = {
        "ours, lossless": lambda: build(counts, slack="lossless"),
        "ours without blocks": lambda: build(counts, blocks=1),
        FEW_BLOCKS: lambda: build(counts, blocks=12),
        "ours without the scout": lambda: _without_scout(counts),
        "our wide tree, published slack": lambda: build(counts, slack="paper"),
        "published tree, measured slack": lambda: build(counts, mechanism="paper"),
    }
    return {name: mean_overhead(make, counts, terms["other_builds"]) for name, make in makers.items()}


def _without_scout(counts: Counts) -> IndexModel:
    with patched(mechanism, worthwhile=lambda size: False):
        return build(counts)


def _scaling(figure: Figure, terms: dict[str, Any]) -> dict[str, object]:
    """The same for other domains and budgets, lognormal keys; the published design chooses its own max_error."""
    cases = [(f"N = 2^{n.bit_length() - 1}", n, Fraction(1)) for n in terms["others"]]
    cases += [(f"epsilon {e}", terms["size"], Fraction(e)) for e in ("0.1", "10")]
    values: dict[str, object] = {}
    for name, n, epsilon in cases:
        say(f"overhead: {name}")
        counts = make_counts("lognormal", n, terms["rows"])
        ours, paper = (
            mean_overhead(lambda c=counts, e=epsilon, o=options: build(c, e, **o), counts, terms["other_builds"])  # type: ignore[misc]
            for options in ({}, PAPER)
        )
        values[name] = {"ours": ours, "published": paper, "ratio": paper["rows"] / ours["rows"]}
        figure.add(f"    lognormal, {name}: published / ours", _text(paper, ours))
    return {"scaling": values}


def sweep(size: Size = "full", builds: int | None = None) -> list[tuple[str, str, dict[str, dict[str, float]]]]:
    """Mean overhead for other values of our constants, one at a time: (constant, value, overhead for each kind).

    The default comes up once for every constant: how far those rows differ is how far chance goes. The best of many
    values on the same keys is partly luck; measure it again before believing it.
    """
    terms = SIZES[size]
    builds = builds or terms["builds"]
    data = {name: make_counts(name, terms["size"], terms["rows"]) for name in KEYS}
    grid: list[tuple[object, str, tuple[Any, ...]]] = [
        (plan, "BLOCK_SHARE", tuple(Fraction(k, 20) for k in (6, 7, 8, 9, 10, 11))),
        (plan, "SCOUT_SHARE", tuple(Fraction(k, 20) for k in (4, 5, 6, 7, 8))),
        (plan, "CELL_ROWS", (100, 140, 190, 260, 380)),
        (scout, "FALSE_HEAVY", (75, 150, 300, 600, 1200)),
        (scout, "EDGE", (4, 8, 16)),
        (scout, "LONGEST_CELL", (4, 8, 16)),
    ]
    result = []
    for module, constant, values in grid if size != "tiny" else grid[:1]:
        for value in values:
            say(f"sweep: {constant} = {value}")
            with patched(module, **{constant: value}):
                rows = {
                    name: mean_overhead(lambda counts=counts: build(counts), counts, builds)  # type: ignore[misc]
                    for name, counts in data.items()
                }
            default = value == getattr(module, constant)
            result.append((constant, f"{value}{' *' if default else ''}", rows))
    return result


def _dummies(model: IndexModel, counts: Counts) -> float:
    rows = int(counts.sum())
    return 0.0 if model.blocks is None else model.blocks.rows / rows - 1


def _rows(result: dict[str, float]) -> str:
    return f"{result['rows']:,.0f} ± {result['standard_error']:.0f}"


def _bytes(model: IndexModel) -> int:
    from scumble.index.file import encode

    return len(encode(model))


def main() -> None:
    """Print the sweep or the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweep", action="store_true", help="vary our constants, one at a time (* is the default)")
    parser.add_argument("--quick", action="store_true", help="fewer builds")
    options = parser.parse_args()
    size: Size = "quick" if options.quick else "full"
    if options.sweep:
        print(f"{'constant':<16}{'value':>10}" + "".join(f"{name:>16}" for name in KEYS) + "   mean rows of overhead")
        for constant, value, rows in sweep(size):
            print(f"{constant:<16}{value:>10}" + "".join(f"{f'{_rows(rows[name])}':>16}" for name in KEYS), flush=True)
        return
    for line in measure(size).lines:
        print(f"{line.claim:<60}{line.measured:>40}  {line.target}")


if __name__ == "__main__":
    main()
