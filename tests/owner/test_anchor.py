"""The anchor: what the owner remembered comes back as it was, or not at all."""

import base64
import json
import os
import stat
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from scumble.errors import FileError, InvalidParameter, NewerVersion, Tampered
from scumble.owner.anchor import Anchor, _mac, anchor_text, database_in, read_anchor_text
from scumble.owner.key_file import canonical
from scumble.owner.keys import OwnerKey
from scumble.wire.grants import Grant

DATABASE = "00112233445566778899aabbccddeeff"
KEY = OwnerKey(DATABASE, bytes(32)).anchor_key()
ANCHOR = Anchor(7, "0a" * 32)
LATER = Anchor(8, "0b" * 32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "clinic.anchor"


def signed(content: dict[str, Any]) -> bytes:
    return canonical(content | {"mac": _mac(content, KEY)})


def refused(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    with pytest.raises(Tampered):
        Anchor.load(file, KEY)
    assert file.read_bytes() == data  # which is left to whoever wants to know what has happened


def test_what_was_saved_is_loaded(file: Path) -> None:
    ANCHOR.save(file, KEY)
    assert Anchor.load(file, KEY) == ANCHOR
    LATER.save(file, KEY)
    assert Anchor.load(file, KEY) == LATER
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_a_missing_anchor_is_none(file: Path) -> None:
    assert Anchor.load(file, KEY) is None


@pytest.mark.parametrize(
    "other",
    [OwnerKey(DATABASE, bytes(31) + b"\1").anchor_key(), OwnerKey("f" * 32, bytes(32)).anchor_key(), b"", KEY[1:]],
)
def test_the_anchor_of_another_key_or_database(file: Path, other: bytes) -> None:
    ANCHOR.save(file, KEY)
    with pytest.raises(Tampered):
        Anchor.load(file, other)
    assert Anchor.load(file, KEY) == ANCHOR


@pytest.mark.parametrize("change", [0x01, 0x02, 0x04, 0x10, 0x20, 0x80, 0xFF])
def test_every_byte_flipped(file: Path, change: int) -> None:
    ANCHOR.save(file, KEY)
    data = file.read_bytes()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= change
        refused(file, bytes(damaged))
    file.write_bytes(data)
    assert Anchor.load(file, KEY) == ANCHOR


def test_every_length(file: Path) -> None:
    ANCHOR.save(file, KEY)
    data = file.read_bytes()
    for damaged in [*(data[:length] for length in range(len(data))), data + b"\n", data + b" " * 100_000]:
        refused(file, damaged)
    file.write_bytes(data)
    assert Anchor.load(file, KEY) == ANCHOR


@pytest.mark.parametrize("name", ["format", "version", "manifest", "mac"])
def test_every_field_replaced(file: Path, name: str) -> None:
    ANCHOR.save(file, KEY)
    content = json.loads(file.read_bytes())
    assert canonical(content) == file.read_bytes()
    strange: list[Any] = [None, True, 0, 8, 2.5, "", "\ud800", "Ä", [], {}, 10**30, "0" * 64]
    for value in strange:
        refused(file, canonical(content | {name: value}))
    del content[name]
    refused(file, canonical(content))


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"[" * 50_000, b"\xff", b"{}", b"1" * 10_000])
def test_what_was_never_an_anchor_gives_way_to_one(file: Path, data: bytes) -> None:
    refused(file, data)
    ANCHOR.save(file, KEY)
    assert Anchor.load(file, KEY) == ANCHOR


def test_a_later_format_is_told_from_damage_by_its_mac(file: Path) -> None:
    file.write_bytes(signed({"format": 3, "anything": "else"}))
    with pytest.raises(NewerVersion):
        Anchor.load(file, KEY)
    refused(file, canonical({"format": 3, "anything": "else"}))


def test_a_file_of_the_first_format_has_a_version_only(file: Path) -> None:
    file.write_bytes(signed({"format": 1, "version": 7, "manifest": ANCHOR.manifest}))
    assert Anchor.load(file, KEY) == ANCHOR


