"""Tables whose indexes hold chosen columns: every answer is DuckDB's, whichever copy of the rows it comes from.

Each database has an index in padded blocks. A lookup loses a row with a probability of 1e-9 for each index and batch.
"""
# ruff: noqa: S608  the SQL is the test's own

import shutil
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from clinics import Clinic, clinic
from clinics import rows as clinic_rows
from databases import events
from e2e_answers import Plain, difference

import scumble
from scumble.errors import Exists, InvalidParameter, NotFound
from scumble.owner.database import Database
from scumble.owner.indexes import IndexSpec
from scumble.sql.plan import Path as PlannedPath
from scumble.store.backup import backup_to, restore_from
from scumble.store.files import FileStore
from scumble.store.transcript import comparable
from scumble.wire.catalog import Run
from serving import Serving

__all__ = ["clinic"]

NAMES = ("day", "ward", "amount", "note", "k", "odd, name")
TYPES = {"ward": 'category(["a","b","c"])', "note": "text(6)"}
TERMS = "epsilon=20 beta=1e-9"
NARROW = (
    f"day int:0:99 {TERMS} blocks=4 columns=WARD,amount",  # and its own, always
    f'k int:0:199 {TERMS} columns=k,day,"odd, name"',
    f"amount decimal:0:50:0.5 {TERMS} columns=amount",
)
INDEXES = {
    "all narrow": NARROW,
    "one whole": (NARROW[0], f"k int:0:199 {TERMS}", NARROW[2]),
    "one names all": (*NARROW[1:], f'day int:0:99 {TERMS} columns={",".join(NAMES[:5])},"odd, name"'),
}
PAGE_ROWS = 16


def rows(seed: int, count: int = 300) -> pa.Table:
    rng = Random(seed)  # noqa: S311
    return pa.table(
        {
            "day": pa.array([rng.randrange(100) for _ in range(count)], pa.int32()),
            "ward": [rng.choice(["a", "b", "c", None]) for _ in range(count)],
            "amount": pa.array([Decimal(rng.randrange(101)) / 2 for _ in range(count)], pa.decimal128(6, 2)),
            "note": [f"n{rng.randrange(40)}" for _ in range(count)],
            "k": pa.array(
                [rng.choice([None, rng.randrange(200), rng.randrange(200)]) for _ in range(count)], pa.int64()
            ),
            "odd, name": [rng.random() < 0.5 for _ in range(count)],
        },
        schema=pa.schema(
            [
                pa.field("day", pa.int32(), nullable=False),
                pa.field("ward", pa.string()),
                pa.field("amount", pa.decimal128(6, 2), nullable=False),
                pa.field("note", pa.string(), nullable=False),
                pa.field("k", pa.int64()),
                pa.field("odd, name", pa.bool_()),
            ]
        ),
    )


def load(db: Database, indexes: tuple[str, ...], seed: int, table: str = "t", **more: Any) -> None:
    options: dict[str, Any] = {"types": TYPES, "page_rows": PAGE_ROWS, "capacity": 304, **more}
    db.load(table, rows(seed), indexes=indexes, **options)


