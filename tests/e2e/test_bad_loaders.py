"""A loader that sends what no encoder makes: refused as a whole, as long as an answer, and nobody's queries suffer."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import scumble
from scumble.errors import BadRows, InvalidParameter, ScumbleError, Unfinished
from scumble.owner import encoding, loading, sending
from scumble.owner.database import Database
from scumble.owner.session import Session
from scumble.provider.front import Provider
from scumble.wire.requests import BeginLoad, Build, IndexOrder, Request

Rows = NDArray[np.int64]
TYPES = {"name": "text(8)", "colour": 'category(["blue","green","red"])'}
TABLE = pa.table({"k": [3, 1, 2], "name": ["a", "ü", None], "colour": ["red", None, "blue"]})
INDEXES = ["k int:0:9 epsilon=1"]
COLOUR, NAME, LENGTH, RANK = 3, 1, 2, 5  # the words of a row: k, the text and its length, the category, bits, the rank


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with scumble.create(tmp_path / "db", limit=100, delta_limit="1e-3") as made:
        _load(made)
        yield made


def _load(db: Database, **more: Any) -> None:
    db.load("t", TABLE, indexes=INDEXES, types=TYPES, **{"page_rows": 16, "capacity": 16, "again": True} | more)


def _lying(monkeypatch: pytest.MonkeyPatch, change: Callable[[Rows], None]) -> None:
    original = encoding.encode_rows

    def encode(*given: Any, **more: Any) -> Rows:
        rows = original(*given, **more)
        change(rows)
        return rows

    monkeypatch.setattr(sending, "encode_rows", encode)


def _put(row: int, word: int, value: int) -> Callable[[Rows], None]:
    def change(rows: Rows) -> None:
        rows[row, word] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _put(0, COLOUR, 77),
        _put(0, NAME, int.from_bytes(b"\xff\0\0\0\0\0\0\0", "big") - 2**63),
        _put(0, LENGTH, 9),
        _put(2, RANK, 10),
        _put(2, RANK, 7),
        _put(1, 0, 2**40),
    ],
    ids=["category", "utf-8", "length", "null rank", "rank", "key"],
)
def test_a_bad_batch_is_refused_and_the_table_is_as_before(
    db: Database, monkeypatch: pytest.MonkeyPatch, change: Callable[[Rows], None]
) -> None:
    def state() -> tuple[Any, ...]:
        return db.version, [run.id for run in db.table("t").runs], db.ledger.spent()

    before = state()
    with monkeypatch.context() as patch:
        _lying(patch, change)
        with pytest.raises(BadRows, match="does not fit"):
            _load(db)
    assert state() == before
    grouped = "SELECT colour, count(*) FROM t GROUP BY colour ORDER BY colour"
    assert db.sql(grouped).fetchall() == [("blue", 1), ("red", 1), (None, 1)]
    _load(db)
    assert db.sql("SELECT count(*), min(name) FROM t WHERE k >= 0").fetchall() == [(6, "a")]


def test_a_refusal_is_as_long_as_an_answer(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to the request to pay, when all rows were sent: there a batch is taken or refused."""
    lengths: list[int] = []
    original = Provider.request

    def request(self: Provider, session: int, sealed: bytes | memoryview) -> bytes:
        answer = original(self, session, sealed)
        lengths.append(len(answer))
        return answer

    monkeypatch.setattr(Provider, "request", request)
    _load(db)
    taken = list(lengths)
    lengths.clear()
    _lying(monkeypatch, _put(0, COLOUR, 77))
    with pytest.raises(BadRows):
        _load(db)
    # That nothing is new; load, rows, pay; then one goes on, and one gives up.
    at = taken.index(min(taken)) - 1  # rows get the shortest answer
    assert lengths[at : at + 3] == taken[at : at + 3]
    assert len(lengths) == at + 4 < len(taken)


def test_a_number_of_rows_that_is_not_so(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Build
    monkeypatch.setattr(loading, "Build", lambda rows, batch: honest(rows + 1, batch))
    with pytest.raises(Unfinished, match="does not fit"):  # it was paid for by then
        _load(db)
    monkeypatch.undo()
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(3,)]


def test_a_domain_of_another_type_is_refused_by_both_sides(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    spent = db.ledger.spent()
    text = pa.table({"day": ["2013-01-01"]})
    with pytest.raises(InvalidParameter, match="cannot be indexed"):
        db.load("u", text, indexes=["day date:2013-01-01:2013-12-31 epsilon=1"], types={"day": "text(10)"})
    assert db.ledger.spent() == spent
    asked: list[str] = []
    original = Session.ask

    def ask(self: Any, request: Request[Any]) -> Any:
        if isinstance(request, BeginLoad):
            wrong = scumble.parse_domain("date:2013-01-01:2013-12-31")
            orders = tuple(IndexOrder(**vars(order) | {"domain": wrong}) for order in request.orders)
            request = BeginLoad(**vars(request) | {"orders": orders})
            asked.append("load")
        return original(self, request)

    monkeypatch.setattr(Session, "ask", ask)
    with pytest.raises(ScumbleError, match="cannot be indexed"):
        _load(db)
    assert asked == ["load"]
