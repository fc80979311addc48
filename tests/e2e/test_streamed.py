"""Streams into a database: what the table, the queries, the ledger and the provider have of them.

Three ways to be wrong and still look right: a query that counts a row both in the log and in the table; one that asks
otherwise of the enclave when rows wait; a batch that is sent twice because its name was merged away.
"""

import os
import re
import signal
import threading
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from clinics import Clinic, clinic
from databases import LIMIT, create, events, load, reopen, rows

import scumble
from scumble.errors import BadRows, Busy, Exists, InvalidParameter, NotFound, Overdraft, Refused
from scumble.owner.database import Database
from scumble.owner.streams import Stream

if TYPE_CHECKING:
    from serving import Serving

__all__ = ["clinic"]

INDEXES = ("k int:0:127 epsilon=1",)
TOTAL = "SELECT count(*), sum(k), min(amount), max(name) FROM t"
QUERIES = (
    TOTAL,
    "SELECT k, name FROM t WHERE k BETWEEN 10 AND 60 ORDER BY k, name",
    "SELECT colour, count(*), avg(share) FROM t WHERE k > 20 GROUP BY colour ORDER BY colour",
    "SELECT count(*) FROM t AS a JOIN t AS b USING (k) WHERE a.day > '2013-02-01'",
    "SELECT count(*) FROM t WHERE k = 1000000",
)
HOUR = 3600  # so long that only the test itself sends


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with create(tmp_path / "home") as made:
        load(made, "t")
        yield made


def answers(db: Database) -> list[list[tuple[Any, ...]]]:
    return [db.sql(query).fetchall() for query in QUERIES]


def opened(db: Database, **more: Any) -> Stream:
    return db.stream("t", every=HOUR, **more)


def test_queries_include_what_waits_and_count_it_once(db: Database, tmp_path: Path) -> None:
    with create(tmp_path / "other") as other:
        load(other, "t", source=rows())
        other.insert("t", rows(30, seed=5))
        expected = answers(other)
    before = answers(db)
    with opened(db) as stream:
        assert answers(db) == before
        stream.write(rows(30, seed=5))
        assert answers(db) == expected
        assert db.waiting("t") is not None
        stream.flush()
        assert db.waiting("t") is None
        assert stream.status().waiting == 0
        assert answers(db) == expected
    assert answers(db) == expected
    with reopen(tmp_path / "home") as again:  # from the log on disk
        assert answers(again) == expected
    assert db.sql("SELECT count(*) FROM t").fetchone() == (70,)


def test_another_process_sees_what_waits(db: Database, tmp_path: Path) -> None:
    with opened(db) as stream, reopen(tmp_path / "home") as other:
        assert other.sql("SELECT count(*) FROM t").fetchone() == (40,)
        for seed in range(2, 5):
            stream.write(rows(10, seed=seed))
            assert other.sql("SELECT count(*) FROM t").fetchone() == (30 + 10 * seed,)
            stream.flush()
            assert other.sql("SELECT count(*) FROM t").fetchone() == (30 + 10 * seed,)
        status = other.stream_status("t")
        assert status is not None
        assert (status.waiting, status.settings["policy"]) == (0, "heartbeat")
        with pytest.raises(Busy):
            other.stream("t")


def test_the_provider_sees_no_difference_whether_rows_wait(db: Database) -> None:
    """Of queries: the same requests, reads and answers' lengths, as long as there is a stream at all."""
    seen = []
    with opened(db) as stream:
        answers(db)  # plans are prepared once
        for count in (0, 1, 30):
            if count:
                stream.write(rows(count, seed=5))
            start = len(events(db))
            answers(db)
            seen.append([(event.kind, event.facts) for event in events(db)[start:]])
    assert seen[0] == seen[1] == seen[2]
    assert {"read"} <= {kind for kind, _ in seen[0]}


def _heartbeat(home: Path, arrivals: list[int]) -> list[tuple[Any, ...]]:
    """What the provider sees of a stream into a new table, without an index, whose noise would show in its size."""
    with create(home) as db:
        load(db, "t", indexes=())
        start = len(events(db))
        with opened(db) as stream:
            for seed, count in enumerate(arrivals):
                if count:
                    stream.write(rows(count, seed=seed))
                stream.beat(seed)
        return [(event.kind, *_sizes(event.facts)) for event in events(db)[start:]]


def _sizes(facts: tuple[tuple[str, Any], ...]) -> list[tuple[str, Any]]:
    """All numbers; names are random, and signatures differ."""
    return [(name, value) for name, value in facts if isinstance(value, int) and name not in ("session", "scratch")]


