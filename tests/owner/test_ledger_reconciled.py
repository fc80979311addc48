"""The ledger's total is never less than what the dearest row has lost, whatever life does to the database.

The oracle knows what no ledger knows: from which rows every release was made. It adds up each row's losses, and counts
a release that is made again, from the same rows under the same batch, once: it is the same bytes.
"""

import secrets
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scumble.errors import BudgetUsed, Exists, InvalidParameter, LedgerBusy, Overdraft
from scumble.owner.ledger import Content, Ledger, RecordedBudget, Spend
from scumble.owner.payments import allotment, spend_of
from scumble.owner.reconciling import TableBatches
from scumble.owner.repeats import lost_table, paid_again, unfinished
from scumble.owner.spends import load_partition
from scumble.wire.charges import Charge
from scumble.wire.grants import Grant

LIMIT, DELTA_LIMIT = Fraction(6), Fraction(6, 100)
COLUMNS = ("day", "capacity")
AMOUNTS = st.sampled_from([Fraction(1, 4), Fraction(1, 2), Fraction(1)])
ROWS = st.sets(st.integers(0, 5), min_size=1, max_size=4)
ENDS = ("done", "dies settling", "lost", "lost half-way", "paid and lost", "dies open", "fails early")

Tables = dict[str, TableBatches]


def spends(table: str, batch: str, epsilon: Fraction, *, new_rows: bool) -> list[Spend]:
    return [
        Spend(epsilon, f"t {what}", epsilon / 100, 1, load_partition(table, what, batch), new_rows) for what in COLUMNS
    ]


@dataclass
class World:
    """What really is: the versions there ever were, what they carry, and what was released of which rows."""

    version: Tables = field(default_factory=dict)
    backups: list[Tables] = field(default_factory=list)
    charges: list[Charge] = field(default_factory=list)
    rows: dict[str, frozenset[int]] = field(default_factory=dict)
    released: dict[tuple[str, str], tuple[Fraction, Fraction]] = field(default_factory=dict)  # by batch and column

    def inside(self, table: str) -> frozenset[int]:
        return frozenset().union(*(self.rows[batch] for batch in self.version[table].batches))

    def worst(self, which: int) -> Fraction:
        """What the dearest row has lost, of epsilon (0) or delta (1)."""
        return max(
            (
                sum((cost[which] for (batch, _), cost in self.released.items() if row in self.rows[batch]), Fraction(0))
                for row in range(6)
            ),
            default=Fraction(0),
        )


def load(
    world: World, ledger: Ledger, rows: frozenset[int], epsilon: Fraction, end: str, *, new_rows: bool, again: bool
) -> None:
    """One load of the table `t`, in the order of `owner/loading.py`, that ends as told."""
    known = [table for table, (name, _) in world.version.items() if name == "t"]
    table = known[0] if known else lost_table(ledger, "t", world.version, {1}) or secrets.token_hex(16)
    shown = world.version[table].batches if known else ()
    ledger.reconcile(world.charges, world.version, held=True)
    batch = secrets.token_hex(16)
    content = Content("".join(map(str, sorted(rows))), str(epsilon))
    retried = unfinished(ledger, table, shown, content, again=again)
    wanted = spends(table, batch, epsilon, new_rows=new_rows and not again)
    if retried is None:
        budgets = ledger.spend_all(wanted)
    else:
        batch, budgets = retried, paid_again(ledger, retried, wanted)
    if end == "dies open":
        return
    if end == "fails early":
        for budget in budgets:
            with suppress(BudgetUsed):
                budget.cancel()
        return
    ledger.record_content(table, batch, content)
    world.rows[batch] = rows
    world.charges += [Charge(batch, table, what, epsilon, epsilon / 100, 1, new_rows and not again) for what in COLUMNS]
    drawn = {"paid and lost": 0, "lost half-way": 1}.get(end, len(COLUMNS))
    release(world, batch, epsilon, budgets[:drawn])
    if end in ("done", "dies settling"):
        world.version = world.version | {table: TableBatches("t", (*shown, batch))}
        world.backups.append(world.version)
    if end == "done":
        for budget in budgets:
            budget.settle()


