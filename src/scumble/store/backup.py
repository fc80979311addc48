"""Backups: a database's folder comes in and one archive goes out, or the other way round; no key is needed for it.

The provider or the owner may make them, and see every byte: it is what the provider keeps anyway. An archive is a plain
tar file of one version, in this order and no other:

    database.json, HEAD, manifests/... (oldest first), then for each run of the head runs/RUN.pages and runs/RUN.tags
    backup.json    {"format": 1, "database", "version", "members": {name: {"bytes", "sha256"}}}

A backup reads while others write. Manifests are never deleted, and a run that is open can be read to its end even if it
is dropped meanwhile; so all runs of the head are opened first, once more if the head has moved on before that was done.

An archive that is restored may have been made by anybody. It holds no name that is followed: every member has to be
the one that the members before it call for, in name and size, under the very header that a backup writes.
"""

import errno
import json
import os
import re
import resource
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from scumble.durable import Draft, sync_folder
from scumble.errors import Corrupt, Exists, FileError, InvalidParameter, NewerVersion, NotFound, Tampered
from scumble.store.disk import is_there, open_to_read, read_whole, reading
from scumble.store.files import FileStore
from scumble.store.manifests import MOST_BYTES as MOST_MANIFEST_BYTES
from scumble.store.manifests import ManifestFiles
from scumble.store.runs import PAGES, TAGS, Shape, stated_shapes

__all__ = ["Progress", "Report", "backup", "backup_to", "restore", "restore_from"]

FORMAT = 1
CONTENTS = "backup.json"
CHUNK_BYTES = 1 << 20
MOST_CONTENTS_BYTES = 1 << 28
_MANIFEST = re.compile(r"([0-9]{8,15})-[0-9a-f]{16}\.manifest")
_THERE = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}
END = bytes(2 * tarfile.BLOCKSIZE)
ATTEMPTS = 100  # to open the runs of a head that keeps moving

Progress = Callable[[str, int, int | None], None]
"""Called now and then with what is being done, for how many bytes that is done, and of how many if that is known."""


@dataclass(frozen=True)
class Report:
    """PUBLIC: what an archive holds, or a folder that was made of one."""

    database: str
    version: int
    runs: int
    archive_bytes: int


def _silent(what: str, done: int, total: int | None) -> None:
    pass


# --- backup ----------------------------------------------------------------------------------------


def backup_to(path: Path, folder: Path, progress: Progress = _silent) -> Report:
    """Write a backup to a file: all of it, durably, or nothing. Exists if there is one."""
    if os.path.lexists(path):
        raise Exists(f"{path} exists already", hint="name another file: a backup never replaces one")
    try:
        with Draft(path, 0o600) as draft:
            with draft.stream() as sink:
                report = backup(sink, folder, progress)
            draft.replace()
    except OSError as error:
        raise _unwritable(str(path), error) from error
    return report


def backup(sink: BinaryIO, folder: Path, progress: Progress = _silent) -> Report:
    """Write a backup of the newest version to a stream."""
    database = FileStore(folder).database
    with ExitStack() as opened:
        name, runs = _hold(folder, opened)
        manifests = _chain(folder, name)
        total = sum(shape.pages_bytes + shape.tags_bytes for _, shape, _, _ in runs)
        writer = _Writer(sink, progress, total)
        writer.add("database.json", read_whole(folder / "database.json", "database.json", 1000))
        writer.add("HEAD", f"{name}\n".encode())
        for manifest in manifests:
            writer.add(f"manifests/{manifest}", _manifest(folder, manifest))
        for run, shape, pages, tags in runs:
            writer.copy(f"runs/{run}{PAGES}", pages, shape.pages_bytes)
            writer.copy(f"runs/{run}{TAGS}", tags, shape.tags_bytes)
        contents = {"format": FORMAT, "database": database, "version": len(manifests), "members": writer.members}
        writer.add(CONTENTS, json.dumps(contents, indent=1).encode() + b"\n")
        writer.end()
    return Report(database, len(manifests), len(runs), writer.written)


