"""Backups: one version, whole, whatever is written meanwhile; and back into a folder that is the same, byte by byte."""

import io
import json
import resource
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from store_databases import database, load, manifest, write_run
from typing_extensions import Buffer

from scumble.errors import Exists, FileError, NotFound, Tampered
from scumble.store.backup import Report, backup, backup_to, restore, restore_from
from scumble.store.files import FileStore
from scumble.store.runs import open_to_read

RUNS = {"r1": 5, "r2": 9, "r3": 40}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A database of three versions, a run more in each."""
    place = tmp_path / "db"
    database(place, *RUNS.items()).close()
    return place


def kept(folder: Path) -> dict[str, bytes]:
    """What a backup has to hold of a folder."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in files.items() if name != "lock"}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def archive_of(folder: Path) -> bytes:
    sink = io.BytesIO()
    backup(sink, FileStore(folder))
    return sink.getvalue()


def test_a_restored_folder_is_the_same(folder: Path, tmp_path: Path) -> None:
    report = backup_to(tmp_path / "b.tar", FileStore(folder))
    assert report == Report("d0", 3, 3, (tmp_path / "b.tar").stat().st_size)
    assert restore_from(tmp_path / "b.tar", FileStore.restoring(tmp_path / "again")) == report
    assert kept(tmp_path / "again") == kept(folder)
    assert (tmp_path / "again/scratch").is_dir()
    store = FileStore(tmp_path / "again")
    load(store, 4, {**RUNS, "r4": 2}, "r4")
    store.close()


def test_the_same_version_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    first = archive_of(folder)
    (folder / "transcript.log").write_text("{}\n")
    (folder / "scratch/sort-1").write_bytes(b"s")
    assert archive_of(folder) == first
    restore(io.BytesIO(first), FileStore.restoring(tmp_path / "again"))
    assert archive_of(tmp_path / "again") == first


def test_any_tar_reads_it_and_its_last_member_lists_the_hashes(folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive_of(folder))) as tar:
        names = tar.getnames()
        content = {name: tar.extractfile(name).read() for name in names}  # type: ignore[union-attr]
    listed = json.loads(content.pop(names[-1]))
    assert names[-1] == "backup.json"
    assert content == kept(folder)
    assert (listed["database"], listed["version"]) == ("d0", 3)
    assert listed["members"] == {
        name: {"bytes": len(data), "sha256": sha256(data).hexdigest()} for name, data in content.items()
    }


