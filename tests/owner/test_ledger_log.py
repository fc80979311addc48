"""The ledger's file: records are only ever appended, and whatever was altered is noticed."""

import sqlite3
from fractions import Fraction
from pathlib import Path

import pytest

from scumble.errors import Corrupt, FileError, NewerVersion
from scumble.owner import ledger_log
from scumble.owner.ledger import Ledger


@pytest.fixture
def full(path: Path) -> Path:
    """A ledger with records 1 limit, 2 spend, 3 draw, 4 spend, 5 cancel, 6 spend."""
    ledger = Ledger.open(path, limit=5, delta_limit="0.1")
    ledger.spend(1, "salary", partition=("day", "a")).draw()
    ledger.spend(2, "age", delta="0.01").cancel()
    ledger.spend("1/3", "name", rows_per_user=2)
    return path


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


def test_a_right_record_is_no_forgery(full: Path) -> None:
    forge(full, "spend", **GOOD)
    forge(full, "draw", spend=6)
    forge(full, "settle", spend=2)
    assert [entry.state for entry in Ledger.open(full).entries()] == ["drawn", "cancelled", "drawn", "open"]
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
    ],
)
def test_records_that_cannot_follow_are_corrupt(full: Path, kind: str, terms: dict[str, object]) -> None:
    forge(full, kind, **terms)
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
