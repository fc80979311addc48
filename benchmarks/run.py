"""All figures: run them, print one table of claim, measured, target and met, and write the numbers as JSON.

python -m benchmarks.run                       everything, some ten minutes
python -m benchmarks.run --only database       the database's; --only index, --only service: the index's, the service's
python -m benchmarks.run --quick               smaller and rougher
python -m benchmarks.run --only noise,lookup   some figures
python -m benchmarks.run --json                the JSON on stdout, no table
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.table import Table

from benchmarks.figure import Figure, Line, Size, machine, say

__all__ = ["FIGURES", "main"]

GROUPS = {
    "index": ("overhead", "hints", "merging", "coverage", "segments", "noise", "fit", "lookup", "size"),
    "database": (
        "database.aggregates",
        "database.scan",
        "database.scaling",
        "database.load",
        "database.wide_rows",
        "database.storage",
        "database.widths",
        "database.changes",
        "database.versions",
    ),
    "service": ("service.clients", "gateway"),
}
FIGURES = tuple(name for names in GROUPS.values() for name in names)
FILES = {"index": "latest.json", "database": "database.json", "service": "service.json"}  # of a full run of a group
RESULTS = Path(__file__).parent / "results"


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for. A missed target is printed, and is no error: speeds depend on the machine."""
    options = _parser().parse_args(arguments)
    asked = [name.strip() for name in options.only.split(",")] if options.only else list(GROUPS)
    names = list(dict.fromkeys(name for one in asked for name in GROUPS.get(one, (one,))))
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        print(f"no such figure: {', '.join(unknown)}; there are {', '.join((*GROUPS, *FIGURES))}", file=sys.stderr)
        return 2
    os.environ["OMP_NUM_THREADS"] = "1"  # every figure is of one core
    size: Size = "tiny" if options.tiny else "quick" if options.quick else "full"
    begun, described = datetime.now(UTC), machine()
    figures = [run_figure(name, size) for name in names]
    report = _report(figures, begun, size, described)
    if not options.dry:
        RESULTS.mkdir(exist_ok=True)
        for file, part in _parts(figures, size, options.only):
            (RESULTS / file).write_text(_text(_report(part, begun, size, described)) + "\n")
            say(f"written to {RESULTS / file}")
    if options.json:
        print(_text(report))
    else:
        print_table(figures, f"{described['cpu']}, load {described['load_1min_at_start']} at the start, {size} sizes")
    return 0


def _parts(figures: list[Figure], size: Size, only: str | None) -> Iterator[tuple[str, list[Figure]]]:
    """What goes into which file: a part of a group's figures, or small ones, must not pass for the whole."""
    found = {figure.name: figure for figure in figures}
    whole = [group for group, names in GROUPS.items() if size == "full" and found.keys() >= set(names)]
    for group in whole:
        yield FILES[group], [found.pop(name) for name in GROUPS[group]]
    if found:
        yield f"{size}-{'-'.join(found) if only else 'all'}.json", list(found.values())


def run_figure(name: str, size: Size) -> Figure:
    """One figure, with its time."""
    begun = perf_counter()
    figure: Figure = import_module(f"benchmarks.{name}").measure(size)
    figure.seconds = perf_counter() - begun
    say(f"{name}: {figure.seconds:.0f} s")
    return figure


def print_table(figures: list[Figure], caption: str) -> None:
    """The table: on a pipe as wide as it needs, without colours."""
    table = Table(title="What Scumble reaches", caption=caption, title_justify="left", caption_justify="left")
    for heading in ("claim", "measured", "target", "met"):
        table.add_column(heading, overflow="fold")
    for figure in figures:
        for line in figure.lines:
            table.add_row(line.claim, line.measured, line.target, _mark(line))
        table.add_section()
    Console(width=None if sys.stdout.isatty() else 150, highlight=False).print(table, markup=False)


def _mark(line: Line) -> str:
    return {True: "yes", False: "NO", None: ""}[line.met]


def _report(figures: list[Figure], begun: datetime, size: Size, described: dict[str, object]) -> dict[str, object]:
    return {
        "date": begun.isoformat(timespec="seconds"),
        "size": size,
        "machine": described,
        "figures": {figure.name: _as_dict(figure) for figure in figures},
    }


def _text(report: dict[str, object]) -> str:
    return json.dumps(report, indent=2, ensure_ascii=False)


def _as_dict(figure: Figure) -> dict[str, object]:
    lines = [
        {"claim": line.claim.strip(), "measured": line.measured, "target": line.target, "met": line.met}
        for line in figure.lines
    ]
    return {"seconds": round(figure.seconds, 1), "lines": lines, "values": figure.values}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAMES", help="comma-separated figures: " + ", ".join((*GROUPS, *FIGURES)))
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer builds")
    parser.add_argument("--tiny", action="store_true", help="as the tests do: numbers mean nothing")
    parser.add_argument("--json", action="store_true", help="print the JSON instead of the table")
    parser.add_argument("--dry", action="store_true", help="write no file")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