@pytest.fixture(scope="module", params=list(INDEXES))
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two batches."""
    made = tmp_path_factory.mktemp("narrow")
    with scumble.create(made / "db", limit=1000) as db:
        load(db, INDEXES[request.param], 1)
        load(db, INDEXES[request.param], 2)
    return made


@pytest.fixture
def db(home: Path) -> Iterator[Database]:
    with scumble.open(home / "db") as opened:
        yield opened


PLAIN = Plain({"t": pa.concat_tables([rows(1), rows(2)])})


def _condition(rng: Random) -> str:
    low = rng.randrange(95)
    leaves = [
        f"day = {low}",
        f"day BETWEEN {low} AND {low + rng.randrange(9)}",
        f"k < {rng.randrange(30)}",
        f"k BETWEEN {low} AND {low + 5}",
        "k IS NULL",
        f"amount > {45 + rng.randrange(5)}",
        f"amount = {rng.randrange(50)}",
        f"amount IN ({rng.randrange(50)}, {rng.randrange(50)}.5)",
        f"note = 'n{rng.randrange(40)}'",
        "ward IS NOT NULL",
        '"odd, name"',
        "k = NULL",
        "day = k",
        "true",
    ]
    parts = rng.sample(leaves, rng.choice([1, 1, 1, 2, 2, 3]))
    joined = f" {rng.choice(['AND', 'OR'])} ".join(parts)
    return joined if rng.random() < 0.9 else f"NOT ({joined})"


def _statement(rng: Random) -> str:
    names = rng.sample([f'"{name}"' for name in NAMES], rng.choice([1, 1, 2, 3]))
    where = _condition(rng)
    calls = rng.sample(
        ["count(*)", "sum(amount)", "max(k)", "avg(day)", "count(k)", "count(note)", "min(note)", "sum(amount * day)"],
        rng.choice([1, 1, 2]),
    )
    return rng.choice(
        [
            f"SELECT {', '.join(names)} FROM t WHERE {where}",
            f"SELECT {', '.join(calls)} FROM t WHERE {where}",
            f"SELECT {', '.join(calls)} FROM t WHERE {where}",
            f"SELECT ward, {', '.join(calls)} FROM t WHERE {where} GROUP BY ward",
            f"SELECT {names[0]}, count(*) FROM t WHERE {where} GROUP BY {names[0]}",
            f"SELECT * FROM t WHERE {where}",
            f"SELECT count(*) FROM t a JOIN t b ON a.k = b.day WHERE a.day < 9 AND b.amount > {40 + rng.randrange(9)}",
        ]
    )


def _wrong(db: Database, seed: int, count: int) -> tuple[list[str], Counter[str]]:
    """What is wrong with answers to so many statements, and which copies they come from."""
    rng, used, wrong = Random(seed), Counter[str](), []  # noqa: S311
    for _ in range(count):
        sql = _statement(rng)
        found = difference(db, PLAIN, sql)
        if found is not None:
            wrong.append(f"{found}\n    {sql}")
            continue
        for table in db.explain(sql).tables:
            used["passed over"] += bool(table.passed_over)
            for scan in table.scans:
                assert scan.copy_columns is None or set(table.columns_read) <= set(scan.copy_columns)
                kind = "whole" if scan.copy_columns is None else "narrow"
                used[f"{kind}, {'index' if table.indexes else 'scan'}"] += 1
            used["union"] += len(table.indexes) > 1
    return wrong, used


def test_answers_are_those_of_plain_rows(db: Database) -> None:
    wrong, used = _wrong(db, 7, 100)
    assert "\n".join(wrong) == ""
    for kind in ("narrow, index", "passed over", "whole, scan"):
        assert used[kind] > 10, used
    names = {str(column) for _, column in db.table("t").copies}
    assert len(names) > 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_many_answers(db: Database, seed: int) -> None:
    assert "\n".join(_wrong(db, 100 + seed, 400)[0]) == ""


def test_what_is_read_is_what_explain_says(db: Database) -> None:
    """Of the copy that it names, the columns that it names, and no column that a copy lacks."""
    table, rng = db.table("t"), Random(3)  # noqa: S311
    runs = {run.id: run for run in table.runs}
    for sql in (_statement(rng) for _ in range(40)):
        before = events(db)[-1].number
        db.sql(sql).fetchall()
        read = [event for event in events(db) if event.kind == "read" and event.number > before]
        explained = db.explain(sql).tables
        assert {(str(e["run"]), table.schema.columns[int(e["column"])].name) for e in read} <= {
            (scan.run, name) for each in explained for scan in each.scans for name in each.columns_read
        }
        assert all(runs[str(event["run"])].holds([int(event["column"])]) for event in read)


def test_explain_names_the_copy_and_what_an_index_lacks(tmp_path: Path) -> None:
    with scumble.create(tmp_path / "db", limit=1000) as db:
        load(db, INDEXES["all narrow"], 1)
        text = str(db.explain("SELECT sum(amount) FROM t WHERE day = 3"))
        assert "(the copy by day, with day, ward, amount): pages" in text
        assert "not by" not in text
        wide = db.explain("SELECT note, ward FROM t WHERE day = 3")
        assert "not by its index on day: that copy does not hold note\n" in str(wide)
        assert "(the copy in the order of loading, with all columns): pages" in str(wide)
        (table,) = wide.to_json()["tables"]
        assert table["passed_over"] == [{"index": "day", "missing": ["note"]}]
        assert [(scan["sorted_by"], scan["copy_columns"]) for scan in table["scans"]] == [(None, None)]
        counted = db.explain(
            "SELECT count(note), count(*) FROM t WHERE day = 3"
        )  # never null: nothing is read to count
        assert [table.indexes for table in counted.tables] == [["day"]]


def test_a_table_keeps_its_copies(db: Database, home: Path, tmp_path: Path) -> None:
    """Through rekeys, further batches, a backup and a restore; and pages are there of what a copy holds alone."""
    shutil.copytree(home, tmp_path / "home")
    with scumble.open(tmp_path / "home" / "db") as other:
        before = other.table("t").copies
        runs = other.table("t").runs
        pages = sum(run.pages * len(other.table("t").held(run)) + (run.tally is not None) for run in runs)
        assert other.check() == pages
        assert pages < sum(run.pages for run in other.table("t").runs) * len(NAMES)
        other.rekey()
        assert other.check() == pages
        assert other.table("t").copies == before
        assert _wrong(other, 11, 30)[0] == []
        for run in other.table("t").runs:
            size = (tmp_path / "home" / "db" / "runs" / f"{run.id}.pages").stat().st_size
            assert size == other.table("t").run_bytes(run)
        backup_to(tmp_path / "b.tar", FileStore(tmp_path / "home" / "db"))
    shutil.rmtree(tmp_path / "home" / "db")
    restore_from(tmp_path / "b.tar", FileStore.restoring(tmp_path / "home" / "db"))
    with scumble.open(tmp_path / "home" / "db") as other:
        assert _wrong(other, 12, 30)[0] == []
        assert other.check() == pages


def test_batches_hold_the_same_columns(tmp_path: Path) -> None:
    with scumble.create(tmp_path / "db", limit=1000) as db:
        load(db, NARROW, 1)
        spent = db.ledger.spent()
        others = [
            (f"day int:0:99 {TERMS}", *NARROW[1:]),
            (f"day int:0:99 {TERMS} columns=ward", *NARROW[1:]),
            (f"day int:0:99 {TERMS} columns=ward,amount,note", *NARROW[1:]),
            NARROW[1:],
        ]
        for indexes in others:
            with pytest.raises(Exists) as caught:
                load(db, indexes, 2)
        assert "other indexes" in str(caught.value)
        assert db.ledger.spent() == spent
        load(db, (f"day int:0:99 {TERMS} columns=amount,DAY,ward", *NARROW[:0:-1]), 2)
        load(db, (f"amount decimal:0:50:0.5 {TERMS}",), 1, "whole")
        with pytest.raises(Exists, match="holds other columns") as caught:
            load(db, (NARROW[2],), 2, "whole")
        assert "its copies hold all columns" in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ("nothing", NotFound),
        ("ward,ward", InvalidParameter),
        ("ward,WARD", InvalidParameter),
        ("day,day", InvalidParameter),
    ],
)
def test_columns_that_are_not_there_or_twice(tmp_path: Path, columns: str, error: type[Exception]) -> None:
    with scumble.create(tmp_path / "db", limit=1000) as db:
        with pytest.raises(error):
            load(db, (f"day int:0:99 {TERMS} columns={columns}",), 1)
        assert db.ledger.spent() == 0
        assert db.tables == ()


def test_an_index_alone_and_all_columns(tmp_path: Path) -> None:
    spec = IndexSpec.parse(f"day int:0:99 {TERMS}")
    with scumble.create(tmp_path / "db", limit=1000) as db:
        for table, columns, copies in (
            ("alone", (), (("day", (0,)), (None, None))),
            ("every", NAMES, (("day", None),)),
            ("listed", ["note"], (("day", (0, 3)), (None, None))),
        ):
            db.load(
                table,
                rows(1),
                indexes=[IndexSpec(spec.column, spec.domain, spec.epsilon, columns=columns)],  # type: ignore[arg-type]
                types=TYPES,
                page_rows=PAGE_ROWS,
                capacity=304,
            )
            assert db.table(table).copies == copies


def test_a_planner_that_forgets_what_copies_hold_is_refused_by_the_enclave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scumble.create(tmp_path / "db", limit=1000) as db:
        load(db, NARROW, 1)
        monkeypatch.setattr(PlannedPath, "lacks", lambda *_: ())
        before = events(db)[-1].number
        with pytest.raises(InvalidParameter, match="does not hold a column"):
            db.sql("SELECT note FROM t WHERE day = 3").fetchall()
        assert not [event for event in events(db) if event.kind == "read" and event.number > before]
        monkeypatch.setattr(Run, "holds", lambda *_: True)  # and one that forgets it, too, finds nothing there
        with pytest.raises(Exception, match=r"altered|tamper"):
            db.sql("SELECT note FROM t WHERE day = 3").fetchall()


def test_the_provider_sees_the_same_whatever_the_rows_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same indexes: those of the first table, given to the second."""
    from scumble.enclave import loads, placing

    kept: list[Any] = []
    placed = placing.placed
    rng = Random(5)  # noqa: S311
    statements = [_statement(rng) for _ in range(25)]
    seen = []
    for seed in (1, 2):
        models = list(kept)

        def place(index: Any, *given: Any, models: list[Any] = models, **more: Any) -> Any:
            kept.append(index)
            return placed(models.pop(0) if models else index, *given, **more)

        monkeypatch.setattr(loads, "placed", place)
        with scumble.create(tmp_path / f"db{seed}", limit=1000) as db:
            load(db, NARROW, seed)
            for sql in statements:
                db.sql(sql).fetchall()
            seen.append(comparable(events(db)))
    assert seen[0] == seen[1]
    assert len(seen[0]) > 100


