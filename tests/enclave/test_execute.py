"""Executions: what pages are read is what is counted; ranges that overlap or descend are refused."""

from dataclasses import replace

import numpy as np
import pytest
from enclave_tables import KEYS, MemoryStorage, table_of

from scumble.enclave import queries
from scumble.enclave.dummies import Dummies
from scumble.enclave.pages import RunReader, RunWriter
from scumble.enclave.queries import Batch, CompiledPlan, answer_bytes, execute, pieces
from scumble.errors import InvalidParameter, Tampered
from scumble.wire.catalog import Run, Table
from scumble.wire.plan import Aggregate, Aggregates, Constant, In, Plan, RowColumns
from scumble.wire.requests import PageRange, Scan, pack_execution, unpack_execution

PAGE_ROWS, PAGES, REAL = 16, 6, 85
ROWS = PAGE_ROWS * PAGES
NO_BOUNDS = np.zeros(0, np.int64)


def _table(storage: MemoryStorage) -> Table:
    """Two runs, of the numbers from 0 on in a column of every row; the last eleven rows are dummies."""
    bare = table_of("integer not null", "bigint")
    runs = []
    for name in ("cd" * 16, "ef" * 16):
        writer = RunWriter(storage, KEYS, bare, name, PAGES, PAGE_ROWS)
        writer.write(0, 0, np.arange(ROWS), None)
        writer.write(1, 0, np.arange(ROWS) * 10, (np.arange(ROWS) % 3 > 0).astype(np.uint8))
        runs.append(Run(name, "b", None, ROWS, PAGE_ROWS, None, writer.finish()))
    return table_of("integer not null", "bigint", runs=tuple(runs))


def _execute(plan: Plan, table: Table, storage: MemoryStorage, scans: list[Scan], bounds: object = NO_BOUNDS) -> bytes:
    readers = {run.id: (RunReader(storage, KEYS, table, run), Dummies.after(REAL)) for run in table.runs}
    execution = unpack_execution(memoryview(pack_execution(0, scans, np.asarray(bounds, np.int64)))[1:])
    compiled = CompiledPlan(plan, table)
    answer = bytes(execute(compiled, execution, readers.__getitem__))
    assert len(answer) == answer_bytes(compiled, execution)
    assert compiled.kept_bytes == (0 if isinstance(plan.output, RowColumns) else len(answer))
    return answer


def _counted(scans: list[Scan], bounds: object = NO_BOUNDS) -> tuple[int, int]:
    storage = MemoryStorage()
    table = _table(storage)
    output = Aggregates((Aggregate("count", None), Aggregate("sum", ("column", 0))))
    plan = Plan(table.id, (Constant(True), In(0, 0, 1)), output)
    words = np.frombuffer(_execute(plan, table, storage, scans, bounds), np.int64)
    slots, length = output.layout(table.schema)
    assert len(words) == length
    assert words[0] == 0
    return int(words[slots[0][0].offset]), int(words[slots[1][1].offset])


@pytest.mark.parametrize(
    "pages", [[(0, 6)], [(0, 1), (1, 5)], [(0, 2), (2, 2), (4, 2)], [(2, 1), (5, 1)], [(5, 1)], [], [(3, 0), (3, 1)]]
)
def test_every_row_of_the_pages_counts_once_and_no_dummy(pages: list[PageRange]) -> None:
    rows = [row for first, count in pages for row in range(first * 16, (first + count) * 16) if row < REAL]
    assert _counted([Scan(0, 0, pages)]) == (len(rows), sum(rows))
    both = [Scan(0, 0, pages), Scan(1, 0, pages)]
    assert _counted(both) == (2 * len(rows), 2 * sum(rows))


@pytest.mark.parametrize("bounds", [(10, 50), (0, 1000), (85, 95), (84, 84), (7, 6), (-5, -1)])
def test_a_predicate_over_all_pages(bounds: tuple[int, int]) -> None:
    rows = [row for row in range(REAL) if bounds[0] <= row <= bounds[1]]
    assert _counted([Scan(0, 1, [(0, PAGES)])], bounds) == (len(rows), sum(rows))


@pytest.mark.parametrize("pages", [[(1, 1), (0, 1)], [(0, 2), (1, 1)], [(0, 1), (0, 1)], [(3, 2), (4, 1)], [(-1, 1)]])
def test_page_ranges_that_do_not_ascend_are_refused(pages: list[PageRange]) -> None:
    """A row would be counted twice."""
    with pytest.raises(InvalidParameter, match="ascend"):
        _counted([Scan(0, 0, pages)])


