"""`make verify`: run every check and print a table of what is claimed, how it was attacked and what was found.

Each module of CHECKS has `rows(seconds)`, which yields its rows within about that time. The table is also written to
verify-output/verify.json; nothing in it is secret. The exit code is 1 unless every row holds and every planted
defect was caught.
"""

import argparse
import importlib
import json
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

from verify import Row

__all__ = ["CHECKS", "NEEDED", "checked", "main", "needs", "table"]

# The seconds that each check may take on two cores. Together with pytest's slow proofs they must stay below 25 minutes.
CHECKS = {
    "obliviousness": 180,
    "python_side": 180,
    "timing": 60,
    "audit": 150,
    "lifecycle": 30,
    "attacks": 120,
    "fuzz": 90,
    "sanitizers": 20,
    "mutants": 110,
    "soak": 40,
    "service": 50,
    "histories": 50,
}
# What these find is partly a matter of luck: a new input, a noisy machine. `--lenient` prints it without failing.
LUCK = ("timing", "fuzz", "soak", "service", "histories")
OUTPUT = Path("verify-output")
# Beyond Python, gcc and make: the program, and Debian's package that has it.
NEEDED = {"valgrind": "valgrind", "clang": "clang", "objdump": "binutils", "spin": "spin"}
WIDTHS = {"claim": 40, "check": 24, "figure": 44, "planted": 26}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; 0 if every row holds."""
    parser = argparse.ArgumentParser(prog="python -m verify.run", description=__doc__)
    parser.add_argument("--only", metavar="NAMES", help=f"some of {','.join(CHECKS)}")
    parser.add_argument("--seconds-scale", metavar="X", type=float, default=1.0, help="times each check's seconds")
    parser.add_argument("--lenient", action="store_true", help=f"let {', '.join(LUCK)} report, but not decide")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--out", metavar="FOLDER", type=Path, default=OUTPUT, help="where verify.json goes")
    options = parser.parse_args(arguments)
    names = options.only.split(",") if options.only else list(CHECKS)
    if unknown := [name for name in names if name not in CHECKS]:
        parser.error(f"there is no check {', '.join(unknown)}")
    if lacking := needs():
        _say(f"missing: {', '.join(lacking)}; rows that need them will not hold. apt-get install {' '.join(lacking)}")
    found, seconds = [], {}
    for name in names:
        start = time.monotonic()
        _say(f"{name} ...")
        for row in checked(name, CHECKS[name] * options.seconds_scale):
            found.append((name, row))
            _say(f"  {'ok ' if row.ok else 'NOT'} {row.claim}: {row.figure}")
        seconds[name] = round(time.monotonic() - start, 1)
    report = {"rows": [{"module": name, **asdict(row), "ok": row.ok} for name, row in found], "seconds": seconds}
    options.out.mkdir(exist_ok=True)
    (options.out / "verify.json").write_text(json.dumps(report, indent=1) + "\n")
    sys.stdout.write(json.dumps(report) + "\n" if options.json else table(row for _, row in found) + "\n")
    bad = sum(not row.ok for name, row in found if not (options.lenient and name in LUCK))
    minutes = sum(seconds.values()) / 60
    _say(f"{sum(row.ok for _, row in found)} of {len(found)} rows hold, after {minutes:.1f} minutes")
    return 1 if bad or not found else 0


def needs() -> list[str]:
    """The Debian packages that are missing."""
    return [package for program, package in NEEDED.items() if not shutil.which(program)]


def checked(name: str, seconds: float, load: Callable[[str], ModuleType] = importlib.import_module) -> Iterator[Row]:
    """The rows of a module; if it is missing, raises or yields nothing, a row that does not hold."""
    count = 0
    try:
        for row in load(f"verify.{name}").rows(seconds):
            count += 1
            yield row
    except Exception as error:  # the other checks should still run
        yield Row(f"{name} runs to its end", "run", f"{type(error).__name__}: {error}", False)
    else:
        if not count:
            yield Row(f"{name} checks something", "run", "no rows", False)


def table(found: Iterable[Row]) -> str:
    """The rows as text: claim, check, figure, planted defects, whether it holds."""
    columns = [*WIDTHS, "holds"]
    lines = [_line([[name] for name in columns]), _line([["-" * width] for width in [*WIDTHS.values(), 5]])]
    for row in found:
        cells = [row.claim, row.check, row.figure, _planted(row)]
        wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, WIDTHS.values(), strict=True)]
        lines.append(_line([*wrapped, ["yes" if row.ok else "NO"]]))
    return "\n".join(lines)


def _planted(row: Row) -> str:
    if not row.planted:
        return "none planted"
    missed = [name for name in row.planted if name not in row.caught]
    if missed:
        return f"NOT caught: {', '.join(missed)}"
    return f"caught: {', '.join(row.planted)}"


def _line(cells: list[list[str]]) -> str:
    widths = [*WIDTHS.values(), 5]
    height = max(map(len, cells))
    padded = [cell + [""] * (height - len(cell)) for cell in cells]
    return "\n".join(
        "  ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip()
        for parts in zip(*padded, strict=True)
    )


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
