"""Analysts: with a key file of their own they read and load what was granted, beside the owner, in one enclave."""

import threading
from fractions import Fraction

import pytest
from clinics import INDEX, Clinic, Open, clinic, rows

import scumble
from scumble.enclave.lines import TrustedEnclave
from scumble.errors import BadQuery, Locked, Overdraft, Refused, ScumbleError, Tampered, Unavailable, Unfinished
from scumble.owner import key_file
from scumble.owner.database import Database
from scumble.owner.keys import AnalystKey, OwnerKey
from scumble.store.files import FileStore

__all__ = ["clinic"]


def test_an_analyst_asks_what_the_owner_could_and_sees_one_table(clinic: Clinic) -> None:
    clinic.owner.grant("ada", clinic.identity("ada"), ["visits"])
    with clinic.analyst("ada") as ada:
        assert [table.name for table in ada.tables] == ["visits"]
        for query in ("SELECT count(*), sum(v) FROM visits WHERE k < 7", "SELECT * FROM visits ORDER BY k LIMIT 3"):
            assert ada.sql(query).fetchall() == clinic.owner.sql(query).fetchall()
        assert ada.check() > 0
        with pytest.raises(BadQuery) as ungranted:
            ada.sql("SELECT * FROM staff")
        with pytest.raises(BadQuery) as absent:
            ada.sql("SELECT * FROM stuff")
        assert str(ungranted.value).replace("staff", "stuff") == str(absent.value)
        assert ada.owner == clinic.owner.owner


def test_an_analyst_cannot_do_what_is_the_owner_s(clinic: Clinic) -> None:
    clinic.owner.grant("ada", clinic.identity("ada"), ["visits"])
    with clinic.analyst("ada") as ada:
        for what in (
            lambda: ada.drop("visits"),
            ada.rekey,
            ada.grants,
            lambda: ada.revoke("ada"),
            lambda: ada.grant("eve", ada.owner, ["visits"]),
        ):
            with pytest.raises(Refused):
                what()
        with pytest.raises(ScumbleError):
            ada.load("visits", rows(3), indexes=INDEX, capacity=16)
    assert clinic.owner.sql("SELECT count(*) FROM visits").fetchone() == (40,)


def test_the_owner_s_loads_are_seen_and_a_revocation_is_felt_at_the_next_query(clinic: Clinic) -> None:
    clinic.owner.grant("ada", clinic.identity("ada"), ["visits"])
    with clinic.analyst("ada") as ada:
        statement = ada.prepare("SELECT count(*) FROM visits")
        assert statement.execute().fetchone() == (40,)
        clinic.owner.load("visits", rows(5), indexes=INDEX, capacity=16, page_rows=16)
        assert statement.execute().fetchone() == (45,)
        clinic.owner.revoke("ada")
        with pytest.raises(Refused):
            statement.execute()
    with pytest.raises(Refused):
        clinic.analyst("ada")


def test_a_rekey_does_not_lock_an_analyst_out(clinic: Clinic) -> None:
    clinic.owner.grant("ada", clinic.identity("ada"), ["visits"])
    with clinic.analyst("ada") as ada:
        before = ada.owner
        clinic.owner.rekey()
        assert ada.sql("SELECT count(*) FROM visits").fetchone() == (40,)
        assert ada.owner == clinic.owner.owner != before
    with clinic.analyst("ada") as ada:
        assert ada.sql("SELECT sum(k) FROM visits").fetchone() == (780,)


def test_another_database_in_its_place_is_refused(clinic: Clinic) -> None:
    """A false owner, with the id and with a grant to the analyst, under a key of its own."""
    text = clinic.identity("ada")
    clinic.owner.grant("ada", text, ["visits"])
    with clinic.analyst("ada"):
        pass
    (clinic.home / "ada.anchor").unlink(missing_ok=True)
    for anchor in clinic.home.glob("ada.*.anchor"):
        anchor.unlink()
    (clinic.home / "false").mkdir()
    path = clinic.home / "false" / "db.key"
    key = OwnerKey.create(path, None)
    store = FileStore.create(clinic.home / "false" / "db", key.database)
    provider = Open(store, TrustedEnclave)
    with scumble.Ledger.open(key_file.ledger_path(path), 4, delta_limit="1e-6"):
        pass
    with Database.begin(provider, key, path) as false:
        false.load("visits", rows(3), indexes=INDEX, capacity=16, page_rows=16)
        false.grant("ada", text, ["visits"])
        real = AnalystKey.open(clinic.home / "ada.key", clinic.store.database)
        with pytest.raises((Refused, Tampered)):
            Database(provider, real, clinic.home / "ada.key")
    store.close()


