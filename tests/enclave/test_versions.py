"""Versions: sealed, signed and chained, so that another chain is Tampered; and the vault that remembers the newest."""

import json
import threading
from dataclasses import replace
from fractions import Fraction

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from enclave_tables import DATA_KEY, DATABASE, KEYS, OWNER, OWNER_KEY, TITLE, MemoryStorage, signed_manifest, table_of

from scumble.enclave.dummies import Dummies
from scumble.enclave.grants import AccessList
from scumble.enclave.manifests import (
    Manifest,
    check_chain,
    links_since,
    open_head,
    open_manifest,
    seal_manifest,
    signed_catalog,
)
from scumble.enclave.pages import DataKeys
from scumble.enclave.vault import Unlocked, Vault
from scumble.errors import ScumbleError, Tampered
from scumble.wire.catalog import Catalog, Run
from scumble.wire.grants import Grant
from scumble.wire.lineage import Seen, Title, database_id, first_title, next_title
from scumble.wire.storage import Envelope, pack, pack_unsigned, unpack

RUN = "cd" * 16
ACCESS = AccessList(OWNER_KEY)
TABLE = table_of("integer", runs=(Run(RUN, "b", None, 32, 16, None, ("00" * 32,)),))
ADA, EVE = (Ed25519PrivateKey.from_private_bytes(bytes([place] * 32)) for place in (7, 9))


def _catalog(version: int, previous: str = "ff" * 32, /, **more: object) -> Catalog:
    return replace(Catalog(DATABASE, version, previous, (TABLE,), (TITLE,)), **more)  # type: ignore[arg-type]


def _chain(storage: MemoryStorage, versions: int, mark: str = "t", first: int = 1, previous: str = "") -> list[Seen]:
    """Versions in a row, as they are remembered."""
    anchors = []
    for version in range(first, first + versions):
        catalog = _catalog(version, previous, tables=(replace(TABLE, name=mark),))
        storage.commit(version, signed_manifest(KEYS, catalog, {RUN: 20 + version}, ACCESS))
        previous = unpack(storage.manifest(version)).hash
        anchors.append((0, version, previous))
    return anchors


def test_a_manifest_comes_back() -> None:
    sealed = signed_manifest(KEYS, _catalog(7), {RUN: 23}, ACCESS)
    manifest = open_manifest(KEYS, sealed)
    assert manifest.catalog.to_json() == _catalog(7).to_json()
    assert {run: dummies.to_bytes() for run, dummies in manifest.dummies.items()} == {RUN: Dummies.after(23).to_bytes()}
    assert manifest.hash == unpack(sealed).hash
    assert "23" not in repr(manifest)
    assert signed_manifest(KEYS, manifest.catalog, {RUN: 23}, ACCESS) != sealed


def test_the_real_rows_of_many_runs_come_back() -> None:
    rows = {f"{place << 100:032x}": (1 << 40) + place for place in range(40)}
    found = open_manifest(KEYS, signed_manifest(KEYS, _catalog(7), rows, ACCESS)).dummies
    assert {run: dummies.to_bytes() for run, dummies in found.items()} == {
        run: Dummies.after(real).to_bytes() for run, real in rows.items()
    }


def test_its_length_does_not_depend_on_the_rows() -> None:
    lengths = {len(signed_manifest(KEYS, _catalog(7), {RUN: rows}, ACCESS)) for rows in (0, 1, 255, 1 << 40)}
    assert len(lengths) == 1


def test_the_access_block_comes_back_and_its_length_tells_little() -> None:
    lengths = set()
    for name in ("ada", "ada@lab", "x" * 12):
        grant = Grant("0" * 16, name, b"k" * 32, {"t": frozenset(["read"])}).signed(DATABASE, OWNER)
        access = replace(ACCESS, grants=(grant,))
        sealed = signed_manifest(KEYS, _catalog(7), {RUN: 23}, access)
        assert open_manifest(KEYS, sealed).access == access
        assert repr(open_manifest(KEYS, sealed)) == "Manifest(version=7, dummies=<secret>, access=<secret>)"
        lengths.add(len(sealed))
    assert len(lengths) == 1


