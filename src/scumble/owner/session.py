"""A session with the enclave: what a client asks is sealed, and the answers are opened and checked.

Typed requests and rows come in and leave as opaque bytes; answers come back as what they stand for, or as the error
that the enclave states. SECRET: the keys of the channel, which only the client and the enclave have.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from scumble.errors import Unavailable
from scumble.wire.channel import SALT_BYTES, Channel, Greeting, opened_answer, seal_greeting
from scumble.wire.lineage import Draft, sign_draft
from scumble.wire.plan import Plan
from scumble.wire.requests import (
    ROWS,
    Commit,
    Opened,
    Prepare,
    Request,
    Scan,
    pack_execution,
    pack_request,
    unpack_answer,
)
from scumble.wire.storage import Enclave

__all__ = ["Session"]

T = TypeVar("T")

GREETING_TRIES = 3


class Session:
    """SECRET: an open line to the enclave, for one database. An owner brings the data key, an analyst has none."""

    def __init__(
        self, service: Enclave, database: str, signing_key: Ed25519PrivateKey, data_key: bytes | None = None
    ) -> None:
        self._service, self._database = service, database
        self._turn = threading.Lock()
        self.broken = False
        request_key, answer_key = Channel.fresh_keys()
        signer = signing_key.public_key().public_bytes_raw()
        greeting = Greeting(database, request_key, answer_key, data_key, signer)
        self._number, answer = _greeted(service, greeting, signing_key)
        self._channel = Channel.derived(request_key, answer_key, answer[:SALT_BYTES])
        opened_answer(self._channel.open_answer(answer[SALT_BYTES:]))

    def ask(self, request: Request[T]) -> T:
        return unpack_answer(request, self._exchange(pack_request(request)))

    def prepare(self, plan: Plan) -> int:
        """Have a plan kept; its number."""
        return self.ask(Prepare(plan)).plan

    def execute(self, plan: int, scans: Sequence[Scan], bounds: NDArray[np.int64]) -> memoryview:
        """Execute a plan; the answer as the plan's output lays it out."""
        return self._exchange(pack_execution(plan, scans, bounds))

    def send_rows(self, rows: NDArray[np.int64]) -> None:
        self._exchange(b"".join((ROWS, rows.data)))

    def commit(self, draft: Draft, key: Ed25519PrivateKey) -> Opened:
        """Sign a version that the enclave has drafted, and have it stored."""
        return self.ask(Commit(sign_draft(self._database, draft, key)))

    def close(self) -> None:
        self.broken = True  # whoever goes on has to open another one
        with suppress(Unavailable):  # then it has ended
            self._service.leave(self._number)

    def _exchange(self, request: bytes) -> memoryview:
        with self._turn:
            self.broken = True  # until there is an answer: after an interruption the two ends may count differently
            sealed = self._channel.seal_request(request)
            answer = self._channel.open_answer(self._service.request(self._number, sealed))
            self.broken = False
        return opened_answer(answer)


def _greeted(service: Enclave, greeting: Greeting, signing_key: Ed25519PrivateKey) -> tuple[int, bytes]:
    """Greet an enclave under a key that it made for this; again with another if it has ended or forgotten it since."""
    for left in range(GREETING_TRIES - 1, -1, -1):
        public_key = service.fresh_key()
        try:
            return service.greet(public_key + seal_greeting(public_key, greeting, signing_key))
        except Unavailable:
            if not left:
                raise
    raise AssertionError  # the last try has returned or raised
