"""One value and its words: what a column of a public type stores for a value that is secret or a query's constant.

A value comes in and int64 words go out, or the other way round, exact or refused; no error shows the value. `types`
says what the words of each type are.
"""

import math
import struct
from bisect import bisect_left
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from scumble.errors import InvalidParameter
from scumble.types.column import TIMESTAMP_UNITS, ColumnType, Kind
from scumble.types.domain import Place
from scumble.types.instants import nanoseconds

__all__ = [
    "EPOCH",
    "INTEGER_RANGES",
    "NAN_WORD",
    "TICKS",
    "Interval",
    "Words",
    "empty_interval",
    "float_of",
    "float_word",
    "full_interval",
    "text_words",
    "ticks_of",
    "value_of",
    "words_of",
]

Words = tuple[int, ...]
Interval = tuple[Words, Words]
"""The least and the greatest words, both included; empty if the first is greater."""

EPOCH = datetime(1970, 1, 1)
INTEGER_RANGES = {
    "tinyint": (-(2**7), 2**7 - 1),
    "smallint": (-(2**15), 2**15 - 1),
    "integer": (-(2**31), 2**31 - 1),
    "bigint": (-(2**63), 2**63 - 1),
    "utinyint": (0, 2**8 - 1),
    "usmallint": (0, 2**16 - 1),
    "uinteger": (0, 2**32 - 1),
    "ubigint": (0, 2**63 - 1),
}
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""How many of a unit make a second."""

DAY_US = 86_400 * 10**6
DAY_NS = DAY_US * 1000
NAN_WORD = 0x7FF8 << 48
_LEAST_WORD, _MOST_WORD = -(2**63), 2**63 - 1
_LOW_BITS = 2**63 - 1
_VALUE = Place("the value")


def words_of(type_: ColumnType, value: object) -> Words:  # noqa: PLR0911  (one for each kind)
    """Return the words of one value that the type holds; InvalidParameter if it does not hold it exactly."""
    value = plain(value)
    match type_.kind, value:
        case Kind.BOOLEAN, bool():
            return (int(value),)
        case Kind.CATEGORY, str():
            code = bisect_left(type_.categories, value)
            if type_.categories[code : code + 1] == (value,):
                return (code,)
        case Kind.TEXT, str():
            encoded = _utf8(value)
            if encoded is not None and len(encoded) <= type_.max_bytes:
                return text_words(type_, encoded)
        case Kind.FLOAT, int() | float() | Decimal() if not isinstance(value, bool):
            number = _double(value)
            if number is not None and (type_.sql == "double" or _is_single(number)):
                return (float_word(number),)
        case ((Kind.INTEGER | Kind.DECIMAL), int() | float() | Decimal()) if not isinstance(value, bool):
            return _checked(type_, _unscaled(type_, value))
        case Kind.DATE, date() | np.datetime64():
            ticks = ticks_of(value)
            return _checked(type_, None if ticks is None or ticks % DAY_NS else ticks // DAY_NS)
        case Kind.TIME, time() if value.tzinfo is None:
            return (((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond,)
        case Kind.TIMESTAMP, date() | np.datetime64():
            ticks = ticks_of(value)
            unit = 10**9 // ticks_per_second(type_)
            return _checked(type_, None if ticks is None or ticks % unit else ticks // unit)
    raise _no_value(type_)


def value_of(type_: ColumnType, words: Words) -> Any:  # noqa: PLR0911  (one for each kind)
    """Return the value that words stand for: int, float, Decimal, str, bool, date, time or datetime.

    A time in nanoseconds is an np.datetime64, and so is a date or time before the year 1 or after 9999.
    """
    word = words[0]
    match type_.kind:
        case Kind.BOOLEAN:
            return bool(word)
        case Kind.CATEGORY:
            return type_.categories[word]
        case Kind.FLOAT:
            return float_of(word)
        case Kind.DECIMAL:
            return Decimal(word).scaleb(-type_.scale)
        case Kind.TEXT:
            return text_bytes(words)[: words[-1]].decode()
        case Kind.DATE:
            day = np.datetime64(word, "D")
            return day.item() if isinstance(day.item(), date) else day
        case Kind.TIME:
            return time(word // 10**6 // 3600, word // 10**6 // 60 % 60, word // 10**6 % 60, word % 10**6)
        case Kind.TIMESTAMP:
            return _moment(type_, word)
    return word


def full_interval(type_: ColumnType) -> Interval:  # noqa: PLR0911  (one for each kind)
    """Return the least and the greatest words that a value of the type can have."""
    match type_.kind:
        case Kind.INTEGER:
            low, high = INTEGER_RANGES[type_.sql]
            return (low,), (high,)
        case Kind.DECIMAL:
            most = 10**type_.digits - 1
            return (-most,), (most,)
        case Kind.DATE:
            return (-(2**31),), (2**31 - 1,)
        case Kind.FLOAT:
            return (float_word(-math.inf),), (NAN_WORD,)
        case Kind.BOOLEAN:
            return (0,), (1,)
        case Kind.CATEGORY:
            return (0,), (len(type_.categories) - 1,)
        case Kind.TIME:
            return (0,), (DAY_US - 1,)
        case Kind.TEXT:
            letters = type_.words - 1
            return (_LEAST_WORD,) * letters + (0,), (_MOST_WORD,) * letters + (type_.max_bytes,)
    return (_LEAST_WORD,), (_MOST_WORD,)


def empty_interval(type_: ColumnType) -> Interval:
    """Return an interval that holds nothing."""
    rest = (0,) * (type_.words - 1)
    return (*rest, 1), (*rest, 0)


def float_word(number: float) -> int:
    """Return the word of a double: its bits, so mapped that they sort as signed integers."""
    if math.isnan(number):
        return NAN_WORD
    bits: int = struct.unpack("<q", struct.pack("<d", number + 0.0))[0]
    return bits if bits >= 0 else bits ^ _LOW_BITS


def float_of(word: int) -> float:
    """Return the double of a word."""
    number: float = struct.unpack("<d", struct.pack("<q", word if word >= 0 else word ^ _LOW_BITS))[0]
    return number


def text_words(type_: ColumnType, encoded: bytes, length: int | None = None) -> Words:
    """Return the words of at most `max_bytes` bytes; `length` stands in the last word if it is to be another."""
    letters = type_.words - 1
    padded = struct.unpack(f">{letters}Q", encoded.ljust(8 * letters, b"\0"))
    return (*(word + _LEAST_WORD for word in padded), len(encoded) if length is None else length)


def text_bytes(words: Words) -> bytes:
    """Return the padded bytes of a text's words."""
    return struct.pack(f">{len(words) - 1}Q", *(word - _LEAST_WORD for word in words[:-1]))


