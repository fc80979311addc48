"""A process's memory and a folder's files, searched for planted values in every form that a value may have."""

import shutil
import struct
import subprocess
import tempfile
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

__all__ = ["core_of", "forms", "found_in", "memory_of", "texts_of"]

PIECE_BYTES = 1 << 20
OVERLAP_BYTES = 4096

Forms = Mapping[str, bytes]


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


def found_in(pieces: Iterable[bytes], wanted: Forms) -> set[str]:
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
