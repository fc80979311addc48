"""Addresses of databases at a service: scumble://HOST:PORT/DATABASE or scumble://HOST:PORT/TENANT/DATABASE.

`scumbles://` is the same inside TLS, which hides from the network what the provider sees, and protects no secret more.
"""

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from scumble.errors import InvalidParameter

__all__ = ["Address", "is_address"]

DEFAULT_PORT = 7300
DEFAULT_TENANT = "default"
SCHEMES = {"scumble": False, "scumbles": True}

_NAME = re.compile("[a-z0-9][a-z0-9_-]{0,63}")
_HINT = "scumble://host:7300/clinic, for example"


def is_address(target: object) -> bool:
    """Whether a target is an address rather than a folder."""
    return isinstance(target, str) and target.partition("://")[0] in SCHEMES and "://" in target


@dataclass(frozen=True)
class Address:
    """PUBLIC: where a database is."""

    host: str
    port: int
    tenant: str
    database: str
    tls: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        try:
            parts = urlsplit(text)
            port = parts.port or DEFAULT_PORT
        except ValueError:
            raise InvalidParameter("this is no address of a database", hint=_HINT) from None
        names = parts.path.strip("/").split("/")
        if len(names) == 1:
            names = [DEFAULT_TENANT, *names]
        if parts.scheme not in SCHEMES or not parts.hostname or len(names) != 2 or parts.query or parts.fragment:
            raise InvalidParameter("this is no address of a database", hint=_HINT)
        if parts.username is not None:  # also where there is a password alone
            raise InvalidParameter("an address has no user name: a key file says who you are", hint=_HINT)
        if not all(map(_NAME.fullmatch, names)):
            raise InvalidParameter("a database's name has lower-case letters, digits, - and _", hint=_HINT)
        return cls(parts.hostname, port, names[0], names[1], SCHEMES[parts.scheme])

    @property
    def path(self) -> str:
        """Where requests for it go."""
        return f"/v1/{self.tenant}/{self.database}"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        tenant = "" if self.tenant == DEFAULT_TENANT else f"{self.tenant}/"
        return f"{'scumbles' if self.tls else 'scumble'}://{host}:{self.port}/{tenant}{self.database}"
