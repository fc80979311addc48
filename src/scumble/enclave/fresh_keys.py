"""Key pairs that an enclave makes for one attestation each, and forgets with the greeting or the hand-over they serve.

A public key goes out with the evidence that binds it, and what is sealed to that key can be opened once. So a process
holds no key that opens an earlier session: who breaks into it later, and has recorded everything, reads nothing of what
was said before. SECRET: the private halves, which never leave this table but to be used up.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from scumble.errors import Unavailable

__all__ = ["KEY_BYTES", "LIFETIME_SECONDS", "MOST_KEYS", "FreshKeys"]

KEY_BYTES = 32
MOST_KEYS = 10_000
"""Anybody may ask for evidence: the oldest keys go first, long after an honest client has used its own."""
LIFETIME_SECONDS = 60.0


class FreshKeys:
    """SECRET: the private keys that wait for what is sealed to them, by public key. Threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: OrderedDict[bytes, tuple[float, X25519PrivateKey]] = OrderedDict()
        self._turn = threading.Lock()

    def make(self) -> bytes:
        """Make a key pair, and return its public half."""
        private_key = X25519PrivateKey.generate()
        public_key = private_key.public_key().public_bytes_raw()
        with self._turn:
            self._drop_old(MOST_KEYS - 1)
            self._waiting[public_key] = self._clock(), private_key
        return public_key

    def use_up(self, public_key: bytes) -> X25519PrivateKey:
        """The private half of a public key, which nobody gets a second time; Unavailable if there is none left."""
        with self._turn:
            self._drop_old(MOST_KEYS)
            _, private_key = self._waiting.pop(bytes(public_key), (0.0, None))
        if private_key is None:
            raise Unavailable("this key of the enclave's was used, or is too old", hint="connect again")
        return private_key

    def drop_old(self) -> None:
        """Forget the keys that have waited for too long; a process that nobody asks has to do it by itself."""
        with self._turn:
            self._drop_old(MOST_KEYS)

    def __len__(self) -> int:
        return len(self._waiting)

    def __repr__(self) -> str:
        return f"<FreshKeys: {len(self)} waiting>"

    def _drop_old(self, most: int) -> None:
        """Forget what has waited for too long, and the oldest beyond so many; the caller has the turn."""
        oldest = self._clock() - LIFETIME_SECONDS
        while self._waiting:
            made, _ = next(iter(self._waiting.values()))
            if made >= oldest and len(self._waiting) <= most:
                return
            self._waiting.popitem(last=False)
