"""Rows on their way to the enclave, in pieces whose sizes depend only on how many rows there are in the end.

The rows are SECRET, and so is how many of them are dummies: a `Sender` encodes both alike, and fills up to the public
capacity. A digest of what was sent, which never leaves this machine but under a key, tells whether rows come again.
"""

import hashlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble.errors import BadRows
from scumble.owner.encoding import dummy_rows, encode_rows
from scumble.owner.session import Session
from scumble.privacy.noise import Noise
from scumble.types import Schema, rank_rule
from scumble.wire.requests import IndexOrder, RowLayout

__all__ = ["Progress", "Sender"]

SENT_BYTES = 16 << 20  # of rows at a time

Words = NDArray[np.int64]
Progress = Callable[[str, int, int | None], None]
"""Called now and then with what is being done, for how many rows it is done, and of how many if that is known."""


class Sender:
    """Sends rows in batches whose sizes depend only on how many rows there are in the end, dummies included."""

    def __init__(
        self,
        session: Session,
        schema: Schema,
        orders: Sequence[IndexOrder],
        progress: Progress,
        expected: int | None,
        noise_key: bytes,
        batch: str,
    ) -> None:
        self._noise_key, self.batch_name = noise_key, batch
        self.session, self._progress, self._expected = session, progress, expected
        self._layout = layout = RowLayout(schema, tuple(order.domain.size for order in orders))
        for order in orders:  # what the enclave would refuse is refused before anything is sent
            rank_rule(schema[order.attribute].type, order.domain)
        self._keys = [(schema.place(order.attribute), order.domain) for order in orders]
        self._batch = np.empty((max(1, SENT_BYTES // (8 * layout.words)), layout.words), np.int64)
        self._filled = 0
        self._hash = hashlib.sha256()
        self.rows = 0

    @property
    def digest(self) -> bytes:
        """SECRET: the SHA-256 of the rows sent so far, which never leaves this machine but under a key."""
        return self._hash.digest()

    def noise(self, epsilon: Fraction, beta: Fraction) -> Noise:
        """The noise of the number of rows sent so far: the same if the same rows come again under the same batch."""
        return Noise.derived(
            self._noise_key, "capacity", batch=self.batch_name, terms=(epsilon, beta), digest=self.digest
        )

    def send_all(self, batches: Any, capacity: int | None) -> None:
        """Encode and send every row of a source; BadRows if there are more than the capacity."""
        for batch in batches:
            if capacity is not None and self.rows + len(batch) > capacity:
                raise BadRows("there are more rows than the capacity", hint="give a larger --capacity")
            rows = encode_rows(batch, self._layout, self._keys, first_row=self.rows + 1)
            self._hash.update(np.ascontiguousarray(rows[:, : self._layout.key_offset]).data)  # without the ranks
            self._send(rows)

    def fill(self, capacity: int) -> None:
        """Send dummies until there are as many rows as the capacity."""
        while self.rows < capacity:
            self._send(dummy_rows(min(capacity - self.rows, len(self._batch)), self._layout))
        self._flush()

    def _send(self, rows: Words) -> None:
        at = 0
        while at < len(rows):
            take = min(len(rows) - at, len(self._batch) - self._filled)
            self._batch[self._filled : self._filled + take] = rows[at : at + take]
            self._filled += take
            at += take
            if self._filled == len(self._batch):
                self._flush()
        self.rows += len(rows)
        self._progress("loading", self.rows, self._expected)

    def _flush(self) -> None:
        if self._filled:
            self.session.send_rows(self._batch[: self._filled])
            self._filled = 0
