"""Answers to Flight SQL's metadata commands: catalogs, schemas, tables, keys, SQL types, and what the gateway can do.

All of it is public to clients with a token. A database is a catalog; its tables are in the schema `main`. Each command
has an entry in `METADATA`, at the end.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from scumble import __version__
from scumble.gateway.databases import SCHEMA, Databases
from scumble.types import TYPES, Column, SqlType
from scumble.wire.catalog import Table

__all__ = ["METADATA", "Metadata"]

TABLE_TYPE = "TABLE"


class Metadata(NamedTuple):
    """How to answer a command: its result's schema, and the result."""

    schema: Callable[[Any], pa.Schema]
    table: Callable[[Any, Databases], pa.Table]


def _schema(fields: str) -> pa.Schema:
    """Read a schema: columns are text unless a type follows a colon, and `!` marks those that are never null."""
    types = {"": pa.string(), "int32": pa.int32(), "uint8": pa.uint8(), "bool": pa.bool_()}
    types["texts"] = pa.list_(pa.field("item", pa.string(), nullable=False))
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
    """Yield the databases that a command asks about."""
    if _pattern(command, "db_schema_filter_pattern")(SCHEMA):
        for name in databases.names:
            if not command.HasField("catalog") or command.catalog == name:
                yield name


def _pattern(command: Any, field: str) -> Callable[[str], bool]:
    """Return a test for names: % is any text, _ any character, and a backslash makes either one literal."""
    if not command.HasField(field):
        return lambda name: True
    parts = re.findall(r"\\[%_\\]|.", getattr(command, field), re.S)
    words = {"%": ".*", "_": "."}
    expression = re.compile("".join(words.get(part) or re.escape(part[-1]) for part in parts), re.S)
    return lambda name: expression.fullmatch(name) is not None


# --- SQL types, as JDBC and ODBC ask for them -------------------------------------------------------

NULLABLE, SEARCHABLE_FULL = 1, 3
DATETIME = 9

TYPE_INFO = _schema(
    "type_name! data_type:int32! column_size:int32 literal_prefix literal_suffix create_params:texts nullable:int32! "
    "case_sensitive:bool! searchable:int32! unsigned_attribute:bool fixed_prec_scale:bool! auto_increment:bool "
    "local_type_name minimum_scale:int32 maximum_scale:int32 sql_data_type:int32! datetime_subcode:int32 "
    "num_prec_radix:int32 interval_precision:int32"
)


_TYPES = sorted((sql for type_ in TYPES.values() for sql in type_.sql_types), key=lambda sql: sql.code)


def _type_info(command: Any, databases: Databases) -> pa.Table:
    wanted = [kind for kind in _TYPES if not command.HasField("data_type") or kind.code == command.data_type]
    return pa.Table.from_pylist([_type_row(kind) for kind in wanted], schema=TYPE_INFO)


def _type_row(kind: SqlType) -> dict[str, object]:
    number = kind.radix is not None
    return {
        "type_name": kind.name,
        "data_type": kind.code,
        "column_size": kind.size,
        "literal_prefix": kind.quote,
        "literal_suffix": kind.quote,
        "create_params": kind.parameters,
        "nullable": NULLABLE,
        "case_sensitive": kind.name == "VARCHAR",
        "searchable": SEARCHABLE_FULL,
        "unsigned_attribute": kind.unsigned,
        "fixed_prec_scale": False,
        "auto_increment": False if number else None,
        "local_type_name": kind.name,
        "minimum_scale": 0 if kind.scale else None,
        "maximum_scale": kind.scale,
        "sql_data_type": DATETIME if kind.subcode else kind.code,
        "datetime_subcode": kind.subcode,
        "num_prec_radix": kind.radix,
        "interval_precision": None,
    }


# --- what the gateway can do ------------------------------------------------------------------------

_KINDS = [
    pa.field("string_value", pa.string()),
    pa.field("bool_value", pa.bool_()),
    pa.field("bigint_value", pa.int64()),
    pa.field("int32_bitmask", pa.int32()),
    pa.field("string_list", pa.list_(pa.string())),
    pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
]
STRING, BOOLEAN, BIGINT, BITMASK, LIST, MAP = range(6)
SERVER_INFO = pa.schema(
    [pa.field("info_name", pa.uint32(), nullable=False), pa.field("value", pa.dense_union(_KINDS), nullable=False)]
)

