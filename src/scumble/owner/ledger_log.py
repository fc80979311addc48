"""The ledger's records, on disk or in memory: a log that can be appended to, and not changed unnoticed.

A reader gets every committed record once and in order, after the hash chain was checked. The file (SQLite, readable by
its owner alone) holds no data, only amounts and labels that the owner chose.

Why one connection per transaction: nothing is open when the process forks, a ledger that was deleted or replaced is
noticed instead of written to, and threads need no care. Why a rollback journal and `synchronous=EXTRA`: the ledger
stays one file, and EXTRA also syncs the folder after the journal is gone, without which a power cut can bring the
journal back and undo a spend that had already returned. The chain shows accidents and edits; a file that was rewritten
as a whole with new hashes, or replaced with an old copy, passes.
"""

import hashlib
import json
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from scumble import durable
from scumble.errors import BudgetError, Corrupt, FileError, LedgerBusy, NewerVersion, ScumbleError
from scumble.privacy.budget import Partition, from_ratio, ratio

__all__ = ["LedgerLog", "Record", "Transaction", "create", "is_there"]

_APPLICATION_ID = 0x5363756D  # "Scum"
_VERSION = 2  # 1, which release 0.1 wrote, has the same schema and fewer kinds of records
_NEW_KINDS = frozenset({"load", "load of new rows", "content", "leave"})
_COLUMNS = "id, kind, time, label, epsilon, delta, rows_per_user, partition_group, partition_part, spend, hash"
_SCHEMA = {
    "record": """CREATE TABLE record (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    time TEXT NOT NULL,
    label TEXT NOT NULL,
    epsilon TEXT NOT NULL,
    delta TEXT NOT NULL,
    rows_per_user INTEGER NOT NULL,
    partition_group TEXT,
    partition_part TEXT,
    spend INTEGER NOT NULL,
    hash BLOB NOT NULL
)""",
    "record_stays": """CREATE TRIGGER record_stays BEFORE DELETE ON record
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END""",
    "record_is_fixed": """CREATE TRIGGER record_is_fixed BEFORE UPDATE ON record
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END""",
    # INSERT OR REPLACE deletes without firing a delete trigger.
    "record_comes_last": """CREATE TRIGGER record_comes_last BEFORE INSERT ON record
WHEN NEW.id IS NOT (SELECT coalesce(max(id), 0) + 1 FROM record)
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END""",
}

