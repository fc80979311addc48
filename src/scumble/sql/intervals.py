"""Intervals of words, both ends included: any number of them come in, sorted disjoint ones go out."""

from collections.abc import Iterable

from scumble.schema.scalars import Interval

__all__ = ["merged"]


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The same words in as few intervals as possible: empty ones left out, those that touch made one."""
    found: list[Interval] = []
    for low, high in sorted(pair for pair in intervals if pair[0] <= pair[1]):
        if found and (low <= found[-1][1] or (len(low) == 1 and low[0] == found[-1][1][0] + 1)):
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found
