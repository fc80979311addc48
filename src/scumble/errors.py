"""Every error that Scumble raises on purpose.

    ScumbleError                       (PEP 249's Error)
    ├── DomainError                    a key domain that cannot be
    │   └── OutOfDomain                a key that its domain does not hold
    ├── InvalidKeys                    null, NaN or of the wrong type
    ├── BudgetError                    the ledger says no
    │   ├── Overdraft                  more epsilon or delta than the limit leaves
    │   ├── BudgetUsed                 a budget that already paid for a release
    │   └── LedgerBusy                 another process holds the ledger
    ├── NotFitted                      a lookup before `fit`
    ├── InterfaceError                 a call that makes no sense
    │   └── InvalidParameter           epsilon, beta, max_error, ... outside what makes sense; a closed cursor
    └── DatabaseError                  a database that cannot do what was asked
        ├── OperationalError           not now, not here, or not with this key
        │   ├── FileError              an index, ledger or database file that cannot be read or written
        │   │   ├── Corrupt            truncated, altered, or no such file format at all
        │   │   └── NewerVersion       written by a later Scumble
        │   ├── Busy                   another process is writing
        │   ├── Locked                 the owner has to connect to the enclave first
        │   ├── Stale                  the table changed under a prepared statement or a slow reader
        │   ├── KeyRefused             no key file, a wrong passphrase, or a key of another database
        │   ├── TooManyPlans           the enclave keeps as many plans for this key as it may
        │   ├── AttestationRefused     evidence that does not prove which code runs in the enclave
        │   ├── Unwitnessed            fewer witnesses have cosigned the version than the key's holder demands
        │   └── Unavailable            the service cannot be reached, or has lost the session
        │       ├── Stopping           the service is about to end, and takes nothing new
        │       └── Unfinished         a change that was cut off: it has spent, or nobody knows whether it was made
        ├── ProgrammingError           a request that this database cannot serve
        │   ├── NotFound               no such database, table or column
        │   ├── Exists                 there is one already
        │   ├── Refused                the enclave grants this key no right to do that
        │   └── BadQuery               not SQL, or names what is not there; also a QueryError
        ├── DataError                  values that do not fit
        │   ├── BadRows                rows that cannot be loaded, and which
        │   └── Overflow               a sum or product beyond 128 bits; also a QueryError
        ├── NotSupportedError
        │   └── UnsupportedQuery       SQL that Scumble refuses rather than answer wrongly; also a QueryError
        ├── InternalError
        │   └── Tampered               what came back from the provider is not what was stored
        │       └── Disputed           a witness has seen a signed version that this one does not follow
        ├── IntegrityError             never raised: tables have no constraints
        └── QueryError                 SQL that cannot be answered

InterfaceError, DatabaseError and the first six classes under it are PEP 249's: `scumble.dbapi` exports these very
classes. Which error is of which kind follows the drivers of PostgreSQL: a missing table is a ProgrammingError, a wrong
passphrase an OperationalError, damage an InternalError.

An error is a plain sentence; what the reader can do about it is in `hint`. No key, count or other value from the
data ever enters either. Errors about rows also carry `row` and `column`.
"""

from typing import Self

__all__ = [
    "AttestationRefused",
    "BadQuery",
    "BadRows",
    "BudgetError",
    "BudgetUsed",
    "Busy",
    "Corrupt",
    "DataError",
    "DatabaseError",
    "Disputed",
    "DomainError",
    "Exists",
    "FileError",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "InvalidKeys",
    "InvalidParameter",
    "KeyRefused",
    "LedgerBusy",
    "Locked",
    "NewerVersion",
    "NotFitted",
    "NotFound",
    "NotSupportedError",
    "OperationalError",
    "OutOfDomain",
    "Overdraft",
    "Overflow",
    "ProgrammingError",
    "QueryError",
    "Refused",
    "ScumbleError",
    "Stale",
    "Stopping",
    "Tampered",
    "TooManyPlans",
    "Unavailable",
    "Unfinished",
    "UnsupportedQuery",
    "Unwitnessed",
]


class ScumbleError(Exception):
    """The root of the tree: catch this to catch everything that Scumble refuses."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class _AboutRow(ScumbleError):
    """An error that knows which `row` it is about, counted as its message counts, and which `column`.

    A refused key is written in two parts, the `subject` ("the key") and what is wrong with it (" is null"), so that
    `at` can say the same of another row: "the key in row 7 is null".
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        row: int | None = None,
        column: str | None = None,
        subject: str = "",
    ) -> None:
        where = f" in row {row}" if subject and row is not None else ""
        super().__init__(f"{subject}{where}{message}", hint=hint)
        self.row = row
        self.column = column
        self._parts = subject, message

    def at(self, row: int | None) -> Self:
        """Return the same refusal about another row, or without one: batches and null-free columns count their own."""
        subject, trouble = self._parts
        return type(self)(trouble, hint=self.hint, row=row, column=self.column, subject=subject)


