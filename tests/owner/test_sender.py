"""What an owner's machine remembers of the rows that it sends: a digest of the rows, however they were cut."""

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from scumble.errors import BadRows
from scumble.owner import sending
from scumble.owner.sending import Sender
from scumble.owner.session import Session
from scumble.types import schema_of
from scumble.wire.requests import RowLayout

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
    sender = Sender(cast(Session, Sink()), SCHEMA, [], lambda *_: None, None, bytes(32), "ba" * 16)
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


@pytest.mark.parametrize("capacity", [5, 6, 8, 100])
def test_rows_and_dummies_leave_in_batches_of_one_size(capacity: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one may be smaller. Where the rows end and the dummies begin, nobody sees."""
    sink, told = Sink(), list[tuple[str, int, int | None]]()
    monkeypatch.setattr(sending, "SENT_BYTES", 3 * 8 * RowLayout(SCHEMA, ()).words + 7)
    sender = Sender(cast(Session, sink), SCHEMA, [], lambda *said: told.append(said), 5, bytes(32), "ba" * 16)
    sender.send_all(TABLE.to_batches(4), 5)
    assert sender.rows == 5
    sender.fill(capacity)
    assert sender.rows == capacity
    sizes = [len(rows) for rows in sink.sent]
    assert sum(sizes) == capacity
    assert set(sizes[:-1]) <= {3}
    assert sizes[-1] <= 3
    assert told[0] == ("loading", 4, 5)
    assert told[1] == ("loading", 5, 5)
    rows = np.concatenate(sink.sent)
    assert (rows[:5, 0] == [3, 1, 4, 1, 5]).all()
    assert (rows[5:, : RowLayout(SCHEMA, ()).key_offset] == 0).all()


def test_a_row_has_room_in_a_batch_however_wide_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink()
    monkeypatch.setattr(sending, "SENT_BYTES", 8)
    sender = Sender(cast(Session, sink), SCHEMA, [], lambda *_: None, None, bytes(32), "ba" * 16)
    sender.send_all(TABLE.to_batches(5), None)
    sender.fill(6)
    assert [len(rows) for rows in sink.sent] == [1] * 6


@pytest.mark.parametrize(("short", "rows"), [(0, 40), (1, 39)])
def test_a_batch_has_as_many_whole_rows_as_fit_its_bytes(
    monkeypatch: pytest.MonkeyPatch, short: int, rows: int
) -> None:
    sink = Sink()
    monkeypatch.setattr(sending, "SENT_BYTES", 40 * 8 * RowLayout(SCHEMA, ()).words - short)
    sender = Sender(cast(Session, sink), SCHEMA, [], lambda *_: None, None, bytes(32), "ba" * 16)
    sender.fill(50)
    assert [len(each) for each in sink.sent] == [rows, 50 - rows]


def test_more_rows_than_the_capacity_are_refused_and_a_bad_one_is_named() -> None:
    for batch_rows in (1, 3, 5):
        sender = Sender(cast(Session, Sink()), SCHEMA, [], lambda *_: None, None, bytes(32), "ba" * 16)
        with pytest.raises(BadRows, match="more rows than the capacity"):
            sender.send_all(TABLE.to_batches(batch_rows), 4)
    sender = Sender(cast(Session, Sink()), SCHEMA, [], lambda *_: None, None, bytes(32), "ba" * 16)
    bad = pa.concat_tables([TABLE, pa.table({"k": [1], "name": ["far too long for it"]})])
    with pytest.raises(BadRows) as caught:
        sender.send_all(bad.to_batches(4), None)
    assert caught.value.row == 6
