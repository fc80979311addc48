"""Floats: a value's word is the bits of its double, mapped so that they sort as signed integers.

-0.0 is the word before that of 0.0 and equal to it in comparisons, and NaN sorts greatest, as in DuckDB. Their key
domain is `float:LOW:HIGH:STEP`, bins whose edges are exact decimals: every comparison with them is exact, so that a
float has one rank in any form. Bounds and step of a domain are public, keys and ranks are secret.
"""

import math
import struct
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from scumble.types.arrow import cast, values_of
from scumble.types.column import Bracket, ColumnType, SqlType, ValueWords
from scumble.types.decimal import DECIMAL, NUMBER, decimal_part, exact
from scumble.types.domain import (
    EMPTY,
    Domain,
    DomainPartError,
    Part,
    Ranks,
    check_bounds,
    is_nan,
    number_parts,
    outside,
)
from scumble.types.grid import coarsen
from scumble.types.integer import NUMERIC_SOURCES, is_common
from scumble.types.keys import HIGH, KEY, KEYS, LOW, Floats, KeyColumn, Place, Ticks, read_key
from scumble.types.schema import Column

_LOW_BITS = 2**63 - 1
_NAN_WORD = 0x7FF8 << 48
_EXACT = 2**53  # up to here a double holds every integer
_EXACT_SINGLE = 2**24


def float_word(number: float) -> int:
    """Return the word of a double."""
    if math.isnan(number):
        return _NAN_WORD
    bits: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return bits if bits >= 0 else bits ^ _LOW_BITS


def float_of(word: int) -> float:
    """Return the double of a word."""
    number: float = struct.unpack("<d", struct.pack("<q", word if word >= 0 else word ^ _LOW_BITS))[0]
    return number


_INFINITY = float_word(math.inf)
_MINUS_ZERO = float_word(-0.0)


def least_float_word(number: float) -> int:
    """Return the least word that compares equal to a double: that of -0.0 for zero."""
    return float_word(number) if number else _MINUS_ZERO


