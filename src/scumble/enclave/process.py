"""The enclave as a process of its own, which does jobs for the provider's front.

    python -I -m scumble.enclave.process --attestation simulated FD [FD ...]

It runs installed code alone: no file of the working directory, and nothing that a variable names. Each descriptor is
the end of a pipe, served by a thread. For every nonce the process makes a key pair and shows evidence that binds it; it
ends when the front does. SECRET: everything in its memory. A debugger of the same user and a core dump are refused,
which keeps out accidents and nothing more: the hardware has to do the rest.
"""

import argparse
import ctypes
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scumble import attestation
from scumble.enclave.fresh_keys import FreshKeys
from scumble.enclave.lines import TrustedEnclave
from scumble.enclave.sharing import Sharing
from scumble.enclave.vault import Vault
from scumble.errors import ScumbleError, Tampered, Unavailable
from scumble.wire import pipe as jobs
from scumble.wire.messages import from_list, to_list
from scumble.wire.pipe import ANSWER, CALL, JOB, RESULT, Bytes, Pipe
from scumble.wire.storage import RunShape

__all__ = ["PipeStorage", "Worker", "main", "serve"]


class PipeStorage(threading.local):
    """A `Storage` at the other end of the pipe that this thread's jobs come through."""

    def __init__(self) -> None:
        self._through: Pipe | None = None

    def attach(self, pipe: Pipe) -> None:
        """Send this thread's calls through `pipe` from now on."""
        self._through = pipe

    @property
    def _pipe(self) -> Pipe:
        assert self._through is not None  # noqa: S101  no job without a pipe
        return self._through

    def head(self) -> bytes:
        return self._call(jobs.Head())

    def manifest(self, version: int) -> bytes:
        return self._call(jobs.ReadManifest(version))

    def links(self, version: int) -> bytes:
        return self._call(jobs.ReadLinks(version))

    def tags(self, run: str, column: int) -> bytes:
        return self._call(jobs.ReadTags(run, column))

    def read(self, run: str, column: int, first_page: int, pages: int, into: memoryview) -> None:
        self._pipe.send(CALL, to_list(jobs.ReadPages(run, column, first_page, pages, into.nbytes)))
        if self._pipe.receive_kind(RESULT, into).body is not into:
            raise Tampered

    def create_run(self, run: str, shape: RunShape) -> None:
        self._call(jobs.CreateRun(run, tuple(shape)))

    def write(self, run: str, column: int, first_page: int, pages: bytes | memoryview) -> None:
        self._call(jobs.WritePages(run, column, first_page), pages)

    def finish_run(self, run: str, tags: Sequence[bytes]) -> None:
        self._call(jobs.FinishRun(run, tuple(map(len, tags))), *tags)

    def commit(self, version: int, manifest: bytes) -> None:
        self._call(jobs.Commit(version), manifest)

    def write_scratch(self, name: str, sealed: bytes | memoryview) -> None:
        self._call(jobs.WriteScratch(name), sealed)

    def read_scratch(self, name: str) -> bytes:
        return self._call(jobs.ReadScratch(name))

    def drop_scratch(self) -> None:
        self._call(jobs.DropScratch())

    def _call(self, call: jobs.Call, *body: bytes | memoryview) -> bytes:
        self._pipe.send(CALL, to_list(call), *body)
        return bytes(self._pipe.receive_kind(RESULT).body)


_PR_SET_DUMPABLE = 4
SWEEP_SECONDS = 10.0


class Worker:
    """SECRET: does the front's jobs."""

    def __init__(self, storage: PipeStorage, producer: attestation.Producer) -> None:
        self.storage = storage
        self.keys, self._vault = FreshKeys(), Vault()
        self._enclave = TrustedEnclave(storage, self.keys, self._vault)
        self._sharing = Sharing(self.keys, self._vault, producer)

    def answer(self, header: list[Any], body: Bytes) -> tuple[list[Any], bytes]:
        """Do a job; the header and the body of its answer."""
        fact, answer = self._done(from_list(jobs.Job.kinds, header), body)
        return jobs.pack_answer(fact, self._vault.changes), answer

    def _done(self, job: jobs.Job[Any], body: Bytes) -> tuple[int | None, bytes]:
        fact: int | None = None
        answer, given = b"", bytes(body)
        match job:
            case jobs.Relay(session):
                answer = self._enclave.request(session, given)
                fact = self._enclave.most_bytes(session)
            case jobs.Greet():
                fact, answer = self._enclave.greet(given)
            case jobs.Leave(session):
                self._enclave.leave(session)
            case jobs.Rank(session):
                fact = self._enclave.rank(session)
            case jobs.Attest():
                answer = self._sharing.evidence(given)
            case jobs.Challenge():
                answer = self._sharing.challenge()
            case jobs.Share():
                answer = self._sharing.share(given)
            case jobs.Take():
                self._sharing.adopt(given)
        return fact, answer


def serve(pipe: Pipe, worker: Worker) -> None:
    """Do the jobs that come through a pipe, until the other end is gone."""
    worker.storage.attach(pipe)
    while True:
        try:
            frame = pipe.receive()
        except Unavailable:
            return
        if frame.kind != JOB:
            return
        try:
            header, answer = worker.answer(frame.header, frame.body)
        except Exception as error:
            pipe.send_failure(error)
        else:
            pipe.send(ANSWER, header, answer)


def main(more_code: tuple[str, ...] = ()) -> None:
    """Serve the pipes that are named, each in a thread; end when one of them does.

    A program that runs more of the package than this one says what: it is measured as well.
    """
    parser = argparse.ArgumentParser(description="An enclave process; `scumble serve` starts it.")
    parser.add_argument("--attestation", default="auto", help="where evidence comes from: auto, tsm or simulated")
    parser.add_argument("--endorsements", type=Path, help="a folder with what the host does not hand out")
    parser.add_argument("pipes", nargs="+", type=int, metavar="FD")
    given = parser.parse_args()
    _shut_in()
    try:
        producer = attestation.producer(given.attestation, endorsements=given.endorsements, more_code=more_code)
        worker = Worker(PipeStorage(), producer)
    except ScumbleError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(1) from None
    ended = threading.Event()

    def until_gone(descriptor: int) -> None:
        try:
            serve(Pipe(socket.socket(fileno=descriptor)), worker)
        finally:
            ended.set()

    for descriptor in given.pipes:
        threading.Thread(target=until_gone, args=(descriptor,), daemon=True).start()
    while not ended.wait(SWEEP_SECONDS):
        worker.keys.drop_old()
    os._exit(0)  # whatever other threads are doing: nobody waits for it


def _shut_in() -> None:
    """No core dumps, no debugger of the same user, no signals from the terminal, no values in a traceback."""
    sys.excepthook = lambda kind, error, trace: _report(kind)
    threading.excepthook = lambda failed: _report(failed.exc_type)
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _report(kind: type[BaseException]) -> None:
    """Name the type of an unforeseen error, and no more: its text may hold a value."""
    sys.stderr.write(f"the enclave failed: {kind.__name__}\n")


if __name__ == "__main__":
    main()
