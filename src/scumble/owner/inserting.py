"""Inserts: rows go to the tail of a table, in units of public size, and cost no epsilon.

The rows are SECRET, and so is how many of them a unit has: the provider sees that rows were inserted, and the capacity
that was asked for. A batch has a name, under which it is inserted once, however often it is sent.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from scumble.errors import BadRows, InvalidParameter
from scumble.index.kinds import decoded
from scumble.owner.encoding import encode_rows
from scumble.owner.indexes import IndexSpec
from scumble.owner.sending import Sender
from scumble.owner.sources import open_source
from scumble.owner.versions import Versions
from scumble.types import Schema, arrow_schema, check_convertible
from scumble.wire.catalog import UNIT_ROWS, Streamed, Table
from scumble.wire.requests import BeginLoad, Build, Reserve, RowLayout

__all__ = ["UNIT_ROWS", "arranged_rows", "check_keys", "insert", "units"]

MEMORY_BYTES = 64 << 20
FREE = Fraction(0), Fraction(0)


def insert(
    versions: Versions,
    table: Table,
    rows: Iterable[Any],
    capacity: int | None,
    batch: str | None = None,
    streamed: Streamed | None = None,
) -> int:
    """Have rows inserted into a table of the version that is open, as a change that is not settled yet; how many.

    0 if the batch is there already. `rows` are Arrow batches with the table's columns; `streamed` says when a stream
    has sent them.
    """
    session, name = versions.session, batch or secrets.token_hex(16)
    pieces = list(rows)
    count = sum(map(len, pieces))
    room = units(count if capacity is None else capacity)
    if count > room:
        raise BadRows("there are more rows than the capacity", hint="give a larger capacity")
    for piece in pieces:
        check_keys(table, piece)  # before anything is sent: a refusal is seen by nobody
    schema = table.schema
    begun = session.ask(BeginLoad(name, FREE, table.name, table.id, schema, (), UNIT_ROWS, MEMORY_BYTES, tail=True))
    if begun.done:
        return 0
    sender = Sender(session, schema, [], lambda *_: None, count, versions.key.noise_key(), name)
    sender.send_all(pieces, room)
    sender.fill(room)
    session.ask(Reserve(room))
    versions.work(Build(count, name, True, streamed))
    return count


def units(rows: int) -> int:
    """A capacity for so many rows."""
    if not 0 <= rows < 1 << 36:
        raise InvalidParameter("the capacity must be at least 0 and less than 2^36", hint="capacity=256")
    return max(1, -(-rows // UNIT_ROWS)) * UNIT_ROWS


def check_keys(table: Table, rows: Any) -> None:
    """Refuse rows that no index of the table could find once they are no longer in the tail: BadRows."""
    domains = {spec.column: spec.domain for spec in map(IndexSpec.parse, table.terms)}
    domains |= {run.attribute: decoded(run.index).domain for run in table.settled if run.attribute and run.index}
    keys = [(table.schema.place(attribute), domain) for attribute, domain in domains.items()]
    if keys:
        encode_rows(rows, RowLayout(table.schema, tuple(domain.size for _, domain in keys)), keys)


def arranged_rows(table: Table, source: object, *, partly: bool = False) -> Any:
    """The rows of a source with the table's columns, or `partly` with some of them.

    Those that dictionaries in a list lack are null; `partly`, all of them have the same.
    """
    if isinstance(source, list | tuple):
        source = _table_of(table, source, partly=partly)
    types = {column.name: column.declaration for column in table.schema}
    rows = open_source(source, types=types)
    try:
        given = {name.lower() for name in rows.schema.names}
        schema = Schema(tuple(column for column in table.schema if not partly or column.name.lower() in given))
        arranged = rows.arranged(schema)
        for column, field in zip(schema, arranged.schema, strict=True):
            check_convertible(column, field.type)
    except BaseException:
        rows.close()
        raise
    return arranged


def _table_of(table: Table, rows: Sequence[Any], *, partly: bool) -> Any:
    """Rows that are dictionaries, or tuples in the order of the columns, as Arrow has them."""
    import pyarrow as pa

    schema, names = arrow_schema(table.schema), {column.name.lower() for column in table.schema}
    try:
        dicts = [row if isinstance(row, Mapping) else dict(zip(schema.names, row, strict=True)) for row in rows]
    except (TypeError, ValueError):
        hint = f"a dictionary, or a tuple of {', '.join(schema.names)}"
        raise BadRows("a row has not as many values as the table has columns", hint=hint) from None
    if any(str(name).lower() not in names for row in dicts for name in row):
        raise BadRows("a row has a column that the table has not", hint=f"the columns are {', '.join(schema.names)}")
    try:
        lower = [{str(name).lower(): value for name, value in row.items()} for row in dicts]
        if partly:
            schema = _shared(schema, lower)
        columns = [pa.array([row.get(field.name.lower()) for row in lower], field.type) for field in schema]
    except (pa.ArrowException, TypeError, ValueError):  # their texts have the value
        raise BadRows("a value does not fit its column's type", hint="convert it first") from None
    return pa.table(columns, schema=schema)


def _shared(schema: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
    """The fields that every row has. If one lacks a field of another, nobody can tell what it shall become."""
    import pyarrow as pa

    given = set().union(*rows)
    if any(row.keys() != given for row in rows):
        raise BadRows("the rows do not all have the same columns", hint="give those that shall be null as None")
    return pa.schema([field for field in schema if field.name.lower() in given])
