"""PEP 249 over a database, for pandas.read_sql and other tools that speak DB-API: `scumble.connect("clinic")`.

A connection shows the newest version, and by default each change is one of its own at once (`autocommit`), since a
transaction that is left open keeps all others from writing. `begin` starts one, or `with connection.transaction()`. The
errors are those of `scumble.errors`, whose tree is PEP 249's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
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
    autocommit: bool = True,
    **connecting: Any,
) -> "Connection":
    """Open a database, in a folder or at scumble://HOST:PORT/NAME, as a PEP 249 connection.

    Without `autocommit`, the first change begins a transaction, as PEP 249 has it. `connecting` is what else
    `scumble.open` takes.
    """
    database = opening.open(target, key=key, passphrase=passphrase, **connecting)
    return Connection(database, autocommit=autocommit)


class Cursor:
    """Runs statements one after the other, and fetches their rows. Not for several threads at a time."""

    arraysize = 1

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self._result: Result | None = None
        self._changed = -1
        self._closed = False

    def execute(self, operation: str, parameters: "Parameters" = ()) -> Self:
        """Run a statement; `?` takes parameters from a sequence, `$name` from a mapping."""
        from scumble.owner.changing import ChangeReport

        self._result, self._changed = None, -1
        done = self._ready(operation).execute(operation, parameters or ())
        if not isinstance(done, ChangeReport):
            self._result = done
        elif done.table:  # BEGIN and the like change nothing themselves
            self._changed = done.rows
        return self

    def executemany(self, operation: str, seq_of_parameters: Iterable["Parameters"]) -> Self:
        """Run a statement that changes rows with many sets of parameters, as one change.

        An INSERT of one row of VALUES adds all rows in one batch, which takes room for them together.
        """
        self._result, self._changed = None, -1
        self._changed = self._ready(operation).execute_many(operation, seq_of_parameters).rows
        return self

    def _ready(self, operation: str) -> Database:
        """The database, with a transaction begun if this statement has to be in one."""
        database = self._database
        self.connection._begin_for(operation)
        return database

    @property
    def description(self) -> list[Described] | None:
        """For each column of the result its name and Arrow type; PEP 249's other five fields are None."""
        if self._result is None:
            return None
        schema = self._result.arrow().schema
        return [(field.name, field.type, None, None, None, None, None) for field in schema]

    @property
    def rowcount(self) -> int:
        """How many rows the last query returned, or the last change has changed; -1 before any."""
        return self._changed if self._result is None else len(self._result)

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

    def __init__(self, database: Database, *, autocommit: bool = True) -> None:
        self._database: Database | None = database
        self._autocommit = autocommit

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

    def executemany(self, operation: str, seq_of_parameters: "Iterable[Parameters]") -> Cursor:
        return self.cursor().executemany(operation, seq_of_parameters)

    @property
    def autocommit(self) -> bool:
        """Whether each change is a version of its own, unless `begin` was called. To set it commits what is open.

        Without it, the first change begins a transaction, which lasts until `commit` or `rollback`. Nobody else can
        change the database meanwhile.
        """
        return self._autocommit

    @autocommit.setter
    def autocommit(self, autocommit: bool) -> None:
        self.commit()
        self._autocommit = autocommit

    @property
    def in_transaction(self) -> bool:
        return self.database.in_transaction

    def begin(self) -> None:
        """Begin a transaction: what is changed from now on becomes one version with `commit`."""
        self.database.execute("BEGIN")

    def transaction(self) -> AbstractContextManager[None]:
        """A `with` block whose changes become one version, or none if it fails."""
        return self.database.transaction()

    def commit(self) -> None:
        """Commit the transaction that is open; do nothing if there is none."""
        if self.database.in_transaction:
            self.database.execute("COMMIT")

    def rollback(self) -> None:
        """Give up the transaction that is open; do nothing if there is none."""
        if self.database.in_transaction:
            self.database.execute("ROLLBACK")

    def _begin_for(self, operation: str) -> None:
        """Begin a transaction for a change, if it should be in one and is not."""
        from scumble.sql.parse import is_control, is_query

        if self._autocommit or self.database.in_transaction or is_query(operation) or is_control(operation):
            return
        self.begin()

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
