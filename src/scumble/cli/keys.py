"""Keys written as text, in a csv cell or on the command line: text comes in, what the domain takes goes out, exact.

Cells are secret and so are the keys in them; an error says where the text stood, not what it was.
"""

import re

from scumble.errors import InvalidKeys
from scumble.types import Domain, ExplicitKeys, FloatDomain, IntegerDomain

__all__ = ["holds_integers", "key_of"]

_INTEGER = re.compile(r"[+-]?\d{1,1000}", re.ASCII)
_FLOAT = re.compile(r"[+-]?((\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|inf|nan)", re.ASCII | re.IGNORECASE)


def key_of(domain: Domain, text: str, subject: str = "the key") -> int | float | str:
    """Return the key that `text` spells; `subject` is what an error calls it.

    A float is the nearest double, as it is in a file: 0.3 is found in the bin that holds the double 0.3. Decimals,
    dates and times stay text, which their domains read themselves.
    """
    if holds_integers(domain):
        if _INTEGER.fullmatch(text) is None:
            raise _unreadable(subject, "an integer")
        return int(text)
    if isinstance(domain, FloatDomain):
        if _FLOAT.fullmatch(text) is None:
            raise _unreadable(subject, "a number")
        return float(text)
    return text


def holds_integers(domain: Domain) -> bool:
    """Whether the keys of a domain are integers."""
    if isinstance(domain, ExplicitKeys):
        return isinstance(domain.keys[0], int)
    return isinstance(domain, IntegerDomain)


def _unreadable(subject: str, form: str) -> InvalidKeys:
    return InvalidKeys(f"{subject} is text that does not read as {form}", hint="correct it, or change the domain")
