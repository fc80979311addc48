"""Access paths: a predicate and its bounds come in, the pages to read go out.

Every indexed attribute is a way to the rows: what matching rows can have for a key becomes ranks, the index makes them
positions, positions are pages. The path that reads the fewest bytes wins. Costs come from public values only, and the
pages that go out are what the provider will see; the bounds are sealed.
"""

import numpy as np

from scumble.boundary.catalog import Run, Table
from scumble.boundary.plan import Aggregates, Plan, RowColumns
from scumble.boundary.predicate import In, Predicate, columns_of
from scumble.schema import Column
from scumble.schema.scalars import rank_span
from scumble.sql.cover import Cover, cover
from scumble.sql.scans import Access, Scan, one_range, pages_of
from scumble.sql.union import union_access

__all__ = ["Path", "Paths"]


class Path:
    """One way to the rows: by an indexed attribute, or in the order of loading if there is no index."""

    __slots__ = ("attribute", "column", "place", "runs", "type")

    def __init__(self, table: Table, attribute: str | None) -> None:
        self.attribute = attribute
        self.place = -1 if attribute is None else table.schema.place(attribute)
        self.column: Column = table.schema.columns[self.place]
        self.type = self.column.type
        self.runs = table.runs_by(attribute)

    def scans(self, keys: Cover | None, predicate: int = 0) -> list[Scan]:
        """The scans that find every row whose key is in the cover; all rows if there is none."""
        scans = []
        for run in self.runs:
            if keys is None or run.index is None:
                if run.pages:
                    scans.append(Scan(run, predicate, ((0, run.pages),), (), ((0, run.capacity),)))
                continue
            scan = self._scan(run, keys, predicate)
            if scan.pages:
                scans.append(scan)
        return scans

    def _scan(self, run: Run, keys: Cover, predicate: int) -> Scan:
        index = run.index
        assert index is not None  # noqa: S101 - the caller has looked
        domain, page_rows = index.domain, run.page_rows
        spans = [rank_span(domain, self.type, low, high) for low, high in keys.intervals]
        ranks = [(first, last) for first, last in spans if first <= last]
        positions: list[tuple[int, int]] = []
        if len(ranks) <= 8:
            positions = [one_range(run, first, last) for first, last in ranks]
        else:
            firsts, lasts = np.array(ranks, dtype=np.int64).T
            starts, stops = index.of_ranks(firsts, lasts)
            positions = list(zip(starts.tolist(), stops.tolist(), strict=True))
        if keys.nulls and self.column.nullable:
            positions.append((max(0, min(run.capacity, index.start_after(domain.size - 1))), run.capacity))
        positions = [(start, stop) for start, stop in positions if start < stop]
        return Scan(run, predicate, pages_of(positions, page_rows), tuple(ranks), tuple(positions))


class Paths:
    """All ways to the rows of one table for one predicate and output: made once, used for any bounds."""

    __slots__ = ("_everything", "_one", "_page_bytes", "columns", "output", "paths", "plan", "predicate", "table")

    def __init__(self, table: Table, predicate: Predicate, output: Aggregates | RowColumns) -> None:
        self.table, self.predicate, self.output = table, predicate, output
        self.plan = Plan(table.id, (predicate,), output)
        self.columns = tuple(sorted(columns_of(predicate) | output.reads))
        self.paths = [Path(table, attribute) for attribute in table.attributes]
        self._page_bytes: dict[int, int] = {}
        self._everything = self.paths[0].scans(None) if self.paths else []
        self._one = self._single_leaf()

    def page_bytes(self, run: Run) -> int:
        """How many bytes a page of every column takes that the plan reads."""
        found = self._page_bytes.get(run.page_rows)
        if found is None:
            # A page costs something even if no column of it is read: rows are counted one by one.
            found = max(1, sum(self.table.slot_bytes(column, run.page_rows) for column in self.columns))
            self._page_bytes[run.page_rows] = found
        return found

    def access(self, words: list[int]) -> Access:
        """The cheapest way for these bounds."""
        if self._one is not None:
            return self._by_one_range(self._one, words)
        attribute, scans, reason = self._best(words)
        union = union_access(self, words, self.cost(scans))
        if union is not None:
            return union
        return Access(self.plan, np.array(words, dtype=np.int64), tuple(scans), (attribute,), reason, self)

    def cost(self, scans: list[Scan]) -> int:
        """The bytes that scans read."""
        return sum(self.page_bytes(scan.run) * scan.page_count for scan in scans)

    def cheapest(self, predicate: Predicate, words: list[int]) -> tuple[Path, Cover, int] | None:
        """The indexed attribute that finds the rows of a predicate with the fewest bytes; None if there is no index."""
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

    def _best(self, words: list[int]) -> tuple[str | None, list[Scan], str]:
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

    def _by_one_range(self, path: Path, words: list[int]) -> Access:
        low, high = words
        scans = []
        for run in path.runs:
            first, last = rank_span(run.index.domain, path.type, (low,), (high,))  # type: ignore[union-attr]
            if first <= last:
                start, stop = one_range(run, first, last)
                if start < stop:
                    page = start // run.page_rows
                    pages = (page, (stop - 1) // run.page_rows - page + 1)
                    scans.append(Scan(run, 0, (pages,), ((first, last),), ((start, stop),)))
        bounds = np.array(words, dtype=np.int64)
        return Access(self.plan, bounds, tuple(scans), (path.attribute,), "the only condition", self)
