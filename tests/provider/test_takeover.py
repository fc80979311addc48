"""A provider with keys of its own, or another tenant, tries to get hold of somebody else's database.

The enclave is honest. It makes whatever it can sign itself, offline, and routes it to an owner or an analyst.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fronts import Older, Provider
from sample_rows import OPTIONS, answers_right, batch, loaded

from scumble.enclave.grants import AccessList
from scumble.enclave.manifests import seal_manifest
from scumble.enclave.pages import DataKeys
from scumble.errors import Locked, Refused, ScumbleError, Tampered
from scumble.owner.database import Database
from scumble.owner.keys import AnalystKey, OwnerKey
from scumble.owner.session import Session
from scumble.store.files import FileStore
from scumble.wire.catalog import Catalog
from scumble.wire.lineage import Draft, Link, Title, data_key_hash, first_title, next_title, sign_draft
from scumble.wire.requests import Create, Open, Reseal, Restore, pack_request
from scumble.wire.storage import Envelope, pack, unpack

EVE = Ed25519PrivateKey.from_private_bytes(bytes([9] * 32))
EVES_DATA_KEY = b"e" * 32
PUBLIC = EVE.public_key().public_bytes_raw()


@dataclass
class Victim:
    """A database with a table, its owner, and an analyst who has been there."""

    provider: Provider
    name: str
    owner: Database
    head: bytes

    @property
    def store(self) -> FileStore:
        return self.provider.stores[self.name]

    @property
    def catalog(self) -> Catalog:
        return self.owner._versions.catalog

    def routed(self, head: bytes, member: int) -> Database:
        """The analyst, as it opens what the provider shows."""
        front = self.provider.front(self.name, member)
        front.storage = Older(self.store, head)
        key = self.provider.folder / "ada.key"
        return Database(front, AnalystKey.open(key, self.store.database), key)


@pytest.fixture
def victim(liar: Provider, request: pytest.FixtureRequest) -> Iterator[Victim]:
    name = f"v{sha256(request.node.name.encode()).hexdigest()[:8]}"
    with liar.begin(name) as owner:
        loaded(owner)
        (liar.folder / "ada.key").unlink(missing_ok=True)
        owner.grant("ada", liar.identity("ada"), {"t": ["read", "load"]}, epsilon=5, delta="1e-7")
        liar.fleet.share()
        with liar.analyst("ada", name, owner=owner.owner) as ada:
            assert answers_right(ada, [0])
        yield Victim(liar, name, owner, liar.stores[name].head())


def forged(
    victim: Victim, titles: tuple[Title, ...], access: AccessList, signer: Ed25519PrivateKey = EVE, version: int = 0
) -> bytes:
    """A version that the provider makes by itself, after the real one, under a data key of its own."""
    old = victim.catalog
    number = version or old.version + 1
    catalog = Catalog(old.database, number, unpack(victim.head).hash, (), titles, old.restores)
    public, sealed = seal_manifest(DataKeys(EVES_DATA_KEY, old.database), catalog, {}, access)
    draft = Draft(old.restores, number, catalog.previous, Envelope(public, sealed, b"-").hash)
    link = Link(draft, signer.public_key().public_bytes_raw(), sign_draft(old.database, draft, signer))
    return pack(public, sealed, link.to_bytes())


def test_a_version_after_the_real_one_that_the_provider_has_made(victim: Victim) -> None:
    """Under its own key, with the owner named as the owner, and a grant for the analyst: nobody takes it."""
    owner = bytes.fromhex(victim.owner._versions.owner)
    titles, database = victim.catalog.titles, victim.store.database
    grants = victim.owner.grants()
    own = first_title(database, EVE, b"", EVES_DATA_KEY)
    given = next_title(database, victim.catalog.version + 1, EVE, EVE, EVES_DATA_KEY)
    claimed = replace(titles[0], data_key_hash=data_key_hash(database, EVES_DATA_KEY))
    for chain, access in (
        ((own,), AccessList(PUBLIC, grants)),
        ((*titles, given), AccessList(PUBLIC, grants)),
        (titles, AccessList(owner, grants)),
        ((claimed,), AccessList(owner, grants)),
        ((), AccessList(owner, grants)),
    ):
        head = forged(victim, chain, access)
        for member in (0, 1):
            with pytest.raises(Tampered):
                victim.routed(head, member)
            front = victim.provider.front(victim.name, member)
            front.storage = Older(victim.store, head)
            eve = Session(front, database, EVE, EVES_DATA_KEY)
            for request in (Open(None), Restore(0, (), ())):
                with pytest.raises((Tampered, Refused)):
                    eve._exchange(pack_request(request))
    assert answers_right(victim.owner, [0])


def test_a_database_is_not_resealed_to_a_key_that_does_not_consent(victim: Victim) -> None:
    """The provider's own database, given to the victim's public key: that key has to have signed, and it has not."""
    liar = victim.provider
    owner = bytes.fromhex(victim.owner._versions.owner)
    with liar.begin(victim.name + "eve") as own:
        key = OwnerKey.open(liar.folder / f"{victim.name}eve.key")
        title = next_title(key.database, 2, key.signing_key(), EVE, EVES_DATA_KEY)
        for forged_title in (
            replace(title, owner=owner),
            replace(title, owner=owner, signatures=title.signatures[:1]),
            replace(title, data_key_hash=bytes(32)),
            replace(title, signatures=(bytes(64), title.signatures[1])),
        ):
            with pytest.raises(Refused):
                own._versions.session.ask(Reseal(EVES_DATA_KEY, forged_title, ()))
        assert own._versions.session.ask(Reseal(EVES_DATA_KEY, title, ())).version == 2  # both have signed this one


def test_rows_never_leave_for_a_database_that_the_provider_made(victim: Victim) -> None:
    """An analyst who may load is not led to another data key while it has the database open."""
    liar = victim.provider
    with liar.analyst("ada", victim.name) as ada:
        head = forged(victim, victim.catalog.titles, AccessList(PUBLIC, victim.owner.grants()))
        ada.service.storage = Older(victim.store, head)  # type: ignore[attr-defined]
        with pytest.raises(ScumbleError):
            ada.load("t", batch(2), **OPTIONS)
    assert answers_right(victim.owner, [0])


def test_nobody_creates_a_database_under_the_id_of_another(victim: Victim) -> None:
    """Also at an enclave that knows nothing of the real one: the victim's next opening is not disturbed by it."""
    liar, database = victim.provider, victim.store.database
    with closing(FileStore.create(liar.folder / f"{victim.name}-forged", database)) as store, store.writer():
        for member in (0, 1):
            front = liar.front(victim.name, member)
            front.storage = store
            eve = Session(front, database, EVE, EVES_DATA_KEY)
            titles = victim.catalog.titles
            for title in (
                first_title(database, EVE, b"", EVES_DATA_KEY),
                first_title(database, EVE, titles[0].nonce, EVES_DATA_KEY),
                replace(titles[0], owner=PUBLIC),
                titles[0],
            ):
                with pytest.raises(Refused):
                    eve.ask(Create(title))
            assert store.is_empty()
    with liar.owner(victim.name, 1) as again:
        assert answers_right(again, [0])


