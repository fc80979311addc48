"""Which databases an enclave hands to which other, on hardware of a maker of our own: each by its owner's policy."""

from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import partial

import intel_pki
import pytest
from amd_pki import CHIP, DAY, MEASUREMENT, NOW, TCB, Maker, report, tcb_bytes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hand_over import Carried, Code
from scumble.attestation import Evidence, Policy, Producer, Tcb, dcap, snp
from scumble.attestation.policy_document import SignedPolicy
from scumble.enclave.fresh_keys import FreshKeys
from scumble.enclave.grants import AccessList
from scumble.enclave.manifests import Manifest
from scumble.enclave.sharing import Sharing
from scumble.enclave.vault import Unlocked, Vault
from scumble.errors import AttestationRefused, ScumbleError, Tampered
from scumble.wire.catalog import Catalog

OWNER, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([place] * 32)) for place in (1, 2))
PLAIN, STRICT, LAX = "0a" * 16, "0b" * 16, "0c" * 16
HASH = "cd" * 32
OLD = Tcb()
MILAN, TURIN = Maker("Milan"), Maker("Turin")


@dataclass
class Chip:
    """A producer of SEV-SNP evidence at any firmware level."""

    tcb: Tcb = TCB
    maker: Maker = MILAN
    changes: dict[int, bytes] | None = None
    crl: bytes | None = None
    kind: str = "sev-snp"
    measurement: str = MEASUREMENT.hex()

    def evidence(self, stated: bytes) -> Evidence:
        made = report(self.maker.product, tcb=self.tcb, changes={0x50: stated, **(self.changes or {})})
        extras = {} if self.crl is None else {"crl": self.crl}
        return self.maker.evidence(made, self.maker.vcek(self.tcb), **extras)


@dataclass
class Intel:
    """A producer of TDX or SGX evidence."""

    kind: str
    status: str = "UpToDate"
    measurement: str = ""

    def evidence(self, stated: bytes) -> Evidence:
        return intel_pki.evidence(self.kind, intel_pki.quote(self.kind, data=stated), status=self.status)


class Member:
    """An enclave as far as it shares."""

    def __init__(self, producer: Producer, clock: datetime = NOW) -> None:
        self.vault, self.keys, self.clock = Vault(), FreshKeys(), clock
        self.sharing = Sharing(self.keys, self.vault, producer, lambda: self.clock)

    def unlock(self, database: str, policy: bytes = b"") -> None:
        owner = OWNER.public_key().public_bytes_raw()
        access = AccessList(owner, policy=policy)
        self.vault.remember(database, bytes(32), Manifest(Catalog(database, 1, "", ()), HASH, {}, access))

    @property
    def knows(self) -> set[str]:
        return {name for name in (PLAIN, STRICT, LAX) if self.vault.get(name) is not None}


@pytest.fixture(autouse=True)
def _our_makers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own authorities in the place of AMD's and Intel's."""
    roots = MILAN.roots | TURIN.roots
    monkeypatch.setattr(snp, "authenticated", partial(snp.authenticated, roots=roots))
    monkeypatch.setattr(dcap, "authenticated", partial(dcap.authenticated, root=intel_pki.root()))


def signed(
    terms: Policy, database: str = STRICT, *, now: datetime = NOW, key: Ed25519PrivateKey = OWNER, serial: int = 1
) -> bytes:
    return SignedPolicy.sign(terms, database, serial, now, key).to_bytes()


def handed(giver: Member, taker: Member) -> set[str]:
    """What the taker knows after a hand-over, whether it is refused or not."""
    with suppress(ScumbleError):
        taker.sharing.adopt(Carried.between(giver, taker).share(giver).given)
    return taker.knows


# --- without a policy ------------------------------------------------------------------------------


def test_like_enclaves_hand_over() -> None:
    giver, taker = Member(Chip()), Member(Chip())
    giver.unlock(PLAIN)
    assert handed(giver, taker) == {PLAIN}


def test_a_peer_at_no_firmware_level_at_all_gets_nothing() -> None:
    """Under the default policy of release 0.1 it got every tenant's key."""
    giver, taker = Member(Chip()), Member(Chip(OLD))
    giver.unlock(PLAIN)
    giver.unlock(STRICT, signed(Policy(floors=(("Milan", TCB),))))
    with pytest.raises(AttestationRefused, match="older than the policy allows"):
        Carried.between(giver, taker).share(giver)
    assert handed(giver, taker) == set()