class FloatType(ColumnType):
    """`float` of 32 bits or `double` of 64, which `sql` names; the words of both are of doubles."""

    kind = "float"
    names = {"real": "float", "float4": "float", "float8": "double", "double precision": "double"} | {
        name: name for name in ("float", "double")
    }
    families = ("float",)
    examples = ("float", "double")
    sql_types = (SqlType("FLOAT", 7, 24, 2, unsigned=False), SqlType("DOUBLE", 8, 53, 2, unsigned=False))
    full_interval = (float_word(-math.inf),), (_NAN_WORD,)
    word_intervals = ((full_interval[0], (_INFINITY,)), ((_NAN_WORD,), (_NAN_WORD,)))
    sources = NUMERIC_SOURCES
    is_float = is_number = True

    @property
    def is_single(self) -> bool:  # type: ignore[override]
        return self.sql == "float"

    @property
    def _is_short(self) -> bool:
        """Whether pages have the 32 bits of its floats; those of earlier tables have words."""
        return self.narrow and self.is_single

    @property
    def width_bytes(self) -> int:
        return 4 if self._is_short else 8

    def to_page(self, words: NDArray[np.int64]) -> NDArray[Any]:
        return _doubles(words).astype(np.float32).view(np.int32) if self._is_short else words

    def widened(self, values: NDArray[Any]) -> NDArray[np.int64]:
        return _words_of(values.view(np.float32).astype(np.float64)) if self._is_short else values

    def scanned(self, values: NDArray[Any]) -> NDArray[Any]:
        return values.view(np.float32) if self._is_short else values

    def ordered(self, values: NDArray[Any]) -> NDArray[Any]:
        words = self.widened(values)
        equal: NDArray[np.int64] = words + (words == _MINUS_ZERO)
        return equal

    def _words(self, value: object) -> ValueWords | None:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            return None
        try:
            number = float(value)
        except OverflowError:
            return None
        is_finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
        fits = (number == value or not is_finite) and (self.sql == "double" or _is_single(number))
        return (float_word(number),) if fits else None

    def value_of(self, words: ValueWords) -> float:
        return float_of(words[0])

    def _bracket(self, value: object) -> Bracket | None:
        number = self._number(value)
        if number is None:
            return None
        least = least_float_word(number)
        return least, (float_word(number) if number else 0)

    def _number(self, value: object) -> float | None:  # noqa: PLR0911  (one for each kind of literal)
        """Return the double that DuckDB compares the column with."""
        single = self.sql == "float"
        match value:
            case bool():
                return None
            case float():
                return value
            case int() if abs(value) <= _EXACT:
                return float(np.float32(value)) if single else float(value)
            case Decimal() if is_common(value):
                sign, digits, exponent = value.as_tuple()
                if not isinstance(exponent, int) or exponent > 0:
                    return None
                units = int("".join(map(str, digits))) * (-1 if sign else 1)
                if single:
                    is_exact = abs(units) <= _EXACT_SINGLE and -exponent <= 10
                    return float(np.float32(units) / np.float32(10**-exponent)) if is_exact else None
                return units / 10**-exponent if abs(units) <= _EXACT else None
            case str() if DECIMAL.fullmatch(value):
                return None if single else float(value)
        return None

    def _span(self, domain: Domain, low: ValueWords, high: ValueWords) -> tuple[int, int]:
        return self._clipped_span(domain, low, high, -_INFINITY, _INFINITY - 1)

    @property
    def arrow_name(self) -> str:
        return "float32" if self.sql == "float" else "float64"

    @classmethod
    def of_arrow(cls, field: Any) -> Self:
        """Return the type; a field of 16 bits becomes a column of 32."""
        return cls("double" if field.type.bit_width == 64 else "float")

    def convert(self, column: Column, array: Any, source: str, first_row: int) -> Any:
        """Return floats, the nearest ones to decimals and texts."""
        return cast(column, array, [self.arrow_type], first_row, exact=source not in ("string", "decimal"))

    def encode(self, column: Column, array: Any, valid: NDArray[np.uint8] | None, first_row: int) -> NDArray[np.int64]:
        numbers = values_of(array, array.type.to_pandas_dtype()).astype(np.float64)
        words = _words_of(numbers)
        words[np.isnan(numbers)] = _NAN_WORD
        return words

    def _cells(self, words: NDArray[Any]) -> NDArray[Any]:
        if words.itemsize == 4:  # as pages have them
            return words.view(np.float32)
        return _doubles(words).astype(self.arrow_type.to_pandas_dtype(), copy=False)


def _words_of(numbers: "Doubles") -> NDArray[np.int64]:
    bits = numbers.view(np.int64)
    words: NDArray[np.int64] = bits ^ ((bits >> 63) & np.int64(_LOW_BITS))
    return words


def _doubles(words: NDArray[np.int64]) -> "Doubles":
    bits: NDArray[np.int64] = words ^ ((words >> 63) & np.int64(_LOW_BITS))
    return bits.view(np.float64)


def _is_single(number: float) -> bool:
    with np.errstate(over="ignore"):
        return not math.isfinite(number) or float(np.float32(number)) == number


_EXACT_PARTS = 2**50  # numerators and denominators below this leave a double room for an exact comparison
_SPLIT = 2.0**27 + 1
_BLOCK = 1 << 15

Doubles = NDArray[np.float64]


