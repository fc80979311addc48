"""One value at a time: constants of queries to words and back, and comparisons to intervals of words and of ranks.

words_of, value_of                  a value's words, and back
interval                            column op constant
prefix_interval, like_codes         LIKE
full_interval, empty_interval       everything and nothing
rank_span                           an interval of words to the ranks of an index's domain
parse_type                          a type as the owner writes it

Types and domains are public, values and bounds are secret.
"""

import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from scumble.types import Domain
from scumble.types.column import ColumnType, Kind
from scumble.types.comparisons import Operator, interval
from scumble.types.declared import parse_type
from scumble.types.domain import EMPTY
from scumble.types.patterns import like_codes, prefix_interval
from scumble.types.words import (
    EPOCH,
    Interval,
    Words,
    empty_interval,
    float_of,
    float_word,
    full_interval,
    text_bytes,
    ticks_per_second,
    value_of,
    words_of,
)

__all__ = [
    "Interval",
    "Operator",
    "Words",
    "empty_interval",
    "full_interval",
    "interval",
    "like_codes",
    "parse_type",
    "prefix_interval",
    "rank_span",
    "value_of",
    "words_of",
]

_FIRST_DAY, _LAST_DAY = (date.min - EPOCH.date()).days, (date.max - EPOCH.date()).days
_INFINITY = float_word(math.inf)
_GREATEST = "\U0010ffff"
_DAY_SECONDS = 86_400
_EPOCH_DAY = EPOCH.toordinal()


def rank_span(  # noqa: PLR0911  (one for each kind)
    domain: Domain, type_: ColumnType, low: Words, high: Words
) -> tuple[int, int]:
    """Return the first and last rank of the keys whose words lie in an interval, both included; (0, -1) for none.

    Never too few ranks: where the interval's ends are no values of the type, the ranks are those of the next ones.
    """
    if low > high:
        return EMPTY
    match type_.kind:
        case Kind.INTEGER:
            return domain.span(low[0], high[0])
        case Kind.DECIMAL:
            shift = -type_.scale
            return domain.span(Decimal(low[0]).scaleb(shift), Decimal(high[0]).scaleb(shift))
        case Kind.DATE:
            return _clipped_span(domain, low[0], high[0], (_FIRST_DAY, _LAST_DAY), _day)
        case Kind.TIMESTAMP:
            return _moment_span(domain, type_, low[0], high[0])
        case Kind.FLOAT:
            return _clipped_span(domain, low[0], high[0], (-_INFINITY, _INFINITY - 1), float_of)
        case Kind.CATEGORY:
            last = len(type_.categories) - 1
            return _clipped_span(domain, low[0], high[0], (0, last), type_.categories.__getitem__)
        case Kind.TEXT:
            least, most = full_interval(type_)
            return domain.span(
                None if low <= least else _text_at_or_before(low),
                None if high >= most else _text_at_or_after(type_, high),
            )
    return domain.span(value_of(type_, low), value_of(type_, high))


def _clipped_span(domain: Domain, low: int, high: int, ends: tuple[int, int], key: Any) -> tuple[int, int]:
    """Map words to keys; beyond what keys there can be, the query is open-ended or empty."""
    least, most = ends
    if low > most or high < least:
        return EMPTY
    return domain.span(None if low <= least else key(low), None if high >= most else key(high))


def _day(word: int) -> date:
    return date.fromordinal(word + _EPOCH_DAY)


def _moment_span(domain: Domain, type_: ColumnType, low: int, high: int) -> tuple[int, int]:
    per_second = ticks_per_second(type_)
    least, most = _FIRST_DAY * _DAY_SECONDS * per_second, (_LAST_DAY + 1) * _DAY_SECONDS * per_second - 1
    if per_second == 10**9:
        return _clipped_span(domain, low, high, (max(least, -(2**63) + 1), most), _nanosecond)
    scale = 10**6 // per_second

    def moment(word: int) -> datetime:
        return EPOCH + timedelta(microseconds=word * scale)

    return _clipped_span(domain, low, high, (least, most), moment)


def _nanosecond(word: int) -> np.datetime64:
    return np.datetime64(word, "ns")


def _text_at_or_before(words: Words) -> str:
    """Return the greatest text at or before a lower bound that words can spell; cut in a character, the part before."""
    padded, length = text_bytes(words), words[-1]
    return _valid_part(padded.ljust(length, b"\0")[: max(0, length)])


def _text_at_or_after(type_: ColumnType, words: Words) -> str:
    """Return a text that no text of the type at or before the upper bound exceeds.

    An upper bound is a text's words; or with less than its length, for what is before it; or filled up with 0xff bytes,
    for what starts like it.
    """
    padded, length = text_bytes(words), words[-1]
    letters = padded.rstrip(b"\xff")
    filled = len(letters) < len(padded)
    if filled:
        return _greatest_from(type_, letters)
    stripped = padded.rstrip(b"\0")
    if len(stripped) <= length:
        exact = padded[:length].ljust(length, b"\0")
        return exact.decode() if _is_whole(exact) else _greatest_from(type_, exact)
    return _before(type_, stripped)


def _greatest_from(type_: ColumnType, prefix: bytes) -> str:
    """Return what is at least as great as every text that starts with these bytes, the last of which may be cut."""
    return _valid_part(prefix) + _GREATEST * (type_.max_bytes + 1)


def _before(type_: ColumnType, text: bytes) -> str:
    """Return what is less than `text`, and at least as great as every text of the type that is."""
    if not _is_whole(text):
        return _greatest_from(type_, text)
    whole = text.decode()
    previous = chr(0xD7FF if whole[-1] == "\ue000" else ord(whole[-1]) - 1)
    return whole[:-1] + previous + _GREATEST * (type_.max_bytes + 1)


def _valid_part(encoded: bytes) -> str:
    """Return the text up to where the bytes stop being UTF-8."""
    try:
        return encoded.decode()
    except UnicodeDecodeError as error:
        return encoded[: error.start].decode()


def _is_whole(encoded: bytes) -> bool:
    return len(_valid_part(encoded).encode()) == len(encoded)
