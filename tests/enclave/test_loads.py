"""Loads: rows in, sorted runs out, with nulls after all keys and dummies after the nulls; the same in little memory."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from enclave_tables import KEYS, MemoryStorage, table_of
from numpy.typing import NDArray

from scumble.enclave.grants import Cost
from scumble.enclave.loads import Load
from scumble.enclave.pages import RunReader
from scumble.errors import InvalidParameter
from scumble.types import parse_domain
from scumble.wire.catalog import Run, Table
from scumble.wire.requests import IndexOrder, RowLayout

PAGE_ROWS = 16
SIZE = 64
TABLE = table_of("integer", "bigint not null", "text(12)")
TEXT = TABLE.schema.columns[2].type
NOTHING = Cost(Fraction(0), Fraction(0))
ORDERS = tuple(
    IndexOrder(
        name, parse_domain(f"int:0:{SIZE - 1}"), Fraction(1), Fraction(0), Fraction(1, 10**6), 1, 4096, "measured"
    )
    for name in ("c0", "c1")
)


def _rows(real: int, capacity: int, orders: int, seed: int = 1) -> NDArray[np.int64]:
    """Real rows, a fifth of them with a null in c0, and dummies after them."""
    layout = RowLayout(TABLE.schema, (SIZE,) * orders)
    rng = np.random.default_rng(seed)
    rows = np.zeros((capacity, layout.words), np.int64)
    first, second = rng.integers(0, SIZE, real), rng.integers(0, SIZE, real)
    null = rng.integers(0, 5, real) == 0
    rows[:real, layout.column_offsets[0]] = np.where(null, 0, first)
    rows[:real, layout.column_offsets[1]] = second
    texts = [TEXT.words_of(str(1000 + place)) for place in range(real)]
    rows[:real, layout.column_offsets[2] : layout.validity_offset] = np.array(texts).reshape(real, TEXT.words)
    rows[:real, layout.validity_offset] = np.where(null, 0b110, 0b111)
    for place, ranks in list(enumerate((np.where(null, SIZE, first), second)))[:orders]:
        rows[:real, layout.key_offset + place] = ranks
        rows[real:, layout.key_offset + place] = SIZE + 1
    return rows


def _built(
    rows: NDArray[np.int64], orders: tuple[IndexOrder, ...], memory_bytes: int = 1 << 24
) -> tuple[tuple[Run, ...], MemoryStorage]:
    storage = MemoryStorage()
    load = Load(storage, TABLE, orders, PAGE_ROWS, memory_bytes, "ba" * 16, NOTHING)
    for at in range(0, len(rows), 37):
        load.append(memoryview(rows[at : at + 37].tobytes()))
    load.reserve(KEYS, len(rows))
    return load.build(), storage


def _content(table: Table, run: Run, storage: MemoryStorage) -> list[tuple[int, int, int, int]]:
    """Of each row: is c0 there, c0, c1, the first word of c2."""
    reader = RunReader(storage, KEYS, table, run)
    first, second, third = (reader.fetch(column, 0, run.pages) for column in range(3))
    assert first.valid is not None
    assert second.valid is None
    columns = first.valid, first.words, second.words, third.words[:, 0]
    return [(int(a), int(b), int(c), int(d)) for a, b, c, d in zip(*columns, strict=True)]


@pytest.mark.parametrize(("real", "capacity"), [(0, 16), (1, 16), (16, 16), (50, 96), (100, 112)])
@pytest.mark.parametrize("memory_bytes", [1, 4000, 1 << 24])
def test_every_run_has_every_row_in_its_order(real: int, capacity: int, memory_bytes: int) -> None:
    rows = _rows(real, capacity, 2)
    runs, storage = _built(rows, ORDERS, memory_bytes)
    given = sorted(
        (int(row[RowLayout(TABLE.schema, (SIZE, SIZE)).validity_offset]) & 1, int(row[0]), int(row[1]), int(row[2]))
        for row in rows[:real]
    )
    assert [run.attribute for run in runs] == ["c0", "c1"]
    assert {run.batch for run in runs} == {"ba" * 16}
    for place, run in enumerate(runs):
        assert (run.capacity, run.page_rows, run.pages) == (capacity, PAGE_ROWS, capacity // PAGE_ROWS)
        assert run.index is not None
        content = _content(TABLE, run, storage)
        assert sorted(content[:real]) == given
        assert set(content[real:]) <= {(0, 0, 0, 0)}  # dummies, all at the end
        keys = (
            [row[1] if row[0] else SIZE for row in content[:real]] if place == 0 else [row[2] for row in content[:real]]
        )
        assert keys == sorted(keys)


def test_small_chunks_go_to_the_provider_sealed_and_large_ones_do_not() -> None:
    rows = _rows(90, 96, 2)
    assert _built(rows, ORDERS)[1].scratch == {}
    small = _built(rows, ORDERS, 1)[1].scratch
    assert len(small) == 6
    plain = rows[3].tobytes()[16:24]
    assert not [piece for piece in small.values() if plain in piece]


def test_without_an_index_the_order_is_that_of_loading() -> None:
    rows = _rows(20, 32, 0)
    (run,), storage = _built(rows, ())
    assert run.attribute is None
    assert run.index is None
    given = [TEXT.words_of(str(1000 + place))[0] for place in range(20)]
    assert [row[3] for row in _content(TABLE, run, storage)] == given + [0] * 12


@pytest.mark.parametrize(("sent", "capacity"), [(16, 32), (32, 16), (17, 17), (0, 16)])
def test_rows_that_do_not_fill_the_capacity(sent: int, capacity: int) -> None:
    storage = MemoryStorage()
    load = Load(storage, TABLE, ORDERS, PAGE_ROWS, 1 << 20, "ba" * 16, NOTHING)
    load.append(memoryview(_rows(0, sent, 2).tobytes()))
    with pytest.raises(InvalidParameter):
        load.reserve(KEYS, capacity)
    assert storage.shapes == {}


def test_the_same_rows_again_give_the_same_indexes_and_any_others_do_not() -> None:
    """Of the same batch, in whatever memory; a row that differs, or another batch, gets noise of its own."""
    rough = tuple(replace(order, epsilon=Fraction(1, 100)) for order in ORDERS)
    rows = _rows(90, 96, 2)
    other = rows.copy()
    other[0] = rows[1]

    def indexes(rows: NDArray[np.int64], memory_bytes: int, batch: str) -> tuple[bytes | None, ...]:
        load = Load(MemoryStorage(), TABLE, rough, PAGE_ROWS, memory_bytes, batch, NOTHING)
        for at in range(0, len(rows), memory_bytes % 60 + 5):
            load.append(memoryview(rows[at : at + memory_bytes % 60 + 5].tobytes()))
        load.reserve(KEYS, len(rows))
        return tuple(run.index for run in load.build())

    first = indexes(rows, 1, "ba" * 16)
    assert indexes(rows, 1 << 24, "ba" * 16) == first
    for changed in (indexes(other, 1, "ba" * 16), indexes(rows, 1, "bb" * 16)):
        assert all(one != another for one, another in zip(first, changed, strict=True))
