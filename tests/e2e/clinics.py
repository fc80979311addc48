"""A database with analysts, for these tests: its owner has it open, in one enclave that all of them share."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import scumble
from scumble.enclave.lines import TrustedEnclave
from scumble.owner.database import Database
from scumble.owner.keys import AnalystKey, OwnerKey
from scumble.provider.front import Provider
from scumble.store.files import FileStore

INDEX = ["k int:0:99 epsilon=0.5"]


class Open(Provider):
    """A provider that several share: it stays when one of them goes."""

    def close(self) -> None:
        """Stay."""


class Clinic:
    """A database that its owner has open, and those whom it may grant something to."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.reopen()

    def reopen(self, *, anchored: bool = True, **terms: Any) -> None:
        """Have the owner open it at a new enclave; or, not `anchored`, one of its devices that was never there."""
        self.store = FileStore(self.home / "db")
        self.provider = Open(self.store, TrustedEnclave)
        if not anchored:
            (self.home / "db.anchor").unlink()
        self.owner = Database(self.provider, OwnerKey.open(self.home / "db.key"), self.home / "db.key", **terms)

    def identity(self, name: str) -> str:
        return AnalystKey.create(self.home / f"{name}.key", None).text

    def analyst(self, name: str) -> Database:
        path = self.home / f"{name}.key"
        return Database(self.provider, AnalystKey.open(path, self.store.database), path)


def _made(origin: Path) -> Path:
    """The folder with the database of all clinics and its keys, which is made once."""
    if not origin.exists():
        origin.mkdir()
        with scumble.create(origin / "db", limit=20, delta_limit="1e-3") as db:
            for name in ("visits", "staff"):
                db.load(name, rows(40), indexes=INDEX, capacity=64, page_rows=16)
    return origin


@pytest.fixture
def clinic(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clinic]:
    """A clinic with a database of its own: a copy of that one."""
    made = Clinic(shutil.copytree(_made(tmp_path_factory.getbasetemp() / "clinic"), tmp_path, dirs_exist_ok=True))
    yield made
    made.owner.close()
    made.store.close()


def rows(count: int) -> pa.Table:
    return pa.table({"k": list(range(count)), "v": [place * 3 for place in range(count)]})
