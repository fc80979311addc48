"""The budget ledger: how much privacy an owner may spend, and what was spent on which release, in exact fractions.

A limit is set once; from then on each release is charged, and gets a budget, or is refused. The ledger is the owner's:
its labels are public names that the owner chose, and nothing from the data enters it.

A budget is spent before it is drawn, and drawn before the noise is: `spend` records it, `Budget.draw` marks it used
right before the first noise, and a crash in between leaves it spent. Only a budget that nothing was drawn from can be
cancelled. A part of a group is settled when the work that it paid for is done; one that was drawn and never settled
(the work failed, or its process died) may have its rows released again, so it counts on top of every part that is
charged after it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from scumble.errors import BudgetError, BudgetUsed, Corrupt, InvalidParameter, Overdraft
from scumble.owner.ledger_log import LedgerLog, Record, create, is_there
from scumble.owner.spends import (
    Entry,
    Spend,
    Spent,
    as_html,
    as_table,
    as_text,
    check_terms,
    losses_before,
    positive,
    probability,
    with_losses,
)
from scumble.privacy.budget import Budget, Exact, Partition, State, check_open, room, show, total

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Entry", "Ledger", "RecordedBudget", "Spend", "State"]


class RecordedBudget(Budget):
    """A budget in a ledger: its state is recorded there, for every process to see."""

    def __init__(self, ledger: "Ledger", entry: Entry) -> None:
        super().__init__(entry.epsilon, entry.delta, entry.label, entry.rows_per_user)
        self._ledger = ledger
        self._id = entry.id

    @property
    def state(self) -> State:
        """'open', 'drawn' or 'cancelled', whichever process or object made it so."""
        return self._ledger._entry(self._id).state

    def _decide(self, state: State) -> None:
        self._ledger._decide(self._id, "draw" if state == "drawn" else "cancel")

    def settle(self) -> None:
        """Record that what was drawn is in use, so that its rows will not be released again in another part.

        Works once, for a part of a group that was drawn; else BudgetUsed.
        """
        self._ledger._settle(self._id)

    def __repr__(self) -> str:
        self._state = self._ledger._entries[self._id].state  # as last read: a repr neither waits nor fails
        return super().__repr__()


class Ledger:
    """An append-only account of epsilon and delta, in memory, or in a file with `Ledger.open`.

    >>> ledger = Ledger(limit=2)
    >>> budget = ledger.spend("1.5", "salary")
    >>> ledger.remaining()
    Fraction(1, 2)

    The total is composed as `docs/privacy.md` section 2 says: spends add up; within a group of disjoint parts
    (`partition=(group, part)`) the dearest part counts, on top of what was drawn before it and never settled.
    """

    def __init__(self, limit: Exact, *, delta_limit: Exact = 0) -> None:
        epsilon, delta = positive(limit, "limit"), probability(delta_limit, "delta_limit")
        self._attach(None, 0)
        self._log.begin(epsilon, delta)
        self._log.catch_up()

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        limit: Exact | None = None,
        *,
        delta_limit: Exact | None = None,
        busy_seconds: float = 5,
    ) -> Self:
        """Open the ledger at `path`; where there is none, create it with these limits.

        On one that exists, `limit` and `delta_limit` may be left out, and have to agree with it if given.
        Several processes may have it open; one that has to wait longer than `busy_seconds` gets LedgerBusy.
        The file has to be on a local disk: locks on network file systems are not reliable.
        """
        epsilon = None if limit is None else positive(limit, "limit")
        delta = None if delta_limit is None else probability(delta_limit, "delta_limit")
        if not math.isfinite(busy_seconds) or not 0 <= busy_seconds <= 1e6:
            raise InvalidParameter("busy_seconds must be between 0 and 1e6", hint="5 is usual")
        file = Path(path).absolute()
        if epsilon is not None and not is_there(file):
            create(file, epsilon, delta or Fraction(0))
        ledger = cls._reopen(file, busy_seconds)
        for name, given, kept in (
            ("limit", epsilon, ledger._limit),
            ("delta_limit", delta, ledger._delta_limit),
        ):
            if given not in (None, kept):
                raise BudgetError(
                    f"the ledger {file} has {name} {show(kept)}, not {show(given)}",
                    hint="a limit is never changed; leave it out to open the ledger as it is",
                )
        return ledger

    @classmethod
    def _reopen(cls, file: Path, busy_seconds: float) -> Self:
        ledger = cls.__new__(cls)
        ledger._attach(file, busy_seconds)
        ledger._log.catch_up()
        return ledger

    def _attach(self, file: Path | None, busy_seconds: float) -> None:
        self._limit = self._delta_limit = Fraction(0)
        self._entries: dict[int, Entry] = {}
        self._draws: dict[int, int] = {}  # from a spend's id to that of its draw or cancel
        self._settled: set[int] = set()
        self._busy_seconds = busy_seconds
        self._log = LedgerLog(file, self._follow, busy_seconds)

    def spend(
        self,
        epsilon: Exact,
        label: str,
        *,
        delta: Exact = 0,
        rows_per_user: int = 1,
        partition: Partition | None = None,
    ) -> RecordedBudget:
        """Charge one release, and return the budget that pays for it. It is durable when this returns.

        `partition=(group, part)` promises that rows of different parts of a group are disjoint, and
        `rows_per_user=k` that no user has more than k rows, over all parts of the group together. Raises
        Overdraft, and charges nothing, if the total would exceed a limit.
        """
        (budget,) = self.spend_all([Spend(epsilon, label, delta, rows_per_user, partition)])
        return budget

    def spend_all(self, spends: Sequence[Spend]) -> tuple[RecordedBudget, ...]:
        """Charge several releases at once: all of them, or, with Overdraft, none."""
        asked = [(positive(spend.epsilon, "epsilon"), probability(spend.delta, "delta"), spend) for spend in spends]
        for spend in spends:
            check_terms(spend.label, spend.rows_per_user, spend.partition)
        with self._log.writing() as transaction:
            epsilons, deltas = self._epsilons(), self._deltas()
            records: list[Record] = []
            for epsilon, delta, (_, label, _, rows_per_user, partition) in asked:
                for name, amount, before, limit in (
                    ("epsilon", epsilon, epsilons, self._limit),
                    ("delta", delta, deltas, self._delta_limit),
                ):
                    _check_room(name, amount, before, limit, label=label, partition=partition)
                    before.append(Spent(amount, partition, transaction.head[0] + 1))
                records.append(
                    transaction.append(
                        "spend",
                        label=label,
                        epsilon=epsilon,
                        delta=delta,
                        rows_per_user=rows_per_user,
                        partition=partition,
                    )
                )
        return tuple(RecordedBudget(self, self._entries[record.id]) for record in records)

    def spent(self) -> Fraction:
        """Return the epsilon spent so far, by every process (`docs/privacy.md` section 2)."""
        self._log.catch_up()
        return total(with_losses(self._epsilons()))

    def remaining(self) -> Fraction:
        return self._limit - self.spent()

    def spent_delta(self) -> Fraction:
        """Return the delta spent so far, by every process (`docs/privacy.md` section 2)."""
        self._log.catch_up()
        return total(with_losses(self._deltas()))

    def remaining_delta(self) -> Fraction:
        return self._delta_limit - self.spent_delta()

    @property
    def limit(self) -> Fraction:
        """The most epsilon that can ever be spent."""
        return self._limit

    @property
    def delta_limit(self) -> Fraction:
        """The most delta that can ever be spent."""
        return self._delta_limit

    @property
    def path(self) -> Path | None:
        """Where the ledger is kept; None for one in memory."""
        return self._log.path

    def entries(self) -> tuple[Entry, ...]:
        """Return every spend in order, cancelled ones included."""
        self._log.catch_up()
        return tuple(self._entries.values())

    def unsettled(self) -> tuple[Entry, ...]:
        """Return the parts of groups that were drawn and not settled: their work failed, or is still under way."""
        self._log.catch_up()
        return self._lost()

    def close(self) -> None:
        """Close the ledger: it refuses everything afterwards. One in a file can be opened again."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        if self._log.path is None:
            raise BudgetError(
                "a ledger in memory cannot be copied: its budget would be there twice",
                hint="keep it in a file with Ledger.open",
            )
        return Ledger._reopen, (self._log.path, self._busy_seconds)

    # --- what the records mean ---------------------------------------------------------------------

    def _follow(self, record: Record) -> None:
        first = self._limit == 0
        if record.kind == "limit" and first and record.epsilon > 0 and 0 <= record.delta < 1:
            self._limit, self._delta_limit = record.epsilon, record.delta
        elif record.kind == "spend" and not first and _is_possible(record):
            self._entries[record.id] = Entry(
                record.id,
                record.time,
                record.label,
                record.epsilon,
                record.delta,
                record.rows_per_user,
                record.partition,
                "open",
            )
        elif record.kind in ("draw", "cancel") and self._is_open(record.spend):
            state: State = "drawn" if record.kind == "draw" else "cancelled"
            self._entries[record.spend] = replace(self._entries[record.spend], state=state)
            self._draws[record.spend] = record.id
        elif record.kind == "settle" and self._can_settle(record.spend):
            self._settled.add(record.spend)
        else:
            raise Corrupt(
                f"the ledger {self._log.path} is damaged: record {record.id} cannot follow those before it",
                hint="restore it from a backup; what it had paid for stays spent",
            )

    def _is_open(self, spend: int) -> bool:
        return spend in self._entries and self._entries[spend].state == "open"

    def _can_settle(self, spend: int) -> bool:
        entry = self._entries.get(spend)
        return (
            entry is not None and entry.partition is not None and entry.state == "drawn" and spend not in self._settled
        )

    def _settle(self, spend: int) -> None:
        with self._log.writing() as transaction:
            if not self._can_settle(spend):
                raise BudgetUsed(
                    f"the budget {self._entries[spend].label!r} cannot be settled",
                    hint="settle a part of a group, once, after it was drawn",
                )
            transaction.append("settle", spend=spend)

    def _decide(self, spend: int, kind: Literal["draw", "cancel"]) -> None:
        with self._log.writing() as transaction:
            entry = self._entries[spend]
            check_open(entry.label, entry.state)
            transaction.append(kind, spend=spend)

    def _entry(self, spend: int) -> Entry:
        self._log.catch_up()
        return self._entries[spend]

    def _counted(self) -> Iterator[tuple[Entry, int | None]]:
        for entry in list(self._entries.values()):
            if entry.state != "cancelled":
                yield entry, self._draws[entry.id] if self._can_settle(entry.id) else None

    def _epsilons(self) -> list[Spent]:
        return [Spent(entry.epsilon, entry.partition, entry.id, lost_at) for entry, lost_at in self._counted()]

    def _deltas(self) -> list[Spent]:
        return [Spent(entry.delta, entry.partition, entry.id, lost_at) for entry, lost_at in self._counted()]

    def _lost(self) -> tuple[Entry, ...]:
        return tuple(entry for entry, lost_at in self._counted() if lost_at is not None)

    # --- for people --------------------------------------------------------------------------------

    def __repr__(self) -> str:
        # As last read: a repr neither waits for other processes nor fails.
        return f"<Ledger {self._log.path or 'in memory'}: {self._balance()}>"

    def __str__(self) -> str:
        return as_text(self.entries(), self._balance())

    def __rich__(self) -> "Table":
        return as_table(self.entries(), self._balance())

    def _repr_html_(self) -> str:
        return as_html(self.entries(), self._balance())

    def _balance(self) -> str:
        spent, delta = total(with_losses(self._epsilons())), total(with_losses(self._deltas()))
        text = f"epsilon {show(spent)} of {show(self._limit)} spent, {show(self._limit - spent)} remaining"
        if self._delta_limit:
            left = show(self._delta_limit - delta)
            text += f"; delta {show(delta)} of {show(self._delta_limit)} spent, {left} remaining"
        if lost := self._lost():
            text += f"; {', '.join(str(entry.id) for entry in lost)} drawn and not settled"
        return text


def _check_room(
    name: str,
    amount: Fraction,
    before: Sequence[Spent],
    limit: Fraction,
    *,
    label: str,
    partition: Partition | None,
) -> None:
    charges = with_losses(before, partition)
    left = max(Fraction(0), room(charges, limit, partition))
    if amount > left:
        where = f" for this part of {partition[0]!r}" if partition else ""
        if lost := losses_before(before, partition):
            where += f", on top of {show(lost)} that was drawn before it and never settled"
        raise Overdraft(
            f"spending {name} {show(amount)} on {label!r} would overdraw the ledger: "
            f"requested {show(amount)}, spent {show(total(with_losses(before)))}, limit {show(limit)}",
            hint=f"{name} {show(left)} remains{where}",
        )


def _is_possible(record: Record) -> bool:
    try:
        positive(record.epsilon, "epsilon")
        probability(record.delta, "delta")
        check_terms(record.label, record.rows_per_user, record.partition)
    except InvalidParameter:
        return False
    return True
