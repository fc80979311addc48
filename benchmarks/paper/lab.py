"""Where experiments run: a folder that keeps what was measured, and writes tables and figures of it.

A cell is one piece of work, such as one index on one data set. Its numbers are kept as JSON with the terms that they
were measured under: a run that was interrupted goes on where it stopped, and other terms, or other code, measure again.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.figure import Size, say
from benchmarks.paper.data import DATASETS, Dataset, Source, Unavailable, load

__all__ = ["Lab", "Table", "aligned", "slug"]

FORMAT = 1  # of a cell


@dataclass
class Table:
    """One table of the paper: rows of text for people, and the numbers behind them."""

    name: str
    caption: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, texts: Sequence[str], **values: Any) -> None:
        self.rows.append(texts)
        self.values.append(values)

    def markdown(self) -> str:
        table = aligned(self.columns, self.rows)
        notes = "".join(f"\n{note}\n" for note in self.notes)
        return f"# {self.caption}\n\n{table}\n{notes}"


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table: numbers to the right."""
    marks = [":--" if _is_text(column) else "--:" for column in zip(*rows, strict=True)] or [":--"]
    lines = [[text.replace("|", "\\|") for text in line] for line in (columns, marks, *rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _is_text(column: Sequence[str]) -> bool:
    return sum(text[:1].isdigit() or text[:1] in "-" for text in column) < len(column) / 2


def slug(name: str) -> str:
    """A name as a file is called."""
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


@dataclass
class Lab:
    """One run: its folder, its size, and how it reports progress."""

    out: Path
    size: Size
    tell: Callable[[str], None] = say
    fresh: bool = False
    stale: bool = False
    source: str = ""
    measured: int = 0
    kept: int = 0
    missing: dict[str, str] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=lambda: dict(DATASETS))
    shared: bool = False
    """Whether the machine did other work meanwhile, so that times are for comparison among each other only."""
    digests: dict[str, str] = field(default_factory=dict)
    """Of the data sets that come from a user's files: another file is measured anew."""

    def cell(self, *names: str, terms: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """What is kept under these names if it was measured under these terms, or else measure and keep it."""
        file = self.out / "cells" / self.size / Path(*map(slug, names)).with_suffix(".json")
        files = {name: self.digests[name] for name in names if name in self.digests}
        about = {"format": FORMAT, "source": self.source, **terms, **({"files": files} if files else {})}
        found = None if self.fresh else _read(file)
        if found is not None and self._same(found.get("terms"), about):
            self.kept += 1
            return found["value"]
        self.tell(", ".join(names))
        value = json.loads(json.dumps(make()))
        _write(file, json.dumps({"names": names, "terms": about, "value": value}))
        self.measured += 1
        return value

    def _same(self, kept: Any, about: dict[str, Any]) -> bool:
        about = json.loads(json.dumps(about))
        if self.stale and isinstance(kept, dict):
            kept, about = {**kept, "source": ""}, {**about, "source": ""}
        return bool(kept == about)

    def dataset(self, name: str) -> Dataset:
        """A data set, kept in memory while it is the one in use."""
        return _loaded(name, self.out / "data", self.sources[name])

    def available(self, names: Sequence[str]) -> Iterator[str]:
        """Those that can be had here; the others are remembered with the reason."""
        for name in names:
            if name in self.missing:
                continue
            try:
                self.dataset(name)
            except Unavailable as reason:
                self.missing[name] = str(reason)
                self.tell(f"{name} is left out: {reason}")
                continue
            yield name

    def write(self, table: Table) -> None:
        _write(self.out / f"{table.name}.md", table.markdown())
        text = {
            "caption": table.caption,
            "size": self.size,
            "shared": self.shared,
            "columns": list(table.columns),
            "texts": [list(row) for row in table.rows],
            "notes": table.notes,
            "rows": table.values,
        }
        _write(self.out / f"{table.name}.json", json.dumps(text, indent=1, ensure_ascii=False))

    @contextmanager
    def figure(self, name: str, width: float, height: float) -> Iterator[Any]:
        """A figure to draw on, written as PNG and as SVG."""
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        from benchmarks.paper.style import style

        with rc_context(style()):
            figure = Figure(figsize=(width, height), layout="constrained")
            FigureCanvasAgg(figure)
            yield figure
            figure.savefig(self.out / f"{name}.png", dpi=125)
            figure.savefig(self.out / f"{name}.svg", metadata={"Date": None})


@lru_cache(maxsize=2)
def _loaded(name: str, cache: Path, source: Source) -> Dataset:
    return load(name, cache, source)


def _read(file: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return found


def _write(file: Path, text: str) -> None:
    """Whole or not at all: a run that is stopped leaves no half of a cell."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}.new")
    draft.write_text(text + "\n", encoding="utf-8")
    draft.replace(file)


def source_of(folders: Sequence[Path]) -> str:
    """Which code measures: a hash over its files."""
    digest = sha256()
    for path in sorted(file for folder in folders for file in folder.glob("**/*.py")):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
