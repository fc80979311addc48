"""Decimals: a value's word is the unscaled number. Their key domain is `decimal:LOW:HIGH:STEP`.

Floats are taken for both, since readers of CSV files make prices floats: a float stands for a decimal if it is at most
four units in its last place away from the double nearest to that decimal, and small enough (2^48 units) to tell
neighbours apart. Bounds and step of a domain are public, keys and ranks are secret.
"""

import math
import re
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidKeys, InvalidParameter
from scumble.types.arrow import bitmap, cast, check_rows, refused, unstorable, values_of
from scumble.types.column import Bracket, ColumnType, Interval, Operator, SqlType, ValueWords, bytes_for, numbers_in
from scumble.types.domain import TITLES, DomainPartError, Part, check_bounds, is_nan, number_parts, off_grid, unreadable
from scumble.types.grid import Grid, GridDomain, Units
from scumble.types.integer import NUMERIC_SOURCES, beyond, is_common, unscaled
from scumble.types.keys import Floats, KeyColumn, Place, Ticks, read_key
from scumble.types.schema import Column
from scumble.types.wide import WIDE_BYTES, lower_half, wide_interval, wide_number, wide_words, words_of_halves

MAX_DIGITS = 38
_WORD_DIGITS = 18  # up to so many fit a word
DECIMAL = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?", re.ASCII)
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INTEGER_DIGITS = 19  # of what DuckDB takes a BIGINT for
_EXACT = Context(prec=60)
_MOST_DIGITS = 76  # of Arrow's widest decimal
_EXACT_TENS = 22  # 10^22 is the last power of ten that a double holds exactly
_FLOAT_UNITS = 2.0**48  # below this many units, five units in the last place are less than half a grid unit
_SLACK_ULPS = 4


