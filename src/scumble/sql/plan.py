"""Access paths: for a predicate and its bounds, the pages that hold every matching row, read in the cheapest way.

Every *attribute*, a column that has an index, is a path to the rows: the values that matching rows can have become
ranks, the index turns ranks into positions, and positions lie on pages. Of the paths whose copies hold every column
that is read, the one that reads the fewest bytes wins. Costs come from public values only. The provider will see the
pages; the bounds are sealed.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scumble.index.contract import RunIndex
from scumble.index.kinds import decoded
from scumble.sql.constants import Bounds, ParamValues, merged
from scumble.types import Column, ColumnType, Interval
from scumble.wire.catalog import Run, Table
from scumble.wire.plan import Aggregates, And, Constant, In, Or, Plan, Predicate, RowColumns, columns_of

__all__ = ["Cover", "Path", "Paths", "RunScan", "TableAccess", "cover"]

Ranges = tuple[tuple[int, int], ...]


class RunScan(NamedTuple):
    """Pages of one run to read: (first page, how many), ascending and apart; and which of the predicates to use.

    `ranks` (first, last) and `positions` (start, stop) say how the pages came about.
    """

    run: Run
    predicate: int
    pages: Ranges
    ranks: Ranges
    positions: Ranges

    @property
    def page_count(self) -> int:
        """How many pages of each column are read."""
        return sum(count for _, count in self.pages)


class TableAccess(NamedTuple):
    """What the enclave is asked: a plan, its bounds, and the scans that find the rows.

    `attributes` are those whose indexes are used, None for a full scan; `reason` says why, for EXPLAIN.
    """

    plan: Plan
    bounds: NDArray[np.int64]
    scans: tuple[RunScan, ...]
    attributes: tuple[str | None, ...]
    reason: str
    paths: "Paths"

    @property
    def pages(self) -> int:
        """How many pages of each column are read, over all scans."""
        return sum(scan.page_count for scan in self.scans)

    @property
    def rows(self) -> int:
        """How many rows these pages hold, matching or not, dummies included."""
        return sum(count * scan.run.page_rows for scan in self.scans for _, count in scan.pages)

    @property
    def bytes_read(self) -> int:
        """How many sealed bytes are read."""
        if not self.paths.columns:
            return 0
        return sum(self.paths.page_bytes(scan.run) * scan.page_count for scan in self.scans)


def _one_range(index: RunIndex, capacity: int, first: int, last: int) -> tuple[int, int]:
    """The positions of one range of ranks."""
    stop = index.stop_at(last)
    stop = 0 if stop < 0 else min(stop, capacity)
    start = index.start_after(first - 1) if first else 0
    start = 0 if start < 0 else min(start, stop)
    return start, stop


def _pages_of(positions: list[tuple[int, int]], page_rows: int) -> Ranges:
    """The pages that hold some ranges of positions: ranges of pages, ascending, no page twice."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(positions):
        first, end = start // page_rows, (stop - 1) // page_rows + 1
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return tuple((first, end - first) for first, end in merged)


class Cover(NamedTuple):
    """Sorted disjoint intervals of words, both ends included, and whether nulls may match as well."""

    intervals: tuple[Interval, ...]
    nulls: bool

    def is_everything(self, type_: ColumnType) -> bool:
        return self.nulls and self.intervals == (type_.full_interval,)


EMPTY = Cover((), False)


def cover(predicate: Predicate, place: int, type_: ColumnType, words: list[int]) -> Cover:
    """The values that rows matching the predicate can have in the column at a place."""
    match predicate:
        case In() if predicate.column == place:
            return _leaf(predicate, type_, words)
        case Constant(False):
            return EMPTY
        case And(parts):
            return _intersection([cover(part, place, type_, words) for part in parts])
        case Or(parts):
            return _union_of([cover(part, place, type_, words) for part in parts])
    # Comparisons of two columns never match a null, but nulls of the column that they don't read may.
    return Cover((type_.full_interval,), True)


def _leaf(leaf: In, type_: ColumnType, words: list[int]) -> Cover:
    size = type_.words
    ends = [tuple(words[at : at + size]) for at in range(leaf.offset, leaf.offset + 2 * size * leaf.intervals, size)]
    intervals = merged(zip(ends[::2], ends[1::2], strict=True))
    if leaf.negated:
        intervals = _complement(intervals, type_)
    return Cover(tuple(intervals), leaf.null_matches)


def _complement(intervals: list[Interval], type_: ColumnType) -> list[Interval]:
    least, most = type_.full_interval
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


def _union_of(covers: list[Cover]) -> Cover:
    """What any of the covers holds."""
    intervals = [interval for part in covers for interval in part.intervals]
    return Cover(tuple(merged(intervals)), any(part.nulls for part in covers))


