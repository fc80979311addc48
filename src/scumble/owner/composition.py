"""How spends add up to what the dearest row has lost: docs/privacy.md section 2. All of this is public.

In come the spends of a ledger and what became of them; out goes the total, and what may still be spent. Spends add up.
Where a caller promises that the parts of a group hold disjoint rows, its dearest part counts. The loads of a table add
up, except where the loader has stated that a batch's rows are new.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import inf
from typing import NamedTuple

from scumble.owner.spends import Entry
from scumble.privacy.budget import Loss, Partition, room, total

__all__ = ["Account", "RowCost", "Spent", "TableCost", "losses_before", "row_costs", "with_losses"]

ZERO = Fraction(0)


class Spent(NamedTuple):
    """A spend that counts towards the total. `spent_at` and `lost_at` are ids of records, which are in order.

    `lost_at` is the draw's, if it was not settled.
    """

    amount: Fraction
    partition: Partition | None
    spent_at: int
    lost_at: int | None = None


def losses_before(spends: Sequence[Spent], partition: Partition | None, before: float = inf) -> Fraction:
    """Return what other parts of the same group had drawn, and never settled, before that record."""
    if partition is None:
        return ZERO
    group, part = partition
    lost = ZERO
    for amount, where, _, lost_at in spends:
        if lost_at is not None and lost_at < before and where is not None and where[0] == group and where[1] != part:
            lost += amount
    return lost


def with_losses(spends: Sequence[Spent], further: Partition | None = None) -> list[Loss]:
    """Return the charges and, for each part, the losses before it; `further` is a part about to be charged."""
    last: dict[Partition, float] = {spent.partition: spent.spent_at for spent in spends if spent.partition is not None}
    if further is not None:
        last[further] = inf
    losses: list[Loss] = [(losses_before(spends, part, before), part) for part, before in last.items()]
    return [*((spent.amount, spent.partition) for spent in spends), *losses]


class TableCost:
    """What the batches of one table have cost in one respect (an index, or the capacity), as they come and go.

    For each batch there is a bound such that every row has lost no more than the bound of some batch that it was in.
    A batch is *inside* while the catalog shows it, and *outside* before that and after a restore took it away. Rows
    that are stated to be new are in no batch inside; they may be in any outside.
    """

    def __init__(self) -> None:
        self._outside: dict[str, Fraction] = {}
        self._inside: dict[str, Fraction] = {}  # less what all that are inside have in common
        self._common = ZERO

    def charge(self, batch: str, amount: Fraction, *, new_rows: bool) -> None:
        """Count a release of a batch's rows. Until `enter` the batch is outside."""
        self._outside[batch] = self.outside + amount
        if not new_rows:
            self._common += amount

    def enter(self, batch: str) -> None:
        """The catalog shows the batch."""
        if batch in self._outside:
            self._inside[batch] = self._outside.pop(batch) - self._common

    def leave(self, batch: str) -> None:
        """The catalog does not show the batch any more: the same rows may be stated to be new."""
        if batch in self._inside:
            self._outside[batch] = self._inside.pop(batch) + self._common

    @property
    def outside(self) -> Fraction:
        """The most that a row has lost that is in no batch inside."""
        return max(self._outside.values(), default=ZERO)

    @property
    def total(self) -> Fraction:
        """The most that any row has lost."""
        return max(self.outside, max(self._inside.values(), default=-self._common) + self._common)


class RowCost(NamedTuple):
    """The epsilon that one row of a table has lost, by what was done to it: docs/privacy.md section 10.2.

    `presence` is for a row that was loaded or inserted once, `change` for each time that one of its indexed columns
    was updated, which makes it a row of one more batch. Updates of other columns, and its deletion, cost nothing.
    """

    presence: Fraction
    change: Fraction

    def with_changes(self, changes: int) -> Fraction:
        """For a row that was changed so often."""
        return self.presence + changes * self.change


def row_costs(loads: Iterable[Entry]) -> dict[str, RowCost]:
    """For each table that something was released of, what a row of it has lost, under the table's name.

    A row is in one batch for each thing that is released of them, so that the dearest counts; it is in one more for
    each change, and these add up.
    """
    dearest: dict[str, dict[str, Fraction]] = {}
    for load in loads:
        of_table = dearest.setdefault(load.table_name, {})
        of_table[load.what] = max(of_table.get(load.what, ZERO), load.epsilon)
    return {name: RowCost(*[sum(costs.values(), ZERO)] * 2) for name, costs in dearest.items()}


class Account:
    """One of the two amounts, epsilon or delta, of a whole ledger: what is spent, and what else fits in a limit."""

    def __init__(self, spends: Iterable[Spent] = ()) -> None:
        self.spends = list(spends)
        self.tables: dict[str, TableCost] = {}

    @property
    def total(self) -> Fraction:
        return total(with_losses(self.spends)) + sum((table.total for table in self.tables.values()), ZERO)

    def room(self, limit: Fraction, partition: Partition | None) -> Fraction:
        """The most that a further spend may be, alone or on a part of a group of disjoint ones."""
        left = limit - sum((table.total for table in self.tables.values()), ZERO)
        return room(with_losses(self.spends, partition), left, partition)

    def room_for_load(self, limit: Fraction, group: str, *, new_rows: bool) -> Fraction:
        """The most that a further batch of a table may cost; less than 0 if the limit is exceeded already."""
        left, table = limit - self.total, self.tables.get(group, TableCost())
        return left + table.total - table.outside if new_rows and left >= 0 else left

    def charge(self, amount: Fraction, partition: Partition | None, spent_at: int, new_rows: bool | None) -> None:
        """Count a further spend; `new_rows` is None unless it is a load's."""
        if new_rows is None or partition is None:
            self.spends.append(Spent(amount, partition, spent_at))
        else:
            self.tables.setdefault(partition[0], TableCost()).charge(partition[1], amount, new_rows=new_rows)
