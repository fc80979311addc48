"""What a load costs and which rows a table takes, decided before anything is sent."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import scumble
from scumble.errors import BudgetUsed, Exists, InvalidParameter, NotFound
from scumble.index.file import decoded
from scumble.index.slack import lossless_delta
from scumble.owner import loading, sending
from scumble.owner.indexes import IndexSpec
from scumble.owner.ledger import Ledger
from scumble.owner.load_target import _check_lines, _existing, _ordered, indexes_of
from scumble.owner.loading import (
    Attempt,
    LoadOptions,
    _begin,
    _fix_capacity,
    _named,
    released_indexes,
    spends_of,
)
from scumble.owner.schema_file import SchemaFile
from scumble.privacy.budget import unsafe_budget
from scumble.privacy.noise import Noise
from scumble.types import Column, Schema, parse_type
from scumble.wire.catalog import Catalog, Run, Table
from scumble.wire.charges import CAPACITY

BATCH = "0b" * 16
FILE = SchemaFile.parse("x integer\nK bigint\n")


def schema(*columns: str) -> Schema:
    """Columns like `k integer not null`."""
    parts = [text.removesuffix(" not null").partition(" ") for text in columns]
    return Schema(
        tuple(
            Column(name, parse_type(kind), not text.endswith("not null"))
            for (name, _, kind), text in zip(parts, columns, strict=True)
        )
    )


@pytest.mark.parametrize("amount", ["0", "-1", "1/2000000", "257", "1024"])
def test_an_epsilon_that_no_index_can_be_built_for_is_refused_before_it_is_spent(amount: str) -> None:
    with pytest.raises(InvalidParameter, match="epsilon"):
        IndexSpec.parse(f"k int:0:9 epsilon={amount} slack=paper").order()
    with pytest.raises(InvalidParameter, match=r"epsilon|delta"):
        spends_of(Table("0a" * 16, "t", schema("k integer"), ()), [], LoadOptions(capacity_epsilon=amount), "0b" * 16)


@pytest.mark.parametrize(
    ("words", "chance"),
    [("mechanism=paper", 1e-6), ("mechanism=paper slack=paper", 1e-6), ("slack=paper mechanism=paper alpha_s=20", 1)],
)
def test_the_published_index_runs_inside_the_database(tmp_path: Path, words: str, chance: float) -> None:
    """With the paper's slack as it is printed nothing is promised, and EXPLAIN says so."""
    spec = IndexSpec.parse(f"k int:0:99 epsilon=1 {words}")
    assert IndexSpec.parse(f"k {spec.terms}") == spec
    with scumble.create(tmp_path / "d", limit=1) as db:
        keys = pa.array([n * n % 100 for n in range(3000)], pa.int64())
        db.load("t", pa.table({"k": keys}), indexes=[spec], capacity=4096)
        (run,) = db.table("t").runs
        assert run.index is not None
        assert decoded(run.index).mechanism == "paper"
        assert db.sql("SELECT count(*) FROM t WHERE k = 25").fetchall() == [(300,)]
        assert db.explain("SELECT count(*) FROM t WHERE k = 25").beta == chance


@pytest.mark.parametrize(
    ("words", "columns"),
    [
        ("columns=k", ("k",)),
        ("columns=a,b blocks=2", ("a", "b")),
        ('columns="a b","c,d","e\\"f",g beta=0.1', ("a b", "c,d", 'e"f', "g")),
        ('columns="a epsilon=3"', ("a epsilon=3",)),
        ('columns="a beta=3",b slack=lossless', ("a beta=3", "b")),
    ],
)
def test_the_columns_of_an_index_are_read_as_they_are_written(words: str, columns: tuple[str, ...]) -> None:
    spec = IndexSpec.parse(f"k int:0:99 epsilon=1 {words}")
    assert (spec.epsilon, spec.columns) == ("1", columns)
    assert IndexSpec.parse(f"k {spec.terms}") == spec
    assert spec.order().columns == columns
    assert IndexSpec.parse(f"k {replace(spec, columns=()).terms}").columns == ("k",)