@pytest.mark.parametrize("other", [[4, 0, 0, 7], [3, 1, 0, 7], [128, 128, 128, 128], [0, 0, 0, 0]])
def test_the_transcript_of_a_heartbeat_is_that_of_any_other(tmp_path: Path, other: list[int]) -> None:
    assert _heartbeat(tmp_path / "one", [3, 0, 0, 7]) == _heartbeat(tmp_path / "other", other)


def test_batches_whose_names_were_merged_are_not_sent_again(db: Database) -> None:
    """After many beats their runs are one; a batch that is repeated is known by its name still."""
    with opened(db) as stream:
        names = []
        for seed in range(20):
            stream.write(rows(5, seed=seed))
            names.append(stream._log.state.batch)
            stream.beat(seed)
        assert stream.status().trouble is None
        assert len(db.table("t").runs) < 20
        assert db.sql("SELECT count(*) FROM t").fetchone() == (140,)
        for name in names:
            assert db.insert("t", rows(5, seed=1), batch=name) == 0
    assert db.sql("SELECT count(*) FROM t").fetchone() == (140,)


def test_a_process_that_is_killed_loses_nothing_and_sends_nothing_twice(tmp_path: Path) -> None:
    """At each of its steps, in a child: the database and the log go on in another process."""
    home = tmp_path / "home"
    with create(home) as db:
        load(db, "t")
    for step, (owner, name, before) in enumerate(
        [
            ("scumble.owner.stream_log.StreamLog", "record", True),
            ("scumble.owner.stream_log.StreamLog", "record", False),
            ("scumble.owner.stream_target.StreamTarget", "insert", True),
            ("scumble.owner.stream_target.StreamTarget", "insert", False),
            ("scumble.owner.stream_log.StreamLog", "sent", True),
            ("scumble.owner.stream_log.StreamLog", "sent", False),
        ]
    ):
        child = os.fork()
        if child == 0:
            _stream_and_die(home, step, owner, name, before=before)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        with reopen(home) as db:
            assert db.sql("SELECT count(*) FROM t").fetchone() == (50 + 10 * step,)
            with opened(db) as stream:
                stream.beat(1)
                assert stream.status().trouble is None
                assert stream.status().waiting == 0
            assert db.sql("SELECT count(*), count(DISTINCT name) FROM t").fetchall()[0][0] == 50 + 10 * step


def _stream_and_die(home: Path, seed: int, owner: str, name: str, *, before: bool) -> None:
    try:
        patch = pytest.MonkeyPatch()
        db = reopen(home)
        stream = opened(db)
        stream.write(rows(10, seed=seed + 50))
        module, _, kind = owner.rpartition(".")
        holder = getattr(__import__(module, fromlist=[kind]), kind)
        call = getattr(holder, name)

        def dying(*given: Any, **more: Any) -> None:
            if not before:
                call(*given, **more)
            os.kill(os.getpid(), signal.SIGKILL)

        patch.setattr(holder, name, dying)
        stream.beat(0)
    finally:
        os._exit(1)


# --- what it costs ---------------------------------------------------------------------------------


def test_a_noisy_stream_is_charged_once_and_on_every_device(db: Database, tmp_path: Path) -> None:
    before, delta = db.ledger.spent(), db.ledger.spent_delta()
    other = tmp_path / "home" / "other.key"
    for suffix in ("key", "anchor", "ledger"):
        (tmp_path / "home" / f"other.{suffix}").write_bytes((tmp_path / "home" / f"db.{suffix}").read_bytes())
        (tmp_path / "home" / f"other.{suffix}").chmod(0o600)
    for _ in range(3):
        with opened(db, policy="timer", epsilon="0.5") as stream:
            stream.write(rows(20, seed=3))
            for tick in range(3):
                stream.beat(tick)
            assert stream.status().trouble is None
    assert db.ledger.spent() - before == Fraction(1, 2)
    assert 0 < db.ledger.spent_delta() - delta < Fraction(1, 10**9)
    assert "not settled" not in str(db.ledger)
    assert db.sql("SELECT count(*) FROM t").fetchone() == (100,)
    with opened(db, policy="threshold", epsilon=1, rows=10) as stream:
        stream.flush()
    assert db.ledger.spent() - before == Fraction(3, 2)
    with scumble.open(tmp_path / "home" / "db", key=other) as elsewhere:
        assert elsewhere.ledger.spent() - before == Fraction(3, 2)
        assert "not settled" not in str(elsewhere.ledger)
    load(db, "t", seed=9, indexes=("k int:0:127 epsilon=1", "amount decimal:0:100:0.25 epsilon=1"), new_rows=True)
    assert db.ledger.spent() - before == Fraction(3, 2)  # a load of new rows costs what the dearest does


