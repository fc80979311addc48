"""A provider's service, over the network, as the holder of a key sees it.

Nothing leaves before the enclave has proved itself: `fresh_key` is that of an enclave whose code, for a fresh nonce,
was shown to be what was pinned. After that only sealed bytes leave. The provider may drop, delay and lie; what it
alters is noticed when the answer is opened.
"""

import http.client
import json
import re
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from scumble import attestation, errors
from scumble.attestation import Evidence, Policy, Verdict
from scumble.attestation.policy_document import SignedPolicy
from scumble.errors import InvalidParameter, ScumbleError, Stopping, Tampered, Unavailable
from scumble.owner.policies import given_policy
from scumble.owner.remote.address import Address
from scumble.owner.remote.pins import Pins, Trust, judged, measurement_of, pins_path
from scumble.wire.storage import DATABASE, ENCLAVE, PROTOCOL, SESSION, STAMP, VERSION

__all__ = ["Connecting", "RemoteService", "Reply", "Transport", "service_at", "verified"]

IDLE_SECONDS = 60.0  # less than the service keeps a connection that is not used
MOST_KEPT = 32
PAUSE_SECONDS = 0.05
RECONNECT_SECONDS = 0.25
TOO_MANY_REQUESTS = 429
MOST_REFUSAL_BYTES = 1 << 16


@dataclass(frozen=True)
class Connecting:
    """How to connect: which code to trust, and how long to wait.

    `measurement` is the code's, in hexadecimal digits; without it the first one that is proved is pinned.
    `insecure_simulated_enclave` takes evidence that proves nothing: the provider can then read everything. `policy` is
    what the enclave must prove besides: terms, a TOML file with terms, or a file that the database's owner has signed.
    `replaces_policy`: the terms stand in for the owner's known policy, which is about to be replaced by them; they may
    accept more than that only if it `lowers_policy`.
    """

    measurement: str | None = None
    insecure_simulated_enclave: bool = False
    timeout_seconds: float = 300.0
    connect_seconds: float = 10.0
    policy: Policy | SignedPolicy | Path | str | None = None
    replaces_policy: bool = False
    lowers_policy: bool = False

    def __post_init__(self) -> None:
        if self.timeout_seconds <= 0 or self.connect_seconds <= 0:
            raise InvalidParameter("a time-out is a positive number of seconds", hint="300 is usual")
        if self.measurement is not None:
            object.__setattr__(self, "measurement", measurement_of(self.measurement))
        if self.policy is not None:
            object.__setattr__(self, "policy", given_policy(self.policy))

    @property
    def terms(self) -> Policy | None:
        """The caller's own terms, if it has given any."""
        return self.policy if isinstance(self.policy, Policy) else None

    @property
    def signed(self) -> SignedPolicy | None:
        """The owner's policy, if the caller has given that; nobody has looked at the signature yet."""
        return self.policy if isinstance(self.policy, SignedPolicy) else None


class Reply(NamedTuple):
    """A service's answer: the headers, by their names in lower case, and the body."""

    headers: Mapping[str, str]
    body: bytes


