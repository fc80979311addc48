"""A front that lies about who may write, which store is whose, and which version is the newest: the enclave refuses."""

from fractions import Fraction
from typing import Any

import pytest
from fronts import Older, Provider
from sample_rows import OPTIONS, QUERIES, answer, batch, is_right, loaded

import scumble
from scumble.errors import Refused, ScumbleError, Stale, Tampered
from scumble.owner.keys import AnalystKey
from scumble.wire.requests import BeginLoad, Build, Create, DropTable, ForgetPlans, Request, Reserve


def _right(database: scumble.Database, batches: list[int]) -> bool:
    return is_right(database.sql(QUERIES[0]).fetchall(), answer(QUERIES[0], batches))


def test_who_was_granted_to_read_cannot_write_though_the_front_lets_it(liar: Provider) -> None:
    with liar.begin("write") as owner:
        loaded(owner)
        owner.grant("ada", liar.identity("ada1"), ["t"])
        liar.fleet.share()
        with liar.analyst("ada1", "write", 1) as ada:
            assert _right(ada, [0])
            table = ada.table("t")
            free, name = (Fraction(0), Fraction(0)), "0" * 32
            for target in ("t", "new"):
                with pytest.raises(ScumbleError):
                    ada._versions.session.ask(BeginLoad(name, free, target, table.id, table.schema, (), 16, 1 << 20))
            pending: list[Request[Any]] = [Reserve(16), Build(1, name)]
            for request in pending:
                with pytest.raises(ScumbleError):
                    ada._versions.session.ask(request)
            for owners in (DropTable("t"), Create()):
                with pytest.raises(Refused):
                    ada._versions.session.ask(owners)
        assert _right(owner, [0])
        assert owner.version == 3


def test_another_databases_store_is_not_taken_for_this_one(liar: Provider) -> None:
    with liar.begin("here") as owner, liar.begin("there") as other:
        loaded(owner)
        loaded(other, 1)
        for database, name in ((owner, "ada2"), (other, "bob2")):
            database.grant(name, liar.identity(name), ["t"])
        with liar.analyst("ada2", "here") as ada:
            assert _right(ada, [0])
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
            assert _right(ada, [0])
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
            assert _right(ada, [0])
            loaded(owner, 1)
            liar.fleet.share()
            with pytest.raises(Stale):
                ada._versions.session.ask(ForgetPlans())
            assert _right(ada, [0, 1])  # though the front has never said that there is something new


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
