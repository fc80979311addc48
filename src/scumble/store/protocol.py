"""What a provider needs of a place to keep databases in. A folder is one (files.py), memory another (memory.py).

A store holds sealed bytes and public names only, so nobody needs to keep it secret, and nothing that it returns is
trusted before the enclave has checked it. Any number of threads may read while one of them writes.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from os import PathLike
from typing import Protocol

from scumble.wire.storage import Storage

__all__ = ["Kind", "Location", "Log", "Restoring", "Snapshot", "Store"]

Location = str | PathLike[str]
"""Where a store is: a folder's path."""


class Log(Protocol):
    """Where a transcript's lines are kept."""

    def append(self, lines: bytes) -> None:
        """Append whole lines; if that is impossible they are lost, and nobody is kept from working."""

    def latest_first(self) -> Iterator[bytes]:
        """The lines that are still there, the last one first."""


class Snapshot(Protocol):
    """The newest version, whose runs can be read to their end even if they are dropped meanwhile."""

    head: bytes

    def pages(self, run: str) -> Iterator[bytes]:
        """All sealed pages of a run of the head, in pieces; Tampered if some are missing."""

    def tags(self, run: str) -> Iterator[bytes]:
        """All its tags."""


class Restoring(Protocol):
    """A store that is being filled from a backup, in this order. It becomes a database when that has ended well."""

    def put_database(self, database: str) -> None:
        """Name the database."""

    def put_manifest(self, version: int, manifest: bytes) -> None:
        """Keep the manifest of a version; the last one becomes the head."""

    def put_pages(self, run: str, pages: Iterable[bytes]) -> None:
        """Keep the pages of a run, which come in pieces."""

    def put_tags(self, run: str, tags: Iterable[bytes]) -> None:
        """Keep its tags."""


class Store(Storage, Protocol):
    """A `Storage` that the provider owns: one writer at a time, versions that are committed whole, and upkeep.

    `Storage` raises NotFound for a version that is not there, Tampered for pages that are not there or were altered,
    Stale for a run that was dropped, Exists for a second run of a name, InvalidParameter for what does not fit a run's
    shape, and Busy for everything that writes unless this process is in `writer`.
    """

    database: str
    """The database's id."""

    def writer(self, busy_seconds: float = 5) -> AbstractContextManager[None]:
        """Become the writer; Busy if another still is after `busy_seconds`.

        What a writer that died had not committed is deleted first. What this one has not committed is deleted at the
        end.
        """

    def is_empty(self) -> bool:
        """Whether nothing has ever been committed."""

    def stamp(self) -> str:
        """A text that changes with every commit, and costs little to ask for."""

    def drop_unreferenced(self, keep: Collection[str] = ()) -> int:
        """Delete the runs that neither the head, nor `keep`, nor the writer's own work names; how many they were."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Hold the newest version for a backup, without keeping anybody from writing."""

    @property
    def log(self) -> Log:
        """Where the transcript is kept."""

    def close(self) -> None:
        """Close the files and connections that are open. The database stays."""


class Kind(Protocol):
    """A kind of store, known by the locations that it serves."""

    def __call__(self, location: Location, /) -> Store:
        """Open the database at a location; NotFound if there is none."""

    def create(self, location: Location, database: str, /) -> Store:
        """Make an empty database of this id; Exists if one is there."""

    def exists(self, location: Location, /) -> bool:
        """Whether a database is there."""

    def restoring(self, location: Location, /) -> AbstractContextManager[Restoring]:
        """Make a database of a backup: all of it, durably, or nothing. Exists if anything is there."""