def test_every_byte_of_a_manifest_counts() -> None:
    sealed = signed_manifest(KEYS, _catalog(1, ""), {RUN: 5}, ACCESS)
    for at in range(len(sealed)):
        with pytest.raises(Tampered):
            open_manifest(KEYS, sealed[:at] + bytes([sealed[at] ^ 1 << at % 8]) + sealed[at + 1 :])
        with pytest.raises(Tampered):
            open_manifest(KEYS, sealed[:at])
    with pytest.raises(Tampered):
        open_manifest(KEYS, sealed + b"\0")


def test_other_keys_open_nothing() -> None:
    sealed = signed_manifest(KEYS, _catalog(1, ""), {RUN: 1}, ACCESS)
    for keys in (DataKeys(bytes(32), DATABASE), DataKeys(DATA_KEY, "0b" * 20)):
        with pytest.raises(Tampered):
            open_manifest(keys, sealed)


# --- who has signed ----------------------------------------------------------------------------------


def _refused(catalog: Catalog, *, keys: DataKeys = KEYS, access: AccessList = ACCESS, **signing: object) -> None:
    sealed = signed_manifest(keys, catalog, {RUN: 1}, access, **signing)  # type: ignore[arg-type]
    with pytest.raises(Tampered):
        open_manifest(keys, sealed)


def test_a_version_that_nobody_with_the_right_to_has_signed() -> None:
    """By a stranger; by somebody whom a stranger has certified; by an analyst of another database."""
    grant = Grant("0" * 16, "ada", ADA.public_key().public_bytes_raw(), {"t": frozenset(["load"])}, Fraction(1))
    certificate = grant.signed(DATABASE, OWNER).certificate()
    assert open_manifest(KEYS, signed_manifest(KEYS, _catalog(2), {RUN: 1}, ACCESS, ADA, certificate)).link is not None
    _refused(_catalog(2), signer=EVE)
    _refused(_catalog(2), signer=ADA)
    _refused(_catalog(2), signer=EVE, certificate=certificate)
    _refused(_catalog(2), signer=ADA, certificate=grant.signed(DATABASE, EVE).certificate())
    _refused(_catalog(2), signer=ADA, certificate=grant.signed("0b" * 20, OWNER).certificate())
    _refused(_catalog(2), signer=OWNER, certificate=certificate)
    _refused(_catalog(2), signer=ADA, certificate=replace(certificate, terms=bytes(32)))
    _refused(_catalog(2), access=AccessList(EVE.public_key().public_bytes_raw()))  # the title names another owner


def test_a_version_with_the_signature_of_another() -> None:
    """The sealed part and the catalog are genuine, and so is the signature: only they do not belong together."""
    public, sealed, _ = unpack(signed_manifest(KEYS, _catalog(2), {RUN: 1}, ACCESS))
    for other in (_catalog(2), _catalog(3), _catalog(2, "00" * 32), _catalog(2, restores=1)):
        signed = unpack(signed_manifest(KEYS, other, {RUN: 2}, ACCESS)).signed
        with pytest.raises(Tampered):
            open_manifest(KEYS, pack(public, sealed, signed))


@pytest.mark.parametrize("public", [b"", b"{", b"[]", b"{}", b"null", b'{"tables": 1}', b"[" * 100_000, b"\xff"])
def test_a_catalog_that_is_none(public: bytes) -> None:
    for signed in (b"", b"-"):
        with pytest.raises(Tampered):
            signed_catalog(Envelope(public, b"", signed))


def test_an_unsigned_catalog_has_an_id_of_release_0_1_and_no_titles() -> None:
    def catalog(database: str, titles: tuple[Title, ...]) -> Envelope:
        return Envelope(json.dumps(Catalog(database, 1, "", (TABLE,), titles).to_json()).encode(), b"", b"")

    assert signed_catalog(catalog("0a" * 16, ()))[1] is None
    for database, titles in (("0a" * 16, (TITLE,)), (DATABASE, ()), (DATABASE, (TITLE,))):
        with pytest.raises(Tampered):
            signed_catalog(catalog(database, titles))


