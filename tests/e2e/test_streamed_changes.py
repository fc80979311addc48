"""Statements that change rows reach those that wait in a stream's log, once, whatever crashes.

Three ways to be wrong and still look right: a deleted row that waits, and arrives later; a change of the log that
counts although the version was not stored, or the other way round; requests that tell whether anything waits.
"""

import os
import signal
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from databases import create, events, load, reopen, rows

from scumble.errors import BadRows, InvalidParameter, ScumbleError, Unavailable
from scumble.owner import log_changes, stream_log
from scumble.owner.changing import ChangeReport
from scumble.owner.database import Database
from scumble.owner.stream_changes import change_files
from scumble.owner.stream_segments import opened_record, segments_in
from scumble.owner.streams import Stream
from scumble.owner.versions import Versions

INDEXES = ("k int:0:127 epsilon=1",)
HOUR = 3600
EVERYTHING = "SELECT * FROM t ORDER BY ALL"
AGGREGATES = (
    "SELECT count(*), count(amount), sum(k), sum(amount), avg(amount), sum(share), avg(share) FROM t",
    "SELECT min(k), max(k), min(amount), max(amount), min(name), max(name), min(day), max(day), max(share) FROM t",
    "SELECT stddev(k), var_pop(amount), sum(k * 3 + 1), min(amount * k), max(good), min(colour) FROM t",
    "SELECT colour, good, count(*), sum(amount), min(name) FROM t GROUP BY colour, good ORDER BY ALL",
    "SELECT count(*), sum(k) FROM t WHERE k BETWEEN 20 AND 90 AND (name LIKE 'name5%' OR amount IS NULL)",
    "SELECT count(*), sum(amount) FROM t WHERE NOT (colour IN ('red', 'blue') OR good) OR share >= 4.5",
    "SELECT sum(amount + 1) FROM t WHERE k = 1000",
    "SELECT colour, avg(k) + 1 FROM t WHERE day > '2013-02-01' GROUP BY colour HAVING count(*) > 2 ORDER BY colour",
)
STATEMENTS: list[tuple[str, list[Any]]] = [
    ("UPDATE t SET amount = 12.50 WHERE k > 90", []),
    ("UPDATE t SET name = ?, colour = NULL WHERE name = ? OR name LIKE 'name5-1%'", ["Zoe", "name1-11"]),
    ("UPDATE t SET amount = amount * 2 - 1, share = 0.5 WHERE amount < 20 AND good", []),
    ("UPDATE t SET k = 127 - k WHERE colour = 'red'", []),
    ("UPDATE t SET good = NULL WHERE day BETWEEN '2013-01-15' AND '2013-02-20'", []),
    ("UPDATE t SET name = v.n FROM (VALUES (11, 'eleven'), (48, 'fortyeight'), (3, NULL)) v(k, n) WHERE t.k = v.k", []),
    (
        "INSERT INTO t (k, name) VALUES (55, 'new'), (111, 'newer') ON CONFLICT (k) DO UPDATE SET name = excluded.name",
        [],
    ),
    ("INSERT INTO t (k) VALUES (55), (56) ON CONFLICT (k) DO NOTHING", []),
    ("DELETE FROM t WHERE name IS NULL", []),
    ("DELETE FROM t WHERE k IN (5, 55, 16, 53, 90) OR amount = 98.75", []),
    ("DELETE FROM t AS x WHERE x.share < x.share", []),
    ("DELETE FROM t WHERE k > 100", []),
    ("TRUNCATE t", []),
]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with create(tmp_path / "home") as made:
        load(made, "t", indexes=INDEXES)
        yield made


def opened(db: Database, **more: Any) -> Stream:
    return db.stream("t", every=HOUR, **more)


def log_folder(home: Path) -> Path:
    (folder,) = (home / "db.streams").iterdir()
    return folder


def changed(db: Database, statement: str, params: list[Any] | None = None) -> int:
    report = db.execute(statement, params or [])
    assert isinstance(report, ChangeReport)
    return report.rows


def answered(db: Database) -> list[list[tuple[Any, ...]]]:
    return [db.sql(query).fetchall() for query in (EVERYTHING, *AGGREGATES)]


