"""Pages: every width, nullable or not, comes back as it was; and nothing else opens in its place."""

import hashlib
import hmac
import json
import struct
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from enclave_tables import DATA_KEY, DATABASE, KEYS, TYPES, MemoryStorage, table_of
from numpy.typing import NDArray

from scumble.enclave.grants import AccessList
from scumble.enclave.manifests import seal_manifest
from scumble.enclave.pages import DataKeys, Room, RunReader, RunWriter, Scratch, reseal_run
from scumble.errors import Tampered
from scumble.types import Schema, parse_type
from scumble.wire.catalog import TAG_BYTES, Catalog, Run, Table

PAGE_ROWS, PAGES = 16, 5
ROWS = PAGE_ROWS * PAGES
RUN, OTHER = "cd" * 16, "ef" * 16


def _words(table: Table, column: int, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.uint8] | None]:
    """Words that use the whole width of a column."""
    rng = np.random.default_rng([seed, column])
    kind = table.schema.columns[column].type
    words = kind.widened(kind.from_page(rng.integers(0, 255, ROWS * kind.width_bytes, np.uint8, endpoint=True)))
    valid = rng.integers(0, 2, ROWS, np.uint8) if table.schema.columns[column].nullable else None
    return words, valid


def _written(table: Table, storage: MemoryStorage, run: str = RUN, keys: DataKeys = KEYS) -> Run:
    writer = RunWriter(storage, keys, table, run, PAGES, PAGE_ROWS)
    for column in range(len(table.schema)):
        words, valid = _words(table, column)
        for first, last in ((3, PAGES), (0, 3)):
            rows = slice(first * PAGE_ROWS, last * PAGE_ROWS)
            writer.write(column, first, words[rows], None if valid is None else valid[rows])
    return Run(run, "b", None, ROWS, PAGE_ROWS, None, writer.finish())


def _check(table: Table, reader: RunReader, room: Room | None = None) -> None:
    for column in range(len(table.schema)):
        words, valid = _words(table, column)
        for first, pages in ((0, PAGES), (0, 1), (4, 1), (1, 3)):
            got = reader.fetch(column, first, pages, room)
            rows = slice(first * PAGE_ROWS, (first + pages) * PAGE_ROWS)
            assert (got.words == words[rows]).all()
            assert got.words.dtype == np.int64
            assert (got.valid is None) == (valid is None)
            if got.valid is not None and valid is not None:
                assert (got.valid == valid[rows]).all()


@pytest.mark.parametrize("kind", ["integer", "integer not null", "text(9)"])
def test_no_pages_have_no_rows(kind: str) -> None:
    table, storage = table_of(kind), MemoryStorage()
    reader = RunReader(storage, KEYS, table, _written(table, storage))
    fetched = reader.fetch(0, 2, 0)
    assert len(fetched.words) == 0
    assert fetched.valid is None or len(fetched.valid) == 0


def test_a_room_is_used_again_for_columns_of_any_width() -> None:
    """Whatever it held: longer pages, shorter ones, more of them or fewer."""
    table, storage = table_of(*TYPES, *(f"{kind} not null" for kind in TYPES)), MemoryStorage()
    reader, room = RunReader(storage, KEYS, table, _written(table, storage)), Room()
    for _ in range(2):
        _check(table, reader, room)
    first = reader.fetch(0, 0, 1).words.copy()
    assert (reader.fetch(0, 0, 1, room).words == first).all()
    assert repr(room).startswith("Room(bytes=")


@pytest.mark.parametrize("sizes", [[(8, 3)], [(8, 3), (5, 2)], [(3, 2), (8, 4), (4, 2)], [(9, 4), (8, 1), (8, 3)]])
def test_a_room_that_was_cleared_holds_nothing(sizes: list[tuple[int, int]]) -> None:
    """Of all that was ever put there since the last time; and memory only as much as it may."""
    room = Room()
    for size, count in sizes:
        whole, pieces = room.cut(size, count)
        assert [len(piece) for piece in pieces[:count]] == [size] * count
        whole[:] = 7
        assert all(bytes(piece) == b"\7" * size for piece in pieces[:count])
    most = max(size * count for size, count in sizes)
    room.clear(most)
    everything = np.frombuffer(room._bytes, np.uint8)
    assert len(everything) == most
    assert not everything.any()
    room.cut(8, 1)[0][:] = 7
    room.clear(most - 1)
    assert repr(room) == "Room(bytes=0)"
    assert not everything.any()
    room.clear(0)


def test_a_room_that_was_never_used_can_be_cleared() -> None:
    room = Room()
    room.clear(0)
    assert repr(room) == "Room(bytes=0)"


