"""The vault: what owners have unlocked, the newest version of it, and how one enclave hands it to another."""

import threading

import pytest
from enclave_tables import DATABASE

from scumble.enclave.versions import Vault
from scumble.errors import Tampered

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
