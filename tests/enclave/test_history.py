"""The versions of a database as a session has them: who opens, follows, drafts, commits and restores which."""

from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from enclave_tables import DATA_KEY, DATABASE, KEYS, OWNER, OWNER_KEY, TITLE, MemoryStorage, signed_manifest, table_of

from scumble.attestation import Policy
from scumble.attestation.policy_document import SignedPolicy
from scumble.enclave.dummies import Dummies
from scumble.enclave.grants import AccessList
from scumble.enclave.manifests import check_chain, open_head, seal_manifest
from scumble.enclave.pages import DataKeys
from scumble.enclave.vault import Vault
from scumble.enclave.versions import History, OpenVersion, Pending
from scumble.errors import Exists, InvalidParameter, Locked, Refused, Stale, Tampered
from scumble.wire.catalog import Catalog, Run
from scumble.wire.grants import Grant
from scumble.wire.lineage import Draft, Link, Title, first_title, next_title, sign_draft
from scumble.wire.requests import Create, Open, Restore, Upgrade
from scumble.wire.storage import Envelope, pack, pack_unsigned, unpack

RUN = "cd" * 16
ACCESS = AccessList(OWNER_KEY)
TABLE = table_of("integer", runs=(Run(RUN, "b", None, 32, 16, None, ("00" * 32,)),))
ADA, EVE = (Ed25519PrivateKey.from_private_bytes(bytes([place] * 32)) for place in (7, 9))
ADAS = Grant("a" * 16, "ada", ADA.public_key().public_bytes_raw(), {"t": frozenset(["load"])}, Fraction(1))
SIGNED = ADAS.signed(DATABASE, OWNER)
SHARED = AccessList(OWNER_KEY, (SIGNED,))
OLD = "0a" * 16
"""The id of a database of release 0.1."""


def _catalog(version: int, previous: str = "ff" * 32, /, **more: object) -> Catalog:
    return replace(Catalog(DATABASE, version, previous, (TABLE,), (TITLE,)), **more)  # type: ignore[arg-type]


def _history(
    storage: MemoryStorage,
    vault: Vault,
    who: Ed25519PrivateKey = OWNER,
    data_key: bytes | None = DATA_KEY,
    database: str = DATABASE,
) -> History:
    return History(storage, vault, database, who.public_key().public_bytes_raw(), data_key)


def _committed(pending: Pending, key: Ed25519PrivateKey = OWNER) -> OpenVersion:
    return pending.history.commit(pending, sign_draft(pending.catalog.database, pending.draft, key))


def _stored(
    storage: MemoryStorage,
    access: AccessList = SHARED,
    catalog: Catalog | None = None,
    signer: Ed25519PrivateKey = OWNER,
) -> None:
    """A version in a storage, which no vault knows of."""
    catalog = _catalog(1, "") if catalog is None else catalog
    storage.commit(catalog.version, signed_manifest(KEYS, catalog, {RUN: 1}, access, signer))


def _unsigned(access: AccessList = SHARED, data_key: bytes = DATA_KEY) -> MemoryStorage:
    """A database of release 0.1."""
    storage = MemoryStorage()
    catalog = Catalog(OLD, 1, "", (TABLE,))
    storage.commit(1, pack_unsigned(*seal_manifest(DataKeys(data_key, OLD), catalog, {RUN: Dummies.after(1)}, access)))
    return storage


def test_a_database_is_made_once_by_the_owner_of_its_id() -> None:
    storage, vault = MemoryStorage(), Vault()
    pending = _history(storage, vault).create(Create(TITLE))
    assert pending.draft.seen[:2] == (0, 1)
    made = _committed(pending)
    assert (made.catalog.version, made.catalog.titles, made.manifest.access) == (1, (TITLE,), ACCESS)
    with pytest.raises(Refused):
        _history(storage, vault).create(Create(TITLE))


def test_a_database_is_made_under_its_owner_s_policy() -> None:
    policies = [
        SignedPolicy.sign(Policy(), DATABASE, 1, datetime(2026, 1, 1, tzinfo=UTC), key).to_bytes()
        for key in (OWNER, EVE)
    ]
    history = _history(MemoryStorage(), Vault())
    assert _committed(history.create(Create(TITLE, policies[0]))).manifest.access.policy == policies[0]
    with pytest.raises(Tampered):
        _history(MemoryStorage(), Vault()).create(Create(TITLE, policies[1]))