def test_waiting_rows_are_changed_and_counted_as_those_of_the_table(db: Database, tmp_path: Path) -> None:
    with create(tmp_path / "other") as other, opened(db) as stream:
        load(other, "t", indexes=INDEXES)
        other.insert("t", rows(30, seed=5))
        stream.write(rows(17, seed=5))
        stream.write(rows(30, seed=5).slice(17))
        assert answered(db) == answered(other)
        for number, (statement, params) in enumerate(STATEMENTS):
            assert changed(db, statement, params) == changed(other, statement, params), statement
            assert answered(db) == answered(other), statement
            more = rows(9, seed=20 + number)
            stream.write(more)
            other.insert("t", more)
            assert answered(db) == answered(other)
        stream.flush()
        assert stream.status().waiting == 0
        assert answered(db) == answered(other)


def test_an_empty_log_changes_nothing_about_answers(db: Database) -> None:
    before = answered(db)
    with opened(db):
        assert answered(db) == before


def test_a_transaction_is_rolled_back_in_the_log_too(db: Database) -> None:
    with opened(db) as stream:
        stream.write(rows(30, seed=5))
        before = answered(db)
        db.execute("BEGIN")
        changed(db, "DELETE FROM t WHERE k > 30")
        changed(db, "UPDATE t SET name = 'x'")
        assert db.sql("SELECT count(DISTINCT name), max(k) <= 30 FROM t").fetchone() == (1, True)
        db.execute("ROLLBACK")
        assert answered(db) == before
        with pytest.raises(ScumbleError), db.transaction():  # noqa: PT012
            changed(db, "DELETE FROM t WHERE k > 30")
            db.execute("UPDATE t SET nonsense = 1")
        assert answered(db) == before
        with db.transaction():
            changed(db, "DELETE FROM t WHERE k > 30")
            changed(db, "UPDATE t SET name = 'x'")
        assert db.sql("SELECT count(DISTINCT name), max(k) <= 30 FROM t").fetchone() == (1, True)
        stream.flush()
        assert db.sql("SELECT count(DISTINCT name), max(k) <= 30 FROM t").fetchone() == (1, True)


def test_a_value_that_does_not_fit_refuses_the_statement_as_a_whole(db: Database) -> None:
    with opened(db) as stream:
        stream.write([{"k": 100, "amount": Decimal("999999.99")}])
        before = answered(db)
        for statement in ("UPDATE t SET amount = amount * 10 WHERE amount IS NOT NULL", "UPDATE t SET k = k + 100"):
            with pytest.raises(BadRows, match=r"does not fit|domain"):
                db.execute(statement)
            assert answered(db) == before
        assert not change_files(stream.log._folder)


def test_another_process_changes_what_waits(db: Database, tmp_path: Path) -> None:
    """It cannot write the log, which is open here; what it has changed counts at once, and is taken over at a tick."""
    with opened(db) as stream, reopen(tmp_path / "home") as other:
        stream.write(rows(30, seed=5))
        gone = changed(other, "DELETE FROM t WHERE k > 64")
        assert gone > 10
        left = (70 - gone,)
        for each in (db, other):
            assert each.sql("SELECT count(*) FROM t WHERE k <= 64").fetchone() == left
            assert each.sql("SELECT count(*) FROM t").fetchone() == left
        stream.write([{"k": 100}])
        assert changed(other, "UPDATE t SET name = 'new' WHERE k = 100") == 1
        assert changed(db, "UPDATE t SET colour = 'red' WHERE k = 100") == 1
        for each in (db, other):
            assert each.sql("SELECT name, colour FROM t WHERE k > 64").fetchall() == [("new", "red")]
        with reopen(tmp_path / "home") as third:
            assert third.sql("SELECT name, colour FROM t WHERE k > 64").fetchall() == [("new", "red")]
            assert changed(third, "DELETE FROM t WHERE k = 100") == 1
        assert change_files(log_folder(tmp_path / "home"))
        assert db.sql("SELECT count(*) FROM t").fetchone() == left
        stream.beat(1)
        assert stream.status().trouble is None
        assert not change_files(log_folder(tmp_path / "home"))
        assert stream.status().waiting == 0
        for each in (db, other):
            assert each.sql("SELECT count(*) FROM t").fetchone() == left