class SlowSink(io.BytesIO):
    """At the first byte that it is given, something happens to the folder."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self.happens: Callable[[], None] | None = happens

    def write(self, content: Buffer) -> int:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return super().write(content)


def replace_everything(folder: Path) -> None:
    """As a drop or a rekey does: a version that names none of the runs, and then they are deleted."""
    store = FileStore(folder)
    with store.writer(busy_seconds=1):
        write_run(store, "new", 3)
        previous = store.head()
        store.commit(4, manifest(4, {"new": 3}, previous))
        assert store.drop_unreferenced() == 3
    store.close()


def test_runs_that_are_dropped_during_a_backup_are_in_it_all_the_same(folder: Path, tmp_path: Path) -> None:
    before = kept(folder)
    sink = SlowSink(lambda: replace_everything(folder))
    assert backup(sink, FileStore(folder)).version == 3
    assert not (folder / "runs/r3.pages").exists()
    restore(io.BytesIO(sink.getvalue()), FileStore.restoring(tmp_path / "again"))
    assert kept(tmp_path / "again") == before


def test_a_head_that_moves_on_while_files_are_opened_is_read_anew(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = threading.Event()

    def opens(path: Path, name: str) -> int:
        if name == "runs/r2.pages" and not moved.is_set():
            moved.set()
            replace_everything(folder)
        return open_to_read(path, name)

    monkeypatch.setattr("scumble.store.runs.open_to_read", opens)
    descriptors = open_files()
    sink = io.BytesIO()
    assert backup(sink, FileStore(folder)).version == 4
    assert open_files() == descriptors
    restore(io.BytesIO(sink.getvalue()), FileStore.restoring(tmp_path / "again"))
    assert kept(tmp_path / "again") == kept(folder)


def test_backups_during_a_load_have_the_version_before_it(folder: Path) -> None:
    before = archive_of(folder)
    store = FileStore(folder)
    with store.writer(busy_seconds=1):
        write_run(store, "r4", 2)
        assert archive_of(folder) == before
        head = store.head()
        name = f"{4:08d}-{sha256(b'x').hexdigest()[:16]}.manifest"
        (folder / "manifests" / name).write_bytes(b"x")  # a commit that is under way
        assert archive_of(folder) == before
        store.commit(4, manifest(4, {**RUNS, "r4": 2}, head))
    store.close()
    assert archive_of(folder) != before


def test_every_backup_beside_a_busy_writer_can_be_restored(folder: Path, tmp_path: Path) -> None:
    done = threading.Event()

    def write() -> None:
        store = FileStore(folder)
        for version in range(4, 60):
            with store.writer(busy_seconds=5):
                write_run(store, f"v{version}", 2)
                store.commit(version, manifest(version, {f"v{version}": 2}, store.head()))
                store.drop_unreferenced()
        store.close()
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    versions: list[int] = []
    while not done.is_set() or not versions:
        archive = archive_of(folder)
        target = tmp_path / f"copy-{len(versions)}"
        versions.append(restore(io.BytesIO(archive), FileStore.restoring(target)).version)
        assert archive_of(target) == archive
    writer.join()
    assert versions == sorted(versions)


def test_more_runs_than_files_may_be_open(tmp_path: Path) -> None:
    store = FileStore.create(tmp_path / "db", "d0")
    runs = {f"run-{number}": 1 for number in range(60)}
    with store.writer(busy_seconds=1):
        for run in runs:
            write_run(store, run, 1)
        store.commit(1, manifest(1, runs))
    store.close()
    code = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (60, {hard}))\n"
    code += (
        "from pathlib import Path; from scumble.store.backup import backup_to; from scumble.store import open_store\n"
    )
    code += "print(backup_to(Path(sys.argv[2]), open_store(sys.argv[1])).runs)"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    arguments = [str(tmp_path / "db"), str(tmp_path / "b.tar")]
    enough = [sys.executable, "-c", code.format(hard=hard), *arguments]
    assert subprocess.run(enough, capture_output=True, text=True, check=True).stdout == "60\n"
    (tmp_path / "b.tar").unlink()
    too_few = [sys.executable, "-c", code.format(hard=60), *arguments]
    failed = subprocess.run(too_few, capture_output=True, text=True, check=False)
    assert "Too many open files" in failed.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["db"]


# What cannot be backed up.


@pytest.mark.parametrize("name", ["HEAD", "runs/r2.pages", "runs/r2.tags", "manifests"])
def test_a_damaged_folder_is_not_backed_up(folder: Path, tmp_path: Path, name: str) -> None:
    path = folder / name
    if path.is_dir():
        path = min(path.iterdir())
    content = path.read_bytes()
    for damage in (content[:-1], content + b"x"):
        path.write_bytes(damage)
        with pytest.raises(Tampered):
            backup_to(tmp_path / "b.tar", FileStore(folder))
    path.unlink()
    with pytest.raises(Tampered):
        backup_to(tmp_path / "b.tar", FileStore(folder))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["db"]


def test_an_empty_folder_and_an_empty_database_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no database"):
        backup_to(tmp_path / "b.tar", FileStore(tmp_path))
    FileStore.create(tmp_path / "db", "d0").close()
    with pytest.raises(NotFound, match="no version yet"):
        backup_to(tmp_path / "b.tar", FileStore(tmp_path / "db"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["db"]


def test_nothing_is_ever_replaced(folder: Path, tmp_path: Path) -> None:
    backup_to(tmp_path / "b.tar", FileStore(folder))
    before = (tmp_path / "b.tar").read_bytes()
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "empty").mkdir()
    for file in ("b.tar", "link", "empty"):
        with pytest.raises(Exists) as caught:
            backup_to(tmp_path / file, FileStore(folder))
        assert caught.value.hint
        with pytest.raises(Exists):
            restore_from(tmp_path / "b.tar", FileStore.restoring(tmp_path / file))
    assert (tmp_path / "b.tar").read_bytes() == before
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_folder_that_is_made_during_a_restore_is_left_alone(folder: Path, tmp_path: Path) -> None:
    archive = archive_of(folder)

    class Racing(io.BytesIO):
        def read(self, count: int | None = -1) -> bytes:
            (tmp_path / "again").mkdir(exist_ok=True)
            (tmp_path / "again/file").write_bytes(b"mine")
            return super().read(count)

    with pytest.raises(Exists, match="meanwhile"):
        restore(Racing(archive), FileStore.restoring(tmp_path / "again"))
    assert kept(tmp_path / "again") == {"file": b"mine"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "db"]


def test_places_that_cannot_be_written_or_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "b.tar").write_bytes(archive_of(folder))
    with pytest.raises(FileError, match="cannot be written"):
        backup_to(tmp_path / "missing/b.tar", FileStore(folder))
    with pytest.raises(FileError, match="cannot be written"):
        restore_from(tmp_path / "b.tar", FileStore.restoring(tmp_path / "missing/db"))
    for source in (tmp_path / "missing", tmp_path):
        with pytest.raises(FileError, match="cannot be read"):
            restore_from(source, FileStore.restoring(tmp_path / "again"))


@pytest.mark.parametrize(
    "work", ["backup_to(Path('b.tar'), open_store('db'), die)", "restore_from(Path('a.tar'), restoring('new'), die)"]
)
def test_a_kill_leaves_nothing_in_its_place(folder: Path, tmp_path: Path, work: str) -> None:
    (tmp_path / "a.tar").write_bytes(archive_of(folder))
    code = "import os, signal\nfrom pathlib import Path\nfrom scumble.store import open_store, restoring\n"
    code += "from scumble.store.backup import backup_to, restore_from\n"
    code += f"def die(*_):\n    os.kill(os.getpid(), signal.SIGKILL)\n{work}"
    process = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False)
    assert process.returncode == -signal.SIGKILL
    left = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert left == {"a.tar", "db"}
    assert FileStore(folder).head()


def test_the_commands_through_a_pipe(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scumble.cli"]
    made = subprocess.run([*command, "backup", folder, "-", "--json"], capture_output=True, check=True)
    assert made.stdout == archive_of(folder)
    assert json.loads(made.stderr)["bytes"] == len(made.stdout)
    place = tmp_path / "again"
    restored = subprocess.run([*command, "restore", "-", place], input=made.stdout, capture_output=True, check=True)
    assert restored.stderr == b""
    assert kept(place) == kept(folder)
    cut = subprocess.run(
        [*command, "restore", "-", tmp_path / "cut"], input=made.stdout[:-9], capture_output=True, check=False
    )
    assert (cut.returncode, cut.stdout, (tmp_path / "cut").exists()) == (2, b"", False)
