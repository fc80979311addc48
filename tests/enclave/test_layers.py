"""Layers: what is rewritten has a key of its own, covers what was there before, and is what the manifest says."""

import hashlib
import struct
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


def test_keys_are_derived_as_they_were() -> None:
    """Or nobody could read what was stored: of each cipher, the tag of nothing under the nonce 0."""
    name = "01" * 16
    ciphers = {"manifest": KEYS.manifest, "run": KEYS.run(name), "layer": KEYS.layer(name), "tally": KEYS.tally(name)}
    assert {what: cipher.encrypt(bytes(12), b"", None).hex() for what, cipher in ciphers.items()} == {
        "manifest": "3a5214a7b3d2ef3d729911b7a9cfedff",
        "run": "260ff218c59c5a7add34e58106af2839",
        "layer": "467c37490aa48fcafdca1fb5542d19c7",
        "tally": "e4631fe2b8d14bc2bd57578bea5104c0",
    }
    assert KEYS.noise().hex().startswith("501e3f110118ea810bd62fc3202b0a8c")
    assert KEYS.fingerprint(b"x").hex().startswith("9dac0c246ca8d90c23836f1a4c314e2a")


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


def test_pages_are_bound_to_what_they_are_pages_of(
    storage: MemoryStorage, table: Table, sealings: list[tuple[bytes, bytes, bytes]]
) -> None:
    """A page's nonce says which column and page it is; what is sealed with it, whose and of how many."""
    named = bytes.fromhex(table.id + table.runs[0].id)
    layer = _layered(storage, table, 0, 2, 1, 7).runs[0].layers[0]
    RunWriter(storage, KEYS, table, "02" * 16, 3, PAGE_ROWS).write(1, 2, np.zeros(PAGE_ROWS, np.int64), None)
    first, second = (struct.pack("<iq", column, 2) for column in (0, 1))
    assert [(nonce, associated) for _, nonce, associated in sealings] == [
        (first, b"scumble layer v1" + named + bytes.fromhex(layer.id) + struct.pack("<q", 1) + first),
        (
            second,
            b"scumble page v1" + bytes.fromhex(table.id) + bytes.fromhex("02" * 16) + struct.pack("<q", 3) + second,
        ),
    ]


def test_room_is_made_for_the_columns_that_are_held(storage: MemoryStorage, table: Table) -> None:
    RunWriter(storage, KEYS, table, "02" * 16, 3, PAGE_ROWS, (1,))
    slots = [table.slot_bytes(place, PAGE_ROWS) for place in (0, 1)]
    assert storage.shapes["02" * 16] == [(0, slots[0]), (3, slots[1])]
    layer = LayerWriter(storage, KEYS, table, table.runs[0], (1, LIVE), (2, 4))
    assert storage.shapes[layer.name] == [(4, slots[1]), (4, table.slot_bytes(LIVE, PAGE_ROWS))]
    assert len(layer.name) == 32


def test_pages_that_there_are_not_are_tampered(storage: MemoryStorage, table: Table) -> None:
    for _ in range(2):
        reader = _reader(storage, table)
        for column, first, count in ((0, 0, PAGES + 1), (0, -1, 2), (0, PAGES, 1), (0, 2, -1), (2, 0, 1), (LIVE, 0, 0)):
            with pytest.raises(Tampered):
                reader.open_pages(column, first, count)
        assert len(reader.open_pages(0, PAGES, 0)) == 0
        table = _layered(storage, table, 0, 1, 2, 7)


@pytest.mark.parametrize("count", [1, 2])
def test_a_tag_that_is_not_the_stored_one_is_tampered(storage: MemoryStorage, table: Table, count: int) -> None:
    """Even if the page itself is whole: what the manifest vouches for are the tags."""
    run = table.runs[0]
    other = bytearray(storage.tag_bytes[run.id, 0])
    other[16 * 3 + 5] ^= 1
    storage.tag_bytes[run.id, 0] = bytes(other)
    vouched = replace(run, tag_hashes=(hashlib.sha256(other).hexdigest(), run.tag_hashes[1]))
    reader = RunReader(storage, KEYS, table, vouched)
    assert len(reader.open_pages(0, 0, 3)) == 3 * PAGE_ROWS * 4
    with pytest.raises(Tampered):
        reader.open_pages(0, 4 - count, count)
    short = bytes(other[:-16])
    storage.tag_bytes[run.id, 0] = short
    vouched = replace(run, tag_hashes=(hashlib.sha256(short).hexdigest(), run.tag_hashes[1]))
    with pytest.raises(Tampered):
        RunReader(storage, KEYS, table, vouched).open_pages(0, 0, 1)


