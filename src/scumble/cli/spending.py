"""Who pays for an index: a ledger as named comes in, an open one goes out. All public."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from scumble.errors import FileError, InvalidParameter, LedgerBusy
from scumble.index.price import Price
from scumble.owner.ledger import Ledger
from scumble.privacy.budget import Budget

__all__ = ["Account", "pay", "remaining"]


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
