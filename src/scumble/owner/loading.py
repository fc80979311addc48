"""Loads: rows from any source reach the enclave sealed, with dummies up to the public capacity.

The rows, and how many there are, are SECRET. What the provider sees of a load (batches, pages, the indexes) depends on
the capacity and on what the ledger has paid for. `load` is the whole of it: refuse what can be refused and pay, send
the rows, recognise those that were loaded or paid for before, fix the capacity, have the runs built.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from scumble.errors import InvalidParameter, ScumbleError, Unavailable, Unfinished
from scumble.index.slack import release_bound
from scumble.owner.indexes import IndexSpec, capacity_cost
from scumble.owner.ledger import Ledger, Spend
from scumble.owner.load_target import indexes_of, open_rows
from scumble.owner.payments import Payment
from scumble.owner.repeats import content_digest, lost_table, terms_of
from scumble.owner.sending import Progress, Sender
from scumble.owner.session import Session
from scumble.owner.sources import can_reopen
from scumble.owner.spends import load_partition
from scumble.owner.versions import Versions
from scumble.privacy.budget import Budget, Exact, exact
from scumble.privacy.noise import Noise
from scumble.types import Domain, Schema
from scumble.wire.catalog import Catalog, Run, Table
from scumble.wire.charges import CAPACITY, STREAM
from scumble.wire.requests import Abandon, BeginLoad, Build, IndexOrder, Pay, Reserve

if TYPE_CHECKING:
    from scumble.owner.schema_file import SchemaFile

__all__ = [
    "Attempt",
    "LoadOptions",
    "LoadReport",
    "Placing",
    "Progress",
    "abandoned",
    "build",
    "can_reopen",
    "load",
    "load_rows",
    "released_indexes",
    "report_of",
    "spends_of",
]


PAGE_ROWS = 1024
LONG_PAGE_ROWS = 4096  # without an index: no lookup reads more than it needs, and opening a page has a fixed price
LEAST_LONG_CAPACITY = 1 << 16  # below, filling up the last page would show in what is stored
MOST_LONG_BYTES = 1 << 16  # of a page: with wide columns there is nothing to gain
MEMORY_BYTES = 2 << 30
CAPACITY_SHARE = Fraction(1, 10)  # of the cheapest index's epsilon, for a capacity that is drawn
CAPACITY_EPSILON = Fraction(1, 10)  # for one without an index
CAPACITY_BETA = Fraction(1, 10**12)


@dataclass(frozen=True)
class LoadOptions:
    """PUBLIC: how to load.

    `capacity` is how many rows the batch has room for; without it one is drawn, a little above the number of rows, at a
    cost of `capacity_epsilon`. `types` declares columns, as in {"name": "text(20)"}; `schema` is a schema file or the
    path of one, and may have indexes as well; `types_from_data` derives a schema from the rows, publishes it, and warns
    of that. A new table needs one of them unless its source has types of its own. `query` says what to read from a
    source that is a database. `page_rows` is how many rows a page has, by default 1,024, or 4,096 in a table of
    narrow columns without an index and with a capacity of 65,536 or more; `memory_bytes` is what the enclave sorts in.

    With `replace` the rows take the place of all that the table has. The costs of a table's batches add up, also of
    those that are gone. `new_rows` states that no row of this one is in the table yet, in whatever form: then only the
    dearest counts, and the ledger keeps the statement. Rows that were loaded before are refused, unless they shall be
    loaded `again`.
    """

    capacity: int | None = None
    capacity_epsilon: Exact | None = None
    page_rows: int | None = None
    memory_bytes: int = MEMORY_BYTES
    types: Mapping[str, str] | None = None
    query: str | None = None
    schema: "SchemaFile | str | PathLike[str] | None" = None
    types_from_data: bool = False
    new_rows: bool = False
    again: bool = False
    replace: bool = False

    def __post_init__(self) -> None:
        if self.new_rows and self.again:
            raise InvalidParameter("rows that are loaded again are not new", hint="leave one of the two out")
        if self.schema_file is not None and (self.types or self.types_from_data):
            raise InvalidParameter(
                "a schema declares every column, so that no other types can be given", hint="edit the schema instead"
            )
        if self.capacity is not None and not 1 <= self.capacity < 1 << 36:
            raise InvalidParameter("the capacity must be at least 1 and less than 2^36", hint="--capacity 1000000")
        if self.capacity is not None and self.capacity_epsilon is not None:
            raise InvalidParameter("a capacity that is given costs nothing", hint="leave one of the two out")
        rows = PAGE_ROWS if self.page_rows is None else self.page_rows
        if rows & (rows - 1) or not 16 <= rows <= 1 << 20:
            raise InvalidParameter("a page must have a power of two of rows, from 16 to 2^20", hint="1024 is usual")
        if self.memory_bytes < 1 << 20:
            raise InvalidParameter("a load needs at least 1 MiB of memory", hint="2 GiB is usual")

    def rows_in_page(self, schema: Schema, *, indexed: bool) -> int:
        """How many rows a page of a load has: what is public of it decides."""
        if self.page_rows is not None:
            return self.page_rows
        if indexed or self.capacity is None or self.capacity < LEAST_LONG_CAPACITY:
            return PAGE_ROWS
        is_narrow = all(column.page_bytes(LONG_PAGE_ROWS) <= MOST_LONG_BYTES for column in schema)
        return LONG_PAGE_ROWS if is_narrow else PAGE_ROWS

    @cached_property
    def schema_file(self) -> "SchemaFile | None":
        from scumble.owner.schema_file import SchemaFile

        return SchemaFile.read(self.schema) if isinstance(self.schema, str | PathLike) else self.schema

    @property
    def declared(self) -> dict[str, str]:
        """What the owner declares of the columns."""
        return dict(self.types or {}) if self.schema_file is None else self.schema_file.types

    def declared_types(self, source: object, domains: Mapping[str, Domain]) -> dict[str, str]:
        """What is declared of the columns of a new table; with `types_from_data`, what the rows look like."""
        if not self.types_from_data:
            return self.declared
        from scumble.owner.suggest import PublishedFromData, suggest

        suggestion = suggest(source, query=self.query, types=self.types, domains=domains)
        warnings.warn(suggestion.warning, PublishedFromData, stacklevel=2)
        return suggestion.file.types


@dataclass(frozen=True)
class LoadReport:
    """SECRET: what a load has done. It has the true number of rows, so it is for the key's holder alone.

    `epsilon` and `delta` are what its releases cost. If `retried`, it has finished a load that had drawn them and was
    lost: they were paid for then, and not once more. `runs` is what the table has of it, under the name `batch`.
    """

    table: str
    rows: int
    capacity: int
    epsilon: Fraction
    delta: Fraction
    indexes: tuple[str, ...]
    batch: str = ""
    runs: tuple[Run, ...] = ()
    retried: bool = False


@dataclass
class Attempt:
    """What the tries of one load have in common: how its batch is called, and its table if that is new.

    `batches` has every name that a try has used: the one that it was begun with, or that of a load it takes up again.
    While one is `pending`, its build was asked for, and nobody knows whether it is in the table.
    """

    batch: str
    batches: list[str] = field(default_factory=list)
    table_id: str | None = None
    pending: bool = False


def load(
    versions: Versions,
    ledger: Ledger,
    name: str,
    source: object,
    indexes: Sequence[IndexSpec],
    options: LoadOptions,
    progress: Progress,
    attempt: Attempt,
) -> LoadReport:
    """Load a source into a table of the current version, held for writing; what was done.

    If an earlier try's batch is in the table, nothing is sent or paid, and there is no new version. A drawn capacity's
    noise is derived from the key, the batch and the rows: it is the same when they come again.
    """
    catalog = versions.catalog
    rows, table = open_rows(catalog, name, source, indexes, options)
    left = replace(table, runs=()) if options.replace else table
    orders = [spec.order(released_indexes(table, spec.column)) for spec in indexes_of(left, indexes)]
    table = _named(table, orders, catalog, ledger, attempt)
    instead = tuple(run.id for run in table.runs) if options.replace else ()
    return load_rows(versions, ledger, table, rows, orders, options, progress, attempt, Placing(instead))


@dataclass(frozen=True)
class Placing:
    """PUBLIC: where the runs of a load go, as `BeginLoad` has it: after all others, instead of some, or beside them."""

    instead: tuple[str, ...] = ()
    beside: bool = False
    terms: tuple[str, ...] | None = None

    def shown(self, table: Table) -> set[str]:
        """The batches that the table keeps."""
        kept = [run for run in table.runs if self.beside or run.id not in self.instead]
        return {batch for run in kept for batch in run.batches}

    def is_done(self, table: Table, batch: str) -> bool:
        """Whether a batch is in the table, and stands as it was loaded where it shall stand."""
        gone = [run for run in table.runs if run.id in self.instead and (run.batch != batch or run.layers)]
        return bool(_runs_of(table, batch)) and not gone


AFTER = Placing()


def load_rows(
    versions: Versions,
    ledger: Ledger,
    table: Table,
    rows: Any,
    orders: Sequence[IndexOrder],
    options: LoadOptions,
    progress: Progress,
    attempt: Attempt,
    place: Placing,
) -> LoadReport:
    """Load batches of Arrow, which may know how many `rows` they have, into a table of the current version."""
    session, key = versions.session, versions.key
    spends = spends_of(table, orders, options, attempt.batch)
    there = next((batch for batch in attempt.batches if place.is_done(table, batch)), None)
    if there is not None:
        return report_of(table, sum(map(len, rows)), orders, spends, there, retried=False)
    attempt.pending = False  # in the newest version, held for writing, it is not
    page_rows = options.rows_in_page(table.schema, indexed=bool(orders))
    terms = terms_of(orders, spends, options.capacity, page_rows)
    with Payment(ledger, table.id, attempt.batch, place.shown(table), spends, terms) as payment:
        with abandoned(session):
            session.ask(_begin(table, orders, spends, options, attempt.batch, place))
            expected = getattr(rows, "rows", None)
            sender = Sender(session, table.schema, orders, progress, expected, key.noise_key(), attempt.batch)
            sender.send_all(rows, options.capacity)
            digest = content_digest(key.content_key(), table.schema, sender.digest)
            payment.identify(digest, again=options.again or place.beside)
            sender.batch_name = payment.batch
            attempt.batches.append(payment.batch)
            capacity_budget = payment.budgets[-1] if options.capacity is None else None
            sent = sender.rows
            capacity = _fix_capacity(sent, capacity_budget, options.capacity, page_rows, sender.noise)
            sender.fill(capacity)
            if charges := payment.charges(versions.grant_id):  # after the dummies: no message tells how many are real
                versions.change(Pay(payment.batch, charges))
            if versions.session is not session:  # the answer was lost, and with the session the rows
                raise Unavailable("the session was lost, and nothing was loaded", hint="load again")
            session.ask(Reserve(capacity))
        for budget in payment.budgets[: len(orders)]:
            budget.draw()
        progress("building", sent, sent)
        build(versions, sent, payment.batch, attempt)
    return report_of(versions.catalog.table(table.name), sent, orders, spends, payment.batch, retried=payment.retries)


def released_indexes(table: Table, column: str) -> list[bytes]:
    """The indexes of a column that the table's batches have."""
    return [run.index for run in table.runs if run.attribute == column and run.index is not None]


