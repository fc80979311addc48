"""Who asks for too much: strangers, readers, tenants and clients that hang up leave memory and turns to the others.

Nothing here measures time. What counts is memory, pages read, and who was answered before whom.
"""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fronts import ATTEST, DATABASE, fronting, session_of, until

import scumble
from scumble.errors import InvalidParameter, Refused, ScumbleError, TooManyPlans, Unavailable
from scumble.owner.keys import AnalystKey
from scumble.provider.fleet import LANES
from scumble.wire.channel import QUERY_BYTES, SMALL_BYTES
from scumble.wire.requests import JSON, ForgetPlans, Open, Scan
from serving import Serving, serving

MIB = 1 << 20
ROWS = 100_000
VALUES = 1_000
"""Constants of a query that takes the enclave a while: every row is held against each."""
SLOW = "SELECT count(*) FROM t WHERE word IN (?)".replace("?", ", ".join(f"'{7 * n:040}'" for n in range(VALUES)))
QUICK = "SELECT count(*) FROM t WHERE k = 1"


def peak_bytes(pid: int) -> int:
    return 1024 * int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0])


def load(db: scumble.Database, rows: int = ROWS) -> None:
    table = pa.table({"k": pa.array(range(rows), pa.int64()), "word": [f"{n % 1000:040}" for n in range(rows)]})
    db.load("t", table, capacity=-(-rows // 1024) * 1024, types={"k": "bigint not null", "word": "text(40) not null"})


@pytest.fixture(name="small", scope="module")
def one_enclave(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Serving, Path]]:
    """A service with one enclave, and two databases of different tenants with a table each."""
    keys = tmp_path_factory.mktemp("keys")
    with serving(tmp_path_factory.mktemp("small") / "served", "--enclaves", "1") as running:
        for name in ("greedy/big", "modest/tiny"):
            with running.create(name, keys_of(keys, name)) as db:
                load(db, ROWS if name == "greedy/big" else 1024)
        yield running, keys


def keys_of(keys: Path, name: str) -> Path:
    (keys / name).parent.mkdir(exist_ok=True)
    return keys


def pages_read(running: Serving) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=20)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return int(float(text.split("\nscumble_pages_read_total ")[1].split()[0]))


# --- bodies ------------------------------------------------------------------------------------------


def test_bodies_that_no_route_takes_take_no_memory(tmp_path: Path) -> None:
    with fronting(tmp_path / "served") as front, ExitStack() as open_ones:
        before = front.memory_bytes()
        head = ATTEST + f"content-length: {8 * MIB}\r\n\r\n".encode()
        made = [open_ones.enter_context(front.connection(head)) for _ in range(40)]
        for each in made:
            each.settimeout(5)
            try:
                each.sendall(bytes(8 * MIB - 1))  # all but the last byte, so that nothing is done with it yet
            except OSError:
                continue
        assert front.memory_bytes() - before < 64 * MIB
        front.is_well()


def test_nothing_is_read_for_a_session_that_is_not_there(tmp_path: Path) -> None:
    with fronting(tmp_path / "served", body_seconds=1.0) as front:
        head = f"POST /v1/default/there/sessions/7 HTTP/1.1\r\nhost: a\r\ncontent-length: {MIB}\r\n\r\n"
        with front.connection(head.encode()) as made:
            assert made.recv(12) == b"HTTP/1.1 503"


def test_what_a_tenant_has_under_way_is_bounded_and_leaves_room_for_others(tmp_path: Path) -> None:
    with fronting(tmp_path / "served", tenant_bytes=2 * SMALL_BYTES) as front, ExitStack() as stack:
        assert front.ask("PUT", "/v1/other/one", b"fedcba9876543210").status == 201
        _, path = stack.enter_context(session_of(front, "there", DATABASE))
        head = f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {SMALL_BYTES}\r\n\r\n".encode()
        made = [stack.enter_context(front.connection(head)) for _ in range(2)]
        until(lambda: front.ask("POST", path, bytes(1000)).status == 429)
        refused = front.ask("POST", path, bytes(1000))
        assert (refused.fields["error"], refused.headers["retry-after"]) == ("Unavailable", "1")
        assert front.ask("GET", "/v1/other/one").status == 200
        for each in made:
            each.close()
        until(lambda: front.ask("POST", path, bytes(1000)).status == 400)  # it is passed on, and not sealed


