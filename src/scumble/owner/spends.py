"""Spends: what a release shall cost as it is asked for, as the ledger lists it, and as it counts towards the total.

Amounts and labels are public and chosen by the owner. Unsettled parts of a group add to what later parts cost:
`with_losses` has that sum (docs/privacy.md section 2).
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from scumble.errors import InvalidParameter
from scumble.privacy.budget import Exact, Loss, Partition, State, exact, show

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "Entry",
    "Spend",
    "Spent",
    "State",
    "as_html",
    "as_table",
    "as_text",
    "check_terms",
    "losses_before",
    "positive",
    "probability",
    "with_losses",
]


class Spend(NamedTuple):
    """What one release shall cost, as `Ledger.spend` takes it."""

    epsilon: Exact
    label: str
    delta: Exact = 0
    rows_per_user: int = 1
    partition: Partition | None = None


def positive(value: object, name: str) -> Fraction:
    """Read an exact amount that has to be greater than 0."""
    number = exact(value, name)
    if number <= 0:
        raise InvalidParameter(f"{name} must be greater than 0", hint="0 would release nothing")
    return number


def probability(value: object, name: str) -> Fraction:
    """Read a probability below 1."""
    number = exact(value, name)
    if not 0 <= number < 1:
        raise InvalidParameter(f"{name} must be at least 0 and less than 1", hint="it is a probability; 0 is usual")
    return number


def check_terms(label: object, rows_per_user: object, partition: object) -> None:
    """Refuse a label, a number of rows or a partition that makes no sense."""
    if not _is_name(label):
        raise InvalidParameter(
            "the label must be a non-empty string of printable characters",
            hint="say what the budget is for, such as 'salary'",
        )
    if type(rows_per_user) is not int or not 1 <= rows_per_user < 2**63:
        raise InvalidParameter(
            "rows_per_user must be an int of at least 1", hint="it is the most rows that one user has"
        )
    match partition:
        case None:
            return
        case (group, part) if type(partition) is tuple and _is_name(group) and _is_name(part):
            return
    raise InvalidParameter(
        "a partition must be a tuple of two non-empty printable strings, (group, part)",
        hint="parts of a group hold disjoint rows, as in ('orders.day', 'run-7')",
    )


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and value.strip() != ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One spend, and what became of it. Ids count the ledger's records, draws and cancels included."""

    id: int
    time: datetime
    label: str
    epsilon: Fraction
    delta: Fraction
    rows_per_user: int
    partition: Partition | None
    state: State


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
        return Fraction(0)
    group, part = partition
    lost = Fraction(0)
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


_HEADINGS = ("id", "label", "epsilon", "delta", "rows per user", "part", "state")


def as_text(entries: Sequence[Entry], balance: str) -> str:
    """Return the balance and, if there is any, a line for each entry under headings."""
    rows = [_HEADINGS, *map(_cells, entries)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([f"ledger: {balance}", *(lines if entries else [])])


def as_table(entries: Sequence[Entry], balance: str) -> "Table":
    """Return a table for rich to print."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*_HEADINGS, title="ledger", caption=balance)
    for entry in entries:
        table.add_row(*map(Text, _cells(entry)))
    return table


def as_html(entries: Sequence[Entry], balance: str) -> str:
    """Return a table for a notebook."""
    head = "".join(f"<th>{name}</th>" for name in _HEADINGS)
    rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(entry)) for entry in entries)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><caption>{html.escape(balance)}</caption><tr>{head}</tr>{body}</table>"


def _cells(entry: Entry) -> tuple[str, ...]:
    return (
        str(entry.id),
        entry.label,
        show(entry.epsilon),
        show(entry.delta),
        str(entry.rows_per_user),
        " / ".join(entry.partition or ()),
        entry.state,
    )