@pytest.mark.parametrize("pages", [[(0, 7)], [(6, 1)], [(100, 1)], [(5, 2)]])
def test_pages_that_there_are_not(pages: list[PageRange]) -> None:
    with pytest.raises(InvalidParameter):
        _counted([Scan(0, 0, pages)])


def test_ranges_that_turn_back_by_a_negative_count_are_refused() -> None:
    with pytest.raises((InvalidParameter, Tampered)):
        _counted([Scan(0, 0, [(0, 3), (3, -3), (0, 3)])])


@pytest.mark.parametrize(("run", "predicate"), [(-1, 0), (2, 0), (2**62, 0), (0, -1), (0, 2), (1, 2), (2, 2)])
def test_runs_and_predicates_that_there_are_not(run: int, predicate: int) -> None:
    with pytest.raises(InvalidParameter, match="no such run or predicate"):
        _counted([Scan(run, predicate, [(0, 1)])], (0, 9))


def test_no_page_is_read_twice_for_one_predicate_not_even_in_another_scan() -> None:
    first = Scan(0, 0, [(1, 2)])
    for again in ([(1, 1)], [(2, 1)], [(0, 1)]):
        with pytest.raises(InvalidParameter, match="ascend"):
            _counted([first, Scan(0, 0, again)])
    assert _counted([first, Scan(0, 0, [(3, 1)])])[0] == 48
    for other in (Scan(1, 0, [(1, 2)]), Scan(0, 1, [(1, 2)])):
        assert _counted([first, other], (0, 10**6))[0] == 64


def test_a_run_that_does_not_hold_a_column_of_the_plan_is_not_read() -> None:
    storage = MemoryStorage()
    whole = _table(storage)
    table = replace(whole, runs=(replace(whole.runs[0], columns=(0,)), whole.runs[1]))
    for plan in (
        Plan(table.id, (Constant(True),), RowColumns((0, 1))),
        Plan(table.id, (In(1, 0, 1),), RowColumns((0,))),
    ):
        _execute(plan, table, storage, [Scan(1, 0, [(0, 1)])], (0, 9))
        with pytest.raises(InvalidParameter, match="does not hold"):
            _execute(plan, table, storage, [Scan(0, 0, [(0, 1)])], (0, 9))
    _execute(Plan(table.id, (Constant(True),), RowColumns((0,))), table, storage, [Scan(0, 0, [(0, 1)])])


@pytest.mark.parametrize(("pages", "most", "fits"), [(2, 2, True), (2, 1, False), (1, 0, True), (3, 2, False)])
def test_an_answer_of_rows_has_a_largest_size_but_one_page_always_fits(
    monkeypatch: pytest.MonkeyPatch, pages: int, most: int, fits: bool
) -> None:
    storage = MemoryStorage()
    table = _table(storage)
    row_bytes = 1 + 4 + (8 + 1)  # whether it matches, the first column, the second, and whether that is null
    monkeypatch.setattr(queries, "MOST_ANSWER_BYTES", most * PAGE_ROWS * row_bytes)
    plan, scans = Plan(table.id, (Constant(True),), RowColumns((0, 1))), [Scan(0, 0, [(0, pages)])]
    if fits:
        assert len(_execute(plan, table, storage, scans)) == pages * PAGE_ROWS * row_bytes
    else:
        with pytest.raises(InvalidParameter, match="too large"):
            _execute(plan, table, storage, scans)


def test_a_row_has_all_of_its_values_where_no_column_is_null() -> None:
    storage = MemoryStorage()
    table = _table(storage)
    reader = RunReader(storage, KEYS, table, table.runs[0])
    batch = Batch(reader, 0, 1, (0, 1), Dummies.after(REAL), lambda columns, bounds, rows: np.full(rows, 1, np.uint8))
    assert batch.valid(frozenset()) is None
    assert batch.valid(frozenset({0})) is None
    there = batch.valid(frozenset({0, 1}))
    assert there is not None
    assert there.tolist() == [int(row % 3 > 0) for row in range(PAGE_ROWS)]


def test_pieces_cover_the_pages() -> None:
    for most in (1, 2, 4, 100):
        cut = list(pieces([(0, 5), (5, 1), (9, 7)], most))
        assert [page for first, count in cut for page in range(first, first + count)] == [*range(6), *range(9, 16)]
        assert max(count for _, count in cut) <= most


