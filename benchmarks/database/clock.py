"""Time several contestants side by side: the typical seconds of one call of each.

The machine may be busy with something else. So contestants take turns in rounds, every round has a median, and the
least of a contestant's medians counts: what it takes when it is disturbed least, by the same rule for everyone.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Any

__all__ = ["shown", "side_by_side"]

Contestant = Callable[..., object]


def side_by_side(
    contestants: Mapping[str, Contestant], arguments: Sequence[tuple[Any, ...]], rounds: int, calls: int
) -> dict[str, float]:
    """Call each with `calls` of the arguments in each round; the least of its rounds' medians, in seconds."""
    best = dict.fromkeys(contestants, float("inf"))
    place = 0
    for _ in range(rounds):
        chosen = [arguments[(place + call) % len(arguments)] for call in range(calls)]
        place += calls
        for name, contestant in contestants.items():
            contestant(*chosen[0])  # the caches still hold what the previous contestant used
            best[name] = min(best[name], median(_timed(contestant, one) for one in chosen))
    return best


def shown(seconds: float) -> str:
    """A time for people."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _timed(contestant: Contestant, arguments: tuple[Any, ...]) -> float:
    start = perf_counter()
    contestant(*arguments)
    return perf_counter() - start
