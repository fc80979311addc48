"""Integers: a value's word is the number itself. Their key domain is `int:LOW:HIGH[:STEP]`.

The types are DuckDB's with and without sign; a UBIGINT has to stay below 2^63. Bounds and step of a domain are public,
keys and ranks are secret.
"""

import math
import re
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from scumble.types.arrow import check_rows, values_of
from scumble.types.column import Bracket, ColumnType, Interval, SqlType, ValueWords, bytes_for
from scumble.types.domain import EMPTY, TITLES, Domain, DomainPartError, Part, check_bounds, number_parts
from scumble.types.grid import Grid, GridDomain
from scumble.types.keys import HIGH, LOW, KeyColumn, Objects, Place, Ticks, read_key
from scumble.types.schema import Column


class _Size(NamedTuple):
    least: int
    most: int
    bytes: int
    arrow: str
    code: int  # of JDBC
    digits: int
    aliases: tuple[str, ...]


_SIZES = {
    "tinyint": _Size(-(2**7), 2**7 - 1, 1, "int8", -6, 3, ("int1",)),
    "smallint": _Size(-(2**15), 2**15 - 1, 2, "int16", 5, 5, ("int2", "short")),
    "integer": _Size(-(2**31), 2**31 - 1, 4, "int32", 4, 10, ("int", "int4", "signed")),
    "bigint": _Size(-(2**63), 2**63 - 1, 8, "int64", -5, 19, ("int8", "long")),
    "utinyint": _Size(0, 2**8 - 1, 1, "uint8", -6, 3, ("uint8",)),
    "usmallint": _Size(0, 2**16 - 1, 2, "uint16", 5, 5, ("uint16",)),
    "uinteger": _Size(0, 2**32 - 1, 4, "uint32", 4, 10, ("uint32",)),
    "ubigint": _Size(0, 2**63 - 1, 8, "uint64", -5, 20, ("uint64",)),
}
_NAMES = {name: sql for sql, size in _SIZES.items() for name in (sql, *size.aliases)}
NUMERIC_SOURCES = frozenset(["integer", "float", "decimal", "string"])
_EXACT = 2**53  # up to here a double holds every integer
_MOST_DIGITS = 18  # after the point and before it: two such decimals have a common type in DuckDB
_INTEGER = re.compile(r"-?[0-9]{1,18}", re.ASCII)


class IntegerType(ColumnType):
    """One of DuckDB's integer types, which `sql` names."""

    kind = "integer"
    names = _NAMES
    families = ("integer",)
    examples = tuple(_SIZES)
    sql_types = tuple(
        SqlType(sql.upper(), size.code, size.digits, 10, unsigned=sql.startswith("u")) for sql, size in _SIZES.items()
    )
    sources = NUMERIC_SOURCES
    is_integer = is_number = True

    @cached_property
    def width_bytes(self) -> int:
        """As many bytes as DuckDB has for it; in earlier pages twice that without a sign, since words have one."""
        size = _SIZES[self.sql]
        return size.bytes if self.narrow else bytes_for(size.most)

    @property
    def is_unsigned(self) -> bool:  # type: ignore[override]
        return self.narrow and _SIZES[self.sql].least == 0

    @cached_property
    def full_interval(self) -> Interval:
        size = _SIZES[self.sql]
        return (size.least,), (size.most,)

    @property
    def tick(self) -> tuple[str, Fraction]:
        return "integer", Fraction(1)

    def _words(self, value: object) -> ValueWords | None:
        number = unscaled(value, 0)
        return None if number is None else (number,)

    def value_of(self, words: ValueWords) -> int:
        return words[0]

    def _bracket(self, value: object) -> Bracket | None:
        match value:
            case int():
                return (int(value), int(value)) if abs(value) < 2**126 else None
            case Decimal() if is_common(value):
                return math.ceil(value), math.floor(value)
            case float():
                if abs(value) < _EXACT:  # the cast of the column to double is monotone, and exact up to here
                    return math.ceil(value), math.floor(value)
                if not abs(value) < 2**64:  # NaN is greater than everything
                    return beyond(value)
            case str() if _INTEGER.fullmatch(value):
                size = _SIZES[self.sql]
                return (int(value), int(value)) if size.least <= int(value) <= size.most else None
        return None

    def _span(self, domain: Domain, low: ValueWords, high: ValueWords) -> tuple[int, int]:
        return domain.span(low[0], high[0])

    @property
    def arrow_name(self) -> str:
        return _SIZES[self.sql].arrow

    @classmethod
    def of_arrow(cls, field: Any) -> Self:
        return cls(next(sql for sql, size in _SIZES.items() if size.arrow == str(field.type)))

    def encode(self, column: Column, array: Any, valid: NDArray[np.uint8] | None, first_row: int) -> NDArray[np.int64]:
        words = values_of(array, array.type.to_pandas_dtype()).astype(np.int64)
        if self.sql == "ubigint":
            check_rows(column, words < 0, valid, first_row, "the value is 2^63 or more")
        return words

    def _cells(self, words: NDArray[Any]) -> NDArray[Any]:
        return words.astype(self.arrow_type.to_pandas_dtype(), copy=False)


