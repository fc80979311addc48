"""Running the service: a front and its enclaves, until a signal ends them.

SIGTERM and SIGINT drain: nothing new is taken, what is under way is answered, then everything ends. A load that is
being built is a change of two requests: its client may still sign it, within a few seconds. SIGKILL at any moment loses
nothing that was acknowledged: the store is committed to disk before it is.
"""

import asyncio
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import uvicorn

from scumble.durable import allow_open_files
from scumble.errors import FileError, InvalidParameter
from scumble.provider.connections import SPARE, limited
from scumble.provider.fleet import PROGRAM, EnclaveProcess, Fleet
from scumble.provider.hosting import Hosting
from scumble.provider.http import Front, application
from scumble.provider.limits import Limits
from scumble.provider.observe import Log, Metrics, libraries_logging_to
from scumble.store.collecting import KEPT

__all__ = ["Settings", "serve"]

DRAIN_SECONDS = 60
LAPSE_SECONDS = 5.0
OTHER_FILES = 4096
"""Descriptors that are no connections: pipes, and the files of open databases."""


@dataclass(frozen=True)
class Settings:
    """PUBLIC: how a provider serves."""

    folder: Path
    host: str = "127.0.0.1"
    port: int = 7300
    enclaves: int = 2
    attestation: str = "auto"
    endorsements: Path | None = None
    open_to_all: bool = False
    certificate: Path | None = None
    private_key: Path | None = None
    limits: Limits = field(default_factory=Limits)
    program: str = PROGRAM
    keep_versions: int = KEPT

    def __post_init__(self) -> None:
        if not self.folder.is_dir():
            raise FileError(f"{self.folder} is not a folder", hint=f"make it first: mkdir -p {self.folder}")
        if (self.folder / "database.json").exists():
            raise InvalidParameter(
                f"{self.folder} is a database itself", hint="serve a folder that holds tenants' folders of databases"
            )
        if self.endorsements is not None and not self.endorsements.is_dir():
            raise FileError(f"{self.endorsements} is not a folder", hint="docs/attestation.md says what belongs in it")
        if (self.certificate is None) != (self.private_key is None):
            raise InvalidParameter("TLS needs a certificate and its key", hint="give both, or neither")
        if self.certificate is not None:
            _check_certificate(self.certificate, self.private_key)


def serve(settings: Settings, ready: Callable[[int], None] = lambda port: None, log: Log | None = None) -> None:
    """Serve until a signal comes; `ready` is called with the port, once requests are taken."""
    log, metrics = log or Log(), Metrics()

    def note(what: str, process: EnclaveProcess) -> None:
        if what == "died":
            metrics.died()
        log.write(f"enclave {what}", enclave=process.id, pid=process.pid)

    listening = _listening(settings)
    fleet = Fleet(settings.enclaves, settings.attestation, note, settings.endorsements, settings.program)
    hosting = Hosting(
        settings.folder,
        fleet,
        metrics.read,
        open_to_all=settings.open_to_all,
        keep_versions=settings.keep_versions,
    )
    front = Front(fleet, hosting, metrics, settings.limits, log)
    server = _Server(_config(settings, front), front, lambda: ready(listening.getsockname()[1]))
    allow_open_files(settings.limits.connections + SPARE + OTHER_FILES)
    try:
        with libraries_logging_to(log):
            server.run([listening])
    finally:
        listening.close()
        front.close()
        log.write("stopped")


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, front: Front, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._front, self._ready = front, ready
        self._told_to_stop: float | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Drain at a signal, and do not raise it again afterwards as uvicorn does: there is more to close."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take nothing new from now on; at a second signal, wait for no client any more."""
        if self._told_to_stop is None:
            self._told_to_stop, self._front.stopping = time.monotonic(), True
        else:
            self.should_exit = self.force_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Close the connections only when no change waits for its signature: until then its client needs one."""
        if self._told_to_stop is not None and not self.should_exit:
            left = DRAIN_SECONDS - (time.monotonic() - self._told_to_stop)
            self.should_exit = left <= 0 or not await asyncio.to_thread(self._front.unfinished)
            self.config.timeout_graceful_shutdown = max(1, int(left))
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._lapsing = asyncio.create_task(self._end_lapsed())
        self._ready()

    async def _end_lapsed(self) -> None:
        """Every few seconds, end the leases of writers that have gone silent, and write the transcripts."""
        while True:
            await asyncio.sleep(LAPSE_SECONDS)
            for hosted in self._front.hosting.every():
                await asyncio.to_thread(hosted.leases.end_if_lapsed)
                await asyncio.to_thread(hosted.provider.transcript.flush)


def _config(settings: Settings, front: Front) -> uvicorn.Config:
    return uvicorn.Config(
        application(front),
        http=limited(settings.limits, front.crowded),
        ws="none",
        lifespan="off",
        loop="uvloop",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.private_key,
    )


def _check_certificate(certificate: Path, private_key: Path | None) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, private_key, password=lambda: "")
    except (OSError, ValueError):
        raise InvalidParameter(
            "the certificate and its key cannot be used for TLS",
            hint="two PEM files that belong together, no passphrase",
        ) from None


def _listening(settings: Settings) -> socket.socket:
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family[0], socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(family[4])
    except OSError as error:
        raise InvalidParameter(
            f"{settings.host} port {settings.port} cannot be listened on: {error.strerror}",
            hint="choose another --port",
        ) from None
    return listening
