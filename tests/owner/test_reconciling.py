"""What a ledger has to record so that it counts no less than the newest version shows, case by case."""

from datetime import UTC, datetime
from fractions import Fraction

import pytest

from scumble.owner.reconciling import Decision, Learned, TableBatches, differences
from scumble.owner.spends import Entry, Spend, State, load_partition
from scumble.wire.charges import Charge

TABLE, OTHER = "7f" * 16, "8f" * 16
A, B, C = "0a" * 16, "0b" * 16, "0c" * 16
NOUGHT = Fraction(0)


def entry(
    state: State, batch: str = A, *, number: int = 1, cost: tuple[Fraction, Fraction] = (Fraction(1), NOUGHT)
) -> Entry:
    place = load_partition(TABLE, "day", batch)
    return Entry(number, datetime(2026, 1, 1, tzinfo=UTC), "t day", *cost, 1, place, state, new_rows=False)


def shows(*batches: str) -> dict[str, TableBatches]:
    return {TABLE: TableBatches("t", batches)}


def charge(
    batch: str, epsilon: Fraction | int = 1, delta: Fraction = NOUGHT, *, table: str = TABLE, new_rows: bool = False
) -> Charge:
    return Charge(batch, table, "day", Fraction(epsilon), delta, 1, new_rows)


def spend(batch: str, epsilon: Fraction | int, delta: Fraction = NOUGHT, *, new_rows: bool = False) -> Spend:
    return Spend(Fraction(epsilon), "t day", delta, 1, load_partition(TABLE, "day", batch), new_rows)


# --- about spends that the ledger has ----------------------------------------------------------------

IN, OUT, DROPPED = shows(A), shows(B), {OTHER: TableBatches("u", (A,))}
CASES: list[tuple[State, bool, dict[str, TableBatches], bool, bool, list[str]]] = [
    # state, settled, tables, a version shows its charge, held: what is recorded
    ("drawn", True, IN, True, True, []),
    ("drawn", True, OUT, True, True, ["leave"]),
    ("drawn", True, OUT, False, False, ["leave"]),
    ("drawn", True, DROPPED, True, True, []),
    ("drawn", False, IN, True, False, ["settle"]),
    ("drawn", False, OUT, True, True, []),
    ("drawn", False, DROPPED, True, True, []),
    ("open", False, IN, False, False, ["draw", "settle"]),
    ("open", False, IN, True, True, ["draw", "settle"]),
    ("open", False, OUT, True, False, ["draw"]),
    ("open", False, OUT, True, True, ["draw"]),
    ("open", False, OUT, False, False, []),
    ("open", False, OUT, False, True, ["cancel"]),
    ("open", False, DROPPED, False, True, ["cancel"]),
    ("cancelled", False, OUT, False, True, []),
    ("cancelled", False, IN, False, True, []),
]


@pytest.mark.parametrize(("state", "settled", "tables", "paid", "held", "kinds"), CASES)
def test_what_becomes_of_a_load(
    state: State, settled: bool, tables: dict[str, TableBatches], paid: bool, held: bool, kinds: list[str]
) -> None:
    charges = [charge(A)] if paid else []
    found = list(differences([entry(state, number=5)], {5} if settled else (), charges, tables, held=held))
    assert found == [Decision(kind, 5) for kind in kinds]  # type: ignore[arg-type]


def test_what_was_not_spent_on_a_load_is_left_alone() -> None:
    """A group of release 0.1, or any other: nothing in a catalog speaks of it."""
    when = datetime(2026, 1, 1, tzinfo=UTC)
    for place in (None, ("group", "part"), load_partition(TABLE, "day", A)):
        other = Entry(1, when, "a query", Fraction(1), NOUGHT, 1, place, "open")
        assert list(differences([other], (), (), shows(A), held=True)) == []