MOST_INTERVALS = 256
"""A guard with more intervals than this costs the enclave more than the pages it saves."""


def _union_access(paths: "Paths", words: list[int], limit: int) -> TableAccess | None:
    """The cheapest union that reads fewer than `limit` bytes; None if there is none."""
    best: tuple[int, list[tuple[Path, Cover]]] | None = None
    parts = paths.predicate.parts if isinstance(paths.predicate, And) else (paths.predicate,)
    for at, part in enumerate(parts):
        if isinstance(part, Or) and len(paths.paths) > 1:
            rest = parts[:at] + parts[at + 1 :]
            guards = _guards(paths, part, rest, words)
            bytes_read = sum(paths.cost(path.scans(keys)) for path, keys in guards)
            narrow = all(len(keys.intervals) <= MOST_INTERVALS for _, keys in guards)
            # Each of its predicates reads the others' keys, too: a condition that never matches may be by any of them.
            held = all(path.lacks(other.place for other, _ in guards) == () for path, _ in guards)
            if len(guards) > 1 and narrow and held and bytes_read < (limit if best is None else best[0]):
                best = bytes_read, guards
    return None if best is None else _access(paths, best[1], words)


def _guards(paths: "Paths", part: Or[In], rest: tuple[Predicate, ...], words: list[int]) -> "list[tuple[Path, Cover]]":
    """For each attribute that is best for a disjunct, what all its disjuncts' keys can be."""
    guards: dict[str | None, tuple[Path, Cover]] = {}
    for disjunct in part.parts:
        found = paths.cheapest(And((disjunct, *rest)), words)
        if found is None:
            return []
        path, keys, _ = found
        before = guards.get(path.attribute)
        guards[path.attribute] = path, keys if before is None else _union_of([before[1], keys])
    return list(guards.values())


def _access(paths: "Paths", guards: "list[tuple[Path, Cover]]", words: list[int]) -> TableAccess:
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
    return TableAccess(plan, bounds, tuple(scans), attributes, "a union reads less than any single index", paths)


def _whole(run: Run, predicate: int) -> RunScan:
    return RunScan(run, predicate, ((0, run.pages),), (), ((0, run.capacity),))


class Path:
    """One way to the rows: by an attribute's index, or in the order of loading. Its `copy` may lack some columns."""

    __slots__ = ("attribute", "column", "copy", "indexes", "place", "runs", "type")

    def __init__(self, table: Table, attribute: str | None, copy: tuple[int, ...] | None = None) -> None:
        self.attribute, self.copy = attribute, copy
        self.place = -1 if attribute is None else table.schema.place(attribute)
        self.column: Column = table.schema.columns[self.place]
        self.type = self.column.type
        self.runs = table.runs_by(attribute)
        self.indexes = [None if run.index is None else decoded(run.index) for run in self.runs]

    def lacks(self, places: Iterable[int]) -> tuple[int, ...]:
        """Those of the columns at these places that it does not hold."""
        return () if self.copy is None else tuple(place for place in places if place not in self.copy)

    def scans(self, keys: Cover | None, predicate: int = 0) -> list[RunScan]:
        """The scans that find every row whose key is in the cover; all rows if there is none."""
        scans = []
        for run, index in zip(self.runs, self.indexes, strict=True):
            if keys is None or index is None:
                if run.pages:
                    scans.append(_whole(run, predicate))
                continue
            scan = self._scan(run, index, keys, predicate)
            if scan.pages:
                scans.append(scan)
        return scans

    def _scan(self, run: Run, index: RunIndex, keys: Cover, predicate: int) -> RunScan:
        domain, page_rows = index.domain, run.page_rows
        spans = [self.type.rank_span(domain, low, high) for low, high in keys.intervals]
        ranks = [(first, last) for first, last in spans if first <= last]
        positions: list[tuple[int, int]] = []
        if len(ranks) <= 8:
            positions = [_one_range(index, run.capacity, first, last) for first, last in ranks]
        else:
            firsts, lasts = np.array(ranks, dtype=np.int64).T
            starts, stops = index.of_ranks(firsts, lasts)
            positions = list(zip(starts.tolist(), stops.tolist(), strict=True))
        if keys.nulls and self.column.nullable:
            positions.append((max(0, min(run.capacity, index.start_after(domain.size - 1))), run.capacity))
        positions = [(start, stop) for start, stop in positions if start < stop]
        return RunScan(run, predicate, _pages_of(positions, page_rows), tuple(ranks), tuple(positions))


