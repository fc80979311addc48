"""The owner's key file: it opens with what it was made with, and in every other case says no in plain words."""

import json
import os
import stat
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scumble
from scumble.errors import Exists, FileError, InvalidParameter, KeyRefused, NewerVersion, ScumbleError
from scumble.owner import key_file
from scumble.owner.key_file import is_protected
from scumble.owner.keys import AnalystKey, OwnerKey
from scumble.wire.lineage import database_id

DATABASE = "00112233445566778899aabbccddeeff"
ROOT = bytes(range(32))
KEY = OwnerKey(DATABASE, ROOT)
REKEYING = OwnerKey(DATABASE, ROOT, bytes(range(100, 132)))
PASSPHRASE = "correct horse"  # noqa: S105


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCUMBLE_PASSPHRASE", raising=False)
    monkeypatch.delenv("SCUMBLE_KEY", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "clinic.key"


def write(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    file.chmod(0o600)


def encoded(key: OwnerKey = KEY, passphrase: str | None = PASSPHRASE) -> bytes:
    return key.to_bytes(passphrase)


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
def test_what_was_created_opens_and_only_the_owner_can_read_it(file: Path, passphrase: str | None) -> None:
    before = os.umask(0)
    try:
        key = OwnerKey.create(file, passphrase)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert key.database == database_id(key.public_key(), key.nonce())
    assert len(key.root) == 32
    assert key.next_root is None
    assert OwnerKey.open(file, passphrase) == key
    assert is_protected(file) == (passphrase is not None)
    assert (key.root.hex() in file.read_text()) == (passphrase is None)
    assert PASSPHRASE not in file.read_text()
    assert list(file.parent.iterdir()) == [file]


def test_the_cost_that_is_shipped(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    key = OwnerKey.create(file, PASSPHRASE)
    assert json.loads(file.read_bytes())["kdf"]["n"] >= 2**15
    assert OwnerKey.open(file, PASSPHRASE) == key


def test_every_file_has_a_salt_of_16_bytes_of_its_own() -> None:
    salts = {json.loads(encoded())["kdf"]["salt"] for _ in range(3)}
    assert [len(bytes.fromhex(salt)) for salt in salts] == [16, 16, 16]


def test_two_keys_are_never_the_same(tmp_path: Path) -> None:
    keys = [OwnerKey.create(tmp_path / f"{number}.key", None) for number in range(3)]
    assert len({key.root for key in keys}) == 3


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
@pytest.mark.parametrize("key", [KEY, REKEYING])
def test_replace_keeps_both_roots_and_changes_the_passphrase(file: Path, key: OwnerKey, passphrase: str | None) -> None:
    OwnerKey.create(file, "the first one")
    key.save(file, passphrase)
    assert OwnerKey.open(file, passphrase) == key
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]
    if passphrase:
        with pytest.raises(KeyRefused):
            OwnerKey.open(file, "the first one")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644])
def test_a_clear_key_that_others_can_reach_is_refused(file: Path, mode: int) -> None:
    key = OwnerKey.create(file, None)
    file.chmod(mode)
    with pytest.raises(KeyRefused, match="chmod 600") as refusal:
        OwnerKey.open(file)
    assert str(file) in str(refusal.value.hint)
    file.chmod(0o600)
    assert OwnerKey.open(file) == key


def test_a_sealed_key_may_be_read_by_anybody(file: Path) -> None:
    key = OwnerKey.create(file, PASSPHRASE)
    file.chmod(0o644)
    assert OwnerKey.open(file, PASSPHRASE) == key


def test_what_is_there_is_never_overwritten_by_create(file: Path) -> None:
    OwnerKey.create(file, PASSPHRASE)
    before = file.read_bytes()
    with pytest.raises(Exists):
        OwnerKey.create(file, PASSPHRASE)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_create_does_not_follow_a_dangling_link(file: Path) -> None:
    file.symlink_to(file.parent / "elsewhere")
    with pytest.raises(Exists):
        OwnerKey.create(file, None)
    assert not (file.parent / "elsewhere").exists()