def ticks_of(value: object) -> int | None:
    """Return a date or a time as nanoseconds since 1970 in UTC; None if it is no whole number of them."""
    instant = nanoseconds(value, _VALUE)
    return None if instant is None or instant != int(instant) else int(instant)


def ticks_per_second(type_: ColumnType) -> int:
    """Return how many units of a timestamp type make a second."""
    return TICKS[TIMESTAMP_UNITS.get(type_.sql, "us")]


def plain(value: object) -> object:
    """Return numpy's scalars as Python's; NaT as None."""
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else value
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, str) and type(value) is not str else value


def _moment(type_: ColumnType, word: int) -> datetime | np.datetime64:
    unit = TIMESTAMP_UNITS.get(type_.sql, "us")
    if unit == "ns":
        return np.datetime64(word, "ns")
    try:
        moment = EPOCH + timedelta(microseconds=word * (10**6 // TICKS[unit]))
    except OverflowError:
        return np.datetime64(word, unit)  # type: ignore[call-overload, no-any-return]
    return moment.replace(tzinfo=UTC) if type_.sql == "timestamp with time zone" else moment


def _checked(type_: ColumnType, word: int | None) -> Words:
    (least,), (most,) = full_interval(type_)
    if word is None or not least <= word <= most:
        raise _no_value(type_)
    return (word,)


def _unscaled(type_: ColumnType, value: int | float | Decimal) -> int | None:
    if not math.isfinite(value):
        return None
    numerator, denominator = value.as_integer_ratio()
    units, rest = divmod(numerator * 10**type_.scale, denominator)
    return None if rest else units


def _double(value: float | Decimal) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    is_finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
    return number if number == value or not is_finite else None


def _is_single(number: float) -> bool:
    with np.errstate(over="ignore"):
        return not math.isfinite(number) or float(np.float32(number)) == number


def _utf8(text: str) -> bytes | None:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None


def _no_value(type_: ColumnType) -> InvalidParameter:
    return InvalidParameter(
        f"the value is none that a column of type {type_.label} holds exactly", hint="convert it, or use another type"
    )