def test_what_was_erased_is_nowhere_in_the_log(db: Database, tmp_path: Path) -> None:
    stream = opened(db)
    stream.write([{"k": 1, "name": "Eve"}, {"k": 2, "name": "Bob"}])
    stream.close()
    folder = log_folder(tmp_path / "home")

    def values() -> set[str]:
        content = stream_log.read_log(folder, db._log_keys, folder.name)
        found = [
            opened_record(record, content.ciphers).count(name)
            for record in content.records
            for name in (b"Eve", b"Bob")
        ]
        return {name for name, count in zip(("Eve", "Bob"), found, strict=True) if count}

    assert values() == {"Eve", "Bob"}
    before = segments_in(folder)
    assert changed(db, "DELETE FROM t WHERE name = 'Eve'") == 1
    assert values() == {"Bob"}
    assert not set(before) & set(segments_in(folder))
    assert db.waiting("t") is not None
    with opened(db) as stream:
        stream.flush()
    assert db.sql("SELECT name FROM t WHERE name IN ('Eve', 'Bob')").fetchall() == [("Bob",)]


# --- batches that are about to be sent ---------------------------------------------------------------


def failing_once(monkeypatch: pytest.MonkeyPatch, stream: Stream, *, stored: bool) -> None:
    """Let a batch be recorded, and be stored or not, and its sender hear that the service is gone."""
    from scumble.owner.stream_log import StreamLog

    if stored:
        with monkeypatch.context() as patch:
            patch.setattr(StreamLog, "sent", _unavailable)
            stream.beat(0)
    else:
        with monkeypatch.context() as patch:
            patch.setattr(Versions, "settle", _unavailable)
            stream.beat(0)
    assert stream.log.state.pending is not None


def _unavailable(*_: Any, **__: Any) -> None:
    raise Unavailable("the service is gone")


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_batch_on_its_way_is_settled_first(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool, elsewhere: bool
) -> None:
    with opened(db) as stream, reopen(tmp_path / "home") as other:
        stream.write(rows(30, seed=5))
        failing_once(monkeypatch, stream, stored=stored)
        stream.write(rows(10, seed=6))
        total = db.sql("SELECT count(*) FROM t").fetchall()[0][0]
        assert total == 80
        gone = changed(other if elsewhere else db, "DELETE FROM t WHERE k > 64")
        assert db.sql("SELECT count(*), max(k) <= 64 FROM t").fetchone() == (80 - gone, True)
        for tick in range(1, 4):
            stream.beat(tick)
            assert stream.status().trouble is None
            assert db.sql("SELECT count(*), max(k) <= 64 FROM t").fetchone() == (80 - gone, True)
        assert other.sql("SELECT count(*), max(k) <= 64 FROM t").fetchone() == (80 - gone, True)
        assert stream.status().waiting == 0


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_batch_on_its_way_does_not_come_after_a_truncate(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool, elsewhere: bool
) -> None:
    with opened(db) as stream, reopen(tmp_path / "home") as other:
        stream.write(rows(30, seed=5))
        failing_once(monkeypatch, stream, stored=stored)
        (other if elsewhere else db).execute("TRUNCATE t")
        assert db.sql("SELECT count(*) FROM t").fetchone() == (0,)
        stream.write(rows(3, seed=7))
        for tick in range(1, 4):
            stream.beat(tick)
            assert stream.status().trouble is None
            assert db.sql("SELECT count(*) FROM t").fetchone() == (3,)
        stream.end()
    assert db.sql("SELECT count(*) FROM t").fetchone() == (3,)


def test_a_stream_whose_rows_were_all_deleted_can_end(db: Database) -> None:
    stream = opened(db)
    stream.write(rows(5, seed=5))
    with pytest.raises(InvalidParameter, match="wait to be sent"):
        stream.end()
    db.execute("TRUNCATE t")
    stream.end()
    assert db.stream_status("t") is None


