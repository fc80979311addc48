"""Around the fit of an index: the ledger that pays for it, and the file that appears whole or not at all.

What can be refused is refused before the budget is spent; what was paid for is not lost to a full disk.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import typer

from scumble.cli.terminal import BROKEN, say
from scumble.durable import Draft
from scumble.errors import FileError, InvalidParameter, LedgerBusy
from scumble.owner.ledger import Ledger, Spend
from scumble.privacy.budget import Budget

__all__ = ["Account", "drafted", "pay", "publish", "remaining"]


@contextmanager
def drafted(target: Path, *, force: bool, beside: list[Path]) -> Iterator[Draft]:
    """Open a draft of `target`; refuse if it exists (unless forced) or is one of the files in use.

    This comes before the build, so that a missing folder or a read-only disk costs no epsilon.
    """
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


def publish(draft: Draft, data: bytes) -> None:
    """Put the index in place. If the disk refuses, keep what cost epsilon elsewhere, and say where."""
    try:
        draft.write(data)
        draft.replace()
    except OSError as error:
        hint = "free some space before the next try"
        with suppress(OSError):
            handle, name = tempfile.mkstemp(suffix=".scumble")
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            hint = f"it was kept as {name}: move it from there"
        what = f"the index was built and its epsilon is spent, but {draft.target} cannot be written: {error.strerror}"
        raise typer.Exit(say(FileError(what, hint=hint), BROKEN)) from error


@dataclass(frozen=True)
class Account:
    """The ledger that pays for an index: a file, or one in memory that just suffices."""

    file: Path | None
    limit: str | None
    delta_limit: str | None

    def check(self, cost: Spend) -> None:
        """Refuse what can be refused before the data is read, without creating a ledger."""
        if self.file is None:
            if self.limit is not None or self.delta_limit is not None:
                raise InvalidParameter("a limit needs a ledger", hint="--ledger budget.ledger")
        elif self.file.exists():
            Ledger.open(self.file, self.limit, delta_limit=self.delta_limit).close()
        elif self.limit is None:
            raise FileError(f"there is no ledger at {self.file}", hint="--limit 2, for example, creates it")
        else:  # rehearse in memory: limits are for good, so a ledger that could not pay must not be made
            pay(Ledger(self.limit, delta_limit=self.delta_limit or 0), cost)

    def open(self, cost: Spend) -> Ledger:
        if self.file is None:
            return Ledger(cost.epsilon, delta_limit=cost.delta)
        return Ledger.open(self.file, self.limit, delta_limit=self.delta_limit)


def pay(ledger: Ledger, cost: Spend) -> Budget:
    """Spend what one index costs."""
    (budget,) = ledger.spend_all([cost])
    return budget


def remaining(ledger: Ledger) -> dict[str, Fraction]:
    """Return what a ledger has left, or nothing if another process holds it: the index is there, so do not fail."""
    try:
        return {"limit": ledger.limit, "remaining": ledger.remaining(), "delta_remaining": ledger.remaining_delta()}
    except LedgerBusy:
        return {}
