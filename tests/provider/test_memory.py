"""No plaintext, key or query text at the front: not in what it receives, its memory, its log, or its files."""

import http.client
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from scumble.owner.keys import OwnerKey
from scumble.owner.session import Session
from scumble.wire.channel import Channel
from serving import Serving, serving

# Planted. Table and column names are public and may be anywhere; these may not.
WORDS = ("Quercus zanthoxylon", "Ophiuchus lagniappe", "syzygy of Brobdingnag")
NUMBERS = (7_164_093_285_517_746, -8_823_917_340_211_657)
DOUBLES = (271828.18284590451, -0.000314159265358979)
DAYS = 1_234_567
CONSTANTS = (5_550_293_847_561_029, "Xanthippe is a query constant")
QUERY = "SELECT word, number, share FROM t WHERE number <> 5550293847561029 AND word <> 'Xanthippe is a query constant'"
ROWS = 600
PIECE_BYTES, OVERLAP_BYTES = 1 << 20, 4096


# --- the search: planted values in every form, in a process's memory and in files -------------------


def forms(name: str, value: str | int | float | bytes) -> dict[str, bytes]:
    """How a value may lie in memory, by names for a failure's text that tell nothing of it."""
    match value:
        case bytes():
            return {
                f"{name}, raw": value,
                f"{name}, hexadecimal": value.hex().encode(),
                f"{name}, HEXADECIMAL": value.hex().upper().encode(),
                f"{name}, base64": b64encode(value).rstrip(b"="),
                f"{name}, hexadecimal in utf-16": value.hex().encode("utf-16-le"),
                f"{name}, reversed": value[::-1],
            }
        case str():
            return {
                f"{name}, utf-8": value.encode(),
                f"{name}, utf-16": value.encode("utf-16-le"),
                f"{name}, utf-32": value.encode("utf-32-le"),
            }
        case int():
            words = {"little-endian": struct.pack("<q", value), "big-endian": struct.pack(">q", value)}
        case float():
            words = {"little-endian": struct.pack("<d", value), "big-endian": struct.pack(">d", value)}
    return {f"{name}, {order}": word for order, word in words.items()} | forms(name, repr(value))


def memory_of(pid: int) -> Iterator[bytes]:
    """A process's memory, piece by piece: what gcore would write, and so no code that is read from files.

    Everything that can be read counts but what no process can have written to.
    """
    with Path(f"/proc/{pid}/maps").open() as maps:
        ranges = [line.split(maxsplit=5) for line in maps]
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for place, rights, *rest in ranges:
            is_code = "w" not in rights and rest[2] != "0"  # pages of a file
            if not rights.startswith("r") or is_code or (rest[3:] and rest[3].startswith(("[vvar", "[vsyscall"))):
                continue
            start, stop = (int(end, 16) for end in place.split("-"))
            for at in range(start, stop, PIECE_BYTES):
                try:
                    memory.seek(max(start, at - OVERLAP_BYTES))
                    yield memory.read(min(stop, at + PIECE_BYTES) - max(start, at - OVERLAP_BYTES))
                except OSError:  # unmapped meanwhile
                    continue


def core_of(pid: int) -> Iterator[bytes]:
    """The same from a core file by gcore, where that is installed."""
    program = shutil.which("gcore")
    if program is None:
        yield from memory_of(pid)
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "-o", f"{folder}/core", str(pid)], check=True, capture_output=True)
        yield from _pieces(Path(f"{folder}/core.{pid}"))


def texts_of(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.rglob("*")):
        yield str(path).encode()
        if path.is_file():
            yield from _pieces(path)


def _is_used(piece: bytes) -> bool:
    """Whether there is anything but zeros: of most stacks and arenas nothing was ever used."""
    return piece.count(0) < len(piece)


def found_in(pieces: Iterable[bytes], wanted: Mapping[str, bytes]) -> set[str]:
    found: set[str] = set()
    for piece in filter(_is_used, pieces):
        found |= {name for name, value in wanted.items() if name not in found and value in piece}
    return found


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece
            if len(piece) == PIECE_BYTES:
                file.seek(-OVERLAP_BYTES, 1)


