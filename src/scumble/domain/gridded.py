"""The domains that are regular grids: keys in exact units come in, ranks go out.

The bounds and the step are public, keys and ranks are secret.
"""

from abc import abstractmethod
from fractions import Fraction
from math import floor
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from scumble.domain.columns import Column, Ticks, read_column
from scumble.domain.contract import EMPTY, HIGH, KEY, KEYS, LOW, Domain
from scumble.domain.grid import Grid, Stray
from scumble.domain.refusals import Place, off_grid, outside, uneven, wrong_type

Units = int | Fraction | float
"""An exact number of a grid's units; a float only when it is infinite."""


class GridDomain(Domain):
    """A domain whose keys are exact numbers of units on a grid."""

    takes: ClassVar[str]  # the types of key that it maps, for messages
    _grid: Grid

    @abstractmethod
    def _units(self, key: object, place: Place) -> Units:
        """Return how many units a key is, or refuse its type."""

    @abstractmethod
    def _ticks(self, column: Column, place: Place) -> Ticks | None:
        """Return a whole column as ticks of exact units; None if it has to be read key by key."""

    @property
    def size(self) -> int:
        """The number of ranks, N."""
        return self._grid.size

    @property
    def width(self) -> int:
        """How many neighbouring steps share one rank: 1 unless the domain is larger than `MAX_SIZE`."""
        return self._grid.width

    def rank(self, key: object) -> int:
        """Return the rank of one key."""
        return self._rank_of_units(self._units(key, KEY), KEY)

    def ranks(self, keys: object) -> NDArray[np.int64]:
        """Return the rank of every key."""
        column = read_column(keys, KEYS)
        ticks = self._ticks(column, KEYS)
        if ticks is None:
            ranks = np.empty(len(column), np.int64)
            for row, key in enumerate(column.keys()):
                place = KEY.at(row)
                ranks[row] = self._rank_of_units(self._units(key, place), place)
            return ranks
        try:
            return self._grid.ranks(ticks.values, ticks.tick)
        except Stray as found:
            stray = found
        raise (off_grid if stray.between else outside)(KEY.at(stray.row), self.label)

    def span(self, low: object, high: object) -> tuple[int, int]:
        """Return the first and last rank of the query low <= key <= high."""
        return self._span_of_units(
            None if low is None else self._units(low, LOW), None if high is None else self._units(high, HIGH)
        )

    def spans(self, lows: object, highs: object) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first and last rank of many queries."""
        low = None if lows is None else read_column(lows, LOW)
        high = None if highs is None else read_column(highs, HIGH)
        if low is None and high is None:
            return np.array([0]), np.array([self.size - 1])
        if low is not None and high is not None and len(low) != len(high):
            raise uneven(len(low), len(high))
        low_ticks = None if low is None else self._ticks(low, LOW)
        high_ticks = None if high is None else self._ticks(high, HIGH)
        known = [ticks for ticks in (low_ticks, high_ticks) if ticks is not None]
        read_all = (low is None or low_ticks is not None) and (high is None or high_ticks is not None)
        if read_all and known[0].tick == known[-1].tick:
            return self._grid.spans(
                None if low_ticks is None else low_ticks.values,
                None if high_ticks is None else high_ticks.values,
                known[0].tick,
            )
        count = len(low if low is not None else high or [])
        each_low = self._each_units(low, LOW, count)
        each_high = self._each_units(high, HIGH, count)
        pairs = [self._span_of_units(*bounds) for bounds in zip(each_low, each_high, strict=True)]
        both = np.array(pairs, np.int64).reshape(-1, 2)
        return both[:, 0].copy(), both[:, 1].copy()

    def _each_units(self, column: Column | None, place: Place, count: int) -> list[Units | None]:
        if column is None:
            return [None] * count
        ticks = self._ticks(column, place)
        if ticks is not None:
            return [value * ticks.tick for value in ticks.values.tolist()]
        return [self._units(key, place.at(row)) for row, key in enumerate(column.keys())]

    def _rank_of_units(self, units: Units, place: Place) -> int:
        grid = self._grid
        if grid.binned and isinstance(units, Fraction):
            units = floor(units)
        if not grid.low <= units <= grid.high or isinstance(units, float):
            raise outside(place, self.label)
        point, rest = divmod(units - grid.low, grid.step)
        if rest and not grid.binned:
            raise off_grid(place, self.label)
        return point >> grid.shift

    def _span_of_units(self, low: Units | None, high: Units | None) -> tuple[int, int]:
        grid = self._grid
        if low is not None and high is not None and low > high:
            return EMPTY
        first, last = 0, grid.points - 1
        if low is not None and low > grid.low:
            if isinstance(low, float) or (floor(low) if grid.binned else low) > grid.high:
                return EMPTY
            first = (low - grid.low) // grid.step if grid.binned else -((grid.low - low) // grid.step)
        if high is not None and high <= grid.high:
            if isinstance(high, float) or high < grid.low:
                return EMPTY
            last = (high - grid.low) // grid.step
        return EMPTY if first > last else (first >> grid.shift, last >> grid.shift)

    def _no_such_type(self, place: Place, found: object) -> Exception:
        name = found if isinstance(found, str) else type(found).__name__
        return wrong_type(place, name, self.label, self.takes)
