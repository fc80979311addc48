"""A front of the test's own: real enclave processes behind it, and lies about storage, versions, who may write."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from scumble.owner import key_file
from scumble.owner.database import Database
from scumble.owner.identity import create_identity, open_identity
from scumble.owner.ledger import Ledger
from scumble.provider.fleet import EnclaveProcess, Fleet
from scumble.provider.routing import serve_call
from scumble.store.files import FileStore
from scumble.wire.jobs import Attest, Greet, Leave, Relay
from scumble.wire.pipe import Bytes, Frame, Pipe
from scumble.wire.storage import Storage

__all__ = ["Lying", "Provider", "provider"]


class Lying:
    """A `Service` for one client: everybody may write, and storage is whatever the test puts there."""

    def __init__(self, process: EnclaveProcess, storage: Storage) -> None:
        self.process, self.storage = process, storage
        self.stamps = 0

    @property
    def public_key(self) -> bytes:
        return bytes(self.process.job(Attest(), bytes(32))[1])[:32]

    def greet(self, sealed: bytes) -> tuple[int, bytes]:
        number, answer = self.process.job(Greet(), sealed, self._serve)
        return number, bytes(answer)

    def request(self, session: int, sealed: bytes | memoryview) -> bytes:
        return bytes(self.process.job(Relay(session), sealed, self._serve)[1])

    def leave(self, session: int) -> None:
        self.process.job(Leave(session))

    def writer(self, busy_seconds: float = 5) -> "nullcontext[None]":
        return nullcontext()

    @property
    def lags(self) -> bool:
        return False

    def stamp(self) -> object:
        return self.stamps

    def drop_unreferenced(self) -> int:
        return 0

    def close(self) -> None:
        """There is nothing to let go of."""

    def _serve(self, pipe: Pipe, call: Frame) -> None:
        serve_call(pipe, call, self.storage, writing=True)


class Provider:
    """Enclaves and stores, which the test may mix up; every store is held for writing."""

    def __init__(self, folder: Path, fleet: Fleet, kept: ExitStack) -> None:
        self.folder, self.fleet, self._kept = folder, fleet, kept
        self.stores: dict[str, FileStore] = {}

    def begin(self, name: str, member: int = 0) -> Database:
        """A new database, and its owner at one of the enclaves."""
        path, database = self.folder / f"{name}.key", secrets.token_hex(16)
        store = FileStore.create(self.folder / name, database)
        self._kept.callback(store.close)
        self._kept.enter_context(store.writer())
        self.stores[name] = store
        with Ledger.open(key_file.ledger_path(path), 100, delta_limit="1e-6"):
            pass
        return Database.begin(self.front(name, member), key_file.create(path, database, None), path)

    def owner(self, name: str, member: int = 0) -> Database:
        """Its owner once more."""
        path = self.folder / f"{name}.key"
        return Database(self.front(name, member), key_file.open_key(path), path)

    def identity(self, who: str) -> str:
        """An analyst's public key."""
        return create_identity(self.folder / f"{who}.key", None).text

    def analyst(self, who: str, name: str, member: int = 0, **options: Any) -> Database:
        """An analyst's connection."""
        path = self.folder / f"{who}.key"
        return Database(self.front(name, member), open_identity(path, self.stores[name].database), path, **options)

    def front(self, name: str, member: int = 0) -> Lying:
        """The way to an enclave, with a store behind it."""
        return Lying(self.fleet.members[member], self.stores[name])


class Older:
    """A storage that shows an older head, and everything else as it is."""

    def __init__(self, store: FileStore, head: Bytes) -> None:
        self._store, self._head = store, bytes(head)

    def head(self) -> bytes:
        return self._head

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@contextmanager
def provider(folder: Path, enclaves: int = 2) -> Iterator[Provider]:
    """A provider for the time of a test."""
    fleet = Fleet(enclaves, "simulated")
    try:
        with ExitStack() as kept:
            yield Provider(folder, fleet, kept)
    finally:
        fleet.close()
