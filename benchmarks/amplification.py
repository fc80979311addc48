"""The picture in docs/changes.md: how many rows a lookup reads as batches come, unmerged, merged and compacted.

Run it as `python -m benchmarks.amplification docs/images`. Batches of equally many rows are loaded into two databases
with an index on the same terms; after each, EXPLAIN says how many rows some lookups read, dummies included.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import scumble

KEYS = 1 << 16
BATCHES, BATCH_ROWS, LOOKUPS, WIDTH = 48, 2_000, 40, 100
INDEX = f"id int:0:{KEYS - 1} epsilon=1"


def main(folder: Path) -> None:
    """Measure, and write the picture."""
    plain, sized = (_history(automatic=automatic) for automatic in (False, True))
    whole = _single_load()
    _draw(folder / "read-amplification.png", plain, sized, whole)
    print(f"after {BATCHES} batches a lookup reads {plain[-2]:,.0f} rows, by size {sized[-2]:,.0f}")
    print(f"compacted {plain[-1]:,.0f}; one load of all rows {whole:,.0f}")


def _rows(random: np.random.Generator, count: int) -> Any:
    return pa.table({"id": pa.array(random.integers(0, KEYS, count), pa.int32()), "a": pa.array(range(count))})


def _read(db: scumble.Database) -> float:
    """How many rows a lookup reads, on average."""
    starts = np.random.default_rng(3).integers(0, KEYS - WIDTH, LOOKUPS).tolist()
    asked = "SELECT sum(a) FROM t WHERE id BETWEEN ? AND ?"
    found = [db.explain(asked, [start, start + WIDTH]).tables[0].rows_read for start in starts]
    return float(np.mean(found))


def _load(db: scumble.Database, rows: Any) -> None:
    db.load("t", rows, indexes=[INDEX], new_rows=True, capacity=len(rows), page_rows=64)


def _history(*, automatic: bool) -> list[float]:
    """What lookups read after each batch, and at last once all is compacted."""
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as home, scumble.create(Path(home, "db"), limit=10) as db:
        db.automatic = automatic
        found = []
        for _ in range(BATCHES):
            _load(db, _rows(random, BATCH_ROWS))
            found.append(_read(db))
        db.compact("t")
        return [*found, _read(db)]


def _single_load() -> float:
    with tempfile.TemporaryDirectory() as home, scumble.create(Path(home, "db"), limit=10) as db:
        _load(db, _rows(np.random.default_rng(1), BATCHES * BATCH_ROWS))
        return _read(db)


def _draw(path: Path, plain: list[float], sized: list[float], whole: float) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from benchmarks.paper.style import GREY, SHADES

    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    ticks = range(1, BATCHES + 1)
    named = (("never merged", plain), ("merged by size, as they come", sized))
    for (name, values), (colour, marker) in zip(named, reversed(SHADES[:2]), strict=True):
        axes.plot(ticks, values[:-1], color=colour, label=name)
        axes.plot([BATCHES, BATCHES + 1.5], values[-2:], color=colour, linestyle=":")
        axes.plot([BATCHES + 1.5], values[-1:], marker, color=colour, label=f"{name}, then compacted")
    axes.axhline(whole, color=GREY, linewidth=1, label="all rows in a single load")
    axes.set(xlabel=f"batches of {BATCH_ROWS:,} rows", ylabel="rows read by a lookup", yscale="log")
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    figure.savefig(path, dpi=125, metadata={"Software": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
