"""Anybody can send a greeting: only one that its signer made for this enclave and this database opens a session."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from enclave_tables import DATABASE, MemoryStorage
from hypothesis import given, settings
from hypothesis import strategies as st

from scumble.enclave.lines import TrustedEnclave
from scumble.errors import Tampered, Unavailable
from scumble.wire import channel as boundary
from scumble.wire.channel import Greeting, open_greeting, seal_greeting

ENCLAVE = X25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = ENCLAVE.public_key().public_bytes_raw()
SIGNER, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([place] * 32)) for place in (1, 2))
ANALYST = Greeting(DATABASE, b"r" * 32, b"a" * 32, None, SIGNER.public_key().public_bytes_raw())
OWNER = replace(ANALYST, data_key=b"d" * 32)


def _fields(sealed: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(boundary._SUITE.decrypt(sealed, ENCLAVE, boundary._GREETING))
    return fields


def _sealed(content: Any, key: bytes = PUBLIC) -> bytes:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    receiver = X25519PublicKey.from_public_bytes(key)
    return boundary._SUITE.encrypt(text, receiver, boundary._GREETING)


@pytest.mark.parametrize("greeting", [ANALYST, OWNER])
def test_a_greeting_comes_back(greeting: Greeting) -> None:
    assert open_greeting(ENCLAVE, seal_greeting(PUBLIC, greeting, SIGNER)) == greeting


def test_all_greetings_have_one_length() -> None:
    greetings = [ANALYST, OWNER, replace(OWNER, database="0" * 16), replace(ANALYST, database="f" * 64)]
    assert len({len(seal_greeting(PUBLIC, greeting, SIGNER)) for greeting in greetings}) == 1


def test_no_key_in_a_repr() -> None:
    assert "data_key" not in repr(OWNER)
    assert repr(b"d" * 32) not in repr(OWNER)


def test_a_signature_of_another_key_is_refused() -> None:
    with pytest.raises(Tampered):
        open_greeting(ENCLAVE, seal_greeting(PUBLIC, ANALYST, OTHER))


CHANGES: list[Callable[[dict[str, Any]], dict[str, Any]]] = [
    lambda fields: {**fields, "database": "0b" * 16},
    lambda fields: {**fields, "request_key": "00" * 32},
    lambda fields: {**fields, "answer_key": "00" * 32},
    lambda fields: {**fields, "data_key": "00" * 32},
    lambda fields: {**fields, "data_key": None},
    lambda fields: {**fields, "signer": OTHER.public_key().public_bytes_raw().hex()},
    lambda fields: {**fields, "signer": "00" * 32},
    lambda fields: {**fields, "signature": "00" * 64},
    lambda fields: {**fields, "request_key": fields["answer_key"], "answer_key": fields["request_key"]},
]


@pytest.mark.parametrize("change", CHANGES)
def test_no_field_can_be_changed_under_a_signature(change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """By anybody who can seal to the enclave, which everybody can."""
    fields = _fields(seal_greeting(PUBLIC, OWNER, SIGNER))
    assert open_greeting(ENCLAVE, _sealed(fields)) == OWNER
    with pytest.raises(Tampered):
        open_greeting(ENCLAVE, _sealed(change(fields)))


def test_a_greeting_to_one_enclave_is_worth_nothing_at_another() -> None:
    """An enclave that was given a greeting, a false one for example, cannot pass it on."""
    other = X25519PrivateKey.generate()
    fields = _fields(seal_greeting(PUBLIC, OWNER, SIGNER))
    with pytest.raises(Tampered):
        open_greeting(other, _sealed(fields, other.public_key().public_bytes_raw()))


@pytest.mark.parametrize("name", ["database", "request_key", "answer_key", "data_key", "signer", "signature"])
@pytest.mark.parametrize("value", [1, 1.5, True, [], {}, "", "00", "zz" * 32, "AB" * 32, " " * 64, "0" * 65, "\ud800"])
def test_fields_of_any_other_shape_are_refused(name: str, value: object) -> None:
    fields = _fields(seal_greeting(PUBLIC, OWNER, SIGNER))
    for changed in ({**fields, name: value}, {other: fields[other] for other in fields if other != name}):
        with pytest.raises(Tampered):
            open_greeting(ENCLAVE, _sealed(changed))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=70),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=6),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(content=st.binary(max_size=300) | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
def test_whatever_a_stranger_seals_is_refused_as_tampered(content: bytes) -> None:
    enclave = TrustedEnclave(MemoryStorage())
    with pytest.raises(Unavailable):
        enclave.greet(content)
    for is_sealed in (False, True):
        key = enclave.fresh_key()
        with pytest.raises(Tampered):
            enclave.greet(key + (_sealed(content, key) if is_sealed else content))


@pytest.mark.parametrize("content", [b"[" * 100_000, b"{}", b"null", b"1" * 5000, b'{"database":' * 10_000, b"\xff"])
def test_greetings_made_to_break_a_parser_are_refused(content: bytes) -> None:
    with pytest.raises(Tampered):
        open_greeting(ENCLAVE, _sealed(content))
