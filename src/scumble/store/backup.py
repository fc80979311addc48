"""Backups: the newest version of a database as one archive, and back into any store. No key is needed for either.

An archive holds sealed pages and public names, which the provider keeps anyway, and nothing else.
It is a plain tar file of one version, in this order and no other, named like the files of a database folder:

    database.json, HEAD, manifests/... (oldest first), then for each run of the head runs/RUN.pages and runs/RUN.tags
    backup.json    {"format": 2, "database", "version", "members": {name: {"bytes", "sha256"}}}

Of the versions before the head there are only the links, in packs that are full but for the last; those that have none,
of release 0.1, are there whole, and an archive without any pack has format 1. So the same version gives the same bytes,
whatever the store has collected. A backup keeps nobody from writing: of every version there is the manifest or the link
at any time, and a store's snapshot holds the runs.

Anybody may have made the archive that is restored. No name in it is followed: every member has to be the one that the
members before it call for, in name and size, under the very header that a backup writes.
"""

import json
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from scumble.durable import Draft
from scumble.errors import Corrupt, Exists, FileError, InvalidParameter, NewerVersion, NotFound, Tampered
from scumble.store.manifests import (
    MOST_DATABASE_BYTES,
    MOST_MANIFEST_BYTES,
    database_file,
    database_of,
    links_name,
    manifest_name,
    stated_shapes,
    version_of,
)
from scumble.store.protocol import Restoring, Store
from scumble.store.runs import PAGES, TAGS
from scumble.wire.lineage import Link
from scumble.wire.links import MOST_PACK_BYTES, in_packs, link_of, unpack_links

__all__ = ["Progress", "Report", "backup", "backup_to", "restore", "restore_from"]

FORMAT, FORMAT_WITHOUT_LINKS = 2, 1
CONTENTS = "backup.json"
CHUNK_BYTES = 1 << 20
MOST_CONTENTS_BYTES = 1 << 28
MOST_HEAD_BYTES = 100
END = bytes(2 * tarfile.BLOCKSIZE)

Progress = Callable[[str, int, int | None], None]
"""Called now and then with what is being done, how many bytes are done, and of how many if that is known."""


@dataclass(frozen=True)
class Report:
    """PUBLIC: what an archive holds, or a database that was made of one."""

    database: str
    version: int
    runs: int
    archive_bytes: int


def _silent(what: str, done: int, total: int | None) -> None:
    pass


# --- backup ----------------------------------------------------------------------------------------


def backup_to(path: Path, store: Store, progress: Progress = _silent) -> Report:
    """Write a backup to a file: all of it, durably, or nothing. Exists if there is one."""
    if os.path.lexists(path):
        raise Exists(f"{path} exists already", hint="name another file: a backup never replaces one")
    try:
        with Draft(path, 0o600) as draft:
            with draft.stream() as sink:
                report = backup(sink, store, progress)
            draft.replace()
    except OSError as error:
        raise _unwritable(str(path), error) from error
    return report


def backup(sink: BinaryIO, store: Store, progress: Progress = _silent) -> Report:
    """Write a backup of the newest version to a stream."""
    with store.snapshot() as snapshot:
        version, shapes = stated_shapes(snapshot.head)
        writer = _Writer(sink, progress, sum(shape.pages_bytes + shape.tags_bytes for shape in shapes.values()))
        writer.add("database.json", database_file(store.database))
        writer.add("HEAD", f"{manifest_name(version, snapshot.head)}\n".encode())
        packed = False
        for name, content in _members(_earlier(store, version)):
            packed |= name.endswith(".links")
            writer.add(f"manifests/{name}", content)
        writer.add(f"manifests/{manifest_name(version, snapshot.head)}", snapshot.head)
        for run, shape in sorted(shapes.items()):
            writer.copy(f"runs/{run}{PAGES}", snapshot.pages(run), shape.pages_bytes)
            writer.copy(f"runs/{run}{TAGS}", snapshot.tags(run), shape.tags_bytes)
        contents = _contents(store.database, version, writer.members, packed=packed)
        writer.add(CONTENTS, json.dumps(contents, indent=1).encode() + b"\n")
        writer.end()
    return Report(store.database, version, len(shapes), writer.written)


