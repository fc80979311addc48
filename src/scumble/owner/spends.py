"""Spends: what a release shall cost as it is asked for, and as the ledger lists it.

Amounts and labels are public and chosen by the owner. A spend of a load names the batch that it pays for, and carries
the loader's statement on its rows; how all of them add up is in `owner/composition.py`.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from scumble.errors import InvalidParameter
from scumble.privacy.budget import Exact, Partition, State, exact, show

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "GRANT",
    "Entry",
    "Spend",
    "State",
    "as_html",
    "as_table",
    "as_text",
    "check_terms",
    "load_partition",
    "positive",
    "probability",
]


class Spend(NamedTuple):
    """What one release shall cost, as `Ledger.spend` takes it.

    `new_rows` is None unless it pays for a batch of a table; then the partition is `load_partition`'s, and `new_rows`
    is the loader's statement that no row of the batch is in the table yet.
    """

    epsilon: Exact
    label: str
    delta: Exact = 0
    rows_per_user: int = 1
    partition: Partition | None = None
    new_rows: bool | None = None


GRANT = "grant-"
"""What stands before a grant's id in place of a table's: an allotment is charged like a load."""


def load_partition(table_id: str, what: str, batch: str) -> Partition:
    """Where the ledger counts what a batch of a table has cost in one respect: a column's index, or the capacity."""
    if not table_id or " " in table_id:
        raise InvalidParameter("a table's id is a word", hint="upgrade Scumble")
    return f"{table_id} {what}", batch


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
    new_rows: bool | None = None

    @property
    def table_id(self) -> str | None:
        """The table that a load's spend was for; None for any other."""
        return None if self.new_rows is None or self.partition is None else self.partition[0].partition(" ")[0]

    @property
    def what(self) -> str:
        """What a load's spend has released: a column's index, or the capacity."""
        return "" if self.partition is None else self.partition[0].partition(" ")[2]

    @property
    def batch(self) -> str:
        """The batch that a load's spend was for."""
        return "" if self.partition is None else self.partition[1]

    @property
    def table_name(self) -> str:
        """What the table of a load's spend was called."""
        return self.label.removesuffix(f" {self.what}")


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
        _part(entry),
        entry.state,
    )


def _part(entry: Entry) -> str:
    if entry.table_id is None:
        return " / ".join(entry.partition or ())
    kind = "grant" if entry.table_id.startswith(GRANT) else "batch"
    return f"{kind} {entry.batch[:8]}{', new rows' if entry.new_rows else ''}"