def test_a_tally_is_what_was_kept(storage: MemoryStorage) -> None:
    kept = keep_tally(storage, KEYS, b"counts of nodes")
    assert read_tally(storage, KEYS, kept) == b"counts of nodes"
    assert (len(kept.id), kept.size_bytes) == (32, 15)
    assert storage.shapes[kept.id] == [(1, 15 + 16)]
    assert storage.tag_bytes[kept.id, 0] == bytes(storage.pages[kept.id, 0][-16:])
    assert KEYS.tally(kept.id).decrypt(bytes(12), bytes(storage.pages[kept.id, 0]), None) == b"counts of nodes"
    other = keep_tally(storage, KEYS, b"other counts of")
    for altered in (replace(kept, tag_hash=other.tag_hash), replace(kept, size_bytes=14)):
        with pytest.raises(Tampered):
            read_tally(storage, KEYS, altered)
    tags = storage.tag_bytes[kept.id, 0]
    storage.tag_bytes[kept.id, 0] = storage.tag_bytes[other.id, 0]
    for altered in (kept, replace(kept, tag_hash=other.tag_hash)):
        with pytest.raises(Tampered):
            read_tally(storage, KEYS, altered)
    storage.tag_bytes[kept.id, 0] = tags
    storage.pages[kept.id, 0][0] ^= 1
    with pytest.raises(Tampered):
        read_tally(storage, KEYS, kept)
    storage.pages[kept.id, 0][0] ^= 1
    with pytest.raises(Tampered):
        read_tally(storage, KEYS, replace(kept, tag_hash="00" * 32))
    with pytest.raises(Tampered):
        read_tally(storage, DataKeys(bytes(32), "ab" * 16), kept)


@pytest.mark.parametrize("at_a_time", [1, 4, 64])
def test_a_resealed_run_has_the_same_rows_under_another_name(
    storage: MemoryStorage, table: Table, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    monkeypatch.setattr(pages, "RESEALED_PAGES", at_a_time)
    table = _layered(storage, _layered(storage, table, 0, 4, 2, 77), LIVE, 1, 2, 0)
    run = replace(table.runs[0], tally=keep_tally(storage, KEYS, b"counts"), based=2)
    fresh = reseal_run(storage, table, run, RunReader(storage, KEYS, table, run), KEYS)
    assert len(fresh.id) == 32
    assert fresh.id != run.id
    assert (fresh.based, fresh.columns, len(fresh.layers), fresh.layers[0].pages) == (None, None, 1, PAGES)
    assert fresh.tally is not None
    assert fresh.tally != run.tally
    reader, before = RunReader(storage, KEYS, table, fresh), RunReader(storage, KEYS, table, run)
    assert reader.tally() == b"counts"
    for column in (0, 1, LIVE):
        assert reader.open_pages(column, 0, PAGES).tolist() == before.open_pages(column, 0, PAGES).tolist()
    other = replace(table.runs[0], layers=(), tally=None)
    assert reseal_run(storage, table, other, RunReader(storage, KEYS, table, other), KEYS).layers == ()


def test_a_narrow_run_stays_narrow_unless_it_has_all_that_is_left(storage: MemoryStorage, table: Table) -> None:
    writer = RunWriter(storage, KEYS, table, "04" * 16, PAGES, PAGE_ROWS, (0,))
    writer.write(0, 0, np.arange(ROWS), None)
    run = Run("04" * 16, "b", "a", ROWS, PAGE_ROWS, None, writer.finish(), (0,))
    reader = RunReader(storage, KEYS, table, run)
    assert reseal_run(storage, table, run, reader, KEYS).columns == (0,)
    narrower = replace(table, schema=Schema(SCHEMA.columns[:1]))
    whole = reseal_run(storage, narrower, run, reader, KEYS, without=1)
    assert whole.columns is None
    assert RunReader(storage, KEYS, narrower, whole).fetch(0, 0, PAGES).values.tolist() == list(range(ROWS))
    assert pages._moved_up((0, 1, 3), 1) == (0, 2)
    assert pages._moved_up((0, 3), 1) == (0, 2)


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