def _earlier(store: Store, head: int) -> Iterator[tuple[int, bytes | Link]]:
    """The versions before the head, oldest first: the link of each, or the manifest of one that has none."""
    version = 1
    while version < head:
        try:
            manifest = store.manifest(version)
        except NotFound:  # it was collected: now or long ago
            links = _links_from(store, version, head)
            yield from ((link.draft.version, link) for link in links)
            version += len(links)
        else:
            yield version, link_of(version, manifest) or manifest
            version += 1


def _members(versions: Iterator[tuple[int, bytes | Link]]) -> Iterator[tuple[str, bytes]]:
    """The files for them: a pack for as many links in a row as fit, and the manifests."""
    links: list[Link] = []
    for version, found in versions:
        if isinstance(found, Link):
            links.append(found)
            continue
        yield from ((links_name(first), pack) for first, pack in in_packs(links))
        yield manifest_name(version, found), found
        links = []
    yield from ((links_name(first), pack) for first, pack in in_packs(links))


def _links_from(store: Store, version: int, head: int) -> list[Link]:
    try:
        links = unpack_links(store.links(version))
    except NotFound:
        raise Tampered from None
    found = [link for link in links if version <= link.draft.version < head]
    if not found or found[0].draft.version != version:
        raise Tampered
    return found


def _contents(database: str, version: int, members: dict[str, Any], *, packed: bool) -> dict[str, Any]:
    written = FORMAT if packed else FORMAT_WITHOUT_LINKS
    return {"format": written, "database": database, "version": version, "members": members}


class _Writer:
    """Writes members one after the other, and keeps their hashes."""

    def __init__(self, sink: BinaryIO, progress: Progress, total: int) -> None:
        self._sink, self._progress, self._total = sink, progress, total
        self._copied = self.written = 0
        self.members: dict[str, dict[str, object]] = {}

    def add(self, name: str, content: bytes) -> None:
        self._write(_header(name, len(content)))
        self._write(content)
        self._finish(name, len(content), sha256(content).hexdigest())

    def copy(self, name: str, pieces: Iterable[bytes], size_bytes: int) -> None:
        """Write a member that comes in pieces."""
        self._write(_header(name, size_bytes))
        digest = sha256()
        for piece in pieces:
            digest.update(piece)
            self._write(piece)
            self._copied += len(piece)
            self._progress("copying", self._copied, self._total)
        self._finish(name, size_bytes, digest.hexdigest())

    def end(self) -> None:
        self._write(END)
        self._sink.flush()

    def _finish(self, name: str, size_bytes: int, digest: str) -> None:
        self._write(bytes(-size_bytes % tarfile.BLOCKSIZE))
        self.members[name] = {"bytes": size_bytes, "sha256": digest}

    def _write(self, content: bytes) -> None:
        try:
            self._sink.write(content)
        except OSError as error:
            raise _unwritable("the backup", error) from error
        self.written += len(content)


def _header(name: str, size_bytes: int) -> bytes:
    """The only header that a member of this name and size can have."""
    member = tarfile.TarInfo(name)
    member.size = size_bytes
    header = member.tobuf(tarfile.GNU_FORMAT)
    if len(header) != tarfile.BLOCKSIZE:
        raise InvalidParameter("a run's name is too long for a backup", hint="93 characters are the most")
    return header


def _unwritable(what: str, error: OSError) -> FileError:
    return FileError(f"{what} cannot be written: {error.strerror}", hint="check the disk and the permissions")


# --- restore ---------------------------------------------------------------------------------------


def restore_from(path: Path, target: AbstractContextManager[Restoring], progress: Progress = _silent) -> Report:
    """Make a database of a backup file."""
    try:
        with path.open("rb") as source:
            return restore(source, target, progress)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}", hint="name a backup, or - for stdin") from error


def restore(source: BinaryIO, target: AbstractContextManager[Restoring], progress: Progress = _silent) -> Report:
    """Make a database of a stream, checked as a whole: `target` is dropped if anything in it is wrong."""
    with target as store:
        try:
            return _unpack(_Reader(source, progress), store)
        except Tampered:
            raise _broken() from None


