"""What every store promises, whatever it keeps its bytes in: one test for all of them.

What only a folder can do wrong (crashes, lying files, several processes) is in test_store_files.py,
test_store_crashes.py and test_store_tampering.py.
"""

import io
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pytest
from store_databases import (
    MAKERS,
    SLOT_BYTES,
    another,
    check_run,
    filled,
    load,
    manifest,
    pages_of,
    read,
    shape,
    store,
    tags_of,
    write_run,
)

import scumble
from scumble.errors import Busy, Exists, InvalidParameter, NotFound, Stale, Tampered
from scumble.store import KINDS
from scumble.store.backup import backup, restore
from scumble.store.files import FileStore
from scumble.store.memory import MemoryStore
from scumble.store.protocol import Location, Restoring, Store
from scumble.store.transcript import Transcript

__all__ = ["store"]


def test_a_new_database_is_empty(store: Store) -> None:
    assert (store.database, store.is_empty()) == ("d0", True)
    for ask in (store.head, lambda: store.manifest(1)):
        with pytest.raises(NotFound):
            ask()
    with pytest.raises(NotFound), store.snapshot():
        pass


@pytest.mark.parametrize("make", MAKERS.values())
def test_an_id_is_checked(make: Callable[[Path, str], Store], tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter):
        make(tmp_path / "db", "../x")


def test_what_was_stored_comes_back(store: Store) -> None:
    filled(store, ("ab", 5), ("cd", 1), ("ef-1", 12))
    assert not store.is_empty()
    for run, pages in (("ab", 5), ("cd", 1), ("ef-1", 12)):
        check_run(store, run, pages)
    assert read(store, "ef-1", 1, 3, 4) == pages_of("ef-1", 1, 12)[3 * SLOT_BYTES[1] : 7 * SLOT_BYTES[1]]
    assert read(store, "ef-1", 1, 12, 0) == b""
    assert store.manifest(1) == manifest(1, {"ab": 5})
    assert store.manifest(3) == store.head() == manifest(3, {"ab": 5, "cd": 1, "ef-1": 12}, store.manifest(2))
    for missing in (0, 4, -1):
        with pytest.raises(NotFound):
            store.manifest(missing)
    store.close()
    for opened in (store, another(store)):
        assert (opened.database, opened.head(), opened.manifest(1)) == ("d0", store.head(), store.manifest(1))
        check_run(opened, "ab", 5)


def test_the_stamp_changes_with_every_commit_and_with_nothing_else(store: Store) -> None:
    stamps = [store.stamp()]
    with store.writer():
        for version in (1, 2, 3):
            write_run(store, f"r{version}", 1)
            assert store.stamp() == stamps[-1]
            store.commit(version, manifest(version, {f"r{version}": 1}))
            stamps.append(store.stamp())
            store.drop_unreferenced()
            assert store.stamp() == stamps[-1]
    assert len(set(stamps)) == 4


def test_pages_that_are_not_there(store: Store) -> None:
    filled(store, ("ab", 4))
    for column, first, pages in ((3, 0, 1), (-1, 0, 1), (0, 4, 1), (0, 3, 2), (0, -1, 1), (0, 2, -1), (0, 2**70, 1)):
        with pytest.raises(Tampered):
            store.read("ab", column, first, pages, memoryview(bytearray(max(pages, 0) * SLOT_BYTES[0])))
    with pytest.raises(Tampered):
        store.read("ab", 0, 0, 1, memoryview(bytearray(SLOT_BYTES[0] - 1)))
    with pytest.raises(Tampered):
        store.read("cd", 0, 0, 1, memoryview(bytearray(SLOT_BYTES[0])))
    for column in (-1, 3):
        with pytest.raises(Tampered):
            store.tags("ab", column)
    with pytest.raises(Tampered):
        store.read_scratch("sort-1")  # gone with the load