class Transport:
    """Connections to one service. Threads may share it: each request has a connection to itself.

    A service that has gone away, or is about to, is waited for once: until it is back, later requests fail at once.
    """

    def __init__(self, address: Address, timeout_seconds: float = 300.0, connect_seconds: float = 10.0) -> None:
        self._address, self._timeout, self._connect_timeout = address, timeout_seconds, connect_seconds
        self._turn = threading.Lock()
        self._kept: list[tuple[float, http.client.HTTPConnection]] = []
        self._away_since: float | None = None

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | memoryview = b"",
        headers: Mapping[str, str] | None = None,
        *,
        wait: bool = True,
    ) -> Reply:
        """Send a request and return the reply, or raise the error that the front answered with.

        With `wait` a service that cannot be reached, as while it restarts, is waited for.
        """
        deadline, pause = time.monotonic() + self._timeout, PAUSE_SECONDS
        while True:
            status, reply = self._exchange(method, path, body, headers or {}, wait=wait)
            refusal = None if status < 300 else _refusal(status, reply.body)
            if not isinstance(refusal, Stopping):
                self._away_since = None
            if refusal is None:
                return reply
            if isinstance(refusal, Stopping) and wait:
                until = self._patient_until()
            elif status == TOO_MANY_REQUESTS:
                until = deadline
            else:
                raise refusal
            if time.monotonic() + pause > until:
                raise refusal
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def close(self) -> None:
        with self._turn:
            kept, self._kept = self._kept, []
        for _, connection in kept:
            connection.close()

    def _exchange(
        self, method: str, path: str, body: bytes | memoryview, headers: Mapping[str, str], *, wait: bool
    ) -> tuple[int, Reply]:
        connection = self._connection(wait=wait)
        try:
            connection.request(method, path, body, {VERSION: str(PROTOCOL), **headers})
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unavailable(
                f"{self._address} does not answer: {_reason(error)}", hint="check the address, and that it is served"
            ) from None
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._keep(connection)
        return response.status, Reply({name.lower(): value for name, value in response.getheaders()}, content)

    def _patient_until(self) -> float:
        with self._turn:
            if self._away_since is None:
                self._away_since = time.monotonic()
            return self._away_since + self._connect_timeout

    def _connection(self, *, wait: bool) -> http.client.HTTPConnection:
        with self._turn:
            while self._kept:
                since, connection = self._kept.pop()
                if time.monotonic() - since < IDLE_SECONDS:
                    return connection
                connection.close()
        while True:  # nothing was sent yet, so trying again does no harm, and a service that restarts is soon back
            try:
                return self._connected()
            except (OSError, UnicodeError) as error:  # a name that no host can have is the latter
                may_return = wait and isinstance(error, ConnectionError)
                if not may_return or time.monotonic() + RECONNECT_SECONDS > self._patient_until():
                    raise Unavailable(
                        f"{self._address} cannot be reached: {_reason(error)}",
                        hint="check the address, and that it is served",
                    ) from None
            time.sleep(RECONNECT_SECONDS)

    def _connected(self) -> http.client.HTTPConnection:
        place, seconds = (self._address.host, self._address.port), self._connect_timeout
        made: http.client.HTTPConnection
        if self._address.tls:
            made = http.client.HTTPSConnection(*place, timeout=seconds, context=ssl.create_default_context())
        else:
            made = http.client.HTTPConnection(*place, timeout=seconds)
        made.connect()
        made.sock.settimeout(self._timeout)
        return made

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._turn:
            if len(self._kept) < MOST_KEPT:
                self._kept.append((time.monotonic(), connection))
                return
        connection.close()


def _refusal(status: int, body: bytes) -> ScumbleError:
    """The error that the front named, or one that tells the status if the answer names none."""
    try:
        fields = json.loads(body[:MOST_REFUSAL_BYTES])
        kind = getattr(errors, str(fields["error"]))
        if issubclass(kind, Tampered):
            return Tampered()
        refused: ScumbleError = kind(
            str(fields["message"]), hint=None if fields["hint"] is None else str(fields["hint"])
        )
        return refused
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Unavailable(f"the service answers with status {status}", hint="is this a Scumble service?")


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError | socket.timeout):
        return "it takes too long"
    return getattr(error, "strerror", None) or type(error).__name__


NONCE_BYTES = 32
KEY_BYTES = 32
ID_BYTES = 8
RENEW_SECONDS = 15.0
SILENT_SECONDS = 1.0
_DATABASE = re.compile("[0-9a-f]{16,64}")

Trusted = Callable[[Evidence, bytes], Verdict]
"""Takes evidence and the report data it has to hold, and says whose code it is; or raises AttestationRefused."""


