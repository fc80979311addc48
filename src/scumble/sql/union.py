"""Unions: a predicate with an OR over several attributes comes in, one scan for each of these attributes goes out.

Every disjunct is fetched by its own best attribute. So that no row comes twice, each scan's predicate also asks that
the row is in its own attribute's cover, its guard, and in none of the earlier guards. The guards' number of intervals
is part of the shape, which is public; their bounds are sealed with the others.
"""

from typing import TYPE_CHECKING

import numpy as np

from scumble.boundary.plan import Plan
from scumble.boundary.predicate import And, In, Or, Predicate
from scumble.sql.cover import Cover, union_of
from scumble.sql.scans import Access

if TYPE_CHECKING:
    from scumble.sql.plan import Path, Paths

__all__ = ["union_access"]

MOST_INTERVALS = 256
"""A guard with more intervals than this costs the enclave more than the pages it saves."""


def union_access(paths: "Paths", words: list[int], limit: int) -> Access | None:
    """The cheapest union that reads fewer than `limit` bytes; None if there is none."""
    best: tuple[int, list[tuple[Path, Cover]]] | None = None
    parts = paths.predicate.parts if isinstance(paths.predicate, And) else (paths.predicate,)
    for place, part in enumerate(parts):
        if isinstance(part, Or) and len(paths.paths) > 1:
            rest = parts[:place] + parts[place + 1 :]
            guards = _guards(paths, part, rest, words)
            bytes_read = sum(paths.cost(path.scans(keys)) for path, keys in guards)
            narrow = all(len(keys.intervals) <= MOST_INTERVALS for _, keys in guards)
            if len(guards) > 1 and narrow and bytes_read < (limit if best is None else best[0]):
                best = bytes_read, guards
    return None if best is None else _access(paths, best[1], words)


def _guards(paths: "Paths", part: Or, rest: tuple[Predicate, ...], words: list[int]) -> "list[tuple[Path, Cover]]":
    """For each attribute that is best for a disjunct, what all its disjuncts' keys can be."""
    guards: dict[str | None, tuple[Path, Cover]] = {}
    for disjunct in part.parts:
        found = paths.cheapest(And((disjunct, *rest)), words)
        if found is None:
            return []
        path, keys, _ = found
        before = guards.get(path.attribute)
        guards[path.attribute] = path, keys if before is None else union_of([before[1], keys])
    return list(guards.values())


def _access(paths: "Paths", guards: "list[tuple[Path, Cover]]", words: list[int]) -> Access:
    words = list(words)
    predicates: list[Predicate] = []
    scans = []
    earlier: list[Predicate] = []
    for path, keys in guards:
        offset = len(words)
        for low, high in keys.intervals:
            words += [*low, *high]
        inside = In(path.place, offset, len(keys.intervals), False, keys.nulls)
        outside = In(path.place, offset, len(keys.intervals), True, not keys.nulls)
        scans += path.scans(keys, len(predicates))
        predicates.append(And((paths.predicate, inside, *earlier)))
        earlier.append(outside)
    plan = Plan(paths.table.id, tuple(predicates), paths.output)
    attributes = tuple(path.attribute for path, _ in guards)
    bounds = np.array(words, dtype=np.int64)
    return Access(plan, bounds, tuple(scans), attributes, "a union reads less than any single index", paths)
