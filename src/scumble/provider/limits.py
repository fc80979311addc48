"""What the front turns away: the limits on requests, and the HTTP answer that each refusal becomes.

Nothing here depends on a secret: errors of an enclave are inside its sealed answer, and never become a status.
"""

import ipaddress
import math
import threading
import time
from dataclasses import dataclass

from starlette.responses import JSONResponse

from scumble.errors import (
    Busy,
    Exists,
    InvalidParameter,
    NewerVersion,
    NotFound,
    ScumbleError,
    Stale,
    Stopping,
    Tampered,
    Unavailable,
)
from scumble.wire.storage import PROTOCOL

__all__ = [
    "Crowded",
    "Ending",
    "Limits",
    "NoLength",
    "NoMethod",
    "NoRoom",
    "RateLimit",
    "TooLarge",
    "TooMany",
    "TooSlow",
    "Undelivered",
    "client_of",
    "refused",
]

MOST_ADDRESSES = 1 << 16


@dataclass(frozen=True)
class Limits:
    """PUBLIC: how much, how often and how slowly the front lets clients ask.

    A sealed request has at most `request_bytes`, less if its session has few rights, and any other body `small_bytes`.
    `tenant_bytes` and `all_bytes` are of bodies and answers that are held in memory, for a tenant and altogether.
    """

    request_bytes: int = 32 << 20
    small_bytes: int = 4 << 10
    tenant_bytes: int = 256 << 20
    all_bytes: int = 1 << 30
    requests_per_second: float = 5000.0
    greetings_per_second: float = 200.0
    body_seconds: float = 30.0
    slowest_bytes_per_second: float = 64 << 10
    header_seconds: float = 10.0
    header_bytes: int = 32 << 10
    idle_seconds: float = 120.0
    connections: int = 2000
    connections_per_address: int = 512
    waiting_per_session: int = 4
    waiting_per_tenant: int = 512


class RateLimit:
    """A token bucket for each address: `per_second` requests a second, and twice as many at once."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._turn = threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}

    def wait_seconds(self, address: str, now: float | None = None) -> float:
        """0 if a request may pass, which then counts; else how long to wait for the next one."""
        now = time.monotonic() if now is None else now
        most = 2 * self._per_second
        with self._turn:
            left, seen = self._left.get(address, (most, now))
            left = min(most, left + (now - seen) * self._per_second)
            if left < 1:
                return (1 - left) / self._per_second
            if address not in self._left and len(self._left) >= MOST_ADDRESSES:
                self._left.clear()
            self._left[address] = left - 1, now
            return 0.0


def client_of(host: str) -> str:
    """The address that a limit counts for: an IPv6 client owns a whole /64 net, so that counts as one."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))


# --- refusals --------------------------------------------------------------------------------------


class TooMany(Unavailable):
    """An address asks more often than the limits allow."""

    def __init__(self, wait_seconds: float) -> None:
        super().__init__("too many requests from this address", hint="wait a little, and ask again")
        self.headers = {"retry-after": str(math.ceil(wait_seconds))}


class NoRoom(Unavailable):
    """A tenant, a session or all of them have as much under way as they may. No enclave has seen the request."""

    headers = {"retry-after": "1"}  # noqa: RUF012  nobody changes it

    def __init__(self, what: str) -> None:
        super().__init__(f"too much is under way: {what}", hint="wait for answers, and ask again")


class Undelivered(Unavailable):
    """An answer that there is no memory for: others that are as large have not been fetched yet."""

    headers = {"retry-after": "1"}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__("too many large answers have not been read yet", hint="read them, and ask again")


class Crowded(Unavailable):
    """More clients are connected than the limits allow."""

    headers = {"retry-after": "1", "connection": "close"}  # noqa: RUF012  nobody changes it

    def __init__(self) -> None:
        super().__init__("too many are connected, here or from this address", hint="wait a little, and connect again")


class Ending(Stopping):
    """The service has been told to stop. No enclave has seen the request."""

    headers = {"retry-after": "1", "connection": "close"}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__("the service is stopping", hint="connect again in a moment: it may only be restarting")


class TooLarge(InvalidParameter):
    """A request is larger than the limits allow."""

    def __init__(self, most: int) -> None:
        super().__init__(f"a request may have {most} bytes", hint="send fewer rows at a time")


class TooSlow(Unavailable):
    """A request did not come in time."""

    headers = {"connection": "close"}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__("the request did not come in time", hint="check the network, and ask again")


class NoLength(InvalidParameter):
    """A body comes without its length."""

    headers = {"connection": "close"}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__("a body needs its length, and no transfer encoding", hint="send Content-Length")


class NoMethod(NotFound):
    """The path exists, but not with this method."""

    def __init__(self, allowed: str) -> None:
        super().__init__(f"there is only {allowed} here", hint="GET /v1/openapi.json tells what can be asked")
        self.headers = {"allow": allowed}


STATUSES: dict[type[ScumbleError], int] = {
    TooMany: 429,
    NoRoom: 429,
    TooLarge: 413,
    TooSlow: 408,
    NoLength: 411,
    NoMethod: 405,
    NotFound: 404,
    Exists: 409,
    Busy: 409,
    Stale: 409,
    InvalidParameter: 400,
    Tampered: 400,
    NewerVersion: 426,
    Unavailable: 503,
}
"""The first one that the error is an instance of gives its status; an error of no kind here is a 500."""


def refused(error: ScumbleError) -> JSONResponse:
    """The HTTP answer for an error, under the name that clients know it by."""
    kind = next((known for known in type(error).__mro__ if known.__module__ == ScumbleError.__module__), ScumbleError)
    fields = {"error": kind.__name__, "message": error.message, "hint": error.hint}
    status = next((status for known, status in STATUSES.items() if isinstance(error, known)), 500)
    headers: dict[str, str] = getattr(error, "headers", {})
    if status == 426:
        headers = {"upgrade": f"scumble/{PROTOCOL}", "connection": "upgrade"}
    return JSONResponse(fields, status, headers)
