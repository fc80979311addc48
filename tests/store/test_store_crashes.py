"""A writer that dies: killed at every call that changes a file, before it, after it and half-way through it.

Each time the database is the old version or the new one, whole, and the next writer finds nothing left over. That what
counts is on the disk before the head changes, which a kill cannot show, is held by the order of the calls.
"""

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_databases import (
    check_run,
    commit_many,
    database,
    files,
    links_of,
    load,
    manifest,
    shape,
    signed,
    write_run,
)

from dying import die_at
from scumble import durable
from scumble.errors import Busy, FileError, InvalidParameter
from scumble.store.files import FileStore
from scumble.store.manifests import manifest_name

CALLS = ("open", "write", "pwrite", "posix_fallocate", "fsync", "replace", "unlink")
Job = Callable[[FileStore], None]


def _dies(folder: Path, job: Job, number: int, where: str) -> bool:
    """Do the job in a child process that is killed at that call; False if it had fewer, and got through."""
    child = os.fork()
    if child == 0:
        try:
            die_at(number, where, CALLS)
            job(FileStore(folder))
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


def _load(store: FileStore) -> None:
    load(store, 3, {"ab": 2, "cd": 3, "ef": 4}, "ef")


def _seal_anew(store: FileStore) -> None:
    with store.writer():
        write_run(store, "ef", 4)
        store.commit(3, manifest(3, {"ef": 4}))
        store.drop_unreferenced()


@pytest.mark.parametrize("where", ["before", "half-way", "after"])
@pytest.mark.parametrize(("job", "new"), [(_load, {"ab": 2, "cd": 3, "ef": 4}), (_seal_anew, {"ef": 4})])
def test_a_killed_writer_leaves_the_old_version_or_the_new_one(
    tmp_path: Path, job: Job, new: dict[str, int], where: str
) -> None:
    origin, folder = tmp_path / "origin", tmp_path / "db"
    store = database(origin, ("ab", 2), ("cd", 3))
    store.close()
    clean = files(origin)
    for stray in ("runs/0f.pages", "runs/0f.tags", "runs/1f.tags.tmp", "HEAD.tmp", "scratch/sort-7"):
        (origin / stray).write_bytes(b"left by another who died")
    outcomes: list[str] = []
    for number in range(1, 1000):
        shutil.copytree(origin, folder)
        died = _dies(folder, job, number, where)
        outcomes.append(_outcome(folder, new, clean))
        shutil.rmtree(folder)
        if not died:
            break
    assert number > (9 if where == "half-way" else 30)
    assert outcomes == sorted(outcomes, reverse=True)  # first old, then new, and never back
    assert {"old", "new"} == set(outcomes)


def _outcome(folder: Path, new: dict[str, int], clean: set[str]) -> str:
    """Check that a database is whole, before its leftovers are cleared and after; which version it is."""
    old = {"ab": 2, "cd": 3}
    for _ in range(2):
        reader = FileStore(folder)
        version = int(reader.head() != manifest(2, old, reader.manifest(1)))
        for run, pages in (new if version else old).items():
            check_run(reader, run, pages)
        with FileStore(folder).writer(busy_seconds=0):
            pass
    left = files(folder)
    if version == 0:
        assert left == clean
    else:
        manifests = sorted(name for name in left if name.startswith("manifests/"))
        assert [name[:18] for name in manifests] == [f"manifests/{version:08d}" for version in (1, 2, 3)]
        assert {name.partition("/")[0] for name in left} == {"HEAD", "manifests", "runs"}
        # Runs that only earlier versions name may be there still: a writer drops them when it is told to.
        assert {name for name in left if name.startswith("runs/")} <= {
            f"runs/{run}.{suffix}" for run in (*old, "ef") for suffix in ("pages", "tags")
        }
    load(FileStore(folder), 3 + version, {**(new if version else old), "1234": 1}, "1234")
    return "new" if version else "old"