def test_a_version_that_is_not_signed_at_all() -> None:
    """Only release 0.1 made such, and its ids are no hashes of a key: no other database falls back to that."""
    public, sealed = seal_manifest(KEYS, _catalog(2), {RUN: Dummies.after(1)}, ACCESS)
    untitled, sealed_untitled = seal_manifest(KEYS, _catalog(2, titles=()), {RUN: Dummies.after(1)}, ACCESS)
    for manifest in (
        pack_unsigned(public, sealed),
        pack_unsigned(untitled, sealed_untitled),
        pack(public, sealed, b"-"),
    ):
        with pytest.raises(Tampered):
            open_manifest(KEYS, manifest)


def test_a_database_cannot_be_given_away_without_both_keys() -> None:
    """A title for the provider's key, or under a data key that the owner has not named, is no title."""
    new_data_key = b"d" * 32
    new, theirs = DataKeys(new_data_key, DATABASE), AccessList(EVE.public_key().public_bytes_raw())
    honest = next_title(DATABASE, 2, OWNER, EVE, new_data_key)
    handed_over = signed_manifest(new, _catalog(2, titles=(TITLE, honest)), {RUN: 1}, theirs, EVE)
    assert open_manifest(new, handed_over).access == theirs
    forged = next_title(DATABASE, 2, EVE, EVE, new_data_key)
    own = Title(2, OWNER_KEY, honest.data_key_hash, b"", (EVE.sign(b""), EVE.sign(b"")))
    for title in (
        forged,
        replace(honest, signatures=honest.signatures[:1]),
        replace(honest, signatures=(honest.signatures[0], bytes(64))),
        replace(honest, signatures=(bytes(64), honest.signatures[1])),
        replace(honest, signatures=honest.signatures[::-1]),
        replace(honest, version=3),
        replace(honest, data_key_hash=bytes(32)),
        replace(honest, nonce=b"n"),
        next_title("0b" * 20, 2, OWNER, EVE, new_data_key),
    ):
        _refused(_catalog(2, titles=(TITLE, title)), keys=new, access=theirs, signer=EVE)
    for titles in ((own,), (TITLE, own), (TITLE,), ()):
        _refused(_catalog(2, titles=titles), keys=new, access=ACCESS, signer=EVE)
    _refused(_catalog(2, titles=(TITLE, honest)), keys=new, access=ACCESS, signer=OWNER)  # it is no longer the owner's
    _refused(_catalog(2, titles=(TITLE, honest)), keys=KEYS, access=theirs, signer=EVE)  # nor under the old data key
    later = next_title(DATABASE, 3, OWNER, EVE, new_data_key)  # who has the old key signs below the title that ended it
    _refused(_catalog(2, titles=(TITLE, later)))


def test_an_id_belongs_to_the_key_that_it_is_a_hash_of() -> None:
    assert first_title(DATABASE, OWNER, TITLE.nonce, DATA_KEY) == TITLE
    assert open_manifest(KEYS, signed_manifest(KEYS, _catalog(2), {RUN: 1}, ACCESS)).catalog.titles == (TITLE,)
    for title in (
        first_title(DATABASE, EVE, b"n" * 32, DATA_KEY),
        first_title(DATABASE, OWNER, b"m" * 32, DATA_KEY),
        replace(TITLE, data_key_hash=bytes(32)),
        replace(TITLE, version=2),
        replace(TITLE, signatures=()),
    ):
        _refused(_catalog(2, titles=(title,)), signer=EVE, access=AccessList(title.owner))
        _refused(_catalog(2, titles=(title,)), signer=OWNER, access=AccessList(title.owner))


# --- how versions follow each other ------------------------------------------------------------------


def _opened(storage: MemoryStorage, anchor: Seen | None = None, keys: DataKeys = KEYS) -> Manifest:
    """The current version, which has to descend from the anchored one."""
    head = open_head(storage, keys, DATABASE)
    if anchor is not None:
        links = links_since(storage, head, anchor)
        assert [link.draft.version for link in links] == list(range(anchor[1] + 1, head.catalog.version + 1))
    return head


def test_every_later_version_descends_from_every_earlier_one() -> None:
    storage = MemoryStorage()
    anchors = _chain(storage, 6)
    for anchor in (None, *anchors):
        assert _opened(storage, anchor).catalog.version == 6
    check_chain(storage, _opened(storage))


