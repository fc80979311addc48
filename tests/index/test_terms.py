"""What the check of an index's terms accepts can be built: nothing fails once a budget is drawn."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from scumble import DPPLRIndex, IntegerDomain, Ledger
from scumble.errors import InvalidParameter
from scumble.index.contract import LEAST_BETA, LEAST_EPSILON, MOST_EPSILON
from scumble.index.slack import SLACKS, SlackName
from scumble.privacy.budget import unsafe_budget

EPSILONS = (LEAST_EPSILON, Fraction(1, 1000), Fraction(10), Fraction(90), MOST_EPSILON)
BETAS = (LEAST_BETA, Fraction(1, 10**11), Fraction(1, 1000), 1 - Fraction(1, 10**12))


@pytest.mark.filterwarnings("error")  # a division by zero in numpy is only a warning, and the slack then no number
@pytest.mark.parametrize("slack", SLACKS)
@pytest.mark.parametrize("mechanism", ["scumble", "paper"])
@pytest.mark.parametrize("size", [1, 2, 3, 5000])
def test_the_extremes_are_built(mechanism: str, slack: SlackName, size: int) -> None:
    for epsilon, beta in product(EPSILONS, BETAS):
        delta = SLACKS[slack].delta(epsilon, beta)
        if delta < 1:
            index = DPPLRIndex(mechanism=mechanism, slack=slack, max_bytes=1024)
            index.fit_counts(
                np.ones(size, np.int64),
                domain=IntegerDomain(0, size - 1),
                budget=unsafe_budget(epsilon, delta=delta, label="extreme"),
                beta=beta,
            )
            assert index.model.capacity >= 0


@pytest.mark.parametrize("epsilon", [MOST_EPSILON * 4, MOST_EPSILON + LEAST_EPSILON, LEAST_EPSILON / 2], ids=float)
def test_what_is_beyond_them_is_refused_and_costs_nothing(epsilon: Fraction) -> None:
    ledger = Ledger(limit=10**4)
    domain = IntegerDomain(0, 1)
    with pytest.raises(InvalidParameter, match="epsilon for one row must lie between"):
        DPPLRIndex(slack="paper").fit([0, 1], domain=domain, budget=ledger.spend(3 * epsilon, "k", rows_per_user=3))
    assert ledger.remaining() == 10**4
