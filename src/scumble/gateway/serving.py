"""A gateway from its start to its stop: databases are opened, calls answered, and those that run may finish.

In comes the configuration. While a gateway listens, one thread takes off the shelves what nobody has fetched in time,
and one watches what runs; at the end nothing of either is left.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from scumble.errors import InvalidParameter
from scumble.gateway.calls import Log, to_stderr
from scumble.gateway.config import Config
from scumble.gateway.databases import Databases
from scumble.gateway.server import Gateway

__all__ = ["check", "opened", "serve"]

SWEEP_SECONDS = 5
DRAIN_SECONDS = 30


@contextmanager
def opened(config: Config, log: Log = to_stderr) -> Iterator[Gateway]:
    """Open a gateway that listens while the block runs; at the end let running calls finish."""
    databases = Databases(config.databases, config.default, config.limits)
    try:
        gateway = _listening(config, databases, log)
        over, stopped = threading.Event(), threading.Event()
        sweeper = threading.Thread(target=_sweep, args=(gateway, over), daemon=True)
        watcher = threading.Thread(target=gateway.runs.watch, args=(stopped,), daemon=True)
        sweeper.start()
        watcher.start()
        try:
            yield gateway
        finally:
            gateway.authentication.closing = True
            over.set()
            stopping = threading.Thread(target=gateway.shutdown, daemon=True)
            stopping.start()
            stopping.join(DRAIN_SECONDS)
            stopped.set()
            sweeper.join()
            watcher.join()
            gateway.transactions.clear()
            gateway.results.clear()
            gateway.statements.clear()
    finally:
        databases.close()


def check(config: Config) -> dict[str, list[str]]:
    """Open every database without listening; return the names of their tables."""
    databases = Databases(config.databases, config.default)
    try:
        return {name: [table.name for table in databases[name].tables] for name in databases.names}
    finally:
        databases.close()


def serve(config: Config, ready: Callable[[Gateway], None], log: Log = to_stderr) -> None:
    """Serve until SIGTERM or SIGINT; `ready` is called when clients can connect."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with opened(config, log) as gateway:
            ready(gateway)
            stop.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _listening(config: Config, databases: Databases, log: Log) -> Gateway:
    try:
        return Gateway(config, databases, log)
    except (OSError, pa.ArrowException) as error:
        raise InvalidParameter(
            f"the gateway cannot listen at {config.host}:{config.port}",
            hint="another process may use the port, or the certificate does not match its key",
        ) from error


def _sweep(gateway: Gateway, over: threading.Event) -> None:
    while not over.wait(SWEEP_SECONDS):
        gateway.transactions.sweep()
        gateway.results.sweep()
        gateway.statements.sweep()
