"""The contract of a column type. All of it is public.

A value is stored as int64 words: one for every type but text. Words compare as their values do, so that one kernel
serves every type. Each type has a file of its own, which says what its words are, and one line in `types/__init__.py`.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter
from scumble.types.domain import EMPTY, Domain

if TYPE_CHECKING:
    from scumble.types.schema import Column

ValueWords = tuple[int, ...]
"""The words of one value."""

Interval = tuple[ValueWords, ValueWords]
"""The least and the greatest words, both included; empty if the first is greater."""

Operator = Literal["=", "<", "<=", ">", ">="]
Bracket = tuple[int, int]
"""The least word at or above a constant, and the greatest at or below it: equal where the type holds the constant."""

TYPES: dict[str, "type[ColumnType]"] = {}
"""Every type by its kind; `types/__init__.py` registers them."""

FAMILIES: dict[str, "type[ColumnType]"] = {}
"""The type of each family of Arrow fields."""

_USUAL = frozenset([int, str, float, Decimal, bool, date, datetime, time])


class SqlType(NamedTuple):
    """What JDBC and ODBC want to know of a type: its code in them, digits or letters, and how a literal is written."""

    name: str
    code: int
    size: int
    radix: int | None = None
    quote: str | None = None
    parameters: tuple[str, ...] | None = None
    unsigned: bool | None = None
    scale: int | None = None
    subcode: int | None = None


@dataclass(frozen=True)
class ColumnType(ABC):
    """PUBLIC: one type with its parameters, which are its fields; `sql` is its name in DuckDB."""

    kind: ClassVar[str]
    names: ClassVar[Mapping[str, str]]
    """What the owner may write for the type, DuckDB's aliases included, and the `sql` or name that each stands for."""
    examples: ClassVar[tuple[str, ...]]
    """How it is written, for hints."""
    families: ClassVar[tuple[str, ...]] = ()
    """The families of Arrow types, as `arrow.family` names them, whose fields are of this type unless declared."""
    sql_types: ClassVar[tuple[SqlType, ...]] = ()
    """The types of DuckDB that it stands for, unless another column type has listed them."""

    sql: str
    narrow: bool = field(default=True, kw_only=True)
    """Whether pages have its values as narrow as they can be; those of earlier tables are wider for some types."""

    scale = 0  # the digits after the point; 0 for everything but decimals
    digits = 0  # all digits of a decimal; 0 for everything else
    is_integer = False
    is_float = False
    is_number = False
    is_text = False  # whether DuckDB compares it as a string
    is_condition = False  # whether a column of it is a condition, as in WHERE paid
    max_bytes = 0  # the most bytes of a text; 0 for everything else
    is_single = False  # whether its doubles have to be floats of 32 bits
    is_ordered = True  # whether its words are in the order of its values
    is_unsigned = False  # whether pages have its words without a sign

    # --- what it is -------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        """The type for messages, as `parse_type` reads it, without the list of categories."""
        return self.sql

    @property
    def declaration(self) -> str:
        """The type as `parse_type` reads it, whole."""
        return self.label

    @classmethod
    def of_text(cls, name: str, rest: str) -> Self:
        """Read the type from its name and what follows it, `(12,2)`; InvalidParameter if that cannot be."""
        if rest:
            raise InvalidParameter(f"{name} takes nothing after its name")
        return cls(name)

    @cached_property
    def words(self) -> int:
        return 1

    @cached_property
    def width_bytes(self) -> int:
        """How many bytes a value takes in a page: the words, narrowed as far as the type allows."""
        return 8 * self.words

    def to_page(self, words: NDArray[np.int64]) -> NDArray[Any]:
        """Values as pages have them, `width_bytes` each, from their words. No work depends on a value."""
        return words if self.width_bytes >= 8 else words.astype(self._page_dtype)

    def from_page(self, raw: NDArray[np.uint8]) -> NDArray[Any]:
        """Values as pages have them, in a view of the bytes of so many rows."""
        values = raw.view(np.int64 if self.width_bytes >= 8 else self._page_dtype)
        return values if self.words == 1 else values.reshape(-1, self.words)

    def widened(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The words of values as pages have them. No work depends on a value."""
        return values.astype(np.int64, copy=False)

    def scanned(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values as pages have them, in a form whose words the kernels know. No work depends on a value."""
        return values

    def ordered(self, values: NDArray[Any]) -> NDArray[Any]:
        """The same in a form whose words are equal where values are, to compare one column with another."""
        return self.scanned(values)

    @cached_property
    def _page_dtype(self) -> "np.dtype[Any]":
        return np.dtype(f"<{'u' if self.is_unsigned else 'i'}{self.width_bytes}")

    @property
    def group_values(self) -> tuple[object, ...]:
        """The values in the order of their words, of a type that rows can be grouped by; nothing for the others."""
        return ()

    def to_json(self) -> dict[str, Any]:
        """The type as JSON, without what is at its default."""
        parameters = ((field.name, getattr(self, field.name)) for field in fields(self))
        stated = {name: list(value) if isinstance(value, tuple) else value for name, value in parameters if value}
        return {"kind": self.kind, **stated}

    @staticmethod
    def from_json(fields: dict[str, Any]) -> "ColumnType":
        """The inverse; KeyError or TypeError if there is no such type."""
        parameters: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
        kind: str = parameters.pop("kind")
        return TYPES[kind].stored(**parameters)

    @classmethod
    def stored(cls, **parameters: Any) -> Self:
        """The type that a catalog states, of this release or of an earlier one, which stated no `narrow`."""
        return cls(**{"narrow": False, **parameters})

    # --- one value --------------------------------------------------------------------------------

    @cached_property
    @abstractmethod
    def full_interval(self) -> Interval:
        """The least and the greatest words that a value of the type can have."""

    @cached_property
    def word_intervals(self) -> tuple[Interval, ...]:
        """Where the words of a value lie. For text, and floats of 32 bits, not all that lies there is a value."""
        return (self.full_interval,)

    @property
    def tick(self) -> tuple[str, Fraction] | None:
        """What a word counts, as `keys.Ticks` has it: its kind and unit; None if the words are no such numbers."""
        return None

    @cached_property
    def empty_interval(self) -> Interval:
        """An interval that holds nothing."""
        rest = (0,) * (self.words - 1)
        return (*rest, 1), (*rest, 0)

    def words_of(self, value: object) -> ValueWords:
        """Return the words of one value; InvalidParameter if the type does not hold it exactly."""
        words = self._words(_plain(value))
        if words is None or not self.full_interval[0] <= words <= self.full_interval[1]:
            raise InvalidParameter(
                f"the value is none that a column of type {self.label} holds exactly",
                hint="convert it, or use another type",
            )
        return words

    @abstractmethod
    def _words(self, value: object) -> ValueWords | None:
        """Return the words of a plain value, in the full interval if the type holds it; None if there are none."""

    @abstractmethod
    def value_of(self, words: ValueWords) -> Any:
        """Return the value that words stand for: int, float, Decimal, str, bool, date, time or datetime.

        A time in nanoseconds is an np.datetime64, and so is a date or time before the year 1 or after 9999.
        """

    # --- comparisons ------------------------------------------------------------------------------

    def interval(self, op: Operator, value: object) -> Interval | None:
        """Return the words w with `w op value`, least and greatest; None if only DuckDB knows.

        The interval is exactly what DuckDB (2.0, in the time zone UTC) matches: it compares a string with a date or a
        number by casting the string, a decimal with a double by casting the decimal, and so on. NULL matches nothing.
        Python's values stand for DuckDB's literals: int, Decimal (`0.5`), float (`5e-1`), str, bool, date, datetime
        (with a zone: TIMESTAMPTZ), time; numpy's scalars for those of Python.
        """
        if type(value) not in _USUAL:
            if isinstance(value, np.floating) and value.dtype.itemsize != 8:
                return None
            value = _plain(value)
            if value is None:
                return self.empty_interval
        return self._compared(op, value)

    def _compared(self, op: Operator, value: object) -> Interval | None:
        bracket = self._bracket(value)
        if bracket is None:
            return None
        (least,), (most,) = self.full_interval
        above, below = bracket
        low = above if op in ("=", ">=") else below + 1 if op == ">" else least
        high = below if op in ("=", "<=") else above - 1 if op == "<" else most
        if low < least:  # noqa: PLR1730  (half the time of `max`)
            low = least
        if high > most:  # noqa: PLR1730
            high = most
        return ((low,), (high,)) if low <= high else self.empty_interval

    @abstractmethod
    def _bracket(self, value: object) -> Bracket | None:
        """Return where a plain constant lies among the words; None if only DuckDB knows."""

    def prefix_interval(self, prefix: str) -> Interval | None:
        """Return the words of the texts that start with `prefix`; None for types that are no text."""
        return None

    def like_intervals(
        self, pattern: str, escape: str | None, *, case_insensitive: bool
    ) -> tuple[Interval, ...] | None:
        """Return the intervals of the texts that are LIKE a pattern; None if only DuckDB knows.

        `%` stands for any characters and `_` for one code point; there is no escape character unless one is given.
        """
        return None

    def comparable_with(self, other: "ColumnType") -> bool:
        """Whether words of both types compare as DuckDB compares the values, column with column."""
        return self.kind == other.kind

    # --- ranks ------------------------------------------------------------------------------------

    def rank_span(self, domain: Domain, low: ValueWords, high: ValueWords) -> tuple[int, int]:
        """Return the first and last rank of the keys whose words lie in an interval, both included; (0, -1) for none.

        Never too few ranks: where the interval's ends are no values of the type, the ranks are those of the next ones.
        """
        return EMPTY if low > high else self._span(domain, low, high)

    def _span(self, domain: Domain, low: ValueWords, high: ValueWords) -> tuple[int, int]:
        return domain.span(self.value_of(low), self.value_of(high))

    def _clipped_span(
        self, domain: Domain, low: ValueWords, high: ValueWords, least: int, most: int
    ) -> tuple[int, int]:
        """Return the span of a type whose keys have the words least to most: beyond them it is open-ended or empty."""
        if low[0] > most or high[0] < least:
            return EMPTY
        return domain.span(
            None if low[0] <= least else self.value_of(low), None if high[0] >= most else self.value_of(high)
        )

    def words_are_ranks(self, domain: Domain) -> bool:
        """Whether the words of the column are the ranks of its index, so that no key has to be looked up."""
        return False

    # --- Arrow ------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def sources(self) -> frozenset[str]:
        """The families of Arrow types, as `arrow.family` names them, that columns of this type are made of."""

    @property
    @abstractmethod
    def arrow_name(self) -> str:
        """What pyarrow calls the Arrow type that DuckDB sees and queries return."""

    @property
    def arrow_type(self) -> Any:
        import pyarrow as pa

        return getattr(pa, self.arrow_name)()

    @property
    def cell_type(self) -> Any:
        """The Arrow type that the cells of a csv file are read as, to be converted."""
        return self.arrow_type

    @classmethod
    def of_arrow(cls, field: Any) -> Self:
        """Return the type of an Arrow field of one of `families`."""
        return cls(cls.kind)

    def as_in(self, field: Any) -> "ColumnType":
        """Return the declared type, completed by what an Arrow field knows better: its time zone."""
        return self

    def convert(self, column: "Column", array: Any, source: str, first_row: int) -> Any:
        """Return an array of one of `sources` as one of `arrow_type`; BadRows if a value would change."""
        from scumble.types.arrow import cast

        return cast(column, array, [self.arrow_type], first_row, exact=source != "string")

    @abstractmethod
    def encode(
        self, column: "Column", array: Any, valid: NDArray[np.uint8] | None, first_row: int
    ) -> NDArray[np.int64]:
        """Return the words of an array of `arrow_type`, with anything at the nulls; a new array, never the data's."""

    def decode(self, words: NDArray[Any], valid: NDArray[Any] | None) -> Any:
        """Return the Arrow array of words of any integer type, as wide or narrow as pages have them."""
        import pyarrow as pa

        from scumble.types.arrow import bitmap

        cells = pa.py_buffer(np.ascontiguousarray(self._cells(words)))
        return pa.Array.from_buffers(self.arrow_type, len(words), [bitmap(valid), cells])

    def _cells(self, words: NDArray[Any]) -> NDArray[Any]:
        """Return what Arrow keeps for words of a fixed width."""
        return words.astype(np.int64, copy=False)


def register_types(*types: type[ColumnType]) -> None:
    """Make types known to `parse_type`, `schema_of` and `from_json`; hints list them in this order."""
    TYPES.update({type_.kind: type_ for type_ in types})
    FAMILIES.update({family: type_ for type_ in types for family in type_.families})


def numbers_in(rest: str) -> list[int]:
    """Read the numbers in parentheses that may follow a type's name."""
    if not rest:
        return []
    found = re.fullmatch(r"\(\s*([0-9]{1,9}(?:\s*,\s*[0-9]{1,9})*)\s*\)", rest, re.ASCII)
    if found is None:
        raise InvalidParameter("these are no numbers in parentheses")
    return [int(number) for number in found[1].split(",")]


def bytes_for(largest: int, *, signed: bool = True) -> int:
    """Return the least width in bytes of an integer that holds a number and, if it has a sign, its negative."""
    return next(size for size in (1, 2, 4, 8) if largest < 1 << (8 * size - signed))


def _plain(value: object) -> object:
    """Return numpy's scalars as Python's; NaT as None."""
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else value
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, str) and type(value) is not str else value
