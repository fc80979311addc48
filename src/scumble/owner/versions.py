"""The versions of a database, as the holder of a key sees them: the newest is kept open, and more can be made.

A version that the service shows is accepted only if its signatures lead from the database's id to its owner, and from
the version that was seen last, which the anchor beside the key remembers, to it. This is checked here and not left to
the enclave. A lost session is opened again, and a changed key is read again.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from scumble.durable import clear_drafts
from scumble.errors import (
    BadQuery,
    Busy,
    Disputed,
    KeyRefused,
    Locked,
    Refused,
    ScumbleError,
    Stale,
    Tampered,
    Unavailable,
    Unfinished,
    Unwitnessed,
)
from scumble.index.kinds import decoded, is_known
from scumble.owner import key_file
from scumble.owner.anchor import Anchor, NoAnchor
from scumble.owner.keys import AnalystKey, Key, OwnerKey, open_key
from scumble.owner.policies import Policies
from scumble.owner.session import Session
from scumble.owner.witnesses import Witnesses
from scumble.wire.catalog import Catalog
from scumble.wire.charges import Charge
from scumble.wire.grants import Grant, parse_public_key
from scumble.wire.lineage import Draft, Seen, check_follows, data_key_hash, is_derived, title_at
from scumble.wire.requests import Create, Follow, Look, Open, Opened, Request, Restore, Rollback, Settle
from scumble.wire.storage import Service

__all__ = ["Versions", "begin", "check_opened"]

T = TypeVar("T")
Drafted = Callable[[Draft | None], None]

TRIES = 5  # of a statement whose table keeps changing, and of a change
LOCKED_SECONDS = 10.0  # to wait for an enclave to be told a new key
LOCKED_PAUSE_SECONDS = 0.05
UNFINISHED_SECONDS = 60.0  # to wait for a change that was cut off to come to its end, altogether
PAUSES_SECONDS = (0.2, 3.0, 10.0)  # before a service that went away is asked again whether a change was stored


def begin(service: Service, key: OwnerKey, key_path: Path, policy: bytes = b"") -> None:
    """Make the first, empty version of a database, under its owner's policy if there is one."""
    session = Session(service, key.database, key.signing_key(), key.data_key())
    with service.writer():
        draft = session.ask(Create(key.title(), policy))
        if (draft.restores, draft.version, draft.previous) != (0, 1, ""):
            raise Tampered
        opened = session.commit(draft, key.signing_key())
    session.close()
    check_opened(opened, key, None, None)
    Anchor(1, opened.hash).save(key.anchor_path(key_path), key.anchor_key())


