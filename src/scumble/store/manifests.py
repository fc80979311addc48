"""Manifest files: HEAD, and one file for every version, named by its number and its hash.

The provider reads their public part for the shapes of the runs. It cannot tell whether a manifest is genuine; one that
does not agree with its own name is Tampered.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from scumble.durable import remove
from scumble.errors import NotFound, Tampered
from scumble.store.disk import is_there, read_whole, reading, replace
from scumble.store.layout import MOST_MANIFEST_BYTES, Shape, manifest_name, stated_shapes, version_of

__all__ = ["ManifestFiles"]


class ManifestFiles:
    """HEAD and the manifests of a database. `forget` is called for every run that turns out to have another shape."""

    def __init__(self, database: Path, forget: Callable[[str], None]) -> None:
        self.folder = database / "manifests"
        self._head_path = database / "HEAD"
        self._forget = forget
        self._learning = threading.Lock()
        self._shapes: dict[str, Shape] = {}
        self._head_runs: tuple[str, frozenset[str]] = ("", frozenset())
        self._earlier: dict[int, list[str]] = {}

    def version(self) -> int:
        """The head's version; 0 if nothing has been committed yet."""
        name = self._head_name()
        return 0 if name is None else _version(name)

    def head(self) -> bytes:
        name = self._head_name()
        if name is None:
            raise NotFound("the database has no version yet", hint="make it with `scumble init`")
        return self._learn_head(name)

    def manifest(self, version: int) -> bytes:
        head = self._head_name()
        if head is not None and version == _version(head):
            return self._learn_head(head)
        if version not in self._earlier:
            # What is not committed may still be replaced by a file of another name.
            self._earlier = {v: names for v, names in self.listed().items() if head and v < _version(head)}
        names = self._earlier.get(version, [])
        if not names:
            raise NotFound("there is no such version of the database", hint="`scumble check` shows what there is")
        if len(names) > 1:
            raise Tampered
        content, shapes = self._read(names[0])
        with self._learning:
            self._shapes = {**shapes, **self._shapes}
        return content

    def publish(self, version: int, manifest: bytes) -> None:
        """Make `manifest` the head: its own file first, then HEAD, both durably."""
        name = manifest_name(version, manifest)
        self.withdraw(version)
        replace(self.folder / name, f"manifests/{name}", manifest)
        replace(self._head_path, "HEAD", f"{name}\n".encode())

    def withdraw(self, version: int) -> None:
        """Delete what was written of a version that never became the head."""
        for name in self.listed().get(version, []):
            remove(self.folder / name)

    def listed(self) -> dict[int, list[str]]:
        """The names of the files that are there, by version."""
        names: dict[int, list[str]] = {}
        with reading("manifests"):
            for path in self.folder.iterdir():
                if (version := version_of(path.name)) is not None:
                    names.setdefault(version, []).append(path.name)
        return names

    def head_shapes(self) -> dict[str, Shape]:
        """The runs of the head, and their shapes."""
        name = self._head_name()
        if name is None:
            return {}
        self._learn_head(name)
        return {run: self._shapes[run] for run in self._head_runs[1]}

    def shape_of(self, run: str) -> Shape:
        """The shape of a run as the head states it, or, for a slow reader, an earlier version; Tampered if none."""
        if run not in self._shapes:
            self.head_shapes()
        if run not in self._shapes:
            head = self.version()
            for version in sorted((v for v in self.listed() if v < head), reverse=True):
                self.manifest(version)
                if run in self._shapes:
                    break
            else:
                raise Tampered
        return self._shapes[run]

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

    def _learn_head(self, name: str) -> bytes:
        known = self._head_runs[0]
        content, shapes = self._read(name, known)
        if name != known:
            with self._learning:
                for run, shape in shapes.items():
                    if self._shapes.get(run, shape) != shape:
                        self._forget(run)
                self._shapes = {**self._shapes, **shapes}
                self._head_runs = (name, frozenset(shapes))
        return content

    def _read(self, name: str, known: str = "") -> tuple[bytes, Mapping[str, Shape]]:
        """A manifest, and its runs' shapes, unless its name, and so its content, is known."""
        content = read_whole(self.folder / name, f"manifests/{name}", MOST_MANIFEST_BYTES)
        if manifest_name(_version(name), content) != name:
            raise Tampered
        if name == known:
            return content, {}
        version, shapes = stated_shapes(content)
        if version != _version(name):
            raise Tampered
        return content, shapes


def _version(name: str) -> int:
    return int(name.partition("-")[0])