def release(world: World, batch: str, epsilon: Fraction, budgets: Sequence[RecordedBudget]) -> None:
    for what, budget in zip(COLUMNS, budgets, strict=False):
        budget.draw()
        world.released[batch, what] = epsilon, epsilon / 100


class Life(RuleBasedStateMachine):
    """Loads, retries, crashes, restores, drops and reloads on two devices, in any order."""

    @initialize(devices=st.integers(1, 2))
    def begin(self, devices: int) -> None:
        self.world = World()
        self.world.backups.append(self.world.version)
        self.ledgers = [Ledger(LIMIT, delta_limit=DELTA_LIMIT) for _ in range(devices)]
        self.last: tuple[frozenset[int], Fraction, bool] | None = None

    def _load(self, device: int, rows: frozenset[int], epsilon: Fraction, end: str, *, new: bool, again: bool) -> None:
        ledger = self.ledgers[device % len(self.ledgers)]
        there = [table for table, (name, _) in self.world.version.items() if name == "t"]
        honest = not there or not rows & self.world.inside(there[0])
        try:
            load(self.world, ledger, rows, epsilon, end, new_rows=new and honest, again=again)
        except (Overdraft, Exists):
            return
        self.last = rows, epsilon, new

    @rule(device=st.integers(0, 1), rows=ROWS, epsilon=AMOUNTS, end=st.sampled_from(ENDS), again=st.booleans())
    def load_any(self, device: int, rows: set[int], epsilon: Fraction, end: str, again: bool) -> None:
        self._load(device, frozenset(rows), epsilon, end, new=False, again=again)

    @rule(device=st.integers(0, 1), rows=ROWS, epsilon=AMOUNTS, end=st.sampled_from(ENDS))
    def load_new(self, device: int, rows: set[int], epsilon: Fraction, end: str) -> None:
        self._load(device, frozenset(rows), epsilon, end, new=True, again=False)

    @precondition(lambda self: self.last)
    @rule(device=st.integers(0, 1), end=st.sampled_from(ENDS))
    def load_the_same_again(self, device: int, end: str) -> None:
        assert self.last is not None
        rows, epsilon, new = self.last
        self._load(device, rows, epsilon, end, new=new, again=False)

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        self.world.version = data.draw(st.sampled_from(self.world.backups))

    @rule()
    def drop(self) -> None:
        self.world.version = {}

    @rule(device=st.integers(0, 1))
    def open(self, device: int) -> None:
        self.ledgers[device % len(self.ledgers)].reconcile(self.world.charges, self.world.version)

    @invariant()
    def the_ledger_says_no_less_than_the_dearest_row_has_lost(self) -> None:
        for ledger in self.ledgers if hasattr(self, "ledgers") else ():
            if len(self.ledgers) > 1:  # what another device has spent is known from the next opening on
                ledger.reconcile(self.world.charges, self.world.version)
            assert self.world.worst(0) <= ledger.spent()
            assert self.world.worst(1) <= ledger.spent_delta()
            assert len(self.ledgers) > 1 or ledger.spent() <= LIMIT
        if hasattr(self, "world"):
            assert self.world.worst(0) <= LIMIT
            assert self.world.worst(1) <= DELTA_LIMIT


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=15, deadline=None)


# The same, step by step.

TABLE, A, B, C = "7f" * 16, "0a" * 16, "0b" * 16, "0c" * 16


def shows(*batches: str) -> Tables:
    return {TABLE: TableBatches("t", batches)}


def charge(batch: str, *, new_rows: bool, epsilon: int = 1, table: str = TABLE) -> Charge:
    return Charge(batch, table, "day", Fraction(epsilon), Fraction(0), 1, new_rows)


def loaded(ledger: Ledger, batch: str, *, new_rows: bool, settled: bool = True, table: str = TABLE) -> None:
    budget = ledger.spend_all([Spend(1, "t day", 0, 1, load_partition(table, "day", batch), new_rows)])[0]
    budget.draw()
    if settled:
        budget.settle()