@pytest.mark.parametrize(
    "words",
    ["columns=", "columns=a,,b", "columns=a,", "columns=a, b", "columns=a columns=b", 'columns="a', 'columns="\\q"'],
)
def test_columns_that_cannot_be_read(words: str) -> None:
    with pytest.raises(InvalidParameter):
        IndexSpec.parse(f"k int:0:99 epsilon=1 {words}")


def test_an_index_s_columns_are_those_of_its_table_and_its_own() -> None:
    spec, table = IndexSpec.parse("K int:0:99 epsilon=1 columns=B"), schema("a integer", "k integer", "b integer")
    assert (spec.within(table).column, spec.within(table).columns) == ("k", ("k", "b"))
    for columns, held in (
        ((), ("k",)),
        (("a", "b"), None),
        (("b", "k", "a"), None),
        (("a", "K"), ("a", "k")),
        (None, None),
    ):
        assert replace(spec, columns=columns).within(table).columns == held
    with pytest.raises(InvalidParameter, match="twice"):
        replace(spec, columns=("a", "A")).within(table)
    with pytest.raises(NotFound):
        replace(spec, columns=("c",)).within(table)


@pytest.mark.parametrize("words", ["mechanism=other", "slack=other", "alpha_s=8", "slack=paper alpha_s=0"])
def test_terms_that_there_are_not_are_refused(words: str) -> None:
    with pytest.raises(InvalidParameter):
        IndexSpec.parse(f"k int:0:99 epsilon=1 {words}").order()


# --- options -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "refused", "why"),
    [
        ([{"new_rows": True}, {"again": True}], [{"new_rows": True, "again": True}], "are not new"),
        (
            [{"schema": FILE}, {"types": {"k": "integer"}}, {"types_from_data": True}],
            [{"schema": FILE, "types": {"k": "integer"}}, {"schema": FILE, "types_from_data": True}],
            "no other types",
        ),
        ([{"capacity": 1}, {"capacity": 2**36 - 1}], [{"capacity": 0}, {"capacity": 2**36}], "at least 1"),
        ([{"capacity_epsilon": 1}], [{"capacity": 1, "capacity_epsilon": 1}], "costs nothing"),
        (
            [{"page_rows": 16}, {"page_rows": 32}, {"page_rows": 2**20}],
            [{"page_rows": rows} for rows in (0, 1, 8, 15, 17, 24, 1000, 1025, 2**20 - 16, 2**21)],
            "a power of two of rows",
        ),
        ([{"memory_bytes": 2**20}], [{"memory_bytes": 2**20 - 1}], "at least 1 MiB"),
    ],
)
def test_options_are_taken_up_to_their_limits(
    allowed: list[dict[str, Any]], refused: list[dict[str, Any]], why: str
) -> None:
    for options in allowed:
        LoadOptions(**options)
    for options in refused:
        with pytest.raises(InvalidParameter, match=why) as caught:
            LoadOptions(**options)
        assert caught.value.hint


def test_nothing_is_assumed_of_a_load_without_options() -> None:
    options = LoadOptions()
    assert (options.rows_in_page(table("k integer").schema, indexed=False), options.memory_bytes) == (1024, 2 << 30)
    assert (options.types_from_data, options.new_rows, options.again) == (False, False, False)
    assert (options.declared, options.schema_file) == ({}, None)
    assert sending.SENT_BYTES == 16 << 20
    report = loading.LoadReport("t", 0, 16, Fraction(0), Fraction(0), ())
    assert not report.retried
    assert not loading.Attempt(BATCH).pending


