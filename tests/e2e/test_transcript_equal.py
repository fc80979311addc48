"""What the provider sees is the same for two tables that differ in everything secret, if their indexes are the same.

To have the same indexes, the second table gets those that the first one was given. With indexes of its own, everything
that no index has a part in is still the same, byte for byte.
"""
# ruff: noqa: S608  the SQL is the test's own

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from databases import events
from e2e_queries import random_query
from e2e_tables import Col, RandomTable, random_rows, random_table
from e2e_writer import Query

from scumble import opening
from scumble.enclave import loads, placing
from scumble.enclave import queries as execute
from scumble.enclave.pages import keep_tally
from scumble.enclave.rows import Rows
from scumble.errors import QueryError
from scumble.index.file import IndexModel
from scumble.store.transcript import Event, comparable
from scumble.wire.requests import Execution
from scumble.wire.storage import Storage

CAPACITY = 1500
PAGE_ROWS = 32
QUERIES = 30
QUICK = [(0, True), (1, False)]  # a seed with as many rows in each table, and one with other numbers of them
Transcripts = list[tuple[int, str, int, tuple[tuple[str, int | str], ...]]]


@pytest.fixture
def shared_indexes(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the first load on, keep the indexes; call it, and the next loads are given the same again."""
    kept: list[IndexModel] = []
    replayed: list[IndexModel] = []
    kept_tallies: list[bytes] = []
    replayed_tallies: list[bytes] = []
    place = placing.placed

    def placed(index: IndexModel, *more: Any, **options: Any) -> Any:
        if not replayed:
            kept.append(index)
        return place(replayed.pop(0) if replayed else index, *more, **options)

    def keep(storage: Any, keys: Any, tally: bytes) -> Any:  # as long as what was released in it
        if not replayed_tallies:
            kept_tallies.append(tally)
        return keep_tally(storage, keys, replayed_tallies.pop(0) if replayed_tallies else tally)

    def replay() -> None:
        replayed.extend(kept)
        replayed_tallies.extend(kept_tallies)

    monkeypatch.setattr(loads, "placed", placed)
    monkeypatch.setattr(loads, "keep_tally", keep)
    return replay


def tables_of(rng: Random, *, equal_count: bool) -> tuple[RandomTable, list[RandomTable]]:
    """Columns, and tables of them: one with many values, one with other rows, one with all rows alike, an empty one."""
    shape = random_table(rng, "t", 0)
    counts = [700] * 4 if equal_count else [1400, 7, 101, 0]
    made = []
    for number, rows in enumerate(counts):
        columns = list(shape.columns)
        table = random_rows(rng, columns, rows)
        if number == 2 and rows:
            table = table.take([0] * rows)
        made.append(RandomTable("t", columns, [table], PAGE_ROWS, [CAPACITY]))
    return made[0], made


def seen(
    folder: Path, batches: list[RandomTable], queries: list[Query], tolerated: type[Exception] = QueryError
) -> list[Event]:
    """All that the provider sees of loading tables into a new database and of some queries."""
    folder.mkdir()
    with opening.create(folder / "db", limit=100_000, delta_limit="0.01") as db:
        for table in batches:
            (rows,) = table.batches
            db.load("t", rows, indexes=table.indexes, types=table.types, page_rows=PAGE_ROWS, capacity=CAPACITY)
        for query in queries:
            with suppress(tolerated):  # for one table's rows a cast may fail at the owner, and not for the other's
                db.sql(query.sql, query.params).arrow()
        found = events(db)
    assert found[0].number == 1
    return found


def first_difference(one: list[Any], two: list[Any]) -> str | None:
    for left, right in zip(one, two, strict=False):
        if left != right:
            return f"{left} and {right}"
    return None if len(one) == len(two) else f"{len(one)} and {len(two)} events"


@pytest.mark.parametrize(
    ("seed", "equal_count"),
    [pytest.param(*each, marks=[pytest.mark.slow] * (each not in QUICK)) for each in product(range(8), (True, False))],
)
def test_transcripts_of_different_rows_are_equal(
    tmp_path: Path, shared_indexes: Callable[[], None], seed: int, equal_count: bool
) -> None:
    rng = Random(seed)  # noqa: S311
    first, tables = tables_of(rng, equal_count=equal_count)
    queries = [random_query(rng, [first]) for _ in range(QUERIES)]
    one = comparable(seen(tmp_path / "0", [first], queries))
    assert sum(kind == "read" for _, kind, _, _ in one) > QUERIES
    for number, table in enumerate(tables[1:], 1):
        shared_indexes()
        two = comparable(seen(tmp_path / str(number), [table], queries))
        assert first_difference(one, two) is None


def test_transcripts_of_several_loads_are_equal(tmp_path: Path, shared_indexes: Callable[[], None]) -> None:
    rng = Random(5)  # noqa: S311
    first, tables = tables_of(rng, equal_count=False)
    queries = [random_query(rng, [first]) for _ in range(QUERIES)]
    one = comparable(seen(tmp_path / "0", [tables[0], tables[1], tables[2]], queries))
    shared_indexes()
    two = comparable(seen(tmp_path / "1", [tables[3], tables[0], tables[1]], queries))
    assert first_difference(one, two) is None


def test_transcripts_of_an_external_sort_are_equal(
    tmp_path: Path, shared_indexes: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(storage: Storage, words: int, chunk_rows: int, *name: str) -> Rows:
        return Rows(storage, words, 4 * PAGE_ROWS, *name)

    monkeypatch.setattr("scumble.enclave.loads.Rows", small)
    rng = Random(6)  # noqa: S311
    while not (pair := tables_of(rng, equal_count=False))[0].indexes:
        pass
    first, tables = pair
    one = comparable(seen(tmp_path / "0", [first], []))
    assert any(kind == "read_scratch" for _, kind, _, _ in one)
    for number, table in enumerate(tables[1:], 1):
        shared_indexes()
        assert first_difference(one, comparable(seen(tmp_path / str(number), [table], []))) is None


# --- with noise of their own ---------------------------------------------------------------------------

CATALOGS = ("head", "manifest", "commit")


def without_indexes(seen: list[Event]) -> Transcripts:
    """Leave out what an index has a part in: the catalog's own size, and answers that hold it."""
    inside = {event.exchange for event in seen if event.kind in CATALOGS}
    kept = [event for event in seen if event.kind not in CATALOGS]
    return comparable(event for event in kept if not (event.kind == "answer" and event.exchange in inside))


def test_with_noise_of_their_own_only_the_index_differs(tmp_path: Path) -> None:
    """Queries that no index serves read the same pages and get answers of the same size."""
    rng = Random(7)  # noqa: S311
    while not (pair := tables_of(rng, equal_count=False))[0].indexes:
        pass
    first, tables = pair
    free = [column.sql for column in first.columns if not column.index]
    queries = [Query(f"SELECT {name}, count(*) FROM t GROUP BY ALL") for name in free]
    queries += [Query(f"SELECT count(*), min({name}), max({name}) FROM t WHERE {name} IS NOT NULL") for name in free]
    queries += [Query("SELECT * FROM t"), Query("SELECT count(*) FROM t")]
    one = without_indexes(seen(tmp_path / "0", [first], queries))
    for number, table in enumerate(tables[1:], 1):
        two = without_indexes(seen(tmp_path / str(number), [table], queries))
        assert first_difference(one, two) is None


# --- that these tests can fail -------------------------------------------------------------------------


def planted(folder: Path) -> str | None:
    """The first difference between the transcripts of two tables, only one of which has what is asked for."""
    queries = [Query("SELECT b FROM t WHERE a = 7"), Query("SELECT sum(b), max(c) FROM t WHERE a = ?", [7])]
    column = Col("a", "integer", pa.int64(), False, [7, 8])
    others = [Col(name, "integer", pa.int64(), False, [1]) for name in "bc"]
    rng = Random(8)  # noqa: S311
    tables = [random_rows(rng, [replace(column, pool=pool), *others], 300) for pool in ([7, 8], [8])]
    one, two = (
        comparable(
            seen(
                folder / str(number),
                [RandomTable("t", [column, *others], [rows], PAGE_ROWS, [CAPACITY])],
                queries,
                Exception,
            )
        )
        for number, rows in enumerate(tables)
    )
    return first_difference(one, two)


def test_without_a_defect_there_is_no_difference(tmp_path: Path) -> None:
    assert planted(tmp_path) is None


def test_an_execution_that_stops_at_a_match_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = execute._batches

    def hasty(plan: execute.CompiledPlan, execution: Execution, reader: execute.Reader) -> Iterator[Any]:
        for batch in batches(plan, execution, reader):
            yield batch
            if batch.mask.any():
                return

    for name in ("sound", "hasty"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(execute, "BATCH_BYTES", 1)  # a page at a time
    assert planted(tmp_path / "sound") is None
    monkeypatch.setattr(execute, "_batches", hasty)
    assert planted(tmp_path / "hasty") is not None


def test_an_answer_without_blank_rows_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blanked = execute._blanked_rows

    def shortened(*given: Any) -> bytes:
        answer = blanked(*given)
        return answer[: int(np.count_nonzero(np.frombuffer(answer, np.uint8)))]

    monkeypatch.setattr(execute, "_blanked_rows", shortened)
    assert planted(tmp_path) is not None
