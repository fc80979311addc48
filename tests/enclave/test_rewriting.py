"""Changes inside the enclave: which rows get which values, how many matched, and what is refused as a whole."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from changed_tables import Row, opened, stored, with_run
from enclave_tables import MemoryStorage, table_of

from scumble.enclave import changes
from scumble.enclave.changes import Changed, Rewriting, is_exact, rewrite
from scumble.enclave.dummies import Dummies
from scumble.enclave.versions import OpenVersion
from scumble.errors import InvalidParameter
from scumble.types import parse_type
from scumble.wire.catalog import LIVE, Run, Table
from scumble.wire.plan import Assignment, Expression, In, Plan, Rewrite
from scumble.wire.requests import Execution, PageRange, Scan

PAGES, PAGE_ROWS = 6, 16
ROWS, REAL = PAGES * PAGE_ROWS, 90
TYPES = "integer not null", "bigint", "text(12)", "smallint", "integer not null", "decimal(4,2) not null"
KEY, BIG, TEXT, SMALL, OTHER, PRICE = range(6)
FIRST = Run("01" * 16, "ba" * 16, None, ROWS, PAGE_ROWS, None, ())
SECOND = replace(FIRST, id="02" * 16)


def _text(value: str) -> tuple[int, ...]:
    return parse_type("text(12)").words_of(value)


def _row(key: int) -> Row:
    return (
        (key,),
        None if key % 5 == 0 else (key * 10**12,),
        None if key % 7 == 0 else _text(f"row {key}"),
        None if key % 3 == 0 else (key,),
        (7 * key,),
        (key,),
    )


ORIGINAL = [_row(key) for key in range(ROWS)]


@pytest.fixture
def version(monkeypatch: pytest.MonkeyPatch) -> OpenVersion:
    """Two runs of the same rows, the last six of the first of which are dummies; rewritten two pages at a time."""
    monkeypatch.setattr(changes, "REWRITTEN_ROWS", 2 * PAGE_ROWS + 5)
    storage = MemoryStorage()
    table = with_run(storage, with_run(storage, table_of(*TYPES), FIRST, ORIGINAL), SECOND, ORIGINAL)
    made = opened(storage, table)
    made.manifest.dummies[FIRST.id] = Dummies.after(REAL)
    return made


def _key_in(*offsets: int) -> tuple[In, ...]:
    """For each offset, whether a row's key is in the interval that the bounds have there."""
    return tuple(In(KEY, offset, 1) for offset in offsets)


def _changed(
    version: OpenVersion,
    predicates: Sequence[In],
    assignments: Sequence[Sequence[Assignment]],
    bounds: Sequence[int],
    scans: Sequence[tuple[int, Sequence[PageRange]]] = ((0, ((0, PAGES),)),),
    *,
    copies: bool = False,
) -> tuple[Changed, list[list[int]]]:
    (table,) = version.catalog.tables
    plan = Plan(table.id, tuple(predicates), Rewrite(tuple(map(tuple, assignments)), copies))
    rewriting = Rewriting(plan, table)
    execution = Execution(0, [Scan(run, 0, pages) for run, pages in scans], np.array(bounds, np.int64))
    assert rewriting.bounds_words <= len(bounds)
    assert rewriting.kept_bytes == 0
    found = rewrite(rewriting, execution, version)
    assert len(found.answer) == rewriting.answer_bytes(execution)
    counts = np.frombuffer(found.answer, np.int64).reshape(len(scans), len(predicates))
    return found, counts.tolist()


def _rows(version: OpenVersion, table: Table, run: int = 0) -> list[tuple[bool, Row]]:
    return stored(version.storage, table, table.runs[run])  # type: ignore[arg-type]


def _with(row: Row, **values: Any) -> Row:
    places = {"big": BIG, "text": TEXT, "small": SMALL, "other": OTHER, "price": PRICE, "key": KEY}
    made = list(row)
    for name, value in values.items():
        made[places[name]] = value
    return tuple(made)