def test_batches_add_up_unless_their_rows_are_stated_to_be_new() -> None:
    ledger = Ledger(limit=9)
    loaded(ledger, A, new_rows=False)
    loaded(ledger, B, new_rows=True)
    assert ledger.spent() == 1
    loaded(ledger, C, new_rows=False)
    assert ledger.spent() == 2


def test_a_statement_says_nothing_of_a_batch_that_is_not_in_the_table() -> None:
    ledger = Ledger(limit=9)
    loaded(ledger, A, new_rows=True, settled=False)
    loaded(ledger, B, new_rows=True)
    assert ledger.spent() == 2


def test_rows_that_a_restore_took_away_may_come_again_and_then_add_up() -> None:
    ledger = Ledger(limit=9)
    loaded(ledger, A, new_rows=True)
    loaded(ledger, B, new_rows=True)
    ledger.reconcile((), shows(A))
    assert ledger.spent() == 1
    assert [entry.batch for entry in ledger.unsettled()] == [B]
    loaded(ledger, C, new_rows=True)
    assert ledger.spent() == 2


def test_what_several_restores_took_away_counts_once_if_its_rows_were_disjoint() -> None:
    ledger = Ledger(limit=9)
    for batch in (A, B, C):
        loaded(ledger, batch, new_rows=True)
    ledger.reconcile((), shows())
    loaded(ledger, "0d" * 16, new_rows=True)
    assert ledger.spent() == 2  # the row of A, B and C at once that a plain sum would fear cannot be


def test_a_dropped_table_stays_as_it_was() -> None:
    ledger = Ledger(limit=9)
    loaded(ledger, A, new_rows=True)
    ledger.reconcile((), {})
    assert ledger.unsettled() == ()
    loaded(ledger, B, new_rows=True, table="8f" * 16)
    assert ledger.spent() == 2


def test_a_batch_that_was_committed_and_never_settled_is_settled_by_the_catalog() -> None:
    ledger = Ledger(limit=9)
    loaded(ledger, A, new_rows=False, settled=False)
    ledger.reconcile((), shows(A))
    assert ledger.unsettled() == ()
    loaded(ledger, B, new_rows=True)
    assert ledger.spent() == 1


def test_what_another_device_has_spent_counts_even_above_the_limit() -> None:
    ledger = Ledger(limit=1)
    loaded(ledger, A, new_rows=False)
    ledger.reconcile([charge(A, new_rows=False), charge(B, new_rows=False), charge(C, new_rows=False)], shows(A, B))
    assert ledger.remaining() == -2
    assert [entry.label for entry in ledger.entries()] == ["t day"] * 3
    assert [entry.batch for entry in ledger.unsettled()] == [C]
    with pytest.raises(Overdraft, match="epsilon 0 remains"):
        loaded(ledger, "0d" * 16, new_rows=True)
    with pytest.raises(Overdraft) as caught:
        ledger.spend("1e-9", "anything")
    assert caught.value.hint == "epsilon 0 remains"


def test_what_new_rows_would_save_is_told_to_whom_they_would_save_anything() -> None:
    empty, full = Ledger(limit=1), Ledger(limit=1)
    loaded(full, A, new_rows=False)
    for ledger, new_rows, hint in (
        (full, False, "epsilon 0 remains; if no row is in the table yet, say so with --new-rows: 1"),
        (full, True, "epsilon 1 remains"),
        (empty, False, "epsilon 1 remains"),
    ):
        with pytest.raises(Overdraft) as caught:
            ledger.spend_all([Spend(2, "t day", 0, 1, load_partition(TABLE, "day", B), new_rows)])
        assert caught.value.hint == hint


def test_loads_are_the_spends_for_batches_that_were_not_given_back() -> None:
    ledger = Ledger(limit=9)
    ledger.spend(1, "alone")
    ledger.spend(1, "t day", partition=("t", "a"))
    ledger.spend_all([Spend(1, "t day", 0, 1, load_partition(TABLE, "day", A), False)])[0].cancel()
    ledger.spend_all([Spend(1, "t day", 0, 1, load_partition(TABLE, "day", B), False)])
    loaded(ledger, C, new_rows=True)
    assert [entry.batch for entry in ledger.loads()] == [B, C]