def test_signed_nonsense(file: Path) -> None:
    file.write_bytes(signed({"format": 1, "version": 7, "manifest": ANCHOR.manifest}))
    assert Anchor.load(file, KEY) == ANCHOR
    for content in ({}, {"format": 0}, {"format": 1}, {"format": 1, "version": "7", "manifest": ANCHOR.manifest}):
        refused(file, signed(content))


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(FileError, match="cannot be read"):
            Anchor.load(tmp_path / name, KEY)
    with pytest.raises(FileError, match="cannot be written"):
        ANCHOR.save(tmp_path / "none" / "clinic.anchor", KEY)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("step", ["replace", "fsync"])
def test_a_failure_during_save_keeps_the_old_one(file: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    ANCHOR.save(file, KEY)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(FileError, match="No space left"):
            LATER.save(file, KEY)
    assert Anchor.load(file, KEY) == ANCHOR
    assert list(file.parent.iterdir()) == [file]


def test_an_anchor_counts_restores_from_0_on() -> None:
    assert Anchor(0, "0" * 64).restores == 0
    for restores in (0, 1):
        assert Anchor(1, "0" * 64, restores).seen == (restores, 1, "0" * 64)
    with pytest.raises(InvalidParameter):
        Anchor(1, "0" * 64, -1)


@pytest.mark.parametrize(
    ("version", "manifest"), [(-1, "0" * 64), (1, "0" * 63), (1, "G" * 64), (1, "A" * 64), (1, "")]
)
def test_an_anchor_that_cannot_be(version: int, manifest: str) -> None:
    with pytest.raises(InvalidParameter):
        Anchor(version, manifest)


# --- grants ------------------------------------------------------------------------------------------

ADA, BOB = "a" * 16, "b" * 16


def grant(name: str, epsilon: Fraction | int, delta: Fraction | int) -> Grant:
    used = Fraction(epsilon), Fraction(delta)
    return Grant(name, "ada", bytes(32), {"t": frozenset(["load"])}, used_epsilon=used[0], used_delta=used[1])


def test_what_is_known_to_be_used_of_a_grant_only_grows(file: Path) -> None:
    nought, half, tenth, one = Fraction(0), Fraction(1, 2), Fraction(1, 10), Fraction(1)
    first = ANCHOR.knowing([grant(ADA, half, 0), grant(BOB, 0, tenth)])
    assert first.used == {ADA: (half, nought), BOB: (nought, tenth)}
    assert first.knowing([grant(ADA, 0, tenth), grant(BOB, half, 0)]).used == {ADA: (half, tenth), BOB: (half, tenth)}
    assert first.knowing([grant(ADA, 1, 0), grant(BOB, 0, half)]).used == {ADA: (one, nought), BOB: (nought, half)}
    first.save(file, KEY)
    assert Anchor.load(file, KEY) == first


def test_a_grant_that_is_gone_stays_revoked_and_known(file: Path) -> None:
    both = ANCHOR.knowing([grant(ADA, 1, 0), grant(BOB, 2, 0)])
    assert both.revoked == frozenset()
    one = both.knowing([grant(BOB, 2, 0)])
    assert one.revoked == {ADA}
    assert one.used == both.used
    none = one.knowing([])
    assert none.revoked == one.knowing([]).knowing([grant(ADA, 1, 0)]).revoked == {ADA, BOB}
    none.save(file, KEY)
    assert Anchor.load(file, KEY) == none


def test_grants_are_known_at_whatever_version_is_seen() -> None:
    known = ANCHOR.knowing([grant(ADA, 1, 0)]).knowing([])
    moved = known.at(Anchor(8, LATER.manifest, 2))
    assert moved.seen == (2, 8, LATER.manifest)
    assert (moved.used, moved.revoked) == (known.used, known.revoked)


# --- as text -----------------------------------------------------------------------------------------

OWNER, OTHER = (OwnerKey(DATABASE, bytes([place]) * 32) for place in (1, 2))
TRUSTED = [OWNER.public_key()]
TEXT = anchor_text(Anchor(7, "0a" * 32, 1), DATABASE, OWNER.signing_key())


def changed(change: dict[str, Any]) -> str:
    """A text with other fields, under the signature of the first."""
    prefix, _, content = TEXT.partition(":")
    fields = json.loads(base64.urlsafe_b64decode(content)) | change
    return f"{prefix}:{base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()}"


def test_an_anchor_as_text_stays_the_same() -> None:
    """One that another release has written is read."""
    prefix, _, content = TEXT.partition(":")
    assert prefix == "scumble-anchor-1"
    assert json.loads(base64.urlsafe_b64decode(content))["signature"][:16] == "9700b1d70b7859a7"
    assert read_anchor_text(f" {TEXT}\n", DATABASE, TRUSTED) == Anchor(7, "0a" * 32, 1)
    assert database_in(f" {TEXT}\n") == DATABASE


@pytest.mark.parametrize(
    "change",
    [
        {"seen": [1, 8, "0a" * 32]},
        {"seen": [2, 7, "0a" * 32]},
        {"seen": [1, 7, "0b" * 32]},
        {"seen": [1, 7]},
        {"seen": [True, 7, "0a" * 32]},
        {"seen": [-1, 7, "0a" * 32]},
        {"seen": 5},
        {"signer": OTHER.public_key().hex()},
        {"signature": "00" * 64},
        {"signature": "no hex"},
        {"signature": None},
        {"database": "f" * 32},
    ],
)
def test_no_field_of_a_text_can_be_changed(change: dict[str, Any]) -> None:
    assert read_anchor_text(changed({}), DATABASE, TRUSTED) == Anchor(7, "0a" * 32, 1)
    with pytest.raises(InvalidParameter, match="no anchor"):
        read_anchor_text(changed(change), DATABASE, TRUSTED)


@pytest.mark.parametrize("seen", [(True, 7), (1, True), (1.0, 7), (1, 7.0)])
def test_a_text_with_numbers_of_another_kind_is_refused_though_it_is_signed(seen: tuple[Any, Any]) -> None:
    text = anchor_text(Anchor(seen[1], "0a" * 32, seen[0]), DATABASE, OWNER.signing_key())
    with pytest.raises(InvalidParameter, match="no anchor"):
        read_anchor_text(text, DATABASE, TRUSTED)


def test_a_text_of_another_key_or_database_is_refused() -> None:
    elsewhere = anchor_text(ANCHOR, "f" * 32, OWNER.signing_key())
    with pytest.raises(InvalidParameter, match="no anchor"):
        read_anchor_text(elsewhere, DATABASE, TRUSTED)
    with pytest.raises(InvalidParameter, match="neither from this key"):
        read_anchor_text(TEXT, DATABASE, [OTHER.public_key()])
    assert read_anchor_text(TEXT, DATABASE, [OTHER.public_key(), *TRUSTED]).version == 7


NO_TEXTS = [
    "",
    TEXT.partition(":")[2],
    TEXT.replace("anchor-1", "anchor-2"),
    TEXT[:-5],
    "scumble-anchor-1:" + base64.urlsafe_b64encode(b"[]").decode(),
    "scumble-anchor-1:" + base64.urlsafe_b64encode(b"[" * 100_000).decode(),
]


@pytest.mark.parametrize("text", [*NO_TEXTS, *(changed({"database": name}) for name in (5, None, "", "x" * 32))])
def test_what_is_no_anchor_names_no_database(text: str) -> None:
    with pytest.raises(InvalidParameter, match="no anchor"):
        database_in(text)
    with pytest.raises(InvalidParameter, match="no anchor"):
        read_anchor_text(text, DATABASE, TRUSTED)
