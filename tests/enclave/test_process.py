"""The enclave's end of a pipe, without a process of its own and with one: what the front may send, what ends it."""

import json
import signal
import socket
import subprocess
import sys
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


# --- a process of its own ----------------------------------------------------------------------------


def run(*arguments: str, **options: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "scumble.enclave.process", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload,no-any-return]


def test_it_serves_every_pipe_until_one_is_gone_whatever_a_terminal_sends() -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    numbers = [theirs.fileno() for _, theirs in pairs]
    process = run("--attestation", "simulated", *map(str, numbers), pass_fds=numbers)
    fronts = [Pipe(ours) for ours, _ in pairs]
    for ours, theirs in pairs:
        ours.settimeout(30)
        theirs.close()
    for wanted in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        for front in fronts:
            front.send(JOB, to_list(Challenge()))
            assert len(front.receive_kind(ANSWER).body) == 32
        process.send_signal(wanted)
    fronts[1].close()
    assert process.communicate(timeout=30)[1] == ""
    assert process.returncode == 0
    fronts[0].close()


def test_what_it_cannot_attest_with_is_said_with_a_hint() -> None:
    process = run("--attestation", "nothing", "0")
    error = process.communicate(timeout=30)[1]
    assert error.startswith("error: ")
    assert error.splitlines()[1].startswith("hint: ")
    assert len(error.splitlines()) == 2
    assert process.returncode == 1


LOOK = """
import ctypes, json, resource, signal, sys, threading
from scumble.enclave import process
prctl, get_dumpable = ctypes.CDLL(None).prctl, 3
before = prctl(get_dumpable, 0, 0, 0, 0)
process._shut_in()
thread = threading.Thread(target=lambda: int("a value of a row"))
thread.start(), thread.join()
after = prctl(get_dumpable, 0, 0, 0, 0)
print(json.dumps([before, after, resource.getrlimit(resource.RLIMIT_CORE)]), flush=True)
raise KeyError("a value of a row")
"""


def test_it_cannot_be_dumped_and_its_failures_tell_their_types_alone() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=False, timeout=30)
    assert json.loads(done.stdout) == [1, 0, [0, 0]]
    assert done.stderr == "the enclave failed: ValueError\nthe enclave failed: KeyError\n"
