"""A man in the middle: an HTTP proxy between clients and a service, which passes on, records, and meddles as told."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import scumble
from serving import SIMULATED

_HOP = frozenset(["connection", "content-length", "host", "transfer-encoding"])
_KINDS = {
    ("POST", 4): "greet",
    ("POST", 5): "request",
    ("DELETE", 5): "leave",
    ("PUT", 6): "hold",
    ("DELETE", 6): "let_go",
    ("POST", 6): "tidy",
    ("PUT", 3): "create",
    ("GET", 3): "describe",
    ("POST", 2): "attest",
}


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        """What it asks for, as the service's log calls it."""
        return _KINDS[self.method, len(self.path.partition("?")[0].strip("/").split("/"))]

    @property
    def session(self) -> str:
        return self.path.split("/")[5].partition("?")[0]


@dataclass(frozen=True)
class Answer:
    """What goes back; only the first `sent` bytes of the body, if that is given, and then the connection is closed."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    sent: int | None = None


class Cut(Exception):
    """Raised by whoever meddles: the connection is closed without an answer."""


Forward = Callable[[Request], Answer]
Meddle = Callable[[Request, Forward], Answer]


class Meddling:
    """The proxy: where it listens, what it has seen, and what it does with each request."""

    def __init__(self, service_port: int) -> None:
        self.service_port, self.port = service_port, 0
        self.meddle: Meddle = pass_on
        self.seen: list[tuple[Request, Answer | None]] = []

    def url(self, name: str) -> str:
        return f"scumble://127.0.0.1:{self.port}/{name}"

    def create(self, name: str, keys: Path, **options: Any) -> scumble.Database:
        return scumble.create(self.url(name), key=keys / f"{name}.key", **SIMULATED, **options)

    def open(self, name: str, keys: Path, key: str | None = None, **options: Any) -> scumble.Database:
        return scumble.open(self.url(name), key=keys / (key or f"{name}.key"), **SIMULATED, **options)

    def forward(self, request: Request) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.service_port, timeout=60)
        try:
            connection.request(request.method, request.path, request.body, request.headers)
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders() if name.lower() not in _HOP}
            return Answer(response.status, headers, response.read())
        except (OSError, http.client.HTTPException):
            raise Cut from None
        finally:
            connection.close()

    def answer(self, request: Request) -> Answer:
        answer: Answer | None = None
        try:
            answer = self.meddle(request, self.forward)
        finally:
            self.seen.append((request, answer))
        return answer

    def sent(self, kind: str) -> list[Request]:
        return [request for request, _ in self.seen if request.kind == kind]

    def answered(self, kind: str) -> list[Answer]:
        return [answer for request, answer in self.seen if request.kind == kind and answer is not None]

    def shape(self) -> list[tuple[str, int, int, int]]:
        """What the wire shows of everything since the last `forget`: kinds, sizes and statuses."""
        return [
            (request.kind, len(request.body), answer.status if answer else 0, len(answer.body) if answer else 0)
            for request, answer in self.seen
        ]

    def forget(self) -> None:
        self.seen, self.meddle = [], pass_on


def pass_on(request: Request, forward: Forward) -> Answer:
    return forward(request)


def dropped(request: Request, forward: Forward) -> Answer:
    raise Cut


def unanswered(request: Request, forward: Forward) -> Answer:
    forward(request)
    raise Cut


def held_back() -> tuple[list[Request], Meddle]:
    """A list, and a trick that keeps requests in it and sends no answer."""
    held: list[Request] = []

    def hold(request: Request, forward: Forward) -> Answer:
        held.append(request)
        raise Cut

    return held, hold


def second(request: Request, forward: Forward) -> Answer:
    """The request is sent twice, and the second answer goes back."""
    forward(request)
    return forward(request)


def flipped_request(at: int) -> Meddle:
    return lambda request, forward: forward(replace(request, body=flipped(request.body, at)))


def flipped_answer(at: int) -> Meddle:
    def meddle(request: Request, forward: Forward) -> Answer:
        whole = forward(request)
        return replace(whole, body=flipped(whole.body, at))

    return meddle


def once(kind: str, meddle: Meddle, skip: int = 0) -> Meddle:
    """Meddle with one request of a kind, after `skip` others, and pass on all the rest."""
    left = [skip]

    def chosen(request: Request, forward: Forward) -> Answer:
        if request.kind == kind:
            left[0] -= 1
            if left[0] == -1:
                return meddle(request, forward)
        return forward(request)

    return chosen


def flipped(content: bytes, at: int) -> bytes:
    at %= max(1, len(content))
    return content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :] if content else b"\0"


@contextmanager
def meddling(service_port: int) -> Iterator[Meddling]:
    proxy = Meddling(service_port)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with suppress(OSError):  # the client is gone
                super().handle()

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            size = int(self.headers.get("content-length", "0"))
            headers = {name.lower(): value for name, value in self.headers.items() if name.lower() not in _HOP}
            self._reply(Request(self.command, self.path, headers, self.rfile.read(size)))

        def _reply(self, request: Request) -> None:
            try:
                answer = proxy.answer(request)
            except Cut:
                self.close_connection = True
                return
            lines = [f"HTTP/1.1 {answer.status} -", f"content-length: {len(answer.body)}"]
            lines += [f"{name}: {value}" for name, value in answer.headers.items()]
            self.wfile.write("\r\n".join([*lines, "", ""]).encode("latin-1") + answer.body[: answer.sent])
            self.close_connection = answer.sent is not None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
