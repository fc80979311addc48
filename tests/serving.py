"""A provider's service as a process of its own, for tests: started on a free port, and ended with the test."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import scumble

__all__ = ["SIMULATED", "Serving", "launch", "serving"]

SIMULATED: dict[str, Any] = {"insecure_simulated_enclave": True}


class Serving:
    """A running service: where it is, and what it has written to its log."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path, port: int, log: Path) -> None:
        self.process, self.folder, self.port, self.log_path = process, folder, port, log

    def url(self, name: str) -> str:
        return f"scumble://127.0.0.1:{self.port}/{name}"

    def log(self) -> str:
        return self.log_path.read_text()

    def enclaves(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(number) for path in children for number in path.read_text().split()]

    def create(self, name: str, keys: Path, **options: Any) -> scumble.Database:
        return scumble.create(self.url(name), key=keys / f"{name}.key", **SIMULATED, **options)

    def open(self, name: str, keys: Path, **options: Any) -> scumble.Database:
        return scumble.open(self.url(name), key=keys / f"{name}.key", **SIMULATED, **options)

    def stop(self, with_signal: int = signal.SIGTERM) -> int:
        self.process.send_signal(with_signal)
        return self.process.wait(60)


_IMPATIENT = """
import sys
from scumble.cli import main
from scumble.provider import http

http.SIGNING_SECONDS = float(sys.argv[1])
sys.exit(main(sys.argv[2:]))
"""


def start(folder: Path, *options: str, port: int = 0, signing_seconds: float | None = None) -> Serving:
    run = ["-m", "scumble.cli"] if signing_seconds is None else ["-c", _IMPATIENT, str(signing_seconds)]
    serve = [*run, "serve", str(folder), "--port", str(port), "--open", "--attestation", "simulated"]
    return launch(folder, *serve, *options)


def launch(folder: Path, *arguments: str) -> Serving:
    """Start Python with these arguments, and wait for the line of its output that names a service's port."""
    folder.mkdir(exist_ok=True)
    log = folder.with_name(folder.name + ".log")
    with log.open("a") as to:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=to,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    if "serving" not in line:
        process.kill()
        process.wait()
        raise AssertionError(f"the service does not start: {log.read_text()[-2000:]}")
    process.stdout.close()
    return Serving(process, folder, int(line.rsplit(":", 1)[1]), log)


@contextmanager
def serving(folder: Path, *options: str, port: int = 0, signing_seconds: float | None = None) -> Iterator[Serving]:
    """A service that is killed at the end of the `with`. It may wait less than usual for signatures when it stops."""
    service = start(folder, *options, port=port, signing_seconds=signing_seconds)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.process.kill()
            service.process.wait()
