"""The files of a stream's log: segments of sealed records, and what a folder of them says. SECRET, all of it.

In come the bytes of the segments and a key; out come the rows that they hold and the state that they end with. A
segment has a random salt, and a key that is derived from the stream key, the table and the salt; record `n` of it is
sealed by AES-256-GCM with the nonce `n`. `owner/stream_log.py` writes them, and says why no nonce comes twice.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from scumble.errors import Corrupt

__all__ = [
    "LEFT",
    "MAGIC",
    "NO_ROWS",
    "ROWS",
    "SALT_BYTES",
    "STATE",
    "Content",
    "LogState",
    "Numbered",
    "Pending",
    "Record",
    "cipher_of",
    "digest_of",
    "numbered_rows",
    "opened_record",
    "packed_left",
    "packed_rows",
    "record_in",
    "sealed",
    "segments_in",
    "unpacked_left",
]

MAGIC = b"scumlog\x01"
SALT_BYTES, TAG_BYTES, LENGTH_BYTES = 32, 16, 4
STATE, ROWS, LEFT = b"s", b"r", b"l"
_ROWS_HEAD = 12  # the number of the first row, and how many there are
_GONE = np.dtype(">u4")
_NAME = re.compile(r"\d{16}\.rows")


@dataclass(frozen=True)
class Pending:
    """A batch that is about to be sent, or was and nobody has heard: the rows `first` to `stop - 1`."""

    batch: str
    first: int
    stop: int
    capacity: int


@dataclass(frozen=True)
class LogState:
    """How far a log was sent. Rows are numbered from 0 over the log's whole life.

    Those before `sent` are in the table, by batches of which `last` was the last, at `last_time`. `batch` is what the
    next one will be called, and `settings` is what the stream wants to remember. `changed` is the version of the
    database, after its restores, that has last changed rows here: a table of an earlier one does not fit this log.
    """

    stream: str
    batch: str
    sent: int = 0
    last: str | None = None
    last_time: float | None = None
    pending: Pending | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    changed: tuple[int, int] | None = None

    def to_bytes(self, next_row: int) -> bytes:
        fields = {**asdict(self), "next_row": next_row}
        if self.changed is None:
            del fields["changed"]
        return json.dumps(fields).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> tuple[Self, int]:
        """The inverse: the state, and the number of the next row."""
        fields = json.loads(data)
        next_row, pending, changed = fields.pop("next_row"), fields.pop("pending"), fields.pop("changed", None)
        fields["pending"] = None if pending is None else Pending(**pending)
        return cls(**fields, changed=None if changed is None else (changed[0], changed[1])), next_row


class Numbered(NamedTuple):
    """SECRET: rows of a log, and the number of each. Numbers are left out whose rows were deleted."""

    rows: pa.Table | None
    numbers: NDArray[np.int64]

    def between(self, first: int, stop: int) -> "Numbered":
        """Those with the numbers `first` to `stop - 1`."""
        start, end = np.searchsorted(self.numbers, (first, stop)).tolist()
        return Numbered(None if self.rows is None else self.rows.slice(start, end - start), self.numbers[start:end])

    def followed_by(self, others: "Numbered") -> "Numbered":
        tables = [each for each in (self.rows, others.rows) if each is not None]
        return Numbered(_together(tables), np.concatenate([self.numbers, others.numbers]))


NO_ROWS = Numbered(None, np.zeros(0, np.int64))


def _together(tables: Sequence[pa.Table]) -> pa.Table | None:
    """All rows; what was written before a column was added is null there."""
    return pa.concat_tables(tables, promote_options="default") if tables else None


class Record(NamedTuple):
    """Where the rows `first` to `stop - 1` lie, and the digest of what they were written as. `gone` were deleted."""

    first: int
    stop: int
    segment: Path
    number: int
    offset: int
    length: int
    digest: bytes
    gone: int = 0


class Content:
    """What the segments of a folder, if any, say in their order. `ends` has where what is whole of each ends."""

    def __init__(self, folder: Path | None, keys: Sequence[bytes], table_id: str) -> None:
        self.state: LogState | None = None
        self.next_row = 0
        self.records: list[Record] = []
        self.ciphers: dict[Path, AESGCM] = {}
        self.ends: dict[Path, int] = {}
        for path in [] if folder is None else segments_in(folder):
            self._read(path, keys, table_id)

    def numbered(self, first: int, stop: int) -> Numbered:
        return numbered_rows(self.records, self.ciphers, first, stop)

    @property
    def alive(self) -> int:
        """How many rows wait that were not deleted."""
        sent = 0 if self.state is None else self.state.sent
        return self.next_row - sent - sum(record.gone for record in self.records if record.stop > sent)

    def _read(self, path: Path, keys: Sequence[bytes], table_id: str) -> None:
        """Read a segment up to its end, or to a record that was not written whole."""
        data = path.read_bytes()
        begin = len(MAGIC) + SALT_BYTES
        frames = list(_framed(data, begin))
        ciphers = [cipher_of(key, table_id, data[len(MAGIC) : begin]) for key in keys]
        fitting = [each for each in ciphers if frames and record_in(each, 0, data[slice(*frames[0])]) is not None]
        if data[: len(MAGIC)] != MAGIC or not fitting:
            raise _damaged(path)
        self.ciphers[path] = fitting[0]
        for number, (start, stop) in enumerate(frames):
            opened = record_in(fitting[0], number, data[start:stop])
            if opened is None:
                if any(data[stop:]):  # more was written after it, so it was whole once
                    raise _damaged(path)
                break
            self.ends[path] = stop
            if opened[:1] == STATE:
                self._follow_state(opened[1:], path, begins=number == 0)
            else:
                first, count, gone = _head(opened)
                digest = digest_of(opened[1:])
                self._follow_rows(Record(first, first + count, path, number, start, stop - start, digest, len(gone)))

    def _follow_state(self, body: bytes, path: Path, *, begins: bool) -> None:
        known = self.state is not None
        self.state, next_row = LogState.from_bytes(body)
        if not known:
            self.next_row = next_row
        elif begins and next_row < self.next_row:
            # Of what the segments before have beyond that, the writer was told that it failed; or it comes once more.
            earlier = [record for record in self.records if record.first < next_row]
            self.records = [record._replace(stop=min(record.stop, next_row)) for record in earlier]
            self.next_row = next_row
        if next_row != self.next_row:
            raise _damaged(path)

    def _follow_rows(self, record: Record) -> None:
        if self.state is None or record.first != self.next_row:
            raise _damaged(record.segment)
        self.records.append(record)
        self.next_row = record.stop


def segments_in(folder: Path) -> list[Path]:
    """The segments of a log, in the order of their making."""
    return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))


def cipher_of(key: bytes, table_id: str, salt: bytes) -> AESGCM:
    """The cipher of a segment: under its salt it serves no other."""
    return AESGCM(HKDF(SHA256(), 32, salt=salt, info=b"scumble stream log v1 " + table_id.encode()).derive(key))


def sealed(cipher: AESGCM, number: int, content: bytes) -> bytes:
    """Record `number` of a segment, after its length."""
    length = (len(content) + TAG_BYTES).to_bytes(LENGTH_BYTES, "big")
    return length + cipher.encrypt(number.to_bytes(12, "big"), content, length)


def record_in(cipher: AESGCM, number: int, record: bytes) -> bytes | None:
    """What `sealed` made a record of; None if it is not whole, or of another key or place."""
    length, content = record[:LENGTH_BYTES], record[LENGTH_BYTES:]
    try:
        return cipher.decrypt(number.to_bytes(12, "big"), content, length)
    except InvalidTag:
        return None


def _framed(data: bytes, begin: int) -> Iterator[tuple[int, int]]:
    """Where those records begin and stop that are there to their ends."""
    at = begin
    while len(data) - at >= LENGTH_BYTES:
        length = LENGTH_BYTES + int.from_bytes(data[at : at + LENGTH_BYTES], "big")
        if length <= LENGTH_BYTES + TAG_BYTES or at + length > len(data):
            return
        yield at, at + length
        at += length


def packed_rows(first: int, rows: pa.Table) -> bytes:
    """Rows as a record has them: the number of the first, how many there are, and an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return b"".join([first.to_bytes(8, "big"), len(rows).to_bytes(4, "big"), sink.getvalue().to_pybytes()])


