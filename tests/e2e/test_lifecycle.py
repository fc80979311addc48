"""Lives of a database by chance, as tests/e2e/lives.py has them; one that chance meets too seldom; planted defects."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from lives import ANALYST, TABLES, Life, RestoredLife

from scumble.enclave.grants import AccessList
from scumble.errors import ScumbleError
from scumble.owner import versions
from scumble.owner.database import Database
from scumble.owner.ledger import Ledger

ANY = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)
QUICK = settings(ANY, max_examples=8, stateful_step_count=14, phases=[Phase.generate])
PLANTED = settings(ANY, max_examples=400, stateful_step_count=25, phases=[Phase.generate])
LONG = settings(ANY, max_examples=60, stateful_step_count=30)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PAUSES_SECONDS", (0, 0, 0))
    monkeypatch.setattr(versions, "UNFINISHED_SECONDS", 0.01)


def live(how: settings) -> set[str]:
    """Run so many lives; the ways in which something that people did has ended."""
    Life.ended.clear()
    run_state_machine_as_test(RestoredLife, settings=how)
    return set(Life.ended)


@pytest.mark.filterwarnings("ignore:there is no anchor")
def test_lives() -> None:
    assert live(QUICK) >= {"well", "refused"}  # of a few short lives, some have none that is put back


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:there is no anchor")
def test_many_lives() -> None:
    assert live(LONG) >= {"well", "refused", "tampered"}


@pytest.mark.filterwarnings("ignore:there is no anchor")
def test_no_device_revives_what_another_has_revoked_in_an_enclave_that_knows_it() -> None:
    life = Life()
    life.load("desk", 0, TABLES[0], 1, None, False)
    life.grant("desk", 0)
    life.keep()
    life.query("laptop", 0, TABLES[0])
    life.revoke("laptop", 0)
    life.query(ANALYST, 0, TABLES[0])  # refused
    folder, node = life.snapshots[0]
    shutil.rmtree(life.folder)
    shutil.copytree(folder, life.folder)
    life.shown = node
    with suppress(ScumbleError), life._opened("desk", 0, accept_restored=True):
        pass
    with pytest.raises(ScumbleError), life._opened(ANALYST, 0) as db:
        db.sql(f"SELECT count(*) FROM {TABLES[0]}")  # noqa: S608
    life.teardown()


# --- planted defects ----------------------------------------------------------------------------------------


def _forgets_revocations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AccessList, "brought_up", lambda access, *_: access)


def _has_no_anchor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(versions.Versions, "_remembered", lambda _: None)


def _forgets_spends(patch: pytest.MonkeyPatch) -> None:
    spent = Ledger.spent
    patch.setattr(Ledger, "spent", lambda ledger: spent(ledger) / 3)


def _loads_twice(patch: pytest.MonkeyPatch) -> None:
    load = Database.load

    def twice(db: Database, *given: Any, **more: Any) -> Any:
        load(db, *given, **more)
        return load(db, *given, **more | {"again": True, "new_rows": False})  # as if nobody knew the rows again

    patch.setattr(Database, "load", twice)


@pytest.mark.filterwarnings("ignore:there is no anchor")
def test_a_restore_that_forgets_revocations_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance meets it too seldom."""
    _forgets_revocations(monkeypatch)
    with pytest.raises(pytest.fail.Exception):
        test_no_device_revives_what_another_has_revoked_in_an_enclave_that_knows_it()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:there is no anchor")
@pytest.mark.parametrize("plant", [_has_no_anchor, _forgets_spends, _loads_twice])
def test_planted_defects_are_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(RestoredLife, settings=PLANTED)
