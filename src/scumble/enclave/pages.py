"""Pages: how columns of words are sealed for the provider, page by page, and opened again.

Plaintext pages are SECRET. A page holds the values of some rows of one column, narrowed to the width of its type, then,
if the column is nullable, a bit for each row that is 1 where there is a value; a byte in earlier tables. Its nonce is
(column, page), its associated data says whose it is, and its tag has to be the one that the manifest vouches for: a
page that was altered, swapped, truncated or taken from elsewhere is Tampered. Pages that are rewritten make a layer,
which has a key of its own.
"""

import hashlib
import hmac
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from scumble.enclave.kernels import Mask, Values, Words, split_pages
from scumble.errors import Tampered
from scumble.types import Column, ColumnType
from scumble.wire.catalog import LIVE, TAG_BYTES, Kept, Layer, Run, Table
from scumble.wire.requests import PageRange
from scumble.wire.storage import Storage

__all__ = [
    "KEY_BYTES",
    "NONCE_BYTES",
    "DataKeys",
    "FetchedColumn",
    "LayerWriter",
    "Room",
    "RunReader",
    "RunWriter",
    "Scratch",
    "blanked",
    "keep_tally",
    "read_tally",
    "reseal_run",
]


KEY_BYTES = 32
NONCE_BYTES = 12


class DataKeys:
    """SECRET: what one database's data key derives."""

    def __init__(self, data_key: bytes, database: str) -> None:
        self.data_key = data_key
        self._database = database.encode()
        self.manifest = AESGCM(self._derive(b"scumble manifest v1", b""))

    def run(self, run: str) -> AESGCM:
        return AESGCM(self._derive(b"scumble run v1", bytes.fromhex(run)))

    def layer(self, layer: str) -> AESGCM:
        return AESGCM(self._derive(b"scumble layer v1", bytes.fromhex(layer)))

    def tally(self, tally: str) -> AESGCM:
        return AESGCM(self._derive(b"scumble tally v1", bytes.fromhex(tally)))

    def noise(self) -> bytes:
        """The secret from which the noise of indexes is derived, and nothing else."""
        return self._derive(b"scumble index noise v1", b"")

    def fingerprint(self, digest: bytes) -> bytes:
        """A keyed hash of a digest of rows: it tells whether rows are the same, and to nobody else anything of them."""
        return hmac.digest(self._derive(b"scumble rows v1", b""), digest, "sha256")

    def _derive(self, purpose: bytes, salt: bytes) -> bytes:
        return HKDF(SHA256(), KEY_BYTES, salt or None, purpose + b"|" + self._database).derive(self.data_key)

    def __repr__(self) -> str:
        return "DataKeys(<secret>)"


class Scratch:
    """SECRET: a cipher for what a load keeps at the provider until it ends, under a key that dies with it."""

    def __init__(self) -> None:
        self._cipher = AESGCM(AESGCM.generate_key(256))

    def seal(self, name: str, data: memoryview) -> memoryview:
        """Seal under a random nonce, bound to the name."""
        nonce = os.urandom(NONCE_BYTES)
        sealed = memoryview(bytearray(NONCE_BYTES + len(data) + TAG_BYTES))
        sealed[:NONCE_BYTES] = nonce
        self._cipher.encrypt_into(nonce, data, name.encode(), sealed[NONCE_BYTES:])
        return sealed

    def open_into(self, name: str, sealed: bytes, into: memoryview) -> None:
        """The inverse, or Tampered."""
        if len(sealed) != NONCE_BYTES + len(into) + TAG_BYTES:
            raise Tampered
        source = memoryview(sealed)
        try:
            self._cipher.decrypt_into(source[:NONCE_BYTES], source[NONCE_BYTES:], name.encode(), into)
        except InvalidTag:
            raise Tampered from None


CACHED_ADDRESSES = 1 << 14  # of single pages, and as many ranges of them: a scan reads the same ones each time
RESEALED_PAGES = 64  # at a time