def test_replace_follows_a_link(file: Path, tmp_path: Path) -> None:
    OwnerKey.create(file, PASSPHRASE)
    link = tmp_path / "link.key"
    link.symlink_to(file)
    REKEYING.save(link, PASSPHRASE)
    assert link.is_symlink()
    assert OwnerKey.open(file, PASSPHRASE) == REKEYING


def test_a_key_cannot_be_written_where_there_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be written"):
        OwnerKey.create(tmp_path / "none" / "clinic.key", None)
    with pytest.raises(FileError, match="cannot be written"):
        KEY.save(tmp_path / "none" / "clinic.key", None)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_says_what_is_lost(file: Path) -> None:
    with pytest.raises(KeyRefused, match="there is no key file") as refusal:
        OwnerKey.open(file, PASSPHRASE)
    assert "without the key file the data is lost" in str(refusal.value.hint)


def test_what_is_no_file_is_refused_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("pipe", ".", "loop", "x" * 300):
        with pytest.raises(KeyRefused, match="cannot be read"):
            OwnerKey.open(tmp_path / name)
    with pytest.raises(KeyRefused):
        OwnerKey.open(Path("/dev/zero"))


# The passphrase


@pytest.mark.parametrize("wrong", ["", "correct hors", "correct horse ", "Correct horse", "x" * 10_000, "\udc80"])
def test_a_wrong_passphrase(file: Path, wrong: str) -> None:
    write(file, encoded())
    with pytest.raises(KeyRefused) as refusal:
        OwnerKey.open(file, wrong)
    assert PASSPHRASE not in str(refusal.value)
    assert not wrong or wrong not in str(refusal.value)


def test_the_same_letters_are_the_same_passphrase(file: Path) -> None:
    write(file, encoded(KEY, "Brücke"))
    assert OwnerKey.open(file, unicodedata.normalize("NFC", "Brücke")) == KEY
    assert OwnerKey.open(file, unicodedata.normalize("NFD", "Brücke")) == KEY


def test_a_passphrase_of_bytes_that_are_no_text(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environb, b"SCUMBLE_PASSPHRASE", b"\xff\xfe")
    write(file, encoded(passphrase=os.environ["SCUMBLE_PASSPHRASE"]))
    assert OwnerKey.open(file) == KEY


def test_an_empty_passphrase_is_not_taken(file: Path) -> None:
    with pytest.raises(InvalidParameter, match="protects nothing"):
        KEY.save(file, "")
    assert not file.exists()


@pytest.mark.parametrize("weak", ["", "pp", "elevenchars", "abcdabcdabcd", "a" * 1000, "e\u0301" * 6 + "abcde"])
def test_a_new_passphrase_has_to_be_hard_to_guess(file: Path, weak: str) -> None:
    """Twelve characters, five of them different; a letter with its accent is one, however it is written."""
    for create in (lambda: OwnerKey.create(file, weak), lambda: AnalystKey.create(file, weak)):
        with pytest.raises(InvalidParameter, match="at least 12 characters, 5 of them different") as refusal:
            create()
        assert refusal.value.hint
        assert not file.exists()
    OwnerKey.create(file, "abcdeabcdeab")


def test_nothing_is_left_of_a_database_whose_passphrase_was_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="at least 12 characters"):
        scumble.create(tmp_path / "clinic", passphrase="pp")  # noqa: S106
    assert not list(tmp_path.iterdir())


def test_old_files_open_whatever_their_passphrase_and_keep_it_through_a_rekey(file: Path) -> None:
    write(file, encoded(KEY, "pp"))
    OwnerKey.open(file, "pp").save(file, "pp")
    assert OwnerKey.open(file, "pp") == KEY


def test_a_callable_is_asked_once(file: Path) -> None:
    write(file, encoded())
    asked = 0

    def ask() -> str:
        nonlocal asked
        asked += 1
        return PASSPHRASE

    assert OwnerKey.open(file, ask) == KEY
    assert asked == 1


def unwanted() -> str:
    raise AssertionError("nobody should have been asked")


def test_nobody_is_asked_in_vain(file: Path) -> None:
    with pytest.raises(KeyRefused):
        OwnerKey.open(file, unwanted)
    write(file, encoded(passphrase=None))
    assert OwnerKey.open(file, unwanted) == KEY
    assert OwnerKey.open(file, "not needed") == KEY
    write(file, b"{}")
    with pytest.raises(KeyRefused):
        OwnerKey.open(file, unwanted)


