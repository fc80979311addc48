"""The paper's illustrations, drawn from real builds: cumulative-frequency models, a recursive model index, range trees.

The paper's own pictures are not part of its source. Keys are made up, noise is drawn anew with every measurement and
kept with its numbers; the small tables are chosen so that the noise can be seen.
"""

from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.paper.lab import Lab, Table
from benchmarks.paper.lookups import BETA
from benchmarks.paper.style import GREY, INK, LINE
from scumble import IntegerDomain
from scumble.index.dp_plr import DPPLRIndex
from scumble.lab.comparators import CryptEpsilonIndex, DPBPlusTreeIndex, DPRMIIndex, SpecialIndex
from scumble.lab.compare import Case, Contender, build

__all__ = ["run"]

TRUE, NOISY, READ = "#000000", "#0072B2", "#E69F00"
MODEL_KEYS, MODEL_ROWS, MODEL_EPSILON, ASKED = 24, 2000, Fraction(2), 9
RMI_KEYS, RMI_MODELS, RMI_EPSILON = 400, 5, Fraction(10)
TREE_COUNTS, TREE_EPSILON, TREE_ASKED = (5, 2, 7, 0, 3, 9, 4, 6), Fraction(1), 7
DELTA = Fraction(1, 10**3)


def run(lab: Lab) -> None:
    """Three figures, and a table of the lookup that the first one shows."""
    models, rmi, tree = _models(lab), _rmi(lab), _tree(lab)
    table = Table(
        "illustrations",
        f"One lookup in four models of {MODEL_ROWS:,} rows over {MODEL_KEYS} keys, epsilon {MODEL_EPSILON}",
        ["model", "reads from", "to", "rows of the answer", "missed", "read in vain"],
    )
    for name, (start, stop) in models["reads"].items():
        true = models["curve"][ASKED - 1], models["curve"][ASKED]
        found = max(0, min(stop, true[1]) - max(start, true[0]))
        answer = true[1] - true[0]
        numbers = [start, stop, answer, answer - found, stop - start - found]
        table.add([name, *(f"{n:,}" for n in numbers)], model=name, start=start, stop=stop, missed=answer - found)
    lab.write(table)
    _draw_models(lab, models)
    _draw_rmi(lab, rmi)
    _draw_tree(lab, tree)


# --- cumulative-frequency models -------------------------------------------------------------------


def _models(lab: Lab) -> dict[str, Any]:
    def make() -> dict[str, Any]:
        rng = np.random.default_rng(5)
        counts = rng.multinomial(MODEL_ROWS, rng.dirichlet(np.full(MODEL_KEYS, 1.2))).astype(np.int64)
        case = Case(counts, IntegerDomain(0, MODEL_KEYS - 1), MODEL_EPSILON, BETA, Fraction(9, 10))
        crypt: Any = build(Contender("Crypt-epsilon", CryptEpsilonIndex), case)
        special: Any = build(Contender("SPECIAL", SpecialIndex, needs_delta=True), case)
        plr: Any = build(Contender("DP-PLR", lambda: DPPLRIndex(mechanism="paper", slack="paper")), case)
        curve, ranks = np.cumsum(counts), np.arange(MODEL_KEYS)
        reads = {"exact": [int(curve[ASKED - 1]), int(curve[ASKED])]}
        reads |= {index.name: list(index.lookup(ASKED)) for index in (crypt, special, plr)}
        return {
            "curve": curve.tolist(),
            "crypt": crypt.curves.lower.tolist(),
            "special": [special.curves.lower.tolist(), special.curves.upper.tolist()],
            "plr": plr.model.segments.at_many(ranks).tolist(),
            "slack": plr.model.slack_rows,
            "reads": reads,
        }

    terms = {"keys": MODEL_KEYS, "rows": MODEL_ROWS, "epsilon": str(MODEL_EPSILON), "asked": ASKED}
    result: dict[str, Any] = lab.cell("illustrations", "models", terms=terms, make=make)
    return result