def test_what_is_fetched_without_a_room_stays() -> None:
    table, storage = table_of("smallint"), MemoryStorage()
    reader = RunReader(storage, KEYS, table, _written(table, storage))
    before = reader.fetch(0, 0, 1)
    assert before.valid is not None
    words, valid = before.words.copy(), before.valid.copy()
    reader.fetch(0, 1, 1)
    assert (before.words == words).all()
    assert (before.valid == valid).all()


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("nullable", ["", " not null"])
@pytest.mark.parametrize("kind", TYPES)
def test_every_type_comes_back(kind: str, nullable: str, older: bool) -> None:
    table, storage = table_of(kind + nullable), MemoryStorage()
    if older:
        table = _as_in_0_1(table)
    run = _written(table, storage)
    _check(table, RunReader(storage, KEYS, table, run))
    marks = 0 if nullable else PAGE_ROWS if older else PAGE_ROWS // 8
    slot = PAGE_ROWS * table.schema.columns[0].type.width_bytes + marks + TAG_BYTES
    assert storage.shapes[RUN] == [(PAGES, slot)]
    assert len(storage.pages[RUN, 0]) == PAGES * slot


def _as_in_0_1(table: Table) -> Table:
    """With columns as wide as release 0.1 wrote them."""
    return replace(
        table,
        schema=Schema(
            tuple(replace(c, type=replace(c.type, narrow=False), null_bits=not c.nullable) for c in table.schema)
        ),
    )


@pytest.mark.parametrize(
    ("kind", "words", "expected"),
    [
        ("utinyint", [0, 255, 7, 128], "00ff0780"),
        ("usmallint", [65535, 1], "ffff0100"),
        ("uinteger", [2**32 - 1, 2], "ffffffff02000000"),
        (f"category({json.dumps([f'{n:03d}' for n in range(256)])})", [255, 128, 1], "ff8001"),
        (f"category({json.dumps([f'{n:03d}' for n in range(257)])})", [256, 128], "00018000"),
    ],
)
def test_words_without_a_sign_take_no_bit_for_it(kind: str, words: list[int], expected: str) -> None:
    type_ = parse_type(kind)
    assert type_.to_page(np.array(words, np.int64)).tobytes().hex() == expected
    assert type_.widened(type_.from_page(np.frombuffer(bytes.fromhex(expected), np.uint8))).tolist() == words


def test_a_null_is_a_bit_of_the_byte_that_the_format_says() -> None:
    table, storage = table_of("tinyint"), MemoryStorage()
    valid = np.zeros(2 * PAGE_ROWS, np.uint8)
    for row in (0, 3, 15, 16 + 5):  # an eighth of a page is two rows: row r is bit r // 2 of byte r % 2
        valid[row] = 1
    writer = RunWriter(storage, KEYS, table, RUN, 2, PAGE_ROWS)
    writer.write(0, 0, np.zeros(2 * PAGE_ROWS, np.int64), valid)
    run = Run(RUN, "b", None, 2 * PAGE_ROWS, PAGE_ROWS, None, writer.finish())
    pages = RunReader(storage, KEYS, table, run).open_pages(0, 0, 2).reshape(2, -1)
    assert pages[:, PAGE_ROWS:].tolist() == [[1 << 0, 1 << 1 | 1 << 7], [0, 1 << 2]]


def test_many_columns_and_a_run_sealed_anew() -> None:
    table, storage = table_of(*TYPES), MemoryStorage()
    run = _written(table, storage)
    reader = RunReader(storage, KEYS, table, run)
    _check(table, reader)
    new = DataKeys(bytes(32), DATABASE)
    sealed = reseal_run(storage, table, run, reader, new)
    assert sealed.id != run.id
    assert len(bytes.fromhex(sealed.id)) == 16
    _check(table, RunReader(storage, new, table, sealed))
    with pytest.raises(Tampered):
        RunReader(storage, KEYS, table, sealed).fetch(0, 0, 1)


def test_a_run_has_tags_for_the_columns_that_it_holds_in_whichever_order_they_are_written() -> None:
    table, storage = table_of("integer not null", "smallint", "bigint not null"), MemoryStorage()
    writer = RunWriter(storage, KEYS, table, RUN, PAGES, PAGE_ROWS, (1,))
    words, valid = _words(table, 1)
    assert valid is not None
    for page in (3, 0, 4, 2, 1):
        rows = slice(page * PAGE_ROWS, (page + 1) * PAGE_ROWS)
        writer.write(1, page, words[rows], valid[rows])
    run = Run(RUN, "b", None, ROWS, PAGE_ROWS, None, writer.finish(), (1,))
    assert [len(storage.tag_bytes[RUN, place]) for place in range(3)] == [0, PAGES * TAG_BYTES, 0]
    fetched = RunReader(storage, KEYS, table, run).fetch(1, 0, PAGES)
    assert (fetched.words == words).all()
    assert fetched.valid is not None
    assert (fetched.valid == valid).all()


