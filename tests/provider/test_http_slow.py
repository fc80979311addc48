"""Clients that are slow, on purpose or not: a head, a body, an answer has its time, and rest between requests is free.

The front of these tests gives a head 1 s, a body 1 s and what it has come to at 64 KiB/s, and closes a connection that
rests for 2 s.
"""

import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from fronts import DATABASE, NONCE, Fronting, answers_in, read_all, session_of, until

HOST = b"host: a\r\n"
HEALTH = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"
ATTEST = b"POST /v1/attest HTTP/1.1\r\n" + HOST
SURFACE = b"GET /v1/openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"
HEAD_SECONDS, IDLE_SECONDS = 1.0, 2.0
AT_LEAST, AT_MOST = 0.5, 10.0
"""How long an end may take to come, on a machine that has other things to do."""


def trickle(made: socket.socket, content: bytes, every_seconds: float) -> None:
    for at in range(len(content)):
        try:
            made.sendall(content[at : at + 1])
        except OSError:
            return
        time.sleep(every_seconds)


def ends_after(made: socket.socket) -> float:
    """How long until the front ends a connection; what it tells until then does not matter."""
    begun = time.monotonic()
    read_all(made)
    return time.monotonic() - begun


def one_answer(made: socket.socket) -> bytes:
    told = made.recv(1 << 16)
    while b"\r\n\r\n" not in told or len(told.partition(b"\r\n\r\n")[2]) < _size(told):
        told += made.recv(1 << 16)
    return told


def _size(told: bytes) -> int:
    return int(told.partition(b"content-length: ")[2].partition(b"\r\n")[0])


def at_once(act: Callable[[bytes], float], cases: Sequence[bytes]) -> list[float]:
    """Act on all cases at the same time: waiting takes time, and no effort."""
    with ThreadPoolExecutor(len(cases)) as pool:
        return list(pool.map(act, cases))


def test_a_head_that_does_not_come_ends_the_connection(front: Fronting) -> None:
    def act(start: bytes) -> float:
        with front.connection(start) as made:
            return ends_after(made)

    took = at_once(act, [b"", b"G", b"GET /health HTTP/1.1\r\na", HEALTH[:-2]])
    assert all(AT_LEAST < each < AT_MOST for each in took)


def test_a_head_that_comes_byte_by_byte_ends_the_connection(front: Fronting) -> None:
    with front.connection() as made, ThreadPoolExecutor(1) as one:
        one.submit(trickle, made, HEALTH[:-2] + b"a: " + b"b" * 1000, 0.05)
        assert AT_LEAST < ends_after(made) < AT_MOST


def test_the_second_head_on_a_connection_has_its_time_too(front: Fronting) -> None:
    def act(start: bytes) -> float:
        with front.connection(HEALTH) as made:
            assert one_answer(made).startswith(b"HTTP/1.1 200")
            made.sendall(start)
            return ends_after(made)

    assert all(AT_LEAST < took < IDLE_SECONDS for took in at_once(act, [b"G", HEALTH[:-2]]))


def test_a_connection_at_rest_is_kept_longer_than_a_head_may_take_and_not_for_ever(front: Fronting) -> None:
    with front.connection(HEALTH) as made:
        one_answer(made)
        time.sleep(1.3 * HEAD_SECONDS)
        made.sendall(HEALTH)
        assert one_answer(made).startswith(b"HTTP/1.1 200")
        assert HEAD_SECONDS < ends_after(made) < AT_MOST


def test_a_body_that_does_not_come_in_time_gets_408(front: Fronting) -> None:
    def act(path: bytes) -> float:
        told = front.told(b"POST " + path + b" HTTP/1.1\r\n" + HOST + b"content-length: 32\r\n\r\nabc")
        assert [answer.status for answer in answers_in(told)] == [408]
        assert answers_in(told)[0].headers["connection"] == "close"
        return 0.0

    with session_of(front, "there", DATABASE) as (_, path):
        at_once(act, [b"/v1/attest", b"/v1/default/there/sessions", path.encode()])


def test_a_body_that_comes_byte_by_byte_gets_408(front: Fronting) -> None:
    with front.connection(ATTEST + b"content-length: 1000\r\n\r\n") as made, ThreadPoolExecutor(1) as one:
        one.submit(trickle, made, bytes(1000), 0.05)
        assert one_answer(made).startswith(b"HTTP/1.1 408")
        made.shutdown(socket.SHUT_RDWR)


def test_a_large_body_over_a_slow_line_has_its_time(front: Fronting) -> None:
    size, piece = 1 << 16, bytes(1 << 13)
    with session_of(front, "there", DATABASE) as (_, path):
        head = f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {size}\r\n\r\n"
        with front.connection(head.encode()) as made:
            for _ in range(size // len(piece)):  # longer altogether than a body of few bytes may take
                made.sendall(piece)
                time.sleep(0.2)
            assert one_answer(made).startswith(b"HTTP/1.1 400")  # it was read, and is not sealed


def test_what_nobody_wants_does_not_keep_a_connection(front: Fronting) -> None:
    def act(first: bytes) -> float:
        with front.connection(first) as made:
            assert made.recv(9) == b"HTTP/1.1 "
            made.sendall(b"\r\n" if first == HEALTH else b"a")
            return ends_after(made)

    unread = b" HTTP/1.1\r\n" + HOST + b"content-length: 1000\r\n\r\n"
    heads = [b"POST /nowhere", b"GET /health", b"DELETE /v1/default/there/sessions/7"]
    assert all(took < AT_MOST for took in at_once(act, [HEALTH, *(head + unread for head in heads)]))


def test_a_client_that_does_not_read_its_answers_is_cut_off(front: Fronting) -> None:
    before, memory = front.descriptors(), front.memory_bytes()
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.connect(("127.0.0.1", front.port))
        made.sendall(SURFACE * 4000)
        assert front.descriptors() == before + 1
        until(lambda: front.descriptors() <= before, 20)
    assert front.memory_bytes() - memory < 32 << 20


@pytest.mark.slow
def test_a_client_that_reads_slowly_gets_its_whole_answer(front: Fronting) -> None:
    def act(last: bytes) -> float:
        with socket.socket() as made:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.connect(("127.0.0.1", front.port))
            made.settimeout(20)
            made.sendall(SURFACE * 200 + SURFACE[:-2] + last + b"\r\n")
            told = b""
            for _ in range(5):  # longer altogether than a connection may rest
                time.sleep(IDLE_SECONDS / 4)
                told += made.recv(1 << 16)
            told += read_all(made)
        assert [answer.status for answer in answers_in(told)] == [200] * 201
        return 0.0

    at_once(act, [b"", b"connection: close\r\n"])


def test_slow_clients_do_not_keep_others_waiting(front: Fronting) -> None:
    slow = [front.connection(ATTEST + b"content-length: 32\r\n\r\nabc") for _ in range(200)]
    opened = [each.__enter__() for each in slow]
    try:
        begun = time.monotonic()
        assert front.ask("POST", "/v1/attest", NONCE).status == 200
        assert time.monotonic() - begun < AT_MOST
    finally:
        for each in opened:
            each.close()
