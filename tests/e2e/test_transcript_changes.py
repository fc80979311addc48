"""What the provider sees of neighbouring histories is the same: one row more, one match more, no match at all.

The indexes are the same in both, as in `test_transcript_equal`; everything that a change adds has to be equal, byte for
byte: what is read and sealed, the sizes of requests, answers and manifests.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from databases import events
from test_transcript_equal import first_difference, shared_indexes

import histories
from scumble import opening
from scumble.enclave import changes
from scumble.errors import BadRows
from scumble.owner.database import Database
from scumble.store.transcript import comparable

__all__ = ["shared_indexes"]

Step = str | tuple[str, list[Any]]
Seen = list[Any]


def _seen(folder: Path, rows: list[tuple[Any, ...]], steps: list[Step]) -> Seen:
    """All that the provider sees of loading rows, and of the statements after that."""
    folder.mkdir()
    with opening.create(folder / "db", limit=100) as db:
        found = histories.table(rows)
        db.load("t", found, indexes=histories.INDEXES, types=histories.TYPES, capacity=400, page_rows=64)
        for step in steps:
            sql, params = (step, []) if isinstance(step, str) else step
            _do(db, sql, params)
        return comparable(events(db))


def _do(db: Database, sql: str, params: list[Any]) -> None:
    done = db.execute(sql, params)
    if sql.startswith("SELECT"):
        done.arrow()  # type: ignore[union-attr]


ROWS = histories.rows(Random(3), 300)  # noqa: S311
OTHER = [(7, "2020-06-01", "1.00", "a", "x", True)]
AFTER: list[Step] = [
    "UPDATE t SET note = 'after' WHERE id BETWEEN 50 AND 60",
    "SELECT count(*), sum(amount) FROM t WHERE id < 100",
    "DELETE FROM t WHERE day = '2020-06-01'",
    "SELECT * FROM t WHERE day BETWEEN '2020-05-01' AND '2020-07-01'",
    "UPDATE t SET id = id + 1 WHERE id = 20",
    "SELECT count(*) FROM t",
]
PAIRS: dict[str, tuple[list[Step], list[Step]]] = {
    "a row more is inserted": (
        [("INSERT INTO t (id) SELECT unnest(?)", [[1, 2]])],
        [("INSERT INTO t (id) SELECT unnest(?)", [[1, 2, 3]])],
    ),
    "a delete of none, and of all": (
        ["UPDATE t SET kind = 'a'", "DELETE FROM t WHERE kind = 'b'"],
        ["UPDATE t SET kind = 'b'", "DELETE FROM t WHERE kind = 'b'"],
    ),
    "an update of none, and of all": (
        ["UPDATE t SET kind = 'a'", "UPDATE t SET amount = 1 WHERE kind = 'b'"],
        ["UPDATE t SET kind = 'b'", "UPDATE t SET amount = 1 WHERE kind = 'b'"],
    ),
    "a move of none, and of all": (
        ["UPDATE t SET kind = 'a'", "UPDATE t SET id = 5 WHERE kind = 'b'"],
        ["UPDATE t SET kind = 'b'", "UPDATE t SET id = 5 WHERE kind = 'b'"],
    ),
    "null, and a value": (["UPDATE t SET note = NULL WHERE id < 50"], ["UPDATE t SET note = 'x' WHERE id < 50"]),
    "keys that are there, and that are not": (
        ["UPDATE t SET kind = 'a'", "UPDATE t SET note = v.b FROM (VALUES ('a', 'n')) v(a, b) WHERE t.kind = v.a"],
        ["UPDATE t SET kind = 'b'", "UPDATE t SET note = v.b FROM (VALUES ('a', 'n')) v(a, b) WHERE t.kind = v.a"],
    ),
    "a transaction that is rolled back, of none and of all": (
        ["UPDATE t SET kind = 'a'", "BEGIN", "DELETE FROM t WHERE kind = 'b'", "ROLLBACK"],
        ["UPDATE t SET kind = 'b'", "BEGIN", "DELETE FROM t WHERE kind = 'b'", "ROLLBACK"],
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_neighbouring_statements_look_alike(tmp_path: Path, shared_indexes: Callable[[], None], name: str) -> None:
    first, second = PAIRS[name]
    one = _seen(tmp_path / "0", ROWS, [*first, *AFTER])
    shared_indexes()
    two = _seen(tmp_path / "1", ROWS, [*second, *AFTER])
    assert sum(kind == "write" for _, kind, _, _ in one) > len(AFTER)
    assert first_difference(one, two) is None


@pytest.mark.parametrize("more", [OTHER, OTHER * 5, []])
def test_the_same_statements_over_other_rows_look_alike(
    tmp_path: Path, shared_indexes: Callable[[], None], more: list[Any]
) -> None:
    """A row more in the table is a match more for every statement that follows; no rows at all, for none."""
    statements: list[Step] = [
        "UPDATE t SET note = 'm', amount = amount + 1 WHERE id = 7",
        "UPDATE t SET id = 8 WHERE id = 7 AND note = 'm'",
        "INSERT INTO t (id, note) VALUES (7, 'u') ON CONFLICT (id) DO UPDATE SET note = excluded.note",
        "UPDATE t SET note = v.b FROM (VALUES (7, 'k'), (8, 'l')) v(a, b) WHERE t.id = v.a",
        "DELETE FROM t WHERE id IN (7, 8)",
        "UPDATE t SET flag = NULL WHERE kind = 'a'",
        *AFTER,
    ]
    one = _seen(tmp_path / "0", ROWS, statements)
    shared_indexes()
    two = _seen(tmp_path / "1", [*ROWS, *more] if more else [], statements)
    assert first_difference(one, two) is None


def test_a_refusal_is_the_one_thing_that_shows(tmp_path: Path, shared_indexes: Callable[[], None]) -> None:
    """Up to it nothing does: the pages are read and sealed, and only then it is told whether all values fit."""
    change = "UPDATE t SET amount = amount * 100000"

    def seen(folder: Path, rows: list[Any]) -> tuple[Seen, bool]:
        folder.mkdir()
        with opening.create(folder / "db", limit=100) as db:
            found = histories.table(rows)
            db.load("t", found, indexes=histories.INDEXES, types=histories.TYPES, capacity=400, page_rows=64)
            refused = True
            with suppress(BadRows):
                db.execute(change)
                refused = False
            return comparable(events(db)), refused

    small = [(row[0], row[1], "1.00", *row[3:]) for row in ROWS]
    one, fits = seen(tmp_path / "0", small)
    shared_indexes()
    two, refused = seen(tmp_path / "1", [*small[:-1], (*small[-1][:2], "9999999.00", *small[-1][3:])])
    assert (fits, refused) == (False, True)
    sealed = [max(place for place, event in enumerate(each) if event[1] == "finish_run") for each in (one, two)]
    assert sealed[0] == sealed[1]
    assert one[: sealed[0] + 2] == two[: sealed[0] + 2]
    assert one != two


# --- that these tests can fail -------------------------------------------------------------------------


def test_a_delete_that_skips_pages_without_matches_is_noticed(
    tmp_path: Path, shared_indexes: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten = changes._Work.rewritten

    def hasty(self: Any, run: Any, pages: Any, scan: int) -> Any:
        made = rewritten(self, run, pages, scan)
        return made if self._counts[scan].any() else run

    monkeypatch.setattr(changes._Work, "rewritten", hasty)
    first, second = PAIRS["a delete of none, and of all"]
    one = _seen(tmp_path / "0", ROWS, [*first, *AFTER])
    shared_indexes()
    two = _seen(tmp_path / "1", ROWS, [*second, *AFTER])
    assert first_difference(one, two) is not None


def test_an_insert_that_takes_room_for_its_rows_alone_is_noticed(
    tmp_path: Path, shared_indexes: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scumble.owner.inserting.units", lambda rows: max(1, rows) * 256)
    first, second = PAIRS["a row more is inserted"]
    one = _seen(tmp_path / "0", ROWS, [*first, *AFTER])
    shared_indexes()
    two = _seen(tmp_path / "1", ROWS, [*second, *AFTER])
    assert first_difference(one, two) is not None
