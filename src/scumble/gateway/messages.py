"""Flight SQL's messages (commands, tickets and actions), to and from bytes.

The types are those of Apache Arrow's FlightSql.proto and Flight.proto that the gateway needs; protobuf makes them from
the tables below. Fields are numbered in order. A map is a list of entries, as on the wire, and the FlightInfo in a
cancellation stays bytes, which pyarrow reads.
"""

from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from scumble.errors import InvalidParameter, UnsupportedQuery

__all__ = ["FLIGHT", "SQL", "new", "packed", "parsed", "unpacked"]

SQL, FLIGHT = "arrow.flight.protocol.sql", "arrow.flight.protocol"

_Field = descriptor_pb2.FieldDescriptorProto
TEXT, BYTES, YES, INT32, INT64, UINT32, ENUM = (
    _Field.TYPE_STRING,
    _Field.TYPE_BYTES,
    _Field.TYPE_BOOL,
    _Field.TYPE_INT32,
    _Field.TYPE_INT64,
    _Field.TYPE_UINT32,
    _Field.TYPE_INT32,  # the same on the wire
)
_KEYS = ("catalog? db_schema? table", TEXT, TEXT, TEXT)
_STATEMENT = ("query transaction_id?", TEXT, BYTES)
_HANDLE = ("prepared_statement_handle", BYTES)

# The fields of each message, with `?` if absence has a meaning and `*` for a list; then their types.
_MESSAGES: dict[str, dict[str, tuple[Any, ...]]] = {
    SQL: {
        "CommandGetSqlInfo": ("info*", UINT32),
        "CommandGetXdbcTypeInfo": ("data_type?", INT32),
        "CommandGetCatalogs": ("",),
        "CommandGetDbSchemas": ("catalog? db_schema_filter_pattern?", TEXT, TEXT),
        "CommandGetTables": (
            "catalog? db_schema_filter_pattern? table_name_filter_pattern? table_types* include_schema",
            *(TEXT, TEXT, TEXT, TEXT, YES),
        ),
        "CommandGetTableTypes": ("",),
        "CommandGetPrimaryKeys": _KEYS,
        "CommandGetExportedKeys": _KEYS,
        "CommandGetImportedKeys": _KEYS,
        "CommandGetCrossReference": (
            "pk_catalog? pk_db_schema? pk_table fk_catalog? fk_db_schema? fk_table",
            *(TEXT, TEXT, TEXT, TEXT, TEXT, TEXT),
        ),
        "CommandStatementQuery": _STATEMENT,
        "CommandStatementUpdate": _STATEMENT,
        "TableDefinitionOptions": ("if_not_exist if_exists", ENUM, ENUM),
        "CommandStatementIngest": (
            "table_definition_options table schema? catalog? temporary transaction_id?",
            *("TableDefinitionOptions", TEXT, TEXT, TEXT, YES, BYTES),
        ),
        "DoPutUpdateResult": ("record_count", INT64),
        "ActionBeginTransactionRequest": ("",),
        "ActionBeginTransactionResult": ("transaction_id", BYTES),
        "ActionEndTransactionRequest": ("transaction_id action", BYTES, ENUM),
        "CommandPreparedStatementQuery": _HANDLE,
        "CommandPreparedStatementUpdate": _HANDLE,
        "TicketStatementQuery": ("statement_handle", BYTES),
        "ActionCreatePreparedStatementRequest": _STATEMENT,
        "ActionCreatePreparedStatementResult": (
            "prepared_statement_handle dataset_schema parameter_schema",
            *(BYTES, BYTES, BYTES),
        ),
        "ActionClosePreparedStatementRequest": _HANDLE,
        "ActionCancelQueryRequest": ("info", BYTES),
        "ActionCancelQueryResult": ("result", ENUM),
        "DoPutPreparedStatementResult": ("prepared_statement_handle?", BYTES),
    },
    FLIGHT: {
        "CancelFlightInfoRequest": ("info", BYTES),
        "CancelFlightInfoResult": ("status", ENUM),
        "SessionOptionValue": ("string_value?", TEXT),
        "SessionOption": ("key value", TEXT, "SessionOptionValue"),
        "SetSessionOptionsRequest": ("session_options*", "SessionOption"),
        "SessionError": ("value", ENUM),
        "NamedSessionError": ("key value", TEXT, "SessionError"),
        "SetSessionOptionsResult": ("errors*", "NamedSessionError"),
        "GetSessionOptionsResult": ("session_options*", "SessionOption"),
        "CloseSessionResult": ("status", ENUM),
    },
}


def new(name: str, package: str = SQL, **fields: Any) -> Any:
    """Make a message from its fields."""
    return _CLASSES[f"{package}.{name}"](**fields)


def packed(message: Message) -> bytes:
    """Return the bytes of a message wrapped in an Any, as most of Flight SQL's are sent."""
    wrapped = any_pb2.Any()
    wrapped.Pack(message)
    return bytes(wrapped.SerializeToString())


def unpacked(data: bytes) -> tuple[str, Any]:
    """Return the name of the message in an Any, and the message."""
    wrapped = any_pb2.Any()
    try:
        wrapped.ParseFromString(data)
    except DecodeError:
        raise _unreadable() from None
    full = wrapped.type_url.rpartition("/")[2]
    package, _, name = full.rpartition(".")
    if package != SQL:
        raise _unreadable()
    if name not in _MESSAGES[SQL]:
        raise UnsupportedQuery(
            "the gateway does not know this Flight SQL command", hint="docs/gateway.md lists those that it does"
        )
    return name, parsed(name, wrapped.value)


def parsed(name: str, data: bytes, package: str = SQL) -> Any:
    """Read a message of a known type."""
    message = new(name, package)
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise _unreadable() from None
    return message


def _unreadable() -> InvalidParameter:
    return InvalidParameter("this is not a Flight SQL message", hint="connect with a Flight SQL driver")


def _classes() -> dict[str, Any]:
    """Make the classes in a pool of our own: another package may have classes of the same names."""
    pool, classes = descriptor_pool.DescriptorPool(), {}
    for package, messages in _MESSAGES.items():
        file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
        for name, (fields, *types) in messages.items():
            _describe(file.message_type.add(name=name), package, fields.split(), types)
        pool.Add(file)
        for name in messages:
            full = f"{package}.{name}"
            classes[full] = message_factory.GetMessageClass(pool.FindMessageTypeByName(full))
    return classes


def _describe(message: Any, package: str, fields: list[str], types: list[Any]) -> None:
    for number, (field, kind) in enumerate(zip(fields, types, strict=True), start=1):
        name = field.rstrip("?*")
        described = message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
        if field.endswith("*"):
            described.label = _Field.LABEL_REPEATED
        if field.endswith("?"):
            described.proto3_optional = True
            described.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
        if isinstance(kind, str):
            described.type, described.type_name = _Field.TYPE_MESSAGE, f".{package}.{kind}"
        else:
            described.type = kind


_CLASSES = _classes()