class Room:
    """SECRET: bytes for pages, used again and again: fresh ones would cost a page fault for every 4 KiB.

    Who reads a column into it is done with what was there before. `clear` leaves no value in it.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._pieces: tuple[int, list[memoryview]] = 0, []
        self._used = 0

    def cut(self, size: int, count: int) -> tuple[NDArray[np.uint8], list[memoryview]]:
        """The first `count` pieces of `size` bytes, as one array and one by one; perhaps more of these."""
        if len(self._bytes) < size * count:
            self._bytes, self._pieces = bytearray(size * count), (0, [])
        self._used = max(self._used, size * count)
        if self._pieces[0] != size or len(self._pieces[1]) < count:
            whole = memoryview(self._bytes)
            self._pieces = size, [whole[at : at + size] for at in range(0, size * count, size)]
        return np.frombuffer(self._bytes, np.uint8, size * count), self._pieces[1]

    def clear(self, most_bytes: int) -> None:
        """Overwrite what was put there since the last time; give the memory back if it is more than `most_bytes`."""
        if self._used:
            np.frombuffer(self._bytes, np.uint8, self._used)[:] = 0
            self._used = 0
        if len(self._bytes) > most_bytes:
            self._bytes, self._pieces = bytearray(), (0, [])

    def __repr__(self) -> str:
        return f"Room(bytes={len(self._bytes)})"


@dataclass(slots=True)
class FetchedColumn:
    """SECRET: some consecutive rows of one column, as they lie in pages, and which of them are not null."""

    values: Values
    valid: Mask | None
    type: ColumnType

    @property
    def words(self) -> Words:
        return self.values if self.values.itemsize == 8 else self.type.widened(self.values)

    @property
    def scanned(self) -> Values:
        """The column as kernels read it."""
        return self.type.scanned(self.values)

    @property
    def ordered(self) -> Values:
        """The column to compare with another."""
        return self.type.ordered(self.values)


_PLACE = struct.Struct("<iq")


class _Sealing:
    """What the pages of one stored object share: the cipher, and each page's nonce and associated data.

    The object is a run, or a layer over some pages of one. Each has a random name, and so a key of its own.
    """

    def __init__(self, keys: DataKeys, table: Table, page_rows: int, run: str, pages: int, layer: str = "") -> None:
        self.columns, self.page_rows = table.schema.columns, page_rows
        named = bytes.fromhex(table.id) + bytes.fromhex(run)
        if layer:
            self.cipher = keys.layer(layer)
            self._prefix = b"scumble layer v1" + named + bytes.fromhex(layer) + struct.pack("<q", pages)
        else:
            self.cipher = keys.run(run)
            self._prefix = b"scumble page v1" + named + struct.pack("<q", pages)
        self.addresses = lru_cache(CACHED_ADDRESSES)(self._addresses)

    def _addresses(self, column: int, first_page: int, pages: int) -> list[tuple[bytes, bytes]]:
        pack, prefix = _PLACE.pack, self._prefix
        nonces = [pack(column, page) for page in range(first_page, first_page + pages)]
        return [(nonce, prefix + nonce) for nonce in nonces]

    def page_bytes(self, column: int) -> int:
        """How many bytes a page has before it is sealed."""
        return self.page_rows if column == LIVE else self.columns[column].page_bytes(self.page_rows)


Held = tuple[int, ...] | None
"""PUBLIC: the places of the columns that a run holds; None stands for all."""


def reserve_run(storage: Storage, table: Table, run: str, pages: int, page_rows: int, columns: Held = None) -> None:
    """Make room for a run: a `RunWriter` of its name may then have more pages, or fewer. What it lacks has none."""
    storage.create_run(
        run,
        [
            (pages if columns is None or place in columns else 0, table.slot_bytes(place, page_rows))
            for place in range(len(table.schema))
        ],
    )


class _Writer:
    """Seals pages of a new stored object, any pages of any of its columns at a time, and none of them twice.

    `numbers` says as which of the object's columns a place is stored; `first_page` is the run's page that comes first.
    """

    def __init__(
        self, storage: Storage, name: str, sealing: _Sealing, numbers: dict[int, int], pages: int, first_page: int = 0
    ) -> None:
        self._storage, self.name, self._sealing = storage, name, sealing
        self._numbers, self._first_page = numbers, first_page
        self._tags = {place: bytearray(pages * TAG_BYTES) for place in numbers}
        self._sealed = Room()

    def write(self, column: int, first_page: int, words: Words, valid: Mask | None) -> None:
        """Seal and store whole pages; `words` has a multiple of page_rows rows."""
        self.write_values(column, first_page, self._sealing.columns[column].type.to_page(words), valid)

    def write_values(self, column: int, first_page: int, values: Values, valid: Mask | None) -> None:
        """Seal and store whole pages of values that are as wide as in pages."""
        self.write_pages(column, first_page, _page_form(self._sealing, column, values, valid))

    def write_pages(self, column: int, first_page: int, plain: NDArray[np.uint8]) -> None:
        """Seal and store pages that have their form already: one row of bytes for each."""
        (pages, size), at = plain.shape, (first_page - self._first_page) * TAG_BYTES
        tags, end = self._tags[column], at + pages * TAG_BYTES
        if tags.count(0, at, end) != pages * TAG_BYTES:
            raise AssertionError  # there are tags: a key and a nonce never seal two things
        sealed, slots = self._sealed.cut(size + TAG_BYTES, pages)
        seal_into, addresses = self._sealing.cipher.encrypt_into, self._sealing.addresses(column, first_page, pages)
        for (nonce, associated), page, slot in zip(addresses, plain, slots, strict=False):
            seal_into(nonce, page.data, associated, slot)
        tags[at:end] = sealed.reshape(pages, size + TAG_BYTES)[:, size:].tobytes()
        self._storage.write(self.name, self._numbers[column], first_page - self._first_page, sealed.data)


class RunWriter(_Writer):
    """Seals the pages of a new run."""

    def __init__(
        self,
        storage: Storage,
        keys: DataKeys,
        table: Table,
        run: str,
        pages: int,
        page_rows: int,
        columns: Held = None,
    ) -> None:
        self._width = len(table.schema)
        held = {place: place for place in (range(self._width) if columns is None else columns)}
        super().__init__(storage, run, _Sealing(keys, table, page_rows, run, pages), held, pages)
        reserve_run(storage, table, run, pages, page_rows, columns)

    def finish(self) -> tuple[str, ...]:
        """Make the run durable; return the hash of each column's tags, for the manifest."""
        tags = [bytes(self._tags.get(place, b"")) for place in range(self._width)]
        self._storage.finish_run(self.name, tags)
        return tuple(hashlib.sha256(each).hexdigest() for each in tags)


