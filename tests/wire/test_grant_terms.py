"""Grants: which tables somebody may read or load into, for how much, and what the owner signs of that."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from scumble.errors import InvalidParameter
from scumble.wire.grants import Grant, Right, parse_public_key, public_text

READ: frozenset[Right] = frozenset(["read"])
LOAD: frozenset[Right] = frozenset(["load"])
BOTH = READ | LOAD
DATABASE = "0a" * 20
OWNER = Ed25519PrivateKey.from_private_bytes(bytes(32))
GRANT = Grant("0" * 16, "ada", b"k" * 32, {"visits": BOTH, "Beds": READ}, Fraction(1, 2), Fraction(1, 100))


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ".ada"},
        {"id": "0" * 15},
        {"id": "G" * 16},
        {"public_key": b"k" * 31},
        {"public_key": b"k" * 33},
        {"tables": {f"t{place}": READ for place in range(257)}},
        {"tables": {"t": READ, "u": frozenset()}},
        {"tables": {"t": READ, "u": frozenset(["read", "write"])}},
        {"epsilon": Fraction(-1, 1000)},
        {"delta": Fraction(-1, 1000)},
        {"used_epsilon": Fraction(-1, 1000)},
        {"used_delta": Fraction(-1, 1000)},
        {"delta": Fraction(1)},
        {"delta": Fraction(3, 2)},
    ],
)
def test_a_grant_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        replace(GRANT, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"tables": {f"t{place}": READ for place in range(256)}},
        {"tables": {"t": READ, "u": BOTH}},
        {"epsilon": Fraction(0)},
        {"epsilon": Fraction(2), "used_epsilon": Fraction(1)},
        {"delta": Fraction(999, 1000), "used_delta": Fraction(1, 1000)},
    ],
)
def test_a_grant_at_its_limits_is_read_as_it_was_written(fields: dict[str, Any]) -> None:
    grant = replace(GRANT, **fields, gone=frozenset(["beds"]), salt=b"salt", signature=b"signed")
    assert Grant.from_json(grant.to_json()) == grant


def test_a_grant_is_for_nothing_unless_it_says_so() -> None:
    grant = Grant("0" * 16, "ada", b"k" * 32, {"t": READ})
    assert [grant.epsilon, grant.delta, grant.used_epsilon, grant.used_delta] == [Fraction(0)] * 4


def test_a_grant_gives_the_rights_it_names_to_tables_that_are_there() -> None:
    tables = "visits", "VISITS", "beds", "Beds", "others"
    assert [GRANT.names(table) for table in tables] == [True, True, True, True, False]
    assert [GRANT.may("read", table) for table in tables] == [True, True, True, True, False]
    assert [GRANT.may("load", table) for table in tables] == [True, True, False, False, False]
    dropped = replace(GRANT, gone=frozenset(["visits"]))
    assert [dropped.names(table) for table in tables] == [False, False, True, True, False]
    assert [dropped.may("read", table) for table in tables] == [False, False, True, True, False]
    assert not dropped.may("load", "visits")


def test_the_owner_signs_who_may_do_what_for_how_much() -> None:
    """What was used and which tables are gone changes under the same signature; nothing else does."""
    owner, signed = OWNER.public_key().public_bytes_raw(), GRANT.signed(DATABASE, OWNER)
    assert len(signed.salt) == 16
    assert signed.salt != GRANT.signed(DATABASE, OWNER).salt
    assert signed.certificate().is_by(owner, DATABASE)
    assert not signed.certificate().is_by(owner, "0b" * 20)
    used: dict[str, Any] = {"used_epsilon": Fraction(1, 4), "used_delta": Fraction(1, 200), "gone": frozenset(["beds"])}
    assert replace(signed, **used).certificate().is_by(owner, DATABASE)
    changes: list[dict[str, Any]] = [
        {"id": "1" * 16},
        {"name": "bob"},
        {"public_key": b"j" * 32},
        {"tables": {"visits": BOTH, "beds": BOTH}},
        {"tables": {"visits": BOTH}},
        {"epsilon": Fraction(1)},
        {"delta": Fraction(1, 10)},
        {"salt": bytes(16)},
        {"signature": bytes(64)},
    ]
    for change in changes:
        assert not replace(signed, **change).certificate().is_by(owner, DATABASE)


def test_what_is_signed_of_a_grant_stays_the_same() -> None:
    """Grants there are were signed so, whatever the order of their tables."""
    salted = replace(GRANT, salt=bytes(16))
    turned = replace(salted, tables=dict(reversed([*salted.tables.items()])))
    terms = "c2c0f1a9c07f2ba6"
    assert [grant.certificate().terms.hex()[:16] for grant in (salted, turned)] == [terms, terms]


def test_a_public_key_as_text_stays_the_same() -> None:
    text = "scumble16b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6bbf3ca505"
    assert public_text(b"k" * 32) == text
    assert parse_public_key(f" {text.upper()}\n") == b"k" * 32
    for changed in (text[:-1], text + "0", text[1:], text[:-1] + "x", text.replace("6b", "6c", 1), ""):
        with pytest.raises(InvalidParameter):
            parse_public_key(changed)