def _draw_models(lab: Lab, found: dict[str, Any]) -> None:
    keys = np.arange(MODEL_KEYS)
    panels = {
        "exact": ("The model itself: F(x) rows up to key x", []),
        "Crypt-epsilon": ("Crypt-epsilon: noise on every point", [found["crypt"]]),
        "SPECIAL": ("SPECIAL: one curve below, one above", found["special"]),
        "DP-PLR": ("DP-PLR: segments and a slack", [found["plr"]]),
    }
    with lab.figure("cf-model", 11.5, 6.6) as figure:
        for ax, (name, (title, curves)) in zip(figure.subplots(2, 2).flat, panels.items(), strict=True):
            start, stop = found["reads"][name]
            ax.axhspan(start, stop, color=READ, alpha=0.25, linewidth=0, label="positions that the lookup reads")
            ax.step(keys, found["curve"], where="post", color=TRUE, linewidth=1.4, label="true curve")
            for place, curve in enumerate(curves):
                label = "what the index keeps" if place == 0 else None
                style = {"marker": "o", "markersize": 3.5, "linewidth": 0 if name == "Crypt-epsilon" else 1.2}
                ax.plot(keys, curve, color=NOISY, label=label, **style)
            if name == "DP-PLR":
                band = np.array(found["plr"])
                ax.fill_between(
                    keys, band - found["slack"], band + found["slack"], color=NOISY, alpha=0.15, linewidth=0
                )
            ax.axvline(ASKED, color=GREY, linewidth=1, linestyle=(0, (4, 3)), label=f"the key asked for, {ASKED}")
            ax.set_ylim(-0.12 * MODEL_ROWS, 1.12 * MODEL_ROWS)
            ax.set_title(f"{title} - reads [{start:,}, {stop:,})")
            ax.set_xlabel("key")
            ax.set_ylabel("position")
        handles, labels = figure.axes[1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)


# --- recursive model index -------------------------------------------------------------------------


def _rmi(lab: Lab) -> dict[str, Any]:
    def make() -> dict[str, Any]:
        rng = np.random.default_rng(2)
        keys = np.minimum(rng.gamma(3, RMI_KEYS / 9, 200_000), RMI_KEYS - 1).astype(np.int64)
        counts = np.bincount(keys, minlength=RMI_KEYS).astype(np.int64)
        case = Case(counts, IntegerDomain(0, RMI_KEYS - 1), RMI_EPSILON, BETA, DELTA)
        index: Any = DPRMIIndex(RMI_MODELS, sensitivity="row")
        build(Contender("DP-RMI", lambda: index, needs_delta=True, trained=True), case)
        inputs = (np.arange(RMI_KEYS) + 1) / RMI_KEYS
        root = type(index.model.model)(index.model.model.stages[:1])
        return {
            "curve": np.cumsum(counts).tolist(),
            "root": (root.predict(inputs) * index.model.scale_rows).tolist(),
            "routes": root.route(inputs, RMI_MODELS).tolist(),
            "leaves": (index.model.model.predict(inputs) * index.model.scale_rows).tolist(),
        }

    terms = {"keys": RMI_KEYS, "models": RMI_MODELS, "epsilon": str(RMI_EPSILON)}
    result: dict[str, Any] = lab.cell("illustrations", "rmi", terms=terms, make=make)
    return result