def test_rows_that_do_not_match_come_back_blank() -> None:
    storage = MemoryStorage()
    table = _table(storage)
    plan = Plan(table.id, (In(0, 0, 1),), RowColumns((1, 0)))
    answers = []
    for bounds in ((20, 29), (40, 1000), (70, 3)):
        answer = _execute(plan, table, storage, [Scan(0, 0, [(1, 2), (5, 1)])], bounds)
        answers.append(answer)
        rows = [*range(16, 48), *range(80, 96)]
        match = np.frombuffer(answer[:48], np.uint8)
        assert match.tolist() == [int(bounds[0] <= row <= bounds[1] and row < REAL) for row in rows]
        tens = np.frombuffer(answer[48 : 48 + 8 * 48], np.int64)
        valid = np.frombuffer(answer[48 + 8 * 48 : 48 + 9 * 48], np.uint8)
        numbers = np.frombuffer(answer[48 + 9 * 48 :], np.int32)
        assert numbers.tolist() == [row * int(m) for row, m in zip(rows, match, strict=True)]
        assert tens.tolist() == [row * 10 * int(m) for row, m in zip(rows, match, strict=True)]
        assert valid.tolist() == [int(m and row % 3 > 0) for row, m in zip(rows, match, strict=True)]
    assert len(set(map(len, answers))) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_of_the_rows_is_left_after_an_answer(fails: bool) -> None:
    """The thread's rooms are there for the next statement, which may be another tenant's."""
    storage = MemoryStorage()
    table = _table(storage)
    plan = Plan(table.id, (Constant(True),), RowColumns((0, 1)))
    if fails:
        storage.read = lambda *given: None  # type: ignore[method-assign]
        with pytest.raises(Tampered):
            _execute(plan, table, storage, [Scan(0, 0, [(0, PAGES)])])
    else:
        assert np.frombuffer(_execute(plan, table, storage, [Scan(0, 0, [(0, PAGES)])]), np.uint8).any()
    kept = queries._ROOMS._rooms
    assert kept
    assert not any(any(room._bytes) for room in kept)


def test_groups_and_their_aggregates_are_those_of_the_values_that_are_there() -> None:
    """By two columns that may be null, the first varying slowest; a row counts where no column read is null."""
    types = 'category(["a","b","c"])', "boolean", "bigint", "bigint", "bigint not null"
    storage, bare, rng = MemoryStorage(), table_of(*types), np.random.default_rng(3)
    valid = (rng.random((4, ROWS)) < 0.7).astype(np.uint8)
    values = [rng.integers(0, most, ROWS) for most in (3, 2, 90, 90, 90)]
    values[:4] = [value * there for value, there in zip(values, valid, strict=False)]
    writer = RunWriter(storage, KEYS, bare, "cd" * 16, PAGES, PAGE_ROWS)
    for place in range(5):
        writer.write(place, 0, values[place], valid[place] if place < 4 else None)
    table = table_of(*types, runs=(Run("cd" * 16, "b", None, ROWS, PAGE_ROWS, None, writer.finish()),))
    product = ("+", ("*", ("column", 2), ("column", 3)), ("constant", -7))
    output = Aggregates(
        (
            Aggregate("count", None), Aggregate("sum", ("column", 2)), Aggregate("sum", product),
            Aggregate("max", ("-", ("column", 4), ("constant", 3))), Aggregate("min", ("column", 3)),
            Aggregate("count", ("column", 4)),
        ),
        (0, 1),
    )  # fmt: skip
    found = np.frombuffer(
        _execute(Plan(table.id, (Constant(True),), output), table, storage, [Scan(0, 0, [(0, 6)])]), np.int64
    )
    slots, length = output.layout(table.schema)
    assert (len(found), found[0]) == (length, 0)

    def word(aggregate: int, part: int, group: int, at: int = 0) -> int:
        slot = slots[aggregate][part]
        return int(found[slot.offset + group * slot.words + at])

    codes = [np.where(valid[place] == 1, values[place], most) for place, most in ((0, 3), (1, 2))]
    for group in range(12):
        mine = np.flatnonzero((codes[0] * 3 + codes[1] == group)[:REAL]).tolist()
        assert mine
        two = [row for row in mine if valid[2][row]]
        three = [int(values[3][row]) for row in mine if valid[3][row]]
        both = [int(values[2][row] * values[3][row]) - 7 for row in two if valid[3][row]]
        assert found[1 + group] == word(0, 0, group) == word(5, 0, group) == len(mine)
        assert (word(1, 0, group), word(1, 1, group)) == (len(two), sum(int(values[2][row]) for row in two))
        assert (word(2, 0, group), word(2, 1, group)) == (len(both), sum(both))
        assert word(3, 1, group, 3) ^ -(2**63) == max(int(values[4][row]) for row in mine) - 3
        assert (word(4, 0, group), word(4, 1, group)) == (len(three), min(three, default=2**63 - 1))
