"""Dates: a value's word is its days since 1970. Their key domain is `date:FIRST:LAST`.

Times share what is here: the reading of dates, times and ISO text as exact nanoseconds since 1970 in UTC, and the grid
of a calendar domain. A time without a zone is taken as UTC. A domain's bounds are public, keys and ranks are secret.
"""

import re
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidKeys
from scumble.types.arrow import values_of
from scumble.types.column import Bracket, ColumnType, SqlType, ValueWords
from scumble.types.domain import Domain, DomainPartError, Part, unreadable
from scumble.types.grid import Grid, GridDomain, Units
from scumble.types.keys import DAY_NS, KEY, UNIT_NS, Floats, KeyColumn, Place, Ticks, is_null, read_key
from scumble.types.schema import Column

ISO_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
ISO_TIME = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})"
    r"(?:[T ](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?(?:Z|([+-])(\d{2}):(\d{2}))?)?",
    re.ASCII,
)
EPOCH = datetime(1970, 1, 1)
EARLIEST_NS = (date(1, 1, 1) - date(1970, 1, 1)).days * DAY_NS
LATEST_NS = ((date(9999, 12, 31) - date(1970, 1, 1)).days + 1) * DAY_NS - 1
FIRST_DAY, LAST_DAY = (date.min - EPOCH.date()).days, (date.max - EPOCH.date()).days
_EPOCH_DAY = EPOCH.toordinal()
_NAMES = {"low": "the first", "high": "the last"}


