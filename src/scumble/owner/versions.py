"""The versions of a database: a service and a key come in; the newest, held open, and leave to make another go out.

For the owner, or an analyst. What the service shows is believed only if it follows what was seen before: the anchor
beside the key remembers that.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from scumble.errors import BadQuery, Refused, Stale, Tampered, Unavailable
from scumble.index.file import decoded
from scumble.owner import identity, key_file
from scumble.owner.anchor import Anchor
from scumble.owner.identity import AnalystKey, Key
from scumble.owner.key_file import OwnerKey
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

__all__ = ["Session", "Versions", "begin"]

T = TypeVar("T")


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
        """Make a request, and wait for its answer."""
        return unpack_answer(request, self._exchange(pack_request(request)))

    def prepare(self, plan: Plan) -> int:
        """Have a plan kept; its number."""
        return self.ask(Prepare(plan)).plan

    def execute(self, plan: int, scans: Sequence[Scan], bounds: NDArray[np.int64]) -> memoryview:
        """Execute a plan; the answer as the plan's output lays it out."""
        return self._exchange(pack_execution(plan, scans, bounds))

    def send_rows(self, rows: NDArray[np.int64]) -> None:
        """Send rows of a load."""
        self._exchange(ROWS + rows.tobytes())

    def close(self) -> None:
        """End the session."""
        with suppress(Unavailable):  # then it has ended
            self._service.leave(self._number)

    def _exchange(self, request: bytes) -> memoryview:
        with self._turn:
            self.broken = True  # until there is an answer: after an interruption the two ends may count differently
            sealed = self._channel.seal_request(request)
            answer = self._channel.open_answer(self._service.request(self._number, sealed))
            self.broken = False
        return opened_answer(answer)


TRIES = 5  # of a statement under which the table changes


def begin(service: Service, key: OwnerKey, key_path: Path) -> None:
    """Make the first, empty version of a database."""
    signing_key = key_file.signing_key(key.root, key.database)
    session = Session(service, key.database, signing_key, key_file.data_key(key.root, key.database))
    with service.writer():
        opened = session.ask(Create())
    session.close()
    Anchor(opened.version, opened.hash).save(
        key_file.anchor_path(key_path), key_file.anchor_key(key.root, key.database)
    )


