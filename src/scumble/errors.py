"""Every error that Scumble raises on purpose.

    ScumbleError
    ├── DomainError            a key domain that cannot be
    │   └── OutOfDomain        a key that its domain does not hold
    ├── InvalidKeys            null, NaN or of the wrong type
    ├── InvalidParameter       epsilon, beta, max_error, ... outside what makes sense
    ├── BudgetError            the ledger says no
    │   ├── Overdraft          more epsilon or delta than the limit leaves
    │   ├── BudgetUsed         a budget that already paid for a release
    │   └── LedgerBusy         another process holds the ledger
    ├── NotFitted              a lookup before `fit`
    └── FileError              an index or ledger file that cannot be read
        ├── Corrupt            truncated, altered, or no such file format at all
        └── NewerVersion       written by a later Scumble

An error is a plain sentence; what the reader can do about it is in `hint`. No key, count or other value from the
data ever enters either.
"""

__all__ = [
    "BudgetError",
    "BudgetUsed",
    "Corrupt",
    "DomainError",
    "FileError",
    "InvalidKeys",
    "InvalidParameter",
    "LedgerBusy",
    "NewerVersion",
    "NotFitted",
    "OutOfDomain",
    "Overdraft",
    "ScumbleError",
]


class ScumbleError(Exception):
    """The root of the tree: catch this to catch everything that Scumble refuses."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class DomainError(ScumbleError):
    """A key domain that cannot be: empty, unsorted, or written wrongly."""


class OutOfDomain(DomainError):
    """A key that its domain does not hold."""


class InvalidKeys(ScumbleError):
    """Keys that are null, NaN or of a type that the domain cannot map."""


class InvalidParameter(ScumbleError):
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


class FileError(ScumbleError):
    """A file that cannot be read."""


class Corrupt(FileError):
    """A file that is truncated, altered, or not of this format."""


class NewerVersion(FileError):
    """A file written by a later version of Scumble."""
