"""Databases for these tests: small tables with a column of every kind, what queries must answer, and what is seen."""

import datetime
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

import scumble
from scumble.owner.database import Database
from scumble.owner.loading import LoadReport
from scumble.provider.front import Provider
from scumble.store.transcript import Event
from scumble.wire.links import unpack_links

PAGE_ROWS = 16
ROWS = 40
TYPES = {"name": "text(20)", "colour": 'category(["blue","green","red"])', "k": "integer not null"}
INDEXES = ("k int:0:127 epsilon=1", "amount decimal:0:100:0.25 epsilon=1")
KINDS = {
    "k": pa.int32(),
    "amount": pa.decimal128(8, 2),
    "name": pa.string(),
    "colour": pa.string(),
    "day": pa.date32(),
    "share": pa.float64(),
    "good": pa.bool_(),
}
LIMIT = 1000


def rows(count: int = ROWS, seed: int = 1) -> pa.Table:
    """Rows in which every value of every column follows from its place and the seed; some are null."""
    day = datetime.date(2013, 1, 1)
    places = [(place * 37 + seed * 11) % 128 for place in range(count)]
    columns: dict[str, list[Any]] = {
        "k": places,
        "amount": [None if p % 9 == 4 else Decimal(p * 3 % 101) - Decimal("0.25") * (p * 3 % 101 > 0) for p in places],
        "name": [None if p % 7 == 3 else f"name{seed}-{p}" for p in places],
        "colour": [(None, "red", "green", "blue")[p % 4] for p in places],
        "day": [day + datetime.timedelta(p) for p in places],
        "share": [None if p % 11 == 5 else p / 8 for p in places],
        "good": [(True, False, None)[p % 3] for p in places],
    }
    return pa.table({name: pa.array(values, KINDS[name]) for name, values in columns.items()})


def load(db: Database, table: str, count: int = ROWS, seed: int = 1, source: Any = None, **more: Any) -> LoadReport:
    """Load such rows, or others of the same columns."""
    options: dict[str, Any] = {"types": TYPES, "page_rows": PAGE_ROWS, "indexes": INDEXES, "capacity": 48}
    return db.load(table, rows(count, seed) if source is None else source, **(options | more))


def create(home: Path, **more: Any) -> Database:
    """Make an empty database in home/db."""
    home.mkdir(exist_ok=True)
    options: dict[str, Any] = {"limit": LIMIT, "delta_limit": "1e-3", **more}
    return scumble.create(home / "db", **options)


def reopen(home: Path, **more: Any) -> Database:
    """Open the one that is there."""
    return scumble.open(home / "db", **more)


def copy(origin: Path, home: Path) -> None:
    """Put a copy of everything, the owner's files too, in the place of what is there."""
    if home.exists():
        shutil.rmtree(home)
    shutil.copytree(origin, home)


@cache
def expected(*seeds: int, count: int = ROWS) -> frozenset[tuple[Any, ...]]:
    """All rows of a table that was loaded with these seeds, each of them as often as it is there."""
    found: dict[tuple[Any, ...], int] = {}
    for seed in seeds:
        for row in rows(count, seed).to_pylist():
            found[tuple(row.values())] = found.get(tuple(row.values()), 0) + 1
    return frozenset((*row, times) for row, times in found.items())


def stored(db: Database, table: str, where: str = "true") -> frozenset[tuple[Any, ...]]:
    """The rows of a table as a query gives them, each with how often it is there."""
    query = f"SELECT *, count(*) FROM (SELECT * FROM {table} WHERE {where}) GROUP BY ALL"  # noqa: S608
    return frozenset(db.sql(query).fetchall())


def counted(db: Database, table: str) -> tuple[int, int]:
    """The number of rows and the sum of k, computed in the enclave; (0, 0) if there is no such table."""
    if table not in [there.name for there in db.tables]:
        return 0, 0
    ((count, total),) = db.sql(f"SELECT count(*), sum(k) FROM {table}").fetchall()  # noqa: S608
    return count, total


def sums(*seeds: int, count: int = ROWS) -> tuple[int, int]:
    """What `counted` has to be."""
    keys = [key for seed in seeds for key in rows(count, seed)["k"].to_pylist()]
    return len(keys), sum(keys)


def events(db: Database) -> list[Event]:
    """All that the provider has seen of a database in a folder."""
    assert isinstance(db.service, Provider)
    return list(db.service.transcript.events())


def files(home: Path) -> set[str]:
    """All files, those that a writer leaves in any case aside: the lock and the transcript."""
    names = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    return {name for name in names if name != "db/lock" and not name.startswith("db/transcript.log")}


def clean_files(home: Path, db: Database) -> set[str]:
    """The files that there have to be, and no others."""
    names = {"db.key", "db.ledger", "db.anchor", "db/HEAD", "db/database.json"}
    for table in db.tables:
        runs = [run.id for run in table.runs] + [layer.id for run in table.runs for layer in run.layers]
        runs += [run.tally.id for run in table.runs if run.tally is not None]
        names |= {f"db/runs/{name}.{suffix}" for name in runs for suffix in ("pages", "tags")}
    manifests = sorted(path.name for path in (home / "db" / "manifests").iterdir())
    packs = [unpack_links((home / "db" / "manifests" / name).read_bytes()) for name in manifests if ".links" in name]
    versions = [link.draft.version for links in packs for link in links]
    versions += [int(name[:8]) for name in manifests if ".links" not in name]
    assert versions == list(range(1, db.version + 1))
    return names | {f"db/manifests/{name}" for name in manifests}


def in_a_child(work: Callable[[], object], seconds: int = 60) -> int:
    """Run `work` in a forked child that dies if it hangs; its exit code: 0 if it returned, or minus a signal."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(seconds)
            work()
            code = 0
        finally:
            with suppress(BaseException):
                os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
