"""Databases for these tests: tables come in, are loaded into a new database in a folder, and it goes out open."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from e2e_answers import Plain
from e2e_tables import RandomTable, random_table

from scumble import opening
from scumble.owner.database import Database
from scumble.provider.front import Provider
from scumble.store.transcript import Event

LIMIT, DELTA_LIMIT = 1000, "0.01"


def load(db: Database, table: RandomTable) -> None:
    """Load all batches of a table, each with its own capacity."""
    for batch, capacity in zip(table.batches, table.capacity, strict=True):
        db.load(
            table.name, batch, indexes=table.indexes, types=table.types, page_rows=table.page_rows, capacity=capacity
        )


@contextmanager
def database(folder: Path, tables: Sequence[RandomTable]) -> Iterator[Database]:
    """A new database with these tables."""
    with opening.create(folder / "db", limit=LIMIT, delta_limit=DELTA_LIMIT) as db:
        for table in tables:
            load(db, table)
        yield db


def two_tables(rng: Random) -> list[RandomTable]:
    """A table of any size, and one that can be joined with it in a bearable time."""
    return [random_table(rng, "t"), random_table(rng, "u", rng.choice([0, 1, 30, 200]))]


def plain(tables: Sequence[RandomTable]) -> Plain:
    return Plain({table.name: table.whole for table in tables})


def events(db: Database) -> list[Event]:
    """All that the provider has seen of an embedded database."""
    assert isinstance(db.service, Provider)
    return list(db.service.transcript.events())
