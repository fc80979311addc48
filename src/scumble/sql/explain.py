"""EXPLAIN: what a bound statement will read, what runs where, and what the provider will see of it, in words.

All of it is for the asker. The provider sees the part that says so; the conditions' constants are not in that part.
"""

import html
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from scumble.index.kinds import decoded
from scumble.sql.aggregate import AggregateQuery
from scumble.sql.plan import TableAccess
from scumble.sql.statement import Bound
from scumble.types import Schema
from scumble.wire.catalog import Streamed
from scumble.wire.channel import PADDED_BYTES
from scumble.wire.plan import Aggregates, RowColumns

__all__ = ["Explanation", "ScanExplanation", "TableExplanation", "explain", "page_ranges"]

SHOWN = 4  # ranges in the text; JSON has all of them


@dataclass(frozen=True)
class ScanExplanation:
    """Pages of one run: `ranks` are (first, last), `positions` (start, stop), `pages` (first, how many).

    `sorted_by` is the attribute of the run's copy of the rows, None if they lie in the order of loading, and
    `copy_columns` are the columns that the copy holds, None if it holds all.
    """

    run: str
    sorted_by: str | None
    copy_columns: list[str] | None
    index: str | None
    ranks: list[tuple[int, int]]
    positions: list[tuple[int, int]]
    pages: list[tuple[int, int]]
    of_pages: int


@dataclass(frozen=True)
class PassedOver:
    """An index that was not used because its copy of the rows lacks these columns, which the statement reads."""

    index: str
    missing: list[str]


@dataclass(frozen=True)
class TableExplanation:
    """How the rows of one table are found.

    `expected_overhead_rows` is what the index's slack adds to the rows of the ranges, before they are rounded to pages;
    `beta` bounds the chance that a row is lost, added up over its indexes and batches; `answer_bytes` is
    the size of the answer before it is sealed.
    """

    table: str
    indexes: list[str]
    reason: str
    passed_over: list[PassedOver]
    scans: list[ScanExplanation]
    pages_read: int
    pages_of_full_scan: int
    has_narrow_copies: bool
    rows_read: int
    capacity: int
    expected_overhead_rows: int
    beta: float
    columns_read: list[str]
    bytes_read: int
    answer: str
    answer_rows: int
    answer_bytes: int
    enclave_conditions: list[str]
    owner_conditions: list[str]
    streamed: Streamed | None = None
    """When the last batch of a stream into the table was sent, if it has any: so old are the rows in it."""


@dataclass(frozen=True)
class Explanation:
    """What a query will do. Queries charge no epsilon: the index has paid for all of them.

    `beta` bounds the chance that a row of any table is lost.
    """

    kind: str
    tables: list[TableExplanation]
    owner_sql: str | None
    beta: float
    epsilon_charged: int | float = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(f"{'':<{2 * depth}}{text}" for depth, text in self._lines())

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><td style="text-align:left;padding-left:{1 + 1.5 * depth}em">{html.escape(text)}</td></tr>'
            for depth, text in self._lines()
        )
        return f"<table>{rows}</table>"

    def _lines(self) -> list[tuple[int, str]]:
        return [(0, self.kind), *self._query_lines(), (0, f"epsilon charged: {self.epsilon_charged}")]

    def _query_lines(self) -> list[tuple[int, str]]:
        lines = [line for table in self.tables for line in _table_lines(table)]
        if self.owner_sql is not None:
            lines += [(0, "at the owner, DuckDB runs"), (1, " ".join(self.owner_sql.split()))]
        if sum(1 for table in self.tables if table.indexes) > 1:
            lines.append((0, f"chance that a row of any table is lost: at most {self.beta:g}"))
        return lines


def explain(bound: Bound) -> Explanation:
    """What a bound statement will do, from the plan alone: nothing is executed."""
    query, beta = bound.query, _chance_of_loss(bound.accesses)
    if isinstance(query, AggregateQuery):
        tables = [_table(bound.accesses[0], list(query.conditions), [])]
        return Explanation("aggregates in the enclave", tables, None if query.direct else query.final_sql, beta)
    tables = [
        _table(access, list(fetch.conditions), list(fetch.residual))
        for fetch, access in zip(query.fetches, bound.accesses, strict=True)
    ]
    kind = "rows, finished at the owner" if tables else "no table: DuckDB alone, at the owner"
    return Explanation(kind, tables, query.final_sql, beta)


