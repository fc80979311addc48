"""What public hints do: rows that a point lookup reads too many with a right hint, a shifted one, one of other keys.

One half of the rows of each kind gives the hint, drawn at random, and the other half is the table; so a right hint is
as good as data of the same kind can make it. `previous` is what an index of the first half, as it is released, gives.
"""

from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import KEYS, identifiers, make_counts
from benchmarks.figure import Figure, Size, fitted, say
from benchmarks.overhead import BETA, CACHE, MAX_BYTES, OTHER_KEYS, lost_rows, overhead_rows
from benchmarks.paper.data import Unavailable
from scumble import DPPLRIndex
from scumble.index.blocks import suitable_blocks
from scumble.index.file import IndexModel
from scumble.index.hint import Hint
from scumble.lab.tune import halved

__all__ = ["measure"]

Counts = NDArray[np.int64]
SHIFT = 150
SIZES: dict[Size, dict[str, Any]] = {
    "full": {"size": 2**20, "rows": 2 * 10**6, "ids": 250_000, "builds": 20},
    "quick": {"size": 2**20, "rows": 2 * 10**6, "ids": 250_000, "builds": 4},
    "tiny": {"size": 2**14, "rows": 10**5, "ids": 5000, "builds": 1},
}


def build(counts: Counts, hint: Hint | None) -> IndexModel:
    """An index as a table has it."""
    rows = int(counts.sum())
    blocks = suitable_blocks(len(counts), rows, Fraction(1), BETA, MAX_BYTES)
    return fitted(
        DPPLRIndex(max_bytes=MAX_BYTES, blocks=blocks, hint=hint), counts, beta=BETA, capacity=-(-rows // 1024) * 1024
    ).model


def _found() -> dict[str, Counts]:
    """Keys that no distribution of ours has made: those that can be had here."""
    found = {}
    for name, load in OTHER_KEYS.items():
        with suppress(Unavailable):
            found[name] = load(CACHE)
    return found


def measure(size: Size) -> Figure:
    """For each kind of keys, the overhead with no hint and with each hint."""
    terms, figure = SIZES[size], Figure("hints")
    kinds = {name: make_counts(name, terms["size"], terms["rows"]) for name in KEYS}
    kinds["clustered identifiers (made up)"] = identifiers(terms["ids"])
    kinds |= _found() if size != "tiny" else {}
    values: dict[str, object] = {}
    for name, counts in kinds.items():
        say(f"hints: {name} keys")
        public, table = halved(counts)
        other = kinds["zipf" if name != "zipf" else "uniform"]
        hints = {
            "no hint": None,
            "the other half": Hint.of_counts(public),
            f"the same, {SHIFT} keys further": Hint.of_counts(np.roll(public, SHIFT)),
            "other keys": Hint.of_counts(np.resize(other, len(table))),
            "previous": Hint.of_models([build(public, None)]),
        }
        plain, found = 0.0, {}
        for what, hint in hints.items():
            models = [build(table, hint) for _ in range(terms["builds"])]
            rows = float(np.mean([overhead_rows(model, table) for model in models]))
            plain = plain or rows
            used = sum(model.hint is not None for model in models)
            lost = sum(lost_rows(model, table) for model in models)
            found[what] = {"rows": rows, "used": used, "builds": len(models), "builds_with_a_loss": lost}
            text = f"{rows:,.0f} rows" if hint is None else f"{rows:,.0f} rows, {rows / plain - 1:+.0%}"
            figure.add(f"hints, {name}: {what}", text + ("" if hint is None else f" (used {used}/{len(models)})"))
        values[name] = found
    figure.values = values
    return figure
