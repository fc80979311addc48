"""A database whose old versions are collected all the time: nobody notices, and nobody is fooled."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from clinics import INDEX, Clinic, clinic, rows

import scumble
from scumble.errors import Tampered
from scumble.owner.keys import AnalystKey
from scumble.provider.front import Provider
from scumble.store.backup import backup_to, restore_from
from scumble.store.files import FileStore
from scumble.wire.links import unpack_links
from serving import SIMULATED, serving

__all__ = ["clinic"]

COUNT = "SELECT count(*) FROM visits"
VECTORS = Path(__file__).parents[1] / "vectors" / "release-0.1"


def _collect(folder: Path) -> int:
    store = FileStore(folder)
    with store.writer():
        collected = store.collect_versions(keep=1)
    store.close()
    return collected


def _names(folder: Path) -> list[str]:
    return sorted(path.name.partition("-")[0] for path in (folder / "manifests").iterdir())


def test_whoever_has_seen_any_version_opens_the_newest(tmp_path: Path) -> None:
    """Loads, a drop, a grant and a rekey, with nothing whole but the head after each; the anchors of all of them."""
    anchors = []

    def remember() -> None:
        _collect(tmp_path / "db")
        anchors.append((tmp_path / "db.anchor").read_bytes())

    identity = AnalystKey.create(tmp_path / "ada.key", None).text
    with scumble.create(tmp_path / "db", limit=20, delta_limit="1e-3") as db:
        for step in (
            lambda: None,
            lambda: db.load("visits", rows(40), indexes=INDEX, capacity=64, page_rows=16),
            lambda: db.load("visits", rows(5), capacity=64, page_rows=16, indexes=INDEX, again=True),
            lambda: db.load("staff", rows(7), capacity=64, page_rows=16),
            lambda: db.drop("staff"),
            lambda: db.grant("ada", identity, ["visits"]),
            lambda: db.load("visits", rows(6), capacity=64, page_rows=16, indexes=INDEX, again=True),
        ):
            step()
            remember()
            assert db.sql("SELECT 1").fetchall() == [(1,)]
        last = db.version
    key = (tmp_path / "db.key").read_bytes()
    assert _names(tmp_path / "db") == ["00000001.links", f"{last:08d}"]
    for anchor in anchors:
        (tmp_path / "db.anchor").write_bytes(anchor)
        with scumble.open(tmp_path / "db") as db:
            assert db.sql(COUNT).fetchall() == [(51,)]
            assert db.check() > 0
    with scumble.open(tmp_path / "db") as db:
        db.rekey()
        _collect(tmp_path / "db")
        assert db.sql(COUNT).fetchall() == [(51,)]
        db.revoke("ada")
        assert db.check() > 0
    assert (tmp_path / "db.key").read_bytes() != key


def test_a_session_that_is_open_goes_on(clinic: Clinic) -> None:
    """Statements of an analyst, of the owner and of another process, while versions are made and collected."""
    clinic.owner.grant("ada", clinic.identity("ada"), ["visits"])
    clinic.store.keep_versions = 1
    with clinic.analyst("ada") as ada:
        statement = ada.prepare(COUNT)
        for step in range(4):
            clinic.owner.load("visits", rows(1 + step), indexes=INDEX, capacity=16, page_rows=16, again=True)
            assert statement.execute().fetchone() == clinic.owner.sql(COUNT).fetchone()
            assert len(list((clinic.home / "db/manifests").glob("*.manifest"))) <= 2
        clinic.owner.rekey()
        assert statement.execute().fetchone() == (50,)
        assert ada.check() > 0
    with clinic.analyst("ada") as ada:
        assert ada.sql(COUNT).fetchone() == (50,)


def test_links_that_are_missing_or_altered_are_noticed_as_manifests_are(tmp_path: Path) -> None:
    with scumble.create(tmp_path / "db") as db:
        anchor, db.automatic = (tmp_path / "db.anchor").read_bytes(), False
        for _ in range(3):
            db.load("t", rows(5), capacity=16, page_rows=16, again=True)
    newest = (tmp_path / "db.anchor").read_bytes()
    assert _collect(tmp_path / "db") == 3
    pack = tmp_path / "db/manifests/00000001.links"
    content = pack.read_bytes()
    signature = content.rindex(unpack_links(content)[1].signature)
    altered = content[:signature] + bytes([content[signature] ^ 1]) + content[signature + 1 :]
    for spoiled in (None, b"", content[:-1], altered, content[:-104] + content[-32:]):
        pack.unlink() if spoiled is None else pack.write_bytes(spoiled)
        (tmp_path / "db.anchor").write_bytes(newest)
        with scumble.open(tmp_path / "db") as db, pytest.raises(Tampered):  # which needs none of them
            db.check()
        (tmp_path / "db.anchor").write_bytes(anchor)
        with pytest.raises(Tampered):
            scumble.open(tmp_path / "db")
        pack.write_bytes(content)
    with scumble.open(tmp_path / "db") as db:
        assert db.check() > 0


def test_the_owner_accepts_a_backup_of_a_database_whose_versions_were_collected(tmp_path: Path) -> None:
    with scumble.create(tmp_path / "db") as db:
        first = (tmp_path / "db.anchor").read_bytes()
        for _ in range(3):
            db.load("visits", rows(5), capacity=16, page_rows=16, again=True)
        _collect(tmp_path / "db")
        assert isinstance(db.service, Provider)
        backup_to(tmp_path / "b.tar", db.service.store)
        middle = (tmp_path / "db.anchor").read_bytes()
        db.load("visits", rows(2), capacity=16, page_rows=16, again=True)
    shutil.rmtree(tmp_path / "db")
    restore_from(tmp_path / "b.tar", FileStore.restoring(tmp_path / "db"))
    with pytest.raises(Tampered):
        scumble.open(tmp_path / "db")
    with scumble.open(tmp_path / "db", accept_restored=True) as db:
        assert db.sql(COUNT).fetchall() == [(15,)]
        db.load("visits", rows(3), capacity=16, page_rows=16, again=True)
    _collect(tmp_path / "db")
    for anchor in (first, middle):
        (tmp_path / "db.anchor").write_bytes(anchor)
        with scumble.open(tmp_path / "db") as db:
            assert db.sql(COUNT).fetchall() == [(18,)]
            assert db.check() > 0


def test_a_database_of_release_0_1_keeps_its_versions_and_loses_those_that_came_later(tmp_path: Path) -> None:
    shutil.copytree(VECTORS, tmp_path, dirs_exist_ok=True)
    (tmp_path / "clinic.key").chmod(0o600)
    anchor = (tmp_path / "clinic.anchor").read_bytes()
    with scumble.open(tmp_path / "clinic") as db:
        unsigned = db.version
        db.upgrade()
        wards = pa.table({"ward": ["surgery"], "floor": pa.array([4], pa.int8())})
        for _ in range(3):
            db.load("wards", wards, page_rows=16, capacity=16, again=True)
        head = db.version
    assert _collect(tmp_path / "clinic") == head - unsigned - 1
    kept = [f"{version:08d}" for version in range(1, unsigned + 1)]
    assert _names(tmp_path / "clinic") == [*kept, f"{unsigned + 1:08d}.links", f"{head:08d}"]
    (tmp_path / "clinic.anchor").write_bytes(anchor)
    with scumble.open(tmp_path / "clinic") as db:
        assert db.version == head
        assert db.check() > 0
    backup_to(tmp_path / "b.tar", FileStore(tmp_path / "clinic"))
    restore_from(tmp_path / "b.tar", FileStore.restoring(tmp_path / "again"))
    assert _names(tmp_path / "again") == _names(tmp_path / "clinic")


def test_at_a_service_that_keeps_one_version(tmp_path: Path) -> None:
    """The links pass from the front to an enclave process, and from there to owners and analysts."""
    with serving(tmp_path / "served", "--keep-versions", "1") as service:
        with service.create("clinic", tmp_path, limit=20) as owner:
            owner.load("visits", rows(4), capacity=64, page_rows=16)
            owner.grant("ada", AnalystKey.create(tmp_path / "ada.key", None).text, ["visits"])
            ada = {"key": tmp_path / "ada.key", "owner": owner.owner, **SIMULATED}
            with scumble.open(service.url("clinic"), **ada) as db:
                assert db.sql(COUNT).fetchall() == [(4,)]
            anchor = (tmp_path / "clinic.anchor").read_bytes()
            for _ in range(5):
                owner.load("visits", rows(1), capacity=16, page_rows=16, again=True)
            with scumble.open(service.url("clinic"), **ada) as db:
                assert db.sql(COUNT).fetchall() == [(9,)]
        (tmp_path / "clinic.anchor").write_bytes(anchor)
        with service.open("clinic", tmp_path) as owner:
            assert owner.sql(COUNT).fetchall() == [(9,)]
            assert owner.check() > 0
    assert len(list((tmp_path / "served/default/clinic/manifests").glob("*.manifest"))) <= 2
