"""Times of day: a value's word is its microseconds since midnight. There is no key domain for them."""

import re
from datetime import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble.types.arrow import check_rows, values_of
from scumble.types.column import Bracket, ColumnType, SqlType, ValueWords
from scumble.types.schema import Column

_DAY_US = 86_400 * 10**6
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?", re.ASCII)


class TimeType(ColumnType):
    """`time`, without a zone."""

    kind = "time"
    names = dict.fromkeys(["time"], "time")
    families = ("time",)
    examples = ("time",)
    sql_types = (SqlType("TIME", 92, 15, quote="'", subcode=2),)
    full_interval = (0,), (_DAY_US - 1,)
    arrow_name = "time64"
    sources = frozenset(["time", "string"])

    def _words(self, value: object) -> ValueWords | None:
        if not isinstance(value, time) or value.tzinfo is not None:
            return None
        return (((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond,)

    def value_of(self, words: ValueWords) -> time:
        seconds, microsecond = divmod(words[0], 10**6)
        return time(seconds // 3600, seconds // 60 % 60, seconds % 60, microsecond)

    def _bracket(self, value: object) -> Bracket | None:
        if isinstance(value, str):
            found = _TIME.fullmatch(value)
            if found is None or int(found[1]) > 23 or int(found[2]) > 59 or int(found[3]) > 59:
                return None
            value = time(int(found[1]), int(found[2]), int(found[3]), int((found[4] or "0").ljust(6, "0")))
        words = self._words(value)
        return None if words is None else (words[0], words[0])

    @property
    def arrow_type(self) -> Any:
        import pyarrow as pa

        return pa.time64("us")

    def encode(self, column: Column, array: Any, valid: NDArray[np.uint8] | None, first_row: int) -> NDArray[np.int64]:
        words = values_of(array, np.int64).copy()
        check_rows(column, (words < 0) | (words >= _DAY_US), valid, first_row, "the time is not of one day")
        return words
