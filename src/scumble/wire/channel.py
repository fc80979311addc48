"""How a client and the enclave seal what they say to each other. The provider carries it, and sees lengths.

The client seals a greeting with HPKE to a public key that the enclave has made for it alone; in it are fresh keys for
its requests and for the answers, and a signature which binds both to this enclave, the database and the signer. Request
n is sealed under the first with nonce n, its answer under the second with nonce n: what is dropped, repeated, reordered
or taken from another session fails to open, and is Tampered. Lengths of answers and refusals depend on public facts
only.
"""

import json
import os
import re
import struct
from dataclasses import dataclass, field
from typing import Self

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from scumble import errors
from scumble.errors import Locked, Refused, ScumbleError, Tampered

SALT_BYTES = 32
PADDED_BYTES = 256
"""Requests and answers in JSON have a multiple of this length, and the answer to an execution has at least so much."""
SMALL_BYTES = 64 << 10
"""How large a request may be from somebody who has shown no right to anything, and one that need not be larger."""
QUERY_BYTES = 4 << 20
"""How large one may be from somebody who may only read."""
MOST_BYTES = 64 << 20
REFUSAL_BYTES = 512
GREETING_BYTES = 1024

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_GREETING = b"scumble greeting v2"
_DONE, _REFUSED, _SHORT = b"\0", b"\1", b"\2"
_LENGTH = struct.Struct("<H")
_SILENT = (Tampered, Refused, Locked)  # they say the same whatever was the reason

_KEY = re.compile("[0-9a-f]{64}")
_DATABASE = re.compile("[0-9a-f]{16,64}")
_SIGNATURE = re.compile("[0-9a-f]{128}")


@dataclass(frozen=True, slots=True)
class Greeting:
    """SECRET: who wants a session for which database, with which keys; only the owner sends the data key along."""

    database: str
    request_key: bytes = field(repr=False)
    answer_key: bytes = field(repr=False)
    data_key: bytes | None = field(repr=False)
    signer: bytes


class Channel:
    """SECRET: a session's ciphers and count. The owner seals requests and opens answers; the enclave, the reverse."""

    def __init__(self, request_key: bytes, answer_key: bytes) -> None:
        self._request, self._answer = AESGCM(request_key), AESGCM(answer_key)
        self._count = 0

    @classmethod
    def derived(cls, request_key: bytes, answer_key: bytes, salt: bytes) -> Self:
        """The channel of one session: with a salt of the enclave's, so that a greeting sent again makes another one."""
        keys = HKDF(SHA256(), 64, salt, b"scumble session v1").derive(request_key + answer_key)
        return cls(keys[:32], keys[32:])

    @classmethod
    def fresh_keys(cls) -> tuple[bytes, bytes]:
        return os.urandom(32), os.urandom(32)

    def seal_request(self, request: bytes | memoryview) -> bytes:
        self._count += 1
        return self._request.encrypt(self._nonce(), request, b"request")

    def open_request(self, sealed: bytes | memoryview) -> bytes:
        """The next request, or Tampered."""
        self._count += 1
        try:
            return self._request.decrypt(self._nonce(), sealed, b"request")
        except InvalidTag:
            self._count -= 1
            raise Tampered from None

    def seal_answer(self, answer: bytes) -> bytes:
        """The answer to the request opened last."""
        return self._answer.encrypt(self._nonce(), answer, b"answer")

    def open_answer(self, sealed: bytes) -> bytes:
        """The answer to the request sealed last, or Tampered."""
        try:
            return self._answer.decrypt(self._nonce(), sealed, b"answer")
        except InvalidTag:
            raise Tampered from None

    def _nonce(self) -> bytes:
        return self._count.to_bytes(12, "little")

    def __repr__(self) -> str:
        return "Channel(<secret>)"


def seal_greeting(public_key: bytes, greeting: Greeting, signing_key: Ed25519PrivateKey) -> bytes:
    """A signed greeting, for the enclave of this key alone. All of them have one length."""
    fields = {
        "database": greeting.database,
        "request_key": greeting.request_key.hex(),
        "answer_key": greeting.answer_key.hex(),
        "data_key": None if greeting.data_key is None else greeting.data_key.hex(),
        "signer": greeting.signer.hex(),
        "signature": signing_key.sign(_signed(public_key, greeting)).hex(),
    }
    try:
        receiver = X25519PublicKey.from_public_bytes(public_key)
        return _SUITE.encrypt(json.dumps(fields).encode().ljust(GREETING_BYTES), receiver, _GREETING)
    except ValueError:  # not a public key
        raise Tampered from None