def unscaled(value: object, scale: int) -> int | None:
    """Return a number as a whole count of 10^-scale; None if it is no such number."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not math.isfinite(value):
        return None
    numerator, denominator = value.as_integer_ratio()
    units, rest = divmod(numerator * 10**scale, denominator)
    return None if rest else units


def is_common(value: Decimal) -> bool:
    """Whether DuckDB has a decimal type for both the constant and any column."""
    exponent = value.as_tuple().exponent
    return isinstance(exponent, int) and -exponent <= _MOST_DIGITS and value.adjusted() < _MOST_DIGITS


def beyond(value: float) -> Bracket:
    """Return where a float lies that is beyond every word."""
    return (-(2**200), -(2**200)) if value < 0 else (2**200, 2**200)


_BOUND = re.compile(r"[+-]?\d{1,100}", re.ASCII)
_LEAST, _MOST = -(2**63), 2**64 - 1


@dataclass(frozen=True, init=False, repr=False)
class IntegerDomain(GridDomain):
    """The integers low, low + step, ... up to high, of 64 bits with or without sign."""

    name: ClassVar[str] = "int"
    parts: ClassVar[tuple[Part, ...]] = number_parts(_BOUND, "an integer", optional_step=True)
    example: ClassVar[str] = "int:LOW:HIGH or int:LOW:HIGH:STEP, for example int:0:1000"
    takes: ClassVar[str] = "integers; cast whole floats to int64 first"
    low: int
    high: int
    step: int
    _grid: Grid = field(compare=False)
    _plain: bool = field(compare=False)

    def __init__(self, low: int, high: int, step: int = 1) -> None:
        low, high, step = (_integer(part, value) for part, value in (("low", low), ("high", high), ("step", step)))
        check_bounds(low, high, step, "use a step of 1 or more")
        grid = Grid.build(low, high, step)
        self._set(low=low, high=high, step=step, _grid=grid, _plain=step == 1 and grid.width == 1)

    @classmethod
    def of_parts(cls, low: str, high: str, step: str = "1") -> "IntegerDomain":
        return cls(int(low), int(high), int(step))

    @property
    def cell_type(self) -> str:
        return "bigint" if self.high < 2**63 else "ubigint"

    @property
    def text(self) -> str:
        return f"int:{self.low}:{self.high}" + ("" if self.step == 1 else f":{self.step}")

    def key(self, rank: int) -> int:
        return self.low + self._checked_rank(rank) * self.step * self.width

    def span(self, low: object, high: object) -> tuple[int, int]:
        """Return the first and last rank of the query low <= key <= high; the fast way for one query."""
        first = self.low if low is None else low if type(low) is int else self._exact(low, LOW)
        last = self.high if high is None else high if type(high) is int else self._exact(high, HIGH)
        least = self.low
        if first < least:  # noqa: PLR1730  (half the time of `max`)
            first = least
        if last > self.high:  # noqa: PLR1730
            last = self.high
        if first > last:
            return EMPTY
        if self._plain:
            return first - least, last - least
        return self._span_of(first, last)

    def rank(self, key: object) -> int:
        if self._plain and type(key) is int and self.low <= key <= self.high:
            return key - self.low
        return super().rank(key)

    def _exact(self, key: object, place: Place) -> int:
        plain = int(key) if type(key) is np.int64 else read_key(key, place)
        if isinstance(plain, int) and not isinstance(plain, bool):
            return plain
        raise self._wrong_type(place, type(plain).__name__)

    def _ticks(self, column: KeyColumn, place: Place) -> Ticks | None:
        if isinstance(column, Ticks) and column.kind == "integer":
            return column
        if isinstance(column, Objects) or len(column) == 0:
            return None
        raise self._wrong_type(place, column.type_name)


def _integer(part: str, value: object) -> int:
    if not isinstance(value, int | np.integer) or isinstance(value, bool | np.timedelta64):
        raise DomainPartError(part, f"{TITLES[part]} is not an integer", hint="write int:LOW:HIGH or int:LOW:HIGH:STEP")
    if not _LEAST <= value <= _MOST:
        raise DomainPartError(part, f"{TITLES[part]} does not fit in 64 bits", hint="use decimal:LOW:HIGH:STEP")
    return int(value)
