"""The log of a stream: what was acknowledged is there after any crash, in order and once, and no nonce comes twice.

Three ways to be wrong and still look right: a torn record that is overwritten under its own nonce; a batch that is
forgotten between sending and noting it; a damaged record in the middle that is taken for a torn one at the end.
"""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dying import die_at
from scumble.errors import Busy, Corrupt, FileError, InvalidParameter
from scumble.owner import stream_log
from scumble.owner.stream_log import StreamLog, held_logs, read_log, waiting_in
from scumble.owner.stream_segments import Pending, cipher_of, segments_in

KEY, OTHER, TABLE = bytes(32), bytes(31) + b"\1", "ab" * 16
CALLS = ("open", "write", "fdatasync", "fsync", "link", "unlink", "ftruncate", "truncate")
NOTHING: frozenset[str] = frozenset()


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"n": pa.array(range(first, first + count), pa.int64())})


def opened(folder: Path, *keys: bytes) -> StreamLog:
    return StreamLog(folder / "log", keys or (KEY,), TABLE)


def numbers(table: pa.Table | None) -> list[int]:
    return [] if table is None else table.column("n").to_pylist()


def everything(log: StreamLog) -> list[int]:
    return numbers(log.rows(log.state.sent, log.next_row))


def send(log: StreamLog, count: int, batch: str) -> None:
    first = log.state.sent
    log.record(pending=Pending(batch, first, first + count, 256))
    log.sent(batch, 5.0)


# --- writing and reading ---------------------------------------------------------------------------


def test_rows_come_back_in_order_over_segments_and_openings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_log, "SEGMENT_BYTES", 500)
    for place in range(5):
        log = opened(tmp_path)
        assert log.is_new == (place == 0)
        for part in range(4):
            log.append(rows(40 * place + 10 * part, 10))
        log.close()
    log = opened(tmp_path)
    assert everything(log) == list(range(200))
    assert len(segments_in(tmp_path / "log")) > 5
    assert numbers(log.rows(15, 37)) == list(range(15, 37))
    assert log.rows(7, 7) is None
    send(log, 95, "b1")
    assert log.waiting == 105
    assert everything(log) == list(range(95, 200))
    log.close()
    again = opened(tmp_path)
    assert everything(again) == list(range(95, 200))
    assert (again.state.last, again.state.last_time) == ("b1", 5.0)
    again.close()


def test_what_was_sent_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_log, "SEGMENT_BYTES", 500)
    log = opened(tmp_path)
    for place in range(30):
        log.append(rows(place, 1))
    many = len(segments_in(tmp_path / "log"))
    send(log, 30, "b1")
    assert many > 5
    assert len(segments_in(tmp_path / "log")) == 1
    log.append(rows(30, 5))
    assert everything(log) == list(range(30, 35))
    send(log, 5, "b2")
    log.close()
    (left,) = segments_in(tmp_path / "log")
    assert left.stat().st_size < 1000  # the state alone
    log = opened(tmp_path)
    assert (log.waiting, log.next_row, log.state.sent, log.state.last) == (0, 35, 35, "b2")
    log.end()
    assert not (tmp_path / "log").exists()


