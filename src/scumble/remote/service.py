"""A provider's service as the owner sees it: a `Service` at the other end of a network.

Evidence comes in before anything goes out: `public_key` is that of an enclave whose code, for a fresh nonce, was proved
to be what was pinned. After that only sealed bytes leave. The provider may drop, delay and lie; what it alters is found
by whoever opens the answer.
"""

import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from scumble import attestation
from scumble.attestation import Evidence, Verdict
from scumble.boundary.protocol import DATABASE, ENCLAVE, SESSION, STAMP
from scumble.errors import ScumbleError, Tampered, Unavailable
from scumble.remote.address import Address
from scumble.remote.transport import Reply, Transport

__all__ = ["RemoteService"]

NONCE_BYTES = 32
KEY_BYTES = 32
ID_BYTES = 8
RENEW_SECONDS = 15.0
SILENT_SECONDS = 1.0
_DATABASE = re.compile("[0-9a-f]{16,64}")

Trusted = Callable[[Evidence, bytes], Verdict]
"""Takes evidence and the report data that it has to have, and says whose code it is; or raises AttestationRefused."""


class RemoteService:
    """The way to an enclave of a service, for one database."""

    def __init__(self, address: Address, transport: Transport, trusted: Trusted) -> None:
        self._address, self._transport, self._trusted = address, transport, trusted
        self._enclave = b""
        self._session: int | None = None
        self._stamp, self._heard = "", time.monotonic()

    @property
    def public_key(self) -> bytes:
        """The key of an enclave that has just proved itself."""
        return self.prove()

    def prove(self) -> bytes:
        """Have an enclave prove itself; its key."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        reply = self._transport.ask("POST", "/v1/attest", nonce)
        key, evidence = reply.body[:KEY_BYTES], Evidence.from_bytes(reply.body[KEY_BYTES:])
        self._trusted(evidence, attestation.report_data(key, nonce))
        self._enclave = _enclave_id(reply)
        return key

    def greet(self, sealed: bytes) -> tuple[int, bytes]:
        """Open a session with the enclave that has proved itself last."""
        reply = self._ask("POST", "/sessions", self._enclave + sealed)
        self._session = _number(reply)
        return self._session, reply.body

    def request(self, session: int, sealed: bytes | memoryview) -> bytes:
        """Have one sealed request answered."""
        return self._ask("POST", f"/sessions/{session}", sealed).body

    def leave(self, session: int) -> None:
        """End a session; if the service is gone, so is the session."""
        with suppress(ScumbleError):
            self._ask("DELETE", f"/sessions/{session}")

    @contextmanager
    def writer(self, busy_seconds: float = 5) -> Iterator[None]:
        """Hold the database for writing, and show the service now and then that somebody is there."""
        path = f"/sessions/{self._session}/writer"
        self._ask("PUT", f"{path}?busy_seconds={busy_seconds}")
        done = threading.Event()

        def renew() -> None:
            while not done.wait(RENEW_SECONDS):
                with suppress(ScumbleError):
                    self._ask("PUT", f"{path}?busy_seconds=0")

        renewing = threading.Thread(target=renew, daemon=True)
        renewing.start()
        try:
            yield
        finally:
            done.set()
            renewing.join(1)
            with suppress(ScumbleError):  # a lease that nobody renews lapses by itself
                self._ask("DELETE", path)

    @property
    def lags(self) -> bool:
        """The stamp is that of the last answer."""
        return True

    def stamp(self) -> object:
        """What the service said last: it comes with every answer; after a while of silence it is asked."""
        if time.monotonic() - self._heard > SILENT_SECONDS:
            with suppress(ScumbleError):  # whoever needs the service next finds out what is wrong
                self._ask("GET", "")
        return self._stamp

    def drop_unreferenced(self) -> int:
        """Have the runs deleted that no table has any more."""
        self._ask("POST", f"/sessions/{self._session}/tidy")
        return 0

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def describe(self) -> str:
        """The database's id, as the service says: names of files are made of it, so it has to be one."""
        database = self._ask("GET", "").headers.get(DATABASE, "")
        if not _DATABASE.fullmatch(database):
            raise Unavailable("the service does not name the database", hint="is this a Scumble service?")
        return database

    def create(self, database: str, token: str) -> None:
        """Have an empty database made, for a tenant that has this token."""
        self._ask("PUT", "", database.encode(), {"authorization": f"Bearer {token}"})

    def _ask(
        self, method: str, path: str, body: bytes | memoryview = b"", headers: dict[str, str] | None = None
    ) -> Reply:
        reply = self._transport.ask(method, self._address.path + path, body, headers)
        self._stamp, self._heard = reply.headers.get(STAMP, self._stamp), time.monotonic()
        return reply


def _enclave_id(reply: Reply) -> bytes:
    try:
        known = bytes.fromhex(reply.headers[ENCLAVE])
    except (KeyError, ValueError):
        raise Unavailable("the service does not name its enclave", hint="is this a Scumble service?") from None
    if len(known) != ID_BYTES:
        raise Tampered
    return known


def _number(reply: Reply) -> int:
    text = reply.headers.get(SESSION, "")
    if not text.isascii() or not text.isdecimal() or len(text) > 20:
        raise Unavailable("the service does not name the session", hint="is this a Scumble service?")
    return int(text)
