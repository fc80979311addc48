"""A CSV file that counts its quotes while it is read: one that is never closed swallows every row after it."""

from pathlib import Path
from typing import Self

__all__ = ["UNCLOSED", "CountedQuotes"]

UNCLOSED = 'a quote within a cell is written twice, and the cell in quotes: "5"" disk"'
"""What to do about a quote that is never closed."""


class CountedQuotes:
    """A binary file for reading."""

    def __init__(self, path: Path) -> None:
        self._file, self._count = path.open("rb"), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, size: int = -1) -> bytes:
        """Read, and count."""
        block = self._file.read(size)
        self._count += block.count(b'"')
        return block

    def readable(self) -> bool:
        """It is."""
        return True

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._file.closed

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def unclosed(self) -> bool:
        """Whether a quote is left over."""
        return self._count % 2 == 1
