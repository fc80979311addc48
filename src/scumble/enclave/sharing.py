"""How enclave processes of one provider hand each other the databases that their owners have unlocked.

An enclave that takes the place of a dead one knows no keys. Another one hands it what it holds, once each has proved to
the other to be the same code on the same kind of machine:

    giver, taker    challenge   a nonce each
    taker           evidence    for the giver's nonce, with a fresh key
    giver           share       verifies the taker; evidence for the taker's nonce, with a fresh key, and the vault,
                                sealed under a key that only these two can derive, once
    taker           adopt       verifies the giver, and opens it

The front carries the messages; it can open none and, which matters as much, make none: else it would choose the key
under which an analyst's database is read and written. SECRET.
"""

import os
import threading

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from scumble import attestation
from scumble.attestation import Evidence, Policy
from scumble.enclave.fresh_keys import KEY_BYTES, FreshKeys
from scumble.enclave.versions import Vault
from scumble.errors import Tampered

__all__ = ["Sharing"]

NONCE_BYTES = 32
LENGTH_BYTES = 4
MOST_CHALLENGES = 64

_PURPOSE = b"scumble shared vault v3"
_ONLY_NONCE = bytes(12)  # every key seals one message


class Sharing:
    """SECRET: evidence for fresh keys, and the vault that is handed over."""

    def __init__(self, keys: FreshKeys, vault: Vault, producer: attestation.Producer) -> None:
        self._keys, self._vault, self._producer = keys, vault, producer
        self._challenges: dict[bytes, None] = {}
        self._turn = threading.Lock()

    def evidence(self, nonce: bytes) -> bytes:
        """A fresh key, and evidence for this nonce that this code has made it: for a client's greeting, or a giver."""
        return self._shown(self._keys.make(), nonce)

    def challenge(self) -> bytes:
        """A nonce for another enclave's evidence."""
        nonce = os.urandom(NONCE_BYTES)
        with self._turn:
            if len(self._challenges) >= MOST_CHALLENGES:
                self._challenges.clear()
            self._challenges[nonce] = None
        return nonce

    def share(self, asked: bytes) -> bytes:
        """All that is unlocked, for an enclave that shows evidence for one of our nonces; Tampered for any other.

        `asked` is our nonce, the taker's, and what its `evidence` gave. What is given begins with the length of our own
        evidence, and that.
        """
        ours, theirs, shown = asked[:NONCE_BYTES], asked[NONCE_BYTES:][:NONCE_BYTES], asked[2 * NONCE_BYTES :]
        taker = self._verified(ours, shown)
        private_key = X25519PrivateKey.generate()
        giver = private_key.public_key().public_bytes_raw()
        cipher = _cipher(private_key, taker, ours + theirs, giver + taker)
        by_us = self._shown(giver, theirs)
        sealed = cipher.encrypt(_ONLY_NONCE, self._vault.export(), None)
        return len(by_us).to_bytes(LENGTH_BYTES, "little") + by_us + sealed

    def adopt(self, given: bytes) -> None:
        """Take over what an enclave has shared that shows evidence for one of our nonces; Tampered from any other.

        `given` is our nonce, the giver's, the fresh key that our `evidence` showed it, and what its `share` gave.
        """
        ours, theirs, rest = given[:NONCE_BYTES], given[NONCE_BYTES:][:NONCE_BYTES], given[2 * NONCE_BYTES :]
        taker, rest = rest[:KEY_BYTES], rest[KEY_BYTES:]
        end = LENGTH_BYTES + int.from_bytes(rest[:LENGTH_BYTES], "little")
        giver = self._verified(ours, rest[LENGTH_BYTES:end])
        cipher = _cipher(self._keys.take(taker), giver, theirs + ours, giver + taker)
        try:
            vault = cipher.decrypt(_ONLY_NONCE, rest[end:], None)
        except InvalidTag:
            raise Tampered from None
        self._vault.adopt(vault)

    def _shown(self, public_key: bytes, nonce: bytes) -> bytes:
        return public_key + self._producer.evidence(attestation.report_data(public_key, nonce)).to_bytes()

    def _verified(self, nonce: bytes, shown: bytes) -> bytes:
        """The key of an enclave that has answered one of our nonces, each once, with evidence of our own code."""
        with self._turn:
            if nonce not in self._challenges:
                raise Tampered
            del self._challenges[nonce]
        key, peer = shown[:KEY_BYTES], Evidence.from_bytes(shown[KEY_BYTES:])
        if peer.kind != self._producer.kind:
            raise Tampered
        policy = Policy(measurements=frozenset([self._producer.measurement]), allow_simulated=peer.kind == "simulated")
        attestation.verify(peer, report_data=attestation.report_data(key, nonce), policy=policy)
        return key


def _cipher(private_key: X25519PrivateKey, peer: bytes, nonces: bytes, keys: bytes) -> AESGCM:
    """Seals one vault: a secret of two fresh keys, and the nonces and keys of both, the giver's first."""
    try:
        secret = private_key.exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError:  # not a public key
        raise Tampered from None
    return AESGCM(HKDF(SHA256(), 32, nonces, _PURPOSE + keys).derive(secret))
