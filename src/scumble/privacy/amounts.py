"""Exact numbers: how a budget is read, kept and shown without ever passing through floating point.

A caller may write an int, a Fraction, a Decimal, a string, or a float, which means its shortest decimal; it becomes the
`Fraction` it stands for, and text for people or for the ledger. These are parameters and costs, chosen by the owner and
public.
"""

import math
import re
from decimal import Context, Decimal
from fractions import Fraction
from numbers import Rational

from scumble.errors import InvalidParameter

__all__ = ["Exact", "exact", "from_ratio", "ratio", "show"]

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
