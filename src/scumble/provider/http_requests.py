"""What the front reads of a request beside its body: who asks, of which database and session, and in which protocol.

In comes a request as a client made it, and it may say anything; what is no name, number or length is refused.
"""

from starlette.requests import Request

from scumble.errors import InvalidParameter, NewerVersion, NotFound
from scumble.provider.connections import Exchange
from scumble.provider.limits import NoLength, TooLarge, client_of
from scumble.provider.turns import Path
from scumble.wire.storage import OLDEST, PROTOCOL, VERSION

__all__ = [
    "address_of",
    "check_length",
    "check_protocol",
    "exchange_of",
    "length_of",
    "names_of",
    "path_of",
    "seconds_in",
    "session_of",
]

LONGEST_BUSY_SECONDS = 60.0
LONGEST_SESSION_DIGITS = 19


def check_protocol(request: Request) -> None:
    """Refuse a client whose protocol this service does not speak."""
    spoken = request.headers.get(VERSION, str(OLDEST))
    if not (spoken.isascii() and spoken.isdecimal() and len(spoken) < 9 and OLDEST <= int(spoken) <= PROTOCOL):
        raise NewerVersion(
            f"this service speaks protocol {OLDEST} to {PROTOCOL}, and the client asks for another",
            hint="use a Scumble of the service's version, or ask the provider to upgrade",
        )


def check_length(request: Request, most: int) -> None:
    """Refuse a body of unknown length, or one that is too large, before any of it is read."""
    if "transfer-encoding" in request.headers:
        raise NoLength
    if length_of(request) > most:
        raise TooLarge(most)


def length_of(request: Request) -> int:
    """How many bytes the body is said to have."""
    return int(request.headers.get("content-length", "0"))


def exchange_of(request: Request) -> Exchange:
    """The exchange of a connection that a request is part of."""
    exchange: Exchange = request.scope.setdefault("exchange", Exchange())  # one without a connection, in a test
    return exchange


def address_of(request: Request) -> str:
    """The address that limits count a client by."""
    return client_of(request.client.host) if request.client else ""


def path_of(request: Request) -> Path:
    """Under which names a request waits: its tenant, database, address, and session if it has one."""
    names = request.path_params
    return names["tenant"], names["database"], address_of(request), names.get("session", "")


def names_of(request: Request) -> tuple[str, str]:
    """The names of the tenant and of the database."""
    return request.path_params["tenant"], request.path_params["database"]


def session_of(request: Request) -> int:
    """The number of the session; NotFound if it is none."""
    text: str = request.path_params["session"]
    if not (text.isascii() and text.isdecimal() and len(text) <= LONGEST_SESSION_DIGITS):
        raise NotFound("this is no number of a session", hint="a greeting is answered with one")
    return int(text)


def seconds_in(text: str) -> float:
    """How long a client would wait for the right to write."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_BUSY_SECONDS:
        raise InvalidParameter(f"busy_seconds is a number from 0 to {LONGEST_BUSY_SECONDS:.0f}", hint="5 is usual")
    return seconds
