"""What earlier batches have released, by which a later one is cut alike, so that their indexes can be merged.

Everything here is PUBLIC: tallies are stored sealed only because whoever needs them is an enclave.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scumble.enclave.pages import read_tally
from scumble.enclave.versions import OpenVersion
from scumble.errors import InvalidParameter
from scumble.index.file import IndexModel
from scumble.index.grid import NEW, Grid
from scumble.index.kinds import decoded
from scumble.index.tally import Tally
from scumble.types import Domain
from scumble.wire.catalog import Run, Table
from scumble.wire.requests import IndexOrder

__all__ = ["EarlierRuns", "earlier_runs", "tally_of"]


def tally_of(version: OpenVersion, run: Run) -> Tally:
    """PUBLIC: what was released of a run, as it can be added to others'."""
    if run.tally is not None:
        return Tally.from_bytes(read_tally(version.storage, version.keys, run.tally))
    index = None if run.index is None else decoded(run.index)
    if not isinstance(index, IndexModel):
        raise InvalidParameter("an index of this kind cannot be merged", hint="load all rows at once")
    return Tally.of_index(index, run.capacity)


@dataclass(frozen=True, eq=False)
class EarlierRuns:
    """The grid of the batches before, or the index of the first of them."""

    domain: Domain
    known: Grid | None = None
    first: IndexModel | None = None

    def grid(self, rows: int) -> bytes:
        """The grid for a batch of so many rows, packed."""
        if self.known is not None:
            return self.known.packed
        if self.first is not None:
            return Grid.of_models([self.first], rows).packed
        return NEW


def earlier_runs(version: OpenVersion, table: Table, orders: Sequence[IndexOrder]) -> dict[str, EarlierRuns]:
    """For each index that shall be cut as the table's are, what there is of these."""
    return {order.attribute: _earlier(version, table, order) for order in orders if order.grid == NEW}


def _earlier(version: OpenVersion, table: Table, order: IndexOrder) -> EarlierRuns:
    found = EarlierRuns(order.domain)
    for run in (run for run in table.settled if run.attribute == order.attribute):
        index = None if run.index is None else decoded(run.index)
        if not isinstance(index, IndexModel) or index.domain.text != order.domain.text:
            continue
        grid = None if run.tally is None else tally_of(version, run).grid
        if grid is not None:
            return EarlierRuns(order.domain, known=grid)
        found = found if found.first is not None else EarlierRuns(order.domain, first=index)
    return found
