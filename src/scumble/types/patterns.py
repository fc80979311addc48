"""LIKE as intervals of words: a column's type and a pattern come in, exact intervals go out.

Patterns are the owner's secret; how many intervals a pattern makes is public, as a plan's shape is. `%` stands for any
characters and `_` for one code point; there is no escape character unless one is given, as in DuckDB.
"""

from bisect import bisect_left

from scumble.types.column import ColumnType, Kind
from scumble.types.words import Interval, empty_interval, full_interval, text_words

__all__ = ["like_codes", "prefix_interval"]

_ANY, _ONE = "%", "_"


def prefix_interval(type_: ColumnType, prefix: str) -> Interval | None:
    """Return the words of the texts or categories that start with `prefix`; None for other types."""
    try:
        encoded = prefix.encode()
    except UnicodeEncodeError:
        return None
    if type_.kind is Kind.CATEGORY:
        first = bisect_left(type_.categories, prefix)
        last = bisect_left(type_.categories, True, first, key=lambda text: not text.startswith(prefix)) - 1
        return ((first,), (last,)) if first <= last else empty_interval(type_)
    if type_.kind is not Kind.TEXT:
        return None
    if len(encoded) > type_.max_bytes:
        return empty_interval(type_)
    room = 8 * (type_.words - 1)
    return text_words(type_, encoded), text_words(type_, encoded.ljust(room, b"\xff"), full_interval(type_)[1][-1])


def like_codes(
    type_: ColumnType, pattern: str, *, escape: str | None = None, case_insensitive: bool = False
) -> list[Interval] | None:
    """Return the categories that match, as the fewest intervals of codes; None if only DuckDB knows.

    That is so for ILIKE beyond ASCII, where lower case is a matter of tables, and for a broken escape.
    """
    if type_.kind is not Kind.CATEGORY or (escape is not None and len(escape) > 1):
        return None
    texts = type_.categories
    if case_insensitive:
        if escape or not pattern.isascii() or not all(text.isascii() for text in texts):
            return None
        pattern, texts = pattern.lower(), tuple(text.lower() for text in texts)
    parts = _parts(pattern, escape or None)
    if parts is None:
        return None
    found: list[Interval] = []
    for code, text in enumerate(texts):
        if _matches(text, parts):
            if found and found[-1][1][0] == code - 1:
                found[-1] = (found[-1][0], (code,))
            else:
                found.append(((code,), (code,)))
    return found


def _parts(pattern: str, escape: str | None) -> list[tuple[bool, str]] | None:
    """Return the pattern's characters, and whether each is a wildcard; None if an escape escapes nothing."""
    parts: list[tuple[bool, str]] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                return None
            parts.append((False, escaped))
        else:
            parts.append((character in (_ANY, _ONE), character))
    return parts


def _matches(text: str, parts: list[tuple[bool, str]]) -> bool:
    """Match with one step back to the last `%` at a time: quadratic at worst, never exponential."""
    at = part = 0
    star, resume = -1, 0
    while at < len(text):
        if part < len(parts) and parts[part] == (True, _ANY):
            star, resume = part, at
            part += 1
        elif part < len(parts) and parts[part] in ((True, _ONE), (False, text[at])):
            at += 1
            part += 1
        elif star >= 0:
            resume += 1
            at, part = resume, star + 1
        else:
            return False
    return all(rest == (True, _ANY) for rest in parts[part:])