@pytest.mark.parametrize(
    ("who", "data_key", "database", "title"),
    [
        (OWNER, None, DATABASE, TITLE),
        (EVE, DATA_KEY, DATABASE, TITLE),
        (OWNER, bytes(32), DATABASE, TITLE),
        (OWNER, DATA_KEY, "0b" * 20, TITLE),
        (EVE, DATA_KEY, DATABASE, first_title(DATABASE, EVE, b"n" * 32, DATA_KEY)),
        (OWNER, DATA_KEY, OLD, first_title(OLD, OWNER, b"", DATA_KEY)),
        (OWNER, DATA_KEY, DATABASE, replace(TITLE, signatures=())),
    ],
)
def test_nobody_makes_a_database_of_another_s_id(
    who: Ed25519PrivateKey, data_key: bytes | None, database: str, title: Title
) -> None:
    with pytest.raises(Refused):
        _history(MemoryStorage(), Vault(), who, data_key, database).create(Create(title))


def test_a_database_of_release_0_1_is_signed_by_its_owner_at_the_next_version() -> None:
    storage, vault = _unsigned(), Vault()
    history = _history(storage, vault, database=OLD)
    version = history.open(Open(None), None)
    with pytest.raises(InvalidParameter, match="not signed"):
        history.draft(version, (), {}, ACCESS)
    with pytest.raises(InvalidParameter, match="not signed"):
        history.restore(Restore(0, (), ()), None)
    title = first_title(OLD, OWNER, b"", DATA_KEY, version=2)
    grants = (ADAS.signed(OLD, OWNER),)
    for changed, restores in (
        (title, -1),
        (first_title(OLD, EVE, b"", DATA_KEY, version=2), 0),
        (first_title(OLD, OWNER, b"", DATA_KEY, version=3), 0),
        (first_title(OLD, OWNER, b"", DATA_KEY, version=1), 0),
        (first_title(OLD, OWNER, b"", bytes(32), version=2), 0),
        (first_title(OLD, OWNER, b"n", DATA_KEY, version=2), 0),
    ):
        with pytest.raises(Refused):
            history.upgrade(version, Upgrade(changed, grants, restores))
    signed = _committed(history.upgrade(version, Upgrade(title, grants, 0)))
    assert (signed.catalog.version, signed.catalog.restores, signed.catalog.titles) == (2, 0, (title,))
    check_chain(storage, signed.manifest)
    with pytest.raises(Exists):
        history.upgrade(signed, Upgrade(title, grants, 0))
    assert _history(storage, vault, ADA, None, OLD).open(Open(None), None).grant is not None


def test_nobody_has_a_grant_to_a_database_that_nobody_has_signed() -> None:
    storage, vault = _unsigned(), Vault()
    known = _history(storage, vault, database=OLD).open(Open(None), None)
    for name in (f"{OLD} {ADAS.public_key.hex()}", OLD):
        vault.remember(name, DATA_KEY, known.manifest)
    with pytest.raises(Refused):
        _history(storage, vault, ADA, None, OLD).open(Open(None), None)


def test_an_analyst_opens_what_the_owner_has_unlocked_and_granted() -> None:
    storage, vault = MemoryStorage(), Vault()
    _stored(storage)
    analyst = _history(storage, vault, ADA, None)
    with pytest.raises(Locked):
        analyst.open(Open(None), None)
    owner = _history(storage, vault).open(Open(None), None)
    assert (owner.grant, owner.opened().grants) == (None, (SIGNED,))
    opened = analyst.open(Open(None), None)
    assert (opened.grant, opened.opened().grants) == (SIGNED, ())
    assert owner.links == opened.links == (owner.manifest.link,)
    for history in (
        _history(storage, vault, ADA, DATA_KEY),
        _history(storage, vault, EVE, None),
        _history(storage, vault, EVE, DATA_KEY),
        _history(storage, vault, OWNER, bytes(32)),
    ):
        with pytest.raises(Refused):
            history.open(Open(None), None)


def test_the_owner_that_is_expected_is_or_was_the_owner() -> None:
    storage, vault = MemoryStorage(), Vault()
    _stored(storage)
    history = _history(storage, vault)
    history.open(Open(None, owner=OWNER_KEY), None)
    with pytest.raises(Refused):
        history.open(Open(None, owner=bytes(32)), None)


