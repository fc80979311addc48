"""Stored key files, anchors and analysts' notes of an owner: each opens, or is refused, as its label says.

tests/vectors/keys was written once, by a program that follows docs/format.md and shares no code with Scumble, and is
kept: whatever changes a format, a scrypt parameter, a label of a derived key or what a MAC covers, fails here. Each
file has lines like `expect: opens`, an empty line, and then the bytes of the file proper.
"""

from pathlib import Path

import pytest

from scumble.errors import KeyRefused, NewerVersion, ScumbleError, Tampered
from scumble.owner import key_file
from scumble.owner.anchor import Anchor, _mac
from scumble.owner.key_file import canonical, parse_canonical
from scumble.owner.keys import AnalystKey, Key, OwnerKey, open_key

VECTORS = Path(__file__).parents[1] / "vectors" / "keys"
SALT, NONCE = bytes(range(16)), bytes(range(12))
ERRORS: dict[str, type[ScumbleError]] = {"refused": KeyRefused, "newer": NewerVersion, "tampered": Tampered}


def vectors(ending: str) -> list[str]:
    found = sorted(path.name for path in VECTORS.glob(f"*.{ending}"))
    assert found
    return found


def vector(name: str, into: Path) -> tuple[dict[str, str], bytes]:
    """A vector's labels, and its file, which is also put where it can be opened."""
    labels, _, content = (VECTORS / name).read_bytes().partition(b"\n\n")
    into.write_bytes(content)
    into.chmod(0o600)
    return dict(line.split(": ", 1) for line in labels.decode().splitlines()), content


def opened(path: Path, labels: dict[str, str]) -> Key:
    given = labels.get("passphrase")
    if "database" in labels:
        assert open_key(path, labels["database"], given) == open_as(path, labels)
    return open_as(path, labels)


def open_as(path: Path, labels: dict[str, str]) -> Key:
    given = labels.get("passphrase")
    if labels["kind"] == "owner":
        return OwnerKey.open(path, given)
    return AnalystKey.open(path, labels["database"], given)


@pytest.mark.parametrize("name", vectors("key"))
def test_a_key_file_opens_as_its_label_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCUMBLE_PASSPHRASE", raising=False)
    path = tmp_path / "stored.key"
    labels, content = vector(name, path)
    if labels["expect"] != "opens":
        with pytest.raises(ERRORS[labels["expect"]]):
            opened(path, labels)
        return
    key = opened(path, labels)
    data_key = key.data_key()
    assert (key.root.hex(), "none" if key.next_root is None else key.next_root.hex()) == (
        labels["root"],
        labels.get("next_root", "none"),
    )
    assert key.signing_key().public_key().public_bytes_raw().hex() == labels["public_key"]
    assert ("none" if data_key is None else data_key.hex()) == labels["data_key"]
    assert key.anchor_key().hex() == labels["anchor_key"]
    assert written(key, labels) == content


def written(key: Key, labels: dict[str, str]) -> bytes:
    """The file that is written for a key today, under the stored salt and nonce."""
    if isinstance(key, OwnerKey):
        next_root = None if key.next_root is None else key.next_root.hex()
        about, keys = {"database": key.database}, {"root": key.root.hex(), "next_root": next_root}
    else:
        about, keys = {"kind": "analyst"}, {"root": key.root.hex()}
    if "passphrase" not in labels:
        return key_file.protect(about, keys, None)
    header = {"format": 1, **about}
    return key_file._sealed(header, keys, labels["passphrase"], SALT, NONCE, int(labels["cost"]))


def test_new_files_cost_an_attacker_128_mebibytes_a_guess(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost that is shipped, which other tests lower, is that of the stored file."""
    labels, _ = vector("owner-passphrase.key", tmp_path / "stored.key")
    monkeypatch.undo()
    assert int(labels["cost"]) == key_file.SCRYPT_COST == 2**17


@pytest.mark.parametrize("name", vectors("anchor"))
def test_an_anchor_loads_as_its_label_says(name: str, tmp_path: Path) -> None:
    path = tmp_path / "stored.anchor"
    labels, content = vector(name, path)
    key = bytes.fromhex(labels["anchor_key"])
    if labels["expect"] != "loads":
        with pytest.raises(ERRORS[labels["expect"]]):
            Anchor.load(path, key)
        return
    found = Anchor.load(path, key)
    assert found is not None
    assert (found.version, found.manifest) == (int(labels["version"]), labels["manifest"])
    assert found.restores == int(labels.get("restores", 0))
    used = " ".join(f"{grant}={epsilon},{delta}" for grant, (epsilon, delta) in found.used.items())
    assert (used, " ".join(found.revoked)) == (labels.get("used", ""), labels.get("revoked", ""))
    fields = parse_canonical(content)
    assert fields is not None
    mac = fields.pop("mac")
    assert _mac(fields, key) == mac
    assert canonical(fields | {"mac": mac}) == content
    if fields["format"] == 2:
        path.unlink()
        found.save(path, key)
        assert path.read_bytes() == content


@pytest.mark.parametrize("name", vectors("owner"))
def test_a_known_owner_is_read_as_its_label_says(name: str, tmp_path: Path) -> None:
    labels, content = vector(name, tmp_path / "stored.owner")
    path = (tmp_path / "stored.owner").rename(tmp_path / f"ada.{labels['database']}.owner")
    key = AnalystKey(labels["database"], bytes.fromhex(labels["root"]))
    if labels["expect"] != "known":
        with pytest.raises(Tampered):
            key.known_owner(tmp_path / "ada.key")
        return
    assert key.known_owner(tmp_path / "ada.key") == labels["owner"]
    path.unlink()
    key.remember_owner(tmp_path / "ada.key", labels["owner"])
    assert path.read_bytes() == content
