"""Clients of a service for the kill test: each loads batches and queries all the time, and keeps a journal of it.

The journal is on disk before a load is sent, and again after it is acknowledged, so that it is true whenever the client
is killed. `CLIENT_FAULTS` are clients that do wrong, which the checker has to find.
"""

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

import scumble
from scumble.errors import Busy, ScumbleError, Unavailable
from scumble.owner import loading  # noqa: F401  here, so that no client has to import them anew
from scumble.owner.database import Database
from scumble.owner.remote import service
from verify import patch
from verify.service_checker import KEYS, rows_of

__all__ = ["CLIENT_FAULTS", "TABLE", "client", "load", "opened", "pulled"]

TABLE = "t"
TYPES = dict.fromkeys(("batch", "row", "k", "v"), "integer not null")
# Lossless, so that no answer may ever lack a row: a false alarm is not a matter of chance.
INDEX = f"k int:0:{KEYS - 1} epsilon=1 slack=lossless"
CAPACITY = PAGE_ROWS = 16
RENEW_SECONDS = 0.2
QUERIES = {
    "groups": f"SELECT batch, count(*), sum(v) FROM {TABLE} GROUP BY batch",  # noqa: S608  a name of our own
    "range": f"SELECT count(*), sum(v) FROM {TABLE} WHERE k BETWEEN ? AND ?",  # noqa: S608
    "pair": f"SELECT (SELECT count(*) FROM {TABLE}), "  # noqa: S608
    f"(SELECT count(*) FROM {TABLE} a JOIN {TABLE} b ON a.batch = b.batch AND a.row = b.row)",
}


def opened(url: str, key: Path) -> Database:
    """A connection of the owner's."""
    return scumble.open(url, key=key, insecure_simulated_enclave=True, timeout_seconds=30, connect_seconds=30)


def load(db: Database, batch: int, most: int | None = None) -> None:
    """Load a batch."""
    columns = zip(*rows_of(batch)[:most], strict=True)
    rows = pa.table({name: pa.array(values, pa.int64()) for name, values in zip(TYPES, columns, strict=True)})
    db.load(TABLE, rows, indexes=[INDEX], types=TYPES, capacity=CAPACITY, page_rows=PAGE_ROWS)


def pulled(db: Database) -> list[tuple[int, int, int, int]]:
    """All rows, by plain SQL."""
    return [tuple(row) for row in db.sql(f"SELECT batch, row, k, v FROM {TABLE}").fetchall()]  # noqa: S608


def client(url: str, key: Path, journal: Path, number: int, fault: str = "") -> None:
    """Load and ask until the process is killed; batches are numbered from a thousand times `number`."""
    service.RENEW_SECONDS = RENEW_SECONDS  # the service's lease is short here too
    if fault in CLIENT_FAULTS:
        CLIENT_FAULTS[fault]()
    rng, write, batch = Random(number), _Journal(journal), 1000 * number
    db: Database | None = None
    while True:
        try:
            db = db or opened(url, key)
            if rng.random() < 0.5:
                batch += 1
                write("sent", batch=batch, at=time.monotonic())
                load(db, batch)
                write("acknowledged", batch=batch, at=time.monotonic())
            else:
                _ask(db, rng, write)
        except (Unavailable, Busy) as error:
            write("refused", error=type(error).__name__)
        except ScumbleError as error:
            write("failed", error=f"{type(error).__name__}: {error.message}")
        except Exception as error:
            write("failed", error=f"{type(error).__name__}, which is no ScumbleError")


def _ask(db: Database, rng: Random, write: "_Journal") -> None:
    kind = rng.choice(list(QUERIES))
    low = rng.randrange(KEYS)
    high = rng.randrange(low, KEYS)
    began = time.monotonic()
    answer = db.sql(QUERIES[kind], [low, high] if kind == "range" else ()).fetchall()
    ended = time.monotonic()
    rows = [[None if value is None else int(value) for value in row] for row in answer]
    write("answer", kind=kind, low=low, high=high, began=began, ended=ended, answer=rows)


class _Journal:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def __call__(self, event: str, **fields: Any) -> None:
        os.write(self._file, json.dumps({"event": event, **fields}).encode() + b"\n")
        os.fsync(self._file)


# --- clients that do wrong -------------------------------------------------------------------------

_chance = Random(7)
_right_load = Database.load


def _repeat() -> None:
    """Now and then the answer to a load is taken for lost, and the rows are loaded again under another name."""

    def repeating(db: Database, *arguments: Any, **options: Any) -> Any:
        report = _right_load(db, *arguments, **options)
        if _chance.random() < 0.3:
            with suppress(ScumbleError):
                _right_load(db, *arguments, **options | {"again": True, "new_rows": False})
        return report

    patch(Database, "load", repeating)


def _drop() -> None:
    """Now and then a load is acknowledged that was never made."""

    def dropping(db: Database, *arguments: Any, **options: Any) -> Any:
        return None if _chance.random() < 0.3 else _right_load(db, *arguments, **options)

    patch(Database, "load", dropping)


def _tear() -> None:
    """A batch loses its last row."""

    def tearing(db: Database, table: str, rows: Any, **options: Any) -> Any:
        return _right_load(db, table, rows[: max(1, len(rows) - 1)], **options)

    patch(Database, "load", tearing)


def _stay_behind() -> None:
    """A client does not listen to what the service says of newer versions."""
    patch(service.RemoteService, "stamp", lambda remote: "")


CLIENT_FAULTS: dict[str, Callable[[], None]] = {
    "a load repeated under another name": _repeat,
    "a batch dropped": _drop,
    "a batch torn": _tear,
    "an old version shown": _stay_behind,
}
