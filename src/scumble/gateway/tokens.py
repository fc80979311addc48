"""Tokens: what a client shows at the door. The gateway's file has only their hashes; a token itself is printed once.

A token is 256 random bits, so a plain SHA-256 of it tells nothing and no slow hash is needed.
"""

import base64
import binascii
import hmac
import re
import secrets
from collections.abc import Mapping
from hashlib import sha256

__all__ = ["HASH", "client_of", "hash_of", "new_token"]

PREFIX = "sha256:"
HASH = re.compile(r"sha256:[0-9a-f]{64}")


def new_token() -> str:
    """A token for one client."""
    return secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    """What the configuration has of a token."""
    return PREFIX + sha256(token.encode(errors="surrogatepass")).hexdigest()


def client_of(authorization: str, hashes: Mapping[str, str]) -> tuple[str, str] | None:
    """The client's name and token, from an authorization header: a bearer token, or a name with it as the password."""
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return _known(rest.strip(), hashes)
    if scheme.lower() != "basic":
        return None
    try:
        padded = rest.strip() + "=" * (-len(rest.strip()) % 4)  # ADBC leaves the padding out
        name, _, password = base64.b64decode(padded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    found = _known(password, hashes)
    return found if found is not None and found[0] == name else None


def _known(token: str, hashes: Mapping[str, str]) -> tuple[str, str] | None:
    shown = hash_of(token).encode()
    matching = [name for name, known in hashes.items() if hmac.compare_digest(known.encode(), shown)]
    return (matching[0], token) if matching else None