@pytest.mark.parametrize("part", [each.name for each in fields(Tcb)])
def test_a_peer_below_the_giver_in_one_component_gets_nothing(part: str) -> None:
    level = Tcb(bootloader=3, tee=3, snp=3, microcode=3, fmc=3)
    giver = Member(Chip(level, TURIN))
    giver.unlock(PLAIN)
    below, above = replace(level, **{part: 2}), replace(level, **{part: 4})
    assert handed(giver, Member(Chip(below, TURIN))) == set()
    assert handed(giver, Member(Chip(level, TURIN))) == {PLAIN}
    taker = Member(Chip(above, TURIN))
    given = Carried.between(giver, taker).share(giver).given
    with pytest.raises(AttestationRefused, match="older"):  # and what is better takes nothing from what is worse
        taker.sharing.adopt(given)


def test_a_peer_that_was_launched_under_older_firmware_gets_nothing() -> None:
    giver = Member(Chip())
    giver.unlock(PLAIN)
    launched = Chip(changes={0x1F0: tcb_bytes("Milan", OLD)})
    assert handed(giver, Member(launched)) == set()


@pytest.mark.parametrize(
    "worse", [{0x30: b"\x01"}, {0x08: (0x70000).to_bytes(8, "little")}, {0x08: (0xB0000).to_bytes(8, "little")}]
)
def test_a_peer_with_less_protection_gets_nothing(worse: dict[int, bytes]) -> None:
    giver = Member(Chip())
    giver.unlock(PLAIN)
    assert handed(giver, Member(Chip(changes=worse))) == set()


def test_a_peer_whose_host_reads_ciphertext_gets_nothing_from_one_whose_host_does_not() -> None:
    level = replace(TCB, fmc=2)
    giver = Member(Chip(level, TURIN, {0x40: b"\x10"}))
    giver.unlock(PLAIN)
    assert handed(giver, Member(Chip(level, TURIN))) == set()
    assert handed(giver, Member(Chip(level, TURIN, {0x40: b"\x10"}))) == {PLAIN}


@pytest.mark.parametrize("kind", ["tdx", "sgx"])
def test_intels_platforms_hand_over_to_their_like(kind: str) -> None:
    giver, taker, worse = Member(Intel(kind)), Member(Intel(kind)), Member(Intel(kind, "OutOfDate"))
    giver.unlock(PLAIN)
    assert handed(giver, taker) == {PLAIN}
    assert handed(giver, worse) == set()


@pytest.mark.parametrize("kind", ["sgx", "tdx", "sev-snp", "simulated"])
@pytest.mark.parametrize("other", ["sgx", "tdx", "sev-snp", "simulated"])
def test_a_peer_of_another_kind_is_refused_for_that_alone(kind: str, other: str) -> None:
    """Simulated evidence may state any measurement, that of a real enclave among them."""
    sizes = {"sgx": intel_pki.MRENCLAVE.hex()}
    producers: dict[str, Producer] = {
        "sgx": Intel("sgx"),
        "tdx": Intel("tdx"),
        "sev-snp": Chip(),
        "simulated": Code(sizes.get(kind, sizes["sgx"])),
    }
    ours, theirs = Member(producers[kind]), Member(producers[other])
    ours.unlock(PLAIN)
    theirs.unlock(LAX)
    if kind == other:
        assert handed(ours, theirs) == {PLAIN, LAX}
        return
    with pytest.raises(Tampered):
        ours.sharing.share(Carried.between(ours, theirs).asked)
    carried = Carried.between(theirs, ours)
    carried.by_giver, carried.sealed = theirs.sharing.evidence(carried.takers), bytes(64)
    with pytest.raises(Tampered):
        ours.sharing.adopt(carried.given)


# --- with a policy -----------------------------------------------------------------------------------


def test_each_database_goes_where_its_own_policy_lets_it() -> None:
    giver, taker = Member(Chip()), Member(Chip())
    giver.unlock(PLAIN)
    giver.unlock(STRICT, signed(Policy(floors=(("Milan", replace(TCB, snp=TCB.snp + 1)),))))
    giver.unlock(LAX, signed(Policy(floors=(("Milan", OLD),)), LAX))
    assert handed(giver, taker) == {PLAIN, LAX}