def test_a_callable_that_gives_up(file: Path) -> None:
    write(file, encoded())
    with pytest.raises(KeyRefused, match="needs its passphrase"):
        OwnerKey.open(file, lambda: "")

    def interrupt() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        OwnerKey.open(file, interrupt)


def test_what_is_given_comes_before_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(file, encoded())
    with pytest.raises(KeyRefused, match="SCUMBLE_PASSPHRASE"):
        OwnerKey.open(file)
    monkeypatch.setenv("SCUMBLE_PASSPHRASE", "")
    with pytest.raises(KeyRefused, match="SCUMBLE_PASSPHRASE"):
        OwnerKey.open(file)
    monkeypatch.setenv("SCUMBLE_PASSPHRASE", PASSPHRASE)
    assert OwnerKey.open(file) == KEY
    for wrong in ("wrong", lambda: "wrong", ""):
        with pytest.raises(KeyRefused):
            OwnerKey.open(file, wrong)
    monkeypatch.setenv("SCUMBLE_PASSPHRASE", "wrong")
    assert OwnerKey.open(file, PASSPHRASE) == KEY
    with pytest.raises(KeyRefused):
        OwnerKey.open(file)


# Damage


def refused(file: Path, data: bytes) -> type[ScumbleError]:
    """As what a file is refused that has this in it."""
    write(file, data)
    with pytest.raises((KeyRefused, NewerVersion)) as refusal:
        OwnerKey.open(file, PASSPHRASE)
    if refusal.type is NewerVersion:  # only a larger number of the format may look like one
        assert json.loads(data)["format"] > 1
    assert ROOT.hex() not in str(refusal.value)
    assert file.read_bytes() == data
    return refusal.type


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
@pytest.mark.parametrize("change", [0x01, 0x02, 0x04, 0x10, 0x20, 0x80, 0xFF])
def test_every_byte_flipped(file: Path, passphrase: str | None, change: int) -> None:
    data = encoded(REKEYING, passphrase)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= change
        refused(file, bytes(damaged))
    write(file, data)
    assert OwnerKey.open(file, passphrase) == REKEYING


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
def test_every_length_and_every_byte_doubled_or_dropped(file: Path, passphrase: str | None) -> None:
    data = encoded(REKEYING, passphrase)
    for position in range(len(data)):
        refused(file, data[:position])
        if data[position : position + 1] != data[position + 1 : position + 2]:
            refused(file, data[:position] + data[position + 1 :])
        refused(file, data[: position + 1] + data[position:])
    refused(file, data + b"\n")
    refused(file, data + b" " * 100_000)
    write(file, data)
    assert OwnerKey.open(file, passphrase) == REKEYING


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
def test_every_field_replaced(file: Path, passphrase: str | None) -> None:
    content: dict[str, Any] = json.loads(encoded(KEY, passphrase))
    strange: list[Any] = [None, True, False, 0, -1, 2.5, 1.0, "", "x", "\ud800", [], {}, [[]], "Ä", 10**30]
    for name in list(content):
        for value in strange:
            refused(file, key_file.canonical(content | {name: value}))
        refused(file, key_file.canonical({other: content[other] for other in content if other != name}))
    refused(file, key_file.canonical(content | {"more": 1}))
    for inner in ("kdf", "keys"):
        for name in content.get(inner, {}):
            for value in strange:
                if value is not content[inner][name]:
                    refused(file, key_file.canonical(content | {inner: content[inner] | {name: value}}))
    write(file, key_file.canonical(content))
    assert OwnerKey.open(file, passphrase) == KEY


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"null", b"[]", b"[" * 50_000, b'{"format":' * 5000, b"1" * 10_000, b"\xff\xfe", b"\0" * 100],
)
def test_what_was_never_a_key_file(file: Path, data: bytes) -> None:
    assert refused(file, data) is KeyRefused


def test_a_damaged_clear_key_shows_nothing_of_itself_in_the_exception(file: Path) -> None:
    write(file, encoded(passphrase=None)[:-1])
    with pytest.raises(KeyRefused) as refusal:
        OwnerKey.open(file)
    assert refusal.value.__cause__ is None
    assert refusal.value.__context__ is None


