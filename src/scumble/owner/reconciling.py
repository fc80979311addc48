"""Reconciling a ledger with the newest version of its database: what has to be recorded so that it counts no less.

In come the ledger's spends of loads, the charges that sealed versions carry and the batches that the catalog shows; out
go the records to append. The larger truth wins: a charge that was paid on another device counts here too, and a batch
that a restore took away may be loaded again. All of it is the owner's, apart from the catalog, which is public.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from scumble.owner.spends import Entry, Spend, load_partition
from scumble.wire.catalog import Catalog
from scumble.wire.charges import STREAM, Charge

__all__ = ["Decision", "Learned", "TableBatches", "batches_of", "differences"]


class TableBatches(NamedTuple):
    """PUBLIC: what a table is called, and the batches that the catalog shows of it, in the order of loading."""

    name: str
    batches: tuple[str, ...]


class Decision(NamedTuple):
    """A record about a spend that the ledger has."""

    kind: Literal["draw", "cancel", "settle", "leave"]
    spend: int


@dataclass(frozen=True)
class Learned:
    """A spend that the ledger lacks: it was drawn elsewhere, and is in the table if `settled`."""

    spend: Spend
    settled: bool


def batches_of(catalog: Catalog) -> dict[str, TableBatches]:
    """The batches of every table, under the tables' ids."""
    return {
        table.id: TableBatches(table.name, tuple(dict.fromkeys(batch for run in table.runs for batch in run.batches)))
        for table in catalog.tables
    }


def differences(
    entries: Collection[Entry],
    settled: Collection[int],
    charges: Sequence[Charge],
    tables: Mapping[str, TableBatches],
    *,
    held: bool,
) -> Iterator[Decision | Learned]:
    """What to append, in order: docs/privacy.md section 2 says why this order never counts too little.

    What a stream has cost stays settled: it is about batches to come, and none of them bears its name.
    `held` says that the database is held for writing. Then nobody else is about to draw: a spend that is open was left
    by a load that died, and is given back, unless a version shows its charge.
    """
    loads = [entry for entry in entries if entry.table_id is not None and entry.state != "cancelled"]
    shown = {(table, batch) for table, each in tables.items() for batch in each.batches}
    paid = {(charge.table, charge.what, charge.batch) for charge in charges}
    for entry in loads:
        place = entry.table_id, entry.batch
        if entry.id in settled and entry.table_id in tables and place not in shown and entry.what != STREAM:
            yield Decision("leave", entry.id)
        if entry.state == "open" and (place in shown or (entry.table_id, entry.what, entry.batch) in paid):
            yield Decision("draw", entry.id)
        elif entry.state == "open" and held:
            yield Decision("cancel", entry.id)
        if entry.id not in settled and place in shown and entry.state in ("open", "drawn"):
            yield Decision("settle", entry.id)
    yield from _learned(loads, charges, tables)


def _learned(
    loads: Iterable[Entry], charges: Sequence[Charge], tables: Mapping[str, TableBatches]
) -> Iterator[Learned]:
    """The charges that the ledger does not know, or knows to be smaller."""
    known: dict[tuple[str, str], tuple[Fraction, Fraction]] = {}
    for entry in loads:
        assert entry.partition is not None  # noqa: S101  a load's spend has one
        epsilon, delta = known.get(entry.partition, (Fraction(0), Fraction(0)))
        known[entry.partition] = epsilon + entry.epsilon, delta + entry.delta
    for charge in charges:
        partition = load_partition(charge.table, charge.what, charge.batch)
        epsilon, delta = known.get(partition, (Fraction(0), Fraction(0)))
        more = max(charge.epsilon - epsilon, Fraction(0)), max(charge.delta - delta, Fraction(0))
        if not any(more):
            continue
        name, batches = tables.get(charge.table, TableBatches(charge.table[:8], ()))
        new_rows = charge.new_rows and _comes_last(partition, batches, known)
        spend = Spend(more[0], f"{name} {charge.what}", more[1], charge.rows_per_user, partition, new_rows)
        known[partition] = epsilon + more[0], delta + more[1]
        yield Learned(spend, charge.batch in batches or charge.what == STREAM)


def _comes_last(partition: tuple[str, str], batches: Sequence[str], known: Collection[tuple[str, str]]) -> bool:
    """Whether every batch inside that the ledger knows was in the table when this one was loaded.

    Batches stand in the catalog in the order of loading, whatever was restored. Only of those before it does the
    loader's statement speak; one that the catalog does not show may have been stated against any other.
    """
    group, batch = partition
    return batch in batches and not any((group, later) in known for later in batches[batches.index(batch) + 1 :])