def _named(table: Table, orders: Sequence[IndexOrder], catalog: Catalog, ledger: Ledger, attempt: Attempt) -> Table:
    """The table; a new one under the same id in every try, also in one after a load that was lost."""
    if table.id in catalog.by_id:
        return table
    if attempt.table_id is None:
        rows_per_user = {order.rows_per_user for order in orders} or {1}
        attempt.table_id = lost_table(ledger, table.name, catalog.by_id, rows_per_user) or table.id
    return replace(table, id=attempt.table_id)


def _begin(
    table: Table,
    orders: Sequence[IndexOrder],
    spends: Sequence[Spend],
    options: LoadOptions,
    batch: str,
    place: Placing = AFTER,
) -> BeginLoad:
    drawn = spends[-1] if options.capacity is None else None
    return BeginLoad(
        batch=batch,
        capacity_cost=(Fraction(0), Fraction(0))
        if drawn is None
        else (exact(drawn.epsilon, "epsilon"), exact(drawn.delta, "delta")),
        table=table.name,
        table_id=table.id,
        schema=table.schema,
        orders=tuple(orders),
        page_rows=options.rows_in_page(table.schema, indexed=bool(orders)),
        memory_bytes=options.memory_bytes,
        instead=place.instead,
        beside=place.beside,
        terms=place.terms,
    )


