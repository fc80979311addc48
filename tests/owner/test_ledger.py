import copy
import errno
import io
import pickle
import tempfile
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from rich.console import Console

from scumble import durable
from scumble.errors import BudgetError, BudgetUsed, Corrupt, FileError, InvalidParameter, Overdraft
from scumble.owner import ledger_log
from scumble.owner.ledger import Content, Ledger
from scumble.owner.spends import Spend
from scumble.privacy.budget import Budget, Partition, row_delta, total

AMOUNTS = st.fractions(min_value=Fraction(1, 50), max_value=3, max_denominator=50)
PARTITIONS = st.none() | st.tuples(st.sampled_from(["day", "price"]), st.sampled_from(["a", "b", "c"]))


# Spending.


def test_ten_tenths_are_exactly_one() -> None:
    ledger = Ledger(limit=1)
    for _ in range(10):
        ledger.spend(0.1, "tenth")
    assert ledger.spent() == 1
    assert ledger.remaining() == 0
    with pytest.raises(Overdraft):
        ledger.spend("1e-300", "one too many")


def test_overdraft_text() -> None:
    ledger = Ledger(limit=2, delta_limit="1e-5")
    ledger.spend("1.5", "first")
    with pytest.raises(Overdraft) as caught:
        ledger.spend(1, "salary")
    assert str(caught.value) == (
        "spending epsilon 1 on 'salary' would overdraw the ledger: requested 1, spent 1.5, limit 2\n"
        "hint: epsilon 0.5 remains"
    )
    with pytest.raises(Overdraft) as caught:
        ledger.spend("1/3", "age", delta="1/3")
    assert str(caught.value) == (
        "spending delta 1/3 on 'age' would overdraw the ledger: requested 1/3, spent 0, limit 0.00001\n"
        "hint: delta 0.00001 remains"
    )
    ledger.spend("0.1", "day", partition=("day", "a"))
    with pytest.raises(Overdraft) as caught:
        ledger.spend("0.6", "day", partition=("day", "b"))
    assert caught.value.hint == "epsilon 0.5 remains for this part of 'day'"
    assert [entry.label for entry in ledger.entries()] == ["first", "day"]


def test_without_a_delta_limit_no_delta_can_be_spent() -> None:
    with pytest.raises(Overdraft, match="spending delta"):
        Ledger(limit=1).spend(1, "salary", delta="1e-30")


BAD_SPENDS: list[Callable[[Ledger], Budget]] = [
    lambda ledger: ledger.spend(0, "a"),
    lambda ledger: ledger.spend(-1, "a"),
    lambda ledger: ledger.spend(float("nan"), "a"),
    lambda ledger: ledger.spend(True, "a"),
    lambda ledger: ledger.spend(1, "a", delta=1),
    lambda ledger: ledger.spend(1, "a", delta="-1e-9"),
    lambda ledger: ledger.spend(1, "a", rows_per_user=0),
    lambda ledger: ledger.spend(1, "a", rows_per_user=True),
    lambda ledger: ledger.spend(1, "a", rows_per_user=2.0),  # type: ignore[arg-type]
    lambda ledger: ledger.spend(1, "a", rows_per_user=2**63),
    lambda ledger: ledger.spend(1, ""),
    lambda ledger: ledger.spend(1, "  "),
    lambda ledger: ledger.spend(1, "two\nlines"),
    lambda ledger: ledger.spend(1, "\ud800"),
    lambda ledger: ledger.spend(1, None),  # type: ignore[arg-type]
    lambda ledger: ledger.spend(1, "a", partition=("group",)),  # type: ignore[arg-type]
    lambda ledger: ledger.spend(1, "a", partition=("group", "")),
    lambda ledger: ledger.spend(1, "a", partition=("group", 7)),  # type: ignore[arg-type]
    lambda ledger: ledger.spend(1, "a", partition="ab"),  # type: ignore[arg-type]
    lambda ledger: ledger.spend(1, "a", partition=["group", "part"]),  # type: ignore[arg-type]
    lambda ledger: ledger.spend_all([Spend(1, "a", 0, 1, None, True)])[0],
    lambda ledger: ledger.spend_all([Spend(1, "a", 0, 1, None, False)])[0],
    lambda ledger: ledger.record_content("t", "b", Content("two words", "terms")),  # type: ignore[list-item, return-value]
    lambda ledger: ledger.record_content("t", "b", Content("rows", "")),  # type: ignore[list-item, return-value]
]


