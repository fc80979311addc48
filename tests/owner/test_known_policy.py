"""The owner's policy as the holder of a key remembers it: only a newer one of the owner's takes its place."""

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from scumble.attestation.policy import Policy, Verdict
from scumble.attestation.policy_document import MOST_POLICY_BYTES, SignedPolicy
from scumble.errors import AttestationRefused, FileError, InvalidParameter, Tampered
from scumble.owner.key_file import canonical
from scumble.owner.keys import AnalystKey, Key, OwnerKey
from scumble.owner.policies import (
    NEW,
    Policies,
    check_lowered,
    first_policy,
    given_policy,
    new_terms,
    next_policy,
)

DATABASE = "0a" * 16
OWNER, OTHER = (OwnerKey(DATABASE, bytes([place]) * 32) for place in (1, 2))
ADA = AnalystKey(DATABASE, bytes([3]) * 32)
PUBLIC = OWNER.public_key()
NOW = datetime(2026, 1, 1, tzinfo=UTC)
STRICT = Policy(kinds=frozenset(["sev-snp"]))


def document(serial: int, terms: Policy = STRICT, key: OwnerKey = OWNER, database: str = DATABASE) -> bytes:
    return SignedPolicy.sign(terms, database, serial, NOW, key.signing_key()).to_bytes()


@pytest.fixture
def policies(tmp_path: Path) -> Policies:
    return Policies(tmp_path / "clinic.key")


def serial(policies: Policies, key: Key = OWNER) -> int | None:
    known = policies.known(key)
    return None if known is None else known.serial


@pytest.mark.parametrize(("key", "name"), [(OWNER, "clinic.policy"), (ADA, f"clinic.{DATABASE}.policy")])
def test_a_policy_is_kept_beside_the_key(policies: Policies, tmp_path: Path, key: Key, name: str) -> None:
    assert policies.known(key) is None
    policies.learn(key, document(1), PUBLIC)
    assert policies.known(key) == SignedPolicy.parse(document(1))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_only_a_newer_policy_takes_the_place_of_the_known_one(policies: Policies) -> None:
    policies.learn(OWNER, document(2), PUBLIC)
    policies.learn(OWNER, document(2), PUBLIC)
    policies.learn(OWNER, document(1, Policy()), PUBLIC)
    assert policies.known(OWNER) == SignedPolicy.parse(document(2))
    with pytest.raises(Tampered):
        policies.learn(OWNER, document(2, Policy()), PUBLIC)
    assert policies.known(OWNER) == SignedPolicy.parse(document(2))
    policies.learn(OWNER, document(3, Policy()), PUBLIC)
    assert policies.known(OWNER) == SignedPolicy.parse(document(3, Policy()))


@pytest.mark.parametrize("data", [document(3, key=OTHER), document(3, database="0b" * 16), b"", document(3)[:-1]])
def test_a_policy_that_the_owner_did_not_sign_for_this_database_is_refused(policies: Policies, data: bytes) -> None:
    policies.learn(OWNER, document(2), PUBLIC)
    with pytest.raises(Tampered):
        policies.learn(OWNER, data, PUBLIC)
    assert serial(policies) == 2


def test_an_enclave_that_does_not_meet_a_newer_policy_keeps_it_from_being_learned(tmp_path: Path) -> None:
    held: list[int] = []

    def require(signed: SignedPolicy) -> None:
        held.append(signed.serial)
        if signed.serial == 3:
            raise AttestationRefused("it does not meet it", hint="another")

    policies = Policies(tmp_path / "clinic.key", require)
    for number in (1, 2, 2, 1):
        policies.learn(OWNER, document(number), PUBLIC)
    assert held == [1, 2]
    with pytest.raises(AttestationRefused):
        policies.learn(OWNER, document(3), PUBLIC)
    assert serial(policies) == 2
    with pytest.raises(AttestationRefused):
        policies.hold(SignedPolicy.parse(document(3)))


