"""Rekey: everything under a new key, nothing lost, and the old key opens nothing any more."""

import os
import secrets
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from databases import INDEXES, clean_files, copy, counted, create, expected, files, load, reopen, stored, sums

from scumble.errors import FileError, KeyRefused, ScumbleError, Stale, Tampered
from scumble.owner import key_file
from scumble.owner.anchor import Anchor
from scumble.owner.database import Database
from scumble.owner.keys import OwnerKey
from scumble.store.files import FileStore


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("origin")
    with create(home) as db:
        load(db, "t")
        load(db, "t", seed=2)
        load(db, "u", seed=3, indexes=())
    return home


@pytest.fixture
def home(origin: Path, tmp_path: Path) -> Path:
    copy(origin, tmp_path / "home")
    return tmp_path / "home"


def _check_whole(db: Database) -> None:
    for table, seeds in (("t", (1, 2)), ("u", (3,))):
        assert stored(db, table) == expected(*seeds)
        assert counted(db, table) == sums(*seeds)
        assert stored(db, table, "k >= 0 AND amount >= 0") <= expected(*seeds)
    db.check()


def test_everything_is_there_after_a_rekey(home: Path) -> None:
    with reopen(home) as db:
        ledger, version, before = db.ledger.entries(), db.version, [run for t in db.tables for run in t.runs]
        db.rekey()
        _check_whole(db)
        assert db.version == version + 1
        after = [run for t in db.tables for run in t.runs]
        assert not {run.id for run in before} & {run.id for run in after}
        assert [run.index for run in before] == [run.index for run in after]  # no noise is drawn, and nothing paid
        assert db.ledger.entries() == ledger
        assert files(home) == clean_files(home, db)
    with reopen(home) as db:
        _check_whole(db)
        load(db, "t", seed=4)
        assert stored(db, "t") == expected(1, 2, 4)
        db.check()


def test_rekeys_again_and_again(home: Path) -> None:
    for _ in range(3):
        with reopen(home) as db:
            db.rekey()
            db.rekey()
            _check_whole(db)
            assert files(home) == clean_files(home, db)


def test_an_old_key_file_opens_nothing(home: Path) -> None:
    old = (home / "db.key").read_bytes()
    with reopen(home) as db:
        db.rekey()
    new = (home / "db.key").read_bytes()
    assert new != old
    (home / "db.key").write_bytes(old)
    with pytest.raises((Tampered, KeyRefused)):
        reopen(home)
    (home / "db.anchor").unlink()
    with pytest.raises((Tampered, KeyRefused)):
        reopen(home, first_opening=True)
    (home / "db.key").write_bytes(new)
    with reopen(home, first_opening=True) as db:
        _check_whole(db)


def test_the_passphrase_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCUMBLE_PASSPHRASE", raising=False)
    home = tmp_path / "home"
    with create(home, passphrase="open, sesame") as db:  # noqa: S106
        load(db, "t")
        for wrong in ("open barley", None):
            with pytest.raises(KeyRefused):
                db.rekey(wrong)
        assert db.version == 3
        db.rekey("open, sesame")
        assert stored(db, "t") == expected(1)
    assert key_file.is_protected(home / "db.key")
    with pytest.raises(KeyRefused):
        reopen(home)
    with reopen(home, passphrase="open, sesame") as db:  # noqa: S106
        assert stored(db, "t") == expected(1)


def test_the_anchor_goes_with_the_key(home: Path) -> None:
    older = home.parent / "older"
    copy(home, older)
    with reopen(home) as db:
        db.rekey()
        version = db.version
    key = OwnerKey.open(home / "db.key")
    anchor = Anchor.load(home / "db.anchor", key.anchor_key())
    assert anchor is not None
    assert anchor.version == version
    shutil.rmtree(home / "db")
    shutil.copytree(older / "db", home / "db")
    with pytest.raises((Tampered, KeyRefused)):
        reopen(home)