def test_an_address_has_so_many_connections_and_others_have_theirs(tmp_path: Path) -> None:
    with fronting(tmp_path / "served", connections_per_address=8) as front, ExitStack() as stack:
        made = [stack.enter_context(front.connection()) for _ in range(8)]
        until(lambda: front.ask("GET", "/health").status == 503)
        assert front.ask("GET", "/health").headers["connection"] == "close"
        assert front.ask("GET", "/health", source="127.0.0.2").status == 200
        made.pop().close()
        until(lambda: front.ask("GET", "/health").status == 200)


# --- what the enclave reads --------------------------------------------------------------------------


def nested(task: str, size_bytes: int) -> bytes:
    """A request of many small lists, which take thirty times as much memory as text."""
    start = b'{"task": "' + task.encode() + b'", "anchor": ['
    return JSON + start + b"[]," * ((size_bytes - len(start) - 8) // 3) + b"[]]}"


def test_a_strangers_large_request_takes_no_memory(tmp_path: Path) -> None:
    with fronting(tmp_path / "served") as front, session_of(front, "there", DATABASE) as (session, _):
        (enclave,) = front.enclaves()
        before = peak_bytes(enclave)
        with pytest.raises(ScumbleError):
            session._exchange(nested("open", 8 * MIB))
        assert peak_bytes(enclave) - before < 32 * MIB
        front.is_well()


def test_a_readers_plans_take_bounded_memory(small: tuple[Serving, Path]) -> None:
    running, keys = small
    analyst = AnalystKey.create(keys / "reader.key", None)
    with running.open("greedy/big", keys) as owner:
        owner.grant("reader", analyst.text, ["t"])
        database = owner._versions.key.database
        table = owner.table("t").id
    (enclave,) = running.enclaves()
    with session_of(running, "big", database, analyst.signing_key(), "greedy") as (session, _):
        session.ask(Open(None))
        before = peak_bytes(enclave)
        with pytest.raises(ScumbleError):
            session._exchange(JSON + b'{"task": "prepare", "plan": ' + wide_plan(table, 300_000) + b"}")
        assert peak_bytes(enclave) - before < 64 * MIB
    with session_of(running, "big", database, analyst.signing_key(), "greedy") as (session, _):
        session.ask(Open(None))
        kept = 0
        try:
            while kept < 500:
                session._exchange(JSON + b'{"task": "prepare", "plan": ' + wide_plan(table, 2000) + b"}")
                kept += 1
        except TooManyPlans:
            session.ask(ForgetPlans())
            session._exchange(JSON + b'{"task": "prepare", "plan": ' + wide_plan(table, 2000) + b"}")
        assert 0 < kept < 500
        assert peak_bytes(enclave) - before < 128 * MIB


def wide_plan(table: str, tests: int) -> bytes:
    predicate = ["or", *([["in", 0, 0, 1, False, False]] * tests)]
    return json.dumps({"table": table, "predicates": [predicate], "columns": [0]}).encode()


def test_a_reader_sends_no_more_than_a_question_needs(small: tuple[Serving, Path]) -> None:
    running, keys = small
    analyst = AnalystKey.create(keys / "sender.key", None)
    with running.open("greedy/big", keys) as owner:
        owner.grant("sender", analyst.text, ["t"])
        database = owner._versions.key.database
    with session_of(running, "big", database, analyst.signing_key(), "greedy") as (session, path):
        session.ask(Open(None))
        with closing(http.client.HTTPConnection("127.0.0.1", running.port, timeout=5)) as connection:
            connection.putrequest("POST", path)
            connection.putheader("content-length", str(QUERY_BYTES + 1))
            connection.endheaders()
            assert connection.getresponse().status == 413
        with pytest.raises(Refused):  # before it is looked at: she may not load
            session._exchange(nested("load", MIB))


# --- turns -------------------------------------------------------------------------------------------


def test_a_tenant_with_many_requests_leaves_the_others_their_turns(small: tuple[Serving, Path]) -> None:
    running, keys = small
    many, done, at_once = 16, [], threading.Barrier(17)
    with ExitStack() as stack, ThreadPoolExecutor(many) as threads:
        greedy = [stack.enter_context(running.open("greedy/big", keys)) for _ in range(many)]
        modest = stack.enter_context(running.open("modest/tiny", keys))
        modest.sql(QUICK)

        def ask(db: scumble.Database) -> None:
            db.prepare(SLOW)
            at_once.wait()
            db.sql(SLOW)
            done.append("greedy")

        asking = [threads.submit(ask, db) for db in greedy]
        at_once.wait()
        before = pages_read(running)
        until(lambda: pages_read(running) > before)
        for _ in range(3):
            modest.sql(QUICK)
        done.append("modest")
        for each in asking:
            each.result()
    assert done.index("modest") < many // 2


def test_who_waits_to_write_keeps_no_one_from_reading(small: tuple[Serving, Path]) -> None:
    running, keys = small
    many, over = 70, []
    with ExitStack() as stack, ThreadPoolExecutor(many) as threads:
        writers = [stack.enter_context(running.open("modest/tiny", keys)) for _ in range(many)]
        reader = stack.enter_context(running.open("greedy/big", keys))
        first, *others = writers
        stack.enter_context(first.service.writer())

        def hold(db: scumble.Database) -> None:
            try:
                with db.service.writer(5):
                    pass
            except ScumbleError:
                over.append(db)

        waiting = [threads.submit(hold, db) for db in others]
        time.sleep(1.5)  # until all of them wait at the service
        reader.sql(QUICK)
        answered_before = len(over)
        for each in waiting:
            each.result()
    assert answered_before == 0


def test_work_ends_when_its_client_has_gone(small: tuple[Serving, Path]) -> None:
    running, keys = small
    with running.open("greedy/big", keys) as db:
        before = pages_read(running)
        db.sql(SLOW)
        whole = pages_read(running) - before
    with ExitStack() as stack:
        clients = [stack.enter_context(running.open("greedy/big", keys)) for _ in range(4 * LANES)]
        before = pages_read(running)
        begun = threading.Event()
        questions = [hanging_up(db, begun) for db in clients]
        with ThreadPoolExecutor(len(clients)) as threads:
            asking = [threads.submit(ask) for ask in questions]
            until(lambda: pages_read(running) > before)
            begun.set()
            for each in asking:
                each.result()
        until(lambda: at_rest(running), 120)
        assert pages_read(running) - before < len(clients) * whole // 2


def at_rest(running: Serving) -> bool:
    """Whether no more pages are read, for much longer than the enclave takes between two of them."""
    seen = pages_read(running)
    time.sleep(2)
    return pages_read(running) == seen


def hanging_up(db: scumble.Database, begun: threading.Event) -> Callable[[], None]:
    """A question, ready to be sent, whose client hangs up once an enclave has begun to read, for it or for another."""
    transport = db.service._transport  # type: ignore[attr-defined]
    connected, session = transport._connected, db._versions.session
    (access,) = db._statement(SLOW).bind(()).accesses
    number = db._runner._number(access.plan)

    def impatient() -> Any:
        made = connected()

        def hang_up() -> None:
            begun.wait(60)
            raise TimeoutError

        made.getresponse = hang_up
        return made

    def ask() -> None:
        transport.close()
        transport._connected = impatient
        with pytest.raises(Unavailable):
            session.execute(number, [Scan(0, 0, access.scans[0].pages)], access.bounds)
        transport._connected = connected

    return ask


def test_a_page_is_read_once_for_each_predicate(tmp_path: Path) -> None:
    with scumble.create(tmp_path / "d", limit=1) as db:
        load(db, 2048)
        bound = db._statement("SELECT k FROM t WHERE k < 5").bind(())
        (access,) = bound.accesses
        number = db._runner._number(access.plan)
        session = db._versions.session
        whole, one = Scan(0, 0, ((0, 2),)), ((0, 1),)
        session.execute(number, [whole], access.bounds)
        for scans in ([whole, whole], [Scan(-1, 0, one)], [Scan(0, -1, one)], [Scan(5, 0, one)]):
            with pytest.raises(InvalidParameter):
                session.execute(number, scans, access.bounds)
