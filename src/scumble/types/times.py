"""Calendar keys, `date:FIRST:LAST` in days and `timestamp:FIRST:LAST:RESOLUTION` in bins: times to ranks.

Everything is UTC and exact to the nanosecond; the bounds are public, the keys are secret.
"""

import re
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import ClassVar

import numpy as np

from scumble.errors import InvalidKeys
from scumble.types.domain import KEY, DomainPartError, Place
from scumble.types.grid import Grid, GridDomain, Units
from scumble.types.instants import EARLIEST_NS, LATEST_NS, nanoseconds, write_iso
from scumble.types.keys import DAY_NS, Column, Floats, Ticks, read_key

RESOLUTION = re.compile(r"(\d{1,18})(ns|us|ms|s|min|h|d)", re.ASCII)
UNITS = {
    "d": DAY_NS,
    "h": 3600 * 10**9,
    "min": 60 * 10**9,
    "s": 10**9,
    "ms": 10**6,
    "us": 10**3,
    "ns": 1,
}
_NAMES = {"low": "the first", "high": "the last"}


class _TimeGrid(GridDomain):
    """What dates and timestamps share: the unit is a nanosecond."""

    def _units(self, key: object, place: Place) -> Units:
        plain = read_key(key, place)
        instant = nanoseconds(plain, place)
        if instant is None:
            raise self._no_such_type(place, plain)
        return instant

    def _ticks(self, column: Column, place: Place) -> Ticks | None:
        if isinstance(column, Ticks) and column.kind == "time":
            return column
        if isinstance(column, Ticks | Floats) and len(column):
            raise self._no_such_type(place, column.type_name)
        return None


@dataclass(frozen=True, init=False, repr=False)
class DateDomain(_TimeGrid):
    """The days from low to high; a key with a time of day other than midnight is between two of them."""

    takes: ClassVar[str] = "dates, text such as '2020-12-31', datetime64 and Arrow dates"
    low: date
    high: date
    _grid: Grid = field(compare=False)

    def __init__(self, low: date | str, high: date | str) -> None:
        first, last = _bound("low", low), _bound("high", high)
        for part, instant in (("low", first), ("high", last)):
            if instant % DAY_NS:
                raise DomainPartError(part, f"{_NAMES[part]} day has a time of day", hint="write it like 2020-12-31")
        if last < first:
            raise DomainPartError("high", "the last day is before the first", hint="swap the bounds")
        object.__setattr__(self, "low", date.fromisoformat(write_iso(first, date_only=True)))
        object.__setattr__(self, "high", date.fromisoformat(write_iso(last, date_only=True)))
        object.__setattr__(self, "_grid", Grid.build(first, last, DAY_NS))

    @property
    def text(self) -> str:
        """The canonical text."""
        return f"date:{self.low.isoformat()}:{self.high.isoformat()}"

    def key(self, rank: int) -> date:
        """Return the day of a rank."""
        return self.low + timedelta(days=self._checked_rank(rank))


@dataclass(frozen=True, init=False, repr=False)
class TimestampDomain(_TimeGrid):
    """The instants from low to the end of the bin that holds high, in bins of one resolution."""

    takes: ClassVar[str] = "datetimes, text such as '2020-12-31T23:59:59', datetime64 and Arrow timestamps"
    low: str
    high: str
    resolution: str
    _grid: Grid = field(compare=False)

    def __init__(self, low: datetime | str, high: datetime | str, resolution: str) -> None:
        first, last, bin_ns = _bound("low", low), _bound("high", high), read_resolution(resolution)
        if last < first:
            raise DomainPartError("high", "the last time is before the first", hint="swap the bounds")
        object.__setattr__(self, "low", write_iso(first))
        object.__setattr__(self, "high", write_iso(last))
        unit = next(name for name, size in UNITS.items() if bin_ns % size == 0)
        object.__setattr__(self, "resolution", f"{bin_ns // UNITS[unit]}{unit}")
        object.__setattr__(self, "_grid", Grid.build(first, last, bin_ns, binned=True))

    @property
    def text(self) -> str:
        """The canonical text."""
        return f"timestamp:{self.low}:{self.high}:{self.resolution}"

    def key(self, rank: int) -> np.datetime64 | str:
        """Return the start of a rank's bin; as text if no unit of datetime64 holds all of them exactly."""
        grid = self._grid
        start = grid.low + self._checked_rank(rank) * grid.step * grid.width
        if grid.low % 1000 == 0 and grid.step * grid.width % 1000 == 0:
            return np.datetime64(start // 1000, "us")
        return np.datetime64(start, "ns") if -(2**63) < grid.low <= grid.high < 2**63 else write_iso(start)


def read_resolution(text: object) -> int:
    """Read the length of a bin, in nanoseconds."""
    found = RESOLUTION.fullmatch(text) if isinstance(text, str) else None
    hint = "write a whole number and ns, us, ms, s, min, h or d, such as 100ns or 15min"
    if found is None:
        raise DomainPartError("step", "the resolution cannot be read", hint=hint)
    if int(found[1]) == 0:
        raise DomainPartError("step", "the resolution is not positive", hint=hint)
    return int(found[1]) * UNITS[found[2]]


def _bound(part: str, value: object) -> int:
    try:
        instant = nanoseconds(read_key(value, KEY), KEY)
    except InvalidKeys:
        instant = None
    hint = "write it like 2020-12-31 or 2020-12-31T23:59:59"
    if instant is None:
        raise DomainPartError(part, f"{_NAMES[part]} date or time cannot be read", hint=hint)
    if instant != int(instant) or not EARLIEST_NS <= instant <= LATEST_NS:
        raise DomainPartError(
            part,
            f"{_NAMES[part]} date or time is not a whole nanosecond of the years 1 to 9999 UTC",
            hint=hint,
        )
    return int(instant)
