"""Who pays for an index: a ledger as named comes in, an open one goes out. All public."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from scumble.errors import FileError, InvalidParameter, LedgerBusy
from scumble.owner.ledger import Ledger, Spend
from scumble.privacy.budget import Budget

__all__ = ["Account", "pay", "remaining"]


@dataclass(frozen=True)
class Account:
    """The ledger that pays: a file, or one in memory that only just suffices."""

    file: Path | None
    limit: str | None
    delta_limit: str | None

    def check(self, cost: Spend) -> None:
        """Refuse what can be refused before the data is read; create nothing yet."""
        if self.file is None:
            if self.limit is not None or self.delta_limit is not None:
                raise InvalidParameter("a limit needs a ledger to be kept in", hint="--ledger budget.ledger")
        elif self.file.exists():
            Ledger.open(self.file, self.limit, delta_limit=self.delta_limit).close()
        elif self.limit is None:
            raise FileError(f"there is no ledger at {self.file}", hint="--limit 2, for example, creates it")
        else:  # rehearse in memory: a ledger that could not pay, and whose limits then stay, is not created
            pay(Ledger(self.limit, delta_limit=self.delta_limit or 0), cost)

    def open(self, cost: Spend) -> Ledger:
        """Open the ledger, or create it."""
        if self.file is None:
            return Ledger(cost.epsilon, delta_limit=cost.delta)
        return Ledger.open(self.file, self.limit, delta_limit=self.delta_limit)


def pay(ledger: Ledger, cost: Spend) -> Budget:
    """Charge the ledger."""
    (budget,) = ledger.spend_all([cost])
    return budget


def remaining(ledger: Ledger) -> dict[str, Fraction]:
    """What a ledger has left, by name; nothing if another process holds it: that is no reason to fail any more."""
    try:
        return {"limit": ledger.limit, "remaining": ledger.remaining(), "delta_remaining": ledger.remaining_delta()}
    except LedgerBusy:
        return {}