def test_a_header_of_another_file_does_not_fit(file: Path) -> None:
    mine = json.loads(encoded(KEY))
    other = json.loads(encoded(OwnerKey("f" * 32, ROOT)))
    for name in ("database", "kdf", "sealed"):
        assert refused(file, key_file.canonical(mine | {name: other[name]})) is KeyRefused


def test_sealed_keys_that_are_no_keys(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has the passphrase can seal anything: that too is refused and not believed."""
    canonical = key_file.canonical
    for roots in ({}, {"root": "00", "next_root": None}, {"root": "00" * 32, "next_root": "x"}, {"root": 1}):
        with monkeypatch.context() as patch:
            patch.setattr(key_file, "canonical", lambda c, roots=roots: canonical(roots if "root" in c else c))
            data = encoded()
        refused(file, data)
    # The same detour with good roots opens, so it was not the detour that was refused.
    with monkeypatch.context() as patch:
        good = {"root": ROOT.hex(), "next_root": None}
        patch.setattr(key_file, "canonical", lambda c: canonical(good if "root" in c else c))
        data = encoded()
    write(file, data)
    assert OwnerKey.open(file, PASSPHRASE) == KEY


def test_a_later_format(file: Path) -> None:
    write(file, key_file.canonical({"format": 2, "anything": "else"}))
    with pytest.raises(NewerVersion, match="upgrade"):
        OwnerKey.open(file, unwanted)
    with pytest.raises(NewerVersion):
        is_protected(file)


@pytest.mark.parametrize(
    "change",
    [
        *({"n": cost} for cost in (2**19, 2**40, 2**62, 2**2000, 3, 1, 0, -16, True)),
        *({name: value} for name in "rp" for value in (2**30, 0)),
        {"name": "argon2"},
    ],
)
def test_scrypt_never_runs_with_parameters_that_we_would_not_write(
    file: Path, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = json.loads(encoded())
    data = key_file.canonical(content | {"kdf": content["kdf"] | change})

    def run(*_: object) -> bytes:
        raise AssertionError("scrypt ran")

    monkeypatch.setattr(key_file, "_stretched", run)
    write(file, data)
    with pytest.raises(KeyRefused, match="damaged"):
        OwnerKey.open(file, PASSPHRASE)
    write(file, key_file.canonical(content))
    with pytest.raises(AssertionError, match="scrypt ran"):
        OwnerKey.open(file, PASSPHRASE)


def test_the_most_memory_that_a_file_can_ask_for(file: Path) -> None:
    content = json.loads(encoded())
    write(file, key_file.canonical(content | {"kdf": content["kdf"] | {"n": max(key_file._SCRYPT_COSTS)}}))
    script = """
import resource, sys
from pathlib import Path
from scumble.errors import KeyRefused
from scumble.owner.keys import AnalystKey, OwnerKey
in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + 2**20 * 320, in_use + 2**20 * 320))
try:
    OwnerKey.open(Path(sys.argv[1]), "x")
except KeyRefused:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\n"


# Crashes


