"""What enclaves tell each other: each only to its like, and the front can neither read nor make it."""

import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from alive import private_keys
from hand_over import Carried, Code
from scumble.attestation import Policy, report_data
from scumble.attestation.policy_document import SignedPolicy
from scumble.enclave.fresh_keys import FreshKeys
from scumble.enclave.grants import AccessList
from scumble.enclave.manifests import Manifest
from scumble.enclave.sharing import MOST_CHALLENGES, NONCE_BYTES, Sharing
from scumble.enclave.vault import Vault
from scumble.errors import AttestationRefused, ScumbleError, Tampered, Unavailable
from scumble.wire.catalog import Catalog

DATABASE, DATA_KEY, HASH = "0a" * 16, bytes(range(100, 132)), "cd" * 32
OWNER = bytes(range(32))


class Member:
    """An enclave as far as it shares: with or without something unlocked."""

    def __init__(self, code: Code | None = None, *, unlocked: bool = False) -> None:
        self.vault, self.keys = Vault(), FreshKeys()
        if unlocked:
            self.unlock(5)
        self.sharing = Sharing(self.keys, self.vault, code or Code())

    def unlock(self, version: int) -> None:
        self.vault.remember(
            DATABASE, DATA_KEY, Manifest(Catalog(DATABASE, version, "", ()), HASH, {}, AccessList(OWNER))
        )


def _shared(giver: Member, taker: Member) -> Carried:
    return Carried.between(giver, taker).share(giver)


def _knows(member: Member) -> bool:
    known = member.vault.get(DATABASE)
    return known is not None and known.data_key == DATA_KEY


def test_what_one_has_unlocked_the_other_has_too() -> None:
    giver, taker = Member(unlocked=True), Member()
    taker.sharing.adopt(_shared(giver, taker).given)
    assert _knows(taker)
    assert taker.vault.get(DATABASE) is not None


def test_nothing_that_the_front_carries_has_the_key_in_it() -> None:
    giver, taker = Member(unlocked=True), Member()
    carried = _shared(giver, taker)
    for text in (DATA_KEY, DATA_KEY.hex().encode(), DATABASE.encode(), HASH.encode()):
        assert text not in carried.asked + carried.given


def test_two_shares_of_the_same_have_nothing_in_common() -> None:
    giver, taker = Member(unlocked=True), Member()
    one, two = _shared(giver, taker).sealed, _shared(giver, taker).sealed
    assert len(one) == len(two)
    assert sum(a == b for a, b in zip(one, two, strict=True)) < len(one) / 8


def test_a_share_for_one_is_nothing_to_another() -> None:
    giver, taker, third = Member(unlocked=True), Member(), Member()
    carried = _shared(giver, taker)
    carried.takers = third.sharing.challenge()
    carried.by_giver = giver.sharing.evidence(carried.takers)
    for key in (carried.by_taker, third.sharing.evidence(carried.givers)):
        carried.by_taker = key
        with pytest.raises((Tampered, Unavailable)):
            third.sharing.adopt(carried.given)
        carried.takers = third.sharing.challenge()
        carried.by_giver = giver.sharing.evidence(carried.takers)
    assert not _knows(third)


def test_a_share_counts_once() -> None:
    giver, taker = Member(unlocked=True), Member()
    carried = _shared(giver, taker)
    with pytest.raises(Tampered):
        giver.sharing.share(carried.asked)
    taker.sharing.adopt(carried.given)
    with pytest.raises(Tampered):
        taker.sharing.adopt(carried.given)
    carried.takers = taker.sharing.challenge()
    carried.by_giver = giver.sharing.evidence(carried.takers)
    with pytest.raises(Unavailable):  # the key that it was sealed to is gone
        taker.sharing.adopt(carried.given)


def test_no_key_of_a_hand_over_outlives_it() -> None:
    """Who has recorded what the front carried, and breaks into both enclaves later, cannot open it."""
    giver, taker = Member(unlocked=True), Member()
    carried = _shared(giver, taker)
    assert len(giver.keys) == 0
    taker.sharing.adopt(carried.given)
    assert len(taker.keys) == 0
    shown = {carried.by_giver[:32], carried.by_taker[:32]}
    alive = {each.public_key().public_bytes_raw() for each in private_keys()}
    assert not shown & alive


def _refused(
    giver: Member, taker: Member, error: type[ScumbleError], asked: dict[str, bytes], given: dict[str, bytes]
) -> None:
    """Each refuses what the front carries to it with some of its parts replaced."""
    with pytest.raises(error):
        giver.sharing.share(replace(Carried.between(giver, taker), **asked).asked)
    with pytest.raises(error):
        taker.sharing.adopt(replace(_shared(giver, taker), **given).given)


