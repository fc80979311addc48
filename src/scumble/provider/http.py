"""The HTTP surface of a provider: a handler for each operation in openapi.py, and what they share.

Bodies are sealed, and opaque to the front. Every answer of an enclave has the status 200, errors included: they are
inside. Other refusals are the front's own, and depend on nothing secret.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from scumble.errors import InvalidParameter, NewerVersion, NotFound, ScumbleError
from scumble.provider.fleet import NONCE_BYTES, Fleet
from scumble.provider.hosting import Hosted, Hosting
from scumble.provider.limits import (
    Crowded,
    Limits,
    NoLength,
    NoMethod,
    RateLimit,
    TooLarge,
    TooMany,
    TooSlow,
    client_of,
    refused,
)
from scumble.provider.observe import Log, Metrics
from scumble.provider.openapi import OPERATIONS, description
from scumble.wire.pipe import Attest
from scumble.wire.storage import DATABASE, ENCLAVE, OLDEST, PROTOCOL, SESSION, STAMP, VERSION

__all__ = ["Front", "application"]

THREADS = 64
LONGEST_BUSY_SECONDS = 60.0
LONGEST_SESSION_DIGITS = 19
ANY_VERSION = frozenset(["health", "metrics", "service", "openapi", "unknown", "crowded"])
"""Answered to clients of any protocol: they may want to find out which one to speak."""

Handler = Callable[[Request], Awaitable[Response]]


class Front:
    """UNTRUSTED: a handler for every path, and what they share."""

    def __init__(self, fleet: Fleet, hosting: Hosting, metrics: Metrics, limits: Limits, log: Log) -> None:
        self.fleet, self.hosting, self.metrics, self.limits, self.log = fleet, hosting, metrics, limits, log
        self._threads = ThreadPoolExecutor(THREADS, "request")
        self._requests = RateLimit(limits.requests_per_second)
        self._greetings = RateLimit(limits.greetings_per_second)

    # --- about the service -------------------------------------------------------------------------

    async def health(self, _: Request) -> Response:
        alive = self.fleet.alive
        status = "ok" if alive else "no enclave is running"
        facts = {"status": status, "enclaves": alive, "wanted": self.fleet.size, "databases": self.hosting.opened}
        return JSONResponse(facts, 200 if alive else 503)

    async def figures(self, _: Request) -> Response:
        sessions = sum(member.sessions for member in self.fleet.members)
        return Response(self.metrics.text(self.fleet.alive, sessions), media_type="text/plain; version=0.0.4")

    async def service(self, _: Request) -> Response:
        return JSONResponse({"service": "scumble", "protocols": [OLDEST, PROTOCOL], "enclaves": self.fleet.size})

    async def describe_surface(self, _: Request) -> Response:
        return JSONResponse(description())

    async def attest(self, request: Request) -> Response:
        self._admit(request, self._greetings)
        nonce = await self._body(request)
        if len(nonce) != NONCE_BYTES:
            raise InvalidParameter(f"a nonce has {NONCE_BYTES} bytes", hint="draw a new one for every connection")
        process = await self._in_thread(self.fleet.pick)  # it waits if none is running, and others must not
        _, evidence = await self._in_thread(process.job, Attest(), nonce)
        return _opaque(evidence, {ENCLAVE: process.id})

    # --- databases and sessions --------------------------------------------------------------------

    async def create(self, request: Request) -> Response:
        self._admit(request, self._greetings)
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        database = (await self._body(request)).decode("ascii", "replace")
        tenant, name = _names(request)
        await self._in_thread(self.hosting.create, tenant, name, database, token)
        return Response(status_code=201)

    async def describe(self, request: Request) -> Response:
        """A database's id: a client that has a key compares it with the key's."""
        hosted = await self._hosted(request)
        return Response(headers={DATABASE: hosted.store.database, STAMP: hosted.store.stamp()})

    async def greet(self, request: Request) -> Response:
        self._admit(request, self._greetings)
        hosted, body = await self._hosted(request), await self._body(request)
        session, answer = await self._in_thread(hosted.provider.greet, body)
        return _opaque(answer, {SESSION: str(session), STAMP: hosted.store.stamp()})

    async def request(self, request: Request) -> Response:
        hosted, body = await self._hosted(request), await self._body(request)
        answer, stamp = await self._in_thread(_answered, hosted, _session(request), body)
        return _opaque(answer, {STAMP: stamp})

    async def leave(self, request: Request) -> Response:
        hosted = await self._hosted(request)
        await self._in_thread(hosted.provider.leave, _session(request))
        return Response(status_code=204)

    async def hold(self, request: Request) -> Response:
        hosted, session = await self._hosted(request), _session(request)
        busy_seconds = _seconds(request.query_params.get("busy_seconds", "5"))
        rank = await self._in_thread(_rank, hosted, session)
        if not rank:
            raise NotFound("this session may not write", hint="ask the owner for a grant")
        await self._in_thread(hosted.leases.take, session, busy_seconds, rank)
        return Response(status_code=204, headers={STAMP: hosted.store.stamp()})

    async def release(self, request: Request) -> Response:
        hosted = await self._hosted(request)
        await self._in_thread(hosted.leases.give_back, _session(request))
        return Response(status_code=204)

    async def drop_unreferenced(self, request: Request) -> Response:
        hosted = await self._hosted(request)
        return JSONResponse({"runs": await self._in_thread(hosted.leases.drop_unreferenced, _session(request))})

    async def crowded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request on a connection beyond the limit; an ASGI application of its own."""

        async def refuse(_: Request) -> Response:
            raise Crowded

        response = await self.handled("crowded", refuse)(Request(scope, receive))
        await response(scope, receive, send)

    # --- shared by the handlers ---------------------------------------------------------------------

    def handled(self, kind: str, handler: Handler) -> Handler:
        """A handler whose errors become answers, and whose requests are counted and logged."""

        async def handle(request: Request) -> Response:
            begun = time.perf_counter()
            try:
                self._admit(request, self._requests)
                if kind not in ANY_VERSION:
                    _speak(request)
                _framed(request, self.limits.request_bytes)
                response = await handler(request)
            except ScumbleError as error:
                response = refused(error)
            except ClientDisconnect:
                response = Response(status_code=499)
            except Exception as error:
                self.log.write("failure", kind=kind, error=type(error).__name__)
                response = refused(ScumbleError("the service has failed", hint="tell the provider: its log says more"))
            self._note(kind, request, response, time.perf_counter() - begun)
            return response

        return handle

    def _note(self, kind: str, request: Request, response: Response, seconds: float) -> None:
        """Count and log a request, with the names of its database only if there is such a database."""
        received, sent = int(request.scope.get("received", 0)), len(response.body)
        self.metrics.request(kind, response.status_code, seconds, received, sent)
        names = {name: request.path_params[name] for name in ("tenant", "database") if name in request.path_params}
        known = bool(names) and self.hosting.known(names["tenant"], names["database"]) is not None
        self.log.write(
            kind,
            status=response.status_code,
            ms=round(1000 * seconds, 3),
            received=received,
            sent=sent,
            **(names if known else {}),
        )

    def _admit(self, request: Request, limit: RateLimit) -> None:
        wait = limit.wait_seconds(client_of(request.client.host) if request.client else "")
        if wait:
            raise TooMany(wait)

    async def _hosted(self, request: Request) -> Hosted:
        tenant, name = _names(request)
        return self.hosting.known(tenant, name) or await self._in_thread(self.hosting.get, tenant, name)

    async def _body(self, request: Request) -> bytes:
        """The body, if it is not too large and comes in time: the more has arrived, the longer the rest may take."""
        pieces: list[bytes] = []
        size, begun = 0, asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self.limits.body_seconds) as allowed:
                async for piece in request.stream():
                    size += len(piece)
                    if size > self.limits.request_bytes:
                        raise TooLarge(self.limits.request_bytes)
                    pieces.append(piece)
                    allowed.reschedule(begun + self.limits.body_seconds + size / self.limits.slowest_bytes_per_second)
        except TimeoutError:
            raise TooSlow from None
        finally:
            request.scope["received"] = size
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def close(self) -> None:
        """Wait for the requests under way, then close the enclaves and the databases."""
        self._threads.shutdown(wait=True)
        self.fleet.close()
        self.hosting.close()


