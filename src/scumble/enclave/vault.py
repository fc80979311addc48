"""The vault: what an enclave remembers of every database that its owner has unlocked. SECRET, all of it.

The data key is here, so that analysts need none, and the newest version that was seen, so that no provider can bring an
older one back. Enclaves of one provider hand it to each other, sealed, in enclave/sharing.py.
"""

import json
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from scumble.errors import Tampered

__all__ = ["Unlocked", "Vault"]


@dataclass(frozen=True, slots=True, eq=False)
class Unlocked:
    """SECRET: a database's data key, who brought it, and the newest version that this enclave knows, with its hash.

    `restores` is how often the owner has taken an older version for the newest: it goes before the version.
    """

    data_key: bytes = field(repr=False)
    owner: bytes
    version: int
    hash: str
    restores: int = 0


class Vault:
    """SECRET: what is unlocked, by database. Threads may share it."""

    def __init__(self) -> None:
        self._unlocked: dict[str, Unlocked] = {}
        self._turns: dict[str, threading.RLock] = {}
        self._turn = threading.Lock()
        self.changes = 0
        """Goes up whenever there is something new to hand to another enclave."""

    def holding(self, database: str) -> AbstractContextManager[bool]:
        """Let nobody else open or commit a version of this database: they would see a head without its key."""
        with self._turn:
            return self._turns.setdefault(database, threading.RLock())

    def get(self, database: str) -> Unlocked | None:
        """What is known of a database: the same object until there is something newer. None: it is locked."""
        return self._unlocked.get(database)

    def remember(
        self, database: str, data_key: bytes, owner: bytes, version: int, manifest_hash: str, *, restored: bool = False
    ) -> Unlocked:
        """Remember a version that was opened or committed; the caller holds the database, and has checked descent.

        `owner` has signed for the key, and is what the version says. `restored`: an older version is the newest now.
        """
        known = self._unlocked.get(database)
        restores = 0 if known is None else known.restores + (restored and version < known.version)
        fresh = Unlocked(data_key, owner, version, manifest_hash, restores)
        if known is not None and _facts(known) == _facts(fresh):
            return known
        self._put(database, fresh)
        return fresh

    def _put(self, database: str, unlocked: Unlocked) -> None:
        with self._turn:
            self.changes += 1
            self._unlocked[database] = unlocked

    def export(self, database: str | None = None) -> bytes:
        """What is unlocked, or one database of it, for another enclave. SECRET: the caller seals it."""
        with self._turn:
            given = {
                name: [known.data_key.hex(), known.owner.hex(), known.version, known.hash, known.restores]
                for name, known in self._unlocked.items()
                if database in (None, name)
            }
        return json.dumps(given).encode()

    def adopt(self, exported: bytes) -> None:
        """Take over what another enclave has exported; where this one knows a newer version, that stays."""
        try:
            given = {
                str(name): Unlocked(
                    bytes.fromhex(data_key), bytes.fromhex(owner), int(version), str(digest), int(restores)
                )
                for name, (data_key, owner, version, digest, restores) in json.loads(exported).items()
            }
        except (ValueError, TypeError, AttributeError):
            raise Tampered from None
        for name, other in given.items():
            with self.holding(name):
                known = self._unlocked.get(name)
                if known is None or (other.restores, other.version) > (known.restores, known.version):
                    self._put(name, other)

    def __repr__(self) -> str:
        return f"<Vault: {len(self._unlocked)} unlocked>"


def _facts(unlocked: Unlocked) -> tuple[bytes, bytes, int, str, int]:
    return unlocked.data_key, unlocked.owner, unlocked.version, unlocked.hash, unlocked.restores
