"""EXPLAIN of a change: which pages will be read and sealed anew, what goes to the tail, and what the provider will see.

In come planned changes and the public room of an insert; out goes a `ChangeExplanation`, for the asker. Nothing of it
depends on a row: how many rows match is not known before the change is made, and never to the provider.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scumble.index.kinds import decoded
from scumble.sql.changes import Change, Step
from scumble.sql.explain import Explanation, page_ranges
from scumble.sql.plan import RunScan
from scumble.wire.catalog import LIVE, UNIT_ROWS, Table
from scumble.wire.plan import Assignment, columns_of

__all__ = ["ChangeExplanation", "InsertExplanation", "RunExplanation", "StepExplanation", "explain_change"]

LIVE_NAME = "the live bytes"


@dataclass(frozen=True)
class RunExplanation:
    """Pages of one run, `pages` (first, how many), all of which are read and sealed anew, whether a row matches or not.

    `sorted_by` is the attribute of the run's copy of the rows, None for the order of loading; `index` the one that
    narrows its pages down, None if all are read. A run of the `tail` has the rows that were inserted.
    """

    run: str
    sorted_by: str | None
    tail: bool
    index: str | None
    pages: list[tuple[int, int]]
    of_pages: int


@dataclass(frozen=True)
class StepExplanation:
    """One pass over a table: which columns of which pages are read, and which are sealed anew.

    What is deleted gets its live byte rewritten, a hidden column. If rows are copied to the tail as they become,
    `tail_rows` is the room that they take there: as many rows as are read. `keys` is how many keys are looked for in
    one pass, rounded up to a power of two; 0 if there is a condition instead.
    """

    does: str
    keys: int
    columns_read: list[str]
    columns_sealed: list[str]
    runs: list[RunExplanation]
    pages_read: int
    pages_sealed: int
    bytes_read: int
    bytes_sealed: int
    tail_rows: int


@dataclass(frozen=True)
class InsertExplanation:
    """The room that inserted rows take in the tail, in units of 256 rows, and in sealed bytes."""

    tail_rows: int
    tail_bytes: int


@dataclass(frozen=True, kw_only=True)
class ChangeExplanation(Explanation):
    """What a statement will change: `kind` says which it is, INSERT, UPDATE or DELETE. It costs no epsilon.

    `indexes` are those that narrow down what is read; `beta` bounds the chance that a row which matches is overlooked,
    added up over all copies of the rows, since a change has to find it in each of them. `tables` are those that an
    INSERT from a query reads, and how. With `may_be_refused`, the provider sees whether all of it was refused because
    a value does not fit its column.
    """

    table: str
    indexes: list[str]
    condition: str | None
    steps: list[StepExplanation]
    insert: InsertExplanation | None
    may_be_refused: bool

    @property
    def bytes_read(self) -> int:
        """How many sealed bytes of the table are read for it, by all steps."""
        return sum(step.bytes_read for step in self.steps)

    @property
    def bytes_sealed(self) -> int:
        """How many bytes are sealed anew, the inserted rows' included."""
        return sum(step.bytes_sealed for step in self.steps) + (self.insert.tail_bytes if self.insert else 0)

    def _lines(self) -> list[tuple[int, str]]:
        how = f", narrowed down by {' and '.join(self.indexes)}" if self.indexes else ""
        lines = [(0, f"{self.kind}: {self.table}{how}")]
        if self.condition is not None:
            lines.append((1, f"the enclave tests: {self.condition}"))
        for step in self.steps:
            lines += _step_lines(step)
        if self.insert is not None:
            room = f"{self.insert.tail_rows:,} rows, dummies included: {self.insert.tail_bytes:,} bytes"
            lines.append((1, f"adds to the tail {room}"))
        if not self.steps and self.insert is None:
            lines.append((1, "nothing is read or sealed: the table is empty, or nothing can match"))
        if self.indexes:
            lines.append((1, f"chance that a row is overlooked: at most {self.beta:g}"))
        lines.append((1, f"the provider sees: {self._seen()}"))
        lines.append((1, "and never how many rows matched, were changed or are alive"))
        if self.tables:
            lines += [(0, "its rows come from a query:"), *((depth + 1, text) for depth, text in self._query_lines())]
        return [*lines, (0, f"epsilon charged: {self.epsilon_charged}")]

    def _seen(self) -> str:
        """What a provider can tell, in one sentence."""
        seen = [f"a change of {self.table}"]
        if self.steps:
            columns = dict.fromkeys(name for step in self.steps for name in step.columns_sealed)
            seen.append(f"these pages, {', '.join(columns)} sealed anew")
        if self.insert is not None:
            seen.append(f"room for {self.insert.tail_rows:,} rows")
        seen.append(f"{self.bytes_read:,} bytes read and {self.bytes_sealed:,} sealed")
        if self.may_be_refused:
            seen.append("whether all of it was refused since a value does not fit its column")
        return "; ".join(seen)


