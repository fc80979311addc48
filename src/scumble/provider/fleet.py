"""The fleet: enclave processes, of which any can serve any database. One that dies is replaced.

The front carries what they share with a new one: nonces, evidence, and sealed keys that it cannot open.
"""

import queue
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from scumble.errors import InvalidParameter, ScumbleError, Unavailable
from scumble.wire.channel import opened_answer
from scumble.wire.messages import to_list
from scumble.wire.pipe import (
    ANSWER,
    CALL,
    FAILURE,
    JOB,
    Attest,
    Bytes,
    Challenge,
    Frame,
    Job,
    Pipe,
    Share,
    Take,
    unpack_answer,
)

__all__ = ["LANES", "PROGRAM", "EnclaveProcess", "Fleet", "Serve"]


LANES = 5
"""Jobs that an enclave does at a time. No tenant has all of them: provider/turns.py."""
WAIT_SECONDS = 60.0
ID_BYTES = 8
PROGRAM = "scumble.enclave.process"
"""The module that an enclave process runs."""
ENVIRONMENT = {"LC_ALL": "C.UTF-8"}
"""All that an enclave process finds in its environment: variables can name code to run, as PYTHONPATH does."""

F = TypeVar("F")

Serve = Callable[[Pipe, Frame], None]
"""Serves one call for storage."""


