"""The file store: what comes back is what was stored, for every reader and every version, or it is refused."""

import json
import os
import resource
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from store_databases import (
    check_run,
    database,
    files,
    load,
    manifest,
    pages_of,
    read,
    tags_of,
    write_run,
)

from scumble.errors import (
    Exists,
    FileError,
    InvalidParameter,
    NewerVersion,
    NotFound,
    ScumbleError,
    Tampered,
)
from scumble.store.files import FileStore
from scumble.store.runs import MOST_OPEN


def test_the_layout_is_the_documented_one(tmp_path: Path) -> None:
    database(tmp_path, ("ab", 3))
    assert json.loads((tmp_path / "database.json").read_text()) == {"format": 1, "database": "d0"}
    name = (tmp_path / "HEAD").read_text()
    assert name.startswith("00000001-")
    assert name.endswith(".manifest\n")
    assert (tmp_path / "manifests" / name.strip()).read_bytes() == manifest(1, {"ab": 3})
    assert (tmp_path / "runs" / "ab.pages").read_bytes() == b"".join(pages_of("ab", c, 3) for c in range(3))
    assert (tmp_path / "runs" / "ab.tags").read_bytes() == b"".join(tags_of("ab", 3))
    assert files(tmp_path) == {"HEAD", f"manifests/{name.strip()}", "runs/ab.pages", "runs/ab.tags"}


def test_a_second_database_in_a_folder_is_refused(tmp_path: Path) -> None:
    FileStore.create(tmp_path / "db", "0a")
    with pytest.raises(Exists):
        FileStore.create(tmp_path / "db", "0b")
    assert FileStore(tmp_path / "db").database == "0a"


def test_no_database(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path, tmp_path / "nothing", tmp_path / "file", tmp_path / "file" / "db"):
        with pytest.raises(NotFound):
            FileStore(folder)
    for folder in (tmp_path / "file", tmp_path / "no" / "parent"):
        with pytest.raises(FileError):
            FileStore.create(folder, "0a")
    with pytest.raises(InvalidParameter):
        FileStore("zero\0byte")


def test_a_later_format_is_told_apart_from_a_damaged_one(tmp_path: Path) -> None:
    database(tmp_path)
    (tmp_path / "database.json").write_text('{"format": 2, "id": "whatever comes then", "database": null}')
    with pytest.raises(NewerVersion):
        FileStore(tmp_path)
    wrong = ('{"format": true, "database": "a"}', '{"format": 1, "database": "A/"}')
    for content in ("", "{", "[]", "1", "[" * 990, *wrong):
        (tmp_path / "database.json").write_text(content)
        with pytest.raises(Tampered):
            FileStore(tmp_path)


def test_more_runs_than_open_files(tmp_path: Path) -> None:
    store = FileStore.create(tmp_path, "0a")
    runs = {f"{number:04x}": 1 for number in range(MOST_OPEN + 20)}
    with store.writer():
        for run in runs:
            write_run(store, run, 1)
        store.commit(1, manifest(1, runs))
    before = len(list(Path("/proc/self/fd").iterdir()))

    def read_all(_: int) -> None:
        for run in list(runs) * 3:
            assert read(store, run, 1, 0, 1) == pages_of(run, 1, 1)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(read_all, range(8)))
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + MOST_OPEN
    store.close()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


@contextmanager
def _no_file_over(size_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("limit_bytes", [0, 40, 700, 20_000])
def test_a_file_that_may_not_grow_loses_nothing(tmp_path: Path, limit_bytes: int) -> None:
    store = database(tmp_path, ("ab", 2))
    old, before = store.head(), files(tmp_path)
    new = manifest(2, {"ab": 2, "cd": 300}, old)
    with pytest.raises(FileError, match="File too large") as caught, store.writer(), _no_file_over(limit_bytes):
        write_run(store, "cd", 300)
    assert "nothing is lost" in (caught.value.hint or "")
    with store.writer():
        write_run(store, "cd", 300)
        with pytest.raises(FileError, match="File too large"), _no_file_over(min(limit_bytes, len(new) - 1)):
            store.commit(2, new)
        assert store.head() == old
    assert files(tmp_path) == before
    load(store, 2, {"ab": 2, "cd": 300}, "cd")
    check_run(store, "cd", 300)


def test_a_full_disk_loses_nothing() -> None:
    with tempfile.TemporaryDirectory() as name:
        mount = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", name], capture_output=True, check=False
        )
        if mount.returncode:
            pytest.skip("no tmpfs can be mounted here")
        try:
            store = database(Path(name) / "db", ("ab", 2))
            old, before = store.head(), files(store.folder)
            with pytest.raises(FileError, match="No space left") as caught, store.writer():
                write_run(store, "cd", 2000)
            assert "nothing is lost" in (caught.value.hint or "")
            with pytest.raises(FileError, match="No space left"), store.writer():
                store.write_scratch("big", bytes(1 << 20))
            with pytest.raises(FileError, match="No space left"), store.writer():
                store.commit(2, manifest(2, {"ab": 2}) + bytes(1 << 20))
            assert (store.head(), files(store.folder)) == (old, before)
            load(store, 2, {"ab": 2, "cd": 2}, "cd")
            check_run(store, "cd", 2)
            store.close()
        finally:
            subprocess.run(["umount", name], check=True)


def test_a_commit_that_fails_after_the_head_is_there_keeps_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = database(tmp_path, ("ab", 1))
    head, fsync = tmp_path / "HEAD", os.fsync
    old = head.read_text()

    def failing(handle: int) -> None:
        if head.read_text() != old:
            raise OSError(5, "Input/output error")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(FileError, match="Input/output error"):
        load(store, 2, {"ab": 1, "cd": 2}, "cd")
    monkeypatch.undo()
    assert head.read_text() != old
    check_run(store, "cd", 2)
    load(store, 3, {"ab": 1, "cd": 2, "ef": 1}, "ef")


def _as_somebody_else(work: object) -> int:
    """Run `work` in a child that has no rights on root's files; its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            assert callable(work)
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_folder_that_cannot_be_written_can_be_read() -> None:
    folder = Path(tempfile.mkdtemp()) / "db"
    try:
        database(folder, ("ab", 3))
        folder.parent.chmod(0o755)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)

        def work() -> None:
            store = FileStore(folder)
            store.head()
            check_run(store, "ab", 3)
            with pytest.raises(FileError, match="Permission denied"), store.writer():
                pass

        assert _as_somebody_else(work) == 0

        def refused() -> None:
            with pytest.raises(FileError, match="Permission denied"):
                FileStore(folder).head()

        (folder / "HEAD").chmod(0)
        assert _as_somebody_else(refused) == 0
    finally:
        for path in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            path.chmod(stat.S_IRWXU)
        shutil.rmtree(folder.parent)


def test_a_copy_that_lost_its_empty_folder_takes_loads(tmp_path: Path) -> None:
    database(tmp_path, ("ab", 1))
    (tmp_path / "scratch").rmdir()
    with FileStore(tmp_path).writer():
        pass
    assert (tmp_path / "scratch").is_dir()


def test_no_error_names_the_machine(tmp_path: Path) -> None:
    store = database(tmp_path, ("ab", 1))
    shutil.rmtree(tmp_path / "runs")
    with pytest.raises(ScumbleError) as caught, store.writer():
        pass
    assert str(tmp_path) not in str(caught.value)
