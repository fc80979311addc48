"""Versions: sealed, opened and chained, so that another chain is Tampered; and the vault that remembers the newest."""

import json
import threading
from dataclasses import replace

import pytest
from enclave_tables import DATABASE, KEYS, MemoryStorage, table_of

from scumble.enclave.grants import AccessList
from scumble.enclave.pages import DataKeys
from scumble.enclave.versions import (
    Manifest,
    Vault,
    check_chain,
    check_descent,
    manifest_hash,
    open_head,
    open_manifest,
    seal_manifest,
)
from scumble.errors import ScumbleError, Tampered
from scumble.wire.catalog import Catalog, Run
from scumble.wire.grants import Grant
from scumble.wire.storage import pack, unpack

RUN = "cd" * 16
ACCESS = AccessList(b"o" * 32)
TABLE = table_of("integer", runs=(Run(RUN, "b", None, 32, 16, None, ("00" * 32,)),))


def _chain(storage: MemoryStorage, versions: int, keys: DataKeys = KEYS, mark: str = "t") -> list[tuple[int, str]]:
    previous, anchors = "", []
    for version in range(1, versions + 1):
        catalog = Catalog(DATABASE, version, previous, (replace(TABLE, name=mark),))
        sealed = seal_manifest(keys, catalog, {RUN: 20 + version}, ACCESS)
        storage.commit(version, sealed)
        previous = manifest_hash(sealed)
        anchors.append((version, previous))
    return anchors


def test_a_manifest_comes_back() -> None:
    sealed = seal_manifest(KEYS, Catalog(DATABASE, 7, "ff" * 32, (TABLE,)), {RUN: 23}, ACCESS)
    manifest = open_manifest(KEYS, sealed)
    assert manifest.catalog.to_json() == Catalog(DATABASE, 7, "ff" * 32, (TABLE,)).to_json()
    assert manifest.real_rows == {RUN: 23}
    assert manifest.hash == manifest_hash(sealed)
    assert "23" not in repr(manifest)
    assert seal_manifest(KEYS, manifest.catalog, {RUN: 23}, ACCESS) != sealed


def test_its_length_does_not_depend_on_the_rows() -> None:
    catalog = Catalog(DATABASE, 7, "ff" * 32, (TABLE,))
    assert len({len(seal_manifest(KEYS, catalog, {RUN: rows}, ACCESS)) for rows in (0, 1, 255, 1 << 40)}) == 1


def test_the_access_block_comes_back_and_its_length_tells_little() -> None:
    catalog = Catalog(DATABASE, 7, "ff" * 32, (TABLE,))
    lengths = set()
    for name in ("a", "ada", "x" * 20):
        access = replace(ACCESS, grants=(Grant("0" * 16, name, b"k" * 32, {"t": frozenset(["read"])}),))
        sealed = seal_manifest(KEYS, catalog, {RUN: 23}, access)
        assert open_manifest(KEYS, sealed).access == access
        assert repr(open_manifest(KEYS, sealed)) == "Manifest(version=7, real_rows=<secret>, access=<secret>)"
        lengths.add(len(sealed))
    assert len(lengths) == 1


def test_every_byte_of_a_manifest_counts() -> None:
    sealed = seal_manifest(KEYS, Catalog(DATABASE, 1, "", (TABLE,)), {RUN: 5}, ACCESS)
    for at in range(len(sealed)):
        with pytest.raises(Tampered):
            open_manifest(KEYS, sealed[:at] + bytes([sealed[at] ^ 1 << at % 8]) + sealed[at + 1 :])
        with pytest.raises(Tampered):
            open_manifest(KEYS, sealed[:at])
    with pytest.raises(Tampered):
        open_manifest(KEYS, sealed + b"\0")


def test_other_keys_open_nothing() -> None:
    sealed = seal_manifest(KEYS, Catalog(DATABASE, 1, "", ()), {}, ACCESS)
    for keys in (DataKeys(bytes(32), DATABASE), DataKeys(bytes(range(32)), "0b" * 16)):
        with pytest.raises(Tampered):
            open_manifest(keys, sealed)


def _opened(storage: MemoryStorage, anchor: tuple[int, str] | None = None, keys: DataKeys = KEYS) -> Manifest:
    """The current version, which has to descend from the anchored one."""
    head = open_head(storage, keys, DATABASE)
    if anchor is not None:
        check_descent(storage, head, anchor)
    return head


def test_every_later_version_descends_from_every_earlier_one() -> None:
    storage = MemoryStorage()
    anchors = _chain(storage, 6)
    for anchor in (None, *anchors):
        assert _opened(storage, anchor).catalog.version == 6
    check_chain(storage, _opened(storage).catalog)


def test_a_rollback_a_fork_and_a_gap() -> None:
    storage, other = MemoryStorage(), MemoryStorage()
    anchors = _chain(storage, 6)
    forked = _chain(other, 8, mark="u")
    for anchor in ((7, "00" * 32), (6, "00" * 32), (6, anchors[4][1]), (3, anchors[3][1]), *forked):
        with pytest.raises(Tampered):
            _opened(storage, anchor)
    del storage.manifests[6]
    with pytest.raises(Tampered):
        _opened(storage, anchors[5])
    assert _opened(storage, anchors[4]).catalog.version == 5
    for version, spoiled in ((3, None), (3, storage.manifests[2]), (3, other.manifests[3]), (2, b""), (1, None)):
        before = dict(storage.manifests)
        if spoiled is None:
            del storage.manifests[version]
        else:
            storage.manifests[version] = spoiled
        head = _opened(storage, anchors[4])  # which needs none of the earlier ones
        with pytest.raises(Tampered):
            check_chain(storage, head.catalog)
        with pytest.raises(Tampered):
            _opened(storage, anchors[0])
        storage.manifests = before


