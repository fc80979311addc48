"""Changes through the gateway: statements with their sets of parameters, and rows in bulk. How many rows were changed.

They are done by the owner's side like any other change; the rows and parameters are SECRET and stay there. A client
needs the right to change something by name in the configuration.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from scumble.errors import InvalidParameter, UnsupportedQuery
from scumble.gateway.databases import SCHEMA, Databases, Described
from scumble.owner.database import Database
from scumble.owner.inserting import units
from scumble.sql.parse import is_control, parse

__all__ = ["CHANGED", "changed", "described_change", "ingest_target", "ingested"]

CHANGED = pa.schema([pa.field("rows", pa.int64(), nullable=False)])
"""What a change gives to a client that asks as for a query: one row with how many rows were changed."""
CREATE, FAIL_IF_THERE, APPEND = 1, 1, 2

Sets = Sequence[Any]


def described_change(sql: str) -> Described:
    """The parameters of a statement that changes something; it has no columns."""
    keys = list(dict.fromkeys(parse(sql, change=True).keys.values()))
    names = [str(key + 1) if isinstance(key, int) else key for key in keys]
    parameters = pa.schema([pa.field(name, pa.null()) for name in names])
    return Described(None, parameters, any(isinstance(key, str) for key in keys))


def changed(database: Database, sql: str, sets: Sets | None) -> int:
    """Change something, once for each set of parameters; how many rows."""
    from scumble.owner.changing import ChangeReport

    if is_control(sql):
        raise UnsupportedQuery("transactions are the driver's", hint="connect without autocommit, and commit there")
    if sets is not None and len(sets) != 1:
        return database.execute_many(sql, sets).rows
    report = database.execute(sql, sets[0] if sets else ())
    assert isinstance(report, ChangeReport)  # noqa: S101  queries come another way
    return report.rows


def ingest_target(databases: Databases, message: Any, named: str | None) -> str:
    """The database that an ingest is for."""
    if message.temporary:
        raise UnsupportedQuery("there are no temporary tables", hint="ingest into a table that stays")
    if message.HasField("schema") and message.schema not in ("", SCHEMA):
        raise InvalidParameter("there is no such schema", hint=f"each database has one, {SCHEMA}")
    name = message.catalog if message.HasField("catalog") and message.catalog else named or databases.default
    databases[name]  # raises if there is none of that name
    return str(name)


def ingested(database: Database, message: Any, rows: pa.Table) -> int:
    """Insert rows in bulk: into a table that is there, or into a new one that has the types of the rows; how many.

    The room that they take, rounded up to 256 rows, is public.
    """
    options = message.table_definition_options
    there = message.table.lower() in {table.name.lower() for table in database.tables}
    if there and options.if_exists == FAIL_IF_THERE:
        raise InvalidParameter("the table is there already", hint='ingest with mode="append"')
    if there and options.if_exists not in (0, APPEND):
        raise UnsupportedQuery("a table is not replaced", hint='delete its rows, and ingest with mode="append"')
    if there:
        return database.insert(message.table, rows)
    if options.if_not_exist != CREATE:
        raise InvalidParameter("there is no such table", hint='make it with `scumble load`, or with mode="create"')
    _check_declared(rows.schema)
    if database.in_transaction:
        raise UnsupportedQuery("a table is made outside of a transaction", hint="connect with autocommit=True")
    report = database.load(message.table, rows, capacity=units(len(rows)))
    return report.rows


def _check_declared(schema: pa.Schema) -> None:
    """Refuse types that do not say how much room a value takes: that would be public, and a guess from the rows."""
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        wide = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
        if any(test(kind) for test in (*wide, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)):
            raise InvalidParameter(
                f"the column {field.name!r} has no declared length, which is public",
                hint='make the table with `scumble load` and --type, and ingest with mode="append"',
            )
