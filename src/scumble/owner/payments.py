"""What a load pays: spent before any work is done, given back if nothing was drawn, settled when the rows are there.

In come the spends of a load; out go the budgets that its releases draw on. Once the rows are known, by a digest that
stays here, a load that had failed is recognised: then its own budgets are used again, and nothing more is paid.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from fractions import Fraction
from types import TracebackType
from typing import Self

from scumble.errors import ScumbleError
from scumble.owner.ledger import Content, Ledger, RecordedBudget, Spend
from scumble.owner.repeats import can_retry, paid_again, unfinished
from scumble.owner.spends import GRANT, load_partition
from scumble.privacy.budget import exact
from scumble.wire.charges import Charge
from scumble.wire.grants import Grant

__all__ = ["Payment", "allotment", "spend_of", "used_up"]


def allotment(grant: Grant) -> Charge:
    """What a grant costs its owner, whether it will be used or not: as a charge, it is known on every device."""
    return _allotted(grant.id, grant.epsilon, grant.delta)


def used_up(charges: Iterable[Charge]) -> list[Charge]:
    """What grants that are gone have cost at least, by the charges of their loads: as parts of their allotments."""
    used: dict[str, tuple[Fraction, Fraction]] = {}
    for charge in charges:
        if charge.grant is not None:
            epsilon, delta = used.get(charge.grant, (Fraction(0), Fraction(0)))
            used[charge.grant] = epsilon + charge.epsilon, delta + charge.delta
    return [_allotted(grant, *amounts) for grant, amounts in used.items()]


def _allotted(grant: str, epsilon: Fraction, delta: Fraction) -> Charge:
    return Charge(2 * grant, f"{GRANT}{grant}", "allotment", epsilon, delta, 1, new_rows=False)


def spend_of(charge: Charge, label: str) -> Spend:
    """A charge as the ledger takes it."""
    partition = load_partition(charge.table, charge.what, charge.batch)
    return Spend(charge.epsilon, label, charge.delta, charge.rows_per_user, partition, charge.new_rows)


class Payment:
    """The budgets of one load. As a `with` block it settles them at its end, or gives back what was not drawn.

    A ledger that cannot be written at the end leaves them unsettled, since the rows are loaded by then: the catalog
    will settle them.
    """

    def __init__(
        self, ledger: Ledger, table_id: str, batch: str, shown: Collection[str], spends: Sequence[Spend], terms: str
    ) -> None:
        self._ledger, self._table_id, self._shown = ledger, table_id, shown
        self._spends, self._terms = spends, terms
        self.batch = batch
        self.retries = False
        """Whether this finishes a load that was paid for before."""
        self.budgets: tuple[RecordedBudget, ...] = ()

    def __enter__(self) -> Self:
        """Spend on everything, unless an unfinished load may turn out to have paid already."""
        if not can_retry(self._ledger, self._table_id, self._shown, self._terms):
            self.budgets = self._ledger.spend_all(self._spends)
        return self

    def identify(self, rows: str, *, again: bool) -> None:
        """Say what the rows are. Exists if they were loaded before; a load of them that had failed is taken up again.

        Nothing was drawn yet, so a refusal costs nothing.
        """
        content = Content(rows, self._terms)
        batch = unfinished(self._ledger, self._table_id, self._shown, content, again=again)
        if batch is not None:
            self._give_back()
            self.batch, self.retries = batch, True
            self.budgets = paid_again(self._ledger, batch, self._spends)
        elif not self.budgets:
            self.budgets = self._ledger.spend_all(self._spends)
        self._ledger.record_content(self._table_id, self.batch, content)

    def charges(self, grant: str | None) -> tuple[Charge, ...]:
        """What is paid for the batch, as a version keeps it, from the owner's ledger or from a grant's allotment."""
        return tuple(
            Charge(
                self.batch,
                self._table_id,
                "" if spend.partition is None else spend.partition[0].partition(" ")[2],
                exact(spend.epsilon, "epsilon"),
                exact(spend.delta, "delta"),
                spend.rows_per_user,
                bool(spend.new_rows),
                grant,
            )
            for spend in self._spends
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._give_back()
            return
        for budget in self.budgets:
            with suppress(ScumbleError):
                budget.settle()

    def _give_back(self) -> None:
        for budget in self.budgets:
            with suppress(ScumbleError):
                budget.cancel()
