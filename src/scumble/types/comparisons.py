"""Comparisons with a constant as intervals of words: what the enclave checks in place of `column < constant`.

A column's type, an operator and a constant come in; the exact interval of matching words goes out, or None where it is
not certain that it would be what DuckDB (2.0, in the time zone UTC) answers: then DuckDB itself has to compare. The
constants are the owner's secret. DuckDB compares a string with a date or a number by casting the string, a decimal with
a double by casting the decimal, and so on; `tests/schema/test_comparisons.py` holds every rule here against it.
"""

import math
import re
from bisect import bisect_left, bisect_right
from datetime import date, datetime, time
from decimal import Decimal
from typing import Literal

import numpy as np

from scumble.types.column import ColumnType, Kind
from scumble.types.instants import read_iso
from scumble.types.words import (
    DAY_NS,
    INTEGER_RANGES,
    Interval,
    empty_interval,
    float_word,
    full_interval,
    plain,
    text_words,
    ticks_of,
    ticks_per_second,
    words_of,
)

__all__ = ["Operator", "interval"]

Operator = Literal["=", "<", "<=", ">", ">="]

Bracket = tuple[int, int]
"""The least word at or above a constant, and the greatest at or below it: equal where the type holds the constant."""

_USUAL = frozenset([int, str, float, Decimal, bool, date, datetime, time])
_MOST_DIGITS = 18  # after the point and before it: two such decimals have a common type in DuckDB
_EXACT = 2**53  # up to here a double holds every integer
_EXACT_SINGLE = 2**24
_BIGINTS = INTEGER_RANGES["bigint"]
_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_DECIMAL = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?", re.ASCII)
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?)?", re.ASCII)
_ZONED = re.compile(_MOMENT.pattern.removesuffix(")?") + r"(?:Z|[+-][0-9]{2}:[0-9]{2})?)?", re.ASCII)


def interval(type_: ColumnType, op: Operator, value: object) -> Interval | None:
    """Return the words w with `w op value`, least and greatest; None if only DuckDB knows.

    NULL matches nothing. Python's values stand for DuckDB's literals: int, Decimal (`0.5`), float (`5e-1`), str, bool,
    date, datetime (with a zone: TIMESTAMPTZ), time; numpy's scalars for those of Python.
    """
    if type(value) not in _USUAL:
        if isinstance(value, np.floating) and value.dtype.itemsize != 8:
            return None
        value = plain(value)
        if value is None:
            return empty_interval(type_)
    if type_.kind is Kind.TEXT:
        return _text_interval(type_, op, value)
    bracket = _bracket(type_, value)
    if bracket is None:
        return None
    (least,), (most,) = full_interval(type_)
    above, below = bracket
    low = above if op in ("=", ">=") else below + 1 if op == ">" else least
    high = below if op in ("=", "<=") else above - 1 if op == "<" else most
    if low < least:  # noqa: PLR1730  (half the time of `max`)
        low = least
    if high > most:  # noqa: PLR1730
        high = most
    return ((low,), (high,)) if low <= high else empty_interval(type_)


def _text_interval(type_: ColumnType, op: Operator, value: object) -> Interval | None:
    """Compare bytes; of two texts with the same padded bytes the shorter is less, which strict bounds make use of."""
    if not isinstance(value, str) or _has_surrogates(value):
        return None
    encoded = value.encode()
    least, most = full_interval(type_)
    cut = encoded[: type_.max_bytes]
    exact = text_words(type_, cut)
    if len(cut) < len(encoded):  # every text of the column that starts like the constant is less than it
        above = (*exact[:-1], len(cut) + 1)
        return empty_interval(type_) if op == "=" else (least, exact) if op in ("<", "<=") else (above, most)
    low = exact if op in ("=", ">=") else (*exact[:-1], len(cut) + 1) if op == ">" else least
    high = exact if op in ("=", "<=") else (*exact[:-1], len(cut) - 1) if op == "<" else most
    return low, high


def _bracket(type_: ColumnType, value: object) -> Bracket | None:  # noqa: PLR0911  (one for each kind)
    match type_.kind:
        case Kind.CATEGORY:
            if isinstance(value, str) and not _has_surrogates(value):
                return bisect_left(type_.categories, value), bisect_right(type_.categories, value) - 1
        case Kind.BOOLEAN:
            return _boolean(value)
        case Kind.INTEGER:
            return _integer(type_, value)
        case Kind.DECIMAL:
            return _decimal(type_, value)
        case Kind.FLOAT:
            number = _float(type_, value)
            return None if number is None else (float_word(number), float_word(number))
        case Kind.DATE:
            return _date(value)
        case Kind.TIME:
            return _time(value)
        case Kind.TIMESTAMP:
            return _timestamp(type_, value)
    return None


def _boolean(value: object) -> Bracket | None:
    match value:
        case bool():
            return int(value), int(value)
        case int() if _BIGINTS[0] <= value <= _BIGINTS[1]:
            return value, value
        case "true" | "false":
            return int(value == "true"), int(value == "true")
    return None


