"""All experiments of the paper: run them, keep every cell, write tables and figures.

python -m benchmarks.paper.run --out paper-output             everything, up to an hour
python -m benchmarks.paper.run --out paper-output --quick     fewer and smaller, a few minutes
python -m benchmarks.paper.run --only accuracy,overhead       some experiments
python -m benchmarks.paper.run --keys "bureau 250K=bureau_sampled_250k.csv" --keys "trans 1M=trans.csv:account_id"
                                                              the authors' keys, where you have them, for our stand-ins

python -m benchmarks.paper.run --publish                       and write docs/results.md from it, as `make paper` does

What is finished is kept under OUT/cells and not measured again, unless the code or the terms have changed.
"""

import argparse
import json
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.figure import Size, machine
from benchmarks.paper import document
from benchmarks.paper.keys import BadKeys, KeysFile
from benchmarks.paper.lab import Lab, source_of

__all__ = ["EXPERIMENTS", "main"]

EXPERIMENTS = ("accuracy", "overhead", "storage", "times", "scans", "tradeoff", "risk", "formal", "illustrations")
ROOMS = ("index", "privacy", "lab/comparators")  # whose code the cells are measured with
HERE = Path(__file__).parent


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for."""
    options = _parser().parse_args(arguments)
    names = [name.strip() for name in options.only.split(",")] if options.only else list(EXPERIMENTS)
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        print(f"no such experiment: {', '.join(unknown)}; there are {', '.join(EXPERIMENTS)}", file=sys.stderr)
        return 2
    try:
        files = [KeysFile.parse(text) for text in options.keys]
        for file in files:
            file.counted()
    except BadKeys as bad:
        print(f"--keys: {bad}", file=sys.stderr)
        return 2
    size: Size = "tiny" if options.tiny else "quick" if options.quick else "full"
    options.out.mkdir(parents=True, exist_ok=True)
    source = source_of([HERE, *(HERE.parents[1] / "src" / "scumble" / room for room in ROOMS)])
    console = Console(stderr=True)
    seconds: dict[str, float] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[cell]}"))
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("the paper", total=len(names), cell="")

        def tell(text: str) -> None:
            progress.update(task, cell=text)
            if not console.is_terminal:
                print(f"  {text}", file=sys.stderr, flush=True)

        lab = Lab(options.out, size, tell, fresh=options.fresh, stale=options.stale, source=source)
        lab.shared = options.shared
        lab.sources |= {file.name: file.source() for file in files}
        lab.digests |= {file.name: file.digest for file in files}
        for name in names:
            progress.update(task, description=name)
            begun = perf_counter()
            import_module(f"benchmarks.paper.{name}").run(lab)
            seconds[name] = round(perf_counter() - begun, 1)
            progress.advance(task)
    report = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "size": size,
        "machine": machine(),
        "seconds": seconds,
        "cells_measured": lab.measured,
        "cells_kept": lab.kept,
        "left_out": lab.missing,
        "keys": lab.digests,
    }
    (options.out / f"run-{size}.json").write_text(json.dumps(report, indent=1) + "\n")
    if options.publish:
        document.publish(options.out)
    for name in names:
        print(f"{name}: {seconds[name]:.1f} s")
    print(f"{lab.measured} cells measured, {lab.kept} kept from before; tables and figures are in {options.out}")
    for name, reason in lab.missing.items():
        print(f"left out: {name} ({reason})")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("paper-output"), help="folder for cells, tables and figures")
    parser.add_argument("--only", metavar="NAMES", help="comma-separated experiments: " + ", ".join(EXPERIMENTS))
    parser.add_argument(
        "--keys",
        action="append",
        default=[],
        metavar="[NAME=]FILE[:COLUMN]",
        help="a file of keys as a data set (whole numbers, one a line, a .csv column or a .npy array); NAME may be one "
        "of ours, which it replaces",
    )
    parser.add_argument("--quick", action="store_true", help="fewer and smaller: a few minutes on two cores")
    parser.add_argument("--tiny", action="store_true", help="as the tests do: numbers mean nothing")
    parser.add_argument("--shared", action="store_true", help="note that the machine did other work meanwhile")
    parser.add_argument("--publish", action="store_true", help="keep the tables, and write docs/results.md from them")
    parser.add_argument("--fresh", action="store_true", help="measure again what is kept")
    parser.add_argument("--stale", action="store_true", help="take what is kept even if the code has changed since")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
