"""A backup that is restored, a device that is new: what was used, revoked or seen before is not forgotten."""

import shutil
import warnings
from fractions import Fraction
from pathlib import Path

import pytest
from clinics import INDEX, Clinic, clinic, rows

import scumble
from scumble.cli import main
from scumble.errors import InvalidParameter, KeyRefused, Overdraft, Refused, ScumbleError, Tampered
from scumble.owner.anchor import Anchor, anchor_text, read_anchor_text
from scumble.owner.keys import OwnerKey

__all__ = ["clinic"]

COUNT = "SELECT count(*) FROM visits"


def _restore(clinic: Clinic, backup: Path) -> None:
    """Put the folder back as it was, as an operator does: nothing is running meanwhile."""
    clinic.owner.close()
    clinic.store.close()
    shutil.rmtree(clinic.home / "db")
    shutil.copytree(backup, clinic.home / "db")


def _backup(clinic: Clinic) -> Path:
    return Path(shutil.copytree(clinic.home / "db", clinic.home / "backup"))


def test_a_restored_backup_gives_no_grant_back_that_was_revoked_or_used_up(clinic: Clinic) -> None:
    clinic.owner.grant("ada", clinic.identity("ada"), ["visits"])
    clinic.owner.grant("lab", clinic.identity("lab"), {"visits": ["read", "load"]}, epsilon=1, delta="1e-6")
    backup = _backup(clinic)
    with clinic.analyst("lab") as lab:
        lab.load("visits", rows(7), indexes=INDEX, capacity=16, page_rows=16)
    clinic.owner.revoke("ada")
    _restore(clinic, backup)
    with pytest.raises(Tampered):
        clinic.reopen()
    clinic.reopen(accept_restored=True)
    assert clinic.owner.sql(COUNT).fetchone() == (40,)
    (grant,) = clinic.owner.grants()
    assert (grant.name, grant.used_epsilon) == ("lab", Fraction(1, 2))
    with pytest.raises(Refused):
        clinic.analyst("ada")
    with clinic.analyst("lab") as lab:  # who has seen a later version: the owner's signature explains it
        assert lab.sql(COUNT).fetchone() == (40,)
        lab.load("visits", rows(8), indexes=INDEX, capacity=16, page_rows=16)
        with pytest.raises(Overdraft):
            lab.load("visits", rows(9), indexes=INDEX, capacity=16, page_rows=16)


def test_an_analyst_who_forgets_what_it_spent_is_held_to_its_allotment(clinic: Clinic) -> None:
    clinic.owner.grant("lab", clinic.identity("lab"), {"visits": ["load"]}, epsilon=1, delta="1e-6")
    for count in (3, 4):
        with clinic.analyst("lab") as lab:
            lab.load("visits", rows(count), indexes=INDEX, capacity=16, page_rows=16)
        for ledger in clinic.home.glob("lab.*.ledger"):
            ledger.unlink()
    with clinic.analyst("lab") as lab, pytest.raises(Overdraft):
        lab.load("visits", rows(5), indexes=INDEX, capacity=16, page_rows=16)


