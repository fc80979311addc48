"""Keys for an index: a column of a file is counted by rank, or a key typed on the command line is read.

The file is read in batches and only its one column is kept, so memory is bounded by the domain and a batch, not by the
table. Keys in a file are SECRET: an error names the file and the row, and shows no cell.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from scumble.errors import FileError, InvalidKeys, InvalidParameter, OutOfDomain
from scumble.owner.sources import FILES, open_column
from scumble.owner.sources.csv_source import key_type
from scumble.types import Domain

__all__ = ["Beta", "DataFile", "KeyColumn", "count_keys", "key_of"]

DataFile = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The data: csv, tsv, parquet, arrow, feather or npy.", show_default=False),
]
KeyColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="The column that holds the keys; an npy file has only one.")
]
Beta = Annotated[str, typer.Option(metavar="NUMBER", help="The chance that any lookup at all may lose a row.")]
_NPY_ROWS = 1 << 20  # read at a time
_INTEGER = re.compile(r"[+-]?\d{1,1000}", re.ASCII)
_FLOAT = re.compile(r"[+-]?((\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|inf|nan)", re.ASCII | re.IGNORECASE)


def count_keys(file: Path, column: str | None, domain: Domain) -> NDArray[np.int64]:
    """Return how many rows of a column each rank of the domain holds."""
    counts = np.zeros(domain.size, np.int64)
    first_row = 0
    for batch in _batches(file, column):
        try:
            ranks = domain.ranks(_typed(batch, domain) if file.suffix.lower() in (".csv", ".tsv") else batch)
        except (InvalidKeys, OutOfDomain) as refusal:
            raise refusal.at(None if refusal.row is None else refusal.row + first_row) from None
        np.add.at(counts, ranks, 1)
        first_row += len(batch)
    return counts


def key_of(domain: Domain, text: str, subject: str, row: int | None = None) -> int | float | str:
    """Return the key that `text` spells; `subject` is what an error calls it.

    A float is the nearest double, as it is in a file: 0.3 is found in the bin that holds the double 0.3. Decimals,
    dates and times stay text, which their domains read themselves.
    """
    integers = domain.cell_type in ("bigint", "ubigint")
    if not integers and domain.cell_type != "double":
        return text
    if (_INTEGER if integers else _FLOAT).fullmatch(text) is None:
        form = "an integer" if integers else "a number"
        raise InvalidKeys(
            f" is text that does not read as {form}", hint="correct it, or change the domain", row=row, subject=subject
        )
    return int(text) if integers else float(text)


def _batches(file: Path, column: str | None) -> Iterator[Any]:
    suffix = file.suffix.lower()
    if suffix == ".npy":
        yield from _npy_batches(file)
        return
    if suffix not in FILES:
        known = ", ".join([*FILES, ".npy"])
        raise InvalidParameter(f"{file} is not a kind of file that can be read", hint=f"name one of {known}")
    if column is None:
        raise InvalidParameter(
            "--column is missing", hint="say which column holds the keys: --column salary, for example"
        )
    for batch in open_column(file, column):
        yield batch.column(0)


def _npy_batches(file: Path) -> Iterator[NDArray[Any]]:
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise FileError(
                f"cannot read {file}: {error.strerror}", hint="check the path and its permissions"
            ) from error
        raise FileError(
            f"{file} is not a whole npy file", hint="numpy.save writes one; arrays of objects are not read"
        ) from error
    if not isinstance(array, np.ndarray) or array.ndim != 1:
        raise FileError(f"{file} does not hold one column", hint="save an array of one dimension")
    for start in range(0, len(array), _NPY_ROWS):
        yield np.asarray(array[start : start + _NPY_ROWS])


def _typed(texts: Any, domain: Domain) -> Any:
    """Return the keys that texts spell, exactly: as Arrow reads them if it can read them all, else one by one."""
    import pyarrow as pa
    from pyarrow import compute

    type_ = key_type(domain)
    if type_ is not None and pa.types.is_string(type_):
        return texts
    trimmed = compute.utf8_trim_whitespace(texts)
    types = [] if type_ is None else [type_]
    if type_ is not None and pa.types.is_timestamp(type_):
        types.append(pa.timestamp(type_.unit, "UTC"))
    for exact in types:
        try:
            return trimmed.cast(exact)
        except pa.ArrowInvalid:
            continue
    cells = enumerate(trimmed.to_pylist())
    return [None if cell is None else key_of(domain, cell, "the key", row) for row, cell in cells]