def _unpack(reader: "_Reader", store: Restoring) -> Report:
    stated = reader.read("database.json", MOST_DATABASE_BYTES)
    database = database_of(stated)
    if stated != database_file(database):
        raise _broken()
    store.put_database(database)
    head, version, packed = reader.read("HEAD", MOST_HEAD_BYTES), 0, False
    while True:
        version += 1
        if links := reader.links(version):
            packed = True
            store.put_links(version, links)
            version = unpack_links(links)[-1].draft.version
            continue
        name, manifest = reader.manifest(version)
        store.put_manifest(version, manifest)
        if head == f"{name}\n".encode():
            break
    shapes = stated_shapes(manifest)[1]
    for run, shape in sorted(shapes.items()):
        store.put_pages(run, reader.pieces(f"runs/{run}{PAGES}", shape.pages_bytes))
        store.put_tags(run, reader.pieces(f"runs/{run}{TAGS}", shape.tags_bytes))
    contents = _contents(database, version, dict(reader.members), packed=packed)
    if reader.contents() != contents:
        raise _broken()
    reader.end()
    return Report(database, version, len(shapes), reader.read_bytes)


class _Reader:
    """Reads members one after the other, each as it has to be, and keeps their hashes."""

    def __init__(self, source: BinaryIO, progress: Progress) -> None:
        self._source, self._progress = source, progress
        self._header = b""
        self.read_bytes = 0
        self.members: dict[str, dict[str, object]] = {}

    def read(self, name: str, most_bytes: int) -> bytes:
        """The content of the next member, which has to be of this name, and no larger than that."""
        member = self._next()
        if member.name != name or not 0 <= member.size <= most_bytes:
            raise _broken()
        return b"".join(self.pieces(name, member.size))

    def links(self, first: int) -> bytes:
        """The next member, if it is a pack of links from this version on; else nothing, and it is still the next."""
        name = f"manifests/{links_name(first)}"
        if self._next().name != name:
            return b""
        links = self.read(name, MOST_PACK_BYTES)
        if unpack_links(links)[0].draft.version != first:
            raise _broken()
        return links

    def manifest(self, version: int) -> tuple[str, bytes]:
        """The next member, which has to be the manifest of this version; its name and content."""
        name = self._next().name.removeprefix("manifests/")
        if version_of(name) != version:
            raise _broken()
        manifest = self.read(f"manifests/{name}", MOST_MANIFEST_BYTES)
        if stated_shapes(manifest)[0] != version or manifest_name(version, manifest) != name:
            raise _broken()
        return name, manifest

    def pieces(self, name: str, size_bytes: int) -> Iterator[bytes]:
        """The content of the next member, which has to be of this name and size, in pieces."""
        self._next()
        if self._header != _header(name, size_bytes):
            raise _broken()
        self._header = b""
        digest, rest = sha256(), size_bytes
        while rest:
            piece = self._read(min(CHUNK_BYTES, rest))
            digest.update(piece)
            rest -= len(piece)
            self._progress("restoring", self.read_bytes, None)
            yield piece
        if self._read(-size_bytes % tarfile.BLOCKSIZE).strip(b"\0"):
            raise _broken()
        self.members[name] = {"bytes": size_bytes, "sha256": digest.hexdigest()}

    def contents(self) -> Any:
        """The list of contents, which is the next member."""
        content = self.read(CONTENTS, MOST_CONTENTS_BYTES)
        try:
            fields = json.loads(content)
            newer = type(fields["format"]) is int and fields["format"] > FORMAT
        except (ValueError, TypeError, KeyError, RecursionError):
            raise _broken() from None
        if newer:
            raise NewerVersion("the backup was made by a later Scumble", hint="upgrade Scumble")
        return fields

    def end(self) -> None:
        """Nothing but what ends an archive may follow; other programs fill it up with zeros."""
        if self._read(len(END)) != END:
            raise _broken()
        while chunk := self._source.read(CHUNK_BYTES):
            if chunk.strip(b"\0"):
                raise _broken()

    def _next(self) -> tarfile.TarInfo:
        self._header = self._header or self._read(tarfile.BLOCKSIZE)
        try:
            return tarfile.TarInfo.frombuf(self._header, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError):
            raise _broken() from None

    def _read(self, count: int) -> bytes:
        content = bytearray()
        while len(content) < count:
            try:
                chunk = self._source.read(min(CHUNK_BYTES, count - len(content)))
            except OSError as error:
                raise FileError(f"the backup cannot be read: {error.strerror}", hint="check the disk") from error
            if not chunk:
                raise _broken()
            content += chunk
        self.read_bytes += count
        return bytes(content)


def _broken() -> Corrupt:
    return Corrupt(
        "this is no backup of a database, or not a whole one",
        hint="nothing was restored: take another copy of it, or another backup",
    )
