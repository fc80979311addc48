"""Writing an index file: what would fail is refused before anything is spent, and the file appears whole or not at all.

A draft beside the output is opened before the build, so that a missing folder or a read-only disk costs no epsilon.
"""

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scumble.errors import FileError

__all__ = ["Draft", "drafted", "spent_but_not_written"]


class Draft:
    """A file that is not there yet under its own name."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self._path = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.new")
        # Like any new file it follows the umask: an index is public.
        self._handle = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)

    def publish(self, data: bytes) -> None:
        """Write the file durably, then give it its name."""
        with os.fdopen(self._handle, "wb", closefd=False) as file:
            file.write(data)
        os.fsync(self._handle)
        self._path.replace(self.target)
        folder = os.open(self.target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def discard(self) -> None:
        """Leave nothing behind; after `publish` there is nothing."""
        os.close(self._handle)
        self._path.unlink(missing_ok=True)


@contextmanager
def drafted(target: Path, *, force: bool, beside: list[Path]) -> Iterator[Draft]:
    """Open a draft of `target`; refuse if it exists (unless forced) or is one of the files in use."""
    try:
        if any(file.exists() and target.exists() and target.samefile(file) for file in beside):
            raise FileError(f"{target} is in use: the index would overwrite it", hint="name another output")
        if target.exists() and not target.is_file():
            raise FileError(f"{target} is not a file", hint="name a file")
        if target.exists() and not force:
            raise FileError(f"{target} exists already", hint="--force replaces it; its epsilon stays spent")
        draft = Draft(target)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its name is not one"
        raise FileError(
            f"cannot write {target}: {why}", hint="its folder has to exist and to be writable; nothing was spent"
        ) from error
    try:
        yield draft
    finally:
        draft.discard()


def spent_but_not_written(target: Path, data: bytes, error: OSError) -> FileError:
    """Keep an index that cost epsilon in another place, and return the error that says where."""
    hint = "free some space before the next try"
    with suppress(OSError):
        handle, name = tempfile.mkstemp(suffix=".scumble")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        hint = f"it was kept as {name}: move it from there"
    return FileError(
        f"the index was built and its epsilon is spent, but {target} cannot be written: {error.strerror}", hint=hint
    )