def application(front: Front) -> Starlette:
    """The ASGI application."""
    handlers: dict[str, Handler] = {
        "request": front.request,
        "leave": front.leave,
        "health": front.health,
        "metrics": front.figures,
        "service": front.service,
        "openapi": front.describe_surface,
        "attest": front.attest,
        "describe": front.describe,
        "create": front.create,
        "greet": front.greet,
        "hold": front.hold,
        "let_go": front.release,
        "tidy": front.drop_unreferenced,
    }
    places: dict[str, dict[str, Handler]] = {}
    for asked in OPERATIONS:
        places.setdefault(asked.path, {})[asked.method] = front.handled(asked.kind, handlers[asked.kind])
    routes = [Route(path, _by_method(methods), methods=list(methods)) for path, methods in places.items()]

    async def elsewhere(request: Request, error: Exception) -> Response:
        return await front.handled("unknown", lambda _: _nothing_there(error))(request)

    made = Starlette(routes=routes, exception_handlers={HTTPException: elsewhere})
    made.router.redirect_slashes = False  # a redirect would repeat any Host that the client names
    return made


def _by_method(methods: dict[str, Handler]) -> Handler:
    async def handle(request: Request) -> Response:
        if b"%" in request.scope.get("raw_path", b""):
            raise HTTPException(404)  # no name needs it, and a proxy in front might read the path differently
        return await methods["GET" if request.method == "HEAD" else request.method](request)

    return handle


