"""What a ledger shows: its entries, and how they print in a terminal, in rich and in a notebook.

What comes in are the entries of a ledger and its balance in words; what goes out is text, a rich table, or
HTML. It is for the owner, and holds amounts and the labels that the owner chose, nothing from the data.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from scumble.privacy.amounts import show
from scumble.privacy.composition import Partition

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Entry", "State", "as_html", "as_table", "as_text"]

State = Literal["open", "drawn", "cancelled"]

_HEADINGS = ("id", "label", "epsilon", "delta", "rows per user", "part", "state")


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
