"""Grants: what an owner lets somebody else do, table by table. They lie in the sealed part of the manifest.

The owner signs each of them. The owner and the enclave see all; an analyst sees its own; the provider sees none.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import sha256
from typing import Any, Literal, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from scumble.errors import InvalidParameter
from scumble.wire.lineage import Certificate
from scumble.wire.messages import read_fraction

Right = Literal["read", "load", "insert", "change"]
RIGHTS: tuple[Right, ...] = ("read", "load", "insert", "change")
"""To query; to load batches with indexes, from an allotment; to add rows to the tail; to update and delete rows, which
tells how many match, and so needs the right to read as well."""
WRITING: frozenset[Right] = frozenset(("load", "insert", "change"))

KEY_BYTES = 32
SALT_BYTES = 16
MOST_TABLES = 256
LONGEST_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,63}")
_ID = re.compile("[0-9a-f]{16}")
_AMOUNTS = ("epsilon", "delta", "used_epsilon", "used_delta")
_PREFIX = "scumble1"
_TEXT = re.compile(_PREFIX + "([0-9a-f]{64})([0-9a-f]{8})")


@dataclass(frozen=True)
class Grant:
    """Somebody's rights: to read and change tables, or to load into them for no more than an allotment of epsilon and
    delta.

    The owner signs them. What was used, and which of the tables were dropped (`gone`), changes afterwards. The salt
    keeps others from guessing the terms behind the hash that the owner's signature is over.
    """

    id: str
    name: str
    public_key: bytes
    tables: Mapping[str, frozenset[Right]]
    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    used_epsilon: Fraction = Fraction(0)
    used_delta: Fraction = Fraction(0)
    gone: frozenset[str] = frozenset()
    salt: bytes = b""
    signature: bytes = b""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidParameter(
                "an analyst's name is up to 64 letters, digits and any of _ . @ + -", hint="ada or ada@lab, for example"
            )
        if not _ID.fullmatch(self.id) or len(self.public_key) != KEY_BYTES:
            raise InvalidParameter("this is no public key", hint="take the text that `scumble identity` prints")
        if not self.tables or len(self.tables) > MOST_TABLES:
            raise InvalidParameter("a grant names at least one table, and at most 256", hint="--table visits")
        if not all(rights and rights <= set(RIGHTS) for rights in self.tables.values()):
            raise InvalidParameter(f"a right is one of {', '.join(RIGHTS)}", hint="read is usual")
        if any("change" in rights and "read" not in rights for rights in self.tables.values()):
            raise InvalidParameter("who may change rows learns how many there are", hint="grant read as well")
        if min(self.epsilon, self.delta, self.used_epsilon, self.used_delta) < 0 or self.delta >= 1:
            raise InvalidParameter("an allotment cannot be negative, nor delta 1", hint="--epsilon 0.5")
        object.__setattr__(self, "tables", {name.lower(): rights for name, rights in self.tables.items()})

    def may(self, right: Right, table: str) -> bool:
        """Whether it gives a right to a table, whose name's case does not matter."""
        return self.names(table) and right in self.tables[table.lower()]

    def names(self, table: str) -> bool:
        """Whether it gives any right to a table."""
        return table.lower() in self.tables and table.lower() not in self.gone

    def signed(self, database: str, key: Ed25519PrivateKey) -> Self:
        """With the owner's signature, and a fresh salt."""
        salted = replace(self, salt=os.urandom(SALT_BYTES))
        made = Certificate.signed(database, key, self.id, self.public_key, salted._terms())
        return replace(salted, signature=made.signature)

    def certificate(self) -> Certificate:
        """What others get to see of the owner's signature: not the terms."""
        return Certificate(self.id, self.public_key, self._terms(), self.signature)

    def _terms(self) -> bytes:
        """The hash of what the owner has signed: nobody who sees it can tell what was granted."""
        fields = {"name": self.name, "tables": _sorted(self.tables), "allotment": [str(self.epsilon), str(self.delta)]}
        return sha256(self.salt + json.dumps(fields, sort_keys=True).encode()).digest()

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "public_key": self.public_key.hex(),
            "tables": _sorted(self.tables),
            **{name: str(getattr(self, name)) for name in _AMOUNTS},
            "gone": sorted(self.gone),
            "salt": self.salt.hex(),
            "signature": self.signature.hex(),
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """The inverse; for one of release 0.1 too, which nobody has signed."""
        return cls(
            fields["id"],
            fields["name"],
            bytes.fromhex(fields["public_key"]),
            {name: frozenset(rights) for name, rights in fields["tables"].items()},
            **{name: read_fraction(fields[name]) for name in _AMOUNTS},
            gone=frozenset(fields.get("gone", ())),
            salt=bytes.fromhex(fields.get("salt", "")),
            signature=bytes.fromhex(fields.get("signature", "")),
        )


def _sorted(tables: Mapping[str, frozenset[Right]]) -> dict[str, list[Right]]:
    return {name: sorted(rights) for name, rights in tables.items()}


def public_text(public_key: bytes) -> str:
    """A public key as text to be sent by mail or read out: with a checksum, so that a slip is noticed."""
    return _PREFIX + public_key.hex() + _checksum(public_key)


def parse_public_key(text: str) -> bytes:
    """The inverse; InvalidParameter if a character is wrong."""
    match = _TEXT.fullmatch(text.strip().lower())
    if match is None or _checksum(bytes.fromhex(match[1])) != match[2]:
        raise InvalidParameter(
            "this is no public key, or a character of it is wrong",
            hint=f"copy all of the text, which begins with {_PREFIX}: `scumble identity` prints an analyst's, "
            "`scumble grants` an owner's, `scumble witness serve` a witness's",
        )
    return bytes.fromhex(match[1])


def _checksum(public_key: bytes) -> str:
    return sha256(b"scumble public key v1" + public_key).hexdigest()[:8]
