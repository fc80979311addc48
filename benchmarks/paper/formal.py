"""The formal table: every bound of `bounds.py` held against builds, for several N, epsilon and beta.

A bound that holds with probability 1 - beta has the empirical (1 - beta) quantile under it. It counts as broken when so
many builds exceed it that chance would do so once in ten thousand times if each did with probability beta. The data are
rough: every key has its own large number of rows, so that neither isotonic regression nor segments smooth any noise
away, and no error is cut off by an answer that is too small to lose so much.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import product
from math import ceil, exp, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, gamma

from benchmarks.figure import Size, fitted
from benchmarks.paper.bounds import BOUNDS, SIZES_AND_PRIVACY, Bound, Setting
from benchmarks.paper.lab import Lab, Table
from benchmarks.paper.style import INK, SHADES, log_axis, short
from scumble import DPPLRIndex
from scumble.index.contract import Index
from scumble.index.mechanisms.paper import BinaryTree
from scumble.lab.comparators import CryptEpsilonIndex, DPBPlusTreeIndex, SpecialIndex
from scumble.lab.comparators.curves import special_shift, truncation_delta
from scumble.lab.comparators.dp_rmi import DPRMIIndex
from scumble.lab.comparators.fmi import FMIIndex
from scumble.privacy.noise import discrete_laplace

__all__ = ["lemma_ratio", "rough_counts", "run"]

SURPRISE = 1e-4
MOST_ROWS = 2**36 - 1
SPECIAL_BETA = Fraction(1, 10**6)
TRAINED_DELTA = Fraction(1, 10**6)
TRAINED_FEWER = 5  # times fewer builds
GRID: dict[Size, tuple[tuple[int, ...], tuple[str, ...], tuple[str, ...]]] = {
    "full": ((64, 1024, 16384), ("0.1", "1", "10"), ("0.1", "0.01")),
    "quick": ((64, 1024), ("1",), ("0.1", "0.01")),
    "tiny": ((64,), ("1",), ("0.1",)),
}
BUILDS: dict[Size, int] = {"full": 400, "quick": 200, "tiny": 10}
WATCHED = 32  # lookups that bounds for one lookup are held against, in every build
Samples = dict[tuple[str, str], NDArray[np.float64]]  # quantity and scope: builds, or builds times watched lookups


Sampler = Callable[[int, Fraction, Fraction, int], tuple[Setting, Samples]]
"""Called with N, epsilon, beta and a number of builds."""


def run(lab: Lab) -> None:
    """The formulas, the experiment, and the lemma that the paper's bounds stand on."""
    _formulas(lab)
    _lemma(lab)
    found = list(_experiments(lab))
    _verdicts(lab, found)
    _figure(lab, found)


# --- formulas --------------------------------------------------------------------------------------


def _formulas(lab: Lab) -> None:
    at = Setting(2**20, 1, 1e-6, overflow=0, alpha_s=8, tau=100, mu=0)
    table = Table(
        "formal-table",
        "Table 1, printed and corrected; rows at N = 2^20, ε = 1, β = 1e-6, alpha_s = 8, τ = 100, B = μ = 0",
        ["index", "bound", "lookups", "printed", "rows", "corrected", "rows", "why (slip)"],
    )
    for bound in BOUNDS:
        if "lost rows" in bound.quantity:
            continue
        printed, corrected = bound.printed(at), bound.corrected(at)
        table.add(
            [
                bound.index,
                bound.quantity,
                _scope(bound.quantity, bound.scope),
                bound.printed_text,
                short(printed),
                bound.corrected_text,
                short(corrected),
                bound.correction,
            ],
            index=bound.index,
            quantity=bound.quantity,
            scope=bound.scope,
            printed=bound.printed_text,
            printed_rows=printed,
            corrected=bound.corrected_text,
            corrected_rows=corrected,
            correction=bound.correction,
        )
    table.notes.append(
        "Slips are numbered as in docs/paper-notes.md; *new* are not in that list. Logarithms log are to base 2."
    )
    lab.write(table)
    sizes = Table(
        "formal-size-and-privacy",
        "Index size and privacy of each index",
        ["index", "size, printed (bits)", "size, here (bits)", "dummy rows", "privacy, printed", "privacy, here"],
    )
    for row in SIZES_AND_PRIVACY:
        sizes.add(row, **dict(zip(sizes.columns, row, strict=True)))
    lab.write(sizes)


