"""The log of a stream: rows that were acknowledged and are not sent yet, sealed on the machine of the key's holder.

In come Arrow rows, which are durable when `append` returns, and what is about to be sent, which is durable before it
is. Out come the rows again, in this process or in one that comes after a crash. The log is a folder beside the key
file; only its holder may see it, and it is sealed nevertheless, since disks are copied and sold.

A record's nonce is its number within its segment (`owner/stream_segments.py`). No process writes to a segment that
another has begun, and none goes on with a segment after a write to it has failed: so a record that was torn, and may
have been seen, is never followed by another one under the same key and nonce.
"""

import fcntl
import hashlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from scumble import durable
from scumble.errors import Busy, Corrupt, FileError, InvalidParameter
from scumble.owner.key_file import logged_tables, streams_path
from scumble.owner.stream_changes import LogChange, change_files, read_changes
from scumble.owner.stream_segments import (
    LEFT,
    MAGIC,
    NO_ROWS,
    ROWS,
    SALT_BYTES,
    STATE,
    Content,
    LogState,
    Numbered,
    Record,
    cipher_of,
    digest_of,
    numbered_rows,
    opened_record,
    packed_left,
    packed_rows,
    sealed,
    segments_in,
)

__all__ = ["StreamLog", "Waiting", "held_logs", "read_log", "waiting_in"]

SEGMENT_BYTES = 4 << 20  # then another one is begun, so that what was sent can go
MOST_BYTES = 1 << 30  # of a record
READ_TRIES = 8
OPENING_SECONDS = 0.5  # to wait for a statement that changes what waits, which has the log open for a moment


class Waiting(NamedTuple):
    """SECRET: the rows of a log that a version of the table lacks, as a change has left them, and their numbers.

    `last` is the last batch that the log knows was sent, `changed` as in `LogState`.
    """

    found: Numbered
    first: int
    stop: int
    last: str | None
    changed: tuple[int, int] | None

    @property
    def rows(self) -> pa.Table | None:
        return self.found.rows


