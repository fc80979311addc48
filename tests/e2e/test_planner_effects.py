"""What the planner saves: pages read by a query, against a full scan, in the transcript and in EXPLAIN."""
# ruff: noqa: S608  the SQL is the test's own

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from databases import events
from e2e_answers import Plain, unlike

from scumble import opening
from scumble.owner.database import Database
from scumble.store.transcript import Event

ROWS = 4000
WORDS = ["alder", "ash", "beech", "birch", "cedar", "elm", "fir", "larch", "maple", "oak", "pine", "rowan", "yew"]
Loaded = tuple[Database, Plain]
Pages = list[tuple[str, int, int]]


def rows(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    tree = [WORDS[n] for n in rng.integers(0, len(WORDS), ROWS)]
    nullable = rng.integers(0, 5000, ROWS).astype(object)
    nullable[rng.random(ROWS) < 0.1] = None
    return pa.table(
        {
            "id": pa.array(np.arange(ROWS) + seed * ROWS),
            "a": pa.array(rng.integers(0, 5000, ROWS)),
            "b": pa.array(nullable.tolist(), pa.int64()),
            "tree": pa.array(tree),
            "free": pa.array(rng.integers(0, 5000, ROWS)),
        }
    )


@pytest.fixture(scope="module", params=[1, 2], ids=["one run", "two runs"])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    batches = [rows(seed) for seed in range(request.param)]
    splits = "[" + ",".join(f'"{word}"' for word in WORDS) + "]"
    indexes = ["a int:0:4999", "b int:0:4999", f"tree string:{splits}"]
    with opening.create(tmp_path_factory.mktemp("planner") / "db", limit=1000) as db:
        for batch in batches:
            specs = [f"{index} epsilon=4 beta=1e-9" for index in indexes]
            db.load("t", batch, indexes=specs, capacity=ROWS + 50, page_rows=16)
        yield db, Plain({"t": pa.concat_tables(batches)})


def reads(db: Database, sql: str, params: list[Any]) -> tuple[pa.Table, list[Event]]:
    """The answer, and the page reads that the provider saw for it."""
    before = events(db)[-1].number
    answer = db.sql(sql, params).arrow()
    return answer, [event for event in events(db) if event.kind == "read" and event.number > before]


def pages(seen: list[Event]) -> Pages:
    """The ranges of pages of each run, joined where one begins at the other's end, each once for all columns."""
    by_column: dict[Any, Pages] = {}
    for event in seen:
        found = by_column.setdefault(event["column"], [])
        run, first, count = str(event["run"]), int(event["first_page"]), int(event["pages"])
        if found and found[-1][0] == run and found[-1][1] + found[-1][2] == first:
            found[-1] = (run, found[-1][1], found[-1][2] + count)
        else:
            found.append((run, first, count))
    columns = list(by_column.values())
    assert all(column == columns[0] for column in columns)
    return columns[0] if columns else []


# What the indexes narrow down, and which of them.
CONDITIONS: list[tuple[str, list[Any], set[str]]] = [
    ("a = 1234", [], {"a"}),
    ("a = ?", [1234], {"a"}),
    ("a BETWEEN 100 AND 200", [], {"a"}),
    ("a > 4900", [], {"a"}),
    ("a < 300 AND b < 3000", [], {"a"}),
    ("a < 3000 AND b BETWEEN 300 AND 400", [], {"b"}),
    ("a < ? AND b BETWEEN ? AND ?", [3000, 300, 400], {"b"}),
    ("a BETWEEN 300 AND 400 AND free > 2500", [], {"a"}),
    ("a = 17 OR b = 4000", [], {"a", "b"}),
    ("(a < 100 OR b < 100) AND free > 100", [], {"a", "b"}),
    ("a < 100 OR b BETWEEN 1000 AND 1100 OR tree LIKE 'yew%'", [], {"a", "b", "tree"}),
    ("a = 5 OR a = 4000", [], {"a"}),
    ("a IN (5, 2000, 4000)", [], {"a"}),
    ("a IN (?, ?)", [5, 4000], {"a"}),
    ("tree LIKE 'a%'", [], {"tree"}),
    ("tree LIKE 'as%' AND a < 4000", [], {"tree"}),
    ("tree = 'fir'", [], {"tree"}),
    ("NOT (a > 200)", [], {"a"}),
    ("NOT (a > 200 OR b < 100)", [], {"a"}),
    ("NOT (a BETWEEN 200 AND 4800)", [], {"a"}),
    ("NOT (a < 200 OR a > 400)", [], {"a"}),
    ("b IS NULL", [], {"b"}),
    ("b IS NOT NULL AND b < 100", [], {"b"}),
    ("a <> 7 AND a < 100", [], {"a"}),
    ("a <> 7 AND b = 8", [], {"b"}),
    ("a < 0", [], {"a"}),
    ("a > 100000", [], {"a"}),
    ("a > 50 AND a < 20", [], {"a"}),
    ("free = 7", [], set()),
    ("free BETWEEN ? AND ?", [1, 2], set()),
    ("a = 5 OR free = 7", [], set()),
    ("a + 1 = 6", [], set()),
    ("a = free", [], set()),
    ("NOT (a = 5 AND free = 7)", [], set()),
    ("tree LIKE '%h'", [], set()),
    ("TRUE", [], set()),
]


@pytest.mark.parametrize(("condition", "params", "indexes"), CONDITIONS)
@pytest.mark.parametrize("what", ["id", "count(*) AS n, sum(free) AS s"])
def test_the_pages_read_are_those_explained(
    loaded: Loaded, what: str, condition: str, params: list[Any], indexes: set[str]
) -> None:
    """Some of them where an index narrows the condition down, else all of them once."""
    db, plain = loaded
    sql = f"SELECT {what} FROM t WHERE {condition}"
    (table,) = db.explain(sql, params).tables
    answer, seen = reads(db, sql, params)
    assert unlike(answer, plain.answer(sql, params)) is None
    assert (table.pages_read < table.pages_of_full_scan) == bool(indexes)
    if table.scans:
        assert set(table.indexes) == indexes
    if not indexes:
        there = db.table("t")
        fewest = min(map(there.runs_by, there.attributes), key=lambda runs: sum(run.pages for run in runs))
        assert set(pages(seen)) == {(run.id, 0, run.pages) for run in fewest}
    assert pages(seen) == explained(table)
    assert sum(count for _, _, count in pages(seen)) == table.pages_read
    columns = {event["column"] for event in seen}
    assert len(columns) == (len(table.columns_read) if table.scans else 0)
    assert sum(int(event["bytes"]) for event in seen) == table.bytes_read


def explained(table: Any) -> Pages:
    return [(scan.run, first, count) for scan in table.scans for first, count in scan.pages]


@pytest.mark.parametrize(
    "condition", ["a < 2000 OR b < 100", "a < 100 OR b < 100 OR tree = 'elm'", "a = 3 OR b IS NULL"]
)
def test_a_union_gives_no_row_twice(loaded: Loaded, condition: str) -> None:
    db, plain = loaded
    found = [row[0] for row in db.sql(f"SELECT id FROM t WHERE {condition}").fetchall()]
    assert len(found) == len(set(found))
    assert sorted(found) == sorted(plain.answer(f"SELECT id FROM t WHERE {condition}")["id"].to_pylist())
    counted = db.sql(f"SELECT count(*) FROM t WHERE {condition}").fetchall()
    assert counted == [(len(found),)]


def test_narrower_ranges_read_less(loaded: Loaded) -> None:
    db, _ = loaded
    sizes = [len(pages_read(db, f"a BETWEEN 1000 AND {1000 + width}")) for width in (0, 1000, 3000)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[2]


def pages_read(db: Database, condition: str) -> list[int]:
    _, seen = reads(db, f"SELECT count(*) FROM t WHERE {condition}", [])
    return [first + place for _, first, count in pages(seen) for place in range(count)]


def test_a_point_query_reads_few_pages(loaded: Loaded) -> None:
    """The slack of these indexes is some dozen rows: a tenth of the table is ample."""
    db, _ = loaded
    (table,) = db.explain("SELECT count(*) FROM t WHERE a = 2500").tables
    assert table.pages_read <= table.pages_of_full_scan / 10


def test_several_tables_are_explained_each(loaded: Loaded) -> None:
    db, plain = loaded
    sql = "SELECT x.id, y.id AS other FROM t x JOIN t y ON x.free = y.free WHERE x.a < 50 AND y.b BETWEEN 7 AND 60"
    tables = db.explain(sql).tables
    answer, seen = reads(db, sql, [])
    assert unlike(answer, plain.answer(sql)) is None
    assert [table.indexes for table in tables] == [["a"], ["b"]]
    by_run: dict[str, set[int]] = {}
    for event in seen:
        first = int(event["first_page"])
        by_run.setdefault(str(event["run"]), set()).update(range(first, first + int(event["pages"])))
    expected: dict[str, set[int]] = {}
    for table in tables:
        for run, first, count in explained(table):
            expected.setdefault(run, set()).update(range(first, first + count))
    assert by_run == expected
