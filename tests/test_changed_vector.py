"""A database that was changed, merged and inserted into is read as it was written.

tests/vectors/changed has a backup, the key, the ledger and the anchor of one: three batches of which the first were
merged after a row was deleted, a tail of two units and of three for rows that an UPDATE has moved, rewritten and
deleted rows, and one more batch.
"""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import scumble
from scumble.owner.database import Database
from scumble.store import backup
from scumble.store.files import FileStore
from scumble.wire.catalog import LIVE

VECTORS = Path(__file__).parent / "vectors" / "changed"
KEYS = [*(k for k in range(20) if k != 5), 100, *range(102, 110), *range(200, 210), 300, 301, 400, 500]


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    for name in ("key", "ledger", "anchor"):
        shutil.copy(VECTORS / f"changed.{name}", tmp_path)
    (tmp_path / "changed.key").chmod(0o600)
    backup.restore_from(VECTORS / "changed.backup", FileStore.restoring(tmp_path / "changed"))
    return tmp_path / "changed"


def keys(db: Database) -> list[int]:
    return sorted(key for (key,) in db.sql("SELECT k FROM t").fetchall())


def test_it_opens_with_the_rows_that_it_had(changed: Path) -> None:
    with scumble.open(changed) as db:
        assert keys(db) == KEYS
        assert db.sql("SELECT k, v, s FROM t WHERE k IN (0, 5, 101, 302, 400) ORDER BY k").fetchall() == [
            (0, 0, "new"),
            (400, 1010, "n101"),
        ]
        assert db.check() > 0
        assert db.version == 16
        assert db.ledger.spent() == 1
        table = db.table("t")
        assert [len(table.settled), len(table.tail)] == [2, 5]
        assert {column for run in table.runs for layer in run.layers for column in layer.columns} == {LIVE, 2}
        assert sum(run.tally is not None for run in table.runs) == 2
        assert [run.moved for run in table.tail] == [False, False, True, True, True]


def test_its_life_goes_on(changed: Path) -> None:
    with scumble.open(changed) as db:
        db.flush("t")
        db.compact("t")
        db.execute("DELETE FROM t WHERE k = 500")
        db.insert("t", pa.table({"k": [600], "v": [1], "s": ["x"]}))
        db.vacuum()
        assert keys(db) == [*KEYS[:-1], 600]
        db.rekey()
        assert keys(db) == [*KEYS[:-1], 600]
