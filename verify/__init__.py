"""Every check that `make verify` runs, the table that it prints, and what several checks need."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Row", "folder_in_memory", "patch"]


@dataclass(frozen=True)
class Row:
    """One claim that was attacked. `planted` names the defects that were planted, `caught` those that the check found.

    A row holds if `holds`, and if every planted defect was caught: a check that cannot fail proves nothing.
    """

    claim: str
    check: str
    figure: str
    holds: bool
    planted: tuple[str, ...] = ()
    caught: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.holds and set(self.planted) == set(self.caught)


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """A temporary folder, in memory if the machine has such a file system: on a disk a check would mostly wait."""
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


def patch(owner: Any, name: str, value: Any) -> None:
    """Replace an attribute for good. For processes that are started only to carry a planted fault."""
    setattr(owner, name, value)
