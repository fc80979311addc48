"""HTTP to a service: opaque bodies go out, and come back; connections are kept and used again.

What fails on the way is Unavailable: whether the service has seen the request is then unknown, and nothing is sent
twice from here. Only what the front has turned away before any enclave saw it is sent again, after a pause.
"""

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

from scumble import errors
from scumble.boundary.protocol import PROTOCOL, VERSION
from scumble.errors import ScumbleError, Tampered, Unavailable
from scumble.remote.address import Address

__all__ = ["Reply", "Transport"]

IDLE_SECONDS = 60.0  # less than the service keeps a connection that is not used
MOST_KEPT = 32
PAUSE_SECONDS = 0.05
KNOCK_SECONDS = 0.25
TURNED_AWAY = 429
MOST_REFUSAL_BYTES = 1 << 16


class Reply(NamedTuple):
    """What came back: the headers, by their names in lower case, and the body."""

    headers: Mapping[str, str]
    body: bytes


class Transport:
    """Connections to one service. Threads may share it: each request has a connection to itself."""

    def __init__(self, address: Address, timeout_seconds: float = 300.0, connect_seconds: float = 10.0) -> None:
        self._address, self._timeout, self._connect_timeout = address, timeout_seconds, connect_seconds
        self._turn = threading.Lock()
        self._kept: list[tuple[float, http.client.HTTPConnection]] = []

    def ask(
        self, method: str, path: str, body: bytes | memoryview = b"", headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Send a request, and return the reply; or raise what the front has refused it with."""
        deadline, pause = time.monotonic() + self._timeout, PAUSE_SECONDS
        while True:
            status, reply = self._exchange(method, path, body, headers or {})
            if status < 300:
                return reply
            if status != TURNED_AWAY or time.monotonic() + pause > deadline:
                raise _refusal(status, reply.body)
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def close(self) -> None:
        """Close every connection that is kept."""
        with self._turn:
            kept, self._kept = self._kept, []
        for _, connection in kept:
            connection.close()

    def _exchange(
        self, method: str, path: str, body: bytes | memoryview, headers: Mapping[str, str]
    ) -> tuple[int, Reply]:
        connection = self._connection()
        try:
            connection.request(method, path, body, {VERSION: str(PROTOCOL), **headers})
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unavailable(
                f"{self._address} does not answer: {_reason(error)}", hint="check the address, and that it is served"
            ) from None
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._keep(connection)
        return response.status, Reply({name.lower(): value for name, value in response.getheaders()}, content)

    def _connection(self) -> http.client.HTTPConnection:
        with self._turn:
            while self._kept:
                since, connection = self._kept.pop()
                if time.monotonic() - since < IDLE_SECONDS:
                    return connection
                connection.close()
        deadline = time.monotonic() + self._connect_timeout
        while True:  # nothing was sent yet: to knock again does no harm, and a service that restarts is soon back
            try:
                return self._connected(max(PAUSE_SECONDS, deadline - time.monotonic()))
            except (OSError, UnicodeError) as error:  # a name that no host can have is the latter
                if time.monotonic() + KNOCK_SECONDS > deadline or not isinstance(error, ConnectionError):
                    raise Unavailable(
                        f"{self._address} cannot be reached: {_reason(error)}",
                        hint="check the address, and that it is served",
                    ) from None
            time.sleep(KNOCK_SECONDS)

    def _connected(self, seconds: float) -> http.client.HTTPConnection:
        place = self._address.host, self._address.port
        made: http.client.HTTPConnection
        if self._address.tls:
            made = http.client.HTTPSConnection(*place, timeout=seconds, context=ssl.create_default_context())
        else:
            made = http.client.HTTPConnection(*place, timeout=seconds)
        made.connect()
        made.sock.settimeout(self._timeout)
        return made

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._turn:
            if len(self._kept) < MOST_KEPT:
                self._kept.append((time.monotonic(), connection))
                return
        connection.close()


def _refusal(status: int, body: bytes) -> ScumbleError:
    """The error that the front has named; of one that is none of ours, the status."""
    try:
        fields = json.loads(body[:MOST_REFUSAL_BYTES])
        kind = getattr(errors, str(fields["error"]))
        if issubclass(kind, Tampered):
            return Tampered()
        refused: ScumbleError = kind(
            str(fields["message"]), hint=None if fields["hint"] is None else str(fields["hint"])
        )
        return refused
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Unavailable(f"the service answers with status {status}", hint="is this a Scumble service?")


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError | socket.timeout):
        return "it takes too long"
    return getattr(error, "strerror", None) or type(error).__name__