def _after(change: Callable[[int, Row], Row], pages: PageRange = (0, PAGES), real: int = REAL) -> list[Row]:
    """The rows as a change of those that are real, in some pages, leaves them."""
    first, end = pages[0] * PAGE_ROWS, min(real, (pages[0] + pages[1]) * PAGE_ROWS)
    return [change(key, row) if first <= key < end else row for key, row in enumerate(ORIGINAL)]


# --- rows that are deleted -------------------------------------------------------------------------


def test_rows_that_match_are_deleted_once_for_the_first_that_they_match(version: OpenVersion) -> None:
    found, counts = _changed(version, _key_in(0, 2), [[], []], [20, 40, 30, 95])
    assert counts == [[21, REAL - 41]]
    assert found.fits
    (layer,) = found.table.runs[0].layers
    assert (layer.first_page, layer.pages, layer.columns) == (0, PAGES, (LIVE,))
    rows = _rows(version, found.table)
    assert [row for _, row in rows] == ORIGINAL
    assert [key for key, (alive, _) in enumerate(rows) if alive] == list(range(20))
    assert found.table.runs[1] is version.catalog.tables[0].runs[1]


def test_only_pages_that_are_named_are_changed_and_scans_are_counted_apart(version: OpenVersion) -> None:
    scans = [(0, [(0, 1), (3, 2)]), (1, [(5, 1)])]
    found, counts = _changed(version, _key_in(0), [[]], [10, 95], scans)
    assert counts == [[6 + 32], [16]]
    assert [[(layer.first_page, layer.pages) for layer in run.layers] for run in found.table.runs] == [
        [(0, 1), (3, 2)],
        [(5, 1)],
    ]
    assert [key for key, (alive, _) in enumerate(_rows(version, found.table)) if not alive] == [
        *range(10, 16),
        *range(48, 80),
    ]


def test_deleted_rows_match_no_more(version: OpenVersion) -> None:
    found, _ = _changed(version, _key_in(0), [[]], [0, 9])
    again = version.having(found.table)
    found, counts = _changed(again, _key_in(0), [[]], [5, 14])
    assert counts == [[5]]
    assert [key for key, (alive, _) in enumerate(_rows(version, found.table)) if alive] == list(range(15, REAL))
    assert len(found.table.runs[0].layers) == 1  # the later one covers the first
    _, counts = _changed(version.having(found.table), _key_in(0), [[Assignment(BIG, 2)]], [0, 20, 1, 1])
    assert counts == [[6]]


# --- values that are given -------------------------------------------------------------------------


def test_rows_that_match_get_a_value_or_a_null(version: OpenVersion) -> None:
    words = _text("other")
    bounds = [3, 8, 77, 1, 0, 0, *words, 1]
    assignments = [Assignment(BIG, 2), Assignment(SMALL, 4), Assignment(TEXT, 6)]
    found, counts = _changed(version, _key_in(0), [assignments], bounds)
    assert (found.fits, counts) == (True, [[6]])

    def change(key: int, row: Row) -> Row:
        return _with(row, big=(77,), small=None, text=words) if 3 <= key <= 8 else row

    assert [row for _, row in _rows(version, found.table)] == _after(change)
    assert {layer.columns for layer in found.table.runs[0].layers} == {(BIG, TEXT, SMALL)}
    assert all(alive for alive, _ in _rows(version, found.table))


def test_a_row_follows_the_first_case_that_it_matches(version: OpenVersion) -> None:
    bounds = [0, 9, 5, 12, 1, 1, 2, 1, 3, 1]
    cases = [[Assignment(OTHER, 4), Assignment(BIG, 6)], [Assignment(OTHER, 8)]]
    found, counts = _changed(version, _key_in(0, 2), cases, bounds, [(0, [(0, 1), (1, 1)])])
    assert (found.fits, counts) == (True, [[10, 3]])

    def change(key: int, row: Row) -> Row:
        if key <= 9:
            return _with(row, other=(1,), big=(2,))
        return _with(row, other=(3,)) if key <= 12 else row

    assert [row for _, row in _rows(version, found.table)] == _after(change)
    assert len(found.table.runs[0].layers) == 2


