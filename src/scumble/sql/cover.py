"""Covers: a predicate and its bounds come in, the keys of one column that matching rows can have go out.

A cover is a superset, never less: every matching row's value lies in one of its intervals, or is null where the cover
says that nulls may match. It holds the query's constants; what follows from it, rank ranges, the provider will see.
"""

from typing import NamedTuple

from scumble.boundary.predicate import And, Constant, In, Or, Predicate
from scumble.schema import ColumnType
from scumble.schema.scalars import Interval, full_interval
from scumble.sql.intervals import merged

__all__ = ["Cover", "cover", "union_of"]


class Cover(NamedTuple):
    """Sorted disjoint intervals of words, both ends included, and whether nulls may match as well."""

    intervals: tuple[Interval, ...]
    nulls: bool

    def is_everything(self, type_: ColumnType) -> bool:
        """Whether any row may match."""
        return self.nulls and self.intervals == (full_interval(type_),)


EMPTY = Cover((), False)


def cover(predicate: Predicate, column: int, type_: ColumnType, words: list[int]) -> Cover:
    """The values of a column that rows matching the predicate can have."""
    match predicate:
        case In() if predicate.column == column:
            return _leaf(predicate, type_, words)
        case Constant(False):
            return EMPTY
        case And(parts):
            return _intersection([cover(part, column, type_, words) for part in parts])
        case Or(parts):
            return union_of([cover(part, column, type_, words) for part in parts])
    # Comparisons of two columns never match a null, but nulls of the column that they don't read may.
    return Cover((full_interval(type_),), True)


def _leaf(leaf: In, type_: ColumnType, words: list[int]) -> Cover:
    size = type_.words
    ends = [tuple(words[at : at + size]) for at in range(leaf.offset, leaf.offset + 2 * size * leaf.intervals, size)]
    intervals = merged(zip(ends[::2], ends[1::2], strict=True))
    if leaf.negated:
        intervals = _complement(intervals, type_)
    return Cover(tuple(intervals), leaf.null_matches)


def _complement(intervals: list[Interval], type_: ColumnType) -> list[Interval]:
    least, most = full_interval(type_)
    if type_.words > 1:  # the words next to a text's are not texts: anything may match
        return [(least, most)] if not any(low <= least and high >= most for low, high in intervals) else []
    gaps: list[Interval] = []
    start = least[0]
    for (low,), (high,) in intervals:
        if low > start:
            gaps.append(((start,), (low - 1,)))
        start = max(start, high + 1)
    if start <= most[0]:
        gaps.append(((start,), most))
    return gaps


def _intersection(covers: list[Cover]) -> Cover:
    intervals = covers[0].intervals
    for other in covers[1:]:
        pairs = [(max(a, c), min(b, d)) for a, b in intervals for c, d in other.intervals if max(a, c) <= min(b, d)]
        intervals = tuple(sorted(pairs))
    return Cover(intervals, all(part.nulls for part in covers))


def union_of(covers: list[Cover]) -> Cover:
    """What any of the covers holds."""
    intervals = [interval for part in covers for interval in part.intervals]
    return Cover(tuple(merged(intervals)), any(part.nulls for part in covers))