@pytest.mark.parametrize("where", ["before", "half-way", "after"])
def test_a_writer_that_is_killed_while_it_collects_leaves_a_manifest_or_a_link_of_every_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """With packs in all states: none, one to add to, one that is full."""
    monkeypatch.setattr("scumble.wire.links.MOST_LINKS", 3)
    origin, folder = tmp_path / "origin", tmp_path / "db"
    commit_many(FileStore.create(origin, "d0"), 1, 3)

    def collect(store: FileStore) -> None:
        with store.writer():
            store.collect_versions(keep=2)
            for version in (4, 5):
                store.commit(version, signed(version, {}, store.head()))
                store.collect_versions(keep=1)

    whole = FileStore.create(tmp_path / "whole", "d0")
    links = links_of(whole, len(commit_many(whole, 1, 5)))
    outcomes: list[int] = []
    for number in range(1, 1000):
        shutil.copytree(origin, folder)
        died = _dies(folder, collect, number, where)
        for _ in range(2):  # before leftovers are cleared, and after
            store = FileStore(folder)
            head = store._manifests.version()
            assert links_of(store, head) == links[:head]
            with store.writer(busy_seconds=0):
                pass
        assert not [name for name in files(folder) if name.endswith(".new")]
        with store.writer():
            store.collect_versions(keep=1)
        assert [name for name in files(folder) if name.endswith(".manifest")] == [f"manifests/{_head_name(folder)}"]
        assert links_of(FileStore(folder), head) == links[:head]
        outcomes.append(head)
        shutil.rmtree(folder)
        if not died:
            break
    assert number > (7 if where == "half-way" else 30)
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {3, 4, 5}


def _head_name(folder: Path) -> str:
    return (folder / "HEAD").read_text().strip()


def test_links_are_on_the_disk_before_a_manifest_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore.create(tmp_path, "d0")
    commit_many(store, 1, 4)
    calls: list[str] = []
    synced, unlinked = os.fsync, os.unlink

    def sync(handle: int) -> None:
        calls.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().name.partition('.links')[0]}")
        synced(handle)

    def unlink(path: Path) -> None:
        calls.append(f"unlink {Path(path).suffix}")
        unlinked(path)

    with store.writer(), monkeypatch.context() as patch:
        patch.setattr(os, "fsync", sync)
        patch.setattr(os, "unlink", unlink)
        store.collect_versions(keep=1)
    calls = [call for call in calls if call != "unlink .new"]
    assert calls == ["sync .00000001", "sync manifests", *["unlink .manifest"] * 3, "sync manifests"]


def test_a_first_commit_that_is_cut_short_leaves_an_empty_database(tmp_path: Path) -> None:
    for number in range(1, 1000):
        folder = tmp_path / f"db{number}"
        FileStore.create(folder, "0a")
        died = _dies(folder, lambda store: load(store, 1, {"ab": 2}, "ab"), number, "after")
        store = FileStore(folder)
        with store.writer(busy_seconds=0):
            pass
        if (folder / "HEAD").exists():
            check_run(store, "ab", 2)
        else:
            assert files(folder) == set()
            load(store, 1, {"ab": 2}, "ab")
        if not died:
            break
    assert number > 20


