"""Arrow columns brought to the Arrow type of a column's public type, exactly or not at all.

SECRET rows come in and go out; a refusal names the column and the row, counted from the start of the load, and shows no
value.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble.errors import BadRows
from scumble.types.column import TIMESTAMP_UNITS, Column, ColumnType, Kind

__all__ = ["arrow_type", "convert", "decimals_of", "first_failure", "refused", "values_of"]

_FLOAT_UNITS = 2.0**48  # below this many units, five units in the last place are less than half a unit
_SLACK_ULPS = 4
_FIT = "correct or drop that row, or declare another type for the column"
_INTEGERS = {
    "tinyint": "int8",
    "smallint": "int16",
    "integer": "int32",
    "bigint": "int64",
    "utinyint": "uint8",
    "usmallint": "uint16",
    "uinteger": "uint32",
    "ubigint": "uint64",
}
_SOURCES = {
    Kind.BOOLEAN: {"boolean", "string"},
    Kind.INTEGER: {"integer", "float", "decimal", "string"},
    Kind.FLOAT: {"integer", "float", "decimal", "string"},
    Kind.DECIMAL: {"integer", "float", "decimal", "string"},
    Kind.DATE: {"date", "timestamp", "string"},
    Kind.TIME: {"time", "string"},
    Kind.CATEGORY: {"string", "integer", "boolean"},
    Kind.TEXT: {"string", "integer", "boolean"},
}


def arrow_type(type_: ColumnType) -> Any:  # noqa: PLR0911  (one for each kind)
    """Return the Arrow type that DuckDB sees and queries return."""
    import pyarrow as pa

    match type_.kind:
        case Kind.BOOLEAN:
            return pa.bool_()
        case Kind.INTEGER:
            return getattr(pa, _INTEGERS[type_.sql])()
        case Kind.FLOAT:
            return pa.float32() if type_.sql == "float" else pa.float64()
        case Kind.DECIMAL:
            return pa.decimal128(type_.digits, type_.scale)
        case Kind.DATE:
            return pa.date32()
        case Kind.TIME:
            return pa.time64("us")
        case Kind.TIMESTAMP:
            unit = TIMESTAMP_UNITS.get(type_.sql)
            return pa.timestamp("us", tz=type_.zone or "UTC") if unit is None else pa.timestamp(unit)
    return pa.string()


def convert(column: Column, values: Any, first_row: int = 1) -> Any:
    """Return one Arrow array of the column's type; BadRows if a value would change on the way."""
    import pyarrow as pa

    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    target = arrow_type(column.type)
    if array.type == target:
        return array
    if pa.types.is_float16(array.type):  # which Arrow computes little with
        array = array.cast(pa.float32())
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    source = _family(array.type)
    if source not in _sources(column.type):
        raise BadRows(
            f"column {column.name!r} is declared {column.type.label}, and {array.type} cannot be made that",
            hint="declare another type for it, or cast it before loading",
            column=column.name,
        )
    if source == "float" and column.type.kind is Kind.DECIMAL:
        return _decimals_of_floats(column, array, first_row)
    exact = source != "string" and not (source == "decimal" and column.type.kind is Kind.FLOAT)
    return _cast(column, array, target, exact, first_row)


def refused(column: Column, row: int, trouble: str, hint: str = _FIT) -> BadRows:
    """Build the error for a row, counted from 1 within the load."""
    return BadRows(f"column {column.name!r}, row {row}: {trouble}", hint=hint, row=row, column=column.name)


def values_of(array: Any, dtype: Any) -> NDArray[Any]:
    """Return the fixed-width values of an array, whatever stands at the nulls, without a copy."""
    if len(array) == 0:
        return np.zeros(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def decimals_of(type_: Any, unscaled: NDArray[Any], validity: Any) -> Any:
    """Return an Arrow decimal128 array of int64 unscaled values."""
    import pyarrow as pa

    words = np.empty((len(unscaled), 2), np.int64)
    words[:, 0] = unscaled
    words[:, 1] = words[:, 0] >> 63
    return pa.Array.from_buffers(type_, len(words), [validity, pa.py_buffer(words)])


def _cast(column: Column, array: Any, target: Any, exact: bool, first_row: int) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    steps = [target]
    if pa.types.is_decimal(target) and pa.types.is_integer(array.type):  # Arrow wants room for any integer at first
        steps = [pa.decimal128(38, target.scale), target]

    def cast(part: Any) -> Any:
        for step in steps:
            part = part.cast(step)
        return part

    try:
        result = cast(array)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        row = first_failure(array, cast)
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


def _decimals_of_floats(column: Column, array: Any, first_row: int) -> Any:
    """Readers of CSV files make prices floats: take a float that is a decimal's nearest double, give or take four."""
    import pyarrow as pa

    filled = array.fill_null(0) if array.null_count else array
    values = filled.cast(pa.float64()).to_numpy(zero_copy_only=False)
    tens = 10.0**column.type.scale
    small = np.abs(values) * tens < min(_FLOAT_UNITS, 10.0**column.type.digits - 0.5)  # false for NaN
    units = np.rint(np.where(small, values, 0.0) * tens)
    apart = np.abs(np.where(small, values, 0.0) - units / tens)
    read = small & (apart <= _SLACK_ULPS * np.spacing(np.abs(values)))
    if not read.all():
        row = first_row + int(np.argmin(read))
        raise refused(column, row, f"the float is not a {column.type.label}, or too large to tell which")
    validity = array.is_valid().buffers()[1] if array.null_count else None
    return decimals_of(arrow_type(column.type), units.astype(np.int64), validity)


def _sources(type_: ColumnType) -> set[str]:
    if type_.kind is not Kind.TIMESTAMP:
        return _SOURCES[type_.kind]
    zoned = type_.sql == "timestamp with time zone"
    return {"zoned", "string"} if zoned else {"timestamp", "date", "string"}


def _family(type_: Any) -> str:
    from pyarrow import types as kinds

    if kinds.is_timestamp(type_):
        return "zoned" if type_.tz else "timestamp"
    tests = {
        "boolean": kinds.is_boolean,
        "integer": kinds.is_integer,
        "float": kinds.is_floating,
        "decimal": kinds.is_decimal,
        "date": kinds.is_date,
        "time": kinds.is_time,
    }
    for family, test in tests.items():
        if test(type_):
            return family
    is_text = kinds.is_string(type_) or kinds.is_large_string(type_) or kinds.is_string_view(type_)
    return "string" if is_text else str(type_)
