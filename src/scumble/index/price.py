"""What an index costs, checked and ready for the ledger. Amounts may be exact or as typed; all of them are public."""

from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from fractions import Fraction

from scumble.errors import InvalidParameter
from scumble.index.contract import check_beta, check_row_epsilon
from scumble.index.slack import SLACKS, SlackName
from scumble.privacy.amounts import Exact, exact
from scumble.privacy.composition import row_delta

__all__ = ["Price", "price_of"]


@dataclass(frozen=True)
class Price:
    """What the ledger is charged for one index."""

    epsilon: Fraction
    delta: Fraction
    beta: Fraction
    rows_per_user: int


def price_of(epsilon: Exact, beta: Exact, rows_per_user: int, slack: SlackName) -> Price:
    """Read the amounts, and add the delta that a lossless index needs."""
    amount, chance = exact(epsilon, "epsilon"), check_beta(beta)
    if amount <= 0:
        raise InvalidParameter("epsilon must be greater than 0", hint="values from 0.1 to 10 are usual")
    check_row_epsilon(amount / rows_per_user)
    needed = SLACKS[slack].delta(amount / rows_per_user, chance)
    delta = _delta(needed, amount, rows_per_user) if needed else Fraction(0)
    return Price(amount, delta, chance, rows_per_user)


def _delta(needed: Fraction, epsilon: Fraction, rows_per_user: int) -> Fraction:
    """The delta to charge so that one row's part of it is what it needs; rounded up to 12 digits."""
    # A row's part grows in proportion to the whole, and its part of a small whole is exact to 30 digits.
    part = row_delta(epsilon, Fraction(1), rows_per_user)
    whole = needed / part if part else Fraction(1)
    up = Context(prec=12, rounding=ROUND_CEILING)
    delta = Fraction(up.next_plus(up.divide(whole.numerator, whole.denominator)))
    if delta >= 1:
        raise InvalidParameter("a lossless index at this price would need a delta of 1", hint="take a smaller beta")
    return delta
