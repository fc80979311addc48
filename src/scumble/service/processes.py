"""Enclave processes: started with pipes, given jobs, and replaced when they die. What passes through is sealed.

The front holds no secret of theirs. A job waits for one of the process's pipes, and serves the calls for storage that
come back through it until there is an answer; a process that ends in between makes it Unavailable.
"""

import queue
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from scumble.boundary.pipe import ANSWER, CALL, FAILURE, JOB, Bytes, Frame, Pipe
from scumble.boundary.session import settle
from scumble.errors import Unavailable

__all__ = ["LANES", "EnclaveProcess", "Serve"]

LANES = 4
CONTROL = frozenset(["attest", "challenge", "share", "take", "leave", "may_write"])
"""Jobs that are short, and must not wait for a load to end: they have a pipe to themselves."""

WAIT_SECONDS = 60.0
ID_BYTES = 8

Serve = Callable[[Pipe, Frame], None]
"""Serves one call for storage."""


class EnclaveProcess:
    """A running enclave process, and the front's ends of its pipes."""

    def __init__(self, attestation: str, lanes: int = LANES, endorsements: Path | None = None) -> None:
        self.id = secrets.token_hex(ID_BYTES)
        self.sessions = 0
        self._killed = False
        self.changes = 0
        self._free: queue.LifoQueue[Pipe] = queue.LifoQueue()
        self._control: queue.LifoQueue[Pipe] = queue.LifoQueue()
        pairs = [socket.socketpair() for _ in range(1 + lanes)]
        theirs = [end for _, end in pairs]
        command = [sys.executable, "-m", "scumble.enclave.process", "--attestation", attestation]
        if endorsements is not None:
            command += ["--endorsements", str(endorsements)]
        try:
            self._process = subprocess.Popen(  # noqa: S603  our own module
                [*command, *(str(end.fileno()) for end in theirs)],
                pass_fds=[end.fileno() for end in theirs],
                stdin=subprocess.DEVNULL,
            )
        finally:
            for end in theirs:
                end.close()
        self._pipes = [Pipe(end) for end, _ in pairs]
        self._control.put(self._pipes[0])
        for pipe in self._pipes[1:]:
            self._free.put(pipe)

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended, and will not at once."""
        return not self._killed and self._process.poll() is None

    def job(self, header: list[Any], body: Bytes = b"", serve: Serve | None = None) -> tuple[list[Any], Bytes]:
        """Have a job done; its answer's header without the count of changes, and its body."""
        lanes = self._control if header[0] in CONTROL else self._free
        try:
            pipe = lanes.get(timeout=WAIT_SECONDS)
        except queue.Empty:
            raise Unavailable("the enclave is busy", hint="try again later, or start more with --enclaves") from None
        try:
            pipe.send(JOB, header, body)
            while (frame := pipe.receive()).kind == CALL and serve is not None:
                serve(pipe, frame)
        except BaseException:
            self.kill()
            pipe.close()  # in whatever state it is, nobody else may use it: whoever waits for it learns that it is over
            lanes.put(pipe)
            raise
        lanes.put(pipe)
        if frame.kind == FAILURE:
            settle(bytes(frame.body))
        if frame.kind != ANSWER or not frame.header:
            self.kill()
            raise Unavailable("the enclave process does not keep to the protocol", hint="try again")
        self.changes = max(self.changes, frame.header[-1])
        return frame.header[:-1], frame.body

    def wait(self) -> None:
        """Wait until it ends; whoever has a job under way learns of it by the pipe."""
        self._process.wait()

    def kill(self) -> None:
        """End it at once: there is nothing in it that is not in the store, or can be had again."""
        self._killed = True
        with suppress(ProcessLookupError):
            self._process.kill()

    def close(self) -> None:
        """End it by closing its pipes, and see it off."""
        for pipe in self._pipes:
            pipe.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
