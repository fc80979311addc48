"""A provider in the middle that replays, reorders, drops, truncates, flips, swaps: Tampered, never a wrong answer."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from enclave_tables import DATA_KEY, DATABASE, OWNER, TITLE

from alive import private_keys
from scumble.enclave.lines import TrustedEnclave
from scumble.errors import Busy, InvalidParameter, NotFound, ScumbleError, Tampered, Unavailable
from scumble.owner.session import Session
from scumble.store.files import FileStore
from scumble.wire.channel import Channel, Greeting, done, open_greeting, opened_answer, refusal, seal_greeting
from scumble.wire.requests import Create, Open

Meddle = Callable[[bytes], bytes]


class Meddler:
    """A provider that passes everything on, until it is told to do something else."""

    def __init__(self, enclave: TrustedEnclave) -> None:
        self._enclave = enclave
        self.requests: list[tuple[int, bytes]] = []
        self.answers: list[bytes] = []
        self.change_request: Meddle = bytes
        self.change_answer: Meddle = bytes
        self.change_greeting: Meddle = bytes
        self.change_key: Meddle = bytes
        self.session_of: Callable[[int], int] = int

    def fresh_key(self) -> bytes:
        return self.change_key(self._enclave.fresh_key())

    def greet(self, sealed: bytes) -> tuple[int, bytes]:
        session, answer = self._enclave.greet(self.change_greeting(sealed))
        return session, self.change_answer(answer)

    def request(self, session: int, sealed: bytes | memoryview) -> bytes:
        self.requests.append((session, bytes(sealed)))
        answer = self._enclave.request(self.session_of(session), self.change_request(bytes(sealed)))
        self.answers.append(answer)
        return self.change_answer(answer)

    def leave(self, session: int) -> None:
        self._enclave.leave(session)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    store = FileStore.create(tmp_path / "db", DATABASE)
    with store.writer():
        yield store
    store.close()


@pytest.fixture
def meddler(store: FileStore) -> Meddler:
    return Meddler(TrustedEnclave(store))


@pytest.fixture
def session(meddler: Meddler) -> Session:
    session = Session(meddler, DATABASE, OWNER, DATA_KEY)
    assert _create(session) == 1
    return session


def _create(session: Session) -> int:
    return session.commit(session.ask(Create(TITLE)), OWNER).version


def _open(session: Session) -> int:
    return session.ask(Open(None)).version


@contextmanager
def meddling(meddler: Meddler, **how: Any) -> Iterator[None]:
    before = {name: getattr(meddler, name) for name in how}
    for name, change in how.items():
        setattr(meddler, name, change)
    yield
    for name, change in before.items():
        setattr(meddler, name, change)


def _keeping(seen: list[bytes], change: Meddle = bytes) -> Meddle:
    """Keep what comes by, and pass it on, changed or not."""

    def keep(sealed: bytes) -> bytes:
        seen.append(sealed)
        return change(sealed)

    return keep


def _changes(sealed: bytes) -> list[bytes]:
    """Everything short that can be made of some bytes: each bit flipped, each length, and more at either end."""
    flipped = [sealed[:at] + bytes([sealed[at] ^ 1 << at % 8]) + sealed[at + 1 :] for at in range(len(sealed))]
    return [*flipped, *(sealed[:length] for length in range(len(sealed))), sealed + b"\0", b"\0" + sealed, sealed * 2]


def test_a_session_without_meddling(session: Session) -> None:
    assert [_open(session) for _ in range(5)] == [1] * 5


def test_every_change_to_a_request_is_noticed_and_harms_nothing(session: Session, meddler: Meddler) -> None:
    """The enclave refuses it, in the open; the owner's count goes on, so the session is over: Tampered ever after."""
    seen: list[bytes] = []
    with meddling(meddler, change_request=_keeping(seen, lambda sealed: sealed[:-1])), pytest.raises(Tampered):
        _open(session)
    for changed in _changes(seen[0]):
        with pytest.raises(Tampered):
            meddler._enclave.request(1, changed)
    assert _answered(meddler, seen[0])  # the request itself is still the next one


def _answered(meddler: Meddler, sealed: bytes) -> bytes:
    return meddler._enclave.request(1, sealed)


def test_every_change_to_an_answer_is_noticed(meddler: Meddler, session: Session) -> None:
    seen: list[bytes] = []
    channel = session._channel
    with meddling(meddler, change_answer=_keeping(seen, lambda _: b"")), pytest.raises(Tampered):
        _open(session)
    for changed in _changes(seen[0]):
        with pytest.raises(Tampered):
            channel.open_answer(changed)
    assert opened_answer(channel.open_answer(seen[0]))


def test_a_request_is_not_answered_twice(session: Session, meddler: Meddler) -> None:
    _open(session)
    number, sealed = meddler.requests[-1]
    for _ in range(3):
        with pytest.raises(Tampered):
            meddler._enclave.request(number, sealed)
    assert _open(session) == 1