def test_nothing_and_the_manifest_of_another_database() -> None:
    storage = MemoryStorage()
    with pytest.raises(Tampered):
        _opened(storage)
    _chain(storage, 1)
    with pytest.raises(Tampered):
        open_head(storage, KEYS, "0c" * 16)


def test_a_chain_over_a_change_of_keys() -> None:
    """Earlier versions are vouched for by hashes: their key is not needed."""
    storage, new = MemoryStorage(), DataKeys(bytes(32), DATABASE)
    anchors = _chain(storage, 3)
    storage.commit(4, seal_manifest(new, Catalog(DATABASE, 4, anchors[-1][1], ()), {}, ACCESS))
    for anchor in anchors:
        assert _opened(storage, anchor, new).catalog.version == 4
    with pytest.raises(Tampered):
        _opened(storage, anchors[0])


def test_a_sealed_part_under_another_catalog() -> None:
    sealed = seal_manifest(KEYS, Catalog(DATABASE, 2, "", (TABLE,)), {RUN: 5}, ACCESS)
    public, secret = unpack(sealed)
    catalog = json.loads(public)
    catalog["tables"][0]["runs"][0]["capacity"] = 16
    with pytest.raises(Tampered):
        open_manifest(KEYS, pack(json.dumps(catalog, separators=(",", ":")).encode(), secret))
    with pytest.raises(ScumbleError):
        open_manifest(KEYS, pack(b"", secret))


# --- the vault -------------------------------------------------------------------------------------

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
OWNER = bytes(range(32))
OTHER = "0b" * 16


def _known(vault: Vault, database: str = DATABASE) -> tuple[bytes, int, str] | None:
    known = vault.get(database)
    return None if known is None else (known.data_key, known.version, known.hash)


def test_a_database_is_locked_until_its_key_is_brought() -> None:
    vault = Vault()
    assert vault.get(DATABASE) is None
    vault.remember(DATABASE, KEY, OWNER, 3, "h3")
    assert _known(vault) == (KEY, 3, "h3")
    assert vault.get(OTHER) is None


def test_what_is_not_new_is_the_same_object() -> None:
    vault = Vault()
    first = vault.remember(DATABASE, KEY, OWNER, 3, "h3")
    assert vault.remember(DATABASE, KEY, OWNER, 3, "h3") is first
    assert vault.changes == 1
    assert vault.remember(DATABASE, OTHER_KEY, OWNER, 3, "h3") is not first
    assert vault.changes == 2


def test_another_enclave_takes_over_what_is_newer() -> None:
    one, other = Vault(), Vault()
    one.remember(DATABASE, KEY, OWNER, 3, "h3")
    one.remember(OTHER, OTHER_KEY, OWNER, 9, "h9")
    other.remember(OTHER, KEY, OWNER, 10, "h10")
    other.adopt(one.export())
    assert _known(other) == (KEY, 3, "h3")
    assert _known(other, OTHER) == (KEY, 10, "h10")
    one.adopt(other.export(OTHER))
    assert _known(one, OTHER) == (KEY, 10, "h10")
    assert _known(one) == (KEY, 3, "h3")


def test_an_older_version_never_takes_a_newer_one_s_place() -> None:
    vault, behind = Vault(), Vault()
    vault.remember(DATABASE, KEY, OWNER, 5, "h5")
    behind.remember(DATABASE, OTHER_KEY, OWNER, 4, "h4")
    before = vault.get(DATABASE)
    vault.adopt(behind.export())
    assert vault.get(DATABASE) is before


def test_an_older_version_that_was_restored_takes_a_newer_one_s_place_everywhere() -> None:
    vault, behind = Vault(), Vault()
    vault.remember(DATABASE, KEY, OWNER, 5, "h5")
    behind.adopt(vault.export())
    vault.remember(DATABASE, KEY, OWNER, 4, "h4", restored=True)
    vault.adopt(behind.export())
    assert _known(vault) == (KEY, 4, "h4")
    behind.adopt(vault.export())
    assert _known(behind) == (KEY, 4, "h4")
    vault.remember(DATABASE, KEY, OWNER, 5, "another h5")
    behind.adopt(vault.export())
    assert _known(behind) == (KEY, 5, "another h5")


@pytest.mark.parametrize(
    "exported", [b"", b"[]", b"{", b'{"a": 1}', b'{"a": ["zz", 1, ""]}', b'{"a": ["00", 1]}', b"\xff"]
)
def test_what_no_vault_has_exported_is_refused(exported: bytes) -> None:
    with pytest.raises(Tampered):
        Vault().adopt(exported)


def test_no_key_in_a_repr() -> None:
    vault = Vault()
    unlocked = vault.remember(DATABASE, KEY, OWNER, 3, "h3")
    assert "k" * 8 not in repr(vault) + repr(unlocked)


def test_threads_that_take_over_end_with_the_newest_of_each_database() -> None:
    vault = Vault()
    names = [f"{place:032x}" for place in range(8)]

    def work(offset: int) -> None:
        for version in range(1, 60):
            other = Vault()
            for name in names:
                other.remember(name, KEY, OWNER, version * 4 + offset, f"h{version * 4 + offset}")
            vault.adopt(other.export())

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {_known(vault, name) for name in names} == {(KEY, 239, "h239")}
