"""The versions of a database, as the holder of a key sees them: the newest is kept open, and more can be made.

A version that the service shows is accepted only if it follows from what was seen before, which the anchor beside the
key remembers. A lost session is opened again, and a changed key is read again.
"""

import hmac
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from scumble.durable import clear_drafts
from scumble.errors import BadQuery, FileError, InvalidParameter, NewerVersion, Refused, Stale, Tampered, Unavailable
from scumble.index.file import decoded
from scumble.owner import key_file
from scumble.owner.key_file import canonical, parse_canonical, read_small, replace_file
from scumble.owner.keys import Key, OwnerKey, open_key
from scumble.wire.catalog import Catalog
from scumble.wire.channel import SALT_BYTES, Channel, Greeting, opened_answer, seal_greeting
from scumble.wire.grants import Grant, parse_public_key
from scumble.wire.plan import Plan
from scumble.wire.requests import (
    ROWS,
    Create,
    Open,
    Opened,
    Prepare,
    Request,
    Scan,
    pack_execution,
    pack_request,
    unpack_answer,
)
from scumble.wire.storage import Enclave, Service

__all__ = ["Anchor", "Session", "Versions", "begin"]

T = TypeVar("T")

_FORMAT = 1
_HASH = re.compile("[0-9a-f]{64}")
TRIES = 5  # of a statement whose table keeps changing


