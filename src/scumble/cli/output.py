"""Writing an index file: what would fail is refused before anything is spent, and the file appears whole or not at all.

A draft beside the output is opened before the build, so that a missing folder or a read-only disk costs no epsilon.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scumble.durable import Draft
from scumble.errors import FileError

__all__ = ["drafted", "spent_but_not_written"]


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
        draft = Draft(target)  # its mode follows the umask, as any new file's: an index is public
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its name is not one"
        raise FileError(
            f"cannot write {target}: {why}", hint="its folder has to exist and to be writable; nothing was spent"
        ) from error
    with draft:
        yield draft


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