def test_what_was_paid_for_stays_paid_though_the_load_never_ends(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the noise was drawn and before the version was stored: the allotment has paid all the same."""
    clinic.owner.grant("lab", clinic.identity("lab"), {"visits": ["load"]}, epsilon=1, delta="1e-6")
    commit = clinic.store.commit

    def killed(version: int, manifest: bytes) -> None:
        if manifest.count(b'"batch":') > 2:
            raise OSError(5, "the provider pulls the plug")
        commit(version, manifest)

    for count in (3, 4):
        with clinic.analyst("lab") as lab:
            monkeypatch.setattr(clinic.store, "commit", killed)
            with pytest.raises(ScumbleError):
                lab.load("visits", rows(count), indexes=INDEX, capacity=16, page_rows=16)
            monkeypatch.setattr(clinic.store, "commit", commit)
        for ledger in clinic.home.glob("lab.*.ledger"):
            ledger.unlink()
    with clinic.analyst("lab") as lab, pytest.raises(Overdraft):
        lab.load("visits", rows(5), indexes=INDEX, capacity=16, page_rows=16)
    assert clinic.owner.sql(COUNT).fetchone() == (40,)


def test_restored_twice_and_rolled_back_by_the_provider_afterwards(clinic: Clinic) -> None:
    clinic.owner.grant("ada", clinic.identity("ada"), ["visits"])
    backup = _backup(clinic)
    with clinic.analyst("ada"):
        pass
    for restores in (1, 2):
        clinic.owner.load("visits", rows(restores), indexes=INDEX, capacity=16, page_rows=16)
        _restore(clinic, backup)
        clinic.reopen(accept_restored=True)
        assert clinic.owner._versions.catalog.restores == restores
        with clinic.analyst("ada") as ada:
            assert ada.sql(COUNT).fetchone() == (40,)
    _restore(clinic, backup)  # the provider's doing this time
    with pytest.raises(Tampered):
        clinic.reopen()
    clinic.reopen(first_opening=True, anchored=False)
    with pytest.raises(Tampered):
        clinic.analyst("ada")


# --- a device that is new ----------------------------------------------------------------------------


def test_without_an_anchor_an_owner_is_refused_until_it_is_brought_or_waived(tmp_path: Path) -> None:
    with scumble.create(tmp_path / "db") as db:
        old = (tmp_path / "db/HEAD").read_bytes()
        db.load("t", rows(5), capacity=16, page_rows=16)
        text = db.anchor()
    (tmp_path / "db.anchor").unlink()
    with pytest.raises(KeyRefused, match="no anchor") as refused:
        scumble.open(tmp_path / "db")
    assert "--first-opening" in str(refused.value.hint)
    assert main(["anchor", "import", str(tmp_path / "db.key"), text]) == 0
    new = (tmp_path / "db/HEAD").read_bytes()
    (tmp_path / "db/HEAD").write_bytes(old)
    with pytest.raises(Tampered):
        scumble.open(tmp_path / "db")
    (tmp_path / "db/HEAD").write_bytes(new)
    (tmp_path / "db.anchor").unlink()
    with scumble.open(tmp_path / "db", first_opening=True) as db:
        assert db.sql("SELECT count(*) FROM t").fetchone() == (5,)
    with scumble.open(tmp_path / "db"):
        pass


def test_an_anchor_is_never_put_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with scumble.create(tmp_path / "db") as db:
        old = db.anchor()
        db.load("t", rows(5), capacity=16, page_rows=16)
        new = db.anchor()
    before = (tmp_path / "db.anchor").read_bytes()
    assert main(["anchor", "import", str(tmp_path / "db.key"), old]) != 0
    assert "later than" in capsys.readouterr().err
    assert main(["anchor", "import", str(tmp_path / "db.key"), new]) == 0
    assert (tmp_path / "db.anchor").read_bytes() == before


def test_an_anchor_s_text_is_taken_from_its_signers_alone() -> None:
    key, other = OwnerKey.draw(), OwnerKey.draw()
    anchor = Anchor(7, "0a" * 32, 1)
    text = anchor_text(anchor, key.database, key.signing_key())
    assert read_anchor_text(f" {text}\n", key.database, [key.public_key()]) == anchor
    for wrong, database, trusted in (
        (text, other.database, key),
        (text, key.database, other),
        (anchor_text(anchor, key.database, other.signing_key()), key.database, key),
        (anchor_text(anchor, other.database, key.signing_key()), key.database, key),
        (text[:-4], key.database, key),
        (text.removeprefix("scumble-"), key.database, key),
        ("", key.database, key),
        ("scumble-anchor-1:W10=", key.database, key),
    ):
        with pytest.raises(InvalidParameter):
            read_anchor_text(wrong, database, [trusted.public_key()])


def test_an_analyst_is_warned_at_the_first_opening_and_not_again(clinic: Clinic) -> None:
    clinic.owner.grant("ada", clinic.identity("ada"), ["visits"])
    with pytest.warns(UserWarning, match="no anchor"), clinic.analyst("ada"):
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with clinic.analyst("ada") as ada:
            assert ada.sql(COUNT).fetchone() == (40,)
