"""Merges, flushes and vacuums inside the enclave: the rows that they leave, in which order, and what they refuse."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from changed_tables import Row, alive, opened, stored, with_run
from enclave_tables import KEYS, MemoryStorage, table_of

from scumble.enclave import flushes, gathering, grids, merges, sealing
from scumble.enclave.dummies import Dummies
from scumble.enclave.flushes import Flush, begin_flush
from scumble.enclave.gathering import Gathering
from scumble.enclave.grids import EarlierRuns, earlier_runs, tally_of
from scumble.enclave.loads import begin_load, loaded
from scumble.enclave.merges import merge, vacuumed
from scumble.enclave.pages import LayerWriter
from scumble.enclave.rows import Rows
from scumble.enclave.versions import OpenVersion
from scumble.errors import BadRows, Exists, InvalidParameter, Overdraft, Refused, ScumbleError, Stale
from scumble.index.grid import NEW, Grid
from scumble.index.kinds import decoded
from scumble.index.tally import Tally
from scumble.types import parse_domain, rank_rule
from scumble.wire.catalog import LIVE, Run, Table
from scumble.wire.grants import Grant
from scumble.wire.requests import BeginFlush, BeginLoad, IndexOrder, Merge, RowLayout

SIZE, PAGE_ROWS = 64, 16
ORDER = IndexOrder(
    "c0", parse_domain(f"int:0:{SIZE - 1}"), Fraction(4), Fraction(0), Fraction(1, 10**6), 1, 4096, "measured"
)
GRIDDED = replace(ORDER, grid=NEW)
NO_COST = (Fraction(0), Fraction(0))


def name(number: int) -> str:
    return f"{number:032x}"


def row(key: int | None, value: int | None = 5) -> Row:
    return None if key is None else (key,), None if value is None else (value,)


@pytest.fixture
def empty() -> OpenVersion:
    return opened(MemoryStorage(), table_of("integer", "bigint"))


def the_table(version: OpenVersion) -> Table:
    (table,) = version.catalog.tables
    return table


def has(version: OpenVersion) -> list[list[Row]]:
    """The rows of each run."""
    return [alive(version, the_table(version), run) for run in the_table(version).runs]


def load(
    version: OpenVersion,
    batch: int,
    rows: Sequence[Row],
    *orders: IndexOrder,
    capacity: int = 32,
    page_rows: int = PAGE_ROWS,
) -> OpenVersion:
    """The version with one more batch, or without orders, one more run of the tail."""
    table, tail = the_table(version), not orders
    layout = RowLayout(table.schema, (SIZE,) * len(orders))
    words = np.zeros((capacity, layout.words), np.int64)
    words[len(rows) :, layout.key_offset :] = SIZE + 1
    for place, (key, value) in enumerate(rows):
        words[place, 0], words[place, 1] = (key or (0,))[0], (value or (0,))[0]
        words[place, 2] = (key is not None) + 2 * (value is not None)
        words[place, layout.key_offset :] = SIZE if key is None else key[0]
    request = BeginLoad(name(batch), NO_COST, "t", table.id, table.schema, orders, page_rows, 1 << 20, tail=tail)
    begun = begin_load(version, request)
    assert begun is not None
    begun.append(memoryview(words.tobytes()))
    begun.reserve(KEYS, capacity)
    return loaded(version, begun, len(rows))


def without(version: OpenVersion, run: int, *places: int) -> OpenVersion:
    """The version in which some rows of a run are deleted."""
    table = the_table(version)
    there = table.runs[run]
    layer = LayerWriter(version.storage, KEYS, table, there, (LIVE,), (0, there.pages))
    live = np.ones(there.capacity, np.uint8)
    live[list(places)] = 0
    layer.write_pages(LIVE, 0, live.reshape(there.pages, -1))
    runs = [each.under(layer.finish()) if each is there else each for each in table.runs]
    return version.having(replace(table, runs=tuple(runs)))


def runs_of(version: OpenVersion) -> tuple[str, ...]:
    return tuple(run.id for run in the_table(version).runs)


def merged_all(version: OpenVersion) -> OpenVersion:
    return merge(version, Merge("t", runs_of(version)))


# --- the tail --------------------------------------------------------------------------------------


def tail_of(*capacities: tuple[int, int]) -> OpenVersion:
    """Runs of the tail with so many rows, and rows in a page; keys count on."""
    storage, table, key = MemoryStorage(), table_of("integer", "bigint"), 0
    for number, (capacity, page_rows) in enumerate(capacities):
        run = Run(name(number), name(100 + number), None, capacity, page_rows, None, (), tail=True)
        table = with_run(storage, table, run, [row(k, None if k % 3 else -k) for k in range(key, key + capacity)])
        key += capacity
    return opened(storage, table)


@pytest.mark.parametrize(
    ("capacities", "page_rows", "capacity"),
    [
        ([(16, 16), (32, 32)], 32, 64),
        ([(32, 16), (16, 16)], 16, 48),
        ([(64, 16), (64, 16)], 128, 128),
        ([(256, 16), (256, 64)], 128, 512),
        ([(16, 16)] * 4, 64, 64),
        ([(512, 512), (512, 512)], 512, 1024),
    ],
)
def test_runs_of_the_tail_are_put_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, capacities: list[tuple[int, int]], page_rows: int, capacity: int
) -> None:
    monkeypatch.setattr(merges, "LARGE_PAGE_ROWS", 128)
    monkeypatch.setattr(gathering, "GATHERED_ROWS", 40)
    monkeypatch.setattr(sealing, "SEALED_ROWS", 33)
    version = without(tail_of(*capacities), 1, 0, 3)
    before = has(version)
    made = merged_all(version)
    (run,) = the_table(made).runs
    assert (run.page_rows, run.capacity, run.batch, len(run.id)) == (page_rows, capacity, name(100), 32)
    assert (run.tail, run.index, run.attribute, run.columns, run.moved) == (True, None, None, None, False)
    assert run.batches == tuple(name(100 + number) for number in range(len(capacities)))
    assert has(made) == [[each for one in before for each in one]]
    rows = sum(each for each, _ in capacities)
    found = stored(made.storage, the_table(made), run)  # type: ignore[arg-type]
    first = capacities[0][0]
    assert [place for place, (there, _) in enumerate(found) if not there] == [first, first + 3, *range(rows, capacity)]
    assert [each for _, each in found[rows:]] == [row(None, None)] * (capacity - rows)
    assert found[first][1] == row(first, None if first % 3 else -first)  # deleted, but not vacuumed
    assert made.manifest.dummies[run.id].to_bytes() == Dummies.after(capacity).to_bytes()


def test_pages_of_a_merged_tail_have_1024_rows_at_most() -> None:
    (run,) = the_table(merged_all(tail_of((1024, 512), (1024, 1024)))).runs
    assert (run.page_rows, run.capacity) == (1024, 2048)


def test_a_merge_takes_the_runs_that_it_names() -> None:
    version = tail_of((16, 16), (16, 16), (16, 16))
    made = merge(version, Merge("t", (name(2), name(0))))
    kept, run = the_table(made).runs
    assert kept is the_table(version).runs[1]
    assert run.batches == (name(102), name(100))
    assert [each[0] for each in has(made)[1]] == [(key,) for key in (*range(32, 48), *range(16))]


def test_rows_that_moved_have_moved_wherever_they_are() -> None:
    version = tail_of((16, 16), (16, 16))
    table = the_table(version)
    moved = replace(table, runs=(table.runs[0], replace(table.runs[1], moved=True)))
    assert the_table(merged_all(version.having(moved))).runs[0].moved


def test_the_last_batches_of_a_tail_are_known_by_name(monkeypatch: pytest.MonkeyPatch, empty: OpenVersion) -> None:
    monkeypatch.setattr(merges, "MOST_NAMED", 2)
    made = merged_all(tail_of((16, 16), (16, 16), (16, 16)))
    assert the_table(made).runs[0].batches == (name(101), name(102))
    for number in range(3):
        empty = load(empty, number, [row(number)], GRIDDED)
    assert the_table(merged_all(empty)).runs[0].batches == (name(0), name(1), name(2))  # these were paid for


# --- batches with an index -------------------------------------------------------------------------

KEYED = [row(key, key) for key in (9, 3, 3, 60)], [row(key, -key) for key in (3, 0, 63, 20, 21)]
NULLS = [row(7, 1), row(None, 2), row(5, None)], [row(None, 3), row(7, 4), row(None, None)]


def by_key(rows: Sequence[Row]) -> list[int]:
    return [SIZE if key is None else key[0] for key, _ in rows]


@pytest.mark.parametrize(
    ("orders", "batches", "memory_bytes"),
    [
        ((GRIDDED, GRIDDED), KEYED, 1 << 30),
        ((GRIDDED, GRIDDED), ([row(1)] * 32, [row(62)] * 32), 1),
        ((ORDER, GRIDDED), NULLS, 1 << 30),
        ((ORDER, ORDER), NULLS, 1),
        ((GRIDDED, GRIDDED), NULLS, 24 * 5 * 40),  # 40 rows of 5 words, which are two pages and a half
        ((GRIDDED, ORDER), ([], []), 1 << 30),
    ],
)
def test_batches_are_merged_by_their_keys(
    monkeypatch: pytest.MonkeyPatch,
    empty: OpenVersion,
    orders: tuple[IndexOrder, ...],
    batches: tuple[list[Row], list[Row]],
    memory_bytes: int,
) -> None:
    monkeypatch.setattr(merges, "MEMORY_BYTES", memory_bytes)
    version = empty
    for number, (rows, order) in enumerate(zip(batches, orders, strict=True)):
        version = load(version, number, rows, order)
    made = merged_all(version)
    (run,) = the_table(made).runs
    (found,) = has(made)
    assert sorted(map(repr, found)) == sorted(map(repr, (*batches[0], *batches[1])))
    assert by_key(found) == sorted(by_key(found))
    assert (run.attribute, run.tail, run.batches, run.page_rows) == ("c0", False, (name(0), name(1)), PAGE_ROWS)
    tally = tally_of(made, run)
    assert (tally.batches, tally.capacity, tally.epsilon) == (2, 64, Fraction(4))
    assert run.index is not None
    assert decoded(run.index).to_bytes() == run.index
    assert run.capacity % PAGE_ROWS == 0
    assert run.capacity >= tally.capacity
    again = merged_all(load(made, 2, [row(30, 30)], GRIDDED))
    assert by_key(has(again)[0]) == sorted([*by_key(found), 30])
    assert the_table(again).runs[0].batches == (name(0), name(1), name(2))


def test_deleted_rows_keep_their_places_and_stay_deleted(empty: OpenVersion) -> None:
    version = load(load(empty, 0, KEYED[0], GRIDDED), 1, KEYED[1], GRIDDED)
    gone = has(version)[1][1]
    version = without(version, 1, 1)
    made = merged_all(version)
    assert gone not in has(made)[0]
    assert len(has(made)[0]) == 8
    run = the_table(made).runs[0]
    dead = [each for there, each in stored(made.storage, the_table(made), run) if not there]  # type: ignore[arg-type]
    assert gone in dead


def test_the_pages_of_a_merged_run_are_as_large_as_the_largest(empty: OpenVersion) -> None:
    version = load(load(empty, 0, KEYED[0], GRIDDED), 1, KEYED[1], GRIDDED, page_rows=32)
    for order in (runs_of(version), runs_of(version)[::-1]):
        (run,) = the_table(merge(version, Merge("t", order))).runs
        assert (run.page_rows, run.capacity) == (32, 64)


def test_rows_lie_in_the_blocks_of_a_merged_index(empty: OpenVersion) -> None:
    """Many rows, so that there are blocks, with dummies between their halves."""
    rng, version = np.random.default_rng(1), empty
    wide = replace(GRIDDED, epsilon=Fraction(100), grid=Grid.even(SIZE, 4000).packed)
    for number in range(2):
        rows = [row(int(key), number) for key in rng.integers(0, SIZE, 4000)]
        version = load(version, number, rows, wide, capacity=4096)
    made = merged_all(version)
    (run,), (found,) = the_table(made).runs, has(made)
    assert run.index is not None
    index = decoded(run.index)
    assert index.blocks is not None
    assert len(found) == 8000
    assert by_key(found) == sorted(by_key(found))
    assert sorted(map(repr, found)) == sorted(repr(each) for one in has(version) for each in one)
    assert run.capacity == -(-max(index.blocks.rows, 8192 + 2 * int(index.blocks.slacks.sum())) // 16) * 16
    real = made.manifest.dummies[run.id].mask(0, run.capacity)
    keys = [key[0] for _, (key, _) in stored(made.storage, the_table(made), run) if key]  # type: ignore[arg-type]
    places = np.flatnonzero(real)
    starts, stops = index.of_ranks(np.array(keys), np.array(keys))
    assert np.all((starts <= places) & (places < stops))


# --- what is not merged ----------------------------------------------------------------------------


def test_what_cannot_be_merged_is_refused(empty: OpenVersion, monkeypatch: pytest.MonkeyPatch) -> None:
    tail = tail_of((16, 16), (16, 16), (16, 16))
    mixed = load(load(empty, 0, [row(1)], GRIDDED), 1, [row(2)])
    for runs in (runs_of(mixed), runs_of(mixed)[::-1]):
        with pytest.raises(InvalidParameter, match="of one attribute"):
            merge(mixed, Merge("t", runs))
    refused: list[tuple[OpenVersion, tuple[str, ...], type[ScumbleError]]] = [
        (tail, (name(0),), InvalidParameter),
        (tail, (name(0), name(0)), InvalidParameter),
        (tail, (), InvalidParameter),
        (tail, (name(0), name(9)), Stale),
    ]
    for version, runs, error in refused:
        with pytest.raises(error):
            merge(version, Merge("t", runs))
    monkeypatch.setattr(merges, "MOST_MERGED", 2)
    merge(tail, Merge("t", (name(0), name(1))))
    with pytest.raises(InvalidParameter):
        merged_all(tail)
    with pytest.raises(InvalidParameter, match="not signed"):
        merged_all(opened(MemoryStorage(), the_table(tail), signed=False))


def test_a_vacuumed_run_with_an_index_is_not_merged_and_one_of_the_tail_is(empty: OpenVersion) -> None:
    version = load(load(empty, 0, KEYED[0], GRIDDED), 1, KEYED[1], GRIDDED)
    version = vacuumed(without(version, 0, 1), "t")
    with pytest.raises(InvalidParameter, match="lost their keys"):
        merged_all(version)
    assert merged_all(vacuumed(without(tail_of((16, 16), (16, 16)), 0, 1), "t"))


def test_a_key_outside_of_the_domain_stops_a_merge(empty: OpenVersion) -> None:
    version = load(load(empty, 0, KEYED[0], GRIDDED), 1, KEYED[1], GRIDDED)
    table = the_table(version)
    run = table.runs[1]
    layer = LayerWriter(version.storage, KEYS, table, run, (0,), (0, 1))
    layer.write(0, 0, np.full(PAGE_ROWS, SIZE, np.int64), np.ones(PAGE_ROWS, np.uint8))
    version = version.having(replace(table, runs=(table.runs[0], run.under(layer.finish()))))
    with pytest.raises(BadRows):
        merged_all(version)


# --- vacuums ---------------------------------------------------------------------------------------


def test_a_vacuum_seals_anew_what_has_layers(empty: OpenVersion) -> None:
    version = load(load(load(empty, 0, KEYED[0], GRIDDED), 1, KEYED[1], GRIDDED), 2, KEYED[0])
    version, before = without(version, 1, 0, 2), the_table(version).runs
    table = the_table(version)
    layer = LayerWriter(version.storage, KEYS, table, table.runs[2], (1,), (0, 1))
    layer.write(1, 0, np.full(PAGE_ROWS, 8, np.int64), np.ones(PAGE_ROWS, np.uint8))
    version = version.having(replace(table, runs=(*table.runs[:2], table.runs[2].under(layer.finish()))))
    made = vacuumed(version, "t")
    first, second, third = the_table(made).runs
    assert first is before[0]
    assert (second.id != before[1].id, second.erased, len(second.layers)) == (True, True, 1)
    assert (third.id != before[2].id, third.erased, third.layers) == (True, False, ())
    assert has(made) == has(version)
    found = stored(made.storage, the_table(made), second)  # type: ignore[arg-type]
    assert [each for there, each in found if not there] == [row(None, None)] * 2
    again = vacuumed(made, "t")
    assert [run.erased for run in the_table(again).runs] == [False, True, False]
    assert has(again) == has(version)
    with pytest.raises(InvalidParameter, match="not signed"):
        vacuumed(opened(MemoryStorage(), table, signed=False), "t")


# --- flushes ---------------------------------------------------------------------------------------

REQUEST = BeginFlush(name(50), "t", (ORDER,), PAGE_ROWS, 1 << 20)


def flushed(version: OpenVersion, request: BeginFlush = REQUEST) -> OpenVersion:
    flush = begin_flush(version, request)
    assert flush is not None
    flush.reserve(KEYS, flush.sent_rows)
    flush.confirm(10**6)
    return loaded(version, flush, 10**6)  # the enclave has counted them


@pytest.mark.parametrize("orders", [(ORDER,), (GRIDDED,), (replace(ORDER, columns=("c0",)),)])
def test_a_flush_makes_a_batch_of_the_whole_tail(empty: OpenVersion, orders: tuple[IndexOrder, ...]) -> None:
    version = load(load(load(empty, 0, [row(2)], *orders), 1, NULLS[0]), 2, KEYED[1], capacity=16)
    version = without(version, len(the_table(version).runs) - 1, 0)
    made = flushed(version, replace(REQUEST, orders=orders))
    assert the_table(made).tail == ()
    runs = the_table(made).settled[len(the_table(version).settled) :]
    rows = [*NULLS[0], *KEYED[1][1:]]
    for run in runs:
        assert run.batch == name(50)
        assert run.capacity == 48
        found = alive(made, the_table(made), run)
        assert len(found) == len(rows)
        if run.columns is None:
            assert sorted(map(repr, found)) == sorted(map(repr, rows))
        keys = [SIZE if each[0] is None else each[0][0] for each in found]
        assert keys == sorted(keys)
    assert {run.attribute for run in runs} == ({"c0"} if orders[0].columns is None else {"c0", None})


def test_a_flush_ranks_rows_in_each_index(empty: OpenVersion) -> None:
    orders = ORDER, replace(ORDER, attribute="c1")
    rows = [row(key, value) for key, value in ((9, 3), (1, 60), (30, 0))]
    made = flushed(load(empty, 1, rows), replace(REQUEST, orders=orders))
    first, second = has(made)
    assert first == sorted(rows, key=lambda each: each[0] or ())
    assert second == sorted(rows, key=lambda each: each[1] or ())


def test_a_flush_is_filled_up_to_a_page_and_nobody_adds_to_it(empty: OpenVersion) -> None:
    version = load(empty, 1, NULLS[0], capacity=16)
    flush = begin_flush(version, replace(REQUEST, page_rows=32))
    assert flush is not None
    assert flush.sent_rows == 32
    with pytest.raises(InvalidParameter, match="from the tail"):
        flush.append(memoryview(b""))
    assert begin_flush(version, replace(REQUEST, batch=name(1))) is None


def test_the_same_tail_has_the_same_release_and_another_one_another(empty: OpenVersion) -> None:
    def index(version: OpenVersion) -> bytes | None:
        return the_table(flushed(version)).settled[0].index

    version = load(empty, 1, NULLS[0])
    assert index(version) == index(load(empty, 2, NULLS[0]))
    assert index(version) != index(load(empty, 1, KEYED[0]))


def test_a_flush_of_a_row_outside_of_the_domain_fails(empty: OpenVersion) -> None:
    version = load(empty, 1, [row(SIZE), row(SIZE - 1)])
    with pytest.raises(BadRows):
        begin_flush(version, REQUEST)
    assert begin_flush(without(version, 0, 0), REQUEST)  # it is deleted


def test_what_cannot_be_flushed_is_refused(empty: OpenVersion) -> None:
    version = load(empty, 1, NULLS[0])
    for request, error in (
        (replace(REQUEST, orders=()), InvalidParameter),
        (replace(REQUEST, orders=(replace(ORDER, epsilon=Fraction(0)),)), InvalidParameter),
        (replace(REQUEST, orders=(replace(ORDER, beta=Fraction(0)),)), InvalidParameter),
    ):
        with pytest.raises(error):
            begin_flush(version, request)
    with pytest.raises(InvalidParameter, match="nothing to be flushed"):
        begin_flush(load(empty, 1, [row(1)], ORDER), REQUEST)
    other = replace(ORDER, attribute="c1")
    indexed = load(load(empty, 2, [row(1)], ORDER), 1, NULLS[0])
    with pytest.raises(Exists):
        begin_flush(indexed, replace(REQUEST, orders=(other,)))
    with pytest.raises(Exists):
        begin_flush(indexed, replace(REQUEST, orders=(replace(ORDER, columns=("c0",)),)))
    assert begin_flush(indexed, REQUEST)
    with pytest.raises(InvalidParameter, match="not signed"):
        begin_flush(opened(MemoryStorage(), the_table(version), signed=False), REQUEST)


def grant(*rights: str, limit: int = 4) -> Grant:
    return Grant("a" * 16, "ada", b"a" * 32, {"t": frozenset(rights)}, Fraction(limit))  # type: ignore[arg-type]


def test_an_analyst_flushes_where_it_may_load_and_what_it_can_pay(
    empty: OpenVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = load(empty, 1, NULLS[0])
    for given, error in ((grant("insert", "read"), Refused), (grant("load", limit=3), Overdraft)):
        access = replace(version.manifest.access, grants=(given,))
        with pytest.raises(error):
            begin_flush(replace(version, grant=given, manifest=replace(version.manifest, access=access)), REQUEST)
    chunks: list[int] = []
    given = grant("load")
    access = replace(version.manifest.access, grants=(given,))
    ada = replace(version, grant=given, manifest=replace(version.manifest, access=access))
    plain: Callable[..., None] = Flush.__init__

    def watched(flush: Flush, *args: Any, **options: Any) -> None:
        chunks.append(args[4])
        plain(flush, *args, **options)

    monkeypatch.setattr(Flush, "__init__", watched)
    monkeypatch.setattr(flushes, "ANALYST_MEMORY_BYTES", 5000)
    for memory_bytes in (1 << 20, 4000):
        assert begin_flush(ada, replace(REQUEST, memory_bytes=memory_bytes))
        assert begin_flush(version, replace(REQUEST, memory_bytes=memory_bytes))
    assert chunks == [5000, 1 << 20, 4000, 4000]


# --- what earlier batches have released ------------------------------------------------------------


def test_a_batch_is_cut_as_those_before_it(empty: OpenVersion) -> None:
    def earlier(version: OpenVersion, order: IndexOrder = GRIDDED) -> EarlierRuns:
        return earlier_runs(version, the_table(version), (order,))[order.attribute]

    assert earlier(empty).grid(100) == NEW
    assert earlier_runs(empty, the_table(empty), (ORDER,)) == {}
    plain = load(empty, 0, KEYED[0], ORDER)
    found = earlier(load(plain, 1, KEYED[1], ORDER))
    assert found.known is None
    assert found.first is not None
    assert found.first.to_bytes() == the_table(plain).runs[0].index
    assert found.grid(900) == Grid.of_models([found.first], 900).packed
    mixed = load(plain, 1, KEYED[0], GRIDDED)
    known = tally_of(mixed, the_table(mixed).runs[1]).grid
    assert known is not None
    assert earlier(mixed).grid(900) == known.packed
    for other in (replace(GRIDDED, attribute="c1"), replace(GRIDDED, domain=parse_domain("int:0:62"))):
        assert earlier(mixed, other).grid(900) == NEW
        assert earlier(mixed, other).domain is other.domain


def test_an_index_without_a_tally_is_taken_as_a_whole(empty: OpenVersion, monkeypatch: pytest.MonkeyPatch) -> None:
    version = load(empty, 0, KEYED[0], ORDER)
    (run,) = the_table(version).runs
    tally = tally_of(version, run)
    assert isinstance(tally, Tally)
    assert (tally.counted, tally.capacity) == ((), 32)
    with pytest.raises(InvalidParameter, match="this kind"):
        tally_of(version, replace(run, index=None))
    monkeypatch.setattr(grids, "decoded", lambda data: object())  # a comparator's
    with pytest.raises(InvalidParameter, match="this kind"):
        tally_of(version, run)
    assert earlier_runs(version, the_table(version), (GRIDDED,))["c0"].grid(900) == NEW


# --- rows on their way -----------------------------------------------------------------------------


def test_rows_are_gathered_as_a_load_would_have_sent_them() -> None:
    """Their words, which of them are not null, and their ranks; a dummy's is one more than a null's."""
    storage, table = MemoryStorage(), table_of(*(["integer"] * 65), "text(12)")
    text = table.schema.columns[65].type.words_of("text")
    rows = [(*((k + place,) if (k + place) % 3 else None for place in range(65)), text) for k in range(16)]
    table = with_run(storage, table, Run(name(0), name(1), None, 16, 16, None, (), tail=True), rows)
    version = opened(storage, table)
    version.manifest.dummies[name(0)] = Dummies.after(14)
    version = without(version, 0, 2)
    rule = rank_rule(table.schema.columns[64].type, parse_domain("int:0:90"))
    layout = RowLayout(table.schema, (91,))
    for live in (False, True):
        found = Gathering(version, table, layout, [(64, rule)], live=live)
        (words,) = found.rows_of(the_table(version).runs[0])
        assert words.shape == (16, found.words) == (16, 65 + len(text) + 2 + 1 + live)
        found.check()
        assert found.real_rows.tolist() == [14 if live else 13]
        for k, (made, given) in enumerate(zip(words.tolist(), rows, strict=True)):
            if k >= 14 or (k == 2 and not live):
                assert made == [0] * (65 + len(text) + 2) + [92] + [0] * live
                continue
            assert made[:65] == [0 if value is None else value[0] for value in given[:65]]
            assert made[65 : 65 + len(text)] == list(text)
            bits = sum(1 << place for place, value in enumerate(given) if value is not None)
            assert [bits & 0xFFFF_FFFF_FFFF_FFFF, bits >> 64] == [b % (1 << 64) for b in made[-3 - live : -1 - live]]
            assert made[-1 - live] == (91 if given[64] is None else k + 64)
            assert not live or made[-1] == (k != 2)


def test_each_column_has_a_bit_that_says_what_is_null() -> None:
    layout = RowLayout(table_of(*(["integer"] * 130)).schema, ())
    rows = np.zeros((1, layout.words), np.int64)
    for place in (0, 63, 64, 65, 127, 128):
        rows[:] = 0
        rows[0, layout.validity_offset + place // 64] = np.uint64(1 << place % 64).astype(np.int64)
        assert [each for each in range(130) if sealing.validity(rows, layout, each)[0]] == [place]


def test_rows_beyond_the_capacity_are_not_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "SEALED_ROWS", 16)
    rows = Rows(MemoryStorage(), 1, 48)
    rows.append(np.arange(144, dtype=np.int64).reshape(-1, 1))
    made = Run(name(0), name(1), None, 80, 16, None, ())
    pieces = [(first, piece[:, 0].tolist()) for first, piece in sealing._pieces(rows, made)]
    assert pieces == [(page, list(range(16 * page, 16 * page + 16))) for page in range(5)]


def test_where_nothing_can_be_null_nothing_says_what_is() -> None:
    storage, table = MemoryStorage(), table_of(*(["integer not null"] * 65))
    table = with_run(storage, table, Run(name(0), name(1), None, 16, 16, None, ()), [((7,),) * 65] * 16)
    found = Gathering(opened(storage, table), table, RowLayout(table.schema, ()), (), live=True)
    (words,) = found.rows_of(table.runs[0])
    assert words.tolist() == [[7] * 65 + [1]] * 16


def test_ranks_that_only_the_owner_knows_are_not_gathered() -> None:
    table = table_of("double")
    rule = rank_rule(table.schema.columns[0].type, parse_domain("decimal:0:10:0.5"))
    with pytest.raises(InvalidParameter, match="by itself"):
        Gathering(opened(MemoryStorage(), table), table, RowLayout(table.schema, (21,)), [(0, rule)], live=True)