@contextmanager
def abandoned(session: Session) -> Iterator[None]:
    """Have the enclave forget the rows that were sent if anything fails."""
    try:
        yield
    except BaseException:
        with suppress(ScumbleError):
            session.ask(Abandon())
        raise


def build(versions: Versions, sent: int, batch: str, attempt: Attempt) -> None:
    """Have the runs and indexes built, and a version made that has them."""
    try:
        versions.change(Build(sent, batch))
    except Unfinished:
        attempt.pending = True
        raise


def _runs_of(table: Table, batch: str) -> tuple[Run, ...]:
    return tuple(run for run in table.runs if batch in run.batches)


def report_of(
    table: Table, rows: int, orders: Sequence[IndexOrder], spends: Sequence[Spend], batch: str, *, retried: bool
) -> LoadReport:
    """What a load has done, by what the table has of its batch."""
    runs = _runs_of(table, batch)
    epsilon = sum((exact(spend.epsilon, "epsilon") for spend in spends), Fraction(0))
    delta = sum((exact(spend.delta, "delta") for spend in spends), Fraction(0))
    indexed = tuple(order.attribute for order in orders)
    return LoadReport(table.name, rows, runs[0].capacity, epsilon, delta, indexed, batch, runs, retried)


# --- capacity --------------------------------------------------------------------------------------


