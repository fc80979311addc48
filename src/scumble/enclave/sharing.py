"""How enclave processes of one provider hand each other the databases that their owners have unlocked.

An enclave that takes the place of a dead one knows no keys. Another one hands it what it holds, once each has proved to
the other to be the same code on the same kind of machine, and of that the databases whose owners' policies admit it:

    giver, taker    challenge   a nonce each
    taker           evidence    for the giver's nonce, with a fresh key
    giver           share       verifies the taker; evidence for the taker's nonce, with a fresh key, and the vault,
                                sealed under a key that only these two can derive, once
    taker           adopt       verifies the giver, and opens it

The front carries the messages; it can open none and, which matters as much, make none: else it would choose the key
under which an analyst's database is read and written. SECRET.
"""

import hmac
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from scumble import attestation
from scumble.attestation import Evidence, Policy, Verdict
from scumble.attestation.policy_document import SignedPolicy
from scumble.enclave.fresh_keys import KEY_BYTES, FreshKeys
from scumble.enclave.vault import Unlocked, Vault
from scumble.errors import AttestationRefused, Tampered

__all__ = ["Sharing"]

NONCE_BYTES = 32
LENGTH_BYTES = 4
MOST_CHALLENGES = 64

_PURPOSE = b"scumble shared vault v3"
_ONLY_NONCE = bytes(12)  # every key seals one message


class Sharing:
    """SECRET: evidence for fresh keys, and the vault that is handed over.

    The clock is the host's, and says which certificates and lists are still valid; for a database with a policy it is
    never taken to be earlier than when that was signed.
    """

    def __init__(
        self,
        keys: FreshKeys,
        vault: Vault,
        producer: attestation.Producer,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._keys, self._vault, self._producer, self._clock = keys, vault, producer, clock
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
        """What is unlocked and admits an enclave that shows evidence for one of our nonces; nothing for any other.

        `asked` is our nonce, the taker's, and what its `evidence` gave. What is given begins with the length of our own
        evidence, and that.
        """
        ours, theirs, shown = asked[:NONCE_BYTES], asked[NONCE_BYTES:][:NONCE_BYTES], asked[2 * NONCE_BYTES :]
        taker = self._met(ours, shown)
        vault = self._vault.export(taker.admitted)
        taker.check_some()
        private_key = X25519PrivateKey.generate()
        giver = private_key.public_key().public_bytes_raw()
        cipher = _cipher(private_key, taker.key, ours + theirs, giver + taker.key)
        by_us = self._shown(giver, theirs)
        return len(by_us).to_bytes(LENGTH_BYTES, "little") + by_us + cipher.encrypt(_ONLY_NONCE, vault, None)

    def adopt(self, given: bytes) -> None:
        """Take over what an enclave has shared that shows evidence for one of our nonces; nothing from any other.

        `given` is our nonce, the giver's, the fresh key that our `evidence` showed it, and what its `share` gave. A
        giver that is worse than this enclave gives nothing, whatever the policies say that it brings along.
        """
        ours, theirs, rest = given[:NONCE_BYTES], given[NONCE_BYTES:][:NONCE_BYTES], given[2 * NONCE_BYTES :]
        taker, rest = rest[:KEY_BYTES], rest[KEY_BYTES:]
        end = LENGTH_BYTES + int.from_bytes(rest[:LENGTH_BYTES], "little")
        giver = self._met(ours, rest[LENGTH_BYTES:end])
        giver.check(giver.like_us, self._clock())
        cipher = _cipher(self._keys.use_up(taker), giver.key, theirs + ours, giver.key + taker)
        try:
            vault = cipher.decrypt(_ONLY_NONCE, rest[end:], None)
        except InvalidTag:
            raise Tampered from None
        self._vault.adopt(vault, giver.admitted)

    def _shown(self, public_key: bytes, nonce: bytes) -> bytes:
        return public_key + self._producer.evidence(attestation.report_data(public_key, nonce)).to_bytes()

    def _met(self, nonce: bytes, shown: bytes) -> "_Peer":
        """An enclave that has answered one of our nonces, each once, with genuine evidence of our own code and kind."""
        with self._turn:
            if nonce not in self._challenges:
                raise Tampered
            del self._challenges[nonce]
        key, evidence = shown[:KEY_BYTES], Evidence.from_bytes(shown[KEY_BYTES:])
        if evidence.kind != self._producer.kind:
            raise Tampered
        return _Peer(key, evidence, attestation.report_data(key, nonce), self._own(), self._clock)

    def _own(self) -> Verdict:
        """What our own evidence says of us now."""
        unused = bytes(attestation.REPORT_DATA_BYTES)
        return attestation.authenticated(self._producer.evidence(unused), report_data=unused, now=self._clock())


class _Peer:
    """Another enclave, and which databases may be handed to it, or taken from it."""

    def __init__(
        self, key: bytes, evidence: Evidence, report_data: bytes, own: Verdict, clock: Callable[[], datetime]
    ) -> None:
        self.key = key
        self.like_us = Policy.shown_by(own)
        """What holds for a database without a policy: the same kind, and nothing worse than this enclave."""
        self._evidence, self._report_data, self._clock = evidence, report_data, clock
        self._verdicts: dict[datetime, Verdict] = {}
        self._refusals: dict[tuple[Policy, datetime], AttestationRefused | None] = {}
        self._now = clock()
        verdict = self._verdict(self._now)
        if not hmac.compare_digest(verdict.measurement, own.measurement):
            raise AttestationRefused("the other enclave runs other code", hint="start all enclaves from one release")

    def admitted(self, database: str, known: Unlocked) -> bool:
        """Whether a database's policy, signed by the owner that is known, admits this peer."""
        policy, now = self.like_us, self._now
        if known.policy:
            try:
                signed = SignedPolicy.read(known.policy, database, known.owner)
            except Tampered:
                return False
            policy, now = signed.terms, signed.moment(now)
        if (policy, now) not in self._refusals:
            try:
                self._refusals[policy, now] = None
                self.check(policy, now)
            except AttestationRefused as refused:
                self._refusals[policy, now] = refused
        return self._refusals[policy, now] is None

    def check(self, policy: Policy, now: datetime) -> None:
        """Refuse a peer that does not meet a policy at this time."""
        policy.check(self._verdict(now), now)

    def check_some(self) -> None:
        """Refuse a peer that was held against policies, and met none of them."""
        refusals = list(self._refusals.values())
        if refusals and None not in refusals:
            raise next(each for each in refusals if each is not None)

    def _verdict(self, now: datetime) -> Verdict:
        """What the peer's evidence says, if its maker vouches for it at this time; worked out once for each."""
        if now not in self._verdicts:
            self._verdicts[now] = attestation.authenticated(self._evidence, report_data=self._report_data, now=now)
        return self._verdicts[now]


def _cipher(private_key: X25519PrivateKey, peer: bytes, nonces: bytes, keys: bytes) -> AESGCM:
    """Seals one vault: a secret of two fresh keys, and the nonces and keys of both, the giver's first."""
    try:
        secret = private_key.exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError:  # not a public key
        raise Tampered from None
    return AESGCM(HKDF(SHA256(), 32, nonces, _PURPOSE + keys).derive(secret))
