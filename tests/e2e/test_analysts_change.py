"""Analysts who insert and change: what a grant lets them do and no more, also with requests of their own making."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinics import INDEX, Clinic, clinic, rows

import scumble
from scumble.errors import BadQuery, BadRows, InvalidParameter, Refused, ScumbleError, Stale
from scumble.owner.changing import ChangeReport
from scumble.owner.database import Database
from scumble.owner.keys import AnalystKey
from scumble.wire.catalog import LIVE
from scumble.wire.plan import Assignment, Compare, Constant, In, Plan, Rewrite, RowColumns
from scumble.wire.requests import DropTable, Prepare, Scan, Settle
from serving import SIMULATED, Serving

__all__ = ["clinic"]

EVERY = Constant(True)


def _all(db: Database) -> list[Any]:
    return sorted(db.sql("SELECT k, v FROM visits").fetchall())


def _rows(done: Any) -> int:
    assert isinstance(done, ChangeReport)
    return done.rows


def test_who_may_insert_inserts_and_sees_nothing(clinic: Clinic) -> None:
    clinic.owner.grant("desk", clinic.identity("desk"), {"visits": ["insert"]})
    spent, before = clinic.owner.ledger.spent(), _all(clinic.owner)
    with clinic.analyst("desk") as desk:
        assert desk.insert("visits", [(50, 1), (51, 2)]) == 2
        assert _rows(desk.execute("INSERT INTO visits VALUES (52, 3)")) == 1
        with desk.transaction():
            desk.execute("INSERT INTO visits VALUES (53, 4)")
            desk.insert("visits", [(54, 5)])
        for what in (
            lambda: desk.sql("SELECT count(*) FROM visits"),
            lambda: desk.execute("UPDATE visits SET v = 0"),
            lambda: desk.execute("DELETE FROM visits"),
            lambda: desk.execute("INSERT INTO visits VALUES (1, 1) ON CONFLICT (k) DO UPDATE SET v = excluded.v"),
            lambda: desk.execute("INSERT INTO visits SELECT * FROM visits LIMIT 3"),
            lambda: desk.insert("staff", [(1, 1)]),
            lambda: desk.load("visits", rows(3), indexes=INDEX, capacity=16, page_rows=16),
            lambda: desk.drop("visits"),
        ):
            with pytest.raises(ScumbleError):
                what()
    assert _all(clinic.owner) == sorted([*before, *((50 + n, 1 + n) for n in range(5))])
    assert clinic.owner.ledger.spent() == spent


def test_who_may_change_updates_and_deletes_and_adds_nothing(clinic: Clinic) -> None:
    clinic.owner.grant("ada", clinic.identity("ada"), {"visits": ["read", "change"]})
    with clinic.analyst("ada") as ada:
        assert _rows(ada.execute("UPDATE visits SET v = 7 WHERE k < 3")) == 3
        assert _rows(ada.execute("UPDATE visits SET k = 99 WHERE k = 39")) == 1
        assert _rows(ada.execute("DELETE FROM visits WHERE k BETWEEN 10 AND 19")) == 10
        for what in (
            lambda: ada.insert("visits", [(1, 1)]),
            lambda: ada.execute("INSERT INTO visits VALUES (1, 1)"),
            lambda: ada.execute("DELETE FROM staff"),
            lambda: ada.load("visits", rows(3), indexes=INDEX, capacity=16, page_rows=16),
        ):
            with pytest.raises(ScumbleError):
                what()
        assert _all(ada) == _all(clinic.owner)
    found = _all(clinic.owner)
    assert len(found) == 30
    assert found[:3] == [(0, 7), (1, 7), (2, 7)]
    assert found[-1] == (99, 39 * 3)
    assert clinic.owner.sql("SELECT count(*) FROM staff").fetchone() == (40,)


def test_who_may_read_changes_nothing(clinic: Clinic) -> None:
    clinic.owner.grant("ada", clinic.identity("ada"), ["visits"])
    with clinic.analyst("ada") as ada:
        for sql in ("UPDATE visits SET v = 0", "DELETE FROM visits", "INSERT INTO visits VALUES (1, 1)"):
            with pytest.raises(Refused):
                ada.execute(sql)
        with pytest.raises(BadQuery):
            ada.execute("DELETE FROM staff")
    assert len(_all(clinic.owner)) == 40


@pytest.fixture
def there(tmp_path: Path, service: Serving) -> Iterator[tuple[Database, Database]]:
    """The owner and an analyst with all these rights, at a service, where none of them waits for the other's lock."""
    name = f"changing{secrets.token_hex(4)}"
    with service.create(name, tmp_path, limit=20) as owner:
        owner.load("visits", rows(40), indexes=INDEX, capacity=64, page_rows=16)
        rights = {"visits": ["read", "insert", "change"]}
        owner.grant("ada", AnalystKey.create(tmp_path / "ada.key", None).text, rights)  # type: ignore[arg-type]
        with scumble.open(service.url(name), key=tmp_path / "ada.key", owner=owner.owner, **SIMULATED) as ada:
            yield owner, ada


