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

import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from scumble.errors import Corrupt

__all__ = [
    "MAGIC",
    "ROWS",
    "SALT_BYTES",
    "STATE",
    "Content",
    "LogState",
    "Pending",
    "Record",
    "body_of",
    "cipher_of",
    "digest_of",
    "packed_rows",
    "rows_between",
    "sealed",
    "segments_in",
]

MAGIC = b"scumlog\x01"
SALT_BYTES, TAG_BYTES, LENGTH_BYTES = 32, 16, 4
STATE, ROWS = b"s", b"r"
_ROWS_HEAD = 12  # the number of the first row, and how many there are
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
    next one will be called, and `settings` is what the stream wants to remember.
    """

    stream: str
    batch: str
    sent: int = 0
    last: str | None = None
    last_time: float | None = None
    pending: Pending | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def to_bytes(self, next_row: int) -> bytes:
        return json.dumps({**asdict(self), "next_row": next_row}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> tuple[Self, int]:
        """The inverse: the state, and the number of the next row."""
        fields = json.loads(data)
        next_row, pending = fields.pop("next_row"), fields.pop("pending")
        return cls(**fields, pending=None if pending is None else Pending(**pending)), next_row


class Record(NamedTuple):
    """Where the rows `first` to `stop - 1` lie, and the digest of what they were written as."""

    first: int
    stop: int
    segment: Path
    number: int
    offset: int
    length: int
    digest: bytes


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

    def rows(self, first: int, stop: int) -> pa.Table | None:
        return rows_between(self.records, self.ciphers, first, stop)

    def _read(self, path: Path, keys: Sequence[bytes], table_id: str) -> None:
        """Read a segment up to its end, or to a record that was not written whole."""
        data = path.read_bytes()
        begin = len(MAGIC) + SALT_BYTES
        frames = list(_framed(data, begin))
        ciphers = [cipher_of(key, table_id, data[len(MAGIC) : begin]) for key in keys]
        fitting = [each for each in ciphers if frames and _opened(each, 0, data[slice(*frames[0])]) is not None]
        if data[: len(MAGIC)] != MAGIC or not fitting:
            raise _damaged(path)
        self.ciphers[path] = fitting[0]
        for number, (start, stop) in enumerate(frames):
            opened = _opened(fitting[0], number, data[start:stop])
            if opened is None:
                if any(data[stop:]):  # more was written after it, so it was whole once
                    raise _damaged(path)
                break
            self.ends[path] = stop
            if opened[:1] == STATE:
                self._follow_state(opened[1:], path, begins=number == 0)
            else:
                first, count = (int.from_bytes(part, "big") for part in (opened[1:9], opened[9 : 1 + _ROWS_HEAD]))
                digest = digest_of(opened[1:])
                self._follow_rows(Record(first, first + count, path, number, start, stop - start, digest))

    def _follow_state(self, body: bytes, path: Path, *, begins: bool) -> None:
        known = self.state is not None
        self.state, next_row = LogState.from_bytes(body)
        if not known:
            self.next_row = next_row
        elif begins and next_row < self.next_row:
            # Of what the segments before have beyond that, the writer was told that it failed; or it comes once more.
            self.records = [record for record in self.records if record.first < next_row]
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


def _opened(cipher: AESGCM, number: int, record: bytes) -> bytes | None:
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


def digest_of(body: bytes) -> bytes:
    """What stands for some rows as they were written."""
    return hashlib.sha256(body).digest()


def rows_between(records: Sequence[Record], ciphers: dict[Path, AESGCM], first: int, stop: int) -> pa.Table | None:
    """The rows `first` to `stop - 1`, read from their segments; None if these are none."""
    parts = []
    for record in records:
        if max(record.first, first) < min(record.stop, stop):
            table = pa.ipc.open_stream(pa.py_buffer(body_of(record, ciphers)[_ROWS_HEAD:])).read_all()
            start = max(first - record.first, 0)
            parts.append(table.slice(start, min(stop, record.stop) - record.first - start))
    return pa.concat_tables(parts) if parts else None


def body_of(record: Record, ciphers: dict[Path, AESGCM]) -> bytes:
    """What `packed_rows` made, read again."""
    with record.segment.open("rb") as file:
        file.seek(record.offset)
        opened = _opened(ciphers[record.segment], record.number, file.read(record.length))
    if opened is None:
        raise _damaged(record.segment)
    return opened[1:]


def _damaged(path: Path) -> Corrupt:
    return Corrupt(
        f"the log {path} is damaged, or sealed under another key",
        hint="restore it from a backup of the same time as the key file: what it holds is in no other place",
    )
