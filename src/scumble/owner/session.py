"""The client's end of a session: tasks, executions and rows go out sealed to the enclave; its answers are opened.

The provider carries both, and sees their lengths. Threads may share a session: requests take their turns.
"""

import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from scumble.boundary.plan import Plan
from scumble.boundary.requests import JSON, ROWS, Scan, pack_execution
from scumble.boundary.session import SALT_BYTES, Channel, Greeting, padded, seal_greeting, settle
from scumble.boundary.storage import Enclave
from scumble.errors import Unavailable

__all__ = ["Session"]


class Session:
    """SECRET: an open line to the enclave, for one database. An owner brings the data key, an analyst has none."""

    def __init__(
        self, service: Enclave, database: str, signing_key: Ed25519PrivateKey, data_key: bytes | None = None
    ) -> None:
        self._service = service
        self._turn = threading.Lock()
        self.broken = False
        request_key, answer_key = Channel.fresh_keys()
        signer = signing_key.public_key().public_bytes_raw()
        greeting = Greeting(database, request_key, answer_key, data_key, signer)
        self._number, answer = service.greet(seal_greeting(service.public_key, greeting, signing_key))
        self._channel = Channel.derived(request_key, answer_key, answer[:SALT_BYTES])
        settle(self._channel.open_answer(answer[SALT_BYTES:]))

    def task(self, name: str, /, **fields: Any) -> dict[str, Any]:
        """Ask for something other than an execution. Requests are padded: their length hardly tells what is in them."""
        answer = self._ask(padded(JSON + json.dumps({"task": name, **fields}).encode()))
        result: dict[str, Any] = json.loads(bytes(answer))
        return result

    def prepare(self, plan: Plan) -> int:
        """Have a plan kept; its number."""
        return int(self.task("prepare", plan=plan.to_json())["plan"])

    def execute(self, plan: int, scans: Sequence[Scan], bounds: NDArray[np.int64]) -> memoryview:
        """Execute a plan; the answer as the plan's output lays it out."""
        return self._ask(pack_execution(plan, scans, bounds))

    def send_rows(self, rows: NDArray[np.int64]) -> None:
        """Send rows of a load."""
        self._ask(ROWS + rows.tobytes())

    def close(self) -> None:
        """End the session."""
        with suppress(Unavailable):  # then it has ended
            self._service.leave(self._number)

    def _ask(self, request: bytes) -> memoryview:
        with self._turn:
            self.broken = True  # until there is an answer: after an interruption the two ends may count differently
            sealed = self._channel.seal_request(request)
            answer = self._channel.open_answer(self._service.request(self._number, sealed))
            self.broken = False
        return settle(answer)
