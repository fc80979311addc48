"""The anchor: what the holder of a key remembers of a database, in a file beside the key file.

It is the newest version that was seen, by its number and hash, and for an owner how much of each grant was used and
which grants were revoked: facts that a restored backup must not take back. Nothing in it is secret to the key's holder;
its MAC, under a key that never leaves this machine, keeps anybody else from choosing what is remembered. An old anchor
that is put back together with an old database goes unnoticed.
"""

import base64
import binascii
import hmac
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from scumble.errors import FileError, InvalidParameter, NewerVersion, Tampered
from scumble.owner.key_file import canonical, parse_canonical, read_small, replace_file
from scumble.wire.channel import is_signed, signed_parts
from scumble.wire.grants import Grant

__all__ = ["Anchor", "NoAnchor", "anchor_text", "database_in", "read_anchor_text"]

_FORMAT = 2
_HASH = re.compile("[0-9a-f]{64}")
_DATABASE = re.compile("[0-9a-f]{16,64}")
_TEXT = "scumble-anchor-1:"
_SIGNED = b"scumble anchor text v1"


class NoAnchor(UserWarning):
    """An analyst opens a database on a device where it was never opened: an old version would pass."""


Used = Mapping[str, tuple[Fraction, Fraction]]


@dataclass(frozen=True)
class Anchor:
    """The newest version that was seen: how many restores came before it, its number, and the hash of its manifest.

    `used` has what is used of each grant that was seen, by its id; `revoked` are those that were there and are gone.
    """

    version: int
    manifest: str
    restores: int = 0
    used: Used = field(default_factory=dict)
    revoked: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if min(self.version, self.restores) < 0 or not _HASH.fullmatch(self.manifest):
            raise InvalidParameter("an anchor is a version from 0 on and a SHA-256 in hexadecimal digits")

    @property
    def seen(self) -> tuple[int, int, str]:
        return self.restores, self.version, self.manifest

    def knowing(self, grants: Iterable[Grant]) -> Self:
        """With the grants of the version that was seen last: what was used only grows, what was revoked stays so."""
        there = {grant.id: (grant.used_epsilon, grant.used_delta) for grant in grants}
        used = dict(self.used)
        for grant, (epsilon, delta) in there.items():
            before = self.used.get(grant, (Fraction(0), Fraction(0)))
            used[grant] = max(epsilon, before[0]), max(delta, before[1])
        return replace(self, used=used, revoked=self.revoked | (self.used.keys() - there.keys()))

    def at(self, other: Self) -> Self:
        """The same knowledge of grants, at the version that another anchor has seen."""
        return replace(self, version=other.version, manifest=other.manifest, restores=other.restores)

    # --- the file ----------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: Path, key: bytes) -> Self | None:
        """What was saved, None if there is no file, Tampered if it was not saved under `key`."""
        try:
            data, _ = read_small(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileError(
                f"the anchor {path} cannot be read: {error.strerror}", hint="check the path and its permissions"
            ) from error
        content = parse_canonical(data)
        if content is None:
            raise _damaged(path)
        mac = content.pop("mac", None)
        if not (isinstance(mac, str) and mac.isascii() and hmac.compare_digest(mac, _mac(content, key))):
            raise _damaged(path)
        if type(content.get("format")) is int and content["format"] > _FORMAT:  # every format has its MAC like this one
            raise NewerVersion(
                f"the anchor {path} was written by a later Scumble (this one reads format {_FORMAT})",
                hint="upgrade Scumble",
            )
        anchor = cls._read(content)
        if anchor is None:
            raise _damaged(path)
        return anchor

    @classmethod
    def _read(cls, content: dict[str, Any]) -> Self | None:
        try:
            match content:
                case {"format": 1, "version": int(version), "manifest": str(manifest)}:
                    return cls(version, manifest)
                case {
                    "format": 2,
                    "restores": int(restores),
                    "version": int(version),
                    "manifest": str(manifest),
                    "used": dict(used),
                    "revoked": list(revoked),
                }:
                    amounts = {grant: (Fraction(epsilon), Fraction(delta)) for grant, (epsilon, delta) in used.items()}
                    return cls(version, manifest, restores, amounts, frozenset(revoked))
        except (ValueError, TypeError, ZeroDivisionError):
            pass
        return None

    def save(self, path: Path, key: bytes) -> None:
        """Remember this version: durably, and whole or not at all."""
        content: dict[str, Any] = {
            "format": _FORMAT,
            "restores": self.restores,
            "version": self.version,
            "manifest": self.manifest,
            "used": {grant: list(map(str, amounts)) for grant, amounts in sorted(self.used.items())},
            "revoked": sorted(self.revoked),
        }
        replace_file(path, canonical(content | {"mac": _mac(content, key)}))


def _mac(content: dict[str, Any], key: bytes) -> str:
    return hmac.digest(key, canonical(content), "sha256").hex()


# --- as text, for another device --------------------------------------------------------------------


def anchor_text(anchor: Anchor, database: str, key: Ed25519PrivateKey) -> str:
    """The version that was seen, signed, as a line of text to carry to another device, or to send to an analyst."""
    signer = key.public_key().public_bytes_raw()
    fields = {
        "database": database,
        "seen": list(anchor.seen),
        "signer": signer.hex(),
        "signature": key.sign(_signed(database, anchor, signer)).hex(),
    }
    return _TEXT + base64.urlsafe_b64encode(json.dumps(fields, separators=(",", ":")).encode()).decode()


def read_anchor_text(text: str, database: str, trusted: Iterable[bytes]) -> Anchor:
    """The inverse; InvalidParameter unless one of these public keys has signed it, for this database."""
    fields = _fields(text)
    try:
        restores, version, manifest = fields["seen"]
        signer, signature = bytes.fromhex(fields["signer"]), bytes.fromhex(fields["signature"])
        anchor = Anchor(version, manifest, restores)
        genuine = type(restores) is int and type(version) is int and fields["database"] == database
    except (ValueError, KeyError, TypeError, AttributeError, InvalidParameter):
        raise _no_anchor() from None
    if not genuine or not is_signed(signer, signature, _signed(database, anchor, signer)):
        raise _no_anchor()
    if signer not in set(trusted):
        raise InvalidParameter(
            "this anchor is neither from this key nor from the database's owner",
            hint="an analyst who does not know the owner yet names the public key with --owner",
        )
    return anchor


def database_in(text: str) -> str:
    """The id of the database that an anchor claims to be of."""
    database = _fields(text).get("database")
    if not isinstance(database, str) or not _DATABASE.fullmatch(database):
        raise _no_anchor()
    return database


def _fields(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(base64.urlsafe_b64decode(text.strip().removeprefix(_TEXT)))
    except (ValueError, binascii.Error, RecursionError):
        raise _no_anchor() from None
    if not text.strip().startswith(_TEXT) or not isinstance(fields, dict):
        raise _no_anchor()
    return fields


def _no_anchor() -> InvalidParameter:
    return InvalidParameter(
        "this is no anchor, or a character of it is wrong",
        hint="copy all of the text that `scumble anchor export` prints",
    )


def _signed(database: str, anchor: Anchor, signer: bytes) -> bytes:
    return signed_parts(_SIGNED, database.encode(), json.dumps(anchor.seen).encode(), signer)


def _damaged(path: Path) -> Tampered:
    """The error for a file that does not read, or that another key has written."""
    damaged = Tampered()
    damaged.hint = (
        f"the anchor {path} is damaged or of another key: if that was an accident, move it away, then bring one along "
        "with `scumble anchor import`, or accept what is there with `scumble check --first-opening`"
    )
    return damaged