class EnclaveProcess:
    """A running enclave process, and the front's ends of its pipes."""

    def __init__(
        self, attestation: str, lanes: int = LANES, endorsements: Path | None = None, program: str = PROGRAM
    ) -> None:
        self.id = secrets.token_hex(ID_BYTES)
        self.sessions = 0
        self._killed = False
        self.changes = 0
        self._free: queue.LifoQueue[Pipe] = queue.LifoQueue()
        self._control: queue.LifoQueue[Pipe] = queue.LifoQueue()
        pairs = [socket.socketpair() for _ in range(1 + lanes)]
        theirs = [end for _, end in pairs]
        command = [sys.executable, "-I", "-m", program, "--attestation", attestation]
        if endorsements is not None:
            command += ["--endorsements", str(endorsements.absolute())]
        try:
            self._process = subprocess.Popen(  # noqa: S603  our own module
                [*command, *(str(end.fileno()) for end in theirs)],
                pass_fds=[end.fileno() for end in theirs],
                stdin=subprocess.DEVNULL,
                cwd="/",
                env=ENVIRONMENT,
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
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended, and will not at once."""
        return not self._killed and self._process.poll() is None

    def job(self, job: Job[F], body: Bytes = b"", serve: Serve | None = None) -> tuple[F, Bytes]:
        """Have a job done; what its answer states, and the answer's body."""
        lanes = self._control if job.short else self._free
        try:
            pipe = lanes.get(timeout=WAIT_SECONDS)
        except queue.Empty:
            raise Unavailable("the enclave is busy", hint="try again later, or start more with --enclaves") from None
        try:
            pipe.send(JOB, to_list(job), body)
            while (frame := pipe.receive()).kind == CALL and serve is not None:
                serve(pipe, frame)
        except BaseException:
            self.kill()
            pipe.close()  # its state is unknown: the next job on it must fail at once
            lanes.put(pipe)
            raise
        lanes.put(pipe)
        if frame.kind == FAILURE:
            opened_answer(bytes(frame.body))
        try:
            fact, changes = unpack_answer(job, frame.header if frame.kind == ANSWER else [])
        except Unavailable:
            self.kill()
            raise
        self.changes = max(self.changes, changes)
        return fact, frame.body

    def wait(self) -> None:
        """Wait until it ends. A job under way fails by its pipe."""
        self._process.wait()

    def kill(self) -> None:
        """End it at once: it holds nothing that is not in the store, or cannot be had again."""
        self._killed = True
        with suppress(ProcessLookupError):
            self._process.kill()

    def close(self) -> None:
        """Close its pipes, which ends it, and wait for it; kill it if it does not end."""
        for pipe in self._pipes:
            pipe.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()


NONCE_BYTES = 32
KEY_BYTES = 32
START_SECONDS = 60.0
SHORT_LIFE_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 10.0

OnEvent = Callable[[str, EnclaveProcess], None]
"""Called with "started", "died" or "shared" and the process."""


class Fleet:
    """Some enclave processes, of which any can serve any database."""

    def __init__(
        self,
        size: int,
        attestation: str,
        on_event: OnEvent = lambda what, process: None,
        endorsements: Path | None = None,
        program: str = PROGRAM,
    ) -> None:
        if size < 1:
            raise InvalidParameter("a service needs at least one enclave", hint="--enclaves 2")
        self._attestation, self._endorsements, self._on_event = attestation, endorsements, on_event
        self._program = program
        self._change = threading.Condition()
        self._members: list[EnclaveProcess] = []
        self._shared: dict[tuple[str, str], int] = {}
        self._sharing = threading.Lock()
        self._closed = False
        self.size = size
        self.deaths = 0
        try:
            for _ in range(size):
                self._start()
        except BaseException:
            self.close()
            raise

    def pick(self, known: str | None = None) -> EnclaveProcess:
        """The process of an id, or the one with the fewest sessions; Unavailable if there is none in time."""
        deadline = time.monotonic() + START_SECONDS
        with self._change:
            while True:
                alive = [member for member in self._members if member.alive]
                if known is not None:
                    alive = [member for member in alive if member.id == known]
                    if not alive:
                        raise Unavailable("this enclave is gone", hint="connect again: another one has its place")
                if alive:
                    return min(alive, key=lambda member: member.sessions)
                if self._closed or not self._change.wait(deadline - time.monotonic()):
                    raise Unavailable("no enclave is running", hint="try again later")

    @property
    def alive(self) -> int:
        with self._change:
            return sum(member.alive for member in self._members)

    @property
    def members(self) -> list[EnclaveProcess]:
        with self._change:
            return list(self._members)

    def share(self) -> None:
        """Give every process what the others have learned from owners since the last time."""
        with self._sharing:
            for taker in self.members:
                self._tell(taker)

    def close(self) -> None:
        with self._change:
            self._closed = True
            members, self._members = self._members, []
            self._change.notify_all()
        for member in members:
            member.close()

    def _tell(self, taker: EnclaveProcess) -> None:
        for giver in self.members:
            if giver is not taker and self._shared.get((giver.id, taker.id), 0) < giver.changes:
                with suppress(ScumbleError):  # one of the two is gone, and its replacement will be given it again
                    self._hand_over(giver, taker)

    def _hand_over(self, giver: EnclaveProcess, taker: EnclaveProcess) -> None:
        """Have two processes prove themselves to each other, and carry what one has for the other."""
        changes = giver.changes
        givers, takers = (bytes(process.job(Challenge())[1]) for process in (giver, taker))
        by_taker = bytes(taker.job(Attest(), givers)[1])
        given = bytes(giver.job(Share(), givers + takers + by_taker)[1])
        taker.job(Take(), takers + givers + by_taker[:KEY_BYTES] + given)
        self._shared[giver.id, taker.id] = changes
        self._on_event("shared", taker)

    def _start(self) -> None:
        member = EnclaveProcess(self._attestation, endorsements=self._endorsements, program=self._program)
        try:
            member.job(Attest(), bytes(NONCE_BYTES))
        except ScumbleError:
            member.close()
            raise
        with self._sharing:  # before anybody can be sent to it: an analyst would find every database locked
            self._tell(member)
        with self._change:
            if self._closed:
                member.close()
                return
            self._members.append(member)
            self._change.notify_all()
        self._on_event("started", member)
        threading.Thread(target=self._watch, args=(member,), daemon=True).start()

    def _watch(self, member: EnclaveProcess) -> None:
        """Wait for a process's end, and start another in its place: less eagerly if they die at once."""
        begun, pause = time.monotonic(), 0.0
        member.wait()
        with self._change:
            if self._closed:
                return
            self._members.remove(member)
            self.deaths += 1
        self._shared = {pair: changes for pair, changes in self._shared.items() if member.id not in pair}
        self._on_event("died", member)
        member.close()
        if time.monotonic() - begun < SHORT_LIFE_SECONDS:
            pause = 0.1
        while not self._closed:
            time.sleep(pause)
            try:
                self._start()
            except (ScumbleError, OSError):
                pause = min(LONGEST_PAUSE_SECONDS, 2 * pause + 0.1)
                continue
            self.share()
            return