def packed_left(first: int, stop: int, left: Numbered) -> bytes:
    """What is left of the rows `first` to `stop - 1`: the same, with the places of the others after the head."""
    gone = np.setdiff1d(np.arange(first, stop), left.numbers) - first
    rows = packed_rows(first, pa.table({}) if left.rows is None else left.rows)
    head = first.to_bytes(8, "big") + (stop - first).to_bytes(4, "big") + len(gone).to_bytes(4, "big")
    return head + gone.astype(_GONE).tobytes() + rows[_ROWS_HEAD:]


def unpacked_left(body: bytes) -> tuple[int, int, Numbered]:
    """The inverse: the first, one past the last, and what is left of them."""
    first, count, _ = _head(LEFT + body)
    return first, first + count, _unpacked(LEFT + body)


def _head(opened: bytes) -> tuple[int, int, NDArray[np.int64]]:
    """Of a record of rows: the number of the first, how many there are, and the places of those that are gone."""
    first, count = int.from_bytes(opened[1:9], "big"), int.from_bytes(opened[9 : 1 + _ROWS_HEAD], "big")
    if opened[:1] == ROWS:
        return first, count, np.zeros(0, np.int64)
    at = 1 + _ROWS_HEAD + 4
    gone = int.from_bytes(opened[at - 4 : at], "big")
    return first, count, np.frombuffer(opened, _GONE, gone, at).astype(np.int64)


def _unpacked(opened: bytes) -> Numbered:
    first, count, gone = _head(opened)
    start = 1 + _ROWS_HEAD + (0 if opened[:1] == ROWS else 4 + gone.size * _GONE.itemsize)
    table = pa.ipc.open_stream(pa.py_buffer(opened[start:])).read_all()
    numbers = np.delete(np.arange(first, first + count), gone)
    return Numbered(table if len(numbers) else None, numbers)


def digest_of(body: bytes) -> bytes:
    """What stands for some rows as they were written."""
    return hashlib.sha256(body).digest()


def numbered_rows(records: Sequence[Record], ciphers: dict[Path, AESGCM], first: int, stop: int) -> Numbered:
    """The rows `first` to `stop - 1`, read from their segments."""
    parts = [
        _unpacked(opened_record(record, ciphers)).between(max(record.first, first), min(record.stop, stop))
        for record in records
        if max(record.first, first) < min(record.stop, stop)
    ]
    found = [part.rows for part in parts if part.rows is not None]
    return Numbered(_together(found), np.concatenate([np.zeros(0, np.int64), *(part.numbers for part in parts)]))


def opened_record(record: Record, ciphers: dict[Path, AESGCM]) -> bytes:
    """A record, read again: its kind, and its body."""
    with record.segment.open("rb") as file:
        file.seek(record.offset)
        opened = record_in(ciphers[record.segment], record.number, file.read(record.length))
    if opened is None:
        raise _damaged(record.segment)
    return opened


def _damaged(path: Path) -> Corrupt:
    return Corrupt(
        f"the log {path} is damaged, or sealed under another key",
        hint="restore it from a backup of the same time as the key file: what it holds is in no other place",
    )
