"""A user's own key files as data sets: `--keys FILE`, or `--keys "NAME=FILE:COLUMN"` instead of a stand-in.

A file of whole numbers comes in, one a line, or a column of a .csv file, or a .npy array; counts over the span of its
keys go out. The span is taken from the keys: this is for experiments with data that one may publish numbers about.
"""

import csv
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.data import Counts, Source
from scumble import Domain, IntegerDomain

__all__ = ["BadKeys", "KeysFile"]

MOST_SPAN = 2**26


class BadKeys(Exception):
    """A file of keys that cannot be used; the message says why and what would do."""


@dataclass(frozen=True)
class KeysFile:
    """One `--keys`: the data set that it makes or replaces, the file, and the column if it has several."""

    name: str
    file: Path
    column: str | None

    @classmethod
    def parse(cls, text: str) -> "KeysFile":
        """Read `[NAME=]FILE[:COLUMN]`; without a name, the data set is called like the file."""
        name, sign, rest = text.partition("=")
        place = rest if sign else text
        file, column = Path(place), None
        if not file.is_file() and ":" in place:
            start, _, column = place.rpartition(":")
            file = Path(start)
        if not file.is_file():
            raise BadKeys(f"there is no file {file}")
        return cls(name.strip() if sign and name.strip() else file.stem, file, column)

    @property
    def digest(self) -> str:
        """Which file it is: what was measured on another one is measured again."""
        return sha256(self.file.read_bytes()).hexdigest()[:16] + (self.column or "")

    def source(self) -> Source:
        """The data set, read when it is needed."""
        return Source(lambda _: self.counted(), f"the user's file {self.file.name}", real=True)

    def counted(self) -> tuple[Domain, Counts]:
        """Rows at each key from the least to the greatest."""
        keys = self.read()
        first, last = int(keys.min()), int(keys.max())
        if last - first >= MOST_SPAN:
            raise BadKeys(
                f"the keys of {self.file} span more than {MOST_SPAN:,} values; the experiments count them all"
            )
        return IntegerDomain(first, last), np.bincount(keys - first, minlength=last - first + 1).astype(np.int64)

    def read(self) -> NDArray[np.int64]:
        """The keys, as whole numbers."""
        try:
            keys = self._array() if self.file.suffix == ".npy" else self._parsed()
        except (ValueError, OverflowError, EOFError, csv.Error) as error:  # whose texts would quote the file
            raise BadKeys(f"{self.file} is no text and no array of whole numbers") from error
        if not len(keys):
            raise BadKeys(f"{self.file} holds no keys")
        return keys

    def _array(self) -> NDArray[np.int64]:
        if self.column is not None:
            raise BadKeys(f"{self.file} is an array, which has no column {self.column!r}")
        found = np.load(self.file, allow_pickle=False)
        if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype.kind not in "iu":
            raise BadKeys(f"{self.file} is no array of one dimension of whole numbers")
        if found.dtype.kind == "u" and len(found) and int(found.max()) >= 2**63:
            raise BadKeys(f"{self.file} has keys beyond 63 bits")
        return found.astype(np.int64)

    def _parsed(self) -> NDArray[np.int64]:
        with self.file.open(newline="", encoding="utf-8-sig") as lines:
            rows = [row for row in csv.reader(lines) if row]
        if not rows:
            return np.empty(0, dtype=np.int64)
        place = self._place(rows[0])
        titled = not _whole(rows[0][place])
        for number, row in enumerate(rows[titled:], 1 + titled):
            if len(row) <= place or not _whole(row[place]):
                raise BadKeys(f"row {number} of {self.file} has no whole number")
        return np.array([int(row[place]) for row in rows[titled:]], dtype=np.int64)

    def _place(self, titles: list[str]) -> int:
        if self.column is None and len(titles) == 1:
            return 0
        names = [title.strip() for title in titles]
        if self.column in names:
            return names.index(self.column)
        which = "has several columns" if self.column is None else f"has no column {self.column!r}"
        raise BadKeys(f"{self.file} {which}: say FILE:COLUMN with one of {', '.join(names)}")


def _whole(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True
