"""The whole database as a mechanism: its output is what the provider sees of loads and queries.

The tables are made up. Each run loads one of them into a new database, asks the same queries, and drops the table and
the database. What is observed is the transcript, event by event, without times and random names; and how likely the
noise of that load, capacity and index, would have been with the other table.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import cast

import numpy as np

from scumble import opening
from scumble.index.slack import SLACK_SHARE, lossless_delta, shift
from scumble.lab.audit.bound import Features
from scumble.lab.audit.run import IntArray, Subject, tapped
from scumble.lab.audit.tap import replaced
from scumble.owner.database import Database
from scumble.owner.loading import CAPACITY_BETA, CAPACITY_SHARE
from scumble.owner.queries import LocalSQL
from scumble.provider.front import Provider
from scumble.store.transcript import Event

__all__ = ["TRANSCRIPT", "database"]

TRANSCRIPT = "the transcript"
MEMORY = Path("/dev/shm")  # noqa: S108  made-up rows, in a folder of our own
PAGE_ROWS = 16
BETA = Fraction(1, 10**6)
EVENTS = 96
LIMIT = 10**6
NAMED_ANEW = ("run", "scratch", "session")  # random, or counted up
QUERIES = ("SELECT count(*) FROM t WHERE k = 0", "SELECT k FROM t WHERE k = 1", "SELECT count(*) FROM t")


def database(epsilon: Fraction) -> Subject:
    """Load a table with an index and a drawn capacity, query it, drop it. Claims what the ledger charges for that."""
    part = epsilon * CAPACITY_SHARE
    load = f"k int:0:1 epsilon={epsilon} beta={float(BETA)}"
    # With one row more of key 0, the pages that are read for it, and those of the table, are likely to be one more.
    first = 4 * PAGE_ROWS - shift(epsilon * SLACK_SHARE, BETA) % PAGE_ROWS
    second = 8 * PAGE_ROWS - (first + shift(part, CAPACITY_BETA)) % PAGE_ROWS
    return tapped(
        "database",
        "load, queries, drop",
        epsilon + part,
        (np.array([first, second]), np.array([first + 1, second])),
        lambda counts: _used(counts, load),
        lambda transcript: cast(Features, transcript),
        seen=TRANSCRIPT,
        delta=lossless_delta(part, CAPACITY_BETA),
        setting=_one_duckdb,
        again=lambda counts: _only_loaded(counts, load),
        least_runs=120,
    )


@contextmanager
def _one_duckdb() -> Iterator[None]:
    """The owner's DuckDB, of which the provider sees nothing, serves all runs: to begin one takes as long as a run."""
    with closing(LocalSQL()) as local, replaced(Database, "_local", local):
        yield


def _used(counts: IntArray, index: str) -> Features:
    """Load a table into a new database, ask some queries, drop it: the whole transcript."""
    with _loaded(counts, index) as db:
        for query in QUERIES:
            db.sql(query).fetchall()
        db.drop("t")
        assert isinstance(db.service, Provider)  # noqa: S101  embedded databases have no other
        events = [_public(event) for event in db.service.transcript.events()]
    return (len(events), *(events + [()] * EVENTS)[:EVENTS])


@contextmanager
def _loaded(counts: IntArray, index: str) -> Iterator[Database]:
    """A table with so many rows of each key.

    A database of its own for every run: in one that is used again, versions count up and statements are known already,
    so that what is seen would depend on which run it is, and the runs would not be alike.
    """
    import pyarrow as pa

    table = pa.table({"k": np.repeat(np.arange(len(counts)), counts)})
    with (
        tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as name,
        opening.create(Path(name) / "db", limit=LIMIT, delta_limit="1e-6") as db,
    ):
        db.load("t", table, indexes=[index], page_rows=PAGE_ROWS)
        yield db


def _only_loaded(counts: IntArray, index: str) -> None:
    with _loaded(counts, index):
        pass


def _public(event: Event) -> Features:
    return (event.kind, *(fact for fact in event.facts if fact[0] not in NAMED_ANEW))
