"""Lines to the enclave: it opens sealed greetings and requests and seals its answers; nothing else crosses.

The enclave makes a key pair for each greeting. A client seals to it keys for its requests and for the answers, signed;
an owner sends the data key along. From then on every request is opened under the first and answered under the second.
SECRET: all that is opened.
"""

import os
import threading
from typing import ClassVar

from scumble.enclave.fresh_keys import KEY_BYTES as PUBLIC_KEY_BYTES
from scumble.enclave.fresh_keys import FreshKeys
from scumble.enclave.quotas import Signers
from scumble.enclave.sessions import EnclaveSession
from scumble.enclave.vault import Vault
from scumble.errors import Busy, InvalidParameter
from scumble.wire.channel import SALT_BYTES, SMALL_BYTES, Channel, done, open_greeting, padded, refusal
from scumble.wire.storage import Storage

__all__ = ["TrustedEnclave"]


class _Line:
    """SECRET: a session and its channel, which the holder of `turn` may use."""

    __slots__ = ("channel", "session", "turn")

    def __init__(self, channel: Channel, session: EnclaveSession) -> None:
        self.channel, self.session = channel, session
        self.turn = threading.Lock()


class TrustedEnclave:
    """What the provider runs and cannot look into. Several of one process may share fresh keys and a vault.

    Several threads may bring requests: those of one session take turns.
    """

    session_type: ClassVar[type[EnclaveSession]] = EnclaveSession

    def __init__(self, storage: Storage, keys: FreshKeys | None = None, vault: Vault | None = None) -> None:
        self._storage = storage
        self._keys = FreshKeys() if keys is None else keys
        self._vault = Vault() if vault is None else vault
        self._signers = Signers()
        self._lines: dict[int, _Line] = {}
        self._last_session = 0
        self._turn = threading.Lock()

    def fresh_key(self) -> bytes:
        """A new key that one greeting may be sealed to."""
        return self._keys.make()

    def greet(self, sealed: bytes) -> tuple[int, bytes]:
        """Open a session for the signer of the greeting; what it may do, the version that it opens will tell.

        The key that it is sealed to, which comes before it, is used up, whatever the greeting is.
        """
        greeting = open_greeting(self._keys.use_up(sealed[:PUBLIC_KEY_BYTES]), sealed[PUBLIC_KEY_BYTES:])
        salt = os.urandom(SALT_BYTES)
        channel = Channel.derived(greeting.request_key, greeting.answer_key, salt)
        try:
            session = self.session_type(self._storage, self._vault, greeting, self._signers)
        except Busy as error:  # sealed: how many sessions a key has is nobody else's business
            return 0, salt + channel.seal_answer(refusal(error))
        line = _Line(channel, session)
        with self._turn:
            self._last_session += 1
            number = self._last_session
            self._lines[number] = line
        return number, salt + channel.seal_answer(padded(done(b"{}")))

    def request(self, session: int, sealed: bytes | memoryview) -> bytes:
        line = self._lines.get(session)
        if line is None:
            raise InvalidParameter("there is no such session", hint="open the database again")
        if len(sealed) > line.session.most_bytes:
            raise InvalidParameter("the request is larger than its signer may send", hint="ask for less at a time")
        with line.turn:
            request = memoryview(line.channel.open_request(sealed))
            try:
                answer = line.session.answer(request)
            except Exception as error:
                answer = refusal(error)
            return line.channel.seal_answer(answer)

    def rank(self, session: int) -> int:
        """Of what use the right to write is to a session: nobody without rights may keep others from it."""
        line = self._lines.get(session)
        return 0 if line is None else line.session.rank

    def most_bytes(self, session: int) -> int:
        """How large a session's next request may be."""
        line = self._lines.get(session)
        return SMALL_BYTES if line is None else line.session.most_bytes

    def leave(self, session: int) -> None:
        line = self._lines.pop(session, None)
        if line is not None:
            self._signers.left(line.session)