def test_a_giver_hands_what_its_owner_allows_to_older_firmware_which_a_better_taker_would_not_take() -> None:
    giver, taker = Member(Chip()), Member(Chip(OLD))
    giver.unlock(PLAIN)
    giver.unlock(LAX, signed(Policy(floors=(("Milan", OLD),)), LAX))
    assert handed(giver, taker) == {LAX}
    back = Member(Chip())
    assert handed(taker, back) == set()


@pytest.mark.parametrize(
    "terms",
    [
        Policy(chips=frozenset({"ab" * 64})),
        Policy(kinds=frozenset({"tdx"})),
        Policy(measurements=frozenset({"ab" * 48})),
        Policy(require_crl=True),
        Policy(ciphertext_hiding="required"),
        Policy(minimum_tcb=replace(TCB, snp=TCB.snp + 1)),
        Policy(floors=(("Turin", OLD),)),
    ],
    ids=range(7),
)
def test_a_term_that_the_peer_does_not_meet_keeps_that_database(terms: Policy) -> None:
    giver, taker = Member(Chip()), Member(Chip())
    giver.unlock(PLAIN)
    giver.unlock(STRICT, signed(terms))
    assert handed(giver, taker) == {PLAIN}


def test_a_term_that_the_peer_meets_lets_it_through() -> None:
    terms = Policy(chips=frozenset({CHIP.hex()}), require_crl=True, maximum_age_days=2, floors=(("Milan", TCB),))
    giver, taker = Member(Chip(crl=MILAN.crl())), Member(Chip(crl=MILAN.crl()))
    giver.unlock(STRICT, signed(terms))
    assert handed(giver, taker) == {STRICT}


@pytest.mark.parametrize(
    "policy",
    [
        signed(Policy(), key=OTHER),
        signed(Policy(), LAX),
        signed(Policy())[:-1],
        b"nothing",
    ],
)
def test_a_policy_that_the_owner_did_not_sign_lets_nothing_through(policy: bytes) -> None:
    giver, taker = Member(Chip()), Member(Chip())
    giver.unlock(PLAIN)
    giver.unlock(STRICT, policy)
    assert handed(giver, taker) == {PLAIN}


def test_a_taker_holds_the_giver_against_each_policy_too() -> None:
    """The giver's code is ours, but its hardware may be broken: then nothing that it should not have counts."""
    giver, taker = Member(Chip()), Member(Chip())
    for database, terms in ((STRICT, Policy(chips=frozenset({"ab" * 64}))), (LAX, Policy())):
        giver.unlock(database, signed(terms, database))
    giver.unlock(PLAIN)
    export = giver.vault.export

    def everything(admits: object) -> bytes:
        del admits
        return export(lambda database, known: True)

    giver.vault.export = everything  # type: ignore[method-assign, assignment]
    assert handed(giver, taker) == {PLAIN, LAX}


# --- the host's clock ------------------------------------------------------------------------------


def test_a_clock_that_is_set_back_revives_no_list_that_had_expired_when_the_policy_was_signed() -> None:
    expired = MILAN.crl(start=NOW - DAY, end=NOW - DAY / 2)
    back = NOW - 3 * DAY / 4
    for policy, got in ((b"", {STRICT}), (signed(Policy(require_crl=True)), set())):
        giver, taker = Member(Chip(crl=expired), back), Member(Chip(crl=expired), back)
        giver.unlock(STRICT, policy)
        assert handed(giver, taker) == got


def test_a_clock_that_stands_still_is_as_good_as_the_signing_and_no_better() -> None:
    """What docs/attestation.md says: a list is accepted that expired since, and none that had expired before."""
    listed = MILAN.crl(end=NOW + DAY / 2)
    giver, taker = Member(Chip(crl=listed)), Member(Chip(crl=listed))
    giver.unlock(STRICT, signed(Policy(require_crl=True)))
    assert handed(giver, taker) == {STRICT}
    later = signed(Policy(require_crl=True), now=NOW + 3 * DAY / 4, serial=2)
    giver, taker = Member(Chip(crl=listed)), Member(Chip(crl=listed))
    giver.unlock(STRICT, later)
    assert handed(giver, taker) == set()


def test_what_is_unlocked_shows_no_key() -> None:
    assert "data_key" not in repr(Unlocked(b"k" * 32, AccessList(b"o" * 32), 0, 1, HASH))