class LayerWriter(_Writer):
    """Seals some pages of some columns of a run anew, in a layer over it."""

    def __init__(
        self, storage: Storage, keys: DataKeys, table: Table, run: Run, columns: tuple[int, ...], pages: PageRange
    ) -> None:
        name, (first_page, count) = os.urandom(16).hex(), pages
        sealing = _Sealing(keys, table, run.page_rows, run.id, count, name)
        numbers = {place: number for number, place in enumerate(columns)}
        super().__init__(storage, name, sealing, numbers, count, first_page)
        self._layer = Layer(name, first_page, count, columns, ())
        storage.create_run(name, [(count, table.slot_bytes(place, run.page_rows)) for place in columns])

    def finish(self) -> Layer:
        """Make the layer durable; return its entry in the catalog."""
        tags = [bytes(each) for each in self._tags.values()]
        self._storage.finish_run(self.name, tags)
        return replace(self._layer, tag_hashes=tuple(hashlib.sha256(each).hexdigest() for each in tags))


class _Sheets:
    """Opens pages of one stored object, whose columns' tags the manifest vouches for by their hashes."""

    def __init__(
        self,
        storage: Storage,
        name: str,
        sealing: _Sealing,
        columns: dict[int, tuple[int, str]],
        pages: int,
        first_page: int = 0,
    ) -> None:
        self._storage, self._name, self._sealing = storage, name, sealing
        self._columns = columns
        self._sizes = {column: sealing.page_bytes(column) for column in columns}
        self._pages, self._first_page = pages, first_page
        self._tags: dict[int, bytes] = {}
        self._sealed = Room()  # a session does one thing at a time

    def open_into(self, column: int, first_page: int, pages: int, targets: Iterable[memoryview]) -> None:
        """Open pages, each into its own target, of which there may be more."""
        size, first = self._sizes[column], first_page - self._first_page
        slot, tags = size + TAG_BYTES, self._tags.get(column) or self._load_tags(column)
        end = first + pages
        if not 0 <= first <= end <= self._pages:
            raise Tampered
        sealed, sources = self._sealed.cut(slot, pages)
        self._storage.read(self._name, self._columns[column][0], first, pages, sealed.data)
        known = tags[first * TAG_BYTES : end * TAG_BYTES]
        if pages == 1:  # as most lookups read: for one page the array below would cost more than its opening
            is_known = sources[0][size:] == known
        else:
            is_known = sealed.reshape(pages, slot)[:, size:].tobytes() == known
        if not is_known:
            raise Tampered
        open_into = self._sealing.cipher.decrypt_into
        addresses = self._sealing.addresses(column, first_page, pages)
        try:
            for (nonce, associated), source, target in zip(addresses, sources, targets, strict=False):
                open_into(nonce, source, associated, target)
        except InvalidTag:
            raise Tampered from None

    def _load_tags(self, column: int) -> bytes:
        number, vouched = self._columns[column]
        tags = self._storage.tags(self._name, number)
        if hashlib.sha256(tags).hexdigest() != vouched or len(tags) != self._pages * TAG_BYTES:
            raise Tampered
        self._tags[column] = tags
        return tags


