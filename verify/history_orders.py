"""Carry out the orders of a history on a database, in a process that may be told to die at one of its writes.

An order is a tuple: its kind and what belongs to it. What comes back is compared with what DuckDB made of the same.
`die_at` counts the calls that change a file, and the commits of the ledger; the process kills itself at a chosen one,
half-way through if it is a write.
"""

# ruff: noqa: S608  statements are made of parts here

import builtins
import importlib
import io
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pandas  # noqa: F401  DuckDB and Arrow look for it
import pyarrow as pa

import scumble
from scumble.errors import ScumbleError
from scumble.owner import ledger_log
from scumble.owner.changing import ChangeReport
from scumble.owner.database import Database
from scumble.store import open_store, restoring
from scumble.store.backup import backup_to, restore_from
from scumble.wire.catalog import Table, column_of_term
from verify import patch
from verify.history_mirror import REFUSED
from verify.history_statements import Order

__all__ = ["FAULTS", "carry_out", "rooms_of", "work"]

for _name in ("pyarrow.pandas_compat", "scipy.optimize", "scipy.special", "numpy.fft", "numpy.testing"):
    importlib.import_module(_name)
# Imported once, so that no process that takes the place of a dead one has to do it anew.
for _name in ("enclave.lines", "opening", "owner.remote.address", "owner.sources.frames", "provider.front", "sql"):
    importlib.import_module(f"scumble.{_name}")
for _name in ("compacting", "defining", "loading", "queries", "reindexing", "schema_file"):
    importlib.import_module(f"scumble.owner.{_name}")

PAGE_ROWS = 16
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CALLS = ("write", "pwrite", "posix_fallocate", "ftruncate", "fsync", "replace", "rename", "link", "unlink", "mkdir")


REFUSALS = (
    scumble.errors.BadRows,
    scumble.errors.QueryError,
    scumble.errors.DomainError,
    scumble.errors.InvalidParameter,
    scumble.errors.Exists,
    scumble.errors.NotFound,
)


def carry_out(db: Database, order: Order) -> Any:
    """Do what an order says: the number of changed rows, the rows that were asked for, or REFUSED."""
    kind, *given = order
    found = _WAYS[kind](db, *given)
    return None if kind in UPKEEP else found


UPKEEP = ("flush", "compact", "check", "rekey", "vacuum")  # of which only the tables are compared


def _sql(db: Database, text: str, params: tuple[Any, ...], capacity: int | None) -> int | str:
    try:
        report = db.execute(text, params, capacity=capacity)
    except REFUSALS:
        return REFUSED
    assert isinstance(report, ChangeReport)
    return report.rows


def _all(db: Database, orders: list[Order], whole: bool) -> tuple[list[Any], bool]:
    """A transaction: what came of its statements, and whether it was made."""
    db.execute("BEGIN")
    found = [carry_out(db, order) for order in orders]
    if not whole:
        db.execute("ROLLBACK")
        return found, False
    try:
        db.execute("COMMIT")
    except scumble.errors.InvalidParameter:
        return found, False
    return found, True


def _ask(db: Database, query: str) -> list[Any]:
    return sorted(db.sql(query).fetchall(), key=repr)


def _whole(db: Database) -> dict[str, Any]:
    """All tables: the names of their columns, those with an index, and their rows."""
    return {table.name: (*_shape(table), _ask(db, f"SELECT * FROM {table.name}")) for table in db.tables}


def _shape(table: Table) -> tuple[list[str], list[str]]:
    indexed = {column_of_term(term) for term in table.terms} | {name for name in table.attributes if name is not None}
    return [column.name for column in table.schema], sorted(indexed)


