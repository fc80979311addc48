"""The table of an open database as a stream sees it: what fits it, what its stream costs, and where batches go.

In come rows as their owner has them, which are SECRET; out go rows that the table can take, or a refusal before they
are acknowledged. What times and sizes tell is charged once for a stream on its terms, since each row is in one batch;
the charge is also in a version of the database, so that every device of the owner counts it.
"""

import hashlib
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from fractions import Fraction
from typing import Any, Protocol

import pyarrow as pa

from scumble.errors import Exists, NotFound, ScumbleError
from scumble.index.kinds import decoded, is_known
from scumble.owner.encoding import encode_rows
from scumble.owner.inserting import arranged_rows
from scumble.owner.ledger import Ledger
from scumble.owner.loading import PAGE_ROWS
from scumble.owner.spends import Spend, load_partition
from scumble.owner.stream_changes import LogChange
from scumble.owner.stream_log import StreamLog
from scumble.owner.stream_policies import Policy
from scumble.owner.streams import Behind, Clock, Stream
from scumble.owner.versions import Versions
from scumble.privacy.noise import encode_facts
from scumble.types import Domain, arrow_schema, convert
from scumble.wire.catalog import Streamed, Table
from scumble.wire.charges import STREAM, Charge
from scumble.wire.requests import Abandon, BeginLoad, Pay, RowLayout

__all__ = ["StreamTarget", "fitted", "open_stream"]

PAYMENT_BYTES = 1 << 20  # of memory, for a load that brings no rows


class Insert(Protocol):
    """Rows go into a table's tail, under a name that is taken once."""

    def __call__(self, table: str, rows: Any, capacity: int | None, batch: str | None, streamed: Streamed) -> int: ...


def open_stream(
    target: "StreamTarget",
    log: StreamLog,
    policy: Policy,
    every: float,
    told: Callable[[Behind], None] | None,
    closed: Callable[[], object],
    clock: Clock | None = None,
) -> Stream:
    """Open a stream into a table; one that is refused costs nothing, and leaves no log where there was none."""
    try:
        return Stream(target.name, log, target, policy, every, told=told, clock=clock, closed=closed)
    except BaseException:
        if log.is_new:
            log.end()
        log.close()
        raise


class StreamTarget:
    """A table of an open database, as a stream's `Destination`.

    `paying` holds the database for writing, and gives its ledger, brought up to the newest version; `held` holds it for
    a transaction.
    """

    def __init__(
        self,
        versions: Versions,
        table: Table,
        paying: Callable[[], AbstractContextManager[Ledger]],
        held: Callable[[], AbstractContextManager[None]],
        insert: Insert,
        is_made: Callable[[LogChange], bool],
    ) -> None:
        self._versions, self._id, self.name = versions, table.id, table.name
        self._paying, self._insert, self.is_made, self.held = paying, insert, is_made, held
        self._paid: set[str] = set()

    @property
    def noise_key(self) -> bytes:
        return self._versions.key.noise_key()

    @property
    def _table(self) -> Table:
        table = self._versions.catalog.by_id.get(self._id)
        if table is None:
            raise NotFound(
                f"the table {self.name!r} that rows were streamed into is gone",
                hint="what was not sent is in the stream's log still",
            )
        return table

    def empty(self) -> pa.Table:
        return arrow_schema(self._table.schema).empty_table()

    def checked(self, rows: object) -> pa.Table:
        table = self._table
        source = arranged_rows(table, [rows] if isinstance(rows, Mapping) else rows)
        arranged = pa.Table.from_batches(list(source), source.schema)
        columns = [convert(column, arranged.column(place)) for place, column in enumerate(table.schema)]
        converted = pa.table(columns, schema=arrow_schema(table.schema))
        domains = _domains(table)
        layout = RowLayout(table.schema, tuple(domain.size for _, domain in domains))
        for batch in converted.to_batches():
            encode_rows(batch, layout, domains)
        return converted

    def insert(self, rows: pa.Table, capacity: int, batch: str, streamed: Streamed) -> None:
        table = self._table
        self._insert(table.name, fitted(rows, table), capacity, batch, streamed)

    def pay(self, stream: str, policy: Policy) -> None:
        if self._paid_name(stream, policy) in self._paid:
            return
        self._versions.key.as_owner()  # an allotment is for loads
        with self._paying() as ledger:
            name, table = self._paid_name(stream, policy), self._table
            partition = load_partition(table.id, STREAM, name)
            if not any(entry.partition == partition and entry.state == "drawn" for entry in ledger.loads()):
                epsilon, delta = policy.cost
                spend = Spend(epsilon, f"{table.name} {STREAM}", delta, policy.rows_per_user, partition, False)
                (budget,) = ledger.spend_all([spend])
                try:
                    self._publish(Charge(name, table.id, STREAM, epsilon, delta, policy.rows_per_user, False))
                except BaseException:
                    with suppress(ScumbleError):
                        budget.cancel()
                    raise
                budget.draw()
                budget.settle()  # nothing will ever take it back
            self._paid.add(name)

    def _publish(self, charge: Charge) -> None:
        """Have a version carry a charge: as a load does whose rows never come."""
        session, nowhere, free = self._versions.session, uuid.uuid4().hex, Fraction(0)
        name, schema = f"stream_{nowhere}", self._table.schema
        session.ask(BeginLoad(charge.batch, (free, free), name, nowhere, schema, (), PAGE_ROWS, PAYMENT_BYTES))
        self._versions.change(Pay(charge.batch, (charge,)))
        if self._versions.session is session:
            session.ask(Abandon())

    def _paid_name(self, stream: str, policy: Policy) -> str:
        """What a stream on its terms is charged as. What was sent before a restore may be sent again, and costs again.

        Another log of the same table is another stream: the ledger adds them up.
        """
        facts = encode_facts((stream, policy.terms, self._versions.catalog.restores))
        return hashlib.sha256(b"scumble stream v1 " + facts).hexdigest()[:32]


def fitted(rows: pa.Table, table: Table) -> pa.Table:
    """Rows as they were written, in the columns that the table has now: what was added since is null.

    Exists if it has lost one, perhaps to another name: its values must not be dropped for that.
    """
    schema = arrow_schema(table.schema)
    added = [field for field in schema if field.name not in rows.column_names]
    if not set(rows.column_names) <= set(schema.names) or not all(field.nullable for field in added):
        raise Exists(
            f"the columns of {table.name!r} were changed after rows had been written to its stream",
            hint="give them their old names until nothing waits any more",
        )
    if rows.schema.equals(schema):
        return rows
    columns = [
        rows.column(field.name).cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _domains(table: Table) -> list[tuple[int, Domain]]:
    """The places and domains of indexed columns: a key that no index could have must not wait for one."""
    indexes = {run.attribute: run.index for run in table.runs if run.index is not None and is_known(run.index)}
    return [
        (table.schema.place(name), decoded(index).domain)
        for name, index in indexes.items()
        if name is not None and index is not None
    ]
