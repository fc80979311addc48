"""What a load costs an analyst's allotment: no part of it is negative and makes up for another."""

from fractions import Fraction

import pytest

from scumble import IntegerDomain
from scumble.enclave.grants import Cost
from scumble.errors import InvalidParameter
from scumble.wire.requests import IndexOrder

ONE, NONE = Fraction(1), Fraction(0)


def order(epsilon: Fraction, delta: Fraction = NONE) -> IndexOrder:
    return IndexOrder("k", IntegerDomain(0, 9), epsilon, delta, Fraction(1, 10**6), 1, 4096, "measured")


def test_everything_is_added_up() -> None:
    assert Cost.of([], (NONE, NONE)) == Cost(NONE, NONE)
    assert Cost.of([order(ONE, ONE / 9), order(ONE / 2, ONE / 8)], (ONE / 3, ONE / 7)) == Cost(
        ONE + ONE / 2 + ONE / 3, ONE / 9 + ONE / 8 + ONE / 7
    )


@pytest.mark.parametrize(
    ("orders", "capacity"),
    [
        ([order(ONE)], (Fraction(-9, 10), NONE)),  # would cost 0.1, which an allotment of 0.1 pays
        ([order(ONE, ONE / 9)], (ONE, Fraction(-1, 9))),
        ([order(ONE, -ONE / 9)], (ONE, ONE / 9)),
        ([order(ONE), order(-ONE / 2)], (ONE, NONE)),
        ([order(ONE), order(NONE)], (ONE, NONE)),
        ([], (-ONE, NONE)),
        ([], (NONE, -ONE)),
    ],
)
def test_what_costs_less_than_nothing_is_refused(orders: list[IndexOrder], capacity: tuple[Fraction, Fraction]) -> None:
    with pytest.raises(InvalidParameter, match="nothing costs less than 0"):
        Cost.of(orders, capacity)
