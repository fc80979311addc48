"""Upkeep of tables that change: the tail becomes a batch with indexes, batches become one, erased rows go.

What is done, and when, is public: sizes in padded units decide, or a command, never how many rows there are. A flush
releases indexes of rows that have none yet, and is paid for as a load is. The rest is free: it works on what was
released already, or on no index at all.
"""

import hashlib
import json
from collections.abc import Callable, Sequence

from scumble.errors import InvalidParameter, Unavailable
from scumble.index.kinds import decoded
from scumble.owner.indexes import IndexSpec
from scumble.owner.ledger import Ledger
from scumble.owner.load_target import indexes_of
from scumble.owner.loading import (
    Attempt,
    LoadOptions,
    LoadReport,
    abandoned,
    build,
    released_indexes,
    report_of,
    spends_of,
)
from scumble.owner.payments import Payment
from scumble.owner.repeats import terms_of
from scumble.owner.versions import Versions
from scumble.wire.catalog import Run, Table
from scumble.wire.requests import BeginFlush, Merge, Pay, Reserve

__all__ = ["flush", "is_due", "merge_all", "merge_tiers"]


def flush(
    versions: Versions, ledger: Ledger, name: str, indexes: Sequence[IndexSpec], attempt: Attempt, *, new_rows: bool
) -> LoadReport | None:
    """Make a batch with indexes of a table's tail; None if there is none. The database is held for writing.

    Without indexes, they are those that the table declares, or that its first batch has. The costs of batches add up,
    unless `new_rows` states that no row of the tail was in the table before.
    """
    session, table = versions.session, versions.catalog.table(name)
    if not table.tail:
        return None
    if new_rows and any(run.moved for run in table.tail):
        raise InvalidParameter(
            "rows that were updated are in the tail, so that not all are new", hint="without new_rows"
        )
    stated = indexes if indexes or table.terms else _as_before(table)
    orders = [spec.order(released_indexes(table, spec.column)) for spec in indexes_of(table, stated)]
    options = LoadOptions(capacity=sum(run.capacity for run in table.tail), new_rows=new_rows)
    spends = spends_of(table, orders, options, attempt.batch)
    page_rows = options.rows_in_page(table.schema, indexed=True)
    shown = {batch for run in table.runs for batch in run.batches}
    terms = terms_of(orders, spends, options.capacity, page_rows)
    with Payment(ledger, table.id, attempt.batch, shown, spends, terms) as payment:
        with abandoned(session):
            begun = session.ask(BeginFlush(attempt.batch, name, tuple(orders), page_rows, options.memory_bytes))
            if begun is None:
                raise AssertionError  # its name is fresh
            payment.identify(_state(table.tail), again=True)
            attempt.batches.append(payment.batch)
            if charges := payment.charges(versions.grant_id):
                versions.change(Pay(payment.batch, charges))
            if versions.session is not session:
                raise Unavailable("the session was lost, and nothing was flushed", hint="try again")
            session.ask(Reserve(begun.capacity))
        for budget in payment.budgets:
            budget.draw()
        build(versions, 0, payment.batch, attempt)
    return report_of(versions.catalog.table(name), 0, orders, spends, payment.batch, retried=payment.retries)


def _as_before(table: Table) -> list[IndexSpec]:
    """The indexes of a table's first batch: their columns, domains and prices."""
    first: dict[str, Run] = {}
    for run in table.settled:
        if run.attribute is not None and run.index is not None:
            first.setdefault(run.attribute, run)
    names = [column.name for column in table.schema]
    specs = []
    for attribute, run in first.items():
        index = decoded(run.index) if run.index is not None else None
        held = None if run.columns is None else tuple(names[place] for place in run.columns)
        if index is not None:
            specs.append(IndexSpec(attribute, index.domain, index.epsilon, columns=held))
    return specs


def _state(runs: Sequence[Run]) -> str:
    """What tells a tail from any other: the same runs and layers have the same rows."""
    return hashlib.sha256(json.dumps([run.to_json() for run in runs]).encode()).hexdigest()


# --- merging -----------------------------------------------------------------------------------------

FEW = 2
FEW_OF_TAIL = 8
"""So many runs of a copy, and of the tail, are left as they are, whatever their sizes: each commit takes longer than
reading a small run."""


def merge_all(versions: Versions, name: str) -> int:
    """Make one run of all that each copy of a table has, and one of its tail; how many runs are gone.

    Of the runs whose indexes can only be added as a whole, one is merged with the others at most: each of them widens
    lookups by its slack, and several are better left apart.
    """
    return _merge(versions, name, _mergeable)


def merge_tiers(versions: Versions, name: str) -> int:
    """Merge what is due by the policy, of each copy and of the tail; how many runs are gone.

    Which they are follows from public capacities. Each run that is left is larger than all smaller ones together, and
    with an index twice as large, but for a few: a row is merged about once whenever the table has grown by as much.
    """
    return _merge(versions, name, _due)


def is_due(table: Table) -> bool:
    """Whether the policy would merge anything."""
    return any(len(_due(runs)) > 1 for runs in _groups(table))


def may_become_due(table: Table) -> bool:
    """Whether the policy might merge something once a run more is in the tail."""
    return is_due(table) or len(table.tail) >= FEW_OF_TAIL


def _merge(versions: Versions, name: str, choose: Callable[[list[Run]], list[Run]]) -> int:
    gone = 0
    for runs in _groups(versions.catalog.table(name)):
        some = choose(runs)
        if len(some) > 1:
            versions.work(Merge(name, tuple(run.id for run in some)))
            gone += len(some) - 1
    return gone


def _groups(table: Table) -> list[list[Run]]:
    """The runs that may be merged with each other: of the tail, and of each copy. Those that were erased may not."""
    copies = [[run for run in table.settled if run.attribute == attribute] for attribute in table.attributes]
    return [list(table.tail), *([run for run in runs if run.index is None or not run.erased] for runs in copies)]


def _adds_up(run: Run) -> bool:
    """Whether it has no index, or one that can be added up by its counts."""
    return run.index is None or run.tally is not None


def _mergeable(runs: list[Run]) -> list[Run]:
    whole = sorted((run for run in runs if not _adds_up(run)), key=lambda run: -run.capacity)
    return [*whole[:1], *(run for run in runs if _adds_up(run))]


def _due(runs: list[Run]) -> list[Run]:
    """The runs that are to be merged: from the largest that those after it are together as large as, or half."""
    by_size = sorted(filter(_adds_up, runs), key=lambda run: -run.capacity)
    few, times = (FEW_OF_TAIL, 1) if runs and runs[0].tail else (FEW, 2)
    if len(by_size) <= few:
        return []
    for place, run in enumerate(by_size[:-1]):
        if times * sum(smaller.capacity for smaller in by_size[place + 1 :]) >= run.capacity:
            return by_size[place:]
    return []
