"""Loads: rows from any source reach the enclave sealed, with dummies up to the public capacity.

The rows, and how many there are, are SECRET. What the provider sees of a load (batches, pages, the indexes) depends on
the capacity and on what the ledger has paid for. `load` is the whole of it: refuse what can be refused and pay, send
the rows, fix the capacity, have the runs built.
"""

import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scumble.errors import BadRows, Exists, InvalidParameter, ScumbleError
from scumble.index.slack import release_bound
from scumble.owner.encoding import dummy_rows, encode_rows
from scumble.owner.indexes import IndexSpec, index_cost
from scumble.owner.ledger import Ledger, RecordedBudget, Spend
from scumble.owner.session import Session
from scumble.owner.sources import can_reopen, open_source
from scumble.owner.versions import Versions
from scumble.privacy.budget import Budget, Exact, exact
from scumble.types import Domain, Schema, check_convertible, check_stated, parse_type, split_nullability
from scumble.wire.catalog import Catalog, Table
from scumble.wire.charges import CAPACITY, Charge
from scumble.wire.requests import Abandon, BeginLoad, Build, IndexOrder, Pay, Reserve, RowLayout

if TYPE_CHECKING:
    from scumble.owner.schema_file import SchemaFile

__all__ = ["LoadOptions", "LoadReport", "Progress", "can_reopen", "load"]


PAGE_ROWS = 1024
MEMORY_BYTES = 2 << 30
SENT_BYTES = 16 << 20  # of rows at a time
CAPACITY_SHARE = Fraction(1, 10)  # of the cheapest index's epsilon, for a capacity that is drawn
CAPACITY_EPSILON = Fraction(1, 10)  # for one without an index
CAPACITY_BETA = Fraction(1, 10**12)

Words = NDArray[np.int64]
Progress = Callable[[str, int, int | None], None]
"""Called now and then with what is being done, for how many rows it is done, and of how many if that is known."""


@dataclass(frozen=True)
class LoadOptions:
    """PUBLIC: how to load.

    `capacity` is how many rows the batch has room for; without it one is drawn, a little above the number of rows, at a
    cost of `capacity_epsilon`. `types` declares columns, as in {"name": "text(20)"}; `schema` is a schema file or the
    path of one, and may have indexes as well; `types_from_data` derives a schema from the rows, publishes it, and warns
    of that. A new table needs one of them unless its source has types of its own. `query` says what to read from a
    source that is a database. `page_rows` is how many rows a page has, and `memory_bytes` what the enclave sorts in.
    """

    capacity: int | None = None
    capacity_epsilon: Exact | None = None
    page_rows: int = PAGE_ROWS
    memory_bytes: int = MEMORY_BYTES
    types: Mapping[str, str] | None = None
    query: str | None = None
    schema: "SchemaFile | str | PathLike[str] | None" = None
    types_from_data: bool = False

    def __post_init__(self) -> None:
        if self.schema_file is not None and (self.types or self.types_from_data):
            raise InvalidParameter(
                "a schema declares every column, so that no other types can be given", hint="edit the schema instead"
            )
        if self.capacity is not None and not 1 <= self.capacity < 1 << 36:
            raise InvalidParameter("the capacity must be at least 1 and less than 2^36", hint="--capacity 1000000")
        if self.capacity is not None and self.capacity_epsilon is not None:
            raise InvalidParameter("a capacity that is given costs nothing", hint="leave one of the two out")
        if self.page_rows & (self.page_rows - 1) or not 16 <= self.page_rows <= 1 << 20:
            raise InvalidParameter("a page must have a power of two of rows, from 16 to 2^20", hint="1024 is usual")
        if self.memory_bytes < 1 << 20:
            raise InvalidParameter("a load needs at least 1 MiB of memory", hint="2 GiB is usual")

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
    """SECRET: what a load has done. It has the true number of rows, so it is for the key's holder alone."""

    table: str
    rows: int
    capacity: int
    epsilon: Fraction
    delta: Fraction
    indexes: tuple[str, ...]


