"""A witness over HTTP: presentations are posted to /v1/present, and the answer says what was seen. All of it is public.

Nobody has to show a right: what counts is whether the signatures in a presentation hold. Bodies are small, and who
sends one slowly is cut off. Answers are signed for the client's nonce, so that plain HTTP will do.
"""

import asyncio
import signal
import socket
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from scumble.errors import FileError, InvalidParameter, Refused, ScumbleError
from scumble.witness.cosignatures import MOST_BYTES, Presentation, from_json_bytes, to_json_bytes
from scumble.witness.log import Witness

__all__ = ["application", "serve"]

BODY_SECONDS = 10
CONNECTIONS = 100


def application(witness: Witness) -> Starlette:
    """The routes of a witness."""

    async def present(request: Request) -> Response:
        try:
            shown = from_json_bytes(Presentation, await _body(request))
            answer = await asyncio.to_thread(witness.answer, shown)  # it writes to disk, and others need not wait
        except ScumbleError as error:
            status = 500 if isinstance(error, FileError) else 403 if isinstance(error, Refused) else 400
            return JSONResponse({"error": error.message}, status)
        except (ClientDisconnect, TimeoutError):
            return Response(status_code=408)
        return Response(to_json_bytes(answer), media_type="application/json")

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "witness": witness.text})

    return Starlette(
        routes=[Route("/v1/present", present, methods=["POST"]), Route("/health", health, methods=["GET"])]
    )


async def _body(request: Request) -> bytes:
    body = bytearray()
    async with asyncio.timeout(BODY_SECONDS):
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                raise InvalidParameter(f"a presentation has at most {MOST_BYTES} bytes", hint="present less at a time")
    return bytes(body)


def serve(witness: Witness, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Answer until a signal comes; `ready` is called with the port once requests are taken."""
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]  # what it adds is the address, as Python writes it
        raise InvalidParameter(
            f"{host} port {port} cannot be listened on: {reason}", hint="choose another --host or --port"
        ) from None
    config = uvicorn.Config(
        application(witness),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=BODY_SECONDS,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # uvicorn catches one, stops, and then raises it again
    with listening:
        _Server(config, lambda: ready(listening.getsockname()[1])).run([listening])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()
