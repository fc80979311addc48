"""The enclave's calls for storage, served: a frame from the pipe comes in, the store is asked, a result goes back.

What is read and written is sealed. Whoever does not hold the database for writing can only read.
"""

from collections.abc import Callable
from typing import Any

from scumble.boundary.pipe import RESULT, Bytes, Frame, Pipe
from scumble.boundary.storage import Storage
from scumble.errors import Busy, InvalidParameter

__all__ = ["serve_call"]

MOST_READ_BYTES = 1 << 32

Served = tuple[Bytes, int]
"""What goes back, and how many pages that is."""


def serve_call(pipe: Pipe, call: Frame, storage: Storage, *, writing: bool) -> tuple[int, int]:
    """Serve one call; how many pages and bytes of pages it read."""
    try:
        name, *arguments = call.header
        if name in _WRITES and not writing:
            raise Busy("the database is not held for writing", hint="another load may have taken its place: try again")
        result, pages = _CALLS[name](storage, call.body, *arguments)
    except Exception as error:
        pipe.send_failure(error)
        return 0, 0
    pipe.send(RESULT, [], result)
    return pages, len(result) if pages else 0


def _read(storage: Storage, _: Bytes, run: str, column: int, first_page: int, pages: int, size: int) -> Served:
    if not 0 <= size <= MOST_READ_BYTES:
        raise InvalidParameter("too much is read at once", hint="read fewer pages")
    into = bytearray(size)
    storage.read(run, column, first_page, pages, memoryview(into))
    return into, pages


def _finish(storage: Storage, body: Bytes, run: str, sizes: list[int]) -> Served:
    tags, at, content = [], 0, bytes(body)
    for size in sizes:
        tags.append(content[at : at + size])
        at += size
    storage.finish_run(run, tags)
    return b"", 0


def _nothing(_: None) -> Served:
    return b"", 0


_CALLS: dict[str, Callable[..., Served]] = {
    "head": lambda storage, _: (storage.head(), 0),
    "manifest": lambda storage, _, version: (storage.manifest(version), 0),
    "tags": lambda storage, _, run, column: (storage.tags(run, column), 0),
    "read": _read,
    "create_run": lambda storage, _, run, shape: _nothing(storage.create_run(run, [tuple(c) for c in shape])),
    "write": lambda storage, body, run, column, page: _nothing(storage.write(run, column, page, memoryview(body))),
    "finish_run": _finish,
    "commit": lambda storage, body, version: _nothing(storage.commit(version, bytes(body))),
    "write_scratch": lambda storage, body, name: _nothing(storage.write_scratch(name, memoryview(body))),
    "read_scratch": lambda storage, _, name: (storage.read_scratch(name), 0),
    "drop_scratch": lambda storage, _: _nothing(storage.drop_scratch()),
}
_WRITES: frozenset[Any] = frozenset(["create_run", "write", "finish_run", "commit", "write_scratch", "drop_scratch"])
