"""Collecting: of each version there is the manifest or the link at any time, and the files stay few."""

import io
import os
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from store_databases import (
    another,
    check_run,
    commit_many,
    files,
    links_of,
    load,
    manifest,
    signed,
    store,
    unsigned,
    write_run,
)

from scumble.errors import Busy, FileError, InvalidParameter, NotFound, Stale, Tampered
from scumble.store.backup import backup, restore
from scumble.store.collecting import KEPT, MOST_AT_ONCE
from scumble.store.files import FileStore
from scumble.store.manifests import stated_shapes
from scumble.store.memory import MemoryStore
from scumble.store.protocol import Store
from scumble.wire.links import MOST_LINKS, link_of, pack_links, unpack_links

__all__ = ["store"]


def whole(store: Store, head: int) -> list[int]:
    """The versions whose manifests are there."""
    found = []
    for version in range(1, head + 1):
        try:
            store.manifest(version)
            found.append(version)
        except NotFound:
            continue
    return found


def check_links(store: Store, made: list[bytes]) -> None:
    assert links_of(store, len(made)) == [link_of(version, each) for version, each in enumerate(made, 1)]


def test_the_newest_are_kept_whole_and_of_the_others_the_links(store: Store) -> None:
    store.keep_versions = 4
    made: list[bytes] = []
    for last in range(1, 41):
        made += commit_many(store, last, last)
        kept = whole(store, last)
        assert kept == list(range(kept[0], last + 1))
        assert min(last, 4) <= len(kept) < 8
        for each in (store, another(store)):
            check_links(each, made)
            assert each.head() == made[-1]
    for version in (0, -1, 41, 42):
        for ask in (store.manifest, store.links):
            with pytest.raises(NotFound):
                ask(version)


def test_by_default_as_many_are_kept_as_the_documents_say(store: Store) -> None:
    made = commit_many(store, 1, 2 * KEPT - 1)
    assert len(whole(store, len(made))) == 2 * KEPT - 1
    made += commit_many(another(store), 2 * KEPT, 2 * KEPT)
    assert whole(store, len(made)) == list(range(KEPT + 1, 2 * KEPT + 1))
    check_links(store, made)


@pytest.mark.parametrize("keep", [0, -1, 1.5, True])
def test_the_newest_version_is_always_kept(store: Store, keep: int, tmp_path: Path) -> None:
    commit_many(store, 1, 2)
    with store.writer(), pytest.raises(InvalidParameter):
        store.collect_versions(keep=keep)
    if isinstance(store, FileStore):
        with pytest.raises(InvalidParameter):
            FileStore(tmp_path / "db", keep_versions=keep)


def test_all_but_the_newest_at_once(store: Store) -> None:
    """What `collect_versions(keep=1)` leaves says nothing of any version but the newest."""
    with store.writer():
        write_run(store, "ab", 2)
        store.commit(1, signed(1, {"ab": 2}))
    made = [store.head(), *commit_many(store, 2, 9, {"ab": 2})]
    reader = another(store)
    assert whole(reader, 9) == list(range(1, 10))
    with store.writer():
        assert store.collect_versions(keep=9) == 0
        assert store.collect_versions() == 0
        assert store.collect_versions(keep=1) == 8
        assert store.collect_versions(keep=1) == 0
    for each in (store, reader):
        assert whole(each, 9) == [9]
        check_links(each, made)
        check_run(each, "ab", 2)
    if isinstance(store, FileStore):
        left = files(store.folder)
        assert {name[:18] for name in left if name.startswith("manifests/")} == {
            "manifests/00000001",
            "manifests/00000009",
        }
        content = b"".join((store.folder / name).read_bytes() for name in left if name.endswith(".links"))
        assert b"amount" not in content  # a column's name, as the manifests have it
        assert b"amount" in made[0]


def test_only_the_writer_collects(store: Store) -> None:
    commit_many(store, 1, 3)
    with pytest.raises(Busy):
        store.collect_versions(keep=1)
    with store.writer():
        assert store.collect_versions(keep=1) == 2


def test_many_versions_are_few_files(store: Store) -> None:
    """100,000 of them would be a hundred packs; here are enough for two full ones."""
    made = commit_many(store, 1, 2 * MOST_LINKS + 100)
    check_links(another(store), made)
    if isinstance(store, FileStore):
        names = sorted(name for name in files(store.folder) if name.startswith("manifests/"))
        packs = [name for name in names if name.endswith(".links")]
        assert packs == [f"manifests/{first:08d}.links" for first in (1, MOST_LINKS + 1, 2 * MOST_LINKS + 1)]
        assert len(names) < len(packs) + 2 * KEPT
        assert sum((store.folder / name).stat().st_size for name in packs) < 110 * len(made)