BAD_NAMES = ["", "../HEAD", "a/b", "/etc/passwd", ".", "..", "a.b", "A", "a\0", "a\n", "ä", "-a", "a" * 101]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_are_checked(store: Store, name: str, tmp_path: Path) -> None:
    filled(store, ("ab", 2))
    with store.writer():
        there = set(tmp_path.rglob("*"))
        for use in (
            lambda: store.create_run(name, shape(1)),
            lambda: store.write(name, 0, 0, b""),
            lambda: store.finish_run(name, tags_of("ab", 1)),
            lambda: store.read(name, 0, 0, 0, memoryview(b"")),
            lambda: store.tags(name, 0),
            lambda: store.write_scratch(name, b"x"),
            lambda: store.read_scratch(name),
        ):
            with pytest.raises((InvalidParameter, Tampered)):
                use()
        with pytest.raises(Tampered):
            store.commit(2, manifest(2, {name: 1}))
        assert set(tmp_path.rglob("*")) == there  # a name never leaves its folder


def test_a_run_takes_what_its_shape_has_room_for(store: Store) -> None:
    with store.writer():
        store.create_run("ab", shape(2))
        slot = bytes(SLOT_BYTES[0])
        for column, first in ((3, 0), (-1, 0), (0, 2), (0, -1)):
            with pytest.raises(InvalidParameter):
                store.write("ab", column, first, slot)
        for first, pages in ((1, slot * 2), (0, b"x")):
            with pytest.raises(InvalidParameter):
                store.write("ab", 0, first, pages)
        for tags in ([], tags_of("ab", 2)[:2], [*tags_of("ab", 2), b""], tags_of("ab", 3)):
            with pytest.raises(InvalidParameter):
                store.finish_run("ab", tags)
        with pytest.raises(InvalidParameter):
            store.commit(1, manifest(1, {"ab": 2}))  # it is not finished
        for length in (5, 1, 2):
            store.create_run("ab", shape(length))  # as often as one likes, until something is written
        store.write("ab", 0, 1, slot)
        with pytest.raises(Exists):
            store.create_run("ab", shape(2))
        store.finish_run("ab", tags_of("ab", 2))
        with pytest.raises(Exists):
            store.create_run("ab", shape(2))
        with pytest.raises(InvalidParameter):
            store.write("ab", 0, 0, slot)
        with pytest.raises(InvalidParameter):
            store.finish_run("ab", tags_of("ab", 2))
        assert store.tags("ab", 1) == tags_of("ab", 2)[1]
        for other in (manifest(1, {"ab": 3}), manifest(1, {"ab": 2, "cd": 1}), manifest(2, {"ab": 2})):
            with pytest.raises(InvalidParameter):
                store.commit(1, other)
        for bad in ([(1, 0)], [(-1, 5)], [(1.5, 5)], [(2**40, 2**40)]):
            with pytest.raises(InvalidParameter):
                store.create_run("cd", bad)  # type: ignore[arg-type]
        store.create_run("empty", shape(0))
        store.finish_run("empty", [b""] * 3)
        assert store.tags("empty", 2) == b""
    assert store.is_empty()
    with store.writer():
        store.create_run("ab", shape(2))  # what was not committed is gone, and its name is free


def test_writing_needs_the_writers_right(store: Store) -> None:
    filled(store, ("ab", 1))
    for use in (
        lambda: store.create_run("cd", shape(1)),
        lambda: store.write("cd", 0, 0, b""),
        lambda: store.finish_run("cd", []),
        lambda: store.commit(2, manifest(2, {})),
        lambda: store.write_scratch("a", b""),
        store.drop_scratch,
        store.drop_unreferenced,
    ):
        with pytest.raises(Busy):
            use()


def test_a_version_that_is_not_the_next_is_refused(store: Store) -> None:
    filled(store, ("ab", 1), ("cd", 1))
    with store.writer():
        for version in (0, 1, 2, 4):
            with pytest.raises(Busy):
                store.commit(version, manifest(version, {"ab": 1}))
        store.commit(3, manifest(3, {"ab": 1}))
        store.commit(4, manifest(4, {"ab": 1}))
    assert store.head() == manifest(4, {"ab": 1})


