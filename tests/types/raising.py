"""Calls that have to fail, for the tests of domains."""

from typing import Any

import pytest

from scumble.errors import ScumbleError


def raised(error: type[ScumbleError], call: Any) -> str:
    """Return the message of the error that a call must raise, which may drag no other error along."""
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    assert caught.value.hint
    cause = caught.value.__context__
    assert cause is None, "a chained error could show the key"
    return str(caught.value)
