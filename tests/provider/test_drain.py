"""SIGTERM drains: what is under way is answered, nothing new is taken, and after a restart clients just go on."""

import signal
import socket
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fronts import until

from scumble.errors import Unavailable, Unfinished
from serving import serving

ROWS = 100_000
LOADING: dict[str, Any] = {"indexes": ["k int:0:999 epsilon=1"], "capacity": 2 * ROWS}


def rows(first: int = 0) -> pa.Table:
    """Rows that take the enclave some time to build."""
    numbers = np.arange(first, first + ROWS)
    return pa.table({"k": pa.array(numbers * 7919 % 1000, pa.int64()), "v": pa.array(numbers, pa.int64())})


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return True
    return False


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_sigterm_answers_a_build_that_is_under_way_and_an_upgrade_loses_nothing(tmp_path: Path, home: Path) -> None:
    with serving(tmp_path / "served") as service:
        enclaves, building, refused = service.enclaves(), threading.Event(), []

        def progress(what: str, done: int, total: int | None) -> None:
            if what == "building":
                building.set()

        def end() -> None:
            building.wait()
            time.sleep(0.1)
            service.process.send_signal(signal.SIGTERM)
            until(lambda: refuses(service.port), 30)
            refused.append(service.process.poll() is None)

        with service.create("db", home, connect_seconds=1) as db:
            pins = (home / "db.pins").read_bytes()
            ending = threading.Thread(target=end)
            ending.start()
            with pytest.raises(Unfinished, match=r"the rows are not in the table|nobody can tell"):
                db.load("t", rows(), progress=progress, **LOADING)  # what was built waits for a signature in vain
            ending.join()
            assert refused == [True]  # while the load was being built
            assert service.process.wait(60) == 0
            assert not any(map(runs, enclaves))
            with pytest.raises(Unavailable):
                service.open("db", home, connect_seconds=0.2)
            with serving(tmp_path / "served", port=service.port) as again:
                spent = db.ledger.spent()
                assert db.load("t", rows(), **LOADING).retried
                assert db.ledger.spent() == spent
                assert db.sql("SELECT count(*), sum(v) FROM t").fetchall() == [(ROWS, ROWS * (ROWS - 1) // 2)]
                assert db.check() > 0
                assert (home / "db.pins").read_bytes() == pins
                assert again.stop() == 0


def test_load_goes_on_over_a_restart_and_is_there_once(tmp_path: Path, home: Path) -> None:
    with ExitStack() as running:
        service = running.enter_context(serving(tmp_path / "served"))

        def restart() -> None:
            service.stop()
            running.enter_context(serving(tmp_path / "served", port=service.port))

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
        serving(tmp_path / "served") as service,
        service.create("db", home, connect_seconds=0.2),
        socket.create_connection(("127.0.0.1", service.port)),
    ):
        begun = time.monotonic()
        assert service.stop() == 0
        assert time.monotonic() - begun < 30  # far less than an unused connection may stay
        with pytest.raises(Unavailable):
            service.open("db", home, connect_seconds=0.2)
