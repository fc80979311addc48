"""A column of keys in a file: a path comes in, the histogram of its keys goes out.

The file is read in batches and only the one column is kept, so memory is bounded by the domain and a batch, not by the
table. Everything here is secret: an error names the file, the line or the row, and shows no cell.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scumble.cli.csv_file import csv_batches
from scumble.errors import FileError, InvalidKeys, InvalidParameter, OutOfDomain
from scumble.types import Domain

__all__ = ["SUFFIXES", "count_keys"]

SUFFIXES = (".csv", ".tsv", ".parquet", ".arrow", ".feather", ".npy")
_NPY_ROWS = 1 << 20  # read at a time


def count_keys(file: Path, column: str | None, domain: Domain) -> NDArray[np.int64]:
    """Return how many rows of a column each rank of the domain holds."""
    counts = np.zeros(domain.size, np.int64)
    first_row = 0
    for keys in _batches(file, column, domain):
        try:
            ranks = domain.ranks(keys)
        except (InvalidKeys, OutOfDomain) as refusal:
            raise refusal.at(None if refusal.row is None else refusal.row + first_row) from None
        np.add.at(counts, ranks, 1)
        first_row += len(keys)
    return counts


def _batches(file: Path, column: str | None, domain: Domain) -> Iterator[Any]:
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidParameter(f"{file} is of no kind that can be read", hint=f"one of {', '.join(SUFFIXES)}")
    try:
        with file.open("rb"):
            pass
    except OSError as error:
        raise FileError(f"cannot read {file}: {error.strerror}", hint="check the path and its permissions") from error
    if suffix == ".npy":
        return _npy_batches(file)
    if column is None:
        raise InvalidParameter("which column holds the keys is not said", hint="--column salary, for example")
    if suffix in (".csv", ".tsv"):
        return csv_batches(file, column, domain, "," if suffix == ".csv" else "\t")
    return _arrow_batches(file, column, "parquet" if suffix == ".parquet" else "ipc")


def _npy_batches(file: Path) -> Iterator[NDArray[Any]]:
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise FileError(
            f"{file} is not a whole npy file", hint="numpy.save writes one; arrays of objects are not read"
        ) from error
    if not isinstance(array, np.ndarray) or array.ndim != 1:
        raise FileError(f"{file} does not hold one column", hint="save an array of one dimension")
    for start in range(0, len(array), _NPY_ROWS):
        yield np.asarray(array[start : start + _NPY_ROWS])


def _arrow_batches(file: Path, column: str, form: str) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.dataset as datasets

    try:
        table = datasets.dataset(file.absolute(), format=form)
        names = table.schema.names
        if names.count(column) != 1:
            known = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
            found = "no column" if column not in names else "more than one column"
            raise InvalidParameter(f"{file} has {found} {column!r}", hint=f"its columns are {known}")
        for batch in table.scanner(columns={"keys": datasets.field(column)}).to_batches():
            yield batch.column(0)
    except (pa.ArrowException, OSError) as error:
        name = "parquet" if form == "parquet" else "Arrow IPC"
        raise FileError(f"{file} is not a whole {name} file", hint="write it again, or restore it") from error