def test_a_charge_of_another_column_draws_nothing() -> None:
    other = Charge(A, TABLE, "amount", Fraction(1), NOUGHT, 1, new_rows=False)
    decided = list(differences([entry("open")], (), [other], shows(), held=True))
    assert decided[0] == Decision("cancel", 1)


# --- about spends that it lacks ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "charged", "more"),
    [
        ([], (1, 0), (1, 0)),
        ([], (0, "1/8"), (0, "1/8")),
        ([], (0, 0), None),
        ([(1, "1/8")], (1, "1/8"), None),
        ([(2, "1/4")], (1, "1/8"), None),
        ([(1, "1/4")], (3, "1/8"), (2, 0)),
        ([(3, "1/8")], (1, "1/4"), (0, "1/8")),
        ([(1, "1/8"), (1, "1/8")], (3, "3/8"), (1, "1/8")),
        ([(1, "1/8"), (1, "1/8")], (2, "1/4"), None),
    ],
)
def test_what_the_ledger_knows_to_be_smaller_is_raised(
    known: list[tuple[object, object]], charged: tuple[object, object], more: tuple[object, object] | None
) -> None:
    def exactly(amounts: tuple[object, object]) -> tuple[Fraction, Fraction]:
        return Fraction(str(amounts[0])), Fraction(str(amounts[1]))

    entries = [entry("drawn", number=number, cost=exactly(cost)) for number, cost in enumerate(known)]
    found = list(differences(entries, range(len(known)), [charge(A, *exactly(charged))], shows(A), held=False))
    assert found == ([] if more is None else [Learned(spend(A, *exactly(more)), settled=True)])


def test_what_was_given_back_here_and_paid_elsewhere_is_learned_whole() -> None:
    found = list(differences([entry("cancelled")], (), [charge(A)], shows(A), held=False))
    assert found == [Learned(spend(A, 1), settled=True)]


def test_charges_of_one_batch_are_learned_up_to_the_largest() -> None:
    eighth = Fraction(1, 8)
    charges = [charge(A, 1, eighth), charge(A, 3, 2 * eighth), charge(A, 2, eighth), charge(A, 3, 3 * eighth)]
    learned = [spend(A, 1, eighth), spend(A, 2, eighth), spend(A, 0, eighth)]
    assert list(differences((), (), charges, shows(A), held=False)) == [Learned(each, settled=True) for each in learned]


def test_a_learned_batch_is_settled_if_the_catalog_shows_it() -> None:
    found = list(differences((), (), [charge(A), charge(B), charge(C, table=OTHER)], shows(A), held=False))
    assert all(isinstance(each, Learned) for each in found)
    assert [each.settled for each in found if isinstance(each, Learned)] == [True, False, False]
    assert [each.spend.label for each in found if isinstance(each, Learned)] == ["t day", "t day", "8f8f8f8f day"]


@pytest.mark.parametrize(
    ("stated", "order", "known", "holds"),
    [
        (True, (A, B), A, True),
        (False, (A, B), A, False),
        (True, (B, A), A, False),
        (True, (B, C, A), A, False),
        (True, (B, A), C, True),
        (True, (A, B, C), A, True),
        (True, (A,), A, False),
        (True, (A, B), B, True),  # of the same batch, a smaller amount
        (False, (B, A), A, False),
    ],
)
def test_a_statement_holds_for_the_last_that_the_ledger_knows(
    stated: bool, order: tuple[str, ...], known: str, holds: bool
) -> None:
    here = entry("drawn", known)
    (learned,) = differences(
        [here], {1} if known in order else (), [charge(B, 2, new_rows=stated)], shows(*order), held=False
    )
    assert isinstance(learned, Learned)
    assert learned.spend.new_rows is holds


def test_a_statement_does_not_hold_before_one_that_was_just_learned() -> None:
    charges = [charge(C, new_rows=True), charge(B, new_rows=True)]
    found = [each for each in differences((), (), charges, shows(A, B, C), held=False) if isinstance(each, Learned)]
    assert [each.spend.new_rows for each in found] == [True, False]