def test_a_database_that_never_was_collected_is_caught_up_with_bit_by_bit(store: Store) -> None:
    store.keep_versions = 10**6
    made = commit_many(store, 1, MOST_AT_ONCE + 3 * KEPT)
    opened = another(store)
    opened.keep_versions = KEPT
    if isinstance(opened, FileStore):
        made += commit_many(opened, len(made) + 1, len(made) + 1)
        assert whole(opened, len(made)) == list(range(MOST_AT_ONCE + 1, len(made) + 1))
        made += commit_many(opened, len(made) + 1, len(made) + 1)
    else:
        with opened.writer():
            opened.collect_versions()
    assert len(whole(opened, len(made))) == KEPT
    check_links(opened, made)


def test_versions_of_release_0_1_stay_whole(store: Store) -> None:
    store.keep_versions = 2
    with store.writer():
        for version in range(1, 8):
            store.commit(version, unsigned(version, {}))
    made = commit_many(store, 8, 20)
    assert whole(store, 20)[:7] == list(range(1, 8))
    assert len(whole(store, 20)) < 7 + 4
    with store.writer():
        store.collect_versions(keep=1)
    assert whole(store, 20) == [*range(1, 8), 20]
    assert store.manifest(7) == unsigned(7, {})
    assert list(unpack_links(store.links(8))) == [link_of(8 + place, each) for place, each in enumerate(made[:-1])]


def test_what_no_pack_could_give_back_stays_whole(store: Store) -> None:
    """A version with a link that is none, in the middle: the packs leave it out, and all is there."""
    with store.writer():
        store.commit(1, signed(1, {}))
        store.commit(2, manifest(2, {}, store.head()))
        store.commit(3, signed(3, {}, store.head()))
        store.commit(4, signed(4, {}, store.head()))
        assert store.collect_versions(keep=1) == 2
    assert whole(store, 4) == [2, 4]
    assert [len(unpack_links(store.links(version))) for version in (1, 3)] == [1, 1]
    with pytest.raises(NotFound):
        store.links(2)


def test_a_backup_is_the_same_whatever_is_collected(store: Store, tmp_path: Path) -> None:
    with store.writer():
        write_run(store, "ab", 2)
        store.commit(1, signed(1, {"ab": 2}))
    made = [store.head(), *commit_many(store, 2, 12, {"ab": 2})]
    archives = []
    for keep in (12, 5, 1):
        with store.writer():
            store.collect_versions(keep=keep)
        sink = io.BytesIO()
        backup(sink, another(store))
        archives.append(sink.getvalue())
    assert len(set(archives)) == 1
    made_again = (FileStore.restoring(tmp_path / "again"), (memory := MemoryStore()).restoring())
    reports = [restore(io.BytesIO(archives[0]), target) for target in made_again]
    assert {report.version for report in reports} == {12}
    for restored in (FileStore(tmp_path / "again"), memory):
        assert whole(restored, 12) == [12]
        check_links(restored, made)
        check_run(restored, "ab", 2)
        sink = io.BytesIO()
        backup(sink, restored)
        assert sink.getvalue() == archives[0]
        more = commit_many(restored, 13, 90, {"ab": 2})
        check_links(restored, [*made, *more])
        assert len(whole(restored, 90)) < 2 * KEPT


def test_a_backup_has_packs_that_are_full_and_what_has_no_link_whole(store: Store, tmp_path: Path) -> None:
    with store.writer():
        for version in (1, 2):
            store.commit(version, unsigned(version, {}))
    commit_many(store, 3, MOST_LINKS + 50)
    sink = io.BytesIO()
    backup(sink, store)
    restore(io.BytesIO(sink.getvalue()), FileStore.restoring(tmp_path / "again"))
    names = sorted(path.name for path in (tmp_path / "again/manifests").iterdir())
    assert [name.partition("-")[0] for name in names] == [
        "00000001",
        "00000002",
        "00000003.links",
        f"{MOST_LINKS + 3:08d}.links",
        f"{MOST_LINKS + 50:08d}",
    ]


# What only a folder can do wrong.


def test_a_reader_that_has_listed_the_versions_finds_the_links_of_those_that_are_gone(tmp_path: Path) -> None:
    store = FileStore.create(tmp_path, "d0")
    made = commit_many(store, 1, 10)
    reader = FileStore(tmp_path)
    assert reader.manifest(3) == made[2]
    with store.writer():
        store.collect_versions(keep=2)
    with pytest.raises(NotFound):
        reader.manifest(4)
    check_links(reader, made)
    (only,) = (path for path in (tmp_path / "manifests").glob("00000009-*"))
    only.write_bytes(b"x")
    with pytest.raises(Tampered):
        reader.manifest(9)  # that one is there, and damaged


