"""PEP 249 over a database: `scumble.connect(...)`, for pandas.read_sql and whatever else speaks DB-API.

Queries only: there is nothing to commit, and a connection shows the newest version. Errors are Scumble's own, under the
names that PEP 249 gives them.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from scumble.errors import InvalidParameter, QueryError, ScumbleError, UnsupportedQuery
from scumble.owner.answers import Result, Row
from scumble.owner.database import Database

if TYPE_CHECKING:
    from scumble.owner.queries import Parameters

__all__ = ["Connection", "Cursor", "apilevel", "paramstyle", "threadsafety"]

apilevel = "2.0"
threadsafety = 2  # threads may share connections, not cursors
paramstyle = "qmark"

Described = tuple[str, Any, None, None, None, None, bool | None]


class Cursor:
    """Runs queries one after the other, and gives their rows."""

    arraysize = 1

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self._result: Result | None = None
        self._closed = False

    def execute(self, operation: str, parameters: "Parameters" = ()) -> Self:
        """Run a query."""
        self._result = self._database.sql(operation, parameters or ())
        return self

    def executemany(self, operation: str, seq_of_parameters: Sequence["Parameters"]) -> Self:
        """Refused: it is for statements that change data, and there are none."""
        raise UnsupportedQuery(
            "executemany is for statements that change data", hint="call execute for each, or `load` to add rows"
        )

    @property
    def description(self) -> list[Described] | None:
        """For each column of the result: name, Arrow type, and five times what is not known."""
        if self._result is None:
            return None
        schema = self._result.arrow().schema
        return [(field.name, field.type, None, None, None, None, None) for field in schema]

    @property
    def rowcount(self) -> int:
        """How many rows the last query found; -1 before any."""
        return -1 if self._result is None else len(self._result)

    def fetchone(self) -> Row | None:
        """The next row, or None."""
        return self._fetching.fetchone()

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """The next rows."""
        return self._fetching.fetchmany(self.arraysize if size is None else size)

    def fetchall(self) -> list[Row]:
        """All rows that are left."""
        return self._fetching.fetchall()

    def arrow(self) -> Any:
        """The whole result as an Arrow table."""
        return self._fetching.arrow()

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Nothing to do."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Refuse everything from now on."""
        self._closed, self._result = True, None

    @property
    def _database(self) -> Database:
        if self._closed:
            raise InvalidParameter("the cursor is closed", hint="make a new one")
        return self.connection.database

    @property
    def _fetching(self) -> Result:
        if self._closed or self._result is None:
            raise InvalidParameter("there is no result to fetch from", hint="execute a query first")
        return self._result

    def __iter__(self) -> Iterator[Row]:
        while (row := self.fetchone()) is not None:
            yield row

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Connection:
    """A connection in the sense of PEP 249, over a `Database`."""

    Warning = UserWarning
    Error = ScumbleError
    InterfaceError = ScumbleError
    DatabaseError = ScumbleError
    DataError = QueryError
    OperationalError = ScumbleError
    IntegrityError = ScumbleError
    InternalError = ScumbleError
    ProgrammingError = QueryError
    NotSupportedError = UnsupportedQuery

    def __init__(self, database: Database) -> None:
        self._database: Database | None = database

    @property
    def database(self) -> Database:
        """The database; refused once the connection is closed."""
        if self._database is None:
            raise InvalidParameter("the connection is closed", hint="connect again")
        return self._database

    def cursor(self) -> Cursor:
        """A new cursor."""
        self.database  # noqa: B018  refuses if it is closed
        return Cursor(self)

    def execute(self, operation: str, parameters: "Sequence[Any] | Mapping[str, Any]" = ()) -> Cursor:
        """Run a query on a new cursor."""
        return self.cursor().execute(operation, parameters)

    def commit(self) -> None:
        """Nothing to do: queries change nothing."""
        self.database  # noqa: B018  refuses if it is closed

    def rollback(self) -> None:
        """Nothing to do."""
        self.database  # noqa: B018  refuses if it is closed

    def close(self) -> None:
        """Close the database."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