def test_options_are_given_as_such_or_by_name(tmp_path: Path) -> None:
    rows, options = pa.table({"k": [1, 2]}), LoadOptions(capacity=16, page_rows=16)
    with scumble.create(tmp_path / "d", limit=1) as db:
        with pytest.raises(InvalidParameter, match="given twice"):
            db.load("t", rows, options=options, new_rows=True)
        report = db.load("t", rows, options=options)
    assert (report.capacity, report.rows, report.epsilon + report.delta) == (16, 2, Fraction(0))
    assert [run.batch for run in report.runs] == [report.batch]


@pytest.mark.parametrize("loaded", [True, False])
def test_a_try_is_made_unless_an_earlier_one_has_loaded_its_batch(tmp_path: Path, loaded: bool) -> None:
    """What an earlier try left open is then known: its rows are there, as they were reported, or they are not."""
    rows, options = pa.table({"k": [1, 2, 3]}), LoadOptions(capacity=16, page_rows=16)
    with scumble.create(tmp_path / "d", limit=1) as db:
        first = db.load("t", rows, options=options)
        attempt = loading.Attempt(BATCH, [first.batch if loaded else "0f" * 16], pending=True)
        options = replace(options, again=True)
        with db._changing():
            report = loading.load(db._versions, db.ledger, "t", rows, (), options, lambda *told: None, attempt)
        assert (report.rows, report.retried, report.batch == first.batch) == (3, False, loaded)
        assert attempt.pending == loaded
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(3 if loaded else 6,)]


# --- tables ------------------------------------------------------------------------------------------


def run(attribute: str | None) -> Run:
    return Run("0c" * 16, BATCH, attribute, 16, 16, None, ())


def table(*columns: str, runs: tuple[Run, ...] = ()) -> Table:
    return Table("0a" * 16, "t", schema(*columns), runs)


def test_the_indexes_that_were_released_of_a_column_are_those_of_its_own_runs() -> None:
    runs = run("k"), replace(run("k"), index=b"one"), replace(run("n"), index=b"other"), replace(run("k"), index=b"two")
    assert released_indexes(table("k integer", "n integer", runs=(*runs, run(None))), "k") == [b"one", b"two"]


def test_only_a_new_table_takes_the_id_of_one_that_was_lost_and_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, there, new = [], table("k integer"), replace(table("k integer"), id="0e" * 16)

    def lost(ledger: object, name: str, known: object, rows_per_user: set[int]) -> str | None:
        asked.append((name, rows_per_user))
        return None if len(asked) > 1 else "ff" * 16

    monkeypatch.setattr(loading, "lost_table", lost)
    catalog, ledger, attempt = Catalog("0d" * 20, 1, "", (there,)), Ledger(limit=1), Attempt(BATCH)
    assert _named(there, [], catalog, ledger, attempt) is there
    assert (asked, attempt.table_id) == ([], None)
    assert [_named(new, [], catalog, ledger, attempt).id for _ in range(2)] == ["ff" * 16] * 2
    orders = [IndexSpec.parse(f"k int:0:9 epsilon=1 rows_per_user={rows}").order() for rows in (2, 3)]
    assert _named(new, orders, catalog, ledger, Attempt(BATCH)).id == new.id
    assert asked == [("t", {1}), ("t", {2, 3})]


@pytest.mark.parametrize("name", ["", "a b", "1a", "a-b", "a" * 65])
def test_a_table_s_name_is_a_word(name: str) -> None:
    empty = Catalog("0d" * 20, 1, "", ())
    with pytest.raises(InvalidParameter, match="word of letters"):
        _existing(empty, name, LoadOptions())
    for fine in ("a", "_1", "a" * 64):
        assert _existing(empty, fine, LoadOptions()) is None


