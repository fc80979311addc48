"""A front that would have two newest versions of a database, or two owners of it: the enclaves know of only one."""

from contextlib import closing

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fronts import Older, Provider
from sample_rows import QUERIES, answer, is_right, loaded

import scumble
from scumble.enclave.grants import AccessList
from scumble.enclave.pages import DataKeys
from scumble.enclave.versions import seal_manifest
from scumble.errors import Refused, Stale, Tampered
from scumble.owner.keys import OwnerKey
from scumble.owner.versions import Session
from scumble.store.files import FileStore
from scumble.wire.catalog import Catalog
from scumble.wire.grants import Grant, parse_public_key
from scumble.wire.pipe import Bytes
from scumble.wire.requests import AddGrant, Create


class Fork(Older):
    """A storage on which others have not committed what they have; a commit goes on top of what it shows."""

    def commit(self, version: int, manifest: Bytes) -> None:
        """Take a version in place of the one that the store has."""
        self._head = bytes(manifest)


def _reading(name: str, public_key: str) -> Grant:
    return Grant("0" * 16, name, parse_public_key(public_key), {"t": frozenset({"read"})})


def _right(database: scumble.Database, batches: list[int]) -> bool:
    return is_right(database.sql(QUERIES[0]).fetchall(), answer(QUERIES[0], batches))


def test_of_two_commits_on_top_of_one_version_the_second_is_refused(liar: Provider) -> None:
    """Else it would undo the first: here, a revocation."""
    with liar.begin("fork") as owner:
        loaded(owner)
        owner.grant("ada", liar.identity("ada"), ["t"])
        granted = liar.stores["fork"].head()
        with liar.owner("fork") as other, liar.analyst("ada", "fork") as ada:
            owner.revoke("ada")
            fork = Fork(liar.stores["fork"], granted)
            other.service.storage = ada.service.storage = fork  # type: ignore[attr-defined]
            grant = _reading("bob", liar.identity("bob"))
            with pytest.raises(Stale):
                other._versions.session.ask(AddGrant(grant, rehearsed=False))
            assert fork.head() == granted
            with pytest.raises((Tampered, Refused)):
                ada.sql(QUERIES[0])


def test_a_provider_cannot_make_a_database_in_an_owners_name(liar: Provider) -> None:
    """At an enclave that the owner has not been to, it makes one of that id with a key of its own, and forges."""
    with liar.begin("victim") as owner:
        loaded(owner)
        eve = liar.identity("eve")
        owner.grant("eve", eve, ["t"])
        with liar.analyst("eve", "victim", owner=owner.owner):
            pass
        owners_key = parse_public_key(owner.owner)
        database = liar.stores["victim"].database
        with closing(FileStore.create(liar.folder / "forged", database)) as store, store.writer():
            front = liar.front("victim", 1)
            front.storage = liar.stores["victim"] = store
            made = Session(front, database, Ed25519PrivateKey.generate(), bytes(32)).ask(Create())
            access = AccessList(owners_key, (_reading("eve", eve),))
            catalog = Catalog(database, 2, made.hash, ())
            store.commit(2, seal_manifest(DataKeys(bytes(32), database), catalog, {}, access))
            for path in liar.folder.glob("eve.*.anchor"):
                path.unlink()  # even one who has never seen the real one
            for named in ({"owner": owner.owner}, {}):
                with pytest.raises(Refused):
                    liar.analyst("eve", "victim", 1, **named)


def test_an_older_version_that_the_owner_accepts_is_the_newest_at_every_enclave(liar: Provider) -> None:
    with liar.begin("restored") as owner:
        loaded(owner)
        before = liar.stores["restored"].head()
        loaded(owner, 1)
        liar.fleet.share()
    path = liar.folder / "restored.key"
    key, fronts = OwnerKey.open(path), [liar.front("restored", member) for member in (0, 1)]
    for front in fronts:
        front.storage = Older(liar.stores["restored"], before)
        with pytest.raises(Tampered):
            scumble.Database(front, key, path)
    scumble.Database(fronts[0], key, path, accept_restored=True).close()
    liar.fleet.share()
    for front in fronts:
        with scumble.Database(front, key, path) as again:
            assert _right(again, [0])
