"""EXPLAIN of changes: what it says is read and sealed is what the provider then sees, and it changes nothing itself."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from databases import copy, events

import histories
import scumble
from scumble.errors import QueryError
from scumble.owner.database import Database
from scumble.sql import ChangeExplanation


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("origin")
    found = histories.table(histories.rows(Random(1), 300))  # noqa: S311
    with scumble.create(home / "db", limit=100) as made:
        made.load("t", found, indexes=histories.INDEXES, types=histories.TYPES, capacity=300, page_rows=16)
    return home


@pytest.fixture
def db(origin: Path, tmp_path: Path) -> Iterator[Database]:
    """A copy of the same database for each test."""
    copy(origin, tmp_path / "home")
    with scumble.open(tmp_path / "home" / "db") as opened:
        yield opened


def explained(db: Database, sql: str, *, capacity: int | None = None) -> ChangeExplanation:
    """What it says, after checking that it has done nothing."""
    before, version = len(events(db)), db.version
    found = db.explain(sql, capacity=capacity)
    assert isinstance(found, ChangeExplanation)
    assert db.version == version
    assert not [event for event in events(db)[before:] if event.kind in ("read", "write", "create_run", "commit")]
    assert json.loads(json.dumps(found.to_json()))["epsilon_charged"] == 0
    assert "epsilon charged: 0" in str(found)
    return found


STATEMENTS = [
    "UPDATE t SET note = 'x' WHERE id BETWEEN 100 AND 120",
    "UPDATE t SET amount = amount + 1, note = NULL",
    "UPDATE t SET flag = TRUE WHERE day = '2020-05-05' AND id < 30",
    "UPDATE t SET amount = amount WHERE kind = 'b'",
    "UPDATE t SET id = id + 1 WHERE id = 3",
    "UPDATE t SET day = '2020-01-02' WHERE amount < 0",
    "DELETE FROM t WHERE day = '2020-05-05'",
    "DELETE FROM t WHERE id > 9000",
    "DELETE FROM t",
    "DELETE FROM t WHERE FALSE",
    "UPDATE t SET note = v.b FROM (VALUES (1, 'a'), (2, 'b'), (3, 'c')) v(a, b) WHERE t.id = v.a",
    "INSERT INTO t (id) VALUES (1), (2)",
    "INSERT INTO t (id) SELECT range FROM range(300)",
    "INSERT INTO t (id, note) VALUES (1, 'a'), (9, 'b') ON CONFLICT (id) DO UPDATE SET note = excluded.note",
]


@pytest.mark.parametrize("after", [[], ["INSERT INTO t (id) VALUES (5)", "DELETE FROM t WHERE id = 7"]])
@pytest.mark.parametrize("sql", STATEMENTS)
def test_what_is_read_and_sealed_is_what_was_explained(db: Database, sql: str, after: list[str]) -> None:
    for statement in after:
        db.execute(statement)
    found = explained(db, sql)
    layers = {layer.id: run.id for run in db.table("t").runs for layer in run.layers}
    before = events(db)[-1].number
    db.execute(sql)
    seen = [event for event in events(db) if event.number > before]
    read = [event for event in seen if event.kind == "read"]
    runs = {run.run for step in found.steps for run in step.runs if step.columns_read}
    assert runs <= {layers.get(str(event["run"]), str(event["run"])) for event in read}
    assert sum(int(event["bytes"]) for event in read) == sum(step.bytes_read for step in found.steps)
    written = sum(int(event["bytes"]) for event in seen if event.kind == "write")
    room = found.insert.tail_bytes if found.insert else 0
    assert written == sum(step.bytes_sealed for step in found.steps) + room


def test_indexes_narrow_down_their_own_copies(db: Database) -> None:
    found = explained(db, "UPDATE t SET note = 'x' WHERE id BETWEEN 100 AND 120")
    (step,) = found.steps
    by = {run.sorted_by: run for run in step.runs}
    assert found.indexes == ["id"]
    assert by["id"].index == "id"
    assert sum(count for _, count in by["id"].pages) < by["id"].of_pages
    assert by["day"].index is None
    assert by["day"].pages == [(0, by["day"].of_pages)]
    assert (step.does, step.columns_read, step.columns_sealed) == ("rewrites", ["id", "note"], ["note"])
    assert found.beta == 1e-9
    text = str(found)
    for part in ("narrowed down by id", "seals note anew", "never how many rows matched"):
        assert part in text


@pytest.mark.parametrize(
    ("sets", "may_be"),
    [("note = 'x'", False), ("note = NULL", False), ("amount = amount", False), ("amount = amount + 1", True)],
)
def test_a_change_may_be_refused_only_where_a_row_decides(db: Database, sets: str, may_be: bool) -> None:
    found = explained(db, f"UPDATE t SET {sets} WHERE id < 50")  # noqa: S608
    assert found.may_be_refused is may_be
    assert ("refused since a value" in str(found)) is may_be


def test_a_column_with_an_index_goes_to_the_tail(db: Database) -> None:
    found = explained(db, "UPDATE t SET id = id + 1 WHERE id = 3")
    assert [step.does for step in found.steps] == ["copies", "deletes"]
    room = found.steps[0].tail_rows
    before = db.table("t").capacity
    db.execute("UPDATE t SET id = id + 1 WHERE id = 3")
    assert db.table("t").capacity == before + room


def test_the_room_of_an_insert_is_padded_and_public(db: Database) -> None:
    def room(sql: str, capacity: int | None = None) -> int:
        found = explained(db, sql, capacity=capacity)
        assert found.insert is not None
        return found.insert.tail_rows

    values = "INSERT INTO t (id) VALUES (1)"
    assert room(values) == room("INSERT INTO t (id) SELECT range FROM range(256)") == 256
    assert room("INSERT INTO t (id) SELECT range FROM range(257)") == 512
    assert room(values, capacity=1000) == 1024
    assert room("INSERT INTO t SELECT * FROM t WHERE kind = 'a' LIMIT 300") == 512
    read = explained(db, "INSERT INTO t SELECT * FROM t WHERE id < 10")
    assert read.tables[0].indexes == ["id"]
    assert "its rows come from a query" in str(read)
    assert "the provider sees: a change of t; room for" in str(read)


def test_the_row_count_is_in_no_explanation(db: Database) -> None:
    """The same statement, before and after it has matched: what it says follows from the catalog alone."""
    one = explained(db, "UPDATE t SET note = 'x' WHERE kind = 'a'")
    db.execute("DELETE FROM t WHERE FALSE")
    two = explained(db, "UPDATE t SET note = 'x' WHERE kind = 'a'")
    db.execute("DELETE FROM t WHERE kind = 'a'")
    three = explained(db, "UPDATE t SET note = 'x' WHERE kind = 'a'")
    assert [step.bytes_sealed for step in one.steps] == [step.bytes_sealed for step in two.steps]
    assert [step.pages_read for step in one.steps] == [step.pages_read for step in three.steps]


def test_rows_of_a_query_are_no_keys(db: Database) -> None:
    """How many keys there are would show in the plan: so an upsert takes no rows of a table."""
    for sql in (
        "INSERT INTO t (id, note) SELECT id, note FROM t ON CONFLICT (id) DO UPDATE SET note = excluded.note",
        "INSERT INTO t (id, note) SELECT id, note FROM t ON CONFLICT (id) DO NOTHING",
        "UPDATE t SET note = u.note FROM t u WHERE t.id = u.id",
    ):
        for work in (db.explain, db.execute):
            with pytest.raises(QueryError, match="would show in what the enclave is asked"):
                work(sql)


def test_what_cannot_be_explained_is_refused(db: Database) -> None:
    with pytest.raises(QueryError, match="there is no column"):
        db.explain("UPDATE t SET nothing = 1")
    with pytest.raises(QueryError, match="EXPLAIN is for"):
        db.explain("BEGIN")