def lemma_ratio(terms: int, reach: float = 1.0) -> float:
    """The chance that the sum of k Laplace noises reaches `reach` k scales, over what the paper's lemma 2 allows."""
    grid = np.linspace(0, gamma.ppf(1 - 1e-15, terms), 20_001)
    weights = gamma.pdf(grid, terms) * gamma.sf(grid + reach * terms, terms)
    return float(np.trapezoid(weights, grid) / exp(-(reach**2) * terms / 4))


def _lemma(lab: Lab) -> None:
    table = Table(
        "formal-lemma",
        "Lemma 2 as printed: P(sum of k noises ≥ a) ≤ exp(-a² ε² / 4kΔ²) for 0 < a ≤ kΔ/ε; at a = kΔ/ε",
        ["terms k", "chance / bound", "holds"],
    )
    for terms in (1, 5, 20, 50, 100, 200, 400):
        ratio = lemma_ratio(terms)
        table.add([f"{terms}", f"{ratio:.3g}", "yes" if ratio <= 1 else "NO"], terms=terms, ratio=ratio)
    least = 50 + bisect_right(range(50, 400), 1.0, key=lemma_ratio)
    table.notes += [
        f"It fails from k = {least} on: its 4 is the Gaussian limit, and Laplace tails are heavier. With an 8, and "
        "up to a = 2√2 kΔ/ε, it holds (Chan, Shi, Song 2011, lemma 2.8).",
        "DP-PLR applies it to k = log N terms, at most 20 for a million keys, where a = 2 √(k ln(2/β)) Δ/ε is within "
        f"its range only if β ≥ 2 exp(-k/4): {2 * exp(-20 / 4):.3f} for k = 20. For the small β that "
        "losslessness asks for it says nothing.",
    ]
    lab.write(table)


# --- experiment ------------------------------------------------------------------------------------


