"""Keys for one use: nobody gets one twice, none is kept for long, and there are never too many."""

import pytest

from alive import private_keys
from scumble.enclave import fresh_keys
from scumble.enclave.fresh_keys import LIFETIME_SECONDS, FreshKeys
from scumble.errors import Unavailable


def test_a_key_is_given_once() -> None:
    keys = FreshKeys()
    public_key = keys.make()
    assert keys.use_up(public_key).public_key().public_bytes_raw() == public_key
    assert len(keys) == 0
    for other in (public_key, bytes(32), b""):
        with pytest.raises(Unavailable) as caught:
            keys.use_up(other)
        assert caught.value.hint == "connect again"


def test_a_key_that_nobody_uses_is_forgotten() -> None:
    now = 0.0
    keys = FreshKeys(lambda: now)
    old = keys.make()
    now = LIFETIME_SECONDS
    young = keys.make()
    assert len(keys) == 2
    now += 0.001
    keys.drop_old()
    assert len(keys) == 1
    with pytest.raises(Unavailable):
        keys.use_up(old)
    assert keys.use_up(young)


def test_beyond_the_limit_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_keys, "MOST_KEYS", 3)
    keys = FreshKeys()
    first, *rest = [keys.make() for _ in range(4)]
    assert len(keys) == 3
    with pytest.raises(Unavailable):
        keys.use_up(first)
    assert all(keys.use_up(each) for each in rest)


def test_a_key_that_was_used_or_dropped_exists_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_keys, "MOST_KEYS", 1)
    keys = FreshKeys()
    dropped, used = keys.make(), keys.make()
    assert used in {each.public_key().public_bytes_raw() for each in private_keys()}  # the search finds what is there
    keys.use_up(used)
    assert not {dropped, used} & {each.public_key().public_bytes_raw() for each in private_keys()}


def test_no_key_in_a_repr() -> None:
    keys = FreshKeys()
    keys.make()
    assert repr(keys) == "<FreshKeys: 1 waiting>"
