"""Sessions: how the owner and the enclave seal what they say to each other. The provider carries it, and sees lengths.

The owner seals a greeting to the enclave's public key with HPKE; in it are fresh keys for its requests and for the
answers. Request n is sealed under the first with nonce n, its answer under the second with nonce n: what is dropped,
repeated, reordered or taken from another session fails to open, and is Tampered.
"""

import json
import os
from typing import Any, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from scumble import errors
from scumble.errors import ScumbleError, Tampered

SALT_BYTES = 32

__all__ = ["SALT_BYTES", "Channel", "done", "open_greeting", "refusal", "seal_greeting", "settle"]

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_GREETING = b"scumble greeting v1"
_DONE, _REFUSED = b"\0", b"\1"


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
        """New keys for a greeting."""
        return os.urandom(32), os.urandom(32)

    def seal_request(self, request: bytes | memoryview) -> bytes:
        """The next request."""
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


def seal_greeting(public_key: bytes, greeting: dict[str, Any]) -> bytes:
    """The owner's greeting, for the enclave of this key alone."""
    try:
        return _SUITE.encrypt(json.dumps(greeting).encode(), X25519PublicKey.from_public_bytes(public_key), _GREETING)
    except ValueError:  # no key that anybody can have
        raise Tampered from None


def open_greeting(private_key: X25519PrivateKey, sealed: bytes) -> dict[str, Any]:
    """The inverse, or Tampered."""
    try:
        greeting: dict[str, Any] = json.loads(_SUITE.decrypt(sealed, private_key, _GREETING))
    except (InvalidTag, ValueError):
        raise Tampered from None
    return greeting


def done(answer: bytes) -> bytes:
    """An answer that is none of the refusals."""
    return _DONE + answer


def refusal(error: Exception) -> bytes:
    """An error as an answer; of one that nobody foresaw, only the type is told: its text may hold a value."""
    if not isinstance(error, ScumbleError):
        error = ScumbleError(f"the enclave failed: {type(error).__name__}", hint="please report it")
    fields = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
    return _REFUSED + json.dumps(fields).encode()


def settle(answer: bytes) -> memoryview:
    """The answer itself; or raise the error that it stands for."""
    if answer[:1] == _DONE:
        return memoryview(answer)[1:]
    fields = json.loads(answer[1:])
    kind = getattr(errors, fields["error"], ScumbleError)
    raise kind() if kind is Tampered else kind(fields["message"], hint=fields["hint"])