@pytest.mark.parametrize(
    "grant", [ADAS, ADAS.signed(DATABASE, EVE), ADAS.signed("0b" * 20, OWNER), replace(SIGNED, epsilon=Fraction(9))]
)
def test_a_grant_that_the_owner_has_not_signed_is_tampered_with(grant: Grant) -> None:
    storage, vault = MemoryStorage(), Vault()
    _stored(storage, replace(SHARED, grants=(grant,)))
    _history(storage, vault).open(Open(None), None)
    with pytest.raises(Tampered):
        _history(storage, vault, ADA, None).open(Open(None), None)


def test_a_key_unlocks_no_database_of_another_owner() -> None:
    """The vault knows the database as somebody else's: its data key gives an analyst nothing."""
    storage, vault = MemoryStorage(), Vault()
    _stored(storage)
    manifest = open_head(storage, KEYS, DATABASE)
    vault.remember(DATABASE, DATA_KEY, replace(manifest, access=AccessList(bytes(32))))
    with pytest.raises(Refused):
        _history(storage, vault, ADA, None).open(Open(None), None)


def test_no_older_version_is_opened_than_was_seen_or_is_remembered() -> None:
    storage, vault = MemoryStorage(), Vault()
    previous, anchors = "", []
    for number in (1, 2, 3):
        _stored(storage, catalog=_catalog(number, previous))
        previous = unpack(storage.manifest(number)).hash
        anchors.append((0, number, previous))
    history = _history(storage, vault)
    opened = history.open(Open(anchors[0]), None)
    assert [link.draft.version for link in opened.links] == [2, 3]
    with pytest.raises(Tampered):
        history.open(Open((0, 2, "00" * 32)), None)
    with pytest.raises(Tampered):
        history.open(Open((0, 4, "00" * 32)), None)
    del storage.manifests[3]
    with pytest.raises(Tampered):
        history.open(Open(None), None)
    assert _history(storage, Vault()).open(Open(None), None).catalog.version == 2


def test_a_head_of_another_database_or_that_the_key_does_not_open() -> None:
    storage, vault = MemoryStorage(), Vault()
    _stored(storage)
    with pytest.raises(Tampered):
        _history(storage, vault, database="0b" * 20).open(Open(None), None)
    _history(storage, vault).open(Open(None), None)
    public, _ = seal_manifest(KEYS, _catalog(1, ""), {RUN: Dummies.after(1)}, SHARED)
    draft = Draft(0, 1, "", Envelope(public, b"sealed by nobody", b"-").hash)
    link = Link(draft, OWNER_KEY, sign_draft(DATABASE, draft, OWNER))
    storage.commit(1, pack(public, b"sealed by nobody", link.to_bytes()))
    for history in (_history(storage, vault), _history(storage, vault, ADA, None), _history(storage, Vault())):
        with pytest.raises(Tampered):
            history.open(Open(None), None)


def test_another_s_key_is_refused_and_a_spoiled_head_is_not_its_fault() -> None:
    """In a database of release 0.1, where no title tells which key it is."""
    storage, vault = _unsigned(), Vault()
    _history(storage, vault, database=OLD).open(Open(None), None)
    with pytest.raises(Refused):
        _history(storage, vault, data_key=bytes(32), database=OLD).open(Open(None), None)
    with pytest.raises(Tampered):
        _history(storage, Vault(), data_key=bytes(32), database=OLD).open(Open(None), None)


def _handed_over(storage: MemoryStorage, previous: str, data_key: bytes) -> tuple[DataKeys, AccessList]:
    """A second version, which belongs to Eve."""
    keys, title = DataKeys(data_key, DATABASE), next_title(DATABASE, 2, OWNER, EVE, data_key)
    access = AccessList(EVE.public_key().public_bytes_raw(), (ADAS.signed(DATABASE, EVE),))
    catalog = _catalog(2, previous, titles=(TITLE, title))
    storage.commit(2, signed_manifest(keys, catalog, {RUN: 1}, access, EVE))
    return keys, access


def test_a_change_of_keys_locks_analysts_out_until_it_is_known_and_the_old_owner_for_good() -> None:
    storage, vault = MemoryStorage(), Vault()
    _stored(storage)
    before = _history(storage, vault).open(Open(None), None)
    _handed_over(storage, before.manifest.hash, bytes(32))
    with pytest.raises(Locked):
        _history(storage, vault, ADA, None).open(Open(None), None)
    for old in (_history(storage, vault), _history(storage, Vault())):
        with pytest.raises(Refused):
            old.open(Open(None), None)
    _history(storage, vault, EVE, bytes(32)).open(Open(None), None)
    opened = _history(storage, vault, ADA, None).open(Open(None, owner=OWNER_KEY), None)
    assert opened.catalog.version == 2