class RunReader:
    """Reads and opens pages of a run that the manifest names: each from the last layer that has it, or the run."""

    def __init__(
        self, storage: Storage, keys: DataKeys, table: Table, run: Run, before: "RunReader | None" = None
    ) -> None:
        """`before` has read the same run of the same columns, under fewer layers: what it knows of them is kept."""
        self.run, self._storage, self._keys, self._table = run, storage, keys, table
        sealing = None if before is None else before._sealing
        self._sealing: _Sealing = sealing or _Sealing(keys, table, run.page_rows, run.id, run.pages)
        known: dict[str, _Sheets] = {} if before is None else before._sheets
        held = table.held(run)
        whole = {place: (place, run.tag_hashes[place]) for place in held if run.is_based(place)}
        self._base = known.get(run.id) or _Sheets(storage, run.id, self._sealing, whole, run.pages)
        self._sheets: dict[str, _Sheets] = {run.id: self._base}
        self._sizes = {place: self._sealing.page_bytes(place) for place in (*held, *((LIVE,) if run.has_dead else ()))}
        self._stacks: dict[int, list[tuple[int, int, _Sheets | None]]] = {}
        for layer in run.layers:
            sheets = self._sheets[layer.id] = known.get(layer.id) or self._layer_sheets(layer)
            for place in layer.columns:
                below = self._stacks.get(place) or [(0, run.pages, self._base if place in whole else None)]
                self._stacks[place] = _covered(below, layer.first_page, layer.end_page, sheets)

    def _layer_sheets(self, layer: Layer) -> _Sheets:
        run, table = self.run, self._table
        sealing = _Sealing(self._keys, table, run.page_rows, run.id, layer.pages, layer.id)
        there = {place: (number, layer.tag_hashes[number]) for number, place in enumerate(layer.columns)}
        return _Sheets(self._storage, layer.id, sealing, there, layer.pages, layer.first_page)

    def of(self, table: Table, run: Run) -> "RunReader":
        """A reader of the same run as it is now."""
        same = run.based == self.run.based and table.schema == self._table.schema
        return RunReader(self._storage, self._keys, table, run, self if same else None)

    def fetch(self, column: int, first_page: int, pages: int, room: Room | None = None) -> FetchedColumn:
        """Some pages as a column, opened into `room` if there is one: then it is good until that is used again."""
        plain = self.open_pages(column, first_page, pages, room)
        return _column_form(self._sealing.columns[column], self._sealing.page_rows, plain, pages)

    def tally(self) -> bytes:
        """What its index can be merged by; it has to have one."""
        assert self.run.tally is not None  # noqa: S101  see above
        return read_tally(self._storage, self._keys, self.run.tally)

    def live(self, first_page: int, pages: int) -> Mask | None:
        """1 for the rows of some pages that were not deleted; None if nothing ever was in this run."""
        return self.open_pages(LIVE, first_page, pages) if LIVE in self._stacks else None

    def open_pages(self, column: int, first_page: int, pages: int, room: Room | None = None) -> NDArray[np.uint8]:
        """Pages one after the other, opened but in their form."""
        size, stack = self._sizes.get(column), self._stacks.get(column)
        if size is None or not 0 <= first_page <= first_page + pages <= self.run.pages:
            raise Tampered
        if room is None:
            plain = np.empty(pages * size, np.uint8)
            targets = [plain.data[at : at + size] for at in range(0, pages * size, size)]
        else:
            plain, targets = room.cut(size, pages)
        if stack is None:
            self._base.open_into(column, first_page, pages, targets)
            return plain
        for start, end, sheets in stack:
            first, last = max(start, first_page), min(end, first_page + pages)
            if first < last:
                these = slice(first - first_page, last - first_page)
                if sheets is None:  # of the live bytes alone: nothing was deleted there
                    plain.reshape(pages, size)[these] = 1
                else:
                    sheets.open_into(column, first, last - first, targets[these])
        return plain


