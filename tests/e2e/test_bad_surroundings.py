"""Surroundings that cannot be: keys that are not there, folders, full disks, others at once. Nothing is lost."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from databases import clean_files, counted, create, expected, files, in_a_child, load, reopen, stored, sums
from unharmed import check_as_before, home, origin, refused, states

from scumble.errors import Busy, Exists, FileError, InvalidParameter, KeyRefused, NotFound, ScumbleError, Tampered

__all__ = ["home", "origin"]

# --- keys and folders ------------------------------------------------------------------------------


def test_no_key_file(home: Path) -> None:
    (home / "db.key").rename(home / "away")
    with refused(KeyRefused, match="there is no key file"):
        reopen(home)
    (home / "away").rename(home / "db.key")
    check_as_before(home)


def test_a_wrong_passphrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCUMBLE_PASSPHRASE", raising=False)
    home = tmp_path / "home"
    with create(home, passphrase="open, sesame") as db:  # noqa: S106
        load(db, "t")
    for given in ("open barley", "", None):
        with refused(KeyRefused) as caught:
            reopen(home, passphrase=given)
        assert "barley" not in str(caught.value)
    with reopen(home, passphrase="open, sesame") as db:  # noqa: S106
        assert stored(db, "t") == expected(1)


def test_the_key_of_another_database(home: Path, tmp_path: Path) -> None:
    with create(tmp_path / "other"):
        pass
    with refused(KeyRefused, match="another database"):
        reopen(home, key=tmp_path / "other/db.key")
    check_as_before(home)


def test_no_database_and_one_that_is_there(home: Path, tmp_path: Path) -> None:
    with refused(NotFound):
        reopen(tmp_path / "nothing")
    with refused(Exists):
        create(home)
    with refused(Exists):
        create(home, key=tmp_path / "another.key")
    assert not (tmp_path / "another.key").exists()
    check_as_before(home)


def test_a_key_that_would_lie_in_the_folder(tmp_path: Path) -> None:
    with refused(InvalidParameter):
        create(tmp_path / "home", key=tmp_path / "home/db/my.key")
    assert not (tmp_path / "home/db").exists()


def test_no_ledger(home: Path) -> None:
    (home / "db.ledger").rename(home / "away")
    with reopen(home) as db:
        assert stored(db, "t") == expected(1)  # a query needs none
        with pytest.raises(NotFound, match="there is no ledger"):
            load(db, "new")
    (home / "away").rename(home / "db.ledger")
    check_as_before(home)


def test_a_folder_that_may_not_be_read_or_written(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name) / "home"
        with create(home) as db:
            load(db, "t")
        for path in (Path(name), home, *home.rglob("*")):
            if os.getuid() == 0:
                os.chown(path, 65534, 65534)

        def as_nobody(mode: int, work: Callable[[], None]) -> None:
            for path in [home / "db", *(p for p in (home / "db").rglob("*") if p.is_dir())]:
                path.chmod(mode)

            def child() -> None:
                if os.getuid() == 0:  # root may do anything
                    os.setgid(65534)
                    os.setuid(65534)
                work()

            try:
                assert in_a_child(child) == 0
            finally:
                for path in [home / "db", *(p for p in (home / "db").rglob("*"))]:
                    path.chmod(0o755 if path.is_dir() else 0o644)

        def unreadable() -> None:
            with refused(FileError):
                reopen(home)

        def unwritable() -> None:
            with reopen(home) as db:
                assert counted(db, "t") == sums(1)
                for write in (lambda: load(db, "new"), lambda: db.drop("t"), db.rekey):
                    with refused(FileError):
                        write()
                assert "open" not in states(db)  # but perhaps drawn: the noise comes before the pages
                assert counted(db, "t") == sums(1)

        as_nobody(0o000, unreadable)
        as_nobody(0o555, unwritable)
        with reopen(home) as db:
            assert stored(db, "t") == expected(1)
            db.check()


# --- room ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most_bytes", [0, 100, 1000, 2000, 5000, 10_000])
def test_a_disk_that_is_full(home: Path, most_bytes: int) -> None:
    """A limit on the size of files stands for the disk: every larger write fails."""

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with reopen(home) as db:
            before = len(db.ledger.entries())
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
            with pytest.raises(ScumbleError) as caught:
                load(db, "big", 120, 2, capacity=128)
            assert isinstance(caught.value, FileError)
            assert caught.value.hint
            assert counted(db, "t") == sums(1)
            assert len(db.ledger.entries()) >= before

    assert in_a_child(work) == 0
    with reopen(home) as db:
        assert stored(db, "t") == expected(1)
        db.check()
        load(db, "t", seed=2)
        assert files(home) == clean_files(home, db)
        assert counted(db, "t") == sums(1, 2)


def test_a_disk_of_its_own_that_is_full(home: Path, tmp_path: Path) -> None:
    """A small file system, all of it: the ledger's and the key's too."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no small file system can be mounted here; the limit on file sizes stands for it")
    try:
        with create(disk / "home") as db:
            load(db, "t")
            filler = disk / "filler"
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(bytes(1024)):
                    pass
            for _ in range(3):
                with refused(FileError):
                    load(db, "new", 120, 2, capacity=128)
            with pytest.raises(FileError):
                db.rekey()
            assert stored(db, "t") == expected(1)
            filler.unlink()
            load(db, "new", seed=2)
            assert stored(db, "new") == expected(2)
            db.rekey()
            db.check()
        with reopen(disk / "home") as db:
            assert stored(db, "t") == expected(1)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


# --- others at the same time -----------------------------------------------------------------------


def test_two_writers_at_once(home: Path) -> None:
    code = (
        "import sys; from scumble.store.files import FileStore\n"
        "with FileStore(sys.argv[1]).writer(): print('holding', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(home / "db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holding\n"
        with reopen(home) as db:
            provider: Any = db.service
            writer = provider.writer
            provider.writer = lambda _=0: writer(0.1)  # it waits for five seconds otherwise
            for write in (lambda: load(db, "new"), lambda: db.drop("t"), db.rekey):
                with refused(Busy):
                    write()
            assert counted(db, "t") == sums(1)
    finally:
        holder.kill()
        holder.communicate()
    check_as_before(home)


def test_a_reader_during_a_load(home: Path) -> None:
    """While a load has sent its rows, another opening sees the old version; after it, the new one."""
    with reopen(home) as reader, reopen(home) as writer:
        seen: list[tuple[int, int]] = []

        def progress(what: str, done: int, total: int | None) -> None:
            seen.append(counted(reader, "t"))

        load(writer, "t", seed=2, progress=progress)
        assert set(seen) == {sums(1)}
        assert len(seen) >= 2
        assert counted(reader, "t") == sums(1, 2)
        assert stored(reader, "t") == expected(1, 2)
        reader.check()


def test_a_reader_whose_table_is_dropped(home: Path) -> None:
    with reopen(home) as reader, reopen(home) as writer:
        assert counted(reader, "t") == sums(1)
        prepared = reader.prepare("SELECT count(*) FROM t")
        writer.drop("t")
        with pytest.raises(ScumbleError) as caught:
            prepared.execute()
        assert not isinstance(caught.value, Tampered)
        assert caught.value.hint
        load(writer, "t", seed=3)
        assert prepared.execute().fetchall() == [(40,)]
        assert stored(reader, "t") == expected(3)
