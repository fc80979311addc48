"""The ledger's file: records are only ever appended, and whatever was altered is noticed."""

import errno
import hashlib
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from scumble.errors import Corrupt, FileError, LedgerBusy, NewerVersion
from scumble.owner import ledger_log
from scumble.owner.ledger import Content, Ledger, Spend
from scumble.owner.spends import load_partition


@pytest.fixture
def full(path: Path) -> Path:
    """A ledger with records 1 limit, 2 spend, 3 draw, 4 spend, 5 cancel, 6 spend."""
    ledger = Ledger.open(path, limit=5, delta_limit="0.1")
    ledger.spend(1, "salary", partition=("day", "a")).draw()
    ledger.spend(2, "age", delta="0.01").cancel()
    ledger.spend("1/3", "name", rows_per_user=2)
    return path


def records(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT * FROM record ORDER BY id").fetchall()


def test_a_record_says_what_it_is_about_and_nothing_else(path: Path) -> None:
    ledger = Ledger.open(path, limit=5, delta_limit="0.1")
    budget = ledger.spend("1/3", "salary", delta="0.01", rows_per_user=2, partition=("day", "a"))
    budget.draw()
    budget.settle()
    ledger.spend(2, "age").cancel()
    ledger.spend_all([Spend(1, "t day", 0, 1, load_partition("t", "day", "b"), new) for new in (False, True)])
    ledger.record_content("t", "b", Content("rows", "terms"))
    assert [(kind, *terms) for _, kind, _, *terms, _ in records(path)] == [
        ("limit", "", "5/1", "1/10", 1, None, None, 0),
        ("spend", "salary", "1/3", "1/100", 2, "day", "a", 0),
        ("draw", "", "0/1", "0/1", 1, None, None, 2),
        ("settle", "", "0/1", "0/1", 1, None, None, 2),
        ("spend", "age", "2/1", "0/1", 1, None, None, 0),
        ("cancel", "", "0/1", "0/1", 1, None, None, 5),
        ("load", "t day", "1/1", "0/1", 1, "t day", "b", 0),
        ("load of new rows", "t day", "1/1", "0/1", 1, "t day", "b", 0),
        ("content", "rows terms", "0/1", "0/1", 1, "t", "b", 0),
    ]


def test_the_chain_is_sha256_of_the_hash_before_and_the_record_as_json(full: Path) -> None:
    forge(full, "spend", **GOOD, now=datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC))
    previous = bytes(32)
    for *row, digest in records(full):
        previous = hashlib.sha256(previous + json.dumps(row, separators=(",", ":")).encode()).digest()
        assert digest == previous
    assert row == [7, "spend", "2026-01-02T03:04:05+00:00", "x", "1/1", "0/1", 1, None, None, 0]
    assert Ledger.open(full).entries()[-1].time == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_ledger_is_marked_as_one_in_the_header_of_its_file(full: Path) -> None:
    assert full.read_bytes()[68:72] == b"Scum"  # where SQLite has the id of an application


