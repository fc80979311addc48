"""What is presented to a witness and what it states, as signed messages. PUBLIC.

A client presents titles and links, which owners and their analysts have signed. The answer is a statement of the
newest version that the witness has seen, made for the client's nonce so that an old answer does not pass for a new one;
with it comes a link of that history, so that nobody has to take the witness's word for a fork.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from scumble.errors import InvalidParameter
from scumble.wire.channel import is_signed, signed_parts
from scumble.wire.lineage import Link, Seen, Title
from scumble.wire.messages import from_fields, to_fields

__all__ = ["MOST_BYTES", "MOST_LINKS", "Answer", "Cosignature", "Presentation", "from_json_bytes", "to_json_bytes"]

MOST_BYTES = 1 << 20
"""The largest message."""
MOST_LINKS = 500
"""In one presentation; who has more presents them one after the other."""
NONCE_BYTES = 16

_COSIGNATURE = b"scumble cosignature v1"
_DATABASE = re.compile("[0-9a-f]{16,64}")
M = TypeVar("M")


@dataclass(frozen=True)
class Presentation:
    """The signatures that lead to a version, the last of the links; without links, the question what is the newest."""

    database: str
    nonce: bytes
    titles: tuple[Title, ...]
    links: tuple[Link, ...]

    def __post_init__(self) -> None:
        if not _DATABASE.fullmatch(self.database) or len(self.nonce) != NONCE_BYTES or len(self.links) > MOST_LINKS:
            raise InvalidParameter("this is no presentation of a version", hint="client and witness of one release")


@dataclass(frozen=True)
class Cosignature:
    """A witness's word: of this database (see `origin`) nothing later than `seen` was shown to it before this nonce."""

    witness: bytes
    database: str
    nonce: bytes
    seen: Seen
    signature: bytes

    @classmethod
    def signed(cls, key: Ed25519PrivateKey, database: str, nonce: bytes, seen: Seen) -> Self:
        unsigned = cls(key.public_key().public_bytes_raw(), database, nonce, seen, b"")
        return cls(unsigned.witness, database, nonce, seen, key.sign(unsigned._signed()))

    def is_by(self, witness: bytes) -> bool:
        return self.witness == witness and is_signed(witness, self.signature, self._signed())

    def _signed(self) -> bytes:
        return signed_parts(
            _COSIGNATURE, self.database.encode(), self.nonce, json.dumps(self.seen).encode(), self.witness
        )


@dataclass(frozen=True)
class Answer:
    """The newest version seen, None if there is none, with the titles of its history and one link of it.

    That is the version of the same number as the presented one, if the witness has seen one, and else the newest.
    """

    cosignature: Cosignature | None
    titles: tuple[Title, ...]
    link: Link | None

    @property
    def shows_older(self) -> bool:
        """Whether the link is not that of the newest version."""
        return self.cosignature is None or self.link is None or self.link.draft.seen != self.cosignature.seen


def to_json_bytes(message: Any) -> bytes:
    """A message as it travels."""
    return json.dumps(to_fields(message), separators=(",", ":")).encode()


def from_json_bytes(kind: type[M], data: bytes) -> M:
    """The inverse; InvalidParameter or Tampered for anything else."""
    try:
        if len(data) > MOST_BYTES:
            raise ValueError
        return from_fields(kind, json.loads(data))
    except (ValueError, RecursionError):
        raise InvalidParameter("this is no message of a witness", hint="client and witness of one release") from None