def _hold(folder: Path, opened: ExitStack) -> tuple[str, list[tuple[str, Shape, int, int]]]:
    """The head's name, and its runs with open descriptors of their pages and tags."""
    head = _head(folder)
    for _ in range(ATTEMPTS):
        _, shapes = stated_shapes(_manifest(folder, head))
        _allow_open_files(2 * len(shapes))
        with ExitStack() as attempt:
            try:
                runs = [
                    (
                        run,
                        shape,
                        _open(folder, f"{run}{PAGES}", shape.pages_bytes, attempt),
                        _open(folder, f"{run}{TAGS}", shape.tags_bytes, attempt),
                    )
                    for run, shape in sorted(shapes.items())
                ]
            except Tampered:
                before, head = head, _head(folder)
                if head == before:
                    raise
                continue
            opened.push(attempt.pop_all())
            return head, runs
    raise FileError("the database changes faster than its files can be opened", hint="try again")


def _open(folder: Path, name: str, size_bytes: int, held: ExitStack) -> int:
    handle = open_to_read(folder / "runs" / name, f"runs/{name}")
    held.callback(os.close, handle)
    if os.fstat(handle).st_size != size_bytes:
        raise Tampered
    return handle


def _head(folder: Path) -> str:
    if not is_there(folder / "HEAD", "HEAD"):
        raise NotFound("the database has no version yet", hint="make it with `scumble init`")
    content = read_whole(folder / "HEAD", "HEAD", 100).decode("latin-1")
    if content[-1:] != "\n" or not _MANIFEST.fullmatch(content[:-1]):
        raise Tampered
    return content[:-1]


def _chain(folder: Path, head: str) -> list[str]:
    """The names of all manifests up to the head, oldest first; Tampered unless each version has one."""
    listed = ManifestFiles(folder, lambda run: None).listed()
    last = int(head.partition("-")[0])
    names = [listed.get(version, []) for version in range(1, last)]
    if any(len(versions) != 1 for versions in names):
        raise Tampered
    return [*(versions[0] for versions in names), head]


def _manifest(folder: Path, name: str) -> bytes:
    content = read_whole(folder / "manifests" / name, f"manifests/{name}", MOST_MANIFEST_BYTES)
    if not _is_manifest(name, content):
        raise Tampered
    return content


def _is_manifest(name: str, content: bytes, version: int | None = None) -> bool:
    """Whether a manifest is the one of this name, and of this version."""
    stated = stated_shapes(content)[0]
    return version in (None, stated) and name == f"{stated:08d}-{sha256(content).hexdigest()[:16]}.manifest"


def _allow_open_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 200
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


class _Writer:
    """Writes members one after the other, and keeps their hashes."""

    def __init__(self, sink: BinaryIO, progress: Progress, total: int) -> None:
        self._sink, self._progress, self._total = sink, progress, total
        self._copied = self.written = 0
        self.members: dict[str, dict[str, object]] = {}

    def add(self, name: str, content: bytes) -> None:
        """A member that is in memory."""
        self._write(_header(name, len(content)))
        self._write(content)
        self._finish(name, len(content), sha256(content).hexdigest())

    def copy(self, name: str, handle: int, size_bytes: int) -> None:
        """A member that is a file; Tampered if it is cut short meanwhile."""
        self._write(_header(name, size_bytes))
        digest, at = sha256(), 0
        while at < size_bytes:
            with reading(name):
                chunk = os.pread(handle, min(CHUNK_BYTES, size_bytes - at), at)
            if not chunk:
                raise Tampered
            digest.update(chunk)
            self._write(chunk)
            at += len(chunk)
            self._copied += len(chunk)
            self._progress("copying", self._copied, self._total)
        self._finish(name, size_bytes, digest.hexdigest())

    def end(self) -> None:
        """What ends an archive."""
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


def restore_from(path: Path, folder: Path, progress: Progress = _silent) -> Report:
    """Make a database folder of a backup file."""
    try:
        with path.open("rb") as source:
            return restore(source, folder, progress)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}", hint="name a backup, or - for stdin") from error


