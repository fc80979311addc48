"""What a provider can watch: a log of JSON lines, and figures for Prometheus.

Both hold kinds, sizes, times and names of databases, all of which the provider sees anyway; never a byte of a body, nor
anything that depends on a secret.
"""

import json
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["Log", "Metrics", "libraries_logging_to"]

FIXED_TEXTS = "uvicorn.error"
"""The one logger whose warnings are fixed texts. Those of others may hold anything."""


class Log:
    """Writes one JSON object to a line; nothing if `to` is None."""

    def __init__(self, to: TextIO | None = sys.stderr) -> None:
        self._to = to
        self._turn = threading.Lock()

    def write(self, event: str, **facts: Any) -> None:
        if self._to is None:
            return
        line = json.dumps({"time": round(time.time(), 3), "event": event, **facts}) + "\n"
        with self._turn:
            self._to.write(line)
            self._to.flush()


class _Forwarding(logging.Handler):
    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a library's warning: of an error only the type, since its text may hold anything."""
        facts = {"message": str(record.msg).strip()} if record.name == FIXED_TEXTS else {}
        if record.exc_info and record.exc_info[0] is not None:
            facts["error"] = record.exc_info[0].__name__
        self._log.write("server", level=record.levelname.lower(), by=record.name, **facts)


@contextmanager
def libraries_logging_to(log: Log) -> Iterator[None]:
    """Inside the block, the warnings of uvicorn and asyncio go to `log`, in its form."""
    handler, loggers = _Forwarding(log), [logging.getLogger(name) for name in ("uvicorn", "asyncio")]
    kept = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagate in zip(loggers, kept, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagate


_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)


class Metrics:
    """The figures of one front."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        labels = ("kind", "status")
        self._requests = Counter("scumble_requests", "Requests by kind and HTTP status.", labels, registry=registry)
        self._seconds = Histogram(
            "scumble_request_seconds", "Time to answer.", ("kind",), registry=registry, buckets=_SECONDS
        )
        self._received = Counter("scumble_received_bytes", "Bytes of requests.", registry=registry)
        self._sent = Counter("scumble_sent_bytes", "Bytes of answers.", registry=registry)
        self._pages = Counter("scumble_pages_read", "Sealed pages read by the enclaves.", registry=registry)
        self._page_bytes = Counter("scumble_page_bytes_read", "Bytes of sealed pages read.", registry=registry)
        self._processes = Gauge("scumble_enclaves", "Enclave processes that are running.", registry=registry)
        self._deaths = Counter("scumble_enclave_deaths", "Enclave processes that have died.", registry=registry)
        self._sessions = Gauge("scumble_sessions", "Sessions that are open.", registry=registry)

    def request(self, kind: str, status: int, seconds: float, received: int, sent: int) -> None:
        self._requests.labels(kind, str(status)).inc()
        self._seconds.labels(kind).observe(seconds)
        self._received.inc(received)
        self._sent.inc(sent)

    def read(self, pages: int, size: int) -> None:
        self._pages.inc(pages)
        self._page_bytes.inc(size)

    def died(self) -> None:
        self._deaths.inc()

    def text(self, processes: int, sessions: int) -> bytes:
        self._processes.set(processes)
        self._sessions.set(sessions)
        return generate_latest(self._registry)