# --- the front ---------------------------------------------------------------------------------------


def rows() -> pa.Table:
    return pa.table(
        {
            "k": pa.array([DAYS + i % 100 for i in range(ROWS)], pa.int64()),
            "word": pa.array([WORDS[i % len(WORDS)] for i in range(ROWS)]),
            "number": pa.array([NUMBERS[i % len(NUMBERS)] for i in range(ROWS)], pa.int64()),
            "share": pa.array([DOUBLES[i % len(DOUBLES)] for i in range(ROWS)]),
        }
    )


@dataclass
class Secrets:
    """All that must be nowhere, and what went over the wire."""

    wanted: dict[str, bytes] = field(default_factory=dict, repr=False)
    wire: list[bytes] = field(default_factory=list, repr=False)

    def plant(self, name: str, value: Any) -> None:
        self.wanted |= forms(f"{name} ({len(self.wanted)})", value)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Secrets:
    """What was planted; the keys of sessions are added as they are made."""
    known = Secrets()
    for kind, values in {"word": WORDS, "number": NUMBERS, "double": DOUBLES, "constant": CONSTANTS}.items():
        for number, value in enumerate(values):
            known.plant(f"{kind} {number}", value)
    known.plant("query", QUERY[:40])
    known.plant("end of query", QUERY[-40:])
    make, send = Channel.__init__, http.client.HTTPConnection.send
    fresh, send_rows = Channel.fresh_keys, Session.send_rows

    def made(channel: Channel, request_key: bytes, answer_key: bytes) -> None:
        known.plant("session's request key", request_key)
        known.plant("session's answer key", answer_key)
        make(channel, request_key, answer_key)

    def drawn() -> tuple[bytes, bytes]:
        keys = fresh()
        known.plant("greeting's request key", keys[0])
        known.plant("greeting's answer key", keys[1])
        return keys

    def sent(connection: http.client.HTTPConnection, data: Any) -> None:
        known.wire.append(bytes(data) if isinstance(data, bytes | bytearray | memoryview) else repr(data).encode())
        send(connection, data)

    def rows_sent(session: Session, rows: Any) -> None:
        for row in rows[:3]:
            known.plant("encoded row", row.tobytes())
        send_rows(session, rows)

    monkeypatch.setattr(Channel, "__init__", made)
    monkeypatch.setattr(Session, "send_rows", rows_sent)
    monkeypatch.setattr(Channel, "fresh_keys", drawn)
    monkeypatch.setattr(http.client.HTTPConnection, "send", sent)
    return known


