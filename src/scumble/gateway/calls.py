"""What every call has in common: authentication by token, one line in the log, and errors for the client.

The log line says when, what kind, how long, and how it ended; never a query, a parameter, a value or a token. A client
gets the text of Scumble's own errors. That of any other may quote a value from the data, and is dropped.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from pyarrow import flight

from scumble.errors import (
    AttestationRefused,
    Busy,
    KeyRefused,
    Locked,
    Refused,
    ScumbleError,
    Stale,
    Tampered,
    Unavailable,
)
from scumble.gateway.config import client_of

__all__ = ["Authentication", "Call", "Log", "NoHandshake", "flight_error", "to_stderr"]

Log = Callable[[dict[str, object]], None]
UNAUTHENTICATED = (
    "the gateway does not know this token\nhint: send it as `authorization: Bearer TOKEN`, or as the password"
)


def to_stderr(line: dict[str, object]) -> None:
    """Log a line as JSON."""
    sys.stderr.write(json.dumps(line) + "\n")
    sys.stderr.flush()


class Call(flight.ServerMiddleware):  # type: ignore[misc]
    """One call: its client, the database it asks for, its kind, and how it failed if it did."""

    def __init__(self, method: str, client: str, token: str, database: str | None, log: Log) -> None:
        super().__init__()
        self.client, self.database = client, database
        self.kind = self.failure = ""
        self._method, self._token, self._log = method, token, log
        self._begun = time.perf_counter()

    def sending_headers(self) -> dict[str, str]:
        """After a handshake with name and password, tell the client to continue with the token."""
        return {"authorization": f"Bearer {self._token}"} if self._method == "handshake" else {}

    def call_completed(self, exception: BaseException | None) -> None:
        status = self.failure or ("ok" if exception is None else type(exception).__name__)
        self._log(_line(self._method, self.kind, self.client, status, time.perf_counter() - self._begun))


class Authentication(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Accepts only calls with a known token."""

    def __init__(self, tokens: Mapping[str, str], log: Log) -> None:
        super().__init__()
        self._tokens, self._log = tokens, log
        self.closing = False

    def start_call(self, info: Any, headers: Mapping[str, list[str]]) -> Call:
        """Return the call, or raise FlightUnauthenticatedError."""
        method = info.method.name.lower()
        known = client_of(_first(headers, "authorization") or "", self._tokens)
        if known is None:
            self._log(_line(method, "", "", "unauthenticated", 0.0))
            raise flight.FlightUnauthenticatedError(UNAUTHENTICATED)
        if self.closing:
            raise flight.FlightUnavailableError("the gateway is stopping\nhint: connect again later")
        return Call(method, *known, _first(headers, "database"), self._log)


class NoHandshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Does nothing in Flight's own handshake: `Authentication` has checked the token already."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        pass

    def is_valid(self, token: bytes) -> str:
        return ""


def _first(headers: Mapping[str, list[str]], name: str) -> str | None:
    value = next(iter(headers.get(name, ())), None)
    return value if isinstance(value, str) else None


def _line(method: str, kind: str, client: str, status: str, seconds: float) -> dict[str, object]:
    return {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "call": method,
        "kind": kind,
        "client": client,
        "status": status,
        "milliseconds": round(1000 * seconds, 2),
    }


def flight_error(error: Exception) -> flight.FlightError:
    """Return the Flight error that a client gets for an error."""
    match error:
        case Busy() | Stale() | Locked() | Unavailable():
            return flight.FlightUnavailableError(str(error))
        case KeyRefused() | Refused():
            return flight.FlightUnauthorizedError(str(error))
        case Tampered() | AttestationRefused():
            return flight.FlightInternalError(str(error))
        case ScumbleError():
            return flight.FlightServerError(str(error))
        case MemoryError():
            return flight.FlightUnavailableError("there is not enough memory\nhint: ask for fewer rows")
        case _:
            return flight.FlightInternalError(f"this should not happen: {type(error).__name__}")
