"""The parts of the service by themselves: pipes, leases, limits, tenants, addresses, pins."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from fronts import DATABASE
from hypothesis import given
from hypothesis import strategies as st

from scumble.errors import AttestationRefused, Busy, FileError, InvalidParameter, NotFound, Tampered, Unavailable
from scumble.owner.remote import service as remote
from scumble.owner.remote.address import Address, is_address
from scumble.owner.remote.pins import Pin, Pins
from scumble.owner.remote.service import RemoteService, Reply, Transport
from scumble.provider.hosting import Hosting, add_tenant
from scumble.provider.leases import Leases
from scumble.provider.limits import RateLimit
from scumble.provider.routing import serve_call
from scumble.store.files import FileStore
from scumble.wire.pipe import ANSWER, CALL, JOB, Pipe


@pytest.fixture(name="ends")
def both_ends() -> Iterator[tuple[Pipe, Pipe]]:
    one, other = socket.socketpair()
    with one, other:
        yield Pipe(one), Pipe(other)


# --- pipes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 1000, 1 << 16, (1 << 20) + 1])
def test_a_frame_comes_out_as_it_went_in(ends: tuple[Pipe, Pipe], size: int) -> None:
    ours, theirs = ends
    sending = threading.Thread(target=ours.send, args=(JOB, ["request", 7], bytes(size)))
    sending.start()
    frame = theirs.receive()
    sending.join()
    assert (frame.kind, frame.header, bytes(frame.body)) == (JOB, ["request", 7], bytes(size))


def test_a_body_goes_where_it_is_asked_for_only_if_it_fits(ends: tuple[Pipe, Pipe]) -> None:
    ours, theirs = ends
    wanted = memoryview(bytearray(4))
    ours.send(ANSWER, [], b"abcd")
    assert theirs.receive(wanted).body is wanted
    assert bytes(wanted) == b"abcd"
    ours.send(ANSWER, [], b"abcde")
    assert theirs.receive(wanted).body is not wanted
    assert bytes(wanted) == b"abcd"


def test_an_error_comes_out_at_the_other_end(ends: tuple[Pipe, Pipe]) -> None:
    ours, theirs = ends
    ours.send_failure(NotFound("there is none", hint="look elsewhere"))
    with pytest.raises(NotFound, match="there is none"):
        theirs.receive_kind(ANSWER)
    ours.send_failure(ValueError("a secret"))
    with pytest.raises(Exception, match="ValueError") as raised:
        theirs.receive_kind(ANSWER)
    assert "a secret" not in str(raised.value)


def test_an_end_that_is_gone_is_noticed(ends: tuple[Pipe, Pipe]) -> None:
    ours, theirs = ends
    ours.close()
    with pytest.raises(Unavailable):
        theirs.receive()
    with pytest.raises(Unavailable):
        theirs.send(JOB, [], bytes(1 << 20))


@given(st.binary(max_size=200))
def test_bytes_that_are_no_frame_are_refused(content: bytes) -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(content)
        one.shutdown(socket.SHUT_WR)
        with pytest.raises((Unavailable, Tampered)):
            _drained(Pipe(other))


def _drained(pipe: Pipe) -> None:
    while True:
        pipe.receive()


def test_who_does_not_hold_the_database_can_call_for_no_write(ends: tuple[Pipe, Pipe], tmp_path: Path) -> None:
    ours, theirs = ends
    store = FileStore.create(tmp_path / "db", DATABASE)
    with store.writer():
        for call in (["commit", 1], ["drop_scratch"], ["write_scratch", "a"], ["create_run", "ab", [[1, 16]]]):
            theirs.send(CALL, call)
            serve_call(ours, ours.receive(), store, writing=False)
            with pytest.raises(Busy):
                theirs.receive_kind(b"R")


@given(st.lists(st.one_of(st.text(), st.integers(), st.none(), st.lists(st.integers())), max_size=6))
def test_any_call_is_answered(header: list[object]) -> None:
    one, other = socket.socketpair()
    with one, other:
        ours, theirs = Pipe(one), Pipe(other)
        theirs.send(CALL, header)
        serve_call(ours, ours.receive(), _Nothing(), writing=True)  # type: ignore[arg-type]
        assert theirs.receive().kind in (b"R", b"F")


def test_a_query_whose_client_has_gone_gets_no_more_pages_and_a_change_goes_on(ends: tuple[Pipe, Pipe]) -> None:
    ours, theirs = ends
    for gone, writing, kind in ((False, False, b"R"), (True, False, b"F"), (True, True, b"R")):
        theirs.send(CALL, ["read", "ab", 0, 0, 1, 16])
        serve_call(ours, ours.receive(), _Nothing(), writing=writing, gone=lambda gone=gone: gone)  # type: ignore
        assert theirs.receive().kind == kind


class _Nothing:
    def __getattr__(self, name: str) -> object:
        return lambda *_: b""


# --- leases ----------------------------------------------------------------------------------------


def leases(folder: Path, seconds: float = 60.0) -> Leases:
    return Leases(FileStore.create(folder / "db", DATABASE), seconds)


def test_one_session_at_a_time_may_write(tmp_path: Path) -> None:
    lent = leases(tmp_path)
    lent.take(1, 0)
    lent.take(1, 0)
    with lent.at_work(1) as one, lent.at_work(2) as two:
        assert (one, two) == (True, False)
    with pytest.raises(Busy):
        lent.take(2, 0)
    with pytest.raises(Busy):
        lent.drop_unreferenced(2)
    lent.give_back(2)
    with pytest.raises(Busy):
        lent.take(2, 0.1)
    lent.give_back(1)
    lent.take(2, 0)
    assert lent.drop_unreferenced(2) == 0


def test_a_lease_lapses_unless_its_session_is_at_work(tmp_path: Path) -> None:
    lent = leases(tmp_path, 0.0)
    lent.take(1, 0)
    with lent.at_work(1):
        time.sleep(0.01)
        lent.end_if_lapsed()
        with pytest.raises(Busy):
            lent.take(2, 0)
    time.sleep(0.01)
    lent.take(2, 0)
    with lent.at_work(1) as writing:
        assert not writing


def test_a_lease_that_is_given_back_ends_with_the_request_that_is_under_way(tmp_path: Path) -> None:
    """A client that lost its connection lets go: what its request is about to commit must not be cleared meanwhile."""
    store = FileStore.create(tmp_path / "db", DATABASE)
    lent = Leases(store, 60.0)
    lent.take(1, 0)
    with lent.at_work(1):
        store.write_scratch("a", b"rows")
        lent.give_back(1)
        with lent.at_work(1) as writing:
            assert not writing  # nothing new
        for session in (1, 2):
            with pytest.raises(Busy):
                lent.take(session, 0)
        with pytest.raises(Busy):
            lent.drop_unreferenced(1)
        assert store.read_scratch("a") == b"rows"
    lent.take(2, 0)


def test_a_session_that_has_built_something_has_one_more_request_to_sign_it(tmp_path: Path) -> None:
    lent = leases(tmp_path)
    lent.take(1, 0)
    assert not lent.unfinished(60.0)
    with lent.at_work(1):
        assert lent.unfinished(60.0)
    assert not lent.unfinished(60.0)  # nothing was built
    assert not lent.last_request(1, 60.0)
    with lent.at_work(1):
        lent.built(2)  # which may not write
        assert not lent.last_request(1, 60.0)
        lent.built(1)
        assert not lent.last_request(1, 60.0)  # it is not answered yet
    assert lent.unfinished(60.0)
    lent.take(1, 0)  # a renewal is no answer
    assert not lent.unfinished(0.0)
    assert not lent.last_request(1, 0.0)
    assert not lent.last_request(2, 60.0)
    assert lent.last_request(1, 60.0)
    with lent.at_work(1):
        lent.built(1)  # something else than a signature: that was all
    assert not lent.unfinished(60.0)
    assert not lent.last_request(1, 60.0)


@pytest.mark.parametrize("how", ["committed", "given back", "committed by another"])
def test_nothing_waits_for_a_signature_once_it_is_there_or_nobody_may_write(tmp_path: Path, how: str) -> None:
    lent = leases(tmp_path)
    lent.take(1, 0)
    with lent.at_work(1):
        lent.built(1)
    if how == "given back":
        lent.give_back(1)
        lent.take(2, 0)
    else:
        lent.commit(1 if how == "committed" else 2, lambda: None)
    assert lent.unfinished(60.0) == (how == "committed by another")


def test_a_lease_keeps_other_processes_out_too(tmp_path: Path) -> None:
    lent, other = leases(tmp_path), FileStore(tmp_path / "db")
    lent.take(1, 0)
    with pytest.raises(Busy), other.writer(0):
        pass
    lent.give_back(1)
    with other.writer(0):
        pass


def test_who_waits_for_another_process_to_write_keeps_nobody_from_reading(tmp_path: Path) -> None:
    store = FileStore.create(tmp_path / "db", DATABASE)
    leases, another = Leases(store), FileStore(tmp_path / "db")
    with another.writer(0):
        waiting = threading.Thread(target=leases.take, args=(1, 30))
        waiting.start()
        time.sleep(0.1)
        asked = time.monotonic()
        for _ in range(20):
            with leases.at_work(2) as writing:
                assert not writing
        assert time.monotonic() - asked < 15
        with pytest.raises(Busy):
            leases.take(2, 0)
    waiting.join()
    with leases.at_work(1) as writing:
        assert writing
    leases.give_back(1)


# --- limits, tenants, addresses, pins --------------------------------------------------------------


def test_an_address_has_so_many_a_second_and_twice_as_many_at_once() -> None:
    limit = RateLimit(10)
    assert [limit.wait_seconds("a", 0.0) for _ in range(20)] == [0.0] * 20
    assert limit.wait_seconds("a", 0.0) == pytest.approx(0.1)
    assert limit.wait_seconds("b", 0.0) == 0.0
    assert limit.wait_seconds("a", 0.1) == 0.0
    assert limit.wait_seconds("a", 0.1) == pytest.approx(0.1)


def hosting(folder: Path, *, open_to_all: bool = False) -> Hosting:
    return Hosting(folder, None, lambda pages, size: None, open_to_all=open_to_all)  # type: ignore[arg-type]


def test_only_a_tenant_with_its_token_makes_databases(tmp_path: Path) -> None:
    old, token, other = (add_tenant(tmp_path, name) for name in ("acme", "acme", "other"))
    served = hosting(tmp_path)
    for wrong in ("", old, other, token + "x"):
        with pytest.raises(NotFound, match="token"):
            served.create("acme", "clinic", DATABASE, wrong)
    served.create("acme", "clinic", DATABASE, token)
    assert token not in (tmp_path / "tenants.json").read_text()
    served.create("acme", "clinic", DATABASE, token)  # what was begun and has nothing in it goes on
    with pytest.raises(Exception, match="already"):
        served.create("acme", "clinic", "fedcba9876543210", token)
    served.close()


@pytest.mark.parametrize("name", ["..", "", "a/b", "A", "a.b", "-a", "a" * 65, "a\0", "é"])
def test_a_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    served = hosting(tmp_path, open_to_all=True)
    for tenant, database in ((name, "a"), ("a", name)):
        with pytest.raises(NotFound):
            served.get(tenant, database)
        with pytest.raises(NotFound):
            served.create(tenant, database, DATABASE, "")
    with pytest.raises(InvalidParameter):
        add_tenant(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_an_address_is_read_and_written() -> None:
    assert Address.parse("scumble://host/db") == Address("host", 7300, "default", "db")
    assert Address.parse("scumbles://[::1]:80/acme/db") == Address("::1", 80, "acme", "db", tls=True)
    for text in ("scumble://host:7300/db", "scumbles://[::1]:80/acme/db"):
        assert str(Address.parse(text)) == text
    assert is_address("scumble://host/db")
    assert not any(map(is_address, ("clinic", "http://host/db", "scumble:/host/db", Path("a"))))


@pytest.mark.parametrize(
    "text",
    ["scumble://", "scumble://host", "scumble://host/", "scumble://host/a/b/c", "scumble://host:99999/a", "http://a/b",
     "scumble://me@host/a", "scumble://host/A", "scumble://host/a?b", "scumble://host/..", "scumble://[::1/a"],
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter):
        Address.parse(text)


def test_pins_are_kept_by_address(tmp_path: Path) -> None:
    pins, here, there = Pins(tmp_path / "a.pins"), Address.parse("scumble://a/b"), Address.parse("scumble://a/c")
    assert pins.get(here) is None
    pins.put(here, Pin("simulated", "ab", "1"))
    pins.put(there, Pin("tdx", "cd", "2"))
    assert pins.get(here) == Pin("simulated", "ab", "1")
    assert Pins(tmp_path / "a.pins").get(there) == Pin("tdx", "cd", "2")


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"a": 1}', b"\xff"])
def test_what_are_no_pins_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.pins"
    path.write_bytes(content)
    with pytest.raises((FileError, AttestationRefused)):
        Pins(path).get(Address.parse("scumble://a/b"))


def test_a_service_that_is_gone_is_waited_for_once_and_by_nobody_who_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    now, connects = [0.0], [0]

    def refuse(*_: object, **__: object) -> None:
        connects[0] += 1
        raise ConnectionRefusedError

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(remote, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(Transport, "_connected", refuse)
    address = Address.parse("scumble://host/clinic")
    transport = Transport(address, connect_seconds=10.0)
    service = RemoteService(address, transport, lambda *_: None)  # type: ignore[arg-type]
    service.leave(1)
    assert (now, connects) == ([0.0], [1])
    for tries in (41, 1, 1):  # one every quarter of a second
        connects[0] = 0
        with pytest.raises(Unavailable):
            service.fresh_key()
        assert (now[0], connects[0]) == (10.0, tries)


@pytest.mark.parametrize(
    ("body", "runs"), [(b'{"runs": 3}', 3), (b"", 0), (b'{"runs": true}', 0), (b"[]", 0), (b"[" * 100_000, 0)]
)
def test_how_many_runs_a_service_says_it_has_deleted(body: bytes, runs: int) -> None:
    class Answering:
        def ask(self, *_: object, wait: bool) -> Reply:
            assert not wait  # the next writer does it
            return Reply({}, body)

    service = RemoteService(Address.parse("scumble://host/clinic"), Answering(), lambda *_: None)  # type: ignore[arg-type]
    assert service.drop_unreferenced() == runs
