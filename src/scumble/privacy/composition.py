"""How the costs of releases add up: sequentially, in parallel over disjoint rows, and over one user's rows.

From what each release was charged, as exact fractions, and the set of rows it was computed from: the total cost, what a
limit leaves, and the share of a delta that one row may cost. All of it is public; docs/privacy.md section 2 has the
proofs.
"""

from collections.abc import Iterable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal, Overflow
from fractions import Fraction

__all__ = ["Charge", "Partition", "room", "row_delta", "total"]

Partition = tuple[str, str]
"""(group, part): within one group, rows of different parts are disjoint. Their owner promises that."""

Charge = tuple[Fraction, Partition | None]
"""What a release costs (epsilon, or delta), and the part whose rows it reads; None: possibly all rows."""


def total(charges: Iterable[Charge]) -> Fraction:
    """Return what all charges cost together (`docs/privacy.md` section 2).

    Charges on the same rows add up. Within a group a row lies in one part only, so the group costs what its
    dearest part costs. Groups, and the charges outside any group, add up.
    """
    return sum((max(parts.values()) for parts in _by_group(charges).values()), Fraction(0))


def room(charges: Iterable[Charge], limit: Fraction, partition: Partition | None) -> Fraction:
    """Return the most that a further charge on `partition` may be, so that the total stays within `limit`.

    A part that has cost less than the dearest part of its group has that difference for free.
    """
    groups = _by_group(charges)
    left = limit - sum((max(parts.values()) for parts in groups.values()), Fraction(0))
    group, part = partition or (None, None)
    parts = groups.get(group, {})
    return left + max(parts.values(), default=Fraction(0)) - parts.get(part, Fraction(0))


def _by_group(charges: Iterable[Charge]) -> dict[str | None, dict[str | None, Fraction]]:
    # What is outside any group is a group of one part, so the same rule (the dearest part) adds it up.
    groups: dict[str | None, dict[str | None, Fraction]] = {}
    for amount, partition in charges:
        group, part = partition or (None, None)
        parts = groups.setdefault(group, {})
        parts[part] = parts.get(part, Fraction(0)) + amount
    return groups


def row_delta(epsilon: Fraction, delta: Fraction, rows_per_user: int) -> Fraction:
    """Return a delta for one row so small that a user with `rows_per_user` rows is within (epsilon, delta).

    A mechanism that is (x, d)-DP for one row is (k x, d * sum_{i<k} e^(i x))-DP for k rows (`docs/privacy.md`
    section 2). With x = epsilon / k the sum is (e^epsilon - 1) / (e^x - 1), so d = delta (e^x - 1) /
    (e^epsilon - 1), here rounded down to 30 digits by directed rounding at every step. What would be below
    1e-1000 becomes 0.
    """
    if rows_per_user == 1 or delta == 0:
        return delta
    row_epsilon = epsilon / rows_per_user
    # e^x - 1 cancels as many digits as x has zeros behind the point.
    zeros = -_quotient(row_epsilon, _context(10, ROUND_FLOOR)).adjusted()
    down, up = (_context(50 + max(0, zeros), rounding) for rounding in (ROUND_FLOOR, ROUND_CEILING))
    try:
        # `exp` rounds to nearest whatever the context says: one step further is a bound.
        numerator = down.subtract(down.next_minus(down.exp(_quotient(row_epsilon, down))), Decimal(1))
        denominator = up.subtract(up.next_plus(up.exp(_quotient(epsilon, up))), Decimal(1))
    except Overflow:
        return Fraction(0)
    share = down.divide(down.multiply(_quotient(delta, down), numerator), denominator)
    if share.adjusted() < -1000:
        return Fraction(0)
    return Fraction(_context(30, ROUND_FLOOR).plus(share))


def _context(digits: int, rounding: str) -> Context:
    return Context(prec=digits, rounding=rounding, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Overflow])


def _quotient(number: Fraction, context: Context) -> Decimal:
    return context.divide(Decimal(number.numerator), Decimal(number.denominator))