def load(
    versions: Versions,
    ledger: Ledger,
    name: str,
    source: object,
    indexes: Sequence[IndexSpec],
    options: LoadOptions,
    progress: Progress,
    batch: str,
) -> LoadReport:
    """Load a source into a table of the current version, held for writing; what was done.

    `batch` names the rows: if the table has them already, nothing is sent or paid, and there is no new version.
    """
    session = versions.session
    rows, table = _open_rows(versions.catalog, name, source, indexes, options)
    orders = [spec.order() for spec in _indexes_of(table, indexes)]
    spends = _spends(table, orders, options)
    there = next((run for run in table.runs if run.batch == batch), None)
    if there is not None:
        return _report(table, sum(map(len, rows)), there.capacity, orders, spends)
    sender = _Sender(session, table.schema, orders, progress, rows.rows)
    with _paid(ledger, spends) as budgets:
        capacity_budget = budgets[-1] if options.capacity is None else None
        session.ask(
            BeginLoad(
                batch=batch,
                capacity_cost=(Fraction(0), Fraction(0))
                if capacity_budget is None
                else (capacity_budget.epsilon, capacity_budget.delta),
                table=table.name,
                table_id=table.id,
                schema=table.schema,
                orders=tuple(orders),
                page_rows=options.page_rows,
                memory_bytes=options.memory_bytes,
            )
        )
        charges = _charges(table, orders, budgets, batch, versions.grant_id)
        sent, capacity = _send(
            sender, rows, capacity_budget, options, lambda: charges and versions.change(Pay(batch, charges))
        )
        for budget in budgets[: len(orders)]:
            budget.draw()
        progress("building", sent, sent)
        versions.change(Build(sent, batch))
    return _report(table, sent, capacity, orders, spends)


def _charges(
    table: Table, orders: Sequence[IndexOrder], budgets: Sequence[Budget], batch: str, grant: str | None
) -> tuple[Charge, ...]:
    """What was spent, as the versions keep it."""
    names = (*(order.attribute for order in orders), CAPACITY)
    return tuple(
        Charge(batch, table.id, what, budget.epsilon, budget.delta, budget.rows_per_user, new_rows=False, grant=grant)
        for what, budget in zip(names, budgets, strict=False)
    )


def _report(
    table: Table, rows: int, capacity: int, orders: Sequence[IndexOrder], spends: Sequence[Spend]
) -> LoadReport:
    epsilon = sum((exact(spend.epsilon, "epsilon") for spend in spends), Fraction(0))
    delta = sum((exact(spend.delta, "delta") for spend in spends), Fraction(0))
    return LoadReport(table.name, rows, capacity, epsilon, delta, tuple(order.attribute for order in orders))


def _open_rows(
    catalog: Catalog, name: str, source: object, indexes: Sequence[IndexSpec], options: LoadOptions
) -> tuple[Any, Table]:
    """The source's batches, and the table that they go into: one that is there, or a new one as it is declared.

    The schema is public. It is the table's, or else made of declarations alone: no row has a say in it.
    """
    domains = {spec.column: spec.domain for spec in indexes}
    table = _existing(catalog, name, options)
    types = options.declared_types(source, domains) if table is None else _declarations(table.schema)
    rows = open_source(source, query=options.query, types=types, domains=domains)
    try:
        if table is None:
            table = Table(uuid.uuid4().hex, name, _ordered(rows.declared(types, domains), types, options), ())
        arranged = rows.arranged(table.schema)
        by_name = {column.lower(): domain for column, domain in domains.items()}
        for column, field in zip(table.schema, arranged.schema, strict=True):
            check_convertible(column, field.type)
            check_stated(column, by_name.get(column.name.lower()))
    except BaseException:
        rows.close()
        raise
    return arranged, table


def _existing(catalog: Catalog, name: str, options: LoadOptions) -> Table | None:
    """The table of that name, if there is one; refused if what is declared now contradicts it."""
    if not name.isidentifier() or len(name) > 64:
        raise InvalidParameter(
            "a table's name is a word of letters, digits and underscores", hint="flights_2013, for example"
        )
    if name not in catalog:
        return None
    table = catalog.table(name)
    for column, text in options.declared.items():
        type_, nullable = split_nullability(text)
        there = table.schema[column]
        if (type_ and parse_type(type_).declaration != there.type.declaration) or (there.nullable and not nullable):
            raise Exists(
                f"the table {name!r} is there, and its column {there.name!r} is declared otherwise",
                hint="declare nothing for it: the table's own types hold. Or load into a table of another name",
            )
    return table


def _declarations(schema: Schema) -> dict[str, str]:
    return {column.name: column.declaration for column in schema}


def _ordered(schema: Schema, types: Mapping[str, str], options: LoadOptions) -> Schema:
    """The columns in the order of the schema that the owner gave, which has to name all of them."""
    if options.schema_file is None:
        return schema
    missing = [column.name for column in schema if column.name.lower() not in {name.lower() for name in types}]
    if missing:
        raise InvalidParameter(
            f"the schema has no line for the column {missing[0]!r}", hint="add one, or leave the column out of the rows"
        )
    return Schema(tuple(replace(schema[name], name=name) for name in types))


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