@dataclass(frozen=True, slots=True)
class Anchor:
    """What the holder of a key remembers of a database: the newest version seen, and the SHA-256 of its manifest.

    It lies in a file beside the key file. Nothing in it is secret; its MAC, under a key that never leaves this machine,
    keeps anybody else from choosing what is remembered. An old anchor that is put back together with an old database
    goes unnoticed.
    """

    version: int
    manifest: str

    def __post_init__(self) -> None:
        if self.version < 0 or not _HASH.fullmatch(self.manifest):
            raise InvalidParameter("an anchor is a version from 0 on and a SHA-256 in hexadecimal digits")

    @classmethod
    def load(cls, path: Path, key: bytes) -> Self | None:
        """What was saved, None if there is no file, Tampered if it was not saved under `key`."""
        try:
            data, _ = read_small(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileError(
                f"the anchor {path} cannot be read: {error.strerror}", hint="check the path and its permissions"
            ) from error
        content = parse_canonical(data)
        if content is None:
            raise Tampered
        mac = content.pop("mac", None)
        if not (isinstance(mac, str) and mac.isascii() and hmac.compare_digest(mac, _anchor_mac(content, key))):
            raise Tampered
        match content:
            case {"format": int(number)} if number > _FORMAT:  # every format has its MAC like this one
                raise NewerVersion(
                    f"the anchor {path} was written by a later Scumble (this one reads format {_FORMAT})",
                    hint="upgrade Scumble",
                )
            case {"format": int(number), "version": int(version), "manifest": str(manifest)} if number == _FORMAT:
                return cls(version, manifest)
            case _:
                raise Tampered

    def save(self, path: Path, key: bytes) -> None:
        """Remember this version: durably, and whole or not at all."""
        content: dict[str, Any] = {"format": _FORMAT, "version": self.version, "manifest": self.manifest}
        replace_file(path, canonical(content | {"mac": _anchor_mac(content, key)}))


def _anchor_mac(content: dict[str, Any], key: bytes) -> str:
    return hmac.digest(key, canonical(content), "sha256").hex()


class Session:
    """SECRET: an open line to the enclave, for one database. An owner brings the data key, an analyst has none."""

    def __init__(
        self, service: Enclave, database: str, signing_key: Ed25519PrivateKey, data_key: bytes | None = None
    ) -> None:
        self._service = service
        self._turn = threading.Lock()
        self.broken = False
        request_key, answer_key = Channel.fresh_keys()
        signer = signing_key.public_key().public_bytes_raw()
        greeting = Greeting(database, request_key, answer_key, data_key, signer)
        self._number, answer = service.greet(seal_greeting(service.public_key, greeting, signing_key))
        self._channel = Channel.derived(request_key, answer_key, answer[:SALT_BYTES])
        opened_answer(self._channel.open_answer(answer[SALT_BYTES:]))

    def ask(self, request: Request[T]) -> T:
        return unpack_answer(request, self._exchange(pack_request(request)))

    def prepare(self, plan: Plan) -> int:
        """Have a plan kept; its number."""
        return self.ask(Prepare(plan)).plan

    def execute(self, plan: int, scans: Sequence[Scan], bounds: NDArray[np.int64]) -> memoryview:
        """Execute a plan; the answer as the plan's output lays it out."""
        return self._exchange(pack_execution(plan, scans, bounds))

    def send_rows(self, rows: NDArray[np.int64]) -> None:
        self._exchange(b"".join((ROWS, rows.data)))

    def close(self) -> None:
        with suppress(Unavailable):  # then it has ended
            self._service.leave(self._number)

    def _exchange(self, request: bytes) -> memoryview:
        with self._turn:
            self.broken = True  # until there is an answer: after an interruption the two ends may count differently
            sealed = self._channel.seal_request(request)
            answer = self._channel.open_answer(self._service.request(self._number, sealed))
            self.broken = False
        return opened_answer(answer)


def begin(service: Service, key: OwnerKey, key_path: Path) -> None:
    """Make the first, empty version of a database."""
    session = Session(service, key.database, key.signing_key(), key.data_key())
    with service.writer():
        opened = session.ask(Create())
    session.close()
    Anchor(opened.version, opened.hash).save(key.anchor_path(key_path), key.anchor_key())


class Versions:
    """A session with the enclave, on the newest version of the database. One thread at a time may use it.

    `changed` is called with every new version, before anything is asked of it.
    """

    session: Session
    catalog: Catalog
    owner: str
    """The owner's public key, in hexadecimal."""

    def __init__(
        self,
        service: Service,
        key: Key,
        key_path: Path,
        *,
        changed: Callable[[], None],
        accept_restored: bool = False,
        owner: str | None = None,
    ) -> None:
        self.service, self.key, self.key_path = service, key, key_path
        self.grant: Grant | None = None
        self._changed = changed
        self._key_print = key_file.fingerprint(key_path)
        try:
            self._expected_owner = None if owner is None else parse_public_key(owner).hex()
            self.open_session(accept_restored=accept_restored)
        except BaseException:
            service.close()
            raise

    def close(self) -> None:
        self.session.close()
        self.service.close()

    @property
    def grant_id(self) -> str | None:
        """The id of the grant that lets an analyst in; None for the owner."""
        return None if self.grant is None else self.grant.id

    def put_key(self, key: OwnerKey, protection: str | None) -> None:
        key.save(self.key_path, protection)
        self.key, self._key_print = key, key_file.fingerprint(self.key_path)

    # --- the newest version ------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[ExitStack]:
        """Hold the database for writing, on its newest version. Closing the stack gives the hold up before the end."""
        self.refresh()
        self.open_newest()  # before a writer clears leftovers: to the provider a rollback looks like a crash
        with ExitStack() as held:
            held.enter_context(self.service.writer())
            self.open_newest()
            self.service.drop_unreferenced()  # what a drop or a rekey that was cut short has left
            for path in (self.key_path, key_file.ledger_path(self.key_path), self._anchor_path):
                clear_drafts(path.parent, path.name)
            yield held

    def retrying(self, work: Callable[[], T]) -> T:
        """Do some work on the newest version: again if that changed meanwhile, and once more if the session was lost.

        A service mentions a newer version, made by another client, only with its answer: so it is checked afterwards.
        """
        changed, lost, before = False, False, self.catalog
        for left in range(TRIES - 1, -1, -1):
            try:
                if changed:
                    self.open_newest()
                else:
                    self.refresh()
                result = work()
                if not self.service.stamp_lags or self.catalog is not before or self.service.stamp() == self._stamp:
                    return result
                changed = True
            except Stale:
                changed = True
                if not left:
                    raise
            except BadQuery:  # it may name a table that another client has just made
                version = self.catalog.version
                self.open_newest()
                if not left or self.catalog.version == version:
                    raise
            except Unavailable:
                if lost or not left:
                    raise
                lost, changed = True, False
        raise AssertionError  # the last try has returned or raised

    def open_session(self, *, accept_restored: bool = False) -> None:
        """Open a session on the newest version, with the root that fits: a rekey that was cut short leaves two."""
        before: Session | None = getattr(self, "session", None)
        if before is not None:
            before.close()
        failures: list[Tampered | Refused] = []
        for key in self.key.candidates():
            session = Session(self.service, key.database, key.signing_key(), key.data_key())
            stamp = self.service.stamp()
            try:
                opened = session.ask(self._opening(accept_restored=accept_restored))
            except (Tampered, Refused) as error:
                failures.append(error)
                session.close()
                continue
            self.session, self._stamp = session, stamp
            self.key = key  # with both roots still: the anchor may be under the other one
            self.take(opened, anew=accept_restored)
            return
        raise next((error for error in failures if isinstance(error, Tampered)), failures[0])

    def _opening(self, *, accept_restored: bool = False) -> Open:
        """The request for the newest version, with the terms on which it is accepted."""
        owner = self._expected_owner or self.key.known_owner(self.key_path)
        anchor = None if accept_restored else self._remembered()
        return Open(anchor, owner=None if owner is None else bytes.fromhex(owner), restored=accept_restored)

    @property
    def _anchor_path(self) -> Path:
        return self.key.anchor_path(self.key_path)

    def _remembered(self) -> tuple[int, str] | None:
        for key in self.key.candidates():
            with suppress(Tampered):
                anchor = Anchor.load(self._anchor_path, key.anchor_key())
                return None if anchor is None else (anchor.version, anchor.manifest)
        raise Tampered

    def refresh(self) -> None:
        """Open the newest version, if the service says that there is another one."""
        if self.session.broken:
            self.open_session()
        elif self.service.stamp() != self._stamp:
            self.open_newest()

    def open_newest(self) -> None:
        """Ask the enclave for the newest version, whatever the service says."""
        stamp = self.service.stamp()
        try:
            opened = self.session.ask(self._opening())
        except (Tampered, Refused) as error:
            self._open_with_changed_key(error)
            return
        self.take(opened)
        self._stamp = stamp

    def _open_with_changed_key(self, error: Tampered | Refused) -> None:
        """Open the session again if the key was changed, by a rekey elsewhere or by one here that failed half-way."""
        if key_file.fingerprint(self.key_path) != self._key_print:
            if key_file.is_protected(self.key_path):
                raise Stale("the key was changed meanwhile", hint="open the database again")
            self._key_print = key_file.fingerprint(self.key_path)
            self.key = open_key(self.key_path, self.key.database)
        elif self.key.next_root is None:
            raise error
        self.open_session()

    def take(self, opened: Opened, *, anew: bool = False) -> None:
        """Go on with a version and remember it; with `anew`, even if a later one was seen before."""
        for run in (run for table in opened.catalog.tables for run in table.runs if run.index is not None):
            decoded(run.index)  # a corrupt index is refused now, not when a query needs it
        self.catalog, self.owner, self.grant = opened.catalog, opened.owner.hex(), opened.grant
        self.key.remember_owner(self.key_path, self.owner)
        self._expected_owner = None
        self._changed()
        remembered = None if anew else self._remembered()
        if remembered is None or opened.version > remembered[0]:  # another process may have seen a later one
            Anchor(opened.version, opened.hash).save(self._anchor_path, self.key.anchor_key())
