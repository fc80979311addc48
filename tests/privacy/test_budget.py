"""What charges cost together, what a row may cost, and a budget that no ledger has recorded: it pays once."""

from fractions import Fraction
from typing import Any

import mpmath
import pytest

from scumble.errors import BudgetUsed, InvalidParameter
from scumble.privacy.budget import Loss, room, row_delta, total, unsafe_budget

CHARGES: list[Loss] = [
    (Fraction(1), None),
    (Fraction(2), ("site", "north")),
    (Fraction(1, 2), ("site", "south")),
    (Fraction(1), ("site", "north")),
    (Fraction(5), ("year", "north")),
    (Fraction(1, 3), None),
]


def test_a_group_costs_what_its_dearest_part_does_and_all_else_adds_up() -> None:
    assert total(CHARGES) == Fraction(4, 3) + 3 + 5
    assert total([]) == 0


@pytest.mark.parametrize(
    ("partition", "more"),
    [(None, 0), (("site", "north"), 0), (("site", "south"), Fraction(5, 2)), (("site", "east"), 3), (("day", "1"), 0)],
)
def test_a_part_has_for_free_what_the_dearest_of_its_group_has_cost_more(
    partition: tuple[str, str] | None, more: Fraction
) -> None:
    limit = Fraction(10)
    found = room(CHARGES, limit, partition)
    assert found == limit - total(CHARGES) + more
    assert total([*CHARGES, (found, partition)]) == limit
    assert room([], limit, partition) == limit


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(1, 10**40), Fraction(700), Fraction(1, 3)], ids=str)
@pytest.mark.parametrize("rows", [2, 3, 1000])
def test_what_a_row_may_cost_is_the_most_that_keeps_a_user_within_delta(epsilon: Fraction, rows: int) -> None:
    """Never more than delta (e^x - 1) / (e^epsilon - 1), and less by no more than the rounding to 30 digits."""
    delta = Fraction(1, 10**6)
    with mpmath.workprec(2000):
        whole = mpmath.mpf(epsilon.numerator) / epsilon.denominator
        most = mpmath.mpf(10) ** -6 * mpmath.expm1(whole / rows) / mpmath.expm1(whole)
        found = row_delta(epsilon, delta, rows)
        share = mpmath.mpf(found.numerator) / found.denominator
        assert most * (1 - mpmath.mpf(10) ** -29) <= share <= most


def test_what_a_row_may_cost_is_written_in_thirty_digits_and_rounded_down() -> None:
    with mpmath.workprec(2000):
        share = mpmath.expm1(mpmath.mpf(1) / 2) / mpmath.expm1(1)
        digits = int(mpmath.floor(share * mpmath.mpf(10) ** 30))
    assert len(str(digits)) == 30
    assert row_delta(Fraction(1), Fraction(1, 1000), 2) == Fraction(digits, 10**33)


def test_a_delta_for_one_row_stays_and_one_too_small_to_write_becomes_none() -> None:
    assert row_delta(Fraction(1), Fraction(1, 7), 1) == Fraction(1, 7)
    assert row_delta(Fraction(1), Fraction(0), 5) == 0
    assert row_delta(Fraction(1), Fraction(1), 2) < Fraction(1, 2)
    assert row_delta(Fraction(1), Fraction(1, 10**999), 2) > 0
    assert row_delta(Fraction(1), Fraction(1, 10**1000), 2) == 0
    assert row_delta(Fraction(2000), Fraction(1, 7), 2) > 0
    assert row_delta(Fraction(5000), Fraction(1, 7), 2) == 0
    assert row_delta(Fraction(10**30), Fraction(1, 7), 2) == 0
    budget = unsafe_budget(2, delta="0.5", rows_per_user=3)
    assert budget.row_delta == row_delta(Fraction(2), Fraction(1, 2), 3) < Fraction(1, 6)


def test_it_pays_once_and_says_what_a_row_may_cost() -> None:
    budget = unsafe_budget("0.5", label="salary", rows_per_user=2)
    assert (budget.epsilon, budget.row_epsilon, budget.row_delta) == (Fraction(1, 2), Fraction(1, 4), Fraction(0))
    assert budget.state == "open"
    budget.draw()
    assert repr(budget) == "<Budget 'salary': epsilon 0.5, drawn>"
    for again in (budget.draw, budget.cancel):
        with pytest.raises(BudgetUsed):
            again()


def test_a_budget_that_was_given_back_pays_for_nothing() -> None:
    budget = unsafe_budget(1, label="salary")
    assert budget.label == "salary"
    budget.cancel()
    assert budget.state == "cancelled"
    for again in (budget.draw, budget.cancel):
        with pytest.raises(BudgetUsed, match="'salary' was cancelled"):
            again()
    budget = unsafe_budget(1)
    budget.draw()
    with pytest.raises(BudgetUsed, match="has already paid for a release"):
        budget.draw()


@pytest.mark.parametrize("wrong", [{"epsilon": 0}, {"epsilon": -1}, {"delta": 1}, {"delta": -1}, {"rows_per_user": 0}])
def test_amounts_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        unsafe_budget(**({"epsilon": 1} | wrong))


def test_a_budget_is_for_one_row_unless_it_says_otherwise() -> None:
    made = unsafe_budget(1)
    assert (made.epsilon, made.delta, made.row_epsilon) == (Fraction(1), Fraction(0), Fraction(1))
    assert made.rows_per_user == 1
    assert unsafe_budget(3, delta="0.9", rows_per_user=2).row_epsilon == Fraction(3, 2)