@pytest.mark.parametrize(("first", "pages"), [(-1, 1), (0, PAGES + 1), (PAGES, 1), (2, -1), (-1, 0), (PAGES + 1, 0)])
def test_pages_that_there_are_not(first: int, pages: int) -> None:
    table, storage = table_of("integer"), MemoryStorage()
    reader = RunReader(storage, KEYS, table, _written(table, storage))
    with pytest.raises(Tampered):
        reader.fetch(0, first, pages)


def test_every_byte_counts() -> None:
    table, storage = table_of("smallint", "tinyint"), MemoryStorage()
    run = _written(table, storage)
    for column in range(2):
        pages = storage.pages[RUN, column]
        for at in range(len(pages)):
            pages[at] ^= 1 << at % 8
            with pytest.raises(Tampered):
                RunReader(storage, KEYS, table, run).open_pages(column, 0, PAGES)
            pages[at] ^= 1 << at % 8
        tags = storage.tag_bytes[RUN, column]
        for changed in (tags[:-1], tags + b"\0", tags[16:] + tags[:16], bytes(len(tags)), b""):
            storage.tag_bytes[RUN, column] = changed
            with pytest.raises(Tampered):
                RunReader(storage, KEYS, table, run).open_pages(column, 0, 1)
        storage.tag_bytes[RUN, column] = tags
    _check(table, RunReader(storage, KEYS, table, run))


def test_a_page_of_another_place_with_a_manifest_that_vouches_for_it() -> None:
    """Even if the hash of the tags fitted, nonce and associated data would not."""
    table, storage = table_of("integer", "integer"), MemoryStorage()
    run = _written(table, storage)
    slot = storage.shapes[RUN][0][1]

    def check(content: bytes, **changes: object) -> None:
        before = bytes(storage.pages[RUN, 0]), storage.tag_bytes[RUN, 0]
        storage.pages[RUN, 0][:slot] = content
        storage.tag_bytes[RUN, 0] = content[-TAG_BYTES:] + before[1][TAG_BYTES:]
        hashes = (hashlib.sha256(storage.tag_bytes[RUN, 0]).hexdigest(), run.tag_hashes[1])
        with pytest.raises(Tampered):
            RunReader(storage, KEYS, table, replace(run, tag_hashes=hashes)).fetch(0, 0, 1)
        storage.pages[RUN, 0][:], storage.tag_bytes[RUN, 0] = before

    check(bytes(storage.pages[RUN, 0][slot : 2 * slot]))
    check(bytes(storage.pages[RUN, 1][:slot]))
    _written(table, storage, OTHER)
    check(bytes(storage.pages[OTHER, 0][:slot]))
    elsewhere = MemoryStorage()
    _written(replace(table, id="00" * 16), elsewhere)
    check(bytes(elsewhere.pages[RUN, 0][:slot]))
    _written(table, elsewhere, keys=DataKeys(bytes(range(32)), "0b" * 16))
    check(bytes(elsewhere.pages[RUN, 0][:slot]))
    longer = MemoryStorage()
    writer = RunWriter(longer, KEYS, table, RUN, PAGES + 1, PAGE_ROWS)
    writer.write(0, 0, _words(table, 0)[0], _words(table, 0)[1])
    check(bytes(longer.pages[RUN, 0][:slot]))


def test_a_page_that_was_sealed_for_its_very_place_but_never_vouched_for() -> None:
    """Under the right key, nonce and associated data: the cipher accepts it, and only the manifest's hash does not."""
    table, storage, other = table_of("integer"), MemoryStorage(), MemoryStorage()
    run = _written(table, storage)
    writer = RunWriter(other, KEYS, table, RUN, PAGES, PAGE_ROWS)
    words, valid = _words(table, 0, seed=1)
    writer.write(0, 0, words, valid)
    forged = replace(run, tag_hashes=writer.finish())
    assert (RunReader(other, KEYS, table, forged).fetch(0, 0, PAGES).words == words).all()
    slot = storage.shapes[RUN][0][1]
    for page in range(PAGES):
        at = slice(page * slot, (page + 1) * slot)
        vouched, storage.pages[RUN, 0][at] = storage.pages[RUN, 0][at], other.pages[RUN, 0][at]
        with pytest.raises(Tampered):
            RunReader(storage, KEYS, table, run).fetch(0, 0, PAGES)
        storage.pages[RUN, 0][at] = vouched
    _check(table, RunReader(storage, KEYS, table, run))
    with pytest.raises(Tampered):
        RunReader(other, KEYS, table, run).fetch(0, 0, 1)


