"""Metadata: a command of Flight SQL comes in, a small Arrow table goes out: catalogs, schemas, tables, keys and types.

All of it is public but to whoever has no token. A database is a catalog; its tables are in the schema `main`.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from scumble.gateway.databases import SCHEMA, Databases
from scumble.gateway.server_info import SERVER_INFO, server_info
from scumble.gateway.type_info import TYPE_INFO, type_info
from scumble.types import Column
from scumble.wire.catalog import Table

__all__ = ["METADATA", "Metadata"]

TABLE_TYPE = "TABLE"


class Metadata(NamedTuple):
    """What a command returns: its schema, and its table."""

    schema: Callable[[Any], pa.Schema]
    table: Callable[[Any, Databases], pa.Table]


def _schema(fields: str) -> pa.Schema:
    """Columns of text, or as said after a colon; `!` after those that are never null."""
    types = {"": pa.string(), "int32": pa.int32(), "uint8": pa.uint8(), "binary": pa.binary()}
    parts = [field.rstrip("!").partition(":") for field in fields.split()]
    nullable = [not field.endswith("!") for field in fields.split()]
    return pa.schema([pa.field(name, types[kind], null) for (name, _, kind), null in zip(parts, nullable, strict=True)])


CATALOGS = _schema("catalog_name!")
SCHEMAS = _schema("catalog_name db_schema_name!")
TABLES = _schema("catalog_name db_schema_name table_name! table_type!")
TABLES_WITH_SCHEMA = TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
TABLE_TYPES = _schema("table_type!")
PRIMARY_KEYS = _schema("catalog_name db_schema_name table_name! column_name! key_name key_sequence:int32!")
FOREIGN_KEYS = _schema(
    "pk_catalog_name pk_db_schema_name pk_table_name! pk_column_name! "
    "fk_catalog_name fk_db_schema_name fk_table_name! fk_column_name! "
    "key_sequence:int32! fk_key_name pk_key_name update_rule:uint8! delete_rule:uint8!"
)


def _catalogs(command: Any, databases: Databases) -> pa.Table:
    return pa.table([databases.names], schema=CATALOGS)


def _schemas(command: Any, databases: Databases) -> pa.Table:
    names = list(_catalogs_of(command, databases))
    return pa.table([names, [SCHEMA] * len(names)], schema=SCHEMAS)


def _tables(command: Any, databases: Databases) -> pa.Table:
    wanted = _pattern(command, "table_name_filter_pattern")
    found = [
        (name, table)
        for name in _catalogs_of(command, databases)
        for table in databases[name].tables
        if wanted(table.name) and (not command.table_types or TABLE_TYPE in command.table_types)
    ]
    columns: list[list[Any]] = [
        [name for name, _ in found],
        [SCHEMA] * len(found),
        [table.name for _, table in found],
        [TABLE_TYPE] * len(found),
    ]
    if not command.include_schema:
        return pa.table(columns, schema=TABLES)
    columns.append([_table_schema(name, table).serialize().to_pybytes() for name, table in found])
    return pa.table(columns, schema=TABLES_WITH_SCHEMA)


def _table_schema(database: str, table: Table) -> pa.Schema:
    return pa.schema(
        [
            pa.field(
                column.name, column.type.arrow_type, column.nullable, metadata=_column_facts(database, table, column)
            )
            for column in table.schema
        ]
    )


def _column_facts(database: str, table: Table, column: Column) -> dict[str, str]:
    facts = {
        "CATALOG_NAME": database,
        "DB_SCHEMA_NAME": SCHEMA,
        "TABLE_NAME": table.name,
        "TYPE_NAME": column.type.sql,
        "IS_AUTO_INCREMENT": "0",
        "IS_CASE_SENSITIVE": "1",
        "IS_READ_ONLY": "1",
        "IS_SEARCHABLE": "1",
    }
    if column.type.digits:
        facts |= {"PRECISION": str(column.type.digits), "SCALE": str(column.type.scale)}
    return {f"ARROW:FLIGHT:SQL:{name}": value for name, value in facts.items()}


def _catalogs_of(command: Any, databases: Databases) -> Iterator[str]:
    """The databases that a command asks about."""
    if _pattern(command, "db_schema_filter_pattern")(SCHEMA):
        for name in databases.names:
            if not command.HasField("catalog") or command.catalog == name:
                yield name


def _pattern(command: Any, field: str) -> Callable[[str], bool]:
    """A test for names: % is any text, _ any character, and after a backslash both are themselves."""
    if not command.HasField(field):
        return lambda name: True
    parts = re.findall(r"\\[%_\\]|.", getattr(command, field), re.S)
    words = {"%": ".*", "_": "."}
    expression = re.compile("".join(words.get(part) or re.escape(part[-1]) for part in parts), re.S)
    return lambda name: expression.fullmatch(name) is not None


def _always(schema: pa.Schema) -> Callable[[Any], pa.Schema]:
    return lambda command: schema


def _empty(schema: pa.Schema) -> Metadata:
    return Metadata(_always(schema), lambda command, databases: schema.empty_table())


METADATA = {
    "CommandGetCatalogs": Metadata(_always(CATALOGS), _catalogs),
    "CommandGetDbSchemas": Metadata(_always(SCHEMAS), _schemas),
    "CommandGetTables": Metadata(lambda c: TABLES_WITH_SCHEMA if c.include_schema else TABLES, _tables),
    "CommandGetTableTypes": Metadata(
        _always(TABLE_TYPES), lambda command, databases: pa.table([[TABLE_TYPE]], schema=TABLE_TYPES)
    ),
    "CommandGetPrimaryKeys": _empty(PRIMARY_KEYS),
    "CommandGetExportedKeys": _empty(FOREIGN_KEYS),
    "CommandGetImportedKeys": _empty(FOREIGN_KEYS),
    "CommandGetCrossReference": _empty(FOREIGN_KEYS),
    "CommandGetXdbcTypeInfo": Metadata(_always(TYPE_INFO), lambda command, databases: type_info(command)),
    "CommandGetSqlInfo": Metadata(_always(SERVER_INFO), lambda command, databases: server_info(command)),
}