# Numbers and meanings are those of the enum SqlInfo in FlightSql.proto. Whether a client may write, the
# gateway says when it tries.
_FACTS: dict[int, tuple[int, Any]] = {
    0: (STRING, "Scumble gateway"),
    1: (STRING, __version__),
    2: (STRING, pa.__version__),
    3: (BOOLEAN, False),  # not read only
    4: (BOOLEAN, True),  # takes SQL
    5: (BOOLEAN, False),  # takes no Substrait
    8: (BITMASK, 1),  # transactions
    9: (BOOLEAN, True),  # cancels
    101: (BITMASK, 0),
    **dict.fromkeys((500, 501, 502), (BOOLEAN, False)),  # creates nothing
    503: (BIGINT, 1),  # names are the same in either case
    504: (STRING, '"'),
    505: (BIGINT, 1),
    506: (BOOLEAN, True),
    507: (BIGINT, 3),  # nulls come last
    **dict.fromkeys(range(508, 513), (LIST, [])),
    513: (STRING, "\\"),
    514: (STRING, ""),
    515: (BOOLEAN, True),
    516: (BOOLEAN, True),
    517: (MAP, []),
    518: (BOOLEAN, True),
    519: (BOOLEAN, False),
    520: (BOOLEAN, True),
    521: (BOOLEAN, True),
    522: (BITMASK, 3),  # GROUP BY
    523: (BOOLEAN, True),
    524: (BOOLEAN, True),
    525: (BITMASK, 3),  # the core grammar
    526: (BITMASK, 1),  # ANSI 92, entry level
    527: (BOOLEAN, False),
    528: (BIGINT, 2),  # full outer joins
    529: (STRING, "schema"),
    530: (STRING, "procedure"),
    531: (STRING, "database"),
    532: (BOOLEAN, True),
    **dict.fromkeys((533, 534, 535), (BITMASK, 0)),
    536: (BOOLEAN, False),
    537: (BOOLEAN, False),
    538: (BITMASK, 15),  # subqueries
    539: (BOOLEAN, True),
    540: (BITMASK, 3),  # UNION, UNION ALL
    **dict.fromkeys(range(541, 556), (BIGINT, 0)),  # no limits
    556: (BOOLEAN, False),
    **dict.fromkeys(range(557, 562), (BIGINT, 0)),
    562: (BIGINT, 2),  # read committed: until its first change, a transaction sees what others commit
    563: (BOOLEAN, True),  # transactions
    564: (BITMASK, 1),
    565: (BOOLEAN, False),
    566: (BOOLEAN, False),
    567: (BITMASK, 2),  # results are read forward,
    568: (BITMASK, 0),
    569: (BITMASK, 2),  # and only read
    **dict.fromkeys((570, 571), (BITMASK, 0)),
    **dict.fromkeys(range(572, 577), (BOOLEAN, False)),
}


def _server_info(command: Any, databases: Databases) -> pa.Table:
    wanted = [number for number in command.info if number in _FACTS] if command.info else list(_FACTS)
    kinds = [_FACTS[number][0] for number in wanted]
    offsets = [kinds[:place].count(kind) for place, kind in enumerate(kinds)]
    children = [
        pa.array([_FACTS[number][1] for number in wanted if _FACTS[number][0] == kind], field.type)
        for kind, field in enumerate(_KINDS)
    ]
    names = [field.name for field in _KINDS]
    values = pa.UnionArray.from_dense(pa.array(kinds, pa.int8()), pa.array(offsets, pa.int32()), children, names)
    return pa.table([pa.array(wanted, pa.uint32()), values.cast(SERVER_INFO.field("value").type)], schema=SERVER_INFO)


# --- the commands -----------------------------------------------------------------------------------


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
    "CommandGetXdbcTypeInfo": Metadata(_always(TYPE_INFO), _type_info),
    "CommandGetSqlInfo": Metadata(_always(SERVER_INFO), _server_info),
}