@pytest.mark.parametrize("bad_spend", BAD_SPENDS)
def test_a_senseless_spend_is_refused_and_not_written(bad_spend: Callable[[Ledger], Budget], path: Path) -> None:
    ledger = Ledger.open(path, limit=10, delta_limit="0.5")
    before = path.read_bytes()
    with pytest.raises(InvalidParameter) as caught:
        bad_spend(ledger)
    assert caught.value.hint
    assert path.read_bytes() == before


@pytest.mark.parametrize("limits", [{"limit": 0}, {"limit": -1}, {"limit": 1, "delta_limit": 1}, {"limit": "x"}])
def test_senseless_limits_are_refused(limits: dict[str, int], path: Path) -> None:
    with pytest.raises(InvalidParameter):
        Ledger(**limits)
    with pytest.raises(InvalidParameter):
        Ledger.open(path, **limits)
    assert not path.exists()


def test_the_wait_for_a_lock_has_to_make_sense(path: Path) -> None:
    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(InvalidParameter):
            Ledger.open(path, limit=1, busy_seconds=seconds)
    for seconds in (0, 1e6):
        assert Ledger.open(path, limit=1, busy_seconds=seconds).remaining() == 1


# Composition.


def test_parts_of_a_group_cost_the_dearest() -> None:
    ledger = Ledger(limit=2, delta_limit="0.1")
    ledger.spend(1, "run 1", delta="0.01", partition=("day", "run-1"))
    ledger.spend(1, "run 2", delta="0.03", partition=("day", "run-2"))
    assert (ledger.spent(), ledger.spent_delta()) == (Fraction(1), Fraction(3, 100))
    ledger.spend("0.5", "run 2 again", partition=("day", "run-2"))
    assert ledger.spent() == Fraction(3, 2)
    ledger.spend("0.5", "other attribute", partition=("price", "run-1"))
    assert ledger.remaining() == 0
    ledger.spend("0.5", "free: run 1 catches up", partition=("day", "run-1"))
    assert ledger.remaining() == 0
    with pytest.raises(Overdraft):
        ledger.spend("0.1", "run 1 overtakes", partition=("day", "run-1"))


def model(charges: list[tuple[Fraction, Partition | None]]) -> Fraction:
    """The dearest row: try every way to place a row in one part of each group."""
    alone = sum((amount for amount, partition in charges if partition is None), Fraction(0))
    worst = Fraction(0)
    for day in "abc":
        for price in "abc":
            seen = (("day", day), ("price", price))
            worst = max(worst, sum((amount for amount, where in charges if where in seen), Fraction(0)))
    return alone + worst


@given(st.lists(st.tuples(AMOUNTS, PARTITIONS), max_size=12))
def test_the_total_is_what_the_dearest_row_costs(charges: list[tuple[Fraction, Partition | None]]) -> None:
    assert total(charges) == model(charges)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(AMOUNTS, AMOUNTS, PARTITIONS), max_size=12))
def test_a_spend_is_refused_exactly_if_the_total_would_exceed_a_limit(
    spends: list[tuple[Fraction, Fraction, Partition | None]],
) -> None:
    ledger = Ledger(limit=4, delta_limit="0.4")
    kept: list[tuple[Fraction, Fraction, Partition | None]] = []
    for epsilon, tenfold, partition in spends:
        spend = (epsilon, tenfold / 10, partition)
        new = [*kept, spend]
        if model([(e, p) for e, _, p in new]) > 4 or model([(d, p) for _, d, p in new]) > Fraction(4, 10):
            with pytest.raises(Overdraft):
                ledger.spend(epsilon, "x", delta=spend[1], partition=partition)
        else:
            ledger.spend(epsilon, "x", delta=spend[1], partition=partition)
            kept = new
        assert ledger.spent() == model([(e, p) for e, _, p in kept])
        assert ledger.remaining_delta() == Fraction(4, 10) - model([(d, p) for _, d, p in kept])