@dataclass(frozen=True)
class DecimalType(ColumnType):
    """`decimal(digits,scale)`: up to 38 digits, `scale` of them after the point; beyond 18 digits it has two words."""

    kind = "decimal"
    names = dict.fromkeys(("decimal", "numeric", "dec"), "decimal")
    families = ("decimal",)
    examples = ("decimal(12,2)",)
    sql_types = (SqlType("DECIMAL", 3, 38, 10, parameters=("precision", "scale"), unsigned=False, scale=38),)
    arrow_name = "decimal128"
    sources = NUMERIC_SOURCES
    is_number = True

    scale: int = 0
    digits: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.digits <= MAX_DIGITS or not 0 <= self.scale <= self.digits:
            raise InvalidParameter(
                f"a decimal has 1 to {MAX_DIGITS} digits, and no more of them after the point",
                hint="write decimal(12,2), for example",
            )

    @classmethod
    def of_text(cls, name: str, rest: str) -> Self:
        """Read `(12,2)`, `(12)` or nothing, which is DuckDB's decimal(18,3)."""
        numbers = numbers_in(rest)
        if len(numbers) > 2:
            raise InvalidParameter("a decimal has two numbers, its digits and those after the point")
        digits, scale = [*numbers, 0][:2] if numbers else (18, 3)
        return cls(f"decimal({digits},{scale})", scale, digits)

    @cached_property
    def words(self) -> int:
        return 1 if self.digits <= _WORD_DIGITS else 2

    @cached_property
    def width_bytes(self) -> int:
        return bytes_for(self._most) if self.words == 1 else WIDE_BYTES

    @property
    def _most(self) -> int:
        return int(10**self.digits) - 1

    @cached_property
    def full_interval(self) -> Interval:
        return self._as_words(-self._most), self._as_words(self._most)

    def _as_words(self, units: int) -> ValueWords:
        return (units,) if self.words == 1 else wide_words(units)

    @property
    def tick(self) -> tuple[str, Fraction]:
        return "decimal", Fraction(1, 10**self.scale)

    def _words(self, value: object) -> ValueWords | None:
        units = unscaled(value, self.scale)
        return None if units is None or abs(units) > self._most else self._as_words(units)

    def value_of(self, words: ValueWords) -> Decimal:
        units = words[0] if self.words == 1 else wide_number(words)
        return Decimal(units).scaleb(-self.scale, _EXACT)

    def _compared(self, op: Operator, value: object) -> Interval | None:
        if self.words == 1:
            return super()._compared(op, value)
        bracket = self._bracket(value) if self._has_common_type(value) else None
        if bracket is None:
            return None
        return wide_interval(op, bracket, -self._most, self._most) or self.empty_interval

    def _has_common_type(self, value: object) -> bool:
        """Whether DuckDB compares a constant with a column of two words as a decimal of the column's own type."""
        whole = self.digits - self.scale
        match value:
            case int():
                return whole >= _INTEGER_DIGITS
            case Decimal() if value.is_finite():
                exponent = value.as_tuple().exponent
                return isinstance(exponent, int) and 0 <= -exponent <= self.scale and value.adjusted() < whole
        return isinstance(value, str)

    def _bracket(self, value: object) -> Bracket | None:
        tens = 10**self.scale
        match value:
            case bool():
                return None
            case int() if -(2**63) <= value < 2**63:
                return value * tens, value * tens
            case Decimal() if self.words > 1 or is_common(value):
                numerator, denominator = value.as_integer_ratio()
                numerator *= tens
                return -(-numerator // denominator), numerator // denominator
            case float():
                return self._bracket_of_float(value)
            case str() if DECIMAL.fullmatch(value):
                whole, _, places = value.partition(".")
                if len(places) <= self.scale and len(whole.lstrip("-0")) <= self.digits - self.scale:
                    units = int(whole + places.ljust(self.scale, "0"))
                    return units, units
        return None

    def _bracket_of_float(self, value: float) -> Bracket | None:
        """Compare as DuckDB does, which casts the column: word / 10^scale, correctly rounded while both are exact."""
        tens = 10**self.scale
        if not abs(value) * tens < 2**51:
            return beyond(value) if not abs(value) * tens <= 2.0 * 10**self.digits else None
        guess = math.floor(value * tens)
        below = next(k for k in range(guess + 2, guess - 3, -1) if k / tens <= value)
        above = next(k for k in range(guess - 2, guess + 3) if k / tens >= value)
        return above, below

    def comparable_with(self, other: ColumnType) -> bool:
        """Words count the same unit if there are as many digits after the point."""
        return isinstance(other, DecimalType) and self.scale == other.scale and self.words == other.words

    @property
    def arrow_type(self) -> Any:
        import pyarrow as pa

        return pa.decimal128(self.digits, self.scale)

    @classmethod
    def of_arrow(cls, field: Any) -> Self:
        digits, scale = field.type.precision, field.type.scale
        if 0 <= scale <= digits <= MAX_DIGITS:
            return cls(f"decimal({digits},{scale})", scale, digits)
        most = f"at most {MAX_DIGITS} digits are stored"
        raise unstorable(field, f"declare it decimal({MAX_DIGITS},2), for example: {most}")

    def convert(self, column: Column, array: Any, source: str, first_row: int) -> Any:
        import pyarrow as pa

        if source == "float":
            return self._of_floats(column, array, first_row)
        steps = [self.arrow_type]
        if source == "integer":  # Arrow wants room for any integer at first
            steps = [pa.decimal128(38, self.scale), *steps]
        return cast(column, array, steps, first_row, exact=source != "string")

    def _of_floats(self, column: Column, array: Any, first_row: int) -> Any:
        import pyarrow as pa

        filled = array.fill_null(0) if array.null_count else array
        values = filled.cast(pa.float64()).to_numpy(zero_copy_only=False)
        tens = 10.0**self.scale
        units, read = _snapped(values, self.scale, min(_FLOAT_UNITS, 10.0**self.digits - 0.5) / tens)
        if not read.all():
            row = first_row + int(np.argmin(read))
            raise refused(column, row, f"the float is not a {self.label}, or too large to tell which")
        return self._array(units, array.is_valid().buffers()[1] if array.null_count else None)

    def encode(self, column: Column, array: Any, valid: NDArray[np.uint8] | None, first_row: int) -> NDArray[np.int64]:
        """Return the lower of each number's halves, if the upper one is its sign; or both."""
        halves = values_of(array, np.dtype((np.int64, 2)))
        if self.words > 1:
            return self._encode_wide(column, halves, valid, first_row)
        words, limit = halves[:, 0].copy(), 10**self.digits
        strays = (halves[:, 1] != words >> 63) | (words <= -limit) | (words >= limit)
        check_rows(column, strays, valid, first_row, f"the value has more digits than {self.label}")
        return words

    def _encode_wide(
        self, column: Column, halves: NDArray[np.int64], valid: NDArray[np.uint8] | None, first_row: int
    ) -> NDArray[np.int64]:
        words = words_of_halves(halves[:, 1], np.ascontiguousarray(halves[:, 0]))
        least, most = self.full_interval
        strays = (words[:, 0] < least[0]) | ((words[:, 0] == least[0]) & (words[:, 1] < least[1]))
        strays |= (words[:, 0] > most[0]) | ((words[:, 0] == most[0]) & (words[:, 1] > most[1]))
        check_rows(column, strays, valid, first_row, f"the value has more digits than {self.label}")
        return words

    def decode(self, words: NDArray[Any], valid: NDArray[Any] | None) -> Any:
        return self._array(words, bitmap(valid))

    def _array(self, units: NDArray[Any], validity: Any) -> Any:
        import pyarrow as pa

        halves = np.empty((len(units), 2), np.int64)
        if units.ndim > 1:
            halves[:, 0], halves[:, 1] = lower_half(units).view(np.int64), units[:, 0]
        else:
            halves[:, 0] = units
            halves[:, 1] = halves[:, 0] >> 63
        return pa.Array.from_buffers(self.arrow_type, len(halves), [validity, pa.py_buffer(halves)])


@dataclass(frozen=True, init=False, repr=False)
class DecimalDomain(GridDomain):
    """The decimals low, low + step, ... up to high."""

    name: ClassVar[str] = "decimal"
    parts: ClassVar[tuple[Part, ...]] = number_parts(NUMBER, "a decimal number")
    example: ClassVar[str] = "decimal:LOW:HIGH:STEP, for example decimal:0:1000000:0.01"
    takes: ClassVar[str] = "Decimal, integers, floats on the grid, text such as '12.50' and Arrow decimals"
    low: Decimal
    high: Decimal
    step: Decimal
    _places: int = field(compare=False)
    _grid: Grid = field(compare=False)

    def __init__(self, low: Decimal | str | int, high: Decimal | str | int, step: Decimal | str | int) -> None:
        given = (("low", low), ("high", high), ("step", step))
        low, high, step = (decimal_part(part, value) for part, value in given)
        check_bounds(low, high, step, "use a step such as 0.01")
        places = max(_places(value) for value in (low, high, step))
        grid = Grid.build(*(int(Fraction(value) * 10**places) for value in (low, high, step)))
        self._set(low=low, high=high, step=step, _places=places, _grid=grid)

    @property
    def cell_type(self) -> str:
        """The decimals of one word that hold every key, as far as there are so many digits."""
        if self._places > _WORD_DIGITS:
            return ""
        whole = max(1, *(number.adjusted() + 1 for number in (self.low, self.high, self.step)))
        return f"decimal({min(whole + self._places, _WORD_DIGITS)},{self._places})"

    @property
    def text(self) -> str:
        return f"decimal:{self.low}:{self.high}:{self.step}"

    def key(self, rank: int) -> Decimal:
        grid = self._grid
        units = grid.low + self._checked_rank(rank) * grid.step * grid.width
        return plain_decimal(Decimal(f"{units}E-{self._places}"))

    def _exact(self, key: object, place: Place) -> Units:
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
        raise self._wrong_type(place, type(plain).__name__)

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
        if abs(value) < self._float_limit:
            raise off_grid(place, self.label)
        trouble = f" is a float too large to tell neighbours on the grid of {self.label} apart"
        raise place.refused(InvalidKeys, trouble, "pass Decimal, text or Arrow decimals, which are exact")

    @property
    def _float_limit(self) -> float:
        return float(Fraction(_FLOAT_UNITS) / 10**self._places)

    def _ticks(self, column: KeyColumn, place: Place) -> Ticks | None:
        if isinstance(column, Ticks):
            if column.kind == "time":
                raise self._wrong_type(place, column.type_name)
            return Ticks(column.values, "decimal", column.tick * 10**self._places, column.type_name)
        if isinstance(column, Floats) and self._places <= _EXACT_TENS:
            units, read = _snapped(column.values, self._places, self._float_limit)
            if read.all():
                return Ticks(units, "decimal", Fraction(1), column.type_name)
            if not place.query:
                row = int(np.argmin(read))
                self._rank_of(self._units_of_float(float(column.values[row]), place.at(row)), place.at(row))
        return None


def decimal_part(part: str, value: object) -> Decimal:
    """Read a bound or a step exactly, in its plain form without an exponent."""
    name = TITLES[part]
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
            part, f"{name} has too many digits", hint=f"use at most {_MOST_DIGITS} on either side"
        ) from None
    if not number.is_finite():
        raise DomainPartError(part, f"{name} is not finite", hint="write it like 12.50")
    exponent = number.as_tuple().exponent
    if number and (number.adjusted() >= _MOST_DIGITS or (isinstance(exponent, int) and exponent < -_MOST_DIGITS)):
        raise DomainPartError(part, f"{name} has too many digits", hint=f"use at most {_MOST_DIGITS} on either side")
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


def _snapped(values: NDArray[np.float64], places: int, limit: float) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return every float's nearest number of units of 10^-places, and whether the float may stand for it.

    The product is off by at most a unit in the last place, which below the limit can't change the nearest
    whole number of any float that passes; the quotient of two exact doubles is correctly rounded.
    """
    small = np.abs(values) < limit  # false for NaN
    tens = float(10**places)
    units = np.rint(np.where(small, values, 0.0) * tens)
    apart = np.abs(np.where(small, values, 0.0) - units / tens)
    return units.astype(np.int64), small & (apart <= _SLACK_ULPS * np.spacing(np.abs(values)))
