"""Decimal keys on a public grid, `decimal:LOW:HIGH:STEP`, from exact decimals to ranks.

Floats are taken too, since readers of CSV files make prices floats: a float stands for a grid point if it is
at most four units in its last place away from the double nearest to that point, and small enough (2^48 units)
to tell neighbours apart. Bounds and step are public, keys and ranks are secret.
"""

import math
import re
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from scumble.types.domain import DomainPartError, Place, is_nan, off_grid, too_coarse, unreadable
from scumble.types.grid import Grid, GridDomain, Units
from scumble.types.keys import Column, Floats, Ticks, read_key

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_MAX_DIGITS = 76  # of Arrow's widest decimal
_EXACT_TENS = 22  # 10^22 is the last power of ten that a double holds exactly
_FLOAT_UNITS = 2.0**48  # below this many units, five units in the last place are less than half a grid unit
_SLACK_ULPS = 4


@dataclass(frozen=True, init=False, repr=False)
class DecimalDomain(GridDomain):
    """The decimals low, low + step, ... up to high."""

    takes: ClassVar[str] = "Decimal, integers, floats on the grid, text such as '12.50' and Arrow decimals"
    low: Decimal
    high: Decimal
    step: Decimal
    _places: int = field(compare=False)
    _grid: Grid = field(compare=False)

    def __init__(self, low: Decimal | str | int, high: Decimal | str | int, step: Decimal | str | int) -> None:
        given = (("low", low), ("high", high), ("step", step))
        low, high, step = (decimal_part(part, value) for part, value in given)
        if step <= 0:
            raise DomainPartError("step", "the step is not positive", hint="use a step such as 0.01")
        if high < low:
            raise DomainPartError("high", "the upper bound is below the lower bound", hint="swap the bounds")
        places = max(_places(value) for value in (low, high, step))
        grid = Grid.build(*(int(Fraction(value) * 10**places) for value in (low, high, step)))
        fields = (("low", low), ("high", high), ("step", step), ("_places", places), ("_grid", grid))
        for name, value in fields:
            object.__setattr__(self, name, value)

    @property
    def text(self) -> str:
        """The canonical text."""
        return f"decimal:{self.low}:{self.high}:{self.step}"

    def key(self, rank: int) -> Decimal:
        """Return the smallest decimal of a rank."""
        grid = self._grid
        units = grid.low + self._checked_rank(rank) * grid.step * grid.width
        return plain_decimal(Decimal(f"{units}E-{self._places}"))

    def _units(self, key: object, place: Place) -> Units:
        plain = read_key(key, place)
        if isinstance(plain, int) and not isinstance(plain, bool):
            return int(plain * 10**self._places)
        if isinstance(plain, float):
            return self._units_of_float(plain, place)
        if isinstance(plain, str):
            if NUMBER.fullmatch(plain) is None:
                raise unreadable(place, "a decimal number")
            plain = Decimal(plain)
        if isinstance(plain, Decimal):
            if plain.is_nan():
                raise is_nan(place)
            return exact(plain, self._places)
        raise self._no_such_type(place, plain)

    def _units_of_float(self, value: float, place: Place) -> Units:
        if math.isnan(value):
            raise is_nan(place)
        if math.isinf(value):
            return value
        if abs(value) < self._float_limit:
            units = round(Fraction(value) * Fraction(10**self._places))
            if abs(value - units / 10**self._places) <= _SLACK_ULPS * math.ulp(value):
                return units
        if place.query:
            return Fraction(value) * Fraction(10**self._places)
        raise (off_grid if abs(value) < self._float_limit else too_coarse)(place, self.label)

    @property
    def _float_limit(self) -> float:
        return float(Fraction(_FLOAT_UNITS) / 10**self._places)

    def _ticks(self, column: Column, place: Place) -> Ticks | None:
        if isinstance(column, Ticks):
            if column.kind == "time":
                raise self._no_such_type(place, column.type_name)
            return Ticks(column.values, "decimal", column.tick * 10**self._places, column.type_name)
        if isinstance(column, Floats) and self._places <= _EXACT_TENS:
            units, read = self._snap(column.values)
            if read.all():
                return Ticks(units, "decimal", Fraction(1), column.type_name)
            if not place.query:
                self._refuse_float(column.values, int(np.argmin(read)), place)
        return None

    def _snap(self, values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return every float's nearest number of units, and whether the float may stand for it.

        The product is off by at most a unit in the last place, which below the limit can't change the nearest
        whole number of any float that passes; the quotient of two exact doubles is correctly rounded.
        """
        small = np.abs(values) < self._float_limit  # false for NaN
        tens = float(10**self._places)
        units = np.rint(np.where(small, values, 0.0) * tens)
        apart = np.abs(np.where(small, values, 0.0) - units / tens)
        return units.astype(np.int64), small & (apart <= _SLACK_ULPS * np.spacing(np.abs(values)))

    def _refuse_float(self, values: NDArray[np.float64], row: int, place: Place) -> None:
        at = place.at(row)
        self._rank_of_units(self._units_of_float(float(values[row]), at), at)


def decimal_part(part: str, value: object) -> Decimal:
    """Read a bound or a step exactly, in its plain form without an exponent."""
    name = {"low": "the lower bound", "high": "the upper bound", "step": "the step"}[part]
    if isinstance(value, np.integer) and value.dtype.kind in "iu":
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, Decimal | str | int):
        raise DomainPartError(part, f"{name} is not a decimal number", hint="pass Decimal, text or int, not a float")
    if isinstance(value, str) and NUMBER.fullmatch(value) is None:
        raise DomainPartError(part, f"{name} is not a decimal number", hint="write it like 12.50")
    try:
        number = Decimal(value)
    except ArithmeticError:  # an exponent beyond any
        raise DomainPartError(
            part, f"{name} has too many digits", hint=f"use at most {_MAX_DIGITS} on either side"
        ) from None
    if not number.is_finite():
        raise DomainPartError(part, f"{name} is not finite", hint="write it like 12.50")
    exponent = number.as_tuple().exponent
    if number and (number.adjusted() >= _MAX_DIGITS or (isinstance(exponent, int) and exponent < -_MAX_DIGITS)):
        raise DomainPartError(part, f"{name} has too many digits", hint=f"use at most {_MAX_DIGITS} on either side")
    return plain_decimal(number)


def plain_decimal(number: Decimal) -> Decimal:
    """Return the same number without exponent or trailing zeros; `normalize` would round to 28 digits."""
    digits = format(number if number else Decimal(0), "f")
    return Decimal(digits.rstrip("0").rstrip(".") if "." in digits else digits)


def exact(number: Decimal, places: int = 0) -> int | Fraction | float:
    """Return a decimal in units of 10^-places; a huge or tiny one as what compares the same."""
    if number.is_infinite() or (number and number.adjusted() > 1000):
        return -math.inf if number < 0 else math.inf
    if number and number.adjusted() < -1000:
        return Fraction(-1 if number < 0 else 1, 10**1000)
    numerator, denominator = number.as_integer_ratio()
    units, rest = divmod(numerator * 10**places, denominator)
    return Fraction(numerator * 10**places, denominator) if rest else units


def _places(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0
