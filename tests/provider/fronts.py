"""Fronts for tests: a real one with limits of the test's choice, and one that lies about storage and who may write."""

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from scumble import attestation
from scumble.attestation import Policy
from scumble.owner import key_file
from scumble.owner.database import Database
from scumble.owner.keys import AnalystKey, OwnerKey
from scumble.owner.ledger import Ledger
from scumble.owner.remote.address import Address
from scumble.owner.remote.service import RemoteService, Transport
from scumble.owner.session import Session
from scumble.provider.fleet import EnclaveProcess, Fleet
from scumble.provider.routing import serve_call
from scumble.store.files import FileStore
from scumble.wire.pipe import Attest, Bytes, Frame, Greet, Leave, Pipe, Relay
from scumble.wire.storage import Storage
from serving import Serving, launch

DATABASE = "0123456789abcdef"
NONCE = bytes(range(32))
HOST = b"host: a\r\n"
HEALTH, ATTEST = b"GET /health HTTP/1.1\r\n" + HOST, b"POST /v1/attest HTTP/1.1\r\n" + HOST
"""The heads of two requests, without their ends."""

_LAUNCH = """
import json, sys
from pathlib import Path
from scumble.provider.limits import Limits
from scumble.provider.server import Settings, serve

folder, limits = sys.argv[1:]
settings = Settings(
    Path(folder), "0.0.0.0", 0, 1, "simulated", open_to_all=True, limits=Limits(**json.loads(limits))
)
serve(settings, lambda port: print(f"serving:{port}", flush=True))
"""


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def fields(self) -> Any:
        return json.loads(self.body)


class Fronting(Serving):
    """A running front, and how well it is."""

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, source: str = ""
    ) -> Answer:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=20, source_address=(source, 0) if source else None
        )
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return Answer(
                response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
            )
        finally:
            connection.close()

    @contextmanager
    def connection(self, *pieces: bytes) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as made:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in pieces:
                with contextlib.suppress(ConnectionError):
                    made.sendall(piece)
            yield made

    def told(self, *pieces: bytes, half_close: bool = False) -> bytes:
        with self.connection(*pieces) as made:
            if half_close:
                made.shutdown(socket.SHUT_WR)
            return read_all(made)

    def descriptors(self) -> int:
        """How many open files the front has, once it has noticed whatever has ended."""
        seen: list[int] = []
        while len(seen) < 4 or len(set(seen[-4:])) > 1:
            time.sleep(0.002)
            seen.append(sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir()))
        return seen[-1]

    def memory_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(status.split("VmHWM:")[1].split()[0])

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log().split("\n") if line]

    def is_well(self) -> None:
        health = self.ask("GET", "/health", source="127.0.0.9")
        assert (health.status, health.fields["enclaves"]) == (200, health.fields["wanted"])
        attested = self.ask("POST", "/v1/attest", NONCE, source="127.0.0.9")
        assert attested.status == 200
        assert len(attested.body) > 32

    @contextmanager
    def unharmed(self) -> Iterator[None]:
        """Whatever is done to it meanwhile, no enclave dies, nothing stays open, and it goes on answering."""
        enclaves, descriptors = sorted(self.enclaves()), self.descriptors()
        yield
        self.is_well()
        assert sorted(self.enclaves()) == enclaves
        until(lambda: self.descriptors() <= descriptors)


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it does not come to hold"
        time.sleep(0.01)


def read_all(made: socket.socket) -> bytes:
    """What comes until the other end closes, or cuts."""
    pieces = []
    with contextlib.suppress(ConnectionError):
        while piece := made.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)


def answers_in(told: bytes) -> list[Answer]:
    """The answers in what a front has told, which has to be nothing but whole answers."""
    answers = []
    while told:
        head, ended, rest = told.partition(b"\r\n\r\n")
        assert ended
        first, *lines = head.decode("ascii").split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        headers = dict(line.lower().split(": ", 1) for line in lines)
        size = int(headers.get("content-length", "0"))
        assert len(rest) >= size
        if status != "100":
            answers.append(Answer(int(status), headers, rest[:size]))
        told = rest[size:]
    return answers


@contextmanager
def fronting(folder: Path, **limits: float) -> Iterator[Fronting]:
    """A front that is killed at the end of the `with`, with an empty database `default/there`."""
    running = launch(folder, "-c", _LAUNCH, str(folder), json.dumps(limits))
    process = running.process
    front = Fronting(process, folder, running.port, running.log_path)
    try:
        assert front.ask("PUT", "/v1/default/there", DATABASE.encode(), source="127.0.0.9").status == 201
        yield front
        assert process.poll() is None
        assert not [line for line in front.lines() if line["event"] == "failure" or line.get("level") == "error"]
    finally:
        process.kill()
        process.wait()


