"""The whole database as a mechanism: its output is what the provider sees of loads and queries.

The tables are made up. Each run loads one of them into a new database, asks the same queries, and drops the table and
the database. What is observed is the transcript, event by event, without times and random names; and how likely the
noise of that load, capacity and index, would have been with the other table. Two more lives of a table have the claim
that the owner's ledger makes at their end: a load that is made again after its enclave was killed, and one that is made
again after the provider put an old folder back.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from scumble import opening
from scumble.enclave.lines import TrustedEnclave
from scumble.errors import Unavailable
from scumble.index.plan import SLACK_SHARE
from scumble.index.slack import lossless_delta, shift
from scumble.lab.audit.bound import Features
from scumble.lab.audit.run import IntArray, Subject, tapped
from scumble.lab.audit.tap import replaced
from scumble.owner.database import Database
from scumble.owner.loading import CAPACITY_BETA, CAPACITY_SHARE
from scumble.owner.queries import LocalSQL
from scumble.provider.front import Provider
from scumble.store.files import FileStore
from scumble.store.transcript import Event, RecordingStore

__all__ = ["TRANSCRIPT", "database", "restored", "retried"]

TRANSCRIPT = "the transcript"
MEMORY = Path("/dev/shm")  # noqa: S108  made-up rows, in a folder of our own
PAGE_ROWS = 16
BETA = Fraction(1, 10**6)
EVENTS = 96
LIMIT = 10**6
NAMED_ANEW = ("run", "scratch", "session")  # random, or counted up
QUERIES = ("SELECT count(*) FROM t WHERE k = 0", "SELECT k FROM t WHERE k = 1", "SELECT count(*) FROM t")


def _index(epsilon: Fraction, beta: Fraction = BETA) -> str:
    return f"k int:0:1 epsilon={epsilon} beta={float(beta)}"


def _tables(epsilon: Fraction) -> tuple[IntArray, IntArray]:
    """With one row more of key 0, the pages that are read for it, and those of the table, are likely to be one more."""
    first = 4 * PAGE_ROWS - shift(epsilon * SLACK_SHARE, BETA) % PAGE_ROWS
    second = 8 * PAGE_ROWS - (first + shift(epsilon * CAPACITY_SHARE, CAPACITY_BETA)) % PAGE_ROWS
    return np.array([first, second]), np.array([first + 1, second])


def database(epsilon: Fraction) -> Subject:
    """Load a table with an index and a drawn capacity, query it, drop it. Claims what the ledger charges for that."""
    part, load = epsilon * CAPACITY_SHARE, _index(epsilon)
    return tapped(
        "database",
        "load, queries, drop",
        epsilon + part,
        _tables(epsilon),
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
    with _folder() as folder, _created(folder) as db:
        _load(db, counts, index)
        yield db


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as name:
        yield Path(name) / "db"


def _created(folder: Path) -> Database:
    return opening.create(folder, limit=LIMIT, delta_limit="1e-6")


def _load(db: Database, counts: IntArray, index: str, **more: Any) -> None:
    import pyarrow as pa

    table = pa.table({"k": np.repeat(np.arange(len(counts)), counts)})
    db.load("t", table, indexes=[index], page_rows=PAGE_ROWS, **more)


def _only_loaded(counts: IntArray, index: str) -> None:
    with _loaded(counts, index):
        pass


def _public(event: Event) -> Features:
    return (event.kind, *(fact for fact in event.facts if fact[0] not in NAMED_ANEW))


# --- longer lives -----------------------------------------------------------------------------------


class Claim(NamedTuple):
    """PUBLIC: what a ledger says was spent."""

    epsilon: Fraction
    delta: Fraction


def retried(epsilon: Fraction) -> Subject:
    """A load whose enclave is killed after all noise is drawn, and before anything is committed: it is made again."""

    def live(counts: IntArray) -> Claim:
        with _folder() as folder, _created(folder) as db:
            with _killing(FileStore.finish_run):
                _load(db, counts, _index(epsilon))
            return _claim(db)

    return _life("retry", "load, kill, load on", epsilon, live)


def restored(epsilon: Fraction) -> Subject:
    """A load that is made again, since the provider has put back the folder as it was before.

    The table is there already, with other rows: a ledger that took the second load for one more batch of new rows would
    take its release for nothing more. Its terms are a little different, so that its noise is not that of the first.
    """

    def live(counts: IntArray) -> Claim:
        with _folder() as folder:
            with _created(folder) as db:
                _load(db, np.array([PAGE_ROWS, PAGE_ROWS]), _index(epsilon))
                shutil.copytree(folder, folder.with_name("before"))
                _load(db, counts, _index(epsilon), new_rows=True)
            shutil.rmtree(folder)
            folder.with_name("before").rename(folder)
            with opening.open(folder, accept_restored=True) as db:
                _load(db, counts, _index(epsilon, BETA / 2), again=True)
                return _claim(db)

    return _life("restore", "load, restore, load again", epsilon, live)


def _life(name: str, about: str, epsilon: Fraction, live: Callable[[IntArray], Claim]) -> Subject:
    """A life of a table, with the claim that the ledger makes at its end, whatever the rows and the noise were."""
    tables = _tables(epsilon)
    claim = live(tables[0])

    def build(counts: IntArray) -> None:
        if live(counts) != claim:
            raise AssertionError("what the ledger says was spent depends on the rows, or on chance")

    return tapped(name, about, claim.epsilon, tables, build, delta=claim.delta, setting=_one_duckdb, least_runs=40)


def _claim(db: Database) -> Claim:
    return Claim(db.ledger.spent(), db.ledger.spent_delta())


class _Killed(BaseException):
    """The enclave was killed: no handler in it runs."""


@contextmanager
def _killing(step: Callable[..., object]) -> Iterator[None]:
    """Kill the enclave once, at a step of the store that it asks for; the next request finds a new one.

    The step is the last before a commit in which the noise of a load is drawn already.
    """
    request, done = Provider.request, False

    def dying(*given: Any) -> Any:
        nonlocal done
        if not done:
            done = True
            raise _Killed
        return step(*given)

    def surviving(provider: Provider, session: int, sealed: bytes | memoryview) -> bytes:
        try:
            return request(provider, session, sealed)
        except _Killed:
            provider._enclave = TrustedEnclave(RecordingStore(provider.store, provider.transcript))
            raise Unavailable("the enclave is gone", hint="connect again") from None

    with replaced(FileStore, step.__name__, dying), replaced(Provider, "request", surviving):
        yield
    if not done:
        raise AssertionError("nothing was killed")
