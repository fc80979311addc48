"""What the check of an index's terms accepts can be built: nothing fails once a budget is drawn."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from scumble import DPPLRIndex, IntegerDomain, Ledger
from scumble.errors import InvalidParameter
from scumble.index.contract import LEAST_BETA, LEAST_EPSILON, MOST_EPSILON, Terms
from scumble.index.slack import SLACKS, SlackName
from scumble.privacy.budget import unsafe_budget

EPSILONS = (LEAST_EPSILON, Fraction(1, 1000), Fraction(10), Fraction(90), MOST_EPSILON)
MILLIONTH = Fraction(1, 10**6)
BETAS = (LEAST_BETA, Fraction(1, 10**11), Fraction(1, 1000), 1 - Fraction(1, 10**12))


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


@pytest.mark.parametrize("slack", SLACKS)
@pytest.mark.parametrize("size", [1, 1000])
def test_a_file_that_cannot_be_so_small_is_refused_before_the_draw(slack: SlackName, size: int) -> None:
    """The least that is accepted holds a segment, however the noise falls; one byte less costs nothing."""
    domain, counts = IntegerDomain(0, size - 1), np.full(size, 1000)
    delta = SLACKS[slack].delta(Fraction(1), MILLIONTH)
    terms = Terms(domain, Fraction(1), delta, MILLIONTH, None, Fraction(1), delta)
    for max_bytes in range(1, 400):
        try:
            DPPLRIndex(max_bytes=max_bytes, slack=slack).check(terms)
        except InvalidParameter:
            continue
        break
    ledger = Ledger(limit=50, delta_limit="1/2")
    for _ in range(20):
        index = DPPLRIndex(max_bytes=max_bytes, slack=slack)
        index.fit_counts(counts, domain=domain, budget=ledger.spend(1, "k", delta=delta), beta=MILLIONTH)
        assert index.size_bytes <= max_bytes
    left = ledger.remaining()
    with pytest.raises(InvalidParameter, match="no room for a single segment"):
        DPPLRIndex(max_bytes=max_bytes - 1, slack=slack).fit_counts(
            counts, domain=domain, budget=ledger.spend(1, "k", delta=delta), beta=MILLIONTH
        )
    assert ledger.remaining() == left == 30
