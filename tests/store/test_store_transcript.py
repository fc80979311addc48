"""The transcript: what the provider saw, all of it and in order, and nothing that it could not see."""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_databases import SLOT_BYTES, database, pages_of, shape, signed, tags_of

from scumble.errors import NotFound, Tampered
from scumble.provider.front import Provider
from scumble.store import transcript as transcript_module
from scumble.store.files import FileStore
from scumble.store.transcript import FACTS, Event, LogFiles, RecordingStore, Transcript, comparable, exchanges
from scumble.wire.storage import Enclave, Storage

SECRET = b"a request that only the enclave may open"


class Reads:
    """Stands for an enclave: reads some pages for every request."""

    def fresh_key(self) -> bytes:
        return b"public key"

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.meet: threading.Barrier | None = None

    def greet(self, sealed: bytes) -> tuple[int, bytes]:
        self.storage.head()
        return len(sealed), b"hello"

    def request(self, session: int, sealed: bytes | memoryview) -> bytes:
        for page in range(session % 4):
            if self.meet:
                self.meet.wait(20)
            self.storage.read("ab", 1, page, 1, memoryview(bytearray(SLOT_BYTES[1])))
        if session == 99:
            raise Tampered
        return bytes(sealed) + SECRET

    def leave(self, session: int) -> None:
        pass


def provider(folder: Path) -> Provider:
    return Provider(database(folder, ("ab", 5)), Reads)


def test_a_provider_is_an_enclave_to_its_owners(tmp_path: Path) -> None:
    front: Enclave = provider(tmp_path)
    assert front.fresh_key() == b"public key"
    assert front.greet(b"xyz") == (3, b"hello")
    assert front.request(3, memoryview(SECRET)) == SECRET * 2
    front.leave(3)


def test_what_happens_inside_a_request_is_listed_under_it(tmp_path: Path) -> None:
    front = provider(tmp_path)
    front.greet(b"xy")
    front.request(2, SECRET)
    with pytest.raises(Tampered):
        front.request(99, SECRET[:7])
    front.leave(2)
    head = len(front.store.head())
    assert [event.public() for event in front.transcript.events()] == [
        (1, "greet", 0, (("bytes", 2),)),
        (2, "head", 1, (("bytes", head),)),
        (3, "session", 1, (("session", 2), ("bytes", 5))),
        (4, "request", 0, (("session", 2), ("bytes", 40))),
        (5, "read", 4, (("run", "ab"), ("column", 1), ("first_page", 0), ("pages", 1), ("bytes", SLOT_BYTES[1]))),
        (6, "read", 4, (("run", "ab"), ("column", 1), ("first_page", 1), ("pages", 1), ("bytes", SLOT_BYTES[1]))),
        (7, "answer", 4, (("session", 2), ("bytes", 80))),
        (8, "request", 0, (("session", 99), ("bytes", 7))),
        (9, "read", 8, (("run", "ab"), ("column", 1), ("first_page", 0), ("pages", 1), ("bytes", SLOT_BYTES[1]))),
        (10, "read", 8, (("run", "ab"), ("column", 1), ("first_page", 1), ("pages", 1), ("bytes", SLOT_BYTES[1]))),
        (11, "read", 8, (("run", "ab"), ("column", 1), ("first_page", 2), ("pages", 1), ("bytes", SLOT_BYTES[1]))),
        (12, "failure", 8, (("session", 99),)),
        (13, "leave", 0, (("session", 2),)),
    ]
    greeting, first, second = front.transcript.exchanges()
    assert [event.kind for event in greeting.inside] == ["head"]
    assert [event["first_page"] for event in first.inside] == [0, 1]
    assert first.closed is not None
    assert first.closed["bytes"] == 80
    assert second.closed is not None
    assert second.closed.kind == "failure"