def explain_change(
    kind: str,
    table: Table,
    changes: Sequence[Change],
    *,
    room: int | None = None,
    query: Explanation | None = None,
    keyed: bool = False,
) -> ChangeExplanation:
    """What planned changes of a table will do, and an insert with so much room after them: nothing is executed.

    `query` is what finds the rows of the insert, if they are not in the statement.
    """
    steps = [step for change in changes for step in change.steps if step.scans]
    indexes = dict.fromkeys(attribute for change in changes for attribute in change.attributes)
    return ChangeExplanation(
        kind=kind,
        tables=[] if query is None else query.tables,
        owner_sql=None if query is None else query.owner_sql,
        beta=min(1.0, _chance_of_loss(table, indexes) + (0 if query is None else query.beta)),
        table=table.name,
        indexes=list(indexes),
        condition=None if keyed or not changes else changes[0].condition,
        steps=[_step(table, step, keyed=keyed) for step in steps],
        insert=None if room is None else _insert(table, room),
        may_be_refused=any(
            _may_not_fit(table, one) for step in steps for each in step.output.assignments for one in each
        ),
    )


def _may_not_fit(table: Table, one: Assignment) -> bool:
    """Whether it depends on a row that a value fits its column: constants were checked before anything is sent."""
    columns = table.schema.columns
    match one.expression:
        case None:
            return False
        case ("column", int(place)):
            return columns[place].nullable and not columns[one.column].nullable
    return True


def _step(table: Table, step: Step, *, keyed: bool) -> StepExplanation:
    output = step.output
    tested = [place for predicate in step.plan.predicates for place in columns_of(predicate)]
    read = sorted({*tested, *output.reads(table.schema)})
    sealed = (*range(len(table.schema)), LIVE) if output.copies else output.written
    pages = sum(scan.page_count for scan in step.scans)
    return StepExplanation(
        does="copies" if output.copies else "deletes" if output.deletes else "rewrites",
        keys=len(step.plan.predicates) if keyed else 0,
        columns_read=[table.schema.columns[place].name for place in read],
        columns_sealed=[LIVE_NAME if place == LIVE else table.schema.columns[place].name for place in sealed],
        runs=[_run(scan) for scan in step.scans],
        pages_read=pages,
        pages_sealed=pages,
        bytes_read=sum(_bytes(table, scan, read) + _live_bytes(table, scan) for scan in step.scans),
        bytes_sealed=sum(_bytes(table, scan, sealed) for scan in step.scans),
        tail_rows=sum(scan.page_count * scan.run.page_rows for scan in step.scans) if output.copies else 0,
    )


def _bytes(table: Table, scan: RunScan, columns: Sequence[int]) -> int:
    held = {LIVE, *table.held(scan.run)}
    return scan.page_count * sum(table.slot_bytes(column, scan.run.page_rows) for column in columns if column in held)


def _live_bytes(table: Table, scan: RunScan) -> int:
    """What is read of the live bytes: they are there only where rows may have been deleted."""
    layers = [layer for layer in scan.run.layers if LIVE in layer.columns]
    pages = [page for first, count in scan.pages for page in range(first, first + count)] if layers else []
    there = sum(any(layer.first_page <= page < layer.end_page for layer in layers) for page in pages)
    return there * table.slot_bytes(LIVE, scan.run.page_rows)


def _run(scan: RunScan) -> RunExplanation:
    run = scan.run
    narrowed = run.attribute if scan.ranks else None
    return RunExplanation(run.id, run.attribute, run.tail, narrowed, list(scan.pages), run.pages)


def _insert(table: Table, rows: int) -> InsertExplanation:
    page_bytes = sum(table.slot_bytes(column, UNIT_ROWS) for column in range(len(table.schema)))
    return InsertExplanation(rows, rows // UNIT_ROWS * page_bytes)


def _chance_of_loss(table: Table, indexes: "dict[str, None]") -> float:
    """The betas of the indexes that are used, added up over their batches."""
    runs = [run for run in table.settled if run.attribute in indexes and run.index is not None]
    return float(min(1, sum(decoded(run.index).beta for run in runs if run.index is not None)))


# --- in words ------------------------------------------------------------------------------------------

_DOES = {
    "rewrites": "reads {read}, and seals {sealed} anew",
    "deletes": "reads {read}, and seals {sealed} anew: rows that match are no more",
    "copies": "reads {read}, and adds the rows as they become to the tail, with room for {room} rows",
}


def _step_lines(step: StepExplanation) -> list[tuple[int, str]]:
    read, sealed = ", ".join(step.columns_read) or "no column", ", ".join(step.columns_sealed)
    keys = f", looking for {'1 key' if step.keys == 1 else f'up to {step.keys:,} keys'}" if step.keys else ""
    lines = [(1, _DOES[step.does].format(read=read, sealed=sealed, room=f"{step.tail_rows:,}") + keys)]
    for run in step.runs:
        order = "of the tail" if run.tail else "by " + run.sorted_by if run.sorted_by else "in the order of loading"
        lines.append((2, f"run {run.run} {order}: {page_ranges(run.pages)} of {run.of_pages:,}"))
    return lines
