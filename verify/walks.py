"""How much of the package one has to read: the modules that a load and a query pass, and those that each side imports.

    python -m verify.walks [-v] [--json]

The two walks are counted by a profiler on a small embedded database that has done the same kind of work once before: a
module counts if the work calls a function of it, not if it is only imported or opened the first time. The imports are
counted in fresh processes. Nothing here is secret.
"""

import argparse
import ast
import datetime
import inspect
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

import scumble

__all__ = ["imported_by", "load_walk", "main", "query_walk", "tree"]

PACKAGE = Path(scumble.__file__).parent
ENCLAVE, FRONT = "scumble.enclave.process", "scumble.provider.server"
QUERY = "SELECT count(*), sum(amount) FROM visits WHERE day BETWEEN '2013-05-01' AND '2013-05-07'"
EARLIER_QUERY = "SELECT max(amount) FROM visits WHERE day = '2013-08-01'"  # of another shape: its plan is of no use
ROWS = 4000
SMALL_LINES = 60


def load_walk() -> list[str]:
    """The files that loading a table passes, such as "owner/database.py", in the order of their first call."""
    with tempfile.TemporaryDirectory() as folder, scumble.create(Path(folder) / "clinic", limit=10) as database:
        _load(database, "earlier")
        return _files_called(lambda: _load(database, "visits"))


def query_walk() -> list[str]:
    """The files that a query with two aggregates passes, from text to answer, in the order of their first call."""
    with tempfile.TemporaryDirectory() as folder:
        with scumble.create(Path(folder) / "clinic", limit=10) as database:
            _load(database, "visits")
        with scumble.open(Path(folder) / "clinic") as database:
            database.sql(EARLIER_QUERY).fetchall()
            return _files_called(lambda: database.sql(QUERY).fetchall())


def imported_by(module: str) -> list[str]:
    """The modules of the package that a fresh process has imported once it has imported `module`."""
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    names: list[str] = json.loads(done.stdout)
    return [name for name in names if name.split(".")[0] == "scumble"]


def tree() -> dict[str, Any]:
    """The size of the tree: modules, lines, and the modules that may be too small or too large to be one idea."""
    paths = {_module(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    lines = {name: len(path.read_text().splitlines()) for name, path in paths.items()}
    importers: dict[str, set[str]] = {name: set() for name in paths}
    for name, path in paths.items():
        for target in _imports(path):
            if target in importers and target != name:
                importers[target].add(name)
    once = [name for name in paths if len(importers[name]) == 1]
    return {
        "modules": len(lines),
        "lines": sum(lines.values()),
        "median_lines": statistics.median(lines.values()),
        "small": [name for name, count in lines.items() if count < SMALL_LINES],
        "one_importer": once,
        "small_with_one_importer": [name for name in once if lines[name] < SMALL_LINES],
        "over_400_lines": [name for name, count in lines.items() if count > 400],
    }


def _files_called(work: Callable[[], object]) -> list[str]:
    """The package's files of which a function is called while something is done, here or in a thread it starts."""
    seen: dict[str, None] = {}
    start = f"{PACKAGE}/"

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # A function's locals are optimised; those of a module or a class, which run at import, are not.
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(start):
            seen.setdefault(code.co_filename.removeprefix(start))

    with _profiled(note):
        work()
    return list(seen)


@contextmanager
def _profiled(note: Callable[[FrameType, str, object], None]) -> Iterator[None]:
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _load(database: scumble.Database, name: str) -> None:
    first = datetime.date(2013, 1, 1)
    table = pa.table(
        {
            "day": pa.array([first + datetime.timedelta(place % 365) for place in range(ROWS)]),
            "ward": pa.array([("a", "b")[place % 2] for place in range(ROWS)]),
            "amount": pa.array([Decimal(place * 7 % 10_000) / 100 for place in range(ROWS)], pa.decimal128(8, 2)),
        }
    )
    index = "day date:2013-01-01:2013-12-31 epsilon=1"
    database.load(name, table, indexes=[index], types={"ward": 'category(["a","b"])'})


def _module(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path) -> Iterator[str]:
    """Every name that a file imports or that could be a module it imports from."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def main(arguments: list[str] | None = None) -> int:
    """Count and print."""
    parser = argparse.ArgumentParser(prog="python -m verify.walks", description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true", help="print the names as well as the numbers")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    options = parser.parse_args(arguments)
    names = {
        "modules that a load passes": load_walk(),
        "modules that a query passes": query_walk(),
        "modules that an enclave process imports": imported_by(ENCLAVE),
        "modules that the front imports": imported_by(FRONT),
    }
    size = tree()
    if options.json:
        print(json.dumps({**names, **size}, indent=1))
        return 0
    for what in ("small", "one_importer", "small_with_one_importer", "over_400_lines"):
        names[f"modules: {what.replace('_', ' ')}"] = size[what]
    print(f"{size['modules']:5}  modules, {size['lines']:,} lines, median {size['median_lines']:g}")
    for what, found in names.items():
        print(f"{len(found):5}  {what}")
        if options.verbose:
            print(*(f"         {name}" for name in found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