def _integer(type_: ColumnType, value: object) -> Bracket | None:
    match value:
        case int():
            return (int(value), int(value)) if abs(value) < 2**126 else None
        case Decimal() if _is_common(value):
            return math.ceil(value), math.floor(value)
        case float():
            if abs(value) < _EXACT:  # the cast of the column to double is monotone, and exact up to here
                return math.ceil(value), math.floor(value)
            if not abs(value) < 2**64:  # NaN is greater than everything
                return _beyond(value)
        case str() if _INTEGER.fullmatch(value):
            low, high = INTEGER_RANGES[type_.sql]
            return (int(value), int(value)) if low <= int(value) <= high else None
    return None


def _decimal(type_: ColumnType, value: object) -> Bracket | None:
    match value:
        case bool():
            return None
        case int() if _BIGINTS[0] <= value <= _BIGINTS[1]:
            return value * 10**type_.scale, value * 10**type_.scale
        case Decimal() if _is_common(value):
            numerator, denominator = value.as_integer_ratio()
            numerator *= 10**type_.scale
            return -(-numerator // denominator), numerator // denominator
        case float():
            return _decimal_of_float(type_, value)
        case str() if _DECIMAL.fullmatch(value):
            whole, _, places = value.partition(".")
            if len(places) <= type_.scale and len(whole.lstrip("-0")) <= type_.digits - type_.scale:
                unscaled = int(whole + places.ljust(type_.scale, "0"))
                return unscaled, unscaled
    return None


def _decimal_of_float(type_: ColumnType, value: float) -> Bracket | None:
    """Compare as DuckDB does, which casts the column: unscaled / 10^scale, correctly rounded while both are exact."""
    tens = 10**type_.scale
    if not abs(value) * tens < 2**51:
        return _beyond(value) if not abs(value) * tens <= 2.0 * 10**type_.digits else None
    guess = math.floor(value * tens)
    below = next(k for k in range(guess + 2, guess - 3, -1) if k / tens <= value)
    above = next(k for k in range(guess - 2, guess + 3) if k / tens >= value)
    return above, below


def _float(type_: ColumnType, value: object) -> float | None:  # noqa: PLR0911  (one for each kind of literal)
    single = type_.sql == "float"
    match value:
        case bool():
            return None
        case float():
            return value
        case int() if abs(value) <= _EXACT:
            return float(np.float32(value)) if single else float(value)
        case Decimal() if _is_common(value):
            sign, digits, exponent = value.as_tuple()
            if not isinstance(exponent, int) or exponent > 0:
                return None
            unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
            if single:
                exact = abs(unscaled) <= _EXACT_SINGLE and -exponent <= 10
                return float(np.float32(unscaled) / np.float32(10**-exponent)) if exact else None
            return unscaled / 10**-exponent if abs(unscaled) <= _EXACT else None
        case str() if _DECIMAL.fullmatch(value):
            return None if single else float(value)
    return None


def _date(value: object) -> Bracket | None:
    match value:
        case str():
            ticks = read_iso(value) if _DATE.fullmatch(value) else None
        case date() | np.datetime64():  # a time of day makes DuckDB compare midnights with it
            ticks = _microseconds(value)
        case _:
            return None
    return None if ticks is None else (-(-ticks // DAY_NS), ticks // DAY_NS)


def _time(value: object) -> Bracket | None:
    if isinstance(value, str):
        found = _TIME.fullmatch(value)
        if found is None or int(found[1]) > 23 or int(found[2]) > 59 or int(found[3]) > 59:
            return None
        value = time(int(found[1]), int(found[2]), int(found[3]), int((found[4] or "0").ljust(6, "0")))
    if not isinstance(value, time) or value.tzinfo is not None:
        return None
    (word,) = words_of(ColumnType(Kind.TIME, "time"), value)
    return word, word


def _timestamp(type_: ColumnType, value: object) -> Bracket | None:
    zoned, unit = type_.sql == "timestamp with time zone", 10**9 // ticks_per_second(type_)
    match value:
        case str():
            ticks = read_iso(value) if (_ZONED if zoned else _MOMENT).fullmatch(value) else None
            if ticks is None or ticks % unit:  # DuckDB would round or cut it off
                return None
        case date() | np.datetime64():
            ticks = ticks_of(value) if unit == 1 and isinstance(value, np.datetime64) else _microseconds(value)
            if ticks is None or (unit == 1 and isinstance(value, datetime) and value.tzinfo is not None):
                return None
        case _:
            return None
    if unit == 1 and not abs(ticks) < 2**63 - DAY_NS:  # DuckDB refuses some literals at the very ends
        return None
    return -(-ticks // unit), ticks // unit


def _microseconds(value: date | np.datetime64) -> int | None:
    """Return an instant in nanoseconds if DuckDB's TIMESTAMP holds it."""
    ticks = ticks_of(value)
    return None if ticks is None or ticks % 1000 else ticks


def _is_common(value: Decimal) -> bool:
    """Whether DuckDB has a decimal type for both the constant and any column."""
    exponent = value.as_tuple().exponent
    return isinstance(exponent, int) and -exponent <= _MOST_DIGITS and value.adjusted() < _MOST_DIGITS


def _beyond(value: float) -> Bracket:
    return (-(2**200), -(2**200)) if value < 0 else (2**200, 2**200)


def _has_surrogates(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)
