"""A row of the table: a claim, how it was checked, what came out, and whether a planted defect was caught."""

from dataclasses import dataclass

__all__ = ["Row"]


@dataclass(frozen=True)
class Row:
    """One claim that was attacked. `planted` names the defects that were planted, `caught` those that the check found.

    A row holds if `holds`, and if every planted defect was caught: a check that cannot fail proves nothing.
    """

    claim: str
    check: str
    figure: str
    holds: bool
    planted: tuple[str, ...] = ()
    caught: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the claim stands and every planted defect was caught."""
        return self.holds and set(self.planted) == set(self.caught)
