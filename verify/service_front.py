"""A provider's service for the kill test: `scumble serve` with a short lease, or with a fault that has to be found.

    python -m verify.service_front FOLDER PORT FAULT LEASE_SECONDS    (FAULT may be empty)

Prints its port once it serves. `Front` starts, kills and restarts it from another process.
"""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from verify import patch

__all__ = ["FRONT_FAULTS", "Front"]

LEASE_SECONDS = 0.6  # a client that was killed in a load is not to be waited for longer
LATE_SECONDS = 0.4
GONE_SECONDS = 20.0
ROOT = Path(__file__).parent.parent


class Front:
    """A running service, which can be killed and started again in the same place."""

    def __init__(self, folder: Path, log: Path, fault: str = "", lease_seconds: float = LEASE_SECONDS) -> None:
        self.folder, self._log, self._given = folder, log, (fault, str(lease_seconds))
        self.port = 0
        self.start()

    def start(self) -> None:
        """Start it: on the port that it had, if it had one."""
        command = [sys.executable, "-m", "verify.service_front", str(self.folder), str(self.port), *self._given]
        with self._log.open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT)
        assert self.process.stdout is not None
        with self.process.stdout as out:
            line = out.readline()
        if not line.strip().isdecimal():
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"the service does not start: {self._log.read_text()[-500:]}")
        self.port = int(line)

    def enclaves(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(number) for path in children for number in path.read_text().split()]

    def kill(self) -> list[int]:
        """SIGKILL; the enclave processes that did not end with it in time."""
        orphans = self.enclaves()
        self.process.kill()
        self.process.wait()
        deadline = time.monotonic() + GONE_SECONDS
        while time.monotonic() < deadline and any(map(_runs, orphans)):
            time.sleep(0.02)
        return list(filter(_runs, orphans))

    def stop(self) -> int:
        """SIGTERM, and the exit code; killed if that is not enough."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(90)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL


def _runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


# --- in the process --------------------------------------------------------------------------------


def _acknowledge_early() -> None:
    """A load is acknowledged, and committed some time later: unless the front is killed in between."""
    from scumble.store.files import FileStore

    def early(store: FileStore, version: int, manifest: bytes) -> None:
        publish = store._manifests.publish
        threading.Timer(LATE_SECONDS, publish, (version, manifest)).start()

    patch(FileStore, "commit", early)


def _clear_nothing() -> None:
    """What a dead writer has left stays; and there is time to die."""
    from scumble.store.files import FileStore

    create = FileStore.create_run

    def slowly(store: FileStore, run: str, shape: Any) -> None:
        create(store, run, shape)
        time.sleep(LATE_SECONDS)

    patch(FileStore, "create_run", slowly)
    patch(FileStore, "_clear_leftovers", lambda store: store._manifests.withdraw(store._manifests.version() + 1))
    patch(FileStore, "_clear_unfinished", lambda store: store._clear_scratch())
    patch(FileStore, "drop_unreferenced", lambda store, keep=(): 0)


FRONT_FAULTS: dict[str, Callable[[], None]] = {
    "acknowledged before the commit": _acknowledge_early,
    "leftovers stay": _clear_nothing,
}


def main() -> None:
    """Serve until the end."""
    from scumble.provider import hosting, server
    from scumble.provider.leases import Leases

    folder, port, fault, lease = sys.argv[1:5]
    patch(hosting, "Leases", partial(Leases, lease_seconds=float(lease)))
    FRONT_FAULTS.get(fault, lambda: None)()
    settings = server.Settings(Path(folder), port=int(port), attestation="simulated", open_to_all=True)
    server.serve(settings, lambda chosen: print(chosen, flush=True))


if __name__ == "__main__":
    main()