def test_a_ledger_is_named_to_sqlite_by_an_address_that_never_creates_it(
    full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some SQLites read an address even where they are not told that it is one; others would make a file of it."""
    seen = []

    def connect(database: str, **options: Any) -> sqlite3.Connection:
        seen.append((database, options["uri"]))
        return sqlite3.Connection(database, **options)

    monkeypatch.setattr(sqlite3, "connect", connect)
    Ledger.open(full)
    assert seen == [(f"{full.as_uri()}?mode=rw", True)]


def test_a_ledger_that_another_has_to_itself_is_busy_and_not_damaged(full: Path) -> None:
    with closing(sqlite3.connect(full, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerBusy):
            Ledger.open(full, busy_seconds=0)
    assert len(Ledger.open(full).entries()) == 3


def test_a_ledger_that_cannot_be_looked_at_is_not_taken_for_missing(
    full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exists(*_: object, **__: object) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied")

    before = full.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", exists)
        for limit in (None, 5):
            with pytest.raises(FileError, match="cannot be looked at"):
                Ledger.open(full, limit=limit)
    assert full.read_bytes() == before


def test_only_a_log_in_memory_is_laid_out_where_it_is(full: Path) -> None:
    before = full.read_bytes()
    with pytest.raises(ValueError, match="begins with `create`"):
        ledger_log.LedgerLog(full, lambda record: None).begin(Fraction(9), Fraction(0))
    assert full.read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE record SET epsilon = '1/9' WHERE id = 2",
        "DELETE FROM record WHERE id = 6",
        "DELETE FROM record",
        "INSERT OR REPLACE INTO record SELECT * FROM record WHERE id = 2",
        "REPLACE INTO record SELECT 2, kind, time, label, '1/9', delta, 1, null, null, 0, hash FROM record",
        "INSERT INTO record SELECT 9, kind, time, label, epsilon, delta, 1, null, null, 0, hash FROM record",
    ],
)
def test_sql_cannot_change_a_record(full: Path, statement: str) -> None:
    before = Ledger.open(full).entries()
    connection = sqlite3.connect(full)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement)
    connection.close()
    assert Ledger.open(full).entries() == before


def tamper(path: Path, *statements: str) -> None:
    """Change the file as somebody would who knows of the triggers: drop them, change, put them back."""
    connection = sqlite3.connect(path)
    triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        connection.execute(statement)
    for _, sql in triggers:
        connection.execute(sql)
    connection.commit()
    connection.close()


def test_tampering_itself_leaves_no_mark(full: Path) -> None:
    before = Ledger.open(full).entries()
    tamper(full)
    assert Ledger.open(full).entries() == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE record SET epsilon = '9/1' WHERE id = 1",
        "UPDATE record SET epsilon = '1/9' WHERE id = 2",
        "UPDATE record SET epsilon = '2/2' WHERE id = 2",
        "UPDATE record SET delta = '0/1' WHERE id = 4",
        "UPDATE record SET label = 'other' WHERE id = 6",
        "UPDATE record SET label = x'00ff' WHERE id = 6",
        "UPDATE record SET label = CAST(x'ff' AS TEXT) WHERE id = 6",
        "UPDATE record SET time = '2020-01-01T00:00:00+00:00' WHERE id = 6",
        "UPDATE record SET rows_per_user = 7 WHERE id = 6",
        "UPDATE record SET partition_part = 'b' WHERE id = 2",
        "UPDATE record SET kind = 'cancel' WHERE id = 3",
        "UPDATE record SET spend = 4 WHERE id = 3",
        "UPDATE record SET hash = zeroblob(32) WHERE id = 6",
        "UPDATE record SET hash = x'' WHERE id = 6",
        "UPDATE record SET id = 7 WHERE id = 6",
        "INSERT INTO record SELECT 0, kind, time, label, epsilon, delta, rows_per_user,"
        " partition_group, partition_part, spend, hash FROM record WHERE id = 1",
        "DELETE FROM record WHERE id = 1",
        "DELETE FROM record WHERE id = 3",
        "DELETE FROM record WHERE id = 6",
        "DELETE FROM record",
        "DELETE FROM sqlite_sequence",
        "CREATE TRIGGER more AFTER INSERT ON record BEGIN SELECT 1; END",
        "DROP TABLE record; --",
    ],
)
def test_an_altered_ledger_is_corrupt(full: Path, statement: str) -> None:
    if statement.startswith("DROP"):
        connection = sqlite3.connect(full)
        connection.executescript(statement)
        connection.close()
    else:
        tamper(full, statement)
    with pytest.raises(Corrupt) as caught:
        Ledger.open(full)
    assert caught.value.hint


def test_a_last_record_that_was_moved_under_a_running_program_is_noticed(full: Path) -> None:
    running = Ledger.open(full)
    tamper(full, "UPDATE record SET id = 7 WHERE id = 6")
    with pytest.raises(Corrupt, match="do not follow"):
        running.spent()


def test_dropped_triggers_are_noticed(full: Path) -> None:
    connection = sqlite3.connect(full)
    connection.execute("DROP TRIGGER record_stays")
    connection.close()
    with pytest.raises(Corrupt):
        Ledger.open(full)


def forge(path: Path, kind: str, **terms: object) -> None:
    """Append a record with a right hash, as a faulty writer would."""
    log = ledger_log.LedgerLog(path, lambda record: None)
    with log.writing() as transaction:
        transaction.append(kind, **terms)  # type: ignore[arg-type]


GOOD = {"label": "x", "epsilon": Fraction(1), "delta": Fraction(0)}
GOOD_LOAD = GOOD | {"partition": ("t day", "a")}


def test_a_right_record_is_no_forgery(full: Path) -> None:
    forge(full, "spend", **GOOD)
    forge(full, "draw", spend=6)
    forge(full, "settle", spend=2)
    forge(full, "load", **GOOD_LOAD)
    forge(full, "load of new rows", **GOOD_LOAD | {"epsilon": Fraction(0)})
    forge(full, "content", label="rows terms", partition=("t", "a"))
    states = [entry.state for entry in Ledger.open(full).entries()]
    assert states == ["drawn", "cancelled", "drawn", "open", "open", "open"]
    assert Ledger.open(full).contents("t") == {"a": Content("rows", "terms")}
    assert Ledger.open(full).unsettled() == ()


@pytest.mark.parametrize(
    ("kind", "terms"),
    [
        ("draw", {"spend": 2}),
        ("cancel", {"spend": 2}),
        ("draw", {"spend": 4}),
        ("draw", {"spend": 1}),
        ("cancel", {"spend": 3}),
        ("draw", {"spend": 99}),
        ("draw", {}),
        ("draw", {"spend": 6, "rows_per_user": 1.5}),
        ("limit", {"epsilon": Fraction(9)}),
        ("refund", {"spend": 6}),
        ("settle", {"spend": 1}),
        ("settle", {"spend": 4}),
        ("settle", {"spend": 6}),
        ("settle", {"spend": 99}),
        ("spend", GOOD | {"epsilon": Fraction(-1)}),
        ("spend", GOOD | {"epsilon": Fraction(0)}),
        ("spend", GOOD | {"delta": Fraction(-1)}),
        ("spend", GOOD | {"rows_per_user": 0}),
        ("spend", GOOD | {"rows_per_user": 1.5}),
        ("spend", GOOD | {"label": ""}),
        ("spend", GOOD | {"partition": ("a", None)}),
        ("load", GOOD),
        ("load of new rows", GOOD),
        ("load", GOOD_LOAD | {"epsilon": Fraction(-1)}),
        ("load", GOOD_LOAD | {"epsilon": Fraction(-1, 2)}),
        ("load", GOOD_LOAD | {"delta": Fraction(1)}),
        ("leave", {"spend": 2}),
        ("leave", {"spend": 6}),
        ("leave", {"spend": 99}),
        ("content", {"label": "rows terms"}),
        ("content", {"label": "rows", "partition": ("t", "a")}),
        ("content", {"label": "rows and terms", "partition": ("t", "a")}),
        ("contents", {"label": "rows terms", "partition": ("t", "a")}),
    ],
)
def test_records_that_cannot_follow_are_corrupt(full: Path, kind: str, terms: dict[str, object]) -> None:
    forge(full, kind, **terms)
    with pytest.raises(Corrupt):
        Ledger.open(full)


@pytest.mark.parametrize("kind", ["settle", "draw", "cancel", "refund"])
def test_what_was_settled_leaves_the_table_by_a_record_of_that_alone(full: Path, kind: str) -> None:
    forge(full, "settle", spend=2)
    forge(full, "leave", spend=2)
    forge(full, "settle", spend=2)
    assert Ledger.open(full).unsettled() == ()
    forge(full, kind, spend=2)
    with pytest.raises(Corrupt):
        Ledger.open(full)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [("0", "0"), ("-1", "0"), ("1", "-1/2"), ("1", "-1"), ("1", "1"), ("1", "3/2")],
)
def test_limits_that_cannot_be_are_corrupt(path: Path, epsilon: str, delta: str) -> None:
    ledger_log.create(path, Fraction(epsilon), Fraction(delta))
    with pytest.raises(Corrupt):
        Ledger.open(path)


def begin_with(path: Path, kind: str) -> None:
    """A ledger with one record, of that kind and with a right hash."""
    ledger_log.create(path, Fraction(1), Fraction(0))
    ((number, _, time, _, *amounts, _, _, spend, _),) = records(path)
    digest = ledger_log._digest(bytes(32), (number, kind, time, "x y", *amounts, "t day", "a", spend))
    terms = f"kind = '{kind}', label = 'x y', partition_group = 't day', partition_part = 'a'"
    tamper(path, f"UPDATE record SET {terms}, hash = x'{digest.hex()}'")  # noqa: S608


@pytest.mark.parametrize("kind", ["spend", "load", "load of new rows"])
def test_a_ledger_that_does_not_begin_with_its_limit_is_corrupt(path: Path, kind: str) -> None:
    begin_with(path, kind)
    with pytest.raises(Corrupt, match="record 1 cannot follow"):
        Ledger.open(path)


def test_it_is_not_the_detour_that_was_corrupt(path: Path) -> None:
    begin_with(path, "limit")
    assert Ledger.open(path).limit == 1


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("time", "'yesterday'"),
        ("time", "'2026-01-02 03:04:05+00:00'"),
        ("time", "7"),
        ("epsilon", "'1'"),
        ("epsilon", "'2/6'"),
        ("delta", "'0.0'"),
        ("partition_part", "'a'"),
    ],
)
def test_a_record_in_another_form_is_corrupt_even_under_a_right_hash(full: Path, column: str, value: str) -> None:
    tamper(full, f"UPDATE record SET {column} = {value} WHERE id = 6")  # noqa: S608
    *_, (*_, previous), (*last, _) = records(full)
    digest = ledger_log._digest(previous, tuple(last))
    tamper(full, f"UPDATE record SET hash = x'{digest.hex()}' WHERE id = 6")  # noqa: S608
    with pytest.raises(Corrupt, match="do not follow"):
        Ledger.open(full)


def test_names_that_are_no_text_are_corrupt(full: Path) -> None:
    content = full.read_bytes()
    assert content.count(b"triggerrecord_stays") == 1
    full.write_bytes(content.replace(b"triggerrecord_stays", b"trigger\xffecord_stays"))
    with pytest.raises(Corrupt):
        Ledger.open(full)


def test_a_gap_is_corrupt_even_under_right_hashes(full: Path) -> None:
    connection = sqlite3.connect(full)
    *_, before, (_, *rest, _) = connection.execute("SELECT * FROM record ORDER BY id").fetchall()
    connection.close()
    digest = ledger_log._digest(before[-1], (7, *rest))
    tamper(
        full,
        f"UPDATE record SET id = 7, hash = x'{digest.hex()}' WHERE id = 6",  # noqa: S608
        "UPDATE sqlite_sequence SET seq = 6",
    )
    with pytest.raises(Corrupt):
        Ledger.open(full)


def test_a_truncated_ledger_is_corrupt(full: Path) -> None:
    content = full.read_bytes()
    for length in [0, 1, 15, 16, 50, 99, 100, *range(512, len(content), 512), len(content) - 1]:
        full.write_bytes(content[:length])
        with pytest.raises(Corrupt):
            Ledger.open(full)
        with pytest.raises(Corrupt):  # in particular, an emptied ledger does not begin anew
            Ledger.open(full, limit=5)


def test_other_files_are_corrupt(path: Path) -> None:
    for content in (b"x", b"not a ledger" * 1000, bytes(5000), b"SQLite format 3\0" + bytes(5000)):
        path.write_bytes(content)
        with pytest.raises(Corrupt):
            Ledger.open(path, limit=1)
        assert path.read_bytes() == content


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_another_database_is_corrupt_and_left_alone(path: Path, journal: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.execute("CREATE TABLE record (id INTEGER)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(Corrupt, match="is not a Scumble ledger"):
        Ledger.open(path, limit=1)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("version", "error"), [(3, NewerVersion), (0, Corrupt), (-1, Corrupt)])
def test_versions(full: Path, version: int, error: type[FileError]) -> None:
    running = Ledger.open(full)
    connection = sqlite3.connect(full)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with pytest.raises(error) as caught:
        Ledger.open(full)
    assert caught.value.hint
    with pytest.raises(error):
        running.spend(1, "x")


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        *((kind, 1) for kind in ("spend", "draw", "cancel", "settle")),
        *((kind, 2) for kind in ("load", "load of new rows", "content", "leave")),
    ],
)
def test_release_0_1_reads_on_until_a_record_comes_that_it_does_not_know(full: Path, kind: str, version: int) -> None:
    with closing(sqlite3.connect(full)) as connection:
        connection.execute("PRAGMA user_version = 1")
    forge(full, kind)
    with closing(sqlite3.connect(full)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (version,)


def test_any_flipped_byte_is_noticed_or_changes_nothing(full: Path) -> None:
    content = full.read_bytes()
    entries = Ledger.open(full).entries()
    noticed = 0
    for position in [*range(100), *range(100, len(content), 37)]:
        flipped = bytearray(content)
        flipped[position] ^= 0x41
        full.write_bytes(flipped)
        try:
            ledger = Ledger.open(full)
        except FileError:
            noticed += 1
        else:
            assert (ledger.entries(), ledger.limit, ledger.delta_limit) == (
                entries,
                Fraction(5),
                Fraction(1, 10),
            )
        for left_over in full.parent.glob(full.name + "-*"):
            left_over.unlink()
    assert noticed > 40
