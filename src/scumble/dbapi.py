"""Scumble as a PEP 249 module, for tools that want one: `import scumble.dbapi as dbapi; dbapi.connect("clinic")`."""

from scumble.embedded import connect
from scumble.owner.dbapi import Connection, Cursor, apilevel, paramstyle, threadsafety

__all__ = [
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]

Warning = Connection.Warning  # noqa: A001  PEP 249's name
Error = Connection.Error
InterfaceError = Connection.InterfaceError
DatabaseError = Connection.DatabaseError
DataError = Connection.DataError
OperationalError = Connection.OperationalError
IntegrityError = Connection.IntegrityError
InternalError = Connection.InternalError
ProgrammingError = Connection.ProgrammingError
NotSupportedError = Connection.NotSupportedError
