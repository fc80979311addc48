"""A budget: the right to make one release, for so much epsilon and delta. No mechanism draws noise without one.

A mechanism asks it what it may cost for one row, and calls `draw` before its first noise. `Ledger.spend` gives budgets
that an owner's ledger has recorded. An enclave, whose owner has already paid, and the lab, which releases nothing, use
`unsafe_budget`, which no ledger knows. Amounts are exact and public.
"""

from fractions import Fraction
from typing import Literal

from scumble.errors import BudgetUsed
from scumble.privacy.amounts import Exact, exact, show
from scumble.privacy.composition import row_delta

__all__ = ["Budget", "State", "unsafe_budget"]

State = Literal["open", "drawn", "cancelled"]


class Budget:
    """The right to make one release: what it may cost for one user, and whether it has been used."""

    def __init__(self, epsilon: Fraction, delta: Fraction, label: str, rows_per_user: int) -> None:
        self._epsilon, self._delta, self._label, self._rows_per_user = epsilon, delta, label, rows_per_user
        self._state: State = "open"

    @property
    def epsilon(self) -> Fraction:
        """What was charged: the privacy loss of one user."""
        return self._epsilon

    @property
    def row_epsilon(self) -> Fraction:
        """What the mechanism may cost for one row added or removed: noise is scaled by this."""
        return self._epsilon / self._rows_per_user

    @property
    def delta(self) -> Fraction:
        """What was charged as delta, for one user."""
        return self._delta

    @property
    def row_delta(self) -> Fraction:
        """The delta that the mechanism may have for one row, rounded down (`docs/privacy.md` section 2)."""
        return row_delta(self._epsilon, self._delta, self._rows_per_user)

    @property
    def label(self) -> str:
        """What the owner called it."""
        return self._label

    @property
    def rows_per_user(self) -> int:
        """The most rows that one user has, over all parts of a group together."""
        return self._rows_per_user

    @property
    def state(self) -> State:
        """Whether it is open, drawn or cancelled."""
        return self._state

    def draw(self) -> None:
        """Mark this budget used, right before the first noise. Works once, then BudgetUsed."""
        self._decide("drawn")

    def cancel(self) -> None:
        """Give this budget back. Works once, and only while nothing was drawn from it; else BudgetUsed."""
        self._decide("cancelled")

    def _decide(self, state: State) -> None:
        check_open(self.label, self._state)
        self._state = state

    def __repr__(self) -> str:
        return f"<Budget {self.label!r}: epsilon {show(self.epsilon)}, {self._state}>"


def check_open(label: str, state: State) -> None:
    """Refuse a budget that was drawn or cancelled."""
    if state != "open":
        was = "has already paid for a release" if state == "drawn" else "was cancelled"
        raise BudgetUsed(f"the budget {label!r} {was}", hint="spend a new one for each release")


def unsafe_budget(epsilon: Exact, *, delta: Exact = 0, label: str = "unrecorded", rows_per_user: int = 1) -> Budget:
    """Return a budget that no ledger has recorded: for callers that have paid already, or release nothing."""
    return Budget(exact(epsilon, "epsilon"), exact(delta, "delta"), label, rows_per_user)
