"""The front's refusals: an error comes in, a status, headers and a body of JSON go out. They tell nothing secret."""

import math

from starlette.responses import JSONResponse

from scumble.errors import (
    Busy,
    Exists,
    InvalidParameter,
    NewerVersion,
    NotFound,
    ScumbleError,
    Stale,
    Tampered,
    Unavailable,
)
from scumble.wire.protocol import PROTOCOL

__all__ = ["Crowded", "NoLength", "NoMethod", "TooLarge", "TooMany", "TooSlow", "refused"]


class TooMany(Unavailable):
    """An address asks more often than the limits let it."""

    def __init__(self, wait_seconds: float) -> None:
        super().__init__("too many requests from this address", hint="wait a little, and ask again")
        self.headers = {"retry-after": str(math.ceil(wait_seconds))}


class Crowded(Unavailable):
    """There are more connections than the limits let in."""

    headers = {"retry-after": "1", "connection": "close"}  # noqa: RUF012  nobody changes it

    def __init__(self) -> None:
        super().__init__("too many are connected", hint="wait a little, and connect again")


class TooLarge(InvalidParameter):
    """A request is larger than the limits let it be."""

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
    """There is something at the path, and other methods for it."""

    def __init__(self, allowed: str) -> None:
        super().__init__(f"there is only {allowed} here", hint="GET /v1/openapi.json tells what can be asked")
        self.headers = {"allow": allowed}


STATUSES: dict[type[ScumbleError], int] = {
    TooMany: 429,
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
"""The first that fits."""


def refused(error: ScumbleError) -> JSONResponse:
    """The answer that an error becomes: named as the client knows it."""
    kind = next((known for known in type(error).__mro__ if known.__module__ == ScumbleError.__module__), ScumbleError)
    fields = {"error": kind.__name__, "message": error.message, "hint": error.hint}
    status = next((status for known, status in STATUSES.items() if isinstance(error, known)), 500)
    headers: dict[str, str] = getattr(error, "headers", {})
    if status == 426:
        headers = {"upgrade": f"scumble/{PROTOCOL}", "connection": "upgrade"}
    return JSONResponse(fields, status, headers)