class Paths:
    """All ways to the rows of one table for one predicate and output: made once, used for any parameters.

    `paths` are those by copies that hold every column which is read; `passed_over` are indexes that the predicate asks
    for, and whose copies lack some of these columns.
    """

    __slots__ = (
        "_everything", "_one", "_page_bytes", "bounds", "columns", "output", "passed_over", "paths", "plan",
        "predicate", "table",
    )  # fmt: skip

    def __init__(self, table: Table, predicate: Predicate, bounds: Bounds, output: Aggregates | RowColumns) -> None:
        self.table, self.predicate, self.bounds, self.output = table, predicate, bounds, output
        self.plan = Plan(table.id, (predicate,), output)
        asked = set(columns_of(predicate))
        self.columns = tuple(sorted(asked.union(output.reads(table.schema))))
        every = [Path(table, *copy) for copy in table.copies]
        self.paths = [path for path in every if not path.lacks(self.columns)]
        self.passed_over = [path for path in every if path.lacks(self.columns) and path.place in asked]
        self._page_bytes: dict[int, int] = {}
        self._everything: list[RunScan] = min((path.scans(None) for path in self.paths), key=self.cost, default=[])
        self._one = self._single_leaf()

    @property
    def pages_of_everything(self) -> int:
        """How many pages of each column a full scan reads: of the copy that has fewest."""
        return sum(scan.page_count for scan in self._everything)

    def page_bytes(self, run: Run) -> int:
        """How many bytes a page of every column takes that the plan reads."""
        found = self._page_bytes.get(run.page_rows)
        if found is None:
            # A page costs something even if no column of it is read: rows are counted one by one.
            found = max(1, sum(self.table.slot_bytes(column, run.page_rows) for column in self.columns))
            self._page_bytes[run.page_rows] = found
        return found

    def access(self, params: ParamValues | None) -> TableAccess:
        """The cheapest way for these parameters; Replan if they need a predicate of another shape."""
        words = self.bounds.words(params)
        if self._one is not None:
            return self._by_one_range(self._one, words)
        attribute, scans, reason = self._best(words)
        union = _union_access(self, words, self.cost(scans))
        if union is not None:
            return union
        return TableAccess(self.plan, np.array(words, dtype=np.int64), tuple(scans), (attribute,), reason, self)

    def cost(self, scans: list[RunScan]) -> int:
        return sum(self.page_bytes(scan.run) * scan.page_count for scan in scans)

    def cheapest(self, predicate: Predicate, words: list[int]) -> tuple[Path, Cover, int] | None:
        """The attribute that finds the rows of a predicate with the fewest bytes; None if no index narrows."""
        found: tuple[Path, Cover, int] | None = None
        for path in self.paths:
            if path.attribute is not None:
                keys = cover(predicate, path.place, path.type, words)
                if keys.is_everything(path.type):  # all that an index could do is lose a row
                    continue
                bytes_read = self.cost(path.scans(keys))
                if found is None or bytes_read < found[2]:
                    found = path, keys, bytes_read
        return found

    def _best(self, words: list[int]) -> tuple[str | None, list[RunScan], str]:
        if not self.paths:
            return None, [], "the table is empty"
        everything = self._everything
        found = self.cheapest(self.predicate, words)
        if found is None:
            return None, everything, "no index narrows this down: all pages are read"
        path, keys, bytes_read = found
        if bytes_read < self.cost(everything):
            scans = path.scans(keys)
            return path.attribute, scans, "reads least" if scans else "nothing can match"
        return None, everything, "no index narrows this down: all pages are read"

    def _single_leaf(self) -> Path | None:
        """The path, if the predicate is one interval of an indexed one-word column: there is nothing to choose."""
        leaf = self.predicate
        if not isinstance(leaf, In) or leaf.intervals != 1 or leaf.negated or leaf.null_matches:
            return None
        for path in self.paths:
            if path.place == leaf.column and path.attribute is not None and path.type.words == 1:
                return path
        return None

    def _by_one_range(self, path: Path, words: list[int]) -> TableAccess:
        low, high = words
        scans = []
        for run, index in zip(path.runs, path.indexes, strict=True):
            if index is None:  # of the tail
                scans.append(_whole(run, 0))
                continue
            first, last = path.type.rank_span(index.domain, (low,), (high,))
            if first <= last:
                start, stop = _one_range(index, run.capacity, first, last)
                if start < stop:
                    page = start // run.page_rows
                    pages = (page, (stop - 1) // run.page_rows - page + 1)
                    scans.append(RunScan(run, 0, (pages,), ((first, last),), ((start, stop),)))
        bounds = np.array(words, dtype=np.int64)
        return TableAccess(self.plan, bounds, tuple(scans), (path.attribute,), "the only condition", self)
