"""Patterns: LIKE, ILIKE and starts_with on a column come in, intervals of its words go out, or None.

On a category any pattern is a set of places in the public list; on text only a prefix is an interval.
"""

from sqlglot import exp

from scumble.schema import ColumnType, Kind
from scumble.schema.scalars import Interval, interval, like_codes, prefix_interval

__all__ = ["matching_intervals"]


def matching_intervals(
    type_: ColumnType, node: exp.Expr, pattern: object, escape: str | None
) -> tuple[Interval, ...] | None:
    """The intervals of the values that match, exactly; None if there are no such."""
    if not isinstance(pattern, str) or type_.kind not in (Kind.TEXT, Kind.CATEGORY):
        return None
    if isinstance(node, exp.StartsWith):
        pair = prefix_interval(type_, pattern)
        return None if pair is None else (pair,)
    insensitive = isinstance(node, exp.ILike)
    if type_.kind is Kind.CATEGORY:
        found = like_codes(type_, pattern, escape=escape, case_insensitive=insensitive)
        return None if found is None else tuple(found)
    prefix, whole = (None, False) if insensitive or (escape and len(escape) > 1) else _prefix(pattern, escape)
    if prefix is None:
        return None
    pair = interval(type_, "=", prefix) if whole else prefix_interval(type_, prefix)
    return None if pair is None else (pair,)


def _prefix(pattern: str, escape: str | None) -> tuple[str | None, bool]:
    """The fixed part of a pattern, and whether it is all of it; None if there is more than a prefix."""
    letters: list[str] = []
    at = 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == escape:
            if at + 1 == len(pattern):
                return None, False
            letters.append(pattern[at + 1])
            at += 2
            continue
        if letter == "%":
            rest = pattern[at:]
            return ("".join(letters), False) if set(rest) == {"%"} else (None, False)
        if letter == "_":
            return None, False
        letters.append(letter)
        at += 1
    return "".join(letters), True
