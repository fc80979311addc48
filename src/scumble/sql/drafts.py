"""Drafts: predicates whose bounds have no place yet, so that they can be combined and told of other columns.

Drafts come in, drafts go out; `lay_out` makes the boundary's predicate of one, and its bounds.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from scumble.sql.constants import Bounds, Entry, Fixed, Range, Replan
from scumble.types import Interval
from scumble.wire.predicate import And, Compare, Constant, In, Or, Predicate

__all__ = [
    "AllOf",
    "AnyOf",
    "Draft",
    "Leaf",
    "all_of",
    "any_of",
    "columns_of",
    "lay_out",
    "matches_nulls",
    "merged",
    "on_column",
]


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The same words in as few intervals as possible: empty ones left out, those that touch made one."""
    found: list[Interval] = []
    for low, high in sorted(pair for pair in intervals if pair[0] <= pair[1]):
        if found and (low <= found[-1][1] or (len(low) == 1 and low[0] == found[-1][1][0] + 1)):
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found


@dataclass(frozen=True)
class Leaf:
    """A test of one column, before its bounds have a place."""

    column: int
    entry: Entry
    negated: bool = False
    null_matches: bool = False


@dataclass(frozen=True)
class AllOf:
    """All of them."""

    parts: "tuple[Draft, ...]"


@dataclass(frozen=True)
class AnyOf:
    """Any of them."""

    parts: "tuple[Draft, ...]"


Draft = Leaf | Compare | Constant | AllOf | AnyOf


def any_of(parts: Iterable[Draft | None]) -> Draft | None:
    """Any of them; None if one of them is not known."""
    flat: list[Draft] = []
    for part in parts:
        if part is None:
            return None
        flat += part.parts if isinstance(part, AnyOf) else [part]
    if Constant(True) in flat:
        return Constant(True)
    flat = list(dict.fromkeys(part for part in flat if part != Constant(False)))
    return flat[0] if len(flat) == 1 else AnyOf(tuple(flat)) if flat else Constant(False)


def all_of(parts: Iterable[Draft]) -> Draft:
    """All of them, with ranges on the same column made one."""
    flat: list[Draft] = []
    for part in parts:
        flat += part.parts if isinstance(part, AllOf) else [part]
    if Constant(False) in flat:
        return Constant(False)
    kept: list[Draft] = []
    places: dict[int, int] = {}
    for part in dict.fromkeys(part for part in flat if part != Constant(True)):
        if isinstance(part, Leaf) and isinstance(part.entry, Range) and not part.negated and not part.entry.between:
            if part.column in places:
                before = kept[places[part.column]]
                assert isinstance(before, Leaf)  # noqa: S101 - places holds ranges only
                assert isinstance(before.entry, Range)  # noqa: S101
                both = before.entry.comparisons + part.entry.comparisons
                kept[places[part.column]] = replace(before, entry=replace(before.entry, comparisons=both))
                continue
            places[part.column] = len(kept)
        kept.append(part)
    return kept[0] if len(kept) == 1 else AllOf(tuple(kept)) if kept else Constant(True)


def lay_out(draft: Draft) -> tuple[Predicate, Bounds]:
    """Give every leaf's bounds their place."""
    entries: list[Entry] = []
    offset = 0

    def placed(part: Draft) -> Predicate:
        nonlocal offset
        match part:
            case Leaf(column, entry, negated, null_matches):
                entries.append(known := _known(entry))
                leaf = In(column, offset, known.count, negated, null_matches)
                offset += 2 * known.count * known.type.words
                return leaf
            case AllOf(parts):
                return And(tuple(map(placed, parts)))
            case AnyOf(parts):
                return Or(tuple(map(placed, parts)))
        return part

    return placed(draft), Bounds(tuple(entries))


def _known(entry: Entry) -> Entry:
    """The entry with its intervals, if no parameter is open: sorted, without empty ones, neighbours made one."""
    try:
        return Fixed(entry.type, tuple(merged(entry.resolve(None))))
    except Replan:
        return entry


def matches_nulls(draft: Draft) -> bool:
    """Whether a row in which every column is null matches."""
    match draft:
        case Leaf(null_matches=null_matches):
            return null_matches
        case Constant(value):
            return value
        case AllOf(parts):
            return all(map(matches_nulls, parts))
        case AnyOf(parts):
            return any(map(matches_nulls, parts))
    return False


def columns_of(draft: Draft) -> frozenset[int]:
    """The columns that a draft reads."""
    match draft:
        case Leaf(column=column):
            return frozenset([column])
        case Compare(left=left, right=right):
            return frozenset([left, right])
        case AllOf(parts) | AnyOf(parts):
            return frozenset[int]().union(*map(columns_of, parts))
    return frozenset()


def on_column(draft: Draft, column: int) -> Draft:
    """A draft about one column, told of another one."""
    match draft:
        case Leaf():
            return replace(draft, column=column)
        case AllOf(parts):
            return AllOf(tuple(on_column(part, column) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(on_column(part, column) for part in parts))
    return draft
