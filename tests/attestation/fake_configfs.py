"""For tests of attestation: a folder that behaves like Linux's configfs-tsm.

Making a folder in it fills that folder with attributes, as the kernel does before `mkdir` returns. `inblob`, `outblob`
and `auxblob` are named pipes with a thread at the other end: what is written to the first makes what the others give.
Removing the folder works although it has attributes, and nobody else can make or remove any.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

Answer = Callable[[bytes], tuple[bytes, bytes]]


class FakeConfigfs:
    """`answer` makes the report and the certificates from 64 bytes; `intrusions` counts foreign writes to come."""

    def __init__(self, root: Path, provider: str, answer: Answer, *, auxiliary: bool = True) -> None:
        self.root = root
        self.provider = provider
        self.answer = answer
        self.auxiliary = auxiliary
        self.intrusions = 0
        self.asked: list[bytes] = []
        self.made = 0
        self.kernels: dict[Path, tuple[threading.Thread, threading.Event]] = {}

    def fill(self, entry: Path) -> None:
        """What the kernel does within `mkdir`."""
        (entry / "provider").write_text(self.provider + "\n")
        (entry / "generation").write_text("3\n")
        (entry / "privlevel_floor").write_text("0\n")
        for name in ("inblob", "outblob", *(["auxblob"] if self.auxiliary else [])):
            os.mkfifo(entry / name)
        stop = threading.Event()
        thread = threading.Thread(target=self.serve, args=(entry, stop))
        self.kernels[entry] = thread, stop
        self.made += 1
        thread.start()

    def empty(self, entry: Path) -> None:
        """What the kernel does within `rmdir`."""
        thread, stop = self.kernels.pop(entry)
        stop.set()
        thread.join()
        for attribute in entry.iterdir():
            attribute.unlink()

    def serve(self, entry: Path, stop: threading.Event) -> None:
        """Take one request and answer it, then wait to be stopped."""
        request = received(entry / "inblob", stop)
        if request is None:
            return
        self.asked.append(request)
        writes = 1 + (self.intrusions > 0)
        self.intrusions -= self.intrusions > 0
        (entry / "generation").write_text(f"{3 + writes}\n")
        report, certificates = self.answer(request)
        send(entry / "outblob", report, stop)
        if self.auxiliary:
            send(entry / "auxblob", certificates, stop)


def received(pipe: Path, stop: threading.Event) -> bytes | None:
    """What somebody writes to the pipe, in one piece; None if stopped before."""
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while not stop.is_set():
            with suppress(BlockingIOError):
                if data := os.read(descriptor, 4096):
                    return data
            time.sleep(0.001)
    finally:
        os.close(descriptor)
    return None


def send(pipe: Path, data: bytes, stop: threading.Event) -> None:
    """Give `data` to the reader of the pipe."""
    while not stop.is_set():
        with suppress(OSError):
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.write(descriptor, data)
            os.close(descriptor)
            return
        time.sleep(0.001)


@contextmanager
def mounted(fake: FakeConfigfs, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeConfigfs]:
    """Let `mkdir` and `rmdir` in the folder do what they do in configfs."""
    make, remove = os.mkdir, os.rmdir

    def mkdir(path: Path, mode: int = 0o777) -> None:
        make(path, mode)
        if Path(path).parent == fake.root:
            fake.fill(Path(path))

    def rmdir(path: Path) -> None:
        if Path(path).parent == fake.root:
            fake.empty(Path(path))
        remove(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", mkdir)
        patched.setattr(os, "rmdir", rmdir)
        yield fake
        for _, stop in fake.kernels.values():
            stop.set()
