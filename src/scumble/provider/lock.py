"""The writer's lock: a file that one process at a time holds, until it lets go or dies. It holds nothing itself."""

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scumble.errors import Busy
from scumble.provider.files import writing

__all__ = ["locked"]

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.001, 0.05


@contextmanager
def locked(path: Path, busy_seconds: float, turn: threading.Lock) -> Iterator[None]:
    """Hold the lock file, and `turn` among the threads of this process; Busy after `busy_seconds` of waiting."""
    deadline = time.monotonic() + busy_seconds
    if not turn.acquire(timeout=max(0.0, busy_seconds)):
        raise _busy()
    try:
        with writing("lock"):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _wait(handle, deadline)
            yield
        finally:
            os.close(handle)
    finally:
        turn.release()


def _wait(handle: int, deadline: float) -> None:
    wait = FIRST_WAIT_SECONDS
    while not _is_ours(handle):
        if time.monotonic() >= deadline:
            raise _busy()
        time.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT_SECONDS)


def _is_ours(handle: int) -> bool:
    with writing("lock"):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _busy() -> Busy:
    return Busy("another load is writing to the database", hint="try again when it is done; queries can go on")