@pytest.mark.parametrize(
    ("column", "words", "fits"),
    [
        (OTHER, (5, 1), True),
        (OTHER, (2**31 - 1, 1), True),
        (OTHER, (2**31, 1), False),
        (OTHER, (-(2**31) - 1, 1), False),
        (OTHER, (0, 0), False),  # no null where none may be
        (OTHER, (5, 2), False),  # neither a value nor a null
        (OTHER, (5, 3), False),
        (SMALL, (0, 0), True),
        (SMALL, (5, 0), False),  # a null has no value
        (SMALL, (0, 2), False),
        (SMALL, (5, -1), False),
        (SMALL, (0, 256), False),
        (SMALL, (5, 257), False),
        (PRICE, (9999, 1), True),
        (PRICE, (10_000, 1), False),
        (TEXT, (*_text("fine"), 1), True),
        (TEXT, (-1, -1, -1, 1), False),
        (TEXT, (0, 0, 0, 0), True),
        (TEXT, (0, 1, 0, 0), False),
    ],
)
def test_a_value_that_its_column_cannot_hold_is_found_out(
    version: OpenVersion, column: int, words: tuple[int, ...], fits: bool
) -> None:
    found, _ = _changed(version, _key_in(0), [[Assignment(column, 2)]], [0, 3, *words])
    assert found.fits == fits


def test_one_value_that_does_not_fit_is_enough(version: OpenVersion) -> None:
    for words in ([1, 1, 2**40, 1], [2**40, 1, 1, 1]):
        cases = [[Assignment(SMALL, 2), Assignment(OTHER, 4)]]
        assert not _changed(version, _key_in(0), cases, [0, 3, *words])[0].fits
    pages = [(0, [(0, 1)]), (1, [(0, 1)])]
    copies = [[Assignment(OTHER, 0, ("+", ("column", OTHER), ("constant", 2**31 - 100)))]]
    for keys, fits in (([0, 14], True), ([0, 15], False), ([15, 15], False)):
        assert _changed(version, _key_in(0), copies, keys, pages)[0].fits == fits


# --- values of other columns -----------------------------------------------------------------------


def test_a_column_takes_another_s_values(version: OpenVersion) -> None:
    found, _ = _changed(version, _key_in(0), [[Assignment(OTHER, 0, ("column", KEY))]], [10, 20])
    assert found.fits
    expected = _after(lambda key, row: _with(row, other=(key,)) if 10 <= key <= 20 else row)
    assert [row for _, row in _rows(version, found.table)] == expected


def test_a_column_takes_the_values_of_its_own_type_alone(version: OpenVersion) -> None:
    for target, source in ((OTHER, BIG), (BIG, KEY), (TEXT, KEY)):
        with pytest.raises(InvalidParameter, match="its own type"):
            _changed(version, _key_in(0), [[Assignment(target, 0, ("column", source))]], [10, 20])


NULLABLE = "integer", "integer not null"