Pieces = list[tuple[int, int, "_Sheets | None"]]


def _covered(below: Pieces, start: int, end: int, sheets: _Sheets) -> Pieces:
    """Which pages are where once a layer lies over some of them."""
    around = [(max(a, low), min(b, high), there) for a, b, there in below for low, high in ((0, start), (end, b))]
    kept = [(a, b, there) for a, b, there in around if a < b]
    return sorted([*kept, (start, end, sheets)], key=lambda piece: piece[0])


def keep_tally(storage: Storage, keys: DataKeys, data: bytes) -> Kept:
    """Store what an index can be merged by, under a name and a key of its own."""
    name = os.urandom(16).hex()
    sealed = keys.tally(name).encrypt(bytes(NONCE_BYTES), data, None)
    storage.create_run(name, [(1, len(sealed))])
    storage.write(name, 0, 0, sealed)
    storage.finish_run(name, [sealed[-TAG_BYTES:]])
    return Kept(name, len(data), hashlib.sha256(sealed[-TAG_BYTES:]).hexdigest())


def read_tally(storage: Storage, keys: DataKeys, kept: Kept) -> bytes:
    """The inverse, or Tampered."""
    sealed = bytearray(kept.size_bytes + TAG_BYTES)
    storage.read(kept.id, 0, 0, 1, memoryview(sealed))
    tag = storage.tags(kept.id, 0)
    if hashlib.sha256(tag).hexdigest() != kept.tag_hash or tag != sealed[-TAG_BYTES:]:
        raise Tampered
    try:
        return keys.tally(kept.id).decrypt(bytes(NONCE_BYTES), bytes(sealed), None)
    except InvalidTag:
        raise Tampered from None


