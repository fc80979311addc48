"""The owner's side of types: as they are declared, `decimal(12,2)`; a table's schema; and Arrow columns as words.

Types and schemas are public. A text column's greatest length and a category's list come from the owner and never from
the data. The rows are SECRET: they become a column's type exactly or not at all, and a refusal names the column and the
row, counted from the start of the load, and shows no value. pyarrow is imported on use, since an enclave needs none.
"""

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble.errors import BadRows, InvalidParameter, NotFound
from scumble.types.column import FAMILIES, TYPES, ColumnType
from scumble.types.domain import Domain
from scumble.types.schema import Column, Schema

_FIT = "correct or drop that row, or declare another type for the column"
_NOT_NULL = "not null"
_NAME = re.compile(r"\s*([A-Za-z][A-Za-z0-9_]*(?:\s+[A-Za-z]+)*)\s*")
_SHOWN = 60


# --- declared types and schemas ---------------------------------------------------------------------


def parse_type(text: str) -> ColumnType:
    """Read a type, `decimal(12,2)`; InvalidParameter, with the wrong part underlined, if there is no such type."""
    found = _NAME.match(text)
    if found is None:
        raise _wrong(text, 0, len(text), "this is no type")
    name = " ".join(found[1].lower().split())
    kind = next((type_ for type_ in TYPES.values() if name in type_.names), None)
    if kind is None:
        close = get_close_matches(name, [known for type_ in TYPES.values() for known in type_.names], n=1)
        guess = f"did you mean {close[0]}? " if close else ""
        raise _wrong(text, found.start(1), found.end(1), "there is no such type", guess)
    try:
        return kind.of_text(kind.names[name], text[found.end() :].strip())
    except InvalidParameter as error:
        refused = error
    raise _wrong(text, found.end(), len(text), refused.message)


def split_nullability(text: str) -> tuple[str, bool]:
    """Return what stands before `not null`, and whether nulls may occur."""
    text = text.strip()
    return (text[: -len(_NOT_NULL)].strip(), False) if text.lower().endswith(_NOT_NULL) else (text, True)


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
            raise NotFound(f"there is no column {name!r}", hint=f"the columns are {', '.join(arrow.names)}")
    if "" in names:
        raise InvalidParameter("a column has no name", hint="name it")
    return Schema(
        tuple(_column(field, declared.get(field.name.lower()), indexed.get(field.name.lower())) for field in arrow)
    )


def _column(field: Any, declared: str | None, domain: Domain | None) -> Column:
    text, nullable = split_nullability(declared or "")
    stated = None if domain is None else domain.column_type
    if not text:
        return Column(field.name, stated or _type_of(field), nullable and field.nullable)
    column = Column(field.name, parse_type(text).as_in(field), nullable and field.nullable)
    check_stated(column, domain)
    return column


def _type_of(field: Any) -> ColumnType:
    from pyarrow import types as kinds

    plain = field.with_type(field.type.value_type) if kinds.is_dictionary(field.type) else field
    type_ = FAMILIES.get(family(plain.type))
    if type_ is not None:
        return type_.of_arrow(plain)
    if kinds.is_null(field.type):
        raise unstorable(field, "declare its type: there is no value to tell it from")
    raise unstorable(field, "leave it out, or cast it before loading")


def _wrong(text: str, start: int, stop: int, trouble: str, guess: str = "") -> InvalidParameter:
    shown = "".join(char if char.isprintable() else "?" for char in text[:_SHOWN]) + "..." * (len(text) > _SHOWN)
    carets = " " * min(start, _SHOWN) + "^" * max(1, min(stop, _SHOWN) - start)
    examples = ", ".join(example for type_ in TYPES.values() for example in type_.examples)
    return InvalidParameter(
        f"cannot read the type: {trouble}\n    {shown}\n    {carets}", hint=f"{guess}the types are {examples}"
    )


# --- columns ----------------------------------------------------------------------------------------


def arrow_schema(schema: Schema) -> Any:
    """Return the Arrow schema that DuckDB sees and queries return."""
    import pyarrow as pa

    return pa.schema([pa.field(column.name, column.type.arrow_type, column.nullable) for column in schema])


def convert(column: Column, values: Any, first_row: int = 1) -> Any:
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
    check_convertible(column, array.type)
    return column.type.convert(column, array, family(array.type), first_row)


def check_convertible(column: Column, type_: Any) -> None:
    """Refuse an Arrow type whose values can never be made the column's: BadRows, before any row is read."""
    from pyarrow import types as kinds

    plain = type_.value_type if kinds.is_dictionary(type_) else type_
    if plain == column.type.arrow_type or kinds.is_null(plain) or family(plain) in column.type.sources:
        return
    raise BadRows(
        f"column {column.name!r} is declared {column.type.label}, and {plain} cannot be made that",
        hint="declare another type for it, or cast it before loading",
        column=column.name,
    )


def check_stated(column: Column, domain: Domain | None) -> None:
    """Refuse a column of categories whose index lists others."""
    stated = None if domain is None else domain.column_type
    if stated is not None and stated.kind == column.type.kind and stated.declaration != column.type.declaration:
        raise InvalidParameter(
            f"column {column.name!r} is declared with other categories than its index",
            hint="declare no type for it: the index's list is taken",
        )


def encode(column: Column, array: Any, first_row: int = 1) -> tuple[NDArray[np.int64], NDArray[np.uint8] | None]:
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


def cast(column: Column, array: Any, steps: list[Any], first_row: int, *, exact: bool) -> Any:
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
    column: Column, strays: NDArray[Any], valid: NDArray[np.uint8] | None, first_row: int, trouble: str
) -> None:
    """Refuse the first of the rows that are marked, unless it is null."""
    if valid is not None:
        strays &= valid.view(np.bool_)
    if strays.any():
        raise refused(column, first_row + int(np.argmax(strays)), trouble)


def refused(column: Column, row: int, trouble: str, hint: str = _FIT) -> BadRows:
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

    if kinds.is_timestamp(type_):
        return "zoned" if type_.tz else "timestamp"
    tests = {
        "boolean": [kinds.is_boolean],
        "integer": [kinds.is_integer],
        "float": [kinds.is_floating],
        "decimal": [kinds.is_decimal],
        "date": [kinds.is_date],
        "time": [kinds.is_time],
        "string": [kinds.is_string, kinds.is_large_string, kinds.is_string_view],
    }
    return next((family for family, any_of in tests.items() if any(test(type_) for test in any_of)), str(type_))
