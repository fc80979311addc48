"""What a client and the enclave seal for each other, how long it is, and that both sides mean the same bytes."""

import json
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from scumble.errors import BadQuery, Locked, Refused, ScumbleError, Tampered
from scumble.wire.channel import (
    QUERY_BYTES,
    SALT_BYTES,
    SMALL_BYTES,
    Channel,
    Greeting,
    done,
    executed,
    executed_bytes,
    is_signed,
    open_greeting,
    opened_answer,
    padded,
    refusal,
    seal_greeting,
    signed_parts,
)

KEYS = b"r" * 32, b"a" * 32, b"s" * 32
SIGNER = Ed25519PrivateKey.from_private_bytes(bytes(32))
ENCLAVE = X25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = ENCLAVE.public_key().public_bytes_raw()
GREETING = Greeting("0a" * 16, KEYS[0], KEYS[1], b"d" * 32, SIGNER.public_key().public_bytes_raw())


def _pair() -> tuple[Channel, Channel]:
    return Channel.derived(*KEYS), Channel.derived(*KEYS)


# --- a session ---------------------------------------------------------------------------------------


def test_a_session_is_sealed_as_it_always_was() -> None:
    """An enclave and a client of two releases have to agree on every byte."""
    channel = Channel.derived(*KEYS)
    sealed = [channel.seal_request(b"first"), channel.seal_answer(b"first"), channel.seal_request(b"second")]
    assert [each.hex()[:16] for each in sealed] == ["ab529098097c6dd4", "2871c29f82b137e1", "c01040b13b0be348"]
    assert [len(key) for key in Channel.fresh_keys()] == [32, 32]


def test_requests_and_answers_open_in_their_order_once() -> None:
    client, enclave = _pair()
    first, second = client.seal_request(b"1"), client.seal_request(b"2")
    with pytest.raises(Tampered):
        enclave.open_request(second)
    assert enclave.open_request(first) == b"1"  # what failed to open was not counted
    with pytest.raises(Tampered):
        enclave.open_request(first)
    with pytest.raises(Tampered):
        client.open_answer(enclave.seal_answer(b"to the first"))
    assert enclave.open_request(second) == b"2"
    assert client.open_answer(enclave.seal_answer(b"to the second")) == b"to the second"


def test_a_request_is_no_answer_and_another_session_opens_neither() -> None:
    same = Channel(KEYS[0], KEYS[0])
    with pytest.raises(Tampered):
        same.open_answer(same.seal_request(b"1"))
    client, enclave = _pair()
    for other in (Channel.derived(KEYS[0], KEYS[1], b"t" * 32), Channel.derived(KEYS[1], KEYS[0], KEYS[2])):
        with pytest.raises(Tampered):
            other.open_request(client.seal_request(b"1"))
        with pytest.raises(Tampered):
            other.open_answer(enclave.seal_answer(b"1"))


def test_lengths_that_both_sides_and_the_docs_name_stay_the_same() -> None:
    """docs/service.md says how large a request may be; the salt stands before what is sealed in the first answer."""
    assert (SMALL_BYTES, QUERY_BYTES, SALT_BYTES) == (65_536, 4_194_304, 32)


# --- greetings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("data_key", [None, b"d" * 32])
def test_a_greeting_that_is_made_by_its_description_opens(data_key: bytes | None) -> None:
    """Written here once more: the label, the order of what is signed, and the lengths before each part."""
    label = b"scumble greeting v2"
    greeting = replace(GREETING, data_key=data_key)
    parts = label, PUBLIC, b"0a" * 16, KEYS[0], KEYS[1], data_key or b"", greeting.signer
    signed = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    fields = {
        "database": greeting.database,
        "request_key": KEYS[0].hex(),
        "answer_key": KEYS[1].hex(),
        "data_key": None if data_key is None else data_key.hex(),
        "signer": greeting.signer.hex(),
        "signature": SIGNER.sign(signed).hex(),
    }
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
    receiver = X25519PublicKey.from_public_bytes(PUBLIC)
    assert open_greeting(ENCLAVE, suite.encrypt(json.dumps(fields).encode(), receiver, label)) == greeting
    assert json.loads(suite.decrypt(seal_greeting(PUBLIC, greeting, SIGNER), ENCLAVE, label)) == fields


