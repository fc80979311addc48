"""Loading: rows from any source come in; they reach the enclave sealed, with dummies up to the public capacity.

The rows and how many there are is SECRET. What the provider sees of a load (batches, pages, the indexes) depends on the
capacity and on what the ledger has paid for. `load` is the whole of it: refuse what can be refused and pay, send the
rows, fix the capacity, have the runs built.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble.errors import (
    BadRows,
    Exists,
    InvalidKeys,
    InvalidParameter,
    OutOfDomain,
    ScumbleError,
    Tampered,
    Unavailable,
)
from scumble.index.price import Price, price_of
from scumble.index.slack import release_bound
from scumble.owner.indexes import IndexSpec
from scumble.owner.ledger import Ledger, RecordedBudget, Spend
from scumble.owner.sources import open_source
from scumble.owner.versions import Session
from scumble.privacy.amounts import Exact
from scumble.privacy.budget import Budget
from scumble.types import Column, Domain, Schema, convert, encode, schema_of
from scumble.wire.catalog import Catalog, Table
from scumble.wire.requests import RowLayout

__all__ = ["LoadOptions", "LoadReport", "Progress", "can_reopen", "dummy_rows", "encode_rows", "load"]


def encode_rows(
    batch: Any, layout: RowLayout, indexes: Sequence[tuple[int, Domain]], first_row: int = 1
) -> NDArray[np.int64]:
    """Return the words of a batch's rows, [rows, layout.words].

    `indexes` names the place of each indexed column and its domain, in the layout's order; `first_row` is the number of
    the batch's first row within the load, from 1. BadRows if a value fits neither its column nor its domain.
    """
    if batch.schema.names != [column.name for column in layout.schema]:
        raise BadRows("the batch has other columns than the table", hint="load columns of the same names and order")
    rows = np.zeros((len(batch), layout.words), np.int64)
    bits = rows[:, layout.validity_offset : layout.key_offset].view(np.uint64)
    keys: dict[int, list[int]] = {}
    for index, (place, _) in enumerate(indexes):
        keys.setdefault(place, []).append(index)
    for place, (column, offset) in enumerate(zip(layout.schema, layout.column_offsets, strict=True)):
        array = convert(column, batch.column(place), first_row)
        words, valid = encode(column, array, first_row)
        rows[:, offset : offset + column.type.words] = words.reshape(len(rows), column.type.words)
        if bits.shape[1]:
            _set_bit(bits[:, place // 64], place % 64, valid)
        for index in keys.get(place, []):
            ranks = rows[:, layout.key_offset + index]
            keyed = _Keys(column, array, words, valid, first_row)
            keyed.put_ranks(ranks, indexes[index][1])
    return rows


def dummy_rows(count: int, layout: RowLayout) -> NDArray[np.int64]:
    """Return rows that sort after every real one, and are zeros otherwise."""
    rows = np.zeros((count, layout.words), np.int64)
    rows[:, layout.key_offset :] = layout.dummy_keys()
    return rows


def _set_bit(bits: NDArray[np.uint64], bit: int, valid: NDArray[np.uint8] | None) -> None:
    if valid is None:
        bits |= np.uint64(1 << bit)
    else:
        bits |= valid.astype(np.uint64) << np.uint64(bit)


@dataclass(frozen=True)
class _Keys:
    """SECRET: an indexed column of a batch, as Arrow and as words."""

    column: Column
    array: Any
    words: NDArray[np.int64]
    valid: NDArray[np.uint8] | None
    first_row: int

    def put_ranks(self, ranks: NDArray[np.int64], domain: Domain) -> None:
        """Write the ranks of the keys; a null's is the domain's size."""
        present = None if self.valid is None or self.valid.all() else np.flatnonzero(self.valid)
        if self.column.type.words_are_ranks(domain):
            found = self.words if present is None else self.words[present]
        else:
            found = self._ranks(domain, present)
        if present is None:
            ranks[:] = found
        else:
            ranks[:] = domain.size
            ranks[present] = found

    def _ranks(self, domain: Domain, present: NDArray[np.int64] | None) -> NDArray[np.int64]:
        try:
            return domain.ranks(self.array if present is None else self.array.drop_null())
        except (InvalidKeys, OutOfDomain) as error:
            refusal = error
        name, trouble = self.column.name, refusal.at(None).message
        if refusal.row is None:  # of the wrong type altogether
            raise BadRows(f"column {name!r}: {trouble}", hint=refusal.hint, column=name)
        row = self.first_row + (refusal.row if present is None else int(present[refusal.row]))
        raise BadRows(f"column {name!r}, row {row}: {trouble}", hint=refusal.hint, row=row, column=name)


PAGE_ROWS = 1024
MEMORY_BYTES = 2 << 30
SENT_BYTES = 16 << 20  # of rows at a time
CAPACITY_SHARE = Fraction(1, 10)  # of the cheapest index's epsilon, for a capacity that is drawn
CAPACITY_EPSILON = Fraction(1, 10)  # for one without an index
CAPACITY_BETA = Fraction(1, 10**12)

Words = NDArray[np.int64]
Progress = Callable[[str, int, int | None], None]
"""Called now and then with what is being done, how many rows that is done for, and of how many if that is known."""
Confirm = Callable[[], None]
"""Returns if the newest version has the batch; else raises Unavailable."""


@dataclass(frozen=True)
class LoadOptions:
    """PUBLIC: how to load. Without a capacity one is drawn, at a cost of `capacity_epsilon`."""

    capacity: int | None = None
    capacity_epsilon: Exact | None = None
    page_rows: int = PAGE_ROWS
    memory_bytes: int = MEMORY_BYTES
    types: Mapping[str, str] | None = None
    query: str | None = None

    def __post_init__(self) -> None:
        if self.capacity is not None and not 1 <= self.capacity < 1 << 36:
            raise InvalidParameter("the capacity must be at least 1 and less than 2^36", hint="--capacity 1000000")
        if self.capacity is not None and self.capacity_epsilon is not None:
            raise InvalidParameter("a capacity that is given costs nothing", hint="leave one of the two out")
        if self.page_rows & (self.page_rows - 1) or not 16 <= self.page_rows <= 1 << 20:
            raise InvalidParameter("a page must have a power of two of rows, from 16 to 2^20", hint="1024 is usual")
        if self.memory_bytes < 1 << 20:
            raise InvalidParameter("a load needs at least 1 MiB of memory", hint="2 GiB is usual")


@dataclass(frozen=True)
class LoadReport:
    """What a load has done: for the owner, who may know the number of rows."""

    table: str
    rows: int
    capacity: int
    epsilon: Fraction
    delta: Fraction
    indexes: tuple[str, ...]


def load(
    session: Session,
    catalog: Catalog,
    ledger: Ledger,
    name: str,
    source: object,
    indexes: Sequence[IndexSpec],
    options: LoadOptions,
    progress: Progress,
    batch: str,
    confirm: Confirm,
) -> tuple[LoadReport, dict[str, Any] | None]:
    """Load a source into a table, of which `catalog` is the current version, held for writing; and the new version.

    `batch` is the name of the rows: if they are there under it, none are sent, nothing is paid, and there is no new
    version. If the session is lost while the runs are made, `confirm` finds out whether they are there.
    """
    domains, types = {spec.column: spec.domain for spec in indexes}, dict(options.types or {})
    if name in catalog:  # what is not declared is as it was
        types = {column.name: column.declaration for column in catalog.table(name).schema} | types
    rows_of = open_source(source, query=options.query, types=types, domains=domains)
    schema = schema_of(rows_of.schema, types=types, domains=domains)
    table = _target(catalog, name, schema)
    schema, indexes = table.schema, _indexes_of(table, indexes)
    layout = RowLayout(schema, tuple(spec.domain.size for spec in indexes))
    there = next((run for run in table.runs if run.batch == batch), None)
    if there is not None:
        return _report(name, sum(map(len, rows_of)), there.capacity, indexes, _prices(indexes, options)), None
    with _paid(ledger, table, indexes, options) as payment:
        capacity_cost = (payment.capacity.epsilon, payment.capacity.delta) if payment.capacity else (0, 0)
        session.task(
            "load",
            batch=batch,
            capacity_cost=[str(amount) for amount in capacity_cost],
            table=table.name,
            table_id=table.id,
            schema=schema.to_json(),
            orders=[spec.order().to_json() for spec in indexes],
            page_rows=options.page_rows,
            memory_bytes=options.memory_bytes,
        )
        try:
            keys = [(schema.place(spec.column), spec.domain) for spec in indexes]
            sender = _Sender(session, layout, progress, rows_of.rows)
            sent = _send(sender, rows_of, keys, options.capacity)
            capacity = _fix_capacity(sent, payment.capacity, options)
            sender.fill(capacity)
            session.task("reserve", capacity=capacity)
        except BaseException:
            with suppress(ScumbleError):
                session.task("abandon")
            raise
        payment.draw_indexes()
        progress("building", sent, sent)
        opened: dict[str, Any] | None = None
        try:
            opened = session.task("build", real_rows=sent, batch=batch)
        except (Unavailable, Tampered):  # the answer was lost, or somebody has altered it
            confirm()
    return _report(name, sent, capacity, indexes, payment.charged()), opened


def _report(
    table: str, rows: int, capacity: int, indexes: Sequence[IndexSpec], charged: tuple[Fraction, Fraction]
) -> LoadReport:
    return LoadReport(table, rows, capacity, *charged, tuple(spec.column for spec in indexes))


def _prices(indexes: Sequence[IndexSpec], options: LoadOptions) -> tuple[Fraction, Fraction]:
    """What a load costs, of which this process does not have the receipts."""
    prices = [spec.price() for spec in indexes]
    if options.capacity is None:
        prices.append(_capacity_price(indexes, options))
    return sum((price.epsilon for price in prices), Fraction(0)), sum((price.delta for price in prices), Fraction(0))


def can_reopen(source: object) -> bool:
    """Whether a source gives the same rows when it is opened again: one that streams them does not."""
    library, name = type(source).__module__.partition(".")[0], type(source).__name__
    held = ("pyarrow", "Table"), ("pyarrow", "RecordBatch"), ("pandas", "DataFrame"), ("polars", "DataFrame")
    return isinstance(source, str | PathLike) or (library, name) in held


def _target(catalog: Catalog, name: str, schema: Schema) -> Table:
    if not name.isidentifier() or len(name) > 64:
        raise InvalidParameter(
            "a table's name is a word of letters, digits and underscores", hint="flights_2013, for example"
        )
    if name not in catalog:
        return Table(uuid.uuid4().hex, name, schema, ())
    table = catalog.table(name)
    if not _holds(table.schema, schema):
        raise Exists(
            f"the table {name!r} is there, and has other columns",
            hint="give the same columns and types, or load into a table of another name",
        )
    return table


def _holds(schema: Schema, other: Schema) -> bool:
    """Whether rows of another schema are rows of this one: the same columns, nulls only where they may be."""
    return [(c.name, c.type) for c in schema] == [(c.name, c.type) for c in other] and all(
        ours.nullable or not theirs.nullable for ours, theirs in zip(schema, other, strict=True)
    )


def _indexes_of(table: Table, indexes: Sequence[IndexSpec]) -> list[IndexSpec]:
    """The indexes under their columns' own names, in the order that the table has them in."""
    named = {(name := table.schema[spec.column].name): replace(spec, column=name) for spec in indexes}
    if len(named) < len(indexes):
        raise InvalidParameter("a column is indexed twice", hint="one index for each column is enough")
    there = [attribute for attribute in table.attributes if attribute is not None]
    if table.runs and set(there) != set(named):
        raise Exists(
            f"the table {table.name!r} is there, and has other indexes",
            hint=f"a batch needs an index on each of {', '.join(there)}" if there else "its batches have no index",
        )
    return [named[name] for name in there or named]


