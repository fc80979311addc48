"""The enclave: sealed greetings and requests come in, sealed answers go out; nothing else crosses.

It has a key pair. Whoever wants a session seals to it keys for its requests and for the answers, signed; an owner
sends the data key along. From then on every request is opened under the first and answered under the second. Several
threads may bring requests: those of one session take their turns. SECRET: the keys, and all that is opened.
"""

import os
import threading
from typing import ClassVar

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from scumble.enclave.versions import Vault
from scumble.enclave.work import Work
from scumble.errors import InvalidParameter
from scumble.wire.channel import SALT_BYTES, Channel, done, open_greeting, padded, refusal
from scumble.wire.storage import Storage

__all__ = ["TrustedEnclave"]


class _Session:
    """SECRET: one session's channel and work; whoever holds `turn` may use them."""

    __slots__ = ("channel", "turn", "work")

    def __init__(self, channel: Channel, work: Work) -> None:
        self.channel, self.work = channel, work
        self.turn = threading.Lock()


class TrustedEnclave:
    """What the provider runs and cannot look into. Several of one process may share a key pair and a vault."""

    work: ClassVar[type[Work]] = Work

    def __init__(
        self, storage: Storage, private_key: X25519PrivateKey | None = None, vault: Vault | None = None
    ) -> None:
        self._storage = storage
        self._private_key = X25519PrivateKey.generate() if private_key is None else private_key
        self._vault = Vault() if vault is None else vault
        self._sessions: dict[int, _Session] = {}
        self._last_session = 0
        self._turn = threading.Lock()

    @property
    def public_key(self) -> bytes:
        """The key that greetings are sealed to."""
        return self._private_key.public_key().public_bytes_raw()

    def greet(self, sealed: bytes) -> tuple[int, bytes]:
        """Open a session for whoever has signed the greeting; what that one may do, the version it opens will tell."""
        greeting = open_greeting(self._private_key, sealed)
        salt = os.urandom(SALT_BYTES)
        channel = Channel.derived(greeting.request_key, greeting.answer_key, salt)
        session = _Session(channel, self.work(self._storage, self._vault, greeting))
        with self._turn:
            self._last_session += 1
            number = self._last_session
            self._sessions[number] = session
        return number, salt + channel.seal_answer(padded(done(b"{}")))

    def request(self, session: int, sealed: bytes | memoryview) -> bytes:
        """Answer one request."""
        known = self._sessions.get(session)
        if known is None:
            raise InvalidParameter("there is no such session", hint="open the database again")
        with known.turn:
            request = memoryview(known.channel.open_request(sealed))
            try:
                answer = known.work.answer(request)
            except Exception as error:
                answer = refusal(error)
            return known.channel.seal_answer(answer)

    def may_write(self, session: int) -> bool:
        """Whether a session may hold the database for writing: strangers must not keep others from it."""
        known = self._sessions.get(session)
        return known is not None and known.work.may_write

    def leave(self, session: int) -> None:
        """Forget a session and its keys."""
        self._sessions.pop(session, None)
