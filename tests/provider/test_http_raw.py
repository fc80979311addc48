"""Clients that do not keep to HTTP, or try to smuggle something through it: refused, and nothing is harmed."""

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from fronts import ATTEST, DATABASE, HEALTH, HOST, NONCE, Fronting, answers_in, session_of, until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scumble.wire.channel import SMALL_BYTES

SMALL = 4 << 10
CLOSE = b"connection: close\r\n\r\n"
GREET = b"POST /v1/default/there/sessions HTTP/1.1\r\n" + HOST
HIDDEN = b"GET /v1/service HTTP/1.1\r\n" + HOST + CLOSE


def statuses(told: bytes) -> list[int]:
    return [answer.status for answer in answers_in(told)]


# --- no HTTP, and odd HTTP ---------------------------------------------------------------------------


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(st.binary(min_size=1, max_size=500))
def test_random_bytes_get_a_refusal_or_an_end(front: Fronting, content: bytes) -> None:
    assert set(statuses(front.told(content + b"\r\n\r\n", half_close=True))) <= {400, 404, 405}


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(at=st.integers(0, len(HEALTH + CLOSE) - 1), byte=st.integers(0, 255))
def test_a_request_with_one_byte_changed_gets_one_answer_at_most(front: Fronting, at: int, byte: int) -> None:
    request = bytearray(HEALTH + CLOSE)
    request[at] = byte
    assert len(answers_in(front.told(bytes(request), half_close=True))) <= 1


ODD = [
    (b"GET /health HTTP/1.0\r\n\r\n", [200]),
    (b"GET /health HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", [200]),
    (b"GET /health\r\n\r\n", [400]),
    (b"GET /health HTTP/2.0\r\n\r\n", [400]),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [400]),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100), [400]),
    (b"CONNECT a:443 HTTP/1.1\r\n" + HOST + CLOSE, [400]),
    (b"OPTIONS * HTTP/1.1\r\n" + HOST + CLOSE, [404]),
    (b"GET http://elsewhere HTTP/1.1\r\n" + HOST + CLOSE, [400]),
    (b"GET http://elsewhere/health HTTP/1.1\r\n" + HOST + CLOSE, [200]),
    (b"GET /h\xc3\xa9alth HTTP/1.1\r\n" + HOST + CLOSE, [400]),
    (b"GET /health\x00 HTTP/1.1\r\n" + HOST + CLOSE, [400]),
    (HEALTH + b"a b: c\r\n" + CLOSE, [400]),
    (HEALTH + b"a: b\r\n folded\r\n" + CLOSE, [400]),
    (HEALTH + b"a: \x00\r\n" + CLOSE, [400]),
    (HEALTH + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n" + HIDDEN, [200]),
    (HEALTH + b"connection: upgrade\r\nupgrade: h2c\r\n\r\n" + HIDDEN, [200]),
    (b"\r\n\r\n" + HEALTH + CLOSE, [200]),
    (HEALTH + b"expect: 100-continue\r\n" + CLOSE, [200]),
]


def test_odd_requests_get_the_answer_that_is_meant_for_them(front: Fronting) -> None:
    for request, expected in ODD:
        assert statuses(front.told(request)) == expected, request


# --- heads that are too large ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\na: " + b"b" * 40_000 + b"\r\n" + CLOSE,
        b"GET /" + b"b" * 40_000 + b" HTTP/1.1\r\n" + CLOSE,
        b"GET /health HTTP/1.1\r\n" + b"a: b\r\n" * 8000 + CLOSE,
        b"GET /health HTTP/1.1\r\n" + b"b" * 40_000 + b": a\r\n" + CLOSE,
    ],
)
def test_a_large_head_is_refused(front: Fronting, head: bytes) -> None:
    assert statuses(front.told(head)) == [431]