def test_at_a_service(tmp_path: Path, service: Serving) -> None:
    """Where the enclave is a process, whose store is at the end of a pipe."""
    with service.create("narrow", tmp_path, limit=1000) as db:
        for seed in (1, 2):
            load(db, NARROW, seed)
        assert _wrong(db, 13, 25)[0] == []
        runs = db.table("t").runs
        pages = sum(run.pages * len(db.table("t").held(run)) + (run.tally is not None) for run in runs)
        assert db.check() == pages
        db.rekey()
        assert _wrong(db, 14, 10)[0] == []


def test_an_analyst_s_batch_has_the_copies_of_the_others(clinic: Clinic) -> None:
    index = "k int:0:999 epsilon=1"
    clinic.owner.load("t", clinic_rows(40), indexes=[f"{index} columns=k"], capacity=48, page_rows=16)
    clinic.owner.grant("ada", clinic.identity("ada"), {"t": ["read", "load"]}, epsilon=2)
    with clinic.analyst("ada") as ada:
        for columns in ("", " columns=k,v"):
            with pytest.raises(Exists):
                ada.load("t", clinic_rows(5), indexes=[index + columns], capacity=16, page_rows=16)
        ada.load("t", clinic_rows(5), indexes=[f"{index} columns=K"], capacity=16, page_rows=16)
        for sql in (
            "SELECT count(*) FROM t WHERE k >= 0",
            "SELECT count(*) FROM t WHERE v >= 0",
            "SELECT count(*) FROM t",
        ):
            assert ada.sql(sql).fetchall() == clinic.owner.sql(sql).fetchall() == [(45,)]
        assert ada.check() == clinic.owner.table("t").runs[0].pages * 3 + 3 + 1  # and a tally
