"""The budget ledger: how much privacy an owner may spend, and what was spent on which release, in exact fractions.

A limit is set once; from then on each release is charged, and gets a budget, or is refused. The ledger is the owner's:
its labels are public names that the owner chose, and nothing from the data enters it.

A budget is spent before it is drawn, and drawn before the noise is: `spend` records it, `Budget.draw` marks it used
right before the first noise, and a crash in between leaves it spent. Only a budget that nothing was drawn from can be
cancelled. A part of a group is settled when the work that it paid for is done; one that was drawn and is not settled
(the work failed, its process died, or a restore took away what it had made) may have its rows released again, so it
counts on top of every part that is charged after it. For the loads of a database, the catalog says what is settled:
`reconcile`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from scumble.errors import BudgetError, BudgetUsed, Corrupt, InvalidParameter, Overdraft
from scumble.owner.composition import Account, Spent, TableCost, losses_before
from scumble.owner.ledger_log import LedgerLog, Record, Transaction, create, is_there
from scumble.owner.reconciling import Decision, Learned, TableBatches, differences
from scumble.owner.spends import Entry, Spend, as_html, as_table, as_text, check_terms, positive, probability
from scumble.privacy.budget import Budget, Exact, Partition, State, check_open, exact, show
from scumble.wire.charges import Charge

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Content", "Entry", "Ledger", "RecordedBudget", "RetriedBudget", "Spend", "State"]

_KINDS = {None: "spend", False: "load", True: "load of new rows"}
_NEW_ROWS = {kind: new_rows for new_rows, kind in _KINDS.items()}


class Content(NamedTuple):
    """What a batch was made from: keyed digests of its rows, and of the terms of its releases."""

    rows: str
    terms: str


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


class RetriedBudget(RecordedBudget):
    """A budget whose release is made again, from the same rows under the same batch: it is the same, so it is free."""

    def draw(self) -> None:
        """Mark this budget used, unless the release that is repeated has done so."""
        if self.state == "open":
            super().draw()


class Ledger:
    """An append-only account of epsilon and delta, in memory, or in a file with `Ledger.open`.

    >>> ledger = Ledger(limit=2)
    >>> budget = ledger.spend("1.5", "salary")
    >>> ledger.remaining()
    Fraction(1, 2)

    The total is composed as `docs/privacy.md` section 2 says: spends add up; within a group of disjoint parts
    (`partition=(group, part)`) the dearest part counts, on top of what was drawn before it and never settled. Loads
    into one table add up, unless the loader states that the rows are new.
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
        self._moves: list[tuple[str, int]] = []  # of loads, in order: charged, entered and left the table
        self._contents: dict[tuple[str, str], Content] = {}  # by table and batch
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
            if spend.new_rows is not None and spend.partition is None:  # or the file could not be read any more
                raise InvalidParameter(
                    "only a spend with a partition can say whether its rows are new", hint="partition=(group, part)"
                )
        with self._log.writing() as transaction:
            self._check_rows_per_user(spends)
            epsilons, deltas = self._epsilons(), self._deltas()
            records: list[Record] = []
            for epsilon, delta, spend in asked:
                for name, amount, before, limit in (
                    ("epsilon", epsilon, epsilons, self._limit),
                    ("delta", delta, deltas, self._delta_limit),
                ):
                    _check_room(name, amount, before, limit, spend)
                    before.charge(amount, spend.partition, transaction.head[0] + 1, spend.new_rows)
                records.append(_append(transaction, spend))
        return tuple(RecordedBudget(self, self._entries[record.id]) for record in records)

    def reconcile(self, charges: Sequence[Charge], tables: Mapping[str, TableBatches], *, held: bool = False) -> None:
        """Bring the ledger up to the newest version: the charges it carries, and the batches that its tables show.

        What another device has spent counts here too, even above the limit. A load is settled if its batch is in the
        table, and no longer is if a restore took it away; the loads of a table that is not there stay as they are.
        `held` says that the database is held for writing: what a load that died has left open is then given back.
        """
        self._log.catch_up()
        if not any(self._differences(charges, tables, held=held)):
            return
        with self._log.writing() as transaction:
            for step in self._differences(charges, tables, held=held):
                match step:
                    case Decision(kind, spend):
                        transaction.append(kind, spend=spend)
                    case Learned(spend, settled):
                        learned = _append(transaction, spend).id
                        transaction.append("draw", spend=learned)
                        if settled:
                            transaction.append("settle", spend=learned)

    def _differences(
        self, charges: Sequence[Charge], tables: Mapping[str, TableBatches], *, held: bool
    ) -> list[Decision | Learned]:
        return list(differences(self._entries.values(), self._settled, charges, tables, held=held))

    def record_content(self, table_id: str, batch: str, content: Content) -> None:
        """Remember what a batch is made from, to know it again. Its digests have no space in them."""
        if len(content.rows.split()) != 1 or len(content.terms.split()) != 1:
            raise InvalidParameter("a digest is one word", hint="give it in hexadecimal")
        with self._log.writing() as transaction:
            transaction.append("content", label=f"{content.rows} {content.terms}", partition=(table_id, batch))

    def contents(self, table_id: str) -> dict[str, Content]:
        """What the batches of a table were made from, as far as they were loaded from here."""
        self._log.catch_up()
        return {batch: content for (table, batch), content in self._contents.items() if table == table_id}

    def loads(self) -> tuple[Entry, ...]:
        """Every spend for a batch of a table that was not given back."""
        self._log.catch_up()
        return tuple(e for e in self._entries.values() if e.table_id is not None and e.state != "cancelled")

    def is_settled(self, spend: int) -> bool:
        """Whether what a spend paid for is in use, as far as this ledger was told."""
        return spend in self._settled

    def spent(self) -> Fraction:
        """Return the epsilon spent so far, by every process (`docs/privacy.md` section 2)."""
        self._log.catch_up()
        return self._epsilons().total

    def remaining(self) -> Fraction:
        return self._limit - self.spent()

    def spent_delta(self) -> Fraction:
        """Return the delta spent so far, by every process (`docs/privacy.md` section 2)."""
        self._log.catch_up()
        return self._deltas().total

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
        elif record.kind in _NEW_ROWS and not first and _is_possible(record):
            self._entries[record.id] = Entry(
                record.id,
                record.time,
                record.label,
                record.epsilon,
                record.delta,
                record.rows_per_user,
                record.partition,
                "open",
                _NEW_ROWS[record.kind],
            )
            self._moves.append(("charge", record.id))
        elif record.kind in ("draw", "cancel") and self._is_open(record.spend):
            state: State = "drawn" if record.kind == "draw" else "cancelled"
            self._entries[record.spend] = replace(self._entries[record.spend], state=state)
            self._draws[record.spend] = record.id
        elif record.kind == "settle" and self._can_settle(record.spend):
            self._settled.add(record.spend)
            self._moves.append(("enter", record.spend))
        elif record.kind == "leave" and record.spend in self._settled:
            self._settled.remove(record.spend)
            self._moves.append(("leave", record.spend))
        elif record.kind == "content" and record.partition is not None and record.label.count(" ") == 1:
            self._contents[record.partition] = Content(*record.label.split(" "))
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

    def _check_rows_per_user(self, spends: Sequence[Spend]) -> None:
        """Refuse a load that counts on other numbers of rows a user than the table's other loads."""
        loaded = [spend.partition[0] for spend in spends if spend.new_rows is not None and spend.partition is not None]
        for table_id in {group.partition(" ")[0] for group in loaded}:
            bounds = {spend.rows_per_user for spend in spends if spend.new_rows is not None}
            bounds |= {entry.rows_per_user for entry in self._entries.values() if _of_table(entry, table_id)}
            if len(bounds) > 1:
                raise InvalidParameter(
                    f"the loads of a table need one rows_per_user, and here are {', '.join(map(str, sorted(bounds)))}",
                    hint="give every index of every load of the table the same rows_per_user",
                )

    def _account(self, amount: Callable[[Entry], Fraction]) -> Account:
        """Every spend that was not given back, and how the loads came and went."""
        entries = [entry for entry in list(self._entries.values()) if entry.state != "cancelled"]
        account = Account(
            Spent(amount(e), e.partition, e.id, self._draws[e.id] if self._can_settle(e.id) else None)
            for e in entries
            if e.new_rows is None
        )
        costs: dict[Partition, tuple[Fraction, bool]] = {}  # of the whole part: a charge that was raised is one charge
        for entry in entries:
            if entry.new_rows is not None and entry.partition is not None:
                cost, new_rows = costs.get(entry.partition, (Fraction(0), True))
                costs[entry.partition] = cost + amount(entry), new_rows and entry.new_rows
        for move, spend in list(self._moves):
            entry = self._entries[spend]
            if entry.new_rows is None or entry.partition is None or entry.state == "cancelled":
                continue
            table = account.tables.setdefault(entry.partition[0], TableCost())
            if move == "charge" and entry.partition in costs:
                cost, new_rows = costs.pop(entry.partition)
                table.charge(entry.batch, cost, new_rows=new_rows)
            elif move == "enter":
                table.enter(entry.batch)
            elif move == "leave":
                table.leave(entry.batch)
        return account

    def _epsilons(self) -> Account:
        return self._account(lambda entry: entry.epsilon)

    def _deltas(self) -> Account:
        return self._account(lambda entry: entry.delta)

    def _lost(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in list(self._entries.values()) if self._can_settle(entry.id))

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
        spent, delta = self._epsilons().total, self._deltas().total
        text = f"epsilon {show(spent)} of {show(self._limit)} spent, {show(self._limit - spent)} remaining"
        if self._delta_limit:
            left = show(self._delta_limit - delta)
            text += f"; delta {show(delta)} of {show(self._delta_limit)} spent, {left} remaining"
        if lost := self._lost():
            text += f"; {', '.join(str(entry.id) for entry in lost)} drawn and not settled"
        return text


