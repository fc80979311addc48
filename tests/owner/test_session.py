"""How a session begins: greeted anew, under another key, so long as the enclave has forgotten the one before."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from scumble.errors import Tampered, Unavailable
from scumble.owner import session
from scumble.owner.session import _greeted

LOST = Unavailable("lost", hint="again")
KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))


class Forgetful:
    """An enclave that does not know its first keys any more."""

    def __init__(self, forgotten: int, error: Exception = LOST) -> None:
        self.keys, self.forgotten, self.error = list[bytes](), forgotten, error

    def fresh_key(self) -> bytes:
        self.keys.append(bytes([len(self.keys)]) * 2)
        return self.keys[-1]

    def greet(self, greeting: bytes) -> tuple[int, bytes]:
        assert greeting == self.keys[-1] + b" sealed"
        if len(self.keys) <= self.forgotten:
            raise self.error
        return 7, greeting


@pytest.mark.parametrize("forgotten", [0, 1, 2])
def test_an_enclave_that_has_forgotten_its_key_is_asked_for_another(
    monkeypatch: pytest.MonkeyPatch, forgotten: int
) -> None:
    monkeypatch.setattr(session, "seal_greeting", lambda *given: b" sealed")
    enclave, greeting = Forgetful(forgotten), Any
    number, answer = _greeted(enclave, greeting, KEY)  # type: ignore[arg-type]
    assert (number, answer) == (7, bytes([forgotten]) * 2 + b" sealed")


@pytest.mark.parametrize(("error", "tries"), [(LOST, 3), (Tampered(), 1)])
def test_after_three_tries_or_another_error_it_is_asked_no_more(
    monkeypatch: pytest.MonkeyPatch, error: Exception, tries: int
) -> None:
    monkeypatch.setattr(session, "seal_greeting", lambda *given: b" sealed")
    enclave = Forgetful(9, error)
    with pytest.raises(type(error)):
        _greeted(enclave, Any, KEY)  # type: ignore[arg-type]
    assert len(enclave.keys) == tries
