"""PEP 249 over a database, for pandas.read_sql and other tools that speak DB-API: `scumble.connect("clinic")`.

Queries only: there is nothing to commit, and a connection shows the newest version. The errors are those of
`scumble.errors`, whose tree is PEP 249's.
"""

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

from scumble import opening
from scumble.errors import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    InternalError,
    InvalidParameter,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    ScumbleError,
    UnsupportedQuery,
)
from scumble.owner.database import Database
from scumble.owner.key_file import Passphrase

if TYPE_CHECKING:
    from scumble.owner.answers import Result, Row
    from scumble.owner.queries import Parameters

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

apilevel = "2.0"
threadsafety = 2  # threads may share connections, not cursors
paramstyle = "qmark"

Warning = UserWarning  # noqa: A001  PEP 249's name; nothing warns
Error = ScumbleError

Described = tuple[str, Any, None, None, None, None, bool | None]


def connect(
    target: opening.Target,
    *,
    key: str | PathLike[str] | None = None,
    passphrase: Passphrase = None,
    **connecting: Any,
) -> "Connection":
    """Open a database, in a folder or at scumble://HOST:PORT/NAME, as a PEP 249 connection.

    `connecting` is what else `scumble.open` takes.
    """
    return Connection(opening.open(target, key=key, passphrase=passphrase, **connecting))


class Cursor:
    """Runs queries one after the other, and fetches their rows. Not for several threads at a time."""

    arraysize = 1

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self._result: Result | None = None
        self._closed = False

    def execute(self, operation: str, parameters: "Parameters" = ()) -> Self:
        """Run a query; `?` takes parameters from a sequence, `$name` from a mapping."""
        self._result = self._database.sql(operation, parameters or ())
        return self

    def executemany(self, operation: str, seq_of_parameters: Sequence["Parameters"]) -> Self:
        """Raise NotSupportedError: it is for statements that change data, and there are none."""
        raise UnsupportedQuery(
            "executemany is for statements that change data", hint="call execute for each, or `load` to add rows"
        )

    @property
    def description(self) -> list[Described] | None:
        """For each column of the result its name and Arrow type; PEP 249's other five fields are None."""
        if self._result is None:
            return None
        schema = self._result.arrow().schema
        return [(field.name, field.type, None, None, None, None, None) for field in schema]

    @property
    def rowcount(self) -> int:
        """How many rows the last query returned; -1 before any."""
        return -1 if self._result is None else len(self._result)

    def fetchone(self) -> "Row | None":
        """The next row, or None after the last."""
        return self._fetching.fetchone()

    def fetchmany(self, size: int | None = None) -> "list[Row]":
        """The next `size` rows, or `arraysize` of them; fewer at the end."""
        return self._fetching.fetchmany(self.arraysize if size is None else size)

    def fetchall(self) -> "list[Row]":
        return self._fetching.fetchall()

    def arrow(self) -> Any:
        """The whole result as an Arrow table."""
        return self._fetching.arrow()

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Do nothing: PEP 249 allows that."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing: PEP 249 allows that."""

    def close(self) -> None:
        self._closed, self._result = True, None

    @property
    def _database(self) -> Database:
        if self._closed:
            raise InvalidParameter("the cursor is closed", hint="make a new one")
        return self.connection.database

    @property
    def _fetching(self) -> "Result":
        if self._closed or self._result is None:
            raise InvalidParameter("there is no result to fetch from", hint="execute a query first")
        return self._result

    def __iter__(self) -> "Iterator[Row]":
        while (row := self.fetchone()) is not None:
            yield row

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Connection:
    """A connection in the sense of PEP 249, over a `Database`."""

    # PEP 249 wants the errors here too, for code that has a connection and not its module.
    Warning = Warning
    Error = Error
    InterfaceError = InterfaceError
    DatabaseError = DatabaseError
    DataError = DataError
    OperationalError = OperationalError
    IntegrityError = IntegrityError
    InternalError = InternalError
    ProgrammingError = ProgrammingError
    NotSupportedError = NotSupportedError

    def __init__(self, database: Database) -> None:
        self._database: Database | None = database

    @property
    def database(self) -> Database:
        """The database; refused once the connection is closed."""
        if self._database is None:
            raise InvalidParameter("the connection is closed", hint="connect again")
        return self._database

    def cursor(self) -> Cursor:
        self.database  # noqa: B018  refuses if it is closed
        return Cursor(self)

    def execute(self, operation: str, parameters: "Sequence[Any] | Mapping[str, Any]" = ()) -> Cursor:
        return self.cursor().execute(operation, parameters)

    def commit(self) -> None:
        """Do nothing: queries change nothing."""
        self.database  # noqa: B018  refuses if it is closed

    def rollback(self) -> None:
        """Do nothing: queries change nothing."""
        self.database  # noqa: B018  refuses if it is closed

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
