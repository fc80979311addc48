"""The SQL types of columns, as JDBC and ODBC ask for them: a command comes in, a table of types goes out. Public."""

from typing import Any

import pyarrow as pa

from scumble.types import TYPES, SqlType

__all__ = ["TYPE_INFO", "type_info"]

NULLABLE, SEARCHABLE_FULL = 1, 3
DATETIME = 9

TYPE_INFO = pa.schema(
    [
        pa.field("type_name", pa.string(), nullable=False),
        pa.field("data_type", pa.int32(), nullable=False),
        pa.field("column_size", pa.int32()),
        pa.field("literal_prefix", pa.string()),
        pa.field("literal_suffix", pa.string()),
        pa.field("create_params", pa.list_(pa.field("item", pa.string(), nullable=False))),
        pa.field("nullable", pa.int32(), nullable=False),
        pa.field("case_sensitive", pa.bool_(), nullable=False),
        pa.field("searchable", pa.int32(), nullable=False),
        pa.field("unsigned_attribute", pa.bool_()),
        pa.field("fixed_prec_scale", pa.bool_(), nullable=False),
        pa.field("auto_increment", pa.bool_()),
        pa.field("local_type_name", pa.string()),
        pa.field("minimum_scale", pa.int32()),
        pa.field("maximum_scale", pa.int32()),
        pa.field("sql_data_type", pa.int32(), nullable=False),
        pa.field("datetime_subcode", pa.int32()),
        pa.field("num_prec_radix", pa.int32()),
        pa.field("interval_precision", pa.int32()),
    ]
)


_TYPES = sorted((sql for type_ in TYPES.values() for sql in type_.sql_types), key=lambda sql: sql.code)


def type_info(command: Any) -> pa.Table:
    """The types, or those with the code that is asked for."""
    wanted = [kind for kind in _TYPES if not command.HasField("data_type") or kind.code == command.data_type]
    return pa.Table.from_pylist([_row(kind) for kind in wanted], schema=TYPE_INFO)


def _row(kind: SqlType) -> dict[str, object]:
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