def test_an_answer_is_not_taken_twice(session: Session, meddler: Meddler) -> None:
    _open(session)
    for old in list(meddler.answers):
        with meddling(meddler, change_answer=lambda _, old=old: old), pytest.raises(Tampered):
            _open(session)


def test_the_greeting_s_answer_is_not_another_s(meddler: Meddler) -> None:
    seen: list[bytes] = []
    with meddling(meddler, change_answer=_keeping(seen)):
        Session(meddler, DATABASE, OWNER, DATA_KEY)
    with meddling(meddler, change_answer=lambda _: seen[0]), pytest.raises(Tampered):
        Session(meddler, DATABASE, OWNER, DATA_KEY)


def test_requests_in_another_order(session: Session, meddler: Meddler) -> None:
    """The second request before the first one: not opened; and the first one opens after that as if nothing was."""
    channel = session._channel
    first, second = channel.seal_request(b'J{"task":"open","anchor":null}'), channel.seal_request(b"J{}")
    with pytest.raises(Tampered):
        meddler._enclave.request(1, second)
    meddler._enclave.request(1, first)
    with pytest.raises(Tampered):
        meddler._enclave.request(1, first)


def test_a_request_that_was_dropped(session: Session, meddler: Meddler) -> None:
    """An answer to an earlier request in the place of that to one which never arrived."""
    _open(session)
    answer = meddler.answers[-1]
    request = meddler.request
    meddler.request = lambda *_: answer  # type: ignore[method-assign]
    with pytest.raises(Tampered):
        _open(session)
    meddler.request = request  # type: ignore[method-assign]
    with pytest.raises(Tampered):  # a session that has lost a request does not find back: open the database again
        _open(session)
    assert _open(Session(meddler, DATABASE, OWNER, DATA_KEY)) == 1


def test_a_request_as_an_answer_and_an_answer_as_a_request(session: Session, meddler: Meddler) -> None:
    with meddling(meddler, change_answer=lambda _: meddler.requests[-1][1]), pytest.raises(Tampered):
        _open(session)
    with pytest.raises(Tampered):
        meddler._enclave.request(1, meddler.answers[-1])


def test_answers_swapped_between_two_sessions(session: Session, meddler: Meddler) -> None:
    other = Session(meddler, DATABASE, OWNER, DATA_KEY)
    for _ in range(3):
        _open(other)
        with meddling(meddler, change_answer=lambda _: meddler.answers[-2]), pytest.raises(Tampered):
            _open(session)
    assert _open(other) == 1


def test_requests_sent_to_another_session(session: Session, meddler: Meddler) -> None:
    other = Session(meddler, DATABASE, OWNER, DATA_KEY)
    with meddling(meddler, session_of=lambda number: 3 - number), pytest.raises(Tampered):
        _open(session)
    assert _open(other) == 1  # it was not disturbed
    with meddling(meddler, session_of=lambda _: 77), pytest.raises(InvalidParameter):
        _open(other)


def test_a_greeting_that_was_changed(meddler: Meddler) -> None:
    seen: list[bytes] = []
    with meddling(meddler, change_greeting=_keeping(seen)):
        Session(meddler, DATABASE, OWNER, DATA_KEY)
    for changed in _changes(seen[0])[:: 7 if len(seen[0]) > 100 else 1]:
        with pytest.raises((Tampered, Unavailable)):  # the latter if the key before it was changed
            meddler._enclave.greet(changed)


def test_a_greeting_that_was_changed_on_its_way(meddler: Meddler) -> None:
    """The first of its kind: its key is still there, so it is the greeting that is refused."""
    for at in range(32, 1000, 97):
        with (
            meddling(meddler, change_greeting=lambda sent, at=at: sent[:at] + bytes([sent[at] ^ 1]) + sent[at + 1 :]),
            pytest.raises(Tampered),
        ):
            Session(meddler, DATABASE, OWNER, DATA_KEY)


def test_a_greeting_of_another_enclave(store: FileStore, meddler: Meddler) -> None:
    other = TrustedEnclave(store)
    with meddling(meddler, change_key=lambda _: other.fresh_key()), pytest.raises(Unavailable):
        Session(meddler, DATABASE, OWNER, DATA_KEY)
    for key in (bytes(32), b"", bytes(31), os.urandom(33)):
        with meddling(meddler, change_key=lambda _, key=key: key), pytest.raises(ScumbleError):
            Session(meddler, DATABASE, OWNER, DATA_KEY)


def test_a_replayed_greeting_is_refused(meddler: Meddler) -> None:
    """The key that it was sealed to opened it once: no provider can have the enclave open it again."""
    seen: list[bytes] = []
    with meddling(meddler, change_greeting=_keeping(seen)):
        session = Session(meddler, DATABASE, OWNER, DATA_KEY)
    _create(session)
    _open(session)
    for _ in range(2):
        with pytest.raises(Unavailable, match="was used"):
            meddler._enclave.greet(seen[0])
    assert _open(session) == 1


