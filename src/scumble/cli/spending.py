"""What an index costs, and who pays: amounts as typed come in, a checked price and a ledger go out. All public."""

from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from fractions import Fraction
from pathlib import Path

from scumble.errors import FileError, InvalidParameter, LedgerBusy
from scumble.index.contract import check_beta, check_row_epsilon
from scumble.index.model import SlackName
from scumble.privacy.amounts import exact
from scumble.privacy.composition import row_delta
from scumble.privacy.coverage import lossless_delta
from scumble.privacy.ledger import Budget, Ledger

__all__ = ["Account", "Price", "pay", "price_of", "remaining"]


@dataclass(frozen=True)
class Price:
    """What the ledger is charged for one index."""

    epsilon: Fraction
    delta: Fraction
    beta: Fraction
    rows_per_user: int


def price_of(epsilon_text: str, beta_text: str, rows_per_user: int, slack: SlackName) -> Price:
    """Read the amounts, and add the delta that a lossless index needs."""
    epsilon, beta = exact(epsilon_text, "epsilon"), check_beta(beta_text)
    if epsilon <= 0:
        raise InvalidParameter("epsilon must be greater than 0", hint="values from 0.1 to 10 are usual")
    check_row_epsilon(epsilon / rows_per_user)
    delta = _delta(epsilon, beta, rows_per_user) if slack == "lossless" else Fraction(0)
    return Price(epsilon, delta, beta, rows_per_user)


def _delta(epsilon: Fraction, beta: Fraction, rows_per_user: int) -> Fraction:
    """The delta to charge so that one row's part of it covers a lossless release; rounded up to 12 digits."""
    needed = lossless_delta(epsilon / rows_per_user, beta)
    # A row's part grows in proportion to the whole, and its part of a small whole is exact to 30 digits.
    part = row_delta(epsilon, Fraction(1), rows_per_user)
    whole = needed / part if part else Fraction(1)
    up = Context(prec=12, rounding=ROUND_CEILING)
    delta = Fraction(up.next_plus(up.divide(whole.numerator, whole.denominator)))
    if delta >= 1:
        raise InvalidParameter("a lossless index at this price would need a delta of 1", hint="take a smaller beta")
    return delta


@dataclass(frozen=True)
class Account:
    """The ledger that pays: a file, or one in memory that only just suffices."""

    file: Path | None
    limit: str | None
    delta_limit: str | None

    def check(self, price: Price, label: str) -> None:
        """Refuse what can be refused before the data is read; create nothing yet."""
        if self.file is None:
            if self.limit is not None or self.delta_limit is not None:
                raise InvalidParameter("a limit needs a ledger to be kept in", hint="--ledger budget.ledger")
        elif self.file.exists():
            Ledger.open(self.file, self.limit, delta_limit=self.delta_limit).close()
        elif self.limit is None:
            raise FileError(f"there is no ledger at {self.file}", hint="--limit 2, for example, creates it")
        else:  # rehearse in memory: a ledger that could not pay, and whose limits then stay, is not created
            pay(Ledger(self.limit, delta_limit=self.delta_limit or 0), price, label)

    def open(self, price: Price) -> Ledger:
        """Open the ledger, or create it."""
        if self.file is None:
            return Ledger(price.epsilon, delta_limit=price.delta)
        return Ledger.open(self.file, self.limit, delta_limit=self.delta_limit)


def pay(ledger: Ledger, price: Price, label: str) -> Budget:
    """Spend the price."""
    return ledger.spend(price.epsilon, label, delta=price.delta, rows_per_user=price.rows_per_user)


def remaining(ledger: Ledger) -> dict[str, Fraction]:
    """What a ledger has left, by name; nothing if another process holds it: that is no reason to fail any more."""
    try:
        return {"limit": ledger.limit, "remaining": ledger.remaining(), "delta_remaining": ledger.remaining_delta()}
    except LedgerBusy:
        return {}