def test_rows_per_user() -> None:
    budget = Ledger(limit=3).spend(3, "orders", rows_per_user=4)
    assert (budget.epsilon, budget.row_epsilon) == (Fraction(3), Fraction(3, 4))
    assert budget.rows_per_user == 4
    assert budget.delta == budget.row_delta == 0


def exp_bounds(x: Fraction) -> tuple[Fraction, Fraction]:
    """Rational bounds of e^x from its series; the terms left out are less than the last one, twice."""
    term, partial, n = Fraction(1), Fraction(0), 0
    while n < 2 * x or term > Fraction(1, 10**60):
        partial += term
        n += 1
        term *= x / n
    return partial, partial + 2 * term


@settings(deadline=None, max_examples=60)
@given(
    st.fractions(min_value=Fraction(1, 1000), max_value=4, max_denominator=1000),
    st.integers(min_value=2, max_value=9),
)
def test_row_delta_is_the_largest_that_keeps_the_promise(epsilon: Fraction, rows: int) -> None:
    delta = Fraction(1, 10**5)
    share = row_delta(epsilon, delta, rows)
    bounds = [exp_bounds(i * epsilon / rows) for i in range(rows)]
    least, most = sum(low for low, _ in bounds), sum(high for _, high in bounds)
    assert share * most <= delta
    assert share * least >= delta * (1 - Fraction(1, 10**28))


def test_row_delta_at_the_edges() -> None:
    budget = Ledger(limit=1, delta_limit="1e-5").spend(1, "x", delta="1e-5")
    assert budget.row_delta == budget.delta == Fraction(1, 10**5)
    delta = Fraction(1, 10**5)
    assert row_delta(Fraction(10) ** 30, delta, 2) == 0
    assert 0 < row_delta(Fraction(1, 10**300), delta, 10) <= delta / 10
    assert 0 < row_delta(Fraction(1), delta, 2**62) < delta / 2**62


# The life of a budget.


def test_one_budget_pays_for_one_release() -> None:
    ledger = Ledger(limit=2)
    budget = ledger.spend(1, "salary")
    budget.draw()
    assert budget.state == "drawn"
    with pytest.raises(BudgetUsed, match="'salary' has already paid"):
        budget.draw()
    with pytest.raises(BudgetUsed, match="'salary' has already paid"):
        budget.cancel()
    assert ledger.spent() == 1


def test_a_cancelled_budget_costs_nothing_and_pays_for_nothing() -> None:
    ledger = Ledger(limit=1)
    budget = ledger.spend(1, "salary")
    budget.cancel()
    assert budget.state == "cancelled"
    assert ledger.remaining() == 1
    for again in (budget.draw, budget.cancel):
        with pytest.raises(BudgetUsed, match="'salary' was cancelled"):
            again()
    ledger.spend(1, "age")
    assert [entry.state for entry in ledger.entries()] == ["cancelled", "open"]


def test_another_object_sees_and_decides_the_same(path: Path) -> None:
    first = Ledger.open(path, limit=2)
    budget = first.spend(1, "salary")
    twin: Budget = pickle.loads(pickle.dumps(budget))  # noqa: S301
    twin.draw()
    assert budget.state == "drawn"
    with pytest.raises(BudgetUsed):
        budget.draw()
    second = Ledger.open(path)
    second.spend(1, "age")
    assert first.remaining() == 0
    with pytest.raises(Overdraft):
        first.spend(1, "name")


def test_a_ledger_in_memory_cannot_be_doubled() -> None:
    ledger = Ledger(limit=1)
    for double in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(BudgetError, match="twice"):
            double(ledger)


