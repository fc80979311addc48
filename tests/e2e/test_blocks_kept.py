"""Tables in padded blocks through what happens to a database: kills, retries, backups, restores, rekeys, new batches.

Small tables get a single block by themselves: these ask for four. Answers are compared with plain rows.
"""

import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from databases import counted, create, expected, load, reopen, rows, stored, sums
from mortal import Host, Killed

from scumble.enclave import loads, placing
from scumble.enclave.rows import Rows
from scumble.enclave.vault import Vault
from scumble.errors import ScumbleError
from scumble.index.file import IndexModel, decode, encode
from scumble.owner import versions
from scumble.owner.database import Database
from scumble.owner.keys import open_key
from scumble.store.backup import backup_to, restore_from
from scumble.store.files import FileStore

INDEXES = ("k int:0:127 epsilon=1 blocks=4", "amount decimal:0:100:0.25 epsilon=1 slack=lossless blocks=3")
COUNT = 100
EVERY = 7  # of the writes one is tried by `make test`, all by `make verify`


class Dying(FileStore):
    """A store that kills the enclave at the write of a number, counted from when `left` is set: before or after it."""

    left: int | None = None
    after = False
    calls: list[str]

    def _reach(self, name: str, call: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        if self.left is None:
            return call(*given)
        self.calls.append(name)
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Killed
        done = call(*given)
        if self.left == 0:
            raise Killed
        return done

    def create_run(self, *given: Any) -> None:
        self._reach("create_run", super().create_run, given)

    def write(self, *given: Any) -> None:
        self._reach("write", super().write, given)

    def finish_run(self, *given: Any) -> None:
        self._reach("finish_run", super().finish_run, given)

    def commit(self, *given: Any) -> None:
        self._reach("commit", super().commit, given)

    def write_scratch(self, *given: Any) -> None:
        self._reach("write_scratch", super().write_scratch, given)


class SmallRows(Rows):
    """Rows in chunks so small that they go to the provider."""

    def __init__(self, storage: Any, words: int, chunk_rows: int, name: str = "chunk") -> None:
        super().__init__(storage, words, min(chunk_rows, 256), name)


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every index that was learned, also by an enclave that was killed afterwards."""
    found: list[bytes] = []
    placed = placing.placed

    def listen(index: IndexModel, *given: Any, **more: Any) -> Any:
        found.append(encode(index))
        return placed(index, *given, **more)

    monkeypatch.setattr(loads, "placed", listen)
    monkeypatch.setattr(loads, "Rows", SmallRows)
    monkeypatch.setattr(versions, "PAUSES_SECONDS", (0, 0, 0))
    monkeypatch.setattr(versions, "UNFINISHED_SECONDS", 0.01)
    return found


def _load(db: Database, seed: int = 1) -> None:
    load(db, "t", COUNT, seed, indexes=INDEXES, capacity=112)


def _check(db: Database, *seeds: int) -> None:
    """All rows are there, once, by a full scan and by each of the indexes; and nothing else is."""
    (table,) = (table for table in db.tables if table.name == "t")
    assert len(table.runs) == 2 * len(seeds)
    for run in table.runs:
        assert run.index is not None
        blocks = decode(run.index).blocks
        assert blocks is not None
        assert len(blocks) == (4 if run.attribute == "k" else 3)
        assert run.capacity > 112
    assert counted(db, "t") == sums(*seeds, count=COUNT)
    whole = expected(*seeds, count=COUNT)
    assert stored(db, "t") == whole
    for where, test in WHERES.items():
        assert stored(db, "t", where) == {row for row in whole if test(row[0], row[1])}
    db.check()


WHERES: dict[str, Callable[[Any, Any], bool]] = {
    "k BETWEEN 20 AND 40": lambda k, _: 20 <= k <= 40,
    "k >= 0": lambda k, _: True,
    "k = 64": lambda k, _: k == 64,
    "amount < 30": lambda _, amount: amount is not None and amount < 30,
    "amount IS NULL": lambda _, amount: amount is None,
    "amount >= 50 OR k < 3": lambda k, amount: k < 3 or (amount is not None and amount >= 50),
}


def _dies(home: Path, number: int, after: bool, released: list[bytes]) -> tuple[bool, list[str]]:
    """Load with an enclave that is killed at that write, then again with one that lives; the writes until then."""
    store = Dying(home / "db")
    vault, killed = Vault(), False

    def kill() -> Vault:
        nonlocal killed
        killed = True
        return Vault()

    path = home / "db.key"
    del released[:]
    with Database(Host(store, vault, kill), open_key(path, store.database, None), path) as db:
        store.left, store.after, store.calls = number, after, []
        try:
            _load(db)
        except ScumbleError:
            assert killed
        store.left = None
        calls = store.calls
    with reopen(home) as db:
        if "t" not in [table.name for table in db.tables]:
            _load(db)
        _check(db, 1)
        assert db.ledger.spent() == 2
        assert db.ledger.unsettled() == ()
        (table,) = db.tables
        there = [run.index for run in table.runs]
        # Whatever was learned, however often, is what is there: the provider gets nothing by killing.
        assert set(released) == set(there)
        assert len(there) == 2
    return killed, calls


def _check_kills(tmp_path: Path, released: list[bytes], every: int, after: bool) -> None:
    origin = tmp_path / "origin"
    create(origin).close()
    number, killed, calls = 1, True, list[str]()
    while killed:
        home = tmp_path / "home"
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(origin, home)
        killed, calls = _dies(home, number, after, released)
        number += every
        assert number < 1000
    assert calls.count("create_run") == 4  # of each run twice: to reserve it, and as large as its blocks turn out
    assert {"write_scratch", "write", "finish_run", "commit"} <= set(calls)


@pytest.mark.parametrize("after", [False, True])
def test_a_load_in_blocks_killed_at_a_write_is_finished_as_the_same_release(
    tmp_path: Path, released: list[bytes], after: bool
) -> None:
    _check_kills(tmp_path, released, EVERY, after)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_load_in_blocks_killed_at_every_write(tmp_path: Path, released: list[bytes], after: bool) -> None:
    _check_kills(tmp_path, released, 1, after)


def test_an_enclave_killed_between_the_two_rooms_of_a_run(tmp_path: Path, released: list[bytes]) -> None:
    """It has learned both indexes by then, and reserved room that is too small for the blocks."""
    origin = tmp_path / "origin"
    create(origin).close()
    shutil.copytree(origin, tmp_path / "whole")
    _, calls = _dies(tmp_path / "whole", 1 << 20, False, released)
    rooms = [place + 1 for place, name in enumerate(calls) if name == "create_run"]
    assert len(rooms) == 4
    for after, number in ((False, rooms[2]), (True, rooms[2]), (False, rooms[3])):
        home = tmp_path / f"{after}{number}"
        shutil.copytree(origin, home)
        assert _dies(home, number, after, released)[0]
        assert len(released) == 4  # both were learned twice


def test_a_table_in_blocks_is_backed_up_restored_and_rekeyed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with create(home) as db:
        _load(db)
        _load(db, 2)
        _check(db, 1, 2)
        indexes = [run.index for table in db.tables for run in table.runs]
        db.rekey()
        _check(db, 1, 2)
        assert [run.index for table in db.tables for run in table.runs] == indexes
        backup_to(tmp_path / "b.tar", FileStore(home / "db"))
        _load(db, 3)
        _check(db, 1, 2, 3)
        spent = db.ledger.spent()
    shutil.rmtree(home / "db")
    restore_from(tmp_path / "b.tar", FileStore.restoring(home / "db"))
    with reopen(home, accept_restored=True) as db:
        _check(db, 1, 2)
        _load(db, 3)  # its rows were paid for: the same release again
        _check(db, 1, 2, 3)
        assert db.ledger.spent() == spent
        db.rekey()
        _check(db, 1, 2, 3)
    with reopen(home) as db:
        _check(db, 1, 2, 3)


def test_a_table_in_blocks_takes_batches_with_others_and_without(tmp_path: Path) -> None:
    """How many blocks a batch has is its own affair."""
    with create(tmp_path / "home") as db:
        _load(db)
        load(db, "t", COUNT, 2, capacity=112)
        load(db, "t", 0, 3, source=rows(COUNT, 3).slice(0, 0), indexes=INDEXES, capacity=16)
        assert stored(db, "t") == expected(1, 2, count=COUNT)
        assert stored(db, "t", "k BETWEEN 20 AND 40") == {
            row for row in expected(1, 2, count=COUNT) if 20 <= row[0] <= 40
        }
        assert db.ledger.spent() == Fraction(6)
        db.rekey()
        assert stored(db, "t", "amount >= 50") == {
            row for row in expected(1, 2, count=COUNT) if row[1] is not None and row[1] >= 50
        }
