"""The enclave as a process of its own: jobs come in through pipes from the provider's front, answers go out.

    python -m scumble.enclave.process --attestation simulated FD [FD ...]

Each descriptor is the end of a pipe, served by a thread. The process makes one key pair for all databases, shows
evidence that binds it, and ends when the front does. SECRET: everything in its memory; a debugger of the same user and
a core dump are refused, which keeps out accidents and nothing more: the hardware has to do the rest.
"""

import argparse
import ctypes
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from scumble import attestation
from scumble.enclave.sessions import TrustedEnclave
from scumble.enclave.sharing import Sharing
from scumble.enclave.versions import Vault
from scumble.errors import InvalidParameter, ScumbleError, Tampered, Unavailable
from scumble.wire.pipe import ANSWER, CALL, JOB, RESULT, Bytes, Frame, Pipe
from scumble.wire.storage import RunShape

__all__ = ["Jobs", "PipeStorage", "main", "serve"]


class PipeStorage(threading.local):
    """A `Storage` at the other end of the pipe that this thread's jobs come through."""

    def __init__(self) -> None:
        self._through: Pipe | None = None

    def attach(self, pipe: Pipe) -> None:
        """From now on, this thread's calls go through `pipe`."""
        self._through = pipe

    @property
    def _pipe(self) -> Pipe:
        assert self._through is not None  # noqa: S101  no job without a pipe
        return self._through

    def head(self) -> bytes:
        """The current manifest."""
        return bytes(self._call("head").body)

    def manifest(self, version: int) -> bytes:
        """An earlier one."""
        return bytes(self._call("manifest", version).body)

    def tags(self, run: str, column: int) -> bytes:
        """The tags of a column's pages."""
        return bytes(self._call("tags", run, column).body)

    def read(self, run: str, column: int, first_page: int, pages: int, into: memoryview) -> None:
        """Fill `into` with sealed pages."""
        self._pipe.send(CALL, ["read", run, column, first_page, pages, into.nbytes])
        if self._pipe.receive_settled(RESULT, into).body is not into:
            raise Tampered

    def create_run(self, run: str, shape: RunShape) -> None:
        """Make room for a new run."""
        self._call("create_run", run, [list(column) for column in shape])

    def write(self, run: str, column: int, first_page: int, pages: bytes | memoryview) -> None:
        """Write sealed pages of a new run."""
        self._call("write", run, column, first_page, body=[pages])

    def finish_run(self, run: str, tags: Sequence[bytes]) -> None:
        """Write the tags, and make the run durable."""
        self._call("finish_run", run, [len(tag) for tag in tags], body=tags)

    def commit(self, version: int, manifest: bytes) -> None:
        """Make `manifest` the head."""
        self._call("commit", version, body=[manifest])

    def write_scratch(self, name: str, sealed: bytes | memoryview) -> None:
        """Keep something for the time of a load."""
        self._call("write_scratch", name, body=[sealed])

    def read_scratch(self, name: str) -> bytes:
        """Give it back."""
        return bytes(self._call("read_scratch", name).body)

    def drop_scratch(self) -> None:
        """Forget all of it."""
        self._call("drop_scratch")

    def _call(self, name: str, *arguments: Any, body: Sequence[bytes | memoryview] = ()) -> Frame:
        self._pipe.send(CALL, [name, *arguments], *body)
        return self._pipe.receive_settled(RESULT)


_PR_SET_DUMPABLE = 4

Answer = tuple[list[Any], bytes]


class Jobs:
    """SECRET: what the process does for the front, by the names of the jobs."""

    def __init__(self, storage: PipeStorage, producer: attestation.Producer) -> None:
        self.storage = storage
        private_key, self._vault = X25519PrivateKey.generate(), Vault()
        self._enclave = TrustedEnclave(storage, private_key, self._vault)
        self._sharing = Sharing(private_key, self._vault, producer)
        self._jobs: dict[str, Callable[..., Answer]] = {
            "attest": self._attest,
            "greet": self._greet,
            "request": self._request,
            "leave": self._leave,
            "may_write": self._may_write,
            "challenge": self._challenge,
            "share": self._share,
            "take": self._take,
        }

    def answer(self, header: list[Any], body: Bytes) -> Answer:
        """Do a job; a header and a body for the front, of which the last number says how much there is to share."""
        if not header or header[0] not in self._jobs:
            raise InvalidParameter("there is no such job", hint="front and enclave have to be of one version")
        facts, answer = self._jobs[header[0]](body, *header[1:])
        return [*facts, self._vault.changes], answer

    def _attest(self, nonce: Bytes) -> Answer:
        return [], self._sharing.evidence(bytes(nonce))

    def _greet(self, sealed: Bytes) -> Answer:
        session, answer = self._enclave.greet(bytes(sealed))
        return [session], answer

    def _request(self, sealed: Bytes, session: int) -> Answer:
        return [], self._enclave.request(session, sealed if isinstance(sealed, memoryview) else bytes(sealed))

    def _leave(self, _: Bytes, session: int) -> Answer:
        self._enclave.leave(session)
        return [], b""

    def _may_write(self, _: Bytes, session: int) -> Answer:
        return [self._enclave.may_write(session)], b""

    def _challenge(self, _: Bytes) -> Answer:
        return [], self._sharing.challenge()

    def _share(self, evidence: Bytes) -> Answer:
        return [], self._sharing.share(bytes(evidence))

    def _take(self, sealed: Bytes) -> Answer:
        self._sharing.adopt(bytes(sealed))
        return [], b""


def serve(pipe: Pipe, jobs: Jobs) -> None:
    """Do the jobs that come through a pipe, until the other end is gone."""
    jobs.storage.attach(pipe)
    while True:
        try:
            frame = pipe.receive()
        except Unavailable:
            return
        if frame.kind != JOB:
            return
        try:
            header, answer = jobs.answer(frame.header, frame.body)
        except Exception as error:
            pipe.send_failure(error)
        else:
            pipe.send(ANSWER, header, answer)


def main() -> None:
    """Serve the pipes that are named, each in a thread; end when one of them does."""
    parser = argparse.ArgumentParser(description="An enclave process; `scumble serve` starts it.")
    parser.add_argument("--attestation", default="auto", help="where evidence comes from: auto, tsm or simulated")
    parser.add_argument("--endorsements", type=Path, help="a folder with what the host does not hand out")
    parser.add_argument("pipes", nargs="+", type=int, metavar="FD")
    given = parser.parse_args()
    _shut_in()
    try:
        jobs = Jobs(PipeStorage(), attestation.producer(given.attestation, endorsements=given.endorsements))
    except ScumbleError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(1) from None
    ended = threading.Event()

    def until_gone(descriptor: int) -> None:
        try:
            serve(Pipe(socket.socket(fileno=descriptor)), jobs)
        finally:
            ended.set()

    for descriptor in given.pipes:
        threading.Thread(target=until_gone, args=(descriptor,), daemon=True).start()
    ended.wait()
    os._exit(0)  # whatever other threads are at: nobody is there to hear it


def _shut_in() -> None:
    """No core dumps, no debugger of the same user, no signals from the terminal, no values in a traceback."""
    sys.excepthook = lambda kind, error, trace: _tell(kind)
    threading.excepthook = lambda failed: _tell(failed.exc_type)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _tell(kind: type[BaseException]) -> None:
    """Of an error that nobody foresaw, the type: its text may hold a value."""
    sys.stderr.write(f"the enclave failed: {kind.__name__}\n")


if __name__ == "__main__":
    main()
