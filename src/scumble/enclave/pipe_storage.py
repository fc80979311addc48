"""The provider's storage as an enclave process reaches it: calls go out through the pipe, results come back.

Nothing secret goes out: what is written is sealed already. What comes back is untrusted, and whoever asked checks it.
"""

import threading
from collections.abc import Sequence
from typing import Any

from scumble.boundary.pipe import CALL, RESULT, Frame, Pipe
from scumble.boundary.storage import RunShape
from scumble.errors import Tampered

__all__ = ["PipeStorage"]


class PipeStorage(threading.local):
    """A `Storage` at the other end of the pipe that this thread's jobs come through."""

    def __init__(self) -> None:
        self._through: Pipe | None = None

    def attach(self, pipe: Pipe) -> None:
        """From now on, this thread's calls go through `pipe`."""
        self._through = pipe

    @property
    def _pipe(self) -> Pipe:
        assert self._through is not None  # noqa: S101  no job without a pipe
        return self._through

    def head(self) -> bytes:
        """The current manifest."""
        return bytes(self._call("head").body)

    def manifest(self, version: int) -> bytes:
        """An earlier one."""
        return bytes(self._call("manifest", version).body)

    def tags(self, run: str, column: int) -> bytes:
        """The tags of a column's pages."""
        return bytes(self._call("tags", run, column).body)

    def read(self, run: str, column: int, first_page: int, pages: int, into: memoryview) -> None:
        """Fill `into` with sealed pages."""
        self._pipe.send(CALL, ["read", run, column, first_page, pages, into.nbytes])
        if self._pipe.receive_settled(RESULT, into).body is not into:
            raise Tampered

    def create_run(self, run: str, shape: RunShape) -> None:
        """Make room for a new run."""
        self._call("create_run", run, [list(column) for column in shape])

    def write(self, run: str, column: int, first_page: int, pages: bytes | memoryview) -> None:
        """Write sealed pages of a new run."""
        self._call("write", run, column, first_page, body=[pages])

    def finish_run(self, run: str, tags: Sequence[bytes]) -> None:
        """Write the tags, and make the run durable."""
        self._call("finish_run", run, [len(tag) for tag in tags], body=tags)

    def commit(self, version: int, manifest: bytes) -> None:
        """Make `manifest` the head."""
        self._call("commit", version, body=[manifest])

    def write_scratch(self, name: str, sealed: bytes | memoryview) -> None:
        """Keep something for the time of a load."""
        self._call("write_scratch", name, body=[sealed])

    def read_scratch(self, name: str) -> bytes:
        """Give it back."""
        return bytes(self._call("read_scratch", name).body)

    def drop_scratch(self) -> None:
        """Forget all of it."""
        self._call("drop_scratch")

    def _call(self, name: str, *arguments: Any, body: Sequence[bytes | memoryview] = ()) -> Frame:
        self._pipe.send(CALL, [name, *arguments], *body)
        return self._pipe.receive_settled(RESULT)