# --- what is seen ------------------------------------------------------------------------------------


def _seen(home: Path, waiting: int, statement: str) -> list[tuple[Any, ...]]:
    with create(home) as db:
        load(db, "t", indexes=())
        with opened(db) as stream:
            if waiting:
                stream.write(rows(waiting, seed=5))
            with reopen(home) as other:
                start = len(events(db))
                db.execute(statement)
                other.execute(statement)
                other.sql("SELECT count(*), max(name) FROM t")
                stream.beat(1)
            return [
                (
                    event.kind,
                    *((n, v) for n, v in event.facts if isinstance(v, int) and n not in ("session", "scratch")),
                )
                for event in events(db)[start:]
            ]


@pytest.mark.parametrize(
    "statement", ["DELETE FROM t WHERE k > 64", "UPDATE t SET name = 'x' WHERE k = 3", "TRUNCATE t"]
)
def test_the_provider_cannot_tell_whether_rows_waited(tmp_path: Path, statement: str) -> None:
    seen = [_seen(tmp_path / str(waiting), waiting, statement) for waiting in (0, 1, 30)]
    assert seen[0] == seen[1] == seen[2]


def test_deleted_rows_count_until_their_batch_is_sent(db: Database) -> None:
    """Or a threshold's tests would differ twice by one row: when it comes, and when it goes (privacy.md, 11.3)."""
    with opened(db, policy="timer", epsilon=1) as stream:
        stream.write(rows(30, seed=5))
        collected = stream._collected()[0].rows
        assert changed(db, "DELETE FROM t WHERE k > 10") > 20
        assert stream._collected()[0].rows == collected == 30
        assert stream.status().waiting < 10


# --- crashes -----------------------------------------------------------------------------------------

PLACES = [
    (log_changes, "write_change", True),
    (log_changes, "write_change", False),
    (Versions, "_witness_made", True),  # the version is stored, and nobody was told
    (stream_log.StreamLog, "absorb", True),
    (stream_log.StreamLog, "_begin_segment", True),
    (stream_log.StreamLog, "_begin_segment", False),
    (stream_log.StreamLog, "_write_anew", False),
    (stream_log.StreamLog, "absorb", False),
]


@pytest.mark.parametrize("statement", ["DELETE FROM t WHERE k > 64", "TRUNCATE t"])
@pytest.mark.parametrize(("holder", "name", "before"), PLACES)
def test_a_killed_statement_is_done_in_table_and_log_or_in_neither(
    tmp_path: Path, holder: Any, name: str, before: bool, statement: str
) -> None:
    home = tmp_path / "home"
    with create(home) as db:
        load(db, "t", indexes=INDEXES)
        opened(db).write(rows(30, seed=5))
    child = os.fork()
    if child == 0:
        _change_and_die(home, statement, holder, name, before=before)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    condition = "true" if statement == "TRUNCATE t" else "k > 64"
    table = rows().to_pylist() + rows(30, seed=5).to_pylist()
    matching = len(table) if condition == "true" else sum(row["k"] > 64 for row in table)
    count = f"SELECT count(*), count(*) FILTER ({condition}) FROM t"  # noqa: S608
    done = holder is not log_changes
    expected = (70 - matching, 0) if done else (70, matching)
    with reopen(home) as db:
        assert db.sql(count).fetchone() == expected
        with opened(db) as stream:
            for tick in range(3):
                stream.beat(tick)
                assert stream.status().trouble is None
                assert db.sql(count).fetchone() == expected
            assert stream.status().waiting == 0
        assert not change_files(log_folder(home))
    with reopen(home) as db:
        assert db.sql(count).fetchone() == expected


def _change_and_die(home: Path, statement: str, holder: Any, name: str, *, before: bool) -> None:
    try:
        db = reopen(home)
        call = getattr(holder, name)

        def dying(*given: Any, **more: Any) -> None:
            if not before:
                call(*given, **more)
            os.kill(os.getpid(), signal.SIGKILL)

        pytest.MonkeyPatch().setattr(holder, name, dying)
        db.execute(statement)
    finally:
        os._exit(1)