def test_a_ledger_that_has_nothing_to_learn_waits_for_nobody(path: Path) -> None:
    ledger = Ledger.open(path, limit=9, busy_seconds=0)
    loaded(ledger, A, new_rows=False)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        ledger.reconcile([charge(A, new_rows=False)], shows(A))
        with pytest.raises(LedgerBusy):
            ledger.reconcile((), shows())
    ledger.reconcile((), shows())
    assert [entry.batch for entry in ledger.unsettled()] == [A]


def test_a_charge_that_is_smaller_here_is_raised_and_nothing_is_added_twice() -> None:
    ledger = Ledger(limit=9)
    loaded(ledger, A, new_rows=False)
    for _ in range(3):
        ledger.reconcile([charge(A, new_rows=False, epsilon=3)], shows(A))
        assert ledger.spent() == 3
        assert len(ledger.entries()) == 2


def test_a_charge_that_is_raised_says_that_rows_are_new_only_if_each_of_its_spends_does() -> None:
    ledger = Ledger(limit=9)
    loaded(ledger, A, new_rows=False)
    loaded(ledger, B, new_rows=False)
    ledger.reconcile([charge(B, new_rows=True, epsilon=3)], shows(A, B))
    assert [entry.new_rows for entry in ledger.entries()] == [False, False, True]
    assert ledger.spent() == 4


def test_a_charge_that_differs_in_delta_alone_is_raised_by_that() -> None:
    ledger = Ledger(limit=9, delta_limit="0.1")
    loaded(ledger, A, new_rows=False)
    ledger.reconcile([Charge(A, TABLE, "day", Fraction(1), Fraction(1, 100), 1, False)], shows(A))
    assert (ledger.spent(), ledger.spent_delta()) == (Fraction(1), Fraction(1, 100))
    assert [entry.epsilon for entry in ledger.entries()] == [Fraction(1), Fraction(0)]


def test_a_learned_statement_holds_only_for_what_the_catalog_shows_before_it() -> None:
    ledger = Ledger(limit=9)
    loaded(ledger, A, new_rows=False)
    ledger.reconcile([charge(B, new_rows=True)], shows(A, B))
    assert ledger.spent() == 1
    ledger = Ledger(limit=9)
    loaded(ledger, A, new_rows=False)
    ledger.reconcile([charge(B, new_rows=True)], shows(B, A))
    assert ledger.spent() == 2
    ledger = Ledger(limit=9)
    loaded(ledger, A, new_rows=False)
    ledger.reconcile([charge(B, new_rows=True)], shows(A))
    assert ledger.spent() == 2


def test_what_a_dead_load_left_open_is_given_back_only_by_who_may_write() -> None:
    ledger = Ledger(limit=9)
    states = []
    ledger.spend_all([Spend(1, "t day", 0, 1, load_partition(TABLE, "day", A), False)])
    ledger.reconcile((), shows())
    states += [entry.state for entry in ledger.entries()]
    for held in (False, True):
        ledger.reconcile((), shows(), held=held)
        states += [entry.state for entry in ledger.entries()]
    assert states == ["open", "open", "cancelled"]
    ledger.spend_all([Spend(1, "t day", 0, 1, load_partition(TABLE, "day", B), False)])
    ledger.reconcile([charge(B, new_rows=False)], shows(), held=True)
    assert [entry.state for entry in ledger.entries()] == ["cancelled", "drawn"]


def test_a_mixture_of_rows_per_user_is_refused() -> None:
    ledger = Ledger(limit=9)
    ledger.spend_all([Spend(1, "t day", 0, 2, load_partition(TABLE, "day", A), False)])
    with pytest.raises(InvalidParameter, match="one rows_per_user, and here are 1, 2"):
        loaded(ledger, B, new_rows=True)
    ledger.spend(1, "u day", partition=("u (12345678) day", "old"), rows_per_user=3)
    with pytest.raises(InvalidParameter, match="1, 3"):
        loaded(ledger, B, new_rows=True, table="12345678" * 4)