@pytest.mark.parametrize("start", [b"GET /", b"GET /health HTTP/1.1\r\na: ", b"GET /health HTTP/1.1\r\na"])
def test_a_head_without_end_costs_no_memory(front: Fronting, start: bytes) -> None:
    before = front.memory_bytes()
    with front.connection(start) as made:
        sent = 0
        try:
            while sent < 100 << 20:
                sent += made.send(b"b" * (1 << 18))
        except ConnectionError:
            pass
    assert sent < 32 << 20
    assert front.memory_bytes() - before < 16 << 20


def test_headers_up_to_the_limit_are_taken(front: Fronting) -> None:
    assert statuses(front.told(HEALTH + b"a: " + b"b" * 16_000 + b"\r\n" + CLOSE)) == [200]


# --- bodies that are not what their head says --------------------------------------------------------


FRAMINGS = [
    (b"content-length: -1\r\n", [400]),
    (b"content-length: +32\r\n", [400]),
    (b"content-length: 0x20\r\n", [400]),
    (b"content-length: 32, 32\r\n", [400]),
    (b"content-length: 32\r\ncontent-length: 32\r\n", [400]),
    (b"content-length: 32\r\ncontent-length: 0\r\n", [400]),
    (b"content-length: 99999999999999999999999999\r\n", [400]),
    (b"content-length: 32\r\ntransfer-encoding: chunked\r\n", [400]),
    (b"transfer-encoding: chunked\r\ncontent-length: 32\r\n", [400]),
    (b"transfer-encoding: chunked\r\n", [400, 411]),
    (b"transfer-encoding: identity\r\n", [400, 411]),
    (b"transfer-encoding: gzip, chunked\r\n", [400, 411]),
    (b"transfer-encoding: chunked, gzip\r\n", [400, 411]),
    (b"transfer-encoding: xchunked\r\n", [400, 411]),
    (b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n", [400, 411]),
    (b"transfer-encoding : chunked\r\n", [400]),
    (b"transfer-encoding:\x0bchunked\r\n", [400, 411]),
]


@pytest.mark.parametrize("head", [ATTEST, GREET, HEALTH])
def test_no_second_request_hides_in_a_body(front: Fronting, head: bytes) -> None:
    for framing, expected in FRAMINGS:
        for body in (b"20\r\n" + NONCE + b"\r\n0\r\n\r\n", NONCE, b"0\r\n\r\n"):
            told = statuses(front.told(head + framing + b"\r\n" + body + HIDDEN))
            assert len(told) == 1, framing
            assert told[0] in expected, framing


def test_a_body_without_its_length_is_refused(front: Fronting) -> None:
    told = front.told(ATTEST + b"transfer-encoding: chunked\r\n\r\n20\r\n" + NONCE + b"\r\n0\r\n\r\n")
    assert statuses(told) == [411]


@pytest.mark.parametrize(
    "chunks", [b"zz\r\n", b"-1\r\n", b"ffffffffffffffffff\r\n", b"5\r\nab\r\n", b"1;" + b"a" * 9999]
)
def test_chunks_of_wrong_sizes_are_refused(front: Fronting, chunks: bytes) -> None:
    assert statuses(front.told(ATTEST + b"transfer-encoding: chunked\r\n\r\n" + chunks)) in ([400], [411])


def test_a_body_that_is_longer_than_it_says_is_another_request(front: Fronting) -> None:
    told = front.told(ATTEST + b"content-length: 32\r\n\r\n" + NONCE + b"more\r\n\r\n")
    assert statuses(told) in ([200, 400], [400], [])  # no answer but to the first, or an end before it


@pytest.mark.parametrize("head", [ATTEST, GREET, HEALTH, b"PUT /v1/default/new HTTP/1.1\r\n" + HOST])
def test_a_body_larger_than_the_limit_is_refused_before_it_has_come(front: Fronting, head: bytes) -> None:
    before = front.memory_bytes()
    body, size = bytes(1 << 20), 64
    with front.connection(head + f"content-length: {size * len(body)}\r\n".encode() + CLOSE) as made:
        assert made.recv(12) == b"HTTP/1.1 413"
    with front.connection(head + f"content-length: {size * len(body)}\r\n\r\n".encode()) as made:
        for _ in range(size):  # a client that sends first and listens then gets its answer too
            made.sendall(body)
        made.sendall(HIDDEN)
        made.settimeout(5)
        assert b"HTTP/1.1 413" in made.recv(1 << 16)
    assert front.memory_bytes() - before < 16 << 20


def test_a_body_of_just_the_limit_is_taken(front: Fronting) -> None:
    assert front.ask("POST", "/v1/default/there/sessions", bytes(SMALL)).status == 503  # no such enclave
    assert front.ask("POST", "/v1/default/there/sessions", bytes(SMALL + 1)).status == 413
    with session_of(front, "there", DATABASE) as (_, path):
        assert front.ask("POST", path, bytes(SMALL_BYTES)).status == 400  # not sealed
        assert front.ask("POST", path, bytes(SMALL_BYTES + 1)).status == 413


# --- several requests, and clients that are gone -----------------------------------------------------


def test_requests_in_one_go_are_answered_in_their_order(front: Fronting) -> None:
    attest = ATTEST + b"content-length: 32\r\n\r\n" + NONCE
    told = front.told(attest + HEALTH + b"\r\n" + b"GET /no HTTP/1.1\r\n" + HOST + b"\r\n" + attest + HEALTH + CLOSE)
    assert statuses(told) == [200, 200, 404, 200, 200]
    assert [len(answer.body) > 100 for answer in answers_in(told)][:2] == [True, False]


def test_thousands_of_requests_in_one_go_are_all_answered(front: Fronting) -> None:
    with ThreadPoolExecutor(1) as one, front.connection() as made:
        sending = one.submit(made.sendall, (HEALTH + b"\r\n") * 2000 + HEALTH + CLOSE)
        told = b""
        while piece := made.recv(1 << 16):
            told += piece
        sending.result()
    assert statuses(told) == [200] * 2001


def test_a_half_closed_connection_ends(front: Fronting) -> None:
    for sent in (b"", b"GET /hea", HEALTH, ATTEST + b"content-length: 32\r\n\r\n" + NONCE[:5], HEALTH + b"\r\n"):
        told = front.told(sent, half_close=True)
        assert statuses(told) in ([], [200], [400])


def test_clients_that_vanish_in_the_middle_leave_nothing_behind(front: Fronting) -> None:
    before = front.descriptors()
    reset = (1).to_bytes(4, "little") + bytes(4)
    whole = GREET + b"content-length: 1000000\r\n\r\n" + bytes(1_000_000)
    asked = b"GET /v1/openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"
    for sent in (whole[:50], whole[:5000], whole, asked, asked * 50, ATTEST + b"content-length: 32\r\n\r\n" + NONCE):
        for abrupt in (False, True):
            with front.connection(sent) as made:
                if abrupt:
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    until(lambda: front.descriptors() <= before)
    assert statuses(front.told(HEALTH + b"connection: close\r\n\r\n")) == [200]


def test_hundreds_of_connections_at_once_are_all_served(front: Fronting) -> None:
    before = front.descriptors()
    made = [socket.create_connection(("127.0.0.1", front.port), timeout=20) for _ in range(500)]
    try:
        for each in made:
            each.sendall(HEALTH + b"\r\n")
        assert all(each.recv(12) == b"HTTP/1.1 200" for each in made)
        assert front.descriptors() >= before + 500
    finally:
        for each in made:
            each.close()
    until(lambda: front.descriptors() <= before)


@pytest.mark.slow
def test_a_storm_of_bytes_for_a_while_harms_nothing(front: Fronting) -> None:
    framed = [ATTEST + b"content-length: 32\r\n\r\n", GREET + b"content-length: 900\r\n\r\n"]
    starts = [b"", HEALTH, ATTEST, GREET, *framed]
    deadline, memory = time.monotonic() + 60, 0
    while time.monotonic() < deadline:
        for start in starts:
            with front.connection(start + os.urandom(2000)):
                pass
        memory = memory or front.memory_bytes()
    assert front.memory_bytes() - memory < 32 << 20