class StreamLog:
    """SECRET: a log that is open for writing, by one process at a time. Threads may share it.

    `state` says how far it was sent, and `next_row` is the number of the next row that is written; `is_new` that there
    was none before.
    """

    state: LogState
    next_row: int
    is_new: bool

    def __init__(self, folder: Path, keys: Sequence[bytes], table_id: str) -> None:
        """Open the log in a folder, which is made if it is not there; Busy if another process has it open.

        New segments are sealed under the first of the keys.
        """
        self._folder, self._keys, self._table_id = folder, keys, table_id
        self._turn = threading.RLock()
        self._process = os.getpid()
        self._handle, self._path = -1, folder  # of this process's segment, once it has begun one
        self._number, self._size = 0, 0
        with _written(folder):
            for each in (folder.parent, folder):
                if not each.exists():
                    each.mkdir(0o700, exist_ok=True)
                    durable.sync_folder(each.parent)
            self._lock = _locked(folder)
            try:
                durable.clear_drafts(folder)
                self._read()
            except BaseException:
                self._close_segment()
                os.close(self._lock)
                raise

    def _read(self) -> None:
        content = Content(self._folder, self._keys, self._table_id)
        for path, end in content.ends.items():
            if path.stat().st_size > end:  # nobody was told that this had been written
                os.truncate(path, end)
        self._records, self._ciphers, self.next_row = content.records, content.ciphers, content.next_row
        self.state = content.state or LogState(secrets.token_hex(16), secrets.token_hex(16))
        self.is_new = content.state is None
        if self.is_new:
            self._begin_segment()  # so that the log has its name for good
        self._drop_sent()

    @property
    def waiting(self) -> int:
        """SECRET: how many rows were not sent yet; those count that were deleted since."""
        return self.next_row - self.state.sent

    @property
    def alive(self) -> int:
        """SECRET: how many of them were not deleted."""
        with self._turn:
            return self.waiting - sum(record.gone for record in self._records if record.stop > self.state.sent)

    def append(self, rows: pa.Table) -> int:
        """Write some rows, durably, all of them or none; the number of the next row. FileError if that fails."""
        with self._turn:
            if not len(rows):
                return self.next_row
            body = packed_rows(self.next_row, rows)
            if len(body) > MOST_BYTES:
                raise InvalidParameter("these are too many rows for one write", hint="write fewer at a time")
            number, offset, length = self._write(ROWS, body)
            stop = self.next_row + len(rows)
            self._records.append(Record(self.next_row, stop, self._path, number, offset, length, digest_of(body)))
            self.next_row = stop
            return stop

    def record(self, **changes: Any) -> None:
        """Change the state, durably."""
        with self._turn:
            state = replace(self.state, **changes)
            self._write(STATE, state.to_bytes(self.next_row))
            self.state = state

    def sent(self, batch: str, time: float) -> None:
        """Note that the pending batch is in the table, and delete the segments that are not needed any more."""
        with self._turn:
            pending = self.state.pending
            if pending is None or pending.batch != batch:
                raise ValueError("no such batch is pending")
            self.record(sent=pending.stop, last=batch, last_time=time, pending=None)
            if self._size > SEGMENT_BYTES:
                self._begin_segment()
            self._drop_sent()

    def rows(self, first: int, stop: int) -> pa.Table | None:
        """The rows `first` to `stop - 1`; None if these are none."""
        return self.numbered(first, stop).rows

    def numbered(self, first: int, stop: int) -> Numbered:
        """The same, with their numbers."""
        with self._turn:
            return numbered_rows(self._records, self._ciphers, first, stop)

    def digest(self, first: int, stop: int) -> bytes:
        """SECRET: a digest of these rows as they were written, and of their numbers."""
        with self._turn:
            found = [record.digest for record in self._records if record.first < stop and record.stop > first]
        return hashlib.sha256(b"".join([first.to_bytes(8, "big"), stop.to_bytes(8, "big"), *found])).digest()

    def waiting_for(self, batches: frozenset[str], change: LogChange | None = None) -> Waiting:
        """The rows that a table with these batches lacks, as a change has left them."""
        with self._turn:
            return _waiting(self.state, self.next_row, batches, change, self.numbered)

    def reseal(self, key: bytes) -> None:
        """Seal everything that waits once more, under another key alone. A crash on the way leaves both."""
        with self._turn:
            self._keys = (key,)
            self._write_anew(self.state, [record for record in self._records if record.stop > self.state.sent])

    @property
    def has_changes(self) -> bool:
        """Whether a statement has changed rows that wait, and the log itself has them as they were."""
        return bool(change_files(self._folder))

    def absorb(self, made: Callable[[LogChange], bool]) -> None:
        """Take over the changes beside the log, if they were `made`, and erase the rows as they were before.

        Whoever calls holds the database for writing: so nobody else is about to make one. The last stands for all.
        """
        with self._turn:
            files = change_files(self._folder)
            counting = [change for change in read_changes(files, self._keys, self._table_id) if made(change)]
            if counting:
                self._take_over(counting[-1])
            with _written(self._folder):
                for path in files:
                    path.unlink()
                if files:
                    durable.sync_folder(self._folder)

    def _take_over(self, change: LogChange) -> None:
        state, draft = self.state, change.draft
        if state.pending is not None and state.pending.batch == change.settled:
            state = replace(state, pending=None, sent=state.pending.stop)
        if draft is not None:
            state = replace(state, changed=(draft.restores, draft.version))
        first = max(state.sent, change.first)
        left = packed_left(first, change.stop, change.left.between(first, change.stop))
        changed = [(first, LEFT + left)] if first < change.stop else []
        self._write_anew(state, [record for record in self._records if record.first >= change.stop], changed)

    def _write_anew(self, state: LogState, records: Sequence[Record], before: Sequence[tuple[int, bytes]] = ()) -> None:
        """Make one segment of a state and some records, and delete all others: a crash leaves the old or the new."""
        with _written(self._folder):
            content = [*before, *((record.first, opened_record(record, self._ciphers)) for record in records)]
            head = state.to_bytes(content[0][0] if content else self.next_row)
            self._begin_segment([(STATE, head), *((opened[:1], opened[1:]) for _, opened in content)])
            for path in segments_in(self._folder):
                if path != self._path:
                    path.unlink()
            durable.sync_folder(self._folder)
            read = Content(self._folder, self._keys, self._table_id)
            self.state, self._records, self._ciphers = state, read.records, read.ciphers

    def end(self) -> None:
        """Delete the log; InvalidParameter if rows wait in it."""
        with self._turn:
            if self.alive:
                raise InvalidParameter(
                    "rows of this stream wait to be sent", hint="let it go on until its status shows none, then end it"
                )
            self._close_segment()
            with _written(self._folder):
                shutil.rmtree(self._folder)
            self._unlock()

    def close(self) -> None:
        """Close the log; what was sent is deleted if nothing waits any more."""
        with self._turn:
            if self._handle >= 0 and not self.waiting and os.getpid() == self._process:
                with suppress(FileError):
                    self._begin_segment()
                    self._drop_sent()
            self._close_segment()
            self._unlock()

    # --- segments ----------------------------------------------------------------------------------

    def _write(self, kind: bytes, body: bytes) -> tuple[int, int, int]:
        """Append a record to this process's segment, durably; its number, and where it lies."""
        if self._lock < 0 or os.getpid() != self._process:
            raise InvalidParameter("the log is closed, or belongs to another process", hint="open the stream again")
        if self._handle < 0 or self._size > SEGMENT_BYTES:
            self._begin_segment()
        number, offset = self._number, self._size
        record = sealed(self._ciphers[self._path], number, kind + body)
        try:
            with _written(self._path):
                _write_all(self._handle, record)
                os.fdatasync(self._handle)  # each record before the next one: so only the last can be torn
        except BaseException:
            # This number is used up under this key, and the record may be there or not: nothing comes after it here.
            with suppress(OSError):
                os.ftruncate(self._handle, offset)
            self._close_segment()
            raise
        self._number, self._size = number + 1, offset + len(record)
        return number, offset, len(record)

    def _begin_segment(self, content: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Begin a segment, whole or not at all, with the state in it, or with other records."""
        self._close_segment()
        first = content or [(STATE, self.state.to_bytes(self.next_row))]
        last = max((int(path.stem) for path in segments_in(self._folder)), default=0)
        path, salt = self._folder / f"{last + 1:016d}.rows", secrets.token_bytes(SALT_BYTES)
        cipher = cipher_of(self._keys[0], self._table_id, salt)
        data = MAGIC + salt + b"".join(sealed(cipher, place, kind + body) for place, (kind, body) in enumerate(first))
        with _written(path):
            durable.create(path, data, 0o600)
            self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._path, self._ciphers[path] = path, cipher
        self._number, self._size = len(first), len(data)

    def _close_segment(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _drop_sent(self) -> None:
        """Delete the segments before the first whose rows are needed; the newest, which has the state, stays."""
        self._records = [record for record in self._records if record.stop > self.state.sent]
        needed = {record.segment for record in self._records}
        with _written(self._folder):
            for path in segments_in(self._folder)[:-1]:
                if path in needed:
                    break
                path.unlink()
                self._ciphers.pop(path, None)

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def read_log(folder: Path, keys: Sequence[bytes], table_id: str) -> Content:
    """What a log says; its writer may be at work meanwhile. Nothing, if there is none any more."""
    for left in range(READ_TRIES - 1, -1, -1):
        try:
            return Content(folder, keys, table_id)
        except (FileNotFoundError, Corrupt) as error:  # perhaps a segment was deleted on the way
            if not left and isinstance(error, Corrupt):
                raise
    return Content(None, keys, table_id)


def waiting_in(content: Content, batches: frozenset[str], change: LogChange | None = None) -> Waiting:
    """The rows in a log that a table with these batches lacks, as a change has left them."""
    if content.state is None:
        return Waiting(NO_ROWS, 0, 0, None, None)
    return _waiting(content.state, content.next_row, batches, change, content.numbered)


@contextmanager
def held_logs(key_path: Path, keys: Sequence[bytes]) -> Iterator[list[StreamLog]]:
    """Open every log that lies beside a key file, so that nobody else does: Busy if a stream has one open."""
    with ExitStack() as stack:
        logs: list[StreamLog] = []
        streams = streams_path(key_path)
        for table_id in sorted(logged_tables(streams)):
            logs.append(StreamLog(streams / table_id, keys, table_id))
            stack.callback(logs[-1].close)
        yield logs


def _waiting(
    state: LogState,
    next_row: int,
    batches: frozenset[str],
    change: LogChange | None,
    numbered: Callable[[int, int], Numbered],
) -> Waiting:
    pending = state.pending
    first = pending.stop if pending is not None and pending.batch in batches else state.sent
    if first >= next_row:
        found = NO_ROWS
    elif change is None or change.stop <= first:
        found = numbered(first, next_row)
    else:
        first = max(first, change.first)
        found = change.over(numbered(change.stop, next_row), first)
    return Waiting(found, first, next_row, state.last, state.changed)


def _write_all(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _locked(folder: Path) -> int:
    handle, until = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), time.monotonic()
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except OSError:
            if time.monotonic() - until > OPENING_SECONDS:
                os.close(handle)
                raise Busy("the table has a stream that is open already", hint="close that one first") from None
            time.sleep(0.01)


@contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(
            f"the log {path} cannot be written: {error.strerror}", hint="check its permissions and the disk"
        ) from error
