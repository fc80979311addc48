"""How spends add up: single cases of what the models of the ledger's other tests try at random."""

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from scumble.owner.composition import Account, Spent, TableCost, losses_before, row_costs, with_losses

NOUGHT, ONE, TWO, THREE = map(Fraction, range(4))
A, B, OTHER = ("group", "a"), ("group", "b"), ("other", "a")


# --- losses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spent", "lost"),
    [
        (Spent(ONE, B, 1, 2), ONE),
        (Spent(ONE, B, 1, None), NOUGHT),  # settled
        (Spent(ONE, B, 1, 5), NOUGHT),  # at that record, not before it
        (Spent(ONE, B, 1, 4), ONE),
        (Spent(ONE, B, 1, 6), NOUGHT),
        (Spent(ONE, A, 1, 2), NOUGHT),  # it adds up with its own part anyway
        (Spent(ONE, OTHER, 1, 2), NOUGHT),
        (Spent(ONE, ("other", "b"), 1, 2), NOUGHT),
        (Spent(ONE, None, 1, 2), NOUGHT),
    ],
)
def test_what_other_parts_of_the_group_lost_before_is_counted(spent: Spent, lost: Fraction) -> None:
    assert losses_before([spent], A, 5) == lost
    assert losses_before([spent, spent], A, 5) == 2 * lost
    assert losses_before([spent], None, 5) == NOUGHT


def test_losses_are_listed_for_each_part_and_for_one_about_to_be_charged() -> None:
    spends = [Spent(ONE, A, 1, 2), Spent(TWO, B, 3), Spent(THREE, None, 4)]
    plain = [(ONE, A), (TWO, B), (THREE, None)]
    assert with_losses(spends) == [*plain, (NOUGHT, A), (ONE, B)]
    assert with_losses(spends, ("group", "c")) == [*plain, (NOUGHT, A), (ONE, B), (ONE, ("group", "c"))]


# --- a table's batches -------------------------------------------------------------------------------


def loaded(table: TableCost, batch: str, amount: Fraction, *, new_rows: bool) -> None:
    table.charge(batch, amount, new_rows=new_rows)
    table.enter(batch)


def test_a_table_costs_what_its_dearest_row_has_lost() -> None:
    table = TableCost()
    assert (table.total, table.outside) == (NOUGHT, NOUGHT)
    loaded(table, "a", ONE, new_rows=False)
    loaded(table, "b", TWO, new_rows=True)
    assert (table.total, table.outside) == (TWO, NOUGHT)
    loaded(table, "c", ONE, new_rows=False)  # perhaps of the rows of either
    assert (table.total, table.outside) == (THREE, NOUGHT)
    loaded(table, "d", ONE, new_rows=True)
    assert table.total == THREE


def test_batches_outside_add_up_with_whatever_comes() -> None:
    table = TableCost()
    table.charge("a", TWO, new_rows=True)
    assert (table.total, table.outside) == (TWO, TWO)
    table.charge("b", ONE, new_rows=True)
    assert (table.total, table.outside) == (THREE, THREE)
    table.enter("b")
    assert (table.total, table.outside) == (THREE, TWO)
    table.enter("a")
    assert (table.total, table.outside) == (THREE, NOUGHT)


def test_a_batch_that_leaves_takes_along_what_all_had_in_common() -> None:
    table = TableCost()
    loaded(table, "a", ONE, new_rows=False)
    loaded(table, "b", TWO, new_rows=False)
    assert table.total == THREE
    table.leave("a")
    assert (table.total, table.outside) == (THREE, THREE)
    table.enter("a")
    assert (table.total, table.outside) == (THREE, NOUGHT)
    table.leave("b")
    assert (table.total, table.outside) == (THREE, TWO)


def test_what_enters_or_leaves_twice_or_was_never_charged_changes_nothing() -> None:
    table = TableCost()
    loaded(table, "a", ONE, new_rows=True)
    for move in (table.enter, table.leave):
        move("unknown")
        assert (table.total, table.outside) == (ONE, NOUGHT)
    table.enter("a")
    assert (table.total, table.outside) == (ONE, NOUGHT)
    table.leave("a")
    table.leave("a")
    assert (table.total, table.outside) == (ONE, ONE)


# --- an account --------------------------------------------------------------------------------------


def account() -> Account:
    """2 for a query, and a table with one batch inside for 2 and one outside for 1."""
    made = Account()
    made.charge(TWO, None, 1, None)
    made.charge(TWO, ("table day", "a"), 2, False)
    made.tables["table day"].enter("a")
    made.charge(ONE, ("table day", "b"), 3, True)
    return made


def test_queries_and_tables_add_up() -> None:
    assert account().total == Fraction(4)
    assert [spent.amount for spent in account().spends] == [TWO]
    made = Account()
    made.charge(ONE, A, 1, None)  # a group that is no table's
    made.charge(TWO, B, 2, None)
    assert (made.total, made.tables) == (TWO, {})


def test_a_load_that_names_no_batch_counts_as_any_other_spend() -> None:
    made = Account()
    made.charge(ONE, None, 1, False)
    assert (made.total, made.tables) == (ONE, {})


def test_what_is_left_for_a_query() -> None:
    assert account().room(Fraction(7), None) == THREE
    assert account().room(THREE, None) == -ONE


@pytest.mark.parametrize(
    ("limit", "group", "new_rows", "room"),
    [
        (7, "table day", False, 3),
        (7, "table day", True, 4),  # as much as the batch inside has lost and that outside has not
        (4, "table day", False, 0),
        (4, "table day", True, 1),
        (3, "table day", True, -1),  # nothing is free above the limit
        (3, "table day", False, -1),
        (7, "table amount", True, 3),
        (7, "table amount", False, 3),
    ],
)
def test_what_is_left_for_a_batch(limit: int, group: str, new_rows: bool, room: int) -> None:
    assert account().room_for_load(Fraction(limit), group, new_rows=new_rows) == Fraction(room)


def test_a_row_has_lost_what_the_dearest_batch_has_of_each_release() -> None:
    loads: list[Any] = [
        SimpleNamespace(table_name=table, what=what, epsilon=Fraction(epsilon))
        for table, what, epsilon in (("t", "k", 1), ("t", "k", 3), ("t", "k", 2), ("t", "v", 5), ("u", "k", 4))
    ]
    costs = row_costs(loads)
    assert {name: (cost.presence, cost.change) for name, cost in costs.items()} == {
        "t": (Fraction(8), Fraction(8)),
        "u": (Fraction(4), Fraction(4)),
    }
