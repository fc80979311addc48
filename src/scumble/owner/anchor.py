"""The anchor: what the holder of a key remembers of the provider's storage, so that a rollback is noticed.

It holds the newest version seen and the hash of its manifest, in a file beside the key file. Nothing in it is secret;
its MAC, under a key that never leaves this machine, keeps anybody else from choosing what is remembered. An old anchor
that is put back together with an old database goes unnoticed.
"""

import hmac
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from scumble.errors import FileError, InvalidParameter, NewerVersion, Tampered
from scumble.owner.key_file import canonical, parse_canonical, read_small, replace_file

__all__ = ["Anchor"]

_FORMAT = 1
_HASH = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Anchor:
    """The newest version of a database that was seen, and the SHA-256 of its manifest in hexadecimal."""

    version: int
    manifest: str

    def __post_init__(self) -> None:
        if self.version < 0 or not _HASH.fullmatch(self.manifest):
            raise InvalidParameter("an anchor is a version from 0 on and a SHA-256 in hexadecimal digits")

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
            raise Tampered
        mac = content.pop("mac", None)
        if not (isinstance(mac, str) and mac.isascii() and hmac.compare_digest(mac, _mac(content, key))):
            raise Tampered
        match content:
            case {"format": int(number)} if number > _FORMAT:  # every format has its MAC like this one
                raise NewerVersion(
                    f"the anchor {path} was written by a later Scumble (this one reads format {_FORMAT})",
                    hint="upgrade Scumble",
                )
            case {"format": int(number), "version": int(version), "manifest": str(manifest)} if number == _FORMAT:
                return cls(version, manifest)
            case _:
                raise Tampered

    def save(self, path: Path, key: bytes) -> None:
        """Remember this version: durably, and whole or not at all."""
        content: dict[str, Any] = {"format": _FORMAT, "version": self.version, "manifest": self.manifest}
        replace_file(path, canonical(content | {"mac": _mac(content, key)}))


def _mac(content: dict[str, Any], key: bytes) -> str:
    return hmac.digest(key, canonical(content), "sha256").hex()
