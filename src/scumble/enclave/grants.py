"""Who may do what with a database: its owner, and the grants that the owner has given to analysts.

SECRET: it lies in the sealed part of the manifest, and only the owner sees all of it. To an analyst without a right to
a table, everything looks exactly as if the table were not there.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

from scumble.attestation.policy_document import SignedPolicy
from scumble.errors import Exists, InvalidParameter, NotFound, Overdraft, Refused, Stale, Tampered
from scumble.wire.catalog import Catalog
from scumble.wire.charges import Charge
from scumble.wire.grants import Grant
from scumble.wire.messages import from_fields, to_fields
from scumble.wire.requests import IndexOrder

__all__ = ["AccessList", "Cost", "Payment", "visible"]

BLOCK_BYTES = 512
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
class Payment:
    """SECRET: what was charged for a batch before anything of it was released, and a digest of its rows and terms."""

    batch: str
    digest: bytes
    charges: tuple[Charge, ...]

    @property
    def cost(self) -> Cost:
        return Cost(
            sum((charge.epsilon for charge in self.charges), Fraction(0)),
            sum((charge.delta for charge in self.charges), Fraction(0)),
        )

    def covers(self, cost: Cost) -> bool:
        """Whether so much was paid."""
        return cost.epsilon <= self.cost.epsilon and cost.delta <= self.cost.delta


@dataclass(frozen=True)
class AccessList:
    """SECRET: a database's owner, by public key; the grants; and what was ever paid for rows, whether they are there.

    The owner is the one of the version's title, and signs each grant: a database of release 0.1 has neither. `policy`
    is the owner's signed document about which enclaves may have the database's key; empty if there is none. `views`
    are names for queries, and their texts: nobody but the owner gets to see them.
    """

    owner: bytes
    grants: tuple[Grant, ...] = ()
    payments: tuple[Payment, ...] = ()
    policy: bytes = b""
    views: tuple[tuple[str, str], ...] = ()

    def owned_by(self, database: str, owner: bytes, grants: Sequence[Grant]) -> Self:
        """With another owner, who has signed every grant there is."""
        signed = {grant.id: grant for grant in grants}
        kept = []
        for grant in self.grants:
            other = signed.pop(grant.id, grant)
            kept.append(replace(grant, salt=other.salt, signature=other.signature))
        access = replace(self, owner=owner, grants=tuple(kept))
        if signed or not all(access.has_signed(database, grant) for grant in kept):
            raise InvalidParameter("not just the grants that there are were signed", hint="try again")
        return access

    def has_signed(self, database: str, grant: Grant) -> bool:
        """Whether the owner has signed a grant."""
        return grant.certificate().is_by(self.owner, database)

    def is_before(self, policy: bytes) -> bool:
        """Whether another policy of the owner's is newer than this one."""
        serials = [SignedPolicy.parse(each).serial if each else 0 for each in (self.policy, policy)]
        return serials[0] < serials[1]

    def under(self, database: str, policy: bytes) -> Self:
        """With another policy of the owner's: it has to be signed by the owner, and newer than the one before."""
        signed = SignedPolicy.read(policy, database, self.owner)
        if self.policy and signed.serial <= SignedPolicy.parse(self.policy).serial:
            raise Stale("there is a policy of this number or a later one", hint="number it above")
        return replace(self, policy=policy)

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
        less = (replace(grant, gone=grant.gone | ({table.lower()} & grant.tables.keys())) for grant in self.grants)
        return replace(self, grants=tuple(grant for grant in less if grant.gone < grant.tables.keys()))

    def names(self, table: str) -> bool:
        """Whether a grant gives any right to a table."""
        return any(grant.names(table) for grant in self.grants)

    def viewing(self, name: str, text: str) -> Self:
        """With a view, or without it if its text is empty."""
        others = tuple(each for each in self.views if each[0].lower() != name.lower())
        return replace(self, views=(*others, (name, text)) if text else others)

    def paying(self, payment: Payment, grant: Grant | None) -> Self:
        """With a payment recorded, from a grant's allotment if there is one; Overdraft if that does not leave it.

        The same list, if just this was paid before. Under one name nothing else can be paid for, nor other rows.
        """
        known = self.payment(payment.batch)
        if known == payment:
            return self
        if known is not None:
            raise Exists("something else was paid under this batch's name", hint="load it under another name")
        if any(charge.grant != (None if grant is None else grant.id) for charge in payment.charges):
            raise Refused
        paid = replace(self, payments=(*self.payments, payment))
        if grant is None:
            return paid
        cost = payment.cost
        self.check_left(grant, cost, payment.batch)
        charged = replace(
            grant, used_epsilon=grant.used_epsilon + cost.epsilon, used_delta=grant.used_delta + cost.delta
        )
        return replace(paid, grants=tuple(charged if other.id == grant.id else other for other in self.grants))

    def check_left(self, grant: Grant, cost: Cost, batch: str) -> None:
        """Overdraft if a grant's allotment does not leave this for a batch that was not paid for yet."""
        left = grant.epsilon - grant.used_epsilon, grant.delta - grant.used_delta
        if self.payment(batch) is None and (cost.epsilon > left[0] or cost.delta > left[1]):
            raise Overdraft(
                "the load costs more than the grant's allotment leaves", hint="ask the owner for another grant"
            )

    def payment(self, batch: str) -> Payment | None:
        """What was paid for a batch."""
        return next((payment for payment in self.payments if payment.batch == batch), None)

    def charges(self, grant: Grant | None) -> tuple[Charge, ...]:
        """What was paid for all batches; from a grant, if there is one."""
        all_of_them = (charge for payment in self.payments for charge in payment.charges)
        return tuple(charge for charge in all_of_them if grant is None or charge.grant == grant.id)

    def brought_up_to(self, newest: Self) -> Self:
        """After a restore: with what the newest version that is known had taken away, used, paid or stated."""
        there = {grant.id: grant for grant in newest.grants}
        gone = [grant.id for grant in self.grants if grant.id not in there]
        used = [(grant.id, grant.used_epsilon, grant.used_delta) for grant in newest.grants]
        known = {payment.batch for payment in self.payments}
        payments = (*self.payments, *(payment for payment in newest.payments if payment.batch not in known))
        policy = newest.policy if self.is_before(newest.policy) else self.policy
        return replace(self.brought_up(gone, used), payments=payments, policy=policy)

    def brought_up(self, revoked: Sequence[str], used: Sequence[tuple[str, Fraction, Fraction]]) -> Self:
        """After a restore: without the grants that were revoked since, and with no less used than was seen."""
        seen = {grant: amounts for grant, *amounts in used}
        kept = []
        for grant in self.grants:
            epsilon, delta = seen.get(grant.id, (grant.used_epsilon, grant.used_delta))
            if grant.id not in revoked:
                kept.append(
                    replace(
                        grant,
                        used_epsilon=max(grant.used_epsilon, epsilon),
                        used_delta=max(grant.used_delta, delta),
                    )
                )
        return replace(self, grants=tuple(kept))

    def to_bytes(self) -> bytes:
        """The manifest's access block: JSON, and spaces, so that its length tells little."""
        fields = {
            "owner": self.owner.hex(),
            "grants": [grant.to_json() for grant in self.grants],
            "payments": [to_fields(payment) for payment in self.payments],
            **({"policy": self.policy.hex()} if self.policy else {}),
            **({"views": dict(self.views)} if self.views else {}),
        }
        text = json.dumps(fields, separators=(",", ":")).encode()
        return text.ljust(-(-len(text) // BLOCK_BYTES) * BLOCK_BYTES)

    @classmethod
    def from_bytes(cls, block: bytes) -> Self:
        """The inverse, or Tampered; for one of release 0.1 too."""
        try:
            fields = json.loads(block)
            payments = tuple(from_fields(Payment, payment) for payment in fields.get("payments", ()))
            grants, policy = tuple(map(Grant.from_json, fields["grants"])), bytes.fromhex(fields.get("policy", ""))
            views = tuple((str(name), str(text)) for name, text in fields.get("views", {}).items())
            return cls(bytes.fromhex(fields["owner"]), grants, payments, policy, views)
        except (ValueError, KeyError, TypeError, AttributeError, InvalidParameter):
            raise Tampered from None


def visible(catalog: Catalog, grant: Grant | None) -> Catalog:
    """What a signer may see of a catalog: what its grant names, or without one, as the owner, all of it."""
    if grant is None:
        return catalog
    return replace(catalog, tables=tuple(table for table in catalog.tables if grant.names(table.name)))