def test_a_loader_pays_from_its_allotment_and_the_owner_has_paid_before(clinic: Clinic) -> None:
    spent = clinic.owner.ledger.spent()
    clinic.owner.grant("lab", clinic.identity("lab"), {"visits": ["load"]}, epsilon="1.2", delta="1e-6")
    assert clinic.owner.ledger.spent() - spent == Fraction(6, 5)
    assert clinic.owner.ledger.entries()[-1].label == "granted to lab"
    with clinic.analyst("lab") as lab:
        assert lab.ledger.limit == Fraction(6, 5)
        lab.load("visits", rows(7), indexes=INDEX, page_rows=16)  # with a capacity drawn: 0.55 in all
        with pytest.raises(ScumbleError):
            lab.sql("SELECT count(*) FROM visits")
        lab.load("visits", rows(2), indexes=INDEX, page_rows=16)
        with pytest.raises(Overdraft):  # the enclave adds up, where the ledger knows of disjoint rows
            lab.load("visits", rows(1), indexes=INDEX, page_rows=16)
        with pytest.raises(ScumbleError):
            lab.load("staff", rows(1), indexes=INDEX, page_rows=16)
        with pytest.raises(ScumbleError):
            lab.load("fresh", rows(1), indexes=INDEX, page_rows=16)
    (grant,) = clinic.owner.grants()
    assert grant.used_epsilon == Fraction(11, 10)
    assert clinic.owner.sql("SELECT count(*) FROM visits").fetchone() == (49,)
    assert clinic.owner.ledger.spent() - spent == Fraction(6, 5)


def test_a_grant_that_is_refused_costs_nothing(clinic: Clinic) -> None:
    text, spent = clinic.identity("lab"), clinic.owner.ledger.spent()
    for tables, epsilon in (({"nothing": ["load"]}, 1), ({"visits": ["load"]}, 0), ({"visits": ["read"]}, 1)):
        with pytest.raises(ScumbleError):
            clinic.owner.grant("lab", text, tables, epsilon=epsilon)  # type: ignore[arg-type]
    with pytest.raises(Overdraft):
        clinic.owner.grant("lab", text, {"visits": ["load"]}, epsilon=50)
    assert clinic.owner.ledger.spent() == spent
    assert clinic.owner.grants() == ()


def test_a_grant_that_is_lost_after_it_was_paid_for_says_so(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> bool:
        raise Unavailable("the session was lost, and nothing was changed", hint="try again")

    spent = clinic.owner.ledger.spent()
    with monkeypatch.context() as patched:
        patched.setattr(clinic.owner._versions, "change", lost)
        with pytest.raises(Unfinished, match=r"nothing was changed; epsilon 1 and delta 0\.000001 stays spent"):
            clinic.owner.grant("lab", clinic.identity("lab"), {"visits": ["load"]}, epsilon=1, delta="1e-6")
        with pytest.raises(Unavailable) as free:
            clinic.owner.grant("ada", clinic.identity("ada"), ["visits"])
    assert not isinstance(free.value, Unfinished)
    assert clinic.owner.ledger.spent() == spent + 1


def test_an_analyst_alone_with_the_folder_gets_nowhere(clinic: Clinic) -> None:
    clinic.owner.grant("ada", clinic.identity("ada"), ["visits"])
    with pytest.raises(Locked):
        scumble.open(clinic.home / "db", key=clinic.home / "ada.key")


def test_many_threads_of_many_analysts_while_the_owner_loads(clinic: Clinic) -> None:
    """Every answer is that of one version, whole."""
    names = [f"a{place}" for place in range(4)]
    for name in names:
        clinic.owner.grant(name, clinic.identity(name), ["visits"])
    whole = {(40 + 5 * loads, 780 + 10 * loads) for loads in range(5)}
    wrong: list[object] = []

    def ask(name: str) -> None:
        try:
            with clinic.analyst(name) as analyst:
                for _ in range(25):
                    found = analyst.sql("SELECT count(*), sum(k) FROM visits").fetchone()
                    if found not in whole:
                        wrong.append(found)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for _ in range(4):
        clinic.owner.load("visits", rows(5), indexes=INDEX, capacity=16, page_rows=16, again=True)
    for thread in threads:
        thread.join()
    assert wrong == []
    assert clinic.owner.sql("SELECT count(*), sum(k) FROM visits").fetchone() == (60, 820)


def test_dropping_another_table_takes_no_grant_away(clinic: Clinic) -> None:
    clinic.owner.grant("ada", clinic.identity("ada"), ["visits"])
    clinic.owner.drop("staff")
    with clinic.analyst("ada") as ada:
        assert ada.sql("SELECT count(*) FROM visits").fetchone() == (40,)
    assert [grant.name for grant in clinic.owner.grants()] == ["ada"]