def _fix_capacity(
    rows: int,
    budget: Budget | None,
    capacity: int | None,
    page_rows: int,
    noise_for: Callable[[Fraction, Fraction], Noise],
) -> int:
    """The public capacity, in whole pages: as given, or the number of rows with noise and a shift on top.

    Sensitivity: 1; neighbours: one row added or removed; cost: the capacity's budget; docs/privacy.md section 10.
    """
    if capacity is None:
        assert budget is not None  # noqa: S101  _spends has one for it
        budget.draw()
        epsilon = budget.row_epsilon
        words = noise_for(epsilon, CAPACITY_BETA).stream("rows")
        capacity = release_bound(np.array([rows]), epsilon, CAPACITY_BETA, lossless=True, words=words)
    return max(1, -(-capacity // page_rows)) * page_rows


# --- costs -----------------------------------------------------------------------------------------


def spends_of(table: Table, orders: Sequence[IndexOrder], options: LoadOptions, batch: str) -> list[Spend]:
    """What the load costs: one spend for each index and, if the capacity is drawn, a last one for that."""

    def spend(what: str, epsilon: Fraction, delta: Fraction, rows_per_user: int) -> Spend:
        partition = load_partition(table.id, what, batch)
        return Spend(epsilon, f"{table.name} {what}", delta, rows_per_user, partition, options.new_rows)

    spends = [spend(_what(order), order.epsilon, order.delta, order.rows_per_user) for order in orders]
    if options.capacity is None:
        cheapest = min((order.epsilon * CAPACITY_SHARE for order in orders), default=CAPACITY_EPSILON)
        rows_per_user = max((order.rows_per_user for order in orders), default=1)
        epsilon = cheapest if options.capacity_epsilon is None else options.capacity_epsilon
        spends.append(spend(CAPACITY, *capacity_cost(epsilon, CAPACITY_BETA, rows_per_user), rows_per_user))
    return spends


def _what(order: IndexOrder) -> str:
    """What the ledger calls an index: its column, and never the capacity, nor a stream."""
    return f'"{order.attribute}"' if order.attribute in (CAPACITY, STREAM) else order.attribute