def test_a_rollback_a_fork_and_a_gap() -> None:
    storage, other = MemoryStorage(), MemoryStorage()
    anchors = _chain(storage, 6)
    forked = _chain(other, 8, mark="u")
    strange = [(0, 7, "00" * 32), (0, 6, "00" * 32), (0, 6, anchors[4][2]), (0, 3, anchors[3][2]), (1, *anchors[3][1:])]
    for anchor in (*strange, *forked):
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
            check_chain(storage, head)
        if version > 1:  # the anchored one itself is not needed: its hash is known
            with pytest.raises(Tampered):
                _opened(storage, anchors[0])
        storage.manifests = before


def test_the_owner_alone_goes_back_to_an_older_version() -> None:
    """Then it follows every version that was seen before, whichever of them is still there."""
    storage = MemoryStorage()
    anchors = _chain(storage, 6)
    for version in (5, 6):
        del storage.manifests[version]
    restored = _catalog(5, anchors[3][2], restores=1)
    storage.commit(5, signed_manifest(KEYS, restored, {RUN: 1}, ACCESS))
    head = open_head(storage, KEYS, DATABASE)
    for anchor in anchors:
        assert links_since(storage, head, anchor)[-1].draft.restores == 1
    for anchor in ((1, 6, anchors[5][2]), (2, 3, anchors[2][2])):
        with pytest.raises(Tampered):
            links_since(storage, head, anchor)
    storage.commit(6, signed_manifest(KEYS, _catalog(6, head.hash), {RUN: 1}, ACCESS))  # as if there was no restore
    with pytest.raises(Tampered):
        links_since(storage, open_head(storage, KEYS, DATABASE), (0, 1, anchors[0][2]))
    grant = Grant("0" * 16, "ada", ADA.public_key().public_bytes_raw(), {"t": frozenset(["load"])}, Fraction(1))
    by_ada = signed_manifest(
        KEYS, _catalog(6, head.hash, restores=2), {RUN: 1}, ACCESS, ADA, grant.signed(DATABASE, OWNER).certificate()
    )
    storage.commit(6, by_ada)
    with pytest.raises(Tampered):
        links_since(storage, open_head(storage, KEYS, DATABASE), (1, 5, head.hash))


def test_an_analyst_goes_on_after_a_restore() -> None:
    storage = MemoryStorage()
    anchors = _chain(storage, 3)
    storage.commit(3, signed_manifest(KEYS, _catalog(3, anchors[1][2], restores=1), {RUN: 1}, ACCESS))
    grant = Grant("0" * 16, "ada", ADA.public_key().public_bytes_raw(), {"t": frozenset(["load"])}, Fraction(1))
    catalog = _catalog(4, unpack(storage.manifest(3)).hash, restores=1)
    certificate = grant.signed(DATABASE, OWNER).certificate()
    storage.commit(4, signed_manifest(KEYS, catalog, {RUN: 1}, ACCESS, ADA, certificate))
    links = links_since(storage, open_head(storage, KEYS, DATABASE), anchors[2])
    assert [(link.draft.version, link.draft.restores) for link in links] == [(3, 1), (4, 1)]


def test_an_analyst_s_version_follows_the_one_that_was_seen() -> None:
    storage = MemoryStorage()
    (anchor,) = _chain(storage, 1)
    grant = Grant("0" * 16, "ada", ADA.public_key().public_bytes_raw(), {"t": frozenset(["load"])}, Fraction(1))
    certificate = grant.signed(DATABASE, OWNER).certificate()
    storage.commit(2, signed_manifest(KEYS, _catalog(2, anchor[2]), {RUN: 1}, ACCESS, ADA, certificate))
    (link,) = links_since(storage, open_head(storage, KEYS, DATABASE), anchor)
    assert link.certificate == certificate


