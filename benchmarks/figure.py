"""What a figure returns: lines for the table, and the numbers behind them for the JSON file."""

import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, TypeVar

from scumble import IntegerDomain
from scumble.index.contract import Index
from scumble.owner.ledger import Ledger
from scumble.privacy.budget import Budget

__all__ = ["Figure", "Line", "Size", "budget", "fitted", "machine", "one_core", "patched", "say", "seconds"]

AnyIndex = TypeVar("AnyIndex", bound=Index)
Size = Literal["full", "quick", "tiny"]  # tiny is for the tests


@dataclass(frozen=True)
class Line:
    """One claim of the table; `met` is None where there is no target to meet."""

    claim: str
    measured: str
    target: str = ""
    met: bool | None = None


@dataclass
class Figure:
    """One figure: what the table says, and the numbers behind it."""

    name: str
    lines: list[Line] = field(default_factory=list)
    values: dict[str, object] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, claim: str, measured: str, target: str = "", met: bool | None = None) -> None:
        self.lines.append(Line(claim, measured, target, met))


def budget(epsilon: float | Fraction = 1, delta: Fraction | int = 0) -> Budget:
    """A budget from a ledger of its own: every build of a benchmark is on made-up data."""
    ledger = Ledger(limit=epsilon, delta_limit=delta)
    return ledger.spend(epsilon, "benchmark", delta=delta)


def fitted(
    index: AnyIndex, counts: Any, epsilon: float | Fraction = 1, delta: Fraction | int = 0, **options: Any
) -> AnyIndex:
    """Build an index over the ranks of these counts, with a budget of its own."""
    domain = IntegerDomain(0, len(counts) - 1)
    return index.fit_counts(counts, domain=domain, budget=budget(epsilon, delta), **options)


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The shortest of some runs: the one that was disturbed least."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return min(times)


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this process, and what it starts, on one core: OpenMP (pygm) then counts one as well."""
    if not hasattr(os, "sched_setaffinity"):  # only Linux has it
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def patched(module: object, **values: object) -> Iterator[None]:
    """Set constants or functions of a module for a while: for sweeps and ablations only."""
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def say(text: str) -> None:
    """Progress, on stderr so that the table can be piped."""
    print(f"  {text}", file=sys.stderr, flush=True)


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    import numpy as np
    import psutil

    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load_1min_at_start": round(os.getloadavg()[0], 2),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "source_sha256": _source(),
    }


def _source() -> str:
    """Which code was measured: a hash over the package's and the kernels' files."""
    root = Path(__file__).parents[1]
    digest = sha256()
    for path in sorted([*root.glob("src/scumble/**/*.py"), *root.glob("native/*.[ch]")]):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return names[0] if names else platform.processor()