@pytest.mark.parametrize("nonce", [bytes(NONCE_BYTES), b"", bytes(range(NONCE_BYTES))])
def test_a_nonce_that_is_not_ours_is_refused(nonce: bytes) -> None:
    giver, taker = Member(unlocked=True), Member()
    _refused(giver, taker, Tampered, {"givers": nonce}, {"takers": nonce})
    assert not _knows(taker)


def test_evidence_for_another_nonce_is_refused() -> None:
    giver, taker = Member(unlocked=True), Member()
    by_taker = taker.sharing.evidence(giver.sharing.challenge())
    by_giver = giver.sharing.evidence(taker.sharing.challenge())
    _refused(giver, taker, AttestationRefused, {"by_taker": by_taker}, {"by_giver": by_giver})
    assert not _knows(taker)


def test_another_key_under_good_evidence_is_refused() -> None:
    giver, taker, mallory = Member(unlocked=True), Member(), X25519PrivateKey.generate().public_key().public_bytes_raw()
    carried = Carried.between(giver, taker)
    carried.by_taker = mallory + carried.by_taker[32:]
    with pytest.raises(AttestationRefused):
        giver.sharing.share(carried.asked)
    carried = _shared(giver, taker)
    carried.by_giver = mallory + carried.by_giver[32:]
    with pytest.raises(AttestationRefused):
        taker.sharing.adopt(carried.given)


@pytest.mark.parametrize("other", [Code("ab" * 32), Code(kind="tdx"), Code(kind="sgx"), Code(kind="sev-snp")])
def test_other_code_and_other_kinds_get_nothing_and_give_nothing(other: Code) -> None:
    ours, theirs = Member(unlocked=True), Member(other, unlocked=True)
    with pytest.raises((AttestationRefused, Tampered)):
        ours.sharing.share(Carried.between(ours, theirs).asked)
    carried = Carried.between(theirs, taker := Member())
    carried.sealed = os.urandom(200)
    with pytest.raises((AttestationRefused, Tampered)):
        taker.sharing.adopt(carried.given)
    assert not _knows(taker)


def test_what_the_front_makes_itself_is_refused() -> None:
    """Whoever could put a key of its own into an enclave would read what analysts load, and answer them as it likes."""
    taker, honest = Member(), Member()
    forged = json.dumps({DATABASE: [bytes(32).hex(), 1 << 40, HASH]}).encode()
    public_key = X25519PublicKey.from_public_bytes(taker.sharing.evidence(bytes(32))[:32])
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
    for purpose in (b"scumble shared vault v1", b"scumble shared vault v2"):
        sealed = suite.encrypt(forged, public_key, purpose)
        carried = Carried.between(honest, taker)  # an honest enclave gives evidence to everybody
        carried.sealed = sealed
        for given in (carried.given, sealed):
            with pytest.raises(ScumbleError):
                taker.sharing.adopt(given)
    assert taker.vault.get(DATABASE) is None


def test_evidence_that_anybody_can_ask_for_vouches_for_no_share() -> None:
    """The front may ask an honest enclave for evidence with any nonce, such as a hash of what it would like to send."""
    taker, honest = Member(), Member()
    carried = _shared(honest, taker)
    carried.sealed = forged = os.urandom(len(carried.sealed))
    carried.by_giver = honest.sharing.evidence(sha256(carried.takers + forged).digest())
    with pytest.raises(AttestationRefused):
        taker.sharing.adopt(carried.given)


@pytest.mark.parametrize("at", [0, 40, 70, 100, 200, 250, -20, -1])
def test_a_changed_bit_is_refused(at: int) -> None:
    giver, taker = Member(unlocked=True), Member()
    given = bytearray(_shared(giver, taker).given)
    given[at] ^= 1
    with pytest.raises(ScumbleError):
        taker.sharing.adopt(bytes(given))
    assert not _knows(taker)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 63, 64, 67, 68, 100])
def test_a_message_that_is_cut_is_refused(size: int) -> None:
    giver, taker = Member(unlocked=True), Member()
    carried = _shared(giver, taker)
    for call, message in (
        (taker.sharing.adopt, carried.given),
        (giver.sharing.share, Carried.between(giver, taker).asked),
    ):
        with pytest.raises(ScumbleError):
            call(message[:size])


def test_a_key_that_nobody_can_have_is_refused() -> None:
    giver, zero = Member(unlocked=True), bytes(32)
    givers = giver.sharing.challenge()
    shown = zero + Code().evidence(report_data(zero, givers)).to_bytes()
    with pytest.raises(Tampered):
        giver.sharing.share(givers + bytes(32) + shown)


def test_nonces_that_nobody_answers_are_forgotten_some_time() -> None:
    giver, taker = Member(unlocked=True), Member()
    for _ in range(3 * MOST_CHALLENGES):
        giver.sharing.challenge()
    taker.sharing.adopt(_shared(giver, taker).given)
    assert _knows(taker)