@pytest.mark.parametrize(("target", "keys", "fits"), [(1, (0, 3), True), (1, (0, 4), False), (0, (0, 4), True)])
def test_a_null_is_taken_where_nulls_may_be(target: int, keys: tuple[int, int], fits: bool) -> None:
    """Of rows that match alone: the others have nulls as they please."""
    storage, run = MemoryStorage(), Run("01" * 16, "b", None, 16, 16, None, ())
    table = with_run(storage, table_of(*NULLABLE), run, [((k,) if k < 4 else None, (k,)) for k in range(16)])
    version, plan = opened(storage, table), Rewrite(((Assignment(target, 0, ("column", 0)),),))
    rewriting = Rewriting(Plan(table.id, (In(1, 0, 1),), plan), table)
    execution = Execution(0, [Scan(0, 0, [(0, 1)])], np.array(keys, np.int64))
    found = rewrite(rewriting, execution, version)
    assert found.fits == fits
    computed = Rewrite(((Assignment(target, 0, ("+", ("column", 0), ("constant", 1))),),))
    found = rewrite(Rewriting(Plan(table.id, (In(1, 0, 1),), computed), table), execution, version)
    assert found.fits == fits
    rows = stored(storage, found.table, found.table.runs[0])
    assert [row[target] for _, row in rows[:4]] == [(key + 1,) for key in range(4)]


# --- arithmetic ------------------------------------------------------------------------------------


def test_what_is_computed_is_that_of_rows_that_match(version: OpenVersion) -> None:
    product: Expression = ("*", ("column", SMALL), ("-", ("column", OTHER), ("constant", 5)))
    found, _ = _changed(version, _key_in(0), [[Assignment(BIG, 0, product), Assignment(SMALL, 0, product)]], [0, 60])
    assert found.fits

    def change(key: int, row: Row) -> Row:
        value = None if key % 3 == 0 else (key * (7 * key - 5),)
        return _with(row, big=value, small=value) if key <= 60 else row

    assert [row for _, row in _rows(version, found.table)] == _after(change)
    assert found.table.runs[0].layers[0].columns == (BIG, SMALL)


@pytest.mark.parametrize(
    ("column", "expression", "last", "fits"),
    [
        (SMALL, ("*", ("column", SMALL), ("constant", 400)), 81, True),
        (SMALL, ("*", ("column", SMALL), ("constant", 400)), 82, False),
        (SMALL, ("-", ("column", SMALL), ("constant", 32_768 + 5)), 4, False),
        (SMALL, ("*", ("column", BIG), ("column", BIG)), 0, True),
        (BIG, ("*", ("column", BIG), ("*", ("column", BIG), ("column", BIG))), 0, True),
        (BIG, ("*", ("column", BIG), ("*", ("column", BIG), ("column", BIG))), 89, False),
        (PRICE, ("*", ("column", KEY), ("constant", 500)), 19, True),
        (PRICE, ("*", ("column", KEY), ("constant", 500)), 20, False),
    ],
)
def test_a_result_that_does_not_fit_counts_if_its_row_matches(
    version: OpenVersion, column: int, expression: Expression, last: int, fits: bool
) -> None:
    found, _ = _changed(version, _key_in(0), [[Assignment(column, 0, expression)]], [0, last])
    assert found.fits == fits


def test_arithmetic_is_exact_or_refused(version: OpenVersion) -> None:
    for column in (TEXT,):
        with pytest.raises(InvalidParameter, match="whole numbers"):
            _changed(version, _key_in(0), [[Assignment(column, 0, ("+", ("column", KEY), ("constant", 1)))]], [0, 1])
        with pytest.raises(InvalidParameter, match="whole numbers"):
            _changed(version, _key_in(0), [[Assignment(KEY, 0, ("+", ("column", column), ("constant", 1)))]], [0, 1])
    exact = {text: is_exact(parse_type(text)) for text in ("integer", "decimal(18,2)", "decimal(38,2)", "double")}
    assert exact == {"integer": True, "decimal(18,2)": True, "decimal(38,2)": False, "double": False}
    assert not is_exact(parse_type("date"))
    assert not is_exact(parse_type("text(1)"))


# --- rows that are copied --------------------------------------------------------------------------