async def _nothing_there(error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == 405:
        raise NoMethod(", ".join(sorted((error.headers or {}).get("Allow", "").split(", "))))
    raise NotFound("there is nothing at this path", hint="GET /v1/openapi.json tells what can be asked")


def _speak(request: Request) -> None:
    """Refuse a client whose protocol this service does not speak."""
    spoken = request.headers.get(VERSION, str(OLDEST))
    if not (spoken.isascii() and spoken.isdecimal() and len(spoken) < 9 and OLDEST <= int(spoken) <= PROTOCOL):
        raise NewerVersion(
            f"this service speaks protocol {OLDEST} to {PROTOCOL}, and the client asks for another",
            hint="use a Scumble of the service's version, or ask the provider to upgrade",
        )


def _framed(request: Request, most: int) -> None:
    """Refuse a body of unknown length, or one that is too large, before any of it is read."""
    if "transfer-encoding" in request.headers:
        raise NoLength
    if int(request.headers.get("content-length", "0")) > most:
        raise TooLarge(most)


def _answered(hosted: Hosted, session: int, body: bytes) -> tuple[bytes, str]:
    """An answer and the stamp after it, together: asking for the stamp may touch a disk."""
    return hosted.provider.request(session, body), hosted.store.stamp()


def _rank(hosted: Hosted, session: int) -> int:
    """Of what use writing is to a session: as its enclave says, and to anybody while the database is empty."""
    return hosted.routing.rank(session) or int(hosted.store.is_empty())


def _names(request: Request) -> tuple[str, str]:
    return request.path_params["tenant"], request.path_params["database"]


def _session(request: Request) -> int:
    text: str = request.path_params["session"]
    if not (text.isascii() and text.isdecimal() and len(text) <= LONGEST_SESSION_DIGITS):
        raise NotFound("this is no number of a session", hint="a greeting is answered with one")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_BUSY_SECONDS:
        raise InvalidParameter(f"busy_seconds is a number from 0 to {LONGEST_BUSY_SECONDS:.0f}", hint="5 is usual")
    return seconds


def _opaque(content: Any, headers: dict[str, str]) -> Response:
    return Response(bytes(content), headers=headers, media_type="application/octet-stream")