def open_greeting(private_key: X25519PrivateKey, sealed: bytes) -> Greeting:
    """The greeting, if the signer that it names has signed it for this enclave; Tampered for anything else."""
    try:
        fields = json.loads(_SUITE.decrypt(sealed, private_key, _GREETING))
    except (InvalidTag, ValueError, RecursionError):
        raise Tampered from None
    match fields:
        case {
            "database": str(database),
            "request_key": str(request_key),
            "answer_key": str(answer_key),
            "data_key": None | str() as data_key,
            "signer": str(signer),
            "signature": str(signature),
        } if _DATABASE.fullmatch(database) and _SIGNATURE.fullmatch(signature):
            keys = [request_key, answer_key, signer, *([] if data_key is None else [data_key])]
        case _:
            raise Tampered
    if not all(map(_KEY.fullmatch, keys)):
        raise Tampered
    request, answer, who, *data = map(bytes.fromhex, keys)
    greeting = Greeting(database, request, answer, data[0] if data else None, who)
    signed = _signed(private_key.public_key().public_bytes_raw(), greeting)
    if not is_signed(who, bytes.fromhex(signature), signed):
        raise Tampered
    return greeting


def _signed(public_key: bytes, greeting: Greeting) -> bytes:
    return signed_parts(
        _GREETING,
        public_key,
        greeting.database.encode(),
        greeting.request_key,
        greeting.answer_key,
        greeting.data_key or b"",
        greeting.signer,
    )


def signed_parts(*parts: bytes) -> bytes:
    """What a signature is over: each part after its length, so that no two read alike."""
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def is_signed(signer: bytes, signature: bytes, signed: bytes) -> bool:
    """Whether a public key has made this signature."""
    try:
        Ed25519PublicKey.from_public_bytes(signer).verify(signature, signed)
    except (InvalidSignature, ValueError):
        return False
    return True


def done(answer: bytes) -> bytes:
    """An answer that is no refusal."""
    return _DONE + answer


def padded(text: bytes, least: int = 0) -> bytes:
    """JSON with spaces at its end, up to a multiple of PADDED_BYTES; at least to that for `least` bytes."""
    return text.ljust(-(-max(len(text), least) // PADDED_BYTES) * PADDED_BYTES)


def executed(answer: bytes) -> bytes:
    """The answer to an execution: long enough that a refusal can be as long."""
    if len(answer) + 1 >= PADDED_BYTES:
        return _DONE + answer
    return (_SHORT + _LENGTH.pack(len(answer)) + answer).ljust(PADDED_BYTES, b"\0")


def executed_bytes(answer_bytes: int) -> int:
    """How long that is."""
    return answer_bytes + 1 if answer_bytes + 1 >= PADDED_BYTES else max(PADDED_BYTES, 1 + _LENGTH.size + answer_bytes)


def refusal(error: Exception, size_bytes: int | None = None) -> bytes:
    """An error as an answer, of just this size if one is given: what does not fit is cut.

    Of an unforeseen error only the type is stated: its text may hold a value.
    """
    if not isinstance(error, ScumbleError):
        error = ScumbleError(f"the enclave failed: {type(error).__name__}", hint="please report it")
    fields = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
    text = _REFUSED + json.dumps(fields).encode()
    if size_bytes is None:
        return text.ljust(-(-len(text) // REFUSAL_BYTES) * REFUSAL_BYTES)
    if len(text) > size_bytes:
        text = _REFUSED + json.dumps({**fields, "message": "the enclave refuses this", "hint": None}).encode()
    return text.ljust(size_bytes)


def opened_answer(answer: bytes) -> memoryview:
    """What an answer holds; a refusal is raised as the error that it stands for."""
    if answer[0] == _DONE[0]:
        return memoryview(answer)[1:]
    if answer[0] == _SHORT[0]:
        return memoryview(answer)[3 : 3 + _LENGTH.unpack_from(answer, 1)[0]]
    fields = json.loads(answer[1:])
    kind = getattr(errors, fields["error"], ScumbleError)
    raise kind() if kind in _SILENT else kind(fields["message"], hint=fields["hint"])