def test_a_policy_is_believed_only_if_this_keys_holder_has_saved_it(policies: Policies, tmp_path: Path) -> None:
    policies.learn(OWNER, document(1), PUBLIC)
    path = tmp_path / "clinic.policy"
    content: dict[str, Any] = json.loads(path.read_bytes())
    with pytest.raises(Tampered):
        policies.known(OTHER)
    rekeyed = OwnerKey(DATABASE, OTHER.root, OWNER.root)  # a rekey that was cut short
    assert serial(policies, rekeyed) == 1
    changes: list[dict[str, Any]] = [
        {"policy": document(2).hex()},
        {"mac": "0" * 64},
        {"mac": "Ä"},
        {"mac": None},
        {"format": 2},
    ]
    for change in changes:
        path.write_bytes(canonical(content | change))
        with pytest.raises(Tampered):
            policies.known(OWNER)
    path.write_bytes(b"{}")
    with pytest.raises(Tampered):
        policies.known(OWNER)


def test_the_mac_of_a_policy_stays_the_same(policies: Policies, tmp_path: Path) -> None:
    """Else a later release would take the file for somebody else's."""
    policies.learn(OWNER, document(1), PUBLIC)
    content = json.loads((tmp_path / "clinic.policy").read_bytes())
    assert (content["format"], content["mac"][:16]) == (1, "fb027c8399b7fd54")


def test_a_policy_that_cannot_be_read_is_no_missing_one(policies: Policies, tmp_path: Path) -> None:
    (tmp_path / "clinic.policy").mkdir()
    with pytest.raises(FileError):
        policies.known(OWNER)


# --- terms -------------------------------------------------------------------------------------------


def test_a_given_policy_is_terms_or_a_file_of_either_kind(tmp_path: Path) -> None:
    terms, signed = tmp_path / "policy.toml", tmp_path / "signed"
    terms.write_text('kinds = ["sev-snp"]\n')
    signed.write_bytes(document(1))
    assert given_policy(STRICT) == given_policy(terms) == given_policy(str(terms)) == STRICT
    assert given_policy(signed) == given_policy(SignedPolicy.parse(document(1))) == SignedPolicy.parse(document(1))
    with pytest.raises(InvalidParameter):
        given_policy(5)
    with pytest.raises(FileError):
        given_policy(tmp_path / "none")
    short = len(document(1, Policy(allow_advisories=frozenset({"a"}))))
    longest = document(1, Policy(allow_advisories=frozenset({"a" * (MOST_POLICY_BYTES - short + 1)})))
    signed.write_bytes(longest)
    assert len(longest) == MOST_POLICY_BYTES
    assert given_policy(signed) == SignedPolicy.parse(longest)
    signed.write_bytes(longest + b" ")
    with pytest.raises(Tampered):
        given_policy(signed)


def test_each_policy_is_numbered_after_the_one_before() -> None:
    first = next_policy(STRICT, OWNER, None)
    assert (first.serial, first.terms) == (1, STRICT)
    assert first_policy(STRICT, OWNER).serial == 1
    following = next_policy(STRICT, OWNER, SignedPolicy.parse(document(7)))
    assert SignedPolicy.read(following.to_bytes(), DATABASE, PUBLIC).serial == 8
    late = replace(first, not_before=int((datetime.now(UTC) + timedelta(days=9)).timestamp()))
    assert next_policy(STRICT, OWNER, late).not_before == late.not_before


def test_terms_that_accept_more_have_to_be_meant() -> None:
    known = SignedPolicy.parse(document(1))
    check_lowered(known, STRICT, lower=False)
    for lower in (None, Policy(), replace(STRICT, allow_simulated=True)):
        with pytest.raises(InvalidParameter):
            check_lowered(known, lower, lower=False)
        check_lowered(known, lower, lower=True)
    with pytest.raises(InvalidParameter):
        next_policy(Policy(), OWNER, known)
    assert next_policy(Policy(), OWNER, known, lower=True).serial == 2


def test_the_first_terms_ask_for_what_the_enclave_shows() -> None:
    real, simulated = (Verdict(kind, "ab" * 48, os.urandom(64), {}) for kind in ("sev-snp", "simulated"))
    assert NEW.ciphertext_hiding == new_terms(None, real).ciphertext_hiding == "where available"
    assert new_terms(Policy(), real).ciphertext_hiding == "not required"
    assert new_terms(None, real).kinds == frozenset(["sev-snp"])
    assert not new_terms(Policy(allow_simulated=True), real).allow_simulated
    assert new_terms(None, simulated).allow_simulated