def test_readers_are_kept_for_runs_that_are_still_there_under_the_same_key() -> None:
    storage, vault = MemoryStorage(), Vault()
    _stored(storage)
    history = _history(storage, vault)
    before = history.open(Open(None), None)
    reader = before.reader(RUN)
    assert reader[1].to_bytes() == Dummies.after(1).to_bytes()
    assert history.open(Open(None), before).reader(RUN) == reader
    keys, _ = _handed_over(storage, before.manifest.hash, bytes(32))
    after = _history(storage, vault, EVE, bytes(32)).open(Open(None), before)
    assert after.readers == {}
    assert after.keys.data_key == keys.data_key


def test_a_reader_is_no_longer_to_be_had_when_its_table_is_gone_or_not_granted() -> None:
    storage, vault = MemoryStorage(), Vault()
    _stored(storage)
    before = _history(storage, vault).open(Open(None), None)
    before.reader(RUN)
    gone = replace(before.manifest, catalog=_catalog(2, tables=()))
    others = replace(ADAS, tables={"u": frozenset(["read"])})
    for later in (replace(before, manifest=gone), replace(before, grant=others)):
        with pytest.raises(Stale):
            later.reader(RUN)


def test_a_batch_is_there_if_any_run_is_of_it() -> None:
    storage = MemoryStorage()
    runs = tuple(Run(f"{place:032x}", batch, None, 32, 16, None, ("00" * 32,)) for place, batch in enumerate("bc"))
    _stored(storage, catalog=_catalog(1, "", tables=(replace(TABLE, runs=runs),)))
    version = _history(storage, Vault()).open(Open(None), None)
    assert [version.has_batch(batch) for batch in "bcd"] == [True, True, False]


def test_an_owner_s_session_follows_new_versions_and_an_analyst_s_is_stale() -> None:
    storage, vault = MemoryStorage(), Vault()
    _stored(storage)
    history, analyst = _history(storage, vault), _history(storage, vault, ADA, None)
    with pytest.raises(InvalidParameter, match="no version is open"):
        history.followed(None)
    version, adas = history.open(Open(None), None), analyst.open(Open(None), None)
    assert history.followed(version) is version
    assert analyst.followed(adas) is adas
    newest = vault.remember(DATABASE, DATA_KEY, replace(version.manifest, hash="00" * 32))
    assert history.followed(version).unlocked is newest
    with pytest.raises(Stale):
        analyst.followed(adas)
    with pytest.raises(Stale):  # it is no longer on top of the newest
        history.draft(version, (), {}, SHARED)
    with pytest.raises(Stale):  # nothing is known any more
        _history(storage, Vault()).followed(version)
    vault.remember(DATABASE, bytes(32), version.manifest)
    with pytest.raises(Stale):
        history.followed(version)


def test_a_draft_is_committed_on_top_of_what_it_was_made_for() -> None:
    storage, vault = MemoryStorage(), Vault()
    _stored(storage)
    history = _history(storage, vault)
    version = history.open(Open(None), None)
    first, second = (history.draft(version, (TABLE,), {RUN: Dummies.after(rows)}, SHARED) for rows in (1, 2))
    assert first.draft.seen[:2] == (0, 2)
    with pytest.raises(Tampered):
        history.commit(first, sign_draft(DATABASE, first.draft, EVE))
    assert _committed(first).catalog.version == 2
    stored = dict(storage.manifests)
    with pytest.raises(Stale):
        _committed(second)
    assert storage.manifests == stored


def test_an_analyst_s_version_carries_its_certificate() -> None:
    storage, vault = MemoryStorage(), Vault()
    _stored(storage)
    _history(storage, vault).open(Open(None), None)
    analyst = _history(storage, vault, ADA, None)
    version = analyst.open(Open(None), None)
    link = _committed(analyst.draft(version, (TABLE,), {RUN: Dummies.after(1)}, SHARED), ADA).manifest.link
    assert link is not None
    assert link.certificate == SIGNED.certificate()