def _draw_rmi(lab: Lab, found: dict[str, Any]) -> None:
    keys, routes = np.arange(RMI_KEYS), np.array(found["routes"])
    rows = found["curve"][-1]
    colors = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
    with lab.figure("rmi", 11, 4.2) as figure:
        first, second = figure.subplots(1, 2, sharey=True)
        first.plot(keys, found["curve"], color=TRUE, linewidth=1.2, label="true curve")
        first.plot(keys, found["root"], color=NOISY, linewidth=2, label="root: one line")
        for k in range(RMI_MODELS):
            first.axhspan(k * rows / RMI_MODELS, (k + 1) * rows / RMI_MODELS, color=colors[k], alpha=0.12, linewidth=0)
            first.annotate(f"to line {k + 1}", (-70, (k + 0.5) * rows / RMI_MODELS), color=colors[k], va="center")
        first.set_xlim(-80, RMI_KEYS)
        first.set_title("Stage 1: where the root's prediction falls decides the line")
        first.set_ylim(-0.05 * rows, 1.15 * rows)
        first.set_ylabel("position")
        second.plot(keys, found["curve"], color=TRUE, linewidth=1.2, label="true curve")
        for k in range(RMI_MODELS):
            mine = np.flatnonzero(routes == k)
            if len(mine):
                leaves = np.array(found["leaves"])[mine]
                second.plot(mine, leaves, color=colors[k], linewidth=2.4, label=f"line {k + 1}")
                second.axvspan(mine[0], mine[-1], color=colors[k], alpha=0.08, linewidth=0)
        second.set_title("Stage 2: each line predicts its own keys")
        for ax in (first, second):
            ax.set_xlabel("key")
            ax.legend(loc="lower right")


# --- range trees -----------------------------------------------------------------------------------


def _tree(lab: Lab) -> dict[str, Any]:
    def make() -> dict[str, Any]:
        from scumble.lab.comparators.dp_bplus_tree import RoutingTree

        counts = np.array(TREE_COUNTS)
        case = Case(counts, IntegerDomain(0, len(counts) - 1), TREE_EPSILON, BETA, Fraction(0))
        index: Any = build(Contender("DP B+ tree", lambda: DPBPlusTreeIndex(0)), case)
        true = RoutingTree(len(counts), TREE_EPSILON).nodes(counts)
        return {"true": true.tolist(), "noisy": index.nodes.tolist()}

    terms = {"counts": TREE_COUNTS, "epsilon": str(TREE_EPSILON)}
    result: dict[str, Any] = lab.cell("illustrations", "tree", terms=terms, make=make)
    return result


def _cover(leaves: int, asked: int) -> list[int]:
    """The nodes whose counts add up to those of the first `asked` leaves: one for each bit."""
    nodes, done, size = [], 0, leaves
    while size:
        if asked - done >= size:
            nodes.append((leaves + done) // size)
            done += size
        size //= 2
    return nodes


def _draw_tree(lab: Lab, found: dict[str, Any]) -> None:
    leaves = len(TREE_COUNTS)
    cover = _cover(leaves, TREE_ASKED)
    titles = {"true": "Range tree: counts", "noisy": f"DP range tree: Lap({leaves.bit_length()}/epsilon) on each node"}
    with lab.figure("range-tree", 11.5, 4) as figure:
        for ax, (kind, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
            places = {}
            for node in range(1, 2 * leaves):
                level = node.bit_length() - 1
                width = leaves >> level
                places[node] = ((node - (1 << level) + 0.5) * width, -level)
            for node, (x, y) in places.items():
                if node > 1:
                    ax.plot([places[node // 2][0], x], [places[node // 2][1], y], color=LINE, linewidth=1.5, zorder=1)
                color = READ if node in cover else "#ffffff"
                box = {"boxstyle": "round,pad=0.35", "facecolor": color, "edgecolor": GREY}
                ax.annotate(f"{found[kind][node - 1]}", (x, y), ha="center", va="center", bbox=box, zorder=3)
            for leaf in range(leaves):
                ax.annotate(f"$x_{leaf + 1}$", (leaf + 0.5, -leaves.bit_length() + 0.5), ha="center", color=INK)
            total = " + ".join(f"{found[kind][node - 1]}" for node in cover).replace("+ -", "- ")
            sign = "y" if kind == "true" else r"\tilde y"
            value = sum(found[kind][node - 1] for node in cover)
            ax.set_title(f"{title}\n${sign}_{TREE_ASKED}$ = {total} = {value}")
            ax.set_xlim(0, leaves)
            ax.set_ylim(-leaves.bit_length() + 0.2, 0.5)
            ax.axis("off")
