"""The files of a database's versions: HEAD, a manifest for each of the newest, and packs of links of those before.

Nobody is kept from reading while versions are published and collected: who finds a file gone looks again for what has
taken its place. A manifest that does not agree with its own name is Tampered.
"""

import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from scumble.durable import Draft, open_folder, remove, sync_folder, write_all
from scumble.errors import FileError, NotFound, ScumbleError, Tampered
from scumble.store.collecting import MOST_AT_ONCE, LinkPacks
from scumble.store.manifests import (
    MOST_MANIFEST_BYTES,
    first_of,
    links_name,
    manifest_name,
    stated_shapes,
    version_of,
)
from scumble.store.protocol import Shape
from scumble.store.runs import RunFiles, is_there, open_to_read, read_whole, reading, replace, writing
from scumble.wire.lineage import Link
from scumble.wire.links import MOST_PACK_BYTES, link_of
from scumble.wire.storage import UNSIGNED_MAGIC

__all__ = ["ATTEMPTS", "ManifestFiles"]

ATTEMPTS = 100  # to read a head that keeps moving


class ManifestFiles:
    """HEAD and the manifests of a database. `runs` learns the shapes that each of them states."""

    def __init__(self, database: Path, runs: RunFiles) -> None:
        self.folder = database / "manifests"
        self._head_path = database / "HEAD"
        self._runs = runs
        self._links = LinkPacks(_PackFiles(self.folder))
        self._head: tuple[str, Mapping[str, Shape]] = ("", {})
        self._earlier: dict[int, list[str]] = {}

    def version(self) -> int:
        """The head's version; 0 if nothing has been committed yet."""
        name = self._head_name()
        return 0 if name is None else _version(name)

    def head(self) -> bytes:
        found = self._newest()
        if found is None:
            raise NotFound("the database has no version yet", hint="make it with `scumble init`")
        return found[0]

    def head_shapes(self) -> Mapping[str, Shape]:
        """The runs of the head, and their shapes."""
        known, shapes = self._head
        if known and known == self._head_name():
            return shapes
        found = self._newest()
        return {} if found is None else found[1]

    def manifest(self, version: int) -> bytes:
        return self._read_version(version)[0]

    def links(self, version: int) -> bytes:
        return self._links.holding(version)

    def look_for(self, run: str) -> None:
        """Read manifests until one states the run: the head, or, for a slow reader, an earlier one."""
        if run in self.head_shapes():
            return
        head = self.version()
        for version in sorted((v for v in self.listed() if v < head), reverse=True):
            with suppress(NotFound):  # collected this moment
                if run in self._read_version(version)[1]:
                    return

    def publish(self, version: int, manifest: bytes, shapes: Mapping[str, Shape], handles: Sequence[int] = ()) -> None:
        """Make `manifest`, which states these shapes, the head.

        HEAD changes when the manifest, HEAD itself, and what the handles are of is durable.
        """
        name = manifest_name(version, manifest)
        self.withdraw(version)
        try:
            self._publish(name, manifest, handles)
        except FileError:
            with suppress(ScumbleError):
                if self._head_name() != name:  # it may have failed after the head was there
                    self.withdraw(version)
            raise
        self._take_head(name, shapes)

    def _publish(self, name: str, manifest: bytes, handles: Sequence[int]) -> None:
        with ExitStack() as opened:
            with writing(f"manifests/{name}"):
                file = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                opened.callback(os.close, file)
                write_all(file, manifest)
                folder = open_folder(self.folder)
                opened.callback(os.close, folder)
            with writing("HEAD"):
                head = opened.enter_context(Draft(self._head_path))
                head.write(f"{name}\n".encode())
                head.replace(file, folder, *handles)

    def withdraw(self, version: int) -> None:
        """Delete what was written of a version that never became the head."""
        for name in self.listed().get(version, []):
            remove(self.folder / name)

    def listed(self) -> dict[int, list[str]]:
        """The names of the files that are there, by version."""
        names: dict[int, list[str]] = {}
        with reading("manifests"):
            for name in os.listdir(self.folder):  # noqa: PTH208  for every change: Paths cost more than the call
                if (version := version_of(name)) is not None:
                    names.setdefault(version, []).append(name)
        return names

    def collect(self, keep: int, most: int = MOST_AT_ONCE) -> int:
        """Reduce the oldest versions to their links, `most` at a time, the newest `keep` aside; how many were."""
        head, listed = self.version(), self.listed()
        old = sorted(version for version in listed if version <= head - keep and len(listed[version]) == 1)
        signed = bisect_left(old, True, key=lambda version: self._is_signed(listed[version][0]))
        links = [link for version in old[signed : signed + most] if (link := self._link(version, listed[version][0]))]
        collected = self._links.add(links)
        for version in collected:
            remove(self.folder / listed[version][0])
        return len(collected)

    def last_collected(self) -> int:
        """The last version of which there may be no more than the link; 0 if all are whole."""
        return self._links.last()

    def sync(self) -> None:
        """Make durable which manifests are there, and which are not any more."""
        with writing("manifests"):
            sync_folder(self.folder)

    def named_earlier(self, runs: set[str]) -> set[str]:
        """Those of these runs that a version before the head names; all of them if one of those cannot be read."""
        found: set[str] = set()
        head, listed = self.version(), self.listed()
        for version in sorted((v for v in listed if v < head), reverse=True):
            if found == runs:
                break
            for name in listed[version]:
                try:
                    found |= runs & self._read(name)[1].keys()
                except Tampered:
                    return runs
        return found

    def _head_name(self) -> str | None:
        if not is_there(self._head_path, "HEAD"):
            if max(self.listed(), default=0) > 1:  # a first commit that was cut short leaves version 1 at most
                raise Tampered
            return None
        content = read_whole(self._head_path, "HEAD", 100)
        name = content[:-1].decode("latin-1")
        if content[-1:] != b"\n" or version_of(name) is None:
            raise Tampered
        return name

    def _newest(self) -> tuple[bytes, Mapping[str, Shape]] | None:
        """The head and its runs; None if there is none. Once more if it was collected before it could be read."""
        for _ in range(ATTEMPTS):
            name = self._head_name()
            if name is None:
                return None
            try:
                return self._read_head(name)
            except Tampered:
                if self._head_name() == name:
                    raise
        raise FileError("the database changes faster than it can be read", hint="try again")

    def _link(self, version: int, name: str) -> Link | None:
        try:
            return link_of(version, self._content(name))
        except Tampered:
            return None

    def _is_signed(self, name: str) -> bool:
        """Whether release 0.1 has not made it: all of those come before the first that is signed."""
        handle = open_to_read(self.folder / name, f"manifests/{name}")
        try:
            with reading(f"manifests/{name}"):
                return os.read(handle, len(UNSIGNED_MAGIC)) != UNSIGNED_MAGIC
        finally:
            os.close(handle)

    def _read_head(self, name: str) -> tuple[bytes, Mapping[str, Shape]]:
        known, shapes = self._head
        if name == known:
            return self._content(name), shapes
        content, shapes = self._read(name)
        self._take_head(name, shapes)
        return content, shapes

    def _take_head(self, name: str, shapes: Mapping[str, Shape]) -> None:
        self._runs.learn(shapes, newest=True)
        self._head = name, shapes

    def _read_version(self, version: int) -> tuple[bytes, Mapping[str, Shape]]:
        head = self._head_name()
        if head is not None and version == _version(head):
            return self._read_unless_collected(version, head)
        if version not in self._earlier:
            # What is not committed may still be replaced by a file of another name.
            self._earlier = {v: names for v, names in self.listed().items() if head and v < _version(head)}
        names = self._earlier.get(version, [])
        if not names:
            raise _no_version()
        if len(names) > 1:
            raise Tampered
        return self._read_unless_collected(version, names[0])

    def _read_unless_collected(self, version: int, name: str) -> tuple[bytes, Mapping[str, Shape]]:
        """A manifest and its runs; NotFound if the writer has deleted it this moment: then there is its link."""
        try:
            content, shapes = self._read(name)
        except Tampered:
            if name in self.listed().get(version, []) or name == self._head_name():
                raise
            self._earlier = {}
            raise _no_version() from None
        self._runs.learn(shapes, newest=False)
        return content, shapes

    def _read(self, name: str) -> tuple[bytes, Mapping[str, Shape]]:
        content = self._content(name)
        version, shapes = stated_shapes(content)
        if version != _version(name):
            raise Tampered
        return content, shapes

    def _content(self, name: str) -> bytes:
        content = read_whole(self.folder / name, f"manifests/{name}", MOST_MANIFEST_BYTES)
        if manifest_name(_version(name), content) != name:
            raise Tampered
        return content


class _PackFiles:
    """`Packs` among the manifests of a database."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __iter__(self) -> Iterator[int]:
        with reading("manifests"):
            firsts = [first_of(path.name) for path in self._folder.iterdir()]
        return (first for first in firsts if first is not None)

    def __getitem__(self, first: int) -> bytes:
        name = links_name(first)
        return read_whole(self._folder / name, f"manifests/{name}", MOST_PACK_BYTES)

    def __setitem__(self, first: int, pack: bytes) -> None:
        name = links_name(first)
        replace(self._folder / name, f"manifests/{name}", pack)


def _no_version() -> NotFound:
    return NotFound("there is no such version of the database", hint="`scumble check` shows what there is")


def _version(name: str) -> int:
    return int(name.partition("-")[0])
