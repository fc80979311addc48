"""The HTTP surface of a provider: a handler for each operation in openapi.py, and what they share.

Bodies are sealed, and opaque to the front. Every answer of an enclave has the status 200, errors included: they are
inside. Other refusals are the front's own, and depend on nothing secret.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from scumble.errors import Busy, InvalidParameter, NotFound, ScumbleError
from scumble.provider.fleet import ID_BYTES, LANES, NONCE_BYTES, EnclaveProcess, Fleet
from scumble.provider.hosting import Hosted, Hosting
from scumble.provider.http_requests import (
    address_of,
    check_length,
    check_protocol,
    exchange_of,
    length_of,
    names_of,
    path_of,
    seconds_in,
    session_of,
)
from scumble.provider.limits import (
    Crowded,
    Ending,
    Limits,
    NoMethod,
    NoRoom,
    RateLimit,
    TooLarge,
    TooMany,
    TooSlow,
    Undelivered,
    refused,
)
from scumble.provider.observe import Log, Metrics
from scumble.provider.openapi import OPERATIONS, description
from scumble.provider.turns import Path, Quota, Turns
from scumble.wire.pipe import Attest
from scumble.wire.storage import DATABASE, ENCLAVE, OLDEST, PROTOCOL, SESSION, STAMP

__all__ = ["Front", "application"]

THREADS = 64
ATTESTING = 8
"""Nonces that are answered at a time: an enclave has one pipe for short jobs."""
HOLD_SECONDS = (0.05, 0.5)
"""How long to wait between two looks at a lease that another session has: at first, and at most."""
SIGNING_SECONDS = 5.0
"""How long a service that is stopping waits for the signature under what it has built."""
ANY_VERSION = frozenset(["health", "metrics", "service", "openapi", "unknown", "crowded"])
"""Answered to clients of any protocol: they may want to find out which one to speak."""
TO_THE_END = ANY_VERSION | {"request", "leave", "let_go"}
"""Not refused by a service that is stopping: what ends a session or asks of none, and a request if it is a last one."""

Handler = Callable[[Request], Awaitable[Response]]


class Front:
    """UNTRUSTED: a handler for every path, and what they share."""

    def __init__(self, fleet: Fleet, hosting: Hosting, metrics: Metrics, limits: Limits, log: Log) -> None:
        self.fleet, self.hosting, self.metrics, self.limits, self.log = fleet, hosting, metrics, limits, log
        self._threads = ThreadPoolExecutor(THREADS, "request")
        self._jobs = ThreadPoolExecutor(max(THREADS, LANES * fleet.size), "job")
        self._turns: WeakKeyDictionary[EnclaveProcess, Turns] = WeakKeyDictionary()
        self._attesting = Turns(ATTESTING)
        self._bytes: Quota[str] = Quota(limits.tenant_bytes, limits.all_bytes)
        self._tenants: Quota[str] = Quota(limits.waiting_per_tenant, 8 * limits.waiting_per_tenant)
        self._sessions: Quota[Path] = Quota(limits.waiting_per_session, 8 * limits.waiting_per_tenant)
        self._requests = RateLimit(limits.requests_per_second)
        self._greetings = RateLimit(limits.greetings_per_second)
        self.stopping = False
        """Set it to take nothing new, but for what ends a change, and wait while there is any `unfinished`."""

    # --- about the service -------------------------------------------------------------------------

    async def health(self, _: Request) -> Response:
        alive = self.fleet.alive
        status = "stopping" if self.stopping else "ok" if alive else "no enclave is running"
        facts = {"status": status, "enclaves": alive, "wanted": self.fleet.size, "databases": self.hosting.opened}
        return JSONResponse(facts, 200 if status == "ok" else 503)

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
        async with self._turn(request, self._attesting, (address_of(request), "", "", "")):
            process = await self._in_thread(self.fleet.pick)  # it waits if none is running, and others must not
            _, evidence = await self._in_thread(process.job, Attest(), nonce)
        return _opaque(evidence, {ENCLAVE: process.id})

    # --- databases and sessions --------------------------------------------------------------------

    async def create(self, request: Request) -> Response:
        self._admit(request, self._greetings)
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        database = (await self._body(request)).decode("ascii", "replace")
        tenant, name = names_of(request)
        await self._in_thread(self.hosting.create, tenant, name, database, token)
        return Response(status_code=201)

    async def describe(self, request: Request) -> Response:
        """A database's id: a client that has a key compares it with the key's."""
        hosted = await self._hosted(request)
        return Response(headers={DATABASE: hosted.store.database, STAMP: hosted.store.stamp()})

    async def greet(self, request: Request) -> Response:
        self._admit(request, self._greetings)
        hosted, body = await self._hosted(request), await self._body(request)
        process = self.fleet.pick(body[:ID_BYTES].hex())
        async with self._turn(request, self._turns_of(process), path_of(request)):
            session, answer = await self._job(hosted.provider.greet, body)
        return _opaque(answer, {SESSION: str(session), STAMP: hosted.store.stamp()})

    async def request(self, request: Request) -> Response:
        """Pass on a sealed request, of a session that is there: before that is known, nothing of it is read."""
        hosted, session, tenant = await self._hosted(request), session_of(request), request.path_params["tenant"]
        if self.stopping and not await self._in_thread(hosted.leases.last_request, session, SIGNING_SECONDS):
            raise Ending
        process, most = hosted.routing.place_of(session)
        size, most = length_of(request), min(most, self.limits.request_bytes)
        if size > most:
            raise TooLarge(most)
        if not self._bytes.take(tenant, size):
            raise NoRoom("the requests of this tenant, or of all, fill the memory")
        exchange = exchange_of(request)
        try:
            body = await self._body(request, most)
            async with self._turn(request, self._turns_of(process), path_of(request)):
                hosted.routing.watch(session, lambda: exchange.gone)
                answer, stamp = await self._job(_answered, hosted, session, body)
        finally:
            self._bytes.give_back(tenant, size)
        if not self._bytes.take(tenant, len(answer)):
            raise Undelivered
        exchange.when_sent(lambda: self._bytes.give_back(tenant, len(answer)))
        return _opaque(answer, {STAMP: stamp})

    async def leave(self, request: Request) -> Response:
        hosted = await self._hosted(request)
        await self._in_thread(hosted.provider.leave, session_of(request))
        return Response(status_code=204)

    async def hold(self, request: Request) -> Response:
        """Give a session the lease. While another one has it, this waits without a thread, and no longer than asked."""
        hosted, session, exchange = await self._hosted(request), session_of(request), exchange_of(request)
        busy_seconds = seconds_in(request.query_params.get("busy_seconds", "5"))
        rank = await self._in_thread(_rank, hosted, session)
        if not rank:
            raise NotFound("this session may not write", hint="ask the owner for a grant")
        deadline, pause = time.monotonic() + busy_seconds, HOLD_SECONDS[0]
        with self._counted(request, path_of(request)):
            while True:
                try:
                    await self._in_thread(hosted.leases.take, session, 0, rank)
                    break
                except Busy:
                    if self.stopping:
                        raise Ending from None
                    if exchange.gone or time.monotonic() >= deadline:
                        raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, HOLD_SECONDS[1])
        return Response(status_code=204, headers={STAMP: hosted.store.stamp()})

    async def release(self, request: Request) -> Response:
        hosted = await self._hosted(request)
        await self._in_thread(hosted.leases.give_back, session_of(request))
        return Response(status_code=204)

    async def drop_unreferenced(self, request: Request) -> Response:
        hosted = await self._hosted(request)
        return JSONResponse({"runs": await self._in_thread(hosted.leases.drop_unreferenced, session_of(request))})

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
                if self.stopping and kind not in TO_THE_END:
                    raise Ending
                if kind not in ANY_VERSION:
                    check_protocol(request)
                check_length(request, self.limits.request_bytes if kind == "request" else self.limits.small_bytes)
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
        wait = limit.wait_seconds(address_of(request))
        if wait:
            raise TooMany(wait)

    async def _hosted(self, request: Request) -> Hosted:
        tenant, name = names_of(request)
        return self.hosting.known(tenant, name) or await self._in_thread(self.hosting.get, tenant, name)

    def _turns_of(self, process: EnclaveProcess) -> Turns:
        return self._turns.setdefault(process, Turns(LANES))

    @asynccontextmanager
    async def _turn(self, request: Request, turns: Turns, path: Path) -> AsyncIterator[None]:
        """Wait for a request's turn, among as many others as the limits allow, and no longer than its client does."""
        with self._counted(request, path):
            if not await turns.take(path, exchange_of(request).when_gone):
                raise ClientDisconnect
        try:
            yield
        finally:
            turns.give_back(path)

    @contextmanager
    def _counted(self, request: Request, path: Path) -> Iterator[None]:
        """While a request waits, count it for its tenant, or its address if it names none, and for its session."""
        tenant = request.path_params.get("tenant", path[0])
        if not self._tenants.take(tenant):
            raise NoRoom("many requests of this tenant are waiting")
        try:
            if not self._sessions.take(path):
                raise NoRoom("several requests of this session are waiting")
            try:
                yield
            finally:
                self._sessions.give_back(path)
        finally:
            self._tenants.give_back(tenant)

    async def _body(self, request: Request, most: int | None = None) -> bytes:
        """The body, if it is not too large and comes in time: the more has arrived, the longer the rest may take."""
        most = self.limits.small_bytes if most is None else most
        pieces: list[bytes] = []
        size, begun = 0, asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self.limits.body_seconds) as allowed:
                async for piece in request.stream():
                    size += len(piece)
                    if size > most:
                        raise TooLarge(most)
                    pieces.append(piece)
                    allowed.reschedule(begun + self.limits.body_seconds + size / self.limits.slowest_bytes_per_second)
        except TimeoutError:
            raise TooSlow from None
        finally:
            request.scope["received"] = size
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    async def _job(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Have an enclave do something: in threads that nothing else uses, one for each place that there is."""
        return await asyncio.get_running_loop().run_in_executor(self._jobs, function, *arguments)

    def unfinished(self) -> bool:
        """Whether a change is being built, or may be about to be signed."""
        return any(hosted.leases.unfinished(SIGNING_SECONDS) for hosted in self.hosting.every())

    def close(self) -> None:
        """Wait for the requests under way, then close the enclaves and the databases."""
        self._jobs.shutdown(wait=True)
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


def _answered(hosted: Hosted, session: int, body: bytes) -> tuple[bytes, str]:
    """An answer and the stamp after it, together: asking for the stamp may touch a disk."""
    return hosted.provider.request(session, body), hosted.store.stamp()


def _rank(hosted: Hosted, session: int) -> int:
    """Of what use writing is to a session: as its enclave says, and to anybody while the database is empty."""
    return hosted.routing.rank(session) or int(hosted.store.is_empty())


def _opaque(content: Any, headers: dict[str, str]) -> Response:
    return Response(bytes(content), headers=headers, media_type="application/octet-stream")