def reseal_run(
    storage: Storage,
    table: Table,
    run: Run,
    reader: RunReader,
    keys: DataKeys,
    *,
    erased: bool = False,
    without: int | None = None,
) -> Run:
    """Open every page of a run and seal it again, under a new name and so a new key, with no layers but a live byte's.

    If `erased`, the values of rows that were deleted are zeros from then on. `table` is the one that the new run is of;
    if that is the old one `without` a column, so is the run, whose other columns move up.
    """
    name = os.urandom(16).hex()
    columns = None if run.columns is None else _moved_up(run.columns, without)
    if columns is not None and len(columns) == len(table.schema):
        columns = None
    renamed = replace(run, id=name, layers=(), columns=columns, based=None)
    writer = RunWriter(storage, keys, table, name, run.pages, run.page_rows, columns)
    if run.tally is not None:
        renamed = replace(renamed, tally=keep_tally(storage, keys, reader.tally()))
    live = LayerWriter(storage, keys, table, renamed, (LIVE,), (0, run.pages)) if run.has_dead else None
    before = tuple(range(len(table.schema) + (without is not None))) if run.columns is None else run.columns
    moves = list(zip([place for place in before if place != without], table.held(renamed), strict=True))
    for first in range(0, run.pages, RESEALED_PAGES):
        count = min(RESEALED_PAGES, run.pages - first)
        alive = reader.live(first, count)
        for column, place in moves:
            if alive is None or not erased:
                writer.write_pages(place, first, reader.open_pages(column, first, count).reshape(count, -1))
            else:
                fetched = reader.fetch(column, first, count)
                valid = None if fetched.valid is None else fetched.valid & alive
                writer.write_values(place, first, blanked(fetched.values, alive), valid)
        if live is not None and alive is not None:
            live.write_pages(LIVE, first, alive.reshape(count, -1))
    sealed = replace(renamed, tag_hashes=writer.finish())
    return sealed if live is None else replace(sealed, layers=(live.finish(),))


def _moved_up(columns: tuple[int, ...], without: int | None) -> tuple[int, ...]:
    """The places of columns once one is gone."""
    if without is None:
        return columns
    return tuple(place - (place > without) for place in columns if place != without)


def blanked(values: Values, mask: Mask) -> Values:
    """The values where the mask is 1, and zeros elsewhere."""
    all_or_nothing = -mask.astype(values.dtype)
    kept: Values = values & (all_or_nothing if values.ndim == 1 else all_or_nothing[:, None])
    return np.ascontiguousarray(kept)


_PLACES = np.frombuffer(bytes(range(8)), np.uint8)[:, None]
"""The places of the bits in a byte. A page's first eighth of rows has the lowest bit, and so on: whole rows of bytes
are then shifted at once."""


def _page_form(sealing: _Sealing, column: int, values: Values, valid: Mask | None) -> NDArray[np.uint8]:
    kind, rows = sealing.columns[column], sealing.page_rows
    pages = len(values) // rows
    parts = [np.ascontiguousarray(values).reshape(pages, -1).view(np.uint8)]
    if valid is not None:
        parts.append(_packed(valid, pages) if kind.null_bits else valid.reshape(pages, rows))
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _packed(valid: Mask, pages: int) -> NDArray[np.uint8]:
    """A bit for each row, [pages, rows / 8]."""
    eighths = valid.reshape(pages, 8, -1) << _PLACES
    packed: NDArray[np.uint8] = np.bitwise_or.reduce(eighths, axis=1)
    return packed


def _column_form(column: Column, page_rows: int, raw: NDArray[np.uint8], pages: int) -> FetchedColumn:
    """The values and validities of pages; moves the values within `raw`."""
    kind = column.type
    valid: Mask | None = None
    if column.nullable:
        value_bytes, page_bytes = page_rows * kind.width_bytes, column.page_bytes(page_rows)
        if column.null_bits:
            valid = split_pages(raw, page_bytes, value_bytes)
            raw = raw[: pages * value_bytes]
        else:
            by_page = raw.reshape(pages, page_bytes)
            valid = np.ascontiguousarray(by_page[:, value_bytes:]).reshape(-1)
            raw = np.ascontiguousarray(by_page[:, :value_bytes]).reshape(-1)
    return FetchedColumn(kind.from_page(raw), valid, kind)