def _table(access: TableAccess, enclave: list[str], owner: list[str]) -> TableExplanation:
    paths = access.paths
    schema = paths.table.schema
    overhead = sum(
        decoded(scan.run.index).extra_rows(scan.ranks, len(scan.positions))
        for scan in access.scans
        if scan.run.index is not None and scan.ranks
    )
    answer, answer_rows, answer_bytes = _answer(access, schema)
    return TableExplanation(
        table=paths.table.name,
        indexes=[attribute for attribute in access.attributes if attribute is not None],
        reason=access.reason,
        passed_over=[
            PassedOver(str(path.attribute), [schema.columns[place].name for place in path.lacks(paths.columns)])
            for path in paths.passed_over
        ],
        scans=[
            ScanExplanation(
                scan.run.id,
                scan.run.attribute,
                None if scan.run.columns is None else [schema.columns[place].name for place in scan.run.columns],
                scan.run.attribute if scan.ranks else None,
                list(scan.ranks),
                list(scan.positions),
                list(scan.pages),
                scan.run.pages,
            )
            for scan in access.scans
        ],
        pages_read=access.pages,
        pages_of_full_scan=paths.pages_of_everything,
        has_narrow_copies=any(columns is not None for _, columns in paths.table.copies),
        rows_read=access.rows,
        capacity=paths.table.capacity,
        expected_overhead_rows=min(overhead, access.rows),
        beta=_chance_of_loss([access]),
        columns_read=[schema.columns[place].name for place in paths.columns],
        bytes_read=access.bytes_read,
        answer=answer,
        answer_rows=answer_rows,
        answer_bytes=answer_bytes,
        enclave_conditions=enclave,
        owner_conditions=owner,
        streamed=paths.table.streamed,
    )


def _chance_of_loss(accesses: Sequence[TableAccess]) -> float:
    """The betas of the indexes that find the rows, added up over their batches; one that is used twice counts once.

    A batch of which no page is read counts as well: that was its index's word.
    """
    betas = {
        (access.paths.table.id, run.id): decoded(run.index).beta
        for access in accesses
        for path in access.paths.paths
        if path.attribute in access.attributes
        for run in path.runs
        if run.index is not None
    }
    return float(min(1, sum(betas.values())))


def _answer(access: TableAccess, schema: Schema) -> tuple[str, int, int]:
    output = access.plan.output
    if isinstance(output, RowColumns):
        width = 1 + sum(schema.columns[place].answer_row_bytes for place in output.columns)
        return "rows, blanked where they do not match", access.rows, access.rows * width
    assert isinstance(output, Aggregates)  # noqa: S101  explain_changes.py has the others
    return "aggregate states", prod(output.group_sizes(schema)), 8 * output.layout(schema)[1]


def _table_lines(table: TableExplanation) -> list[tuple[int, str]]:
    how = f"by its index on {' and '.join(table.indexes)}" if table.indexes else "by a full oblivious scan"
    lines = [(0, f"{table.table}: {how} ({table.reason})")]
    if table.streamed is not None:
        lines.append((1, table.streamed.about(time.time())))
    lines += [
        (1, f"not by its index on {each.index}: that copy does not hold {', '.join(each.missing)}")
        for each in table.passed_over
    ]
    for scan in table.scans:
        if scan.index is not None:
            lines.append((1, f"ranks {_ranges(scan.ranks, 0)} of {scan.index}, positions {_ranges(scan.positions, 1)}"))
        lines.append((1, f"run {scan.run}{_copy(table, scan)}: {page_ranges(scan.pages)} of {scan.of_pages:,}"))
    if table.indexes:
        lines.append((1, f"reads about {table.expected_overhead_rows:,} rows more than the ranges hold, for privacy"))
        lines.append((1, f"chance that a row is lost: at most {table.beta:g}"))
    if table.enclave_conditions:
        lines.append((1, f"the enclave tests: {' AND '.join(table.enclave_conditions)}"))
    if table.owner_conditions:
        lines.append((1, f"only DuckDB tests: {' AND '.join(table.owner_conditions)}"))
    share = f"{table.pages_read:,} of {table.pages_of_full_scan:,} pages for {', '.join(table.columns_read)}"
    share += f", {table.bytes_read:,} bytes"
    lines.append((1, f"the provider sees: {share if table.columns_read else 'no page read'}"))
    padded = f", padded to {PADDED_BYTES}" if table.answer_bytes + 1 < PADDED_BYTES else ""
    lines.append((1, f"and an answer of {table.answer_bytes:,} bytes{padded}: {_of(table)}"))
    return lines


def _copy(table: TableExplanation, scan: ScanExplanation) -> str:
    """Which copy of the rows a run is of, if they differ in more than their order."""
    if not table.has_narrow_copies:
        return ""
    order = "in the order of loading" if scan.sorted_by is None else f"by {scan.sorted_by}"
    held = "all columns" if scan.copy_columns is None else ", ".join(scan.copy_columns)
    return f" (the copy {order}, with {held})"


def _of(table: TableExplanation) -> str:
    """What an answer has: "1 aggregate state", "7,168 rows, blanked where they do not match"."""
    noun, comma, rest = table.answer.partition(",")
    return f"{table.answer_rows:,} {noun.removesuffix('s') if table.answer_rows == 1 else noun}{comma}{rest}"


def _ranges(ranges: list[tuple[int, int]], open_end: int) -> str:
    shown = [f"{first:,} to {last - open_end:,}" for first, last in ranges[:SHOWN]]
    return ", ".join(shown) + (f" and {len(ranges) - SHOWN:,} more" if len(ranges) > SHOWN else "")


def page_ranges(pages: list[tuple[int, int]]) -> str:
    """Ranges of pages in words, the first few of them."""
    return f"pages {_ranges([(first, first + count) for first, count in pages], 1)}"
