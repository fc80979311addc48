"""Intervals: months, days and nanoseconds, in two words. There is no key domain for them, and no order of words.

DuckDB takes a month for 30 days and a day for 24 hours when it compares intervals, so that different ones are equal to
it: it gets the rows to compare them. They have whole microseconds there, and so they have here.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble.types.arrow import bitmap, check_rows, values_of
from scumble.types.column import Bracket, ColumnType, Interval, Operator, SqlType, ValueWords
from scumble.types.schema import Column

_ARROW = "month_day_nano_interval"
_CELL = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
_UNITS = {"duration[s]": 10**9, "duration[ms]": 10**6, "duration[us]": 10**3, "duration[ns]": 1}
_DAYS = (1 << 32) - 1


class IntervalType(ColumnType):
    """`interval`: the first word has the months above the days, the second the nanoseconds."""

    kind = "interval"
    names = dict.fromkeys(["interval"], "interval")
    families = (_ARROW, *_UNITS)
    examples = ("interval",)
    sql_types = (SqlType("INTERVAL", 10, 30, quote="'"),)
    words = 2
    width_bytes = 16
    full_interval = (-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1)
    arrow_name = _ARROW
    sources = frozenset(families)
    is_ordered = False

    def _words(self, value: object) -> ValueWords | None:
        import pyarrow as pa

        if not isinstance(value, pa.MonthDayNano):
            return None
        return (value.months << 32) + (value.days & _DAYS), value.nanoseconds

    def value_of(self, words: ValueWords) -> Any:
        """Return Arrow's MonthDayNano: Python's timedelta knows no months."""
        import pyarrow as pa

        days = (words[0] & _DAYS ^ 1 << 31) - (1 << 31)
        return pa.MonthDayNano([words[0] >> 32, days, words[1]])

    def _bracket(self, value: object) -> Bracket | None:
        return None

    def _compared(self, op: Operator, value: object) -> Interval | None:
        return None

    def comparable_with(self, other: ColumnType) -> bool:
        return False

    @property
    def cell_type(self) -> Any:
        import pyarrow as pa

        return pa.string()

    def convert(self, column: Column, array: Any, source: str, first_row: int) -> Any:
        """Return intervals of durations: their days of 24 hours stay hours, as in DuckDB."""
        import pyarrow as pa

        unit = _UNITS[source]
        counts = np.array(array.cast(pa.int64()).fill_null(0), np.int64)
        most = (2**63 - 1) // unit
        check_rows(column, (counts > most) | (counts < -most), None, first_row, "the duration is too long")
        cells = np.zeros(len(counts), _CELL)
        cells["nanoseconds"] = counts * unit
        validity = array.is_valid().buffers()[1] if array.null_count else None
        return pa.Array.from_buffers(self.arrow_type, len(cells), [validity, pa.py_buffer(cells)])

    def encode(self, column: Column, array: Any, valid: NDArray[np.uint8] | None, first_row: int) -> NDArray[np.int64]:
        cells = values_of(array, _CELL)
        words = np.empty((len(cells), 2), np.int64)
        words[:, 0] = (cells["months"].astype(np.int64) << 32) + (cells["days"].astype(np.int64) & _DAYS)
        words[:, 1] = cells["nanoseconds"]
        check_rows(column, words[:, 1] % 1000 != 0, valid, first_row, "the interval has a part of a microsecond")
        return words

    def decode(self, words: NDArray[Any], valid: NDArray[Any] | None) -> Any:
        import pyarrow as pa

        cells = np.empty(len(words), _CELL)
        cells["months"], cells["nanoseconds"] = words[:, 0] >> 32, words[:, 1]
        cells["days"] = (words[:, 0] & _DAYS).astype(np.uint32).view(np.int32)
        return pa.Array.from_buffers(self.arrow_type, len(cells), [bitmap(valid), pa.py_buffer(cells)])