@dataclass(frozen=True, init=False, repr=False)
class FloatDomain(Domain):
    """The numbers from low to high, both included, in bins [low + i * step, low + (i + 1) * step).

    The double nearest to a bound counts as the bound: `float:0:0.1:0.01` holds 0.1, a bit more than a tenth.
    """

    name: ClassVar[str] = "float"
    parts: ClassVar[tuple[Part, ...]] = number_parts(NUMBER, "a decimal number")
    example: ClassVar[str] = "float:LOW:HIGH:STEP, for example float:0:1:0.001"
    cell_type: ClassVar[str] = "double"
    takes: ClassVar[str] = "floats, integers and Decimal"
    low: Decimal
    high: Decimal
    step: Decimal
    _width: int = field(compare=False)
    _bins: "_Bins" = field(compare=False)

    def __init__(self, low: Decimal | str | int, high: Decimal | str | int, step: Decimal | str | int) -> None:
        given = (("low", low), ("high", high), ("step", step))
        low, high, step = (decimal_part(part, value) for part, value in given)
        check_bounds(low, high, step, "use a step such as 0.001")
        width = coarsen(math.ceil((Fraction(high) - Fraction(low)) / Fraction(step)))
        bins = _Bins.build(Fraction(low), Fraction(high), Fraction(step) * width)
        if bins.stride < math.ulp(max(abs(bins.least), abs(bins.most))):
            raise DomainPartError("step", "the step is finer than floats between the bounds", hint="use decimal:")
        self._set(low=low, high=high, step=step, _width=width, _bins=bins)

    @property
    def size(self) -> int:
        return self._bins.size

    @property
    def width(self) -> int:
        return self._width

    @property
    def most(self) -> float:
        """The greatest double that it holds."""
        return self._bins.most

    @property
    def text(self) -> str:
        return f"float:{self.low}:{self.high}:{self.step}"

    def key(self, rank: int) -> float:
        bins = self._bins
        edge = bins.low + self._checked_rank(rank) * bins.stride
        nearest = float(edge)
        smallest = nearest if Fraction(nearest) >= edge else math.nextafter(nearest, math.inf)
        return bins.least if rank == 0 else min(smallest, bins.most)

    def _column_ranks(self, column: KeyColumn) -> Ranks | None:
        values = self._floats(column, KEYS)
        if values is None or not self._bins.is_exact:
            return None
        strays = ~((values >= self._bins.least) & (values <= self._bins.most))
        if strays.any():
            row = int(np.argmax(strays))
            raise (is_nan(KEY.at(row)) if np.isnan(values[row]) else outside(KEY.at(row), self.label))
        return self._bins.ranks(values)

    def _column_spans(self, low: KeyColumn | None, high: KeyColumn | None) -> tuple[Ranks, Ranks] | None:
        lows = np.array([-math.inf]) if low is None else self._floats(low, LOW)
        highs = np.array([math.inf]) if high is None else self._floats(high, HIGH)
        if lows is None or highs is None or not self._bins.is_exact:
            return None
        for values, place in ((lows, LOW), (highs, HIGH)):
            if np.isnan(values).any():
                raise is_nan(place.at(int(np.argmax(np.isnan(values)))))
        return self._bins.spans(*np.broadcast_arrays(lows, highs))

    def _exact(self, key: object, place: Place) -> Fraction | float:
        """Return a key's exact value; a float only when it is infinite."""
        plain = read_key(key, place)
        if isinstance(plain, Decimal):
            if plain.is_nan():
                raise is_nan(place)
            number = exact(plain)
            return number if isinstance(number, float) else Fraction(number)
        if isinstance(plain, bool) or not isinstance(plain, int | float | Fraction):
            raise self._wrong_type(place, type(plain).__name__)
        if isinstance(plain, float) and not math.isfinite(plain):
            if math.isnan(plain):
                raise is_nan(place)
            return plain
        return Fraction(plain)

    def _floats(self, column: KeyColumn, place: Place) -> Doubles | None:
        """Return a column as doubles if that is exact; None if it has to be read key by key."""
        if isinstance(column, Floats):
            return column.values
        if isinstance(column, Ticks) and column.kind == "integer":
            if len(column) and max(abs(int(column.values.min())), abs(int(column.values.max()))) > 2**53:
                return None
            return column.values.astype(np.float64)
        if isinstance(column, Ticks) and column.kind == "time":
            raise self._wrong_type(place, column.type_name)
        return None

    def _rank_of(self, exact: Fraction | float, place: Place) -> int:
        bins = self._bins
        if isinstance(exact, float) or not bins.ends[0] <= exact <= bins.ends[1]:
            raise outside(place, self.label)
        return bins.rank(exact)

    def _span_of(self, low: Fraction | float | None, high: Fraction | float | None) -> tuple[int, int]:
        bins = self._bins
        least, most = bins.ends
        if low is None or low < least:
            low = least if high is None or high >= least else math.inf
        if high is None or high > most:
            high = most
        if low > high or isinstance(low, float) or isinstance(high, float):
            return EMPTY
        return bins.rank(low), bins.rank(high)


