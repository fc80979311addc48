"""Arrow schemas and columns to ours and back: what is loaded becomes words, and words become what queries return.

A schema is public and nothing else here is: a text column's greatest length and a category's list come from the owner
and never from the data. Columns are secret; an error names the column and the row, counted from the start of the load,
and no value.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble.errors import InvalidParameter, NotFound
from scumble.types import CategoryDomain, Domain
from scumble.types.arrow_text import decode_text, encode_text
from scumble.types.column import INTEGER_WIDTHS, MAX_DECIMAL_DIGITS, Column, ColumnType, Kind, Schema
from scumble.types.conversion import arrow_type, convert, decimals_of, refused, values_of
from scumble.types.declared import (
    DEFAULT_TEXT_BYTES,
    category_type,
    decimal_type,
    parse_type,
    split_nullability,
    text_type,
)
from scumble.types.words import DAY_US, NAN_WORD

__all__ = ["arrow_schema", "arrow_type", "decode", "encode", "encode_converted", "schema_of"]

_LOW_BITS = np.int64(2**63 - 1)
_TIMESTAMPS = {"s": "timestamp_s", "ms": "timestamp_ms", "us": "timestamp", "ns": "timestamp_ns"}
Words = NDArray[np.int64]
Validity = NDArray[np.uint8]


def schema_of(
    arrow: Any, *, types: Mapping[str, str] | None = None, domains: Mapping[str, Domain] | None = None
) -> Schema:
    """Return the public schema of an Arrow schema.

    `types` declares types by column, `text(25)` or `decimal(12,2)`; with `not null` after the type, or in its place, no
    null may occur. A column indexed by a list of categories becomes a category.
    """
    declared = {name.lower(): text for name, text in (types or {}).items()}
    indexed = {name.lower(): domain for name, domain in (domains or {}).items()}
    names = {name.lower() for name in arrow.names}
    for name in [*(types or {}), *(domains or {})]:
        if name.lower() not in names:
            raise NotFound(f"there is no column {name!r}", hint=f"there are {', '.join(arrow.names)}")
    if "" in names:
        raise InvalidParameter("a column has no name", hint="name it")
    return Schema(
        tuple(_column(field, declared.get(field.name.lower()), indexed.get(field.name.lower())) for field in arrow)
    )


def arrow_schema(schema: Schema) -> Any:
    """Return the Arrow schema that DuckDB sees and queries return."""
    import pyarrow as pa

    return pa.schema([pa.field(column.name, arrow_type(column.type), column.nullable) for column in schema])


def encode(column: Column, values: Any, *, first_row: int = 1) -> tuple[Words, Validity | None]:
    """Return a column's words, [rows] or for text [rows, words], and which are not null if the column is nullable.

    A null's words are 0. BadRows if a value does not fit the column's type, or is null where none may be.
    """
    return encode_converted(column, convert(column, values, first_row), first_row)


def encode_converted(column: Column, array: Any, first_row: int) -> tuple[Words, Validity | None]:
    """Return `encode` of an array that `convert` gave."""
    valid = None
    if array.null_count:
        present = array.is_valid().to_numpy(zero_copy_only=False)
        if not column.nullable:
            row = first_row + int(np.argmin(present))
            raise refused(column, row, "there is no value", "fill or drop the nulls, or allow them in the column")
        valid = present.view(np.uint8)
    words = _words(column, array, valid, first_row)
    if valid is not None:
        words *= valid if words.ndim == 1 else valid[:, None]
    if column.nullable and valid is None:
        valid = np.ones(len(array), np.uint8)
    return words, valid


def decode(column: Column, words: NDArray[Any], valid: NDArray[Any] | None) -> Any:
    """Return the Arrow array of words of any integer type, as wide or narrow as pages have them."""
    import pyarrow as pa

    type_, count, target = column.type, len(words), arrow_type(column.type)
    bitmap = None if valid is None else pa.py_buffer(np.packbits(np.asarray(valid, np.bool_), bitorder="little"))
    match type_.kind:
        case Kind.TEXT:
            offsets, letters = decode_text(words, type_.max_bytes)
            return pa.Array.from_buffers(target, count, [bitmap, pa.py_buffer(offsets), pa.py_buffer(letters)])
        case Kind.CATEGORY:
            masked = None if valid is None else ~np.asarray(valid, np.bool_)
            codes = pa.array(words.astype(np.int32, copy=False), mask=masked)
            return pa.array(type_.categories, pa.string()).take(codes)
        case Kind.DECIMAL:
            return decimals_of(target, words, bitmap)
        case Kind.BOOLEAN:
            values = np.packbits(words.astype(np.bool_), bitorder="little")
        case Kind.FLOAT:
            wide = words.astype(np.int64, copy=False)
            bits = wide ^ ((wide >> 63) & _LOW_BITS)
            values = bits.view(np.float64).astype(target.to_pandas_dtype(), copy=False)
        case Kind.INTEGER:
            values = words.astype(target.to_pandas_dtype(), copy=False)
        case Kind.DATE:
            values = words.astype(np.int32, copy=False)
        case _:
            values = words.astype(np.int64, copy=False)
    return pa.Array.from_buffers(target, count, [bitmap, pa.py_buffer(np.ascontiguousarray(values))])


def _column(field: Any, declared: str | None, domain: Domain | None) -> Column:
    text, nullable = split_nullability(declared or "")
    nullable = nullable and field.nullable
    if text:
        type_ = parse_type(text)
        if type_.kind is Kind.TIMESTAMP and type_.zone and getattr(field.type, "tz", None):
            type_ = ColumnType(type_.kind, type_.sql, zone=field.type.tz)
        if isinstance(domain, CategoryDomain) and type_.kind is Kind.CATEGORY and type_.categories != domain.values:
            raise InvalidParameter(
                f"column {field.name!r} is declared with other categories than its index",
                hint="declare no type for it: the index's list is taken",
            )
    else:
        type_ = category_type(domain.values) if isinstance(domain, CategoryDomain) else _type_of(field)
    return Column(field.name, type_, nullable)


def _type_of(field: Any) -> ColumnType:  # noqa: PLR0911  (one for each kind)
    from pyarrow import types as kinds

    type_ = field.type.value_type if kinds.is_dictionary(field.type) else field.type
    if kinds.is_integer(type_):
        return parse_type(next(n for n in INTEGER_WIDTHS if arrow_type(ColumnType(Kind.INTEGER, n)) == type_))
    if kinds.is_boolean(type_):
        return parse_type("boolean")
    if kinds.is_floating(type_):
        return parse_type("double" if type_.bit_width == 64 else "float")
    if kinds.is_decimal(type_) and 0 <= type_.scale <= type_.precision <= MAX_DECIMAL_DIGITS:
        return decimal_type(type_.precision, type_.scale)
    if kinds.is_date(type_):
        return parse_type("date")
    if kinds.is_time(type_):
        return parse_type("time")
    if kinds.is_timestamp(type_):
        zoned = ColumnType(Kind.TIMESTAMP, "timestamp with time zone", zone=type_.tz or "")
        return zoned if type_.tz else parse_type(_TIMESTAMPS[type_.unit])
    if kinds.is_string(type_) or kinds.is_large_string(type_) or kinds.is_string_view(type_):
        return text_type(DEFAULT_TEXT_BYTES)
    raise _no_type(field)


def _no_type(field: Any) -> InvalidParameter:
    from pyarrow import types as kinds

    hint = "leave it out, or cast it before loading"
    if kinds.is_decimal(field.type):
        hint = (
            f"declare it decimal({MAX_DECIMAL_DIGITS},2), for example: at most {MAX_DECIMAL_DIGITS} digits are stored"
        )
    if kinds.is_null(field.type):
        hint = "declare its type: there is no value to tell it from"
    return InvalidParameter(f"column {field.name!r} is of type {field.type}, which cannot be stored", hint=hint)


def _words(column: Column, array: Any, valid: Validity | None, first_row: int) -> Words:
    """Return words of the column's own Arrow type, with anything at the nulls; a new array, never the data's."""
    type_ = column.type
    match type_.kind:
        case Kind.TEXT:
            return encode_text(column, array, first_row)
        case Kind.CATEGORY:
            return _codes(column, array, first_row)
        case Kind.BOOLEAN:
            words = np.array(array.fill_null(False).to_numpy(zero_copy_only=False), np.int64)
        case Kind.FLOAT:
            numbers = values_of(array, array.type.to_pandas_dtype()).astype(np.float64) + 0.0  # -0.0 becomes 0.0
            bits = numbers.view(np.int64)
            words = bits ^ ((bits >> 63) & _LOW_BITS)
            words[np.isnan(numbers)] = NAN_WORD
        case Kind.DECIMAL:
            words = _unscaled(column, array, valid, first_row)
        case Kind.INTEGER:
            words = values_of(array, array.type.to_pandas_dtype()).astype(np.int64)
            if type_.sql == "ubigint":
                _check(column, words < 0, valid, first_row, "the value is 2^63 or more")
        case Kind.DATE:
            words = values_of(array, np.int32).astype(np.int64)
        case _:
            words = values_of(array, np.int64).copy()
            if type_.kind is Kind.TIME:
                _check(column, (words < 0) | (words >= DAY_US), valid, first_row, "the time is not of one day")
    return words


def _unscaled(column: Column, array: Any, valid: Validity | None, first_row: int) -> Words:
    halves = values_of(array, np.dtype((np.int64, 2)))
    words, limit = halves[:, 0].copy(), 10**column.type.digits
    strays = (halves[:, 1] != words >> 63) | (words <= -limit) | (words >= limit)
    _check(column, strays, valid, first_row, f"the value has more digits than {column.type.label}")
    return words


def _codes(column: Column, array: Any, first_row: int) -> Words:
    import pyarrow as pa
    from pyarrow import compute

    codes = compute.index_in(array, value_set=pa.array(column.type.categories, pa.string()))
    if codes.null_count > array.null_count:
        unlisted = compute.and_(codes.is_null(), array.is_valid()).to_numpy(zero_copy_only=False)
        row = first_row + int(np.argmax(unlisted))
        raise refused(column, row, "the value is not in the list of its categories", "add it to the list, or drop it")
    return np.array(values_of(codes, np.int32), np.int64)


def _check(column: Column, strays: NDArray[Any], valid: Validity | None, first_row: int, trouble: str) -> None:
    if valid is not None:
        strays &= valid.view(np.bool_)
    if strays.any():
        raise refused(column, first_row + int(np.argmax(strays)), trouble)