def test_the_second_writer_waits_and_then_gives_up(store: Store) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with store.writer():
            entered.set()
            leave.wait(20)
            write_run(store, "cd", 2)
            store.commit(1, manifest(1, {"cd": 2}))

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(20)
    for other in (store, another(store)):
        with pytest.raises(Busy) as caught, other.writer(busy_seconds=0.05):
            pytest.fail("two writers at once")
        assert caught.value.hint
    threading.Timer(0.1, leave.set).start()
    load(another(store), 2, {"cd": 2, "ab": 1}, "ab")
    thread.join()


def test_what_a_load_leaves_undone_is_gone_after_it(store: Store) -> None:
    filled(store, ("ab", 2))
    old = store.head()

    def break_off() -> None:
        with store.writer():
            store.write_scratch("sort-0", b"x")
            write_run(store, "cd", 2)
            store.create_run("ef", shape(2))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert store.head() == old
    check_run(store, "ab", 2)
    for run in ("cd", "ef"):
        with pytest.raises(Tampered):
            store.tags(run, 0)
    with store.writer():
        assert store.drop_unreferenced() == 0


def test_nothing_of_a_load_is_seen_before_it_is_committed(store: Store) -> None:
    filled(store, ("ab", 2))
    reader, late = another(store), another(store)
    old, stamp = reader.head(), reader.stamp()
    with store.writer():
        write_run(store, "cd", 3)
        check_run(reader, "ab", 2)
        with pytest.raises(InvalidParameter):
            store.commit(2, manifest(2, {"cd": 4}))
        for each in (store, reader):
            assert (each.head(), each.stamp()) == (old, stamp)
        store.commit(2, manifest(2, {"cd": 3}))
        check_run(reader, "ab", 2)
        for each in (store, reader):
            assert each.head() == manifest(2, {"cd": 3})
    check_run(reader, "cd", 3)
    check_run(late, "ab", 2)  # no longer in the head, but an earlier version names it
    with another(store).writer():
        pass  # and what an earlier version names is no leftover
    check_run(another(store), "ab", 2)


def test_dropped_runs_are_stale_and_not_tampered_with(store: Store) -> None:
    filled(store, ("ab", 2), ("cd", 2), ("ef", 2))
    reader = another(store)
    reader.head()
    with store.writer():
        write_run(store, "0123", 1)
        store.commit(4, manifest(4, {"ef": 2}))
        write_run(store, "4567", 1)
        assert store.drop_unreferenced({"cd"}) == 1
        assert store.drop_unreferenced({"cd"}) == 0
        check_run(store, "4567", 1)  # not committed, but the writer's own
        with pytest.raises(Stale):
            store.read("ab", 0, 0, 0, memoryview(b""))
    with pytest.raises(Stale):
        reader.tags("ab", 0)
    for run in ("cd", "ef"):
        check_run(reader, run, 2)


def test_many_readers_beside_a_writer(store: Store) -> None:
    filled(store, ("ab", 6))
    done = threading.Event()

    def read_on() -> None:
        while not done.is_set():
            check_run(store, "ab", 6)
            assert store.manifest(1) == manifest(1, {"ab": 6})
            store.head()

    with ThreadPoolExecutor(4) as threads:
        reading = [threads.submit(read_on) for _ in range(4)]
        try:
            for version in range(2, 12):
                load(store, version, {"ab": 6, f"r{version}": 2}, f"r{version}")
                with store.writer():
                    store.drop_unreferenced()
        finally:
            done.set()
        for each in reading:
            each.result()


def test_a_transcript_is_kept_with_the_store(store: Store) -> None:
    assert Transcript.read(store.log) == []
    transcript = Transcript(store.log)
    for size in range(500):
        transcript.record("head", size)
    transcript.close()
    assert Transcript.read(store.log) == list(transcript.events())
    assert [event["bytes"] for event in Transcript.read(store.log, last=2)] == [498, 499]