@dataclass(frozen=True, slots=True)
class _Bins:
    """The bin edges low + i * stride, exactly, and the doubles at both ends."""

    low: Fraction
    stride: Fraction
    size: int
    least: float
    most: float
    ends: tuple[Fraction, Fraction]

    @classmethod
    def build(cls, low: Fraction, high: Fraction, stride: Fraction) -> "_Bins":
        least, most = float(low), float(high)
        ends = min(low, Fraction(least)), max(high, Fraction(most))
        return cls(low, stride, max(1, math.ceil((high - low) / stride)), least, most, ends)

    @property
    def _over(self) -> tuple[int, int, int]:
        """The numerators of low and stride over their common denominator, and that denominator."""
        common = math.lcm(self.low.denominator, self.stride.denominator)
        return int(self.low * common), int(self.stride * common), common

    @property
    def is_exact(self) -> bool:
        """Whether doubles can be compared with the edges exactly; it is slow Python fractions otherwise."""
        low, stride, common = self._over
        return max(abs(low), abs(low + (self.size + 1) * stride), common) < _EXACT_PARTS

    def rank(self, number: Fraction) -> int:
        return min(max(math.floor((number - self.low) / self.stride), 0), self.size - 1)

    def ranks(self, values: Doubles) -> NDArray[np.int64]:
        """Return the bin of every double between the bounds: a guess, put right by its two edges.

        With |low| / stride and the number of bins below 2^50 and 2^26 the guess is at most one off.
        """
        low, stride, common = self._over
        ranks = np.empty(len(values), np.int64)
        for start in range(0, len(values), _BLOCK):
            block = values[start : start + _BLOCK]
            guess = np.floor((block - float(self.low)) / float(self.stride)).clip(0, self.size - 1)
            edge = guess * stride + low  # whole numbers below 2^53: exact
            guess += _product_reaches(block, common, edge + stride)
            guess -= ~_product_reaches(block, common, edge)
            ranks[start : start + _BLOCK] = guess.clip(0, self.size - 1)
        return ranks

    def spans(self, lows: Doubles, highs: Doubles) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first and last bin of the queries between doubles without NaN."""
        answered = (lows <= self.most) & (highs >= self.least) & (lows <= highs)
        firsts = self.ranks(lows.clip(self.least, self.most))
        lasts = self.ranks(highs.clip(self.least, self.most))
        return firsts * answered, (lasts + 1) * answered - 1


def _product_reaches(values: Doubles, factor: int, numbers: Doubles) -> NDArray[np.bool_]:
    """Whether value * factor >= number, exactly.

    Dekker's product gives value * factor as an unevaluated sum of two doubles. Near the number the first
    difference is exact (Sterbenz), and away from it the small term can't change the sign. The factor is
    whole, so nothing underflows: all partial products are multiples of the smallest double.
    """
    scale = float(factor)
    product = values * scale
    value_high = _SPLIT * values - (_SPLIT * values - values)
    scale_high = _SPLIT * scale - (_SPLIT * scale - scale)
    value_low, scale_low = values - value_high, scale - scale_high
    error = value_low * scale_low - (
        ((product - value_high * scale_high) - value_low * scale_high) - value_high * scale_low
    )
    reaches: NDArray[np.bool_] = (product - numbers) + error >= 0
    return reaches