class Life(RuleBasedStateMachine):
    """Two objects on one file, at random, against a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.keep = tempfile.TemporaryDirectory()
        path = Path(self.keep.name) / "ledger"
        self.ledgers = [Ledger.open(path, limit=5), Ledger.open(path)]
        self.budgets: list[Budget] = []
        self.states: list[str] = []

    def left(self) -> Fraction:
        counted = zip(self.budgets, self.states, strict=True)
        return 5 - sum((budget.epsilon for budget, state in counted if state != "cancelled"), Fraction(0))

    @rule(epsilon=AMOUNTS, which=st.booleans())
    def spend(self, epsilon: Fraction, which: bool) -> None:
        if epsilon > self.left():
            with pytest.raises(Overdraft):
                self.ledgers[which].spend(epsilon, "x")
        else:
            self.budgets.append(self.ledgers[which].spend(epsilon, "x"))
            self.states.append("open")

    @precondition(lambda self: self.budgets)
    @rule(data=st.data(), draws=st.booleans())
    def settle(self, data: st.DataObject, draws: bool) -> None:
        i = data.draw(st.integers(0, len(self.budgets) - 1))
        action = self.budgets[i].draw if draws else self.budgets[i].cancel
        if self.states[i] == "open":
            action()
            self.states[i] = "drawn" if draws else "cancelled"
        else:
            with pytest.raises(BudgetUsed):
                action()

    @invariant()
    def all_agree(self) -> None:
        for ledger in self.ledgers:
            assert ledger.remaining() == self.left()
            assert [entry.state for entry in ledger.entries()] == self.states
        assert [budget.state for budget in self.budgets] == self.states

    def teardown(self) -> None:
        self.keep.cleanup()


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)


def in_threads(work: Callable[[], None], count: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_never_overdraw_together() -> None:
    ledger = Ledger(limit=20)
    budgets: list[Budget] = []
    refused: list[Overdraft] = []

    def work() -> None:
        for _ in range(10):
            try:
                budgets.append(ledger.spend(1, "x"))
            except Overdraft as error:
                refused.append(error)

    in_threads(work, 6)
    assert (len(budgets), len(refused)) == (20, 40)
    assert ledger.remaining() == 0


def test_only_one_thread_draws() -> None:
    budget = Ledger(limit=1).spend(1, "x")
    outcomes: list[str] = []

    def work() -> None:
        try:
            budget.draw()
            outcomes.append("drawn")
        except BudgetUsed:
            outcomes.append("refused")

    in_threads(work, 8)
    assert sorted(outcomes) == ["drawn"] + ["refused"] * 7


# On disk.


def test_the_limit_is_read_back_and_never_changed(path: Path) -> None:
    Ledger.open(path, limit="2.5", delta_limit="1e-5").spend(1, "salary", delta="1e-6")
    again = Ledger.open(path)
    assert (again.limit, again.delta_limit) == (Fraction(5, 2), Fraction(1, 10**5))
    assert Ledger.open(path, limit=2.5).spent() == 1
    with pytest.raises(BudgetError, match=r"has limit 2\.5, not 3") as caught:
        Ledger.open(path, limit=3)
    assert caught.value.hint
    with pytest.raises(BudgetError, match=r"has delta_limit 0\.00001, not 0\n"):
        Ledger.open(path, limit="2.5", delta_limit=0)
    assert Ledger.open(path).limit == Fraction(5, 2)


def test_a_ledger_that_is_there_opens_where_nothing_can_be_created(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger.open(path, limit=2).spend(1, "salary")

    def create(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(durable, "create", create)
    assert Ledger.open(path, limit=2).spent() == 1
    with pytest.raises(FileError, match="Read-only file system"):
        Ledger.open(path.with_name("other.ledger"), limit=2)


def test_entries_survive_as_they_were(path: Path) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    ledger = Ledger.open(path, limit=5, delta_limit="0.1")
    ledger.spend("1/3", "Größe", delta="0.01", rows_per_user=3, partition=("orders.day", "run-7")).draw()
    ledger.spend(1, "age").cancel()
    written = ledger.entries()
    ledger.close()
    assert Ledger.open(path).entries() == written
    first, second = written
    assert (first.label, first.epsilon, first.delta) == ("Größe", Fraction(1, 3), Fraction(1, 100))
    assert (first.rows_per_user, first.partition, first.state) == (3, ("orders.day", "run-7"), "drawn")
    assert (second.label, second.partition, second.state) == ("age", None, "cancelled")
    assert (first.id, second.id) == (2, 4)
    assert before <= first.time <= second.time <= datetime.now(UTC)
    with pytest.raises(FrozenInstanceError):
        first.label = "x"  # type: ignore[misc]


def test_a_new_ledger_is_one_private_file(path: Path) -> None:
    Ledger.open(path, limit=1).spend(1, "x")
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert path.stat().st_mode & 0o077 == 0


def test_every_connection_survives_a_power_cut() -> None:
    connection = ledger_log._connect(":memory:", 0)
    assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
    connection.close()


def test_close(path: Path) -> None:
    with Ledger.open(path, limit=2) as ledger:
        budget = ledger.spend(1, "x")
    for use in (ledger.spent, ledger.entries, budget.draw, lambda: ledger.spend(1, "y"), lambda: str(ledger)):
        with pytest.raises(BudgetError, match="closed"):
            use()
    assert "1 remaining" in repr(ledger)
    assert Ledger.open(path).spent() == 1
    memory = Ledger(limit=1)
    memory.close()
    memory.close()
    with pytest.raises(BudgetError, match="closed"):
        memory.spend(1, "x")


def test_a_path_that_cannot_be(path: Path) -> None:
    with pytest.raises(FileError, match="there is no ledger at") as caught:
        Ledger.open(path)
    assert caught.value.hint == "pass limit= to Ledger.open to create one"
    with pytest.raises(FileError, match="cannot be created"):
        Ledger.open(path / "missing" / "ledger", limit=1)
    with pytest.raises(FileError, match="cannot be created"):
        Ledger.open("/proc/ledger", limit=1)
    with pytest.raises(FileError, match="cannot be read or written"):
        Ledger.open(path.parent, limit=1)
    with pytest.raises(FileError):
        Ledger.open(path.parent / ("x" * 300), limit=1)
    assert list(path.parent.iterdir()) == []


def test_a_ledger_deleted_under_a_running_program_is_noticed(path: Path) -> None:
    ledger = Ledger.open(path, limit=2)
    path.unlink()
    with pytest.raises(FileError, match="there is no ledger"):
        ledger.spend(1, "x")
    Ledger.open(path, limit=5)
    with pytest.raises(Corrupt):
        ledger.spend(1, "x")


def test_a_ledger_rolled_back_under_a_running_program_is_noticed(path: Path) -> None:
    ledger = Ledger.open(path, limit=2)
    old = path.read_bytes()
    ledger.spend(1, "x")
    path.write_bytes(old)
    with pytest.raises(Corrupt, match="do not follow"):
        ledger.spend(1, "y")


# For people.


def test_how_a_ledger_prints(path: Path) -> None:
    ledger = Ledger(limit=2, delta_limit="1e-5")
    assert str(ledger) == ("ledger: epsilon 0 of 2 spent, 2 remaining; delta 0 of 0.00001 spent, 0.00001 remaining")
    ledger.spend("1/3", "<b>[red]x", partition=("day", "run-1")).draw()
    budget = ledger.spend("1.5", "age", rows_per_user=3, delta="1e-6")
    assert repr(budget) == "<Budget 'age': epsilon 1.5, open>"
    budget.cancel()
    assert repr(budget) == "<Budget 'age': epsilon 1.5, cancelled>"
    assert str(ledger) == (
        "ledger: epsilon 1/3 of 2 spent, 5/3 remaining; delta 0 of 0.00001 spent, 0.00001 remaining;"
        " 2 drawn and not settled\n"
        "id  label      epsilon  delta     rows per user  part         state\n"
        "2   <b>[red]x  1/3      0         1              day / run-1  drawn\n"
        "4   age        1.5      0.000001  3                           cancelled"
    )
    assert "&lt;b&gt;[red]x" in ledger._repr_html_()
    assert "5/3 remaining" in ledger._repr_html_()
    console = Console(width=160, file=io.StringIO(), record=True)
    console.print(ledger)
    text = console.export_text()
    assert "<b>[red]x" in text
    assert "5/3 remaining" in text
    assert repr(Ledger(limit=1)) == "<Ledger in memory: epsilon 0 of 1 spent, 1 remaining>"
    assert str(path) in repr(Ledger.open(path, limit=1))


def test_what_remains_of_delta_is_printed_as_it_is() -> None:
    ledger = Ledger(limit=2, delta_limit="1e-5")
    ledger.spend("0.5", "day", delta="4e-6")
    assert str(ledger).startswith(
        "ledger: epsilon 0.5 of 2 spent, 1.5 remaining; delta 0.000004 of 0.00001 spent, 0.000006 remaining\n"
    )