@pytest.mark.parametrize("more", [-1, -TAG_BYTES, -PAGES * TAG_BYTES, 1, TAG_BYTES])
def test_tags_that_are_too_few_or_too_many_although_a_manifest_vouches_for_them(more: int) -> None:
    table, storage = table_of("integer"), MemoryStorage()
    run = _written(table, storage)
    tags = storage.tag_bytes[RUN, 0]
    storage.tag_bytes[RUN, 0] = tags[:more] if more < 0 else tags + bytes(more)
    hashes = (hashlib.sha256(storage.tag_bytes[RUN, 0]).hexdigest(),)
    with pytest.raises(Tampered):
        RunReader(storage, KEYS, table, replace(run, tag_hashes=hashes)).fetch(0, PAGES - 1, 1)


def test_what_a_load_puts_away_comes_back_whole_or_not_at_all() -> None:
    scratch, data = Scratch(), bytes(range(40))
    sealed = bytes(scratch.seal("chunk 1", memoryview(data)))
    into = bytearray(len(data))
    scratch.open_into("chunk 1", sealed, memoryview(into))
    assert bytes(into) == data
    for other in (sealed[:-1], sealed + b"\0", b"", sealed[:11], bytes([sealed[0] ^ 1]) + sealed[1:]):
        with pytest.raises(Tampered):
            scratch.open_into("chunk 1", other, memoryview(into))
    for name, cipher in (("chunk 2", scratch), ("chunk 1", Scratch())):
        with pytest.raises(Tampered):
            cipher.open_into(name, sealed, memoryview(into))
    with pytest.raises(Tampered):
        scratch.open_into("chunk 1", sealed, memoryview(into)[1:])


def test_no_two_pages_are_sealed_alike() -> None:
    """Equal pages everywhere: every ciphertext and every tag differs."""
    table, storage = table_of("integer not null", "integer not null"), MemoryStorage()
    for run in (RUN, OTHER):
        writer = RunWriter(storage, KEYS, table, run, PAGES, PAGE_ROWS)
        for column in range(2):
            writer.write(column, 0, np.zeros(ROWS, np.int64), None)
    slot = storage.shapes[RUN][0][1]
    seen = {bytes(c[at : at + slot]) for c in storage.pages.values() for at in range(0, len(c), slot)}
    assert len(seen) == 4 * PAGES
    assert len({page[:16] for page in seen}) == 4 * PAGES


def test_a_page_is_sealed_as_it_is_written_down() -> None:
    """By hand: a key for the run, a nonce of column and page, and associated data that says whose it is."""
    table, storage = table_of("integer", "integer not null"), MemoryStorage()
    run = _written(table, storage)
    key = HKDF(SHA256(), 32, bytes.fromhex(RUN), b"scumble run v1|" + DATABASE.encode()).derive(DATA_KEY)
    for column, page in ((0, 0), (1, 3)):
        slot = storage.shapes[RUN][column][1]
        sealed = bytes(storage.pages[RUN, column][page * slot : (page + 1) * slot])
        place = struct.pack("<iq", column, page)
        prefix = b"scumble page v1" + bytes.fromhex(table.id) + bytes.fromhex(RUN) + struct.pack("<q", PAGES)
        plain = AESGCM(key).decrypt(place, sealed, prefix + place)
        words = _words(table, column)[0][page * PAGE_ROWS : (page + 1) * PAGE_ROWS]
        assert plain.startswith(words.astype("<i4").tobytes())
    assert run.pages == PAGES


def test_each_purpose_has_a_key_of_its_own_from_the_data_key() -> None:
    def derived(purpose: bytes) -> bytes:
        return HKDF(SHA256(), 32, None, purpose + b"|" + DATABASE.encode()).derive(DATA_KEY)

    assert KEYS.noise() == derived(b"scumble index noise v1")
    assert KEYS.fingerprint(b"digest") == hmac.digest(derived(b"scumble rows v1"), b"digest", "sha256")
    public, sealed = seal_manifest(KEYS, Catalog(DATABASE, 1, "", ()), {}, AccessList(bytes(32)))
    secret = AESGCM(derived(b"scumble manifest v1")).decrypt(sealed[:12], sealed[12:], public)
    assert secret[4:] == AccessList(bytes(32)).to_bytes()


def test_no_pages_can_be_opened_too_and_tags_are_read_once() -> None:
    table, storage = table_of("integer"), MemoryStorage()
    reader = RunReader(storage, KEYS, table, _written(table, storage))
    for first in (0, 2, PAGES):
        assert len(reader.open_pages(0, first, 0)) == 0
    storage.tag_bytes.clear()
    _check(table, reader)


def test_a_run_is_sealed_anew_a_few_pages_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scumble.enclave.pages.RESEALED_PAGES", 2)
    table, storage = table_of("integer", "text(20)"), MemoryStorage()
    run = _written(table, storage)
    new = DataKeys(bytes(32), DATABASE)
    sealed = reseal_run(storage, table, run, RunReader(storage, KEYS, table, run), new)
    _check(table, RunReader(storage, new, table, sealed))
