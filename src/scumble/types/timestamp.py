"""Timestamps: a value's word counts the type's unit since 1970 in UTC. The key domain is `timestamp:FIRST:LAST:BIN`.

Everything is UTC and exact to the nanosecond; the bounds of a domain are public, the keys are secret.
"""

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from scumble.types.arrow import values_of
from scumble.types.column import Bracket, ColumnType, SqlType, ValueWords
from scumble.types.date import (
    EPOCH,
    FIRST_DAY,
    ISO_TIME,
    LAST_DAY,
    TimeGrid,
    bound_of,
    microseconds_of,
    read_iso,
    ticks_of,
    write_iso,
)
from scumble.types.domain import Domain, DomainPartError, Part
from scumble.types.grid import Grid
from scumble.types.keys import DAY_NS
from scumble.types.schema import Column

_ZONED = "timestamp with time zone"
_ARROW_UNITS = {"timestamp_s": "s", "timestamp_ms": "ms", "timestamp": "us", "timestamp_ns": "ns", _ZONED: "us"}
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_SECONDS = 86_400
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?)?", re.ASCII)
_ZONED_MOMENT = re.compile(_MOMENT.pattern.removesuffix(")?") + r"(?:Z|[+-][0-9]{2}:[0-9]{2})?)?", re.ASCII)

