"""Whole-number keys between two public bounds, `int:LOW:HIGH[:STEP]`, from integers to ranks."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from scumble.types.domain import EMPTY, HIGH, LOW, DomainPartError, Place
from scumble.types.grid import Grid, GridDomain
from scumble.types.keys import Column, Objects, Ticks, read_key

_LEAST, _MOST = -(2**63), 2**64 - 1


@dataclass(frozen=True, init=False, repr=False)
class IntegerDomain(GridDomain):
    """The integers low, low + step, ... up to high, of 64 bits with or without sign."""

    takes: ClassVar[str] = "integers; cast whole floats to int64 first"
    low: int
    high: int
    step: int
    _grid: Grid = field(compare=False)
    _plain: bool = field(compare=False)

    def __init__(self, low: int, high: int, step: int = 1) -> None:
        low, high, step = (_integer(part, value) for part, value in (("low", low), ("high", high), ("step", step)))
        if step <= 0:
            raise DomainPartError("step", "the step is not positive", hint="use a step of 1 or more")
        if high < low:
            raise DomainPartError("high", "the upper bound is below the lower bound", hint="swap the bounds")
        grid = Grid.build(low, high, step)
        for name, value in (("low", low), ("high", high), ("step", step), ("_grid", grid)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_plain", step == 1 and grid.width == 1)

    @property
    def text(self) -> str:
        """The canonical text."""
        return f"int:{self.low}:{self.high}" + ("" if self.step == 1 else f":{self.step}")

    def key(self, rank: int) -> int:
        """Return the smallest integer of a rank."""
        return self.low + self._checked_rank(rank) * self.step * self.width

    def span(self, low: object, high: object) -> tuple[int, int]:
        """Return the first and last rank of the query low <= key <= high; the fast way for one query."""
        first = self.low if low is None else low if type(low) is int else self._units(low, LOW)
        last = self.high if high is None else high if type(high) is int else self._units(high, HIGH)
        least = self.low
        if first < least:  # noqa: PLR1730  (half the time of `max`)
            first = least
        if last > self.high:  # noqa: PLR1730
            last = self.high
        if first > last:
            return EMPTY
        if self._plain:
            return first - least, last - least
        return self._span_of_units(first, last)

    def rank(self, key: object) -> int:
        """Return the rank of one integer."""
        if self._plain and type(key) is int and self.low <= key <= self.high:
            return key - self.low
        return super().rank(key)

    def _units(self, key: object, place: Place) -> int:
        plain = int(key) if type(key) is np.int64 else read_key(key, place)
        if isinstance(plain, int) and not isinstance(plain, bool):
            return plain
        raise self._no_such_type(place, plain)

    def _ticks(self, column: Column, place: Place) -> Ticks | None:
        if isinstance(column, Ticks) and column.kind == "integer":
            return column
        if isinstance(column, Objects) or len(column) == 0:
            return None
        raise self._no_such_type(place, column.type_name)


def _integer(part: str, value: object) -> int:
    if not isinstance(value, int | np.integer) or isinstance(value, bool | np.timedelta64):
        raise DomainPartError(part, f"{_NAMES[part]} is not an integer", hint="write int:LOW:HIGH or int:LOW:HIGH:STEP")
    if not _LEAST <= value <= _MOST:
        raise DomainPartError(part, f"{_NAMES[part]} does not fit in 64 bits", hint="use decimal:LOW:HIGH:STEP")
    return int(value)


_NAMES = {"low": "the lower bound", "high": "the upper bound", "step": "the step"}