def test_requests_of_several_threads_do_not_mix(tmp_path: Path) -> None:
    front = provider(tmp_path)
    front._enclave.meet = threading.Barrier(4)  # type: ignore[attr-defined]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: front.request(4 * n + 3, b"x" * n), range(4)))
    found = list(front.transcript.exchanges())
    assert sorted(one.opened["session"] for one in found) == [3, 7, 11, 15]
    for one in found:
        assert [event["first_page"] for event in one.inside] == [0, 1, 2]
        assert one.closed is not None
        assert one.closed["session"] == one.opened["session"]
    numbers = [event.number for event in front.transcript.events()]
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_call_of_the_store_is_recorded(tmp_path: Path) -> None:
    transcript = Transcript()
    store = FileStore.create(tmp_path, "0a")
    recording: Storage = RecordingStore(store, transcript)
    with store.writer():
        recording.create_run("ab", shape(2))
        recording.write("ab", 1, 0, memoryview(pages_of("ab", 1, 2)))
        recording.finish_run("ab", tags_of("ab", 2))
        recording.write_scratch("sort-0", b"12345")
        assert recording.read_scratch("sort-0") == b"12345"
        recording.drop_scratch()
        recording.commit(1, signed(1, {"ab": 2}))
    recording.head()
    recording.manifest(1)
    recording.tags("ab", 2)
    recording.read("ab", 1, 1, 1, memoryview(bytearray(SLOT_BYTES[1])))
    with store.writer():
        next_one = signed(2, {"ab": 2}, store.head())
        recording.commit(2, next_one)
        store.collect_versions(keep=1)
    links = recording.links(1)
    size = len(signed(1, {"ab": 2}))
    assert [(event.kind, *dict(event.facts).values()) for event in transcript.events()] == [
        ("create_run", "ab", 3, 2 * sum(SLOT_BYTES)),
        ("write", "ab", 1, 0, 2 * SLOT_BYTES[1]),
        ("finish_run", "ab", 96),
        ("write_scratch", "sort-0", 5),
        ("read_scratch", "sort-0", 5),
        ("drop_scratch",),
        ("commit", 1, size),
        ("head", size),
        ("manifest", 1, size),
        ("tags", "ab", 2, 32),
        ("read", "ab", 1, 1, 1, SLOT_BYTES[1]),
        ("commit", 2, len(next_one)),
        ("links", 1, len(links)),
    ]
    methods = {name for name in vars(Storage) if not name.startswith("_")}
    assert methods == {event.kind for event in transcript.events()}


def test_the_log_is_read_back_and_holds_no_byte_of_a_request(tmp_path: Path) -> None:
    front = provider(tmp_path)
    front.greet(b"xy")
    for _ in range(300):
        front.request(3, SECRET)
    assert len((tmp_path / "transcript.log").read_bytes()) > 64_000  # written before it is closed
    front.close()
    events = list(front.transcript.events())
    assert Transcript.read(LogFiles(tmp_path)) == events
    assert Transcript.read(LogFiles(tmp_path), last=5) == events[-5:]
    assert Transcript.read(LogFiles(tmp_path), last=0) == []
    assert [e.time_ns for e in Transcript.read(LogFiles(tmp_path))] == [e.time_ns for e in events]
    log = (tmp_path / "transcript.log").read_bytes()
    assert SECRET not in log
    assert b"hello" not in log
    assert [json.loads(line) for line in log.splitlines()] == [event.to_json() for event in events]
    assert len(list(exchanges(Transcript.read(LogFiles(tmp_path))))) == 301


def test_transcripts_compare_without_time_and_without_random_names(tmp_path: Path) -> None:
    found = []
    for run in ("ab", "cd"):
        transcript = Transcript()
        store = RecordingStore(database(tmp_path / run, (run, 2), ("ef", 2)), transcript)
        for name in ("ef", run, "ef"):
            store.read(name, 0, 0, 0, memoryview(bytearray()))
        found.append(list(transcript.events()))
    assert found[0] != found[1]
    assert comparable(found[0]) == comparable(found[1])
    assert [event["run"] for event in found[0]] == ["ef", "ab", "ef"]
    assert [dict(facts)["run"] for *_, facts in comparable(found[0])] == [0, 1, 0]


def test_two_openings_of_a_database_do_not_mix(tmp_path: Path) -> None:
    first, second = Transcript(LogFiles(tmp_path)), Transcript(LogFiles(tmp_path))
    for transcript in (first, second):
        transcript.open_exchange("request", 1, 10)
    first.record("head", 1)
    second.record("head", 2)
    for transcript in (first, second):
        transcript.close_exchange("answer", 1, 10)
        transcript.flush()
    found = list(exchanges(Transcript.read(LogFiles(tmp_path))))
    assert [[event["bytes"] for event in one.inside] for one in found] == [[1], [2]]