# --- rows ------------------------------------------------------------------------------------------


class _Sender:
    """Sends rows in batches whose sizes depend on nothing but how many rows there are in the end, dummies included."""

    def __init__(self, session: Session, layout: RowLayout, progress: Progress, expected: int | None) -> None:
        self._session, self._layout, self._progress, self._expected = session, layout, progress, expected
        self._batch = np.empty((max(1, SENT_BYTES // (8 * layout.words)), layout.words), np.int64)
        self._filled = 0
        self.rows = 0

    def send(self, rows: Words) -> None:
        """Add rows to the batch, and send it whenever it is full."""
        at = 0
        while at < len(rows):
            take = min(len(rows) - at, len(self._batch) - self._filled)
            self._batch[self._filled : self._filled + take] = rows[at : at + take]
            self._filled += take
            at += take
            if self._filled == len(self._batch):
                self._flush()
        self.rows += len(rows)
        self._progress("loading", self.rows, self._expected)

    def fill(self, capacity: int) -> None:
        """Send dummies until there are so many rows."""
        while self.rows < capacity:
            self.send(dummy_rows(min(capacity - self.rows, len(self._batch)), self._layout))
        self._flush()

    def _flush(self) -> None:
        if self._filled:
            self._session.send_rows(self._batch[: self._filled])
            self._filled = 0

    @property
    def layout(self) -> RowLayout:
        """How rows are laid out."""
        return self._layout


def _send(sender: _Sender, batches: Any, keys: list[tuple[int, Domain]], capacity: int | None) -> int:
    for batch in batches:
        if capacity is not None and sender.rows + len(batch) > capacity:
            raise BadRows("there are more rows than the capacity", hint="give a larger --capacity")
        sender.send(encode_rows(batch, sender.layout, keys, first_row=sender.rows + 1))
    return sender.rows


def _fix_capacity(rows: int, budget: Budget | None, options: LoadOptions) -> int:
    """The public capacity, in whole pages: as given, or the number of rows with noise and a shift on top.

    Sensitivity: 1; neighbours: one row added or removed; cost: the capacity's budget; docs/privacy.md section 10.
    """
    capacity = options.capacity
    if capacity is None:
        assert budget is not None  # noqa: S101  _paid has spent one
        budget.draw()
        capacity = release_bound(np.array([rows]), budget.row_epsilon, CAPACITY_BETA, lossless=True)
    return max(1, -(-capacity // options.page_rows)) * options.page_rows


# --- money -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Payment:
    indexes: tuple[RecordedBudget, ...]
    capacity: RecordedBudget | None

    def draw_indexes(self) -> None:
        for budget in self.indexes:
            budget.draw()

    def charged(self) -> tuple[Fraction, Fraction]:
        budgets = [*self.indexes, *([self.capacity] if self.capacity else [])]
        return sum((b.epsilon for b in budgets), Fraction(0)), sum((b.delta for b in budgets), Fraction(0))


@contextmanager
def _paid(ledger: Ledger, table: Table, indexes: Sequence[IndexSpec], options: LoadOptions) -> Iterator[_Payment]:
    """Spend on everything before any work is done, and settle it when all is done.

    If the work fails, what nothing was drawn from is given back, and the rest stays unsettled: the same rows will come
    again. A ledger that cannot be written at the end leaves it unsettled too, since the rows are loaded by then.
    """
    part = uuid.uuid4().hex[:8]

    def of(what: str, price: Price) -> Spend:
        group = f"{table.name} ({table.id[:8]}) {what}"
        return Spend(price.epsilon, f"{table.name} {what}", price.delta, price.rows_per_user, (group, part))

    spends = [of(spec.column, spec.price()) for spec in indexes]
    if options.capacity is None:
        spends.append(of("capacity", _capacity_price(indexes, options)))
    spent = ledger.spend_all(spends)
    try:
        yield _Payment(spent[: len(indexes)], None if options.capacity is not None else spent[-1])
    except BaseException:
        for budget in spent:
            with suppress(ScumbleError):
                budget.cancel()
        raise
    for budget in spent:
        with suppress(ScumbleError):
            budget.settle()


def _capacity_price(indexes: Sequence[IndexSpec], options: LoadOptions) -> Price:
    prices = [spec.price() for spec in indexes]
    epsilon = options.capacity_epsilon
    if epsilon is None:
        epsilon = min((price.epsilon for price in prices), default=None)
        epsilon = CAPACITY_EPSILON if epsilon is None else epsilon * CAPACITY_SHARE
    rows_per_user = max((price.rows_per_user for price in prices), default=1)
    return price_of(epsilon, CAPACITY_BETA, rows_per_user, "lossless")
