"""Runs that hold some columns: what a load seals of them, what a rekey seals again, and what a loader may order."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from enclave_tables import KEYS, MemoryStorage, table_of
from numpy.typing import NDArray

from scumble.enclave.grants import Cost
from scumble.enclave.loads import Load
from scumble.enclave.orders import copies_of
from scumble.enclave.pages import DataKeys, RunReader, reseal_run
from scumble.errors import InvalidParameter, NotFound, Tampered
from scumble.types import IntegerDomain
from scumble.wire.catalog import Run
from scumble.wire.requests import IndexOrder, RowLayout

SIZE, PAGE_ROWS, REAL, CAPACITY = 64, 16, 90, 96
TABLE = table_of("integer not null", "integer", "integer not null")
NOTHING = Cost(Fraction(0), Fraction(0))


def order(name: str, *columns: str, **more: Any) -> IndexOrder:
    domain = IntegerDomain(0, SIZE - 1)
    made = IndexOrder(name, domain, Fraction(5), Fraction(0), Fraction(1, 10**6), 1, 4096, "measured", **more)
    return replace(made, columns=columns or None)


def given(orders: tuple[IndexOrder, ...]) -> NDArray[np.int64]:
    """Rows whose first and third columns are indexed as the orders say, and dummies after them."""
    layout = RowLayout(TABLE.schema, (SIZE,) * len(orders))
    rng = np.random.default_rng(4)
    rows = np.zeros((CAPACITY, layout.words), np.int64)
    rows[:REAL, :3] = rng.integers(0, SIZE, (REAL, 3))
    rows[:REAL, layout.validity_offset] = 0b111
    for place, each in enumerate(orders):
        rows[:REAL, layout.key_offset + place] = rows[:REAL, TABLE.schema.place(each.attribute)]
        rows[REAL:, layout.key_offset + place] = SIZE + 1
    return rows


def built(orders: tuple[IndexOrder, ...], memory_bytes: int) -> tuple[list[Run], MemoryStorage, NDArray[np.int64]]:
    rows, storage = given(orders), MemoryStorage()
    load = Load(storage, TABLE, orders, PAGE_ROWS, memory_bytes, "ba" * 16, NOTHING)
    load.append(memoryview(rows.tobytes()))
    load.reserve(KEYS, CAPACITY)
    return [run for run, _ in load.build(REAL)], storage, rows[:, :3]


def content(keys: DataKeys, run: Run, storage: MemoryStorage) -> NDArray[np.int64]:
    reader = RunReader(storage, keys, TABLE, run)
    return np.stack([reader.fetch(place, 0, run.pages).words for place in TABLE.held(run)], axis=1)


@pytest.mark.parametrize("memory_bytes", [1, 1 << 24])
@pytest.mark.parametrize("blocks", [None, 4])
def test_each_copy_has_its_columns_of_every_row(memory_bytes: int, blocks: int | None) -> None:
    orders = order("c0", "c0", "c1", blocks=blocks), order("c2", "c2", blocks=blocks)
    runs, storage, rows = built(orders, memory_bytes)
    assert [(run.attribute, run.columns) for run in runs] == [("c0", (0, 1)), ("c2", (2,)), (None, None)]
    other = DataKeys(bytes(range(32)), "d" * 40)
    for run in runs:
        resealed = reseal_run(storage, TABLE, run, RunReader(storage, KEYS, TABLE, run), other)
        assert (resealed.columns, resealed.capacity, resealed.index) == (run.columns, run.capacity, run.index)
        held = TABLE.held(run)
        for keys, each in ((KEYS, run), (other, resealed)):
            found = content(keys, each, storage)
            pages = [storage.shapes[each.id][place][0] for place in range(3)]
            assert pages == [run.pages if place in held else 0 for place in range(3)]
            if run.attribute is None:
                assert found.tolist() == rows.tolist()  # in the order of loading
                assert run.capacity == CAPACITY
            else:
                real = [row for row in found.tolist() if any(row)]
                assert sorted(real) == sorted(row for row in rows[:, list(held)].tolist() if any(row))
                keyed = [row[list(held).index(TABLE.schema.place(run.attribute))] for row in real]
                assert keyed == sorted(keyed)


def test_a_column_that_a_run_lacks_cannot_be_read() -> None:
    runs, storage, _ = built((order("c0", "c0", "c1"),), 1 << 24)
    reader = RunReader(storage, KEYS, TABLE, runs[0])
    with pytest.raises(Tampered):
        reader.fetch(2, 0, 1)


def test_there_is_a_copy_with_every_column_and_no_second_one() -> None:
    schema = TABLE.schema
    for orders, copies in (
        ((), ((None, None),)),
        ((order("c0"),), (("c0", None),)),
        ((order("c0", "c0"), order("c1")), (("c0", (0,)), ("c1", None))),
        ((order("c0", "c2", "c0"),), (("c0", (0, 2)), (None, None))),
        ((order("c0", "c2", "c1", "c0"),), (("c0", None),)),
    ):
        assert copies_of(schema, orders) == copies


@pytest.mark.parametrize("columns", [("c1",), ("c0", "c0"), ("c0", "C1"), ("c0", "c1", "c1")])
def test_columns_are_named_as_they_are_once_each_and_the_indexed_one_among_them(columns: tuple[str, ...]) -> None:
    with pytest.raises(InvalidParameter):
        copies_of(TABLE.schema, (order("c2"), order("c0", *columns)))
    with pytest.raises(InvalidParameter):
        copies_of(TABLE.schema, (replace(order("c0"), columns=()),))
    with pytest.raises(NotFound):
        copies_of(TABLE.schema, (order("c0", "c0", "c9"),))