class WatchedStorage(MemoryStorage):
    """It notes which versions are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def manifest(self, version: int) -> bytes:
        self.asked.append(version)
        return super().manifest(version)


def test_a_restore_right_after_the_first_version() -> None:
    storage = MemoryStorage()
    first, *_ = _chain(storage, 5)
    storage.manifests = {1: storage.manifests[1]}
    storage.commit(2, signed_manifest(KEYS, _catalog(2, first[2], restores=1), {RUN: 1}, ACCESS))
    head = open_head(storage, KEYS, DATABASE)
    for seen in ((0, 5, "00" * 32), (0, 2, "00" * 32), first):
        assert [link.draft.seen for link in links_since(storage, head, seen)] == [head.seen]
    check_chain(storage, head)


def test_a_fork_is_refused_where_it_shows() -> None:
    """No version is read that cannot follow the one that was seen."""
    storage = WatchedStorage()
    _chain(storage, 4)
    head = open_head(storage, KEYS, DATABASE)
    storage.asked.clear()
    with pytest.raises(Tampered):
        links_since(storage, head, (0, 2, "00" * 32))
    assert storage.asked == [3]
    storage.commit(1, signed_manifest(KEYS, _catalog(1, "", restores=1), {RUN: 1}, ACCESS))
    storage.manifests = {1: storage.manifests[1]}
    head = open_head(storage, KEYS, DATABASE)
    storage.asked.clear()
    with pytest.raises(Tampered):
        links_since(storage, head, (0, 2, "00" * 32))
    assert storage.asked == []


def test_the_version_right_before_the_newest_is_missing() -> None:
    storage = MemoryStorage()
    _chain(storage, 3)
    head = open_head(storage, KEYS, DATABASE)
    del storage.manifests[2]
    with pytest.raises(Tampered):
        check_chain(storage, head)


def test_a_chain_into_another_database() -> None:
    """Whatever the owner of both has signed, a version follows one of its own database."""
    storage, nonce = MemoryStorage(), b"m" * 32
    other = database_id(OWNER_KEY, nonce)
    title = first_title(other, OWNER, nonce, DATA_KEY)
    catalog = Catalog(other, 1, "", (TABLE,), (title,))
    storage.commit(1, signed_manifest(DataKeys(DATA_KEY, other), catalog, {RUN: 1}, ACCESS))
    previous = unpack(storage.manifest(1)).hash
    storage.commit(2, signed_manifest(KEYS, _catalog(2, previous), {RUN: 1}, ACCESS))
    with pytest.raises(Tampered):
        check_chain(storage, open_head(storage, KEYS, DATABASE))


def test_a_chain_into_another_database_of_release_0_1() -> None:
    """Its versions have no titles, so that the id alone tells whose they are."""
    storage, old, other = MemoryStorage(), "0a" * 16, "0b" * 16
    for database, follows in ((old, True), (other, False)):
        keys = DataKeys(DATA_KEY, database)
        storage.commit(
            1, pack_unsigned(*seal_manifest(keys, Catalog(database, 1, "", (TABLE,)), {RUN: Dummies.after(1)}, ACCESS))
        )
        title = first_title(old, OWNER, b"", DATA_KEY, version=2)
        signed = Catalog(old, 2, unpack(storage.manifest(1)).hash, (TABLE,), (title,))
        storage.commit(2, signed_manifest(DataKeys(DATA_KEY, old), signed, {RUN: 1}, ACCESS))
        head = open_head(storage, DataKeys(DATA_KEY, old), old)
        if follows:
            check_chain(storage, head)
        else:
            with pytest.raises(Tampered):
                check_chain(storage, head)


def test_hashes_alone_hold_the_unsigned_versions_of_release_0_1_together() -> None:
    old, storage = "0a" * 16, MemoryStorage()
    keys = DataKeys(DATA_KEY, old)

    def unsigned(version: int, previous: str, rows: int = 1) -> bytes:
        return pack_unsigned(
            *seal_manifest(keys, Catalog(old, version, previous, (TABLE,)), {RUN: Dummies.after(rows)}, ACCESS)
        )

    def signed(previous: bytes) -> bytes:
        title = first_title(old, OWNER, b"", DATA_KEY, version=3)
        catalog = Catalog(old, 3, unpack(previous).hash, (TABLE,), (title,))
        return signed_manifest(keys, catalog, {RUN: 1}, ACCESS)

    first = unsigned(1, "")
    second = unsigned(2, unpack(first).hash)
    storage.manifests = {1: first, 2: second, 3: signed(second)}
    head = open_head(storage, keys, old)
    check_chain(storage, head)
    for version, other in ((1, unsigned(1, "", 2)), (2, unsigned(2, unpack(first).hash, 2))):
        storage.manifests = {1: first, 2: second, version: other}
        with pytest.raises(Tampered):
            check_chain(storage, head)
    storage.manifests = {1: first, 2: first, 3: signed(first)}  # the hash is right, and the number is not
    with pytest.raises(Tampered):
        check_chain(storage, open_head(storage, keys, old))


def test_a_version_does_not_go_back_on_a_title() -> None:
    """An owner who has given the database away cannot go on, nor give it to another from the same version on."""
    storage = MemoryStorage()
    (anchor,) = _chain(storage, 1)
    given = tuple(next_title(DATABASE, 2, OWNER, heir, DATA_KEY) for heir in (EVE, ADA))
    eves, adas = (AccessList(heir.public_key().public_bytes_raw()) for heir in (EVE, ADA))
    storage.commit(2, signed_manifest(KEYS, _catalog(2, anchor[2], titles=(TITLE, given[0])), {RUN: 1}, eves, EVE))
    previous = unpack(storage.manifest(2)).hash
    goes_on = signed_manifest(KEYS, _catalog(3, previous, titles=(TITLE, given[0])), {RUN: 1}, eves, EVE)
    storage.commit(3, goes_on)
    assert len(links_since(storage, open_head(storage, KEYS, DATABASE), anchor)) == 2
    for forked in (
        signed_manifest(KEYS, _catalog(3, previous, titles=(TITLE, given[1])), {RUN: 1}, adas, ADA),
        signed_manifest(KEYS, _catalog(3, previous), {RUN: 1}, ACCESS),
    ):
        storage.commit(3, forked)
        with pytest.raises(Tampered):
            links_since(storage, open_head(storage, KEYS, DATABASE), anchor)


def test_nothing_and_the_manifest_of_another_database() -> None:
    storage = MemoryStorage()
    with pytest.raises(Tampered):
        _opened(storage)
    _chain(storage, 1)
    with pytest.raises(Tampered):
        open_head(storage, KEYS, "0c" * 20)


def test_a_chain_over_a_change_of_keys() -> None:
    """Earlier versions are vouched for by hashes and signatures: their key is not needed."""
    storage, new = MemoryStorage(), DataKeys(bytes(32), DATABASE)
    anchors = _chain(storage, 3)
    title = next_title(DATABASE, 4, OWNER, ADA, bytes(32))
    owned = AccessList(ADA.public_key().public_bytes_raw())
    catalog = _catalog(4, anchors[-1][2], titles=(TITLE, title))
    storage.commit(4, signed_manifest(new, catalog, {RUN: 1}, owned, ADA))
    for anchor in anchors:
        assert _opened(storage, anchor, new).catalog.version == 4
    with pytest.raises(Tampered):
        _opened(storage, anchors[0])


def test_a_sealed_part_under_another_catalog() -> None:
    public, secret, signed = unpack(signed_manifest(KEYS, _catalog(2), {RUN: 5}, ACCESS))
    catalog = json.loads(public)
    catalog["tables"][0]["runs"][0]["capacity"] = 16
    with pytest.raises(Tampered):
        open_manifest(KEYS, pack(json.dumps(catalog, separators=(",", ":")).encode(), secret, signed))
    with pytest.raises(ScumbleError):
        open_manifest(KEYS, pack(b"", secret, signed))


# --- the vault -------------------------------------------------------------------------------------

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
OTHER = "0b" * 20


def _manifest(version: int, digest: str, restores: int = 0) -> Manifest:
    return Manifest(_catalog(version, restores=restores), digest, {}, ACCESS)


def _known(vault: Vault, database: str = DATABASE) -> tuple[bytes, int, str] | None:
    known = vault.get(database)
    return None if known is None else (known.data_key, known.version, known.hash)


def test_a_database_is_locked_until_its_key_is_brought() -> None:
    vault = Vault()
    assert vault.get(DATABASE) is None
    vault.remember(DATABASE, KEY, _manifest(3, "h3"))
    assert _known(vault) == (KEY, 3, "h3")
    assert vault.get(OTHER) is None


def test_what_is_not_new_is_the_same_object() -> None:
    vault = Vault()
    first = vault.remember(DATABASE, KEY, _manifest(3, "h3"))
    assert vault.remember(DATABASE, KEY, _manifest(3, "h3")) is first
    assert vault.changes == 1
    assert vault.remember(DATABASE, OTHER_KEY, _manifest(3, "h3")) is not first
    assert vault.changes == 2


def test_another_enclave_takes_over_what_is_newer() -> None:
    one, other = Vault(), Vault()
    one.remember(DATABASE, KEY, _manifest(3, "h3"))
    one.remember(OTHER, OTHER_KEY, _manifest(9, "h9"))
    other.remember(OTHER, KEY, _manifest(10, "h10"))
    other.adopt(one.export())
    assert _known(other) == (KEY, 3, "h3")
    assert _known(other, OTHER) == (KEY, 10, "h10")
    one.adopt(other.export(lambda database, _: database == OTHER))
    assert _known(one, OTHER) == (KEY, 10, "h10")
    assert _known(one) == (KEY, 3, "h3")


def test_who_admits_is_asked_about_the_database_whatever_it_is_remembered_by() -> None:
    """One of release 0.1 is remembered by its id and its owner's key."""
    vault, other, asked = Vault(), Vault(), []
    for name in (OTHER, f"0a0a {OWNER_KEY.hex()}"):
        vault.remember(name, KEY, _manifest(3, "h3"))

    def admits(database: str, known: Unlocked) -> bool:
        asked.append((database, known.version))
        return database == "0a0a"

    other.adopt(vault.export(), admits)
    assert asked == [(OTHER, 3), ("0a0a", 3)]
    assert (_known(other, OTHER), _known(other, f"0a0a {OWNER_KEY.hex()}")) == (None, (KEY, 3, "h3"))
    asked.clear()
    assert set(json.loads(vault.export(admits))) == {f"0a0a {OWNER_KEY.hex()}"}
    assert asked == [(OTHER, 3), ("0a0a", 3)]