@pytest.mark.parametrize(
    ("declared", "fits"),
    [
        ({}, True),
        ({"k": "integer"}, True),
        ({"K": "int"}, True),
        ({"k": "bigint"}, False),
        ({"k": "integer not null"}, False),
        ({"k": "not null"}, False),
        ({"k": ""}, True),
        ({"n": "integer not null"}, True),
        ({"n": "not null"}, True),
        ({"n": "integer"}, True),
        ({"n": "bigint not null"}, False),
        ({"k": "integer", "n": "bigint"}, False),
    ],
)
def test_what_is_declared_of_a_table_that_is_there_must_not_contradict_it(declared: dict[str, str], fits: bool) -> None:
    """A column without nulls may be declared with them: none has to come."""
    there = table("k integer", "n integer not null")
    catalog = Catalog("0d" * 20, 1, "", (there,))
    if fits:
        assert _existing(catalog, "T", LoadOptions(types=declared)) is there
    else:
        with pytest.raises(Exists, match="declared otherwise"):
            _existing(catalog, "t", LoadOptions(types=declared))


def test_a_schema_file_has_a_line_for_every_column_and_sets_their_order() -> None:
    options = LoadOptions(schema=FILE)
    _check_lines(["k", "X"], options)
    _check_lines(["k", "x", "y"], LoadOptions())
    with pytest.raises(InvalidParameter, match="no line for the column 'y'"):
        _check_lines(["k", "y"], options)
    given = schema("k bigint", "x integer")
    assert [column.name for column in _ordered(given, options)] == ["x", "K"]
    assert _ordered(given, LoadOptions()) is given


def test_a_batch_has_the_indexes_of_its_table_in_its_order() -> None:
    by_k, by_n = (IndexSpec.parse(f"{name} int:0:9 epsilon=1") for name in ("K", "n"))
    new = table("k integer", "n integer")
    assert [spec.column for spec in indexes_of(new, [by_n, by_k])] == ["n", "k"]
    assert indexes_of(new, []) == []
    with pytest.raises(InvalidParameter, match="indexed twice"):
        indexes_of(new, [by_k, IndexSpec.parse("k int:0:5 epsilon=1")])
    indexed = table("k integer", "n integer", runs=(run("k"), run("n")))
    assert [spec.column for spec in indexes_of(indexed, [by_n, by_k])] == ["k", "n"]
    plain = table("k integer", "n integer", runs=(run(None),))
    assert indexes_of(plain, []) == []
    for there, given in ((indexed, [by_k]), (indexed, []), (plain, [by_k])):
        with pytest.raises(Exists, match="other indexes"):
            indexes_of(there, given)


def test_a_batch_has_copies_with_the_columns_of_its_table_s() -> None:
    narrow = table("k integer", "n integer", runs=(replace(run("k"), columns=(0,)), run(None)))
    own, whole, other = (IndexSpec.parse(f"k int:0:9 epsilon=1{more}") for more in (" columns=k", "", " columns=k,n"))
    assert [spec.columns for spec in indexes_of(narrow, [own])] == [("k",)]
    full = table("k integer", "n integer", runs=(run("k"),))
    assert [spec.columns for given in (whole, other) for spec in indexes_of(full, [given])] == [None, None]
    for there, given in ((narrow, whole), (narrow, other), (full, own)):
        with pytest.raises(Exists):
            indexes_of(there, [given])


# --- costs -------------------------------------------------------------------------------------------


def costs_of(*specs: str, **options: Any) -> list[Any]:
    orders = [IndexSpec.parse(spec).order() for spec in specs]
    return spends_of(table("k integer", "n integer"), orders, LoadOptions(**options), BATCH)


