"""Listen to the keys under which streams of noise are begun: for tests that no key is used twice."""

import pytest

from scumble.privacy import noise

__all__ = ["keys"]


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every key under which a stream is begun."""
    seen: list[bytes] = []
    original = noise._key_stream

    def listen(key: bytes) -> noise.Words:
        seen.append(key)
        return original(key)

    monkeypatch.setattr(noise, "_key_stream", listen)
    return seen
