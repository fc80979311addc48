"""What an enclave remembers of the databases that were unlocked in it. SECRET, all of it; it ends with the process.

A database comes in with the version that its owner opened or committed; other enclaves may hand theirs over. What is
remembered only goes forward: to a later version, or to an older one that the owner has declared restored.
"""

import json
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from scumble.enclave.grants import AccessList
from scumble.enclave.manifests import Manifest
from scumble.errors import Tampered
from scumble.wire.lineage import Seen

__all__ = ["Admits", "Unlocked", "Vault"]


@dataclass(frozen=True, slots=True, eq=False)
class Unlocked:
    """SECRET: a database's data key, and the newest version that this enclave knows, with the rights in it.

    The rights are kept so that no restored backup takes a revocation back, or gives what was used.
    """

    data_key: bytes = field(repr=False)
    access: AccessList = field(repr=False)
    restores: int
    version: int
    hash: str

    @property
    def owner(self) -> bytes:
        return self.access.owner

    @property
    def policy(self) -> bytes:
        return self.access.policy

    @property
    def seen(self) -> Seen:
        return self.restores, self.version, self.hash


Admits = Callable[[str, Unlocked], bool]
"""Whether a database, and what is known of it, may be handed to or taken from another enclave."""


def _database_of(name: str) -> str:
    """The id of the database that is remembered by this name, which may go on after a space."""
    return name.split(maxsplit=1)[0]


class Vault:
    """SECRET: what is unlocked, by what a database is remembered by (see `origin`). Threads may share it."""

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

    def get(self, name: str) -> Unlocked | None:
        """What is known of a database: the same object until there is something newer. None: it is locked."""
        return self._unlocked.get(name)

    def remember(self, name: str, data_key: bytes, manifest: Manifest) -> Unlocked:
        """Remember a version that was opened or committed; the caller holds the database, and has checked descent."""
        known, fresh = self._unlocked.get(name), Unlocked(data_key, manifest.access, *manifest.seen)
        if known is not None and (known.data_key, known.access, known.seen) == (data_key, fresh.access, fresh.seen):
            return known
        self._put(name, fresh)
        return fresh

    def _put(self, name: str, unlocked: Unlocked) -> None:
        with self._turn:
            self.changes += 1
            self._unlocked[name] = unlocked

    def export(self, admits: Admits = lambda database, known: True) -> bytes:
        """What is unlocked, of the databases that admit another enclave, for that. SECRET: the caller seals it."""
        with self._turn:
            unlocked = dict(self._unlocked)
        given = {
            name: [known.data_key.hex(), known.access.to_bytes().decode(), *known.seen]
            for name, known in unlocked.items()
            if admits(_database_of(name), known)
        }
        return json.dumps(given).encode()

    def adopt(self, exported: bytes, admits: "Admits" = lambda database, known: True) -> None:
        """Take over what another enclave has exported, of the databases that admit that one.

        Where this one knows a newer version, that stays.
        """
        try:
            given = {
                str(name): Unlocked(
                    bytes.fromhex(data_key),
                    AccessList.from_bytes(access.encode()),
                    int(restores),
                    int(version),
                    str(digest),
                )
                for name, (data_key, access, restores, version, digest) in json.loads(exported).items()
            }
        except (ValueError, TypeError, AttributeError):
            raise Tampered from None
        for name, other in given.items():
            if not admits(_database_of(name), other):
                continue
            with self.holding(_database_of(name)):
                known = self._unlocked.get(name)
                if known is None or (other.restores, other.version) > (known.restores, known.version):
                    self._put(name, other)

    def __repr__(self) -> str:
        return f"<Vault: {len(self._unlocked)} unlocked>"
