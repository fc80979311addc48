"""The anchor: what the owner remembered comes back as it was, or not at all."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from scumble.errors import FileError, InvalidParameter, NewerVersion, Tampered
from scumble.owner.anchor import Anchor, _mac
from scumble.owner.key_file import canonical
from scumble.owner.keys import OwnerKey

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


@pytest.mark.parametrize("change", [0x01, 0x02, 0x04, 0x10, 0x20, 0x80, 0xFF])
def test_every_byte_flipped(file: Path, change: int) -> None:
    ANCHOR.save(file, KEY)
    data = file.read_bytes()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= change
        refused(file, bytes(damaged))


def test_every_length(file: Path) -> None:
    ANCHOR.save(file, KEY)
    data = file.read_bytes()
    for damaged in [*(data[:length] for length in range(len(data))), data + b"\n", data + b" " * 100_000]:
        refused(file, damaged)


@pytest.mark.parametrize("name", ["format", "version", "manifest", "mac"])
def test_every_field_replaced(file: Path, name: str) -> None:
    ANCHOR.save(file, KEY)
    content = json.loads(file.read_bytes())
    strange: list[Any] = [None, True, 0, 8, 2.5, "", "\ud800", "Ä", [], {}, 10**30, "0" * 64]
    for value in strange:
        refused(file, canonical(content | {name: value}))
    del content[name]
    refused(file, canonical(content))


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"[" * 50_000, b"\xff", b"{}", b"1" * 10_000])
def test_what_was_never_an_anchor(file: Path, data: bytes) -> None:
    refused(file, data)


def test_a_later_format_is_told_from_damage_by_its_mac(file: Path) -> None:
    file.write_bytes(signed({"format": 3, "anything": "else"}))
    with pytest.raises(NewerVersion):
        Anchor.load(file, KEY)
    refused(file, canonical({"format": 3, "anything": "else"}))


def test_signed_nonsense(file: Path) -> None:
    for content in ({}, {"format": 0}, {"format": 1}, {"format": 1, "version": "7", "manifest": ANCHOR.manifest}):
        refused(file, signed(content))


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(FileError, match="cannot be read"):
            Anchor.load(tmp_path / name, KEY)
    with pytest.raises(FileError, match="cannot be written"):
        ANCHOR.save(tmp_path / "none" / "clinic.anchor", KEY)


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


@pytest.mark.parametrize(
    ("version", "manifest"), [(-1, "0" * 64), (1, "0" * 63), (1, "G" * 64), (1, "A" * 64), (1, "")]
)
def test_an_anchor_that_cannot_be(version: int, manifest: str) -> None:
    with pytest.raises(InvalidParameter):
        Anchor(version, manifest)