def test_an_analyst_changes_rows_at_a_service(there: tuple[Database, Database]) -> None:
    owner, ada = there
    assert ada.insert("visits", [(50, 1)]) == 1
    assert _rows(ada.execute("UPDATE visits SET v = 7 WHERE k < 3")) == 3
    with ada.transaction():
        ada.execute("DELETE FROM visits WHERE k >= 10")
        ada.execute("UPDATE visits SET k = 90 WHERE k = 9")
        assert len(_all(owner)) == 41
    assert _all(owner) == _all(ada) == [(0, 7), (1, 7), (2, 7), *((n, 3 * n) for n in range(3, 9)), (90, 27)]


@pytest.mark.parametrize("first", ["UPDATE visits SET v = 0", "DELETE FROM visits", "INSERT INTO visits VALUES (9, 9)"])
def test_a_revocation_in_the_middle_of_a_transaction_ends_it(there: tuple[Database, Database], first: str) -> None:
    owner, ada = there
    before = _all(owner)
    ada.execute("BEGIN")
    ada.execute(first)
    owner.revoke("ada")
    for sql in ("DELETE FROM visits", "SELECT count(*) FROM visits"):
        with pytest.raises(ScumbleError):
            ada.execute(sql)
    with pytest.raises(ScumbleError):
        ada.execute("COMMIT")
    assert not ada.in_transaction
    assert _all(owner) == before
    assert _rows(owner.execute("DELETE FROM visits WHERE k = 0")) == 1  # nothing is held any more


def test_what_the_owner_changes_meanwhile_is_not_undone(there: tuple[Database, Database]) -> None:
    """Owners take the right to write from analysts: then the transaction fails as a whole."""
    owner, ada = there
    ada.execute("BEGIN")
    ada.execute("UPDATE visits SET v = 0 WHERE k < 20")
    owner.execute("DELETE FROM visits WHERE k >= 20")
    with pytest.raises(ScumbleError):
        ada.execute("COMMIT")
    assert not ada.in_transaction
    assert _all(owner) == [(n, 3 * n) for n in range(20)]
    assert _rows(ada.execute("UPDATE visits SET v = 0 WHERE k < 20")) == 20


# --- requests of their own making ------------------------------------------------------------------


@pytest.fixture
def ada(clinic: Clinic) -> Any:
    """An analyst who may change the visits, and has a transaction open."""
    clinic.owner.execute("DELETE FROM visits WHERE k = 5")
    clinic.owner.insert("visits", [(60, 1)])
    clinic.owner.grant("ada", clinic.identity("ada"), {"visits": ["read", "change"]})
    with clinic.analyst("ada") as made:
        made.execute("BEGIN")
        yield made
        if made.in_transaction:
            made.execute("ROLLBACK")


def _table_id(db: Database, name: str) -> str:
    return next(table.id for table in db._versions.catalog.tables if table.name == name)


def _plan(db: Database, *assignments: Assignment, predicate: Any = EVERY, copies: bool = False) -> Plan:
    return Plan(_table_id(db, "visits"), (predicate,), Rewrite((assignments,), copies))


def _run(db: Database, plan: Plan, scans: list[Scan], bounds: list[int]) -> Any:
    session = db._versions.session
    return session.execute(session.prepare(plan), scans, np.array(bounds, np.int64))


WHOLE = [Scan(0, 0, ((0, 4),))]