def test_greetings_have_1024_bytes_besides_what_seals_them() -> None:
    assert len(seal_greeting(PUBLIC, GREETING, SIGNER)) == 1024 + 32 + 16


def test_a_key_of_another_length_is_not_greeted() -> None:
    with pytest.raises(Tampered):
        seal_greeting(PUBLIC[1:], GREETING, SIGNER)


def test_no_session_key_in_a_repr() -> None:
    assert not any(repr(key) in repr(GREETING) for key in (GREETING.request_key, GREETING.answer_key, b"d" * 32))


def test_a_signature_is_over_parts_that_cannot_be_shifted() -> None:
    assert signed_parts(b"ab", b"") == b"\2\0\0\0ab\0\0\0\0"
    signature = SIGNER.sign(b"text")
    assert is_signed(GREETING.signer, signature, b"text")
    assert not is_signed(GREETING.signer, signature, b"text?")
    assert not is_signed(GREETING.signer[1:], signature, b"text")
    assert not is_signed(GREETING.signer, signature[1:], b"text")


# --- answers and refusals ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text_bytes", "least", "length"),
    [(0, 0, 0), (1, 0, 256), (256, 0, 256), (257, 0, 512), (1, 256, 256), (1, 257, 512)],
)
def test_text_is_padded_to_a_multiple(text_bytes: int, least: int, length: int) -> None:
    assert len(padded(b"x" * text_bytes, least)) == length
    assert padded(b"x" * text_bytes, least).rstrip(b" ") == b"x" * text_bytes


def test_text_is_padded_for_no_least_length_by_default() -> None:
    assert padded(b"") == b""


@pytest.mark.parametrize(
    ("answer_bytes", "length"), [(0, 256), (1, 256), (253, 256), (254, 257), (255, 256), (256, 257), (999, 1000)]
)
def test_an_execution_is_answered_at_a_length_that_is_known_before(answer_bytes: int, length: int) -> None:
    answer = bytes(range(1, 254)) * 4
    answer = answer[:answer_bytes]
    assert len(executed(answer)) == executed_bytes(answer_bytes) == length
    assert bytes(opened_answer(executed(answer))) == answer


@pytest.mark.parametrize("answer", [b"", b"\1answer", b"\2"])
def test_an_answer_that_is_no_refusal_is_read_whole(answer: bytes) -> None:
    assert len(done(answer)) == 1 + len(answer)
    assert bytes(opened_answer(done(answer))) == answer


def test_a_refusal_is_raised_as_what_it_was() -> None:
    for error in (BadQuery("there is no such table", hint="look"), ScumbleError("no")):
        for size in (None, 256):
            with pytest.raises(type(error)) as raised:
                opened_answer(refusal(error, size))
            assert (raised.value.message, raised.value.hint) == (error.message, error.hint)


@pytest.mark.parametrize("error", [Tampered(), Refused(), Locked()])
def test_a_silent_refusal_stays_silent(error: ScumbleError) -> None:
    with pytest.raises(type(error)) as raised:
        opened_answer(refusal(error))
    assert raised.value.message == error.message


def test_of_an_unforeseen_error_only_the_type_is_told() -> None:
    with pytest.raises(ScumbleError, match="the enclave failed: KeyError") as raised:
        opened_answer(refusal(KeyError("a value")))
    assert "a value" not in str(raised.value)
    assert b"a value" not in refusal(KeyError("a value"))


def test_refusals_have_the_length_that_is_asked_for_or_a_multiple_of_512() -> None:
    error = BadQuery("x", hint="y")
    exact = len(refusal(error).rstrip(b" "))
    assert len(refusal(error)) == 512
    assert len(refusal(BadQuery("x" * 512))) == 1024
    assert refusal(error, exact) == refusal(error).rstrip(b" ")
    long = BadQuery("x" * 512, hint="y" * 512)
    assert len(refusal(long, 256)) == 256
    with pytest.raises(BadQuery, match="the enclave refuses this") as raised:
        opened_answer(refusal(long, 256))
    assert raised.value.hint is None