def test_copies_go_to_the_tail_and_nothing_else_does(version: OpenVersion) -> None:
    """As many rows as were read, of which those are alive that match; of the others nothing is left."""
    scans = [(0, [(1, 2), (4, 2)]), (1, [(0, 1)])]
    found, counts = _changed(version, _key_in(0), [[Assignment(OTHER, 2)]], [20, 70, 5, 1], scans, copies=True)
    assert (found.fits, counts) == (True, [[28 + 7], [0]])
    first, second, copied, empty = found.table.runs
    assert (first, second) == version.catalog.tables[0].runs
    assert [(run.tail, run.moved, run.index, run.attribute, run.capacity) for run in (copied, empty)] == [
        (True, True, None, None, 64),
        (True, True, None, None, 16),
    ]
    places = [*range(16, 48), *range(64, 96)]
    nothing: Row = (0,), None, None, None, (0,), (0,)
    expected = [(20 <= key <= 70, _with(ORIGINAL[key], other=(5,)) if 20 <= key <= 70 else nothing) for key in places]
    assert _rows(version, found.table, 2) == expected
    assert _rows(version, found.table, 3) == [(False, nothing)] * 16
    assert set(found.dummies) == {copied.id, empty.id}
    assert found.dummies[copied.id].to_bytes() == Dummies.after(64).to_bytes()
    assert len({first.batch, copied.batch, empty.batch, copied.id, empty.id}) == 5
    assert len(copied.batch) == len(copied.id) == 32


@pytest.mark.parametrize("copies", [False, True])
def test_a_page_larger_than_what_is_rewritten_at_a_time(
    version: OpenVersion, monkeypatch: pytest.MonkeyPatch, copies: bool
) -> None:
    cases = [[Assignment(OTHER, 2)]]
    usual, counts = _changed(version, _key_in(0), cases, [20, 70, 5, 1], copies=copies)
    monkeypatch.setattr(changes, "REWRITTEN_ROWS", PAGE_ROWS - 1)
    found, same = _changed(version, _key_in(0), cases, [20, 70, 5, 1], copies=copies)
    assert same == counts
    assert _rows(version, found.table, -copies) == _rows(version, usual.table, -copies)


# --- layers ----------------------------------------------------------------------------------------


def test_a_run_under_too_many_layers_is_sealed_anew(version: OpenVersion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST_LAYERS", 2)
    for number in range(3):
        found, _ = _changed(version, _key_in(0), [[]], [0, 95], [(0, [(2 * number, 1)])])
        version = version.having(found.table, found.dummies)
        assert (found.table.runs[0].id == FIRST.id) == (number < 2)
    run = found.table.runs[0]
    assert len(run.layers) == 1
    assert list(found.dummies) == [run.id]
    assert found.dummies[run.id].to_bytes() == Dummies.after(REAL).to_bytes()
    assert found.table.runs[1].id == SECOND.id
    rows = _rows(version, found.table)
    assert [row for _, row in rows] == ORIGINAL
    assert [alive for alive, _ in rows] == [key // 16 % 2 == 1 or key >= REAL for key in range(ROWS)]


# --- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(("predicates", "cases"), [((0,), 2), ((0, 2), 1), ((), 0), ((), 1)])
def test_each_predicate_has_its_assignments(version: OpenVersion, predicates: tuple[int, ...], cases: int) -> None:
    with pytest.raises(InvalidParameter, match="has its assignments"):
        _changed(version, _key_in(*predicates), [[]] * cases, [0, 1, 2, 3])


@pytest.mark.parametrize("pages", [(), ((0, 0),), ((0, 1), (3, 0))])
def test_a_scan_names_pages(version: OpenVersion, pages: tuple[PageRange, ...]) -> None:
    for scans in ([(0, pages)], [(1, ((0, 1),)), (0, pages)]):
        with pytest.raises(InvalidParameter, match="no page"):
            _changed(version, _key_in(0), [[]], [0, 1], scans)


def test_pages_that_there_are_not_are_refused(version: OpenVersion) -> None:
    with pytest.raises(InvalidParameter, match="ascend"):
        _changed(version, _key_in(0), [[]], [0, 1], [(0, ((0, PAGES + 1),))])
