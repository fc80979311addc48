"""Holding a database for writing: who waits for it keeps nobody from reading."""

import threading
import time
from pathlib import Path

import pytest
from fronts import DATABASE

from scumble.errors import Busy
from scumble.provider.leases import Leases
from scumble.store.files import FileStore


def test_whoever_waits_for_another_process_to_write_keeps_nobody_from_reading(tmp_path: Path) -> None:
    store = FileStore.create(tmp_path / "db", DATABASE)
    leases, another = Leases(store), FileStore(tmp_path / "db")
    with another.writer(0):
        waiting = threading.Thread(target=leases.take, args=(1, 30))
        waiting.start()
        time.sleep(0.1)
        asked = time.monotonic()
        for _ in range(20):
            with leases.at_work(2) as writing:
                assert not writing
        assert time.monotonic() - asked < 15
        with pytest.raises(Busy):
            leases.take(2, 0)
    waiting.join()
    with leases.at_work(1) as writing:
        assert writing
    leases.give_back(1)
