"""Keys: an analyst's is never taken for an owner's, what they derive has nothing in common, and public keys as text."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scumble.errors import Exists, InvalidParameter, KeyRefused, NewerVersion, Tampered
from scumble.owner.keys import AnalystKey, OwnerKey, open_key
from scumble.wire.grants import Grant, parse_public_key, public_text

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
