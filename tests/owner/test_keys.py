"""Keys: an analyst's is never taken for an owner's, what they derive has nothing in common, and public keys as text."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scumble.errors import Exists, InvalidParameter, KeyRefused, NewerVersion, NotFound, Refused, Tampered
from scumble.owner import key_file
from scumble.owner.keys import AnalystKey, OwnerKey, open_key
from scumble.owner.ledger import Ledger
from scumble.wire.grants import Grant, parse_public_key, public_text
from scumble.wire.lineage import database_id

DATABASE = "0a" * 16


@pytest.fixture(autouse=True)
def no_passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCUMBLE_PASSPHRASE", raising=False)


@pytest.mark.parametrize("passphrase", [None, "open, sesame"])
def test_an_identity_is_the_same_whenever_it_is_opened(tmp_path: Path, passphrase: str | None) -> None:
    path = tmp_path / "ada.key"
    made = AnalystKey.create(path, passphrase)
    opened = AnalystKey.open(path, DATABASE, passphrase)
    assert opened.text == made.text
    assert path.stat().st_mode & 0o777 == 0o600
    assert made.root.hex() not in repr(made) + repr(opened)
    assert (made.root.hex() in path.read_text()) == (passphrase is None)
    with pytest.raises(Exists):
        AnalystKey.create(path, passphrase)


def test_the_two_kinds_of_key_files_are_not_taken_for_each_other(tmp_path: Path) -> None:
    AnalystKey.create(tmp_path / "ada.key", None)
    database = OwnerKey.create(tmp_path / "db.key", None).database
    with pytest.raises(KeyRefused, match="analyst"):
        OwnerKey.open(tmp_path / "ada.key")
    with pytest.raises(KeyRefused, match="owner"):
        AnalystKey.open(tmp_path / "db.key")
    assert isinstance(open_key(tmp_path / "ada.key", DATABASE), AnalystKey)
    assert isinstance(open_key(tmp_path / "db.key", database), OwnerKey)
    with pytest.raises(KeyRefused, match="another database"):
        open_key(tmp_path / "db.key", "0b" * 16)


@pytest.mark.parametrize("protected", [False, True])
def test_no_byte_of_an_identity_can_be_changed(tmp_path: Path, protected: bool) -> None:
    path = tmp_path / "ada.key"
    AnalystKey.create(path, "open, sesame" if protected else None)
    content = path.read_bytes()
    for place in range(0, len(content), 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises((KeyRefused, NewerVersion)):
            AnalystKey.open(path, DATABASE, "open, sesame")


def test_one_root_makes_unrelated_keys(tmp_path: Path) -> None:
    """Those of the owner and of an analyst of the same root, and of two databases, have nothing in common."""
    root = bytes(32)
    owner, analyst = OwnerKey(DATABASE, root), AnalystKey(DATABASE, root)
    signers = [key.signing_key().public_key().public_bytes_raw() for key in (owner, analyst, OwnerKey("0b" * 16, root))]
    macs = [key.anchor_key() for key in (owner, analyst, AnalystKey("0b" * 16, root))]
    assert len({*signers, *macs, owner.data_key()}) == 7
    assert analyst.data_key() is None


def test_the_keys_of_a_root_stay_the_same() -> None:
    """Whatever was sealed, signed or remembered under them has to open with a later release."""
    owner, analyst = OwnerKey(DATABASE, bytes(32)), AnalystKey(DATABASE, bytes(32))
    owners = owner.public_key(), owner.data_key(), owner.anchor_key(), owner.noise_key(), owner.content_key()
    analysts = analyst.public_key(), analyst.anchor_key(), analyst.noise_key(), analyst.content_key()
    assert [key.hex()[:8] for key in (*owners, owner.nonce())] == [
        "a87e88e5",
        "2c99dbd8",
        "a42a5daa",
        "a7b574bb",
        "ea837420",
        "a5eceba4",
    ]
    assert [key.hex()[:8] for key in analysts] == ["38bd2402", "69ac3032", "07a49797", "ea837420"]
    assert analyst._owner_mac("0f" * 32)[:8] == "ce23bf6e"


def test_the_first_owner_of_a_database_that_is_named_after_it_stays_the_same() -> None:
    owner = OwnerKey("0a" * 20, bytes(32))
    assert owner.public_key().hex()[:8] == "667cb253"
    assert owner.public_key() == OwnerKey("0b" * 20, bytes(32)).public_key()
    drawn = OwnerKey.draw()
    assert drawn.database == database_id(drawn.public_key(), drawn.nonce())
    assert (drawn.title().version, drawn.title(3).version) == (1, 3)
    assert (drawn.title().nonce, OwnerKey(DATABASE, bytes(32)).title().nonce) == (drawn.nonce(), b"")


@pytest.mark.parametrize(
    "secret", [{"root": "zz", "next_root": None}, {"root": "00", "next_root": None}, {"root": 5}, {}]
)
def test_a_key_file_that_holds_no_key_is_damaged(tmp_path: Path, secret: dict[str, Any]) -> None:
    owners, analysts = tmp_path / "clinic.key", tmp_path / "ada.key"
    key_file.write_new(owners, key_file.protect({"database": DATABASE}, secret, None))
    key_file.write_new(analysts, key_file.protect({"kind": "analyst"}, secret, None))
    with pytest.raises(KeyRefused, match="damaged"):
        OwnerKey.open(owners)
    with pytest.raises(KeyRefused, match="damaged"):
        AnalystKey.open(analysts)


def test_no_root_is_shown() -> None:
    key = OwnerKey(DATABASE, b"r" * 32, b"n" * 32)
    assert "rrrr" not in repr(key)
    assert "nnnn" not in repr(key)


@pytest.mark.parametrize("roots", [(b"r" * 31,), (b"r" * 33,), (b"r" * 32, b"n" * 31), (b"", b"n" * 32)])
def test_a_root_has_32_bytes(roots: tuple[bytes, ...]) -> None:
    for kind in (OwnerKey, AnalystKey):
        with pytest.raises(InvalidParameter):
            kind(DATABASE, *roots)


@pytest.mark.parametrize("database", ["0" * 15, "0" * 65, "A" * 16, ""])
def test_an_owners_key_is_of_one_database(database: str) -> None:
    with pytest.raises(InvalidParameter):
        OwnerKey(database, bytes(32))


def test_only_an_owner_passes_for_one() -> None:
    owner = OwnerKey(DATABASE, bytes(32))
    assert owner.as_owner() is owner
    with pytest.raises(Refused):
        AnalystKey(DATABASE, bytes(32)).as_owner()


def test_while_there_are_two_roots_either_may_be_in_force() -> None:
    one, both = OwnerKey(DATABASE, b"r" * 32), OwnerKey(DATABASE, b"r" * 32, b"n" * 32)
    assert one.candidates() == (one,)
    assert both.candidates() == (both, OwnerKey(DATABASE, b"n" * 32, b"r" * 32))


def test_a_load_is_paid_from_the_owners_ledger_or_a_grants_allotment(tmp_path: Path) -> None:
    path, owner, analyst = tmp_path / "clinic.key", OwnerKey(DATABASE, bytes(32)), AnalystKey(DATABASE, bytes(32))
    with pytest.raises(NotFound):
        owner.ledger(path, None)
    Ledger.open(tmp_path / "clinic.ledger", limit=3).close()
    assert owner.ledger(path, None).remaining() == 3
    grant = Grant("0" * 16, "ada", b"k" * 32, {"t": frozenset(["load"])}, Fraction(2), Fraction(1, 8))
    assert analyst.ledger(path, grant).remaining() == 2
    assert (tmp_path / f"clinic.{DATABASE}.{grant.id}.ledger").exists()
    with pytest.raises(NotFound):
        analyst.ledger(path, replace(grant, epsilon=Fraction(0)))


def test_a_key_file_of_either_kind_is_opened_for_its_database(tmp_path: Path) -> None:
    owner = OwnerKey.create(tmp_path / "clinic.key", None)
    analyst = AnalystKey.create(tmp_path / "ada.key", None)
    assert open_key(tmp_path / "clinic.key", owner.database) == owner
    assert open_key(tmp_path / "ada.key", DATABASE) == AnalystKey(DATABASE, analyst.root)
    with pytest.raises(KeyRefused):
        open_key(tmp_path / "clinic.key", DATABASE)


def test_whose_database_it_is_is_remembered_and_cannot_be_chosen_by_others(tmp_path: Path) -> None:
    path, key = tmp_path / "ada.key", AnalystKey.create(tmp_path / "ada.key", None)
    key = AnalystKey(DATABASE, key.root)
    assert key.known_owner(path) is None
    key.remember_owner(path, "0f" * 32)
    assert key.known_owner(path) == "0f" * 32
    (file,) = tmp_path.glob("*.owner")
    file.write_text(file.read_text().replace("0f" * 32, "0e" * 32))
    with pytest.raises(Tampered):
        key.known_owner(path)


@given(key=st.binary(min_size=32, max_size=32), place=st.integers(0, 79), digit=st.sampled_from("0123456789abcdefx"))
def test_a_slip_in_a_public_key_is_noticed(key: bytes, place: int, digit: str) -> None:
    text = public_text(key)
    assert parse_public_key(f" {text.upper()}\n") == key
    changed = text[:place] + digit + text[place + 1 :]
    if changed != text:
        with pytest.raises(InvalidParameter):
            parse_public_key(changed)
    with pytest.raises(InvalidParameter):
        parse_public_key(text[:-1])


READ = frozenset(["read"])


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "x" * 65},
        {"name": '"'},
        {"id": "x"},
        {"public_key": b"k"},
        {"tables": {}},
        {"tables": {"t": frozenset()}},
        {"tables": {"t": frozenset(["write"])}},
        {"tables": {f"t{place}": READ for place in range(300)}},
        {"epsilon": -1},
        {"delta": 1},
    ],
)
def test_a_grant_that_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    good: dict[str, object] = {"id": "0" * 16, "name": "ada", "public_key": b"k" * 32, "tables": {"Visits": READ}}
    grant = Grant(**good)  # type: ignore[arg-type]
    assert grant.may("read", "VISITS")
    assert not grant.may("load", "visits")
    assert Grant.from_json(grant.to_json()) == grant
    with pytest.raises(InvalidParameter):
        Grant(**{**good, **fields})  # type: ignore[arg-type]