def rough_counts(n: int, least: float) -> NDArray[np.int64]:
    """So many rows for each key that no error is cut off, and no two keys alike: nothing that could be smoothed."""
    base = int(min(max(least, 1000), MOST_ROWS / (1.3 * n)))
    return base + np.random.default_rng(1).integers(0, base // 4, n)


def _experiments(lab: Lab) -> Iterator[dict[str, Any]]:
    builds = BUILDS[lab.size]
    terms = {"builds": builds, "watched": WATCHED}
    for n, epsilon, beta in product(*GRID[lab.size]):
        for index in SAMPLERS:
            names = ("formal", f"N {n} epsilon {epsilon} beta {beta}", index)
            make = partial(_sampled, index, n, Fraction(epsilon), Fraction(beta), builds)
            for verdict in lab.cell(*names, terms=terms, make=make):
                yield {"N": n, "epsilon": float(epsilon), "beta": float(beta), "index": index, **verdict}


def _sampled(index: str, n: int, epsilon: Fraction, beta: Fraction, builds: int) -> list[dict[str, Any]]:
    setting, samples = SAMPLERS[index](n, epsilon, beta, builds)
    held = [bound for bound in BOUNDS if bound.index == index]
    return [_verdict(bound, setting, samples[bound.quantity, bound.scope]) for bound in held]


def _verdict(bound: Bound, setting: Setting, samples: NDArray[np.float64]) -> dict[str, Any]:
    """The empirical quantile, and whether so many samples above a bound are more than chance."""
    builds = len(samples)
    ordered = np.sort(samples.ravel())
    quantile = float(ordered[min(len(ordered) - 1, ceil((1 - setting.beta) * len(ordered)) - 1)])

    def broken(value: float) -> tuple[float, bool]:
        share = float((samples > value).mean())
        # Watched lookups of one build may hang together: only builds count as independent.
        return share, bool(binom.sf(ceil(share * builds) - 1, builds, setting.beta) < SURPRISE)

    printed, corrected = bound.printed(setting), bound.corrected(setting)
    return {
        "quantity": bound.quantity,
        "scope": bound.scope,
        "quantile": quantile,
        "printed": printed if np.isfinite(printed) else None,
        "corrected": corrected if np.isfinite(corrected) else None,
        "above_printed": broken(printed)[0],
        "above_corrected": broken(corrected)[0],
        "printed_broken": broken(printed)[1],
        "corrected_broken": broken(corrected)[1],
    }


def _watched(n: int) -> NDArray[np.int64]:
    """Ranks that are looked up alone: spread, and away from both ends, where positions are clipped."""
    return np.unique(np.linspace(n // 8, n - n // 8 - 1, WATCHED).astype(np.int64))


def _outcomes(make: Callable[[], Index], counts: NDArray[np.int64], n: int, builds: int) -> Samples:
    """Missed and extra rows of point lookups of all keys, in many builds."""
    ranks, watched = np.arange(n), _watched(n)
    found: dict[tuple[str, str], list[Any]] = {
        (q, s): [] for q in ("query error", "query overhead") for s in ("one", "all")
    }
    for _ in range(builds):
        outcome = make().unsafe_outcome(counts, ranks, ranks)
        for quantity, rows in (("query error", outcome.missed), ("query overhead", outcome.extra)):
            found[quantity, "one"].append(rows[watched])
            found[quantity, "all"].append(rows.max())
    return {name: np.array(rows, dtype=np.float64) for name, rows in found.items()}


def _bplus(n: int, epsilon: Fraction, beta: Fraction, builds: int) -> tuple[Setting, Samples]:
    """With a B of half a noise scale, so that both errors and dummies are seen."""
    setting = Setting(n, float(epsilon), float(beta))
    setting = Setting(n, float(epsilon), float(beta), overflow=ceil(setting.tree_levels / setting.epsilon / 2))
    counts = rough_counts(n, 4 * setting.tree_levels / setting.epsilon * log(n / setting.beta))
    dummies: list[int] = []

    def make() -> Index:
        index = fitted(DPBPlusTreeIndex(int(setting.overflow)), counts, epsilon, beta=beta)
        dummies.append(index.unsafe_dummy_rows(counts))
        return index

    samples = _outcomes(make, counts, n, builds)
    return setting, {**samples, ("data overhead", "all"): np.array(dummies, dtype=np.float64)}


def _crypt(n: int, epsilon: Fraction, beta: Fraction, builds: int) -> tuple[Setting, Samples]:
    setting = Setting(n, float(epsilon), float(beta))
    counts = rough_counts(n, 4 * n / setting.epsilon * log(n / setting.beta))
    curve, watched, noise = np.cumsum(counts), _watched(n), []

    def make() -> Index:
        index = fitted(CryptEpsilonIndex(), counts, epsilon, beta=beta)
        noise.append(np.abs(index.curves.lower - curve)[watched])
        return index

    samples = _outcomes(make, counts, n, builds)
    return setting, {**samples, ("noise of one point", "one"): np.array(noise, dtype=np.float64)}


def _special(n: int, epsilon: Fraction, beta: Fraction, builds: int) -> tuple[Setting, Samples]:
    """Built with a smaller beta of its own, which sets mu: for a large one and epsilon 10 its delta would exceed 1."""
    counts, delta = rough_counts(n, MOST_ROWS), truncation_delta(epsilon, SPECIAL_BETA)
    last: list[SpecialIndex] = []

    def make() -> Index:
        last[:] = [fitted(SpecialIndex(), counts, epsilon, delta, beta=SPECIAL_BETA)]
        return last[0]

    samples = _outcomes(make, counts, n, builds)
    return Setting(n, float(epsilon), float(beta), mu=special_shift(last[0].terms)), samples


def _published(n: int, epsilon: Fraction, beta: Fraction, builds: int) -> tuple[Setting, Samples]:
    setting = Setting(n, float(epsilon), float(beta), alpha_s=1, tau=1)
    tree = BinaryTree(n, epsilon)
    counts = rough_counts(n, 100 * tree.levels**1.5 / setting.epsilon * log(n / setting.beta))
    noise = np.array([np.abs(tree.prefixes(discrete_laplace(tree.scale, n))) for _ in range(builds)])

    def make(alpha_s: float | None) -> Callable[[], Index]:
        options: dict[str, Any] = {"mechanism": "paper", "slack": "paper", "max_error": 1}
        if alpha_s is not None:
            options["alpha_s"] = Fraction(alpha_s).limit_denominator(10**6)
        return lambda: fitted(DPPLRIndex(**options), counts, epsilon, beta=beta)

    hoped = _outcomes(make(sqrt(log(1 / beta))), counts, n, builds)
    computed = _outcomes(make(None), counts, n, builds)
    return setting, {
        **_outcomes(make(1), counts, n, builds),
        ("noise of one point", "one"): noise[:, _watched(n)].astype(np.float64),
        ("noise of one point", "all"): noise.max(axis=1).astype(np.float64),
        ("lost rows, alpha_s = √ln(1/β)", "one"): hoped["query error", "one"],
        ("lost rows, alpha_s = √ln(1/β)", "all"): hoped["query error", "all"],
        ("lost rows, Z from β", "all"): computed["query error", "all"],
    }


def _ours(n: int, epsilon: Fraction, beta: Fraction, builds: int) -> tuple[Setting, Samples]:
    setting = Setting(n, float(epsilon), float(beta))
    counts = rough_counts(n, 1000 * log(n) / setting.epsilon)
    samples = _outcomes(lambda: fitted(DPPLRIndex(), counts, epsilon, beta=beta), counts, n, builds)
    return setting, {("lost rows", "all"): samples["query error", "all"]}


def _trained(kind: type[DPRMIIndex] | type[FMIIndex]) -> Sampler:
    """Hardly trained, to be quick: the noisy largest error has to cover a bad model as well as a good one."""

    def sample(n: int, epsilon: Fraction, beta: Fraction, builds: int) -> tuple[Setting, Samples]:
        counts = rough_counts(n, 1000 * log(n) / float(epsilon))

        def make() -> Index:
            return fitted(kind(4, steps=4, batch=64), counts, epsilon, TRAINED_DELTA, beta=beta)

        samples = _outcomes(make, counts, n, max(40, builds // TRAINED_FEWER))
        return Setting(n, float(epsilon), float(beta)), {("lost rows", "all"): samples["query error", "all"]}

    return sample


SAMPLERS: dict[str, Sampler] = {
    "DP B+ tree": _bplus,
    "Crypt-epsilon": _crypt,
    "SPECIAL": _special,
    "DP-RMI": _trained(DPRMIIndex),
    "FMI": _trained(FMIIndex),
    "DP-PLR, published": _published,
    "DP-PLR, ours": _ours,
}


# --- verdicts --------------------------------------------------------------------------------------


def _verdicts(lab: Lab, found: list[dict[str, Any]]) -> None:
    table = Table(
        "formal",
        f"Empirical (1 - β) quantiles against the bounds, rows; {BUILDS[lab.size]:,} builds each, a fifth if trained",
        ["index", "bound", "lookups", "N", "ε", "β", "quantile", "printed", "holds", "corrected", "holds"],
    )
    for cell in found:
        table.add(
            [
                cell["index"],
                cell["quantity"],
                _scope(cell["quantity"], cell["scope"]),
                f"{cell['N']:,}",
                f"{cell['epsilon']:g}",
                f"{cell['beta']:g}",
                short(cell["quantile"]),
                short(cell["printed"]),
                _holds(cell["printed"], cell["printed_broken"]),
                short(cell["corrected"]),
                _holds(cell["corrected"], cell["corrected_broken"]),
            ],
            **cell,
        )
    table.notes.append(
        "Several corrected bounds are exact, those of the B+ tree's leaves and of lost rows among them: the quantile "
        "lies at the bound, and above it by chance in half of all experiments. *NO* means more builds above it than "
        f"chance explains (probability below {SURPRISE:g})."
    )
    lab.write(table)
    short_table = Table(
        "formal-summary",
        f"In how many settings a bound is broken: N in {_listed(0, lab)}, ε in {_listed(1, lab)}, β in "
        f"{_listed(2, lab)}, {BUILDS[lab.size]:,} builds each, a fifth if trained",
        [
            "index",
            "bound",
            "lookups",
            "settings",
            "printed",
            "broken in",
            "corrected",
            "broken in",
            "largest quantile / corrected",
        ],
    )
    for name in dict.fromkeys((cell["index"], cell["quantity"], cell["scope"]) for cell in found):
        cells = [cell for cell in found if (cell["index"], cell["quantity"], cell["scope"]) == name]
        ratios = [cell["quantile"] / cell["corrected"] for cell in cells if cell["corrected"]]
        broken = [sum(cell[f"{which}_broken"] for cell in cells) for which in ("printed", "corrected")]
        given = [cells[0][which] is not None for which in ("printed", "corrected")]
        (bound,) = (b for b in BOUNDS if (b.index, b.quantity, b.scope) == name)
        formulas = (bound.printed_text, bound.corrected_text)
        texts = [
            text
            for formula, number, known in zip(formulas, broken, given, strict=True)
            for text in (formula or "-", f"{number}" if known else "-")
        ]
        short_table.add(
            [*name[:2], _scope(*name[1:]), f"{len(cells)}", *texts, f"{max(ratios):.2f}" if ratios else "-"],
            index=name[0],
            quantity=name[1],
            scope=name[2],
            settings=len(cells),
            printed_broken=broken[0] if given[0] else None,
            corrected_broken=broken[1] if given[1] else None,
            largest_ratio=max(ratios) if ratios else None,
        )
    lab.write(short_table)


def _listed(place: int, lab: Lab) -> str:
    return " / ".join(f"{value:,}" if isinstance(value, int) else value for value in GRID[lab.size][place])


def _holds(value: float | None, broken: bool) -> str:
    return "-" if value is None else "NO" if broken else "yes"


def _scope(quantity: str, scope: str) -> str:
    """What a bound is for, in words."""
    if "noise" in quantity:
        return "one point" if scope == "one" else "all points"
    if quantity == "data overhead":
        return "all dummies"
    return "one lookup" if scope == "one" else "all lookups"


def _figure(lab: Lab, found: list[dict[str, Any]]) -> None:
    """How much of each bound the empirical quantile uses up; beyond 1 it is broken."""
    cells = [cell for cell in found if "lost" not in cell["quantity"] and cell["corrected"]]
    names = list(dict.fromkeys((cell["index"], cell["quantity"], cell["scope"]) for cell in cells))
    labels = [
        f"{index}: {quantity.removesuffix(' of one point')}, {_scope(quantity, scope)}"
        for index, quantity, scope in names
    ]
    with lab.figure("formal", 8.6, 0.3 * len(names) + 1.5) as figure:
        ax = figure.subplots()
        for (which, lift), (color, marker) in zip(
            (("printed", 0.17), ("corrected", -0.17)), SHADES[1::-1], strict=False
        ):
            for place, name in enumerate(names):
                shown = [c for c in cells if (c["index"], c["quantity"], c["scope"]) == name and c[which]]
                ratios = [c["quantile"] / c[which] for c in shown if c["quantile"]]
                ax.plot(
                    ratios,
                    [place - lift] * len(ratios),
                    marker,
                    color=color,
                    markersize=5,
                    markerfacecolor="none" if which == "printed" else color,
                    label=which if place == 0 else None,
                )
        ax.axvline(1, color=INK, linewidth=1.2)
        ax.set_xscale("log")
        log_axis(ax.xaxis)
        ax.set_yticks(range(len(names)), labels)
        ax.invert_yaxis()
        ax.set_xlabel("empirical (1 - β) quantile / bound: one mark for each N, ε and β")
        ax.set_title("Bounds as printed and as corrected; right of 1 a bound is broken")
        figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=2)
