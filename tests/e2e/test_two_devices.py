"""The key and the ledger on two devices: what one has spent counts on the other, and the limit holds for both."""

import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from clinics import INDEX, Clinic, clinic, rows

import scumble
from scumble.errors import Overdraft, ScumbleError
from scumble.store.files import FileStore

__all__ = ["clinic"]

OPTIONS: dict[str, Any] = {"indexes": INDEX, "capacity": 64, "page_rows": 16}


def _second(home: Path, other: Path) -> Path:
    """Copy the owner's files to another device; the provider's folder is the same."""
    other.mkdir()
    for name in ("db.key", "db.ledger", "db.anchor"):
        shutil.copy(home / name, other / name)
    return other / "db.key"


def test_two_devices_spend_no_more_than_the_limit_together(tmp_path: Path) -> None:
    with scumble.create(tmp_path / "db", limit=2, delta_limit="1e-6"):
        pass
    keys = [tmp_path / "db.key", _second(tmp_path, tmp_path / "second")]
    loaded = 0
    for place in range(6):
        with scumble.open(tmp_path / "db", key=keys[place % 2]) as db:
            try:
                db.load("t", rows(place + 3), **OPTIONS)
                loaded += 1
            except Overdraft:
                assert db.ledger.remaining() < Fraction(1, 2)
    assert loaded == 4
    for key in keys:
        with scumble.open(tmp_path / "db", key=key) as db:
            assert db.ledger.spent() == 2


def test_a_load_that_died_on_one_device_counts_on_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its index may have been seen: it was paid for in a version of its own before."""
    with scumble.create(tmp_path / "db", limit=2, delta_limit="1e-6"):
        pass
    second = _second(tmp_path, tmp_path / "second")
    commit = FileStore.commit

    def killed(self: FileStore, version: int, manifest: bytes) -> None:
        if b'"attribute":"k"' in manifest:
            raise OSError(5, "the provider pulls the plug")
        commit(self, version, manifest)

    with monkeypatch.context() as patched, scumble.open(tmp_path / "db") as db:
        patched.setattr(FileStore, "commit", killed)
        with pytest.raises(ScumbleError):
            db.load("t", rows(5), **OPTIONS)
    with scumble.open(tmp_path / "db", key=second) as db:
        assert db.ledger.spent() == Fraction(1, 2)
        assert db.tables == ()


def test_what_an_analyst_has_spent_counts_on_a_device_that_never_saw_the_grant(clinic: Clinic, tmp_path: Path) -> None:
    """Also once the grant is revoked, and with it the allotment gone from the newest version."""
    before = clinic.owner.ledger.spent()
    second = _second(tmp_path, tmp_path / "second")
    clinic.owner.grant("lab", clinic.identity("lab"), {"visits": ["load"]}, epsilon=2, delta="1e-6")
    with clinic.analyst("lab") as lab:
        for count in (3, 4):
            lab.load("visits", rows(count), **OPTIONS)
    clinic.owner.revoke("lab")
    clinic.owner.close()
    clinic.store.close()
    with scumble.open(tmp_path / "db", key=second) as db:
        assert db.ledger.spent() == before + 1
    with scumble.open(tmp_path / "db") as db:  # here all of it was spent when it was granted
        assert db.ledger.spent() == before + 2
