"""What the holder of a key checks of a version by itself, against an enclave that is scripted and may lie."""

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from scumble.attestation.policy import Policy
from scumble.attestation.policy_document import SignedPolicy
from scumble.errors import (
    BadQuery,
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
from scumble.owner import key_file, versions
from scumble.owner.anchor import Anchor, NoAnchor
from scumble.owner.custody import Custody
from scumble.owner.key_file import anchor_path
from scumble.owner.keys import AnalystKey, Key, OwnerKey
from scumble.owner.policies import Policies, first_policy
from scumble.owner.versions import TRIES, Versions, begin, check_opened
from scumble.owner.witnesses import Witnesses
from scumble.wire.catalog import Catalog
from scumble.wire.grants import Grant, public_text
from scumble.wire.lineage import Draft, Link, Seen, Title, next_title, sign_draft
from scumble.wire.requests import Create, DropTable, Follow, Open, Opened, Request, Restore

OWNER = OwnerKey.draw()
DATABASE = OWNER.database
OTHER = OwnerKey(DATABASE, bytes([7]) * 32)
ADA = AnalystKey(DATABASE, bytes([8]) * 32)
GRANT = Grant("a" * 16, "ada", bytes(32), {"t": frozenset(["load"])}, Fraction(2), used_epsilon=Fraction(1))
CHANGE = DropTable("t")


def _hash(version: int, salt: str = "") -> str:
    return sha256(f"{version}{salt}".encode()).hexdigest()


class Scripted:
    """A service with its enclave: it keeps every link, and says what it is told to say instead."""

    stamp_lags = False

    def __init__(self, key: OwnerKey = OWNER) -> None:
        self.titles: tuple[Title, ...] = (key.title(),)
        self.owner = key.public_key()
        self.links: list[Link] = []
        self.grants: tuple[Grant, ...] = ()
        self.asked: list[Request[Any]] = []
        self.fails: list[Exception | None] = []
        """What the next requests end with, in their order."""
        self.loses: list[Exception | None] = []
        """What the next commits end with, after the version was stored."""
        self.refuses: list[Exception | None] = []
        """The same, but nothing is stored."""
        self.drafted: Callable[[Draft], Draft | None] = lambda draft: draft
        self.shown: Callable[[Opened], Opened] = lambda opened: opened
        self.closed = False

    def add(self, key: OwnerKey = OWNER) -> None:
        """Somebody else makes a version."""
        self._store(self._next(), key.signing_key(), key.public_key())

    def head(self) -> Draft:
        return self.links[-1].draft

    def opened(self, seen: Seen | None) -> Opened:
        later = [place for place, link in enumerate(self.links, 1) if link.draft.seen == seen]
        at = later[0] if later else len(self.links) - 1
        head = self.head()
        catalog = Catalog(DATABASE, head.version, head.previous, (), self.titles, head.restores)
        links = tuple(self.links[at:])
        return self.shown(Opened(catalog, head.hash, self.owner, None, self.grants, links, ()))

    def _next(self, restores: int = 0) -> Draft:
        if not self.links:
            return Draft(0, 1, "", _hash(1))
        head = self.head()
        more = max(head.restores, restores)
        return Draft(more, head.version + 1, head.hash, _hash(head.version + 1, secrets.token_hex(4)))

    def _store(self, draft: Draft, key: Ed25519PrivateKey, signer: bytes) -> None:
        self.links.append(Link(draft, signer, sign_draft(DATABASE, draft, key)))

    def answer(self, request: Request[Any]) -> Any:
        self.asked.append(request)
        if self.fails and (failure := self.fails.pop(0)) is not None:
            raise failure
        if isinstance(request, Open):
            return self.opened(request.anchor)
        if isinstance(request, Follow):
            opened = self.opened(request.anchor)
            return None if opened.seen == request.anchor else opened
        return self.drafted(self._next(request.restores + 1 if isinstance(request, Restore) else 0))

    def commit(self, draft: Draft, key: Ed25519PrivateKey) -> Opened:
        if self.refuses and (failure := self.refuses.pop(0)) is not None:
            raise failure
        before = self.head().seen if self.links else None
        self._store(draft, key, key.public_key().public_bytes_raw())
        if self.loses and (failure := self.loses.pop(0)) is not None:
            raise failure
        return self.opened(before)

    def writer(self, busy_seconds: float = 5) -> AbstractContextManager[None]:
        return nullcontext()

    def rights_writer(self) -> AbstractContextManager[None]:
        return nullcontext()

    def stamp(self) -> object:
        return len(self.links)

    def drop_unreferenced(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True


class Line:
    """In place of a sealed session."""

    def __init__(self, service: Scripted, database: str, key: Ed25519PrivateKey, data_key: bytes | None = None) -> None:
        self.service, self.broken = service, False

    def ask(self, request: Request[Any]) -> Any:
        if self.broken:
            raise Unavailable("the session is broken", hint="open another")
        return self.service.answer(request)

    def commit(self, draft: Draft, key: Ed25519PrivateKey) -> Opened:
        return self.service.commit(draft, key)

    def close(self) -> None:
        self.broken = True


@pytest.fixture(autouse=True)
def scripted_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "Session", Line)
    monkeypatch.setattr(versions, "PAUSES_SECONDS", (0.0, 0.0, 0.0))
    monkeypatch.setattr(versions, "LOCKED_PAUSE_SECONDS", 0.0)


@pytest.fixture
def service() -> Scripted:
    return Scripted()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    OWNER.save(tmp_path / "clinic.key", None)
    return tmp_path / "clinic.key"


def opening(service: Scripted, path: Path, key: Key = OWNER, **how: Any) -> Versions:
    return Versions(service, key, path, changed=lambda: None, **how)  # type: ignore[arg-type]


@pytest.fixture
def open_one(service: Scripted, path: Path) -> Versions:
    """A database at version 2, opened by its owner, who remembers it."""
    begin(service, OWNER, path)  # type: ignore[arg-type]
    service.add()
    return opening(service, path)


@pytest.fixture
def ada(tmp_path: Path) -> tuple[AnalystKey, Path]:
    AnalystKey.create(tmp_path / "ada.key", None)
    return AnalystKey.open(tmp_path / "ada.key", DATABASE), tmp_path / "ada.key"


def remembered(path: Path, key: OwnerKey = OWNER) -> Seen | None:
    anchor = Anchor.load(anchor_path(path), key.anchor_key())
    return None if anchor is None else anchor.seen


# --- beginning ---------------------------------------------------------------------------------------


def test_the_first_version_is_signed_and_remembered(service: Scripted, path: Path) -> None:
    begin(service, OWNER, path)  # type: ignore[arg-type]
    assert service.asked == [Create(OWNER.title(), b"")]
    assert [link.draft for link in service.links] == [Draft(0, 1, "", _hash(1))]
    assert remembered(path) == (0, 1, _hash(1))


@pytest.mark.parametrize("change", [{"restores": 1}, {"version": 2}, {"version": 0}, {"previous": "aa"}])
def test_what_is_no_first_version_is_not_signed(service: Scripted, path: Path, change: dict[str, Any]) -> None:
    service.drafted = lambda draft: replace(draft, **change)
    with pytest.raises(Tampered):
        begin(service, OWNER, path)  # type: ignore[arg-type]
    assert service.links == []
    assert remembered(path) is None


def test_a_first_version_that_is_shown_otherwise_is_not_remembered(service: Scripted, path: Path) -> None:
    service.shown = lambda opened: replace(opened, hash=_hash(9))
    with pytest.raises(Tampered):
        begin(service, OWNER, path)  # type: ignore[arg-type]
    assert remembered(path) is None


# --- opening -----------------------------------------------------------------------------------------


def test_a_newer_version_is_opened_and_remembered(service: Scripted, open_one: Versions, path: Path) -> None:
    assert service.asked[-1] == Open((0, 1, _hash(1)), None)
    assert remembered(path) == service.head().seen == open_one.anchor.seen
    service.add()
    open_one.refresh()
    assert remembered(path) == service.head().seen == open_one.anchor.seen


def test_an_older_version_is_refused_and_forgets_nothing(service: Scripted, open_one: Versions, path: Path) -> None:
    seen = remembered(path)
    service.links.pop()
    for try_it in (open_one.open_newest, open_one.refresh, open_one.open_session, lambda: opening(service, path)):
        with pytest.raises(Tampered):
            try_it()
        assert remembered(path) == seen
    assert service.closed


def test_a_version_that_another_process_saw_first_stays_the_newest(
    service: Scripted, open_one: Versions, path: Path
) -> None:
    before, seen = service.opened((0, 1, _hash(1))), (0, 1, _hash(1))
    service.add()
    opening(service, path)
    later = remembered(path)
    open_one.take(before, seen)
    assert remembered(path) == later
    forked = Anchor(2, _hash(9))
    forked.save(anchor_path(path), OWNER.anchor_key())
    open_one.take(before, seen)
    assert remembered(path) == forked.seen


def test_an_owner_without_an_anchor_has_to_say_so(service: Scripted, open_one: Versions, path: Path) -> None:
    anchor_path(path).unlink()
    with pytest.raises(KeyRefused):
        opening(service, path)
    with pytest.raises(KeyRefused):
        Custody(service, OWNER, path)  # type: ignore[arg-type]
    assert opening(service, path, first_opening=True).anchor.version == 2
    assert remembered(path) == service.head().seen


def test_an_anchor_of_another_key_is_refused(service: Scripted, open_one: Versions, path: Path) -> None:
    Anchor(1, _hash(1)).save(anchor_path(path), OTHER.anchor_key())
    with pytest.raises(Tampered):
        opening(service, path)


def test_an_analyst_without_an_anchor_is_warned_and_remembers_the_owner(
    service: Scripted, open_one: Versions, ada: tuple[AnalystKey, Path]
) -> None:
    key, own = ada
    with pytest.warns(NoAnchor):
        opened = opening(service, own, key)
    assert opened.owner == OWNER.public_key().hex()
    assert key.known_owner(own) == opened.owner
    opening(service, own, key)  # without a warning
    assert service.asked[-1] == Open(service.head().seen, OWNER.public_key())


def test_an_analyst_is_not_given_the_database_of_another_owner(
    service: Scripted, open_one: Versions, ada: tuple[AnalystKey, Path]
) -> None:
    key, own = ada
    with pytest.raises(Tampered):
        opening(service, own, key, owner=public_text(OTHER.public_key()), first_opening=True)
    assert service.asked[-1] == Open(None, OTHER.public_key())
    assert key.known_owner(own) is None
    opening(service, own, key, owner=public_text(OWNER.public_key()), first_opening=True)
    key.remember_owner(own, OTHER.public_key().hex())
    with pytest.raises(Tampered):
        opening(service, own, key)


@pytest.mark.parametrize(("error", "expected"), [(Refused(), KeyRefused), (Tampered(), Tampered)])
def test_a_key_that_is_refused_is_told_from_tampering(
    service: Scripted, open_one: Versions, path: Path, error: Exception, expected: type[Exception]
) -> None:
    service.fails = [error]
    with pytest.raises(expected):
        opening(service, path)


def test_an_analyst_who_is_refused_is_told_just_that(
    service: Scripted, open_one: Versions, ada: tuple[AnalystKey, Path]
) -> None:
    key, own = ada
    service.fails = [Refused()]
    with pytest.raises(Refused):
        opening(service, own, key, first_opening=True)


def test_of_two_roots_the_one_that_fits_is_taken(service: Scripted, open_one: Versions, path: Path) -> None:
    """A rekey that was cut short leaves both; tampering with either is tampering."""
    both = OwnerKey(DATABASE, OTHER.root, OWNER.root)
    service.fails = [Refused()]
    assert opening(service, path, both).key.root == OWNER.root
    for failures in ([Tampered(), Refused()], [Refused(), Tampered()]):
        service.fails = [*failures]
        with pytest.raises(Tampered):
            opening(service, path, both)


def test_while_there_are_two_roots_what_fails_under_one_is_tried_with_both(
    service: Scripted, open_one: Versions
) -> None:
    open_one.key = OwnerKey(DATABASE, OWNER.root, OTHER.root)
    service.fails = [Tampered()]
    open_one.open_newest()
    open_one.key = OWNER
    service.fails = [Tampered()]
    with pytest.raises(Tampered):
        open_one.open_newest()


def test_a_key_that_was_changed_elsewhere_is_read_again(service: Scripted, open_one: Versions, path: Path) -> None:
    service.titles += (next_title(DATABASE, 3, OWNER.signing_key(), OTHER.signing_key(), OTHER.data_key()),)
    service.owner = OTHER.public_key()
    service.add(OTHER)
    with pytest.raises(Tampered):
        open_one.open_newest()
    Anchor(2, service.links[1].draft.hash).save(anchor_path(path), OTHER.anchor_key())
    OTHER.save(path, None)
    open_one.open_newest()
    assert open_one.key == OTHER
    assert remembered(path, OTHER) == service.head().seen


def test_a_protected_key_that_was_changed_has_to_be_opened_again(
    service: Scripted, open_one: Versions, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    OTHER.save(path, None)
    monkeypatch.setattr(key_file, "is_protected", lambda path: True)
    service.fails = [Tampered()]
    with pytest.raises(Stale):
        open_one.open_newest()


# --- an older version that the owner accepts ---------------------------------------------------------


def test_a_restored_version_takes_back_no_grant_and_nothing_that_was_used(
    service: Scripted, open_one: Versions, path: Path
) -> None:
    service.grants = (GRANT, replace(GRANT, id="b" * 16))
    service.add()
    open_one.refresh()
    service.grants = (GRANT,)
    service.add()
    open_one.refresh()
    del service.links[1:]
    with pytest.raises(Tampered):
        opening(service, path)
    service.fails = [Tampered()]  # as the enclave does of itself
    restored = opening(service, path, accept_restored=True)
    asked = next(request for request in service.asked if isinstance(request, Restore))
    assert asked == Restore(
        0, ("b" * 16,), (("a" * 16, Fraction(1), Fraction(0)), ("b" * 16, Fraction(1), Fraction(0)))
    )
    assert (restored.anchor.restores, restored.anchor.version) == (1, 2)
    assert remembered(path) == service.head().seen
    del service.links[1:]
    service.fails = [Tampered()]
    opening(service, path, accept_restored=True)
    again = [request for request in service.asked if isinstance(request, Restore)][-1]
    assert again.restores == 1
    assert remembered(path) == service.head().seen


def test_a_restore_that_is_refused_leaves_the_first_error(service: Scripted, open_one: Versions, path: Path) -> None:
    seen = remembered(path)
    for failures in ([Tampered(), Refused()], [Tampered(), Tampered()]):
        service.fails = [*failures]
        with pytest.raises(Tampered):
            opening(service, path, accept_restored=True)
    assert remembered(path) == seen


def test_nothing_is_restored_unless_that_was_said(service: Scripted, open_one: Versions, path: Path) -> None:
    for fails in (lambda: opening(service, path), lambda: Custody(service, OWNER, path)):  # type: ignore[arg-type]
        service.fails = [Tampered()]
        with pytest.raises(Tampered):
            fails()
    assert not [request for request in service.asked if isinstance(request, Restore)]


def test_a_restore_on_a_device_that_remembers_nothing_knows_of_no_grant(
    service: Scripted, open_one: Versions, path: Path
) -> None:
    anchor_path(path).unlink()
    service.fails = [Tampered()]
    opening(service, path, first_opening=True, accept_restored=True)
    assert [request for request in service.asked if isinstance(request, Restore)] == [Restore(0, (), ())]
    assert remembered(path) == service.head().seen


def test_what_a_witness_disputes_is_restored_beyond_it_if_that_was_said(
    service: Scripted, open_one: Versions, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disputes: list[Disputed] = []

    class Disputing:
        def __init__(self, key_path: Path) -> None:
            disputes[:] = [Disputed("it does not follow", restores=4, statements=())]

        def vouch(self, *_: object) -> bool:
            if disputes:
                raise disputes.pop()
            return True

    monkeypatch.setattr(versions, "Witnesses", Disputing)
    with pytest.raises(Disputed):
        opening(service, path)
    service.fails = [None, Refused()]
    with pytest.raises(Disputed):
        opening(service, path, accept_restored=True)
    assert service.head().restores == 0
    assert opening(service, path, accept_restored=True).anchor.restores == 5
    assert [request.restores for request in service.asked if isinstance(request, Restore)] == [4, 4]


def test_nothing_older_is_accepted_unless_that_was_said(service: Scripted, open_one: Versions, path: Path) -> None:
    del service.links[1:]
    for try_it in (open_one.open_session, lambda: opening(service, path)):
        service.fails = [Tampered()]
        with pytest.raises(Tampered):
            try_it()
    assert not any(isinstance(request, Restore) for request in service.asked)


# --- changes -----------------------------------------------------------------------------------------


def test_a_change_is_signed_and_remembered(service: Scripted, open_one: Versions, path: Path) -> None:
    assert open_one.change(CHANGE)
    assert service.head().version == open_one.catalog.version == 3
    assert remembered(path) == service.head().seen
    service.drafted = lambda draft: None
    assert not open_one.change(CHANGE)
    assert service.head().version == 3


@pytest.mark.parametrize(
    "change", [{"restores": 1}, {"version": 2}, {"version": 4}, {"version": 1}, {"previous": _hash(1)}]
)
def test_a_draft_that_does_not_follow_what_is_open_is_not_signed(
    service: Scripted, open_one: Versions, change: dict[str, Any]
) -> None:
    service.drafted = lambda draft: replace(draft, **change)
    with pytest.raises(Tampered):
        open_one.change(CHANGE)
    assert len(service.links) == 2


def test_a_change_is_drafted_again_on_a_newer_version(service: Scripted, open_one: Versions) -> None:
    service.refuses = [Stale("changed", hint="again")] * (TRIES - 1)
    assert open_one.change(CHANGE)
    assert service.asked.count(CHANGE) == TRIES
    service.refuses = [Stale("changed", hint="again")] * TRIES
    with pytest.raises(Stale):
        open_one.change(CHANGE)
    assert service.refuses == []
    assert service.head().version == 3


def test_a_change_of_the_key_is_not_drafted_again(service: Scripted, open_one: Versions) -> None:
    service.refuses = [Stale("changed", hint="again")]
    with pytest.raises(Stale):
        open_one.change(CHANGE, OTHER)
    assert len(service.links) == 2


def test_a_change_of_the_key_is_signed_by_the_next(service: Scripted, open_one: Versions, path: Path) -> None:
    service.titles += (next_title(DATABASE, 3, OWNER.signing_key(), OTHER.signing_key(), OTHER.data_key()),)
    service.owner = OTHER.public_key()
    assert open_one.change(CHANGE, OTHER)
    assert service.links[-1].signer == OTHER.public_key()
    assert open_one.key == OwnerKey(DATABASE, OTHER.root, OWNER.root)
    assert remembered(path, OTHER) == service.head().seen


@pytest.mark.parametrize("lost", [Unavailable("lost", hint="again"), Tampered()])
@pytest.mark.parametrize("lags", [False, True])
def test_whether_a_change_was_stored_is_found_out_if_the_answer_is_lost(
    service: Scripted, open_one: Versions, lost: Exception, lags: bool
) -> None:
    service.stamp_lags = lags
    service.loses = [lost]
    assert open_one.change(CHANGE)
    assert open_one.catalog.version == service.head().version == 3
    service.refuses = [lost]
    with pytest.raises(Unavailable, match="nothing was changed"):
        open_one.change(CHANGE)
    assert open_one.catalog.version == 3


def test_a_change_that_was_stored_late_is_found(service: Scripted, open_one: Versions) -> None:
    """After the first look, and before the database could be held for writing."""
    service.stamp_lags = True
    service.refuses = [Unavailable("lost", hint="again")]
    drafts: list[Draft] = []
    service.drafted = lambda draft: drafts.append(draft) or draft  # type: ignore[func-returns-value]

    def writer(busy_seconds: float = 5) -> AbstractContextManager[None]:
        service._store(drafts[0], OWNER.signing_key(), OWNER.public_key())
        return nullcontext()

    service.writer = writer  # type: ignore[method-assign]
    assert open_one.change(CHANGE)
    assert open_one.catalog.version == 3


def test_a_service_that_stays_away_says_nothing_of_a_change(service: Scripted, open_one: Versions) -> None:
    gone = Unavailable("gone", hint="again")
    service.loses, service.fails = [gone], [None, gone, *(gone for _ in versions.PAUSES_SECONDS)]
    with pytest.raises(Unfinished):
        open_one.change(CHANGE)
    service.loses, service.fails = [gone], [None, gone, gone]
    open_one.open_session()
    assert open_one.catalog.version == 3


class Absent:
    """Witnesses of whom too few are there."""

    def vouch(self, *_: object) -> bool:
        raise Unwitnessed("nobody has cosigned it", hint="wait")


def opening_without(service: Scripted, path: Path) -> Versions:
    opened = opening(service, path)
    opened.witnesses = Absent()  # type: ignore[assignment]
    return opened


def test_too_few_witnesses_are_told_of_when_nobody_is_writing(service: Scripted, open_one: Versions) -> None:
    with opening(service, open_one.key_path).writing():
        pass  # nothing was made that they could cosign
    with pytest.raises(Unwitnessed, match="the change was stored"):
        opening_without(service, open_one.key_path).change(CHANGE)
    with open_one.writing():
        open_one.change(CHANGE)
    open_one.witnesses = Absent()  # type: ignore[assignment]
    with pytest.raises(Unwitnessed, match="the change was stored, but nobody") as told:
        open_one.change(CHANGE)
    assert told.value.stored
    open_one.witnesses = Witnesses(open_one.key_path)
    ended = False

    def write() -> None:
        nonlocal ended
        with open_one.writing():
            open_one.witnesses = Absent()  # type: ignore[assignment]
            open_one.change(CHANGE)
            ended = True

    with pytest.raises(Unwitnessed, match="the change was stored, but nobody"):
        write()
    assert ended
    open_one.witnesses = Witnesses(open_one.key_path)
    with open_one.writing():
        pass  # what was told once is not told again


def test_witnesses_see_a_change_once(service: Scripted, open_one: Versions, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def vouch(key: Key, opened: Opened, since: object) -> bool:
        seen.append(opened.version)
        return True

    with open_one.writing():
        monkeypatch.setattr(open_one.witnesses, "vouch", vouch)
        open_one.change(CHANGE)
    assert seen == [3]


def test_a_change_that_witnesses_have_overtaken_is_followed_by_the_newest(
    service: Scripted, open_one: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [False, True]
    monkeypatch.setattr(open_one.witnesses, "vouch", lambda *_: answers.pop(0))
    asked = len(service.asked)
    open_one.change(CHANGE)
    assert answers == []
    assert [type(request) for request in service.asked[asked:]] == [DropTable, Follow]


def test_a_version_that_witnesses_have_overtaken_is_opened_again(
    service: Scripted, open_one: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [*[False] * TRIES, True]  # the first of the version that is open
    monkeypatch.setattr(open_one.witnesses, "vouch", lambda *_: answers.pop(0))
    open_one.open_newest()
    assert answers == []
    answers = [False] * (TRIES + 1)
    with pytest.raises(Stale, match="keeps changing"):
        open_one.open_newest()


def test_the_owners_policy_is_learned_from_a_version(service: Scripted, path: Path) -> None:
    begin(service, OWNER, path)  # type: ignore[arg-type]
    signed = first_policy(Policy(), OWNER)
    service.shown = lambda opened: replace(opened, policy=signed.to_bytes(), grant=GRANT)
    assert opening(service, path).policies.known(OWNER) == signed
    held: list[SignedPolicy] = []
    path.with_suffix(".policy").unlink()
    opened = opening(service, path, policies=Policies(path, held.append))
    assert held == [signed]
    assert (opened.policy, opened.grant_id) == (signed.to_bytes(), GRANT.id)
    service.shown = lambda opened: replace(opened, policy=b"no policy")
    with pytest.raises(Tampered):
        opening(service, path)


def test_a_version_without_a_grant_is_the_owners(open_one: Versions) -> None:
    assert open_one.grant_id is None


# --- work on the newest version ----------------------------------------------------------------------


def worked(open_one: Versions, *errors: ScumbleError | None) -> int:
    """Do work that ends with these errors in turn; how often it was tried."""
    left, tries = list(errors), 0

    def work() -> int:
        nonlocal tries
        tries += 1
        if left and (error := left.pop(0)) is not None:
            raise error
        return tries

    return open_one.retrying(work)


STALE, LOST = Stale("changed", hint="again"), Unavailable("lost", hint="again")


def test_work_is_done_again_if_the_version_changed(service: Scripted, open_one: Versions) -> None:
    assert worked(open_one) == 1
    assert worked(open_one, *[STALE] * (TRIES - 1)) == TRIES
    with pytest.raises(Stale):
        worked(open_one, *[STALE] * TRIES)


def test_after_a_stale_answer_the_newest_version_is_asked_for_whatever_the_service_says(
    service: Scripted, open_one: Versions
) -> None:
    asked = len(service.asked)
    worked(open_one)
    assert len(service.asked) == asked
    worked(open_one, STALE)
    assert len(service.asked) == asked + 1


def test_work_is_done_once_more_if_the_session_was_lost(open_one: Versions) -> None:
    assert worked(open_one, LOST) == 2
    tries: list[int] = []

    def breaks() -> int:
        tries.append(1)
        if len(tries) == 1:
            open_one.session.close()
            raise LOST
        return len(tries)

    assert open_one.retrying(breaks) == 2
    assert not open_one.session.broken
    with pytest.raises(Unavailable):
        worked(open_one, LOST, LOST)
    with pytest.raises(Unavailable):
        worked(open_one, *[STALE] * (TRIES - 1), LOST)


def test_a_bad_query_is_tried_again_only_on_a_newer_version(service: Scripted, open_one: Versions) -> None:
    bad = BadQuery("no such table", hint="look")
    with pytest.raises(BadQuery):
        worked(open_one, bad)
    service.stamp = lambda: 0  # type: ignore[method-assign]  # says of nothing that it is new
    open_one.open_newest()
    service.add()
    assert worked(open_one, bad) == 2
    with pytest.raises(BadQuery):
        worked(open_one, bad)

    def changes() -> None:
        service.add()
        raise bad

    with pytest.raises(BadQuery):
        open_one.retrying(changes)


def test_what_a_service_mentions_late_is_looked_at_before_the_answer_counts(
    service: Scripted, open_one: Versions
) -> None:
    def changes() -> int:
        times.append(1)
        service.add()
        return len(times)

    for lags, tries in ((False, 1), (True, 2)):
        times: list[int] = []
        service.stamp_lags = lags
        open_one.refresh()
        assert worked(open_one) == 1
        assert open_one.retrying(changes) == tries


def test_an_enclave_that_is_without_the_key_for_a_moment_is_waited_for(
    service: Scripted, open_one: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.add()
    service.fails = [Locked(), Locked()]
    assert worked(open_one) == 1
    assert open_one.catalog.version == 3
    monkeypatch.setattr(versions, "LOCKED_SECONDS", -1.0)
    service.add()
    service.fails = [Locked()]
    with pytest.raises(Locked):
        worked(open_one)


# --- what is checked of a version --------------------------------------------------------------------


def shown(key: OwnerKey = OWNER) -> Opened:
    service = Scripted(key)
    service.add(key)
    return service.opened(None)


def test_a_version_of_this_owner_is_accepted_by_both_kinds_of_key() -> None:
    for key, owner in ((OWNER, None), (ADA, None), (ADA, OWNER.public_key().hex())):
        check_opened(shown(), key, None, owner)


def _of_another_database(opened: Opened) -> Opened:
    return replace(opened, catalog=replace(opened.catalog, database="0b" * 20))


WRONG: list[tuple[Callable[[Opened], Opened], Key, str | None]] = [
    (_of_another_database, OWNER, None),
    (_of_another_database, ADA, None),
    (lambda opened: replace(opened, owner=OTHER.public_key()), OWNER, None),
    (lambda opened: replace(opened, owner=OTHER.public_key()), ADA, OWNER.public_key().hex()),
    (lambda opened: replace(opened, owner=OTHER.public_key()), ADA, None),
    (lambda opened: opened, ADA, OTHER.public_key().hex()),
    (lambda opened: opened, OTHER, None),
    (lambda opened: replace(opened, catalog=replace(opened.catalog, titles=())), OWNER, None),
    (lambda opened: replace(opened, catalog=replace(opened.catalog, titles=())), ADA, None),
    (lambda opened: replace(opened, links=()), OWNER, None),
    (lambda opened: replace(opened, hash=_hash(9)), ADA, None),
]


@pytest.mark.parametrize(("change", "key", "owner"), WRONG, ids=range(len(WRONG)))
def test_a_version_that_is_not_this_owners_is_refused(
    change: Callable[[Opened], Opened], key: Key, owner: str | None
) -> None:
    with pytest.raises(Tampered):
        check_opened(change(shown()), key, None, owner)


def test_the_genuine_version_of_another_database_is_not_this_ones() -> None:
    """The service shows it to an analyst who knows no owner yet, or to the owner of what nobody has signed."""
    with pytest.raises(Tampered):
        check_opened(shown(), AnalystKey("0b" * 20, bytes(32)), None, None)
    unsigned = Opened(Catalog("0c" * 16, 3, _hash(2), ()), _hash(3), b"", None, (), (), ())
    with pytest.raises(Tampered):
        check_opened(unsigned, OwnerKey("0d" * 16, bytes(32)), None, None)


def test_whoever_followed_a_known_owner_is_accepted_by_an_analyst() -> None:
    service = Scripted()
    service.add()
    service.titles += (next_title(DATABASE, 2, OWNER.signing_key(), OTHER.signing_key(), OTHER.data_key()),)
    service.add(OTHER)
    service.owner = OTHER.public_key()
    check_opened(service.opened(None), ADA, None, OWNER.public_key().hex())
    check_opened(service.opened(None), OTHER, None, None)
    with pytest.raises(Tampered):
        check_opened(service.opened(None), OWNER, None, None)


def test_a_title_with_another_data_key_is_not_this_owners() -> None:
    service = Scripted()
    service.add()
    service.titles += (next_title(DATABASE, 2, OWNER.signing_key(), OTHER.signing_key(), b"another"),)
    service.add(OTHER)
    service.owner = OTHER.public_key()
    check_opened(service.opened(None), ADA, None, None)
    with pytest.raises(Tampered):
        check_opened(service.opened(None), OTHER, None, None)


def test_only_an_owner_opens_what_release_0_1_made_and_nobody_signed() -> None:
    old = "0c" * 16
    catalog = Catalog(old, 3, _hash(2), ())
    opened = Opened(catalog, _hash(3), b"", None, (), (), ())
    check_opened(opened, OwnerKey(old, bytes(32)), None, None)
    with pytest.raises(Tampered):
        check_opened(opened, AnalystKey(old, bytes(32)), None, None)