Crafted = Callable[[Database], Any]
CRAFTED: dict[str, Crafted] = {
    "an offset before the bounds": lambda db: _run(db, _plan(db, Assignment(1, -2)), WHOLE, [0, 0, 7, 1]),
    "an offset beyond the bounds": lambda db: _run(db, _plan(db, Assignment(1, 100)), WHOLE, [7, 1]),
    "bounds that are cut short": lambda db: _run(db, _plan(db, Assignment(1, 0)), WHOLE, [7]),
    "no bounds at all": lambda db: _run(db, _plan(db, Assignment(1, 0)), WHOLE, []),
    "an offset that is huge": lambda db: _run(db, _plan(db, Assignment(1, 1 << 62)), WHOLE, [7, 1]),
    "an offset that is no number": lambda db: _run(db, _plan(db, Assignment(1, "x")), WHOLE, [7, 1]),  # type: ignore[arg-type]
    "a test's bounds that are cut short": lambda db: _run(db, _plan(db, predicate=In(0, 0, 2)), WHOLE, [1, 2, 3]),
    "a test's bounds before the first": lambda db: _run(db, _plan(db, predicate=In(0, -4, 1)), WHOLE, [1, 2, 3, 4]),
    "a test of fewer than no intervals": lambda db: _run(db, _plan(db, predicate=In(0, 0, -1)), WHOLE, [1, 2]),
    "a column beyond the last": lambda db: _run(db, _plan(db, Assignment(2, 0)), WHOLE, [7, 1]),
    "the live bytes as a column": lambda db: _run(db, _plan(db, Assignment(LIVE, 0)), WHOLE, [1, 1]),
    "the live bytes in a test": lambda db: _run(db, _plan(db, predicate=In(LIVE, 0, 1)), WHOLE, [0, 0]),
    "the live bytes compared": lambda db: _run(db, _plan(db, predicate=Compare(LIVE, 1, "=")), WHOLE, []),
    "a value from the live bytes": lambda db: _run(db, _plan(db, Assignment(1, 0, ("column", LIVE))), WHOLE, [0, 0]),
    "arithmetic on the live bytes": lambda db: _run(
        db, _plan(db, Assignment(1, 0, ("+", ("column", LIVE), ("constant", 1)))), WHOLE, [0, 0]
    ),
    "a value from beyond": lambda db: _run(db, _plan(db, Assignment(1, 0, ("column", 9))), WHOLE, [0, 0]),
    "no arithmetic": lambda db: _run(
        db, _plan(db, Assignment(1, 0, ("/", ("column", 1), ("column", 1)))), WHOLE, [0, 0]
    ),
    "arithmetic of text": lambda db: _run(db, _plan(db, Assignment(1, 0, ("constant", "x"))), WHOLE, [0, 0]),
    "a column that is no number": lambda db: _run(db, _plan(db, Assignment("k", 0)), WHOLE, [7, 1]),  # type: ignore[arg-type]
    "a column that is true": lambda db: _run(db, _plan(db, Assignment(True, 0)), WHOLE, [7, 1]),
    "more predicates than assignments": lambda db: _run(
        db, Plan(_table_id(db, "visits"), (EVERY, EVERY), Rewrite(((),))), WHOLE, []
    ),
    "no predicate": lambda db: _run(db, Plan(_table_id(db, "visits"), (), Rewrite(())), WHOLE, []),
    "a run beyond the last": lambda db: _run(db, _plan(db), [Scan(9, 0, ((0, 1),))], []),
    "a run before the first": lambda db: _run(db, _plan(db), [Scan(-1, 0, ((0, 1),))], []),
    "another predicate": lambda db: _run(db, _plan(db), [Scan(0, 1, ((0, 1),))], []),
    "a page twice": lambda db: _run(db, _plan(db), [Scan(0, 0, ((0, 2), (1, 1)))], []),
    "a page twice, in two scans": lambda db: _run(db, _plan(db), [Scan(0, 0, ((0, 2),)), Scan(0, 0, ((1, 1),))], []),
    "a page twice, to be copied": lambda db: _run(
        db, _plan(db, copies=True), [Scan(0, 0, ((0, 1),)), Scan(0, 0, ((0, 1),))], []
    ),
    "pages beyond the last": lambda db: _run(db, _plan(db), [Scan(0, 0, ((0, 5),))], []),
    "pages before the first": lambda db: _run(db, _plan(db), [Scan(0, 0, ((-1, 2),))], []),
    "no page": lambda db: _run(db, _plan(db), [Scan(0, 0, ((1, 0),))], []),
    "no pages": lambda db: _run(db, _plan(db, copies=True), [Scan(0, 0, ())], []),
    "fewer pages than none": lambda db: _run(db, _plan(db), [Scan(0, 0, ((2, -1),))], []),
    "the live bytes to be read": lambda db: _run(
        db, Plan(_table_id(db, "visits"), (EVERY,), RowColumns((LIVE,))), WHOLE, []
    ),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_change_is_refused_in_words(clinic: Clinic, ada: Database, name: str) -> None:
    before = _all(clinic.owner)
    with pytest.raises(InvalidParameter):
        CRAFTED[name](ada)
    session = ada._versions.session
    with pytest.raises(Stale):
        session.ask(Settle(0))  # nothing was begun
    assert _all(clinic.owner) == before
    assert clinic.owner.check() > 0


def test_values_that_do_not_fit_are_refused(clinic: Clinic, ada: Database) -> None:
    for bounds in ([1 << 40, 7], [7, 2], [7, -1]):  # whether a value is null is 0 or 1
        with pytest.raises(BadRows):
            _run(ada, _plan(ada, Assignment(1, 0)), WHOLE, bounds)
    assert len(_all(clinic.owner)) == 40


def test_a_table_without_the_right_is_out_of_reach(clinic: Clinic, ada: Database) -> None:
    hidden, session = _table_id(clinic.owner, "staff"), ada._versions.session
    for output in (Rewrite(((),)), Rewrite(((Assignment(1, 0),),)), RowColumns((0,))):
        with pytest.raises((Refused, Stale)):
            session.ask(Prepare(Plan(hidden, (EVERY,), output)))
    with pytest.raises(Refused):
        session.ask(DropTable("visits"))


def test_a_reader_cannot_prepare_a_change(clinic: Clinic) -> None:
    clinic.owner.grant("eve", clinic.identity("eve"), ["visits"])
    with clinic.analyst("eve") as eve, pytest.raises(Refused):
        eve._versions.session.ask(Prepare(_plan(eve)))


def test_what_was_deleted_stays_unread(clinic: Clinic, ada: Database) -> None:
    """Nor does a change bring it back: it is no row any more."""
    for sql in ("UPDATE visits SET v = 1 WHERE k = 5", "UPDATE visits SET k = 6 WHERE k = 5"):
        assert _rows(ada.execute(sql)) == 0
    ada.execute("COMMIT")
    assert not [k for k, _ in _all(clinic.owner) if k == 5]