class DomainError(ScumbleError):
    """A key domain that cannot be: empty, unsorted, or written wrongly."""


class OutOfDomain(_AboutRow, DomainError):
    """A key that its domain does not hold."""


class InvalidKeys(_AboutRow):
    """Keys that are null, NaN or of a type that the domain cannot map."""


class InterfaceError(ScumbleError):
    """A call that makes no sense, whatever the database."""


class InvalidParameter(InterfaceError):
    """A parameter outside the values that make sense."""


class BudgetError(ScumbleError):
    """The ledger refuses."""


class Overdraft(BudgetError):
    """More epsilon or delta than the limit leaves."""


class BudgetUsed(BudgetError):
    """A budget that has already paid for a release, or was cancelled."""


class LedgerBusy(BudgetError):
    """Another process holds the ledger."""


class NotFitted(ScumbleError):
    """A lookup before `fit`."""


class DatabaseError(ScumbleError):
    """A database that cannot do what was asked."""


class OperationalError(DatabaseError):
    """Something that the database depends on is not there: a file, a key, the service, the right moment."""


class ProgrammingError(DatabaseError):
    """A request that this database cannot serve: it names what is not there, or is not allowed."""


class DataError(DatabaseError):
    """Values that do not fit."""


class NotSupportedError(DatabaseError):
    """Something that Scumble does not do."""


class InternalError(DatabaseError):
    """The database is not in the state that it should be in."""


class IntegrityError(DatabaseError):
    """Never raised, since tables have no constraints; PEP 249 wants the name."""


class FileError(OperationalError):
    """A file that cannot be read or written."""


class Corrupt(FileError):
    """A file that is truncated, altered, or not of this format."""


class NewerVersion(FileError):
    """A file written by a later version of Scumble."""


class NotFound(ProgrammingError):
    """No such database, table or column."""


class Exists(ProgrammingError):
    """There is one already."""


class Busy(OperationalError):
    """Another process is writing to the database."""


class Refused(ProgrammingError):
    """The enclave grants this key no right to do that. It never says more: not who has one, nor to what."""

    def __init__(self) -> None:
        super().__init__("the enclave refuses this to your key", hint="ask the database's owner for a grant")


class Locked(OperationalError):
    """The enclave does not have the database's key: its owner has to connect first."""

    def __init__(self) -> None:
        super().__init__("the database is locked", hint="its owner has to connect to this enclave first")


class Stale(OperationalError):
    """The table changed since the request was planned: plan again."""


class BadRows(_AboutRow, DataError):
    """Rows that cannot be loaded; `row` and `column` say which, and nothing says what is in them."""


class KeyRefused(OperationalError):
    """No key file, a wrong passphrase, or the key of another database."""


class Unavailable(OperationalError):
    """The service cannot be reached, is overloaded, or has lost the session: what was asked may be asked again."""


class Stopping(Unavailable):
    """The service is about to end, and takes nothing new: no enclave has seen what was asked."""


class TooManyPlans(OperationalError):
    """The enclave keeps as many plans for this key as it may: forget them, and prepare again what is needed."""

    def __init__(self, message: str = "the enclave keeps too many plans for this key", hint: str | None = None) -> None:
        super().__init__(message, hint=hint or "close sessions that are not used, or ask with parameters")


class Unfinished(Unavailable):
    """A change that was cut off after something was spent, or of which nobody knows whether it was made."""


class AttestationRefused(OperationalError):
    """Evidence that does not prove which code runs in the enclave, and which check it failed."""


class Unwitnessed(OperationalError):
    """Fewer witnesses have cosigned a version than is demanded. `stored`: it was made here, and is in the database."""

    stored = False


class Tampered(InternalError):
    """What came back from the provider is not what was stored: altered, swapped, truncated or out of date.

    It never says more: which check failed would only help an attacker.
    """

    def __init__(self) -> None:
        super().__init__(
            "the database was tampered with, damaged or rolled back",
            hint="restore the folder from a backup; `scumble check` looks at every page",
        )


class Disputed(Tampered):
    """A witness has seen a version, signed as it has to be, that the one shown does not follow: a fork or a rollback.

    Unlike other Tampered it says what it knows, all of which is public: `statements` are the two versions as signed,
    and `restores` is how often, as the witness has seen it, an owner has taken an older version for the newest.
    """

    def __init__(self, message: str, *, restores: int = 0, statements: tuple[object, ...] = ()) -> None:
        ScumbleError.__init__(
            self,
            message,
            hint="keep both statements as proof, and ask the provider; if you have restored a backup, accept it with "
            "`scumble check --accept-restored`",
        )
        self.restores, self.statements = restores, statements


class QueryError(DatabaseError):
    """SQL that cannot be answered."""


class BadQuery(QueryError, ProgrammingError):
    """Not SQL, or SQL that names what is not there."""


class UnsupportedQuery(QueryError, NotSupportedError):
    """SQL that Scumble refuses rather than answer wrongly."""


class Overflow(QueryError, DataError):
    """A sum or a product beyond 128 bits."""