def test_a_log_with_rows_is_not_ended(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(rows(0, 1))
    with pytest.raises(InvalidParameter, match="wait to be sent"):
        log.end()
    log.close()
    assert everything(opened(tmp_path)) == [0]


def test_what_a_version_shows_is_not_waiting(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(rows(0, 10))
    log.record(pending=Pending("b1", 0, 4, 256))
    assert numbers(log.waiting_for(NOTHING).rows) == list(range(10))
    assert numbers(log.waiting_for(frozenset(["b1"])).rows) == list(range(4, 10))
    for shown, expected in ((NOTHING, range(10)), (frozenset(["b1"]), range(4, 10))):
        found = waiting_in(read_log(tmp_path / "log", (KEY,), TABLE), shown)
        assert numbers(found.rows) == list(expected)
        assert found.last is None
    log.sent("b1", 5.0)
    assert waiting_in(read_log(tmp_path / "log", (KEY,), TABLE), NOTHING).last == "b1"
    assert numbers(waiting_in(read_log(tmp_path / "log", (KEY,), TABLE), NOTHING).rows) == list(range(4, 10))
    log.close()


def test_digests_tell_rows_apart(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(rows(0, 3))
    log.append(rows(3, 3))
    found = {log.digest(first, stop) for first in range(6) for stop in range(first, 7)}
    assert len(found) == sum(7 - first for first in range(6))
    whole = log.digest(0, 6)
    log.close()
    assert opened(tmp_path).digest(0, 6) == whole  # after a restart too


def test_one_process_at_a_time_and_no_child_of_it(tmp_path: Path) -> None:
    log = opened(tmp_path)
    with pytest.raises(Busy, match="open already"):
        opened(tmp_path)
    child = os.fork()
    if child == 0:
        try:
            log.append(rows(0, 1))
        except InvalidParameter:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    log.close()
    with pytest.raises(InvalidParameter, match="closed"):
        log.append(rows(0, 1))


# --- sealed ----------------------------------------------------------------------------------------


def test_nothing_is_in_the_clear_and_every_key_differs(tmp_path: Path) -> None:
    log = opened(tmp_path)
    secret = pa.table({"diagnosis": ["measles"] * 50})
    log.append(secret)
    log.close()
    data = b"".join(path.read_bytes() for path in (tmp_path / "log").iterdir())
    assert b"measles" not in data
    assert b"diagnosis" not in data
    assert b"next_row" not in data
    with pytest.raises(Corrupt, match="another key"):
        opened(tmp_path, OTHER)
    with pytest.raises(Corrupt):
        StreamLog(tmp_path / "log", (KEY,), "cd" * 16)


def test_a_damaged_record_in_the_middle_is_no_torn_one(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for place in range(3):
        log.append(rows(place, 1))
    log._close_segment()
    log.close()
    (path,) = segments_in(tmp_path / "log")
    whole = path.read_bytes()
    sizes = _record_starts(whole)
    for start in sizes[:-1]:
        damaged = bytearray(whole)
        damaged[start + 9] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(Corrupt):
            opened(tmp_path)
    damaged = bytearray(whole)
    damaged[sizes[-1] + 9] ^= 1  # the last one may have been torn
    path.write_bytes(damaged)
    log = opened(tmp_path)
    assert everything(log) == [0, 1]
    log.close()


def test_a_missing_segment_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_log, "SEGMENT_BYTES", 500)
    log = opened(tmp_path)
    for place in range(9):
        log.append(rows(place, 1))
    log.close()
    paths = segments_in(tmp_path / "log")
    assert len(paths) > 3
    paths[1].unlink()
    with pytest.raises(Corrupt):
        opened(tmp_path)


def _record_starts(data: bytes) -> list[int]:
    starts, at = [], 40
    while at < len(data):
        starts.append(at)
        at += 4 + int.from_bytes(data[at : at + 4], "big")
    assert at == len(data)
    return starts


@pytest.mark.parametrize("filler", [b"", b"\0"])
def test_a_torn_tail_of_any_length_is_cut(tmp_path: Path, filler: bytes) -> None:
    """A power cut may leave a part of the last record, or zeros where it should be."""
    log = opened(tmp_path)
    log.append(rows(0, 2))
    log.append(rows(2, 2))
    log._close_segment()
    log.close()
    (path,) = segments_in(tmp_path / "log")
    whole = path.read_bytes()
    last = _record_starts(whole)[-1]
    for end in range(last, len(whole)):
        path.write_bytes(whole[:end] + filler * (len(whole) - end))
        log = opened(tmp_path)
        assert everything(log) == [0, 1]
        log.append(rows(2, 1))
        assert everything(log) == [0, 1, 2]
        log.close()
        log = opened(tmp_path)
        assert everything(log) == [0, 1, 2]
        log.close()
        for other in segments_in(tmp_path / "log")[1:]:
            other.unlink()


# --- crashes ---------------------------------------------------------------------------------------


def _noting(path: Path) -> None:
    """Note what is sealed under which key and nonce, on disk, so that it outlives a kill."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    write = os.write

    def noting_cipher(key: bytes, table_id: str, salt: bytes) -> Any:
        cipher = cipher_of(key, table_id, salt)

        class Noting:
            def encrypt(self, nonce: bytes, content: bytes, data: bytes) -> bytes:
                write(handle, f"{salt.hex()} {nonce.hex()} {content.hex()}\n".encode())
                return cipher.encrypt(nonce, content, data)

            def decrypt(self, *given: bytes) -> bytes:
                return cipher.decrypt(*given)

        return Noting()

    setattr(stream_log, "cipher_of", noting_cipher)  # noqa: B010  in a child that ends soon


def _work(folder: Path, acknowledged: int, table: int) -> None:
    """Append rows and send them, and say on pipes what was acknowledged and what the table has got."""
    stream_log.SEGMENT_BYTES = 1500
    log = opened(folder)
    for _ in range(4):
        stop = log.append(rows(log.next_row, 3))
        _said(acknowledged, stop)
        if log.waiting > 4 or log.state.pending:
            if log.state.pending is None:
                first = log.state.sent
                log.record(pending=Pending(f"{first}", first, first + 4, 256))
            pending = log.state.pending
            assert pending is not None
            sent = numbers(log.rows(pending.first, pending.stop))
            _said(table, int(pending.batch), *sent)
            log.sent(pending.batch, 5.0)
    log.close()


_write = os.write


def _said(handle: int, *numbers: int) -> None:
    _write(handle, (" ".join(map(str, numbers)) + "\n").encode())


@pytest.mark.parametrize("where", ["before", "half-way", "after"])
def test_a_killed_process_loses_nothing_and_sends_nothing_twice(tmp_path: Path, where: str) -> None:
    """Killed at every call, twice in a row at places that differ; the table takes a batch of a name once, as insert."""
    folder = tmp_path / "stream"
    number, died = 0, True
    while died:
        number += 1
        folder.mkdir()
        table: dict[int, list[int]] = {}
        for attempt, place in enumerate((number, 1 + number % 7, 10**6)):
            died_now, last = _killed(folder, place, where, table)
            died = died_now if attempt == 0 else died
            _check(folder, last, table)
        shutil.rmtree(folder)
    assert number > (10 if where == "half-way" else 30)


def _killed(folder: Path, place: int, where: str, table: dict[int, list[int]]) -> tuple[bool, int]:
    """Run the work in a child that is killed; whether it was, and the last row that was acknowledged, if any."""
    acknowledged, sent = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _noting(folder.with_suffix(".nonces"))
            die_at(place, where, CALLS)
            _work(folder, acknowledged[1], sent[1])
            os._exit(0)
        finally:
            os._exit(1)
    for pipe in (acknowledged, sent):
        os.close(pipe[1])
    lines = []
    for pipe in (acknowledged, sent):
        with os.fdopen(pipe[0], "rb") as file:
            lines.append([list(map(int, line.split())) for line in file.read().splitlines()])
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    for batch, *found in lines[1]:
        assert table.setdefault(batch, found) == found  # under one name the same rows
    return code != 0, lines[0][-1][0] if lines[0] else 0


def _check(folder: Path, acknowledged: int, table: dict[int, list[int]]) -> None:
    log = opened(folder)
    sent = [number for batch in sorted(table) for number in table[batch]]
    pending = log.state.pending
    if pending is not None and int(pending.batch) in table:  # it was sent, and nobody has noted that
        log.sent(pending.batch, 5.0)
    assert sent == list(range(log.state.sent))
    assert everything(log) == list(range(log.state.sent, log.next_row))
    assert log.next_row >= acknowledged
    assert log.next_row - acknowledged in (0, 3) or acknowledged == 0
    log.close()
    notes: dict[tuple[str, str], str] = {}
    for line in folder.with_suffix(".nonces").read_text().splitlines():
        salt, nonce, content = line.split(" ")
        assert notes.setdefault((salt, nonce), content) == content
    assert notes or not log.next_row


@pytest.mark.parametrize("name", ["write", "fdatasync"])
def test_after_a_write_that_failed_comes_another_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The record's number is used up under its key, and the rows are not in the log."""
    log = opened(tmp_path)
    log.append(rows(0, 2))
    before, call = log._path, getattr(os, name)

    def failing(handle: int, *more: Any) -> Any:
        if name == "write":
            call(handle, bytes(more[0])[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, name, failing)
    with pytest.raises(FileError, match="No space left"):
        log.append(rows(2, 2))
    monkeypatch.setattr(os, name, call)
    assert everything(log) == [0, 1]
    log.append(rows(2, 3))
    assert log._path != before
    assert everything(log) == [0, 1, 2, 3, 4]
    log.close()
    log = opened(tmp_path)
    assert everything(log) == [0, 1, 2, 3, 4]
    log.close()


def test_a_failed_record_that_could_not_be_cut_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)
    log.append(rows(0, 2))
    broken = {"fdatasync": os.fdatasync, "ftruncate": os.ftruncate}

    def failing(*_: Any) -> Any:
        raise OSError(5, "Input/output error")

    for name in broken:
        monkeypatch.setattr(os, name, failing)
    with pytest.raises(FileError):
        log.append(rows(100, 2))
    for name, call in broken.items():
        monkeypatch.setattr(os, name, call)
    log.append(rows(2, 1))
    log.close()
    log = opened(tmp_path)
    assert everything(log) == [0, 1, 2]
    log.close()


# --- keys ------------------------------------------------------------------------------------------


def test_a_rekey_seals_what_waits_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_log, "SEGMENT_BYTES", 500)
    log = opened(tmp_path)
    for place in range(8):
        log.append(rows(2 * place, 2))
    send(log, 5, "b1")
    log.record(pending=Pending("b2", 5, 9, 256))
    stream, digest = log.state.stream, log.digest(5, 9)
    log.close()
    with pytest.raises(Corrupt):
        opened(tmp_path, OTHER)
    crash = opened(tmp_path, KEY, OTHER)
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        crash.reseal(OTHER)  # both are there now
    monkeypatch.setattr(Path, "unlink", unlink)
    os.close(crash._lock)
    both = opened(tmp_path, KEY, OTHER)
    assert everything(both) == list(range(5, 16))
    both.reseal(OTHER)
    assert everything(both) == list(range(5, 16))
    both.append(rows(16, 1))
    both.close()
    log = opened(tmp_path, OTHER)
    assert everything(log) == list(range(5, 17))
    assert (log.state.stream, log.digest(5, 9)) == (stream, digest)
    assert log.state.pending == Pending("b2", 5, 9, 256)
    log.close()


def test_logs_beside_a_key_are_held_together(tmp_path: Path) -> None:
    key_path = tmp_path / "clinic.key"
    for table in ("aa", "bb"):
        log = StreamLog(tmp_path / "clinic.streams" / table, (KEY,), table)
        log.append(rows(0, 2))
        log.close()
    with held_logs(key_path, (KEY,)) as logs:
        assert [log.waiting for log in logs] == [2, 2]
        with pytest.raises(Busy):
            StreamLog(tmp_path / "clinic.streams" / "aa", (KEY,), "aa")
    with held_logs(tmp_path / "other.key", (KEY,)) as logs:
        assert logs == []


def test_the_key_of_a_segment_is_derived_as_it_was() -> None:
    """Or no log could be read again: the tag of nothing under the nonce 0."""
    cipher = cipher_of(bytes(range(32)), "ab" * 16, bytes(32))
    assert cipher.encrypt(bytes(12), b"", None).hex() == "52931e45688c5fcbd8c46de3f5da5c6b"