def used(service: Serving, keys: Path, planted: Secrets, name: str) -> None:
    """Load, ask, prepare, be refused, check and rekey: so that whatever could leave has left."""
    with service.create(name, keys) as db:
        _plant_keys(planted, keys / f"{name}.key")
        types = {"word": "text(24)", "number": "bigint", "share": "double"}
        db.load("t", rows(), types=types, indexes=["k int:1234567:1234666 epsilon=1"])
        assert len(db.sql(QUERY).fetchall()) == ROWS
        for word in WORDS:
            assert db.sql("SELECT count(*) FROM t WHERE word = ?", [word]).fetchall() == [(ROWS // len(WORDS),)]
        assert db.sql("SELECT max(number), min(number), max(share), min(share) FROM t").fetchall() == [
            (max(NUMBERS), min(NUMBERS), max(DOUBLES), min(DOUBLES))
        ]
        db.sql("SELECT word, count(*) FROM t GROUP BY word").fetchall()
        db.check()
        db.rekey()
        _plant_keys(planted, keys / f"{name}.key")
    with service.open(name, keys) as again:
        assert len(again.sql(QUERY).fetchall()) == ROWS


def _plant_keys(planted: Secrets, path: Path) -> None:
    key = OwnerKey.open(path)
    planted.plant("root key", key.root)
    planted.plant("data key", key.data_key())
    planted.plant("anchor key", key.anchor_key())
    planted.plant("signing seed", key.signing_key().private_bytes_raw())


def places(service: Serving, planted: Secrets, dumped: Callable[[int], Iterator[bytes]]) -> dict[str, set[str]]:
    """What of the planted values is where, among all that the provider has."""
    looked = {
        "the front's memory": dumped(service.process.pid),
        "what it received": [b"".join(planted.wire)],
        "its log": [service.log().encode()],
        "its files": texts_of(service.folder),
    }
    found = {place: found_in(pieces, planted.wanted) for place, pieces in looked.items()}
    return {place: names for place, names in found.items() if names}


def test_front_has_no_value_no_key_and_no_query(service: Serving, tmp_path: Path, planted: Secrets) -> None:
    used(service, tmp_path, planted, "hidden")
    assert len(planted.wanted) > 150
    assert sum(map(len, planted.wire)) > ROWS * 8
    assert places(service, planted, memory_of) == {}


@pytest.mark.slow
def test_core_of_the_front_has_no_value_no_key_and_no_query(service: Serving, tmp_path: Path, planted: Secrets) -> None:
    used(service, tmp_path, planted, "dumped")
    assert places(service, planted, core_of) == {}


def test_search_finds_what_is_sent_in_the_clear(service: Serving, planted: Secrets) -> None:
    told = {
        "word": WORDS[0].encode(),
        "number": struct.pack("<q", NUMBERS[0]),
        "double": struct.pack("<d", DOUBLES[1]),
        "key": secrets.token_bytes(32),
        "query": QUERY.encode(),
    }
    head = f"POST /v1/default/hidden/sessions/1 HTTP/1.1\r\nhost: x\r\ncontent-length: {1 << 16}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", service.port)) as line:  # the front waits for the rest of the body
        line.sendall(head + b"".join(value.ljust(512) for value in told.values()))
        time.sleep(1)
        assert found_in(memory_of(service.process.pid), told) == set(told)
        assert found_in(core_of(service.process.pid), told) == set(told)


def test_search_finds_every_form_in_files_and_over_the_edges_of_pieces(tmp_path: Path, planted: Secrets) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file").write_bytes(b"\1".join(planted.wanted.values()))
    assert found_in(texts_of(tmp_path), planted.wanted) == set(planted.wanted)
    assert found_in([b"nothing"], planted.wanted) == set()


# --- the enclave's own memory ----------------------------------------------------------------------

NOBODY = 65534
READ = f"""
import ctypes, os, sys
from scumble.enclave import process
from scumble.owner.keys import OwnerKey
prctl = ctypes.CDLL(None).prctl
if os.getuid() == 0:
    os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
    prctl(4, 1, 0, 0, 0)  # a change of the user has made this process undumpable: undo that
def readable(shut_in):
    there, here = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        shut_in()
        os.write(there[1], b"!")
        os.read(here[0], 1)
        os._exit(0)
    os.read(there[0], 1)
    try:
        with open(f"/proc/{{pid}}/maps") as maps:
            place = int(maps.readline().split("-")[0], 16)
        with open(f"/proc/{{pid}}/mem", "rb", buffering=0) as memory:
            memory.seek(place)
            return bool(memory.read(16))
    except OSError:
        return False
    finally:
        os.write(here[1], b"!")
        os.waitpid(pid, 0)
print(os.getuid() == 0, readable(lambda: None), readable(process._shut_in))
"""


def test_shut_in_process_cannot_be_read_by_others_of_its_user() -> None:
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]


def test_enclave_processes_are_shut_in(service: Serving) -> None:
    for pid in service.enclaves():
        limits = Path(f"/proc/{pid}/limits").read_text()
        core = next(line for line in limits.splitlines() if line.startswith("Max core file size"))
        assert core.split()[4:6] == ["0", "0"]
        if os.getuid():  # root may read everything
            with pytest.raises(PermissionError):
                next(memory_of(pid))


def test_enclave_that_crashes_leaves_no_core_file(tmp_path: Path) -> None:
    with serving(tmp_path / "served", "--enclaves", "1") as service:
        (pid, *_) = service.enclaves()
        before = {path.name for path in Path.cwd().iterdir()}
        os.kill(pid, signal.SIGSEGV)
        deadline = time.monotonic() + 30
        while pid in service.enclaves() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert pid not in service.enclaves()
        assert not [name for name in {path.name for path in Path.cwd().iterdir()} - before if "core" in name]
