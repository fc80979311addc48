"""Who may do what with a database: its owner, and the grants that the owner has given to analysts.

SECRET: it lies in the sealed part of the manifest, and only the owner sees all of it. To an analyst without a right to
a table, everything looks exactly as if the table were not there.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

from scumble.errors import Exists, InvalidParameter, NotFound, Overdraft, Refused, Tampered
from scumble.wire.catalog import Catalog
from scumble.wire.channel import is_succession
from scumble.wire.grants import Grant
from scumble.wire.requests import IndexOrder

__all__ = ["AccessList", "Cost", "visible"]

BLOCK_BYTES = 256
MOST_GRANTS = 1000


@dataclass(frozen=True)
class Cost:
    """PUBLIC: what a load costs: the sum of its indexes and of its capacity, if that is drawn."""

    epsilon: Fraction
    delta: Fraction

    @classmethod
    def of(cls, orders: Sequence[IndexOrder], capacity: tuple[Fraction, Fraction]) -> Self:
        """The cost of these orders and of a capacity with this epsilon and delta; none may be negative."""
        amounts = [(order.epsilon, order.delta) for order in orders]
        epsilon, delta = capacity
        if any(amount <= 0 for amount, _ in amounts) or min(epsilon, delta, *(d for _, d in amounts)) < 0:
            raise InvalidParameter("an index costs epsilon, and nothing costs less than 0", hint="state what was paid")
        return cls(sum((e for e, _ in amounts), epsilon), sum((d for _, d in amounts), delta))


@dataclass(frozen=True)
class AccessList:
    """SECRET: a database's owner, by public key; the grants; and former owners, with their signatures for the next."""

    owner: bytes
    grants: tuple[Grant, ...] = ()
    former: tuple[tuple[bytes, bytes], ...] = ()

    def succeeds(self, database: str, owner: bytes) -> bool:
        """Whether the owner is this one, or has followed it by an unbroken row of signatures."""
        row = [key for key, _ in self.former] + [self.owner]
        if owner not in row:
            return False
        steps = list(zip(self.former, row[1:], strict=True))[row.index(owner) :]
        return all(is_succession(database, old, new, signature) for (old, signature), new in steps)

    def owned_by(self, owner: bytes, signature: bytes) -> Self:
        """With another owner, for whom the one before has signed."""
        return replace(self, owner=owner, former=(*self.former, (self.owner, signature)))

    def grant_of(self, signer: bytes) -> Grant | None:
        """A signer's grant, or None for the owner, who needs none; Refused to everybody else."""
        if signer == self.owner:
            return None
        for grant in self.grants:
            if grant.public_key == signer:
                return grant
        raise Refused

    def granting(self, grant: Grant, catalog: Catalog) -> Self:
        for table in grant.tables:
            catalog.table(table)
        if any(grant.name == other.name for other in self.grants):
            raise Exists(f"there is a grant to {grant.name} already", hint="revoke it first with `scumble revoke`")
        if grant.public_key in (self.owner, *(other.public_key for other in self.grants)):
            raise Exists("this key has rights already", hint="`scumble grants` shows whose it is")
        if len(self.grants) >= MOST_GRANTS:
            raise InvalidParameter(f"there are {MOST_GRANTS} grants", hint="revoke those that nobody needs")
        return replace(self, grants=(*self.grants, grant))

    def revoking(self, name: str) -> Self:
        left = tuple(grant for grant in self.grants if grant.name != name)
        if len(left) == len(self.grants):
            raise NotFound("there is no grant of this name", hint="`scumble grants` lists them")
        return replace(self, grants=left)

    def dropping(self, table: str) -> Self:
        """Without rights to a table: one that gets its name later is another."""
        kept = []
        for grant in self.grants:
            tables = {name: rights for name, rights in grant.tables.items() if name != table.lower()}
            if tables:
                kept.append(replace(grant, tables=tables))
        return replace(self, grants=tuple(kept))

    def charging(self, grant: Grant, cost: Cost) -> Self:
        """With a load's cost taken from a grant's allotment; Overdraft if that does not leave it."""
        used = grant.used_epsilon + cost.epsilon, grant.used_delta + cost.delta
        if used[0] > grant.epsilon or used[1] > grant.delta:
            raise Overdraft(
                "the load costs more than the grant's allotment leaves", hint="ask the owner for another grant"
            )
        charged = replace(grant, used_epsilon=used[0], used_delta=used[1])
        return replace(self, grants=tuple(charged if other is grant else other for other in self.grants))

    def to_bytes(self) -> bytes:
        """The manifest's access block: JSON, and spaces, so that its length tells little."""
        fields = {
            "owner": self.owner.hex(),
            "former": [[key.hex(), signature.hex()] for key, signature in self.former],
            "grants": [grant.to_json() for grant in self.grants],
        }
        text = json.dumps(fields, separators=(",", ":")).encode()
        return text.ljust(-(-len(text) // BLOCK_BYTES) * BLOCK_BYTES)

    @classmethod
    def from_bytes(cls, block: bytes) -> Self:
        """The inverse, or Tampered."""
        try:
            fields = json.loads(block)
            former = tuple((bytes.fromhex(key), bytes.fromhex(signature)) for key, signature in fields["former"])
            return cls(bytes.fromhex(fields["owner"]), tuple(map(Grant.from_json, fields["grants"])), former)
        except (ValueError, KeyError, TypeError, AttributeError, InvalidParameter):
            raise Tampered from None


def visible(catalog: Catalog, grant: Grant | None) -> Catalog:
    """What a signer may see of a catalog: what its grant names, or without one, as the owner, all of it."""
    if grant is None:
        return catalog
    return replace(catalog, tables=tuple(table for table in catalog.tables if grant.names(table.name)))