def test_a_successor_has_a_title_for_its_key() -> None:
    storage, vault = MemoryStorage(), Vault()
    _stored(storage)
    version = _history(storage, vault).open(Open(None), None)
    keys = DataKeys(bytes(32), DATABASE)
    access = AccessList(EVE.public_key().public_bytes_raw())
    history = _history(storage, vault, EVE, bytes(32))
    title = next_title(DATABASE, 2, OWNER, EVE, bytes(32))
    for wrong in (
        next_title(DATABASE, 2, OWNER, EVE, DATA_KEY),
        next_title(DATABASE, 2, EVE, EVE, bytes(32)),
        replace(title, signatures=title.signatures[:1]),
    ):
        with pytest.raises(Refused):
            history.draft(version, (TABLE,), {RUN: Dummies.after(1)}, access, (keys, wrong))
    after = _committed(history.draft(version, (TABLE,), {RUN: Dummies.after(1)}, access, (keys, title)), EVE)
    assert after.catalog.titles == (TITLE, title)
    assert after.keys is keys


def test_a_restore_counts_above_every_one_that_is_known() -> None:
    storage, vault = MemoryStorage(), Vault()
    _stored(storage, catalog=_catalog(4, restores=2))
    history = _history(storage, vault)
    assert [history.restore(Restore(known, (), ()), None).draft.seen[:2] for known in (0, 2, 5)] == [
        (3, 5),
        (3, 5),
        (6, 5),
    ]
    seen = replace(open_head(storage, KEYS, DATABASE), catalog=_catalog(9, restores=7))
    vault.remember(DATABASE, DATA_KEY, seen)
    assert history.restore(Restore(0, (), ()), None).catalog.restores == 8
    first = MemoryStorage()
    _stored(first)
    assert _history(first, Vault()).restore(Restore(-5, (), ()), None).catalog.restores == 1


def test_a_restore_brings_rights_up_to_what_the_owner_and_the_vault_have_seen() -> None:
    storage, vault = MemoryStorage(), Vault()
    _stored(storage)
    request = Restore(0, (), ((ADAS.id, Fraction(1, 2), Fraction(0)),))
    (grant,) = _committed(_history(storage, vault).restore(request, None)).manifest.access.grants
    assert grant.used_epsilon == Fraction(1, 2)
    again = MemoryStorage()
    _stored(again)
    (grant,) = _committed(_history(again, vault).restore(Restore(0, (), ()), None)).manifest.access.grants
    assert grant.used_epsilon == Fraction(1, 2)  # the vault knows
    _stored(again)
    revoked = _committed(_history(again, Vault()).restore(Restore(0, (ADAS.id,), ()), None))
    assert revoked.manifest.access.grants == ()


def test_only_the_owner_on_record_restores() -> None:
    storage, vault = MemoryStorage(), Vault()
    _stored(storage)
    before = _history(storage, vault).open(Open(None), None)
    for history in (_history(storage, vault, ADA, None), _history(storage, vault, ADA, DATA_KEY)):
        with pytest.raises(Refused):
            history.restore(Restore(0, (), ()), None)
    _handed_over(storage, before.manifest.hash, DATA_KEY)
    _history(storage, vault, EVE).open(Open(None), None)
    del storage.manifests[2]
    with pytest.raises(Refused):  # the version is the old owner's, but the vault knows of a new one
        _history(storage, vault).restore(Restore(0, (), ()), None)
    assert _history(storage, Vault()).restore(Restore(0, (), ()), None).catalog.restores == 1


def test_a_former_owner_with_a_grant_does_not_restore() -> None:
    """Not even in an enclave that has not heard of the new owner."""
    storage, vault = MemoryStorage(), Vault()
    _stored(storage)
    before = _history(storage, vault).open(Open(None), None)
    grant = replace(ADAS, public_key=OWNER_KEY).signed(DATABASE, EVE)
    access = AccessList(EVE.public_key().public_bytes_raw(), (grant,))
    titles = (TITLE, next_title(DATABASE, 2, OWNER, EVE, DATA_KEY))
    _stored(storage, access, _catalog(2, before.manifest.hash, titles=titles), EVE)
    with pytest.raises(Refused):
        _history(storage, vault, OWNER, None).restore(Restore(0, (), ()), None)


def test_no_key_in_the_repr_of_a_history() -> None:
    assert "data_key" not in repr(_history(MemoryStorage(), Vault()))
