"""A budget that no ledger has recorded: it pays once, and for amounts that can be."""

from fractions import Fraction
from typing import Any

import pytest

from scumble.errors import BudgetUsed, InvalidParameter
from scumble.privacy.budget import unsafe_budget


def test_it_pays_once_and_says_what_a_row_may_cost() -> None:
    budget = unsafe_budget("0.5", label="salary", rows_per_user=2)
    assert (budget.epsilon, budget.row_epsilon, budget.row_delta) == (Fraction(1, 2), Fraction(1, 4), Fraction(0))
    assert budget.state == "open"
    budget.draw()
    assert repr(budget) == "<Budget 'salary': epsilon 0.5, drawn>"
    for again in (budget.draw, budget.cancel):
        with pytest.raises(BudgetUsed):
            again()


@pytest.mark.parametrize("wrong", [{"epsilon": 0}, {"epsilon": -1}, {"delta": 1}, {"delta": -1}, {"rows_per_user": 0}])
def test_amounts_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        unsafe_budget(**({"epsilon": 1} | wrong))


def test_a_budget_is_for_one_row_unless_it_says_otherwise() -> None:
    made = unsafe_budget(1)
    assert (made.epsilon, made.delta, made.row_epsilon) == (Fraction(1), Fraction(0), Fraction(1))
    assert made.rows_per_user == 1
    assert unsafe_budget(3, delta="0.9", rows_per_user=2).row_epsilon == Fraction(3, 2)
