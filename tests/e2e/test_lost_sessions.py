"""A service that is lost on the way: queries are asked again, and no batch is ever loaded twice."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import scumble
from scumble.enclave.lines import TrustedEnclave
from scumble.errors import Tampered, Unavailable
from scumble.owner import versions as owner_versions
from scumble.owner.database import Database
from scumble.owner.keys import OwnerKey
from scumble.owner.loading import can_reopen
from scumble.provider.front import Provider
from scumble.store.files import FileStore

INDEX = ["k int:0:99 epsilon=0.5"]


class Unreliable(Provider):
    """A provider that is lost at a chosen request, before it is passed on or after, and is then there again, anew."""

    losses: list[tuple[Callable[[int], bool], bool]]

    def __init__(self, store: FileStore) -> None:
        super().__init__(store, TrustedEnclave)
        self.losses, self.asked = [], 0

    def request(self, session: int, sealed: bytes | memoryview) -> bytes:
        self.asked += 1
        lost = bool(self.losses) and self.losses[0][0](self.asked)
        if lost and not self.losses[0][1]:
            self._lose()
        answer = super().request(session, sealed)
        if lost:
            self._lose()
        return answer

    def _lose(self) -> None:
        self.losses.pop(0)
        self.asked = 0
        raise Unavailable("the service is gone", hint="connect again")

    def lose(self, number: int, *, after: bool) -> None:
        """Be lost at so many requests from the loss before, or from now."""
        if not self.losses:
            self.asked = 0
        self.losses.append((lambda asked: asked == number, after))


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setattr(owner_versions, "PAUSES_SECONDS", (0, 0, 0))
    with scumble.create(tmp_path / "db", limit=50, delta_limit="1e-3") as made:
        made.load("t", rows(40), indexes=INDEX, capacity=64, page_rows=16)
    path = tmp_path / "db.key"
    with Database(Unreliable(FileStore(tmp_path / "db")), OwnerKey.open(path), path) as opened:
        yield opened


def rows(count: int) -> pa.Table:
    return pa.table({"k": list(range(count))})


def _unreliable(db: Database) -> Unreliable:
    assert isinstance(db.service, Unreliable)
    return db.service


def _count(db: Database) -> int:
    (found,) = db.sql("SELECT count(*) FROM t").fetchall()[0]
    return int(found)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", [1, 2])
def test_a_query_is_asked_again(db: Database, number: int, after: bool) -> None:
    _unreliable(db).lose(number, after=after)
    assert _count(db) == 40


@pytest.mark.parametrize("after", [False, True])
def test_a_rollback_while_the_session_was_lost_is_noticed(db: Database, tmp_path: Path, after: bool) -> None:
    shutil.copytree(tmp_path / "db", tmp_path / "before")
    db.load("t", rows(5), indexes=INDEX, capacity=16, page_rows=16)
    shutil.rmtree(tmp_path / "db")
    (tmp_path / "before").rename(tmp_path / "db")
    _unreliable(db).lose(1, after=after)
    with pytest.raises(Tampered):
        _count(db)
    with pytest.raises(Tampered):  # nor when it is opened anew
        _count(db)


def test_a_service_that_stays_away_is_reported(db: Database) -> None:
    for _ in range(6):
        _unreliable(db).lose(1, after=False)
    with pytest.raises(Unavailable):
        _count(db)
    _unreliable(db).losses.clear()
    assert _count(db) == 40


REQUESTS = 9  # of a load: open twice, load, rows, pay, commit, reserve, build, commit


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("kind", "number"),
    [*(("table", number) for number in range(1, REQUESTS + 1)), ("frame", REQUESTS - 1), ("file", REQUESTS - 1)],
)
def test_a_load_is_made_once_wherever_it_was_lost(
    db: Database, tmp_path: Path, kind: str, number: int, after: bool
) -> None:
    sources: dict[str, Any] = {"table": rows(5), "frame": pd.DataFrame({"k": range(5)}), "file": tmp_path / "rows.csv"}
    sources["file"].write_text("k\n" + "".join(f"{place}\n" for place in range(5)))
    _unreliable(db).lose(number, after=after)
    report = db.load("t", sources[kind], indexes=INDEX, capacity=16, page_rows=16)
    assert (report.rows, report.capacity) == (5, 16)
    assert _unreliable(db).losses == []
    assert _count(db) == 45
    assert len({run.batch for run in db.table("t").runs}) == len(db.table("t").runs) == 2


@pytest.mark.parametrize("after", [False, True])
def test_a_stream_that_was_consumed_is_not_loaded_again(db: Database, after: bool) -> None:
    reader = rows(5).to_reader()
    _unreliable(db).lose(REQUESTS, after=after)
    if after:  # the runs were made: that is found out, and nothing has to be sent again
        assert db.load("t", reader, indexes=INDEX, capacity=16, page_rows=16).rows == 5
    else:
        with pytest.raises(Unavailable, match="the rows are not in the table"):
            db.load("t", reader, indexes=INDEX, capacity=16, page_rows=16)
    assert _count(db) == (45 if after else 40)


def test_a_load_whose_answer_and_its_confirmation_are_lost_is_still_made_once(db: Database) -> None:
    """The build is done, its answer lost, and three attempts to find that out are lost as well."""
    service = _unreliable(db)
    service.lose(REQUESTS, after=True)
    for _ in range(3):
        service.lose(1, after=False)
    report = db.load("t", rows(5), indexes=INDEX, page_rows=16)
    assert report.rows == 5
    assert _count(db) == 45


def test_losses_again_and_again_end_the_load_and_nothing_is_there(db: Database) -> None:
    for _ in range(4):
        _unreliable(db).lose(4, after=False)
    before = db.ledger.spent()
    with pytest.raises(Unavailable):
        db.load("t", rows(5), indexes=INDEX, capacity=16, page_rows=16)
    _unreliable(db).losses.clear()
    assert _count(db) == 40
    assert db.ledger.spent() == before


def test_which_sources_can_be_opened_again() -> None:
    held = ["rows.csv", Path("rows.csv"), "postgresql://host/db", rows(1), rows(1).to_batches()[0], pd.DataFrame()]
    assert all(map(can_reopen, held))
    assert not any(map(can_reopen, [rows(1).to_reader(), iter([]), (place for place in range(3)), object()]))
