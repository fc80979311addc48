"""A load at a service that is stopped or killed meanwhile: what the command says is true, and so is its exit code."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scumble.cli import main
from scumble.errors import Exists, Unavailable, Unfinished
from scumble.owner import versions as owner_versions
from scumble.owner.database import Database
from scumble.owner.ledger import Ledger
from scumble.owner.session import Session
from scumble.wire.grants import public_text
from scumble.wire.requests import Request
from serving import Serving, serving

ONE = ("--enclaves", "1")  # which is all that a database needs
ROWS = 30_000
INDEX = "k int:0:999 epsilon=1"
COST = Fraction(11, 10)  # of the index and the capacity


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The owner's folder, with the rows to load."""
    monkeypatch.setattr(owner_versions, "PAUSES_SECONDS", (0.1, 0.2, 0.3))
    home = tmp_path / "home"
    home.mkdir()
    numbers = np.arange(ROWS)
    table = pa.table({"k": pa.array(numbers * 7919 % 1000, pa.int64()), "v": pa.array(numbers, pa.int64())})
    pq.write_table(table, home / "rows.parquet")
    return home


def before(task: str, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something whenever the enclave is about to be asked for this."""
    ask = Session.ask

    def acting(self: Session, request: Request[Any]) -> object:
        if request.task == task:
            act()
        return ask(self, request)

    monkeypatch.setattr(Session, "ask", acting)


def load(service: Serving, home: Path) -> int:
    words = ["load", service.url("db"), "t", str(home / "rows.parquet"), "--index", INDEX]
    return main([*words, "--key", str(home / "db.key"), "--insecure-simulated-enclave", "--json"])


def end(service: Serving) -> None:
    service.process.kill()
    service.process.wait()


def count(db: Database) -> int:
    return int(db.sql("SELECT count(*) FROM t").fetchall()[0][0])


def spent(home: Path) -> Fraction:
    with Ledger.open(home / "db.ledger") as ledger:
        return ledger.spent()


def test_a_service_that_is_stopped_while_it_builds_stores_what_its_client_signs(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path / "served", *ONE) as service:
        service.create("db", home).close()

        def stop_soon() -> None:
            threading.Timer(0.05, service.process.send_signal, [signal.SIGTERM]).start()

        with monkeypatch.context() as patch:
            before("build", stop_soon, patch)
            assert load(service, home) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["rows"], report["retried"]) == (ROWS, False)
        assert service.process.wait(60) == 0
        with serving(tmp_path / "served", *ONE, port=service.port) as again:
            assert load(again, home) == 2
            assert "in the table already; nothing was loaded or spent" in capsys.readouterr().err
            with again.open("db", home) as db:
                assert count(db) == ROWS
                assert db.ledger.unsettled() == ()
    assert spent(home) == COST


def test_a_service_that_is_stopped_does_not_wait_for_a_client_that_goes_silent(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was built and not signed is not stored. The client says so, and need not wait for long to do it."""
    rows = pq.read_table(home / "rows.parquet")
    with serving(tmp_path / "served", *ONE, signing_seconds=0.5) as service:
        with service.create("db", home, connect_seconds=0.2) as db, monkeypatch.context() as patch:
            built: list[bool] = []

            def go_silent() -> None:
                if built:
                    assert service.stop() == 0

            before("build", lambda: built.append(True), patch)
            before("commit", go_silent, patch)
            with pytest.raises(Unfinished, match=r"nobody can tell whether the rows are in the table; epsilon 1\.1"):
                db.load("t", rows, indexes=[INDEX])
        with serving(tmp_path / "served", *ONE, port=service.port) as again, again.open("db", home) as db:
            assert "t" not in [table.name for table in db.tables]
            assert db.load("t", rows, indexes=[INDEX]).retried
            assert count(db) == ROWS
    assert spent(home) == COST


def test_enclaves_that_are_killed_three_times_cost_once_and_the_command_says_how_much(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kills: list[list[int]] = []
    with serving(tmp_path / "served") as service:
        service.create("db", home, delta_limit="1e-6").close()

        def kill() -> None:
            kills.append(service.enclaves())
            for enclave in kills[-1]:
                os.kill(enclave, signal.SIGKILL)
            while any(enclave in service.enclaves() for enclave in kills[-1]):
                time.sleep(0.01)

        with monkeypatch.context() as patch:
            before("build", kill, patch)
            assert load(service, home) == 1
        assert len(kills) == 3
        said = capsys.readouterr().err
        assert "the rows are not in the table; epsilon 1.1 and delta" in said
        assert "stays spent on them" in said
        assert "load the same rows on the same terms again: that is recognised, and costs nothing more" in said
        assert spent(home) == COST
        assert load(service, home) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["retried"]
        assert spent(home) == COST
        with service.open("db", home) as db:
            assert count(db) == ROWS


def test_a_service_that_is_killed_and_stays_away_leaves_the_outcome_open_and_the_repeat_settles_it(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pq.read_table(home / "rows.parquet")
    with serving(tmp_path / "served", *ONE) as service:
        with service.create("db", home, connect_seconds=0.2, delta_limit="1e-6") as db, monkeypatch.context() as patch:
            before("build", lambda: end(service), patch)
            with pytest.raises(Unfinished, match=r"the rows are not in the table; epsilon 1\.1"):
                db.load("t", rows, indexes=[INDEX])
        with serving(tmp_path / "served", *ONE, port=service.port) as again, again.open("db", home) as db:
            assert db.load("t", rows, indexes=[INDEX]).retried
            assert count(db) == ROWS
            assert db.ledger.spent() == COST
            with pytest.raises(Exists):
                db.load("t", rows, indexes=[INDEX])


@pytest.mark.parametrize("after", [False, True])
def test_a_change_whose_answer_is_lost_is_looked_up(
    service: Serving, home: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """Drop, grant and revoke: their signature is lost before it reaches the enclave, or the answer to it is."""
    ask = Session.ask
    lost: list[str] = []

    def losing(self: Session, request: Request[Any]) -> object:
        if request.task not in lost:
            return ask(self, request)
        lost.remove(request.task)
        if after:
            ask(self, request)
        raise Unavailable("the session is gone", hint="connect again")

    monkeypatch.setattr(Session, "ask", losing)
    with service.create(f"lost-{after}".lower(), home) as db:
        db.load("t", pa.table({"k": [1, 2]}), capacity=16, page_rows=16)
        changes: dict[str, Callable[[], object]] = {
            "grant": lambda: db.grant("ada", public_text(bytes(range(32))), ["t"]),
            "revoke": lambda: db.revoke("ada"),
            "drop": lambda: db.drop("t"),
        }
        for change in changes.values():
            lost.append("commit")
            if not after:
                with pytest.raises(Unavailable, match=r"still there|nothing was"):
                    change()
            change()
        assert db.tables == ()
        assert db.grants() == ()