def test_a_newer_version_is_not_forgotten_for_an_older_one() -> None:
    giver, taker = Member(unlocked=True), Member()
    taker.unlock(6)
    taker.sharing.adopt(_shared(giver, taker).given)
    known = taker.vault.get(DATABASE)
    assert known is not None
    assert known.version == 6


def test_nonces_are_good_until_there_are_too_many() -> None:
    for more, good in ((MOST_CHALLENGES - 1, True), (MOST_CHALLENGES, False)):
        giver, taker = Member(unlocked=True), Member()
        carried = Carried.between(giver, taker)
        for _ in range(more):
            giver.sharing.challenge()
        if good:
            carried.share(giver)
        else:
            with pytest.raises(Tampered):
                carried.share(giver)


@pytest.mark.parametrize("kind", ["tdx", "sgx", "sev-snp"])
def test_evidence_of_another_kind_is_not_even_looked_at(kind: str) -> None:
    ours, theirs = Member(unlocked=True), Member(Code(kind=kind))
    with pytest.raises(Tampered):
        ours.sharing.share(Carried.between(ours, theirs).asked)


def test_what_is_shared_is_sealed_as_it_is_written_down() -> None:
    """By hand: a key from the secret of both keys, salted with the giver's nonce and the taker's."""
    giver, private_key = Member(unlocked=True), X25519PrivateKey.generate()
    ours, theirs = giver.sharing.challenge(), os.urandom(NONCE_BYTES)
    taker = private_key.public_key().public_bytes_raw()
    shared = giver.sharing.share(ours + theirs + taker + Code().evidence(report_data(taker, ours)).to_bytes())
    end = 4 + int.from_bytes(shared[:4], "little")
    by_giver, sealed = shared[4:end], shared[end:]
    assert by_giver[32:] == Code().evidence(report_data(by_giver[:32], theirs)).to_bytes()
    secret = private_key.exchange(X25519PublicKey.from_public_bytes(by_giver[:32]))
    key = HKDF(SHA256(), 32, ours + theirs, b"scumble shared vault v3" + by_giver[:32] + taker).derive(secret)
    assert json.loads(AESGCM(key).decrypt(bytes(12), sealed, None))[DATABASE][0] == DATA_KEY.hex()


# --- owners' policies --------------------------------------------------------------------------------

KEY, MALLORY = (Ed25519PrivateKey.from_private_bytes(bytes([place] * 32)) for place in (1, 2))
SIMULATED, REAL = Policy(allow_simulated=True), Policy()


def _under(terms: Policy, database: str = DATABASE, key: Ed25519PrivateKey = KEY) -> bytes:
    return SignedPolicy.sign(terms, database, 1, datetime(2026, 1, 1, tzinfo=UTC), key).to_bytes()


def _holding(*policies: bytes) -> Member:
    """With a database for each policy: their ids end in 0, 1, ..."""
    member = Member()
    for place, policy in enumerate(policies):
        access = AccessList(KEY.public_key().public_bytes_raw(), policy=policy)
        database = DATABASE[:-1] + str(place)
        member.vault.remember(database, DATA_KEY, Manifest(Catalog(database, 1, "", ()), HASH, {}, access))
    return member


def _taken(giver: Member) -> list[int]:
    """Which of the databases an enclave of the same code gets."""
    taker = Member()
    taker.sharing.adopt(_shared(giver, taker).given)
    return [place for place in range(4) if taker.vault.get(DATABASE[:-1] + str(place)) is not None]


def test_a_database_goes_where_its_owner_s_policy_admits_it() -> None:
    first, second, third = (DATABASE[:-1] + str(place) for place in range(3))
    assert _taken(_holding()) == []
    assert _taken(_holding(b"", _under(SIMULATED, second))) == [0, 1]
    assert _taken(_holding(_under(SIMULATED, first), _under(REAL, second), b"")) == [0, 2]
    strange = _under(SIMULATED, third, MALLORY), _under(SIMULATED, first)  # another's, and for another database
    assert _taken(_holding(_under(SIMULATED, first), b"", *strange)) == [0, 1]


def test_an_enclave_that_no_policy_admits_is_told_why() -> None:
    first, second = (DATABASE[:-1] + str(place) for place in range(2))
    giver = _holding(_under(REAL, first), _under(Policy(measurements=frozenset(["ab"])), second))
    with pytest.raises(AttestationRefused):
        _shared(giver, Member())
    assert _taken(_holding(_under(REAL, first, MALLORY))) == []  # nobody's policy was asked


def test_a_taker_holds_what_it_is_given_against_the_policies_itself() -> None:
    """A giver that admits everybody gives it a database that its owner would not have taken from there."""
    giver = _holding(_under(REAL, DATABASE[:-1] + "0"), b"")
    export = giver.vault.export
    giver.vault.export = lambda admits: export()  # type: ignore[method-assign, misc, assignment]
    assert _taken(giver) == [1]