def test_a_refusal_costs_nothing_and_leaves_no_log(tmp_path: Path) -> None:
    with create(tmp_path / "home", limit=2) as db:
        load(db, "t", indexes=INDEXES)
        version = db.version
        with pytest.raises(Overdraft):
            opened(db, policy="timer", epsilon=5)
        with pytest.raises(InvalidParameter, match="one rows_per_user"):
            opened(db, policy="timer", epsilon="0.1", rows_per_user=3)
        with pytest.raises(NotFound):
            db.stream("absent")
        assert db.ledger.spent() == 1
        assert db.version == version
        assert not list((tmp_path / "home").glob("db.streams/*"))
        assert db.stream_status("t") is None


def test_an_analyst_has_no_allotment_for_noise(clinic: Clinic) -> None:
    clinic.owner.grant("ann", clinic.identity("ann"), ["visits"])
    with clinic.analyst("ann") as analyst, pytest.raises(Refused):
        analyst.stream("visits", every=HOUR, policy="timer", epsilon=1)
    assert not list(clinic.home.glob("ann.streams/*"))


def test_an_analyst_who_may_insert_may_stream(clinic: Clinic) -> None:
    clinic.owner.grant("ann", clinic.identity("ann"), {"visits": ["read", "insert"]})
    (before,) = clinic.owner.sql("SELECT count(*) FROM visits").fetchall()[0]
    with clinic.analyst("ann") as analyst, analyst.stream("visits", every=HOUR) as stream:
        stream.write(clinic.owner.sql("SELECT * FROM visits LIMIT 3").arrow())
        assert analyst.sql("SELECT count(*) FROM visits").fetchone() == (before + 3,)
        assert clinic.owner.sql("SELECT count(*) FROM visits").fetchone() == (before,)  # as of the last batch
        stream.flush()
    assert clinic.owner.sql("SELECT count(*) FROM visits").fetchone() == (before + 3,)


# --- the rest --------------------------------------------------------------------------------------


def test_rows_that_the_table_cannot_take_are_not_acknowledged(db: Database) -> None:
    with opened(db) as stream:
        for bad in (
            [{"k": 5000}],  # outside of the index's domain
            [{"k": None}],  # not null
            [{"k": 5, "name": "x" * 21}],
            [{"k": 5, "colour": "mauve"}],
            [{"k": 5, "weight": 3}],
            [{"k": "five"}],
        ):
            with pytest.raises((BadRows, InvalidParameter)) as caught:
                stream.write(bad)
            assert "mauve" not in str(caught.value)
            assert "5000" not in str(caught.value)
        assert stream.status().waiting == 0
        assert stream.write({"k": 5}) == 1
        assert stream.write([{"k": 6, "name": "ann"}, {"k": 7}]) == 2
        stream.flush()
    assert db.sql("SELECT count(*) FROM t WHERE k IN (5, 6, 7) AND day IS NULL").fetchone() == (3,)


def test_a_transaction_and_a_stream_do_not_mix(db: Database) -> None:
    with opened(db) as stream:
        stream.write(rows(5, seed=3))
        with db.transaction():
            with pytest.raises(InvalidParameter, match="within a transaction"):
                stream.flush()
            with pytest.raises(InvalidParameter, match="within a transaction"):
                db.stream("t")
            sender = threading.Thread(target=stream.beat, args=(0,))
            sender.start()
            sender.join(0.2)
            assert sender.is_alive()  # it waits
            assert stream.status().waiting == 5
        sender.join()
        assert stream.status().waiting == 0
    assert db.sql("SELECT count(*) FROM t").fetchone() == (45,)


def test_a_truncated_table_goes_on(db: Database) -> None:
    with opened(db) as stream:
        stream.write(rows(5, seed=3))
        stream.flush()
        stream.write(rows(7, seed=4))
        with db.transaction():
            db.execute("TRUNCATE t")
            assert db.sql("SELECT count(*) FROM t").fetchone() == (0,)
        stream.write(rows(7, seed=4))
        assert db.sql("SELECT count(*) FROM t").fetchone() == (7,)
        stream.flush()
        assert stream.status().waiting == 0
    assert db.sql("SELECT count(*) FROM t").fetchone() == (7,)


