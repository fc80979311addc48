"""BOOLEAN: false is the word 0 and true the word 1."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble.types.column import Bracket, ColumnType, SqlType, ValueWords
from scumble.types.schema import Column


class BooleanType(ColumnType):
    """True or false; rows can be grouped by it, and a column of it is a condition."""

    kind = "boolean"
    names = dict.fromkeys(("boolean", "bool", "logical"), "boolean")
    families = ("boolean",)
    examples = ("boolean",)
    sql_types = (SqlType("BOOLEAN", -7, 1),)
    width_bytes = 1
    full_interval = (0,), (1,)
    group_values = (False, True)
    arrow_name = "bool_"
    sources = frozenset(["boolean", "string"])
    is_condition = True

    def _words(self, value: object) -> ValueWords | None:
        return (int(value),) if isinstance(value, bool) else None

    def value_of(self, words: ValueWords) -> bool:
        return bool(words[0])

    def _bracket(self, value: object) -> Bracket | None:
        match value:
            case bool():
                return int(value), int(value)
            case int() if -(2**63) <= value < 2**63:
                return value, value
            case "true" | "false":
                return int(value == "true"), int(value == "true")
        return None

    def encode(self, column: Column, array: Any, valid: NDArray[np.uint8] | None, first_row: int) -> NDArray[np.int64]:
        return np.array(array.fill_null(False).to_numpy(zero_copy_only=False), np.int64)

    def _cells(self, words: NDArray[Any]) -> NDArray[Any]:
        return np.packbits(words.astype(np.bool_), bitorder="little")