RESOLUTION = re.compile(r"(\d{1,18})(ns|us|ms|s|min|h|d)", re.ASCII)
UNITS = {"d": DAY_NS, "h": 3600 * 10**9, "min": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_TIME_FIELD = re.compile(r"[^:T ]*(?:[T ][^:]*(?::\d\d){0,2}[^:]*(?:[+-]\d\d:\d\d)?)?")


@dataclass(frozen=True)
class TimestampType(ColumnType):
    """A timestamp in seconds to nanoseconds, or one with a time zone in microseconds; `zone` is what Arrow shows."""

    kind = "timestamp"
    names = {name: name for name in _ARROW_UNITS} | {
        "datetime": "timestamp",
        "timestamp_us": "timestamp",
        "timestamp without time zone": "timestamp",
        "timestamptz": _ZONED,
    }
    families = ("timestamp", "zoned")
    examples = tuple(_ARROW_UNITS)
    sql_types = (
        SqlType("TIMESTAMP", 93, 26, quote="'", subcode=3),
        SqlType("TIMESTAMP WITH TIME ZONE", 93, 32, quote="'", subcode=5),
    )
    arrow_name = "timestamp"
    full_interval = (-(2**63),), (2**63 - 1,)

    zone: str = ""

    @classmethod
    def of_text(cls, name: str, rest: str) -> Self:
        """Read the type; one with a time zone is shown in UTC."""
        plain = super().of_text(name, rest)
        return replace(plain, zone="UTC") if name == _ZONED else plain

    @cached_property
    def _unit(self) -> str:
        return _ARROW_UNITS[self.sql]

    @cached_property
    def _unit_ns(self) -> int:
        return 10**9 // _PER_SECOND[self._unit]

    @property
    def tick(self) -> tuple[str, Fraction]:
        return "time", Fraction(self._unit_ns)

    def _words(self, value: object) -> ValueWords | None:
        ticks = ticks_of(value) if isinstance(value, date | np.datetime64) else None
        return None if ticks is None or ticks % self._unit_ns else (ticks // self._unit_ns,)

    def value_of(self, words: ValueWords) -> datetime | np.datetime64:
        """Return the moment, in UTC if the type has a zone; as an np.datetime64 where Python cannot hold it."""
        if self._unit == "ns":
            return np.datetime64(words[0], "ns")
        try:
            moment = EPOCH + timedelta(microseconds=words[0] * (self._unit_ns // 1000))
        except OverflowError:
            return np.datetime64(words[0], self._unit)  # type: ignore[call-overload, no-any-return]
        return moment.replace(tzinfo=UTC) if self.sql == _ZONED else moment

    def _bracket(self, value: object) -> Bracket | None:
        unit = self._unit_ns
        match value:
            case str():
                ticks = read_iso(value) if (_ZONED_MOMENT if self.sql == _ZONED else _MOMENT).fullmatch(value) else None
                if ticks is None or ticks % unit:  # DuckDB would round or cut it off
                    return None
            case date() | np.datetime64():
                ticks = ticks_of(value) if unit == 1 and isinstance(value, np.datetime64) else microseconds_of(value)
                if ticks is None or (unit == 1 and isinstance(value, datetime) and value.tzinfo is not None):
                    return None
            case _:
                return None
        if unit == 1 and not abs(ticks) < 2**63 - DAY_NS:  # DuckDB refuses some literals at the very ends
            return None
        return -(-ticks // unit), ticks // unit

    def comparable_with(self, other: ColumnType) -> bool:
        """Words count the same unit, and both have a zone or neither."""
        return isinstance(other, TimestampType) and self.sql == other.sql

    def _span(self, domain: Domain, low: ValueWords, high: ValueWords) -> tuple[int, int]:
        per_second = _PER_SECOND[self._unit]
        least, most = FIRST_DAY * _DAY_SECONDS * per_second, (LAST_DAY + 1) * _DAY_SECONDS * per_second - 1
        return self._clipped_span(domain, low, high, max(least, -(2**63) + 1), most)

    @property
    def arrow_type(self) -> Any:
        import pyarrow as pa

        return pa.timestamp("us", tz=self.zone or "UTC") if self.sql == _ZONED else pa.timestamp(self._unit)

    @property
    def sources(self) -> frozenset[str]:
        return frozenset(["zoned", "string"] if self.sql == _ZONED else ["timestamp", "date", "string"])

    @classmethod
    def of_arrow(cls, field: Any) -> Self:
        """Return the type; a field with a zone is kept in microseconds."""
        if field.type.tz:
            return cls(_ZONED, zone=field.type.tz)
        return cls(next(sql for sql, unit in _ARROW_UNITS.items() if unit == field.type.unit))

    def as_in(self, field: Any) -> ColumnType:
        """Return the type with the time zone of the field, if both have one."""
        zone = getattr(field.type, "tz", None)
        return replace(self, zone=zone) if self.zone and zone else self

    def encode(self, column: Column, array: Any, valid: NDArray[np.uint8] | None, first_row: int) -> NDArray[np.int64]:
        return values_of(array, np.int64).copy()


@dataclass(frozen=True, init=False, repr=False)
class TimestampDomain(TimeGrid):
    """The instants from low to the end of the bin that holds high, in bins of one resolution."""

    name: ClassVar[str] = "timestamp"
    # A time takes up to the colon after its seconds, so that a wrong one is still underlined as a whole.
    parts: ClassVar[tuple[Part, ...]] = (
        Part("low", "the first time", ISO_TIME, "a time", field=_TIME_FIELD),
        Part("high", "the last time", ISO_TIME, "a time", field=_TIME_FIELD),
        Part("step", "the resolution", RESOLUTION, "a number and ns, us, ms, s, min, h or d"),
    )
    example: ClassVar[str] = (
        "timestamp:FIRST:LAST:RESOLUTION, for example timestamp:2020-01-01T00:00:00:2020-12-31T23:59:59:1s"
    )
    takes: ClassVar[str] = "datetimes, text such as '2020-12-31T23:59:59', datetime64 and Arrow timestamps"
    low: str
    high: str
    resolution: str
    _grid: Grid = field(compare=False)

    def __init__(self, low: datetime | str, high: datetime | str, resolution: str) -> None:
        first, last, bin_ns = bound_of("low", low), bound_of("high", high), read_resolution(resolution)
        if last < first:
            raise DomainPartError("high", "the last time is before the first", hint="swap the bounds")
        unit = next(name for name, size in UNITS.items() if bin_ns % size == 0)
        grid = Grid.build(first, last, bin_ns, binned=True)
        self._set(low=write_iso(first), high=write_iso(last), resolution=f"{bin_ns // UNITS[unit]}{unit}", _grid=grid)

    @property
    def cell_type(self) -> str:
        return "timestamp_ns" if self.resolution.endswith("ns") else "timestamp"

    @property
    def text(self) -> str:
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