def test_a_long_transaction_makes_a_batch_late_and_does_not_hang(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scumble.owner.streaming.BUSY_SECONDS", 0.05)
    stream = opened(db)
    stream.write(rows(5, seed=3))
    db.execute("BEGIN")
    sender = threading.Thread(target=stream.beat, args=(0,))
    sender.start()
    sender.join()
    assert stream.status().late == 1
    assert "transaction" in (stream.status().trouble or "")
    db.execute("ROLLBACK")
    stream.beat(1)
    assert stream.status().waiting == 0
    stream.close()


def test_a_rekey_takes_the_log_along(db: Database, tmp_path: Path) -> None:
    with opened(db) as stream:
        stream.write(rows(5, seed=3))
        with pytest.raises(Busy, match="open already"):
            db.rekey()
    before = (tmp_path / "home" / "db.key").read_bytes()
    db.rekey()
    assert (tmp_path / "home" / "db.key").read_bytes() != before
    assert db.sql("SELECT count(*) FROM t").fetchone() == (45,)
    with reopen(tmp_path / "home") as again, opened(again) as stream:
        assert again.sql("SELECT count(*) FROM t").fetchone() == (45,)
        stream.flush()
        assert stream.status().waiting == 0
        assert again.sql("SELECT count(*) FROM t").fetchone() == (45,)


def test_columns_that_come_and_go(db: Database) -> None:
    """A new one is null in rows that wait; without one that they have, they wait until it is back."""
    with opened(db) as stream:
        stream.write(rows(5, seed=3))
        db.execute("ALTER TABLE t ADD COLUMN note TEXT(5)")
        assert db.sql("SELECT count(*), count(note) FROM t").fetchone() == (45, 0)
        db.execute("ALTER TABLE t RENAME COLUMN name TO called")
        with pytest.raises(Exists, match="were changed after"):
            db.sql("SELECT count(*) FROM t")
        with pytest.raises(Exists):
            stream.flush()
        db.execute("ALTER TABLE t RENAME COLUMN called TO name")
        stream.flush()
        assert stream.status().waiting == 0
    named = sum(len(each["name"].drop_null()) for each in (rows(), rows(5, seed=3)))
    assert db.sql("SELECT count(*), count(note), count(name) FROM t").fetchone() == (45, 0, named)


def test_a_stream_is_closed_with_its_database(tmp_path: Path) -> None:
    with create(tmp_path / "home") as db:
        load(db, "t")
        stream = opened(db)
        stream.write(rows(5, seed=3))
    with pytest.raises(InvalidParameter, match="closed"):
        stream.write(rows(5, seed=3))
    with reopen(tmp_path / "home") as db, opened(db) as stream:
        assert stream.status().waiting == 5
        stream.flush()
        stream.end()
        assert db.stream_status("t") is None
        with opened(db):
            pass


def test_streams_reach_a_service_and_another_client_sees_their_batches(service: "Serving", tmp_path: Path) -> None:
    """Two clients of one owner, one of which streams by its own thread while the other asks; rows are never doubled."""
    with service.create("streamed", tmp_path, limit=LIMIT, delta_limit="1e-3") as db:
        load(db, "t")
        with service.open("streamed", tmp_path) as other:
            with db.stream("t", every=0.05, policy="timer", epsilon="0.5") as stream:
                written, seen = 40, 0
                for seed in range(1, 9):
                    written += stream.write(rows(10, seed=seed))
                    for each in (db, other):  # both have the log at hand
                        assert each.sql("SELECT count(*) FROM t").fetchone() == (written,)
                        seen += 1
                stream.drain()
                assert stream.status().trouble is None
            assert seen == 16
            assert other.sql("SELECT count(*) FROM t").fetchone() == (written,)
            assert other.ledger.spent() == db.ledger.spent()


# --- how old a view is -------------------------------------------------------------------------------


def test_everybody_is_told_how_old_the_rows_are(clinic: Clinic) -> None:
    table = clinic.owner.tables[0].name
    assert clinic.owner.table(table).streamed is None
    assert "streamed" not in clinic.owner.table(table).to_json()
    with clinic.owner.stream(table, every=HOUR) as stream:
        before = int(stream._clock.now())
        stream.flush()
        after = int(stream._clock.now())
    with clinic.owner.stream(table, every=60, rows=5000, policy="threshold", epsilon="0.1"):
        pass
    clinic.owner.grant("reader", clinic.identity("reader"), [table])
    with clinic.analyst("reader") as analyst:
        for db in (clinic.owner, analyst):
            streamed = db.table(table).streamed
            assert streamed is not None
            assert before <= streamed.time <= after
            assert streamed.every_ms == 1000 * HOUR
            text = streamed.about(streamed.time + 41.2)
            assert re.fullmatch(r"rows as of .* UTC, 41 s ago; a stream sends every 3600 s", text)
            shown = str(db.explain(f"SELECT count(*) FROM {table}"))  # noqa: S608
            assert re.search(r"rows as of \d{4}-\d\d-\d\d \d\d:\d\d UTC, [\d,]+ s ago; a stream sends every", shown)
            assert "rows as of" in repr(db.table(table))


def test_when_a_batch_was_sent_outlives_other_changes(db: Database) -> None:
    with opened(db) as stream:
        stream.flush()
    streamed = db.table("t").streamed
    assert streamed is not None
    db.insert("t", rows(3, seed=2))
    db.execute("DELETE FROM t WHERE k < 5")
    db.execute("ALTER TABLE t ADD COLUMN more integer")
    db.vacuum()
    db.compact("t")
    assert db.table("t").streamed == streamed
    assert str(streamed.about(0)).startswith("rows as of")
