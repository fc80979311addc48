"""What an owner's machine remembers of the rows that it sends: a digest of the rows, however they were cut."""

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from scumble.owner.loading import _Sender
from scumble.owner.session import Session
from scumble.types import schema_of

TABLE = pa.table({"k": [3, 1, 4, 1, 5], "name": ["a", None, "ü", "", "e"]})
SCHEMA = schema_of(TABLE.schema, types={"name": "text(8)"})


class Sink:
    """A session that keeps what it is sent."""

    def __init__(self) -> None:
        self.sent: list[NDArray[np.int64]] = []

    def send_rows(self, rows: NDArray[np.int64]) -> None:
        self.sent.append(rows.copy())


def _sent(table: Any, batch_rows: int, capacity: int = 8) -> tuple[bytes, bytes]:
    """The digest before the dummies, and after them."""
    sender = _Sender(cast(Session, Sink()), SCHEMA, [], lambda *_: None, None, bytes(32), "ba" * 16)
    sender.send_all(table.to_batches(batch_rows), None)
    before = sender.digest
    sender.fill(capacity)
    return before, sender.digest


@pytest.mark.parametrize("batch_rows", [1, 2, 5])
def test_the_digest_is_of_the_rows_however_they_are_cut(batch_rows: int) -> None:
    assert _sent(TABLE, batch_rows) == _sent(TABLE, 3)


def test_other_rows_have_another_digest_and_dummies_do_not_count() -> None:
    before, after = _sent(TABLE, 5)
    assert before == after == _sent(TABLE, 5, capacity=16)[0]
    other = [TABLE.slice(0, 4), TABLE.slice(1), pa.concat_tables([TABLE, TABLE.slice(4)])]
    assert len({before, *(_sent(table, 5)[0] for table in other)}) == 4