def test_everything_is_on_the_disk_before_the_head_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = database(tmp_path, ("ab", 2))
    dirty: set[Path] = set()
    replaced: list[str] = []

    def path_of(handle: int) -> Path:
        return Path(f"/proc/self/fd/{handle}").readlink()

    def watch(name: str, note: Callable[..., None]) -> None:
        call = getattr(os, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            result = call(*arguments, **options)
            note(result, *arguments)
            return result

        monkeypatch.setattr(os, name, watched)

    def opened(_: int, path: Path, flags: int, *__: int) -> None:
        if flags & os.O_CREAT and path.name != "lock":
            dirty.update((path, path.parent))

    def renamed(_: None, source: Path, target: Path) -> None:
        assert source not in dirty
        if target.name == "HEAD":
            assert dirty - {tmp_path} == set()
        dirty.add(target.parent)
        replaced.append(target.name)

    watch("open", opened)
    watch("replace", renamed)
    for writes in ("write", "pwrite", "posix_fallocate"):
        watch(writes, lambda _, handle, *__: dirty.add(path_of(handle)))
    watch("fsync", lambda _, handle: dirty.discard(path_of(handle)))
    with store.writer():
        write_run(store, "cd", 3)
        store.commit(2, manifest(2, {"ab": 2, "cd": 3}))
        assert dirty == set()
    assert replaced == ["HEAD"]


def test_a_commit_syncs_the_folder_of_its_runs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = database(tmp_path, ("ab", 2))
    synced: list[str] = []
    sync = os.fsync

    def watched(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        sync(handle)

    with store.writer(), monkeypatch.context() as patch:
        patch.setattr(os, "fsync", watched)
        for run in ("c1", "c2", "c3"):
            write_run(store, run, 1)
        assert "runs" not in synced
        store.commit(2, manifest(2, {"ab": 2, "c1": 1, "c2": 1, "c3": 1}))
        assert synced.count("runs") == 1
        store.commit(3, manifest(3, {"ab": 2}))
        assert synced.count("runs") == 1


def test_a_run_whose_folder_could_not_be_synced_is_in_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even at the second try: the disk reports only once what it has lost."""
    store = database(tmp_path, ("ab", 2))
    sync = os.fsync

    def failing(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink().name == "runs":
            raise OSError(errno.EIO, "Input/output error")
        sync(handle)

    with store.writer():
        write_run(store, "cd", 3)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing)
            with pytest.raises(FileError):
                store.commit(2, manifest(2, {"ab": 2, "cd": 3}))
        with pytest.raises(InvalidParameter, match="not made"):
            store.commit(2, manifest(2, {"ab": 2, "cd": 3}))
    assert store.head() == manifest(1, {"ab": 2})
    load(store, 2, {"ab": 2, "cd": 3}, "cd")


def test_a_commit_waits_for_the_disk_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a run, the manifest, HEAD and their names, all at once; and for HEAD's new name."""
    store = database(tmp_path, ("ab", 2))
    calls: list[set[str]] = []
    sync, together = os.fsync, durable.sync_together

    def one(handle: int) -> None:
        calls.append({Path(f"/proc/self/fd/{handle}").readlink().name.strip(".").partition(".")[0]})
        sync(handle)

    def many(*handles: int) -> None:
        before = len(calls)
        together(*handles)
        calls[before:] = [set().union(*calls[before:])]

    with store.writer(), monkeypatch.context() as patch:
        patch.setattr(os, "fsync", one)
        patch.setattr(durable, "sync_together", many)
        write_run(store, "cd", 3)
        store.commit(2, new := manifest(2, {"ab": 2, "cd": 3}))
    named = manifest_name(2, new).partition(".")[0]
    assert calls == [{"cd", named, "manifests", "HEAD", "runs"}, {tmp_path.name}]


def test_a_second_process_is_told_that_the_database_is_busy(tmp_path: Path) -> None:
    store = database(tmp_path, ("ab", 2))
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from scumble.store.files import FileStore\n"
            "with FileStore(sys.argv[1]).writer(): print('holding', flush=True); sys.stdin.read()",
            str(tmp_path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holding\n"
        with pytest.raises(Busy, match="another load is writing"), store.writer(busy_seconds=0.05):
            pass
        check_run(store, "ab", 2)
    finally:
        holder.kill()
        holder.communicate()
    load(store, 2, {"ab": 2, "cd": 1}, "cd")  # the lock died with its holder


def test_a_forked_child_is_not_the_writer(tmp_path: Path) -> None:
    store = database(tmp_path, ("ab", 2))
    held = store.writer()
    with held:
        store.create_run("cd", shape(1))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                store.write("cd", 0, 0, b"")
            except Busy:
                held.__exit__(None, None, None)  # clears nothing of its parent's, and leaves it the lock
                code = 7
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert (tmp_path / "runs" / "cd.pages").exists()
        with (tmp_path / "lock").open("rb") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
