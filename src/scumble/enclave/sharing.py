"""How enclave processes of one provider hand each other the databases that their owners have unlocked.

An enclave that takes the place of a dead one knows no keys. Another one hands it what it holds, once each has proved to
the other to be the same code on the same kind of machine:

    giver, taker    challenge   a nonce each
    giver, taker    evidence    for the other's nonce
    giver           share       verifies the taker; the vault, sealed under a key that only these two can derive
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
from scumble.enclave.versions import Vault
from scumble.errors import Tampered

__all__ = ["Sharing"]

NONCE_BYTES = 32
KEY_BYTES = 32
LENGTH_BYTES = 4
MOST_CHALLENGES = 64

_PURPOSE = b"scumble shared vault v2"
_ONLY_NONCE = bytes(12)  # every key seals one message


class Sharing:
    """SECRET: the process's key pair, evidence of it, and the vault that is handed over."""

    def __init__(self, private_key: X25519PrivateKey, vault: Vault, producer: attestation.Producer) -> None:
        self._private_key, self._vault, self._producer = private_key, vault, producer
        self._public_key = private_key.public_key().public_bytes_raw()
        self._challenges: dict[bytes, None] = {}
        self._turn = threading.Lock()

    def evidence(self, nonce: bytes) -> bytes:
        """The public key, and evidence for this nonce that this code has made it."""
        evidence = self._producer.evidence(attestation.report_data(self._public_key, nonce))
        return self._public_key + evidence.to_bytes()

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

        `asked` is our nonce, the taker's, and what its `evidence` gave.
        """
        ours, theirs, shown = asked[:NONCE_BYTES], asked[NONCE_BYTES:][:NONCE_BYTES], asked[2 * NONCE_BYTES :]
        taker = self._verified(ours, shown)
        return self._cipher(taker, ours, theirs, self._public_key + taker).encrypt(
            _ONLY_NONCE, self._vault.export(), None
        )

    def adopt(self, given: bytes) -> None:
        """Take over what an enclave has shared that shows evidence for one of our nonces; Tampered from any other.

        `given` is our nonce, the giver's, the length of what its `evidence` gave and that, and what its `share` gave.
        """
        ours, theirs, rest = given[:NONCE_BYTES], given[NONCE_BYTES:][:NONCE_BYTES], given[2 * NONCE_BYTES :]
        end = LENGTH_BYTES + int.from_bytes(rest[:LENGTH_BYTES], "little")
        giver = self._verified(ours, rest[LENGTH_BYTES:end])
        try:
            vault = self._cipher(giver, theirs, ours, giver + self._public_key).decrypt(_ONLY_NONCE, rest[end:], None)
        except InvalidTag:
            raise Tampered from None
        self._vault.adopt(vault)

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

    def _cipher(self, peer: bytes, givers: bytes, takers: bytes, both: bytes) -> AESGCM:
        """Seals one vault, from the giver to the taker: the secret of their two keys, and the nonces of both."""
        try:
            secret = self._private_key.exchange(X25519PublicKey.from_public_bytes(peer))
        except ValueError:  # not a public key
            raise Tampered from None
        return AESGCM(HKDF(SHA256(), 32, givers + takers, _PURPOSE + both).derive(secret))