def test_a_recorded_session_cannot_be_opened_with_all_that_the_process_still_holds(meddler: Meddler) -> None:
    """The provider keeps every byte, and breaks into the enclave when the session has ended."""
    seen: list[bytes] = []
    before = {each.private_bytes_raw() for each in private_keys()}
    with meddling(meddler, change_greeting=_keeping(seen)):
        session = Session(meddler, DATABASE, OWNER, DATA_KEY)
    _create(session)
    session.close()
    greeting = seen[0]
    left = [each for each in private_keys() if each.private_bytes_raw() not in before]
    assert not [each for each in left if each.public_key().public_bytes_raw() == greeting[:32]]
    for each in private_keys():
        with pytest.raises(Tampered):
            open_greeting(each, greeting[32:])
    assert "0 waiting" in repr(meddler._enclave._keys)


def test_a_key_that_the_enclave_has_forgotten_is_replaced_by_another(meddler: Meddler) -> None:
    """An enclave that was started again, or asked for very many keys, between the evidence and the greeting."""
    forgotten = iter([bytes(31) + b"\x09", bytes(31) + b"\x07"])
    with meddling(meddler, change_key=lambda key: next(forgotten, key)):
        assert _create(Session(meddler, DATABASE, OWNER, DATA_KEY)) == 1


def test_a_replayed_session_changes_nothing(meddler: Meddler) -> None:
    """A whole recorded session, played again: no request that changes the database may be carried out twice."""
    seen: list[bytes] = []
    with meddling(meddler, change_greeting=_keeping(seen)):
        session = Session(meddler, DATABASE, OWNER, DATA_KEY)
    _create(session)
    version = _open(session)
    again = None
    try:
        again, _ = meddler._enclave.greet(seen[0])
        for _, sealed in list(meddler.requests):
            meddler._enclave.request(again, sealed)
    except (Tampered, Unavailable):
        pass
    assert _open(Session(meddler, DATABASE, OWNER, DATA_KEY)) == version


def test_no_nonce_is_used_for_two_answers(meddler: Meddler) -> None:
    """A replayed greeting must not make the enclave seal two different answers under one key and nonce."""
    seen: list[bytes] = []
    with meddling(meddler, change_greeting=_keeping(seen)):
        session = Session(meddler, DATABASE, OWNER, DATA_KEY)
    _create(session)  # done the first time, refused the second: two texts, one nonce
    first = meddler.answers[0]
    try:
        again, _ = meddler._enclave.greet(seen[0])
        second = meddler._enclave.request(again, meddler.requests[0][1])
    except (Tampered, Unavailable):
        return
    assert second == first, "two answers under one key and nonce: their difference, and the GCM key, are the provider's"


def test_an_answer_before_the_request_arrived(session: Session, meddler: Meddler) -> None:
    for forged in (b"", bytes(16), os.urandom(40)):
        with meddling(meddler, change_answer=lambda _, forged=forged: forged), pytest.raises(Tampered):
            _open(session)


def test_what_the_enclave_refuses_comes_as_the_same_error() -> None:
    for error in (Busy("a", hint="b"), NotFound("c"), Tampered(), InvalidParameter("d", hint="e")):
        with pytest.raises(type(error)) as caught:
            opened_answer(refusal(error))
        assert (caught.value.message, caught.value.hint) == (error.message, error.hint)


def test_an_error_that_nobody_foresaw_tells_its_type_alone() -> None:
    with pytest.raises(ScumbleError) as caught:
        opened_answer(refusal(ValueError("the value 4711 of row 3")))
    assert "ValueError" in str(caught.value)
    assert "4711" not in str(caught.value)
    assert bytes(opened_answer(done(b"x"))) == b"x"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        b"J",
        b"Jx",
        b"J{}",
        b'J{"task":"none"}',
        b'J{"task":"open"}',
        b"X",
        b"X" + bytes(9),
        b"X" + bytes(16),
        b"R",
        b"Q",
    ],
)
def test_requests_that_make_no_sense(session: Session, request_bytes: bytes) -> None:
    """From the owner itself, who has the key; still no way to bring the enclave down."""
    with pytest.raises(InvalidParameter):
        session._exchange(request_bytes)
    assert _open(session) == 1


def test_a_session_that_was_left(session: Session) -> None:
    session.close()
    with pytest.raises(InvalidParameter):
        _open(session)


def test_no_key_in_a_repr(session: Session) -> None:
    channel = Channel(*Channel.fresh_keys())
    assert repr(channel) == "Channel(<secret>)"
    assert DATA_KEY.hex() not in repr(session)


def test_a_greeting_opens_with_its_own_key_only() -> None:
    key = X25519PrivateKey.generate()
    greeting = Greeting(DATABASE, bytes(32), bytes(32), DATA_KEY, OWNER.public_key().public_bytes_raw())
    sealed = seal_greeting(key.public_key().public_bytes_raw(), greeting, OWNER)
    assert open_greeting(key, sealed) == greeting
    with pytest.raises(Tampered):
        open_greeting(X25519PrivateKey.generate(), sealed)