def _stop_at(monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    """Let the next rekey of this process fail like a crash would, at some stage."""

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    if stage in ("before the new key is in the file", "before the old key is out of the file"):
        save, calls = OwnerKey.save, iter([True, False] if stage.startswith("before the old") else [False])

        def once(*arguments: object) -> None:
            if not next(calls):
                crash()
            save(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(OwnerKey, "save", once)
    elif stage == "before the commit":
        monkeypatch.setattr(FileStore, "commit", crash)
    elif stage == "before the anchor":
        monkeypatch.setattr(Anchor, "save", crash)
    else:
        commit, drop = FileStore.commit, FileStore.drop_unreferenced
        committed: list[bool] = []

        def noted(*given: Any) -> None:
            commit(*given)
            committed.append(True)

        monkeypatch.setattr(FileStore, "commit", noted)
        monkeypatch.setattr(FileStore, "drop_unreferenced", lambda *given: crash() if committed else drop(*given))


def _cut_short(home: Path, stage: str) -> None:
    """Begin a rekey, and leave its object as a dead process would leave it."""
    with pytest.MonkeyPatch.context() as patch:
        db = reopen(home)
        _stop_at(patch, stage)
        with pytest.raises((KeyboardInterrupt, ScumbleError)):
            db.rekey()


STAGES = [
    "before the new key is in the file",
    "before the commit",
    "before the anchor",
    "before the old key is out of the file",
    "before the old pages are gone",
]


@pytest.mark.parametrize("stage", STAGES)
def test_a_rekey_that_was_cut_short(home: Path, stage: str) -> None:
    """It opens, answers, can be loaded into and rekeyed again; and after that no trace of the first try is left."""
    _cut_short(home, stage)
    for _ in range(2):
        with reopen(home) as again:
            _check_whole(again)
    with reopen(home) as again:
        load(again, "t", seed=4)
        assert stored(again, "t") == expected(1, 2, 4)
    with reopen(home) as again:
        again.rekey()
        assert stored(again, "t") == expected(1, 2, 4)
        again.check()
        assert files(home) == clean_files(home, again)
    held = OwnerKey.open(home / "db.key")
    assert held.next_root is None
    with reopen(home) as again:
        assert stored(again, "t") == expected(1, 2, 4)


@pytest.mark.parametrize("stage", STAGES[2:])
def test_the_next_opening_finishes_a_rekey(home: Path, stage: str) -> None:
    """Once the new version is there, a writer puts the old key out of the file: it opens the old pages."""
    old = OwnerKey.open(home / "db.key").root
    _cut_short(home, stage)
    with reopen(home) as again:
        load(again, "t", seed=4)
        assert files(home) == clean_files(home, again)
    held = OwnerKey.open(home / "db.key")
    assert held.root != old
    assert held.next_root is None


@pytest.mark.parametrize("moment", ["before", "after"])
def test_the_same_object_goes_on_after_a_rekey_that_failed(home: Path, moment: str) -> None:
    """Whether the commit that failed was one or not."""
    commit = FileStore.commit

    def full(store: FileStore, version: int, manifest: bytes) -> None:
        if moment == "after":
            commit(store, version, manifest)
        raise FileError("the disk is full", hint="make room")

    with reopen(home) as db:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FileStore, "commit", full)
            with pytest.raises(ScumbleError):
                db.rekey()
        _check_whole(db)
        load(db, "v", seed=4)
        assert stored(db, "v") == expected(4)
        db.rekey()
        _check_whole(db)
    with reopen(home) as db:
        _check_whole(db)


def test_a_reader_that_was_open_during_the_rekey(home: Path) -> None:
    """Its session has the old key: it gets `Stale` or a right answer, never a wrong one."""
    with reopen(home) as reader, reopen(home) as lazy, reopen(home) as writer:
        _check_whole(reader)
        writer.rekey()
        for _ in range(2):
            for db in (reader, lazy):
                try:
                    _check_whole(db)
                except Stale as error:
                    assert error.hint  # noqa: PT017
        _check_whole(writer)


def test_a_writer_that_was_open_during_the_rekey(home: Path) -> None:
    with reopen(home) as old, reopen(home) as writer:
        writer.rekey()
        for write in (lambda: load(old, "t", seed=4), lambda: old.drop("u"), old.rekey):
            try:
                write()
            except Stale as error:
                assert error.hint  # noqa: PT017
                assert "open" not in [entry.state for entry in old.ledger.entries()]
            else:
                break
        else:
            _check_whole(writer)
    with reopen(home) as db:
        db.check()


def test_queries_while_another_thread_rekeys(home: Path) -> None:
    """The same object, several threads: every answer is right."""
    failures: list[BaseException] = []
    with reopen(home) as db:
        done = threading.Event()

        def ask() -> None:
            try:
                while not done.is_set():
                    assert counted(db, "t") == sums(1, 2)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(3):
                db.rekey()
        finally:
            done.set()
            for thread in threads:
                thread.join(60)
        assert failures == []
        _check_whole(db)


def test_a_rekey_of_an_empty_database(tmp_path: Path) -> None:
    with create(tmp_path / "home") as db:
        db.rekey()
        assert db.version == 2
        db.check()
    with reopen(tmp_path / "home") as db:
        load(db, "t", indexes=INDEXES)
        assert stored(db, "t") == expected(1)


def test_the_key_changed_by_another_hand(home: Path) -> None:
    """A key file that is not the one this object was opened with is not overwritten."""
    with reopen(home) as db:
        key = OwnerKey.open(home / "db.key")
        other = OwnerKey(key.database, secrets.token_bytes(32))
        other.save(home / "db.key", None)
        with pytest.raises(Stale):
            db.rekey()
        assert OwnerKey.open(home / "db.key") == other
        assert os.listdir(home / "db/scratch") == []  # noqa: PTH208
        key.save(home / "db.key", None)
        _check_whole(db)
