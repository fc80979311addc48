"""Arrow columns brought to the Arrow type of a column, exactly or not at all, and from there to words.

SECRET rows; a refusal names the column and the row, counted from the start of the load, and shows no value. What
differs by type is in the types: here is what they share. pyarrow is imported on use, since an enclave needs none.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scumble.errors import BadRows, InvalidParameter

if TYPE_CHECKING:
    from scumble.types.column import Column, Schema

_FIT = "correct or drop that row, or declare another type for the column"


def arrow_schema(schema: "Schema") -> Any:
    """Return the Arrow schema that DuckDB sees and queries return."""
    import pyarrow as pa

    return pa.schema([pa.field(column.name, column.type.arrow_type, column.nullable) for column in schema])


def convert(column: "Column", values: Any, first_row: int = 1) -> Any:
    """Return one Arrow array of the column's type; BadRows if a value would change on the way."""
    import pyarrow as pa

    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    target = column.type.arrow_type
    if array.type == target:
        return array
    if pa.types.is_float16(array.type):  # which Arrow computes little with
        array = array.cast(pa.float32())
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    source = family(array.type)
    if source not in column.type.sources:
        raise BadRows(
            f"column {column.name!r} is declared {column.type.label}, and {array.type} cannot be made that",
            hint="declare another type for it, or cast it before loading",
            column=column.name,
        )
    return column.type.convert(column, array, source, first_row)


def encode(column: "Column", array: Any, first_row: int = 1) -> tuple[NDArray[np.int64], NDArray[np.uint8] | None]:
    """Return the words of an array that `convert` gave, and which are not null if the column is nullable.

    The words are [rows], or [rows, words] for text; a null's are 0. BadRows if a value does not fit the column's type,
    or is null where none may be.
    """
    valid = None
    if array.null_count:
        present = array.is_valid().to_numpy(zero_copy_only=False)
        if not column.nullable:
            row = first_row + int(np.argmin(present))
            raise refused(column, row, "there is no value", "fill or drop the nulls, or allow them in the column")
        valid = present.view(np.uint8)
    words = column.type.encode(column, array, valid, first_row)
    if valid is not None:
        words *= valid if words.ndim == 1 else valid[:, None]
    if column.nullable and valid is None:
        valid = np.ones(len(array), np.uint8)
    return words, valid


def cast(column: "Column", array: Any, steps: list[Any], first_row: int, *, exact: bool) -> Any:
    """Return an array cast step by step to the last Arrow type; with `exact`, casting back has to give the same."""
    import pyarrow as pa
    from pyarrow import compute

    def attempt(part: Any) -> Any:
        for step in steps:
            part = part.cast(step)
        return part

    try:
        result = attempt(array)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        row = first_failure(array, attempt)
    else:
        if not exact:
            return result
        try:
            same = compute.equal(result.cast(array.type, safe=False), array)
        except pa.ArrowInvalid:
            same = compute.equal(array, array)
        if pa.types.is_floating(array.type):
            same = compute.or_(same, compute.is_nan(array))
        if not compute.any(compute.invert(same)).as_py():
            return result
        row = int(np.argmin(same.fill_null(True).to_numpy(zero_copy_only=False)))
    raise refused(column, first_row + row, f"the value cannot be made {column.type.label} exactly")


def first_failure(array: Any, attempt: Callable[[Any], Any]) -> int:
    """Return the first row of an array that fails, by halving: the work is that of one more attempt or two."""
    import pyarrow as pa

    start, stop = 0, len(array)
    while stop - start > 1:
        middle = (start + stop) // 2
        try:
            attempt(array.slice(start, middle - start))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            stop = middle
        else:
            start = middle
    return start


def check_rows(
    column: "Column", strays: NDArray[Any], valid: NDArray[np.uint8] | None, first_row: int, trouble: str
) -> None:
    """Refuse the first of the rows that are marked, unless it is null."""
    if valid is not None:
        strays &= valid.view(np.bool_)
    if strays.any():
        raise refused(column, first_row + int(np.argmax(strays)), trouble)


def refused(column: "Column", row: int, trouble: str, hint: str = _FIT) -> BadRows:
    """Build the error for a row, counted from 1 within the load."""
    return BadRows(f"column {column.name!r}, row {row}: {trouble}", hint=hint, row=row, column=column.name)


def unstorable(field: Any, hint: str) -> InvalidParameter:
    """Build the error for an Arrow field that no column type holds."""
    return InvalidParameter(f"column {field.name!r} is of type {field.type}, which cannot be stored", hint=hint)


def values_of(array: Any, dtype: Any) -> NDArray[Any]:
    """Return the fixed-width values of an array, whatever stands at the nulls, without a copy."""
    if len(array) == 0:
        return np.zeros(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def bitmap(valid: NDArray[Any] | None) -> Any:
    """Return Arrow's buffer of which rows are not null."""
    import pyarrow as pa

    return None if valid is None else pa.py_buffer(np.packbits(np.asarray(valid, np.bool_), bitorder="little"))


def family(type_: Any) -> str:
    """Name the family of an Arrow type, as the `sources` of column types do."""
    from pyarrow import types as kinds

    def is_string(type_: Any) -> bool:
        return bool(kinds.is_string(type_) or kinds.is_large_string(type_) or kinds.is_string_view(type_))

    if kinds.is_timestamp(type_):
        return "zoned" if type_.tz else "timestamp"
    tests = {
        "boolean": kinds.is_boolean,
        "integer": kinds.is_integer,
        "float": kinds.is_floating,
        "decimal": kinds.is_decimal,
        "date": kinds.is_date,
        "time": kinds.is_time,
        "string": is_string,
    }
    return next((family for family, test in tests.items() if test(type_)), str(type_))
