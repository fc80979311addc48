"""Calls at the door: a request's headers come in; who calls and for which database goes out, or a refusal.

One line of JSON is logged for each call: when, what kind, how long, and how it ended. Never a query, a parameter, a
value or a token.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from pyarrow import flight

from scumble.gateway.tokens import client_of

__all__ = ["Call", "Door", "Log", "NoHandshake", "to_stderr"]

Log = Callable[[dict[str, object]], None]
REFUSED = "the gateway does not know this token\nhint: send it as `authorization: Bearer TOKEN`, or as the password"


def to_stderr(line: dict[str, object]) -> None:
    """Log a line."""
    sys.stderr.write(json.dumps(line) + "\n")
    sys.stderr.flush()


class Call(flight.ServerMiddleware):  # type: ignore[misc]
    """One call: its client, the database that it asks for, and what becomes of it."""

    def __init__(self, method: str, client: str, token: str, database: str | None, log: Log) -> None:
        super().__init__()
        self.client, self.database = client, database
        self.kind = self.failure = ""
        self._method, self._token, self._log = method, token, log
        self._begun = time.perf_counter()

    def sending_headers(self) -> dict[str, str]:
        """After a handshake with name and password, clients go on with the token."""
        return {"authorization": f"Bearer {self._token}"} if self._method == "handshake" else {}

    def call_completed(self, exception: BaseException | None) -> None:
        """Log it."""
        status = self.failure or ("ok" if exception is None else type(exception).__name__)
        self._log(_line(self._method, self.kind, self.client, status, time.perf_counter() - self._begun))


class Door(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets in who has a token."""

    def __init__(self, tokens: Mapping[str, str], log: Log) -> None:
        super().__init__()
        self._tokens, self._log = tokens, log
        self.closing = False

    def start_call(self, info: Any, headers: Mapping[str, list[str]]) -> Call:
        """The call, or Unauthenticated."""
        method = info.method.name.lower()
        known = client_of(_first(headers, "authorization") or "", self._tokens)
        if known is None:
            self._log(_line(method, "", "", "unauthenticated", 0.0))
            raise flight.FlightUnauthenticatedError(REFUSED)
        if self.closing:
            raise flight.FlightUnavailableError("the gateway is stopping\nhint: connect again later")
        return Call(method, *known, _first(headers, "database"), self._log)


class NoHandshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Flight's own handshake has nothing to add: the door has seen the token already."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Nothing to do."""

    def is_valid(self, token: bytes) -> str:
        """Nothing to add."""
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