def test_what_release_0_1_made_is_remembered_by_owner_and_id(liar: Provider) -> None:
    """Its ids are no hashes of a key, so two may claim one: neither gets in the way of the other."""
    database = "0d" * 16
    stores = {}
    for name in ("first", "second"):
        path = liar.folder / f"{name}.key"
        key = OwnerKey(database, name.encode().ljust(32, b"-"))
        key.save(path, None)
        public = key.public_key()
        stores[name] = store = FileStore.create(liar.folder / f"{name}-0.1", database)
        keys, titles = DataKeys(key.data_key(), database), (key.title(1),)
        catalog = Catalog(database, 1, "", (), titles)
        content, sealed = seal_manifest(keys, catalog, {}, AccessList(public))
        draft = Draft(0, 1, "", Envelope(content, sealed, b"-").hash)
        link = Link(draft, public, sign_draft(database, draft, key.signing_key()))
        with store.writer():
            store.commit(1, pack(content, sealed, link.to_bytes()))
        liar.stores[name] = store
    for name in ("first", "second", "first"):
        path = liar.folder / f"{name}.key"
        with Database(liar.front(name), OwnerKey.open(path), path, first_opening=True) as db:
            assert db.version == 1
    key = OwnerKey.open(liar.folder / "first.key")
    astray = Session(liar.front("second"), database, key.signing_key(), key.data_key())
    with pytest.raises((Refused, Locked, Tampered)):
        astray.ask(Open(None))
    for store in stores.values():
        store.close()