def test_a_version_that_is_as_new_changes_nothing() -> None:
    """Or two enclaves would hand each other the same for ever, and analysts' sessions go stale each time."""
    vault, other = Vault(), Vault()
    before = vault.remember(DATABASE, KEY, _manifest(5, "h5"))
    other.adopt(vault.export())
    vault.adopt(other.export())
    assert vault.get(DATABASE) is before
    assert vault.changes == 1


def test_an_older_version_never_takes_a_newer_one_s_place() -> None:
    vault, behind = Vault(), Vault()
    vault.remember(DATABASE, KEY, _manifest(5, "h5"))
    behind.remember(DATABASE, OTHER_KEY, _manifest(4, "h4"))
    before = vault.get(DATABASE)
    vault.adopt(behind.export())
    assert vault.get(DATABASE) is before


def test_an_older_version_that_was_restored_takes_a_newer_one_s_place_everywhere() -> None:
    vault, behind = Vault(), Vault()
    vault.remember(DATABASE, KEY, _manifest(5, "h5"))
    behind.adopt(vault.export())
    vault.remember(DATABASE, KEY, _manifest(4, "h4", 1))
    vault.adopt(behind.export())
    assert _known(vault) == (KEY, 4, "h4")
    behind.adopt(vault.export())
    assert _known(behind) == (KEY, 4, "h4")
    vault.remember(DATABASE, KEY, _manifest(5, "another h5", 1))
    behind.adopt(vault.export())
    assert _known(behind) == (KEY, 5, "another h5")


@pytest.mark.parametrize(
    "exported", [b"", b"[]", b"{", b'{"a": 1}', b'{"a": ["zz", "", 0, 1, ""]}', b'{"a": ["00", 1]}', b"\xff"]
)
def test_what_no_vault_has_exported_is_refused(exported: bytes) -> None:
    with pytest.raises(Tampered):
        Vault().adopt(exported)


def test_no_key_in_a_repr() -> None:
    vault = Vault()
    unlocked = vault.remember(DATABASE, KEY, _manifest(3, "h3"))
    assert "k" * 8 not in repr(vault) + repr(unlocked)
    assert "AccessList" not in repr(unlocked)


def test_threads_that_take_over_end_with_the_newest_of_each_database() -> None:
    vault = Vault()
    names = [f"{place:032x}" for place in range(8)]

    def work(offset: int) -> None:
        for version in range(1, 60):
            other = Vault()
            for name in names:
                other.remember(name, KEY, _manifest(version * 4 + offset, f"h{version * 4 + offset}"))
            vault.adopt(other.export())

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {_known(vault, name) for name in names} == {(KEY, 239, "h239")}
