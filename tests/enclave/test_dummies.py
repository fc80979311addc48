"""Where dummies lie, as a query sees it, and what a load with padded blocks seals: against plain Python."""

import struct
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import ceil

import numpy as np
import pytest
from enclave_tables import KEYS, MemoryStorage, table_of
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scumble.enclave import kernels, loads, sealing
from scumble.enclave.dummies import FAR, Dummies
from scumble.enclave.grants import Cost
from scumble.enclave.loads import Load
from scumble.enclave.pages import RunReader
from scumble.enclave.placing import placed
from scumble.errors import InvalidParameter, Tampered
from scumble.index.blocks import Blocks
from scumble.index.file import decode
from scumble.types import IntegerDomain
from scumble.wire.catalog import Run, Table
from scumble.wire.requests import IndexOrder, RowLayout

SIZE, PAGE_ROWS = 64, 16
NOTHING = Cost.of((), (Fraction(0), Fraction(0)))


def between(halves: list[int], lengths: list[int], real_rows: int) -> tuple[Dummies, list[int]]:
    """Blocks of such lengths, with so many rows in each half; and the stretches, flat."""
    count = len(lengths)
    places = np.concatenate([[0], np.cumsum(lengths)])
    blocks = Blocks(np.arange(2 * count + 1), np.zeros(count, np.int64), places, np.zeros(2 * count, np.int64))
    layout = blocks.lay_out(np.array(halves, dtype=np.int64))
    end = real_rows + int(layout.filled[-1])
    stretches = [place for pair in zip(layout.first, layout.last, strict=True) for place in map(int, pair)]
    return Dummies.between(blocks, layout, real_rows), [*stretches, end, FAR]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4),
    st.integers(0, 5),
    st.integers(0, 50),
    st.integers(0, 60),
)
def test_the_mask_leaves_out_every_stretch(
    sizes: list[tuple[int, int, int]], without_key: int, start: int, rows: int
) -> None:
    halves = [number for _, first, second in sizes for number in (first, second)]
    dummies, stretches = between(halves, [length for length, _, _ in sizes], sum(halves) + without_key)
    outside = [
        not any(low <= at < high for low, high in zip(stretches[::2], stretches[1::2], strict=True))
        for at in range(start, start + rows)
    ]
    again, end = Dummies.from_bytes(b"xy" + dummies.to_bytes() + b"z", 2)
    assert end == len(dummies.to_bytes()) + 2
    for each in (dummies, again):
        assert each.mask(start, rows).tolist() == outside
    assert sum(dummies.mask(0, 200).tolist()) == sum(halves) + without_key


def test_those_of_release_0_1_follow_the_rows() -> None:
    dummies, end = Dummies.from_bytes((23).to_bytes(8, "little") + b"more", 0)
    assert end == 8
    assert dummies.mask(20, 6).tolist() == [1, 1, 1, 0, 0, 0]
    assert dummies.to_bytes() == Dummies.after(23).to_bytes()


def test_its_length_depends_on_the_number_of_blocks_alone_and_its_repr_on_no_more() -> None:
    few, _ = between([1, 2, 3, 4], [9, 9], 10)
    many, _ = between([4, 4, 0, 0], [9, 9], 8)
    assert len(few.to_bytes()) == len(many.to_bytes()) > len(Dummies.after(10).to_bytes())
    assert repr(few) == repr(many) == "Dummies(blocks=2, stretches=<secret>)"


def test_its_bytes_are_those_that_manifests_hold() -> None:
    """How many blocks, where each ends, and of each where its dummies begin and end; the last has no end."""
    far = 1 << 62
    for dummies, words in (
        (Dummies.after(23), [1, far, 23, far]),
        (between([1, 2, 3, 4], [9, 8], 12)[0], [3, 9, 17, far, 1, 7, 12, 13, 19, far]),
    ):
        assert dummies.to_bytes() == struct.pack(f"<{len(words)}Q", words[0] | 1 << 63, *words[1:])


