"""Whoever may load can hold a database for writing: the owner's revocation does not wait for it, nor do its loads."""

import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import scumble
from scumble.errors import Busy, Refused, ScumbleError
from scumble.owner.keys import AnalystKey
from scumble.provider.leases import OWNER, Leases
from scumble.store.files import FileStore
from serving import SIMULATED, Serving

OPTIONS: dict[str, Any] = {"indexes": ["k int:0:99 epsilon=0.5"], "capacity": 16, "page_rows": 16}
COUNT = "SELECT count(*) FROM t"


def rows(first: int) -> pa.Table:
    return pa.table({"k": list(range(first, first + 5))})


def test_an_owner_revokes_and_loads_while_an_analyst_holds_the_database(tmp_path: Path, service: Serving) -> None:
    public = AnalystKey.create(tmp_path / "lab.key", None).text
    with service.create("held", tmp_path, limit=20) as owner:
        owner.load("t", rows(0), **OPTIONS)
        owner.grant("lab", public, {"t": ["read", "load"]}, epsilon=5)
        with scumble.open(service.url("held"), key=tmp_path / "lab.key", owner=owner.owner, **SIMULATED) as lab:
            with lab.service.writer():
                owner.load("t", rows(20), **OPTIONS)
                assert lab.sql(COUNT).fetchone() == (10,)
            with lab.service.writer():
                owner.revoke("lab")
                with pytest.raises(Refused):
                    lab.sql(COUNT)
                with pytest.raises(ScumbleError):
                    lab.load("t", rows(40), **OPTIONS)
        assert owner.grants() == ()
        assert owner.sql(COUNT).fetchone() == (10,)


def test_a_load_that_a_revocation_of_another_overtakes_is_loaded_all_the_same(
    tmp_path: Path, service: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version is drafted again, on top of the one without the grant; nothing is built or paid twice."""
    lab, ada = (AnalystKey.create(tmp_path / f"{name}.key", None).text for name in ("lab", "ada"))
    with service.create("overtaken", tmp_path, limit=20) as owner:
        owner.load("t", rows(0), **OPTIONS)
        owner.grant("lab", lab, {"t": ["load"]}, epsilon=1)
        owner.grant("ada", ada, ["t"])
        with scumble.open(service.url("overtaken"), key=tmp_path / "lab.key", owner=owner.owner, **SIMULATED) as loader:
            session = loader._versions.session
            commit, revoked = session.commit, list[str]()

            def overtaken(*given: Any) -> Any:
                if not revoked:
                    owner.revoke("ada")
                    revoked.append("ada")
                return commit(*given)

            monkeypatch.setattr(session, "commit", overtaken)
            loader.load("t", rows(20), **OPTIONS)
        (grant,) = owner.grants()
        assert (grant.name, grant.used_epsilon) == ("lab", Fraction(1, 2))
        assert owner.sql(COUNT).fetchone() == (10,)


# --- leases alone ------------------------------------------------------------------------------------


def test_a_lease_goes_to_the_owner_once_no_request_of_the_analyst_is_under_way(tmp_path: Path) -> None:
    lent = Leases(FileStore.create(tmp_path / "db", "0a" * 16))
    lent.take(1, 0, rank=1)
    with pytest.raises(Busy):
        lent.take(2, 0, rank=1)
    with lent.at_work(1) as writing:
        assert writing
        with pytest.raises(Busy):
            lent.take(3, 0, rank=OWNER)
        with lent.at_work(1) as another:
            assert not another  # nothing new is begun
    lent.take(3, 0, rank=OWNER)
    for rank in (1, OWNER):
        with pytest.raises(Busy):
            lent.take(1, 0, rank=rank)


def test_nobody_keeps_a_lease_for_ever(tmp_path: Path) -> None:
    lent = Leases(FileStore.create(tmp_path / "db", "0a" * 16), longest_seconds=-1.0)
    lent.take(1, 0)
    lent.take(1, 0)
    lent.take(2, 0, rank=1)
    with lent.at_work(1) as writing:
        assert not writing


def test_versions_are_stored_one_at_a_time_and_by_nobody_without_a_right(tmp_path: Path) -> None:
    store = FileStore.create(tmp_path / "db", "0a" * 16)
    lent, inside, most = Leases(store), [0], [0]

    def commit() -> None:
        store._needs_writer()
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        inside[0] -= 1

    with pytest.raises(Busy):
        lent.commit(None, commit)
    lent.take(1, 0, rank=1)
    threads = [threading.Thread(target=lent.commit, args=(session, commit)) for session in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    with lent.at_work(1) as writing:
        assert writing  # it was not taken away from the holder
    lent.give_back(1)
    lent.commit(2, commit)
    lent.take(3, 0)
