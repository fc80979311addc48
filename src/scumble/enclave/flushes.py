"""Flushes: the rows of a table's tail become a batch with indexes, inside the enclave.

It is a load whose rows come from runs that are there. All of the tail goes, whether its units are full or not: if some
of it stayed, one row more would shift what every later batch has. What is released is paid for as for any load.
"""

from fractions import Fraction

from scumble.enclave.dummies import Dummies
from scumble.enclave.gathering import Gathering
from scumble.enclave.grants import Cost
from scumble.enclave.grids import earlier_runs
from scumble.enclave.kernels import as_count
from scumble.enclave.loads import ANALYST_MEMORY_BYTES, Load
from scumble.enclave.orders import check_orders, copies_of
from scumble.enclave.validation import rules_of
from scumble.enclave.versions import OpenVersion
from scumble.errors import Exists, InvalidParameter, Refused
from scumble.wire.catalog import Run
from scumble.wire.requests import BeginFlush

__all__ = ["Flush", "begin_flush"]


class Flush(Load):
    """SECRET: the rows of a tail, on their way into a batch."""

    def gather(self, version: OpenVersion) -> None:
        """Read the whole of the tail; BadRows if a row has a key that its index does not know."""
        found = Gathering(version, self.table, self._layout, rules_of(self.table.schema, self._orders), live=False)
        for run in self.replaces:
            for rows in found.rows_of(run):
                self._hash.update(rows.data)
                self._rows.append(rows)
        found.check()
        self._real_rows = as_count(found.real_rows)
        self._add_dummies(-len(self._rows) % self._page_rows)
        # Those that have no index are sealed as they lie: real rows first, as if they had been sent.
        self._rows.sort(self._layout.key_offset)

    def append(self, rows: memoryview) -> None:
        """Refuse: nobody else adds rows."""
        raise InvalidParameter("a flush has its rows from the tail", hint="insert more rows afterwards")

    def confirm(self, real_rows: int) -> None:
        """Do nothing: the enclave has counted them itself."""

    def build(self, real_rows: int) -> tuple[tuple[Run, Dummies], ...]:
        """Make the runs, once, whatever the client says of how many rows there are."""
        return super().build(self._real_rows)


def begin_flush(version: OpenVersion, request: BeginFlush) -> Flush | None:
    """A flush of a table's tail, if the signer may load there; None if it was done under this name."""
    version.check_signed()
    if version.has_batch(request.batch):
        return None
    table, grant = version.catalog.table(request.table), version.grant
    cost = Cost.of(request.orders, (Fraction(0), Fraction(0)))
    memory_bytes = request.memory_bytes
    if grant is not None:
        memory_bytes = min(memory_bytes, ANALYST_MEMORY_BYTES)
        if not grant.may("load", table.name):
            raise Refused
        version.manifest.access.check_left(grant, cost, request.batch)
    if not table.tail or not request.orders:
        raise InvalidParameter("there is nothing to be flushed, or no index for it", hint="insert rows first")
    if table.settled and dict(table.copies) != dict(copies_of(table.schema, request.orders)):
        raise Exists("the table has other indexes", hint="flush with the indexes that it has")
    check_orders(request.orders)
    flush = Flush(version.storage, table, request.orders, request.page_rows, memory_bytes, request.batch, cost)
    flush.replaces, flush.earlier = table.tail, earlier_runs(version, table, request.orders)
    flush.gather(version)
    return flush
