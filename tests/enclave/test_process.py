"""The enclave's end of a pipe, without a process of its own: what the front may send, and what ends it."""

import socket
import threading
from collections.abc import Iterator

import pytest

from scumble import attestation
from scumble.enclave.process import PipeStorage, Worker, serve
from scumble.errors import Tampered
from scumble.wire.messages import to_list
from scumble.wire.pipe import ANSWER, CALL, JOB, RESULT, Challenge, Pipe


@pytest.fixture
def ends() -> Iterator[tuple[Pipe, Pipe]]:
    first, second = socket.socketpair()
    for end in (first, second):
        end.settimeout(5)
    with first, second:
        yield Pipe(first), Pipe(second)


@pytest.mark.parametrize("length", [0, 1, 31, 33, 64])
def test_pages_of_another_length_are_tampered_with(ends: tuple[Pipe, Pipe], length: int) -> None:
    front, ours = ends
    storage, into = PipeStorage(), memoryview(bytearray(32))
    storage.attach(ours)
    front.send(RESULT, [], bytes(length))
    with pytest.raises(Tampered):
        storage.read("ab" * 16, 0, 0, 1, into)
    front.send(RESULT, [], b"p" * 32)
    storage.read("ab" * 16, 0, 0, 1, into)
    assert bytes(into) == b"p" * 32


@pytest.mark.parametrize("kind", [CALL, RESULT, ANSWER])
def test_what_is_no_job_ends_the_service_of_a_pipe(ends: tuple[Pipe, Pipe], kind: bytes) -> None:
    front, ours = ends
    worker = Worker(PipeStorage(), attestation.producer("simulated"))
    thread = threading.Thread(target=serve, args=(ours, worker), daemon=True)
    thread.start()
    for _ in range(2):
        front.send(JOB, to_list(Challenge()))
        assert len(front.receive_kind(ANSWER).body) == 32
    front.send(kind, to_list(Challenge()))
    thread.join(5)
    assert not thread.is_alive()
