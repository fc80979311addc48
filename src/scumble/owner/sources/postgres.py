"""Rows of a query against PostgreSQL, read through a cursor on the server in a read-only transaction.

SECRET rows, and the address may hold a password: neither is in any error. PostgreSQL's errors about the query are
passed on; those about values are not, because they quote the values.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from scumble.errors import BadQuery, BadRows, FileError, InvalidParameter, ScumbleError
from scumble.owner.sources import Reading, Source, fits, needs
from scumble.types import parse_type, split_nullability

__all__ = ["open_postgres"]

_NUMERIC, _UUID = 1700, 2950
_TYPES = {
    16: "bool_",
    20: "int64",
    21: "int16",
    23: "int32",
    26: "uint32",  # oid
    700: "float32",
    701: "float64",
    1082: "date32",
    **dict.fromkeys([18, 19, 25, 1042, 1043, _UUID], "string"),
}
_MOST_DIGITS = 76  # of Arrow's widest decimal


def open_postgres(address: str, reading: Reading) -> Source:
    """Connect, and declare a cursor for the query."""
    psycopg = needs("psycopg", "postgres", "PostgreSQL")
    try:
        connection = psycopg.connect(address, options="-c timezone=UTC", connect_timeout=10)
    except (psycopg.Error, ValueError):
        connection = None
    if connection is None:
        raise FileError("cannot connect to PostgreSQL", hint="check the address and the password, with psql")
    connection.read_only = True
    cursor = connection.cursor("scumble_load", binary=True)
    try:
        cursor.execute(reading.query)
        schema = _schema(cursor.description, {name.lower(): text for name, text in reading.types.items()})
    except psycopg.Error as error:
        refusal: ScumbleError = _explained(error)
    except ScumbleError as error:
        refusal = error
    else:
        batches = _batches(cursor, schema, reading.batch_rows, psycopg)
        return Source(schema, None, batches, lambda: _close(connection, cursor))
    _close(connection, cursor)
    raise refusal


def _close(connection: Any, cursor: Any) -> None:
    with suppress(Exception):  # a broken connection has nothing left to close
        cursor.close()
    connection.close()


def _schema(columns: Any, types: Mapping[str, str]) -> Any:
    import pyarrow as pa

    return pa.schema([pa.field(column.name, _arrow_type(column, types.get(column.name.lower()))) for column in columns])


def _arrow_type(column: Any, declared: str | None) -> Any:
    import pyarrow as pa

    code = column.type_code
    if code in _TYPES:
        return getattr(pa, _TYPES[code])()
    if code == 1083:
        return pa.time64("us")
    if code in (1114, 1184):
        return pa.timestamp("us", "UTC" if code == 1184 else None)
    if code != _NUMERIC:
        raise InvalidParameter(
            f"column {column.name!r} is of a type that cannot be stored",
            hint=f'cast it in the query: "{column.name}"::text',
        )
    text = split_nullability(declared or "")[0]
    if text and parse_type(text).digits:
        return parse_type(text).arrow_type
    if column.precision is None or column.precision > _MOST_DIGITS:
        raise InvalidParameter(
            f"column {column.name!r} is numeric without a precision",
            hint="declare its type, or cast it in the query: ::numeric(12,2)",
        )
    wide = pa.decimal128 if column.precision <= 38 else pa.decimal256
    return wide(column.precision, column.scale)


def _batches(cursor: Any, schema: Any, batch_rows: int, psycopg: Any) -> Iterator[Any]:
    import pyarrow as pa

    done = 0
    try:
        while rows := cursor.fetchmany(batch_rows):
            columns = zip(*rows, strict=True)
            arrays = [_array(cells, field, done) for cells, field in zip(columns, schema, strict=True)]
            done += len(rows)
            yield pa.record_batch(arrays, schema=schema)
    except psycopg.Error as error:
        refusal = _explained(error)
    else:
        return
    raise refusal


def _array(cells: tuple[Any, ...], field: Any, done: int) -> Any:
    import pyarrow as pa

    if pa.types.is_string(field.type):
        cells = tuple(cell if cell is None or isinstance(cell, str) else str(cell) for cell in cells)
    try:
        return pa.array(cells, field.type)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        row = next(row for row, cell in enumerate(cells) if not fits(cell, field.type))
    raise BadRows(
        f"column {field.name!r}, row {done + row + 1}: the value is no {field.type}",
        hint="declare another type for the column, or cast it in the query",
        row=done + row + 1,
        column=field.name,
    )


def _explained(error: Any) -> ScumbleError:
    state = getattr(error, "sqlstate", None) or ""
    if state.startswith("42"):  # syntax, names and permissions, not data
        return BadQuery(f"PostgreSQL refuses the query: {error}", hint="correct it, and try it in psql")
    shown = f" (SQLSTATE {state})" if state else ""
    return BadRows(f"the query against PostgreSQL failed half-way{shown}", hint="run it in psql to see why")