def test_the_log_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript_module, "ROTATE_BYTES", 100_000)
    transcript = Transcript(LogFiles(tmp_path))
    for page in range(3000):
        transcript.record("read", "ab", 0, page, 1, 100)
    transcript.close()
    sizes = [(tmp_path / name).stat().st_size for name in ("transcript.log", "transcript.log.1")]
    assert max(sizes) <= 100_000
    pages = [event["first_page"] for event in Transcript.read(LogFiles(tmp_path))]
    assert pages == list(range(3000 - len(pages), 3000))
    assert len(pages) > 700
    assert Transcript.read(LogFiles(tmp_path), last=1000) == list(transcript.events())[-1000:]


def test_several_processes_write_and_rotate_one_log(tmp_path: Path) -> None:
    code = """if True:
        import sys
        from pathlib import Path
        from scumble.store import transcript as module
        module.ROTATE_BYTES = 2_000_000
        transcript = module.Transcript(module.LogFiles(Path(sys.argv[1])))
        for page in range(5000):
            transcript.record("read", sys.argv[2], 0, page, 1, 100)
    """
    processes = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(n)]) for n in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    events = Transcript.read(LogFiles(tmp_path))
    for n in range(4):  # flushed at exit, and nothing lost: both files together hold more than was written
        assert [event["first_page"] for event in events if event["run"] == str(n)] == list(range(5000))
    assert (tmp_path / "transcript.log.1").exists()


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript_module, "MOST_IN_MEMORY", 100)
    transcript = Transcript()
    for page in range(1000):
        transcript.record("read", "ab", 0, page, 1, 100)
    assert [event.number for event in transcript.events()] == list(range(901, 1001))
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_cannot_be_written_stops_no_query(tmp_path: Path) -> None:
    (tmp_path / "transcript.log").mkdir()
    front = provider(tmp_path / "db")
    front.transcript = Transcript(LogFiles(tmp_path))
    for _ in range(500):
        front.request(3, b"x")
    front.close()
    assert Transcript.read(LogFiles(tmp_path)) == []
    assert len(list(front.transcript.events())) == 1000  # without the reads, which the other transcript has
    assert Transcript.read(LogFiles(tmp_path / "nowhere")) == []


def test_a_forked_child_does_not_write_what_its_parent_saw(tmp_path: Path) -> None:
    transcript = Transcript(LogFiles(tmp_path))
    transcript.record("head", 1)
    child = os.fork()
    if child == 0:
        try:
            transcript.flush()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    transcript.flush()
    assert len(Transcript.read(LogFiles(tmp_path))) == 1


NAMES: st.SearchStrategy[int | str] = st.text()
NUMBERS: st.SearchStrategy[int | str] = st.integers(0, 2**63)


@given(st.sampled_from(sorted(FACTS)), st.data())
def test_every_event_comes_back_from_its_line(kind: str, data: st.DataObject) -> None:
    facts = [data.draw(NAMES if name in ("run", "scratch") else NUMBERS) for name in FACTS[kind]]
    transcript = Transcript()
    transcript.record(kind, *facts)
    (event,) = transcript.events()
    line = transcript_module._line("ab12", transcript._latest[0])
    assert line.count("\n") == 1
    assert Event.from_json(json.loads(line)) == event
    assert json.loads(line).keys() == event.to_json().keys()


@given(st.binary(max_size=100) | st.sampled_from([b"[1]", b"{}", b'{"kind":"head"}', b'{"kind":[]}', b"[" * 20_000]))
def test_lines_that_are_no_events_are_passed_over(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    folder = tmp_path_factory.mktemp("log")
    whole = b'{"number":1,"time_ns":1,"opening":"a","exchange":0,"kind":"head","bytes":5}\n'
    wrong = whole.replace(b":5", b':"5"') + whole.replace(b'"a"', b"7") + whole.replace(b":1,", b":true,")
    (folder / "transcript.log").write_bytes(whole + wrong + junk + b"\n" + whole + whole[:40])
    assert [event["bytes"] for event in Transcript.read(LogFiles(folder))] == [5, 5]


def test_a_failed_call_is_seen_as_well(tmp_path: Path) -> None:
    transcript = Transcript()
    store = RecordingStore(FileStore.create(tmp_path, "0a"), transcript)
    with pytest.raises(NotFound):
        store.head()
    with pytest.raises(Tampered):
        store.read("ab", 0, 0, 1, memoryview(bytearray(1)))
    assert [event.kind for event in transcript.events()] == ["read"]
