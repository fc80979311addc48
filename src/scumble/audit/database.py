"""The whole database as a mechanism: neighbouring tables come in, what the provider saw of loads and queries goes out.

The tables are made up. Each run loads one of them into a new database, asks the same queries, and drops the table and
the database; what is observed is the transcript, event by event, without times and random names.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

from scumble import embedded
from scumble.audit.bound import Features
from scumble.audit.subject import Observe, Subject
from scumble.owner.loading import CAPACITY_BETA, CAPACITY_SHARE
from scumble.privacy.coverage import lossless_delta, shift
from scumble.provider.front import Provider
from scumble.provider.transcript import Event

__all__ = ["TRANSCRIPT", "database"]

TRANSCRIPT = "the transcript"
MEMORY = Path("/dev/shm")  # noqa: S108  made-up rows, in a folder of our own
PAGE_ROWS = 16
EVENTS = 96
LIMIT = 10**6
NAMED_ANEW = ("run", "scratch", "session")  # random, or counted up
QUERIES = ("SELECT count(*) FROM t WHERE k = 0", "SELECT k FROM t WHERE k = 1", "SELECT count(*) FROM t")


def database(epsilon: Fraction) -> Subject:
    """Load a table with an index and a drawn capacity, query it, drop it. Claims what the ledger charges for that."""
    part = epsilon * CAPACITY_SHARE
    rows = 4 * PAGE_ROWS - shift(part, CAPACITY_BETA) % PAGE_ROWS  # one row more, and the capacity takes a page more
    load = f"k int:0:1 epsilon={epsilon}"

    @contextmanager
    def opened() -> Iterator[Observe]:
        import pyarrow as pa

        tables = [pa.table({"k": pa.array([0] * (rows + more), pa.int64())}) for more in (0, 1)]
        with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as name:
            yield lambda which: {TRANSCRIPT: _seen(Path(name), tables[which], load)}

    return Subject(
        "database",
        "load, queries, drop",
        epsilon + part,
        lossless_delta(part, CAPACITY_BETA),
        opened,
        least_runs=120,
    )


def _seen(folder: Path, table: object, index: str) -> Features:
    """The whole transcript of a database's making, a load and some queries.

    A database of its own for every run: in one that is used again, versions count up and statements are known already,
    so that what is seen would depend on which run it is, and the runs would not be alike.
    """
    with (
        tempfile.TemporaryDirectory(dir=folder) as name,
        embedded.create(Path(name) / "db", limit=LIMIT, delta_limit="1e-6") as db,
    ):
        db.load("t", table, indexes=[index], page_rows=PAGE_ROWS)
        for query in QUERIES:
            db.sql(query).fetchall()
        db.drop("t")
        assert isinstance(db.service, Provider)  # noqa: S101  embedded databases have no other
        events = [_public(event) for event in db.service.transcript.events()]
    return (len(events), *(events + [()] * EVENTS)[:EVENTS])


def _public(event: Event) -> Features:
    return (event.kind, *(fact for fact in event.facts if fact[0] not in NAMED_ANEW))
