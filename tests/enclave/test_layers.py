"""Layers: what is rewritten has a key of its own, covers what was there before, and is what the manifest says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from enclave_tables import MemoryStorage

from scumble.enclave import pages
from scumble.enclave.pages import DataKeys, LayerWriter, RunReader, RunWriter, keep_tally, read_tally, reseal_run
from scumble.errors import Tampered
from scumble.types import Column, Schema, parse_type
from scumble.wire.catalog import LIVE, Layer, Run, Table

KEYS = DataKeys(bytes(range(32)), "ab" * 16)
SCHEMA = Schema((Column("a", parse_type("integer"), nullable=False), Column("b", parse_type("bigint"), nullable=True)))
PAGES, PAGE_ROWS = 6, 16
ROWS = PAGES * PAGE_ROWS


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
def table(storage: MemoryStorage) -> Table:
    bare = Table("cd" * 16, "t", SCHEMA, ())
    writer = RunWriter(storage, KEYS, bare, "01" * 16, PAGES, PAGE_ROWS)
    values = np.arange(ROWS, dtype=np.int64)
    writer.write(0, 0, values, None)
    writer.write(1, 0, values * 10, np.ones(ROWS, np.uint8))
    run = Run("01" * 16, "ba" * 16, None, ROWS, PAGE_ROWS, None, writer.finish())
    return replace(bare, runs=(run,))


def _layered(storage: MemoryStorage, table: Table, column: int, first: int, count: int, value: int) -> Table:
    run = table.runs[0]
    layer = LayerWriter(storage, KEYS, table, run, (column,), (first, count))
    if column == LIVE:
        layer.write_pages(LIVE, first, np.full((count, PAGE_ROWS), value, np.uint8))
    else:
        layer.write(column, first, np.full(count * PAGE_ROWS, value, np.int64), None)
    return replace(table, runs=(replace(run, layers=(*run.layers, layer.finish())),))


def _reader(storage: MemoryStorage, table: Table) -> RunReader:
    return RunReader(storage, KEYS, table, table.runs[0])


def test_a_page_is_read_from_the_last_layer_that_has_it(storage: MemoryStorage, table: Table) -> None:
    expected = np.arange(ROWS)
    for number, (first, count) in enumerate([(1, 3), (2, 1), (0, 2), (5, 1), (1, 3)]):
        table = _layered(storage, table, 0, first, count, 1000 + number)
        expected[first * PAGE_ROWS : (first + count) * PAGE_ROWS] = 1000 + number
        reader = _reader(storage, table)
        for start in range(PAGES):
            for stop in range(start, PAGES + 1):
                found = reader.fetch(0, start, stop - start).values
                assert found.tolist() == expected[start * PAGE_ROWS : stop * PAGE_ROWS].tolist()
        assert reader.fetch(1, 0, PAGES).values.tolist() == list(range(0, 10 * ROWS, 10))


def test_rows_are_alive_where_no_layer_says_otherwise(storage: MemoryStorage, table: Table) -> None:
    assert _reader(storage, table).live(0, PAGES) is None
    table = _layered(storage, table, LIVE, 2, 2, 0)
    live = _reader(storage, table).live(0, PAGES)
    assert live is not None
    assert live.tolist() == [1] * 32 + [0] * 32 + [1] * 32


@pytest.fixture
def sealings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes, bytes]]:
    """What every sealing of a page was under: key, nonce, associated data."""
    found: list[tuple[bytes, bytes, bytes]] = []
    cipher = AESGCM

    class Listening:
        def __init__(self, key: bytes) -> None:
            self._key, self._cipher = key, cipher(key)

        def encrypt_into(self, nonce: bytes, data: Any, associated: bytes, into: Any) -> None:
            found.append((self._key, nonce, associated))
            self._cipher.encrypt_into(nonce, data, associated, into)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._cipher, name)

    monkeypatch.setattr(pages, "AESGCM", Listening)
    return found


def test_no_two_rewrites_share_a_key_and_a_nonce(
    storage: MemoryStorage, table: Table, sealings: list[tuple[bytes, bytes, bytes]]
) -> None:
    for _ in range(3):
        table = _layered(storage, table, 0, 1, 3, 7)
        table = _layered(storage, table, LIVE, 0, PAGES, 1)
    reseal_run(storage, table, table.runs[0], _reader(storage, table), KEYS)
    assert len(sealings) == 3 * (3 + PAGES) + 3 * PAGES
    assert len({(key, nonce) for key, nonce, _ in sealings}) == len(sealings)
    assert len({associated for _, _, associated in sealings}) == len(sealings)


def test_a_writer_seals_no_page_twice(storage: MemoryStorage, table: Table) -> None:
    layer = LayerWriter(storage, KEYS, table, table.runs[0], (0, LIVE), (2, 2))
    layer.write(0, 3, np.zeros(PAGE_ROWS, np.int64), None)
    layer.write(0, 2, np.zeros(PAGE_ROWS, np.int64), None)
    with pytest.raises(AssertionError):
        layer.write(0, 3, np.ones(PAGE_ROWS, np.int64), None)
    run = RunWriter(storage, KEYS, table, "02" * 16, 2, PAGE_ROWS)
    run.write(0, 0, np.zeros(2 * PAGE_ROWS, np.int64), None)
    with pytest.raises(AssertionError):
        run.write(0, 1, np.zeros(PAGE_ROWS, np.int64), None)


def test_a_layer_of_another_place_or_version_is_tampered(storage: MemoryStorage, table: Table) -> None:
    table = _layered(storage, table, 0, 1, 2, 7)
    run = table.runs[0]
    (layer,) = run.layers
    for other in (replace(layer, first_page=2), replace(layer, pages=1), replace(layer, columns=(1,))):
        moved = replace(table, runs=(replace(run, layers=(other,)),))
        with pytest.raises(Tampered):
            _reader(storage, moved).open_pages(other.columns[0], other.first_page, 1)
    swapped = replace(layer, tag_hashes=("00" * 32,))
    with pytest.raises(Tampered):
        _reader(storage, replace(table, runs=(replace(run, layers=(swapped,)),))).open_pages(0, 1, 1)


@pytest.mark.parametrize(
    "layer",
    [
        Layer("03" * 16, 0, 7, (0,), ("00",)),
        Layer("03" * 16, -1, 2, (0,), ("00",)),
        Layer("03" * 16, 0, 0, (0,), ("00",)),
        Layer("03" * 16, 0, 1, (), ()),
        Layer("03" * 16, 0, 1, (0, 0), ("00", "00")),
        Layer("03" * 16, 0, 1, (2,), ("00",)),
        Layer("03" * 16, 0, 1, (-2,), ("00",)),
        Layer("03" * 16, 0, 1, (0, 1), ("00",)),
    ],
)
def test_a_catalog_with_a_layer_that_cannot_be_is_tampered(table: Table, layer: Layer) -> None:
    stated = replace(table, runs=(replace(table.runs[0], layers=(layer,)),)).to_json()
    with pytest.raises(Tampered):
        Table.from_json(stated)


def test_a_table_is_read_as_it_was_written_layers_and_all(storage: MemoryStorage, table: Table) -> None:
    table = _layered(storage, _layered(storage, table, 0, 1, 2, 7), LIVE, 0, 1, 0)
    run = replace(table.runs[0], tail=True, merged=("aa", "bb"), moved=True, tally=keep_tally(storage, KEYS, b"t"))
    read = Table.from_json(replace(table, runs=(run,)).to_json()).runs[0]
    assert read.to_json() == run.to_json()
    assert read.layers == run.layers
    assert (read.tail, read.merged, read.moved, read.erased, read.tally) == (True, ("aa", "bb"), True, False, run.tally)
    assert read.batches == ("aa", "bb")


def test_a_run_that_nothing_was_done_to_is_written_as_before(table: Table) -> None:
    assert set(table.runs[0].to_json()) == {
        "id", "batch", "attribute", "capacity", "page_rows", "index", "tag_hashes",
    }  # fmt: skip


def test_a_tally_is_what_was_kept(storage: MemoryStorage) -> None:
    kept = keep_tally(storage, KEYS, b"counts of nodes")
    assert read_tally(storage, KEYS, kept) == b"counts of nodes"
    with pytest.raises(Tampered):
        read_tally(storage, KEYS, replace(kept, tag_hash="00" * 32))
    with pytest.raises(Tampered):
        read_tally(storage, DataKeys(bytes(32), "ab" * 16), kept)


def test_a_vacuumed_run_has_no_deleted_value(storage: MemoryStorage, table: Table) -> None:
    table = _layered(storage, _layered(storage, table, 0, 0, 1, 77), LIVE, 0, 2, 0)
    fresh = reseal_run(storage, table, table.runs[0], _reader(storage, table), KEYS, erased=True)
    reader = RunReader(storage, KEYS, table, fresh)
    assert reader.fetch(0, 0, PAGES).values.tolist() == [0] * 32 + list(range(32, ROWS))
    column = reader.fetch(1, 0, PAGES)
    assert column.values.tolist() == [0] * 32 + list(range(320, 10 * ROWS, 10))
    assert column.valid is not None
    assert column.valid.tolist() == [0] * 32 + [1] * (ROWS - 32)
    live = reader.live(0, PAGES)
    assert live is not None
    assert live.tolist() == [0] * 32 + [1] * (ROWS - 32)
    kept = reseal_run(storage, table, table.runs[0], _reader(storage, table), KEYS)
    assert RunReader(storage, KEYS, table, kept).fetch(0, 0, 1).values.tolist() == [77] * 16
