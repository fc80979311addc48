"""The vault: the data keys that owners have brought to this enclave, and the newest version of each database.

SECRET, all of it. An owner's session brings a key; sessions of analysts use it. The newest version that any session has
seen is what every other one has to descend from: a provider cannot show an old one to whoever remembers nothing.
"""

import json
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from scumble.errors import Tampered

__all__ = ["Unlocked", "Vault"]


@dataclass(frozen=True, slots=True, eq=False)
class Unlocked:
    """SECRET: a database's data key, and the newest version of it that this enclave knows, with its manifest's hash."""

    data_key: bytes = field(repr=False)
    version: int
    hash: str


class Vault:
    """SECRET: what is unlocked, by database. Threads may share it."""

    def __init__(self) -> None:
        self._unlocked: dict[str, Unlocked] = {}
        self._turns: dict[str, threading.RLock] = {}
        self._turn = threading.Lock()
        self.changes = 0
        """Goes up whenever there is something new to hand to another enclave."""

    def holding(self, database: str) -> AbstractContextManager[bool]:
        """Be the only one who opens or commits a version of this database: nobody sees a head without its key."""
        with self._turn:
            return self._turns.setdefault(database, threading.RLock())

    def get(self, database: str) -> Unlocked | None:
        """What is known of a database: the same object until there is something newer. None: it is locked."""
        return self._unlocked.get(database)

    def remember(self, database: str, data_key: bytes, version: int, manifest_hash: str) -> Unlocked:
        """Remember a version that was opened or committed; the caller holds the database, and has checked descent."""
        known = self._unlocked.get(database)
        if known is not None and (known.data_key, known.version, known.hash) == (data_key, version, manifest_hash):
            return known
        with self._turn:
            self.changes += 1
            unlocked = self._unlocked[database] = Unlocked(data_key, version, manifest_hash)
        return unlocked

    def export(self, database: str | None = None) -> bytes:
        """What is unlocked, or one database of it, for another enclave. SECRET: whoever calls this seals it."""
        with self._turn:
            given = {
                name: [known.data_key.hex(), known.version, known.hash]
                for name, known in self._unlocked.items()
                if database in (None, name)
            }
        return json.dumps(given).encode()

    def take(self, exported: bytes) -> None:
        """Take over what another enclave has exported; where this one knows a newer version, that stays."""
        try:
            given = {
                str(name): Unlocked(bytes.fromhex(data_key), int(version), str(manifest_hash))
                for name, (data_key, version, manifest_hash) in json.loads(exported).items()
            }
        except (ValueError, TypeError, AttributeError):
            raise Tampered from None
        for name, other in given.items():
            with self.holding(name):
                known = self._unlocked.get(name)
                if known is None or other.version > known.version:
                    self.remember(name, other.data_key, other.version, other.hash)

    def __repr__(self) -> str:
        return f"<Vault: {len(self._unlocked)} unlocked>"
