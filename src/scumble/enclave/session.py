"""The enclave: sealed greetings and requests come in, sealed answers go out; nothing else crosses.

It makes a key pair when it starts. An owner seals to it the database's data key, a key for its requests and one for the
answers; from then on every request is opened under the first and answered under the second. SECRET: the keys, and
everything opened.
"""

import os

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from scumble.boundary.session import SALT_BYTES, Channel, done, open_greeting, refusal
from scumble.boundary.storage import Storage
from scumble.enclave.keys import DataKeys
from scumble.enclave.work import Work
from scumble.errors import InvalidParameter

__all__ = ["TrustedEnclave"]


class TrustedEnclave:
    """What the provider runs and cannot look into."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._private_key = X25519PrivateKey.generate()
        self._sessions: dict[int, tuple[Channel, Work]] = {}
        self._last_session = 0

    @property
    def public_key(self) -> bytes:
        """The key that owners seal their greeting to."""
        return self._private_key.public_key().public_bytes_raw()

    def greet(self, sealed: bytes) -> tuple[int, bytes]:
        """Open a session for whoever knows the data key."""
        greeting = open_greeting(self._private_key, sealed)
        salt = os.urandom(SALT_BYTES)
        channel = Channel.derived(bytes.fromhex(greeting["request_key"]), bytes.fromhex(greeting["answer_key"]), salt)
        keys = DataKeys(bytes.fromhex(greeting["data_key"]), greeting["database"])
        self._last_session += 1
        self._sessions[self._last_session] = channel, Work(self._storage, keys, greeting["database"])
        return self._last_session, salt + channel.seal_answer(done(b"{}"))

    def request(self, session: int, sealed: bytes | memoryview) -> bytes:
        """Answer one request."""
        if session not in self._sessions:
            raise InvalidParameter("there is no such session", hint="open the database again")
        channel, work = self._sessions[session]
        request = memoryview(channel.open_request(sealed))
        try:
            return channel.seal_answer(done(work.answer(request)))
        except Exception as error:
            return channel.seal_answer(refusal(error))

    def leave(self, session: int) -> None:
        """Forget a session and its keys."""
        self._sessions.pop(session, None)
