"""Connections with limits. Anybody can connect, so nobody may take much memory or time.

uvicorn parses HTTP, but limits neither the size of a head nor the time that a head or an unwanted body takes, and waits
for ever for a client that does not read its answer. This adds those limits.
"""

import asyncio
import fcntl
import http
import json
import sys
import termios
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from scumble.provider.limits import Limits, client_of
from scumble.provider.turns import Quota

__all__ = ["Exchange", "limited"]

VERSIONS = ("1.0", "1.1")
NO_LIMIT = 1 << 62
LITTLE_BYTES = 64 << 10
"""Unsent bytes above which a transport tells, by default, when most of them have gone out."""
SPARE = 64
"""Connections beyond the limit that still get a refusal; those beyond these are aborted."""


class Exchange:
    """A request and its answer, as a handler may want to follow them: in its scope, under "exchange"."""

    __slots__ = ("_on_gone", "_on_sent", "gone", "sent")

    def __init__(self) -> None:
        self.gone = self.sent = False
        """Whether the client has gone, and whether its answer is out of our memory, either way."""
        self._on_gone: Callable[[], None] | None = None
        self._on_sent: Callable[[], None] | None = None

    def when_gone(self, call: Callable[[], None]) -> None:
        """Call this if the client goes before it is answered; at once if it has gone already."""
        self._on_gone = call
        if self.gone:
            call()

    def when_sent(self, call: Callable[[], None]) -> None:
        """Call this once the answer is sent, or will never be."""
        self._on_sent = call
        if self.sent:
            call()

    def lose(self) -> None:
        self.gone = True
        if self._on_gone is not None:
            self._on_gone()
        self.end()

    def end(self) -> None:
        if not self.sent:
            self.sent = True
            if self._on_sent is not None:
                self._on_sent()


class Connection(HttpToolsProtocol):
    """One connection, with limits; `crowded` is the application for requests that are one too many."""

    limits: Limits
    crowded: Any
    addresses: "Quota[str]"

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._running: RequestResponseCycle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._in_head = self._in_message = self._begun = self._too_large = self._lost = False
        self._head_bytes = self._more_head_bytes = self._unsent_bytes = 0
        self._exchange: Exchange | None = None
        self._address = client_of(self.client[0]) if self.client else ""
        self.addresses.take(self._address)
        self.timeout_keep_alive = self.limits.idle_seconds  # type: ignore[assignment]  # seconds have fractions
        if self._crowding > SPARE:
            transport.abort()
        else:
            self._expect(self.limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers, and tell the request under way, which need not be the last that came."""
        self.addresses.give_back(self._address)
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
            self._running.scope["exchange"].lose()  # type: ignore[typeddict-item]  # ours
        if self._exchange is not None:
            self._exchange.end()
        self.pipeline.clear()
        self._stop()
        self._stop_watching()
        self._lost = True
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what has come; a head that does not end is refused, and a connection at rest is not kept for ever."""
        self._begun = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head:
            self._more_head_bytes += 0 if self._begun else len(data)
            if self._more_head_bytes > self.limits.header_bytes:
                self._too_large = True
                self.send_400_response("")
        elif self.cycle is not None and self.timeout_keep_alive_task is None and not self._at_work():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        cycle.scope["exchange"] = Exchange()  # type: ignore[typeddict-unknown-key]
        super()._start_asgi_task(cycle, app)

    @property
    def _crowding(self) -> int:
        """By how many connections there are too many, altogether or from this address."""
        limits = self.limits
        return max(
            len(self.connections) - limits.connections,
            self.addresses.used(self._address) - limits.connections_per_address,
        )

    # --- what the parser tells -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = self._in_message = self._begun = True
        self._head_bytes = self._more_head_bytes = 0
        self._expect(self.limits.header_seconds)

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """A head is complete: the application begins, and sees to the body."""
        if self.parser.get_http_version() not in VERSIONS:
            raise ValueError("this is another version of HTTP")
        self.app = self.crowded if self._crowding > 0 else self.config.loaded_app
        super().on_headers_complete()
        self._in_head = False
        self._stop()
        if self.parser.should_upgrade():
            self.cycle.keep_alive = False  # what follows is not HTTP, and nobody here speaks anything else

    def on_message_complete(self) -> None:
        self._in_message = False
        self._stop()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is on its way; a body that nobody wanted may not take for ever to end, nor may the answer."""
        self._answered()
        super().on_response_complete()
        if self._lost:
            return
        if self.transport.is_closing():
            self._watch_sending()
        elif self._in_message and not self._in_head:
            self._expect(self.limits.body_seconds)

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing to warn of: the request is answered as if it had not asked for anything else."""

    # --- how it ends ---------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP. While an earlier request is under way, only close: this is no answer to it."""
        self._stop()
        mine = self._in_message and not self._in_head and not self.pipeline and not self.cycle.response_started
        if mine or not self._at_work():
            self.transport.write(_refusal(431 if self._too_large else 400))
        self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing was asked for a while: close, after the last answer has gone out."""
        super().timeout_keep_alive_handler()
        self._watch_sending()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_sending()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._exchange is not None:
            self._exchange.end()
            self._exchange = None
        if not self.transport.is_closing():
            self._stop_watching()

    def _answered(self) -> None:
        """The answer is in the transport's hands: its exchange ends when little of it is left there."""
        exchange: Exchange = self._running.scope["exchange"]  # type: ignore[typeddict-item,union-attr]
        if self._lost or self.transport.get_write_buffer_size() <= LITTLE_BYTES:
            exchange.end()
        else:
            self._exchange = exchange

    def _watch_sending(self) -> None:
        """Abort the connection if the client stops reading."""
        self._stop_watching()
        self._unsent_bytes = self._unsent()
        if self._unsent_bytes:
            self._sending = self.loop.call_later(self.limits.idle_seconds, self._look_at_sending)

    def _look_at_sending(self) -> None:
        if self._unsent() == self._unsent_bytes:
            self.transport.abort()
        else:
            self._watch_sending()

    def _unsent(self) -> int:
        """Bytes that the client has not got yet: ours, and those that the system has taken from us."""
        taken = fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        return self.transport.get_write_buffer_size() + int.from_bytes(taken, sys.byteorder)

    def _stop_watching(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _at_work(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _count(self, size: int) -> None:
        self._head_bytes += size + 4
        if self._head_bytes > self.limits.header_bytes:
            self._too_large = True
            raise ValueError("the head is too large")

    def _expect(self, seconds: float) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, self._too_slow)

    def _too_slow(self) -> None:
        if self._at_work():  # the answer to an earlier request first: then the time begins anew
            self._expect(self.limits.header_seconds)
        else:
            self.transport.abort()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def limited(limits: Limits, crowded_by: Any) -> type[Connection]:
    """Connections with these limits; `crowded_by` answers requests on those that are too many."""

    class Limited(Connection):
        pass

    Limited.limits, Limited.crowded = limits, staticmethod(crowded_by)
    Limited.addresses = Quota(NO_LIMIT, NO_LIMIT)  # it counts here, and `_crowding` compares
    return Limited


def _refusal(status: int) -> bytes:
    message = "this is no HTTP" if status == 400 else "the head of the request is too large"
    fields = {"error": "InvalidParameter", "message": message, "hint": "GET /v1/openapi.json tells what can be asked"}
    body = json.dumps(fields).encode()
    first = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n"
    head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return (first + head).encode() + body