class Versions:
    """A session with the enclave, on the newest version of the database. One thread at a time may use it.

    `changed` is called with every new version, before anything is asked of it.
    """

    session: Session
    charges: tuple[Charge, ...]
    """What was ever paid for loads, as the versions have it: all of it for the owner, for an analyst its own."""
    grants: tuple[Grant, ...]
    owner: str
    """The owner's public key, in hexadecimal."""
    policy: bytes
    """The owner's signed policy in the version that is open; a later one may be known."""
    _catalog: Catalog
    _views: dict[str, str]

    def __init__(
        self,
        service: Service,
        key: Key,
        key_path: Path,
        *,
        changed: Callable[[], None],
        accept_restored: bool = False,
        first_opening: bool = False,
        owner: str | None = None,
        key_print: bytes | None = None,
        policies: Policies | None = None,
    ) -> None:
        self.service, self.key, self.key_path = service, key, key_path
        self.policies = Policies(key_path) if policies is None else policies
        self.witnesses = Witnesses(key_path)
        self.grant: Grant | None = None
        self.accepted_restored = False
        self._held = ExitStack()
        self.is_writing, self._unwitnessed = False, False
        self.unsettled = 0
        """How many changes the session has made to the version that is open, for itself alone."""
        self._unseen = False
        self._changed = changed
        self._key_print = key_file.fingerprint(key_path) if key_print is None else key_print
        try:
            self._expected_owner = None if owner is None else parse_public_key(owner).hex()
            self._check_anchored(first_opening=first_opening)
            self.open_session(accept_restored=accept_restored)
        except BaseException:
            service.close()
            raise

    def close(self) -> None:
        self.session.close()
        self.service.close()

    @property
    def catalog(self) -> Catalog:
        """The version that is open, with the changes that only this session sees."""
        self._look()
        return self._catalog

    @property
    def views(self) -> dict[str, str]:
        """The owner's views, by their names in lower case, as sql/views.py has them."""
        self._look()
        return self._views

    @property
    def grant_id(self) -> str | None:
        """The id of the grant that lets an analyst in; None for the owner."""
        return None if self.grant is None else self.grant.id

    def put_key(self, key: OwnerKey, protection: str | None) -> None:
        key.save(self.key_path, protection)
        self.key, self._key_print = key, key_file.fingerprint(self.key_path)

    # --- the newest version ------------------------------------------------------------------------

    @contextmanager
    def writing(self, busy_seconds: float = 5) -> Iterator[None]:
        """Hold the database for writing, on its newest version; Busy if another client holds it for longer."""
        if self.session.broken:
            self.open_session()
        self.open_newest()  # before a writer clears leftovers: to the provider a rollback looks like a crash
        with ExitStack() as self._held:
            self._held.enter_context(self.service.writer(busy_seconds))
            self.open_newest()
            self.service.drop_unreferenced()  # what a drop or a rekey that was cut short has left
            for path in (self.key_path, key_file.ledger_path(self.key_path), self._anchor_path):
                clear_drafts(path.parent, path.name)
            self.is_writing = True
            try:
                yield
            finally:
                self.is_writing = False
            if self._unwitnessed:  # not before whoever writes has recorded what was stored
                self._witness_made()

    def retrying(self, work: Callable[[], T]) -> T:
        """Do some work on the newest version: again if that changed meanwhile, and once more if the session was lost.

        A service mentions a newer version, made by another client, only with its answer: so it is checked afterwards.
        While the owner changes the key, an enclave may be without it for a moment: that is waited for.
        """
        changed, lost, before, until = False, False, self.catalog, time.monotonic() + LOCKED_SECONDS
        for left in range(TRIES - 1, -1, -1):
            try:
                if changed:
                    self._unlocked(self.open_newest, until)
                else:
                    self._unlocked(self.refresh, until)
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

    def _unlocked(self, opening: Callable[[], None], until: float) -> None:
        """Open a version, and wait for its key if the enclave does not have that yet."""
        while True:
            try:
                return opening()
            except Locked:
                if time.monotonic() > until:
                    raise
                time.sleep(LOCKED_PAUSE_SECONDS)
                opening = self.open_session  # perhaps with another enclave, which has it

    def open_session(self, *, accept_restored: bool = False) -> None:
        """Open a session on the newest version, with the root that fits: a rekey that was cut short leaves two."""
        before: Session | None = getattr(self, "session", None)
        if before is not None:
            before.close()
        if self.unsettled:
            self.unsettled = 0
            raise Unavailable(
                "the session was lost, and the transaction with it", hint="nothing was changed: try again"
            )
        while True:
            try:
                self._open_with_key(accept_restored=accept_restored)
                return
            except (Tampered, Refused, KeyRefused):
                if not self._read_changed_key():
                    raise

    def _open_with_key(self, *, accept_restored: bool) -> None:
        failures: list[Tampered | Refused] = []
        for key in self.key.candidates():
            session = Session(self.service, key.database, key.signing_key(), key.data_key())
            stamp = self.service.stamp()
            try:
                anchor = self._remembered()
                opened = session.ask(self._opening(None if anchor is None else anchor.seen))
            except (Tampered, Refused) as error:
                failures.append(error)
                if accept_restored and (restored := self._restored(session, key)) is not None:
                    opened, anchor = restored, None
                else:
                    session.close()
                    continue
            except BaseException:
                session.close()
                raise
            self.session, self._stamp = session, stamp
            self.key = key  # with both roots still: the anchor may be under the other one
            try:
                self.take(opened, None if anchor is None else anchor.seen)
            except Disputed as dispute:  # a witness knows of versions that the owner may give up
                restored = self._restored(session, key, dispute.restores) if accept_restored else None
                if restored is None:
                    raise
                self.take(restored, None)
            return
        if isinstance(self.key, OwnerKey) and not any(isinstance(error, Tampered) for error in failures):
            raise KeyRefused(
                "this key does not open the database as it is now",
                hint="it was changed on another device, or an older copy of the database was put back; a backup from "
                "before a rekey needs the key file of that time",
            )
        raise next((error for error in failures if isinstance(error, Tampered)), failures[0])

    def _restored(self, session: Session, key: Key, restores: int = 0) -> Opened | None:
        """Take the version that is there for the newest, and bring its grants up to what is known; None if refused.

        `restores` is how often somebody else knows that this was done.
        """
        anchor = self._remembered() or Anchor(0, "0" * 64)
        used = tuple((grant, *amounts) for grant, amounts in anchor.used.items())
        try:
            draft = session.ask(Restore(max(anchor.restores, restores), tuple(anchor.revoked), used))
            with self.service.writer():
                opened = session.commit(draft, key.signing_key())
        except (Tampered, Refused):
            return None
        self.accepted_restored = True
        return opened

    def _opening(self, seen: Seen | None) -> Open:
        """The request for the newest version, with the terms on which it is accepted."""
        owner = self._expected_owner or self.key.known_owner(self.key_path)
        return Open(seen, None if owner is None else bytes.fromhex(owner))

    @property
    def _anchor_path(self) -> Path:
        return self.key.anchor_path(self.key_path)

    def _remembered(self) -> Anchor | None:
        damaged: Tampered | None = None
        for key in self.key.candidates():
            try:
                return Anchor.load(self._anchor_path, key.anchor_key())
            except Tampered as error:
                damaged = error
        raise damaged or Tampered()

    def _check_anchored(self, *, first_opening: bool) -> None:
        """Without an anchor, nothing tells an old version from the newest: an owner has to say that this is known."""
        if first_opening or self._anchor_path.exists():
            return
        what = f"there is no anchor at {self._anchor_path}: an old version would be taken for the newest"
        if isinstance(self.key, OwnerKey):
            raise KeyRefused(
                what,
                hint="bring it along from another device with `scumble anchor`, or accept what is there with "
                "`scumble check --first-opening`",
            )
        warnings.warn(f"{what}; this one is remembered from now on", NoAnchor, stacklevel=2)

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
            anchor = self._remembered()
            seen = None if anchor is None else anchor.seen
            if seen is None or seen != self.anchor.seen:
                self.take(self._opened_since(seen), seen)
            elif (opened := self.session.ask(Follow(seen, self._opening(seen).owner))) is not None:
                self.take(opened, seen)
            elif not self.witnesses.vouch(self.key, self._taken, self._opened_since):
                self.take(self._opened_since(seen), seen)  # a witness has seen a later one
        except (Tampered, Refused):
            # The key was perhaps changed: by a rekey elsewhere, or by one here that failed half-way.
            if not self._read_changed_key() and self.key.next_root is None:
                raise
            self.open_session()
            return
        self._stamp = stamp

    def _read_changed_key(self) -> bool:
        """Read the key again, if its file has changed; whether it has.

        A rekey elsewhere writes the new key to the file before anything under it: what this key does not open or did
        not sign is therefore no sign of tampering until the file, read again afterwards, is still the same.
        """
        now = key_file.fingerprint(self.key_path)
        if now == self._key_print:
            return False
        if key_file.is_protected(self.key_path):
            raise Stale("the key was changed meanwhile", hint="open the database again")
        self.key, self._key_print = open_key(self.key_path, self.key.database), now
        return True

    def take(self, opened: Opened, seen: Seen | None, *, made: bool = False) -> None:
        """Go on with a version, if its signatures lead to it from the one that was `seen`, and remember it.

        Witnesses have to have cosigned it; one that was `made` here they see afterwards.
        """
        for _ in range(TRIES):
            check_opened(opened, self.key, seen, self._expected_owner or self.key.known_owner(self.key_path))
            if made or self.witnesses.vouch(self.key, opened, self._opened_since):
                break
            opened = self._opened_since(seen)  # a witness has seen a later one already
        else:
            raise Stale("the database keeps changing", hint="try again")
        for run in (run for table in opened.catalog.tables for run in table.runs):
            if run.index is not None and is_known(run.index):  # one for research is refused when a query needs it
                decoded(run.index)  # a corrupt one now
        if opened.policy:
            self.policies.learn(self.key, opened.policy, opened.owner)
        self._taken, self.grant, self.owner = opened, opened.grant, opened.owner.hex()
        self._catalog = opened.catalog
        self.charges, self._hash, self._links = opened.charges, opened.hash, opened.links
        self.grants = opened.grants
        self.policy, self._views, self._unseen = opened.policy, _views(opened), self.unsettled > 0
        self.key.remember_owner(self.key_path, self.owner)
        self._expected_owner = None
        self._changed()
        self._remember(opened)

    def _opened_since(self, seen: Seen | None) -> Opened:
        return self.session.ask(self._opening(seen))

    def _witness_made(self) -> None:
        """Have the witnesses cosign a version that was made here; Unwitnessed if too few do, once nobody is writing."""
        self._unwitnessed = False
        try:
            if not self.witnesses.vouch(self.key, self._made, self._opened_since):
                self.open_newest()
        except (Unwitnessed, Unavailable) as error:  # the latter if a witness lacks links, and the service is gone
            if self.is_writing:
                self._unwitnessed = True
                return
            late = Unwitnessed(f"the change was stored, but {error.message}", hint="open it again when they are there")
            late.stored = True
            raise late from None

    def _remember(self, opened: Opened) -> None:
        remembered, catalog = self._remembered(), opened.catalog
        if remembered is None:
            remembered = Anchor(0, "0" * 64)
        elif (catalog.restores, catalog.version) <= (remembered.restores, remembered.version):
            return  # another process may have seen a later one
        anchor = remembered.at(Anchor(catalog.version, opened.hash, catalog.restores))
        anchor.knowing(opened.grants).save(self._anchor_path, self.key.anchor_key())

    @property
    def anchor(self) -> Anchor:
        """The version that is open, as it is remembered."""
        return Anchor(self._catalog.version, self._hash, self._catalog.restores)

    # --- changes -----------------------------------------------------------------------------------

    def work(self, request: Request[Any] | None = None) -> None:
        """Count one more change of the version that is open, which `request` asks for if it was not made yet."""
        if request is not None:
            self.session.ask(request)
        self.unsettled += 1
        self._unseen = True

    def _look(self) -> None:
        """See the changes that nobody else sees yet, if there are any."""
        if self._unseen:
            opened = self.session.ask(Look())
            self._catalog, self._views, self._unseen = opened.catalog, _views(opened), False
            self._changed()

    def settle(self, drafted: Drafted | None = None) -> None:
        """Make the changes so far a version; `drafted` is told which one before it is stored, or that there is none."""
        changes, self.unsettled = self.unsettled, 0
        if changes:
            self.change(Settle(changes), drafted=drafted)
        elif drafted is not None:
            drafted(None)

    def is_made(self, draft: Draft) -> bool:
        """Whether a version was stored that was drafted by somebody who did not live to tell.

        Whoever asks holds the database for writing, or knows that the version that is open is not an earlier one.
        """
        before = draft.restores, draft.version - 1, draft.previous
        try:
            opened = self._opened_since(before)
        except Tampered:  # it is no descendant of what the draft would have followed: somebody has restored another
            return False
        self.take(opened, before)
        return any(link.draft == draft for link in opened.links)

    def roll_back(self) -> None:
        """Give up the changes so far."""
        if self.unsettled:
            self.unsettled = 0
            with suppress(ScumbleError):  # a session that was lost has forgotten them
                self.session.ask(Rollback())
                self._unseen = True
                self._look()

    def change(self, request: Request[Any], successor: OwnerKey | None = None, drafted: Drafted | None = None) -> bool:
        """Have a version drafted, tell so, sign it, and go on with it; False if there was nothing to change.

        It is drafted again on top of a newer version, if that only changed the rights. A rekey is signed by the
        `successor`. If the answer to the signature is lost, this finds out whether the version was stored.
        """
        for left in range(TRIES - 1, -1, -1):
            draft: Draft | None = self.session.ask(request)
            if draft is None:
                return False
            if (draft.restores, draft.version, draft.previous) != (
                self._catalog.restores,
                self._catalog.version + 1,
                self._hash,
            ):
                raise Tampered
            if drafted is not None:
                drafted(draft)
            try:
                opened = self.session.commit(draft, (successor or self.key).signing_key())
            except Stale:
                if not left or successor is not None:
                    raise
                self.open_newest()
                continue
            except (Unavailable, Tampered):  # the answer was lost, or altered on its way
                self._find_out(draft)
                return True
            if successor is not None:
                self.key = OwnerKey(successor.database, successor.root, self.key.root)  # the anchor has the old one yet
            self.take(opened, (draft.restores, draft.version - 1, draft.previous), made=True)
            self._made = opened
            self._witness_made()
            return True
        raise AssertionError  # the last try has returned or raised

    def _find_out(self, draft: Draft) -> None:
        """Return if a version was stored although the answer was lost; else raise Unavailable, with what is known.

        The enclave may still be about to store it: only once the database can be held for writing is that ruled out.
        """
        self._held.close()  # or nobody, and this neither, could hold it again
        until = time.monotonic() + UNFINISHED_SECONDS
        for pause in (0.0, *PAUSES_SECONDS):
            time.sleep(pause)
            try:
                self.open_session()
                if self._has(draft):
                    return
                if self.service.stamp_lags:  # it is elsewhere: here, an enclave does one thing after the other
                    with self.service.writer(max(0.0, until - time.monotonic())):
                        self.open_newest()
            except (Unavailable, Busy, Unwitnessed):
                continue
            if self._has(draft):
                return
            raise Unavailable("the session was lost, and nothing was changed", hint="try again")
        raise Unfinished(
            "the service was lost while a change was stored, and does not say whether it was",
            hint="look at the database before you try again",
        )

    def _has(self, draft: Draft) -> bool:
        return any(link.draft == draft for link in self._links)


def _views(opened: Opened) -> dict[str, str]:
    return {name.lower(): text for name, text in opened.views}


def check_opened(opened: Opened, key: Key, seen: Seen | None, owner: str | None) -> None:
    """Tampered unless the signatures show that this version is the owner's, and follows the one that was `seen`.

    The titles lead from the database's id to its owner: this key, or for an analyst whoever followed the known `owner`.
    """
    catalog, links = opened.catalog, opened.links
    if catalog.database != key.database:
        raise Tampered
    if not catalog.titles:  # release 0.1 made it, and nobody has signed it since
        if is_derived(catalog.database) or isinstance(key, AnalystKey):
            raise Tampered
        return
    check_follows(catalog.database, catalog.titles, links, seen, opened.seen)
    title = title_at(catalog.titles, catalog.version)
    owners = {each.owner.hex() for each in catalog.titles}
    if title.owner != opened.owner or (owner is not None and owner not in owners):
        raise Tampered
    if isinstance(key, OwnerKey) and (title.owner, title.data_key_hash) != (
        key.public_key(),
        data_key_hash(key.database, key.data_key()),
    ):
        raise Tampered
