"""Figures for Prometheus: requests, pages, bytes, latency, processes. All of it the provider sees anyway.

Nothing here depends on a secret: it counts what the transcript tells, and how long things took.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["Metrics"]

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
        """Count a request."""
        self._requests.labels(kind, str(status)).inc()
        self._seconds.labels(kind).observe(seconds)
        self._received.inc(received)
        self._sent.inc(sent)

    def read(self, pages: int, size: int) -> None:
        """Count pages."""
        self._pages.inc(pages)
        self._page_bytes.inc(size)

    def died(self) -> None:
        """Count an enclave's death."""
        self._deaths.inc()

    def text(self, processes: int, sessions: int) -> bytes:
        """All figures in Prometheus' text form."""
        self._processes.set(processes)
        self._sessions.set(sessions)
        return generate_latest(self._registry)
