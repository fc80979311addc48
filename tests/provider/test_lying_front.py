"""A front that lies about who may write, whose a store is, and which version is the newest: the enclaves refuse.

It also tries to have two newest versions of a database, or two owners of it.
"""

from fractions import Fraction
from typing import Any

import pytest
from fronts import Older, Provider
from sample_rows import OPTIONS, QUERIES, answers_right, batch, loaded

import scumble
from scumble.errors import Refused, ScumbleError, Stale, Tampered
from scumble.owner.keys import AnalystKey, OwnerKey
from scumble.wire.grants import Grant, parse_public_key
from scumble.wire.lineage import Title
from scumble.wire.pipe import Bytes
from scumble.wire.requests import AddGrant, BeginLoad, Build, Create, DropTable, ForgetPlans, Request, Reserve


def test_who_was_granted_to_read_cannot_write_though_the_front_lets_it(liar: Provider) -> None:
    with liar.begin("write") as owner:
        loaded(owner)
        owner.grant("ada", liar.identity("ada1"), ["t"])
        liar.fleet.share()
        with liar.analyst("ada1", "write", 1) as ada:
            assert answers_right(ada, [0])
            table = ada.table("t")
            free, name = (Fraction(0), Fraction(0)), "0" * 32
            for target in ("t", "new"):
                with pytest.raises(ScumbleError):
                    ada._versions.session.ask(BeginLoad(name, free, target, table.id, table.schema, (), 16, 1 << 20))
            pending: list[Request[Any]] = [Reserve(16), Build(1, name)]
            for request in pending:
                with pytest.raises(ScumbleError):
                    ada._versions.session.ask(request)
            asked: list[Request[Any]] = [DropTable("t"), Create(Title(1, bytes(32), bytes(32), b"", ()))]
            for owners in asked:
                with pytest.raises(Refused):
                    ada._versions.session.ask(owners)
        assert answers_right(owner, [0])
        assert owner.version == 4


def test_another_databases_store_is_not_taken_for_this_one(liar: Provider) -> None:
    with liar.begin("here") as owner, liar.begin("there") as other:
        loaded(owner)
        loaded(other, 1)
        for database, name in ((owner, "ada2"), (other, "bob2")):
            database.grant(name, liar.identity(name), ["t"])
        with liar.analyst("ada2", "here") as ada:
            assert answers_right(ada, [0])
            for database in (ada, owner):
                front = database.service
                front.storage = liar.stores["there"]  # type: ignore[attr-defined]
                with pytest.raises(ScumbleError):
                    database.check()
                with pytest.raises(ScumbleError):
                    database.sql(QUERIES[1]).fetchall()
                front.storage = liar.stores["here"]  # type: ignore[attr-defined]
        front = liar.front("here")
        front.storage = liar.stores["there"]
        for who in ("ada2", "bob2"):
            with pytest.raises((Tampered, Refused)):
                scumble.Database(front, _identity(liar, who, "here"), liar.folder / f"{who}.key")


def _identity(liar: Provider, who: str, name: str) -> AnalystKey:
    return AnalystKey.open(liar.folder / f"{who}.key", liar.stores[name].database)


@pytest.mark.parametrize("member", [0, 1])
def test_an_older_version_that_still_has_the_grant_is_refused(liar: Provider, member: int) -> None:
    name, who = f"older{member}", f"ada3{member}"
    with liar.begin(name) as owner:
        loaded(owner)
        owner.grant("ada", liar.identity(who), ["t"])
        liar.fleet.share()
        granted = liar.stores[name].head()
        with liar.analyst(who, name, member) as ada:
            assert answers_right(ada, [0])
            owner.revoke("ada")
            liar.fleet.share()
            ada.service.storage = Older(liar.stores[name], granted)  # type: ignore[attr-defined]
            with pytest.raises((Tampered, Refused)):
                ada.sql(QUERIES[0])
            ada.service.storage = liar.stores[name]  # type: ignore[attr-defined]
            with pytest.raises(Refused):
                ada.sql(QUERIES[0])
        front = liar.front(name, member)
        front.storage = Older(liar.stores[name], granted)
        for path in liar.folder.glob(f"{who}.*.anchor"):
            path.unlink()  # even one who remembers nothing: the enclaves do
        with pytest.raises((Tampered, Refused)):
            scumble.Database(front, _identity(liar, who, name), liar.folder / f"{who}.key")


def test_a_session_that_stays_behind_is_told_to_look_again(liar: Provider) -> None:
    with liar.begin("behind") as owner:
        loaded(owner)
        owner.grant("ada", liar.identity("ada4"), ["t"])
        liar.fleet.share()
        with liar.analyst("ada4", "behind", 1) as ada:
            assert answers_right(ada, [0])
            loaded(owner, 1)
            liar.fleet.share()
            with pytest.raises(Stale):
                ada._versions.session.ask(ForgetPlans())
            assert answers_right(ada, [0, 1])  # though the front has never said that there is something new


def test_an_owner_is_not_led_back_either(liar: Provider) -> None:
    with liar.begin("back") as owner:
        loaded(owner)
        before = liar.stores["back"].head()
        owner.load("u", batch(1), **OPTIONS)
        owner.service.storage = Older(liar.stores["back"], before)  # type: ignore[attr-defined]
        with pytest.raises(Tampered):
            owner.check()
        with pytest.raises(ScumbleError):
            loaded(owner, 2)


# --- two newest versions, or two owners -------------------------------------------------------------


class Fork(Older):
    """A storage on which others have not committed what they have; a commit goes on top of what it shows."""

    def commit(self, version: int, manifest: Bytes) -> None:
        self._head = bytes(manifest)


def _reading(name: str, public_key: str) -> Grant:
    return Grant("0" * 16, name, parse_public_key(public_key), {"t": frozenset({"read"})})


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
            key = OwnerKey.open(liar.folder / "fork.key")
            grant = _reading("bob", liar.identity("bob")).signed(key.database, key.signing_key())
            with pytest.raises(Stale):
                other._versions.session.ask(AddGrant(grant, rehearsed=False))
            assert fork.head() == granted
            with pytest.raises((Tampered, Refused)):
                ada.sql(QUERIES[0])


def test_an_older_version_that_the_owner_accepts_is_the_newest_at_every_enclave(liar: Provider) -> None:
    with liar.begin("restored") as owner:
        loaded(owner)
        folder = liar.folder / "restored"
        before = (folder / "HEAD").read_bytes()
        loaded(owner, 1)
        liar.fleet.share()
    (folder / "HEAD").write_bytes(before)
    path = liar.folder / "restored.key"
    key, fronts = OwnerKey.open(path), [liar.front("restored", member) for member in (0, 1)]
    for front in fronts:
        with pytest.raises(Tampered):
            scumble.Database(front, key, path)
    scumble.Database(fronts[0], key, path, accept_restored=True).close()
    liar.fleet.share()
    for front in fronts:
        with scumble.Database(front, key, path) as again:
            assert answers_right(again, [0])