@pytest.mark.parametrize("step", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_during_replace_keeps_the_old_key(
    file: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    key = OwnerKey.create(file, PASSPHRASE)
    before = file.read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(FileError if isinstance(error, OSError) else KeyboardInterrupt):
            REKEYING.save(file, PASSPHRASE)
    assert file.read_bytes() == before
    assert OwnerKey.open(file, PASSPHRASE) == key
    assert list(file.parent.iterdir()) == [file]


def test_a_failure_during_create_leaves_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for step in ("link", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, fail)
            with pytest.raises(FileError, match="No space left"):
                OwnerKey.create(file, None)
        assert not list(file.parent.iterdir())


@pytest.mark.parametrize("write_it", [lambda f: OwnerKey.create(f, None), lambda f: KEY.save(f, None)])
def test_the_content_is_synced_before_its_name_and_the_folder_after(
    file: Path, monkeypatch: pytest.MonkeyPatch, write_it: Callable[[Path], object]
) -> None:
    steps: list[str] = []
    fsync, link, rename = os.fsync, os.link, os.replace

    def synced(handle: int) -> None:
        status = os.fstat(handle)
        steps.append("folder" if stat.S_ISDIR(status.st_mode) else f"{status.st_size > 0} content")
        fsync(handle)

    def named(give_name: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
        def give(draft: Path, path: Path) -> None:
            steps.append("name")
            give_name(draft, path)

        return give

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", named(link))
    monkeypatch.setattr(os, "replace", named(rename))
    write_it(file)
    assert steps == ["True content", "name", "folder"]


# What it does not show, and what is derived


@pytest.mark.parametrize("key", [KEY, REKEYING])
def test_no_key_in_repr(key: OwnerKey) -> None:
    for secret in (key.root, key.next_root or key.root):
        for shown in (repr(secret)[2:-1], secret.hex(), str(list(secret))[1:-1]):
            assert shown not in f"{key!r} {key!s} {[key]}"
    assert DATABASE in repr(key)


@pytest.mark.parametrize(
    ("database", "root", "next_root"),
    [
        ("", ROOT, None),
        ("clinic", ROOT, None),
        (DATABASE.upper(), ROOT, None),
        (DATABASE + "\n", ROOT, None),
        (DATABASE, ROOT[:-1], None),
        (DATABASE, ROOT, b""),
    ],
)
def test_an_owner_key_that_cannot_be(database: str, root: bytes, next_root: bytes | None) -> None:
    with pytest.raises(InvalidParameter):
        OwnerKey(database, root, next_root)


def test_derived_keys_are_fixed() -> None:
    """RFC 5869 with salt = the id's digits and info = the purpose; computed with hmac alone below."""
    import hmac

    for derived, info in ((KEY.data_key(), b"scumble data key v1"), (KEY.anchor_key(), b"scumble anchor v1")):
        extracted = hmac.digest(DATABASE.encode(), ROOT, "sha256")
        assert derived == hmac.digest(extracted, info + b"\x01", "sha256")


# Paths


@pytest.mark.parametrize(
    ("folder", "key"),
    [
        ("clinic", "clinic.key"),
        ("clinic.scumble", "clinic.key"),
        ("clinic/", "clinic.key"),
        ("data/clinic.2013", "data/clinic.2013.key"),
        ("/srv/clinic.scumble", "/srv/clinic.key"),
        (".scumble", ".scumble.key"),
    ],
)
def test_the_key_is_beside_the_folder(folder: str, key: str) -> None:
    assert key_file.default_key_path(Path(folder)) == Path(key)


def test_the_folder_that_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clinic" / "runs").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "clinic")
    assert key_file.default_key_path(Path()) == tmp_path / "clinic.key"
    monkeypatch.chdir(tmp_path / "clinic" / "runs")
    assert key_file.default_key_path(Path("..")) == tmp_path / "clinic.key"
    with pytest.raises(InvalidParameter):
        key_file.default_key_path(Path("/"))


def test_where_the_key_is(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("clinic")
    assert key_file.key_path(folder) == Path("clinic.key")
    monkeypatch.setenv("SCUMBLE_KEY", "/safe/other.key")
    assert key_file.key_path(folder) == Path("/safe/other.key")
    assert key_file.key_path(folder, Path("given.key")) == Path("given.key")
    monkeypatch.setenv("SCUMBLE_KEY", "")
    assert key_file.key_path(folder) == Path("clinic.key")


@pytest.mark.parametrize(("key", "stem"), [("a/clinic.key", "a/clinic"), ("secret", "secret"), ("x.pem", "x.pem")])
def test_ledger_and_anchor_lie_beside_the_key(key: str, stem: str) -> None:
    assert key_file.ledger_path(Path(key)) == Path(f"{stem}.ledger")
    assert key_file.anchor_path(Path(key)) == Path(f"{stem}.anchor")


def test_a_database_was_begun_and_never_opened_if_its_key_has_no_anchor(file: Path) -> None:
    assert not key_file.was_begun(file)
    write(file, encoded())
    assert key_file.was_begun(file)
    key_file.anchor_path(file).touch()
    assert not key_file.was_begun(file)
    file.unlink()
    assert not key_file.was_begun(file)