def restore(source: BinaryIO, folder: Path, progress: Progress = _silent) -> Report:
    """Make a new database folder of a stream: all of it, checked and durable, or nothing. Exists if there is one."""
    if os.path.lexists(folder):
        raise Exists(f"{folder} exists already", hint="name a folder that is not there: a restore never replaces one")
    with _draft_of(folder) as draft:
        try:
            report = _unpack(_Reader(source, progress), draft)
        except Tampered:
            raise _broken() from None
        for part in (draft / "manifests", draft / "runs", draft):
            sync_folder(part)
        try:
            draft.rename(folder)
        except OSError as error:
            if error.errno not in _THERE:
                raise
            raise Exists(f"{folder} has been made meanwhile", hint="name another folder") from error
        sync_folder(folder.parent)
    return report


@contextmanager
def _draft_of(folder: Path) -> Iterator[Path]:
    """An empty database folder on the same disk, which is gone afterwards unless it was renamed."""
    outer = None
    try:
        outer = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".restoring", dir=folder.parent))
        draft = outer / "database"
        for part in (draft, draft / "manifests", draft / "runs", draft / "scratch"):
            part.mkdir()
        yield draft
    except OSError as error:
        raise _unwritable(str(folder), error) from error
    finally:
        if outer is not None:
            shutil.rmtree(outer, ignore_errors=True)


def _unpack(reader: "_Reader", draft: Path) -> Report:
    reader.unpack("database.json", draft, reader.size("database.json", 1000))
    reader.unpack("HEAD", draft, reader.size("HEAD", 100))
    database = FileStore(draft).database
    head, version = _head(draft), 0
    while True:
        version += 1
        name = reader.manifest_name(version)
        content = reader.unpack(name, draft, reader.size(name, MOST_MANIFEST_BYTES)).read_bytes()
        if not _is_manifest(Path(name).name, content, version):
            raise _broken()
        if name == f"manifests/{head}":
            break
    _, shapes = stated_shapes(content)
    for run, shape in sorted(shapes.items()):
        reader.unpack(f"runs/{run}{PAGES}", draft, shape.pages_bytes)
        reader.unpack(f"runs/{run}{TAGS}", draft, shape.tags_bytes)
    contents = {"format": FORMAT, "database": database, "version": version, "members": dict(reader.members)}
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

    def size(self, name: str, most_bytes: int) -> int:
        """The size that the next member states, which has to be of this name, and no larger than that."""
        member = self._next()
        if member.name != name or not 0 <= member.size <= most_bytes:
            raise _broken()
        return member.size

    def manifest_name(self, version: int) -> str:
        """The name of the next member, which has to be a manifest of this version."""
        name = self._next().name
        match = _MANIFEST.fullmatch(name.removeprefix("manifests/"))
        if not name.startswith("manifests/") or match is None or int(match[1]) != version:
            raise _broken()
        return name

    def unpack(self, name: str, draft: Path, size_bytes: int) -> Path:
        """Write the next member to its file, durably."""
        path = draft / name
        self._expect(name, size_bytes)
        digest, rest = sha256(), size_bytes
        with path.open("xb") as file:
            while rest:
                chunk = self._read(min(CHUNK_BYTES, rest))
                digest.update(chunk)
                file.write(chunk)
                rest -= len(chunk)
                self._progress("restoring", self.read_bytes, None)
            file.flush()
            os.fsync(file.fileno())
        self._pad(size_bytes)
        self.members[name] = {"bytes": size_bytes, "sha256": digest.hexdigest()}
        return path

    def contents(self) -> Any:
        """The list of contents."""
        size_bytes = self.size(CONTENTS, MOST_CONTENTS_BYTES)
        self._expect(CONTENTS, size_bytes)
        content = self._read(size_bytes)
        self._pad(size_bytes)
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

    def _expect(self, name: str, size_bytes: int) -> None:
        self._next()
        if self._header != _header(name, size_bytes):
            raise _broken()
        self._header = b""

    def _next(self) -> tarfile.TarInfo:
        self._header = self._header or self._read(tarfile.BLOCKSIZE)
        try:
            return tarfile.TarInfo.frombuf(self._header, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError):
            raise _broken() from None

    def _pad(self, size_bytes: int) -> None:
        if self._read(-size_bytes % tarfile.BLOCKSIZE).strip(b"\0"):
            raise _broken()

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
