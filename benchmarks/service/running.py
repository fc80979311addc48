"""A provider's service in a process of its own, for the benchmarks and the demo."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

__all__ = ["Running", "running"]


class Running(NamedTuple):
    """A service: its process, where its databases lie, and its port."""

    pid: int
    folder: Path
    port: int
    log: Path

    def url(self, name: str) -> str:
        return f"scumble://127.0.0.1:{self.port}/{name}"


@contextmanager
def running(folder: Path, enclaves: int = 2) -> Iterator[Running]:
    """`scumble serve` with simulated evidence on a free port, until the end."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder.with_name(folder.name + ".log")
    options = ["--port", "0", "--enclaves", str(enclaves), "--attestation", "simulated", "--open"]
    with log.open("w") as to:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "scumble.cli", "serve", str(folder), *options],
            stdout=subprocess.PIPE,
            stderr=to,
            text=True,
        )
    try:
        assert process.stdout is not None
        with process.stdout:
            line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the service does not start: see {log}")
        yield Running(process.pid, folder, int(line.rsplit(":", 1)[1]), log)
    finally:
        process.terminate()
        process.wait(60)