def _append(transaction: Transaction, spend: Spend) -> Record:
    return transaction.append(
        _KINDS[spend.new_rows],
        label=spend.label,
        epsilon=exact(spend.epsilon, "epsilon"),
        delta=exact(spend.delta, "delta"),
        rows_per_user=spend.rows_per_user,
        partition=spend.partition,
    )


def _of_table(entry: Entry, table_id: str) -> bool:
    """Whether an entry is a load's into a table. Release 0.1 named its groups `visits (12345678) amount`."""
    if entry.state == "cancelled" or entry.partition is None:
        return False
    return entry.table_id == table_id or (entry.new_rows is None and f" ({table_id[:8]}) " in entry.partition[0])


def _check_room(name: str, amount: Fraction, before: Account, limit: Fraction, spend: Spend) -> None:
    if spend.new_rows is None or spend.partition is None:
        left = max(Fraction(0), before.room(limit, spend.partition))
        where = f" for this part of {spend.partition[0]!r}" if spend.partition else ""
        if lost := losses_before(before.spends, spend.partition):
            where += f", on top of {show(lost)} that was drawn before it and never settled"
    else:
        group = spend.partition[0]
        rooms = [before.room_for_load(limit, group, new_rows=new_rows) for new_rows in (spend.new_rows, True)]
        left, if_new = (max(Fraction(0), each) for each in rooms)
        where = f"; if no row is in the table yet, say so with --new-rows: {show(if_new)}" if if_new > left else ""
    if amount > left:
        raise Overdraft(
            f"spending {name} {show(amount)} on {spend.label!r} would overdraw the ledger: "
            f"requested {show(amount)}, spent {show(before.total)}, limit {show(limit)}",
            hint=f"{name} {show(left)} remains{where}",
        )


def _is_possible(record: Record) -> bool:
    try:
        if record.kind == "spend":
            positive(record.epsilon, "epsilon")
        probability(record.delta, "delta")
        check_terms(record.label, record.rows_per_user, record.partition)
    except InvalidParameter:
        return False
    return record.epsilon >= 0 and (record.kind == "spend" or record.partition is not None)
