"""What a provider needs of a place to keep databases in. A folder is one (files.py), memory another (memory.py).

A store holds sealed bytes and public names only, so nobody needs to keep it secret, and nothing that it returns is
trusted before the enclave has checked it. Any number of threads may read while one of them writes.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from os import PathLike
from typing import Protocol, Self

from scumble.errors import InvalidParameter, Tampered
from scumble.wire.storage import RunShape, Storage

__all__ = [
    "TAG_BYTES",
    "Kind",
    "Location",
    "Log",
    "Restoring",
    "Shape",
    "Snapshot",
    "Store",
    "check_name",
    "is_count",
    "is_name",
]

Location = str | PathLike[str]
"""Where a store is: a folder's path."""

TAG_BYTES = 16
MOST_BYTES = 1 << 62  # offsets in a file are signed 64-bit numbers
_NAME = re.compile(r"[0-9a-z][0-9a-z-]{0,99}")


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

    def put_links(self, first: int, links: bytes) -> None:
        """Keep a pack of links, from this version on."""

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

    keep_versions: int
    """How many of the newest versions are kept whole: commits collect those before, now and then, for their links."""

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

    def collect_versions(self, keep: int | None = None) -> int:
        """Delete the manifests of all but the newest `keep` versions, and keep their links; how many they were.

        They are gone for good when this returns, and with 1 nothing but the head is left of what they stated. Versions
        of release 0.1 stay: they have no links.
        """

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


# --- the names and shapes of runs, which every store checks ----------------------------------------


def is_name(name: object) -> bool:
    """Whether `name` can name a run, a database or a scratch file: lower-case letters, digits and hyphens."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(name: str, what: str) -> str:
    """The name, or InvalidParameter: it could lead out of its folder."""
    if not is_name(name):
        raise InvalidParameter(f"this cannot name {what}", hint="lower-case letters, digits and hyphens")
    return name


def is_count(value: object) -> bool:
    """Whether `value` is a number that pages or bytes of a file can have."""
    return type(value) is int and 0 <= value < MOST_BYTES


@dataclass(frozen=True, slots=True)
class Shape:
    """PUBLIC: for every column of a run, (where its pages begin, bytes of a sealed page, number of pages)."""

    columns: tuple[tuple[int, int, int], ...]
    pages_bytes: int
    tags_bytes: int

    @classmethod
    def of(cls, shape: RunShape) -> Self:
        """The shape of a run with these (pages, bytes of a sealed page) for its columns, column after column."""
        columns, at = [], 0
        for pages, slot_bytes in shape:
            if not (is_count(pages) and is_count(slot_bytes) and slot_bytes > 0):
                raise InvalidParameter("a run's shape has to be counts of pages and bytes", hint="correct the shape")
            columns.append((at, slot_bytes, pages))
            at += pages * slot_bytes
        if at >= MOST_BYTES:
            raise InvalidParameter("the run is too large for a file", hint="give the table a smaller capacity")
        return cls(tuple(columns), at, TAG_BYTES * sum(pages for _, _, pages in columns))

    def pages_at(self, column: int, first_page: int, pages: int, size_bytes: int) -> int:
        """Where pages begin that are to be read; Tampered if the run does not have them, or not in this size."""
        if not 0 <= column < len(self.columns):
            raise Tampered
        start, slot_bytes, count = self.columns[column]
        if first_page < 0 or pages < 0 or first_page + pages > count or size_bytes != pages * slot_bytes:
            raise Tampered
        return start + first_page * slot_bytes

    def room_at(self, column: int, first_page: int, size_bytes: int) -> int:
        """Where pages of this size are to be written; InvalidParameter if the run has no room for them."""
        if not 0 <= column < len(self.columns):
            raise InvalidParameter("the run has no such column", hint="write what its shape has room for")
        start, slot_bytes, count = self.columns[column]
        if first_page < 0 or size_bytes % slot_bytes or first_page + size_bytes // slot_bytes > count:
            raise InvalidParameter("the run has no room for these pages", hint="write what its shape has room for")
        return start + first_page * slot_bytes

    def tags_at(self, column: int) -> tuple[int, int]:
        """Where the tags of a column stand: offset and length; Tampered if there is no such column."""
        if not 0 <= column < len(self.columns):
            raise Tampered
        before = sum(pages for _, _, pages in self.columns[:column])
        return TAG_BYTES * before, TAG_BYTES * self.columns[column][2]

    def check_tags(self, tags: list[int]) -> None:
        """InvalidParameter unless these are the bytes of tags that the columns have."""
        if tags != [TAG_BYTES * pages for _, _, pages in self.columns]:
            raise InvalidParameter("the tags do not fit the run", hint="16 bytes for every page of every column")