def test_a_drawn_capacity_costs_a_tenth_of_the_cheapest_index_for_as_many_rows_as_a_user_has() -> None:
    """docs/privacy.md section 10: a tenth, and beta 1e-12."""
    first, second, drawn = costs_of(
        "k int:0:9 epsilon=1 rows_per_user=2 mechanism=paper", "n int:0:9 epsilon=1/2 rows_per_user=3 mechanism=paper"
    )
    assert (first.rows_per_user, second.rows_per_user, drawn.rows_per_user) == (2, 3, 3)
    assert (first.epsilon, second.epsilon, drawn.epsilon) == (1, Fraction(1, 2), Fraction(1, 20))
    (alone,) = costs_of()
    assert (alone.epsilon, alone.rows_per_user) == (Fraction(1, 10), 1)
    assert float(alone.delta) == pytest.approx(float(lossless_delta(Fraction(1, 10), Fraction(1, 10**12))), rel=1e-9)
    assert alone.label == f"t {CAPACITY}"
    assert [each.epsilon for each in costs_of(capacity_epsilon="1/7")] == [Fraction(1, 7)]
    assert costs_of(capacity=16) == []
    assert [each.label for each in costs_of("k int:0:9 epsilon=1", capacity=16)] == ["t k"]


def test_a_column_that_is_called_as_the_capacity_is_not_taken_for_it() -> None:
    spec = IndexSpec(CAPACITY, IndexSpec.parse("k int:0:9 epsilon=1").domain, epsilon=1)
    named = [
        spends_of(table(f"{CAPACITY} integer"), [spec.order()], LoadOptions(), BATCH)[place].label for place in (0, 1)
    ]
    assert named == [f't "{CAPACITY}"', f"t {CAPACITY}"]


def test_the_enclave_is_told_what_a_drawn_capacity_costs_and_of_a_given_one_nothing() -> None:
    spends, there = costs_of("k int:0:9 epsilon=1"), table("k integer")
    drawn = _begin(there, [], spends, LoadOptions(), BATCH)
    assert drawn.capacity_cost == (Fraction(1, 10), spends[1].delta)
    given = _begin(there, [], spends[:1], LoadOptions(capacity=16, page_rows=32, memory_bytes=1 << 21), BATCH)
    assert given.capacity_cost == (Fraction(0), Fraction(0))
    assert (given.page_rows, given.memory_bytes) == (32, 1 << 21)


@pytest.mark.parametrize(("capacity", "pages"), [(1, 1), (16, 1), (17, 2), (160, 10)])
def test_a_given_capacity_is_rounded_up_to_whole_pages(capacity: int, pages: int) -> None:
    assert _fix_capacity(capacity, None, capacity, 16, lambda *_: Noise.fresh()) == 16 * pages


@pytest.mark.parametrize(
    ("options", "other", "indexed", "rows"),
    [
        ({}, "date", False, 1024),
        ({"capacity": 2**16 - 1}, "date", False, 1024),
        ({"capacity": 2**16}, "date", False, 4096),
        ({"capacity": 2**16}, "date", True, 1024),
        ({"capacity": 2**16}, "uuid not null", False, 4096),
        ({"capacity": 2**16}, "text(20)", False, 1024),
        ({"capacity": 2**20, "page_rows": 16}, "date", False, 16),
    ],
)
def test_pages_without_an_index_are_longer_if_the_capacity_is_large(
    options: dict[str, int], other: str, indexed: bool, rows: int
) -> None:
    given = LoadOptions(**options)  # type: ignore[arg-type]
    there = table("k integer", f"n {other}")
    assert given.rows_in_page(there.schema, indexed=indexed) == rows
    orders = [IndexSpec.parse("k int:0:9 epsilon=1").order()] if indexed else []
    assert _begin(there, orders, costs_of(), given, BATCH).page_rows == rows


def test_a_drawn_capacity_has_room_for_every_row_and_is_paid_for() -> None:
    """Lossless: over many draws, never below the rows; with noise of a tenth and this beta, not far above either."""
    drawn = set()
    for _ in range(50):
        budget = unsafe_budget(Fraction(1, 10), delta=Fraction(1, 100))
        drawn.add(_fix_capacity(1000, budget, None, 16, lambda *_: Noise.fresh()))
        with pytest.raises(BudgetUsed, match="already paid"):
            budget.draw()
    assert min(drawn) >= 1000
    assert max(drawn) < 3000
    assert all(capacity % 16 == 0 for capacity in drawn)
