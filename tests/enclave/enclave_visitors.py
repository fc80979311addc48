"""For tests of rights: a database of two tables in one enclave, its owner, and sessions of anybody who comes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from scumble.enclave.lines import TrustedEnclave
from scumble.enclave.vault import Vault
from scumble.owner import key_file
from scumble.owner.database import Database
from scumble.owner.indexes import IndexSpec
from scumble.owner.keys import OwnerKey
from scumble.owner.ledger import Ledger
from scumble.owner.session import Session
from scumble.provider.front import Provider
from scumble.store.files import FileStore
from scumble.store.transcript import Transcript
from scumble.wire.grants import public_text
from scumble.wire.requests import BeginLoad, Open
from scumble.wire.storage import Storage

ADA, BOB = (Ed25519PrivateKey.from_private_bytes(bytes([place] * 32)) for place in (7, 8))


class Shared(Provider):
    """A provider that several clients share: it stays when one of them closes it."""

    def close(self) -> None:
        """Stay."""


def text_of(key: Ed25519PrivateKey) -> str:
    """A public key as it is sent to an owner."""
    return public_text(key.public_key().public_bytes_raw())


class Clinic:
    """A database with the tables `visits` and `staff`, and the enclave that all sessions of a test share."""

    def __init__(self, home: Path, vault: Vault) -> None:
        self.vault = vault
        self.key = OwnerKey.create(home / "db.key", None)
        self.store = FileStore.create(home / "db", self.key.database)
        self.transcript = Transcript()
        self.provider = Shared(self.store, self._enclave, self.transcript)
        self.home = home

    def _enclave(self, storage: Storage) -> TrustedEnclave:
        self.enclave = TrustedEnclave(storage, vault=self.vault)
        return self.enclave

    def session(self, who: Ed25519PrivateKey, data_key: bytes | None = None) -> Session:
        """A session that is not open yet."""
        return Session(self.provider, self.store.database, who, data_key)

    def opened(self, who: Ed25519PrivateKey) -> Session:
        """A session of an analyst with the newest version open."""
        session = self.session(who)
        session.ask(Open(None))
        return session


@contextmanager
def clinic(home: Path) -> Iterator[tuple[Clinic, Database]]:
    """The database, and its owner's side of it."""
    made = Clinic(home, Vault())
    with Ledger.open(key_file.ledger_path(home / "db.key"), 100, delta_limit="1e-3"):
        pass
    owner = Database.begin(made.provider, made.key, home / "db.key")
    for name in ("visits", "staff"):
        rows = pa.table({"k": list(range(40)), "v": [place * 3 for place in range(40)]})
        owner.load(name, rows, indexes=["k int:0:99 epsilon=1"], capacity=64, page_rows=16)
    try:
        yield made, owner
    finally:
        owner.close()
        made.store.close()


def load_request(owner: Database, table: str, /, **more: Any) -> BeginLoad:
    """A request for a load into a table that is there."""
    there = owner.table(table)
    request = BeginLoad(
        batch="ba" * 16,
        capacity_cost=(Fraction(0), Fraction(0)),
        table=there.name,
        table_id=there.id,
        schema=there.schema,
        orders=(IndexSpec.parse("k int:0:99 epsilon=1").order(),),
        page_rows=16,
        memory_bytes=1 << 20,
    )
    return replace(request, **more)
