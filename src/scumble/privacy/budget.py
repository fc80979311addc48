"""Budgets: exact amounts of epsilon and delta, how they add up, and the right to make one release for some of them.

A caller may write an amount as an int, a Fraction, a Decimal, a string, or a float, which means its shortest decimal;
it never passes through floating point. A mechanism asks its `Budget` what it may cost for one row, and calls `draw`
before its first noise: no mechanism draws noise without one. All of this is public.
"""

import math
import re
from collections.abc import Iterable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal, Overflow
from fractions import Fraction
from numbers import Rational
from typing import Literal

from scumble.errors import BudgetUsed, InvalidParameter

__all__ = [
    "Budget",
    "Exact",
    "Loss",
    "Partition",
    "State",
    "exact",
    "from_ratio",
    "ratio",
    "room",
    "row_delta",
    "show",
    "total",
    "unsafe_budget",
]

# --- exact amounts -----------------------------------------------------------------------------------

Exact = int | float | str | Decimal | Fraction

_RATIO = re.compile(r"[+-]?\d+/\d+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_CANONICAL_RATIO = re.compile(r"(0|-?[1-9]\d*)/[1-9]\d*", re.ASCII)

# 1e-1000 is smaller than any budget; a bound keeps "1e999999999" from filling the memory.
_MOST_DIGITS = 1000
_MOST_BITS = 4096
_MOST_SHOWN = 40


def exact(value: object, name: str) -> Fraction:
    """Return the number that `value` stands for, exactly; `name` is what an error calls it.

    A float means the shortest decimal that prints it: `exact(0.1, "epsilon")` is 1/10, not 2^-55 times
    something.
    """
    match value:
        case bool():
            raise _unreadable(name)
        case Rational():
            number = Fraction(int(value.numerator), int(value.denominator))
        case Decimal():
            number = _from_decimal(value, name)
        case float():
            number = _from_decimal(Decimal(float.__repr__(value)), name)
        case str():
            number = _from_text(value.strip(), name)
        case _:
            raise _unreadable(name)
    if not _fits(number):
        raise _too_long(name)
    return number


def _from_decimal(value: Decimal, name: str) -> Fraction:
    if not value.is_finite():
        raise InvalidParameter(f"{name} must be finite", hint="NaN and infinity are no amounts")
    _, digits, exponent = value.as_tuple()
    if len(digits) > _MOST_DIGITS or abs(int(exponent)) > _MOST_DIGITS:
        raise _too_long(name)
    return Fraction(value)


def _from_text(text: str, name: str) -> Fraction:
    if len(text) > 2 * _MOST_DIGITS:
        raise _too_long(name)
    if _DECIMAL.fullmatch(text):
        try:
            return _from_decimal(Decimal(text), name)
        except ArithmeticError:  # an exponent beyond any
            raise _too_long(name) from None
    if _RATIO.fullmatch(text):
        numerator, denominator = text.split("/")
        if int(denominator) != 0:
            return Fraction(int(numerator), int(denominator))
    raise _unreadable(name)


def _fits(number: Fraction) -> bool:
    return max(number.numerator.bit_length(), number.denominator.bit_length()) <= _MOST_BITS


def _unreadable(name: str) -> InvalidParameter:
    return InvalidParameter(
        f"{name} is not a number that can be read exactly",
        hint='write an int, a float, a Fraction, a Decimal, or a string such as "0.5" or "1/3"',
    )


def _too_long(name: str) -> InvalidParameter:
    return InvalidParameter(f"{name} has too many digits", hint=f"keep it under {_MOST_DIGITS} digits")


def ratio(number: Fraction) -> str:
    """Write a number as the ledger keeps it: 'p/q' in lowest terms, also when q is 1."""
    return f"{number.numerator}/{number.denominator}"


def from_ratio(text: str) -> Fraction:
    """Read back what `ratio` wrote; anything else is a ValueError."""
    if len(text) > 2 * _MOST_BITS or not _CANONICAL_RATIO.fullmatch(text):
        raise ValueError("not a ratio")
    number = Fraction(text)
    if ratio(number) != text:
        raise ValueError("not in lowest terms")
    return number


def show(number: Fraction) -> str:
    """Write a number for people: as a decimal where that is finite, else as p/q; if too long, 'about ...'."""
    twos, rest = _divide_out(number.denominator, 2)
    fives, rest = _divide_out(rest, 5)
    places = max(twos, fives)
    short = math.log2(10) * _MOST_SHOWN
    if rest == 1 and number.numerator.bit_length() <= short and places <= _MOST_SHOWN:
        scaled = number.numerator * 10**places // number.denominator
        return str(Decimal(scaled).scaleb(-places, Context(prec=3 * _MOST_SHOWN))).lower()
    if number.numerator.bit_length() + number.denominator.bit_length() <= short:
        return f"{number.numerator}/{number.denominator}"
    rough = Context(prec=10).divide(Decimal(number.numerator), Decimal(number.denominator))
    return f"about {rough}".lower()


def _divide_out(number: int, prime: int) -> tuple[int, int]:
    times = 0
    while number % prime == 0:
        number //= prime
        times += 1
    return times, number


# --- how costs add up: docs/privacy.md section 2 ------------------------------------------------------

Partition = tuple[str, str]
"""(group, part): within one group, rows of different parts are disjoint. Their owner promises that."""

Loss = tuple[Fraction, Partition | None]
"""What a release costs (epsilon, or delta), and the part whose rows it reads; None: possibly all rows."""


def total(charges: Iterable[Loss]) -> Fraction:
    """Return what all charges cost together (`docs/privacy.md` section 2).

    Charges on the same rows add up. Within a group a row lies in one part only, so the group costs what its
    dearest part costs. Groups, and the charges outside any group, add up.
    """
    return sum((max(parts.values()) for parts in _by_group(charges).values()), Fraction(0))


def room(charges: Iterable[Loss], limit: Fraction, partition: Partition | None) -> Fraction:
    """Return the most that a further charge on `partition` may be, so that the total stays within `limit`.

    A part that has cost less than the dearest part of its group has that difference for free.
    """
    groups = _by_group(charges)
    left = limit - sum((max(parts.values()) for parts in groups.values()), Fraction(0))
    group, part = partition or (None, None)
    parts = groups.get(group, {})
    return left + max(parts.values(), default=Fraction(0)) - parts.get(part, Fraction(0))


def _by_group(charges: Iterable[Loss]) -> dict[str | None, dict[str | None, Fraction]]:
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


# --- the right to make a release -----------------------------------------------------------------------

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
        return self._delta

    @property
    def row_delta(self) -> Fraction:
        """The delta that the mechanism may have for one row, rounded down (`docs/privacy.md` section 2)."""
        return row_delta(self._epsilon, self._delta, self._rows_per_user)

    @property
    def label(self) -> str:
        return self._label

    @property
    def rows_per_user(self) -> int:
        """The most rows that one user has, over all parts of a group together."""
        return self._rows_per_user

    @property
    def state(self) -> State:
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
    charged, chance = exact(epsilon, "epsilon"), exact(delta, "delta")
    if charged <= 0 or not 0 <= chance < 1 or rows_per_user < 1:
        raise InvalidParameter(
            "a budget has an epsilon above 0, a delta from 0 to below 1, and at least one row a user", hint="epsilon=1"
        )
    return Budget(charged, chance, label, rows_per_user)