class DateType(ColumnType):
    """`date`, as far as 32 bits reach."""

    kind = "date"
    names = dict.fromkeys(["date"], "date")
    families = ("date",)
    examples = ("date",)
    sql_types = (SqlType("DATE", 91, 10, quote="'", subcode=1),)
    width_bytes = 4
    full_interval = (-(2**31),), (2**31 - 1,)
    arrow_name = "date32"
    sources = frozenset(["date", "timestamp", "string"])

    @property
    def tick(self) -> tuple[str, Fraction]:
        return "time", UNIT_NS["D"]

    def _words(self, value: object) -> ValueWords | None:
        ticks = ticks_of(value) if isinstance(value, date | np.datetime64) else None
        return None if ticks is None or ticks % DAY_NS else (ticks // DAY_NS,)

    def value_of(self, words: ValueWords) -> date | np.datetime64:
        """Return the day; as an np.datetime64 where Python has no such date."""
        day = np.datetime64(words[0], "D")
        return day.item() if isinstance(day.item(), date) else day

    def _bracket(self, value: object) -> Bracket | None:
        match value:
            case str():
                ticks = read_iso(value) if ISO_DATE.fullmatch(value) else None
            case date() | np.datetime64():  # a time of day makes DuckDB compare midnights with it
                ticks = microseconds_of(value)
            case _:
                return None
        return None if ticks is None else (-(-ticks // DAY_NS), ticks // DAY_NS)

    def _span(self, domain: Domain, low: ValueWords, high: ValueWords) -> tuple[int, int]:
        return self._clipped_span(domain, low, high, FIRST_DAY, LAST_DAY)

    def encode(self, column: Column, array: Any, valid: NDArray[np.uint8] | None, first_row: int) -> NDArray[np.int64]:
        return values_of(array, np.int32).astype(np.int64)

    def _cells(self, words: NDArray[Any]) -> NDArray[Any]:
        return words.astype(np.int32, copy=False)


def _day(word: int) -> date:
    return date.fromordinal(word + _EPOCH_DAY)


class TimeGrid(GridDomain):
    """What dates and timestamps share: the unit is a nanosecond."""

    def _exact(self, key: object, place: Place) -> Units:
        plain = read_key(key, place)
        instant = nanoseconds(plain, place)
        if instant is None:
            raise self._wrong_type(place, type(plain).__name__)
        return instant

    def _ticks(self, column: KeyColumn, place: Place) -> Ticks | None:
        if isinstance(column, Ticks) and column.kind == "time":
            return column
        if isinstance(column, Ticks | Floats) and len(column):
            raise self._wrong_type(place, column.type_name)
        return None


@dataclass(frozen=True, init=False, repr=False)
class DateDomain(TimeGrid):
    """The days from low to high; a key with a time of day other than midnight is between two of them."""

    name: ClassVar[str] = "date"
    parts: ClassVar[tuple[Part, ...]] = (
        Part("low", "the first day", ISO_DATE, "a date"),
        Part("high", "the last day", ISO_DATE, "a date"),
    )
    example: ClassVar[str] = "date:FIRST:LAST, for example date:2000-01-01:2030-12-31"
    cell_type: ClassVar[str] = "date"
    takes: ClassVar[str] = "dates, text such as '2020-12-31', datetime64 and Arrow dates"
    low: date
    high: date
    _grid: Grid = field(compare=False)

    def __init__(self, low: date | str, high: date | str) -> None:
        first, last = bound_of("low", low), bound_of("high", high)
        for part, instant in (("low", first), ("high", last)):
            if instant % DAY_NS:
                raise DomainPartError(part, f"{_NAMES[part]} day has a time of day", hint="write it like 2020-12-31")
        if last < first:
            raise DomainPartError("high", "the last day is before the first", hint="swap the bounds")
        self._set(low=_day(first // DAY_NS), high=_day(last // DAY_NS), _grid=Grid.build(first, last, DAY_NS))

    @property
    def text(self) -> str:
        return f"date:{self.low.isoformat()}:{self.high.isoformat()}"

    def key(self, rank: int) -> date:
        return self.low + timedelta(days=self._checked_rank(rank))


def bound_of(part: str, value: object) -> int:
    """Read the first or the last date or time of a domain."""
    try:
        instant = nanoseconds(read_key(value, KEY), KEY)
    except InvalidKeys:
        instant = None
    hint = "write it like 2020-12-31 or 2020-12-31T23:59:59"
    if instant is None:
        raise DomainPartError(part, f"{_NAMES[part]} date or time cannot be read", hint=hint)
    if instant != int(instant) or not EARLIEST_NS <= instant <= LATEST_NS:
        raise DomainPartError(
            part, f"{_NAMES[part]} date or time is not a whole nanosecond of the years 1 to 9999 UTC", hint=hint
        )
    return int(instant)


# --- instants -------------------------------------------------------------------------------------


def nanoseconds(key: object, place: Place) -> int | Fraction | None:
    """Return the instant of a date, a time or ISO text; None if the key is none of them."""
    if isinstance(key, str):
        instant = read_iso(key)
        if instant is None:
            raise unreadable(place, "a date 2020-12-31 or a time 2020-12-31T23:59:59")
        return instant
    if isinstance(key, np.datetime64):
        return _of_numpy(key, place)
    if isinstance(key, datetime):
        return _of_datetime(key)
    if isinstance(key, date):
        return (key - EPOCH.date()).days * DAY_NS
    return None


def read_iso(text: str) -> int | None:
    """Read ISO text with up to nine decimals of a second; None if it is not a date or time that exists."""
    found = ISO_TIME.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, decimals, sign, zone_hours, zone_minutes = found.groups()
    try:
        local = datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0))
    except ValueError:
        return None
    ahead = int(zone_hours or 0) * 60 + int(zone_minutes or 0)
    if ahead >= 24 * 60 or int(zone_minutes or 0) >= 60:
        return None
    offset = ahead * 60 * 10**9 * (-1 if sign == "-" else 1)
    return _of_datetime(local) + int((decimals or "0").ljust(9, "0")) - offset


def write_iso(instant: int) -> str:
    """Write an instant as ISO text with as many decimals as it needs."""
    seconds, rest = divmod(instant, 10**9)
    moment = EPOCH + timedelta(seconds=seconds)
    return moment.isoformat() + (f".{rest:09d}".rstrip("0") if rest else "")


def _of_datetime(moment: datetime) -> int:
    since = moment.replace(tzinfo=None) - EPOCH - (moment.utcoffset() or timedelta(0))
    nanosecond: int = getattr(moment, "nanosecond", 0)  # a pandas Timestamp has some
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000 + nanosecond


def _of_numpy(moment: np.datetime64, place: Place) -> int | Fraction:
    if np.isnat(moment):
        raise is_null(place)
    unit, count = np.datetime_data(moment.dtype)
    if unit in {"Y", "M"}:
        months = int(moment.astype(np.int64)) * count * (12 if unit == "Y" else 1)
        years, month = divmod(months, 12)
        if not 1 <= 1970 + years <= 9999:
            return EARLIEST_NS - 1 if months < 0 else LATEST_NS + 1
        return (date(1970 + years, month + 1, 1) - EPOCH.date()).days * DAY_NS
    return Fraction(int(moment.astype(np.int64)) * count) * UNIT_NS[unit]


def ticks_of(value: object) -> int | None:
    """Return a date or a time as nanoseconds since 1970 in UTC; None if it is no whole number of them."""
    instant = nanoseconds(value, KEY)
    return None if instant is None or instant != int(instant) else int(instant)


def microseconds_of(value: date | np.datetime64) -> int | None:
    """Return an instant in nanoseconds if DuckDB's TIMESTAMP, of whole microseconds, holds it."""
    ticks = ticks_of(value)
    return None if ticks is None or ticks % 1000 else ticks
