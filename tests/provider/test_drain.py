"""SIGTERM drains: what was begun may be ended, nothing new is taken, and after a restart clients just go on."""

import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fronts import NONCE, Fronting, until

from scumble.errors import Exists, Stopping, Unavailable, Unfinished
from scumble.owner import versions
from scumble.owner.session import Session
from scumble.wire.requests import Request
from serving import serving

ONE = ("--enclaves", "1")  # which is all that a database needs
ROWS = 20_000
LOADING: dict[str, Any] = {"indexes": ["k int:0:999 epsilon=1"], "capacity": 2 * ROWS}


def rows(first: int = 0) -> pa.Table:
    """As many rows, from another number on."""
    numbers = np.arange(first, first + ROWS)
    return pa.table({"k": pa.array(numbers * 7919 % 1000, pa.int64()), "v": pa.array(numbers, pa.int64())})


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def signing(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Do something when a load is built, before its client signs it."""
    ask, built = Session.ask, []

    def acting(self: Session, request: Request[Any]) -> object:
        if request.task == "build":
            built.append(self)
        elif request.task == "commit" and self in built:
            act()
        return ask(self, request)

    monkeypatch.setattr(Session, "ask", acting)


@pytest.mark.parametrize("kept_alive", [True, False])
def test_what_is_built_may_be_signed_after_sigterm_and_all_else_is_refused(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, kept_alive: bool
) -> None:
    with (
        serving(tmp_path / "served", signing_seconds=60.0) as service,  # longer than usual: much is tried meanwhile
        service.create("db", home, connect_seconds=0.2) as db,
    ):
        front = Fronting(service.process, service.folder, service.port, service.log_path)
        enclaves, other = service.enclaves(), service.open("db", home, connect_seconds=0.2)
        pins = (home / "db.pins").read_bytes()

        def stop() -> None:
            service.process.send_signal(signal.SIGTERM)
            until(lambda: front.ask("GET", "/health").fields["status"] == "stopping", 30)
            assert front.ask("GET", "/health").status == 503
            for method, path in (("POST", "/v1/attest"), ("GET", "/v1/default/db"), ("PUT", "/v1/default/new")):
                refused = front.ask(method, path, NONCE)
                assert (refused.status, refused.fields["error"]) == (503, "Stopping")
                assert refused.headers["connection"] == "close"
            with pytest.raises(Stopping):
                other.check()
            with pytest.raises(Stopping):
                service.open("db", home, connect_seconds=0.2)
            if not kept_alive:
                db._versions.service.close()

        with monkeypatch.context() as patch:
            signing(patch, stop)
            assert not db.load("t", rows(), **LOADING).retried
        assert service.process.wait(60) == 0
        assert not any(map(runs, enclaves))
        other.close()
        with pytest.raises(Unavailable):
            service.open("db", home, connect_seconds=0.2)
        with serving(tmp_path / "served", *ONE, port=service.port) as again:
            with pytest.raises(Exists):
                db.load("t", rows(), **LOADING)
            assert db.sql("SELECT count(*), sum(v) FROM t").fetchall() == [(ROWS, ROWS * (ROWS - 1) // 2)]
            assert db.check() > 0
            assert db.ledger.unsettled() == ()
            assert (home / "db.pins").read_bytes() == pins
            assert again.stop() == 0


def test_a_second_signal_ends_the_wait_for_a_signature(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "PAUSES_SECONDS", ())
    with serving(tmp_path / "served", *ONE, signing_seconds=3600.0) as service:

        def stop_twice() -> None:
            service.process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                service.process.wait(0.5)
            assert service.stop() == 0

        with service.create("db", home, connect_seconds=0.2) as db:
            signing(monkeypatch, stop_twice)
            with pytest.raises(Unfinished, match="nobody can tell"):
                db.load("t", rows(), **LOADING)


def test_load_goes_on_over_a_restart_and_is_there_once(tmp_path: Path, home: Path) -> None:
    with ExitStack() as running:
        service = running.enter_context(serving(tmp_path / "served", *ONE))

        def restart() -> None:
            service.stop()
            running.enter_context(serving(tmp_path / "served", *ONE, port=service.port))

        restarting = threading.Thread(target=restart)

        def progress(what: str, done: int, total: int | None) -> None:
            if not restarting.ident:  # rows are on their way, and nothing is built
                restarting.start()
                until(lambda: service.process.poll() is not None, 30)

        with service.create("db", home, connect_seconds=60, timeout_seconds=60) as db:
            assert db.load("t", rows(), progress=progress, **LOADING).rows == ROWS
            restarting.join()
            assert db.sql("SELECT count(*), sum(v) FROM t").fetchall() == [(ROWS, ROWS * (ROWS - 1) // 2)]
            assert len(db.table("t").runs) == 1


def test_open_connections_do_not_keep_an_idle_service_from_ending(tmp_path: Path, home: Path) -> None:
    with (
        serving(tmp_path / "served", *ONE) as service,
        service.create("db", home, connect_seconds=0.2),
        socket.create_connection(("127.0.0.1", service.port)),
    ):
        begun = time.monotonic()
        assert service.stop() == 0
        assert time.monotonic() - begun < 30  # far less than an unused connection may stay
        with pytest.raises(Unavailable):
            service.open("db", home, connect_seconds=0.2)
