"""Dates and times as exact nanoseconds since 1970 in UTC: Python, numpy and text come in, integers go out.

A time without a zone is taken as UTC. The times are secret unless they are the bounds of a domain.
"""

import re
from datetime import date, datetime, timedelta
from fractions import Fraction

import numpy as np

from scumble.types.domain import Place, is_null, unreadable
from scumble.types.keys import DAY_NS, UNIT_NS

ISO_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
ISO_TIME = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})"
    r"(?:[T ](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?(?:Z|([+-])(\d{2}):(\d{2}))?)?",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1)
EARLIEST_NS = (date(1, 1, 1) - date(1970, 1, 1)).days * DAY_NS
LATEST_NS = ((date(9999, 12, 31) - date(1970, 1, 1)).days + 1) * DAY_NS - 1


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
        return (key - _EPOCH.date()).days * DAY_NS
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


def write_iso(instant: int, *, date_only: bool = False) -> str:
    """Write an instant as ISO text with as many decimals as it needs."""
    seconds, rest = divmod(instant, 10**9)
    moment = _EPOCH + timedelta(seconds=seconds)
    if date_only:
        return moment.date().isoformat()
    return moment.isoformat() + (f".{rest:09d}".rstrip("0") if rest else "")


def _of_datetime(moment: datetime) -> int:
    since = moment.replace(tzinfo=None) - _EPOCH - (moment.utcoffset() or timedelta(0))
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
        return (date(1970 + years, month + 1, 1) - _EPOCH.date()).days * DAY_NS
    return Fraction(int(moment.astype(np.int64)) * count) * UNIT_NS[unit]