def _send(
    sender: "_Sender", rows: Any, capacity_budget: Budget | None, options: LoadOptions, pay: Callable[[], object]
) -> tuple[int, int]:
    """Send the rows, then dummies up to the public capacity, and pay; how many rows, and the capacity."""
    try:
        sender.send_all(rows, options.capacity)
        sent, capacity = sender.rows, _fix_capacity(sender.rows, capacity_budget, options)
        sender.fill(capacity)
        pay()
        sender.session.ask(Reserve(capacity))
    except BaseException:
        with suppress(ScumbleError):
            sender.session.ask(Abandon())
        raise
    return sent, capacity


class _Sender:
    """Sends rows in batches whose sizes depend only on how many rows there are in the end, dummies included."""

    def __init__(
        self, session: Session, schema: Schema, orders: Sequence[IndexOrder], progress: Progress, expected: int | None
    ) -> None:
        self.session, self._progress, self._expected = session, progress, expected
        self._layout = layout = RowLayout(schema, tuple(order.domain.size for order in orders))
        self._keys = [(schema.place(order.attribute), order.domain) for order in orders]
        self._batch = np.empty((max(1, SENT_BYTES // (8 * layout.words)), layout.words), np.int64)
        self._filled = 0
        self.rows = 0

    def send_all(self, batches: Any, capacity: int | None) -> None:
        """Encode and send every row of a source; BadRows if there are more than the capacity."""
        for batch in batches:
            if capacity is not None and self.rows + len(batch) > capacity:
                raise BadRows("there are more rows than the capacity", hint="give a larger --capacity")
            self._send(encode_rows(batch, self._layout, self._keys, first_row=self.rows + 1))

    def fill(self, capacity: int) -> None:
        """Send dummies until there are as many rows as the capacity."""
        while self.rows < capacity:
            self._send(dummy_rows(min(capacity - self.rows, len(self._batch)), self._layout))
        self._flush()

    def _send(self, rows: Words) -> None:
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

    def _flush(self) -> None:
        if self._filled:
            self.session.send_rows(self._batch[: self._filled])
            self._filled = 0


def _fix_capacity(rows: int, budget: Budget | None, options: LoadOptions) -> int:
    """The public capacity, in whole pages: as given, or the number of rows with noise and a shift on top.

    Sensitivity: 1; neighbours: one row added or removed; cost: the capacity's budget; docs/privacy.md section 10.
    """
    capacity = options.capacity
    if capacity is None:
        assert budget is not None  # noqa: S101  _spends has one for it
        budget.draw()
        capacity = release_bound(np.array([rows]), budget.row_epsilon, CAPACITY_BETA, lossless=True)
    return max(1, -(-capacity // options.page_rows)) * options.page_rows


# --- costs -----------------------------------------------------------------------------------------


def _spends(table: Table, orders: Sequence[IndexOrder], options: LoadOptions) -> list[Spend]:
    """What the load costs: one spend for each index and, if the capacity is drawn, a last one for that."""
    part = uuid.uuid4().hex[:8]

    def spend(what: str, epsilon: Fraction, delta: Fraction, rows_per_user: int) -> Spend:
        group = f"{table.name} ({table.id[:8]}) {what}"
        return Spend(epsilon, f"{table.name} {what}", delta, rows_per_user, (group, part))

    spends = [spend(order.attribute, order.epsilon, order.delta, order.rows_per_user) for order in orders]
    if options.capacity is None:
        cheapest = min((order.epsilon * CAPACITY_SHARE for order in orders), default=CAPACITY_EPSILON)
        rows_per_user = max((order.rows_per_user for order in orders), default=1)
        epsilon = cheapest if options.capacity_epsilon is None else options.capacity_epsilon
        spends.append(spend("capacity", *index_cost(epsilon, CAPACITY_BETA, rows_per_user, "lossless"), rows_per_user))
    return spends


@contextmanager
def _paid(ledger: Ledger, spends: Sequence[Spend]) -> Iterator[tuple[RecordedBudget, ...]]:
    """Spend on everything before any work is done, and settle it when all is done.

    If the work fails, what nothing was drawn from is given back, and the rest stays unsettled: the same rows will come
    again. A ledger that cannot be written at the end leaves it unsettled too, since the rows are loaded by then.
    """
    budgets = ledger.spend_all(spends)
    try:
        yield budgets
    except BaseException:
        for budget in budgets:
            with suppress(ScumbleError):
                budget.cancel()
        raise
    for budget in budgets:
        with suppress(ScumbleError):
            budget.settle()