@contextmanager
def session_of(
    front: Serving, name: str, database: str, key: Ed25519PrivateKey | None = None, tenant: str = "default"
) -> Iterator[tuple[Session, str]]:
    """A session with a served database, of a key that nobody knows unless one is given; and its path."""
    address = Address("127.0.0.1", front.port, tenant, name)
    trusted = partial(attestation.verify, policy=Policy(allow_simulated=True))
    service = RemoteService(address, Transport(address), lambda evidence, data: trusted(evidence, report_data=data))
    key = key or Ed25519PrivateKey.generate()
    session = Session(service, database, key)
    try:
        yield session, f"/v1/{tenant}/{name}/sessions/{session._number}"
    finally:
        session.close()
        service.close()


def impatient(folder: Path) -> AbstractContextManager[Fronting]:
    """A front that gives a head and a body a second, closes a connection that rests for two, and takes 1 MiB."""
    limits = {"header_seconds": 1.0, "body_seconds": 1.0, "idle_seconds": 2.0, "greetings_per_second": 5000.0}
    return fronting(folder, request_bytes=1 << 20, **limits)


# --- fronts that lie -------------------------------------------------------------------------------


class Lying:
    """A `Service` for one client: everybody may write, and storage is whatever the test puts there."""

    def __init__(self, process: EnclaveProcess, storage: Storage) -> None:
        self.process, self.storage = process, storage
        self.stamps = 0

    def fresh_key(self) -> bytes:
        return bytes(self.process.job(Attest(), bytes(32))[1])[:32]

    def greet(self, sealed: bytes) -> tuple[int, bytes]:
        number, answer = self.process.job(Greet(), sealed, self._serve)
        return number, bytes(answer)

    def request(self, session: int, sealed: bytes | memoryview) -> bytes:
        return bytes(self.process.job(Relay(session), sealed, self._serve)[1])

    def leave(self, session: int) -> None:
        self.process.job(Leave(session))

    def writer(self, busy_seconds: float = 5) -> "nullcontext[None]":
        return nullcontext()

    def rights_writer(self) -> AbstractContextManager[None]:
        return nullcontext()

    @property
    def stamp_lags(self) -> bool:
        return False

    def stamp(self) -> object:
        return self.stamps

    def drop_unreferenced(self) -> int:
        return 0

    def close(self) -> None:
        """There is nothing to let go of."""

    def _serve(self, pipe: Pipe, call: Frame) -> None:
        serve_call(pipe, call, self.storage, writing=True)


class Provider:
    """Enclaves and stores, which the test may mix up; every store is held for writing."""

    def __init__(self, folder: Path, fleet: Fleet, kept: ExitStack) -> None:
        self.folder, self.fleet, self._kept = folder, fleet, kept
        self.stores: dict[str, FileStore] = {}

    def begin(self, name: str, member: int = 0) -> Database:
        path = self.folder / f"{name}.key"
        key = OwnerKey.create(path, None)
        store = FileStore.create(self.folder / name, key.database)
        self._kept.callback(store.close)
        self._kept.enter_context(store.writer())
        self.stores[name] = store
        with Ledger.open(key_file.ledger_path(path), 100, delta_limit="1e-6"):
            pass
        return Database.begin(self.front(name, member), key, path)

    def owner(self, name: str, member: int = 0) -> Database:
        path = self.folder / f"{name}.key"
        return Database(self.front(name, member), OwnerKey.open(path), path)

    def identity(self, who: str) -> str:
        return AnalystKey.create(self.folder / f"{who}.key", None).text

    def analyst(self, who: str, name: str, member: int = 0, **options: Any) -> Database:
        path = self.folder / f"{who}.key"
        return Database(self.front(name, member), AnalystKey.open(path, self.stores[name].database), path, **options)

    def front(self, name: str, member: int = 0) -> Lying:
        return Lying(self.fleet.members[member], self.stores[name])


class Older:
    """A storage that shows an older head, and everything else as it is."""

    def __init__(self, store: FileStore, head: Bytes) -> None:
        self._store, self._head = store, bytes(head)

    def head(self) -> bytes:
        return self._head

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@contextmanager
def provider(folder: Path, fleet: Fleet) -> Iterator[Provider]:
    with ExitStack() as kept:
        yield Provider(folder, fleet, kept)