class RemoteService:
    """An enclave of a service, for one database: the `Service` of `wire/storage.py` over a network."""

    def __init__(self, address: Address, transport: Transport, trusted: Trusted) -> None:
        self._address, self._transport, self._trusted = address, transport, trusted
        self._enclave = b""
        self._session: int | None = None
        self._stamp, self._heard = "", time.monotonic()

    def fresh_key(self) -> bytes:
        """A key for one greeting, from an enclave that has just proved itself."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        reply = self._transport.ask("POST", "/v1/attest", nonce)
        key, evidence = reply.body[:KEY_BYTES], Evidence.from_bytes(reply.body[KEY_BYTES:])
        self._trusted(evidence, attestation.report_data(key, nonce))
        self._enclave = _enclave_id(reply)
        return key

    def greet(self, sealed: bytes) -> tuple[int, bytes]:
        reply = self._ask("POST", "/sessions", self._enclave + sealed)
        self._session = _number(reply)
        return self._session, reply.body

    def request(self, session: int, sealed: bytes | memoryview) -> bytes:
        return self._ask("POST", f"/sessions/{session}", sealed).body

    def leave(self, session: int) -> None:
        """End a session; if the service is gone, so is the session."""
        with suppress(ScumbleError):
            self._ask("DELETE", f"/sessions/{session}", wait=False)

    @contextmanager
    def writer(self, busy_seconds: float = 5) -> Iterator[None]:
        """Hold the database for writing, and renew the lease while the work goes on."""
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
            with suppress(ScumbleError):  # a lease that is not renewed lapses
                self._ask("DELETE", path, wait=False)

    def rights_writer(self) -> AbstractContextManager[None]:
        """Nothing to hold: an owner's change of rights waits for no writer."""
        return nullcontext()

    @property
    def stamp_lags(self) -> bool:
        """True: the stamp is as of the last answer."""
        return True

    def stamp(self) -> object:
        """The stamp that came with the last answer; after a second without one the service is asked."""
        if time.monotonic() - self._heard > SILENT_SECONDS:
            with suppress(ScumbleError):  # the next request finds out what is wrong
                self._ask("GET", "")
        return self._stamp

    def drop_unreferenced(self) -> int:
        """Have the runs deleted that no table has any more; how many, as the service says, 0 if it says nothing."""
        reply = self._ask("POST", f"/sessions/{self._session}/tidy", wait=False)
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            if type(runs := json.loads(reply.body)["runs"]) is int:
                return runs
        return 0

    def close(self) -> None:
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
        self,
        method: str,
        path: str,
        body: bytes | memoryview = b"",
        headers: dict[str, str] | None = None,
        *,
        wait: bool = True,
    ) -> Reply:
        reply = self._transport.ask(method, self._address.path + path, body, headers, wait=wait)
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


def service_at(address: Address, key_path: Path, how: Connecting) -> tuple[RemoteService, Trust]:
    """The service at an address, and what decides whether its enclave is trusted: the pins beside the key file."""
    trust = Trust(
        address,
        Pins(pins_path(key_path)),
        measurement=how.measurement,
        allow_simulated=how.insecure_simulated_enclave,
        given=how.terms,
    )
    return RemoteService(address, Transport(address, how.timeout_seconds, how.connect_seconds), trust), trust


def verified(address: Address, how: Connecting) -> Verdict:
    """What an enclave at an address proves of itself, with nothing pinned; AttestationRefused if that is not enough."""
    verdicts: list[Verdict] = []

    def trusted(evidence: Evidence, report_data: bytes) -> Verdict:
        simulated = how.insecure_simulated_enclave
        verdicts.append(judged(evidence, report_data, how.measurement, how.terms, how.signed, simulated))
        return verdicts[-1]

    transport = Transport(address, how.timeout_seconds, how.connect_seconds)
    with closing(RemoteService(address, transport, trusted)) as service:
        service.fresh_key()
    return verdicts[-1]
