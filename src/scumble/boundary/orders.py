"""Orders: which index the owner wants on an attribute, and what it has paid for it. PUBLIC, all of it."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

from scumble.domain import Domain, parse_domain
from scumble.index.model import SlackName

__all__ = ["IndexOrder"]


@dataclass(frozen=True)
class IndexOrder:
    """PUBLIC: one index of a load. The ledger was charged epsilon and delta, for users of up to rows_per_user rows."""

    attribute: str
    domain: Domain
    epsilon: Fraction
    delta: Fraction
    beta: Fraction
    rows_per_user: int
    max_bytes: int | None
    slack: SlackName

    def to_json(self) -> dict[str, Any]:
        """The order as JSON; amounts are exact."""
        return {
            "attribute": self.attribute,
            "domain": self.domain.text,
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "beta": str(self.beta),
            "rows_per_user": self.rows_per_user,
            "max_bytes": self.max_bytes,
            "slack": self.slack,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The inverse."""
        amounts = {name: Fraction(fields[name]) for name in ("epsilon", "delta", "beta")}
        return cls(**{**fields, **amounts, "domain": parse_domain(fields["domain"])})