def _load(db: Database, table: str, rows: list[Any], types: dict[str, str], terms: list[str]) -> int:
    capacity = -(-len(rows) // PAGE_ROWS) * PAGE_ROWS
    source = _frame(rows, types)
    return db.load(table, source, indexes=terms, types=types, capacity=capacity, page_rows=PAGE_ROWS, again=True).rows


def _frame(rows: list[Any], types: dict[str, str]) -> pa.Table:
    kinds = {name: "VARCHAR" if kind[:4] in ("text", "cate") else kind for name, kind in types.items()}
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE s ({', '.join(f'{name} {kind}' for name, kind in kinds.items())})")
        connection.executemany(f"INSERT INTO s VALUES ({', '.join('?' for _ in kinds)})", rows)
        return connection.sql("SELECT * FROM s").to_arrow_table()


def _insert(db: Database, table: str, rows: list[Any]) -> int:
    return db.insert(table, rows)


def _update(db: Database, table: str, rows: list[dict[str, Any]], keys: tuple[str, ...]) -> int:
    return db.update(table, rows, keys=keys)


def _reindex(db: Database, table: str) -> None:
    with suppress(scumble.errors.NotFound):  # all rows are in the tail
        db.execute(f"REINDEX {table}")


_WAYS: dict[str, Callable[..., Any]] = {
    "sql": _sql,
    "all": _all,
    "ask": _ask,
    "whole": _whole,
    "load": _load,
    "insert": _insert,
    "update": _update,
    "reindex": _reindex,
    "flush": Database.flush,
    "compact": Database.compact,
    "vacuum": Database.vacuum,
    "check": Database.check,
    "rekey": Database.rekey,
}


# --- in the process ----------------------------------------------------------------------------------


class Deaths:
    """Counts the calls that change a file, and dies at the chosen one."""

    def __init__(self) -> None:
        self.seen, self.chosen = 0, 0
        for name in CALLS:
            patch(os, name, self._counting(name, getattr(os, name)))
        patch(os, "open", self._counting("open", os.open, lambda _, flags, *__, **___: bool(flags & WRITING)))
        opened = self._counting("open", io.open, lambda _, mode="r", *__, **___: mode[0] in "wxa" or "+" in mode)
        patch(io, "open", opened)
        patch(builtins, "open", opened)
        commit = ledger_log._commit
        patch(ledger_log, "_commit", lambda line: (self._reach(commit), commit(line), self._reach(commit))[1])  # type: ignore[func-returns-value]

    def begin(self, chosen: int) -> None:
        """From now on, die at the call of this number; never at 0."""
        self.seen, self.chosen = 0, chosen

    def _reach(self, call: Callable[..., Any], name: str = "", arguments: tuple[Any, ...] = ()) -> None:
        self.seen += 1
        if self.seen == self.chosen:
            if name in ("write", "pwrite"):
                handle, content, *offset = arguments
                call(handle, content[: len(content) // 2], *offset)
            os.kill(os.getpid(), signal.SIGKILL)

    def _counting(
        self, name: str, call: Callable[..., Any], counts: Callable[..., bool] = lambda *_, **__: True
    ) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            if counts(*arguments, **options):
                self._reach(call, name, arguments)
            return call(*arguments, **options)

        return counted


def work(line: Connection, home: Path, fault: str = "") -> None:
    """Carry out what comes down the line, and say what came of it, until it is closed or the process dies.

    A message is a number, at which write to die, and an order; an answer is whether there was an error, what came of
    it, the room of each table, and how many writes there were.
    """
    deaths = Deaths()
    if fault:
        FAULTS[fault].plant()
    db: Database | None = None
    with suppress(EOFError, ConnectionError, KeyboardInterrupt):
        while True:
            chosen, order = line.recv()
            deaths.begin(chosen)
            try:
                if db is not None and order[0] == "reopen":
                    db.close()
                    db = None
                db = db or scumble.open(home / "db")
                if fault == EARLY and order[0] == "sql":
                    with db.transaction():
                        line.send(("done", carry_out(db, order), rooms_of(db), deaths.seen))
                    continue
                found = None if order[0] == "reopen" else _done(db, home, order)
                rooms = {} if order[0] in ("ask", "whole") else rooms_of(db)
                line.send(("done", found, rooms, deaths.seen))
            except ScumbleError as error:
                line.send(("error", f"{type(error).__name__}: {error.message}", {}, 0))
            except Exception as error:
                line.send(("error", f"{type(error).__name__}, which is no ScumbleError: {error}", {}, 0))
    os._exit(0)


def _done(db: Database, home: Path, order: Order) -> Any:
    return _restored(home, order[1]) if order[0] == "backup" else carry_out(db, order)


def rooms_of(db: Database) -> dict[str, int]:
    """For each table, how many rows a copy of it has room for, the tail included."""
    return {
        table.name: max(
            sum(run.pages * run.page_rows for run in table.runs if run.tail or run.attribute == attribute)
            for attribute in (*table.attributes, None)
        )
        for table in db._versions.catalog.tables
    }


def _restored(home: Path, query: str) -> list[Any]:
    """What a copy answers that was restored from a backup, with copies of the owner's files."""
    there = home.with_name("restored")
    shutil.rmtree(there, ignore_errors=True)
    there.mkdir()
    for suffix in ("key", "ledger", "anchor"):
        shutil.copy(home / f"db.{suffix}", there / f"db.{suffix}")
    backup_to(there / "db.tar", open_store(home / "db"))
    restore_from(there / "db.tar", restoring(there / "db"))
    with scumble.open(there / "db") as copy:
        return _ask(copy, query)


# --- planted -----------------------------------------------------------------------------------------


def _commit_each() -> None:
    """Every statement of a transaction is a version of its own."""
    changed_by = Database._changed_by

    def each(db: Database, made: Callable[..., Any]) -> Any:
        result = changed_by(db, made)
        if db.in_transaction:
            db._versions.settle()
        return result

    patch(Database, "_changed_by", each)


def _leave_a_copy_out() -> None:
    """A change is made in all copies of the rows but the one by day."""
    from scumble.enclave import changes

    rewritten = changes._Work.rewritten
    patch(
        changes._Work,
        "rewritten",
        lambda made, run, *given: run if (run.attribute or "").startswith("day") else rewritten(made, run, *given),
    )


def _pay_again() -> None:
    """A load or a flush that was cut short is not recognised, and paid for once more."""
    from scumble.owner import payments

    patch(payments, "can_retry", lambda *_: False)
    patch(payments, "unfinished", lambda *_, again: None)


EARLY = "acknowledged before the commit"


class Fault(NamedTuple):
    """What it does to a process, which statements show it, what is then found broken, and whether it takes kills."""

    plant: Callable[[], None]
    kinds: tuple[str, ...]
    shows: tuple[str, ...]
    kills: bool


FAULTS = {
    EARLY: Fault(lambda: None, ("update", "delete"), ("death", "state", "rows", "result"), True),
    "each statement of a transaction committed": Fault(_commit_each, ("transaction",), ("rows", "result"), False),
    "a copy left out of changes": Fault(_leave_a_copy_out, ("update", "delete"), ("rows", "answer", "result"), False),
    "paid for again after a kill": Fault(_pay_again, ("insert", "flush"), ("ledger",), True),
}
