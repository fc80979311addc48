"""What was drawn for work that was never finished: rows of a failed load come again in another part of their group.

What comes in are the spends of a ledger in their order; what goes out are charges for `composition` to add up, in which
each part also bears what other parts of its group had lost before it was last charged. All of it is public;
`docs/privacy.md` section 2 (parts that failed) has the proof.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import inf
from typing import NamedTuple

from scumble.privacy.composition import Charge, Partition

__all__ = ["Spent", "borne", "with_losses"]


class Spent(NamedTuple):
    """A spend that counts. `spent_at` and `lost_at` are places in the ledger's order.

    `lost_at` is where it was drawn, if it was not settled.
    """

    amount: Fraction
    partition: Partition | None
    spent_at: int
    lost_at: int | None = None


def borne(spends: Sequence[Spent], partition: Partition | None, before: float = inf) -> Fraction:
    """Return what the other parts of the group of `partition` had lost before that place."""
    if partition is None:
        return Fraction(0)
    group, part = partition
    lost = Fraction(0)
    for amount, where, _, lost_at in spends:
        if lost_at is not None and lost_at < before and where is not None and where[0] == group and where[1] != part:
            lost += amount
    return lost


def with_losses(spends: Sequence[Spent], further: Partition | None = None) -> list[Charge]:
    """Return the charges, and with each part what it bears; `further` is a part that is about to be charged."""
    last: dict[Partition, float] = {spent.partition: spent.spent_at for spent in spends if spent.partition is not None}
    if further is not None:
        last[further] = inf
    losses: list[Charge] = [(borne(spends, part, before), part) for part, before in last.items()]
    return [*((spent.amount, spent.partition) for spent in spends), *losses]
