"""Regular grids: the exact arithmetic from keys in whole units to ranks, and the domains that use it.

The bounds and the step are public, keys and ranks are secret.
"""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from math import floor, gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble.types.domain import EMPTY, MAX_SIZE, Domain, Ranks, off_grid, outside
from scumble.types.keys import HIGH, KEY, KEYS, LOW, KeyColumn, Place, Ticks

AnyArray = NDArray[Any]

_WORD = 2**64
_BLOCK = 1 << 15  # values handled at a time, so that intermediate columns stay in the cache


class Stray(Exception):
    """The first row that the grid does not hold."""

    def __init__(self, row: int, *, between: bool) -> None:
        super().__init__()
        self.row = row
        self.between = between


def coarsen(points: int) -> int:
    """Return the smallest power of two w such that ceil(points / w) <= MAX_SIZE."""
    width = 1
    while -(-points // width) > MAX_SIZE:
        width *= 2
    return width


@dataclass(frozen=True, slots=True)
class Axis:
    """A grid as whole multiples v of some tick see it: least <= v <= most lie inside.

    The point of v is floor or ceil of ((v - least) * scale + rest) / step; `rest` is rounded down for the
    floor and up for the ceiling, so that both stay exact after the common factor is divided out.
    """

    least: int
    most: int
    scale: int
    rest_down: int
    rest_up: int
    step: int

    @property
    def is_wide(self) -> bool:
        """Whether some point needs more than 64 bits on the way, so that slow Python integers do the work."""
        return (self.most - self.least) * self.scale + self.rest_up + self.step - 1 >= _WORD

    def offsets(self, values: AnyArray) -> AnyArray:
        """Return v - least, exactly, for values inside; the modular subtraction is right there."""
        if self.is_wide:
            return values.astype(object) - self.least
        words = values.view(np.uint64)
        return words if self.least == 0 else words - np.uint64(self.least % _WORD)

    def clipped(self, values: AnyArray) -> AnyArray:
        """Return the offsets of the values brought inside; all 0 if the type has no value inside."""
        info = np.iinfo(values.dtype.name)
        least, most = max(self.least, int(info.min)), min(self.most, int(info.max))
        if least > most:
            return np.zeros(len(values), object if self.is_wide else np.uint64)
        return self.offsets(np.minimum(np.maximum(values, least), most))

    def down(self, offsets: AnyArray) -> AnyArray:
        """Return the last point at or before each value."""
        return self._divide(offsets, self.rest_down)

    def up(self, offsets: AnyArray) -> AnyArray:
        """Return the first point at or after each value."""
        return self._divide(offsets, self.rest_up + self.step - 1)

    def _divide(self, offsets: AnyArray, rest: int) -> AnyArray:
        if self.scale != 1:
            offsets = offsets * self.scale
        if rest != 0:
            offsets = offsets + rest
        return offsets if self.step == 1 else offsets // self.step


@dataclass(frozen=True, slots=True)
class Grid:
    """The points low, low + step, ..., in whole units; `width` of them (a power of two) share a rank.

    `binned` grids hold every value up to `high`, rounded down to its point; the others hold only the points.
    """

    low: int
    high: int
    step: int
    binned: bool
    points: int
    width: int

    @classmethod
    def build(cls, low: int, high: int, step: int, *, binned: bool = False) -> "Grid":
        """Lay the grid; a binned one keeps its last bin whole, so that `high` may lie anywhere in it."""
        points = (high - low) // step + 1
        return cls(low, low + points * step - 1 if binned else high, step, binned, points, coarsen(points))

    @property
    def size(self) -> int:
        return -(-self.points // self.width)

    @property
    def shift(self) -> int:
        """The number of bits by which a point's number exceeds its rank's."""
        return self.width.bit_length() - 1

    def axis(self, tick: Fraction) -> Axis:
        """Return the grid as whole multiples of `tick` units see it."""
        scale, parts = tick.numerator, tick.denominator
        low, step = self.low * parts, self.step * parts
        high = (self.high + 1) * parts - 1 if self.binned else self.high * parts
        least, most = -(-low // scale), high // scale
        rest = least * scale - low
        common = gcd(scale, step)
        return Axis(least, most, scale // common, rest // common, -(-rest // common), step // common)

    def ranks(self, values: AnyArray, tick: Fraction) -> Ranks:
        """Return the ranks of int64 or uint64 multiples of `tick`; raise `Stray` at the first not held."""
        if len(values) == 0:
            return np.zeros(0, np.int64)
        axis = self.axis(tick)
        exact = self.binned or (axis.step == 1 and axis.rest_down == axis.rest_up)
        ranks = np.empty(len(values), np.int64)
        for start in range(0, len(values), _BLOCK):
            block = values[start : start + _BLOCK]
            if block.min() < axis.least or block.max() > axis.most:
                raise Stray(start + int(np.argmax((block < axis.least) | (block > axis.most))), between=False)
            offsets = axis.offsets(block)
            points = axis.down(offsets)
            if not exact and (strays := points != axis.up(offsets)).any():
                raise Stray(start + int(np.argmax(strays)), between=True)
            ranks[start : start + _BLOCK] = points if self.width == 1 else points >> self.shift
        return ranks

    def spans(self, lows: AnyArray | None, highs: AnyArray | None, tick: Fraction) -> tuple[Ranks, Ranks]:
        """Return the spans of the queries between two columns of multiples of `tick`; None is open-ended."""
        count = len(lows) if lows is not None else len(highs) if highs is not None else 0
        axis = self.axis(tick)
        firsts, lasts = np.empty(count, np.int64), np.empty(count, np.int64)
        for start in range(0, count, _BLOCK):
            rows = slice(start, min(start + _BLOCK, count))
            low = None if lows is None else lows[rows]
            high = None if highs is None else highs[rows]
            answered = np.ones(rows.stop - start, np.bool_)
            first, last = self._first_points(axis, low, answered), self._last_points(axis, high, answered)
            answered &= first <= last
            if self.binned and low is not None and high is not None:
                answered &= axis.clipped(low) <= axis.clipped(high)  # low > high within one bin
            # Multiplying by the mask picks without a branch: first, or 0; last, or -1.
            np.multiply(first >> self.shift, answered, out=firsts[rows], casting="unsafe")
            np.multiply((last >> self.shift) + 1, answered, out=lasts[rows], casting="unsafe")
            lasts[rows] -= 1
        return firsts, lasts

    def _first_points(self, axis: Axis, lows: AnyArray | None, answered: NDArray[np.bool_]) -> AnyArray:
        """Return the first point of each query, and strike those that start after the grid."""
        if lows is None:
            return np.zeros(len(answered), np.uint64)
        answered &= lows <= axis.most
        offsets = axis.clipped(lows)
        points = axis.down(offsets) if self.binned else axis.up(offsets)
        # With a tick coarser than a unit, what lies before the grid need not clip to point 0.
        return points if axis.rest_up == 0 else points * (lows >= axis.least)

    def _last_points(self, axis: Axis, highs: AnyArray | None, answered: NDArray[np.bool_]) -> AnyArray:
        """Return the last point of each query, and strike those that end before the grid."""
        last = self.points - 1
        if highs is None:
            return np.full(len(answered), last, object if last >= _WORD else np.uint64)
        answered &= highs >= axis.least
        points = axis.down(axis.clipped(highs))
        # Likewise what lies after the grid need not clip to the last point.
        right: AnyArray = points + (last - points) * (highs > axis.most)
        return right


Units = int | Fraction | float
"""An exact number of a grid's units; a float only when it is infinite."""


class GridDomain(Domain):
    """A domain whose keys are exact numbers of units on a grid."""

    _grid: Grid

    @abstractmethod
    def _exact(self, key: object, place: Place) -> Units:
        """Return how many units a key is, or refuse its type."""

    @abstractmethod
    def _ticks(self, column: KeyColumn, place: Place) -> Ticks | None:
        """Return a whole column as ticks of exact units; None if it has to be read key by key."""

    @property
    def size(self) -> int:
        return self._grid.size

    @property
    def width(self) -> int:
        return self._grid.width

    def _column_ranks(self, column: KeyColumn) -> Ranks | None:
        ticks = self._ticks(column, KEYS)
        if ticks is None:
            return None
        try:
            return self._grid.ranks(ticks.values, ticks.tick)
        except Stray as found:
            stray = found
        raise (off_grid if stray.between else outside)(KEY.at(stray.row), self.label)

    def _column_spans(self, low: KeyColumn | None, high: KeyColumn | None) -> tuple[Ranks, Ranks] | None:
        lows = None if low is None else self._ticks(low, LOW)
        highs = None if high is None else self._ticks(high, HIGH)
        known = [ticks for ticks in (lows, highs) if ticks is not None]
        read_all = (low is None or lows is not None) and (high is None or highs is not None)
        if not read_all or known[0].tick != known[-1].tick:
            return None
        return self._grid.spans(
            None if lows is None else lows.values, None if highs is None else highs.values, known[0].tick
        )

    def _each(self, column: KeyColumn, place: Place) -> list[Any]:
        ticks = self._ticks(column, place)
        if ticks is not None:
            return [value * ticks.tick for value in ticks.values.tolist()]
        return super()._each(column, place)

    def _rank_of(self, exact: Units, place: Place) -> int:
        grid = self._grid
        units = floor(exact) if grid.binned and isinstance(exact, Fraction) else exact
        if not grid.low <= units <= grid.high or isinstance(units, float):
            raise outside(place, self.label)
        point, rest = divmod(units - grid.low, grid.step)
        if rest and not grid.binned:
            raise off_grid(place, self.label)
        return point >> grid.shift

    def _span_of(self, low: Units | None, high: Units | None) -> tuple[int, int]:
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