# Held during every transaction and while the process forks, so that a child never inherits half of one.
_one_at_a_time = threading.RLock()
os.register_at_fork(
    before=_one_at_a_time.acquire,
    after_in_parent=_one_at_a_time.release,
    after_in_child=_one_at_a_time.release,
)


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the log. `spend` is the id of the spend that a draw, cancel, settle or leave is about, else 0."""

    id: int
    kind: str
    time: datetime
    label: str = ""
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rows_per_user: int = 1
    partition: Partition | None = None
    spend: int = 0


class Transaction:
    """A transaction that appends: everything committed before it is known, and no other process can write meanwhile."""

    def __init__(self, connection: sqlite3.Connection, head: tuple[int, bytes]) -> None:
        self._connection = connection
        self.head = head
        self.appended: list[Record] = []

    def append(
        self,
        kind: str,
        *,
        label: str = "",
        epsilon: Fraction = Fraction(0),
        delta: Fraction = Fraction(0),
        rows_per_user: int = 1,
        partition: Partition | None = None,
        spend: int = 0,
        now: datetime | None = None,
    ) -> Record:
        """Append a record. It is durable, and counts, once the transaction has ended."""
        number, previous = self.head[0] + 1, self.head[1]
        time = (now or datetime.now(UTC)).replace(microsecond=0)
        record = Record(number, kind, time, label, epsilon, delta, rows_per_user, partition, spend)
        if kind in _NEW_KINDS:  # from here on release 0.1 must not read the file, as it would count too little
            self._connection.execute(f"PRAGMA user_version = {_VERSION}")
        row = _row(record)
        digest = _digest(previous, row)
        self._connection.execute(
            f"INSERT INTO record ({_COLUMNS}) VALUES ({', '.join('?' * 11)})",  # noqa: S608 (constants only)
            (*row, digest),
        )
        self.head = (number, digest)
        self.appended.append(record)
        return record


class LedgerLog:
    """A log file at `path`, or, where `path` is None, a log in memory, which `begin` lays out.

    `follow` is called with every committed record, once and in order, from this process or another.
    """

    def __init__(self, path: Path | None, follow: Callable[[Record], None], busy_seconds: float = 5) -> None:
        self.path = path
        self._follow = follow
        self._busy_seconds = busy_seconds
        self._head = (0, bytes(32))
        self._closed = False
        self._process = os.getpid()
        self._memory: sqlite3.Connection | None = None
        if path is None:
            self._memory = _connect(":memory:", 0)
            weakref.finalize(self, self._memory.close)

    def begin(self, epsilon: Fraction, delta: Fraction) -> None:
        """Lay out a log in memory and append its limits."""
        if self._memory is None:
            raise ValueError("a log on disk begins with `create`")
        _lay_out(self._memory, epsilon, delta)

    def close(self) -> None:
        """Close the log: it refuses everything afterwards, and one in memory is gone."""
        with _one_at_a_time:
            self._closed = True
            if self._memory is not None:
                self._memory.close()

    def catch_up(self) -> None:
        """Follow the records that any process has committed since the last transaction."""
        with self._transaction("BEGIN"):
            pass

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Catch up, then hold the log for writing; commit durably at the end, or undo all on an error."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            transaction = Transaction(connection, self._head)
            yield transaction
            _commit(connection)
            for record in transaction.appended:
                self._follow(record)
            self._head = transaction.head

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with _one_at_a_time, _sqlite_errors_explained(self.path):
            connection = self._connection()
            try:
                connection.execute(begin)
                _check_format(connection, self.path)
                self._read_on(connection)
                yield connection
            finally:
                if connection.in_transaction:
                    # Where the disk failed, closing undoes it as well.
                    with suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                if connection is not self._memory:
                    connection.close()

    def _connection(self) -> sqlite3.Connection:
        if self._closed:
            raise BudgetError("the ledger is closed", hint="open it again with Ledger.open")
        if self._memory is None:
            return _connect(f"{_there(self.path).as_uri()}?mode=rw", self._busy_seconds)
        if os.getpid() != self._process:
            raise BudgetError(
                "a ledger in memory cannot be used after a fork: parent and child would both spend it",
                hint="keep it in a file with Ledger.open",
            )
        return self._memory

    def _read_on(self, connection: sqlite3.Connection) -> None:
        known, head = self._head
        rows = connection.execute(
            f"SELECT {_COLUMNS} FROM record WHERE id >= ? ORDER BY id",  # noqa: S608 (constants only)
            (known or -(1 << 63),),  # at first also what no ledger numbers so
        ).fetchall()
        if known:
            if not rows or rows[0][0] != known or rows[0][-1] != head:
                raise _altered(self.path)
            del rows[0]
        last = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'record'").fetchone()
        if last != (known + len(rows),):
            raise _altered(self.path)
        for *row, digest in rows:
            number, previous = self._head
            if row[0] != number + 1 or digest != _digest(previous, tuple(row)):
                raise _altered(self.path)
            self._follow(_record(tuple(row), self.path))
            self._head = (number + 1, digest)


def create(path: Path, epsilon: Fraction, delta: Fraction) -> None:
    """Make a ledger file with these limits, whole or not at all; one that is there already stays as it is."""
    with _sqlite_errors_explained(path), closing(_connect(":memory:", 0)) as connection:
        _lay_out(connection, epsilon, delta)
        content = connection.serialize()
    try:
        with suppress(FileExistsError):
            durable.create(path, content, 0o600)
    except OSError as error:
        raise FileError(
            f"a ledger cannot be created at {path}: {error.strerror}",
            hint="its folder has to exist and to be writable",
        ) from error


def _connect(database: str, busy_seconds: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        database, timeout=busy_seconds, isolation_level=None, check_same_thread=False, uri=True
    )
    try:
        # The journal mode is left at its default, DELETE: to set it would change a file that may not be ours.
        connection.execute("PRAGMA synchronous = EXTRA")
    except BaseException:
        connection.close()
        raise
    return connection


def _lay_out(connection: sqlite3.Connection, epsilon: Fraction, delta: Fraction) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {_VERSION}")
    for statement in _SCHEMA.values():
        connection.execute(statement)
    Transaction(connection, (0, bytes(32))).append("limit", epsilon=epsilon, delta=delta)
    _commit(connection)


def _commit(connection: sqlite3.Connection) -> None:
    connection.execute("COMMIT")


def _check_format(connection: sqlite3.Connection, path: Path | None) -> None:
    if connection.execute("PRAGMA application_id").fetchone() != (_APPLICATION_ID,):
        raise Corrupt(f"{path} is not a Scumble ledger", hint="restore it from a backup, or name another file")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > _VERSION:
        raise NewerVersion(
            f"the ledger {path} was written by a later Scumble (format {version}, this one reads {_VERSION})",
            hint="upgrade Scumble",
        )
    schema = connection.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")
    if version not in (1, _VERSION) or dict(schema) != _SCHEMA:
        raise _altered(path)


def is_there(path: Path) -> bool:
    """Tell whether anything is at `path`."""
    try:
        return path.exists()
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be looked at", hint="check the path and its permissions") from error


def _there(path: Path | None) -> Path:
    if path is None or not is_there(path):
        raise FileError(f"there is no ledger at {path}", hint="pass limit= to Ledger.open to create one")
    return path


def _row(record: Record) -> tuple[Any, ...]:
    group, part = record.partition or (None, None)
    return (
        record.id,
        record.kind,
        record.time.isoformat(timespec="seconds"),
        record.label,
        ratio(record.epsilon),
        ratio(record.delta),
        record.rows_per_user,
        group,
        part,
        record.spend,
    )


def _record(row: tuple[Any, ...], path: Path | None) -> Record:
    try:
        number, kind, time, label, epsilon, delta, rows_per_user, group, part, spend = row
        record = Record(
            number,
            kind,
            datetime.fromisoformat(time),
            label,
            from_ratio(epsilon),
            from_ratio(delta),
            rows_per_user,
            None if group is None else (group, part),
            spend,
        )
    except (TypeError, ValueError) as error:
        raise _altered(path) from error
    whole = all(type(number) is int for number in (record.id, record.rows_per_user, record.spend))
    if not whole or _row(record) != row:
        raise _altered(path)
    return record


def _digest(previous: bytes, row: tuple[Any, ...]) -> bytes:
    try:
        content = json.dumps(row, separators=(",", ":")).encode("ascii")
    except TypeError:  # a blob where text or a number belongs
        return b""
    return hashlib.sha256(previous + content).digest()


def _altered(path: Path | None) -> Corrupt:
    return Corrupt(
        f"the ledger {path} is damaged: its records do not follow from one another",
        hint="restore it from a backup; what it had paid for stays spent",
    )


@contextmanager
def _sqlite_errors_explained(path: Path | None) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError:
        raise _altered(path) from None
    except MemoryError:
        raise Corrupt(
            f"the ledger {path} asks for more memory than there is: it may be damaged",
            hint="restore it from a backup, unless the machine is short of memory",
        ) from None
    except sqlite3.Error as error:
        raise _explain(error, path) from error


def _explain(error: sqlite3.Error, path: Path | None) -> ScumbleError:
    # Errors that Python itself raises here (text that is not UTF-8) carry no code: the file is damaged.
    match getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return LedgerBusy(
                "the ledger is locked by another process",
                hint="try again when it is done; nothing was spent",
            )
        case (
            sqlite3.SQLITE_READONLY
            | sqlite3.SQLITE_CANTOPEN
            | sqlite3.SQLITE_PERM
            | sqlite3.SQLITE_AUTH
            | sqlite3.SQLITE_IOERR
            | sqlite3.SQLITE_FULL
        ):
            return FileError(
                f"the ledger {path} cannot be read or written: {error}",
                hint="check its permissions and the disk",
            )
        case _:
            return Corrupt(f"the ledger {path} is damaged: {error}", hint="restore it from a backup")