class Versions:
    """A session with the enclave, on the newest version there is. Not for several threads at a time.

    `changed` is called with every version, before anything is asked of it.
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
        self._expected = None if owner is None else parse_public_key(owner).hex()
        self._key_print = key_file.fingerprint(key_path)
        try:
            self.enter(accept_restored=accept_restored)
        except BaseException:
            service.close()
            raise

    def close(self) -> None:
        """End the session, and let go of the service."""
        self.session.close()
        self.service.close()

    @property
    def owner_key(self) -> OwnerKey:
        """The key, if it is the owner's; else Refused."""
        if isinstance(self.key, AnalystKey):
            raise Refused
        return self.key

    def needs_owner(self) -> None:
        """Refuse an analyst."""
        _ = self.owner_key

    @property
    def grant_id(self) -> str | None:
        """By which grant an analyst is here."""
        return None if self.grant is None else self.grant.id

    def put_key(self, key: OwnerKey, protection: str | None) -> None:
        """Replace the key file."""
        key_file.replace(self.key_path, key, protection)
        self.key, self._key_print = key, key_file.fingerprint(self.key_path)

    # --- the newest version ------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[ExitStack]:
        """Hold the database for writing, on top of the newest version; closing what this gives releases it early."""
        self.refresh()
        self.open_newest()  # before a writer clears leftovers: to the provider a rollback looks like a crash
        with ExitStack() as held:
            held.enter_context(self.service.writer())
            self.open_newest()
            self.service.drop_unreferenced()  # what a drop or a rekey that was cut short has left
            anchor = identity.anchor_path(self.key, self.key_path)
            for path in (self.key_path, key_file.ledger_path(self.key_path), anchor):
                key_file.clear_drafts(path)
            yield held

    def persisting(self, work: Callable[[], T]) -> T:
        """Do something on the newest version: again if that changed meanwhile, and once if the session was lost.

        Only with its answer does a service say that another client has made a newer version before it was asked.
        """
        changed, lost, before = False, False, self.catalog
        for left in range(TRIES - 1, -1, -1):
            try:
                if changed:
                    self.open_newest()
                else:
                    self.refresh()
                result = work()
                if not self.service.lags or self.catalog is not before or self.service.stamp() == self._stamp:
                    return result
                changed = True
            except Stale:
                changed = True
                if not left:
                    raise
            except BadQuery:  # it may name what another client has just made
                version = self.catalog.version
                self.open_newest()
                if not left or self.catalog.version == version:
                    raise
            except Unavailable:
                if lost or not left:
                    raise
                lost, changed = True, False
        raise AssertionError  # the last try has returned or raised

    def enter(self, *, accept_restored: bool = False) -> None:
        """Open a session with the key that fits, and the newest version: a rekey that was cut short leaves two keys."""
        before: Session | None = getattr(self, "session", None)
        if before is not None:
            before.close()
        key = self.key
        roots = tuple(root for root in (key.root, key.next_root) if root is not None)
        failures: list[Tampered | Refused] = []
        for root in roots:
            signing_key, data_key = identity.signing_key(key, root), identity.data_key(key, root)
            session = Session(self.service, key.database, signing_key, data_key)
            stamp = self.service.stamp()
            try:
                opened = session.ask(self._opening(accept_restored=accept_restored))
            except (Tampered, Refused) as error:
                failures.append(error)
                session.close()
                continue
            self.session, self._stamp = session, stamp
            if isinstance(key, OwnerKey):  # the other root may be the anchor's still
                self.key = replace(key, root=root, next_root=next((other for other in roots if other != root), None))
            self.take(opened, anew=accept_restored)
            return
        raise next((error for error in failures if isinstance(error, Tampered)), failures[0])

    def _opening(self, *, accept_restored: bool = False) -> Open:
        """The request for the newest version."""
        anchor = None if accept_restored else self._remembered()
        if isinstance(self.key, OwnerKey):
            return Open(anchor, restored=accept_restored)
        owner = self._expected or identity.known_owner(self.key, self.key_path)
        return Open(anchor, owner=None if owner is None else bytes.fromhex(owner))

    def _remembered(self) -> tuple[int, str] | None:
        path = identity.anchor_path(self.key, self.key_path)
        for root in filter(None, (self.key.root, self.key.next_root)):
            try:
                anchor = Anchor.load(path, identity.anchor_key(self.key, root))
            except Tampered:
                continue
            return None if anchor is None else (anchor.version, anchor.manifest)
        raise Tampered

    def refresh(self) -> None:
        """Go on with the newest version, if the service says that there is another."""
        if self.session.broken:
            self.enter()
        elif self.service.stamp() != self._stamp:
            self.open_newest()

    def open_newest(self) -> None:
        """Ask the enclave for the newest version, whatever the service says."""
        stamp = self.service.stamp()
        try:
            opened = self.session.ask(self._opening())
        except (Tampered, Refused) as error:
            self._enter_again(error)
            return
        self.take(opened)
        self._stamp = stamp

    def _enter_again(self, error: Tampered | Refused) -> None:
        """It may be no more than a changed key: by a rekey elsewhere, or by one here that failed half-way."""
        if isinstance(self.key, AnalystKey):
            raise error
        if key_file.fingerprint(self.key_path) != self._key_print:
            if key_file.is_protected(self.key_path):
                raise Stale("the key was changed meanwhile", hint="open the database again")
            self._key_print = key_file.fingerprint(self.key_path)
            self.key = key_file.open_key(self.key_path)
        elif self.key.next_root is None:
            raise error
        self.enter()

    def take(self, opened: Opened, *, anew: bool = False) -> None:
        """Go on with a version, and remember it: `anew`, whatever was remembered before."""
        for run in (run for table in opened.catalog.tables for run in table.runs if run.index is not None):
            decoded(run.index)  # a corrupt index is refused now, not when a query needs it
        anchor = Anchor(opened.version, opened.hash)
        self.catalog, self.owner, self.grant = opened.catalog, opened.owner.hex(), opened.grant
        if isinstance(self.key, AnalystKey) and identity.known_owner(self.key, self.key_path) != self.owner:
            identity.remember_owner(self.key, self.key_path, self.owner)
            self._expected = None
        self._changed()
        remembered = None if anew else self._remembered()
        if remembered is None or anchor.version > remembered[0]:  # another process may have seen a later one
            key = identity.anchor_key(self.key, self.key.root)
            anchor.save(identity.anchor_path(self.key, self.key_path), key)