def test_only_what_counts_in_the_table_has_a_say_on_its_rows_per_user() -> None:
    """A load that was given back, releases of their own, groups of other names, and other tables' loads have none."""
    ledger = Ledger(limit=9)
    other = load_partition("8f" * 16, "day (7f7f7f7f) month", A)
    ledger.spend_all([Spend(1, "t day", 0, 2, load_partition(TABLE, "day", A), False)])[0].cancel()
    ledger.spend(1, "alone", rows_per_user=3)
    ledger.spend(1, "day", partition=("day", "a"), rows_per_user=4)
    ledger.spend_all([Spend(1, "u day", 0, 5, other, False)])
    loaded(ledger, B, new_rows=False)
    assert ledger.spent() == 4


def test_a_release_of_its_own_may_count_on_other_rows_per_user_than_a_load_beside_it() -> None:
    ledger = Ledger(limit=9)
    ledger.spend_all([Spend(1, "u day", 0, 2, load_partition("u", "day", A), False)])
    load_of_t = Spend(1, "t day", 0, 1, load_partition(TABLE, "day", A), False)
    ledger.spend_all([load_of_t, Spend(1, "u", 0, 3, ("u by hand", "a"))])
    assert ledger.spent() == 3


# A group may be called as loads call theirs.

ALIKE = load_partition(TABLE, "day", A)


def test_a_group_that_is_called_like_a_load_adds_up_with_it() -> None:
    ledger = Ledger(limit=9)
    ledger.spend(1, "by hand", partition=ALIKE)
    loaded(ledger, A, new_rows=False)
    assert ledger.spent() == 2
    ledger.spend(1, "by hand", partition=ALIKE)
    assert ledger.spent() == 3


def test_a_group_that_is_called_like_a_load_does_not_bring_it_into_the_table() -> None:
    ledger = Ledger(limit=9)
    loaded(ledger, A, new_rows=True, settled=False)
    by_hand = ledger.spend(1, "by hand", partition=ALIKE)
    by_hand.draw()
    by_hand.settle()
    loaded(ledger, B, new_rows=True)
    assert ledger.spent() == 3


def test_a_load_that_was_given_back_counts_from_when_it_is_charged_again() -> None:
    ledger = Ledger(limit=9)
    ledger.spend_all([Spend(1, "t day", 0, 1, ALIKE, True)])[0].cancel()
    loaded(ledger, B, new_rows=True)
    loaded(ledger, A, new_rows=True)
    assert ledger.spent() == 1


def test_a_ledger_of_release_0_1_reads_as_it_is_and_takes_loads(path: Path) -> None:
    ledger = Ledger.open(path, limit=9)
    for part in ("a", "b"):
        old = ledger.spend(1, "t day", partition=("t (7f7f7f7f) day", part))
        old.draw()
        old.settle()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 1")
    ledger = Ledger.open(path)
    ledger.reconcile((), shows("0e" * 16, "0f" * 16))
    assert ledger.spent() == 1
    assert version_of(path) == 1
    loaded(ledger, A, new_rows=True)
    assert version_of(path) == 2
    assert Ledger.open(path).spent() == 2  # whose rows were loaded with release 0.1 is not known


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def test_the_oracle_notices_a_ledger_that_does_not_hear_of_a_restore() -> None:
    """The defect of release 0.1, planted: what was settled once stays settled."""
    world, deaf, told = World(), Ledger(limit=9), Ledger(limit=9)
    for number in range(3):
        batch = secrets.token_hex(16)
        world.rows[batch] = frozenset({1})
        world.released[batch, "day"] = Fraction(1), Fraction(0)
        for ledger in (deaf, told):
            loaded(ledger, batch, new_rows=True)
        told.reconcile((), shows())
        assert told.spent() >= world.worst(0) == number + 1
    assert deaf.spent() < world.worst(0)


def test_an_allotment_that_another_device_granted_counts_once() -> None:
    grant = Grant("0123456789abcdef", "ada", bytes(32), {"t": frozenset(["load"])}, Fraction(2), Fraction(0))
    here, there = Ledger(limit=9), Ledger(limit=9)
    (paid,) = here.spend_all([spend_of(allotment(grant), "granted to ada")])
    paid.draw()
    paid.settle()
    for ledger in (here, there, here, there):
        ledger.reconcile([allotment(grant)], shows(), held=True)
        assert ledger.spent() == 2