# Backups, from any store into any other.


def _into(kind: str, place: Path) -> tuple[AbstractContextManager[Restoring], Callable[[], Store]]:
    if kind == "files":
        return FileStore.restoring(place), lambda: FileStore(place)
    store = MemoryStore()
    return store.restoring(), lambda: store


@pytest.mark.parametrize("kind", MAKERS)
def test_a_backup_moves_a_database_from_any_store_to_any_other(store: Store, kind: str, tmp_path: Path) -> None:
    runs = {"ab": 2, "cd": 9, "ef": 1}
    filled(store, *runs.items())
    sink = io.BytesIO()
    report = backup(sink, store)
    target, restored = _into(kind, tmp_path / "again")
    assert restore(io.BytesIO(sink.getvalue()), target) == report
    made = restored()
    assert (made.database, made.is_empty()) == ("d0", False)
    assert [made.manifest(version) for version in (1, 2, 3)] == [store.manifest(version) for version in (1, 2, 3)]
    for run, pages in runs.items():
        check_run(made, run, pages)
    copy = io.BytesIO()
    backup(copy, made)
    assert copy.getvalue() == sink.getvalue()
    load(made, 4, {**runs, "r4": 2}, "r4")
    again, _ = _into(kind, tmp_path / "third")
    with pytest.raises(scumble.errors.Corrupt):
        restore(io.BytesIO(sink.getvalue()[:-2000]), again)


def test_a_snapshot_outlives_a_drop(store: Store) -> None:
    filled(store, ("ab", 3))
    with store.snapshot() as snapshot:
        load(store, 2, {"cd": 1}, "cd")
        with store.writer():
            assert store.drop_unreferenced() == 1
        assert snapshot.head == manifest(1, {"ab": 3})
        assert b"".join(snapshot.pages("ab")) == b"".join(pages_of("ab", column, 3) for column in range(3))
        assert b"".join(snapshot.tags("ab")) == b"".join(tags_of("ab", 3))


# A database on a kind of store that is registered here, and nowhere else.


class Shelf:
    """A `Kind`: stores in memory, by their location."""

    def __init__(self) -> None:
        self.stores: dict[str, MemoryStore] = {}

    def __call__(self, location: Location) -> MemoryStore:
        return self.stores[str(location)]

    def create(self, location: Location, database: str) -> MemoryStore:
        return self.stores.setdefault(str(location), MemoryStore(database))

    def exists(self, location: Location) -> bool:
        return str(location) in self.stores

    def restoring(self, location: Location) -> AbstractContextManager[Restoring]:
        return self.stores.setdefault(str(location), MemoryStore()).restoring()


def test_a_whole_database_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, key = Shelf(), tmp_path / "clinic.key"
    monkeypatch.setitem(KINDS, "memory", shelf)
    with scumble.create("memory://clinic", key=key) as db:
        db.load("visits", pa.table({"day": [3, 1, 2], "amount": [30, 10, 20]}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clinic.anchor", "clinic.key", "clinic.ledger"]
    with scumble.open("memory://clinic", key=key) as db:
        assert db.sql("SELECT count(*), sum(amount) FROM visits WHERE day >= 2").fetchall() == [(2, 50)]
        db.load("visits", pa.table({"day": [4], "amount": [40]}))
        db.rekey()
        assert db.sql("SELECT sum(amount) FROM visits").fetchall() == [(100,)]
    (store,) = shelf.stores.values()
    assert {event.kind for event in Transcript.read(store.log)} >= {"greet", "request", "read", "commit"}
    sink = io.BytesIO()
    backup(sink, store)
    restore(io.BytesIO(sink.getvalue()), FileStore.restoring(tmp_path / "clinic"))
    with scumble.open(tmp_path / "clinic") as db:
        assert db.sql("SELECT sum(amount) FROM visits").fetchall() == [(100,)]
