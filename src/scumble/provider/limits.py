"""Limits at the front: how much one address may ask for, how large a request may be, how long it may take to come."""

import ipaddress
import threading
import time
from dataclasses import dataclass

__all__ = ["Limits", "RateLimit", "client_of"]

MOST_ADDRESSES = 1 << 16


@dataclass(frozen=True)
class Limits:
    """PUBLIC: what the front lets in."""

    request_bytes: int = 32 << 20
    requests_per_second: float = 5000.0
    greetings_per_second: float = 200.0
    body_seconds: float = 30.0
    slowest_bytes_per_second: float = 64 << 10
    header_seconds: float = 10.0
    header_bytes: int = 32 << 10
    idle_seconds: float = 120.0
    connections: int = 2000


class RateLimit:
    """So many a second for each address, and twice as many at once."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._turn = threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}

    def wait_seconds(self, address: str, now: float | None = None) -> float:
        """Take one if there is one: 0. Else how long until there is."""
        now = time.monotonic() if now is None else now
        most = 2 * self._per_second
        with self._turn:
            left, seen = self._left.get(address, (most, now))
            left = min(most, left + (now - seen) * self._per_second)
            if left < 1:
                return (1 - left) / self._per_second
            if address not in self._left and len(self._left) >= MOST_ADDRESSES:
                self._left.clear()
            self._left[address] = left - 1, now
            return 0.0


def client_of(host: str) -> str:
    """Whose limit an address counts for: its own, or, where one client has as many addresses as it likes, its net's."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))