@pytest.mark.parametrize("ask", ["head", "manifest", "writer"])
def test_a_head_that_is_collected_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: str) -> None:
    store = FileStore.create(tmp_path, "d0")
    made = commit_many(store, 1, 3)
    reader = FileStore(tmp_path)
    opened, moved = os.open, threading.Event()

    def opens(path: Path, flags: int, *mode: int, **more: int) -> int:
        if not moved.is_set() and str(path).endswith(".manifest"):
            moved.set()
            made.extend(commit_many(store, 4, 6))
            with store.writer():
                assert store.collect_versions(keep=1) == 5
        return opened(path, flags, *mode, **more)

    monkeypatch.setattr(os, "open", opens)
    if ask == "manifest":
        with pytest.raises(NotFound):
            reader.manifest(3)
        assert unpack_links(reader.links(3))[2] == link_of(3, made[2])
    elif ask == "head":
        assert reader.head() == made[-1]
    else:
        with reader.snapshot() as snapshot:
            assert snapshot.head == made[-1]
    assert moved.is_set()


def test_readers_and_backups_beside_a_writer_that_collects_all_the_time(tmp_path: Path) -> None:
    store = FileStore.create(tmp_path / "db", "d0")
    commit_many(store, 1, 5)
    done, failed = threading.Event(), []

    def read_on() -> None:
        try:
            reader = FileStore(tmp_path / "db")
            while not done.is_set():
                head = stated_shapes(reader.head())[0]
                links = links_of(reader, head)
                assert [link.draft.version for link in links] == list(range(1, head + 1))
                assert all(after.draft.previous == before.draft.hash for before, after in pairwise(links))
                backup(io.BytesIO(), reader)
        except BaseException as error:
            failed.append(error)
            raise

    readers = [threading.Thread(target=read_on) for _ in range(3)]
    for reader in readers:
        reader.start()
    for version in range(6, 60):
        commit_many(store, version, version)
        with store.writer():
            store.collect_versions(keep=1)
    done.set()
    for reader in readers:
        reader.join()
    assert not failed


def test_a_pack_that_says_otherwise_is_not_taken_for_the_manifest(tmp_path: Path) -> None:
    """Nothing is deleted unless a pack has the very link: not one of another history, nor a damaged one."""
    store = FileStore.create(tmp_path, "d0")
    made = commit_many(store, 1, 6)
    other = link_of(1, signed(1, {"zz": 1}))
    assert other not in (None, link_of(1, made[0]))
    place = tmp_path / "manifests/00000001.links"
    place.write_bytes(pack_links([other] if other else []))
    with store.writer():
        assert store.collect_versions(keep=1) == 4
    assert whole(store, 6) == [1, 6]
    place.write_bytes(place.read_bytes()[:-1])
    (tmp_path / "manifests/00000002.links").unlink()
    commit_many(store, 7, 7)
    with store.writer(), pytest.raises(Tampered):
        store.collect_versions(keep=1)
    assert whole(store, 7) == [1, 6, 7]


def test_manifests_that_a_crash_has_left_beside_their_links_are_deleted(tmp_path: Path) -> None:
    store = FileStore.create(tmp_path, "d0")
    made = commit_many(store, 1, 6)
    kept = {path: path.read_bytes() for path in (tmp_path / "manifests").iterdir()}
    with store.writer():
        store.collect_versions(keep=1)
    for path, content in kept.items():
        path.write_bytes(content)
    again = FileStore(tmp_path)
    assert whole(again, 6) == [1, 2, 3, 4, 5, 6]
    check_links(again, made)
    with again.writer():
        assert again.collect_versions(keep=1) == 5
    check_links(again, made)


def test_a_head_that_was_put_back_below_what_is_collected(tmp_path: Path) -> None:
    store = FileStore.create(tmp_path, "d0")
    made = commit_many(store, 1, 6)
    third = next((tmp_path / "manifests").glob("00000003-*"))
    with store.writer():
        store.collect_versions(keep=1)
    for path in (tmp_path / "manifests").glob("*.manifest"):
        path.unlink()
    third.write_bytes(made[2])
    (tmp_path / "HEAD").write_text(f"{third.name}\n")
    with pytest.raises(Tampered), FileStore(tmp_path).writer():
        pass


def test_a_commit_is_done_even_if_nothing_can_be_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore.create(tmp_path, "d0")
    store.keep_versions = 2
    made = commit_many(store, 1, 3)

    def full(*_: object) -> None:
        raise FileError("no room", hint="make some")

    with monkeypatch.context() as patch:
        patch.setattr("scumble.store.manifest_files._PackFiles.__setitem__", full)
        made += commit_many(store, 4, 7)
        with store.writer(), pytest.raises(FileError):
            store.collect_versions()
    assert whole(store, 7) == list(range(1, 8))
    made += commit_many(store, 8, 12)
    assert len(whole(store, 12)) < 6
    check_links(store, made)


def test_runs_of_versions_that_are_gone_are_dropped_as_ever(tmp_path: Path) -> None:
    """And a reader that was slow is told so."""
    store = FileStore.create(tmp_path, "d0")
    load(store, 1, {"ab": 2}, "ab")
    reader = FileStore(tmp_path)
    reader.head()
    commit_many(store, 2, 4)
    check_run(reader, "ab", 2)
    with store.writer():
        store.collect_versions(keep=1)
        assert store.drop_unreferenced() == 1
    with pytest.raises(Stale):
        reader.tags("ab", 0)