@pytest.mark.parametrize("cut", [0, 7, 9, 40])
def test_a_part_of_it_is_tampered_with(cut: int) -> None:
    whole = between([1, 2, 3, 4], [9, 9], 10)[0].to_bytes()
    with pytest.raises(Tampered):
        Dummies.from_bytes(whole[:cut], 0)


# --- loads -----------------------------------------------------------------------------------------


def loaded(
    keys: list[NDArray[np.int64]], blocks: int | None, memory_bytes: int = 1 << 24, epsilon: int = 10
) -> tuple[Table, list[tuple[Run, Dummies]], MemoryStorage]:
    """A table with a column for each of these keys, nullable where SIZE stands for a null, each indexed."""
    kinds = ["integer" if (column == SIZE).any() else "integer not null" for column in keys]
    table = table_of(*kinds)
    orders = tuple(
        IndexOrder(
            name.name,
            IntegerDomain(0, SIZE - 1),
            Fraction(epsilon),
            Fraction(0),
            Fraction(1, 10**6),
            1,
            None,
            "measured",
            blocks=blocks,
        )
        for name in table.schema
    )
    layout = RowLayout(table.schema, (SIZE,) * len(keys))
    real = len(keys[0])
    capacity = -(-real // PAGE_ROWS) * PAGE_ROWS
    rows = np.zeros((capacity, layout.words), np.int64)
    for place, column in enumerate(keys):
        rows[:real, layout.column_offsets[place]] = np.where(column == SIZE, 0, column)
        if layout.key_offset > layout.validity_offset:
            rows[:real, layout.validity_offset] |= (column < SIZE).astype(np.int64) << place
        rows[:real, layout.key_offset + place] = column
        rows[real:, layout.key_offset + place] = SIZE + 1
    storage = MemoryStorage()
    load = Load(storage, table, orders, PAGE_ROWS, memory_bytes, "ba" * 16, NOTHING)
    load.append(memoryview(rows.tobytes()))
    load.reserve(KEYS, capacity)
    return table, list(load.build(real)), storage


@pytest.mark.parametrize(("memory_bytes", "sealed_rows"), [(1 << 24, 1 << 16), (1 << 24, 100), (1, 1)])
@pytest.mark.parametrize("nulls", [False, True])
def test_rows_lie_in_the_blocks_that_the_index_says(
    monkeypatch: pytest.MonkeyPatch, memory_bytes: int, sealed_rows: int, nulls: bool
) -> None:
    monkeypatch.setattr(loads, "DUMMY_ROWS", sealed_rows)
    monkeypatch.setattr(sealing, "SEALED_ROWS", sealed_rows)
    rng = np.random.default_rng(9)
    keys = [
        rng.integers(0, SIZE, 900),
        np.where(rng.random(900) < 0.4 * nulls, SIZE, rng.integers(0, 9, 900) ** 2 % SIZE),
    ]
    table, built, storage = loaded(keys, 4, memory_bytes)
    for place, (run, dummies) in enumerate(built):
        assert run.index is not None
        index = decode(run.index)
        assert index.blocks is not None
        sent = 912 + 2 * int(index.blocks.slacks.sum()) if nulls and place == 1 else 912
        assert run.capacity == ceil(max(index.blocks.rows, sent) / PAGE_ROWS) * PAGE_ROWS
        reader = RunReader(storage, KEYS, table, run)
        other = reader.fetch(1 - place, 0, run.pages).words
        fetched = reader.fetch(place, 0, run.pages)
        real = dummies.mask(0, run.capacity).astype(bool)
        valid = np.ones(run.capacity, bool) if fetched.valid is None else fetched.valid.astype(bool)
        # All rows are there, whole, in the order of their keys, those without one last; and dummies hold nothing.
        assert sorted(zip(np.where(valid, fetched.words, SIZE)[real], other[real], strict=True)) == sorted(
            zip(keys[place], np.where(keys[1 - place] == SIZE, 0, keys[1 - place]), strict=True)
        )
        found = np.where(valid, fetched.words, SIZE)[real]
        assert (np.diff(found) >= 0).all()
        assert not fetched.words[~real].any()
        # A row of a block lies in its places: so lookups find it.
        places = np.flatnonzero(real)
        for key in range(SIZE):
            start, stop = index.lookup(key)
            assert ((places[found == key] >= start) & (places[found == key] < stop)).all()
        for block, (begin, end) in enumerate(pairwise(index.blocks.places.tolist())):
            low, high = (int(index.blocks.bounds[2 * block + side]) for side in (0, 2))
            inside = found[(places >= begin) & (places < end)]
            assert ((inside >= low) & (inside < high)).all()


def test_a_run_without_blocks_has_the_capacity_that_was_sent() -> None:
    keys = [np.arange(100) % SIZE]
    _, ((run, dummies),), _ = loaded(keys, None)
    assert run.index is not None
    assert decode(run.index).blocks is None
    assert run.capacity == 112
    assert dummies.to_bytes() == Dummies.after(100).to_bytes()


def test_rows_whose_build_failed_are_not_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """By then their keys have given way to what they are sorted by."""
    monkeypatch.setattr(Load, "_seal", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loaded([np.arange(100) % SIZE], None)
    table = table_of("integer not null")
    load = Load(MemoryStorage(), table, (), PAGE_ROWS, 1 << 20, "ba" * 16, NOTHING)
    load.append(memoryview(np.zeros((PAGE_ROWS, 1), np.int64).tobytes()))
    load.reserve(KEYS, PAGE_ROWS)
    with pytest.raises(ZeroDivisionError):
        load.build(PAGE_ROWS)
    with pytest.raises(InvalidParameter, match="used up"):
        load.build(PAGE_ROWS)


def test_as_many_blocks_as_suit_the_capacity() -> None:
    _, ((run, _),), _ = loaded([np.arange(20_000) % SIZE], None)
    assert run.index is not None
    blocks = decode(run.index).blocks
    assert blocks is not None
    assert len(blocks) == SIZE // 8
    assert run.capacity - 20_000 <= 200 + PAGE_ROWS


def test_a_block_with_far_too_many_rows_takes_the_dummies_of_the_others() -> None:
    """As unlikely as that a lookup loses a row; even so all real rows are within the capacity, and found there."""
    _, ((run, _),), _ = loaded([np.arange(900) % SIZE], 2)
    assert run.index is not None
    model = decode(run.index)
    blocks = Blocks(np.array([0, 16, 32, 48, 64]), np.ones(2, np.int64), np.array([0, 90, 100]), np.zeros(4, np.int64))
    counts = np.bincount([0, *[40] * 97], minlength=SIZE)
    for capacity, nullable, expected in ((96, False, 112), (112, False, 112), (113, False, 128), (112, True, 128)):
        where = placed(replace(model, blocks=blocks), counts, 100, capacity, PAGE_ROWS, nullable=nullable)
        assert where.capacity == expected
        assert where.filled.tolist() == [expected - 100] * 2
        real = where.dummies.mask(0, expected).tolist()
        assert real == [1] + [0] * (expected - 100) + [1] * 99


def test_rows_are_placed_by_their_keys_and_dummies_by_the_blocks_that_want_them() -> None:
    rows = np.array([[5, 0], [9, 1], [8, 2], [0, 3], [9, 4], [9, 5], [7, 6], [9, 7]])
    filled, sorted_as, seen = np.array([1, 1, 3]), np.array([3, 7, 11]), np.array([0])
    kernels.place_rows(rows[:4], 0, 8, filled, sorted_as, seen)
    assert seen.tolist() == [1]
    kernels.place_rows(rows[4:], 0, 8, filled, sorted_as, seen)
    assert seen.tolist() == [4]
    assert rows[:, 0].tolist() == [10, 3, 16, 0, 11, 11, 14, 17]
    assert rows[:, 1].tolist() == list(range(8))
